"""The alert rules fire when they should, once for each cause, as Prometheus evaluates them. Skipped without promtool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from integration import prometheus

pytestmark = pytest.mark.skipif(prometheus.why_none() is not None, reason=prometheus.why_none() or "")


def series(name: str, value: str, **labels: str) -> dict[str, str]:
    """A series of the application billing with one value a minute, for half an hour."""
    inside = ",".join(f'{key}="{text}"' for key, text in {"application": "billing", **labels}.items())
    return {"series": f"{name}{{{inside}}}", "values": value}


def fires(
    alert: str, summary: str, remedy: str, *, severity: str = "warning", **labels: str
) -> dict[str, Any]:
    return {
        "eval_time": "20m",
        "alertname": alert,
        "exp_alerts": [
            {
                "exp_labels": {"application": "billing", "severity": severity, **labels},
                "exp_annotations": {"summary": summary, "remedy": remedy},
            }
        ],
    }


def silent(alert: str, at: str = "20m") -> dict[str, Any]:
    return {"eval_time": at, "alertname": alert, "exp_alerts": []}


def put_failures(values: str) -> dict[str, str]:
    labels = 'stream_name="orders",outcome="failure",instance="producer-1"'
    return {"series": f"kinesis_user_records_put_total{{{labels}}}", "values": values}


def not_stored(at: str, count: str) -> dict[str, Any]:
    return {
        "eval_time": at,
        "alertname": "KinesisRecordsNotStored",
        "exp_alerts": [
            {
                "exp_labels": {"stream_name": "orders", "severity": "critical"},
                "exp_annotations": {
                    "summary": f"Producers failed to store {count} user records in orders.",
                    "remedy": "Read the producer's log, and resend its spool.",
                },
            }
        ],
    }


SHARD = {"stream": "orders", "shard": "shardId-000000000004"}
SCENES: dict[str, tuple[list[dict[str, str]], list[dict[str, Any]]]] = {
    "a handler fails": (
        [
            series("kinesis_fleet_problems", "1x30", code="handler-fails", severity="error"),
            series("kinesis_fleet_shard_handler_stuck_seconds", "60+60x30", **SHARD),
        ],
        [
            silent("KinesisHandlerStuck", "2m"),
            fires(
                "KinesisHandlerStuck",
                "The handler of billing fails again and again, or does not return, on shardId-000000000004.",
                "kinesis-sdk leases show billing",
            ),
            silent("KinesisProblems"),
        ],
    ),
    "two handlers fail": (
        [series("kinesis_fleet_problems", "2x30", code="handler-fails", severity="error")],
        [
            fires(
                "KinesisHandlerStuck",
                "The handler of billing fails again and again, or does not return, on a shard, and on others (2 shards).",
                "kinesis-sdk leases show billing",
            ),
        ],
    ),
    "another problem": (
        [series("kinesis_fleet_problems", "2x30", code="parent-cycle", severity="error")],
        [
            silent("KinesisProblems", "9m"),
            fires(
                "KinesisProblems",
                "billing: parent-cycle for 2 leases.",
                "kinesis-sdk leases show billing",
                code="parent-cycle",
            ),
        ],
    ),
    "a long retention comes to its end": (
        [series("kinesis_fleet_problems", "1x30", code="near-horizon", severity="error")],
        [
            fires(
                "KinesisProblems",
                "billing: near-horizon for 1 leases.",
                "kinesis-sdk leases show billing",
                code="near-horizon",
            ),
        ],
    ),
    "a shard is behind": (
        [
            series("kinesis_fleet_worst_lag_seconds", "1200x30"),
            series("kinesis_fleet_shard_lag_seconds", "1200x30", **SHARD),
            series("kinesis_fleet_shard_lag_seconds", "3x30", stream="orders", shard="shardId-000000000005"),
        ],
        [
            fires(
                "KinesisLagHigh",
                "shardId-000000000004 of billing is 20m 0s behind.",
                "kinesis-sdk lag billing",
            )
        ],
    ),
    "a shard of a fleet without series for each shard is behind": (
        [series("kinesis_fleet_worst_lag_seconds", "1200x30")],
        [fires("KinesisLagHigh", "A shard of billing is 20m 0s behind.", "kinesis-sdk lag billing")],
    ),
    "no worker runs": (
        [
            series("kinesis_fleet_abandoned", "1x30"),
            series("kinesis_fleet_unowned_shards", "4x30"),
            series("kinesis_fleet_shard_owned", "0x30", **SHARD),
            series("kinesis_fleet_problems", "4x30", code="stopped", severity="error"),
        ],
        [
            fires(
                "KinesisApplicationAbandoned",
                "No worker of billing renews a lease.",
                "Start workers, or delete the application.",
                severity="critical",
            ),
            silent("KinesisShardsWithoutOwner"),
            silent("KinesisShardNotRead"),
            silent("KinesisProblems"),
        ],
    ),
    "a shard has no owner": (
        [
            series("kinesis_fleet_abandoned", "0x30"),
            series("kinesis_fleet_unowned_shards", "1x30"),
            series("kinesis_fleet_shard_owned", "0x30", **SHARD),
        ],
        [
            fires(
                "KinesisShardsWithoutOwner",
                "1 shards of billing have no owner.",
                "kinesis-sdk leases show billing",
            ),
            fires(
                "KinesisShardNotRead",
                "1 shards of orders are not read by billing.",
                "kinesis-sdk leases show billing",
                stream="orders",
            ),
        ],
    ),
    "a producer whose first records fail": (
        [put_failures("_x10 5x20")],
        [
            silent("KinesisRecordsNotStored", "5m"),
            not_stored("12m", "5"),
            silent("KinesisRecordsNotStored", "28m"),
        ],
    ),
    "a producer that fails after a while": (
        [put_failures("0x10 4x20")],
        [
            silent("KinesisRecordsNotStored", "9m"),
            not_stored("15m", "4"),
            silent("KinesisRecordsNotStored", "28m"),
        ],
    ),
    "a producer that stores all": ([put_failures("0x30")], [silent("KinesisRecordsNotStored")]),
}


@pytest.mark.parametrize("scene", SCENES)
def test_an_alert_fires_once_for_its_cause(scene: str, tmp_path: Path) -> None:
    inputs, expected = SCENES[scene]
    prometheus.evaluate_rules(tmp_path, inputs, expected)


def test_prometheus_accepts_the_rules() -> None:
    assert "SUCCESS" in prometheus.promtool("check", "rules", str(prometheus.RULES))
