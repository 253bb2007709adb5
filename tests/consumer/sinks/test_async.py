"""Handlers that are coroutine functions: sinks with coroutines, and what sinks without them must not do on the event loop."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kinesis_sdk.common.errors import ConfigError, SinkError, TransientSinkError
from kinesis_sdk.consumer import BisectBatch, ConsumerConfig, RecordHandler
from kinesis_sdk.consumer.runtime.threads import run_inline
from kinesis_sdk.consumer.sinks.handler import SinkHandler
from kinesis_sdk.consumer.sinks.memory import InMemorySink
from kinesis_sdk.consumer.sinks.sink import SinkRow
from kinesis_sdk.testing.contracts.sinks import SINK_CHECKS, SinkUnderTest
from tests import HANG
from tests.consumer.fleet.engines import UNHURRIED
from tests.consumer.sinks.coroutines import AsyncMemory, CoroutineBooks
from tests.consumer.sinks.house import House
from tests.consumer.sinks.sql_effects import EFFECTS

sqlalchemy = pytest.importorskip("sqlalchemy")
pytest.importorskip("aiosqlite")

from sqlalchemy.ext.asyncio import create_async_engine  # noqa: E402

from kinesis_sdk.consumer.sinks.sql import AsyncSqlSink, SqlSink  # noqa: E402


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_contract_in_memory(check):
    sink = AsyncMemory()

    async def write(handle, effect):
        handle.append(effect)

    check(SinkUnderTest.of_async(sink, write, lambda: list(sink.effects)))


@pytest.fixture
def url(tmp_path):
    return f"sqlite+aiosqlite:///{tmp_path}/effects.db"


class Database:
    """A SQLite file, whose asynchronous connections each live for one transaction: each coroutine of a test has its own loop."""

    def __init__(self, url):
        self.url = url.replace("+aiosqlite", "")
        self.engine = sqlalchemy.create_engine(self.url)
        EFFECTS.metadata.create_all(self.engine)
        options = {"poolclass": sqlalchemy.pool.NullPool, "connect_args": {"timeout": 30}}
        self.sink = AsyncSqlSink(create_async_engine(url, **options))

    def effects(self):
        with self.engine.connect() as connection:
            rows = connection.execute(EFFECTS.select().order_by(EFFECTS.c.number)).all()
        return [(row.shard, row.record_id, (row.data or "").encode()) for row in rows]


@pytest.fixture
def database(url):
    database = Database(url)
    yield database
    database.engine.dispose()


async def insert(transaction, effect):
    shard, record_id, data = effect
    await transaction.execute(EFFECTS.insert().values(shard=shard, record_id=record_id, data=data.decode()))


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_contract_on_sqlite(check, database):
    check(
        SinkUnderTest.of_async(
            database.sink,
            lambda handle, effect: insert(handle, ("", effect, b"")),
            lambda: [record_id for _, record_id, _ in database.effects()],
        )
    )


def test_a_fleet_on_sqlite(database):
    books = CoroutineBooks(1, sink=database.sink, write=insert, freezes=False).play(
        turns=8, splits=(3,), merges=(6,)
    )
    books.check(database.effects())
    assert books.count > 2, "workers crashed"


@pytest.mark.parametrize("sink", [AsyncMemory, InMemorySink])
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_hook_of_either_kind_sets_a_record_aside_with_its_position(sink, is_coroutine):
    """A plain hook may block, so it does not run on the event loop."""
    loops = []

    def keep(poison):
        loops.append(asyncio._get_running_loop())
        poison.transaction.append(("aside", poison.record.data))

    async def keep_later(poison):
        await asyncio.sleep(0)
        keep(poison)

    policy = BisectBatch(dead_letter=keep_later if is_coroutine else keep, attempts=1)
    house = House(config=replace(UNHURRIED, on_handler_error=policy), sink=sink())

    async def handle(batch):
        batch.transaction.extend(("w1", record.data) for record in batch.records)
        if any(record.data == b"1" for record in batch.records):
            raise ValueError

    house.fleet.add("w1", handle)
    house.put_and_run(2, 30)
    assert house.sink.effects == [("w1", b"0"), ("aside", b"1")]
    assert [loop is not None for loop in loops] == [is_coroutine]
    house.fleet.crash("w1")
    house.fleet.add("w2", handle)
    house.fleet.run(60)
    assert len(loops) == 1, "the position has passed the record"


def test_the_end_of_a_shard_that_the_sink_has_already_is_told_on_the_event_loop():
    told = []

    class Handler(RecordHandler):
        def process_records(self, batch):
            raise AssertionError

        def shard_ended(self, checkpointer):
            told.append(asyncio.get_running_loop())

    shard = SimpleNamespace(is_async=True, row=SinkRow(ended=True))
    ending = SinkHandler(Handler(), shard, concurrency=1).shard_ended(None)
    assert not told
    assert asyncio.run(ending) is None
    assert len(told) == 1


def test_plain_functions_need_a_sink_without_coroutines():
    house = House(sink=AsyncMemory())
    house.add("w1")
    with pytest.raises(SinkError, match="coroutine function"):
        house.put_and_run(5, 30)
    assert house.data == []


def test_a_coroutine_needs_a_sink_whose_statements_wait_for_nobody(database):
    """In PostgreSQL, the statement of one shard would wait for a row that another one has locked, and block the loop of both."""
    sink = SqlSink(database.engine)
    assert sink.serves_coroutines
    sink.serves_coroutines = False  # as on every database but SQLite
    house = House(sink=sink)

    async def handle(batch):
        raise AssertionError("not to be reached")

    house.fleet.add("w1", handle)
    with pytest.raises(SinkError, match="AsyncSqlSink"):
        house.put_and_run(5, 30)


class Blocking(InMemorySink):
    """Begins and commits only while the event loop goes on: each call waits until a task of the loop has run."""

    max_records = 1

    def __init__(self):
        super().__init__()
        self.loop = None
        self.waited = 0

    def wait(self):
        if self.loop is not None:
            went_on = threading.Event()
            self.loop.call_soon_threadsafe(went_on.set)
            assert went_on.wait(HANG), "the event loop is blocked"
            self.waited += 1

    def begin(self, key, seen):
        self.wait()
        return super().begin(key, seen)

    def change(self, key, seen, row, effects):
        self.wait()
        return super().change(key, seen, row, effects)


def test_calls_of_a_sink_that_blocks_do_not_block_the_event_loop():
    house = House(sink=Blocking())

    async def handle(batch):
        house.sink.loop = asyncio.get_running_loop()
        batch.transaction.extend(("w1", record.data) for record in batch.records)

    run = house.fleet.run
    house.fleet.add("w1", handle)
    house.fleet.put(3)

    def runtime(awaitable, on_done):
        def done(error):
            house.sink.loop = None  # what follows runs on the thread of the step
            on_done(error)

        run_inline(awaitable, done)

    for engine in house.fleet.engines.values():
        engine._runtime.run_async = runtime
    run(30)
    assert house.data == house.fleet.sent
    assert house.sink.waited == 3, "three commits; transactions begin on the thread of the step"


@pytest.mark.parametrize("sink", [AsyncMemory, InMemorySink])
@pytest.mark.parametrize("stores", [True, False])
def test_a_cancellation_during_a_commit_is_told_after_its_end(sink, stores):
    """The commit is not cut off, so the row is never in doubt: what it stored is not delivered again."""
    house = House(config=ConsumerConfig(initial_position="TRIM_HORIZON"), sink=sink())
    tasks = []
    inner = getattr(house.sink, "inner", house.sink)
    change = inner.change
    cancelled = []

    def cancelling(key, seen, row, effects):
        if effects and not cancelled:
            cancelled.append(True)
            loop, task = tasks[-1]
            loop.call_soon_threadsafe(task.cancel)
            if not stores:
                raise TransientSinkError("the database is away")
        return change(key, seen, row, effects)

    inner.change = cancelling

    async def handle(batch):
        tasks.append((asyncio.get_running_loop(), asyncio.current_task()))
        batch.transaction.extend(("w1", record.data) for record in batch.records)

    house.fleet.add("w1", handle)
    house.put_and_run(5, 60)
    assert cancelled
    assert house.data == house.fleet.sent


@pytest.mark.parametrize("max_records", [None, 2], ids=["in one transaction", "in the second part"])
def test_a_cancelled_coroutine_leaves_no_transaction_open(tmp_path, max_records):
    """The connection would keep SQLite's only lock for writers, and no shard could go on."""
    engine = sqlalchemy.create_engine(
        f"sqlite:///{tmp_path}/effects.db",
        poolclass=sqlalchemy.pool.NullPool,
        connect_args={"timeout": 0.0, "check_same_thread": False},
    )
    EFFECTS.metadata.create_all(engine)
    sink = SqlSink(engine)
    sink.max_records = max_records
    house = House(sink=sink)
    kept = []  # as a traceback may do; the garbage collector would close it otherwise

    async def handle(batch):
        kept.append(batch.transaction)
        effects = [{"data": record.data.decode()} for record in batch.records]
        batch.transaction.execute(EFFECTS.insert(), effects)
        if len(kept) == (2 if max_records else 1):
            asyncio.current_task().cancel()
            await asyncio.sleep(0)

    house.fleet.add("w1", handle)
    house.put_and_run(3, 30)
    assert all(connection.closed for connection in kept)
    assert len(kept) == (3 if max_records else 2)
    with engine.connect() as connection:
        found = connection.execute(sqlalchemy.select(EFFECTS.c.data).order_by(EFFECTS.c.number)).scalars()
        assert [data.encode() for data in found] == house.fleet.sent


