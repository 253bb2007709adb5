"""Statistic sets, dimension paths, levels."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.metrics import Kind, Metric, Scope
from kinesis_sdk.metrics import Accumulator, CustomDimension, MemoryMetrics, Series, Statistics
from kinesis_sdk.metrics.accumulator import levels_of
from tests import fuzz
from tests.metrics.support import add, add_statistics, metric_of

SHARDS = ("shardId-000000000000", "shardId-000000000001")


def at(stream: str | None = None, shard: str | None = None) -> dict[str, str]:
    return {k: v for k, v in (("StreamName", stream), ("ShardId", shard)) if v is not None}


def test_two_streams_with_two_shards_make_seven_metrics() -> None:
    accumulator = Accumulator()
    for stream in ("a", "b"):
        for shard in SHARDS:
            add(accumulator, "UserRecordsPut", 1, "Count", at(stream, shard))
            add(accumulator, "UserRecordsPut", 0, "Count", at(stream, shard))
    series, rejected = accumulator.drain()
    assert rejected == 0
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
            add(accumulator, "KinesisRecordsPut", 1, "Count", at(stream, shard))
    series = accumulator.read()
    assert len(series) == count
    assert max(len(key.dimensions) for key in series) == deepest
    for depth in range(deepest + 1):
        assert sum(v.samples for k, v in series.items() if len(k.dimensions) == depth) == 4
    (leaves,) = accumulator.read_leaves().values()
    assert all(len(dimensions) == deepest for dimensions in leaves)


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
    given_ = {"ApplicationName": "billing", "ShardId": "s", "Operation": "ProcessTask"}
    assert list(levels_of(given_.items(), "shard")) == [
        (("ApplicationName", "billing"), ("Operation", "ProcessTask")),
        (("ApplicationName", "billing"), ("Operation", "ProcessTask"), ("ShardId", "s")),
    ]
    assert len(list(levels_of(given_.items(), "stream"))) == 1


def test_workers_are_a_level_of_their_own() -> None:
    given_ = {"WorkerIdentifier": "w", "ApplicationName": "billing", "Operation": "TakeLeases"}
    whole = (("ApplicationName", "billing"), ("Operation", "TakeLeases"))
    assert list(levels_of(given_.items(), "shard")) == [whole, (*whole, ("WorkerIdentifier", "w"))]
    assert list(levels_of(given_.items(), "stream")) == [whole]


def test_custom_dimensions_multiply_what_is_below_them() -> None:
    accumulator = Accumulator(
        custom_dimensions=[
            CustomDimension("Host", "h"),
            CustomDimension("Team", "t", "stream"),
            CustomDimension("Zone", "z", "shard"),
        ]
    )
    add(accumulator, "UserRecordsPut", 1, "Count", at("a", "s"))
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
        CustomDimension("ApplicationName", "v"),
        CustomDimension("Operation", "v"),
    ],
)
def test_bad_custom_dimensions_are_rejected(dimension: CustomDimension) -> None:
    with pytest.raises(ConfigError, match="custom_dimensions"):
        Accumulator(custom_dimensions=[dimension])


def test_a_custom_dimension_has_a_name_of_its_own_and_there_are_at_most_24() -> None:
    with pytest.raises(ConfigError):
        Accumulator(custom_dimensions=[CustomDimension("n", "1"), CustomDimension("n", "2")])
    Accumulator(custom_dimensions=[CustomDimension(f"n{i}", "1") for i in range(24)])
    with pytest.raises(ConfigError):
        Accumulator(custom_dimensions=[CustomDimension(f"n{i}", "1") for i in range(25)])


def test_blank_dimensions_count_as_absent() -> None:
    accumulator = Accumulator()
    add(accumulator, "UserRecordsPut", 1, "Count", {"StreamName": "a", "ShardId": " "})
    assert len(accumulator.read()) == 2
    assert all(value.samples == 1 for value in accumulator.read().values())


def test_the_order_of_dimensions_does_not_matter() -> None:
    accumulator = Accumulator()
    add(accumulator, "X", 1, "Count", {"StreamName": "a", "ShardId": "s", "B": "b", "A": "a"})
    add(accumulator, "X", 2, "Count", {"A": "a", "B": "b", "ShardId": "s", "StreamName": "a"})
    assert [value[:2] for value in accumulator.read().values()] == [(2, 3)] * 3


def test_names_and_values_of_dimensions_are_not_mixed_up() -> None:
    accumulator = Accumulator()
    add(accumulator, "X", 1, "Count", {"a": "b", "c": "d"})
    add(accumulator, "X", 1, "Count", {"a": "c", "b": "d"})
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
        add(accumulator, name, 1, "Count", {})
        add_statistics(accumulator, name, 2, 2, 1, 1, "Count", {})
    assert {key.name for key in accumulator.read()} == names
    assert {
        name for name in ("AllErrors", "RequestTime", "Mine") if accumulator.takes(metric_of(name, "Count"))
    } == names


def test_arguments_are_checked() -> None:
    with pytest.raises(ConfigError, match="level"):
        Accumulator("all")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="granularity"):
        Accumulator(granularity="planet")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_series"):
        Accumulator(max_series=0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2.0**361])
@pytest.mark.parametrize("known", [True, False])
def test_numbers_that_cloudwatch_would_reject_are_rejected_and_counted(value: float, known: bool) -> None:
    accumulator = Accumulator()
    if known:
        add(accumulator, "X", 1, "Count", {})
        add_statistics(accumulator, "Y", 1, 1, 1, 1, "Count", {})
    add(accumulator, "X", value, "Count", {})
    add_statistics(accumulator, "Y", 2, value, 1, 1, "Count", {})
    assert accumulator.rejected == 2
    series, rejected = accumulator.drain()
    assert rejected == 2
    assert all(v == Statistics(1, 1, 1, 1, 1) for v in series.values())
    assert len(series) == 2 * known
    assert accumulator.rejected == 0


def test_series_are_bounded() -> None:
    accumulator = Accumulator(max_series=2)
    for index in range(5):
        add(accumulator, "X", 1, "Count", at(f"s{index}"))
    add(accumulator, "X", 1, "Count", at("s0"))  # known: still counted
    series, rejected = accumulator.drain()
    assert rejected == 3
    assert series[Series("X", "Count", ())].samples == 3
    add(accumulator, "X", 1, "Count", at("s4"))
    assert accumulator.drain()[1] == 0


def test_no_observations_are_nothing() -> None:
    accumulator = Accumulator()
    add_statistics(accumulator, "X", 0, 0, 0, 0, "Count", {})
    assert accumulator.drain() == ({}, 0)


VALUES = st.lists(st.integers(-1000, 1000), min_size=1, max_size=8)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=30, fuzz=1_000))
@given(st.lists(VALUES, min_size=1, max_size=6))
def test_many_at_once_are_the_same_as_one_after_the_other(groups: list[list[int]]) -> None:
    single, bulk = Accumulator(), Accumulator()
    for values in groups:
        for value in values:
            add(single, "X", value, "Count", at("a"))
        add_statistics(bulk, "X", len(values), sum(values), min(values), max(values), "Count", at("a"))
    assert {k: v[:4] for k, v in single.read().items()} == {k: v[:4] for k, v in bulk.read().items()}
    everything = [value for values in groups for value in values]
    for statistics in single.read().values():
        assert statistics[:5] == (
            len(everything),
            sum(everything),
            min(everything),
            max(everything),
            everything[-1],
        )


def test_threads_lose_nothing_even_while_another_drains() -> None:
    accumulator = Accumulator(granularity="global")
    total = 0.0
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for _ in range(2000):
            add(accumulator, "X", 1, "Count", at("a"))

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
    add(accumulator, "X", 1, "Count", {})
    add(accumulator, "X", math.nan, "Count", {})
    accumulator.reset_lock()
    assert accumulator.drain() == ({}, 0)


def test_memory_metrics_tell_one_level_at_a_time() -> None:
    metrics = MemoryMetrics()
    add(metrics, "UserRecordsPut", 1, "Count", at("a", "s"))
    add_statistics(metrics, "UserRecordsPut", 3, 0, 0, 0, "Count", at("b"))
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


GAUGE = Metric(name="G", unit="Count", kind=Kind.GAUGE, description="", optional=("StreamName", "ShardId"))
SUMMED = Metric(
    name="S", unit="Count", kind=Kind.GAUGE, description="", rollup="sum", optional=("StreamName", "ShardId")
)
COUNTER = Metric(name="C", unit="Count", kind=Kind.COUNTER, description="", optional=("StreamName",))


def leaf(accumulator: Accumulator, metric: Metric) -> list[float]:
    return [statistics.last for statistics in accumulator.read_leaves().get(metric, {}).values()]


def test_states_of_two_components_with_the_same_dimensions_do_not_overwrite_each_other() -> None:
    accumulator = Accumulator()
    first, second = Scope(at("a")), Scope(at("a"))
    for metric in (GAUGE, SUMMED):
        accumulator.add(metric, first, 7)
        accumulator.add(metric, second, 5)
        accumulator.add(metric, second, 4)
    assert (leaf(accumulator, GAUGE), leaf(accumulator, SUMMED)) == ([7], [11])
    accumulator.retire(first)
    assert (leaf(accumulator, GAUGE), leaf(accumulator, SUMMED)) == ([4], [4])
    accumulator.retire(second)
    assert accumulator.read() == {}


def test_a_broader_level_shows_the_largest_state_or_their_sum_not_the_one_that_came_last() -> None:
    accumulator = Accumulator(granularity="stream")
    for metric in (GAUGE, SUMMED):
        for shard, state in (("s0", 900), ("s1", 2)):
            accumulator.add(metric, Scope(at("a", shard)), state)
    assert (leaf(accumulator, GAUGE), leaf(accumulator, SUMMED)) == ([900], [902])


def test_counts_of_a_component_that_ended_go_on_from_where_they_were() -> None:
    accumulator = Accumulator()
    for _ in range(3):
        scope = Scope(at("a"))
        accumulator.add(COUNTER, scope, 5)
        accumulator.retire(scope)
        accumulator.retire(scope)  # again is harmless
    (statistics,) = accumulator.read_leaves()[COUNTER].values()
    assert statistics[:5] == (3, 15, 5, 5, 5)
    assert len(accumulator._cells) == 1, "nothing is kept for each acquisition of a lease"


def test_a_call_that_ends_after_its_component_leaves_a_count_and_no_state() -> None:
    accumulator = Accumulator()
    scope = Scope(at("a"))
    accumulator.add(COUNTER, scope, 1)
    accumulator.add(GAUGE, scope, 1)
    scope.retired = True
    accumulator.retire(scope)
    accumulator.add(COUNTER, scope, 2)
    accumulator.add(COUNTER, scope, math.nan)
    accumulator.add(GAUGE, scope, 99)
    (statistics,) = accumulator.read_leaves()[COUNTER].values()
    assert statistics.total == 3
    assert leaf(accumulator, GAUGE) == []
    assert accumulator.rejected == 1


@pytest.mark.parametrize("dimensions", [{}, {"ShardId": "s"}, {**at("a", "s"), "WorkerIdentifier": "w"}])
def test_a_metric_of_the_catalogue_is_not_recorded_under_other_dimensions(dimensions: Any) -> None:
    with pytest.raises(ValueError, match="UserRecordsPut"):
        Accumulator().add(catalogue.USER_RECORDS_PUT, Scope(dimensions), 1)


def test_durations_are_counted_in_buckets_of_seconds() -> None:
    accumulator = Accumulator(bounds=(0.1, 1.0))
    scope = Scope(at("a"))
    for milliseconds in (100, 101, 1000, 5000):
        accumulator.add(catalogue.REQUEST_TIME, scope, milliseconds)
    accumulator.add(catalogue.REQUEST_TIME, scope, 100, 4, 10, 40)
    accumulator.retire(scope)
    accumulator.add(catalogue.REQUEST_TIME, Scope(at("a")), 2000)
    (statistics,) = accumulator.read_leaves()[catalogue.REQUEST_TIME].values()
    assert statistics.buckets == (5, 2, 2)
    assert statistics.samples == 9


def test_many_threads_retire_and_record_at_once() -> None:
    accumulator = Accumulator()
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for _ in range(500):
            scope = Scope(at("a"))
            accumulator.add(GAUGE, scope, 1)
            accumulator.add(COUNTER, scope, 1)
            scope.retired = True
            accumulator.retire(scope)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    start.wait()
    for _ in range(20):
        accumulator.read()
    for thread in threads:
        thread.join()
    assert {series.name: found.total for series, found in accumulator.read().items()} == {"C": 1500}
