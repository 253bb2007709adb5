"""The outbox of a sink's transaction: what is stored with it, in which order it is put, and what a crash leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kinesis_sdk import ConfigError, Producer, ProducerConfig, Put
from kinesis_sdk.common.errors import ConsumerError, InvalidRecordError, RecordFailedError
from kinesis_sdk.common.headers import encode_headers
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import RecordBatch
from kinesis_sdk.pytest_plugin import SteppedWorker, TestStream
from kinesis_sdk.relay import Outbox, OutboxPublisher, outbox
from tests.consumer.fleet.engines import UNHURRIED
from tests.consumer.sinks.house import House

sqlalchemy = pytest.importorskip("sqlalchemy")

from kinesis_sdk.consumer import AsyncSqlSink, SqlSink  # noqa: E402

NAMED = ProducerConfig(idempotent=True, dedup_namespace="tests", record_max_buffered_time=0.001)


class Scene:
    """A worker whose handler writes an output for each record, and a publisher that the test steps."""

    def __init__(self, path: Path, *, is_async: bool = False) -> None:
        self.engine = sqlalchemy.create_engine(f"sqlite:///{path}/all.db")
        # The tests kill no machine, and waiting for the disk is most of their time.
        sqlalchemy.event.listen(self.engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=OFF"))
        sink: Any = SqlSink(self.engine)
        if is_async:
            from sqlalchemy.ext.asyncio import create_async_engine

            url = f"sqlite+aiosqlite:///{path}/all.db"
            sink = AsyncSqlSink(create_async_engine(url, poolclass=sqlalchemy.pool.NullPool))
        self.house = House(sink=sink)
        self.aws = self.house.fleet.aws
        self.bills = TestStream(self.aws, "bills")
        self.outbox = Outbox(self.engine, name="bills")
        self.fails: Callable[[], bool] = lambda: False
        self.producer = Producer(NAMED, client=self.bills.client)
        self.publisher = OutboxPublisher(self.outbox, self.producer)

    def handle(self, batch: RecordBatch) -> None:
        for record in batch.records:
            self.outbox.put(batch, Put("bills", record.partition_key, record.data, headers={"of": record.id}))
        if self.fails():
            raise ValueError("secret")

    async def handle_async(self, batch: RecordBatch) -> None:
        await asyncio.sleep(0)
        stored = self.outbox.put(batch, [Put("bills", "k", record.data) for record in batch.records])
        assert stored is not None
        await stored

    def run(self, handler: Any = None, seconds: float = 20) -> None:
        self.house.add("w1", handler or self.handle, config=replace(UNHURRIED, batch_records=3))
        self.house.fleet.put(5)
        self.house.fleet.run(seconds)

    def delivered(self) -> list[bytes]:
        """Return what a reader of this SDK gets, in its order."""
        found: list[bytes] = []
        SteppedWorker(self.bills, lambda batch: found.extend(one.data for one in batch.records)).run()
        return found

    def close(self) -> None:
        self.producer.close()
        self.engine.dispose()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def test_rows_are_stored_with_the_position_and_put_in_their_order(scene: Scene) -> None:
    attempts = iter(range(100))
    scene.fails = lambda: next(attempts) < 2  # they roll back
    scene.run(seconds=60)
    assert scene.outbox.waiting() == 5
    assert scene.bills.records == []
    assert scene.publisher.step() == 5
    assert scene.publisher.step() == 0
    assert scene.outbox.waiting() == 0
    assert len(scene.bills.records) == 5
    assert scene.delivered() == [b"0", b"1", b"2", b"3", b"4"]
    assert all(record.headers["of"].startswith(b"orders/") for record in scene.bills.records)


def test_a_publisher_that_dies_before_its_delete_makes_copies_with_the_same_ids(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.run()

    def die(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(scene.outbox, "finish", die)
        with pytest.raises(SystemExit):
            scene.publisher.step()
    assert OutboxPublisher(scene.outbox, scene.producer).step() == 5
    assert len(scene.bills.records) == 10
    assert scene.delivered() == [b"0", b"1", b"2", b"3", b"4"]


def test_a_row_that_is_not_stored_stays_and_those_before_it_go(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.run()
    put, calls = scene.producer.put, iter(range(10))

    def refuse(*arguments: Any, **more: Any) -> Any:
        if next(calls) == 2:
            raise InvalidRecordError("data", "too large")
        return put(*arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(scene.producer, "put", refuse)
        with pytest.raises(InvalidRecordError):
            scene.publisher.step()
    assert scene.outbox.waiting() == 3
    scene.publisher.step()
    assert scene.delivered() == [b"0", b"1", b"2", b"3", b"4"]


def test_a_stream_that_is_missing_is_an_error_and_the_row_stays(scene: Scene) -> None:
    def handle(batch: RecordBatch) -> None:
        scene.outbox.put(batch, [Put("nowhere", "k", record.data) for record in batch.records])

    scene.run(handle)
    with pytest.raises(RecordFailedError):
        scene.publisher.step()
    assert scene.outbox.waiting() == 5


def test_a_coroutine_writes_on_its_connection(tmp_path: Path) -> None:
    pytest.importorskip("aiosqlite")
    scene = Scene(tmp_path, is_async=True)
    scene.run(scene.handle_async)
    assert scene.publisher.step() == 5
    assert scene.delivered() == [b"0", b"1", b"2", b"3", b"4"]
    scene.close()


@pytest.mark.parametrize(
    ("put", "error"),
    [
        ("text", TypeError),
        (Put("bills", "k", "text"), TypeError),  # type: ignore[arg-type]
        (Put("bills", "k", b"x", dedup_id="mine"), ValueError),
        (Put("bills", None, b"x"), ValueError),
        (Put("bills", "k" * 257, b"x"), ValueError),
        (Put("bills", "k", bytes(1024 * 1024 - 256)), ValueError),
        (Put("bills", "k", b"x", dedup_window=3600), ValueError),
        (Put("bills", "k", b"x", dedup_window=0), ValueError),
        (Put("bills", "k", b"x", dedup_window=True), ValueError),
        (Put("bills", "k", b"x", dedup_window="abc"), ValueError),  # type: ignore[arg-type]
        (Put("no stream", "k", b"x"), ConfigError),
        (Put("bills", "k", b"x", "-1"), ValueError),
        (Put("bills", "k", b"x", headers={f"h{n}": b"" for n in range(65)}), ValueError),
    ],
)
def test_what_can_never_be_put_is_an_error_of_the_handler(
    scene: Scene, put: Any, error: type[Exception]
) -> None:
    with scene.engine.begin() as connection:
        batch: Any = RecordBatch(
            records=[],
            shard_id="s",
            stream=StreamId("orders"),
            checkpointer=None,  # type: ignore[arg-type]
            transaction=connection,
        )
        with pytest.raises(error) as caught:
            scene.outbox.put(batch, [put])
        assert not isinstance(caught.value, ConsumerError)
        with pytest.raises(ConsumerError, match="a SqlSink"):
            scene.outbox.put(replace(batch, transaction=None), [])


@pytest.mark.parametrize("headers", [None, {"h": b"x" * 1000}])
def test_the_largest_record_that_is_stored_can_be_put(scene: Scene, headers: Any) -> None:
    key, most = "\U0001f600" * 256, 1024 * 1024 - 256

    def handle(batch: RecordBatch) -> None:
        if any(record.data == b"0" for record in batch.records):
            around = 1024 if headers is None else 2048 + len(encode_headers(headers))
            put = Put("bills", key, bytes(most - around), 2**128 - 1, headers=headers, dedup_window=300)
            scene.outbox.put(batch, put)
            with pytest.raises(ValueError, match="too large"):
                scene.outbox.put(batch, put._replace(data=put.data + b"x"))

    scene.run(handle)
    assert scene.publisher.step() == 1
    assert len(scene.bills.records) == 1


def test_a_step_reads_no_more_than_its_bytes(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(batch: RecordBatch) -> None:
        scene.outbox.put(batch, [Put("bills", "k", bytes(300)) for _ in batch.records])

    scene.run(handle)
    monkeypatch.setattr(outbox, "_MAX_BYTES", 700)
    queries: list[Any] = []

    def note(*arguments: Any) -> None:
        queries.append(arguments[2:4])

    sqlalchemy.event.listen(scene.engine, "before_cursor_execute", note)
    with scene.engine.connect() as connection:
        assert len(scene.outbox.next_rows(connection)) == 2
        sent = sum(
            len(value)
            for statement, values in list(queries)
            for row in connection.exec_driver_sql(statement, values)
            for value in row
            if isinstance(value, bytes)
        )
    assert 600 <= sent <= 700, "a driver fetches all that a query finds"
    assert [scene.publisher.step() for _ in range(4)] == [2, 2, 1, 0]


def test_wrong_arguments_are_named(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^name="):
        Outbox(scene.engine, name="")
    with pytest.raises(ConfigError, match=r"^max_user_record_size="):
        Outbox(scene.engine, name="bills", max_user_record_size=10 * 1024 * 1024 + 1)
    with pytest.raises(ConfigError, match=r"^producer="):
        OutboxPublisher(Outbox(scene.engine, name="b", max_user_record_size=2 * 1024 * 1024), scene.producer)
    for producer in (None, Producer(client=scene.bills.client)):
        with pytest.raises(ConfigError, match=r"^producer="):
            OutboxPublisher(scene.outbox, producer)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^poll_interval="):
        OutboxPublisher(scene.outbox, scene.producer, poll_interval=0)
