"""Leases in real databases: the contract on PostgreSQL, and processes that are killed and frozen while the server restarts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from integration.postgres import PostgresServer, postgres, postgres_server
from integration.waiting import eventually
from kinesis_sdk.common.errors import (
    ConfigError,
    LeaseRowRejectedError,
    LeaseStoreError,
    TransientLeaseStoreError,
)
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import Conflict, Lease, SqlLeaseStore
from kinesis_sdk.testing import start_server_process
from kinesis_sdk.testing.contracts.lease_stores import KEY, LEASE_STORE_CHECKS, new_lease
from tests import HANG
from tests.consumer.fleet.runs import chaos

sqlalchemy = pytest.importorskip("sqlalchemy")

__all__ = ["postgres", "postgres_server"]

THREADS = 16
SEEDS = int(os.environ.get("KINESIS_SDK_POSTGRES_FLEETS", "8"))
"""Random fleets with their leases in PostgreSQL. A failure names its seed."""
CLOCK = re.compile(
    r"\bnow\b|current_(?!setting)|clock|localtime|timeofday|transaction_timestamp|interval", re.IGNORECASE
)


def empty(url: str) -> None:
    engine = sqlalchemy.create_engine(url)
    tables = sqlalchemy.MetaData()
    tables.reflect(engine)
    tables.drop_all(engine)
    engine.dispose()


@pytest.fixture
def make(postgres: str) -> Iterator[Callable[..., SqlLeaseStore]]:
    """A function that makes stores as other processes have them: each with its own connections."""
    empty(postgres)
    made = []

    def make(**more: Any) -> SqlLeaseStore:
        store = SqlLeaseStore(postgres, "app", **more)
        made.append(store)
        return store

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(make: Callable[..., SqlLeaseStore]) -> SqlLeaseStore:
    store = make()
    store.ensure_ready()
    return store


def in_threads(calls: list[Callable[[], Any]]) -> list[Any]:
    """Make calls at the same time, and return what they returned."""
    barrier = threading.Barrier(len(calls))
    outcomes: list[Any] = [None] * len(calls)

    def run(number: int) -> None:
        barrier.wait(HANG)
        outcomes[number] = calls[number]()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
    return outcomes


# PostgreSQL


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
@pytest.mark.parametrize("check", LEASE_STORE_CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Any, postgres: str, isolation: str) -> None:
    """Also where the database's default isolation ends statements that cannot be serialised."""
    empty(postgres)
    level = isolation.replace(" ", "\\ ")
    engine = sqlalchemy.create_engine(
        postgres,
        pool_size=20,
        connect_args={"options": f"-c default_transaction_isolation={level}"},
    )
    statements = []
    sqlalchemy.event.listen(
        engine, "before_cursor_execute", lambda c, cursor, statement, *rest: statements.append(statement)
    )
    store = SqlLeaseStore(engine, "app")
    store.ensure_ready()
    check(store)
    engine.dispose()
    assert any("kinesis_sdk_leases" in statement for statement in statements)
    assert [text for text in statements if CLOCK.search(text)] == [], "no statement reads the server's clock"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_fleet_has_the_answers_of_the_store_in_memory(postgres: str, seed: int) -> None:
    """Crashes, freezes, lost answers, reshards and operators in virtual time; each answer and row is compared."""
    empty(postgres)
    engine = sqlalchemy.create_engine(postgres)
    try:
        chaos(seed, engine=engine)
    finally:
        engine.dispose()


def test_many_workers_race(make: Callable[..., SqlLeaseStore]) -> None:
    """They start on an empty database, create and take one lease, and mark it: one succeeds, and no mark is lost."""
    fleet = [make() for _ in range(THREADS)]

    def start(store: SqlLeaseStore) -> bool:
        store.ensure_ready()
        return store.create_if_absent(new_lease())

    outcomes = in_threads([lambda s=store: start(s) for store in fleet])  # type: ignore[misc]
    assert sorted(map(str, outcomes)) == ["False"] * (THREADS - 1) + ["True"]
    for number in range(1, 11):
        seen = fleet[0].get(KEY)
        assert seen is not None
        outcomes = in_threads(
            [lambda s=store, seen=seen, n=f"w{n}": s.take(seen, n) for n, store in enumerate(fleet)]  # type: ignore[misc]
        )
        (winner,) = [row for row in outcomes if isinstance(row, Lease)]
        assert winner.counter == number
        assert [row for row in outcomes if row != winner] == [Conflict(winner)] * (THREADS - 1)
    outcomes = in_threads(
        [lambda s=store, n=n: s.set_drain(KEY, f"w{n:02}", True) for n, store in enumerate(fleet)]  # type: ignore[misc]
    )
    assert outcomes == [True] * THREADS
    row = fleet[0].get(KEY)
    assert row is not None
    assert row.draining == tuple(f"w{n:02}" for n in range(THREADS))


