from __future__ import annotations

from typing import Any

import pytest

from tests.testing.conftest import Account

HALF = 1 << 127
ROOT, LOW, HIGH = (f"shardId-{index:012d}" for index in range(3))


@pytest.fixture
def split(account: Account) -> Account:
    """A stream whose only shard was split ten seconds after the stream began, five seconds ago."""
    account.stream()
    account.clock.advance(10)
    account.kinesis.split_shard(StreamName="s", ShardToSplit=ROOT, NewStartingHashKey=str(HALF))
    account.clock.advance(5)
    return account


def ids(account: Account, **filter_: Any) -> list[str]:
    shards = account.shards(ShardFilter=filter_) if filter_ else account.shards()
    return [shard["ShardId"] for shard in shards]


@pytest.mark.parametrize(
    "filter_",
    [
        {"Type": "AT_LATEST", "ShardId": ROOT},
        {"Type": "AT_LATEST", "Timestamp": 1.5e9},
        {"Type": "AT_TIMESTAMP", "Timestamp": 9e9},
    ],
)
def test_filters_with_the_wrong_members(split: Account, code: Any, filter_: dict[str, Any]) -> None:
    assert code(split.kinesis.list_shards, StreamName="s", ShardFilter=filter_) == "InvalidArgumentException"


def test_a_closed_shard_vanishes_when_its_records_have(split: Account, code: Any) -> None:
    split.clock.advance(24 * 3600 - 5)
    assert ids(split) == [ROOT, LOW, HIGH]
    assert ids(split, Type="AT_TRIM_HORIZON") == [LOW, HIGH]
    split.clock.advance(0.001)
    assert ids(split) == [LOW, HIGH]
    assert split.shards()[0]["ParentShardId"] == ROOT
    call = split.kinesis.get_shard_iterator
    assert code(call, StreamName="s", ShardId=ROOT, ShardIteratorType="LATEST") == "ResourceNotFoundException"


def test_pages_keep_the_filter(split: Account, code: Any) -> None:
    split.kinesis.update_shard_count(StreamName="s", TargetShardCount=4, ScalingType="UNIFORM_SCALING")
    seen: list[str] = []
    page = split.kinesis.list_shards(StreamName="s", MaxResults=1, ShardFilter={"Type": "AT_LATEST"})
    while True:
        seen += [shard["ShardId"] for shard in page["Shards"]]
        if "NextToken" not in page:
            break
        token = page["NextToken"]
        page = split.kinesis.list_shards(NextToken=token, MaxResults=1)
    assert seen == ids(split, Type="AT_LATEST")
    assert len(seen) == 4
    call = split.kinesis.list_shards

    split.clock.advance(300.001)
    assert code(call, NextToken=token) == "ExpiredNextTokenException"


def test_a_name_and_an_arn_must_agree(split: Account, code: Any) -> None:
    arn = split.kinesis.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"]["StreamARN"]
    assert code(split.kinesis.list_shards, StreamARN=arn, StreamName="other") == "InvalidArgumentException"


def test_list_streams_pages(account: Account) -> None:
    for name in ("c", "a", "b"):
        account.stream(name=name)
    first = account.kinesis.list_streams(Limit=2)
    assert (first["StreamNames"], first["HasMoreStreams"]) == (["a", "b"], True)
    assert account.kinesis.list_streams(NextToken=first["NextToken"])["StreamNames"] == ["c"]
    assert account.kinesis.list_streams(ExclusiveStartStreamName="a")["StreamNames"] == ["b", "c"]
