"""Effects per second, and seconds from put to commit, with and without each guarantee.

    python benchmarks/bench_effects.py [--records 5000] [--rounds 3]

A real worker with its threads reads one shard of a fake Kinesis in the same process, 500 records at a time, and writes one row, item or line
for each record. On each store, the handler without a guarantee is the base of the ratios:

* **plain**: the handler commits its effects, the worker checkpoints by itself; a worker that dies repeats effects.
* **record.id**: a unique column, and ``ON CONFLICT DO NOTHING``.
* **sink**: effects and position in one transaction.

Effects per second are those of one shard while it works: from the beginning of a transaction, or of the handler's call, to its commit, over the
batches of a backlog, in the best round; candidates take turns. The wait for reads is not in them. The delay from put to commit
is that of records that arrive one every 5 ms; most of it is the wait for the next read (every 0.2 s). SQLite and the folder are on the
disk of this machine; PostgreSQL runs without fsync beside the benchmark; the DynamoDB is the fake, whose calls cost Python's time and no network.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import sqlalchemy

from integration.postgres import running_postgres, why_no_postgres
from kinesis_sdk.consumer import (
    AsyncSqlSink,
    ConsumerConfig,
    DynamoDBSink,
    InMemoryLeaseStore,
    ObjectSink,
    RecordBatch,
    RetrievalConfig,
    SqlSink,
    Worker,
)
from kinesis_sdk.consumer.sql.engines import open_engine
from kinesis_sdk.testing import FakeAws

BATCH = 500
PACED = 600
PACE = 0.005


def rows(batch: RecordBatch) -> list[dict[str, Any]]:
    """Return the effects of a batch."""
    return [{"id": record.id, "data": record.data.decode()} for record in batch.records]


class Sql:
    """Candidates in one database. Every candidate has empty tables.

    Args:
        url: Of SQLAlchemy.
        async_url: The same with an asynchronous driver.
    """

    def __init__(self, url: str, async_url: str) -> None:
        self.url, self.async_url = url, async_url
        self.engine = open_engine("database", url)  # as the sink: SQLite with a write-ahead log

    def _table(self, *, unique: bool = False) -> Any:
        tables = sqlalchemy.MetaData()
        tables.reflect(self.engine)
        tables.drop_all(self.engine)
        column, text = sqlalchemy.Column, sqlalchemy.Text
        table = sqlalchemy.Table(
            "effects", sqlalchemy.MetaData(), column("id", text, unique=unique), column("data", text)
        )
        table.metadata.create_all(self.engine)
        return table

    def plain(self) -> tuple[Any, Any]:
        """Return the handler and the sink of the candidate without a guarantee."""
        insert = self._table().insert()
        return self._own_transaction(insert), None

    def by_id(self) -> tuple[Any, Any]:
        """Return those of the unique column."""
        self._table(unique=True)
        insert = sqlalchemy.text(
            "INSERT INTO effects (id, data) VALUES (:id, :data) ON CONFLICT (id) DO NOTHING"
        )
        return self._own_transaction(insert), None

    def _own_transaction(self, insert: Any) -> Any:
        def handle(batch: RecordBatch) -> None:
            with self.engine.begin() as connection:
                connection.execute(insert, rows(batch))

        return handle

    def sink(self) -> tuple[Any, Any]:
        """Return those of `SqlSink`."""
        insert = self._table().insert()

        def handle(batch: RecordBatch) -> None:
            batch.transaction.execute(insert, rows(batch))

        return handle, SqlSink(self.url)

    def async_sink(self) -> tuple[Any, Any]:
        """Return those of `AsyncSqlSink`."""
        insert = self._table().insert()

        async def handle(batch: RecordBatch) -> None:
            await batch.transaction.execute(insert, rows(batch))

        return handle, AsyncSqlSink(self.async_url)


class DynamoDB:
    """Candidates in the fake DynamoDB."""

    def __init__(self) -> None:
        self._number = 0

    def _table(self) -> Any:
        client = FakeAws().client("dynamodb")
        client.create_table(
            TableName="effects",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
        return client

    def _put(self, **more: Any) -> tuple[Any, Any]:
        client = self._table()

        def handle(batch: RecordBatch) -> None:
            for row in rows(batch):
                item = {name: {"S": value} for name, value in row.items()}
                client.put_item(TableName="effects", Item=item, **more)

        return handle, None

    def plain(self) -> tuple[Any, Any]:
        """Return the handler and the sink of the candidate without a guarantee."""
        return self._put()

    def by_id(self) -> tuple[Any, Any]:
        """Return those of the condition that there is no such item."""
        return self._put(ConditionExpression="attribute_not_exists(id)")

    def sink(self) -> tuple[Any, Any]:
        """Return those of `DynamoDBSink`."""
        client = self._table()

        def handle(batch: RecordBatch) -> None:
            for record, row in zip(batch.records, rows(batch), strict=True):
                item = {name: {"S": value} for name, value in row.items()}
                batch.transaction.put(record, TableName="effects", Item=item)

        return handle, DynamoDBSink(client, "positions")


class Folder:
    """Candidates that write one file for each batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def _new(self) -> Path:
        self._number += 1
        path = self._folder / f"{self._number}"
        path.mkdir()
        return path

    def plain(self) -> tuple[Any, Any]:
        """Return the handler and the sink of the candidate without a guarantee."""
        folder = self._new()

        def handle(batch: RecordBatch) -> None:
            with (folder / batch.records[0].sequence_number).open("wb") as file:
                file.write(b"".join(record.data + b"\n" for record in batch.records))
                file.flush()
                os.fsync(file.fileno())

        return handle, None

    def sink(self) -> tuple[Any, Any]:
        """Return those of `ObjectSink`."""

        def handle(batch: RecordBatch) -> None:
            for record in batch.records:
                batch.transaction.write(record, record.data + b"\n")

        return handle, ObjectSink(self._new())


