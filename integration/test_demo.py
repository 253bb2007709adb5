"""The demo as a user runs it: processes, sockets, a split and a crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration.commands import CLI, execute
from tests import HANG
from tests.readme import ROOT

DEMO = [*CLI, "demo"]


def test_demo_accounts_for_every_record() -> None:
    result = execute([*DEMO, "--duration", "6s", "--json"])
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout)
    assert report["passed"]
    assert report["acknowledged"] == report["processed"] == 20_000
    assert report["lost"] == report["failed"] == report["out_of_order"] == 0
    assert report["duplicated"] == 0
    assert report["exactly_once"]
    assert report["splits"] == report["workers_killed"] == report["workers_frozen"] == 1
    assert report["lost_responses"] == 3
    assert report["stored_again"] > 0, "there was something to recognize"
    # A victim that had just lost its leases to the load of this machine leaves none to take over.
    assert report["take_over_seconds"] or report["leases_lost"], "the victim's shards were taken over"
    assert report["user_records_per_kinesis_record"] > 2
    assert report["clean_stop"]


def test_without_exactly_once_the_same_run_has_duplicates_with_reasons() -> None:
    result = execute([*DEMO, "--duration", "6s", "--no-exactly-once", "--json"])
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout)
    assert report["passed"]
    assert report["lost"] == report["duplicates_unexplained"] == 0
    assert report["duplicates_explained"]["stored twice by a retry"] > 0


def test_make_demo_prints_plain_lines_where_there_is_no_terminal() -> None:
    """The README's first command, in the environment that runs this test."""
    options = "--duration 2s --no-kill-worker --no-split-shard"
    stamp = Path(sys.prefix, ".installed")
    if not stamp.exists() or stamp.stat().st_mtime < (ROOT / "pyproject.toml").stat().st_mtime:
        pytest.skip("this environment is not one of `make install`, or is older than pyproject.toml")
    result = execute(
        ["make", "--no-print-directory", "demo", f"VENV={sys.prefix}", f"ARGS={options}"], cwd=ROOT
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "PASSED" in result.stdout
    assert "\x1b[" not in result.stdout
    assert "processed  20,000" in result.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_lease_that_is_lost_and_taken_again_is_accounted_for() -> None:
    # What an overloaded machine does, forced: the only worker cannot run for longer than its leases last.
    started = [*DEMO, "--workers", "1", "--duration", "6s", "--no-exactly-once"]
    printed = []
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                printed.append(line)
                if "  split shardId-" in line:
                    (worker,) = worker_processes(process.pid)
                    os.kill(worker, signal.SIGSTOP)
                    time.sleep(4.0)  # not a wait for an event: the leases last 3 s
                    os.kill(worker, signal.SIGCONT)
            process.wait(HANG)
        finally:
            process.kill()
    output = "".join(printed)
    assert process.returncode == 0, output
    assert "a worker process could not run for" in output
    assert "(not renewed within 3 s)" in output
    assert "processed again after a lease was lost and taken again" in output


def worker_processes(session: int) -> list[int]:
    """Ids of the worker processes of a session."""
    shown = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "-s", str(session)], capture_output=True, text=True, check=True
    ).stdout
    return [int(line.split()[0]) for line in shown.splitlines() if "demo.worker_process" in line]


_WITH_SIGINT = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_stops_everything_that_the_demo_started() -> None:
    # A shell starts what it puts into the background with SIGINT ignored, and children inherit that.
    started = [sys.executable, "-c", _WITH_SIGINT, *DEMO, "--duration", "60s"]
    with subprocess.Popen(
        started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "hold the leases" in line:
                    break
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=HANG)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    left = execute(["ps", "-o", "pid=", "-s", str(process.pid)]).stdout.split()
    assert left == [], "no process of the demo's session survives"
