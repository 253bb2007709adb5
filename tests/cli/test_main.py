from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from kinesis_sdk.cli.main import cli
from kinesis_sdk.producer import ProducerStats
from kinesis_sdk.testing.accounting.percentiles import percentiles
from kinesis_sdk.testing.accounting.verify import RunResult
from kinesis_sdk.testing.demo import runner as demo_runner
from kinesis_sdk.testing.demo.options import DemoOptions
from kinesis_sdk.testing.demo.report import DemoReport, make_report
from tests.cli.invoking import invoke


def report(*, exactly_once: bool = True, clean_stop: bool = True, **changes: Any) -> DemoReport:
    facts: dict[str, Any] = {
        **dict.fromkeys(("failed", "duplicates", "unexplained", "out_of_order", "overtaken"), 0),
        "lost": [],
        "delivered": 10,
        "explained": {},
        "put_to_process": [0.1],
        **changes,
    }
    return make_report(
        stream="s",
        result=RunResult(**facts),
        stats=ProducerStats(**dict.fromkeys(ProducerStats.__dataclass_fields__, 0)),
        acknowledge_times=[0.05],
        take_over_seconds={"shardId-000000000001": 3.0},
        exactly_once=exactly_once,
        clean_stop=clean_stop,
        put_seconds=1.0,
        total_seconds=2.0,
        longest_stall=0.0,
        failover_time=3.0,
        splits=1,
        workers_killed=1,
        workers_frozen=1,
        leases_lost=0,
        deliveries=14,
        stored_again=3,
        lost_responses=3,
    )


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        ({}, True),
        ({"duplicates": 3, "explained": {"stored twice by a retry": 3}}, False),
        ({"duplicates": 3, "explained": {"stored twice by a retry": 3}, "exactly_once": False}, True),
        ({"duplicates": 1, "unexplained": 1, "exactly_once": False}, False),
        ({"lost": [4]}, False),
        ({"failed": 1}, False),
        ({"duplicates": 1, "unexplained": 1}, False),
        ({"out_of_order": 1}, False),
        ({"clean_stop": False}, False),
    ],
)
def test_exit_status_says_whether_anything_was_lost(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], passed: bool
) -> None:
    monkeypatch.setattr(demo_runner, "run_demo", lambda *_: report(**changes))
    code = 0 if passed else 1
    plain = invoke("demo", code=code)
    assert ("PASSED" in plain.output) is passed
    machine = invoke("demo", "--json", code=code)
    assert json.loads(machine.output)["passed"] is passed


def test_options_reach_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[DemoOptions] = []

    def run(options: DemoOptions, *_: object) -> DemoReport:
        seen.append(options)
        return report()

    monkeypatch.setattr(demo_runner, "run_demo", run)
    invoke("demo", "--stream", "orders", "--repeat", "3", "--workers", "1", "--duration", "5s")
    assert seen[0].stream == "orders"
    assert seen[0].repeat == 3
    assert seen[0].duration == 5
    assert not seen[0].split_shard, "an existing stream is not resharded"
    assert not seen[0].kill_worker, "the only worker is not killed"
    invoke("demo")
    assert (seen[1].split_shard, seen[1].kill_worker) == (True, True)
    assert (seen[1].freeze_worker, seen[1].lose_responses, seen[1].exactly_once) == (True, True, True)
    invoke("demo", "--no-split-shard", "--no-kill-worker", "--no-exactly-once")
    assert (seen[2].split_shard, seen[2].kill_worker, seen[2].exactly_once) == (False, False, False)
    invoke("demo", "--workers", "2", "--endpoint-url", "http://localhost:4566")
    assert not seen[3].freeze_worker, "another worker has to take over from the killed one"
    assert not seen[3].lose_responses, "only the fake that the demo starts can do that"


def test_the_demo_without_sqlalchemy_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    monkeypatch.setattr(demo_runner, "run_demo", lambda *_: report(exactly_once=False))
    result = invoke("demo", code=2)
    assert "pip install '.[sql]'" in result.output
    assert "--no-exactly-once" in result.output
    invoke("demo", "--no-exactly-once")


def test_a_profile_goes_to_the_workers_instead_of_keys_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "credentials").write_text("[team]\naws_access_key_id = of-team\naws_secret_access_key = x\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    options = DemoOptions(
        endpoint_url="http://localhost:4566", profile="team", region="eu-west-1", stream="orders"
    )
    demo = demo_runner._Demo(options, MagicMock(), ExitStack())
    demo.connect()
    assert demo.session.get_credentials().access_key == "of-team"
    assert demo.environment["AWS_PROFILE"] == "team"
    assert "AWS_ACCESS_KEY_ID" not in demo.environment


def _without_click(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where click is not installed."""
    code = (
        "import sys; sys.modules['click'] = None; from kinesis_sdk.cli import main; "
        f"sys.argv = ['kinesis-sdk', *{arguments!r}]; main()"
    )
    return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)


def test_the_fake_needs_no_click() -> None:
    result = _without_click("fake", "--help")
    assert result.returncode == 0, result.stderr
    assert "usage: kinesis-sdk fake" in result.stdout


def test_help_and_version_need_no_click() -> None:
    result = _without_click("--version")
    assert (result.returncode, result.stdout) == (0, invoke("--version").output)
    for option in ("--help", "-h"):
        result = _without_click(option)
        assert (result.returncode, result.stderr) == (0, "")
        assert "kinesis-sdk fake --help" in result.stdout
        assert "pip install '.[cli]'" in result.stdout
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("Others: ")]
    named = line.removeprefix("Others: ").partition(" and more")[0].split(", ")
    assert set(named) <= set(cli.list_commands(None)), "each of them exists"  # type: ignore[arg-type]


def test_a_command_that_needs_click_says_how_to_get_it() -> None:
    result = _without_click("demo")
    assert result.returncode == 2
    assert "pip install '.[cli]'" in result.stderr


def test_percentiles_by_nearest_rank() -> None:
    values = [float(i) for i in range(1, 101)]
    assert percentiles(values) == {"p50": 51.0, "p90": 91.0, "p99": 100.0, "max": 100.0}
    assert percentiles([])["max"] == 0.0
    assert percentiles([7.0])["p50"] == 7.0
