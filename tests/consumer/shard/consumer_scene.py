"""One shard under one lease in virtual time, and the responses that its fetcher plays."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from kinesis_sdk.common.aggregate_reader import Aggregate
from kinesis_sdk.common.errors import RestartShardError
from kinesis_sdk.common.hashkeys import HashKeyRange, hash_partition_key
from kinesis_sdk.common.metrics import NOT_MEASURED
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import ConsumerConfig, Lease, RecordHandler
from kinesis_sdk.consumer.fetch import FetchResult
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.shard.consumer import ShardConsumer
from kinesis_sdk.consumer.shard.runtime import ShardRuntime
from kinesis_sdk.consumer.shard_sync import ChildLeases
from kinesis_sdk.testing import VirtualClock
from tests.consumer.leases.held_lease import Trouble, hold

FULL = HashKeyRange(0, 2**128 - 1)
CHILD = Shard("c", FULL, "s")
END = ExtendedSequenceNumber(SHARD_END)


def plain(*numbers):
    return [KinesisRecord(b"%d" % number, "k", str(number)) for number in numbers]


def aggregate(number, *keys):
    built = Aggregate(10_000, 100)
    for index, key in enumerate(keys):
        assert built.try_append(key, None, b"%d/%d" % (number, index), hash_partition_key(key))
    return KinesisRecord(built.encode(), "a", str(number))


class Script:
    """A fetcher that plays what it is given; afterwards it is at the tip."""

    def __init__(self, *results):
        self.results = list(results)
        self.due = 0.0
        self.closed = False

    waiting = None

    def fetch(self, now):
        self.due = now + 1.0
        result = self.results.pop(0) if self.results else FetchResult(records=[], header=AT_TIP)
        if isinstance(result, Exception):
            raise result
        return result

    def close(self):
        self.closed = True


def got(*numbers, started_at_millis=None, on_done=lambda: None, **header):
    return FetchResult(
        records=plain(*numbers),
        header=replace(AT_TIP, **header),
        started_at_millis=started_at_millis,
        on_done=on_done,
    )


AT_TIP = ResponseHeader(millis_behind_latest=0)
ENDED = {"ended": True, "child_shards": (CHILD,)}


class Scene:
    def __init__(self, *results, handler=None, lease=None, rows=(), listed=(), **config):
        self.clock = VirtualClock()
        self.store = Trouble()
        config.setdefault("initial_position", "TRIM_HORIZON")
        self.config = ConsumerConfig().with_fields(**config)
        self.events = []
        self.delivered = []
        self.errors = []
        self.opened = []
        self.script = Script(*results)
        self.handler = handler or self.function
        for row in rows:
            self.store.create_if_absent(row)
        self.store.create_if_absent(
            lease
            or Lease(lease_key="s", checkpoint=ExtendedSequenceNumber(TRIM_HORIZON), hash_key_range=FULL)
        )
        self.listed = [Shard(key, FULL) for key in listed]
        self.syncs = 0
        self.take()

    def take(self, owner="me"):
        row = self.store.take(self.store.get("s"), owner)
        if owner != "me":
            return
        self.held = hold(self.store, row, self.clock)
        self.consumer = ShardConsumer(self.runtime(), self.held)

    def runtime(self):
        return ShardRuntime(
            stream=StreamId("orders"),
            worker_id="me",
            config=self.config,
            handlers=HandlerSource.of(self.handler),
            store=self.store,
            children=ChildLeases(self.store, lambda: self.listed, self.sync),
            open_fetcher=self.open,
            list_shards=lambda: self.listed,
            clock=self.clock,
            rng=Random(1),
            sleep=self.clock.advance,
            measure=lambda shard_id: NOT_MEASURED,
        )

    def use(self, handler, **runtime):
        """Deliver to another handler; ``runtime`` replaces parts of the runtime."""
        self.handler = handler
        self.consumer = ShardConsumer(replace(self.runtime(), **runtime), self.held)

    def sync(self):
        self.syncs += 1

    def open(self, shard_id, start, now, on_ready, metrics, *, polled=False):
        self.opened.append(start)
        self.polled = polled
        self.script.due = now
        return self.script

    def function(self, batch):
        if self.errors:
            error = self.errors.pop(0)
            if error is not None:
                raise error
        self.delivered += [record.data for record in batch.records]

    def recorder(self, *, fail=None, checkpoint=False, end=True):
        scene = self
        fail = fail if fail is not None else {}

        class Recorder(RecordHandler):
            def note(self, name):
                scene.events.append(name)
                if fail.get(name, 0) > 0:
                    fail[name] -= 1
                    raise RuntimeError(f"{name} fails")

            def initialize(self, shard):
                self.note("initialize")
                scene.context = shard

            def process_records(self, batch):
                self.note("process")
                scene.delivered += [record.data for record in batch.records]
                if checkpoint:
                    batch.checkpoint()

            def lease_lost(self):
                self.note("lease_lost")

            def shard_ended(self, checkpointer):
                self.note("shard_ended")
                if end:
                    checkpointer.checkpoint()

            def shutdown_requested(self, checkpointer):
                self.note("shutdown_requested")
                checkpointer.checkpoint()

        return Recorder

    def run(self, seconds=5.0, *, renew=True):
        """Step until complete or until the time is over."""
        end = self.clock.monotonic() + seconds
        due = self.clock.monotonic()
        while due is not None and due <= end:
            self.clock.advance_to(due)
            if renew and self.held.gone is None and self.clock.monotonic() - self.held.written_at > 3:
                self.held.renew()
            due = self.consumer.step(self.clock.monotonic())
        if due is not None:
            self.clock.advance_to(end)
        return due

    @property
    def row(self):
        return self.store.get("s")


def recorded(*results, fail=None, checkpoint=False, end=True, **more):
    scene = Scene(*results, **more)
    scene.use(scene.recorder(fail=fail, checkpoint=checkpoint, end=end))
    return scene


class Restarting(RecordHandler):
    """Fails once at a record, in the way that is given; checkpoints record 1 only."""

    def __init__(self, scene, failing, error=None):
        self.scene = scene
        self.failing = failing
        self.error = error or RestartShardError("the child is gone")
        scene.events.append("new")

    def fail_at(self, callback):
        if self.failing.get(callback, 0) > 0:
            self.failing[callback] -= 1
            raise self.error

    def initialize(self, shard):
        self.scene.events.append(f"initialize at {shard.checkpoint}")
        self.fail_at("initialize")

    def process_records(self, batch):
        data = [record.data for record in batch.records]
        self.scene.events.append(data)
        if b"1" in data:
            batch.checkpoint("1")
        if b"3" in data:
            self.fail_at("process_records")
        self.scene.delivered += data

    def shard_ended(self, checkpointer):
        self.scene.events.append("shard_ended")
        self.fail_at("shard_ended")
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer):
        self.scene.events.append("shutdown_requested")

    def lease_lost(self):
        self.scene.events.append("lease_lost")


def restarting(*results, error=None, **failing):
    scene = Scene(*results, on_handler_error="stop")
    scene.use(lambda: Restarting(scene, failing, error))
    return scene
