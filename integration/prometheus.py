"""A real Prometheus for tests, with the project's rules. It is Debian's package, which no test downloads."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from integration.guarded import Guarded, await_port, free_port
from integration.waiting import eventually
from tests import HANG

RULES = Path(__file__).parents[1] / "grafana" / "alerts.yml"


def why_none() -> str | None:
    """Return why Prometheus is not available; None if it is."""
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    return f"{', '.join(missing)} not found (Debian: apt-get install prometheus)" if missing else None


class Prometheus:
    """A running Prometheus; `url` is its address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=HANG):
                return True
        except OSError:
            return False

    def get(self, path: str, **query: str) -> Any:
        """Return the response of its API."""
        with urllib.request.urlopen(
            f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=HANG
        ) as response:
            return json.load(response)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression, each with its labels and its value."""
        result: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return result

    def alerts(self) -> list[dict[str, Any]]:
        """Return the pending and firing alerts."""
        alerts: list[dict[str, Any]] = self.get("alerts")["alerts"]
        return alerts

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules with their latest results."""
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]


def promtool(*arguments: str) -> str:
    """Run promtool and return its output; raise AssertionError with the output if it fails."""
    result = subprocess.run(("promtool", *arguments), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def evaluate_rules(
    folder: Path, series: Sequence[Mapping[str, str]], expected: Sequence[Mapping[str, Any]]
) -> None:
    """Let Prometheus evaluate the rules over series with a value each minute; raise AssertionError if other alerts fire.

    Args:
        folder: For promtool's input.
        series: ``input_series``.
        expected: ``alert_rule_test``, without the runbooks of the alerts.
    """
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    runbooks = {rule["alert"]: {"runbook_url": rule["annotations"]["runbook_url"]} for rule in rules}

    def whole(one: Mapping[str, Any]) -> dict[str, Any]:
        alerts = [
            {**alert, "exp_annotations": {**alert["exp_annotations"], **runbooks[one["alertname"]]}}
            for alert in one["exp_alerts"]
        ]
        return {**one, "exp_alerts": alerts}

    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {"interval": "1m", "input_series": series, "alert_rule_test": [whole(one) for one in expected]}
        ],
    }
    path = folder / "alerts_test.yml"
    path.write_text(json.dumps(tests))  # JSON is YAML
    promtool("test", "rules", str(path))


@contextlib.contextmanager
def start_prometheus(folder: Path, targets: Mapping[str, str]) -> Iterator[Prometheus]:
    """Start Prometheus with the project's rules, unchanged.

    Args:
        folder: For its data, its configuration and its log.
        targets: Addresses of `/metrics` by the name of the job. Targets and rules have an interval of five seconds, which a busy
            machine needs to respond.
    """
    jobs = [
        {"job_name": name, "static_configs": [{"targets": [urllib.parse.urlsplit(url).netloc]}]}
        for name, url in targets.items()
    ]
    configuration = {
        "global": {"scrape_interval": "5s", "scrape_timeout": "5s", "evaluation_interval": "5s"},
        "rule_files": [str(RULES)],
        "scrape_configs": jobs,
    }
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(configuration))  # JSON is YAML
    # It cannot choose a port and report it. If another program takes this port before it listens, it ends.
    port, storage = free_port(), folder / "prometheus"
    address = f"127.0.0.1:{port}"
    process = Guarded(
        (
            "prometheus",
            f"--config.file={path}",
            f"--storage.tsdb.path={storage}",
            f"--web.listen-address={address}",
        ),
        folder / "prometheus.log",
    )
    try:
        await_port(process, port)
        running = Prometheus(f"http://{address}")
        eventually(running.is_ready, process.tail)
        yield running
    finally:
        process.close()
