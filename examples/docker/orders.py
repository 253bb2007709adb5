"""A producer as a container: some orders a second, until SIGTERM.

Without containers, against the fake AWS, which prints the variables to export in the second terminal::

    kinesis-sdk fake --create-stream orders:4
    python examples/docker/orders.py 100

On AWS, set AWS_DEFAULT_REGION instead.
"""

from __future__ import annotations

import json
import logging
import random
import signal
import sys
import time

from kinesis_sdk import FailedRecord, Producer

LOGGER = logging.getLogger("orders")


def failed(record: FailedRecord) -> None:
    """Log a record that could not be stored: its key and the cause, and not the order."""
    LOGGER.error("an order of %s was not stored: %s", record.partition_key, record.error)


def main(per_second: int) -> None:
    """Put orders; SIGTERM ends it once all are stored."""
    stopped = False

    def stop(*_: object) -> None:
        # Not an Event: its set() waits forever in a signal handler that interrupted its wait().
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    sent = 0
    with Producer(on_send_error=failed) as producer:
        while not stopped:
            time.sleep(1 / per_second)
            order = {"number": sent, "total": random.randint(1, 100)}
            producer.send("orders", f"customer-{sent % 1000}", json.dumps(order).encode())
            sent += 1
    LOGGER.info("%d orders were put", sent)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
