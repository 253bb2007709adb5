"""Uploads: what, when, and what happens to numbers that CloudWatch does not take."""

from __future__ import annotations

import logging
import os
import pickle
import random
import subprocess
import sys
import threading
from typing import Any

import pytest

from kinesis_sdk.common.errors import (
    AwsError,
    ConfigError,
    PermanentAwsError,
    TransientAwsError,
)
from kinesis_sdk.metrics import (
    Accumulator,
    CloudWatchMetrics,
    CustomDimension,
    Series,
    Statistics,
    upload,
)
from kinesis_sdk.metrics.upload import MAX_BYTES_PER_CALL, MAX_DATA_PER_CALL, Datum, UploadPlan
from kinesis_sdk.testing import FakeAws, Fault, VirtualClock
from tests import HANG
from tests.metrics.support import add, add_statistics, metric_of, scope_of

WALL = 1_700_000_000.0
TRANSIENT = TransientAwsError("no response", code="ReadTimeoutError")
DENIED = PermanentAwsError("no", code="AccessDenied", status=403)
REFUSED = PermanentAwsError("bad", code="InvalidParameterValue", status=400)


def make_plan(accumulator: Accumulator, *, delay: float = 60.0, max_pending: int = 10_000) -> UploadPlan:
    return UploadPlan(accumulator, delay, max_pending, random.Random(1), 0.0)


def fill(accumulator: Accumulator, series: int, value: float = 1) -> None:
    for index in range(series):
        add(accumulator, f"M{index:05d}", value, "Count", {})


def test_nothing_happens_before_the_delay_is_over() -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    fill(accumulator, 1)
    assert plan.next_event(0.0) == 60.0
    assert plan.poll(59.9, WALL) is None
    batch = plan.poll(60.0, WALL + 60)
    assert batch == [Datum(Series("M00000", "Count", ()), Statistics(1, 1, 1, 1, 1), WALL + 60)]
    plan.on_success()
    assert plan.poll(60.0, WALL) is None
    assert plan.next_event(60.0) == 120.0
    assert plan.pending == 0
    assert plan.poll(120.0, WALL) is None  # nothing measured, nothing sent


def test_calls_are_cut_at_a_thousand() -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    fill(accumulator, 2500)
    sizes = []
    while (batch := plan.poll(60.0, WALL)) is not None:
        sizes.append(len(batch))
        plan.on_success()
    assert sizes == [1000, 1000, 500] == [MAX_DATA_PER_CALL] * 2 + [500]


def test_calls_are_cut_by_size_and_no_call_is_longer_than_the_estimate() -> None:
    from botocore.serialize import create_serializer
    from botocore.session import get_session

    accumulator = Accumulator(
        custom_dimensions=[CustomDimension(f"Dimension/{i} " + "x" * 200, "/" * 250) for i in range(5)]
    )
    plan = make_plan(accumulator)
    for index in range(1000):
        add(accumulator, "M", 1 / 3, "Milliseconds", {"StreamName": f"stream-{index}", "ShardId": "s"})
    model = get_session().get_service_model("cloudwatch").operation_model("PutMetricData")
    serializer = create_serializer("query", False)
    total = 0
    while (batch := plan.poll(60.0, WALL)) is not None:
        total += len(batch)
        assert len(batch) < MAX_DATA_PER_CALL
        assert sum(datum.size for datum in batch) <= MAX_BYTES_PER_CALL
        if total < 200:
            request = {"Namespace": "n", "MetricData": [datum.to_api() for datum in batch]}
            body = serializer.serialize_to_request(request, model)["body"]
            from urllib.parse import urlencode

            assert len(urlencode(body)) < 1_000_000
        plan.on_success()
    assert total == 1 + 5 + 2 * 1000


def test_a_single_datum_goes_whatever_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_BYTES_PER_CALL", 10)
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    fill(accumulator, 2)
    assert [len(plan.poll(60.0, WALL) or []), len(plan.poll(60.0, WALL) or [])] == [1, 1]


