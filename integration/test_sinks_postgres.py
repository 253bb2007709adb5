"""The SQL sink on a real PostgreSQL server."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import boto3
import pytest

from integration.postgres import postgres
from kinesis_sdk.common.errors import ConfigError, SinkError, TransientSinkError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig, Worker
from kinesis_sdk.consumer.sinks.sink import SinkRow
from kinesis_sdk.consumer.sinks.sql import AsyncSqlSink, SqlSink
from kinesis_sdk.testing import start_server_process
from kinesis_sdk.testing.contracts.sinks import KEY, SINK_CHECKS, SinkUnderTest
from tests import HANG
from tests.consumer.sinks.books import Books, Unreliable
from tests.consumer.sinks.house import House

sqlalchemy = pytest.importorskip("sqlalchemy")

from sqlalchemy.ext.asyncio import create_async_engine  # noqa: E402

__all__ = ["postgres"]

EFFECTS = sqlalchemy.Table(
    "effects",
    sqlalchemy.MetaData(),
    sqlalchemy.Column("number", sqlalchemy.Integer, primary_key=True),
    sqlalchemy.Column("shard", sqlalchemy.Text),
    sqlalchemy.Column("record_id", sqlalchemy.Text),
    sqlalchemy.Column("data", sqlalchemy.Text),
)


class Database:
    def __init__(self, url: str) -> None:
        self.engine = sqlalchemy.create_engine(url, pool_size=30)
        tables = sqlalchemy.MetaData()
        tables.reflect(self.engine)
        tables.drop_all(self.engine)
        EFFECTS.metadata.create_all(self.engine)

    def effects(self) -> list[tuple[str, str, bytes]]:
        with self.engine.connect() as connection:
            rows = connection.execute(EFFECTS.select().order_by(EFFECTS.c.number)).all()
        return [(row.shard, row.record_id, (row.data or "").encode()) for row in rows]


@pytest.fixture
def database(postgres: str) -> Iterator[Database]:
    database = Database(postgres)
    yield database
    database.engine.dispose()


def insert(transaction: Any, effect: tuple[str, str, bytes]) -> None:
    shard, record_id, data = effect
    transaction.execute(EFFECTS.insert().values(shard=shard, record_id=record_id, data=data.decode()))


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Any, database: Database, isolation: str) -> None:
    if isolation != "READ COMMITTED" and "many_commits" in check.__name__:
        pytest.skip(
            "the losers get an error of the database that they may repeat, instead of an answer: see below"
        )
    sink = SqlSink(database.engine.execution_options(isolation_level=isolation))
    check(
        SinkUnderTest(
            sink,
            lambda handle, effect: handle.execute(EFFECTS.insert().values(record_id=effect)),
            lambda: [record_id for _, record_id, _ in database.effects()],
        )
    )


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_claim_does_not_wait_for_a_frozen_transaction_whose_commit_then_fails(
    database: Database, isolation: str
) -> None:
    sink = SqlSink(database.engine.execution_options(isolation_level=isolation))
    sink.ensure_ready()
    row = SinkRow(fence=1)
    assert sink.write(KEY, None, row)
    frozen = sink.begin(KEY, row)
    assert frozen is not None
    insert(frozen.handle, ("zombie", "1", b""))

    claimed = SinkRow(fence=2)
    assert sink.write(KEY, row, claimed)
    done = SinkRow(ExtendedSequenceNumber("7"), 2)
    successor = sink.begin(KEY, claimed)
    assert successor is not None
    insert(successor.handle, ("successor", "1", b""))
    assert successor.commit(done)

    try:
        outcome = frozen.commit(SinkRow(ExtendedSequenceNumber("7"), 1))
    except sqlalchemy.exc.OperationalError as error:
        assert isolation != "READ COMMITTED"
        assert isinstance(sink.translate(error), TransientSinkError), "could not serialize access"
    else:
        assert not outcome
    assert sink.read(KEY) == done
    assert [shard for shard, _, _ in database.effects()] == ["successor"]


@pytest.mark.parametrize("seed", range(4))
def test_fleets_that_crash_and_freeze_inside_their_transactions(seed: int, database: Database) -> None:
    books = Books(
        seed,
        sink=Unreliable(
            SqlSink(database.engine),
            Random(seed),
            error=lambda: sqlalchemy.exc.OperationalError("COMMIT", None, Exception("connection lost")),
        ),
        write=insert,
    ).play()
    books.check(database.effects())


def test_connections_that_the_server_ends(database: Database) -> None:
    house = House(sink=SqlSink(database.engine))
    cuts = iter([True, True])

    def handle(batch: Any) -> None:
        for record in batch.records:
            insert(batch.transaction, ("w1", record.id, record.data))
        if next(cuts, False):
            pid = batch.transaction.exec_driver_sql("SELECT pg_backend_pid()").scalar()
            with database.engine.connect() as other:
                other.execute(sqlalchemy.text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})

    house.fleet.add("w1", handle)
    house.put_and_run(5, 60)
    assert [data for _, _, data in database.effects()] == house.fleet.sent
    assert next(cuts, None) is None


def test_a_server_that_is_away_and_one_that_refuses(postgres: str) -> None:
    with pytest.raises(TransientSinkError):
        SqlSink("postgresql+psycopg://test@127.0.0.1:1/postgres").read(KEY)
    sink = SqlSink(postgres, table="missing")
    with pytest.raises(SinkError, match="does not exist") as caught:
        sink.read(KEY)
    sink.close()
    assert not caught.value.retryable


def setting(connection: Any) -> str:
    return str(connection.execute(sqlalchemy.text("SHOW idle_in_transaction_session_timeout")).scalar_one())


def test_a_handlers_transaction_is_limited_and_nothing_else_of_its_session(postgres: str) -> None:
    """A pooler such as PgBouncer hands sessions on to other clients, so nothing may outlast the transaction."""
    for engine, idle_timeout, limit in (
        (sqlalchemy.create_engine(postgres, pool_size=1), 20, "20s"),
        (sqlalchemy.create_engine(postgres, pool_size=1), None, "0"),
        (
            sqlalchemy.create_engine(
                postgres, connect_args={"options": "-c idle_in_transaction_session_timeout=7s"}
            ),
            20,
            "7s",  # of the user
        ),
    ):
        sink = SqlSink(engine, idle_timeout=idle_timeout)
        sink.ensure_ready()
        with engine.connect() as connection:
            before = setting(connection)
        row = sink.read(KEY)
        assert sink.write(KEY, row, SinkRow(fence=1))
        with engine.connect() as connection:
            assert setting(connection) == before
        transaction = sink.begin(KEY, SinkRow(fence=1))
        assert transaction is not None
        assert setting(transaction.handle) == limit
        assert transaction.commit(SinkRow(fence=1))
        with engine.connect() as connection:
            assert setting(connection) == before
            held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
            assert connection.execute(sqlalchemy.text(held)).scalar_one() == 0
        engine.dispose()


def test_a_transaction_that_is_idle_for_too_long_is_ended_and_the_error_says_why(database: Database) -> None:
    """Without a successor, so that other users of the database do not wait for a stopped process for ever."""
    sink = SqlSink(database.engine, idle_timeout=3)
    sink.ensure_ready()
    row = SinkRow(fence=1)
    assert sink.write(KEY, None, row)
    transaction = sink.begin(KEY, row)
    assert transaction is not None
    transaction.handle.execute(EFFECTS.insert().values(number=1))
    with database.engine.begin() as connection:  # waits until the server has ended the other transaction
        connection.execute(EFFECTS.insert().values(number=1, record_id="of another user"))
    with pytest.raises(sqlalchemy.exc.DBAPIError) as caught:
        transaction.commit(row)
    error = sink.translate(caught.value)
    assert isinstance(error, TransientSinkError)
    assert "idle_timeout of SqlSink" in str(error)
    assert [record_id for _, record_id, _ in database.effects()] == ["of another user"]


def test_a_lock_that_another_session_keeps_fails_the_statement(database: Database, postgres: str) -> None:
    """Without a limit, the shard would wait for as long as the other transaction, and nothing would say so."""
    sink = SqlSink(database.engine, lock_timeout=0.5)
    sink.ensure_ready()
    row = SinkRow(fence=1)
    assert sink.write(KEY, None, row)
    with database.engine.begin() as user:
        user.execute(EFFECTS.insert().values(number=1, record_id="of another user"))
        transaction = sink.begin(KEY, row)
        assert transaction is not None
        with pytest.raises(sqlalchemy.exc.DBAPIError) as caught:
            transaction.handle.execute(EFFECTS.insert().values(number=1))
        transaction.rollback()
    error = sink.translate(caught.value)
    assert isinstance(error, TransientSinkError)
    assert "lock_timeout of SqlSink" in str(error)
    # The next attempt finds the lock free. The limit was one of the transaction, and not of the session.
    transaction = sink.begin(KEY, row)
    assert transaction is not None
    transaction.handle.execute(EFFECTS.insert().values(number=2))
    assert transaction.commit(SinkRow(fence=1))
    for engine, lock_timeout, limit in (
        (sqlalchemy.create_engine(postgres), None, "0"),
        (sqlalchemy.create_engine(postgres), 20, "20s"),
        (sqlalchemy.create_engine(postgres, connect_args={"options": "-c lock_timeout=7s"}), 20, "7s"),
    ):
        other = SqlSink(engine, lock_timeout=lock_timeout)
        other.ensure_ready()
        transaction = other.begin(KEY, SinkRow(fence=1))
        assert transaction is not None
        shown = transaction.handle.execute(sqlalchemy.text("SELECT current_setting('lock_timeout')"))
        assert shown.scalar_one() == limit
        transaction.rollback()
        engine.dispose()


def test_a_claim_says_who_has_the_row(database: Database) -> None:
    """A user's transaction is not the sink's, so it is not ended."""
    sink = SqlSink(database.engine)
    sink.ensure_ready()
    row = SinkRow(fence=1)
    assert sink.write(KEY, None, row)
    user = database.engine.connect()
    user.execute(sqlalchemy.text("SELECT * FROM kinesis_sdk_positions FOR UPDATE"))
    pid = user.execute(sqlalchemy.text("SELECT pg_backend_pid()")).scalar_one()
    time.sleep(1.1)
    expected = (
        rf"session {pid} \(user test, idle in transaction for \d+ s\) has the row of app/orders/.*0 locked"
    )
    with pytest.raises(TransientSinkError, match=expected):
        sink.write(KEY, row, SinkRow(fence=2))
    user.rollback()
    user.close()
    assert sink.write(KEY, row, SinkRow(fence=2))


def test_a_claim_ends_only_sessions_of_its_own_shard_that_wait_for_their_process(database: Database) -> None:
    sink = SqlSink(database.engine)
    sink.ensure_ready()
    row = SinkRow(fence=1)
    keys = [KEY, KEY._replace(lease_key="other"), KEY._replace(application="other")]
    assert all(sink.write(key, None, row) for key in keys)
    begun = [sink.begin(key, row) for key in keys]
    working = sink.begin(KEY, row)
    assert working is not None
    with ThreadPoolExecutor() as pool, database.engine.connect() as holder:
        holder.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(4711)"))
        at_work = pool.submit(working.handle.execute, sqlalchemy.text("SELECT pg_advisory_xact_lock(4711)"))
        time.sleep(1.5)
        assert sink.write(KEY, row, SinkRow(fence=2))
        outcomes = []
        for transaction in begun:
            assert transaction is not None
            try:
                outcomes.append(transaction.commit(row))
            except sqlalchemy.exc.DBAPIError as error:
                outcomes.append(isinstance(sink.translate(error), TransientSinkError))
                assert "terminating connection" in str(error)
                outcomes.append("ended")
        assert outcomes == [True, "ended", True, True]
        assert not at_work.done()
        holder.rollback()
        at_work.result()  # the server was at work, and did not wait for the process
    assert working.commit(row) is False


@pytest.mark.parametrize("how", ["search path", "translated", "named"])
def test_a_claim_ends_no_session_of_the_same_table_in_another_schema(
    database: Database, postgres: str, how: str
) -> None:
    """For example production and staging, whose users or engines have other search paths."""
    with database.engine.begin() as connection:
        connection.execute(sqlalchemy.text('DROP SCHEMA IF EXISTS "Staging" CASCADE'))
        connection.execute(sqlalchemy.text('CREATE SCHEMA "Staging"'))
    options = {"options": '-c search_path="Staging"'} if how == "search path" else {}
    engine = sqlalchemy.create_engine(postgres, connect_args=options)
    if how == "translated":
        engine = engine.execution_options(schema_translate_map={None: "Staging"})
    staging = SqlSink(engine, table="Positions", schema="Staging" if how == "named" else None)
    production = SqlSink(database.engine, table="Positions")
    row = SinkRow(fence=1)
    try:
        for sink in (staging, production):
            sink.ensure_ready()
            assert sink.write(KEY, None, row)
        slow = [sink.begin(KEY, row) for sink in (staging, production)]
        time.sleep(1.1)
        assert staging.write(KEY, row, SinkRow(fence=2))
        assert slow[0] is not None
        assert slow[1] is not None
        with pytest.raises(sqlalchemy.exc.DBAPIError, match="terminating connection"):
            slow[0].commit(row)
        assert slow[1].commit(SinkRow(fence=3))
    finally:
        staging.engine.dispose()
        with database.engine.begin() as connection:
            connection.execute(sqlalchemy.text('DROP SCHEMA "Staging" CASCADE'))


def test_a_lost_connection_of_the_same_worker_does_not_hold_up_its_next_transaction(
    database: Database,
) -> None:
    """After a cut network, the server still has the session, which never says anything again."""
    sink = SqlSink(database.engine)
    sink.ensure_ready()
    row = SinkRow(fence=1)
    assert sink.write(KEY, None, row)
    lost = sink.begin(KEY, row)
    assert lost is not None
    lost.handle.execute(EFFECTS.insert().values(number=1))
    time.sleep(1.1)
    sink.on_failure(KEY)  # what the driver's error leads to
    again = sink.begin(KEY, row)
    assert again is not None
    again.handle.execute(EFFECTS.insert().values(number=1))
    assert again.commit(row)
    lost.rollback()


def test_a_server_that_does_not_permit_it(database: Database, postgres: str, caplog: Any) -> None:
    """As some databases that speak PostgreSQL's protocol: the sink works without."""
    statements = (
        "DROP ROLE IF EXISTS plain",
        "CREATE ROLE plain LOGIN",
        "GRANT ALL ON SCHEMA public TO plain",
        "REVOKE EXECUTE ON FUNCTION pg_try_advisory_xact_lock_shared(bigint) FROM public",
    )
    with database.engine.begin() as connection:
        for statement in statements:
            connection.execute(sqlalchemy.text(statement))
    sink = SqlSink(postgres.replace("test@", "plain@"), table="plain")
    try:
        sink.ensure_ready()
        assert "does not let this user end the transactions of stopped processes" in caplog.text
        row = SinkRow(fence=1)
        assert sink.write(KEY, None, row)
        transaction = sink.begin(KEY, row)
        assert transaction is not None
        assert transaction.commit(row)
    finally:
        sink.close()
        with database.engine.begin() as connection:
            for statement in (
                "DROP OWNED BY plain",
                "DROP ROLE plain",
                "GRANT EXECUTE ON FUNCTION pg_try_advisory_xact_lock_shared(bigint) TO public",
            ):
                connection.execute(sqlalchemy.text(statement))


