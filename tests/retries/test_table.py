"""Records that fail and wait in a table, in virtual time; the sink and the table share a SQLite file."""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import contextmanager
from dataclasses import replace

import pytest

from kinesis_sdk.common.dead_letters import History
from kinesis_sdk.common.error_policy import PoisonRecord
from kinesis_sdk.common.errors import ConfigError, ConsumerError, HandlerError, TransientSinkError
from kinesis_sdk.common.interceptors import ConsumerInterceptor
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import CircuitBreaker, RecordBatch, StopWorker
from kinesis_sdk.retries import RetryTable, RetryTiers, RetryWorker
from tests import fuzz
from tests.consumer.fleet.engines import UNHURRIED
from tests.consumer.sinks.house import House

sqlalchemy = pytest.importorskip("sqlalchemy")

from kinesis_sdk.consumer.sinks.sql import SqlSink  # noqa: E402

EFFECTS = sqlalchemy.Table(
    "effects",
    sqlalchemy.MetaData(),
    sqlalchemy.Column("number", sqlalchemy.Integer, primary_key=True),
    sqlalchemy.Column("data", sqlalchemy.LargeBinary),
)
DELAYS = (4, 8)


class Scene:
    """A worker with a sink, and a `RetryWorker` that the test steps."""

    def __init__(self, path, *, keep_order=False, policy=None, **options):
        engine = sqlalchemy.create_engine(f"sqlite:///{path}/all.db")
        # The tests kill no machine, and waiting for the disk is most of their time.
        sqlalchemy.event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=OFF"))
        self.sink = SqlSink(engine)
        EFFECTS.metadata.create_all(self.sink.engine)
        self.bad, self.calls, self.dead = set(), [], []
        self.house = House(sink=self.sink)
        self.clock = self.house.fleet.clock
        self.table = RetryTable(
            self.sink.engine, application_name="totals", keep_order=keep_order, clock=self.clock
        )
        self.tiers = RetryTiers(DELAYS, to=self.table, dead_letter=self.dead.append, attempts=1, **options)
        self.retries = RetryWorker(
            self.table,
            self.tiers,
            self.handle,
            policy=policy and policy(self.tiers),
            rng=random.Random(1),
        )
        self.config = replace(UNHURRIED, on_handler_error=self.tiers)

    def handle(self, batch):
        for record in batch.records:
            batch.transaction.execute(EFFECTS.insert().values(data=record.data))
            self.calls.append((record.data, batch.stream.name, record.id))
            if record.data in self.bad:
                raise ValueError("secret")

    def add(self, name="w1", **more):
        handler = self.table.in_order(self.handle) if self.table.keeps_order else self.handle
        self.house.add(name, handler, config=self.config, **more)

    def put(self, *keyed):
        for key, data in keyed:
            self.house.fleet.raw.put_record(StreamName="orders", PartitionKey=key, Data=data)

    def run(self, seconds):
        """Let time pass; every second, the retry worker delivers what is due."""
        for _ in range(seconds):
            self.house.fleet.run(1)
            for _ in range(20):
                if self.retries.step():
                    break

    def effects(self):
        with self.sink.engine.connect() as connection:
            query = sqlalchemy.select(EFFECTS.c.data).order_by(EFFECTS.c.number)
            return list(connection.execute(query).scalars())


@pytest.fixture
def scene(tmp_path):
    made = Scene(tmp_path)
    yield made
    made.sink.close()


def test_a_row_is_delivered_when_it_is_due_and_then_is_gone(scene):
    scene.bad = {b"b"}
    scene.add()
    scene.put(("k", b"a"), ("k", b"b"), ("k", b"c"))
    scene.run(2)
    assert scene.effects() == [b"a", b"c"]
    ((tier, count, late),) = scene.table.waiting()
    assert (tier, count) == (0, 1)
    assert -4 <= late < 0
    scene.bad.clear()
    scene.run(4)
    assert scene.effects() == [b"a", b"c", b"b"]
    assert scene.table.waiting() == []
    data, stream, identity = scene.calls[-1]
    assert (data, stream) == (b"b", "orders")
    assert identity == next(one for name, _, one in scene.calls if name == b"b"), "the original record.id"


