"""Retries with delays while their processes are killed at every step: no record lost, and with a sink none twice."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import pytest

sqlalchemy = pytest.importorskip("sqlalchemy")

from integration.effects.retry_process import DEAD, DELAYS, EFFECTS, POINTS, fails  # noqa: E402
from integration.effects.services import KEYS  # noqa: E402
from integration.endtoend.processes import ChildProcess  # noqa: E402
from integration.postgres import running_postgres, why_no_postgres  # noqa: E402
from kinesis_sdk.testing import start_server_process  # noqa: E402
from tests import HANG  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

RECORDS, ROUNDS, KEY_COUNT = 300, 6, 8
SETTLE = 4.0
"""Seconds after the last record in which one that was processed twice would show."""


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


class Run:
    """Two processes on one stream; each that dies is started again with the same worker id."""

    def __init__(self, kind: str, database: str, endpoint_url: str, folder: Path) -> None:
        self._kind, self._database, self._url, self._folder = kind, database, endpoint_url, folder
        self._kinesis = boto3.client("kinesis", endpoint_url=endpoint_url)
        self._engine = sqlalchemy.create_engine(database)
        self._kills = folder / "kills"
        self._kills.touch()
        self._started = 0
        self._processes: dict[str, ChildProcess] = {}
        for name in ("orders", *(f"orders.retry-{delay}" for delay in DELAYS)):
            self._kinesis.create_stream(StreamName=name, ShardCount=2)
        EFFECTS.metadata.create_all(self._engine)

    def kills(self) -> Counter[str]:
        return Counter(self._kills.read_text().splitlines())

    def rows(self, table: Any) -> list[int]:
        query = sqlalchemy.select(table.c.number).order_by(table.c.place)
        with self._engine.connect() as connection:
            return list(connection.execute(query).scalars())

    def _tend(self, *, kills: bool = True) -> None:
        for name in ("w1", "w2"):
            process = self._processes.get(name)
            if process is not None and process.status is None:
                continue
            if process is not None:
                assert process.status == -signal.SIGKILL, process.tail()
                process.destroy()
            self._started += 1
            settings = {
                "kind": self._kind,
                "stream": "orders",
                "database": self._database,
                "endpoint_url": self._url,
                "worker_id": name,
                "kills_itself": kills,
                "kills": str(self._kills),
                "seed": self._started,
            }
            child = f"{name}-{self._started}"
            self._processes[name] = ChildProcess(
                "integration.effects.retry_process", child, settings, self._folder, os.environ
            )

    def play(self) -> None:
        """Put the records in rounds, so that each round meets kills; then let everything end without them."""
        deadline = time.monotonic() + HANG
        each = RECORDS // ROUNDS
        for first in range(0, RECORDS, each):
            records = [
                {"PartitionKey": f"k{number % KEY_COUNT}", "Data": str(number).encode()}
                for number in range(first, first + each)
            ]
            assert self._kinesis.put_records(StreamName="orders", Records=records)["FailedRecordCount"] == 0
            self._tend()
            time.sleep(1)
        while set(self.kills()) < set(POINTS):
            assert time.monotonic() < deadline, self.kills()
            if self._is_done():  # only some of the points were hit: more records
                self._more()
            self._tend()
            time.sleep(0.5)
        for process in self._processes.values():
            process.destroy()
        self._processes.clear()
        while not self._is_done():
            assert time.monotonic() < deadline, "records are missing"
            self._tend(kills=False)
            time.sleep(0.5)
        time.sleep(SETTLE)
        for process in self._processes.values():
            process.destroy()

    put = RECORDS

    def _more(self) -> None:
        records = [
            {"PartitionKey": f"k{number % KEY_COUNT}", "Data": str(number).encode()}
            for number in range(self.put, self.put + 30)
        ]
        self._kinesis.put_records(StreamName="orders", Records=records)
        self.put += 30

    def _is_done(self) -> bool:
        done, dead = set(self.rows(EFFECTS)), set(self.rows(DEAD))
        return done | dead >= set(range(self.put))

    def close(self) -> None:
        for process in self._processes.values():
            process.destroy()
        self._engine.dispose()


def databases() -> Iterator[str]:
    yield "sqlite"
    if why_no_postgres() is None:
        yield "postgresql"


@pytest.mark.parametrize(
    ("kind", "database"),
    [
        ("stream", "sqlite"),
        *((kind, one) for one in databases() for kind in ("table", "order", "coroutines")),
    ],
)
def test_no_record_is_lost_at_any_step_and_with_a_sink_none_is_processed_twice(
    kind: str, database: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(start_server_process(own_session=True))
        url = (
            stack.enter_context(running_postgres())
            if database == "postgresql"
            else f"sqlite:///{tmp_path}/all.db"
        )
        run = Run(kind, url, server.endpoint_url, tmp_path)
        stack.callback(run.close)
        run.play()
        effects, dead, kills = run.rows(EFFECTS), run.rows(DEAD), run.kills()
    always = {number for number in range(run.put) if fails(number, 99)}
    lost = set(range(run.put)) - set(effects) - set(dead)
    twice = len(effects) + len(dead) - len(set(effects) | set(dead))
    told = ", ".join(f"{count} {point}" for point, count in sorted(kills.items()))
    print(f"{kind} {database}: {run.put} records, {len(lost)} lost, {twice} twice; killed {told}")
    assert not lost
    assert set(dead) == always
    assert set(kills) == set(POINTS)
    if kind == "stream":
        return
    assert not twice
    if kind != "table":
        for key in range(KEY_COUNT):
            numbers = [number for number in effects if number % KEY_COUNT == key]
            assert numbers == sorted(numbers), "each key in the order of its puts"
