"""Metrics of several worker processes at one address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kinesis_sdk.cli.run.metrics import ProcessMetrics, SupervisorMetrics, joined
from tests.metrics.support import add

ONE = """# HELP up Whether.
# TYPE up gauge
up 1.0
# HELP seen_total Records, {in braces}.
# TYPE seen_total counter
seen_total{shard_id="s 1",stream_name="a}b"} 5.0
"""
TWO = """# HELP seen_total Records, {in braces}.
# TYPE seen_total counter
seen_total{shard_id="s 1",stream_name="a}b"} 7.0
seen_total{shard_id="2",stream_name="a"} 1.0
# HELP only_here Here.
# TYPE only_here gauge
only_here{x="y"} NaN
"""


def test_families_are_joined_and_each_series_names_its_process() -> None:
    assert (
        joined({1: ONE, 2: TWO})
        == """# HELP up Whether.
# TYPE up gauge
up{process="1"} 1.0
# HELP seen_total Records, {in braces}.
# TYPE seen_total counter
seen_total{process="1",shard_id="s 1",stream_name="a}b"} 5.0
seen_total{process="2",shard_id="s 1",stream_name="a}b"} 7.0
seen_total{process="2",shard_id="2",stream_name="a"} 1.0
# HELP only_here Here.
# TYPE only_here gauge
only_here{process="2",x="y"} NaN
"""
    )
    assert joined({}) == ""


def test_prometheus_reads_what_is_joined() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    processes = [ProcessMetrics() for _ in range(2)]
    for number, process in enumerate(processes, 1):
        add(process.sink, "RecordsProcessed", number, "Count", {"StreamName": "orders"})
    text = joined({number: process.text() for number, process in enumerate(processes, 1)})
    families = [*parser.text_string_to_metric_families(text)]
    assert len({family.name for family in families}) == len(families)
    found = {
        sample.labels["process"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "kinesis_records_processed_total"
    }
    assert found == {"1": 1.0, "2": 2.0}


class Child:
    """A worker process that does something when its metrics are requested."""

    def __init__(self, act: Callable[[int], None]) -> None:
        self.request_metrics = act


class Ticking:
    """A clock on which a second passes with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def endpoint() -> SupervisorMetrics:
    return SupervisorMetrics("127.0.0.1", None, lambda: {1: 0, 2: 3}, clock=Ticking())


def page(metrics: SupervisorMetrics) -> list[str]:
    found = metrics.page("/metrics?x")
    assert found.status == 200
    return [line for line in found.body.decode().splitlines() if not line.startswith("#")]


def test_a_scrape_asks_each_process() -> None:
    metrics = endpoint()
    children: dict[int, Any] = {
        number: Child(
            lambda scrape, number=number: metrics.on_report(number, scrape, f"# TYPE x gauge\nx {number}\n")
        )
        for number in (2, 1)
    }
    metrics.observe(children)
    expected = [
        'x{process="1"} 1',
        'x{process="2"} 2',
        'kinesis_run_process_scraped{process="1"} 1',
        'kinesis_run_process_scraped{process="2"} 1',
        'kinesis_run_process_restarts_total{process="1"} 0',
        'kinesis_run_process_restarts_total{process="2"} 3',
    ]
    assert page(metrics) == expected
    assert page(metrics) == expected, "nothing of a scrape is left"


def test_a_process_that_ends_or_hangs_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = endpoint()
    waits: list[float] = []
    monkeypatch.setattr(metrics._changed, "wait", waits.append)
    hung: Any = Child(lambda scrape: metrics.on_report(1, scrape - 1, "late"))
    ended: Any = Child(lambda _scrape: metrics.observe({1: hung}))
    metrics.observe({1: hung, 2: ended})
    assert page(metrics)[:2] == [
        'kinesis_run_process_scraped{process="1"} 0',
        'kinesis_run_process_scraped{process="2"} 0',
    ]
    assert 0 < sum(waits) <= 4 * 4, "the time of one scrape is bounded"
    assert page(metrics)[0] == 'kinesis_run_process_scraped{process="1"} 0'


def test_there_is_one_page() -> None:
    assert endpoint().page("/").status == 404
