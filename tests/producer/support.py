"""What the producer's unit tests share: small records, closed aggregates, a client that can be stopped."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from kinesis_sdk.common.aggregate_reader import Aggregate
from kinesis_sdk.common.errors import RecordFailedError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.shards import Shard, ShardMap
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer import engine
from kinesis_sdk.producer.records.entry import Entry, Group
from kinesis_sdk.producer.records.future import PendingRecord
from kinesis_sdk.producer.records.record import CallbackRun, DeliveryState, Stored, mark_failed, mark_stored
from kinesis_sdk.producer.stream.aggregator import Aggregator
from kinesis_sdk.producer.stream.dispatch import Lane
from kinesis_sdk.producer.stream.limiter import RateLimit, ShardRate
from kinesis_sdk.producer.stream.pipeline import StreamPipeline
from kinesis_sdk.testing import FakeAws
from tests import HANG

Make = Callable[..., Any]
"""Type of the fixture that makes producers."""

LONG = HANG
"""Seconds that a test waits for another thread before it fails; never reached when all is well."""


class MadeRecord(PendingRecord):
    """A user record with the times that a pipeline would give it.

    Attributes:
        deadline: Monotonic seconds at which it leaves its aggregate at the latest.
        expires: Monotonic seconds at which it fails if it is not stored.
    """

    deadline: float
    expires: float


interpreted = pytest.mark.skipif(
    not engine.__file__.endswith(".py"), reason="replaces, or stops inside, what is compiled here"
)
"""For tests that `make test-compiled` cannot run."""


def make_record(
    key: str = "k",
    data: bytes = b"x",
    *,
    arrived: float = 0.0,
    deadline: float = 0.1,
    expires: float = 30.0,
    hash_key: int | None = None,
) -> MadeRecord:
    """A user record outside of any producer, alone in a Kinesis record."""
    record = MadeRecord()
    record.partition_key = key
    record._details = None
    record._listeners = None
    record.explicit_hash_key = None if hash_key is None else str(hash_key)
    record.arrived = arrived
    record.deadline, record.expires = deadline, expires
    record._delivery = DeliveryState(None)
    together([record], data)
    return record


def together(records: Iterable[MadeRecord], data: bytes | None = None, shard_id: str | None = None) -> Entry:
    """Put records into one Kinesis record, without limits; ``data`` for those that have none yet."""
    entry = Entry(Aggregate(10**9, 10**9), shard_id)
    for record in records:
        payload = record.data if data is None else data
        assert entry.take(record, payload, record.hash_key, record.deadline, record.expires)
    return entry


def acknowledge(entry: Entry, stored: Stored) -> None:
    """Give all user records of a Kinesis record their result, and run their callbacks."""
    CallbackRun(mark_stored(entry, stored)).run()


def fail(record: PendingRecord, error: BaseException) -> None:
    """Give a user record its final failure, and run its callbacks."""
    CallbackRun(mark_failed((record,), error)).run()


def failure_of(record: PendingRecord, timeout: float = 0) -> RecordFailedError:
    """Return the error of a record that failed."""
    error = record.exception(timeout)
    assert isinstance(error, RecordFailedError)
    return error


@contextlib.contextmanager
def beside(*works: Callable[[], object]) -> Iterator[list[threading.Thread]]:
    """Let another thread do each of ``works``; all must have ended soon after the block."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    yield threads
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()


class Held:
    """A callback, or work, that comes no further until it is released; ``returned`` has its arguments afterwards."""

    def __init__(self) -> None:
        self.entered, self.released = threading.Event(), threading.Event()
        self.returned: list[Any] = []

    def __call__(self, *arguments: Any) -> None:
        self.entered.set()
        assert self.released.wait(LONG)
        self.returned.extend(arguments)


def settle(producer: Any, stream: str = "orders") -> None:
    """Put records until the producer knows its stream."""
    pipeline = producer._engine.pipeline(StreamId.parse(stream))
    for _ in range(10_000):
        producer.put(stream, "settle", b"settle")
        assert producer.flush(LONG) == 0
        if pipeline.topology.described:
            return
    raise AssertionError("the stream's facts do not come")


