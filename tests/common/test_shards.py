from __future__ import annotations

import itertools
import random
from typing import Any
from unittest import mock

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common import shards as shards_module
from kinesis_sdk.common.errors import ProtocolError, ResourceNotFoundError, ThrottledError
from kinesis_sdk.common.hashkeys import FULL_RANGE, MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.shards import Shard, ShardGraph, ShardMap, find_hole, list_shards
from kinesis_sdk.common.stream import StreamId
from tests import fuzz

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"
NAMED = StreamId("orders")


def shard_id(number: int) -> str:
    return f"shardId-{number:012d}"


def raw(number: int) -> bytes:
    return number.to_bytes(16, "big")


class Topology:
    """A stream that is split and merged at random; its own plain book-keeping is the truth of the tests."""

    def __init__(self, shards: int) -> None:
        self.shards: dict[str, Shard] = {}
        size = 2**128 // shards
        for index in range(shards):
            end = MAX_HASH_KEY if index == shards - 1 else (index + 1) * size - 1
            self._add(HashKeyRange(index * size, end))

    def _add(self, owned: HashKeyRange, *parents: str) -> None:
        new = shard_id(len(self.shards))
        self.shards[new] = Shard(new, owned, *parents)

    def _close(self, name: str) -> HashKeyRange:
        shard = self.shards[name]
        self.shards[name] = Shard(
            name,
            shard.hash_key_range,
            shard.parent_shard_id,
            shard.adjacent_parent_shard_id,
            ending_sequence_number="9",
        )
        return shard.hash_key_range

    @property
    def open(self) -> list[Shard]:
        return sorted((s for s in self.shards.values() if s.is_open), key=lambda s: s.hash_key_range.start)

    def change(self, rng: random.Random) -> None:
        live = self.open
        if len(live) > 1 and rng.random() < 0.45:
            index = rng.randrange(len(live) - 1)
            left, right = live[index].shard_id, live[index + 1].shard_id
            low, high = self._close(left), self._close(right)
            self._add(HashKeyRange(low.start, high.end), left, right)
            return
        parent = rng.choice([s for s in live if s.hash_key_range.end > s.hash_key_range.start]).shard_id
        owned = self._close(parent)
        middle = rng.randint(owned.start, owned.end - 1)
        self._add(HashKeyRange(owned.start, middle), parent)
        self._add(HashKeyRange(middle + 1, owned.end), parent)


TOPOLOGIES = st.tuples(st.integers(1, 5), st.integers(0, 25), st.integers(0, 2**32))


def topology(plan: tuple[int, int, int]) -> tuple[Topology, random.Random]:
    shards, changes, seed = plan
    rng = random.Random(seed)
    result = Topology(shards)
    for _ in range(changes):
        result.change(rng)
    return result, rng


# -- find_hole ----------------------------------------------------------------------------------------------

SMALL = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=8)
CELL = 2**124  # sixteen of them make the space


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=40, fuzz=1_000))
@given(SMALL)
def test_find_gap_against_cells(pairs: list[tuple[int, int]]) -> None:
    spans = [(min(pair), max(pair)) for pair in pairs]
    ranges = [HashKeyRange(low * CELL, (high + 1) * CELL - 1) for low, high in spans]
    covered = {cell for low, high in spans for cell in range(low, high + 1)}
    missing = [cell for cell in range(16) if cell not in covered]
    if not missing:
        assert find_hole(ranges) is None
        return
    last = first = missing[0]
    while last + 1 in missing:
        last += 1
    assert find_hole(ranges) == HashKeyRange(first * CELL, (last + 1) * CELL - 1)