def test_after_the_last_tier_it_is_a_dead_letter_and_nothing_of_its_effects_stays(scene):
    scene.bad = {b"x"}
    scene.add()
    scene.put(("k", b"x"))
    scene.run(16)
    assert scene.effects() == []
    (dead,) = scene.dead
    history = History.of(dead.record.headers)
    assert (history.attempt, history.error, dead.transaction is not None) == (2, "ValueError", True)
    assert scene.table.waiting() == []
    assert [name for name, *_ in scene.calls] == [b"x"] * 3


def test_row_and_position_are_stored_together(scene, monkeypatch):
    """A worker that dies before the commit leaves neither, and one that dies after it both."""
    scene.bad = {b"x"}
    lost = []

    def dying(transaction, _row):
        lost.append(True)
        transaction.rollback()
        raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr("kinesis_sdk.consumer.sinks.sql.SqlTransaction.commit", dying)
        scene.add()
        scene.put(("k", b"x"), ("k", b"y"))
        scene.house.fleet.run(3)
        scene.house.fleet.crash("w1")
    assert lost
    assert scene.table.waiting() == []
    scene.add("w2")
    scene.house.fleet.run(45)
    assert [one.records for one in scene.table.waiting()] == [1]
    scene.house.fleet.crash("w2")
    scene.add("w3")
    scene.house.fleet.run(45)
    assert [one.records for one in scene.table.waiting()] == [1]
    scene.bad.clear()
    scene.run(1)
    assert sorted(scene.effects()) == [b"x", b"y"]


def test_without_a_transaction_a_record_that_comes_again_has_one_row(scene):
    for _ in range(2):
        scene.table.keep(poison(), 0)
    assert [one.records for one in scene.table.waiting()] == [1]


def poison(**more):
    record = UserRecord(b"x", "k", "1", headers={"own": b"1"})
    return PoisonRecord(
        record=record,
        error=ValueError(),
        attempts=1,
        shard_id="shardId-000000000000",
        stream=StreamId("orders"),
        **more,
    )


def test_later_records_of_a_key_wait_behind_it(tmp_path):
    scene = Scene(tmp_path, keep_order=True)
    scene.bad = {b"a1"}
    scene.add()
    scene.put(("a", b"a1"), ("a", b"a2"), ("b", b"b1"))
    scene.run(1)
    scene.put(("a", b"a3"), ("b", b"b2"))
    scene.run(2)
    assert scene.effects() == [b"b1", b"b2"]
    assert [one.records for one in scene.table.waiting()] == [3]
    scene.bad = {b"a2"}
    scene.run(3)
    assert scene.effects() == [b"b1", b"b2", b"a1"], "a2 fails in its turn, and a3 waits behind it"
    assert [(one.tier, one.records) for one in scene.table.waiting()] == [(0, 2)], "it has just failed once"
    scene.bad.clear()
    scene.put(("a", b"a4"))
    scene.run(6)
    assert scene.effects() == [b"b1", b"b2", b"a1", b"a2", b"a3", b"a4"]
    scene.put(("a", b"a5"))
    scene.run(2)
    assert scene.effects()[-1] == b"a5"
    assert scene.table.waiting() == []
    scene.sink.close()


