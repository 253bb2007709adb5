from __future__ import annotations

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.position import AfterSequence, AtTimestamp, Ended, TrimHorizon
from kinesis_sdk.common.shards import Shard, ShardGraph
from kinesis_sdk.spark.lineage import (
    MAX_FAMILY,
    Families,
    admitted,
    ancestors,
    initial_positions,
    retired,
    start_of,
)
from kinesis_sdk.spark.offsets import QueryOffset, ShardPosition, StreamOffset
from kinesis_sdk.spark.positions import StartingPosition

FULL = HashKeyRange(0, 2**128 - 1)
READ = AfterSequence("5")


def graph(*shards: tuple[str, ...]) -> ShardGraph:
    return ShardGraph(
        Shard(name, FULL, *(*parents, None, None)[:2])  # type: ignore[arg-type]
        for name, *rest in shards
        for parents in [tuple(rest)]
    )


# a splits into b and c; c and d merge into e
FAMILY = graph(("a",), ("b", "a"), ("c", "a"), ("d",), ("e", "c", "d"))


def enter(shards: ShardGraph, tracked: dict[str, ShardPosition]) -> list[str]:
    return admitted(shards, tracked, ancestors(shards, tracked))


def test_children_enter_after_all_listed_parents_ended() -> None:
    assert enter(FAMILY, {"a": READ, "d": READ}) == []
    assert enter(FAMILY, {"a": Ended(), "d": READ}) == ["b", "c"]
    assert enter(FAMILY, {"b": READ, "c": Ended(), "d": READ}) == []
    assert enter(FAMILY, {"b": READ, "c": Ended(), "d": Ended()}) == ["e"]


def test_ancestors_of_what_is_tracked_never_come_back() -> None:
    assert enter(FAMILY, {"b": READ, "e": READ}) == []


def test_a_shard_whose_parents_are_not_listed_any_more_enters() -> None:
    assert enter(graph(("x", "gone"), ("y",)), {"y": READ}) == ["x"]


def test_families_grow_by_children_up_to_a_limit() -> None:
    families = Families()
    assert families.admits("b", ["a"])
    assert families.admits("c", ["a"])
    assert families.admits("e", ["c", "d"]), "a merge connects the families of both parents: a, b, c, d, e"
    assert all(families.admits(f"x{n}", ["e"]) for n in range(MAX_FAMILY - 5))
    assert not families.admits("y", ["b"]), "b belongs to the same family"
    assert families.admits("z", ["other"])


def test_finished_shards_leave_when_all_their_children_are_tracked() -> None:
    assert retired(FAMILY, {"a": Ended(), "b": READ}) == set()
    assert retired(FAMILY, {"a": Ended(), "b": READ, "c": READ}) == {"a"}
    assert retired(FAMILY, {"c": Ended(), "d": Ended()}) == set()
    assert retired(FAMILY, {"c": Ended(), "d": Ended(), "e": READ}) == {"c", "d"}
    assert retired(FAMILY, {"unlisted": Ended(), "b": Ended()}) == {"unlisted"}


def test_the_oldest_candidates_begin() -> None:
    def begin(text: str, *candidates: str) -> dict[str, object]:
        starting = StartingPosition.parse(f'{{"s": {text}}}' if text.startswith("{") else text).for_stream(
            "s"
        )
        return dict(initial_positions(FAMILY, candidates, starting, 9))

    assert begin("TRIM_HORIZON", "a", "b", "c", "d", "e") == {"a": TrimHorizon(), "d": TrimHorizon()}
    assert begin("AT_TIMESTAMP 3", "b", "c", "d") == dict.fromkeys("bcd", AtTimestamp(3))
    assert begin("LATEST", "b", "e") == {"b": AtTimestamp(9), "e": AtTimestamp(9)}
    # An emulator lists shards that were closed long ago: their children must not come in at their oldest record.
    assert begin("LATEST", "a", "b", "c", "d", "e") == {"b": AtTimestamp(9), "e": AtTimestamp(9)}
    assert begin('{"default": "TRIM_HORIZON", "c": "TRIM_HORIZON"}', *"abcde") == {
        "b": TrimHorizon(),  # the sibling, which a split between the two would otherwise lose
        "c": TrimHorizon(),
        "d": TrimHorizon(),
    }
    assert begin('{"default": "LATEST", "a": "TRIM_HORIZON"}', "b", "e") == {
        "a": TrimHorizon(),
        "d": AtTimestamp(9),  # the other parent of e, which enters after both
    }
    with pytest.raises(ConfigError, match="zzz"):
        begin('{"zzz": "LATEST"}', "b")


def test_the_start_of_a_shard_comes_from_the_two_offsets_alone() -> None:
    def at(created: int = 1, cut: int | None = 50, **shards: ShardPosition) -> QueryOffset:
        stream = StreamOffset(created=created, shards=shards)
        return QueryOffset(starting="LATEST", started=9, cut=cut, streams={"s": stream})

    end = at(a=READ)
    restarted = QueryOffset(
        starting="LATEST", started=500, cut=None, streams={"s": StreamOffset(created=1, shards={})}
    )
    assert start_of("s", "a", restarted, end) == AtTimestamp(9), "not the time of the restart"
    assert start_of("s", "a", at(a=AfterSequence("2")), end) == AfterSequence("2")
    assert start_of("s", "b", at(a=Ended()), at(a=Ended(), b=READ)) == TrimHorizon()
    assert start_of("s", "a", end, at(created=2, a=READ)) == TrimHorizon(), "the stream was recreated"
    other = StreamOffset(created=3, shards={"x": READ})
    added = QueryOffset(starting="LATEST", started=9, cut=80, streams={**end.streams, "added": other})
    assert start_of("added", "x", end, added) == AtTimestamp(50), "where the query was"


def test_a_thousand_generations_are_no_trouble() -> None:
    """The oldest shards are found in time that grows with the number of shards, not with its square."""
    chain = graph(("0",), *((str(n), str(n - 1)) for n in range(1, 20_000)))
    starting = StartingPosition(TrimHorizon())
    assert initial_positions(chain, chain.shards, starting, 9) == {"0": TrimHorizon()}
