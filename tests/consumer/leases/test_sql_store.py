"""Leases in SQL databases beyond the contract: failures, races, rows that operators change, several applications."""

from __future__ import annotations

import re
import shutil
import sqlite3
import threading
import traceback
from contextlib import contextmanager
from dataclasses import replace

import pytest

from kinesis_sdk.common.errors import (
    ConfigError,
    LeaseRowRejectedError,
    LeaseStoreError,
    ProtocolError,
    TransientLeaseStoreError,
)
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases import Conflict, InMemoryLeaseStore, Lease, SqlLeaseStore
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest, HandlerVerb
from kinesis_sdk.consumer.leases.table.location import check_location, store_at
from kinesis_sdk.testing.contracts import lease_stores
from kinesis_sdk.testing.contracts.lease_stores import KEY, LEASE_STORE_CHECKS, new_lease
from tests import HANG
from tests.consumer.leases.conftest import sqlite_in_memory

sqlalchemy = pytest.importorskip("sqlalchemy")

THREADS = 16
AT_7 = ExtendedSequenceNumber("7", 2)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/leases.db"


@pytest.fixture
def stores(url):
    """A function that makes stores as other processes have them: each with its own connections."""
    made = []

    def make(application="app", **more):
        store = SqlLeaseStore(url, application, sleep=lambda seconds: None, **more)
        made.append(store)
        return store

    yield make
    for store in made:
        store.close()


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    """A database with the tables; making them takes longer than most tests."""
    path = tmp_path_factory.mktemp("leases") / "ready.db"
    store = SqlLeaseStore(f"sqlite:///{path}", "app")
    store.ensure_ready()
    store.close()
    return path


@pytest.fixture
def store(stores, url, ready):
    shutil.copyfile(ready, url.removeprefix("sqlite:///"))
    return stores()


def all_at_once(calls):
    """Make calls at the same time, and return what they returned."""
    barrier = threading.Barrier(len(calls))
    outcomes = [None] * len(calls)

    def run(number):
        barrier.wait(HANG)
        outcomes[number] = calls[number]()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
    return outcomes


# Several applications


def test_applications_in_one_table_do_not_see_each_other(stores):
    billing, shipping = stores("billing"), stores("shipping")
    for store in (billing, shipping):
        store.ensure_ready()
        assert store.create_if_absent(new_lease())
    row = billing.take(new_lease(), "a")
    assert shipping.get(KEY) == new_lease()
    assert shipping.delete(KEY)
    assert billing.scan().leases == [row]
    assert shipping.scan().leases == []


def test_tables_have_any_name(stores):
    one, other = stores(table="one"), stores(table="other")
    for store in (one, other):
        store.ensure_ready()
    assert one.create_if_absent(new_lease())
    assert other.scan().leases == []


# Races


def test_many_workers_start_on_an_empty_database(stores):
    fleet = [stores() for _ in range(THREADS)]

    def start(store):
        store.ensure_ready()
        return store.create_if_absent(new_lease())

    outcomes = all_at_once([lambda store=store: start(store) for store in fleet])
    assert sorted(map(str, outcomes)) == ["False"] * (THREADS - 1) + ["True"]


def test_one_of_many_workers_takes_a_lease(stores):
    fleet = [stores() for _ in range(THREADS)]
    fleet[0].ensure_ready()
    fleet[0].create_if_absent(new_lease())
    for number in range(1, 6):
        seen = fleet[0].get(KEY)
        outcomes = all_at_once(
            [
                lambda store=store, seen=seen, name=f"w{n}": store.take(seen, name)
                for n, store in enumerate(fleet)
            ]
        )
        (winner,) = [row for row in outcomes if isinstance(row, Lease)]
        assert [row for row in outcomes if row != winner] == [Conflict(winner)] * (THREADS - 1)
        assert fleet[0].get(KEY) == winner
        assert winner.counter == number


def test_marks_of_many_workers_all_stay(stores):
    """They are in one column: each write must see those of the others."""
    fleet = [stores() for _ in range(THREADS)]
    fleet[0].ensure_ready()
    fleet[0].create_if_absent(new_lease())
    outcomes = all_at_once(
        [
            lambda store=store, n=n: (
                store.set_drain(KEY, f"w{n:02}", True) and store.put_standby_heartbeat(KEY, f"w{n:02}", n)
            )
            for n, store in enumerate(fleet)
        ]
    )
    assert outcomes == [True] * THREADS
    row = fleet[0].get(KEY)
    assert row.draining == tuple(f"w{n:02}" for n in range(THREADS))
    assert row.standby_heartbeats == {f"w{n:02}": n for n in range(THREADS)}


# Failures

