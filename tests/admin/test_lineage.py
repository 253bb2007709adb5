from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from kinesis_sdk.admin.lineage import (
    Origin,
    creation_time,
    find_shard,
    full_shard_id,
    make_lineage,
    shard_label,
)
from kinesis_sdk.admin.resharding import Resharding
from kinesis_sdk.admin.streams import Streams
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.shards import Shard
from tests.admin.account import Account


def labels(shards: object) -> list[str]:
    return [one.label for one in shards]  # type: ignore[attr-defined]


@pytest.fixture
def streams() -> Streams:
    account = Account()
    account.create("orders", 2)
    account.clock.advance(60)
    Resharding(account.streams).split("orders", "0")  # 2 and 3
    account.clock.advance(60)
    Resharding(account.streams).merge("orders", "3", "1")  # 4
    return account.streams


def test_forks_joins_and_generations(streams: Streams) -> None:
    lineage = streams.lineage("orders")
    assert [(one.label, one.generation, one.origin) for one in lineage.shards] == [
        ("0", 0, Origin.CREATED),
        ("1", 0, Origin.CREATED),
        ("2", 1, Origin.SPLIT),
        ("3", 1, Origin.SPLIT),
        ("4", 2, Origin.MERGE),
    ]
    assert lineage.generations == 3
    assert labels(lineage.open_shards) == ["2", "4"]
    assert lineage.forks == (("shardId-000000000000", ("shardId-000000000002", "shardId-000000000003")),)
    assert lineage.joins == ((("shardId-000000000003", "shardId-000000000001"), "shardId-000000000004"),)
    assert [(one.start, one.width) for one in lineage.open_shards] == [(0.0, 0.25), (0.25, 0.75)]
    assert lineage.hole is None
    data = json.loads(json.dumps(lineage.to_dict()))
    assert data["joins"][0][1] == "shardId-000000000004"


def test_which_shards_were_open_at_a_time(streams: Streams) -> None:
    lineage = streams.lineage("orders")
    begin = lineage.shards[0].created_at
    assert begin == datetime.fromtimestamp(1_700_000_000, timezone.utc)
    assert begin is not None
    assert [
        labels(lineage.open_at(begin + timedelta(seconds=seconds))) for seconds in (0, 59, 61, 119, 121)
    ] == [["0", "1"], ["0", "1"], ["2", "3", "1"], ["2", "3", "1"], ["2", "4"]]


def test_parents_that_have_expired_are_told_apart() -> None:
    child = Shard("shardId-000000000007", HashKeyRange(0, 9), parent_shard_id="shardId-000000000003")
    lineage = make_lineage([child])
    (made,) = lineage.shards
    assert (made.origin, made.missing_parents, made.generation) == (
        Origin.SPLIT,
        ("shardId-000000000003",),
        0,
    )
    assert lineage.hole == HashKeyRange(10, MAX_HASH_KEY)
    assert made.created_at is None, "its sequence number is not one of Kinesis"
    assert make_lineage([]).generations == 0


def test_creation_times_of_real_sequence_numbers() -> None:
    # From the API reference of Kinesis.
    assert creation_time("49543463076548007577105092703039560359975228518395012686") == datetime(
        2014, 9, 22, 16, 39, 41, tzinfo=timezone.utc
    )
    assert creation_time("0") is None
    assert creation_time("-1") is None
    assert creation_time("٣") is None


@pytest.mark.parametrize("text", ["3", "0003", "shard-3", "shardId-3", "shardId-000000000003"])
def test_short_shard_ids(text: str) -> None:
    assert full_shard_id(text) == "shardId-000000000003"
    shard = Shard("shardId-000000000003", HashKeyRange(0, 1))
    assert find_shard(text, [shard]) is shard
    assert shard_label(shard.shard_id) == "3"


@pytest.mark.parametrize("text", ["", "x", "-3", "3.0", "٣", "1234567890123", "3\n"])
def test_a_text_that_is_no_shard_id_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="shard="):
        full_shard_id(text)


def test_unusual_ids_are_found_as_they_are() -> None:
    shard = Shard("shardId-strange", HashKeyRange(0, 1))
    assert find_shard("shardId-strange", [shard]) is shard
    assert shard_label("shardId-strange") == "shardId-strange"
