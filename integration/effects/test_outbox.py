"""The outbox of a sink's transaction while its processes are killed at every step: each output once, for readers of this SDK."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import boto3
import pytest

sqlalchemy = pytest.importorskip("sqlalchemy")

from integration.effects.outbox_process import EFFECTS, POINTS  # noqa: E402
from integration.effects.services import KEYS  # noqa: E402
from integration.endtoend.processes import ChildProcess  # noqa: E402
from integration.postgres import running_postgres, why_no_postgres  # noqa: E402
from kinesis_sdk.consumer import ConsumerConfig, Worker  # noqa: E402
from kinesis_sdk.producer import Put  # noqa: E402
from kinesis_sdk.relay import Outbox  # noqa: E402
from kinesis_sdk.testing import start_server_process  # noqa: E402
from tests import HANG  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

RECORDS, ROUNDS = 300, 6


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


class Run:
    """Two processes on one stream; each that dies is started again with the same worker id."""

    def __init__(self, database: str, endpoint_url: str, folder: Path) -> None:
        self._database, self._url, self._folder = database, endpoint_url, folder
        self._kinesis = boto3.client("kinesis", endpoint_url=endpoint_url)
        self._engine = sqlalchemy.create_engine(database)
        self._kills = folder / "kills"
        self._kills.touch()
        self._started = 0
        self.put = 0
        self._processes: dict[str, ChildProcess] = {}
        for name in ("orders", "bills"):
            self._kinesis.create_stream(StreamName=name, ShardCount=2)
        EFFECTS.metadata.create_all(self._engine)

    def kills(self) -> Counter[str]:
        return Counter(self._kills.read_text().splitlines())

    def effects(self) -> list[int]:
        with self._engine.connect() as connection:
            return list(connection.execute(sqlalchemy.select(EFFECTS.c.number)).scalars())

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
                "stream": "orders",
                "output": "bills",
                "database": self._database,
                "endpoint_url": self._url,
                "worker_id": name,
                "kills_itself": kills,
                "kills": str(self._kills),
                "seed": self._started,
            }
            child = f"{name}-{self._started}"
            self._processes[name] = ChildProcess(
                "integration.effects.outbox_process", child, settings, self._folder, os.environ
            )

    def play(self) -> None:
        """Put records until kills have hit each step; then let everything end without them."""
        deadline = time.monotonic() + HANG
        while self.put < RECORDS or set(self.kills()) < set(POINTS):
            assert time.monotonic() < deadline, self.kills()
            count = RECORDS // ROUNDS if self.put < RECORDS else 10
            records = [
                {"PartitionKey": f"k{number % 8}", "Data": str(number).encode()}
                for number in range(self.put, self.put + count)
            ]
            self._kinesis.put_records(StreamName="orders", Records=records)
            self.put += len(records)
            self._tend()
            time.sleep(1)
        for process in self._processes.values():
            process.destroy()
        self._processes.clear()
        outbox = Outbox(self._engine, name="bills")
        while len(set(self.effects())) < self.put or outbox.waiting():
            assert time.monotonic() < deadline, "records are missing"
            self._tend(kills=False)
            time.sleep(0.5)
        self.close()

    def outputs(self) -> tuple[int, list[int]]:
        """Return the number of stored outputs, and what a reader of this SDK gets."""
        found: list[int] = []
        config = ConsumerConfig(initial_position="TRIM_HORIZON")
        for recognizes in (False, True):
            got: list[int] = []
            Worker(
                "bills",
                application_name=f"reader-{recognizes}",
                handler=lambda batch, got=got: got.extend(int(record.data) for record in batch.records),
                config=config.with_fields(recognize_repetitions=recognizes),
                endpoint_url=self._url,
                region_name="us-east-1",
                until="now",
            ).run()
            if recognizes:
                found = got
            else:
                stored = len(got)
        return stored, found

    def close(self) -> None:
        for process in self._processes.values():
            process.destroy()
        self._processes.clear()
        self._engine.dispose()


@pytest.mark.skipif(why_no_postgres() is not None, reason=str(why_no_postgres()))
def test_publishers_take_turns_although_a_row_with_a_lower_number_is_committed_later() -> None:
    with running_postgres() as url:
        outbox, other = Outbox(url, name="bills"), Outbox(url, name="others")
        outbox.ensure_ready()
        put = Put("bills", "k", b"x")
        with (
            outbox.engine.connect() as late,
            outbox.engine.connect() as first,
            outbox.engine.connect() as second,
        ):
            late.execute(outbox._rows.insert(), [outbox._values(put, "late")])
            with outbox.engine.begin() as early:
                early.execute(outbox._rows.insert(), [outbox._values(put, "early")])
            assert [place for place, *_ in outbox.next_rows(first)] == [2]
            late.execute(other._rows.insert(), [other._values(put, "late")])
            late.commit()
            assert outbox.next_rows(second) == []
            assert [place for place, *_ in other.next_rows(second)] == [3]
            outbox.finish(first, [2])
            first.commit()
            assert [place for place, *_ in outbox.next_rows(second)] == [1]
        outbox.close()
        other.close()


@pytest.mark.parametrize("database", ["sqlite", *(["postgresql"] if why_no_postgres() is None else [])])
def test_each_output_of_a_transaction_is_delivered_once_at_whatever_step_a_process_dies(
    database: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(start_server_process(own_session=True))
        url = (
            stack.enter_context(running_postgres())
            if database == "postgresql"
            else f"sqlite:///{tmp_path}/all.db"
        )
        run = Run(url, server.endpoint_url, tmp_path)
        stack.callback(run.close)
        run.play()
        effects, (stored, outputs), kills = run.effects(), run.outputs(), run.kills()
    told = ", ".join(f"{count} {point}" for point, count in sorted(kills.items()))
    print(f"outbox {database}: {run.put} records, {stored - len(outputs)} copies; killed {told}")
    assert sorted(effects) == list(range(run.put))
    assert sorted(outputs) == list(range(run.put))
    assert stored > run.put, "the kills have made copies, which readers left out"
    assert set(kills) == set(POINTS)
