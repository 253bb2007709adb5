"""The project's rules in a real Prometheus, unchanged: it reads the exporter, `kinesis-sdk run --metrics-port`, and a producer.

No test waits for the minutes of a rule's ``for``. The live part shows that the rules find the series that processes really serve, with their
labels: an alert is then pending, or fires if its rule has no ``for``. The same series then go through `promtool test rules` for as long as it takes.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration import prometheus
from integration.incidents.fleet import APPLICATION, ERROR, POISON, STREAM, TARGET, Fleet, start_fleet
from integration.waiting import eventually
from kinesis_sdk.metrics import PrometheusMetrics
from kinesis_sdk.producer import Producer, ProducerConfig
from tests import HANG

pytestmark = pytest.mark.skipif(prometheus.why_none() is not None, reason=prometheus.why_none() or "")

DASHBOARD = prometheus.RULES.parent / "dashboard.json"
# A failing call is made twice a second, so that there are ten of them soon.
SETTINGS = '[on_handler_error]\npolicy = "retry"\nmax_delay = 0.5\n'
NOT_HERE = (
    "kinesis_fleet_moves_total",
    "kinesis_records_dead_lettered_total",
    "kinesis_reads_throttled_total",
)
"""Metrics on the dashboard of what did not happen."""
ADDED = ("instance", "job")
"""Labels that Prometheus adds to a series."""


@contextlib.contextmanager
def failing_producer(endpoint_url: str) -> Iterator[str]:
    """Put five records that cannot be stored, and yield the address of the producer's metrics."""
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    server, thread = client.start_http_server(0, "127.0.0.1", registry)
    config = ProducerConfig(fail_if_throttled=True)
    try:
        with Producer(
            config=config,
            endpoint_url=endpoint_url,
            region_name="us-east-1",
            metrics=PrometheusMetrics(registry),
        ) as producer:
            for number in range(5):
                error = producer.put(STREAM, f"key-{number}", b"not stored").exception(HANG)
                assert error is not None
            yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, prometheus.Prometheus]]:
    """A fleet whose handler fails on a record that is eleven minutes old, a producer whose records fail, and Prometheus."""
    folder = tmp_path_factory.mktemp("fleet")
    with contextlib.ExitStack() as stack:
        fleet = stack.enter_context(start_fleet(folder, SETTINGS))
        exporter, exporter_url = fleet.start_exporter()
        stack.callback(exporter.end)
        fleet.fault(kind="partial", operation="PutRecords")
        producer_url = stack.enter_context(failing_producer(fleet.endpoint_url))
        targets = {"fleet": exporter_url, "workers": fleet.metrics_url, "producer": producer_url}
        running = stack.enter_context(prometheus.start_prometheus(folder, targets))
        fleet.age_next(660)
        fleet.load.put(POISON, shard=2)
        yield fleet, running


EXPECTED = {
    "KinesisHandlerFails": (
        "pending",
        {"application_name": APPLICATION, "shard_id": TARGET},
        f"The handler of {APPLICATION} fails on {TARGET}.",
    ),
    "KinesisHandlerStuck": (
        "pending",
        {"application": APPLICATION},
        f"The handler of {APPLICATION} fails again and again, or does not return, on {TARGET}.",
    ),
    "KinesisLagHigh": (
        "pending",
        {"application": APPLICATION},
        f"{TARGET} of {APPLICATION} is [0-9]+m [0-9.]+s behind.",
    ),
    "KinesisRecordsNotStored": (
        "firing",
        {"stream_name": STREAM},
        f"Producers failed to store 5 user records in {STREAM}.",
    ),
}
"""First state, labels and summary of each alert that has to be there, the last as a regular expression."""


