"""The SQL sink on SQLite: the contract, fleets in virtual time, and what its users can do wrong."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from kinesis_sdk.common.errors import ConfigError, SinkError, TransientSinkError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig
from kinesis_sdk.consumer.sinks.sink import SinkRow
from kinesis_sdk.testing.contracts.sinks import (
    KEY,
    SINK_CHECKS,
    SinkUnderTest,
    effects_and_position_commit_together,
)
from tests.consumer.sinks.house import House
from tests.consumer.sinks.sql_effects import EFFECTS

sqlalchemy = pytest.importorskip("sqlalchemy")

from kinesis_sdk.consumer.sinks.sql import SqlSink  # noqa: E402
from kinesis_sdk.consumer.sql.dialect import Postgresql  # noqa: E402


@pytest.fixture
def database(tmp_path):
    made = []

    class Database:
        def __init__(self):
            self.url = f"sqlite:///{tmp_path}/effects.db"
            self.engine = sqlalchemy.create_engine(self.url, connect_args={"timeout": 30})
            EFFECTS.metadata.create_all(self.engine)
            self.sinks = []
            made.append(self)

        def sink(self, database=None, **options):
            sink = SqlSink(database or self.url, **options)
            self.sinks.append(sink)
            return sink

        def effects(self):
            with self.engine.connect() as connection:
                rows = connection.execute(EFFECTS.select().order_by(EFFECTS.c.number)).all()
            return [(row.shard, row.record_id, (row.data or "").encode()) for row in rows]

    yield Database()
    for one in made:
        for engine in (one.engine, *(sink.engine for sink in one.sinks)):
            engine.dispose()


def insert(transaction, effect):
    shard, record_id, data = effect
    transaction.execute(EFFECTS.insert().values(shard=shard, record_id=record_id, data=data.decode()))


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_contract(check, database):
    check(
        SinkUnderTest(
            database.sink(),
            lambda handle, effect: handle.execute(EFFECTS.insert().values(record_id=effect)),
            lambda: [record_id for _, record_id, _ in database.effects()],
        )
    )


def test_an_engine_of_the_application_is_used_and_not_closed(database):
    sink = database.sink(database.engine)
    assert sink.engine is database.engine
    effects_and_position_commit_together(
        SinkUnderTest(
            sink,
            lambda handle, effect: handle.execute(EFFECTS.insert().values(record_id=effect)),
            lambda: [record_id for _, record_id, _ in database.effects()],
        )
    )
    pool = database.engine.pool
    sink.close()
    assert database.engine.pool is pool, "disposing of an engine replaces its pool"
    own = database.sink()
    pool = own.engine.pool
    own.close()
    assert own.engine.pool is not pool


@pytest.mark.parametrize("raises", [False, True])
def test_a_commit_that_cannot_store_the_position_stores_no_effects(database, raises):
    sink = database.sink()
    sink.ensure_ready()
    seen = SinkRow(fence=1)
    assert sink.write(KEY, None, seen)
    transaction = sink.begin(KEY, seen)
    insert(transaction.handle, ("shard", "1/0", b"1"))

    def change(*_arguments):
        if raises:
            raise ZeroDivisionError
        return False

    sink.change = change
    if raises:
        with pytest.raises(ZeroDivisionError):
            transaction.commit(SinkRow(ExtendedSequenceNumber("1"), 1))
    else:
        assert not transaction.commit(SinkRow(ExtendedSequenceNumber("1"), 1))
    assert database.effects() == []
    assert sink.read(KEY) == seen


def test_what_a_handler_reads_cannot_change_before_it_writes(database):
    """Two shards add to one total. Were the read outside of the transaction, an addition would be lost."""
    first, second = database.sink(), database.sink()
    first.ensure_ready()
    keys = [KEY, KEY._replace(lease_key="b")]
    for key in keys:
        first.write(key, None, SinkRow(fence=1))
    transaction = first.begin(keys[0], SinkRow(fence=1))
    transaction.handle.execute(sqlalchemy.text("SELECT count(*) FROM effects")).scalar()
    impatient = database.sink(sqlalchemy.create_engine(database.url, connect_args={"timeout": 0.0}))
    with pytest.raises(TransientSinkError, match="locked"):
        impatient.begin(keys[1], SinkRow(fence=1))
    transaction.rollback()
    assert second.begin(keys[1], SinkRow(fence=1)).commit(SinkRow(fence=1))


def test_an_error_of_the_database_in_the_handler_is_repeated_and_one_of_the_handler_is_not(database):
    """With "stop", an error of the handler would end the worker."""
    config = ConsumerConfig(initial_position="TRIM_HORIZON", on_handler_error="stop")
    house = House(sink=database.sink(), config=config)
    failures = iter([True])

    def handle(batch):
        if next(failures, False):
            raise sqlalchemy.exc.OperationalError("INSERT", None, Exception("database is locked"))
        for record in batch.records:
            insert(batch.transaction, ("w1", record.id, record.data))

    house.fleet.add("w1", handle)
    house.put_and_run(5, 30)
    assert [data for _, _, data in database.effects()] == house.fleet.sent

    wrong = sqlalchemy.exc.IntegrityError("INSERT", None, Exception("UNIQUE constraint failed"))
    assert house.sink.translate(wrong) is wrong


def test_an_error_of_the_driver_that_passes_is_repeated(database):
    class Locked(sqlite3.OperationalError):
        sqlstate = "55P03"

    error, sink = Locked("canceling statement due to lock timeout"), database.sink()
    sink._dialect = Postgresql()  # only its drivers tell a state
    assert type(sink.translate(error)) is TransientSinkError


def test_a_handler_must_not_end_the_transaction(database):
    house = House(sink=database.sink())

    def handle(batch):
        insert(batch.transaction, ("w1", batch.records[0].id, b""))
        batch.transaction.commit()

    house.fleet.add("w1", handle)
    with pytest.raises(SinkError, match="transaction by itself"):
        house.put_and_run(5, 30)


def test_an_engine_that_commits_by_itself_is_refused(database):
    engine = sqlalchemy.create_engine(database.url, isolation_level="AUTOCOMMIT")
    with pytest.raises(SinkError, match="AUTOCOMMIT"):
        database.sink(engine).ensure_ready()
    database.sink().ensure_ready()


def test_tables_of_another_version_are_refused(database):
    sink = database.sink()
    sink.ensure_ready()
    with database.engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE kinesis_sdk_versions SET version = 7"))
    with pytest.raises(SinkError, match="version 7"):
        database.sink().ensure_ready()


def test_a_database_that_cannot_be_used(tmp_path, database):
    with pytest.raises(ConfigError, match="in memory"):
        SqlSink("sqlite://")
    with pytest.raises(ConfigError, match="database"):
        SqlSink("not a url")
    with pytest.raises(ConfigError, match="database"):
        SqlSink(7)
    (tmp_path / "notes.txt").write_text("not a database, but long enough to look like one" * 50)
    with pytest.raises(SinkError, match="not a database"):
        database.sink(f"sqlite:///{tmp_path}/notes.txt").ensure_ready()
    with pytest.raises(SinkError, match="no such table"):
        database.sink().read(KEY)


def test_several_tables_in_one_database(database):
    first, second = database.sink(), database.sink(table="others")
    for sink in (first, second):
        sink.ensure_ready()
        assert sink.write(KEY, None, SinkRow(fence=1))
    names = sqlalchemy.inspect(database.engine).get_table_names()
    assert {"kinesis_sdk_positions", "others", "kinesis_sdk_versions"} <= set(names)


def test_a_transaction_that_is_cancelled_while_it_begins_keeps_no_connection(database):
    sink = database.sink()
    sink.ensure_ready()
    assert sink.write(KEY, None, SinkRow(fence=1))
    change, kept = sink.change, []

    def cancelled(connection, *arguments):
        kept.append(connection)  # as a traceback may do; the garbage collector would close it otherwise
        change(connection, *arguments)
        raise asyncio.CancelledError

    sink.change = cancelled
    with pytest.raises(asyncio.CancelledError):
        sink.begin(KEY, SinkRow(fence=1))
    assert sink.engine.pool.checkedout() == 0
    sink.change = change
    assert sink.write(KEY, SinkRow(fence=1), SinkRow(fence=2)), "the lock for writers is free"
