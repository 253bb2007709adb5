"""What the producer's unit tests share: small records, closed aggregates, a client that can be stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kinesis_sdk.common.aggregation import Aggregate
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange, hash_partition_key
from kinesis_sdk.common.shards import Shard, ShardMap
from kinesis_sdk.producer.aggregator import Entry
from kinesis_sdk.producer.record import PendingRecord
from kinesis_sdk.testing import FakeAws

LONG = 20.0
"""Seconds that a test waits for another thread before it fails; never reached when all is well."""


def make_record(
    key: str = "k",
    data: bytes = b"x",
    *,
    arrived: float = 0.0,
    deadline: float = 0.1,
    expires: float = 30.0,
    hash_key: int | None = None,
) -> PendingRecord:
    """A user record outside of any producer."""
    effective = hash_partition_key(key) if hash_key is None else hash_key.to_bytes(16, "big")
    explicit = None if hash_key is None else str(hash_key)
    return PendingRecord(key, explicit, data, effective, arrived, deadline, expires)


def make_entry(
    size: int = 10,
    *,
    deadline: float = 0.0,
    expires: float = 30.0,
    shard_id: str | None = "shardId-000000000000",
    hash_keys: tuple[int, ...] = (1,),
) -> Entry:
    """A Kinesis record that counts ``size`` bytes (data and a partition key of one byte) if it is a single one."""
    aggregate = Aggregate(10**9, 10**9)
    records = [
        make_record("k", b"x" * (size - 1), deadline=deadline, expires=expires, hash_key=number)
        for number in hash_keys
    ]
    for record in records:
        assert aggregate.try_append("k", record.explicit_hash_key, record.data, record.hash_key)
    return Entry(aggregate, records, shard_id, deadline, expires)


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
    """

    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws
        self.client = aws.client("kinesis")
        self.open = threading.Event()
        self.open.set()
        self.arrived = threading.Semaphore(0)
        self.requests: list[list[dict[str, Any]]] = []
        self.replace: dict[str, Callable[..., dict[str, Any]]] = {}

    def put_records(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request["Records"])
        self.arrived.release()
        assert self.open.wait(LONG)
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