def test_a_failed_call_is_repeated_a_little_later_and_then_with_the_next_upload() -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    fill(accumulator, 1)
    now = 60.0
    times = []
    for _ in range(3):
        batch = plan.poll(now, WALL)
        assert batch is not None
        times.append(now)
        plan.on_failure(batch, TRANSIENT, now)
        assert plan.poll(now, WALL) is None
        now = plan.next_event(now)
    pauses = [times[1] - times[0], times[2] - times[1]]
    assert 0.25 <= pauses[0] <= 0.5
    assert 0.5 <= pauses[1] <= 1.0
    assert now == 120.0
    assert plan.poll(119.0, WALL) is None
    fill(accumulator, 1, value=5)
    batch = plan.poll(120.0, WALL + 60)
    assert batch is not None
    # Both, each with its own time: a gap in the network is no gap in the graph.
    assert [(datum.statistics.total, datum.time) for datum in batch] == [(1, WALL), (5, WALL + 60)]
    plan.on_success()
    assert plan.pending == 0


def test_a_permanent_failure_waits_for_the_next_upload() -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    fill(accumulator, 1)
    batch = plan.poll(60.0, WALL)
    assert batch is not None
    plan.on_failure(batch, DENIED, 60.0)
    assert plan.next_event(60.0) == 120.0
    assert plan.pending == 1


def test_a_call_that_is_rejected_for_its_content_is_halved_until_the_bad_one_is_alone() -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    fill(accumulator, 100)
    sent: list[str] = []
    calls = 0
    while (batch := plan.poll(60.0, WALL)) is not None:
        calls += 1
        names = [datum.series.name for datum in batch]
        if "M00042" in names:
            plan.on_failure(batch, REFUSED, 60.0)
        else:
            sent.extend(names)
            plan.on_success()
    assert sorted(sent) == [f"M{index:05d}" for index in range(100) if index != 42]
    assert calls <= 15
    report = plan.take_report(60.0)
    assert report is not None
    assert report.startswith("1 dropped")
    assert "M00042" in report


def test_when_everything_is_rejected_it_does_not_pay_for_each_datum() -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    for minute in (60.0, 120.0):
        fill(accumulator, 2_500)
        calls = 0
        while (batch := plan.poll(minute, WALL)) is not None:
            calls += 1
            plan.on_failure(batch, REFUSED, minute)
        assert 8 < calls < 30
        assert plan.pending == 0
    report = plan.take_report(120.0)
    assert report is not None
    assert sum(int(part.split()[0].replace(",", "")) for part in report.split("; ")) == 5_000


def test_bad_data_among_good_ones_are_found_however_many() -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    fill(accumulator, 100)
    sent: list[str] = []
    while (batch := plan.poll(60.0, WALL)) is not None:
        names = [datum.series.name for datum in batch]
        if any(int(name[1:]) % 5 == 0 for name in names):
            plan.on_failure(batch, REFUSED, 60.0)
        else:
            sent.extend(names)
            plan.on_success()
    assert len(sent) == 80


def test_a_call_that_is_too_long_is_halved_too() -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    fill(accumulator, 4)
    batch = plan.poll(60.0, WALL)
    assert batch is not None
    plan.on_failure(batch, AwsError("too long", code="Unknown", status=413), 60.0)
    assert plan.pending == 4
    assert [d.series.name for d in plan.poll(60.0, WALL) or []] == ["M00000", "M00001"]
    assert [d.series.name for d in plan.poll(60.0, WALL) or []] == ["M00002", "M00003"]


def test_a_full_backlog_loses_resolution_before_numbers() -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator, max_pending=20)
    now = 0.0
    for minute in range(1, 51):
        fill(accumulator, 5)
        now = 60.0 * minute
        batch = plan.poll(now, WALL + now)
        assert batch is not None
        plan.on_failure(batch, DENIED, now)
        assert plan.pending <= 20
    assert "dropped" not in (plan.take_report(now) or "")
    batch = plan.poll(now + 60, WALL + now + 60)
    assert batch is not None
    totals: dict[str, float] = {}
    for datum in batch:
        totals[datum.series.name] = totals.get(datum.series.name, 0) + datum.statistics.samples
    assert totals == {f"M{index:05d}": 50 for index in range(5)}
    assert len({datum.time for datum in batch}) > 1  # the newest minutes are still apart


def test_more_metrics_than_the_bound_lose_the_deepest_and_say_so() -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator, max_pending=3)
    for index in range(5):
        add(accumulator, "UserRecordsPut", 1, "Count", {"StreamName": "a", "ShardId": f"s{index}"})
    batch = plan.poll(60.0, WALL)
    assert batch is not None
    assert [len(datum.series.dimensions) for datum in batch] == [0, 1, 2]
    assert "4 dropped" in (plan.take_report(60.0) or "")