def test_a_row_that_a_user_locks_delays_one_call_and_passes(
    store: SqlLeaseStore, make: Callable[..., SqlLeaseStore], postgres: str
) -> None:
    store.create_if_absent(new_lease())
    hasty = make(timeout=3.0)
    engine = sqlalchemy.create_engine(postgres)
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("SELECT * FROM kinesis_sdk_leases FOR UPDATE"))
        with pytest.raises(TransientLeaseStoreError, match="statement timeout"):
            hasty.take(new_lease(), "a")
        assert hasty.get(KEY) == new_lease(), "readers do not wait"
    engine.dispose()
    assert isinstance(hasty.take(new_lease(), "a"), Lease)


def test_connections_that_the_server_ends(store: SqlLeaseStore, postgres: str) -> None:
    store.create_if_absent(new_lease())
    engine = sqlalchemy.create_engine(postgres)
    with engine.begin() as connection:
        connection.execute(
            sqlalchemy.text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "AND backend_type = 'client backend'"
            )
        )
    engine.dispose()
    with pytest.raises(TransientLeaseStoreError):
        store.get(KEY)
    assert store.get(KEY) == new_lease()


def test_what_does_not_pass(store: SqlLeaseStore, postgres: str) -> None:
    with pytest.raises(LeaseRowRejectedError, match="too long"):
        store.create_if_absent(new_lease("x" * 300))
    assert store.create_if_absent(new_lease())
    row = store.get(KEY)
    assert row is not None
    engine = sqlalchemy.create_engine(postgres)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("DROP TABLE kinesis_sdk_leases"))
    engine.dispose()
    with pytest.raises(LeaseStoreError, match="does not exist") as failure:
        store.checkpoint(row, ExtendedSequenceNumber("5"))
    assert not failure.value.retryable


def test_a_connection_that_is_refused_ends_the_start(postgres: str) -> None:
    """A wrong name or password is an error of configuration, and a server that is not there may be on its way."""
    pauses: list[float] = []
    stranger = SqlLeaseStore(postgres.rpartition("/")[0] + "/nothing", "app", sleep=pauses.append)
    with pytest.raises(ConfigError, match=r"^lease_store=.*nothing.*does not exist"):
        stranger.ensure_ready()
    with pytest.raises(TransientLeaseStoreError, match=r"nothing.*does not exist"):
        stranger.get(KEY)  # no worker that runs stops for it
    assert pauses == []
    stranger.close()
    away = SqlLeaseStore("postgresql+psycopg://test@127.0.0.1:1/postgres", "app", sleep=pauses.append)
    with pytest.raises(TransientLeaseStoreError):
        away.ensure_ready()
    assert len(pauses) == 3
    away.close()


def test_a_database_that_accepts_no_connection_for_a_moment_does_not_end_the_start(postgres: str) -> None:
    """It is being restored or renamed. The server's words begin as those about a database that does not exist."""
    engine = sqlalchemy.create_engine(postgres, isolation_level="AUTOCOMMIT")

    def change(statement: str) -> None:
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text(statement))

    change("CREATE DATABASE closed ALLOW_CONNECTIONS false")
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            change("ALTER DATABASE closed ALLOW_CONNECTIONS true")

    store = SqlLeaseStore(postgres.rpartition("/")[0] + "/closed", "app", sleep=sleep)
    try:
        store.ensure_ready()
        assert len(pauses) == 2
        assert store.create_if_absent(new_lease())
    finally:
        store.close()
        change("DROP DATABASE closed WITH (FORCE)")
        engine.dispose()


