"""What it costs to keep the order of a key while records wait in a retry table: `RetryTable(keep_order=True)`, SQLite.

    python benchmarks/bench_retry_order.py [--rounds 200]

A batch of 500 records with 100 keys is stored in one transaction, one row for each record, as the handler of a `SqlSink` does. `in_order` adds
a query for the keys that wait, and stores the records of these keys in the table. CPU of the process, in turns with the bare handler; the median ratio of
neighbouring turns counts. Each turn is rolled back, so that all find the same table.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import sqlalchemy

from kinesis_sdk import ConfigError
from kinesis_sdk.common.error_policy import PoisonRecord
from kinesis_sdk.common.record_ids import located_record_type
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import RecordBatch
from kinesis_sdk.retries import RetryTable, RetryTiers

ORDERS = sqlalchemy.Table(
    "orders",
    sqlalchemy.MetaData(),
    sqlalchemy.Column("id", sqlalchemy.Text, primary_key=True),
    sqlalchemy.Column("data", sqlalchemy.LargeBinary),
)
SHARD, STREAM = "shardId-000000000000", StreamId("orders")
RECORDS, KEYS = 500, 100


def records(first: int, count: int) -> list[UserRecord]:
    """Return records of 100 bytes."""
    kind = located_record_type(UserRecord, STREAM.name, SHARD)
    return [kind(b"x" * 100, f"key-{number % KEYS}", str(number)) for number in range(first, first + count)]


def store(batch: RecordBatch) -> None:
    """Store a batch: the handler."""
    rows = [{"id": record.id, "data": record.data} for record in batch.records]
    if rows:
        batch.transaction.execute(ORDERS.insert(), rows)


def turn(engine: sqlalchemy.Engine, handler: Any, batch: list[UserRecord]) -> float:
    """Process a batch in a transaction that is rolled back; return seconds of CPU."""
    with engine.connect() as connection:
        began = time.process_time()
        handler(
            RecordBatch(
                records=batch,
                shard_id=SHARD,
                stream=STREAM,
                checkpointer=cast("Any", None),
                transaction=connection,
            )
        )
        took = time.process_time() - began
        connection.rollback()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    if rounds < 1:
        raise ConfigError("rounds", rounds, "at least 1")
    for waiting, keys in ((0, 0), (1, 1), (10, 10), (1_000, 10), (100_000, 10)):
        with tempfile.TemporaryDirectory() as folder:
            engine = sqlalchemy.create_engine(f"sqlite:///{Path(folder) / 'all.db'}")
            sqlalchemy.event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=OFF"))
            ORDERS.metadata.create_all(engine)
            table = RetryTable(engine, application_name="bench", keep_order=True)
            RetryTiers((3600,), to=table, dead_letter=lambda _poison: None)
            handler = table.in_order(store)
            table.tables.ensure()
            with engine.begin() as connection:
                for number in range(waiting):
                    record = records(0, 1)[0]._replace(
                        partition_key=f"key-{number % keys}", sequence_number=str(10**9 + number)
                    )
                    table.keep(
                        PoisonRecord(
                            record=record,
                            error=ValueError(),
                            attempts=1,
                            shard_id=SHARD,
                            stream=STREAM,
                            transaction=connection,
                        ),
                        0,
                    )
            batch = records(0, RECORDS)
            turn(engine, store, batch)
            turn(engine, handler, batch)
            plain, ratios = [], []
            for _ in range(rounds):
                plain.append(turn(engine, store, batch))
                ratios.append(turn(engine, handler, batch) / plain[-1])
            print(
                f"{waiting:>7,} rows of {keys:>2} keys wait: {statistics.median(plain) * 1000:.2f} ms a batch, "
                f"in order {statistics.median(ratios):.2f} times",
                flush=True,
            )
            engine.dispose()


if __name__ == "__main__":
    main()