def test_a_connection_that_goes_silent_is_noticed(postgres: str) -> None:
    """The machine of the server loses power: nothing would arrive at all."""
    sink = SqlSink(postgres)
    with sink.engine.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        with socket.socket(fileno=os.dup(driver.fileno())) as wire:
            assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
            assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
    sink.close()


@pytest.mark.parametrize("name", ["nobody:secret@", "/nothing"])
def test_a_wrong_user_or_database_is_an_error_of_configuration(postgres: str, name: str) -> None:
    url = (
        postgres.replace("test@", name) if name.endswith("@") else postgres.rpartition("/")[0] + name
    ) + "?application_name=secret"
    with pytest.raises(ConfigError, match=r"refused the connection.*does not exist") as caught:
        SqlSink(url).ensure_ready()
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="refused"):
        asyncio.run(AsyncSqlSink(url).ensure_ready())
    with pytest.raises(TransientSinkError):
        SqlSink(url).read(
            KEY
        )  # a worker that runs does not stop: a password may be changed, or a server restored


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_contract_with_coroutines(check: Any, database: Database, postgres: str) -> None:
    async def write(handle: Any, effect: str) -> None:
        await handle.execute(EFFECTS.insert().values(record_id=effect))

    sink = AsyncSqlSink(create_async_engine(postgres, poolclass=sqlalchemy.pool.NullPool))
    check(SinkUnderTest.of_async(sink, write, lambda: [record_id for _, record_id, _ in database.effects()]))