WRITES = {
    "take": lambda store, row: store.take(row, "b"),
    "renew": lambda store, row: store.renew(replace(row, throughput_kbps=1.5)),
    "checkpoint": lambda store, row: store.checkpoint(row, AT_7),
    "prepare": lambda store, row: store.prepare(row, AT_7, b"state"),
    "pin": lambda store, row: store.pin(row, 5),
    "mark_processed": lambda store, row: store.mark_processed(row, 5),
    "release": lambda store, row: store.release(row),
    "request_handoff": lambda store, row: store.request_handoff(row, "b"),
    "complete_handoff": lambda store, row: store.complete_handoff(row),
    "set_child_shard_ids": lambda store, row: store.set_child_shard_ids(KEY, ["c"]),
    "set_hash_key_range": lambda store, row: store.set_hash_key_range(KEY, HashKeyRange(3, 9)),
    "put_standby_heartbeat": lambda store, row: store.put_standby_heartbeat(KEY, "b", 1),
    "set_drain": lambda store, row: store.set_drain(KEY, "b", True),
    "set_pin": lambda store, row: store.set_pin(KEY, "b"),
    "set_handler_request": lambda store, row: store.set_handler_request(
        KEY, HandlerRequest(HandlerVerb.RETRY, "r")
    ),
    "delete": lambda store, row: store.delete(KEY),
    "delete as seen": lambda store, row: store.delete(KEY, unowned=row),
}
CALLS = {
    **WRITES,
    "get": lambda store, row: store.get(KEY),
    "scan": lambda store, row: store.scan(),
    "create_if_absent": lambda store, row: store.create_if_absent(new_lease("other")),
    "ensure_ready": lambda store, row: store.ensure_ready(),
}


def held(store, name):
    """Return the row on which a write is tried."""
    store.create_if_absent(new_lease())
    row = store.take(store.get(KEY), "a")
    return store.request_handoff(row, "b") if name == "complete_handoff" else row


@contextmanager
def failing(store, cause, *, when="before", times=1, only=""):
    """Let statements of a store fail, before the database carries them out or after it."""
    left = times

    def fail(connection, cursor, statement, *rest):
        nonlocal left
        if left > 0 and statement.startswith(only):
            left -= 1
            raise cause

    event = f"{when}_cursor_execute"
    sqlalchemy.event.listen(store.engine, event, fail)
    try:
        yield lambda: times - left
    finally:
        sqlalchemy.event.remove(store.engine, event, fail)


class Lost(sqlite3.OperationalError):
    """The database does not answer."""


def lost():
    return sqlalchemy.exc.OperationalError("SELECT 1", None, Lost("disk I/O error"))


@pytest.mark.parametrize("name", CALLS)
def test_a_failure_that_passes_is_one_of_the_sdk_and_retryable(name, own_application):
    store = own_application
    row = held(store, name)
    before = store.scan().leases
    with failing(store, lost(), times=10**6), pytest.raises(TransientLeaseStoreError) as failure:
        CALLS[name](store, row)
    assert failure.value.retryable
    assert store.scan().leases == before
    outcome = CALLS[name](store, row)
    assert not isinstance(outcome, Conflict), "it succeeds once the database is back"


@pytest.mark.parametrize("name", WRITES)
def test_a_write_whose_answer_was_lost_took_effect_once(name, own_application):
    store = own_application
    row = held(store, name)
    expected = InMemoryLeaseStore([row])
    WRITES[name](expected, row)
    verbs = ("INSERT", "UPDATE", "DELETE")
    with (
        failing(store, lost(), when="after", only=verbs) as count,
        pytest.raises(TransientLeaseStoreError),
    ):
        WRITES[name](store, row)
    assert count() == 1
    assert store.get(KEY) == expected.get(KEY), "the database carried it out"
    outcome = WRITES[name](store, row)
    assert outcome == expected.get(KEY) if isinstance(outcome, Lease) else outcome is True
    assert store.get(KEY) == expected.get(KEY), "repeating it changes nothing"


@pytest.mark.parametrize("name", [name for name in CALLS if name != "ensure_ready"])
def test_a_failure_that_stays_is_not_retryable(name, store):
    row = held(store, name)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE kinesis_sdk_leases")
    with pytest.raises(LeaseStoreError, match="no such table") as failure:
        CALLS[name](store, row)
    assert not failure.value.retryable


def test_reads_are_repeated(store):
    for call in (store.scan, store.ensure_ready):
        with failing(store, lost(), times=2) as count:
            call()
        assert count() == 2


def test_a_database_that_is_locked_by_another_program_passes(url, store, stores):
    row = held(store, "")
    hasty = stores(timeout=0.1)
    with sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TransientLeaseStoreError, match="locked"):
            hasty.renew(row)
        assert hasty.scan().leases == [row], "readers do not wait"
        other.execute("ROLLBACK")
    other.close()
    assert isinstance(hasty.renew(row), Lease)