def test_find_gap_at_single_hash_keys() -> None:
    assert find_hole([]) == FULL_RANGE
    assert find_hole(iter([FULL_RANGE])) is None
    assert find_hole([HashKeyRange(1, MAX_HASH_KEY)]) == HashKeyRange(0, 0)
    assert find_hole([HashKeyRange(0, MAX_HASH_KEY - 1)]) == HashKeyRange(MAX_HASH_KEY, MAX_HASH_KEY)
    assert find_hole([HashKeyRange(0, 4), HashKeyRange(6, MAX_HASH_KEY)]) == HashKeyRange(5, 5)
    # A short range inside a long one does not hide what comes after.
    assert find_hole(
        [HashKeyRange(0, 9), HashKeyRange(2, 3), HashKeyRange(11, MAX_HASH_KEY)]
    ) == HashKeyRange(10, 10)


# -- ShardMap ----------------------------------------------------------------------------------------------


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=30, fuzz=1_000))
@given(TOPOLOGIES)
def test_prediction_against_brute_force(plan: tuple[int, int, int]) -> None:
    stream, rng = topology(plan)
    live = stream.open
    shuffled = live[:]
    rng.shuffle(shuffled)
    shard_map = ShardMap(shuffled, 5.0)
    probes = [rng.randint(0, MAX_HASH_KEY) for _ in range(20)]
    for shard in live:
        probes += [shard.hash_key_range.start, shard.hash_key_range.end]
    for probe in probes:
        owners = [s.shard_id for s in live if s.hash_key_range.start <= probe <= s.hash_key_range.end]
        assert [shard_map.predict(raw(probe))] == owners
        assert [shard_map.predicted[raw(probe)]] == owners
    assert len(shard_map) == len(live)
    assert shard_map.ids == [shard.shard_id for shard in live]
    assert shard_map.loaded_at == 5.0
    assert str(len(live)) in repr(shard_map)
    for shard in stream.shards.values():
        assert shard_map.is_open(shard.shard_id) is shard.is_open
        expected = shard.hash_key_range if shard.is_open else None
        assert shard_map.range_of(shard.shard_id) == expected
    assert shard_map.range_of("shardId-999999999999") is None


@given(TOPOLOGIES, st.integers(1, 10))
def test_a_map_remembers_the_ranges_of_the_one_before_and_no_more(
    plan: tuple[int, int, int], changes: int
) -> None:
    stream, rng = topology(plan)
    oldest = ShardMap(stream.open, 0.0)
    gone = set(oldest.ids)
    for _ in range(changes):
        stream.change(rng)
    old = ShardMap(stream.open, 1.0, previous=oldest)
    before = {shard.shard_id: shard.hash_key_range for shard in stream.open}
    for _ in range(changes):
        stream.change(rng)
    new = ShardMap(stream.open, 2.0, previous=old)
    now = {shard.shard_id: shard.hash_key_range for shard in stream.open}
    for name, owned in {**before, **now}.items():
        assert new.range_of(name) == owned
        assert new.is_open(name) is (name in now)
    for name in gone - set(before) - set(now):
        assert new.range_of(name) is None


@given(TOPOLOGIES, st.sampled_from(["gap", "overlap", "missing", "twice"]))
def test_shards_that_do_not_tile_are_rejected(plan: tuple[int, int, int], flaw: str) -> None:
    stream, rng = topology(plan)
    live = stream.open
    index = rng.randrange(len(live))
    owned = live[index].hash_key_range
    if flaw == "missing":
        del live[index]
    elif flaw == "twice":
        live.append(live[index])
    elif flaw == "gap":
        if owned.start == owned.end:
            return
        live[index] = Shard("s", HashKeyRange(owned.start + 1, owned.end))
    else:
        live.append(Shard("s", HashKeyRange(owned.end, owned.end)))
    with pytest.raises(ProtocolError, match="ListShards: open shards"):
        ShardMap(live, 0.0)


def tiles(*ends: int, first: int = 0) -> list[Shard]:
    """Shards with rising ids that end at the given cells."""
    shards, start = [], 0
    for offset, end in enumerate(ends):
        shards.append(Shard(shard_id(first + offset), HashKeyRange(start * CELL, end * CELL - 1)))
        start = end
    return shards


def test_an_empty_list_of_shards_is_rejected() -> None:
    with pytest.raises(ProtocolError, match="open shards end"):
        ShardMap([], 0.0)


