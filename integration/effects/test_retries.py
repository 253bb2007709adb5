"""Retries with delays while their processes are killed at every step: no record lost, and with a sink none twice."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import pytest

sqlalchemy = pytest.importorskip("sqlalchemy")

from integration.effects.kills import Pair  # noqa: E402
from integration.effects.retry_process import DEAD, DELAYS, EFFECTS, POINTS, fails  # noqa: E402
from integration.effects.services import KEYS  # noqa: E402
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
    """Two processes on one stream, and what they have written."""

    put = RECORDS

    def __init__(self, kind: str, database: str, endpoint_url: str, folder: Path) -> None:
        self._kinesis = boto3.client("kinesis", endpoint_url=endpoint_url)
        self._engine = sqlalchemy.create_engine(database)
        for name in ("orders", *(f"orders.retry-{delay}" for delay in DELAYS)):
            self._kinesis.create_stream(StreamName=name, ShardCount=2)
        EFFECTS.metadata.create_all(self._engine)
        settings = {"kind": kind, "stream": "orders", "database": database, "endpoint_url": endpoint_url}
        self.pair = Pair("integration.effects.retry_process", settings, folder)

    def rows(self, table: Any) -> list[int]:
        query = sqlalchemy.select(table.c.number).order_by(table.c.place)
        with self._engine.connect() as connection:
            return list(connection.execute(query).scalars())

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
            self.pair.tend()
            time.sleep(1)
        while set(self.pair.kills()) < set(POINTS):
            assert time.monotonic() < deadline, self.pair.kills()
            if self._is_done():  # only some of the points were hit: more records
                self._more()
            self.pair.tend()
            time.sleep(0.5)
        self.pair.destroy()
        while not self._is_done():
            assert time.monotonic() < deadline, "records are missing"
            self.pair.tend(kills=False)
            time.sleep(0.5)
        time.sleep(SETTLE)
        self.pair.destroy()

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
        self.pair.destroy()
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
        effects, dead, kills = run.rows(EFFECTS), run.rows(DEAD), run.pair.kills()
    always = {number for number in range(run.put) if fails(number, 99)}
    lost = set(range(run.put)) - set(effects) - set(dead)
    twice = len(effects) + len(dead) - len(set(effects) | set(dead))
    told = ", ".join(f"{count} {point}" for point, count in sorted(kills.items()))
    late = overtaken(effects)
    print(
        f"{kind} {database}: {run.put} records, {len(lost)} lost, {twice} twice, {len(late)} overtaken; killed {told}"
    )
    assert not lost
    assert set(dead) == always
    assert set(kills) == set(POINTS)
    if kind == "stream":
        return
    assert not twice
    assert bool(late) == (kind == "table"), "only keep_order keeps the order of a key"


def overtaken(effects: Sequence[int]) -> list[int]:
    """Return the records that took effect after a later one of their key."""
    latest: dict[int, int] = {}
    found = []
    for number in effects:
        key = number % KEY_COUNT
        if number < latest.get(key, -1):
            found.append(number)
        latest[key] = max(number, latest.get(key, -1))
    return found
