"""The main job as a user runs it: processes, sockets, a crash on the way."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time

import pytest

from kinesis_sdk.testing import FakeAws, FakeAwsServer

DEMO = [sys.executable, "-m", "kinesis_sdk.cli", "demo"]


def test_demo_accounts_for_every_record() -> None:
    result = subprocess.run(
        [*DEMO, "--seconds", "6", "--json"], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout)
    assert report["passed"]
    assert report["acknowledged"] == report["processed"] == 20_000
    assert report["lost"] == report["failed"] == report["out_of_order"] == 0
    assert report["splits"] == report["workers_killed"] == 1
    assert report["take_over_seconds"], "the victim's shards were taken over"
    assert report["user_records_per_kinesis_record"] > 2
    assert report["clean_stop"]


def test_demo_prints_plain_lines_where_there_is_no_terminal() -> None:
    result = subprocess.run(
        [*DEMO, "--seconds", "2", "--no-kill", "--no-split"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "PASSED" in result.stdout
    assert "\x1b[" not in result.stdout
    assert "processed  20,000" in result.stdout


def test_a_port_that_nobody_listens_on_is_named_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    result = subprocess.run(
        [*DEMO, "--endpoint-url", f"http://127.0.0.1:{port}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert f"http://127.0.0.1:{port}" in result.stderr
    assert "Traceback" not in result.stderr
    assert time.monotonic() - began < 20


def test_an_unknown_stream_is_named_at_once() -> None:
    with FakeAwsServer(FakeAws()) as server:
        result = subprocess.run(
            [*DEMO, "--endpoint-url", server.endpoint_url, "--stream", "no-such-stream"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert result.returncode == 1
    assert "no-such-stream" in result.stderr
    assert "ResourceNotFoundException" in result.stderr
    assert "Traceback" not in result.stderr


def test_wrong_credentials_are_named_at_once() -> None:
    with FakeAwsServer(FakeAws(access_keys={"AKIDRIGHT"})) as server:
        result = subprocess.run(
            [*DEMO, "--endpoint-url", server.endpoint_url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert result.returncode == 1
    assert "UnrecognizedClientException" in result.stderr
    assert "http://127.0.0.1:" in result.stderr


_WITH_SIGINT = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_stops_everything_that_the_demo_started() -> None:
    # A shell starts what it puts into the background with SIGINT ignored, and children inherit that.
    started = [sys.executable, "-c", _WITH_SIGINT, *DEMO, "--seconds", "60"]
    with subprocess.Popen(
        started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "hold the leases" in line:
                    break
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    left = subprocess.run(
        ["ps", "-o", "pid=", "-s", str(process.pid)], capture_output=True, text=True, check=False
    ).stdout.split()
    assert left == [], "no process of the demo's session survives"