FROZEN_START = textwrap.dedent(
    """
    import os, signal, sys
    import sqlalchemy
    from kinesis_sdk import SqlLeaseStore

    url, words = sys.argv[1:]
    store = SqlLeaseStore(url, "app")

    def freeze(connection, cursor, statement, *rest):
        if words in statement:
            os.kill(os.getpid(), signal.SIGSTOP)

    sqlalchemy.event.listen(store.engine, "after_cursor_execute", freeze)
    store.ensure_ready()
    print("ready", flush=True)
    """
)


@pytest.mark.skipif(os.name != "posix", reason="needs SIGSTOP")
@pytest.mark.parametrize(
    "words", ["CREATE TABLE kinesis_sdk_leases", "CREATE TABLE kinesis_sdk_versions", "INSERT INTO"]
)
def test_a_process_that_is_frozen_in_its_start_does_not_hold_up_others(postgres: str, words: str) -> None:
    """The start has the only transactions of a lease store: the creation of its tables, and the row with their version."""
    empty(postgres)
    process = subprocess.Popen(
        [sys.executable, "-c", FROZEN_START, postgres, words], stdout=subprocess.PIPE, text=True
    )
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), status
        store = SqlLeaseStore(postgres, "app")
        store.ensure_ready()
        assert store.create_if_absent(new_lease())
        assert store.get(KEY) == new_lease()
        store.close()
        process.send_signal(signal.SIGCONT)
        # Its transaction was ended, so the second attempt finds the tables.
        output, _ = process.communicate(timeout=HANG)
        assert output == "ready\n"
    finally:
        process.kill()
        process.wait()


def test_a_server_that_is_away(postgres_server: PostgresServer) -> None:
    store = SqlLeaseStore(postgres_server.url, "app", timeout=30, sleep=lambda seconds: None)
    store.ensure_ready()
    assert store.create_if_absent(new_lease())
    postgres_server.stop("immediate")
    for call in (lambda: store.get(KEY), store.scan, lambda: store.take(new_lease(), "a")):
        with pytest.raises(TransientLeaseStoreError):
            call()
    postgres_server.start()
    row = store.take(new_lease(), "a")
    if not isinstance(row, Lease):
        pytest.fail(f"{row}")
    store.close()


# Processes

SHARDS, RATE = 4, 40
LINE = re.compile(r"[abc] (\d+)")
SCRIPT = textwrap.dedent(
    """
    import os, sys
    from kinesis_sdk import ConsumerConfig, LeaseConfig, Worker

    name, endpoint, url = sys.argv[1:]

    def handle(batch):
        # Handlers run in several threads. Lines of print() get mixed up: "a 12a 13", then an empty one. A file that is opened
        # for appending takes what one call of os.write() holds in one piece.
        for record in batch.records:
            os.write(1, f"{name} {record.data.decode()}\\n".encode())

    config = ConsumerConfig(
        initial_position="TRIM_HORIZON",
        checkpoint_interval=1,
        leases=LeaseConfig(failover_time=3.0, balance_by="count", lease_scan_interval=0.5),
    )
    Worker(
        "orders",
        application_name="app",
        handler=handle,
        config=config,
        endpoint_url=endpoint,
        worker_id=name,
        lease_store=url,
    ).run()
    """
)


