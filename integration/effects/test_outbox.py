"""The outbox of a sink's transaction while its processes are killed at every step: each output once, for readers of this SDK."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import boto3
import pytest

sqlalchemy = pytest.importorskip("sqlalchemy")

from integration.effects.kills import Pair  # noqa: E402
from integration.effects.outbox_process import EFFECTS, POINTS  # noqa: E402
from integration.effects.services import KEYS  # noqa: E402
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
    """Two processes on one stream, and what they have written."""

    def __init__(self, database: str, endpoint_url: str, folder: Path) -> None:
        self._url = endpoint_url
        self._kinesis = boto3.client("kinesis", endpoint_url=endpoint_url)
        self._engine = sqlalchemy.create_engine(database)
        self.put = 0
        for name in ("orders", "bills"):
            self._kinesis.create_stream(StreamName=name, ShardCount=2)
        EFFECTS.metadata.create_all(self._engine)
        settings = {"stream": "orders", "output": "bills", "database": database, "endpoint_url": endpoint_url}
        self.pair = Pair("integration.effects.outbox_process", settings, folder)

    def effects(self) -> list[int]:
        with self._engine.connect() as connection:
            return list(connection.execute(sqlalchemy.select(EFFECTS.c.number)).scalars())

    def play(self) -> None:
        """Put records until kills have hit each step; then let everything end without them."""
        deadline = time.monotonic() + HANG
        while self.put < RECORDS or set(self.pair.kills()) < set(POINTS):
            assert time.monotonic() < deadline, self.pair.kills()
            count = RECORDS // ROUNDS if self.put < RECORDS else 10
            records = [
                {"PartitionKey": f"k{number % 8}", "Data": str(number).encode()}
                for number in range(self.put, self.put + count)
            ]
            self._kinesis.put_records(StreamName="orders", Records=records)
            self.put += len(records)
            self.pair.tend()
            time.sleep(1)
        self.pair.destroy()
        outbox = Outbox(self._engine, name="bills")
        while len(set(self.effects())) < self.put or outbox.waiting():
            assert time.monotonic() < deadline, "records are missing"
            self.pair.tend(kills=False)
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
        self.pair.destroy()
        self._engine.dispose()


@pytest.mark.skipif(why_no_postgres() is not None, reason=str(why_no_postgres()))
def test_publishers_take_turns_although_a_row_with_a_lower_number_is_committed_later() -> None:
    with running_postgres() as url:
        outbox, other = Outbox(url, name="bills"), Outbox(url, name="others")
        outbox.tables.ensure()
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
        effects, (stored, outputs), kills = run.effects(), run.outputs(), run.pair.kills()
    told = ", ".join(f"{count} {point}" for point, count in sorted(kills.items()))
    print(f"outbox {database}: {run.put} records, {stored - len(outputs)} copies; killed {told}")
    assert sorted(effects) == list(range(run.put))
    assert sorted(outputs) == list(range(run.put))
    assert stored > run.put, "the kills have made copies, which readers left out"
    assert set(kills) == set(POINTS)