def test_a_record_that_waits_behind_another_one_keeps_its_history(tmp_path):
    """It is a dead letter that was replayed: its handler knows it by its origin, and its next failure is another attempt."""
    scene = Scene(tmp_path, keep_order=True)
    headers = {"own": b"1", "retry-origin": b"orders/shardId-000000000000/1/0", "retry-attempt": b"7"}
    handle = scene.table.in_order(pytest.fail)
    with scene.sink.engine.begin() as connection:
        scene.table.keep(poison(transaction=connection), 0)
        batch = RecordBatch(
            records=[UserRecord(b"y", "k", "2", headers=headers)],
            shard_id="shardId-000000000000",
            stream=StreamId("orders"),
            checkpointer=None,
            transaction=connection,
        )
        handle(batch)
    scene.clock.advance(5)
    got = []
    worker = RetryWorker(scene.table, scene.tiers, lambda one: got.extend(one.records))
    assert [worker.step(), worker.step()] == [0.0, 0.0]
    assert [record.data for record in got] == [b"x", b"y"]
    assert got[1].headers == headers
    scene.sink.close()


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", fuzz.seeds(unit=1, fuzz=20))
def test_each_key_keeps_its_order_whatever_fails(tmp_path, seed):
    scene = Scene(tmp_path, keep_order=True)
    rng = random.Random(seed)
    scene.add()
    sent = {key: [] for key in "abc"}
    for number in range(5):
        for key in "abc":
            data = f"{key}{number:02}".encode()
            sent[key].append(data)
            scene.put((key, data))
        every = [data for records in sent.values() for data in records]
        scene.bad = set(rng.sample(every, 2))
        scene.run(rng.randrange(1, 4))
    scene.bad.clear()
    scene.run(16)
    dead = {one.record.data for one in scene.dead}
    for key, records in sent.items():
        done = [data for data in scene.effects() if data.startswith(key.encode())]
        assert done == [data for data in records if data not in dead]
    scene.sink.close()


def test_the_order_needs_the_wrapped_handler_and_the_sink(tmp_path, scene):
    with pytest.raises(ConfigError, match=r"^keep_order="):
        scene.table.in_order(print)
    table = RetryTable(f"sqlite:///{tmp_path}/o.db", application_name="totals", keep_order=True)
    RetryTiers((5,), to=table, dead_letter=print)
    with pytest.raises(ConsumerError, match="never wrapped"):
        table.keep(poison(), 0)
    handle = table.in_order(lambda _batch: None)
    with pytest.raises(ConsumerError, match="needs a SqlSink"):
        table.keep(poison(), 0)
    with pytest.raises(ConsumerError, match="needs a SqlSink"):
        handle(RecordBatch(records=[], shard_id="s", stream=StreamId("orders"), checkpointer=None))
    with pytest.raises(ConfigError, match=r"^handler="):
        table.in_order(None)
    table.close()


def test_an_open_circuit_leaves_rows_where_they_are(tmp_path):
    scene = Scene(
        tmp_path, policy=lambda tiers: CircuitBreaker(tiers, failures=2, first_pause=5, longest_pause=40)
    )
    scene.bad = {b"x", b"y", b"z"}
    scene.add()
    scene.put(("1", b"x"), ("2", b"y"), ("3", b"z"))
    scene.house.fleet.run(8)
    assert scene.retries.step() == 0.0, "the first failure moves its row to the next tier"
    pauses = [scene.retries.step() for _ in range(6)]
    assert 2.5 <= pauses[0] <= 5
    assert 20 <= pauses[-1] <= 40
    assert [one.records for one in scene.table.waiting()] == [2, 1]
    scene.bad.clear()
    assert scene.retries.step() == 0.0
    assert len(scene.effects()) == 1
    scene.sink.close()


def test_poison_rows_in_a_row_do_not_keep_a_circuit_open_for_ever(tmp_path):
    scene = Scene(tmp_path, policy=lambda tiers: CircuitBreaker(tiers, failures=2, first_pause=1, probes=3))
    scene.bad = {b"x", b"y", b"z"}
    scene.add()
    scene.put(("1", b"x"), ("2", b"y"), ("3", b"z"))
    scene.house.fleet.run(8)
    for _ in range(60):
        scene.clock.advance(scene.retries.step())
    assert sorted(poison.record.data for poison in scene.dead) == [b"x", b"y", b"z"]
    assert scene.table.waiting() == []
    scene.sink.close()


