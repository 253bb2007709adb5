"""A fake account that the producers of tasks talk to, and what they store in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kinesis_sdk.common.aggregate_reader import deaggregate, decode, open_aggregate
from kinesis_sdk.common.once.table import decode_table
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.spark import partition
from kinesis_sdk.testing import FakeAws

STREAM = "orders"


@contextmanager
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    """An account with a stream of two shards, to which the producers of this process put."""
    aws = FakeAws()
    client = aws.client("kinesis")
    client.create_stream(StreamName=STREAM, ShardCount=2)
    made: list[Producer] = []

    def make(config: ProducerConfig, **_where: Any) -> Producer:
        made.append(Producer(config, client=client))
        return made[-1]

    monkeypatch.setattr(partition, "Producer", make)
    monkeypatch.setattr(partition, "_producers", {})
    yield aws
    for producer in made:
        producer.close(5)


def records_of(aws: FakeAws, stream: str = STREAM) -> Iterator[tuple[str, dict[str, Any]]]:
    """The Kinesis records of each shard, of at most one page."""
    client = aws.client("kinesis")
    for shard in client.list_shards(StreamName=stream)["Shards"]:
        name = shard["ShardId"]
        at = client.get_shard_iterator(StreamName=stream, ShardId=name, ShardIteratorType="TRIM_HORIZON")
        for record in client.get_records(ShardIterator=at["ShardIterator"])["Records"]:
            yield name, record


def stored(aws: FakeAws, stream: str = STREAM) -> list[tuple[str, str, bytes]]:
    """Shard, key and payload of every user record."""
    found = []
    for name, record in records_of(aws, stream):
        subs = decode(record["Data"])
        if subs is None:
            found.append((name, record["PartitionKey"], record["Data"]))
        else:
            found += [(name, sub.partition_key or "?", sub.data) for sub in subs]
    return found


def headers_of(aws: FakeAws) -> dict[bytes, dict[str, bytes]]:
    """Headers by payload."""
    records = (KinesisRecord.from_api(record) for _, record in records_of(aws))
    return {one.data: dict(one.headers) for one in deaggregate(records)}


def flags_of(aws: FakeAws) -> dict[bytes, int]:
    """Flags of the run of each user record, by payload."""
    found: dict[bytes, int] = {}
    for _, record in records_of(aws):
        columns = open_aggregate(record["Data"])
        assert columns is not None
        assert columns.tag is not None
        table = decode_table(columns.tag, STREAM, len(columns.payloads))
        assert table is not None
        flags = [run.flags for run in table.runs for _ in range(run.count)]
        found.update(zip(columns.payloads, flags, strict=True))
    return found
