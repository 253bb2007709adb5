"""Fleets of whole workers in virtual time: real engines, handlers and records, on the fake AWS.

One thread; every run is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import ConsumerConfig, RecordBatch, RecordHandler
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.runtime.runtime import InlineRuntime, Runtime
from kinesis_sdk.testing import FakeAws
from tests.consumer.fleet.lifecycle import Lifecycle
from tests.consumer.fleet.table import LeaseTable
from tests.consumer.fleet.timeline import Alarm, Timeline

STREAM = "orders"
HORIZON = ConsumerConfig(initial_position="TRIM_HORIZON")
UNHURRIED = HORIZON.with_fields(lease_scan_interval=3.0, max_idle_time_between_reads=5.0)
"""For tests of what workers do, and not of when. At the defaults, most of the processor's time goes to idle workers."""


class DatedKinesis:
    """The fake client, which can leave out the ``Date`` header that HTTP responses carry."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.meta = client.meta
        self.dated = True

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(**request: Any) -> Any:
            response = method(**request)
            if not self.dated:
                del response["ResponseMetadata"]["HTTPHeaders"]["date"]
            return response

        return call


def never_ending(ends: list[Callable[[BaseException | None], None]]) -> type[InlineRuntime]:
    """Return the runtime of a worker whose coroutines end only when the test calls what is put into ``ends``."""

    class NeverEnding(InlineRuntime):
        def run_async(self, awaitable: Any, on_done: Callable[[BaseException | None], None]) -> None:
            awaitable.close()
            ends.append(on_done)

    return NeverEnding


@dataclass
class Member:
    """A worker of the fleet.

    Attributes:
        life: Its life cycle.
        alarm: When it runs next.
        rank: Order among workers that are due at the same time.
    """

    life: Lifecycle
    alarm: Alarm
    rank: int


@dataclass
class Fleet:
    """Workers on one fake stream and one lease store.

    Args:
        shards: Shards of the stream.
        seed: Of the workers' generators.
        config: Of workers that get none of their own; `UNHURRIED` by default.
        store: Lease store; a `LeaseTable` by default.
    """

    shards: int = 1
    seed: int = 1
    config: ConsumerConfig = UNHURRIED
    store: Any = None

    def __post_init__(self) -> None:
        self.timeline = Timeline()
        self.clock = self.timeline.clock
        self.aws = FakeAws(clock=self.clock)
        self.raw = self.aws.client("kinesis")
        self.kinesis = DatedKinesis(self.raw)
        self.raw.create_stream(StreamName=STREAM, ShardCount=self.shards)
        self.stream = StreamId(STREAM)
        self.store = self.store or LeaseTable()
        self.engines: dict[str, ConsumerEngine] = {}
        self._members: dict[str, Member] = {}
        self._ranks = count(1)
        # Further arguments of engines, and the class of their runtime.
        self.more: dict[str, Any] = {}
        self.runtime: Callable[..., Runtime] = InlineRuntime
        self.put_count = 0
        self.sent: list[bytes] = []
        # (worker and acquisition, shard, data, sequence number, sub-sequence number) in order of delivery
        self.delivered: list[tuple[str, str, bytes, str, int]] = []
        self.events: list[tuple[float, str, str, str]] = []
        self.generation = 0
        self.acquisitions: dict[Any, int] = {}

    # Producing

    def put(self, number: int) -> None:
        entries = []
        for _ in range(number):
            data = b"%d" % self.put_count
            entries.append({"Data": data, "PartitionKey": f"k{self.put_count}"})
            self.sent.append(data)
            self.put_count += 1
        response = self.raw.put_records(StreamName=STREAM, Records=entries)
        assert response["FailedRecordCount"] == 0

    def open_shards(self) -> list[dict[str, Any]]:
        return self.raw.list_shards(StreamName=STREAM, ShardFilter={"Type": "AT_LATEST"})["Shards"]

    def split(self, index: int = 0) -> None:
        shard = self.open_shards()[index]
        low, high = (int(shard["HashKeyRange"][k]) for k in ("StartingHashKey", "EndingHashKey"))
        self.raw.split_shard(
            StreamName=STREAM, ShardToSplit=shard["ShardId"], NewStartingHashKey=str((low + high) // 2 + 1)
        )

    def merge(self, index: int = 0) -> None:
        shards = sorted(self.open_shards(), key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]))
        self.raw.merge_shards(
            StreamName=STREAM,
            ShardToMerge=shards[index]["ShardId"],
            AdjacentShardToMerge=shards[index + 1]["ShardId"],
        )

    # Consuming

    def add(self, name: str, handler: Any = None, config: ConsumerConfig | None = None) -> ConsumerEngine:
        self.generation += 1
        engine = ConsumerEngine(
            stream=self.stream,
            worker_id=name,
            config=config or self.config,
            handlers=HandlerSource.of(handler or self.function(name)),
            store=self.store,
            kinesis=self.kinesis,
            runtime=self.runtime(
                self.clock, Random(f"{self.seed} {name} {self.generation}"), self.clock.advance
            ),
            **self.more,
        )
        engine.start()
        self.engines[name] = engine
        self._join(name, lambda: self._tick(name, engine))
        return engine

    def add_script(self, name: str, script: Callable[[float], float]) -> None:
        """Add a worker of another make: a function of the time that returns when to call it again."""

        def step() -> None:
            now = self.clock.monotonic()
            self._members[name].alarm.set(max(script(now), now + 0.001))

        self._join(name, step)

    def _join(self, name: str, step: Callable[[], None]) -> None:
        former = self._members.get(name)
        if former is not None:
            former.alarm.cancel()
        # Of workers that are due at the same time, the one that joined first runs first.
        rank = former.rank if former is not None else next(self._ranks)
        life = Lifecycle()
        member = self._members[name] = Member(life, Alarm(self.timeline, life, step, rank=rank), rank)
        member.alarm.set(self.clock.monotonic())

    def _tick(self, name: str, engine: ConsumerEngine) -> None:
        now = self.clock.monotonic()
        following = engine.tick(now)
        if engine.error is not None:
            raise engine.error
        if following is None:
            del self.engines[name]
            self._members.pop(name).life.die()
        else:
            self._members[name].alarm.set(max(following, now + 0.001))

    def function(self, name: str) -> Callable[[RecordBatch], None]:
        def handle(batch: RecordBatch) -> None:
            self.note(name, batch)

        return handle

    def note(self, name: str, batch: RecordBatch) -> None:
        number = self.acquisitions.setdefault(batch.checkpointer, len(self.acquisitions))
        for record in batch.records:
            self.delivered.append(
                (
                    f"{name}#{number}",
                    batch.shard_id,
                    record.data,
                    record.sequence_number,
                    record.sub_sequence_number,
                )
            )

    def recorder(
        self, name: str, *, checkpoint: bool = True, last_words: bool = False
    ) -> type[RecordHandler]:
        fleet = self

        class Recorder(RecordHandler):
            shard = "?"

            def event(self, what: str) -> None:
                fleet.events.append((fleet.clock.monotonic(), name, self.shard, what))

            def initialize(self, shard: Any) -> None:
                self.shard = shard.shard_id
                self.event("initialize")

            def process_records(self, batch: RecordBatch) -> None:
                self.event("process")
                fleet.note(name, batch)
                if checkpoint:
                    batch.checkpoint()

            def lease_lost(self) -> None:
                self.event("lease_lost")

            def shard_ended(self, checkpointer: Any) -> None:
                self.event("shard_ended")
                checkpointer.checkpoint()

            def shutdown_requested(self, checkpointer: Any) -> None:
                self.event("shutdown_requested")
                if last_words:
                    checkpointer.checkpoint()

        return Recorder

    def crash(self, name: str) -> None:
        """End a worker without warning, as by SIGKILL."""
        self.engines.pop(name, None)
        self._members.pop(name).life.die()

    def freeze(self, name: str, seconds: float) -> None:
        """Stop a worker from running for some seconds: SIGSTOP, SIGCONT."""
        member = self._members[name]
        member.life.freeze(self.clock.monotonic() + seconds)
        member.alarm.set(self.clock.monotonic() + seconds)

    def stop(self, name: str) -> None:
        """Request a clean stop."""
        self.engines[name].request_stop()
        self._members[name].alarm.set(self.clock.monotonic())

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass.

        Args:
            seconds: Time after which to return.
            until: Condition that ends the run earlier.

        Returns:
            Whether ``until`` is true in the end; True without ``until``.
        """
        if until is not None and until():
            return True
        return self.timeline.run(self.clock.monotonic() + seconds, until)

    # Checking

    def data(self) -> list[bytes]:
        return [data for _, _, data, _, _ in self.delivered]

    def all_delivered(self) -> bool:
        # Asked after each event. All that was put differs, so something is missing while there are fewer deliveries.
        return len(self.delivered) >= len(self.sent) and set(self.data()) == set(self.sent)

    def owners(self) -> dict[str, str | None]:
        return {
            lease.lease_key: lease.owner
            for lease in sorted(self.store.list(), key=lambda lease: lease.lease_key)
            if not lease.is_finished
        }

    def check_order(self) -> None:
        """Check that positions only rise within one acquisition of a lease."""
        last: dict[str, tuple[str, ExtendedSequenceNumber]] = {}
        for worker, shard, _, sequence, sub in self.delivered:
            position = ExtendedSequenceNumber(sequence, sub)
            before = last.get(shard)
            if before is not None and before[0] == worker:
                assert position > before[1], f"{shard}: {position} after {before[1]}"
            last[shard] = (worker, position)