def test_retries_in_place_are_counted_in_the_row(tmp_path):
    scene = Scene(tmp_path, retry_only=(ConnectionError,), initial_delay=2, max_delay=2)
    scene.table.keep(poison(), 0)
    calls = []

    def away(_batch):
        calls.append(scene.clock.monotonic())
        raise ConnectionError

    worker = RetryWorker(scene.table, scene.tiers, away, rng=random.Random(1))
    scene.clock.advance(11)
    for _ in range(20):
        scene.clock.advance(worker.step())
    assert len(calls) > 5
    assert all(after - before >= 1 for before, after in itertools.pairwise(calls))
    assert [(one.tier, one.records) for one in scene.table.waiting()] == [(0, 1)]
    scene.sink.close()


def test_a_dead_letter_hook_that_fails_is_called_again_and_blocks_no_other_row(scene):
    worker = RetryWorker(scene.table, scene.tiers, lambda _batch: 1 / 0, rng=random.Random(1))
    scene.table.keep(poison(), 1)
    scene.tiers.dead_letter = lambda _poison: 1 / 0
    scene.clock.advance(31)
    assert worker.step() == 0.0
    assert [one.records for one in scene.table.waiting()] == [1]
    scene.tiers.dead_letter = scene.dead.append
    scene.clock.advance(1)
    worker.step()
    assert len(scene.dead) == 1


def test_a_row_is_decoded_and_delivered_inside_of_the_interceptors(scene):
    class Text:
        def deserialize(self, stream, data):
            return f"{stream}: {data.decode()}"

    class Telling(ConsumerInterceptor):
        @contextmanager
        def on_batch(self, batch):
            told.append(batch.records[0].value)
            yield
            told.append("left")

    told = []
    scene.table.keep(poison(), 0)
    scene.clock.advance(11)
    worker = RetryWorker(
        scene.table,
        scene.tiers,
        lambda batch: told.append(batch.records[0].value + batch.records[0].id),
        interceptors=[Telling()],
        deserializer=Text(),
    )
    assert worker.step() == 0.0
    assert told == ["orders: x", "orders: xorders/shardId-000000000000/1/0", "left"]


def test_what_a_retry_worker_cannot_use_is_an_error(scene):
    async def later(_batch):
        raise AssertionError

    scene.table.keep(poison(), 0)
    scene.clock.advance(11)
    with pytest.raises(HandlerError):
        RetryWorker(scene.table, scene.tiers, lambda _batch: 1 / 0, policy=StopWorker()).step()
    worker = RetryWorker(scene.table, scene.tiers, lambda _batch: later(None))
    assert worker.step() == 0.0
    assert [one.tier for one in scene.table.waiting()] == [0], (
        "an error of this package says nothing of the record"
    )
    for handler, database in ((later, None), (print, "sqlite+aiosqlite:///x.db"), (later, "sqlite:///x.db")):
        with pytest.raises(ConfigError, match=r"^database="):
            RetryWorker(scene.table, scene.tiers, handler, database=database)
    with pytest.raises(ConfigError, match=r"^database="):
        RetryWorker(scene.table, scene.tiers, later, database="sqlite+aiosqlite:///other.db")
    tiers = RetryTiers((5,), to=RetryTable(scene.sink.engine, application_name="b"), dead_letter=later)
    with pytest.raises(ConfigError, match=r"^tiers.dead_letter="):
        RetryWorker(scene.table, tiers, print)
    for handler in (RetryTable, lambda: None):
        with pytest.raises(ConfigError, match=r"^handler="):
            RetryWorker(scene.table, scene.tiers, handler)
    with pytest.raises(ConfigError, match=r"^poll_interval="):
        RetryWorker(scene.table, scene.tiers, print, poll_interval=0)


