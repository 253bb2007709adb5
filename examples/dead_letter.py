"""Set aside the records that no retry can help, keep the order of all others, and retry while a database is down.

`BisectBatch` halves a batch that fails until it has found the records on which the handler fails, and passes those to a hook, here `DeadLetters`,
which puts them into a second stream with their history. Nothing is skipped: if the hook raises, the record comes again. Errors of the classes in
`retry_only` say nothing about a record, so they only delay the batch.

Against the fake AWS, which prints the variables to export in the second terminal::

    kinesis-sdk fake --create-stream orders:2 --create-stream orders-dead:1
    python examples/dead_letter.py
    kinesis-sdk dlq list stream:orders-dead

On AWS, set AWS_DEFAULT_REGION instead.
"""

from __future__ import annotations

import json

from kinesis_sdk import BisectBatch, ConsumerConfig, Producer, RecordBatch, Worker
from kinesis_sdk.dead_letters import DeadLetters

STREAM = "orders"


class Orders:
    """Adds up the orders."""

    def __init__(self) -> None:
        self.total = 0

    def handle(self, batch: RecordBatch) -> None:
        """Process a batch: all of it, or, if it raises, nothing."""
        self.total += sum(json.loads(record.data)["total"] for record in batch.records)


def main() -> None:
    """Put some orders, two of which are broken, and process them."""
    with Producer() as producer:
        for number in range(100):
            data = b"broken" if number in {30, 70} else json.dumps({"total": number}).encode()
            producer.put(STREAM, f"customer-{number % 10}", data)
    orders = Orders()
    policy = BisectBatch(
        dead_letter=DeadLetters("stream:orders-dead", application="totals"),
        attempts=2,
        retry_only=(ConnectionError,),
        initial_delay=0.05,
    )
    config = ConsumerConfig(initial_position="TRIM_HORIZON", on_handler_error=policy)
    Worker(STREAM, application_name="totals", handler=orders.handle, config=config, until="now").run()
    print("total:", orders.total)


if __name__ == "__main__":
    main()
