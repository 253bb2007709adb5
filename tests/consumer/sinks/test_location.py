"""A sink by its URL, and the mistakes that people make with one."""

from __future__ import annotations

import pytest

from kinesis_sdk.common.errors import ConfigError, ConsumerError
from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore, Worker
from kinesis_sdk.consumer.sinks.location import sink_at
from kinesis_sdk.consumer.sinks.memory import InMemorySink
from kinesis_sdk.consumer.sinks.sql import AsyncSqlSink, SqlSink
from kinesis_sdk.testing import FakeAws

sqlalchemy = pytest.importorskip("sqlalchemy")
TEXT = sqlalchemy.text


class Scenario:
    def __init__(self):
        self.kinesis = FakeAws().client("kinesis")
        self.kinesis.create_stream(StreamName="orders", ShardCount=1)
        self.kinesis.put_record(StreamName="orders", PartitionKey="k", Data=b"1")

    def worker(self, handler, **more):
        return Worker(
            "orders",
            application_name="totals",
            handler=handler,
            kinesis_client=self.kinesis,
            lease_store=InMemoryLeaseStore(),
            config=ConsumerConfig(initial_position="TRIM_HORIZON"),
            until="now",
            **more,
        )


def test_the_kinds_of_urls(tmp_path):
    assert isinstance(sink_at("sink", "memory://"), InMemorySink)
    assert isinstance(sink_at("sink", f"sqlite:///{tmp_path}/a.db"), SqlSink)
    pytest.importorskip("aiosqlite")
    assert isinstance(sink_at("sink", f"sqlite+aiosqlite:///{tmp_path}/b.db"), AsyncSqlSink)
    own = InMemorySink()
    assert sink_at("sink", own) is own


@pytest.mark.parametrize("driver", ["", "+aiosqlite"])
def test_a_worker_with_the_url_of_a_sink_closes_what_it_opened(driver, tmp_path):
    if driver:
        pytest.importorskip("aiosqlite")
    url = f"sqlite{driver}:///{tmp_path}/totals.db"
    statement = TEXT("create table if not exists paid as select 'none' as data")

    def handle(batch):
        batch.transaction.execute(statement)

    async def handle_later(batch):
        await batch.transaction.execute(statement)

    worker = Scenario().worker(handle_later if driver else handle, sink=url)
    engine = worker._sink.engine
    worker.run()
    pool = engine.sync_engine.pool if driver else engine.pool
    assert pool.checkedin() == 0, "no connection is left open"
    with sqlalchemy.create_engine(f"sqlite:///{tmp_path}/totals.db").connect() as connection:
        assert connection.execute(TEXT("select data from paid")).scalars().all() == ["none"]
        assert len(connection.execute(TEXT("select * from kinesis_sdk_positions")).all()) == 1


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        (5, "sink=5 is invalid: expected a sink, or the URL of one: 'sqlite:///totals.db'"),
        ("totals.db", "sink='totals.db' is invalid: expected a sink, or the URL of one"),
        ("oracle9000://host/x", "sink='oracle9000://host/x' is invalid: expected a database URL"),
        ("sqlite://", "sink='sqlite://' is invalid: expected a database in a file"),
        ("x://user:secret@host:port/x", "sink='x://host:port/x' is invalid"),
    ],
)
def test_what_is_no_sink(sink, words):
    with pytest.raises(ConfigError) as caught:
        Scenario().worker(print, sink=sink)
    assert str(caught.value).startswith(words)


def test_an_engine_is_not_a_sink(tmp_path):
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/a.db")
    with pytest.raises(ConfigError, match=r"SqlSink\(engine\)"):
        Scenario().worker(print, sink=engine)


def test_a_transaction_without_a_sink():
    told = []

    def handle(batch):
        assert not batch.transaction
        assert not hasattr(batch.transaction, "__len__")
        try:
            batch.transaction.execute("insert")
        except ConsumerError as error:
            told.append((str(error), repr(batch.transaction)))

    Scenario().worker(handle).run()
    assert told == [
        (
            "batch.transaction.execute: the worker has no sink. Give it one: Worker(…, sink='sqlite:///totals.db')",
            "<no transaction: the worker has no sink>",
        )
    ]