@pytest.mark.parametrize(
    "new",
    [
        tiles(16, first=0),
        tiles(4, 8, 12, 16, first=0),
        tiles(2, 16, first=5),
        tiles(1, 5, 7, 8, 9, 10, 16, first=0),
    ],
    ids=["newest id went down", "fewer ids", "same ids, other ranges", "more ids, other ranges"],
)
def test_a_recreated_stream_forgets_the_old_ranges(new: list[Shard]) -> None:
    old = ShardMap(tiles(8, 16, first=5), 0.0)
    current = ShardMap(new, 1.0, previous=old)
    for name in (shard_id(5), shard_id(6)):
        expected = {shard.shard_id: shard.hash_key_range for shard in new}.get(name)
        assert current.range_of(name) == expected


# -- ShardGraph --------------------------------------------------------------------------------------------


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=40, fuzz=1_000))
@given(TOPOLOGIES, st.integers(0, 10))
def test_lineage_against_brute_force(plan: tuple[int, int, int], trimmed: int) -> None:
    stream, rng = topology(plan)
    # The oldest closed shards fall out of the listing when their retention is over.
    closed = [shard.shard_id for shard in stream.shards.values() if not shard.is_open]
    forgotten = set(closed[:trimmed])
    listed = {name: shard for name, shard in stream.shards.items() if name not in forgotten}
    shuffled = list(listed.values())
    rng.shuffle(shuffled)
    graph = ShardGraph(shuffled)
    assert graph.shards == listed
    assert list(graph.open_shards) == stream.open
    for name, shard in stream.shards.items():
        parents = [p for p in (shard.parent_shard_id, shard.adjacent_parent_shard_id) if p in listed]
        assert list(graph.parents(name)) == (parents if name in listed else [])
        children = sorted(other.shard_id for other in listed.values() if name in other.parents)
        assert list(graph.children(name)) == children
        ancestors = list(graph.ancestors(name))
        generations = [set(graph.parents(name))]
        while generations[-1]:
            generations.append({p for each in generations[-1] for p in graph.parents(each)})
        assert len(ancestors) == len(set(ancestors))
        assert set(ancestors) == set().union(*generations)
        nearest = {
            each: depth for depth in range(len(generations) - 1, -1, -1) for each in generations[depth]
        }
        depths = [nearest[each] for each in ancestors]
        assert depths == sorted(depths)
    assert graph.parents("unknown") == ()
    assert list(graph.ancestors("unknown")) == []


def test_lineage_that_runs_in_a_circle_ends() -> None:
    graph = ShardGraph([Shard("a", FULL_RANGE, "b"), Shard("b", FULL_RANGE, "a")])
    assert set(graph.ancestors("a")) == {"a", "b"}


# -- the API -----------------------------------------------------------------------------------------------


def item(number: int, **more: Any) -> dict[str, Any]:
    return {
        "ShardId": shard_id(number),
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(MAX_HASH_KEY)},
        "SequenceNumberRange": {"StartingSequenceNumber": "10"},
        **more,
    }


def test_from_api() -> None:
    full = Shard.from_api(
        item(
            3,
            ParentShardId="p",
            AdjacentParentShardId="q",
            SequenceNumberRange={"StartingSequenceNumber": "10", "EndingSequenceNumber": "20"},
        )
    )
    assert full == Shard(shard_id(3), FULL_RANGE, "p", "q", "10", "20")
    assert not full.is_open
    assert full.parents == ("p", "q")
    child = Shard.from_api({"ShardId": "s", "HashKeyRange": item(0)["HashKeyRange"], "ParentShardId": "p"})
    assert child == Shard("s", FULL_RANGE, "p")
    assert child.is_open
    assert child.parents == ("p",)
    assert Shard.from_api(item(1)).parents == ()


