"""``kinesis-sdk verify`` as a process: whole on the fake, and killed and interrupted in each of its steps on LocalStack.

In virtual time, tests/verify/test_run.py kills the scripts at each creation and change. Contracts and journeys need threads and real time, so they are killed on the
fake here, too. A run is stopped where the service has carried out a creation and the process does not know it yet: at one creation of each step, or at every
creation and change of all steps with `make interruptions`.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest
from click.testing import CliRunner

from integration.commands import CLI, execute
from integration.proxy import Proxy
from integration.waiting import eventually
from kinesis_sdk.cli.main import cli
from kinesis_sdk.testing import start_server_process
from kinesis_sdk.verify import PREFIX, STEPS, rehearse
from tests import HANG, fuzz
from tests.verify.houses import CHANGES, CREATES

COMMAND = (*CLI, "verify")
DELETES = ("DeleteStream", "DeleteTable")
STEP = {step.name: step for step in STEPS}
PLACES = [
    *(("localstack", step.name) for step in STEPS),
    *(("fake", step.name) for step in STEPS if step.group in ("contracts", "journeys")),
]


def test_the_whole_of_it_on_the_fake(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    done = execute([*COMMAND, "--fake", "--report", str(path)])
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    assert {step["status"] for step in report["steps"]} == {"same", "passed"}
    assert (report["complete"], report["left"]) == (True, 0)
    assert report["removed"] > 25
    assert report["cost"]["usd"] < 1.0


class Account:
    """What runs have left in the account of an endpoint."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._kinesis = boto3.client("kinesis", endpoint_url=endpoint)
        self._dynamodb = boto3.client("dynamodb", endpoint_url=endpoint)
        self._consumers: set[str] = set()

    def names(self) -> set[str]:
        """Return the names of streams and tables."""
        streams = self._kinesis.get_paginator("list_streams").paginate()
        tables = self._dynamodb.get_paginator("list_tables").paginate()
        found = itertools.chain(
            *(page["StreamNames"] for page in streams), *(page["TableNames"] for page in tables)
        )
        return {name for name in found if name.startswith(PREFIX)}

    def consumers(self) -> set[str]:
        """Return the ARNs of registered consumers, those of deleted streams included if they were seen before."""
        for page in self._kinesis.get_paginator("list_streams").paginate():
            for name in page["StreamNames"]:
                arn = self._kinesis.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]
                listed = self._kinesis.list_stream_consumers(StreamARN=arn["StreamARN"])["Consumers"]
                self._consumers |= {one["ConsumerARN"] for one in listed if name.startswith(PREFIX)}
        return {arn for arn in self._consumers if self._has_consumer(arn)}

    def _has_consumer(self, arn: str) -> bool:
        try:
            self._kinesis.describe_stream_consumer(ConsumerARN=arn)
        except self._kinesis.exceptions.ResourceNotFoundException:
            return False
        return True

    def left(self) -> set[str]:
        """Return the names of streams and tables and the ARNs of consumers."""
        return self.names() | self.consumers()


@pytest.fixture
def account(service: str, request: pytest.FixtureRequest) -> Iterator[Account]:
    if service == "localstack":
        yield Account(request.getfixturevalue(service))
    else:
        with start_server_process() as server:
            yield Account(server.endpoint_url)


@contextmanager
def stopped(
    endpoint: str, *arguments: str, at: tuple[str, ...], after: int = 0
) -> Iterator[tuple[subprocess.Popen[str], Proxy]]:
    """Run the command until the response of one of these operations is held back, or until it ends; yield process and proxy."""
    with Proxy(endpoint) as proxy:
        proxy.configure(stall=True, operations=at, after=after)
        command = [*COMMAND, *arguments, "--yes", "--endpoint-url", proxy.endpoint_url]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                eventually(
                    lambda: proxy.held or process.poll() is not None,
                    "the run neither creates anything nor ends",
                    pause=0.01,
                )
                yield process, proxy
            finally:
                process.kill()


def registers_consumers(name: str) -> bool:
    """Return whether a step is billed for enhanced fan-out."""
    return "fan_out_hour" in rehearse(STEP[name]).units


def changes(name: str) -> int:
    """Return the number of calls of a step on the fake that create or change something."""
    if calls := rehearse(STEP[name]).calls:
        return sum(calls.get(operation, 0) for operation in CHANGES)
    with (
        start_server_process() as server,
        stopped(server.endpoint_url, "--only", name, at=CHANGES, after=sys.maxsize) as (_, proxy),
    ):
        return proxy.spared


def interruptions(account: Account, name: str) -> Iterator[tuple[subprocess.Popen[str], Proxy]]:
    """Yield runs of a step that are stopped: at the creation of a consumer if it registers one, else at the first creation; at each change with `make interruptions`."""
    if not fuzz.TIMES:
        at = ("RegisterStreamConsumer",) if registers_consumers(name) else CREATES
        with stopped(account.endpoint, "--only", name, at=at) as (process, proxy):
            assert proxy.held
            yield process, proxy
        return
    count = 0
    for after in range(changes(name)):
        with stopped(account.endpoint, "--only", name, at=CHANGES, after=after) as (process, proxy):
            if not proxy.held:
                break  # A script goes another way on LocalStack than on the fake, and has ended.
            count += 1
            yield process, proxy
    print(f"{name}: interrupted at {count} changes")
    assert count
    assert account.left() == set()


def remove(account: Account) -> dict[str, list[dict[str, str]]]:
    """Return what `--remove` removes and leaves."""
    done = CliRunner().invoke(
        cli, ["verify", "--remove", "--yes", "--json", "--endpoint-url", account.endpoint]
    )
    assert done.exit_code == 0, done.output
    removal: dict[str, list[dict[str, str]]] = json.loads(done.stdout)
    return removal


@pytest.mark.parametrize(("service", "step"), PLACES)
def test_what_a_killed_run_has_left_is_removed_later(step: str, account: Account) -> None:
    found = set()
    for process, _ in interruptions(account, step):
        process.kill()
        process.wait(HANG)
        left = account.names()
        found |= left | account.consumers()
        removal = remove(account)
        assert {one["name"] for one in removal["removed"]} >= left
        assert (removal["left"], removal["unmarked"]) == ([], [])
        assert account.left() == set()
    assert found
    assert any("/consumer/" in name for name in found) or not registers_consumers(step)


@pytest.mark.parametrize(
    ("service", "step", "number"),
    [*((*place, signal.SIGINT) for place in PLACES), ("localstack", "reshard", signal.SIGTERM)],
)
def test_an_interrupted_run_removes_what_it_made(step: str, number: signal.Signals, account: Account) -> None:
    for process, proxy in interruptions(account, step):
        account.consumers()
        process.send_signal(number)
        proxy.heal()
        _, told = process.communicate(timeout=HANG)
        assert process.returncode == 130, told
        assert "Everything that was made is removed." in told
        assert account.left() == set()


@pytest.mark.parametrize("service", ["localstack"])
def test_a_killed_removal_is_finished_by_the_next(account: Account) -> None:
    with stopped(account.endpoint, "--only", "fan-out", at=("RegisterStreamConsumer",)) as (process, _):
        process.kill()
    with stopped(account.endpoint, "--remove", at=DELETES) as (process, proxy):
        assert proxy.held
        process.kill()
    assert account.names()
    assert remove(account)["removed"]
    assert account.left() == set()