@pytest.mark.parametrize(
    ("name", "unit", "dimensions", "problem"),
    [
        ("", "Count", {}, "metric name"),
        ("n" * 256, "Count", {}, "metric name"),
        ("n", "Furlongs", {}, "unit 'Furlongs' does not exist"),
        ("n", "Count", {"StreamName": "ü"}, "ASCII"),
        ("n", "Count", {"A": "v" * 1025}, "too long"),
        ("n", "Count", {":a": "v"}, "colon"),
        ("n", "Count", {f"D{index}": "v" for index in range(31)}, "30 dimensions"),
    ],
)
def test_statistics_that_cloudwatch_would_reject_are_not_sent(
    name: str, unit: str, dimensions: dict[str, str], problem: str
) -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    add(accumulator, name, 1, unit, dimensions)
    add(accumulator, "Good", 1, "Bytes/Second", {})
    batch = plan.poll(60.0, WALL)
    assert batch is not None
    assert "Good" in {datum.series.name for datum in batch}
    assert problem in (plan.take_report(60.0) or "")


def test_sums_and_counts_that_are_out_of_range_are_reported() -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    add(accumulator, "Big", 2.0**360, "Count", {})
    add(accumulator, "Big", 2.0**360, "Count", {})
    add(accumulator, "Nan", float("nan"), "Count", {})
    assert plan.poll(60.0, WALL) is None
    report = plan.take_report(60.0) or ""
    assert "Big: the sum" in report
    assert report.count("1 dropped") == 2


def test_reports_come_at_most_once_a_minute_and_add_up() -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    assert plan.take_report(0.0) is None
    for second in range(60, 90, 10):
        add(accumulator, "", 1, "Count", {})
        plan._collect(WALL)
        assert (plan.take_report(float(second)) is None) == (second > 60)
    assert "2 dropped" in (plan.take_report(120.0) or "")
    assert plan.take_report(180.0) is None


def test_after_finish_only_the_upload_is_left() -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    fill(accumulator, 1)
    plan.finish(WALL)
    assert plan.next_event(1.0) == 1.0
    batch = plan.poll(1.0, WALL)
    assert batch is not None
    plan.on_failure(batch, DENIED, 1.0)
    assert plan.next_event(1.0) == float("inf")
    assert "1 statistic" in (plan.take_report(1.0, final=True) or "")


@pytest.mark.parametrize("namespace", ["AWS/Kinesis", ":x", "", " ", "n" * 256])
def test_bad_namespaces_are_rejected(namespace: str) -> None:
    with pytest.raises(ConfigError, match="namespace"):
        CloudWatchMetrics(FakeAws().client("cloudwatch"), namespace=namespace)


@pytest.mark.parametrize(
    "arguments",
    [
        {"upload_delay": 0},
        {"upload_delay": 61},
        {"level": "all"},
        {"granularity": "x"},
        {"max_pending": 0},
        {"max_series": 0},
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(arguments))):
        CloudWatchMetrics(FakeAws().client("cloudwatch"), **arguments)


def test_closing_uploads_what_was_measured() -> None:
    aws = FakeAws(clock=VirtualClock())
    with CloudWatchMetrics(aws.client("cloudwatch"), namespace="orders", clock=aws.clock) as metrics:
        for value in (10, 20, 60):
            add(metrics, "RequestTime", value, "Milliseconds", {"StreamName": "a"})
        add_statistics(metrics, "UserRecordsPut", 4, 3, 0, 1, "Count", {"StreamName": "a", "ShardId": "s"})
        assert aws.cloudwatch.metric_data() == []
    data = aws.cloudwatch.metric_data()
    assert len(data) == 5
    assert data[0] == {
        "Namespace": "orders",
        "MetricName": "RequestTime",
        "Dimensions": [],
        "Timestamp": WALL,
        "Unit": "Milliseconds",
        "StatisticValues": {"SampleCount": 3.0, "Sum": 90.0, "Minimum": 10.0, "Maximum": 60.0},
    }
    assert data[-1]["Dimensions"] == [{"Name": "StreamName", "Value": "a"}, {"Name": "ShardId", "Value": "s"}]
    assert data[-1]["StatisticValues"] == {"SampleCount": 4.0, "Sum": 3.0, "Minimum": 0.0, "Maximum": 1.0}
    assert metrics.close() == 0  # twice is harmless


