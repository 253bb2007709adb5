"""A worker of the run: one process, which writes effects until it is killed or told to stop."""

from __future__ import annotations

import json
import logging
import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from integration.effects.stores import open_store
from integration.endtoend.producer_process import wait_for_end
from integration.endtoend.worker_process import start_worker
from kinesis_sdk.common.stop_flag import StopFlag
from kinesis_sdk.consumer import ConsumerConfig, LeaseConfig, RecordBatch, RetrievalConfig, Sink, Worker


def main() -> int:
    """Process records until told to stop."""
    settings = json.loads(sys.stdin.readline())
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    store = open_store(settings["store"])
    pause = settings["pause"]

    def handle(batch: RecordBatch) -> None:
        (store.write if settings["transactions"] else store.write_plainly)(batch)
        # Kills then often hit between the effects and the commit or checkpoint.
        time.sleep(random.uniform(0, pause))

    return run(lambda: make_worker(settings, handle, store.sink() if settings["transactions"] else None))


def run(make: Callable[[], Worker]) -> int:
    """Run a worker until told to stop."""
    stop = StopFlag()
    wait_for_end(stop)
    worker = start_worker(make, stop)
    while not stop.wait(0.2) and not (worker and worker.wait(0)):
        pass
    if worker is not None:
        worker.stop()
        worker.wait()
    return 0


def make_worker(
    settings: Mapping[str, Any], handle: Callable[[RecordBatch], None], sink: Sink | None
) -> Worker:
    """Return a worker of the run."""
    return Worker(
        settings["stream"],
        application_name=f"effects-{settings['stream']}",
        handler=handle,
        sink=sink,
        config=ConsumerConfig(
            initial_position="TRIM_HORIZON",
            leases=LeaseConfig(failover_time=settings["failover"], balance_by="count"),
            retrieval=RetrievalConfig(
                max_records=settings["max_records"], idle_time_between_reads=settings["idle"]
            ),
        ),
        endpoint_url=settings["endpoint_url"],
        region_name="us-east-1",
        worker_id=settings["worker_id"],
    )


if __name__ == "__main__":
    sys.exit(main())