def add(aggregator: Aggregator, record: MadeRecord, group: Group) -> Entry | None:
    """Put a record into an aggregator."""
    return aggregator.add(record, record.data, record.hash_key, group, record.deadline, record.expires)


def put(pipeline: StreamPipeline, record: MadeRecord, now: float, epoch: int = 0) -> bool:
    """Put a record into a pipeline, with its own times instead of the pipeline's."""
    record.due = record.deadline
    record.grace = record.expires - (record.arrived + pipeline.record_ttl)
    data = record.data
    return pipeline.queue.place(record, data, record.hash_key, epoch, record.deadline, record.expires, now)


def make_entry(
    size: int = 10,
    *,
    deadline: float = 0.0,
    expires: float = 30.0,
    shard_id: str | None = "shardId-000000000000",
    hash_keys: tuple[int, ...] = (1,),
) -> Entry:
    """A Kinesis record that counts ``size`` bytes (data and a partition key of one byte) if it is a single one."""
    records = [
        make_record("k", b"x" * (size - 1), deadline=deadline, expires=expires, hash_key=number)
        for number in hash_keys
    ]
    return together(records, shard_id=shard_id)


def rated_lane(rate_limit: int, now: float) -> Lane:
    """A lane with nothing but a rate limit, in per cent of the published limits."""
    limit = RateLimit(rate_limit, random.Random())
    limit._rates[make_entry().group] = ShardRate(rate_limit, now)
    return Lane((limit,))


def rate_of(lane: Lane) -> ShardRate:
    """The rate of a `rated_lane`."""
    (limit,) = lane._policies
    assert isinstance(limit, RateLimit)
    (rate,) = limit._rates.values()
    return rate


def shard(number: int, start: int, end: int) -> Shard:
    """A shard by number and range."""
    return Shard(f"shardId-{number:012d}", HashKeyRange(start, end))


def tiling(*ranges: tuple[int, int, int]) -> list[Shard]:
    """Shards of the given (number, start, end); a last one takes the rest of the space."""
    shards = [shard(*item) for item in ranges]
    rest = ranges[-1][2] + 1
    if rest <= MAX_HASH_KEY:
        shards.append(shard(9_999, rest, MAX_HASH_KEY))
    return shards


def shard_map(
    *ranges: tuple[int, int, int], loaded_at: float = 0.0, previous: ShardMap | None = None
) -> ShardMap:
    """A map of `tiling`."""
    return ShardMap(tiling(*ranges), loaded_at, previous)


class Gate:
    """A client around the fake one, whose calls can be held, counted and replaced.

    Args:
        aws: The account behind it.
        patience: Seconds for which a held call waits before it fails; None for as long as it takes.
    """

    def __init__(self, aws: FakeAws, patience: float | None = LONG) -> None:
        self.aws = aws
        self.patience = patience
        self.client = aws.client("kinesis")
        self.open = threading.Event()
        self.open.set()
        self.arrived = threading.Semaphore(0)
        self.requests: list[list[dict[str, Any]]] = []
        self.replace: dict[str, Callable[..., dict[str, Any]]] = {}

    def put_records(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request["Records"])
        self.arrived.release()
        assert self.open.wait(self.patience)
        return self._call("put_records", request)

    def list_shards(self, **request: Any) -> dict[str, Any]:
        return self._call("list_shards", request)

    def describe_stream_summary(self, **request: Any) -> dict[str, Any]:
        return self._call("describe_stream_summary", request)

    def get_shard_iterator(self, **request: Any) -> dict[str, Any]:
        return self._call("get_shard_iterator", request)

    def get_records(self, **request: Any) -> dict[str, Any]:
        return self._call("get_records", request)

    def _call(self, method: str, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.replace.get(method, getattr(self.client, method))(**request)
        return answer

    @property
    def entries(self) -> int:
        """Kinesis records that were sent so far, stored or not."""
        return sum(map(len, self.requests))