def test_databases_that_are_not_for_coroutines(tmp_path):
    with pytest.raises(ConfigError, match="asynchronous driver"):
        AsyncSqlSink(f"sqlite:///{tmp_path}/a.db")
    with pytest.raises(ConfigError, match="asynchronous driver"):
        AsyncSqlSink(sqlalchemy.create_engine(f"sqlite:///{tmp_path}/a.db"))
    with pytest.raises(ConfigError, match="in memory"):
        AsyncSqlSink("sqlite+aiosqlite://")
    with pytest.raises(ConfigError, match="AsyncSqlSink"):
        SqlSink(f"sqlite+aiosqlite:///{tmp_path}/a.db")
    with pytest.raises(ConfigError, match="database"):
        SqlSink(create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/a.db"))


def test_an_engine_of_its_own_is_closed(url):
    async def use():
        sink = AsyncSqlSink(url)
        await sink.ensure_ready()
        await sink.close()
        given = AsyncSqlSink(sink.engine)
        await given.ensure_ready()
        await given.close()
        assert given.engine.pool.checkedin() == 1
        await sink.close()
        assert given.engine.pool.checkedin() == 0

    asyncio.run(use())


def test_a_start_waits_for_an_asynchronous_sink_that_is_away_for_a_moment():
    class Starting(AsyncMemory):
        failures = 4

        async def ensure_ready(self):
            if self.failures:
                self.failures -= 1
                raise TransientSinkError("the database is starting")

    house = House(sink=Starting())

    async def handle(batch):
        batch.transaction.extend(("w1", record.data) for record in batch.records)

    house.fleet.add("w1", handle)
    house.put_and_run(5, 30)
    assert house.data == house.fleet.sent