def test_no_statement_leaves_a_lock_behind(url, store):
    """A worker that is stopped by SIGSTOP between two statements must not keep others from taking its leases."""
    looks = []

    def look(result):
        # The statement has been carried out, and its connection is still in use.
        other = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.close()
        looks.append(result)
        return result

    execute = store._execute
    store._execute = lambda call: execute(lambda connection: look(call(connection)))
    for name, call in CALLS.items():
        if name != "ensure_ready":
            looks.clear()
            call(store, held(store, name))
            assert looks
            store.delete(KEY)


def test_a_value_that_the_database_rejects_costs_one_lease(store):
    row = held(store, "")
    rejected = sqlalchemy.exc.DataError("UPDATE", None, sqlite3.DataError("string or blob too big"))
    with failing(store, rejected), pytest.raises(LeaseRowRejectedError, match="too big"):
        store.checkpoint(row, AT_7)
    assert store.get(KEY) == row


def test_messages_hold_no_password(url):
    store = SqlLeaseStore(url, "app")
    secret = sqlite3.OperationalError("cannot reach postgresql://me:secret@host/db")
    with (
        failing(store, sqlalchemy.exc.OperationalError("SELECT", None, secret)),
        pytest.raises(TransientLeaseStoreError) as failure,
    ):
        store.get(KEY)
    assert "secret" not in str(failure.value)


# Rows and tables as others leave them


def test_rows_can_be_read_and_changed_with_plain_sql(store):
    row = held(store, "")
    store.checkpoint(row, AT_7)
    with store.engine.begin() as connection:
        select = (
            "SELECT application, lease_key, lease_owner, lease_counter, checkpoint FROM kinesis_sdk_leases"
        )
        assert [*connection.exec_driver_sql(select).one()] == ["app", KEY, "a", 2, "7"]
        connection.exec_driver_sql("UPDATE kinesis_sdk_leases SET lease_owner = NULL, lease_counter = 3")
    changed = store.get(KEY)
    assert (changed.owner, changed.counter) == (None, 3)
    assert store.renew(row) == Conflict(changed)


@pytest.mark.parametrize(
    "damage", ["attributes = 'x'", "attributes = '[1]'", "parents", "checkpoint_sub = 'x'"]
)
def test_a_row_that_cannot_be_read_does_not_pass_for_an_absent_one(store, damage):
    row = held(store, "")
    store.create_if_absent(new_lease("other"))
    change = """attributes = '{"parentShardId": {"N": "1"}}'""" if damage == "parents" else damage
    with store.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE kinesis_sdk_leases SET {change} WHERE lease_key = '{KEY}'")
    scan = store.scan()
    assert [lease.lease_key for lease in scan.leases] == ["other"]
    assert [*scan.unreadable] == [KEY]
    with pytest.raises(ProtocolError, match=KEY):
        store.get(KEY)
    if damage.startswith("attributes"):
        with pytest.raises(LeaseRowRejectedError, match=KEY):
            store.set_drain(KEY, "b", True)
    assert store.renew(replace(row, counter=9)) == Conflict(None)
    assert isinstance(store.renew(row), Lease), "the owner's columns are not damaged"
    assert not store.create_if_absent(new_lease())


def test_attributes_of_other_versions_stay(store):
    extra = {
        "fromTheFuture": {"L": [{"M": {"x": {"B": b"\x00\xff"}}}, {"BS": [b"\x01"]}]},
        # A defect of the KCL: the state as a number.
        "pendingCheckpointState": {"N": "5"},
    }
    lease = new_lease(extra=extra)
    store.create_if_absent(lease)
    assert store.get(KEY) == lease
    row = store.checkpoint(store.take(lease, "a"), AT_7)
    store.set_drain(KEY, "b", True)
    assert store.get(KEY) == replace(row, draining=("b",))
    assert store.get(KEY).extra == extra


def test_a_newer_version_of_the_table_is_refused(store):
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE kinesis_sdk_versions SET version = 2")
    with pytest.raises(LeaseStoreError, match="version 2"):
        store.ensure_ready()


def test_the_tables_of_a_sink_may_be_in_the_same_database(url, store):
    from kinesis_sdk.consumer import SqlSink

    sink = SqlSink(url)
    sink.ensure_ready()
    store.ensure_ready()
    assert {"kinesis_sdk_leases", "kinesis_sdk_positions", "kinesis_sdk_versions"} == set(
        sqlalchemy.inspect(sink.engine).get_table_names()
    )
    sink.close()


# Clocks

CLOCK = re.compile(r"now|date|time\b|current_|clock|interval|julian|strftime", re.IGNORECASE)


