"""One database for everything: leases, positions and results in one file, and no DynamoDB at all.

The leases say which worker reads which shard, the positions how far it is, and the results commit together with the positions: each record
counts once, whenever a worker is killed. Start `consume` several times: the workers share the shards. With PostgreSQL
(``--database postgresql+psycopg://user@host/database``) they may run on several machines; nothing else changes.

Against the fake AWS, which prints the variables to export in the second terminal::

    kinesis-sdk fake --create-stream orders:2
    python examples/one_database.py put         # 1,000 records, as often as you like
    python examples/one_database.py consume     # kill it with -9 at any time, and start it again
    python examples/one_database.py show

On AWS, set AWS_DEFAULT_REGION instead; the worker needs permissions for Kinesis only. Needs SQLAlchemy (extra `sql`).
"""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import closing

from sqlalchemy import Column, Engine, Integer, MetaData, String, Table
from sqlalchemy.exc import DBAPIError

from kinesis_sdk import ConsumerConfig, Producer, RecordBatch, SqlLeaseStore, SqlSink, Worker

STREAM, APPLICATION = "orders", "totals"
DATABASE = "sqlite:///orders.db"
TOTALS = Table("totals", MetaData(), Column("key", String, primary_key=True), Column("count", Integer))


def count(batch: RecordBatch) -> None:
    """Add the records of a batch to the totals, in the transaction that also stores the position.

    A key is in one shard at a time, and the sink lets one worker commit for a shard. So no other worker adds the row of a key
    between the two statements, and no database needs its own form of "insert or update".
    """
    for key, number in Counter(record.partition_key for record in batch.records).items():
        more = TOTALS.update().where(TOTALS.c.key == key).values(count=TOTALS.c.count + number)
        if not batch.transaction.execute(more).rowcount:
            batch.transaction.execute(TOTALS.insert().values(key=key, count=number))


def create_totals(engine: Engine) -> None:
    """Create the table if it is missing."""
    try:
        TOTALS.metadata.create_all(engine)
    except DBAPIError:
        # Another worker created it after this one had found it missing: the second call finds it.
        TOTALS.metadata.create_all(engine)


def consume(database: str) -> None:
    """Consume what is in the stream, then end."""
    with closing(SqlSink(database)) as sink:
        create_totals(sink.engine)
        Worker(
            STREAM,
            application_name=APPLICATION,
            handler=count,
            config=ConsumerConfig(initial_position="TRIM_HORIZON"),
            lease_store=database,
            sink=sink,
            until="now",
        ).run()


def put() -> None:
    """Put 1,000 records."""
    with Producer() as producer:
        for number in range(1000):
            producer.put(STREAM, f"customer-{number % 10}", b"order %d" % number)


def show(database: str) -> None:
    """Print the totals, and the lease of each shard."""
    with closing(SqlSink(database)) as sink, sink.engine.connect() as connection:
        for key, number in connection.execute(TOTALS.select().order_by(TOTALS.c.key)):
            print(key, number)
    with closing(SqlLeaseStore(database, APPLICATION)) as leases:
        for lease in leases.scan().leases:
            print(lease.lease_key, lease.owner or "free", lease.checkpoint.sequence_number)


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=("put", "consume", "show"))
    parser.add_argument("--database", default=DATABASE)
    options = parser.parse_args()
    if options.command == "put":
        put()
    elif options.command == "consume":
        consume(options.database)
    else:
        show(options.database)


if __name__ == "__main__":
    main()
