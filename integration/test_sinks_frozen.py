"""Real workers on SQLite and PostgreSQL: one is stopped by SIGSTOP inside its handler until another one has taken its shards over."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from integration.postgres import postgres
from kinesis_sdk.consumer.sinks.sink import SinkKey, SinkRow
from kinesis_sdk.consumer.sinks.sql import IDLE_TIMEOUT, SqlSink
from kinesis_sdk.testing import ServerProcess, start_server_process
from tests import HANG

sqlalchemy = pytest.importorskip("sqlalchemy")

__all__ = ["postgres"]

SHARDS, RECORDS = 1, 300
"""One shard: SIGSTOP stops all threads, and one that is inside a transaction of another shard would keep SQLite locked."""

NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs SIGSTOP and /proc")

SCRIPT = textwrap.dedent(
    """
    import signal, sys, threading
    import sqlalchemy
    from kinesis_sdk.consumer import AsyncSqlSink, ConsumerConfig, LeaseConfig, SqlSink, Worker

    name, endpoint, url, place, mode = sys.argv[1:]
    plain = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    insert = sqlalchemy.text("INSERT INTO effects (worker, record_id, data) VALUES (:worker, :record_id, :data)")
    # All batches change one row, so a transaction that stays open holds up those of all other workers.
    add = sqlalchemy.text("UPDATE total SET count = count + :more")
    seen = 0
    was_frozen = False

    def freeze(where, after=40):
        global was_frozen
        if name == "frozen" and where == place and seen >= after and not was_frozen:
            was_frozen = True
            # To this thread: the kernel may give a signal of the process to another one, and this one would go on to its commit.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def rows(batch):
        return [{"worker": name, "record_id": r.id, "data": r.data.decode()} for r in batch.records]

    def handle(batch):
        global seen
        freeze("begin")
        if mode == "plain":
            with plain.connect() as connection:
                connection.execute(insert, rows(batch))
        else:
            batch.transaction.execute(add, {"more": len(batch.records)})
            if place == "pipeline" and name == "frozen" and seen >= 40:
                # As executemany() does: it sends many statements, and the server waits for the next one, but is not idle.
                raw = batch.transaction.connection.dbapi_connection
                with raw.pipeline():
                    raw.execute("SELECT 1")
                    raw.pgconn.send_flush_request()
                    raw.pgconn.flush()
                    freeze("pipeline")
            batch.transaction.execute(insert, rows(batch))
        seen += len(batch.records)
        freeze("end")

    async def handle_async(batch):
        global seen
        freeze("begin")
        await batch.transaction.execute(add, {"more": len(batch.records)})
        await batch.transaction.execute(insert, rows(batch))
        seen += len(batch.records)
        freeze("end")

    sink = AsyncSqlSink(url) if mode == "async" else SqlSink(url)
    inner = sink._inner if mode == "async" else sink
    begin, change = inner.begin, inner.change

    def freezing_begin(key, seen):
        freeze("before")
        return begin(key, seen)

    def freezing_change(connection, key, seen, row):
        done = change(connection, key, seen, row)
        if row.position != seen.position:
            freeze("commit")
        elif row.fence != seen.fence:
            freeze("claim", 0)
        return done

    inner.begin, inner.change = freezing_begin, freezing_change

    leases = LeaseConfig(failover_time=2.0, balance_by="count")
    config = ConsumerConfig(initial_position="TRIM_HORIZON", leases=leases, checkpoint_interval=3600)
    options = {} if mode == "plain" else {"sink": sink}
    handler = handle_async if mode == "async" else handle
    Worker(
        "orders", application_name="app", handler=handler, config=config, endpoint_url=endpoint, worker_id=name, **options
    ).run()
    """
)


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with start_server_process() as process:
        boto3.client("kinesis", endpoint_url=process.endpoint_url).create_stream(
            StreamName="orders", ShardCount=SHARDS
        )
        yield process


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: Any, tmp_path: Path) -> str:
    url: str = (
        request.getfixturevalue("postgres")
        if request.param == "postgresql"
        else f"sqlite:///{tmp_path}/effects.db"
    )
    return url


class Account:
    def __init__(self, endpoint: str, url: str, folder: Path) -> None:
        self.endpoint, self.url, self.folder = endpoint, url, folder
        self.kinesis = boto3.client("kinesis", endpoint_url=endpoint)
        self.engine = sqlalchemy.create_engine(url)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.sent: list[str] = []
        tables = sqlalchemy.MetaData()
        tables.reflect(self.engine)
        tables.drop_all(self.engine)
        with self.engine.begin() as connection:
            for statement in (
                "CREATE TABLE effects (worker TEXT, record_id TEXT, data TEXT)",
                "CREATE TABLE total (count INTEGER)",
                "INSERT INTO total VALUES (0)",
            ):
                connection.execute(sqlalchemy.text(statement))

    def put(self, count: int) -> None:
        data = [str(len(self.sent) + number) for number in range(count)]
        for start in range(0, count, 10):
            records = [{"Data": text.encode(), "PartitionKey": text} for text in data[start : start + 10]]
            self.kinesis.put_records(StreamName="orders", Records=records)
        self.sent += data

    def add(self, name: str, place: str = "", *, mode: str = "sink") -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = self.processes[name] = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, name, self.endpoint, self.url, place, mode], stderr=log
            )
        return process

    def effects(self) -> list[tuple[str, str]]:
        with self.engine.connect() as connection:
            return [
                (row.worker, row.data) for row in connection.execute(sqlalchemy.text("SELECT * FROM effects"))
            ]

    def total(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(sqlalchemy.text("SELECT count FROM total")).scalar_one())

    def has_all(self) -> bool:
        return {data for _, data in self.effects()} >= set(self.sent)

    def wait(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG
        while not what():
            assert time.monotonic() < deadline, {
                path.name: path.read_text() for path in self.folder.glob("*.log")
            }
            time.sleep(0.1)

    def is_stopped(self, name: str) -> bool:
        text = Path(f"/proc/{self.processes[name].pid}/stat").read_text()
        return text.rpartition(")")[2].split()[0] == "T"

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        self.engine.dispose()


@pytest.fixture
def account(server: ServerProcess, url: str, tmp_path: Path) -> Iterator[Account]:
    account = Account(server.endpoint_url, url, tmp_path)
    yield account
    account.close()


def play(account: Account, place: str, *, mode: str = "sink", holds_up: bool = False) -> None:
    """Freeze one worker, let another one process everything while the first one stands still, then let that go on.

    Args:
        account: Stream, database and workers.
        place: Where the worker freezes.
        mode: Kind of handler.
        holds_up: Whether the other worker cannot process anything before the first one goes on.
    """
    if place == "claim":  # of a row that an earlier worker has created
        sink = SqlSink(account.url)
        sink.ensure_ready()
        assert sink.write(SinkKey("app", "orders", "shardId-000000000000"), None, SinkRow())
        sink.close()
    account.put(RECORDS // 2)
    frozen = account.add("frozen", place, mode=mode)
    account.wait(
        lambda: {data for _, data in account.effects()} == set(account.sent) or account.is_stopped("frozen")
    )
    while not account.is_stopped("frozen"):
        account.put(20)
        time.sleep(0.5)
    account.add("successor", mode=mode)
    account.put(RECORDS - len(account.sent) if len(account.sent) < RECORDS else 20)
    if holds_up:
        time.sleep(5)
        assert not account.has_all()
    else:
        begun = time.monotonic()
        account.wait(account.has_all)
        # The failover time is 2 s; what else it takes is the start of a process on a machine that may be busy.
        assert time.monotonic() - begun < IDLE_TIMEOUT, (
            "it did not have to wait for the limit of idle transactions"
        )
        assert account.is_stopped("frozen")
        if mode != "plain":
            assert account.total() == len(account.sent)
    frozen.send_signal(signal.SIGCONT)
    account.put(20)
    account.wait(account.has_all)
    time.sleep(3)  # whatever happens twice happens now
    assert frozen.poll() is None, "the worker lost its lease, and goes on"


def check_effects(account: Account) -> None:
    counts = Counter(data for _, data in account.effects())
    assert set(counts) == set(account.sent), "nothing is lost"
    assert [data for data, count in counts.items() if count > 1] == []
    assert account.total() == len(account.sent)
    assert "successor" in {worker for worker, _ in account.effects()}


@NEEDS_PROC
@pytest.mark.parametrize("place", ["before", "begin", "end", "commit", "claim"])
def test_a_worker_that_is_frozen_through_a_take_over_repeats_nothing(account: Account, place: str) -> None:
    """A transaction of SQLite has the only lock for writers from its begin, and nothing can take it from a frozen process."""
    holds_up = account.url.startswith("sqlite") and place != "before"
    play(account, place, holds_up=holds_up)
    if not holds_up:
        check_effects(account)
        return
    counts = Counter(data for _, data in account.effects())
    assert set(counts) == set(account.sent)
    assert max(counts.values()) == 1
    assert account.total() == len(account.sent)


@NEEDS_PROC
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("place", "mode"), [("pipeline", "sink"), ("begin", "async"), ("end", "async"), ("commit", "async")]
)
def test_other_places_and_handlers_in_postgresql(account: Account, place: str, mode: str) -> None:
    play(account, place, mode=mode)
    check_effects(account)


@NEEDS_PROC
def test_the_same_without_a_sink_repeats_effects(account: Account) -> None:
    """The test can fail: without a sink, the successor repeats what the frozen worker did after its last checkpoint."""
    play(account, "end", mode="plain")
    counts = Counter(data for _, data in account.effects())
    assert set(counts) == set(account.sent)
    assert sum(counts.values()) > len(counts)