def statements_of_the_contract(monkeypatch, *, returning=True):
    """Let a store keep the contract, and return the texts of its statements."""
    # A few sequences make all statements.
    monkeypatch.setattr(lease_stores, "STEPS", 40)
    monkeypatch.setattr(lease_stores, "SEQUENCES", 4)
    one = sqlite_in_memory()
    one.engine.dialect.update_returning = returning
    found = []
    sqlalchemy.event.listen(
        one.engine, "before_cursor_execute", lambda c, cursor, statement, *rest: found.append(statement)
    )
    for check in LEASE_STORE_CHECKS:
        check(SqlLeaseStore(one.engine, check.__name__))
    one.engine.dispose()
    assert len(found) > 500
    return set(found)


def test_no_statement_reads_a_clock(monkeypatch):
    """A jump of the database's clock changes nothing, because nothing asks for it."""
    found = statements_of_the_contract(monkeypatch)
    assert [text for text in found if CLOCK.search(without_our_names(text))] == []
    assert any("RETURNING" in text for text in found)


def without_our_names(statement):
    return re.sub(r"kinesis_sdk_leases\.?|initial_timestamp_millis|UPDATE", "", statement)


# Dialects


def test_a_database_without_returning_reads_the_row_after_the_write(monkeypatch):
    """SQLite before 3.35."""
    found = statements_of_the_contract(monkeypatch, returning=False)
    assert not any("RETURNING" in text for text in found)


def test_an_engine_that_commits_each_statement_is_welcome(url):
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    store = SqlLeaseStore(engine, "app")
    store.ensure_ready()
    assert store.create_if_absent(new_lease())
    store.close()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1, "an engine of the user is left open"
    engine.dispose()


def test_timeouts_of_postgresql():
    pytest.importorskip("psycopg")
    store = SqlLeaseStore("postgresql+psycopg://me@host/db?connect_timeout=9", "app", timeout=1.5)
    made = {}

    def connect(dialect, record, arguments, options):
        made.update((name, value) for name, value in options.items() if name != "context")
        raise sqlalchemy.exc.OperationalError("connect", None, Exception("refused"))

    sqlalchemy.event.listen(store.engine, "do_connect", connect)
    with pytest.raises(TransientLeaseStoreError):
        store.get(KEY)
    assert made == {
        "host": "host",
        "user": "me",
        "dbname": "db",
        "connect_timeout": "9",
        "keepalives_idle": 2,
        "keepalives_interval": 1,
        "keepalives_count": 3,
        "tcp_user_timeout": 1500,
        "options": "-c statement_timeout=1500",
    }


# URLs


@pytest.mark.parametrize(
    "value", ["", "leases.db", "redis://host", "dynamodb://app", "memory://x", "sqlite:leases.db", 5, None]
)
def test_an_address_that_is_not_one_names_the_field_and_examples(value):
    with pytest.raises(ConfigError, match=r"^lease_store="):
        check_location("lease_store", value)


@pytest.mark.parametrize("scheme", ["mysql", "mysql+pymysql", "mariadb", "redis"])
def test_another_database_is_refused_at_the_url(scheme):
    name = scheme.partition("+")[0]
    with pytest.raises(ConfigError, match=rf"^lease_store=.*; {name} ") as caught:
        check_location("lease_store", f"{scheme}://me:secret@host/db")
    assert "secret" not in str(caught.value)


def test_stores_at_addresses(url):
    assert isinstance(store_at("lease_store", "memory://", "app", timeout=1), InMemoryLeaseStore)
    store = store_at("lease_store", url, "app", timeout=1)
    assert isinstance(store, SqlLeaseStore)
    store.close()
    with pytest.raises(ConfigError, match=r"^lease_table\.lease_store="):
        store_at("lease_table.lease_store", "sqlite://", "app", timeout=1)
    with pytest.raises(ConfigError, match=r"^lease_store="):
        store_at("lease_store", "sqlite+nothing:///leases.db", "app", timeout=1)
    with pytest.raises(ConfigError) as failure:
        store_at("lease_store", "postgres://me:secret@host/db", "app", timeout=1)
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgres://host/db?password=secret",
        "postgres://host/db?user=me&password=secret&sslpassword=secret",
        "postgresql+nosuchdriver://me@host/db?password=secret",
        "postgresql+asyncpg://host/db?password=secret",
        "sqlite+pysqlcipher://:secret@/:memory:",
    ],
)
def test_neither_a_rejected_url_nor_the_traceback_has_its_password(url):
    with pytest.raises(ConfigError) as failure:
        store_at("lease_store", url, "app", timeout=1)
    assert "secret" not in "".join(traceback.format_exception(failure.value))
