"""``put``, ``tail`` and ``copy`` as processes that are killed, stopped and cut off, in front of the fake over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from integration.commands import CLI, execute
from integration.waiting import eventually
from kinesis_sdk.admin import Connection, Streams, read_page
from kinesis_sdk.admin.resharding import Resharding
from kinesis_sdk.common.position import Ended, Position, TrimHorizon
from kinesis_sdk.testing import ServerProcess, start_server_process
from tests import HANG

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


@pytest.fixture
def fake() -> Iterator[ServerProcess]:
    with start_server_process("--create-stream", "orders:2", "--create-stream", "replay:3") as server:
        yield server


class Account:
    """The streams of the fake, looked at from outside."""

    def __init__(self, endpoint_url: str) -> None:
        self.endpoint_url = endpoint_url
        self.kinesis: Any = boto3.client("kinesis", endpoint_url=endpoint_url)
        self.connection = Connection(clients={"kinesis": self.kinesis})
        self.streams = Streams(self.connection)

    def stored(self, stream: str) -> list[dict[str, Any]]:
        """Return the JSON records of a stream, shard by shard in the order of their ids."""
        found: list[dict[str, Any]] = []
        for shard in self.streams.shards(stream):
            position: Position = TrimHorizon()
            while not isinstance(position, Ended):
                page = read_page(self.connection, stream, shard.shard_id, position, limit=10_000)
                found += [json.loads(record.data) for record in page.records]
                position = page.next_position
                if page.at_tip:
                    break
        return found

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        command = [*CLI, *arguments, "--endpoint-url", self.endpoint_url]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        return subprocess.Popen(command, **options)

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [*CLI, *arguments, "--endpoint-url", self.endpoint_url]
        return execute(command, **options)


@pytest.fixture
def account(fake: ServerProcess) -> Account:
    return Account(fake.endpoint_url)


def ndjson(path: Path, count: int) -> Path:
    path.write_text("".join(f'{{"id": {n}, "key": "k{n % 50}"}}\n' for n in range(count)))
    return path


def wait_for_progress(state: Path, records: int, process: subprocess.Popen[str], *, since: str = "") -> None:
    """Wait until the account of a running transfer has some records, and is another one than before."""
    deadline = time.monotonic() + HANG
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        try:
            noted = state.read_text()
        except FileNotFoundError:
            noted = since
        sources = {} if noted == since else json.loads(noted)["progress"]["sources"]
        # In a file, a position is a number of records; in a shard, any is good enough.
        if any(
            one["through"] and (isinstance(one["through"], list) or one["through"] >= records)
            for one in sources.values()
        ):
            return
        time.sleep(0.02)
    raise AssertionError("the transfer makes no progress")


def kill(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> tuple[str, str]:
    process.send_signal(number)
    return process.communicate(timeout=HANG)


def test_put_goes_on_after_kill_9_and_nothing_is_lost(account: Account, tmp_path: Path) -> None:
    path, state = ndjson(tmp_path / "a.ndjson", 4000), tmp_path / "state"
    arguments = ("put", "orders", str(path), "--key", "key", "--rate", "1500", "--state", str(state))
    noted: list[tuple[int, Counter[int]]] = []
    for records in (300, 1000, 2000):
        process = account.start(*arguments)
        wait_for_progress(state, records, process)
        kill(process)
        assert process.returncode == -signal.SIGKILL
        through = json.loads(state.read_text())["progress"]["sources"][str(path)]["through"]
        noted.append((through, Counter(record["id"] for record in account.stored("orders"))))
    result = account.run(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    last = json.loads(result.stdout)
    assert last["skipped"] >= 2000
    times = Counter(record["id"] for record in account.stored("orders"))
    assert sorted(times) == list(range(4000)), "nothing is lost"
    for through, before in noted:
        again = [number for number in range(through) if times[number] > before[number]]
        assert again == [], "records were put again that were noted as acknowledged before the kill"


def test_copy_goes_on_after_kill_9_and_keeps_the_order_of_each_key(account: Account, tmp_path: Path) -> None:
    path, state = ndjson(tmp_path / "a.ndjson", 3000), tmp_path / "state"
    done = account.run("put", "orders", str(path), "--key", "key", "--ordered")
    assert done.returncode == 0, done.stderr
    Resharding(account.streams).split("orders", "0")
    arguments = ("copy", "orders", "replay", "--rate", "1500", "--state", str(state))
    for _ in range(2):
        before = state.read_text() if state.exists() else ""
        process = account.start(*arguments)
        wait_for_progress(state, 1, process, since=before)
        kill(process)
        assert process.returncode == -signal.SIGKILL
    result = account.run(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    assert (
        json.loads(result.stdout)["transfer"]["skipped"]
        + json.loads(result.stdout)["transfer"]["acknowledged"]
        < 3000
    )
    stored = account.stored("replay")
    assert {record["id"] for record in stored} == set(range(3000)), "nothing is lost"
    assert in_order(stored)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_put_that_is_stopped_flushes_and_says_where(
    account: Account, tmp_path: Path, number: signal.Signals
) -> None:
    path, state = ndjson(tmp_path / "a.ndjson", 100_000), tmp_path / "state"
    process = account.start(
        "put", "orders", str(path), "--key", "key", "--rate", "1000", "--state", str(state)
    )
    wait_for_progress(state, 100, process)
    out, err = kill(process, number)
    assert process.returncode == 130, err
    assert "records acknowledged in" in out
    assert f"read up to: {path} at " in err
    assert f"Run the same command again to continue: {state}" in err
    assert "Traceback" not in err
    # All that was read was flushed, so the next run begins exactly there.
    ids = [record["id"] for record in account.stored("orders")]
    reached = json.loads(state.read_text())["progress"]["sources"][str(path)]
    assert sorted(ids) == list(range(reached["through"]))
    assert reached["beyond"] == []


def test_a_live_pipe_is_put_as_it_comes(account: Account, tmp_path: Path) -> None:
    state = tmp_path / "state"
    process = account.start("put", "orders", "-", "--state", str(state), stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write('{"id": 1}\n')
    process.stdin.flush()
    eventually(lambda: account.stored("orders"), "a record in the pipe does not wait for the next one")
    # The account does not wait for the next record either, so a kill now would not have it put twice.
    wait_for_progress(state, 1, process)
    out, _ = process.communicate(timeout=HANG)
    assert out.startswith("1 record acknowledged")


def test_tail_into_head_ends_cleanly(account: Account, tmp_path: Path) -> None:
    account.run("put", "orders", str(ndjson(tmp_path / "a.ndjson", 5000)))
    command = " ".join(
        [*CLI, "tail", "orders", "--from", "TRIM_HORIZON", "--raw", "--endpoint-url", account.endpoint_url]
    )
    # `tail` follows the stream, so it ends only because the pipe has no reader.
    result = execute(["bash", "-c", f"set -o pipefail; {command} | head -1"])
    assert json.loads(result.stdout)["id"] >= 0
    assert (result.returncode, result.stderr) == (0, "")


def test_a_live_tail_follows_splits_and_merges_and_loses_nothing(account: Account, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("w") as file:
        tail = account.start("tail", "orders", "--from", "TRIM_HORIZON", "--json", stdout=file)
        put = account.start(
            "put",
            "orders",
            str(ndjson(tmp_path / "a.ndjson", 3000)),
            "--key",
            "key",
            "--rate",
            "500",
            "--ordered",
        )
        try:
            begun = time.monotonic() + HANG
            while not out.read_text():
                assert time.monotonic() < begun, "the tail shows nothing"
                time.sleep(0.05)
            Resharding(account.streams).split("orders", "0")
            time.sleep(1)
            Resharding(account.streams).merge("orders", "2", "3")
            time.sleep(1)
            Resharding(account.streams).scale("orders", 5)
            assert put.wait(HANG) == 0
            expected = len(account.stored("orders"))
            eventually(
                lambda: len(out.read_text().splitlines()) >= expected, "records are not shown", pause=0.2
            )
            assert tail.poll() is None
        finally:
            _, err = kill(tail, signal.SIGINT)
            put.kill()
            put.communicate()
    assert tail.returncode == 130
    assert "going on with 2, 3" in err
    shown = [json.loads(line)["data"] for line in out.read_text().splitlines()]
    # An aggregate that lands across a reshard is put again by the producer, so some records are in the stream twice.
    stored = account.stored("orders")
    assert Counter(record["id"] for record in shown) == Counter(record["id"] for record in stored)
    assert {record["id"] for record in shown} == set(range(3000))
    assert in_order(shown)


def in_order(records: list[dict[str, Any]]) -> bool:
    """Return whether the first appearances of the records of each key are in order."""
    first: dict[str, list[int]] = {}
    for record in records:
        numbers = first.setdefault(record["key"], [])
        if record["id"] not in numbers:
            numbers.append(record["id"])
    return all(numbers == sorted(numbers) for numbers in first.values())


def test_a_thousand_shards(tmp_path: Path) -> None:
    with start_server_process("--create-stream", "big:1000") as server:
        account = Account(server.endpoint_url)
        account.run("put", "big", str(ndjson(tmp_path / "a.ndjson", 2000)))
        described = account.run("stream", "describe", "big", "--load")
        assert described.returncode == 0, described.stderr
        lines = described.stdout.splitlines()
        assert max(map(len, lines)) <= 100
        assert "1,000 open shards" in described.stdout
        assert len(lines) < 40
        read = account.run("tail", "big", "--from", "TRIM_HORIZON", "--until", "now", "--raw")
        assert sorted(json.loads(line)["id"] for line in read.stdout.splitlines()) == list(range(2000))


def test_a_terminal_gets_a_progress_bar(account: Account, tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    path = ndjson(tmp_path / "a.ndjson", 2000)
    process = account.start("put", "orders", str(path), "--rate", "1000", stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    process.communicate(timeout=HANG)
    assert process.returncode == 0
    assert b"acknowledged" in shown
    assert b"ETA" in shown
