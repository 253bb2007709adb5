"""Runtime of the shard consumers of one stream: the parts that they share."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol, TypeVar

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.metrics import BoundMetrics
from kinesis_sdk.common.position import Position
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.fetch.budget import ByteBudget
from kinesis_sdk.consumer.fetch.fetcher import Fetcher
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.leases.table.store import LeaseStore
from kinesis_sdk.consumer.runtime.runtime import OnDone, run_now
from kinesis_sdk.consumer.runtime.threads import result_of, run_inline, wait_for
from kinesis_sdk.consumer.shard_sync.children import ChildLeases
from kinesis_sdk.consumer.sinks.sink import AnySink, SinkKey
from kinesis_sdk.consumer.until import Until

_T = TypeVar("_T")


class OpenFetcher(Protocol):
    """Opens the reading of a shard."""

    def __call__(
        self,
        shard_id: str,
        start: Position,
        now: float,
        on_ready: Callable[[], None],
        metrics: BoundMetrics,
        /,
        *,
        polled: bool = False,
        look_up: int | None = None,
    ) -> Fetcher:
        """Return a fetcher that begins at ``start``; an `AwsError` means that the position could not be resolved.

        ``on_ready`` is called from any thread when the fetcher has a result. ``polled`` polls even if enhanced fan-out is
        configured. ``look_up`` is the maximum number of Kinesis records per call of a look-up, which `Fetcher.fetch` makes
        itself; None reads ahead.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ShardRuntime:
    """Parts that the shard consumers of one stream share: settings, services, time and threads.

    A shard consumer and its parts get this object and the objects of their own shard (lease, handler, metrics). Shard consumers refer to
    it and copy nothing from it.

    Attributes:
        lease_key: Returns the lease key of a shard id.
        measure: Returns the metrics of one acquisition of a shard id.
        budget: Bytes of fetched records that all shards of the worker may hold.
        sleep: Waits between two attempts of a checkpoint, in seconds.
        run_step: Runs a call of a handler now or soon, on any thread.
        run_async: Starts an awaitable on the event loop of the worker and reports its outcome.
        until: The moment up to which records are processed before the worker ends; None if it does not end by itself.
        sink: Store in which effects and positions change together; None without a sink.
    """

    stream: StreamId
    worker_id: str
    config: ConsumerConfig
    handlers: HandlerSource
    store: LeaseStore
    children: ChildLeases
    open_fetcher: OpenFetcher
    list_shards: Callable[[], list[Shard]]
    measure: Callable[[str], BoundMetrics]
    clock: Clock
    rng: Random
    sleep: Callable[[float], None]
    lease_key: Callable[[str], str] = str
    budget: ByteBudget = field(default_factory=lambda: ByteBudget(sys.maxsize))
    run_step: Callable[[Callable[[], None]], object] = run_now
    run_async: Callable[[Awaitable[None], OnDone], None] = run_inline
    until: Until | None = None
    sink: AnySink | None = None
    application_name: str = ""

    def sink_key(self, shard_id: str) -> SinkKey:
        """Return the key of a shard's row in the sink."""
        return SinkKey(self.application_name, self.stream.name, self.lease_key(shard_id))

    def log(self, logger: FieldLogger, shard_id: str) -> FieldLogger:
        """Return a module's logger with the fields of one shard."""
        return FieldLogger(logger, stream=self.stream, shard=shard_id, worker=self.worker_id)

    def wait_for(self, awaitable: Awaitable[None]) -> None:
        """Run an awaitable on the worker's event loop, and wait; raise its error, or `HandlerError` if it was cancelled."""
        wait_for(self.run_async, awaitable)

    def result_of(self, value: Awaitable[_T] | _T) -> _T:
        """Return a value, or the result of an awaitable, which runs on the worker's event loop."""
        return result_of(self.run_async, value)
