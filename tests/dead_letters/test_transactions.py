"""Dead letters in the database of a sink: stored with the position that passes the record, or not at all."""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kinesis_sdk.consumer import BisectBatch
from kinesis_sdk.dead_letters import DeadLetters, SqlDeadLetters
from tests.consumer.fleet.engines import UNHURRIED
from tests.consumer.sinks.house import House
from tests.dead_letters.letters import letter

sqlalchemy = pytest.importorskip("sqlalchemy")

from kinesis_sdk.consumer.sinks.sql import AsyncSqlSink, SqlSink  # noqa: E402
from kinesis_sdk.consumer.sql import is_shared, run_in  # noqa: E402


def poison(batch):
    if any(record.data == b"1" for record in batch.records):
        raise ValueError("poison")


@pytest.mark.parametrize("fails", [False, True])
def test_a_letter_is_committed_with_the_position(tmp_path, fails, monkeypatch):
    """On SQLite, a connection of its own could not even write: the sink's transaction has the only lock."""
    url = f"sqlite:///{tmp_path}/all.db"
    sink, letters = SqlSink(url), SqlDeadLetters(url)
    house = House(
        config=replace(UNHURRIED, on_handler_error=BisectBatch(dead_letter=DeadLetters(letters), attempts=1)),
        sink=sink,
    )
    if fails:  # after the letter was written
        monkeypatch.setattr("kinesis_sdk.consumer.sinks.sql.SqlTransaction.commit", broken)
    house.add("w1", poison)
    house.fleet.put(2)
    house.fleet.run(8)
    found = [letter.history.attempt for letter in letters.letters()]
    assert found == ([] if fails else [1])
    letters.close()
    sink.close()


def broken(transaction, _row):
    transaction.rollback()
    raise OSError("cut off")


def test_a_letter_for_a_coroutine_sink_is_written_on_its_connection(tmp_path):
    pytest.importorskip("aiosqlite")
    from sqlalchemy.ext.asyncio import create_async_engine

    url = f"{tmp_path}/all.db"
    engine = create_async_engine(f"sqlite+aiosqlite:///{url}", poolclass=sqlalchemy.pool.NullPool)
    letters = SqlDeadLetters(f"sqlite:///{url}")
    config = replace(UNHURRIED, on_handler_error=BisectBatch(dead_letter=DeadLetters(letters), attempts=1))
    house = House(config=config, sink=AsyncSqlSink(engine))

    async def handle(batch):
        await asyncio.sleep(0)
        poison(batch)

    house.fleet.add("w1", handle)
    house.fleet.put(2)
    house.fleet.run(8)
    assert [letter.history.error for letter in letters.letters()] == ["ValueError"]
    letters.close()


def test_only_a_connection_to_the_same_database_is_shared(tmp_path):
    one, same, other = (
        sqlalchemy.create_engine(f"sqlite:///{tmp_path}/{name}") for name in ("a.db", "a.db", "b.db")
    )
    memory = sqlalchemy.create_engine("sqlite://")
    with one.connect() as connection, memory.connect() as in_memory:
        assert is_shared(connection, one)
        assert is_shared(connection, same)
        assert not is_shared(connection, other)
        assert is_shared(in_memory, memory)
        assert not is_shared(in_memory, sqlalchemy.create_engine("sqlite://"))
        assert run_in(connection, lambda given: given) is connection
    socket = sqlalchemy.engine.Connection.__new__(sqlalchemy.engine.Connection)
    socket.engine = SimpleNamespace(
        url=sqlalchemy.make_url("postgresql:///letters?host=/run/a&sslmode=disable")
    )
    for query, is_same in (("host=/run/a", True), ("host=/run/b", False)):
        url = sqlalchemy.make_url(f"postgresql:///letters?{query}")
        assert is_shared(socket, SimpleNamespace(url=url)) == is_same
    for nothing in (None, [], object()):
        assert not is_shared(nothing, one)


@pytest.mark.parametrize("is_shared", [False, True])
def test_an_error_of_the_database_shows_no_record(tmp_path, is_shared):
    letters = SqlDeadLetters(f"sqlite:///{tmp_path}/all.db")
    letters.keep(letter(1))
    with letters._engine.begin() as connection:
        connection.execute(sqlalchemy.text("DROP TABLE kinesis_sdk_dead_letters"))
        connection.execute(sqlalchemy.text("CREATE TABLE kinesis_sdk_dead_letters (id TEXT)"))
    wrong = letter(2, partition_key="sec" + "ret", data=b"x")
    with pytest.raises(Exception, match="no such column") as caught, letters._engine.begin() as connection:
        letters.keep_with(wrong, connection if is_shared else None)
    assert "secret" not in "".join(traceback.format_exception(caught.value))
    letters.close()
