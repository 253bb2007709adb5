"""`kinesis-sdk run` in processes of its own, in a folder of the test, against a fake account."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kinesis_sdk.common.errors import ResourceNotFoundError
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from tests import HANG

HANDLER = """
import os, sys, time

def note(what, number):
    line = f"{what} {os.getpid()} {number}\\n"
    descriptor = os.open("out.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)

note("import", 0)

def handle(batch):
    for record in batch.records:
        note("record", record.data.decode())

def dies(batch):
    os.kill(os.getpid(), 9)

def hangs(batch):
    note("hangs", 0)
    time.sleep(3600)
"""


class Account:
    """The account, with the stream ``orders``."""

    def __init__(self, endpoint_url: str, aws: FakeAws) -> None:
        self.endpoint_url = endpoint_url
        self.aws = aws
        self.kinesis = aws.client("kinesis")
        self.count = 0

    def put(self, number: int, *, keys: int | None = None) -> None:
        """Put so many records, each with a key of its own, or with ``keys`` of them in turn."""
        records = []
        for _ in range(number):
            key = self.count if keys is None else self.count % keys
            records.append({"Data": b"%d" % self.count, "PartitionKey": f"k{key}"})
            self.count += 1
        self.kinesis.put_records(StreamName="orders", Records=records)

    def leases(self) -> Sequence[Lease]:
        try:
            return DynamoDBLeaseStore(self.aws.client("dynamodb"), "app").list()
        except ResourceNotFoundError:
            return []  # no worker has created the table yet


class Command:
    """The command in a folder of its own, with its output."""

    def __init__(
        self,
        account: Account,
        folder: Path,
        *options: str,
        handler: str = "billing:handle",
        source: str = HANDLER,
        start: Sequence[str] = ("-m", "kinesis_sdk.cli"),
    ) -> None:
        self.folder = folder
        (folder / "billing.py").write_text(textwrap.dedent(source))
        self.process = subprocess.Popen(
            [
                sys.executable,
                *start,
                "run",
                handler,
                "--stream",
                "orders",
                "--app",
                "app",
                "--endpoint-url",
                account.endpoint_url,
                "--initial-position",
                "TRIM_HORIZON",
                *options,
            ],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.errors: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        self.errors.extend(self.process.stderr or ())

    def log(self) -> str:
        return "".join(self.errors)

    def notes(self, what: str) -> list[list[str]]:
        path = self.folder / "out.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split()[1:] for line in lines if line.startswith(what)]

    def processed(self) -> set[int]:
        return {int(number) for _, number in self.notes("record")}

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG
        while not condition():
            assert time.monotonic() < deadline, self.log()
            assert self.process.poll() is None or condition(), self.log()
            time.sleep(0.05)

    def end(self) -> int:
        code = self.process.wait(HANG)
        self.reader.join(HANG)
        return code


@pytest.fixture
def account() -> Iterator[Account]:
    aws = FakeAws()
    with FakeAwsServer(aws) as server:
        aws.client("kinesis").create_stream(StreamName="orders", ShardCount=4)
        yield Account(server.endpoint_url, aws)


@pytest.fixture
def command(account: Account, tmp_path: Path) -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def start(*options: str, **more: Any) -> Command:
        made = Command(account, tmp_path, *options, **more)
        started.append(made)
        return made

    yield start
    for made in started:
        if made.process.poll() is None:
            made.process.send_signal(signal.SIGTERM)
            try:
                made.process.wait(HANG)
            except subprocess.TimeoutExpired:
                made.process.kill()
                made.process.wait()
        made.reader.join(HANG)
        assert made.process.stderr is not None
        made.process.stderr.close()