def test_producers_and_applications_have_namespaces_of_their_own() -> None:
    """The KPL's and the KCL's way; one sink for all of them mixes nothing."""
    aws = FakeAws(clock=VirtualClock())
    shard = {"StreamName": "orders", "ShardId": "s"}
    with CloudWatchMetrics(aws.client("cloudwatch"), clock=aws.clock) as metrics:
        add(metrics, "UserRecordsPut", 1, "Count", {"StreamName": "orders"})
        for application, value in (("billing", 10), ("audit", 20)):
            of_shard = {"ApplicationName": application, **shard}
            add(metrics, "MillisBehindLatest", value, "Milliseconds", of_shard)
    found = {
        (datum["Namespace"], tuple(one["Value"] for one in datum["Dimensions"])): datum["StatisticValues"][
            "Sum"
        ]
        for datum in aws.cloudwatch.metric_data()
    }
    assert found == {
        ("KinesisProducerLibrary", ()): 1,
        ("KinesisProducerLibrary", ("orders",)): 1,
        ("billing", ("ProcessTask",)): 10,
        ("billing", ("ProcessTask", "orders")): 10,
        ("billing", ("ProcessTask", "orders", "s")): 10,
        ("audit", ("ProcessTask",)): 20,
        ("audit", ("ProcessTask", "orders")): 20,
        ("audit", ("ProcessTask", "orders", "s")): 20,
    }


def test_in_a_namespace_that_is_given_the_application_is_a_dimension() -> None:
    aws = FakeAws(clock=VirtualClock())
    with CloudWatchMetrics(aws.client("cloudwatch"), namespace="all", clock=aws.clock) as metrics:
        for application in ("billing", "audit"):
            add(metrics, "CurrentLeases", 1, "Count", {"ApplicationName": application})
    found = [(datum["Namespace"], datum["Dimensions"][0]) for datum in aws.cloudwatch.metric_data()]
    assert found == [
        ("all", {"Name": "ApplicationName", "Value": application}) for application in ("audit", "billing")
    ]


def test_data_of_one_namespace_stay_in_order_when_calls_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_DATA_PER_CALL", 2)
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    for index in range(3):
        for application in ("a", "b"):
            add(accumulator, f"M{index}", 1, "Count", {"ApplicationName": application})
    requests = []
    while (batch := plan.poll(60.0, WALL)) is not None:
        requests.append(plan.request(batch))
        plan.on_success()
    assert [(r["Namespace"], [d["MetricName"] for d in r["MetricData"]]) for r in requests] == [
        ("a", ["M0", "M1"]),
        ("b", ["M0", "M1"]),
        ("a", ["M2"]),
        ("b", ["M2"]),
    ]


def test_an_application_that_is_no_namespace_is_reported() -> None:
    accumulator = Accumulator()
    plan = make_plan(accumulator)
    add(accumulator, "X", 1, "Count", {"ApplicationName": "AWS/billing"})
    assert plan.poll(60.0, WALL) is None
    assert "'AWS/billing'" in (plan.take_report(60.0) or "")


def test_what_a_component_recorded_before_it_ended_is_uploaded_and_nothing_after_it() -> None:
    clock = VirtualClock()
    aws = FakeAws(clock=clock)
    metrics = CloudWatchMetrics(aws.client("cloudwatch"), namespace="orders", clock=clock)
    scope = scope_of({"StreamName": "ended"})
    metric = metric_of("UserRecordsPending", "Count", "StreamName")
    metrics.add(metric, scope, 7)
    scope.retired = True
    metrics.retire(scope)
    metrics._plan.finish(WALL)
    metrics.add(metric, scope, 8)
    metrics.close()
    assert {datum["StatisticValues"]["Maximum"] for datum in aws.cloudwatch.metric_data()} == {7.0}


def test_the_thread_uploads_when_it_is_time() -> None:
    aws = FakeAws()
    client = aws.client("cloudwatch")
    called = threading.Event()

    class Client:
        def put_metric_data(self, **request: Any) -> Any:
            response = client.put_metric_data(**request)
            called.set()
            return response

    metrics = CloudWatchMetrics(Client(), upload_delay=0.001)
    add(metrics, "AllErrors", 1, "Count", {})
    assert called.wait(HANG)
    metrics.close()
    assert sum(datum["StatisticValues"]["SampleCount"] for datum in aws.cloudwatch.metric_data()) == 1


