"""A worker of the run that relays the records of one stream into another one, until it is killed or told to stop."""

from __future__ import annotations

import json
import logging
import random
import sys
import time

from integration.effects.worker import make_worker, run
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.consumer import RecordBatch
from kinesis_sdk.producer import Producer, ProducerConfig, Put
from kinesis_sdk.relay import Relay


def main() -> int:
    """Relay records until told to stop."""
    settings = json.loads(sys.stdin.readline())
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    config = ProducerConfig(
        idempotent=True, dedup_namespace="effects", aggregation_max_count=100, record_max_buffered_time=0.02
    )
    producer = Producer(config, region_name="us-east-1", endpoint_url=settings["endpoint_url"])

    def output(record: UserRecord) -> Put:
        return Put(settings["stream"], record.partition_key, record.data)

    relay = Relay(producer, output, name="copy")

    def without_ids(batch: RecordBatch) -> None:
        futures = producer.put_many(settings["stream"], map(output, batch.records))
        for future in futures:
            future.result()

    def handle(batch: RecordBatch) -> None:
        (relay if settings["transactions"] else without_ids)(batch)
        # Kills then often hit between the outputs and the checkpoint.
        time.sleep(random.uniform(0, settings["pause"]))

    status = run(lambda: make_worker({**settings, "stream": settings["source"]}, handle, None))
    producer.close(5)
    return status


if __name__ == "__main__":
    sys.exit(main())