def test_a_rule_finds_the_series_of_live_processes(live: tuple[Fleet, prometheus.Prometheus]) -> None:
    fleet, running = live

    def found() -> dict[str, dict[str, Any]]:
        return {alert["labels"]["alertname"]: alert for alert in running.alerts()}

    def explain() -> object:
        return (
            found(),
            [(rule["name"], rule["health"], rule.get("lastError")) for rule in running.rules()],
            fleet.logs()[-2000:],
        )

    eventually(lambda: EXPECTED.keys() <= found().keys(), explain)
    for name, (state, labels, summary) in EXPECTED.items():
        alert = found()[name]
        # On a slow machine, the time of a rule is over.
        assert alert["state"] in (state, "firing")
        assert {
            key: text for key, text in alert["labels"].items() if key not in ("alertname", "severity")
        } == labels
        assert re.fullmatch(summary, alert["annotations"]["summary"]), alert
    # What is not so must not be told, and no rule may break.
    assert not found().keys() & {
        "KinesisExporterAbsent",
        "KinesisLeaseTableNotRead",
        "KinesisApplicationAbandoned",
    }
    assert {(rule["name"], rule["health"]) for rule in running.rules() if rule["health"] != "ok"} == set()
    assert ERROR in fleet.logs()


def test_an_alert_fires_after_its_time_on_the_same_series(
    live: tuple[Fleet, prometheus.Prometheus], tmp_path: Path
) -> None:
    _, running = live

    def series(name: str, values: str, **wanted: str) -> list[dict[str, str]]:
        """Return the live series of a metric with other values, one a minute."""
        made = []
        for one in eventually(lambda: running.query(name), running.alerts):
            labels = {key: text for key, text in one["metric"].items() if key not in ("__name__", *ADDED)}
            if wanted.items() <= labels.items():
                inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
                made.append({"series": f"{name}{{{inside}}}", "values": values})
        assert made, f"no series {name} with {wanted}"
        return made

    def fires(alert: str, severity: str, labels: dict[str, str], summary: str, remedy: str) -> dict[str, Any]:
        annotations = {"summary": summary, "remedy": remedy}
        expected = {"exp_labels": {**labels, "severity": severity}, "exp_annotations": annotations}
        return {"eval_time": "30m", "alertname": alert, "exp_alerts": [expected]}

    prometheus.evaluate_rules(
        tmp_path,
        [
            # One series: each worker that had the shard has its own, and the rule adds them.
            *series("kinesis_handler_failures_total", "0+1x40", shard_id=TARGET)[:1],
            *series("kinesis_fleet_worst_lag_seconds", "660+60x40"),
            *series("kinesis_fleet_shard_lag_seconds", "660+60x40", shard=TARGET),
            *series("kinesis_fleet_problems", "1x40", code="handler-fails"),
            *series("kinesis_fleet_shard_handler_stuck_seconds", "60+60x40", shard=TARGET),
        ],
        [
            {"eval_time": "12m", "alertname": "KinesisHandlerFails", "exp_alerts": []},
            fires(
                "KinesisHandlerFails",
                "warning",
                {"application_name": APPLICATION, "shard_id": TARGET},
                f"The handler of {APPLICATION} fails on {TARGET}.",
                f"Read the worker's log; kinesis-sdk leases explain {APPLICATION} {TARGET}",
            ),
            {"eval_time": "9m", "alertname": "KinesisLagHigh", "exp_alerts": []},
            fires(
                "KinesisLagHigh",
                "warning",
                {"application": APPLICATION},
                f"{TARGET} of {APPLICATION} is 41m 0s behind.",
                f"kinesis-sdk lag {APPLICATION}",
            ),
            {"eval_time": "2m", "alertname": "KinesisHandlerStuck", "exp_alerts": []},
            fires(
                "KinesisHandlerStuck",
                "warning",
                {"application": APPLICATION},
                f"The handler of {APPLICATION} fails again and again, or does not return, on {TARGET}.",
                f"kinesis-sdk leases show {APPLICATION}",
            ),
        ],
    )


def test_the_dashboard_shows_the_metrics_of_live_workers(live: tuple[Fleet, prometheus.Prometheus]) -> None:
    _, running = live
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    queries = [
        target["expr"].replace("$application", APPLICATION)
        for panel in panels
        for target in panel.get("targets", ())
    ]

    def empty() -> list[str]:
        return [
            expression
            for expression in queries
            if not running.query(expression) and not any(name in expression for name in NOT_HERE)
        ]

    eventually(lambda: not empty(), empty)
