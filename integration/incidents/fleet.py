"""A live fleet: the fake AWS, `kinesis-sdk run` with two worker processes, and records that keep coming."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from integration.commands import CLI, KEYS
from kinesis_sdk.testing import start_server_process
from tests import HANG

APPLICATION = "billing"
STREAM = "orders"
SHARDS = 4
TARGET = "shardId-000000000002"
"""The shard that incidents affect."""
# The terminal's locale must not break a record that a view prints.
ENVIRONMENT = {**KEYS, "PYTHONIOENCODING": "utf-8"}
POISON = b"poison"
HANG_UP = b"hang"
ERROR = "cannot read the amount 'twelve'"
"""The handler's error for a poison record."""
RATE = 40
"""Records per second."""
LARGE = 100_000
"""Size in bytes of a record that makes its shard hot."""
LARGE_RATE = 0.96 * 2**20
"""Bytes per second of such records. A shard accepts a MiB."""

# Each process writes the numbers of its records to its own file. Until the file `mended` exists, a poison record fails and a
# hanging record hangs.
_HANDLER = f"""
import os, time
from pathlib import Path

FOLDER = Path(__file__).parent
OUT = open(FOLDER / f"{{os.getpid()}}.processed", "ab", buffering=0)

def handle(batch):
    for record in batch.records:
        what, _, number = record.data.partition(b" ")[0:3]
        if not (FOLDER / "mended").exists():
            if what == {POISON!r}:
                raise ValueError({ERROR!r})
            while what == {HANG_UP!r} and not (FOLDER / "mended").exists():
                time.sleep(0.1)
        OUT.write(number.partition(b" ")[0] + b"\\n")
"""


