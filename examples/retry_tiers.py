"""Try a record that fails again after a second and after three seconds, in the order of its customer, and add up each order once.

A table of the database of the totals keeps the records that wait. A record is set aside in the transaction that moves the position past it, and counted in the
transaction that removes it from the table. So each order counts once, even if you kill the program with -9. Later orders of a customer wait behind
one that failed.

Needs the extra ``sql``. Against the fake AWS, which prints the variables to export in the second terminal::

    kinesis-sdk fake --create-stream orders:2
    python examples/retry_tiers.py

On AWS, set AWS_DEFAULT_REGION instead.
"""

from __future__ import annotations

import time

import sqlalchemy

from kinesis_sdk import ConsumerConfig, Producer, RecordBatch, SqlSink, Worker
from kinesis_sdk.dead_letters import DeadLetters
from kinesis_sdk.retries import RetryTable, RetryTiers, RetryWorker

STREAM = "orders"
DATABASE = "sqlite:///retried.db"
DELAYS = (1, 3)

ORDERS = sqlalchemy.Table(
    "orders",
    sqlalchemy.MetaData(),
    sqlalchemy.Column("number", sqlalchemy.Integer, primary_key=True),
    sqlalchemy.Column("customer", sqlalchemy.Text),
)


def add(batch: RecordBatch) -> None:
    """Store orders; every tenth one fails at first, and one always."""
    for record in batch.records:
        number = int(record.data)
        batch.transaction.execute(ORDERS.insert().values(number=number, customer=record.partition_key))
        if number == 77 or (number % 10 == 0 and "retry-attempt" not in record.headers):
            raise ValueError(f"order {number}: the service did not answer")


def main() -> None:
    """Put some orders, process them, and wait for those that failed."""
    with Producer() as producer:
        for number in range(100):
            producer.put(STREAM, f"customer-{number % 7}", str(number).encode())
    sink = SqlSink(DATABASE)
    ORDERS.metadata.create_all(sink.engine)
    table = RetryTable(DATABASE, application_name="retried", keep_order=True)
    tiers = RetryTiers(DELAYS, to=table, dead_letter=DeadLetters(DATABASE, application="retried"), attempts=1)
    config = ConsumerConfig(initial_position="TRIM_HORIZON", on_handler_error=tiers)
    with RetryWorker(table, tiers, add, poll_interval=0.2):
        Worker(
            STREAM,
            application_name="retried",
            handler=table.in_order(add),
            sink=sink,
            config=config,
            until="now",
        ).run()
        while waiting := table.waiting():
            print("waiting:", sum(tier.records for tier in waiting))
            time.sleep(1)
    with sink.engine.connect() as connection:
        print(
            "orders:",
            connection.execute(sqlalchemy.select(sqlalchemy.func.count(ORDERS.c.number))).scalar_one(),
        )


if __name__ == "__main__":
    main()
