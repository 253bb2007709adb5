"""Instruments, units and attributes as OpenTelemetry wants them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from kinesis_sdk.common.errors import ConfigError

pytest.importorskip("opentelemetry.sdk.metrics", reason="the extra 'opentelemetry' is not installed")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kinesis_sdk.metrics import CustomDimension, OpenTelemetryMetrics
from kinesis_sdk.metrics.conventions import TIMING_BUCKETS
from tests.metrics.support import add, add_statistics, scope_of

SHARD = {"StreamName": "orders", "ShardId": "shardId-000000000000"}
ATTRIBUTES = {"stream_name": "orders", "shard_id": "shardId-000000000000"}


class Setup:
    def __init__(self, **arguments: Any) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])
        self.metrics = OpenTelemetryMetrics(self.provider.get_meter("test"), **arguments)

    def read(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def points(self, name: str) -> list[tuple[dict[str, str], float]]:
        return [(dict(point.attributes), point.value) for point in self.read()[name].data.data_points]


def test_counters_have_ucum_units() -> None:
    setup = Setup()
    add_statistics(setup.metrics, "UserRecordsDataPut", 3, 600, 100, 300, "Bytes", SHARD)
    metric = setup.read()["kinesis.user_records_data_put"]
    assert metric.unit == "By"
    assert metric.data.is_monotonic
    assert setup.points("kinesis.user_records_data_put") == [(ATTRIBUTES, 600)]
    add(setup.metrics, "UserRecordsDataPut", 1, "Bytes", SHARD)
    assert setup.points("kinesis.user_records_data_put") == [(ATTRIBUTES, 601)]


def test_outcomes_are_an_attribute() -> None:
    setup = Setup()
    add_statistics(setup.metrics, "UserRecordsPut", 10, 7, 0, 1, "Count", SHARD)
    points = setup.points("kinesis.user_records_put")
    assert ({**ATTRIBUTES, "outcome": "success"}, 7) in points
    assert ({**ATTRIBUTES, "outcome": "failure"}, 3) in points


def test_states_are_gauges() -> None:
    setup = Setup()
    add(setup.metrics, "MillisBehindLatest", 9000, "Milliseconds", {"Operation": "ProcessTask"})
    add(setup.metrics, "MillisBehindLatest", 2500, "Milliseconds", {"Operation": "ProcessTask"})
    assert setup.read()["kinesis.behind_latest"].unit == "s"
    assert setup.points("kinesis.behind_latest") == [({"operation": "ProcessTask"}, 2.5)]


def test_durations_of_calls_are_histograms_in_seconds() -> None:
    setup = Setup()
    for milliseconds in (3, 40):
        add(setup.metrics, "RequestTime", milliseconds, "Milliseconds", {"StreamName": "orders"})
    add_statistics(setup.metrics, "RequestTime", 2, 200, 50, 150, "Milliseconds", {"StreamName": "orders"})
    add_statistics(setup.metrics, "RequestTime", 0, 0, 0, 0, "Milliseconds", {"StreamName": "orders"})
    metric = setup.read()["kinesis.request_time"]
    (point,) = metric.data.data_points
    assert metric.unit == "s"
    assert (point.count, point.sum) == (3, pytest.approx(0.143))
    assert tuple(point.explicit_bounds) == TIMING_BUCKETS


def test_everything_else_is_a_sum_and_a_count() -> None:
    setup = Setup()
    add_statistics(setup.metrics, "BufferingTime", 4, 1000, 100, 400, "Milliseconds", SHARD)
    assert setup.points("kinesis.buffering_time.sum") == [(ATTRIBUTES, 1.0)]
    assert setup.points("kinesis.buffering_time.count") == [(ATTRIBUTES, 4)]
    assert setup.read()["kinesis.buffering_time.sum"].unit == "s"


def test_the_states_of_a_shard_are_observed_no_longer_once_its_lease_is_gone() -> None:
    setup = Setup()
    shards = [{"ApplicationName": "billing", **SHARD, "ShardId": f"s{index}"} for index in range(2)]
    for shard in shards:
        add(setup.metrics, "MillisBehindLatest", 642_900, "Milliseconds", shard)
        add(setup.metrics, "RecordsProcessed", 3, "Count", shard)
    setup.metrics.retire(scope_of(shards[0]))
    assert [attributes["shard_id"] for attributes, _ in setup.points("kinesis.behind_latest")] == ["s1"]
    assert len(setup.points("kinesis.records_processed")) == 2
    setup.metrics.retire(scope_of(shards[1]))
    assert "kinesis.behind_latest" not in setup.read()


def test_level_granularity_prefix_and_custom_attributes() -> None:
    setup = Setup(
        prefix="kds",
        level="summary",
        granularity="stream",
        custom_dimensions=[CustomDimension("HostName", "h")],
    )
    add(setup.metrics, "AllErrors", 1, "Count", SHARD)
    add(setup.metrics, "AllErrors", 1, "Count", {"StreamName": "other"})
    add(setup.metrics, "RequestTime", 1, "Milliseconds", SHARD)
    points = setup.points("kds.all_errors")
    assert ({"stream_name": "orders", "host_name": "h"}, 1) in points
    assert len(points) == 2
    assert "kds.request_time" not in setup.read()


def test_an_api_without_bucket_advice_is_served_too() -> None:
    setup = Setup()
    create = setup.metrics._meter.create_histogram

    def old(name: str, unit: str = "", description: str = "") -> Any:
        return create(name, unit, description)

    setup.metrics._meter.create_histogram = old  # type: ignore[method-assign]
    add(setup.metrics, "RequestTime", 1, "Milliseconds", {})
    assert setup.read()["kinesis.request_time"].data.data_points[0].count == 1


def test_arguments_are_checked() -> None:
    with pytest.raises(ConfigError, match="prefix"):
        Setup(prefix="")


def test_the_global_meter_provider_is_the_default() -> None:
    add(OpenTelemetryMetrics(), "AllErrors", 1, "Count", {})  # the API's own no-op


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r"'\.\[opentelemetry\]'"):
        OpenTelemetryMetrics()
