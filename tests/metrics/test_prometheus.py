"""Names, labels and kinds as Prometheus wants them."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import pytest

from kinesis_sdk.common.errors import ConfigError

pytest.importorskip("prometheus_client", reason="the extra 'prometheus' is not installed")

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kinesis_sdk.metrics import CustomDimension, PrometheusMetrics
from tests.metrics.support import add, add_statistics, scope_of

SHARD = {"StreamName": "orders", "ShardId": "shardId-000000000000"}
LABELS = {"stream_name": "orders", "shard_id": "shardId-000000000000"}


def make(**arguments: Any) -> tuple[PrometheusMetrics, CollectorRegistry]:
    registry = CollectorRegistry()
    return PrometheusMetrics(registry, **arguments), registry


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    found: float | None = registry.get_sample_value(name, labels)
    return found


def test_counters_have_base_units_and_total() -> None:
    metrics, registry = make()
    add_statistics(metrics, "UserRecordsDataPut", 3, 600, 100, 300, "Bytes", SHARD)
    add(metrics, "AllErrors", 0, "Count", SHARD)
    add(metrics, "AllErrors", 1, "Count", SHARD)
    assert value(registry, "kinesis_user_records_data_put_bytes_total", **LABELS) == 600
    assert value(registry, "kinesis_all_errors_total", **LABELS) == 1


def test_outcomes_are_successes_and_failures() -> None:
    metrics, registry = make()
    add_statistics(metrics, "UserRecordsPut", 10, 7, 0, 1, "Count", SHARD)
    name = "kinesis_user_records_put_total"
    assert value(registry, name, outcome="success", **LABELS) == 7
    assert value(registry, name, outcome="failure", **LABELS) == 3


def test_states_are_gauges_with_the_newest_value() -> None:
    metrics, registry = make()
    add(metrics, "UserRecordsPending", 50, "Count", {"StreamName": "orders"})
    add(metrics, "UserRecordsPending", 3, "Count", {"StreamName": "orders"})
    add(metrics, "MillisBehindLatest", 2500, "Milliseconds", {"Operation": "ProcessTask", "ShardId": "s"})
    assert value(registry, "kinesis_user_records_pending", stream_name="orders") == 3
    assert value(registry, "kinesis_behind_latest_seconds", operation="ProcessTask", shard_id="s") == 2.5


def test_durations_of_calls_are_histograms() -> None:
    metrics, registry = make()
    for milliseconds in (3, 5, 40, 60_000):
        add(metrics, "RequestTime", milliseconds, "Milliseconds", {"StreamName": "orders"})
    name = "kinesis_request_time_seconds"
    assert value(registry, f"{name}_count", stream_name="orders") == 4
    assert value(registry, f"{name}_sum", stream_name="orders") == pytest.approx(60.048)
    add_statistics(metrics, "RequestTime", 2, 200, 90, 110, "Milliseconds", {"StreamName": "other"})
    assert value(registry, f"{name}_bucket", stream_name="other", le="0.1") == 2
    for bound, count in (("0.005", 2), ("0.01", 2), ("0.05", 3), ("30", 3), ("+Inf", 4)):
        assert value(registry, f"{name}_bucket", stream_name="orders", le=bound) == count


def test_everything_else_is_a_summary() -> None:
    metrics, registry = make()
    add_statistics(metrics, "BufferingTime", 4, 1000, 100, 400, "Milliseconds", SHARD)
    add(metrics, "MyOwn.Thing", 2, "Count", {})
    assert value(registry, "kinesis_buffering_time_seconds_sum", **LABELS) == 1.0
    assert value(registry, "kinesis_buffering_time_seconds_count", **LABELS) == 4
    assert value(registry, "kinesis_my_own_thing_sum") == 2


def test_only_the_deepest_level_is_there_and_labels_are_the_same_for_all_of_a_family() -> None:
    metrics, registry = make()
    add(metrics, "ErrorsByCode", 1, "Count", {"ErrorCode": "Throttled", **SHARD})
    add(metrics, "ErrorsByCode", 1, "Count", {"ErrorCode": "ReadTimeoutError", "StreamName": "orders"})
    name = "kinesis_errors_by_code_total"
    assert value(registry, name, error_code="Throttled", **LABELS) == 1
    no_shard = {"stream_name": "orders", "shard_id": ""}
    assert value(registry, name, error_code="ReadTimeoutError", **no_shard) == 1
    families = {family.name: family for family in registry.collect()}
    assert len(families["kinesis_errors_by_code"].samples) == 2


def test_granularity_level_prefix_and_custom_labels() -> None:
    metrics, registry = make(
        prefix="kds",
        level="summary",
        granularity="stream",
        custom_dimensions=[CustomDimension("HostName", "h")],
    )
    add(metrics, "KinesisRecordsPut", 1, "Count", SHARD)
    add(metrics, "RequestTime", 1, "Milliseconds", SHARD)
    name = "kds_kinesis_records_put_total"
    assert value(registry, name, stream_name="orders", host_name="h", outcome="success") == 1
    assert {family.name for family in registry.collect()} == {
        "kds_kinesis_records_put",
        "kds_metrics_rejected",
    }


def test_the_text_format_parses() -> None:
    metrics, registry = make()
    for name in (
        "UserRecordsPut",
        "RequestTime",
        "UserRecordsPending",
        "BufferingTime",
        "UserRecordsDataPut",
    ):
        add(metrics, name, 1, "Count", SHARD)
    text = generate_latest(registry).decode()
    assert len(list(text_string_to_metric_families(text))) >= 6


def test_rejected_observations_are_counted() -> None:
    metrics, registry = make(max_series=1)
    add(metrics, "RequestTime", 1, "Milliseconds", {"StreamName": "a"})
    add(metrics, "RequestTime", 1, "Milliseconds", {"StreamName": "b"})
    add(metrics, "RequestTime", float("nan"), "Milliseconds", {"StreamName": "a"})
    assert value(registry, "kinesis_metrics_rejected_total") == 2
    assert value(registry, "kinesis_request_time_seconds_count", stream_name="a") == 1
    assert value(registry, "kinesis_request_time_seconds_bucket", stream_name="a", le="+Inf") == 1


def test_the_states_of_a_shard_disappear_with_its_lease_and_counters_stay() -> None:
    metrics, registry = make()
    shards = [{"ApplicationName": "billing", **SHARD, "ShardId": f"s{index}"} for index in range(2)]
    for shard in shards:
        add(metrics, "MillisBehindLatest", 642_900, "Milliseconds", shard)
        add(metrics, "RecordsProcessed", 3, "Count", shard)
    metrics.retire(scope_of(shards[0]))
    text = generate_latest(registry).decode()
    assert (
        'kinesis_behind_latest_seconds{application_name="billing",operation="ProcessTask",shard_id="s0"'
        not in text
    )
    lags = [line for line in text.splitlines() if line.startswith("kinesis_behind_latest_seconds{")]
    assert len(lags) == 1
    assert 'shard_id="s1"' in lags[0]
    assert len([x for x in text.splitlines() if x.startswith("kinesis_records_processed_total{")]) == 2


def test_two_streams_and_two_applications_are_four_series() -> None:
    metrics, registry = make()
    for number, (stream, application) in enumerate(product(("orders", "other"), ("billing", "audit"))):
        shard = {"ApplicationName": application, "StreamName": stream, "ShardId": "shardId-000000000000"}
        add(metrics, "RecordsProcessed", 10**number, "Count", shard)
        add(metrics, "MillisBehindLatest", 1000 * number, "Milliseconds", shard)
    samples = [s for family in registry.collect() for s in family.samples if "rejected" not in s.name]
    assert sorted(s.value for s in samples if s.name == "kinesis_records_processed_total") == [
        1,
        10,
        100,
        1000,
    ]
    assert sorted(s.value for s in samples if s.name == "kinesis_behind_latest_seconds") == [0, 1, 2, 3]


def test_one_prefix_once_in_a_registry() -> None:
    _, registry = make()
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusMetrics(registry)


@pytest.mark.parametrize("prefix", ["", "Kinesis", "1st", "a-b", 7])
def test_bad_prefixes_are_rejected(prefix: Any) -> None:
    with pytest.raises(ConfigError, match="prefix"):
        make(prefix=prefix)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ImportError, match=r"'\.\[prometheus\]'"):
        PrometheusMetrics()