def test_a_coroutine_function_shares_its_transaction_with_the_row(tmp_path):
    pytest.importorskip("aiosqlite")
    from sqlalchemy.ext.asyncio import create_async_engine

    from kinesis_sdk.consumer import AsyncSqlSink

    url = f"{tmp_path}/all.db"
    engine, other = (
        create_async_engine(f"sqlite+aiosqlite:///{url}", poolclass=sqlalchemy.pool.NullPool) for _ in "ab"
    )
    plain = sqlalchemy.create_engine(f"sqlite:///{url}")
    EFFECTS.metadata.create_all(plain)
    house = House(sink=AsyncSqlSink(engine))
    clock, bad, dead = house.fleet.clock, {b"b", b"x"}, []
    table = RetryTable(plain, application_name="totals", keep_order=True, clock=clock)

    async def handle(batch):
        for record in batch.records:
            await batch.transaction.execute(EFFECTS.insert().values(data=record.data))
            if record.data in bad:
                raise ValueError("secret")

    async def bury(poison):
        await asyncio.sleep(0)
        dead.append(poison.record.data)

    tiers = RetryTiers((4,), to=table, dead_letter=bury, attempts=1)
    house.add("w1", table.in_order(handle), config=replace(UNHURRIED, on_handler_error=tiers))
    for key, data in (("1", b"a"), ("1", b"b"), ("1", b"c"), ("2", b"x"), ("1", b"d")):
        house.fleet.raw.put_record(StreamName="orders", PartitionKey=key, Data=data)
    house.fleet.run(3)
    assert [one.records for one in table.waiting()] == [4], "c and d wait behind b"
    bad.discard(b"b")
    worker = RetryWorker(table, tiers, handle, database=other)
    for _ in range(30):
        clock.advance(min(worker.step(), 1))
    worker._runs.close()
    assert (table.waiting(), dead) == ([], [b"x"])
    with plain.connect() as connection:
        query = sqlalchemy.select(EFFECTS.c.data).order_by(EFFECTS.c.number)
        assert list(connection.execute(query).scalars()) == [b"a", b"b", b"c", b"d"]
    with pytest.raises(ConsumerError, match="an AsyncSqlSink"):
        asyncio.run(_in_transaction(other, table.in_order(print)))


async def _in_transaction(engine, handler):
    async with engine.begin() as transaction:
        handler(
            RecordBatch(
                records=[],
                shard_id="s",
                stream=StreamId("orders"),
                checkpointer=None,
                transaction=transaction,
            )
        )


def test_a_database_that_is_away_is_a_transient_error(scene, monkeypatch):
    scene.table.tables.ensure()
    with scene.sink.engine.begin() as connection:
        connection.execute(sqlalchemy.text("DROP TABLE kinesis_sdk_retries"))
    with pytest.raises(TransientSinkError, match="no such table"):
        scene.retries.step()


def test_the_clock_of_the_database_decides(tmp_path):
    table = RetryTable(f"sqlite:///{tmp_path}/c.db", application_name="totals")
    RetryTiers((3600,), to=table, dead_letter=print)
    table.keep(poison(), 0)
    ((_, _, late),) = table.waiting()
    assert -3601 < late < -3500
    worker = RetryWorker(
        table,
        RetryTiers(
            (1,), to=RetryTable(f"sqlite:///{tmp_path}/d.db", application_name="x"), dead_letter=print
        ),
        print,
    )
    assert 0 < worker.step() <= 1
    table.close()


def test_an_error_of_the_database_shows_no_record(tmp_path):
    scene = Scene(tmp_path, keep_order=True)
    handle = scene.table.in_order(scene.handle)
    with scene.sink.engine.begin() as connection:
        scene.table.tables.ensure_in(connection)
        connection.execute(sqlalchemy.text("ALTER TABLE kinesis_sdk_retries RENAME COLUMN stream TO other"))
    keep = scene.table.keep
    for store in (handle, lambda batch: keep(replace(poison(), transaction=batch.transaction), 0)):
        with scene.sink.engine.begin() as connection:
            batch = RecordBatch(
                records=[poison().record],
                shard_id="s",
                stream=StreamId("orders"),
                checkpointer=None,
                transaction=connection,
            )
            with pytest.raises(sqlalchemy.exc.OperationalError, match="SQL parameters hidden"):
                store(batch)
    scene.sink.close()
