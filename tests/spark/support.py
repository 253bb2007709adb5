"""A query without Spark: the planner, the executor's half and a checkpoint, on the fake account in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from random import Random
from typing import Any

from kinesis_sdk.common.aggregate_reader import Aggregate, decode
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.offsets import QueryOffset, ShardPosition
from kinesis_sdk.spark.options import SourceOptions
from kinesis_sdk.spark.planner import StreamPlanner
from kinesis_sdk.spark.positions import StartingPosition
from kinesis_sdk.spark.reading import ReadPolicy, ShardRange, read_range
from kinesis_sdk.spark.shardio import ShardIo
from kinesis_sdk.spark.tasks import group
from kinesis_sdk.testing import FakeAws, VirtualClock

STREAM = "orders"
HALF = 1 << 127
FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
TRIM = {"starting_position": StartingPosition.parse("TRIM_HORIZON")}


def starting(text: str) -> dict[str, Any]:
    """Return the option of a starting position."""
    return {"starting_position": StartingPosition.parse(text)}


def put_aggregate(client: Any, rows: Sequence[bytes]) -> None:
    """Put an aggregate into the first shard."""
    aggregate = Aggregate(1_000_000, 10_000)
    for payload in rows:
        assert aggregate.try_append("k", None, payload, hash_partition_key("k"))
    client.put_record(StreamName=STREAM, Data=aggregate.encode(), PartitionKey="a", ExplicitHashKey="0")


class World:
    """An account with a stream, and time in the test's hands."""

    def __init__(self, shards: int = 1, *, throttle: bool = False, seed: int = 0) -> None:
        self.clock = VirtualClock()
        self.aws = FakeAws(clock=self.clock, throttle=throttle, seed=seed)
        self.client = self.aws.client("kinesis")
        self.client.create_stream(StreamName=STREAM, ShardCount=shards)
        self.clock.advance(5)
        self.number = 0

    def put(self, count: int = 1, *, key: str = "k", hash_key: int | None = None) -> list[bytes]:
        payloads = []
        for _ in range(count):
            payload = b"%s:%d" % (key.encode(), self.number)
            self.number += 1
            where: dict[str, Any] = {} if hash_key is None else {"ExplicitHashKey": str(hash_key)}
            self.client.put_record(StreamName=STREAM, Data=payload, PartitionKey=key, **where)
            payloads.append(payload)
        return payloads

    def put_bulk(self, count: int, *, hash_key: int = 0, key: str = "k") -> None:
        for start in range(0, count, 500):
            entries = [
                {
                    "Data": b"%s:%d" % (key.encode(), self.number + i),
                    "PartitionKey": key,
                    "ExplicitHashKey": str(hash_key),
                }
                for i in range(min(500, count - start))
            ]
            self.number += len(entries)
            self.client.put_records(StreamName=STREAM, Records=entries)

    def open_shards(self) -> list[dict[str, Any]]:
        shards = self.client.list_shards(StreamName=STREAM, ShardFilter={"Type": "AT_LATEST"})["Shards"]
        return sorted(shards, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))

    def split(self, shard_id: str) -> None:
        (shard,) = [s for s in self.open_shards() if s["ShardId"] == shard_id]
        low, high = (int(shard["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
        self.client.split_shard(
            StreamName=STREAM, ShardToSplit=shard_id, NewStartingHashKey=str((low + high + 1) // 2)
        )
        self.clock.advance(2)

    def merge(self, first: str, second: str) -> None:
        self.client.merge_shards(StreamName=STREAM, ShardToMerge=first, AdjacentShardToMerge=second)
        self.clock.advance(2)

    def records(self, shard_id: str = FIRST, stream: str = STREAM) -> list[dict[str, Any]]:
        """The records of a shard, of at most one page."""
        at = self.client.get_shard_iterator(
            StreamName=stream, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
        )
        found: list[dict[str, Any]] = self.client.get_records(ShardIterator=at["ShardIterator"])["Records"]
        return found

    def numbers(self, shard_id: str = FIRST) -> list[str]:
        """The sequence numbers of a shard."""
        return [record["SequenceNumber"] for record in self.records(shard_id)]

    def calls(self) -> dict[str, int]:
        return dict(self.aws.stats()["calls"])


def options(**values: Any) -> SourceOptions:
    values.setdefault("probe_threads", 1)
    values.setdefault("streams", (StreamId.parse(STREAM),))
    return SourceOptions(**values)


def shards_of(offset: QueryOffset) -> dict[str, ShardPosition]:
    """The positions of an offset in the stream of `World`."""
    return dict(offset.streams[STREAM].shards)


class Around:
    """A client; subclasses change some of its operations."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)


class Misordering(Around):
    """Sends pages of records, by number from 1, as ``change`` makes them of the page that was sent before and this page."""

    def __init__(
        self, client: Any, change: Callable[[list[Any], list[Any]], list[Any]], pages: Container[int]
    ) -> None:
        super().__init__(client)
        self._change, self._pages = change, pages
        self._number = 0
        self._sent: list[Any] = []

    def get_records(self, **request: Any) -> dict[str, Any]:
        response: dict[str, Any] = self.client.get_records(**request)
        self._number += 1
        if self._number in self._pages:
            response = {**response, "Records": self._change(self._sent, response["Records"])}
        self._sent = response["Records"]
        return response


def exchange(_before: list[Any], records: list[Any]) -> list[Any]:
    """The last two records of a page in the wrong order."""
    return [*records[:-2], *reversed(records[-2:])]


class OffClock:
    """The account's clock, off by some seconds."""

    def __init__(self, clock: VirtualClock, offset: float) -> None:
        self.offset = offset
        self.monotonic = clock.monotonic
        self._clock = clock

    def time(self) -> float:
        return self._clock.time() + self.offset


class Query:
    """A streaming query with its checkpoint: planned offsets survive, the planner does not."""

    def __init__(
        self,
        world: World,
        chosen: Mapping[str, Any] | None = None,
        *,
        span: float | None = 0.0,
        clock: Clock | None = None,
    ) -> None:
        """Create a query.

        Args:
            world: The account.
            chosen: Options of the reader by field.
            span: Its ``maxBatchSpan``: 0 for no limit, None for the adaptive one.
            clock: The driver's clock; that of the account by default.
        """
        self.world = world
        self.clock = clock or world.clock
        self.options = options(**{"max_batch_span": span, **(chosen or {})})
        self.log: list[QueryOffset] = []
        self.committed = 0
        self.rows: list[tuple[str, str, bytes]] = []
        self.batches: list[int] = []
        self.restart()

    def restart(self) -> None:
        """A new process: everything but the checkpoint is gone."""
        self.planner = StreamPlanner(
            self.world.client,
            self.options,
            clock=self.clock,
            sleep=self.world.clock.advance,
            rng=Random(1),
        )
        self.initial = self.planner.initial()

    @property
    def start(self) -> QueryOffset:
        return self.log[self.committed - 1] if self.committed else self.initial

    def plan(self, **how: Any) -> bool:
        """Plan the next batch into the checkpoint; False if there is nothing new."""
        assert len(self.log) == self.committed
        end = self.planner.plan(self.start, **how)
        if end is self.start or end.to_json() == self.start.to_json():
            return False
        self.log.append(QueryOffset.from_json(end.to_json()))
        return True

    def read(self, *, fail_on_data_loss: bool | None = None) -> list[tuple[str, str, bytes]]:
        """The rows of the planned batch, as the executors read them."""
        ranges = in_order(self.planner.ranges(self.start, self.log[self.committed]))
        return [row for item in ranges for row in read(self.world, item, self.options, fail_on_data_loss)]

    def commit(self, rows: list[tuple[str, str, bytes]]) -> None:
        self.rows += rows
        self.batches.append(len(rows))
        self.committed += 1

    def run_batch(self, **how: Any) -> int | None:
        """One batch; None if there was nothing to plan."""
        if len(self.log) == self.committed and not self.plan(**how):
            return None
        rows = self.read()
        self.commit(rows)
        return len(rows)

    def run(self, seconds: float = 30, *, step: float = 1.1) -> None:
        """Trigger again and again until nothing new came for some seconds of virtual time."""
        quiet = 0.0
        for _ in range(2_000):
            quiet = quiet + step if self.run_batch() is None else 0.0
            self.world.clock.advance(step)
            if quiet >= seconds:
                return
        raise AssertionError("the query never comes to rest")

    def drain(self) -> None:
        """Run batches until there is nothing to plan."""
        while self.run_batch() is not None:
            pass

    def batch_read(self, ranges: list[ShardRange] | None = None) -> list[bytes]:
        """Payloads of a batch read, or of ranges that were planned for one."""
        found = self.planner.plan_read() if ranges is None else ranges
        return [payload for item in found for _, _, payload in read(self.world, item, self.options)]

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, _, payload in self.rows]


def in_order(ranges: list[ShardRange]) -> list[ShardRange]:
    """The ranges as the tasks read them: children after their parents."""
    return [item for task in group(ranges, max_tasks=64, shards_per_task=None) for item in task]


def read(
    world: World, item: ShardRange, chosen: SourceOptions, fail_on_data_loss: bool | None = None
) -> list[tuple[str, str, bytes]]:
    io = ShardIo(
        world.client,
        item.stream,
        clock=world.clock,
        sleep=world.clock.advance,
        rng=Random(2),
        retry_timeout=chosen.retry_timeout,
    )
    policy = ReadPolicy(
        limit=chosen.records_per_fetch,
        interval=chosen.fetch_interval,
        stall_timeout=chosen.retry_timeout,
        fail_on_data_loss=chosen.fail_on_data_loss if fail_on_data_loss is None else fail_on_data_loss,
    )
    rows = []
    for records in read_range(io, item, policy):
        for record in records:
            found = decode(record.data)
            payloads = [record.data] if found is None else [sub.data for sub in found]
            rows += [(item.shard_id, record.sequence_number, payload) for payload in payloads]
    return rows