def test_a_dead_cloudwatch_costs_a_log_line_and_no_exception(caplog: pytest.LogCaptureFixture) -> None:
    aws = FakeAws()
    aws.faults.add(Fault(kind="error", operation="PutMetricData", code="AccessDenied", status=403))
    metrics = CloudWatchMetrics(aws.client("cloudwatch"), namespace="orders")
    add(metrics, "AllErrors", 1, "Count", {})
    with caplog.at_level(logging.WARNING):
        assert metrics.close() == 1
    assert "namespace orders" in caplog.text
    assert "AccessDenied" in caplog.text
    assert len(caplog.records) <= 2


def test_a_bug_in_a_caller_is_logged_with_throttling_and_not_raised(caplog: pytest.LogCaptureFixture) -> None:
    metrics = CloudWatchMetrics(FakeAws().client("cloudwatch"))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            add(metrics, "X", "much", "Count", {})  # type: ignore[arg-type]
            metrics.add(metric_of("X", "Count"), None, 1)  # type: ignore[arg-type]
    for count, message in zip((1, 2, 4), caplog.messages, strict=True):
        assert f"({count} so far)" in message
    metrics.close()


def test_what_comes_after_closing_is_dropped_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    aws = FakeAws()
    metrics = CloudWatchMetrics(aws.client("cloudwatch"))
    metrics.close()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            add(metrics, "X", 1, "Count", {})
            add_statistics(metrics, "X", 1, 1, 1, 1, "Count", {})
    assert len(caplog.records) == 1
    assert aws.cloudwatch.metric_data() == []
    assert metrics._thread is None


def test_level_none_makes_no_thread() -> None:
    metrics = CloudWatchMetrics(level="none")
    add(metrics, "X", 1, "Count", {})
    assert metrics._thread is None
    assert metrics.close() == 0


def test_a_thread_that_cannot_start_raises_no_error_in_the_caller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    aws = FakeAws()
    metrics = CloudWatchMetrics(aws.client("cloudwatch"))

    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        with caplog.at_level(logging.WARNING):
            add(metrics, "X", 1, "Count", {})
    assert "can't start new thread" in caplog.text
    add(metrics, "X", 1, "Count", {})  # the next one starts it
    metrics.close()
    assert aws.cloudwatch.metric_data()[0]["StatisticValues"]["Sum"] == 2.0


def test_a_bug_in_the_upload_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = CloudWatchMetrics(FakeAws().client("cloudwatch"))

    def broken(_now: float, _wall_time: float) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(metrics._plan, "poll", broken)
    with caplog.at_level(logging.ERROR):
        add(metrics, "X", 1, "Count", {})
        metrics.close()
    assert "uploads are disabled" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork_parent_and_child_upload_their_own() -> None:
    code = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from kinesis_sdk.metrics import CloudWatchMetrics, Kind, Metric, Scope
from kinesis_sdk.testing import FakeAws

X = Metric(name="X", unit="Count", kind=Kind.COUNTER, description="X")
scope = Scope({})
aws = FakeAws()
metrics = CloudWatchMetrics(aws.client("cloudwatch"))
metrics.add(X, scope, 1)
child = os.fork()
if child == 0:
    metrics.add(X, scope, 10)
expected = 10.0 if child == 0 else 1.0
metrics.close()
sums = [datum["StatisticValues"]["Sum"] for datum in aws.cloudwatch.metric_data()]
ok = sums == [expected]
if child == 0:
    os._exit(0 if ok else 1)
sys.exit(0 if ok and os.waitpid(child, 0)[1] == 0 else 1)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=HANG).returncode == 0


def test_open_sinks_are_uploaded_when_the_interpreter_ends() -> None:
    code = """
from kinesis_sdk.metrics import CloudWatchMetrics, Kind, Metric, Scope

class Client:
    def put_metric_data(self, **request):
        print(request["Namespace"], request["MetricData"][0]["StatisticValues"]["Sum"])

X = Metric(name="X", unit="Count", kind=Kind.COUNTER, description="X")
CloudWatchMetrics(Client(), namespace="orders").add(X, Scope({}), 7)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], check=False, timeout=HANG, capture_output=True, text=True
    )
    assert result.stdout == "orders 7.0\n"


def test_it_cannot_be_pickled() -> None:
    metrics = CloudWatchMetrics(FakeAws().client("cloudwatch"))
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(metrics)
    metrics.close()
