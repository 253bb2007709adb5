"""Statistic sets, dimension paths, levels."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.metrics import Accumulator, CustomDimension, MemoryMetrics, Series, Statistics
from kinesis_sdk.metrics.accumulator import levels_of

SHARDS = ("shardId-000000000000", "shardId-000000000001")


def at(stream: str | None = None, shard: str | None = None) -> dict[str, str]:
    return {k: v for k, v in (("StreamName", stream), ("ShardId", shard)) if v is not None}


def test_two_streams_with_two_shards_make_seven_metrics() -> None:
    accumulator = Accumulator()
    for stream in ("a", "b"):
        for shard in SHARDS:
            accumulator.add("UserRecordsPut", 1, "Count", at(stream, shard))
            accumulator.add("UserRecordsPut", 0, "Count", at(stream, shard))
    series, refused = accumulator.drain()
    assert refused == 0
    assert {len(key.dimensions): value.samples for key, value in series.items()} == {0: 8, 1: 4, 2: 2}
    assert len(series) == 7
    assert all(value.mean == 0.5 and (value.low, value.high) == (0, 1) for value in series.values())
    assert accumulator.drain() == ({}, 0)


@pytest.mark.parametrize(
    ("granularity", "deepest", "count"), [("global", 0, 1), ("stream", 1, 3), ("shard", 2, 7)]
)
def test_granularity_bounds_the_depth_and_loses_nothing(granularity: Any, deepest: int, count: int) -> None:
    accumulator = Accumulator(granularity=granularity)
    for stream in ("a", "b"):
        for shard in SHARDS:
            accumulator.add("KinesisRecordsPut", 1, "Count", at(stream, shard))
    series = accumulator.read()
    assert len(series) == count
    assert max(len(key.dimensions) for key in series) == deepest
    for depth in range(deepest + 1):
        assert sum(v.samples for k, v in series.items() if len(k.dimensions) == depth) == 4
    assert all(len(key.dimensions) == deepest for key in accumulator.read_leaves())


def test_error_codes_stand_before_the_stream() -> None:
    levels = list(levels_of({"ShardId": "s", "StreamName": "a", "ErrorCode": "E"}.items(), "shard"))
    assert [[name for name, _ in level] for level in levels] == [
        [],
        ["ErrorCode"],
        ["ErrorCode", "StreamName"],
        ["ErrorCode", "StreamName", "ShardId"],
    ]
    shallow = list(levels_of({"ErrorCode": "E", "StreamName": "a"}.items(), "global"))
    assert shallow == [(), (("ErrorCode", "E"),)]


def test_dimensions_off_the_path_belong_to_the_metric() -> None:
    given_ = {"WorkerIdentifier": "w", "ShardId": "s", "Operation": "ProcessTask"}
    assert list(levels_of(given_.items(), "shard")) == [
        (("Operation", "ProcessTask"), ("WorkerIdentifier", "w")),
        (("Operation", "ProcessTask"), ("WorkerIdentifier", "w"), ("ShardId", "s")),
    ]
    assert len(list(levels_of(given_.items(), "stream"))) == 1


def test_custom_dimensions_multiply_what_is_below_them() -> None:
    accumulator = Accumulator(
        custom_dimensions=[
            CustomDimension("Host", "h"),
            CustomDimension("Team", "t", "stream"),
            CustomDimension("Zone", "z", "shard"),
        ]
    )
    accumulator.add("UserRecordsPut", 1, "Count", at("a", "s"))
    names = sorted([name for name, _ in key.dimensions] for key in accumulator.read())
    assert names == [
        [],
        ["Host"],
        ["Host", "StreamName"],
        ["Host", "StreamName", "Team"],
        ["Host", "StreamName", "Team", "ShardId"],
        ["Host", "StreamName", "Team", "ShardId", "Zone"],
    ]


@pytest.mark.parametrize(
    "dimension",
    [
        CustomDimension("", "v"),
        CustomDimension("n" * 256, "v"),
        CustomDimension("n", ""),
        CustomDimension("n", "v", "planet"),  # type: ignore[arg-type]
        CustomDimension("StreamName", "v"),
    ],
)
def test_bad_custom_dimensions_are_refused(dimension: CustomDimension) -> None:
    with pytest.raises(ConfigError, match="custom_dimensions"):
        Accumulator(custom_dimensions=[dimension])


def test_a_custom_dimension_has_a_name_of_its_own_and_there_are_at_most_27() -> None:
    with pytest.raises(ConfigError):
        Accumulator(custom_dimensions=[CustomDimension("n", "1"), CustomDimension("n", "2")])
    Accumulator(custom_dimensions=[CustomDimension(f"n{i}", "1") for i in range(27)])
    with pytest.raises(ConfigError):
        Accumulator(custom_dimensions=[CustomDimension(f"n{i}", "1") for i in range(28)])


def test_blank_dimensions_count_as_absent() -> None:
    accumulator = Accumulator()
    accumulator.add("UserRecordsPut", 1, "Count", {"StreamName": "a", "ShardId": " "})
    assert len(accumulator.read()) == 2
    assert all(value.samples == 1 for value in accumulator.read().values())


def test_the_order_of_dimensions_does_not_matter() -> None:
    accumulator = Accumulator()
    accumulator.add("X", 1, "Count", {"StreamName": "a", "ShardId": "s", "B": "b", "A": "a"})
    accumulator.add("X", 2, "Count", {"A": "a", "B": "b", "ShardId": "s", "StreamName": "a"})
    assert [value[:2] for value in accumulator.read().values()] == [(2, 3)] * 3


def test_names_and_values_of_dimensions_are_not_mixed_up() -> None:
    accumulator = Accumulator()
    accumulator.add("X", 1, "Count", {"a": "b", "c": "d"})
    accumulator.add("X", 1, "Count", {"a": "c", "b": "d"})
    assert {key.dimensions for key in accumulator.read()} == {
        (("a", "b"), ("c", "d")),
        (("a", "c"), ("b", "d")),
    }


@pytest.mark.parametrize(
    ("level", "names"),
    [("none", set()), ("summary", {"AllErrors"}), ("detailed", {"AllErrors", "RequestTime", "Mine"})],
)
def test_levels(level: Any, names: set[str]) -> None:
    accumulator = Accumulator(level)
    for name in ("AllErrors", "RequestTime", "Mine"):
        accumulator.add(name, 1, "Count", {})
        accumulator.add_statistics(name, 2, 2, 1, 1, "Count", {})
    assert {key.name for key in accumulator.read()} == names
    assert {name for name in ("AllErrors", "RequestTime", "Mine") if accumulator.takes(name)} == names


def test_arguments_are_checked() -> None:
    with pytest.raises(ConfigError, match="level"):
        Accumulator("all")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="granularity"):
        Accumulator(granularity="planet")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_series"):
        Accumulator(max_series=0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2.0**361])
@pytest.mark.parametrize("known", [True, False])
def test_what_cloudwatch_would_refuse_is_refused_and_counted(value: float, known: bool) -> None:
    accumulator = Accumulator()
    if known:
        accumulator.add("X", 1, "Count", {})
        accumulator.add_statistics("Y", 1, 1, 1, 1, "Count", {})
    accumulator.add("X", value, "Count", {})
    accumulator.add_statistics("Y", 2, value, 1, 1, "Count", {})
    assert accumulator.refused == 2
    series, refused = accumulator.drain()
    assert refused == 2
    assert all(v == Statistics(1, 1, 1, 1, 1) for v in series.values())
    assert len(series) == 2 * known
    assert accumulator.refused == 0


def test_series_are_bounded() -> None:
    accumulator = Accumulator(max_series=2)
    for index in range(5):
        accumulator.add("X", 1, "Count", at(f"s{index}"))
    accumulator.add("X", 1, "Count", at("s0"))  # known: still counted
    series, refused = accumulator.drain()
    assert refused == 3
    assert series[Series("X", "Count", ())].samples == 3
    accumulator.add("X", 1, "Count", at("s4"))
    assert accumulator.drain()[1] == 0


def test_no_observations_are_nothing() -> None:
    accumulator = Accumulator()
    accumulator.add_statistics("X", 0, 0, 0, 0, "Count", {})
    assert accumulator.drain() == ({}, 0)


VALUES = st.lists(st.integers(-1000, 1000), min_size=1, max_size=8)


@given(st.lists(VALUES, min_size=1, max_size=6))
def test_many_at_once_are_the_same_as_one_after_the_other(groups: list[list[int]]) -> None:
    single, bulk = Accumulator(), Accumulator()
    for values in groups:
        for value in values:
            single.add("X", value, "Count", at("a"))
        bulk.add_statistics("X", len(values), sum(values), min(values), max(values), "Count", at("a"))
    assert {k: v[:4] for k, v in single.read().items()} == {k: v[:4] for k, v in bulk.read().items()}
    everything = [value for values in groups for value in values]
    for statistics in single.read().values():
        assert statistics == (
            len(everything),
            sum(everything),
            min(everything),
            max(everything),
            everything[-1],
        )


def test_threads_lose_nothing_even_while_somebody_drains() -> None:
    accumulator = Accumulator(granularity="global")
    total = 0.0
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for _ in range(2000):
            accumulator.add("X", 1, "Count", at("a"))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    start.wait()
    for _ in range(20):
        total += sum(v.total for v in accumulator.drain()[0].values())
    for thread in threads:
        thread.join()
    total += sum(v.total for v in accumulator.drain()[0].values())
    assert total == 6000


def test_a_forked_child_starts_empty() -> None:
    accumulator = Accumulator()
    accumulator.add("X", 1, "Count", {})
    accumulator.add("X", math.nan, "Count", {})
    accumulator.reset_lock()
    assert accumulator.drain() == ({}, 0)


def test_memory_metrics_tell_one_level_at_a_time() -> None:
    metrics = MemoryMetrics()
    metrics.add("UserRecordsPut", 1, "Count", at("a", "s"))
    metrics.add_statistics("UserRecordsPut", 3, 0, 0, 0, "Count", at("b"))
    total = metrics.get("UserRecordsPut")
    assert total is not None
    assert total.mean == 0.25
    assert metrics.get("UserRecordsPut", StreamName="a", ShardId="s") == Statistics(1, 1, 1, 1, 1)
    assert metrics.get("UserRecordsPut", ShardId="s", StreamName="a") is not None
    assert metrics.get("UserRecordsPut", StreamName="c") is None
    assert metrics.get("Other") is None
    assert len(metrics.snapshot()) == 4
    assert len(metrics.reset()) == 4
    assert metrics.snapshot() == {}