class Recorder:
    """A client that remembers its requests and responses from a script."""

    def __init__(self, *responses: dict[str, Any] | Exception) -> None:
        self.requests: list[dict[str, Any]] = []
        self._responses = list(responses)

    def list_shards(self, **request: Any) -> dict[str, Any]:
        # The service's own rule and words; the stream is in the token.
        for name in ("StreamName", "StreamARN", "ShardFilter", "StreamCreationTimestamp"):
            if "NextToken" in request and name in request:
                raise ClientError(
                    {
                        "Error": {
                            "Code": "InvalidArgumentException",
                            "Message": f"NextToken and {name} cannot be provided together.",
                        },
                        "ResponseMetadata": {"HTTPStatusCode": 400},
                    },
                    "ListShards",
                )
        self.requests.append(request)
        response = self._responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response


@pytest.mark.parametrize("stream", [NAMED, StreamId("orders", ARN)], ids=["name", "ARN"])
@pytest.mark.parametrize("shard_filter", [None, {"Type": "AT_LATEST"}])
def test_all_pages_with_the_token_alone_on_later_ones(
    stream: StreamId, shard_filter: dict[str, str] | None
) -> None:
    client = Recorder(
        {"Shards": [item(0), item(1)], "NextToken": "t1"},
        {"Shards": [], "NextToken": "t2"},
        {"Shards": [item(2)]},
    )
    shards = list_shards(client, stream, shard_filter=shard_filter)  # type: ignore[arg-type]
    assert [shard.shard_id for shard in shards] == [shard_id(0), shard_id(1), shard_id(2)]
    first = {**stream.request, "MaxResults": 1000}
    if shard_filter:
        first["ShardFilter"] = shard_filter
    assert client.requests == [
        first,
        {"NextToken": "t1", "MaxResults": 1000},
        {"NextToken": "t2", "MaxResults": 1000},
    ]


@pytest.mark.parametrize("shards", [[], [item(0)]], ids=["empty", "one shard"])
def test_pages_without_an_end_are_an_error(shards: list[dict[str, Any]]) -> None:
    calls = itertools.count(1)
    client = mock.Mock()
    client.list_shards = lambda **_: {"Shards": shards, "NextToken": f"t{next(calls)}"}
    with pytest.raises(ProtocolError, match="1,000 pages"):
        list_shards(client, StreamId("orders"))
    assert next(calls) == 1001


def test_a_repeated_token_is_an_error_and_not_an_endless_loop() -> None:
    client = Recorder(*[{"Shards": [], "NextToken": token} for token in ("t1", "t2", "t1", "t2")])
    with pytest.raises(ProtocolError, match="repeated"):
        list_shards(client, NAMED)  # type: ignore[arg-type]
    assert len(client.requests) == 3


@pytest.mark.parametrize(
    "response",
    [
        {},
        {"Shards": [{"ShardId": "s"}]},
        {"Shards": [{**item(0), "HashKeyRange": {"StartingHashKey": "x", "EndingHashKey": "1"}}]},
        {"Shards": [{**item(0), "HashKeyRange": {"StartingHashKey": "2", "EndingHashKey": "1"}}]},
        {"Shards": [None]},
        {"Shards": None},
    ],
)
def test_malformed_responses_are_protocol_errors(response: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="ListShards"):
        list_shards(Recorder(response), NAMED)  # type: ignore[arg-type]


def test_failures_are_translated_on_every_page() -> None:
    def failure(code: str) -> ClientError:
        return ClientError(
            {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": 400}},
            "ListShards",
        )

    with pytest.raises(ResourceNotFoundError, match="ListShards"):
        list_shards(Recorder(failure("ResourceNotFoundException")), NAMED)  # type: ignore[arg-type]
    client = Recorder({"Shards": [item(0)], "NextToken": "t"}, failure("LimitExceededException"))
    with pytest.raises(ThrottledError):
        list_shards(client, NAMED)  # type: ignore[arg-type]


def test_what_a_map_remembers_of_its_predictions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "_PREDICTIONS", 4)
    shard_map = ShardMap([Shard("shardId-000000000000", HashKeyRange(0, MAX_HASH_KEY))], 0.0)
    for number in range(20):
        assert shard_map.predict(raw(number)) == "shardId-000000000000"
        assert 1 <= len(shard_map.predicted) <= 4