def test_coroutines_that_lock_the_same_rows_in_opposite_order_do_not_hang(
    database: Database, postgres: str
) -> None:
    """Each shard locks one row, waits until the other shard has locked the other one, and then wants both.

    With statements that block the event loop, the second one would wait for the coroutine that it keeps from going on. Here, PostgreSQL
    finds the deadlock and ends one of the transactions, whose batch is processed again.
    """
    with database.engine.begin() as connection:
        connection.execute(EFFECTS.insert(), [{"shard": "a", "number": 1}, {"shard": "b", "number": 2}])
    both = asyncio.Event()
    attempts: Counter[str] = Counter()

    async def handle(batch: Any) -> None:
        first, second = (1, 2) if batch.shard_id.endswith("0") else (2, 1)
        lock = "UPDATE effects SET data = coalesce(data, '') || 'x' WHERE number = :number"
        attempts[batch.shard_id] += 1
        await batch.transaction.execute(sqlalchemy.text(lock), {"number": first})
        if len(attempts) == 2:
            both.set()
        await both.wait()
        await batch.transaction.execute(sqlalchemy.text(lock), {"number": second})
        await batch.transaction.execute(
            EFFECTS.insert(),
            [{"shard": batch.shard_id, "data": record.data.decode()} for record in batch.records],
        )

    with start_server_process() as server:
        kinesis = boto3.client("kinesis", endpoint_url=server.endpoint_url)
        kinesis.create_stream(StreamName="orders", ShardCount=2)
        for shard, key in enumerate(("0", str(2**127))):
            kinesis.put_record(
                StreamName="orders", Data=f"of {shard}".encode(), PartitionKey="k", ExplicitHashKey=key
            )
        worker = Worker(
            "orders",
            application_name="app",
            handler=handle,
            sink=AsyncSqlSink(create_async_engine(postgres, poolclass=sqlalchemy.pool.NullPool)),
            config=ConsumerConfig(initial_position="TRIM_HORIZON"),
            endpoint_url=server.endpoint_url,
        )
        worker.start()
        deadline = time.monotonic() + HANG
        while len(database.effects()) < 4:
            assert time.monotonic() < deadline, (attempts, worker.health())
            time.sleep(0.1)
        worker.stop()
        worker.wait()
    rows = database.effects()
    assert sorted(data.decode() for _, _, data in rows) == ["of 0", "of 1", "xx", "xx"]
    assert sum(attempts.values()) > 2, "one of the transactions was ended and repeated"
