"""A fleet of workers in virtual time: one thread, every run the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore, Lease, RecordBatch, RecordHandler
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.runtime.runtime import InlineRuntime, Runtime
from kinesis_sdk.testing import FakeAws, VirtualClock

STREAM = "orders"


class DatedKinesis:
    """The fake client, which can be told to leave out the ``Date`` header that HTTP answers carry."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.meta = client.meta
        self.dated = True

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(**request: Any) -> Any:
            answer = method(**request)
            if not self.dated:
                del answer["ResponseMetadata"]["HTTPHeaders"]["date"]
            return answer

        return call


class CheckedStore(InMemoryLeaseStore):
    """Checks what must hold of every write: counters rise, checkpoints rise, parents finish before children."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.watch: Callable[[Lease], None] = lambda lease: None

    def _swap(self, seen: Lease, change: Any, **conditions: Any) -> Any:
        before = self.get(seen.lease_key)
        result = super()._swap(seen, change, **conditions)
        after = self.get(seen.lease_key)
        if before is not None and after is not None:
            assert after.counter >= before.counter
            assert after.checkpoint >= before.checkpoint
            if after is not before:
                assert after.counter == before.counter + 1
                self.writes += 1
                self.watch(after)
        return result


@dataclass
class Fleet:
    """Workers over one fake stream and one lease store."""

    shards: int = 1
    seed: int = 1
    config: ConsumerConfig = field(default_factory=lambda: ConsumerConfig(initial_position="TRIM_HORIZON"))
    store: Any = None

    def __post_init__(self) -> None:
        self.clock = VirtualClock()
        self.aws = FakeAws(clock=self.clock)
        self.raw = self.aws.client("kinesis")
        self.kinesis = DatedKinesis(self.raw)
        self.raw.create_stream(StreamName=STREAM, ShardCount=self.shards)
        self.store = self.store or CheckedStore()
        self.engines: dict[str, ConsumerEngine] = {}
        self.due: dict[str, float] = {}
        # Workers of other makes: functions of the time that return when they want to be called again.
        self.scripts: dict[str, Callable[[float], float]] = {}
        # Further arguments of engines, and the class of their runtime.
        self.more: dict[str, Any] = {}
        self.runtime: Callable[..., Runtime] = InlineRuntime
        self.put_count = 0
        self.sent: list[bytes] = []
        # (worker and acquisition, shard, data, sequence number, sub) in order of delivery
        self.delivered: list[tuple[str, str, bytes, str, int]] = []
        self.events: list[tuple[float, str, str, str]] = []
        self.generation = 0
        self.stays: dict[Any, int] = {}

    # Producing

    def put(self, count: int) -> None:
        entries = []
        for _ in range(count):
            data = b"%d" % self.put_count
            entries.append({"Data": data, "PartitionKey": f"k{self.put_count}"})
            self.sent.append(data)
            self.put_count += 1
        answer = self.raw.put_records(StreamName=STREAM, Records=entries)
        assert answer["FailedRecordCount"] == 0

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
            stream=StreamId(STREAM),
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
        self.due[name] = self.clock.monotonic()
        return engine

    def function(self, name: str) -> Callable[[RecordBatch], None]:
        def handle(batch: RecordBatch) -> None:
            self.note(name, batch)

        return handle

    def note(self, name: str, batch: RecordBatch) -> None:
        stay = f"{name}#{self.stays.setdefault(batch.checkpointer, len(self.stays))}"
        for record in batch.records:
            self.delivered.append(
                (stay, batch.shard_id, record.data, record.sequence_number, record.sub_sequence_number)
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

    def add_script(self, name: str, script: Callable[[float], float]) -> None:
        self.scripts[name] = script
        self.due[name] = self.clock.monotonic()

    def crash(self, name: str) -> None:
        """The process is gone: it just is not stepped any more."""
        self.engines.pop(name, None)
        self.scripts.pop(name, None)
        del self.due[name]

    def freeze(self, name: str, seconds: float) -> None:
        """The process stands still and comes back: SIGSTOP, SIGCONT."""
        self.due[name] = self.clock.monotonic() + seconds

    def stop(self, name: str) -> None:
        self.engines[name].request_stop()
        self.due[name] = self.clock.monotonic()

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass, waking each worker when it asked for it."""
        end = self.clock.monotonic() + seconds
        while True:
            if until is not None and until():
                return True
            if not self.due or min(self.due.values()) > end:
                self.clock.advance_to(end)
                return until() if until is not None else True
            name = min(self.due, key=lambda n: self.due[n])
            self.clock.advance_to(self.due[name])
            now = self.clock.monotonic()
            script = self.scripts.get(name)
            if script is not None:
                self.due[name] = max(script(now), now + 0.001)
                continue
            following = self.engines[name].tick(now)
            error = self.engines[name].error
            if error is not None:
                raise error
            if following is None:
                del self.engines[name], self.due[name]
            else:
                self.due[name] = max(following, now + 0.001)

    # Checking

    def data(self) -> list[bytes]:
        return [data for _, _, data, _, _ in self.delivered]

    def all_delivered(self) -> bool:
        return set(self.data()) == set(self.sent)

    def owners(self) -> dict[str, str | None]:
        return {
            lease.lease_key: lease.owner
            for lease in sorted(self.store.list(), key=lambda lease: lease.lease_key)
            if not lease.is_finished
        }

    def check_order(self) -> None:
        """Within one worker's stay at a shard, positions only rise."""
        last: dict[str, tuple[str, ExtendedSequenceNumber]] = {}
        for worker, shard, _, sequence, sub in self.delivered:
            position = ExtendedSequenceNumber(sequence, sub)
            before = last.get(shard)
            if before is not None and before[0] == worker:
                assert position > before[1], f"{shard}: {position} after {before[1]}"
            last[shard] = (worker, position)
