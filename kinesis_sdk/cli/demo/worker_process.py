"""A consumer worker of the demo: one process, started by the demo with its settings on standard input."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from pathlib import Path

from kinesis_sdk.cli.demo.delivery_log import DeliveryWriter
from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.consumer import ConsumerConfig, RecordBatch, Worker


def main() -> int:
    """Consume until the demo says stop (SIGTERM) or is gone (end of standard input)."""
    settings = json.loads(sys.stdin.readline())
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the demo stops us in order
    threading.Thread(target=_wait_for_end_of_input, args=(stop,), daemon=True).start()
    log = DeliveryWriter(Path(settings["log"]), settings["run"])

    def handle(batch: RecordBatch) -> None:
        log.batch(batch.shard_id, batch.records)

    worker = Worker(
        settings["stream"],
        application_name=settings["application_name"],
        handler=handle,
        config=ConsumerConfig(
            initial_position=settings["initial_position"],
            failover_time=settings["failover_time"],
            idle_time_between_reads=0.25,
            checkpoint_interval=1.0,
        ),
        worker_id=settings["worker_id"],
        region_name=settings["region"],
        endpoint_url=settings["endpoint_url"],
    )
    try:
        worker.start()
        held = -1
        while not stop.wait(0.1):
            health = worker.health()
            if len(health.leases) != held:
                held = len(health.leases)
                log.leases(held)
            if health.error is not None:
                raise health.error
        worker.stop(20.0)
    except KinesisSdkError as error:
        log.error(str(error))
        return 1
    log.leases(0)
    return 0


def _wait_for_end_of_input(stop: threading.Event) -> None:
    """The demo holds the other end of our standard input: when it is gone, so are we."""
    sys.stdin.read()
    stop.set()


if __name__ == "__main__":
    sys.exit(main())