class Machines:
    """Workers as processes on one fake account, and what they have processed.

    Args:
        folder: Folder for their output.
        endpoint: The fake.
        url: Database of the leases.
    """

    def __init__(self, folder: Path, endpoint: str, url: str) -> None:
        self._folder, self._endpoint, self._url = folder, endpoint, url
        self._kinesis = boto3.client("kinesis", endpoint_url=endpoint)
        self._kinesis.create_stream(StreamName="orders", ShardCount=SHARDS)
        self._started = 0
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.sent: set[str] = set()
        self.store = SqlLeaseStore(url, "app")

    def add(self, name: str) -> None:
        self._started += 1
        with (
            # A file for each process: one that is killed may leave half a line, to which the next one must not append.
            (self._folder / f"{self._started}-{name}.out").open("ab") as out,
            (self._folder / f"{name}.log").open("ab") as log,
        ):
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, name, self._endpoint, self._url], stdout=out, stderr=log
            )

    def put(self) -> None:
        records = []
        for _ in range(RATE):
            text = str(len(self.sent))
            self.sent.add(text)
            records.append({"Data": text.encode(), "PartitionKey": text})
        answer = self._kinesis.put_records(StreamName="orders", Records=records)
        assert not answer["FailedRecordCount"]

    def processed(self) -> set[str]:
        """Return the records of all complete lines.

        Raises:
            AssertionError: If a complete line is not what a handler writes: then nothing can be said about what is missing.
        """
        done: set[str] = set()
        for path in self._folder.glob("*.out"):
            *lines, _half = path.read_text().split("\n")
            found = [LINE.fullmatch(line) for line in lines]
            assert all(found), [line for line, match in zip(lines, found, strict=True) if match is None]
            done.update(match[1] for match in found if match)
        return done

    def owners(self) -> list[str | None]:
        return [lease.owner for lease in self.store.scan().leases]

    def wait(self, what: Callable[[], bool]) -> None:
        """Wait until something is so, with records on the way."""
        deadline = time.monotonic() + HANG
        while not what():
            assert time.monotonic() < deadline, {
                path.name: path.read_text()[-3000:] for path in self._folder.glob("*.log")
            }
            self.put()
            time.sleep(0.2)

    def freeze(self, name: str) -> None:
        """Stop a process, but not in the middle of a write.

        There SQLite would stay locked until the process goes on, as the guide says: the other workers lose their leases ("database is
        locked"), no lease can be taken, and this test would wait forever for the others to take those of the process.
        """
        process = self.processes[name]
        while True:
            process.send_signal(signal.SIGSTOP)
            try:
                with self.store.engine.begin() as connection:
                    connection.execute(sqlalchemy.text("UPDATE kinesis_sdk_versions SET version = version"))
            except sqlalchemy.exc.OperationalError:
                if self.store.engine.dialect.name != "sqlite":
                    raise
                process.send_signal(signal.SIGCONT)
                time.sleep(0.1)
            else:
                return

    def share(self, *names: str) -> None:
        """Wait until these workers, and no others, hold the leases."""
        self.wait(lambda: len(self.owners()) == SHARDS and set(self.owners()) == set(names))

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        self.store.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: Any, tmp_path: Path) -> tuple[str, PostgresServer | None]:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/leases.db", None
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url, server


@pytest.fixture
def machines(tmp_path: Path, database: tuple[str, PostgresServer | None]) -> Iterator[Machines]:
    with start_server_process() as server:
        machines = Machines(tmp_path, server.endpoint_url, database[0])
        try:
            yield machines
        finally:
            machines.close()


@pytest.mark.skipif(os.name != "posix", reason="needs SIGSTOP")
def test_nothing_is_lost_when_workers_die_and_freeze_and_the_database_restarts(
    machines: Machines, database: tuple[str, PostgresServer | None]
) -> None:
    machines.store.ensure_ready()
    for name in ("a", "b", "c"):
        machines.add(name)
    machines.share("a", "b", "c")

    machines.processes["a"].kill()
    machines.processes["a"].wait()
    machines.share("b", "c")

    machines.freeze("b")
    machines.share("c")
    machines.processes["b"].send_signal(signal.SIGCONT)
    machines.share("b", "c")

    server = database[1]
    if server is not None:
        server.stop("immediate")  # as by a crash
        machines.put()
        time.sleep(1)
        server.start()
        # Longer than the failover time: the workers stop processing, and go on.
        server.stop("fast")
        machines.put()
        time.sleep(5)
        server.start()
    machines.add("a")
    machines.share("a", "b", "c")
    machines.wait(lambda: len(machines.sent - machines.processed()) <= RATE)
    eventually(lambda: machines.processed() == machines.sent, "records are lost", pause=0.2)
    assert all(machines.processes[name].poll() is None for name in "abc"), "no worker has stopped"
    for name in "abc":
        machines.processes[name].send_signal(signal.SIGTERM)
    assert [machines.processes[name].wait(HANG) for name in "abc"] == [0, 0, 0]
    assert machines.owners() == [None] * SHARDS, "a clean stop releases the leases"
