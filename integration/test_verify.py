"""``kinesis-sdk verify`` as a process: whole on the fake, and killed and interrupted on LocalStack.

In virtual time, tests/verify/test_run.py kills the scripts at each creation. Contracts and journeys need threads and real time, so they are killed on the
fake here, too.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest

from kinesis_sdk.testing import start_server_process
from kinesis_sdk.verify import PREFIX, STEPS
from tests import HANG

COMMAND = (sys.executable, "-m", "kinesis_sdk.cli", "verify")
WITH_THREADS = [step.name for step in STEPS if step.group in ("contracts", "journeys")]
ON_LOCALSTACK = [
    ("localstack", name)
    for name in (
        "kinesis-listing",
        "dynamodb-tables",
        "table-streams-records",
        "sink",
        "reshard",
        "fan-out",
        "idempotence",
    )
]
ON_THE_FAKE = [("fake", name) for name in WITH_THREADS]


def test_the_whole_of_it_on_the_fake(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    done = subprocess.run(
        [*COMMAND, "--fake", "--report", str(path)], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    assert {step["status"] for step in report["steps"]} == {"same", "passed"}
    assert (report["complete"], report["left"]) == (True, 0)
    assert report["removed"] > 25
    assert report["cost"]["usd"] < 1.0


@contextmanager
def begun(endpoint: str, step: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a run of a step that has made its first stream or table."""
    command = [*COMMAND, "--endpoint-url", endpoint, "--yes", "--only", step]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert f"1/1 {step}" in process.stderr.readline()
            until_something_is_there(endpoint, process)
            yield process
        finally:
            process.kill()


def names(endpoint: str) -> list[str]:
    kinesis, dynamodb = (boto3.client(service, endpoint_url=endpoint) for service in ("kinesis", "dynamodb"))
    streams = [
        name for page in kinesis.get_paginator("list_streams").paginate() for name in page["StreamNames"]
    ]
    tables = [
        name for page in dynamodb.get_paginator("list_tables").paginate() for name in page["TableNames"]
    ]
    return [name for name in (*streams, *tables) if name.startswith(PREFIX)]


def until_something_is_there(endpoint: str, process: subprocess.Popen[str]) -> None:
    while process.poll() is None:
        if names(endpoint):
            return
    raise AssertionError("the run ended before anything of it was seen")


@pytest.fixture
def endpoint(service: str, request: pytest.FixtureRequest) -> Iterator[str]:
    if service == "localstack":
        yield request.getfixturevalue(service)
    else:
        with start_server_process() as server:
            yield server.endpoint_url


@pytest.mark.parametrize(("service", "step"), [*ON_LOCALSTACK, *ON_THE_FAKE])
def test_what_a_killed_run_has_left_is_removed_later(step: str, endpoint: str) -> None:
    with begun(endpoint, step) as process:
        process.kill()
        process.wait(HANG)
    left = names(endpoint)
    assert left
    done = subprocess.run(
        [*COMMAND, "--remove", "--yes", "--json", "--endpoint-url", endpoint],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    removal = json.loads(done.stdout)
    assert {one["name"] for one in removal["removed"]} >= set(left)
    assert (removal["left"], removal["unmarked"]) == ([], [])
    assert names(endpoint) == []


@pytest.mark.parametrize(
    ("service", "step", "number"),
    [
        *((*place, signal.SIGINT) for place in (*ON_LOCALSTACK, *ON_THE_FAKE)),
        ("localstack", "reshard", signal.SIGTERM),
    ],
)
def test_an_interrupted_run_removes_what_it_made(step: str, number: signal.Signals, endpoint: str) -> None:
    with begun(endpoint, step) as process:
        process.send_signal(number)
        _, told = process.communicate(timeout=HANG)
    assert process.returncode == 130, told
    assert "Everything that was made is removed." in told
    assert names(endpoint) == []
