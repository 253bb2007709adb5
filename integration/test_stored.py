"""The reader of checks, beside other readers that use up a shard's limit."""

from __future__ import annotations

import pytest

from integration.stored import stored_in_shard, stored_records, stored_shards
from kinesis_sdk.testing import FakeAws, Fault


@pytest.mark.parametrize("operation", ["ListShards", "GetShardIterator", "GetRecords"])
def test_a_rejected_call_is_repeated(operation: str) -> None:
    aws = FakeAws()
    kinesis = aws.client("kinesis")
    kinesis.create_stream(StreamName="s", ShardCount=2)
    data = [b"%d" % number for number in range(10)]
    for part in data:
        kinesis.put_record(StreamName="s", PartitionKey=part.decode(), Data=part)
    first, second = stored_shards(kinesis, "s")
    kinesis.split_shard(
        StreamName="s", ShardToSplit=first["ShardId"], NewStartingHashKey=str(int(first["HashKeyRange"]["EndingHashKey"]) // 2)
    )  # fmt: skip
    aws.faults.add(Fault(kind="throttle", operation=operation, count=2))
    found = list(stored_records(kinesis, "s"))
    assert [fault["fired"] for fault in aws.faults.active()] == [2]
    assert sorted(record["Data"] for _, record in found) == data
    for shard in (first, second):
        own = [record for of, record in found if of["ShardId"] == shard["ShardId"]]
        assert own == list(stored_in_shard(kinesis, "s", shard["ShardId"]))
        assert own