class Meter:
    """Notes when batches are committed.

    Args:
        handler: The handler.
        sink: Its sink, or None.
    """

    def __init__(self, handler: Any, sink: Any) -> None:
        self.commits: list[tuple[float, list[float]]] = []
        self.count = 0
        self.busy = 0.0
        self.grown = threading.Event()
        self.sink = sink
        self._handler = handler
        if sink is not None:
            self._watch(sink)

    def handle(self, batch: RecordBatch) -> Any:
        """Call the handler."""
        if self.sink is None:
            self._began = time.perf_counter()
        self._puts = [float(record.data) for record in batch.records]
        result = self._handler(batch)
        if self.sink is None:
            self._note()
        return result

    def _watch(self, sink: Any) -> None:
        begin = sink.begin

        def begun(key: Any, seen: Any) -> Any:
            self._began = time.perf_counter()
            return self._watched(begin(key, seen))

        async def begun_async(key: Any, seen: Any) -> Any:
            self._began = time.perf_counter()
            return self._watched(await begin(key, seen))

        sink.begin = begun_async if asyncio.iscoroutinefunction(begin) else begun

    def _watched(self, transaction: Any) -> Any:
        commit = transaction.commit

        def committed(row: Any) -> Any:
            done = commit(row)
            self._note()
            return done

        async def committed_async(row: Any) -> Any:
            done = await commit(row)
            self._note()
            return done

        transaction.commit = committed_async if asyncio.iscoroutinefunction(commit) else committed
        return transaction

    def _note(self) -> None:
        self.busy += time.perf_counter() - self._began
        self.commits.append((time.monotonic(), self._puts))
        self.count += len(self._puts)
        self.grown.set()

    def wait(self, count: int) -> None:
        """Wait until so many effects are committed."""
        while self.count < count:
            self.grown.clear()
            if self.count < count and not self.grown.wait(120):
                raise RuntimeError(f"{self.count} of {count} effects after 120 s")


def measure(make: Callable[[], tuple[Any, Any]], records: int) -> tuple[float, float]:
    """Run a candidate once; return its effects per second, and the 99th percentile of the delay in seconds."""
    handler, sink = make()
    meter = Meter(handler, sink)
    kinesis = FakeAws(throttle=False).client("kinesis")
    kinesis.create_stream(StreamName="orders", ShardCount=1)
    put(kinesis, records)
    is_async = asyncio.iscoroutinefunction(handler)

    async def handle_async(batch: RecordBatch) -> None:
        await meter.handle(batch)

    worker = Worker(
        "orders",
        application_name="bench",
        handler=handle_async if is_async else meter.handle,
        sink=sink,
        lease_store=InMemoryLeaseStore(),
        kinesis_client=kinesis,
        config=ConsumerConfig(
            initial_position="TRIM_HORIZON",
            retrieval=RetrievalConfig(max_records=BATCH, idle_time_between_reads=0.2),
        ),
    )
    worker.start()
    meter.wait(records)
    rate = meter.count / meter.busy
    done = len(meter.commits)
    for _ in range(PACED):
        put(kinesis, 1)
        time.sleep(PACE)
    meter.wait(records + PACED)
    worker.stop()
    delays = sorted(at - one for at, puts in meter.commits[done:] for one in puts)
    return rate, delays[int(len(delays) * 0.99)]


def put(kinesis: Any, count: int) -> None:
    """Put records whose data is the time."""
    for start in range(0, count, BATCH):
        data = [f"{time.monotonic():.6f}".encode() for _ in range(min(BATCH, count - start))]
        answer = kinesis.put_records(
            StreamName="orders", Records=[{"Data": one, "PartitionKey": "k"} for one in data]
        )
        if answer["FailedRecordCount"]:
            raise RuntimeError("the fake rejected records")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "--records", type=int, default=5_000, help="effects of the backlog (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kinesis-sdk-bench-")))
        (folder / "objects").mkdir()
        sqlite = Sql(f"sqlite:///{folder}/a.db", f"sqlite+aiosqlite:///{folder}/a.db")
        stores: dict[str, Any] = {"SQLite": sqlite}
        if why_no_postgres() is None:
            url = stack.enter_context(running_postgres())
            stores["PostgreSQL"] = Sql(url, url)
        stores["DynamoDB"] = DynamoDB()
        stores["folder"] = Folder(folder / "objects")
        kinds = {"plain": "plain", "record.id": "by_id", "sink": "sink", "sink, coroutine": "async_sink"}
        best: dict[tuple[str, str], tuple[float, float]] = {}
        for _ in range(options.rounds):
            for store, candidates in stores.items():
                for kind, method in kinds.items():
                    if hasattr(candidates, method):
                        rate, delay = measure(getattr(candidates, method), options.records)
                        known = best.get((store, kind), (0.0, 1e9))
                        best[store, kind] = max(known[0], rate), min(known[1], delay)
        print(f"{'store':<12} {'guarantee':<16} {'effects/s':>10} {'ratio':>6} {'p99 put to commit':>18}")
        for (store, kind), (rate, delay) in best.items():
            ratio = rate / best[store, "plain"][0]
            print(f"{store:<12} {kind:<16} {rate:>10,.0f} {ratio:>6.2f} {delay * 1000:>15,.0f} ms")


if __name__ == "__main__":
    main()