class Child:
    """A process that prints lines of JSON, and a log.

    Args:
        arguments: Its command.
        log: File for its standard error.
        folder: Its working directory.

    Attributes:
        lines: The JSON that it has printed so far.
    """

    def __init__(self, arguments: Sequence[str], log: Path, folder: Path) -> None:
        self.lines: list[dict[str, Any]] = []
        self._log = log
        self._changed = threading.Condition()
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                arguments,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                text=True,
                encoding="utf-8",
                # Ctrl-C in the terminal must reach only the run, which then ends everything in order.
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name=f"reads {log.stem}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(json.loads(line))
                # A view that stays open prints a picture every second or two; only the newest matters.
                del self.lines[:-50]
                self._changed.notify_all()

    def wait_for(self, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first line that meets a condition."""
        deadline = time.monotonic() + HANG
        with self._changed:
            while True:
                for line in self.lines:
                    if found(line):
                        return line
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{self._log.stem} did not begin:\n{self.log()[-3000:]}")
                self._changed.wait(0.5)

    def newest(self) -> dict[str, Any] | None:
        """Return the newest line; None before the first one."""
        with self._changed:
            return self.lines[-1] if self.lines else None

    def log(self) -> str:
        """Return its standard error so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """End it, whatever it is doing."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self._reader.join(HANG)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Load:
    """Puts numbered records until it is stopped; puts rejected records again."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._number = 0
        self._acknowledged: set[int] = set()
        self._lock = threading.Lock()
        self._running = threading.Event()
        self._large = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def start(self) -> None:
        """Start, or resume."""
        self._running.set()
        if not self._thread.is_alive():
            self._thread.start()

    def pause(self) -> None:
        """Put nothing until `start`."""
        self._running.clear()

    def stop(self) -> None:
        """Stop for good."""
        self._over.set()
        self._running.set()
        if self._thread.is_alive():
            self._thread.join(HANG)

    def acknowledged(self) -> set[int]:
        """Return the numbers of all acknowledged records."""
        with self._lock:
            return set(self._acknowledged)

    def put(self, what: bytes = b"record", *, size: int = 0, shard: int | None = None) -> int:
        """Put one record, and return its number.

        Args:
            what: First word of its data, which tells the handler what to do.
            size: Bytes of its data.
            shard: Number of its shard among the first shards of the stream.
        """
        self._number += 1
        number = self._number
        more = {} if shard is None else {"ExplicitHashKey": str((2 * shard + 1) * 2**128 // (2 * SHARDS))}
        data = b"%s %d " % (what, number)
        self._client.put_record(
            StreamName=STREAM, Data=data.ljust(size, b"."), PartitionKey=f"key-{number}", **more
        )
        with self._lock:
            self._acknowledged.add(number)
        return number

    def heat(self) -> None:
        """From now on, put almost as much into one shard as it accepts."""
        self._large.set()

    def _run(self) -> None:
        due = time.monotonic()
        while self._running.wait():
            is_large = self._large.is_set()
            # Time missed because a call was slow or failed is not made up for, because that would be a burst.
            due = max(due + (LARGE / LARGE_RATE if is_large else 1 / RATE), time.monotonic() - 0.5)
            if self._over.wait(max(0.0, due - time.monotonic())):
                return
            try:
                self.put(size=LARGE if is_large else 0, shard=2 if is_large else None)
            except Exception:  # noqa: BLE001 - the incident is that AWS does not work; the next record has another number
                self._over.wait(0.5)


class Fleet:
    """The fleet and its control.

    Attributes:
        endpoint_url: The fake.
        folder: For the handler and for all logs.
        load: Puts records.
        workers: `kinesis-sdk run`.
        health_url: Its health endpoint.
        metrics_url: Its metrics for Prometheus.

    Args:
        server: The fake.
        folder: See above.
        settings: TOML with the workers' `ConsumerConfig`.
    """

    def __init__(self, server: Any, folder: Path, settings: str) -> None:
        import boto3
        from botocore.config import Config

        self.endpoint_url: str = server.endpoint_url
        self.folder = folder
        self._server = server
        config = Config(retries={"total_max_attempts": 1}, read_timeout=5, connect_timeout=5)
        self._make = lambda service: boto3.client(
            service,
            endpoint_url=self.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=config,
        )
        self.kinesis = self._make("kinesis")
        self.dynamodb = self._make("dynamodb")
        self.load = Load(self.kinesis)
        (folder / "handler.py").write_text(_HANDLER)
        (folder / "fleet.toml").write_text(settings)
        self.workers = self._run()
        self.health_url = str(self.workers.wait_for(lambda line: line["event"] == "health")["url"])
        self.metrics_url = str(self.workers.wait_for(lambda line: line["event"] == "metrics")["url"])

    def _run(self) -> Child:
        command = (*CLI, "run", "handler:handle", "--stream", STREAM, "--app", APPLICATION)
        options = ("--processes", "2", "--health-port", "0", "--metrics-port", "0", "--config", "fleet.toml")
        where = ("--initial-position", "TRIM_HORIZON", "--endpoint-url", self.endpoint_url, "--json")
        return Child((*command, *options, *where), self.folder / "run.log", self.folder)

    def wait_until_owned(self) -> None:
        """Wait until both processes own shards."""
        self._wait(lambda: len(self.owners() - {None}) == 2 and None not in self.owners(), "the start")

    def owners(self) -> set[str | None]:
        """Return the owners of the leases."""
        return {item.get("leaseOwner", {}).get("S") for item in self.rows().values()}

    def rows(self) -> dict[str, Mapping[str, Any]]:
        """Return the rows of the lease table, by key."""
        try:
            items = self.dynamodb.scan(TableName=APPLICATION, ConsistentRead=True)["Items"]
        except self.dynamodb.exceptions.ResourceNotFoundException:
            return {}
        return {item["leaseKey"]["S"]: item for item in items}

    def owner_process(self, shard: str) -> int:
        """Return the id of the process that owns a shard."""
        owner = self.rows()[shard]["leaseOwner"]["S"]
        number = int(owner.rpartition("-")[2])
        return {started["process"]: int(started["pid"]) for started in self._started()}[number]

    def _started(self) -> Iterator[dict[str, Any]]:
        return (line for line in list(self.workers.lines) if line["event"] == "process-started")

    def fault(self, **fault: Any) -> None:
        """Switch a fault of the fake on."""
        self._server.admin("faults", fault)

    def clear_faults(self) -> None:
        """Switch all faults off."""
        self._server.admin("faults", method="DELETE")

    def logs(self) -> str:
        """Return the output of the workers and of the incident's other commands."""
        return self.workers.log() + "".join(path.read_text() for path in self.folder.glob("put.log"))

    def start_exporter(self) -> tuple[Child, str]:
        """Start `kinesis-sdk exporter`; return it with the address of its metrics."""
        arguments = ("exporter", APPLICATION, "--port", "0", "--endpoint-url", self.endpoint_url, "--json")
        exporter = Child((*CLI, *arguments), self.folder / "exporter.log", self.folder)
        try:
            return exporter, str(exporter.wait_for(lambda line: "url" in line)["url"])
        except BaseException:
            exporter.end()
            raise

    def set_date(self, offset: float) -> None:
        """Set the seconds by which the date of AWS's responses is ahead of the clock."""
        self._server.admin("date", {"offset": offset})

    def freeze_aws(self) -> None:
        """Stop AWS from responding."""
        os.kill(self._server.pid, signal.SIGSTOP)

    def thaw_aws(self) -> None:
        """Let AWS respond again."""
        os.kill(self._server.pid, signal.SIGCONT)

    def age_next(self, seconds: float) -> None:
        """Make the next record of `TARGET` look as if it had arrived earlier, so that its lag shows at once."""
        self.fault(kind="early_arrival", operation="PutRecord", shard_id=TARGET, seconds=seconds, count=1)

    def mend(self) -> None:
        """Make the handler succeed."""
        (self.folder / "mended").touch()

    def processed(self) -> set[int]:
        """Return the numbers of the records that were processed."""
        found: set[int] = set()
        for path in self.folder.glob("*.processed"):
            found.update(int(line) for line in path.read_bytes().split(b"\n")[:-1] if line)
        return found

    def settle(self) -> set[int]:
        """Stop the load, wait, and return the acknowledged records that remain unprocessed."""
        self.load.stop()
        wanted = self.load.acknowledged()
        with contextlib.suppress(TimeoutError):
            self._wait(lambda: wanted <= self.processed(), "all records", 60.0)
        return wanted - self.processed()

    def _wait(self, condition: Callable[[], bool], what: str, seconds: float = HANG) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited too long for {what}:\n{self.workers.log()[-3000:]}")
            time.sleep(0.2)


@contextlib.contextmanager
def start_fleet(folder: Path, settings: str = "") -> Iterator[Fleet]:
    """Start a fleet, wait until it works, and end it after the with statement. The arguments are `Fleet`'s."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, ENVIRONMENT))
        server = stack.enter_context(
            start_server_process("--create-stream", f"{STREAM}:{SHARDS}", own_session=True)
        )
        fleet = Fleet(server, folder, settings)
        stack.callback(fleet.workers.end)
        stack.callback(fleet.load.stop)
        fleet.wait_until_owned()
        fleet.load.start()
        yield fleet
