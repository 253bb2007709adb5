"""Exactly once into a database: totals and positions change in one transaction.

A worker delivers every record at least once. With a sink, the position of each shard is stored by the transaction that stores the results, so a
worker that is killed at any moment repeats nothing and loses nothing. The producer is idempotent, so a record that it has to send again is not
counted twice either. The same code writes to PostgreSQL: change the URL, and import `insert` from SQLAlchemy's dialect `postgresql`.

Against the fake AWS, which prints the variables to export in the second terminal::

    kinesis-sdk fake --create-stream orders:2
    python examples/exactly_once_sqlite.py put         # 1,000 records, as often as you like
    python examples/exactly_once_sqlite.py consume     # kill it with -9 at any time, and start it again
    python examples/exactly_once_sqlite.py show

On AWS, set AWS_DEFAULT_REGION instead. Needs SQLAlchemy (extra `sql`).
"""

from __future__ import annotations

import argparse

from sqlalchemy import Column, Integer, MetaData, String, Table, func, select
from sqlalchemy.dialects.sqlite import insert

from kinesis_sdk import ConsumerConfig, Producer, ProducerConfig, RecordBatch, SqlSink, Worker

STREAM = "orders"
TOTALS = Table("totals", MetaData(), Column("key", String, primary_key=True), Column("count", Integer))


def count(batch: RecordBatch) -> None:
    """Add the records of a batch to the totals, in the transaction that also stores the position."""
    one_more = insert(TOTALS).on_conflict_do_update(
        index_elements=[TOTALS.c.key], set_={"count": TOTALS.c.count + 1}
    )
    for record in batch.records:
        batch.transaction.execute(one_more.values(key=record.partition_key, count=1))


def put() -> None:
    """Put 1,000 records."""
    with Producer(ProducerConfig(idempotent=True)) as producer:
        for number in range(1000):
            producer.put(STREAM, f"customer-{number % 10}", b"order %d" % number)


def consume(sink: SqlSink) -> None:
    """Consume what is in the stream, then end."""
    config = ConsumerConfig(initial_position="TRIM_HORIZON")
    Worker(STREAM, application_name="totals", handler=count, config=config, sink=sink, until="now").run()


def main() -> None:
    """Run one of the three commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["put", "consume", "show"])
    parser.add_argument("--database", default="sqlite:///totals.db", help="default: %(default)s")
    options = parser.parse_args()
    if options.command == "put":
        put()
        return
    sink = SqlSink(options.database)
    TOTALS.metadata.create_all(sink.engine)
    if options.command == "consume":
        consume(sink)
    with sink.engine.connect() as connection:
        print("records counted:", connection.scalar(select(func.sum(TOTALS.c.count))) or 0)


if __name__ == "__main__":
    main()
