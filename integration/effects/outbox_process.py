"""A worker that writes outputs with its effects into one database, a publisher of them, and kills of both at chosen steps."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy

from integration.effects.kills import Steps
from integration.endtoend.producer_process import wait_for_end
from integration.endtoend.worker_process import start_worker
from kinesis_sdk.common.stop_flag import StopFlag
from kinesis_sdk.consumer import ConsumerConfig, LeaseConfig, RecordBatch, RetrievalConfig, SqlSink, Worker
from kinesis_sdk.producer import Producer, ProducerConfig, Put
from kinesis_sdk.relay import Outbox, OutboxPublisher

EFFECTS = sqlalchemy.Table(
    "effects",
    sqlalchemy.MetaData(),
    sqlalchemy.Column(
        "place", sqlalchemy.BigInteger().with_variant(sqlalchemy.Integer, "sqlite"), primary_key=True
    ),
    sqlalchemy.Column("number", sqlalchemy.Integer, nullable=False),
)
"""A repeated effect is a second row."""
POINTS = ("before effect", "after effect", "before put", "after put", "after delete")
"""Steps at which a process kills itself: around the rows of a batch, which its commit follows; around the puts of rows, which their
deletion follows; and before that is committed."""
_CHANCES = dict(zip(POINTS, (0.1, 0.2, 0.2, 0.4, 0.4), strict=True))


class Process:
    """Worker and publisher of one process."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._at = Steps(settings, _CHANCES).at
        self.outbox = Outbox(settings["database"], name="bills")
        config = ProducerConfig(idempotent=True, dedup_namespace="outbox", record_max_buffered_time=0.02)
        self.producer = Producer(config, endpoint_url=settings["endpoint_url"], region_name="us-east-1")
        self.publisher = OutboxPublisher(self.outbox, self.producer, poll_interval=0.05)
        put, finish = self.publisher._put, self.outbox.finish

        def put_rows(rows: Any) -> Any:
            if rows:
                self._at("before put")
            result = put(rows)
            if rows:
                self._at("after put")
            return result

        def delete(connection: Any, places: Any) -> None:
            finish(connection, places)
            if places:
                self._at("after delete")

        self.publisher._put = put_rows  # type: ignore[method-assign]
        self.outbox.finish = delete  # type: ignore[method-assign]

    def handle(self, batch: RecordBatch) -> None:
        """Write the effects of a batch, and an output for each, in one transaction."""
        numbers = [int(record.data) for record in batch.records]
        self._at("before effect")
        if numbers:
            batch.transaction.execute(EFFECTS.insert(), [{"number": number} for number in numbers])
        for record in batch.records:
            self.outbox.put(batch, Put(self._settings["output"], record.partition_key, record.data))
        self._at("after effect")

    def worker(self) -> Callable[[], Worker]:
        """Return what makes the worker."""
        settings = self._settings
        return lambda: Worker(
            settings["stream"],
            application_name="billing",
            handler=self.handle,
            sink=SqlSink(settings["database"]),
            config=ConsumerConfig(
                initial_position="TRIM_HORIZON",
                batch_records=20,
                leases=LeaseConfig(failover_time=3, balance_by="count"),
                retrieval=RetrievalConfig(idle_time_between_reads=0.2),
            ),
            endpoint_url=settings["endpoint_url"],
            region_name="us-east-1",
            worker_id=settings["worker_id"],
        )


def main() -> int:
    """Process and publish until told to stop, or killed."""
    settings = json.loads(sys.stdin.readline())
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    stop = StopFlag()
    wait_for_end(stop)
    process = Process(settings)
    worker = start_worker(process.worker(), stop)
    process.publisher.start()
    while not stop.wait(0.2):
        pass
    process.publisher.stop()
    if worker is not None:
        worker.stop()
    process.producer.close(5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
