"""The parts of a worker in production: exactly-once totals in a database, and dead letters in a second stream.

`kinesis-sdk run --factory totals:parts` calls `parts` in each of its processes. Without containers, against the fake AWS, which prints the variables to
export in the second terminal::

    kinesis-sdk fake --create-stream orders:4 --create-stream orders-dead:1
    cd examples/docker && DATABASE_URL=sqlite:///totals.db kinesis-sdk run --factory totals:parts --stream orders --app billing --processes 2 --metrics-port 9400

On AWS, set AWS_DEFAULT_REGION instead. Needs SQLAlchemy (extra `sql`), and a driver for other databases than SQLite.
"""

from __future__ import annotations

import json
import os

from sqlalchemy import Column, Integer, MetaData, String, Table, insert, update

from kinesis_sdk import BisectBatch, ConsumerConfig, PoisonRecord, Producer, RecordBatch, SqlSink, WorkerParts

DEAD = "orders-dead"
TOTALS = Table(
    "totals", MetaData(), Column("customer", String(256), primary_key=True), Column("total", Integer)
)


def add_up(batch: RecordBatch) -> None:
    """Add the orders of a batch to the totals, in the transaction that also stores the position."""
    for record in batch.records:
        customer, total = record.partition_key, json.loads(record.data)["total"]
        more = update(TOTALS).where(TOTALS.c.customer == customer).values(total=TOTALS.c.total + total)
        if not batch.transaction.execute(more).rowcount:
            batch.transaction.execute(insert(TOTALS).values(customer=customer, total=total))


def parts(config: ConsumerConfig) -> WorkerParts:
    """Return what a worker is made of; the settings are those of the command line and of --config."""
    sink = SqlSink(os.environ["DATABASE_URL"])
    TOTALS.metadata.create_all(sink.engine)
    producer = Producer()

    def set_aside(poison: PoisonRecord) -> None:
        letter = {"record": poison.record.id, "error": repr(poison.error)}
        producer.put(DEAD, poison.record.partition_key, json.dumps(letter).encode()).result()

    policy = BisectBatch(dead_letter=set_aside, attempts=2, retry_only=(ConnectionError,))
    return WorkerParts(
        handler=add_up, sink=sink, config=config.with_fields(on_handler_error=policy), close=producer.close
    )
