from __future__ import annotations

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.position import AfterSequence, AtTimestamp, Ended, TrimHorizon
from kinesis_sdk.common.shards import Shard, ShardGraph
from kinesis_sdk.spark.lineage import admitted, initial_positions, retired, start_of
from kinesis_sdk.spark.offsets import StreamOffset
from kinesis_sdk.spark.positions import StartingPosition

FULL = HashKeyRange(0, 2**128 - 1)
READ = AfterSequence("5", arrival=5)


def graph(*shards: tuple[str, ...]) -> ShardGraph:
    return ShardGraph(
        Shard(name, FULL, *(*parents, None, None)[:2])  # type: ignore[arg-type]
        for name, *rest in shards
        for parents in [tuple(rest)]
    )


# a splits into b and c; c and d merge into e
FAMILY = graph(("a",), ("b", "a"), ("c", "a"), ("d",), ("e", "c", "d"))


def test_children_enter_after_all_listed_parents_ended() -> None:
    assert admitted(FAMILY, {"a": READ, "d": READ}) == {}
    assert set(admitted(FAMILY, {"a": Ended(), "d": READ})) == {"b", "c"}
    assert admitted(FAMILY, {"b": READ, "c": Ended(), "d": READ}) == {}
    assert admitted(FAMILY, {"b": READ, "c": Ended(), "d": Ended()}) == {"e": TrimHorizon()}


def test_ancestors_of_what_is_tracked_never_come_back() -> None:
    assert admitted(FAMILY, {"b": READ, "e": READ}) == {}


def test_a_shard_whose_parents_are_not_listed_any_more_enters() -> None:
    assert admitted(graph(("x", "gone"), ("y",)), {"y": READ}) == {"x": TrimHorizon()}


def test_finished_shards_leave_when_all_their_children_are_tracked() -> None:
    assert retired(FAMILY, {"a": Ended(), "b": READ}) == set()
    assert retired(FAMILY, {"a": Ended(), "b": READ, "c": READ}) == {"a"}
    assert retired(FAMILY, {"c": Ended(), "d": Ended()}) == set()
    assert retired(FAMILY, {"c": Ended(), "d": Ended(), "e": READ}) == {"c", "d"}
    assert retired(FAMILY, {"unlisted": Ended(), "b": Ended()}) == {"unlisted"}


def test_the_oldest_candidates_begin() -> None:
    def begin(text: str, *candidates: str) -> dict[str, object]:
        return dict(initial_positions(FAMILY, candidates, StartingPosition.parse(text), 9))

    assert begin("TRIM_HORIZON", "a", "b", "c", "d", "e") == {"a": TrimHorizon(), "d": TrimHorizon()}
    assert begin("AT_TIMESTAMP 3", "b", "c", "d") == dict.fromkeys("bcd", AtTimestamp(3))
    assert begin("LATEST", "b", "e") == {"b": AtTimestamp(9), "e": AtTimestamp(9)}
    # An emulator lists shards that were closed long ago: their children must not come in at their oldest record.
    assert begin("LATEST", "a", "b", "c", "d", "e") == {"b": AtTimestamp(9), "e": AtTimestamp(9)}
    assert begin('{"default": "TRIM_HORIZON", "c": "TRIM_HORIZON"}', *"abcde") == {
        "c": TrimHorizon(),
        "d": TrimHorizon(),
    }
    assert begin('{"default": "LATEST", "a": "TRIM_HORIZON"}', "b", "e") == {"a": TrimHorizon()}
    with pytest.raises(ConfigError, match="zzz"):
        begin('{"zzz": "LATEST"}', "b")


def test_the_start_of_a_shard_comes_from_the_two_offsets_alone() -> None:
    def at(**shards: object) -> StreamOffset:
        return StreamOffset(stream="s", created=1, starting="LATEST", started=9, shards=shards)  # type: ignore[arg-type]

    end = at(a=READ)
    restarted = StreamOffset(stream="s", created=1, starting="LATEST", started=500)
    assert start_of("a", restarted, end) == AtTimestamp(9), "not the time of the restart"
    assert start_of("a", at(a=AfterSequence("2", arrival=2)), end) == AfterSequence("2", arrival=2)
    assert start_of("b", at(a=Ended()), at(a=Ended(), b=READ)) == TrimHorizon()
    anew = StreamOffset(stream="s", created=2, starting="LATEST", started=9, shards={"a": READ})
    assert start_of("a", end, anew) == TrimHorizon()
