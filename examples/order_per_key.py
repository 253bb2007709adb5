"""Keep the records of each key in the order in which they were put, all the way, although requests fail.

Kinesis stores the records of one PutRecords call independently: without further care, one that is throttled is sent again behind
later ones. With `ordering="per_shard"` the producer has one Kinesis record of each shard on its way, and repeats that one first. On the
other side, `concurrency=8` processes records of different keys at the same time, and those of one key one after the other.

Against the fake AWS, which prints the variables to export in the second terminal::

    kinesis-sdk fake --create-stream accounts:2
    curl -d '{"kind": "partial", "operation": "PutRecords", "probability": 0.3}' http://127.0.0.1:4567/_fake/faults
    python examples/order_per_key.py

On AWS, leave out the line with curl, which lets a third of all entries fail, and set AWS_DEFAULT_REGION.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict

from kinesis_sdk import ConsumerConfig, Producer, ProducerConfig, RecordBatch, Worker

STREAM = "accounts"
ACCOUNTS = 20
CHANGES = 50

seen: dict[str, list[int]] = defaultdict(list)
lock = threading.Lock()


def produce() -> None:
    """Put numbered changes of each account, and see that all are stored."""
    config = ProducerConfig(ordering="per_shard", record_max_buffered_time=0.02)
    futures = []
    with Producer(config) as producer:
        for change in range(CHANGES):
            futures += [
                producer.put(STREAM, f"account-{account}", b"%d" % change) for account in range(ACCOUNTS)
            ]
            time.sleep(0.01)  # so that the changes travel in many Kinesis records
    attempts = max(len(future.result().attempts) for future in futures)
    print("stored", len(futures), "changes; the slowest took", attempts, "attempts")


def handle(batch: RecordBatch) -> None:
    """Apply changes. With `concurrency`, several threads call it at once, never two of them for one account."""
    for record in batch.records:
        with lock:
            seen[record.partition_key].append(int(record.data))


def main() -> None:
    """Put changes, process them, and compare their order."""
    produce()
    config = ConsumerConfig(initial_position="TRIM_HORIZON", concurrency=8)
    Worker(STREAM, application_name="balances", handler=handle, config=config, until="now").run()
    in_order = [account for account, changes in seen.items() if changes == list(range(CHANGES))]
    print(len(in_order), "of", ACCOUNTS, "accounts saw their changes once and in order")


if __name__ == "__main__":
    main()
