from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.testing import FakeAws, VirtualClock
from kinesis_sdk.testing.errors import AwsError
from kinesis_sdk.testing.kinesis.streams import HASH_SPACE, Stream, hash_of, uniform_starts
from tests.fuzz import how_many


def make_stream(shards: int, **options: Any) -> Stream:
    return Stream("s", "arn", VirtualClock(), shard_count=shards, **options)


def assert_consistent(stream: Stream) -> None:
    at = 0
    for shard in stream.open_shards:
        assert shard.start == at
        assert shard.closed_at is None
        at = shard.end + 1
    assert at == HASH_SPACE
    for shard in stream.shards_in_order():
        parents = [stream.shards[name] for name in (shard.parent, shard.adjacent_parent) if name]
        for parent in parents:
            assert parent.ending_number is not None
            assert parent.ending_number < shard.numbers.starting
            assert shard in parent.children
        if parents:
            assert min(parent.start for parent in parents) <= shard.start
            assert shard.end <= max(parent.end for parent in parents)


operations = st.lists(
    st.tuples(st.sampled_from(["split", "merge", "scale"]), st.integers(0, 10**6)), max_size=8
)


@settings(max_examples=how_many(unit=15, fuzz=60))
@given(shards=st.integers(1, 6), steps=operations)
def test_any_resharding_tiles_the_hash_space_and_keeps_the_lineage(
    shards: int, steps: list[tuple[str, int]]
) -> None:
    stream = make_stream(shards)
    for kind, choice in steps:
        current = stream.open_shards
        shard = current[choice % len(current)]
        if kind == "split" and shard.end - shard.start > 2:
            key = shard.start + 2 + choice % (shard.end - shard.start - 2)
            stream.split(shard.shard_id, str(key), "a")
        elif kind == "merge" and len(current) > 1:
            at = choice % (len(current) - 1)
            stream.merge(current[at].shard_id, current[at + 1].shard_id, "a")
        elif kind == "scale":
            low, high = -(-len(current) // 2), 2 * len(current)
            target = low + choice % (high - low + 1)
            if [one.start for one in current] != uniform_starts(target):
                stream.scale(target)
                assert [one.start for one in stream.open_shards] == uniform_starts(target)
        assert_consistent(stream)


@settings(max_examples=how_many(unit=15, fuzz=60))
@given(shards=st.integers(1, 40), key=st.text(min_size=1, max_size=30))
def test_routing_agrees_with_brute_force(shards: int, key: str) -> None:
    stream = make_stream(shards)
    value = int(hashlib.md5(key.encode()).hexdigest(), 16)
    assert hash_of(key) == value
    owners = [shard for shard in stream.open_shards if shard.start <= value <= shard.end]
    assert owners == [stream.shard_for(value)]


@pytest.mark.parametrize(
    "key",
    [
        "0",
        "1",
        "340282366920938463463374607431768211455",
        "340282366920938463463374607431768211456",
        "-1",
        "01",
        "x",
    ],
)
def test_split_outside_the_range_is_refused(key: str) -> None:
    """Each child gets two hash keys at least, as in other emulators, whose words for it are the service's."""
    make_stream(1).split("shardId-000000000000", "2", "a")
    make_stream(1).split("shardId-000000000000", "340282366920938463463374607431768211454", "a")
    with pytest.raises(AwsError, match="InvalidArgumentException"):
        make_stream(1).split("shardId-000000000000", key, "a")


def test_changes_take_their_time_when_asked_to() -> None:
    clock = VirtualClock()
    stream = Stream("s", "arn", clock, shard_count=2, delay=3, reshard_delay=10)
    assert stream.status == "CREATING"
    assert stream.open_shards == []
    clock.advance(3)
    stream.settle()
    assert (stream.status, len(stream.open_shards)) == ("ACTIVE", 2)
    stream.scale(4)
    with pytest.raises(AwsError, match="ResourceInUseException"):
        stream.scale(3)
    clock.advance(9.9)
    stream.settle()
    assert (stream.status, len(stream.open_shards)) == ("UPDATING", 2)
    clock.advance(0.1)
    stream.settle()
    assert (stream.status, len(stream.open_shards)) == ("ACTIVE", 4)
    assert_consistent(stream)


def test_the_first_shards_are_as_old_as_their_stream_however_long_it_was_creating() -> None:
    clock = VirtualClock()
    client = FakeAws(clock=clock, stream_delay=5.0).client("kinesis")
    client.create_stream(StreamName="slow", ShardCount=3)
    clock.advance(6)
    shards = client.list_shards(StreamName="slow", ShardFilter={"Type": "AT_TRIM_HORIZON"})["Shards"]
    assert len(shards) == 3
