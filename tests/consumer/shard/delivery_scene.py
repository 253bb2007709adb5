"""The delivery of one shard in virtual time."""

from __future__ import annotations

import logging
from random import Random

from kinesis_sdk.common.error_policy import RetryBatch
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.metrics import NOT_MEASURED
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore, Lease
from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.handler import FunctionHandler, HandlerSource
from kinesis_sdk.consumer.runtime.threads import run_inline
from kinesis_sdk.consumer.shard.delivery import Delivery
from kinesis_sdk.consumer.shard.failures import ShardFailures
from kinesis_sdk.consumer.shard.handler_requests import HandlerRequests
from kinesis_sdk.consumer.shard.runtime import ShardRuntime
from kinesis_sdk.consumer.shard_sync.children import ChildLeases
from kinesis_sdk.testing import VirtualClock
from tests.consumer.leases.held_lease import hold


def record(number, key="k", data=None):
    data = b"%d" % number if data is None else data
    return UserRecord(data, key, str(number), None, None, 0, None, False)


class Scene:
    def __init__(self, handle, *, policy=None, concurrency=1, deferred=False, rng=None, limit=1_000):
        self.clock = VirtualClock()
        store = InMemoryLeaseStore([Lease(lease_key="s", checkpoint=ExtendedSequenceNumber(TRIM_HORIZON))])
        self.held = hold(store, store.take(store.get("s"), "me"), self.clock, failover_time=1e6)
        self.checkpointer = Checkpointer(
            self.held, clock=self.clock, sleep=self.clock.advance, rng=Random(1), timeout=1.0
        )
        self.waiting = []
        self.woken = 0
        self.released = []

        def unused(*_arguments):
            raise AssertionError("a delivery neither reads nor takes leases")

        self.runtime = ShardRuntime(
            stream=StreamId("orders"),
            worker_id="me",
            config=ConsumerConfig(
                on_handler_error=policy or RetryBatch(), concurrency=concurrency, batch_records=limit
            ),
            handlers=HandlerSource.of(handle),
            store=store,
            children=ChildLeases(store, unused, unused),
            open_fetcher=unused,
            list_shards=unused,
            measure=unused,
            clock=self.clock,
            rng=rng or Random(1),
            sleep=self.clock.advance,
            run_step=self.waiting.append if deferred else lambda function: function(),
            run_async=self.run_async if deferred else run_inline,
        )
        self.requests = HandlerRequests(self.held, FieldLogger(logging.getLogger(__name__)))
        self.failed = ShardFailures()
        self.handler = FunctionHandler(handle)
        self.delivery = self.new_delivery()

    def new_delivery(self):
        return Delivery(
            self.runtime,
            held=self.held,
            handler=self.handler,
            checkpointer=self.checkpointer,
            metrics=NOT_MEASURED,
            requests=self.requests,
            failed=self.failed,
            on_call_ended=self.wake,
        )

    def restart(self):
        """Do what a restart of the shard does, once it has read again."""
        self.delivery.forget(self.clock.monotonic())
        self.failed.restarted()
        assert self.delivery.failing is None
        self.delivery = self.new_delivery()

    def run_async(self, awaitable, on_done):
        self.waiting.append(lambda: run_inline(awaitable, on_done))

    def wake(self):
        self.woken += 1

    def offer(self, *records, millis=0):
        header = ResponseHeader(millis_behind_latest=millis)
        self.delivery.lanes.offer(
            list(records), header, lambda: self.released.append(records[-1].sequence_number)
        )

    def step(self):
        return self.delivery.advance(self.clock.monotonic())

    def run(self, seconds=1000.0):
        """Step until everything is done or only calls are waited for."""
        end = self.clock.monotonic() + seconds
        while (due := self.step()) is not None and due <= end:
            self.clock.advance_to(due)
        return due
