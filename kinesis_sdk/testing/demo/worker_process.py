"""Consumer worker process of the demo; it reads its settings from standard input."""

from __future__ import annotations

import itertools
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.stop_flag import StopFlag
from kinesis_sdk.consumer import (
    ConsumerConfig,
    LeaseConfig,
    RecordBatch,
    RecordHandler,
    RetrievalConfig,
    Worker,
)
from kinesis_sdk.testing.accounting.delivery_log import DeliveryWriter

if TYPE_CHECKING:
    from kinesis_sdk.testing.demo.effects import Effects

_TICK = 0.1
_STALL = 1.0
"""A tick that is at least this many seconds late is logged as a stall of the process or the machine."""


class _Handler(RecordHandler):
    """Logs the records of one acquisition of a lease, and writes their effects."""

    def __init__(
        self, log: DeliveryWriter, numbers: Iterator[int], settings: dict[str, Any], effects: Effects | None
    ) -> None:
        self._log = log
        self._acquisition = next(numbers)
        self._run, self._worker = settings["run"].encode(), settings["worker_id"]
        self._effects = effects

    def process_records(self, batch: RecordBatch) -> None:
        self._log.batch(batch.shard_id, batch.records, acquisition=self._acquisition)
        if self._effects is not None:
            self._effects.insert(
                batch.transaction,
                self._run,
                batch.shard_id,
                batch.records,
                worker=self._worker,
                acquisition=self._acquisition,
            )

    def lease_lost(self) -> None:
        self._log.lease_lost(self._acquisition)


def _log_stalls(log: DeliveryWriter) -> None:
    """Log each time in which this process could not run. On an overloaded machine, the process loses leases during such times."""
    last = time.monotonic()
    while True:
        time.sleep(_TICK)
        now = time.monotonic()
        if now - last - _TICK > _STALL:
            log.stalled(now - last)
        last = now


def main() -> int:
    """Consume until the demo requests a stop (SIGTERM) or has ended (end of standard input)."""
    settings = json.loads(sys.stdin.readline())
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    stop = StopFlag()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    # Ctrl-C reaches the whole process group, but the demo stops the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_wait_for_end_of_input, args=(stop,), daemon=True).start()
    log = DeliveryWriter(Path(settings["log"]), settings["run"])

    threading.Thread(target=_log_stalls, args=(log,), daemon=True).start()
    acquisitions = itertools.count(1)
    sink = effects = None
    if settings["database"] is not None:
        from kinesis_sdk.consumer import SqlSink
        from kinesis_sdk.testing.demo.effects import Effects

        sink = SqlSink(settings["database"])
        effects = Effects(sink.engine)
    worker = Worker(
        settings["stream"],
        application_name=settings["application_name"],
        handler=lambda: _Handler(log, acquisitions, settings, effects),
        sink=sink,
        config=ConsumerConfig(
            initial_position=settings["initial_position"],
            leases=LeaseConfig(failover_time=settings["failover_time"]),
            retrieval=RetrievalConfig(idle_time_between_reads=0.25),
            checkpoint_interval=1.0,
            auto_checkpoint=True,
        ),
        worker_id=settings["worker_id"],
        region_name=settings["region"],
        endpoint_url=settings["endpoint_url"],
    )
    try:
        worker.start()
        held = -1
        while not stop.wait(_TICK):
            health = worker.health()
            if len(health.leases) != held:
                held = len(health.leases)
                log.leases(held)
            if health.error is not None:
                raise health.error
        if not worker.stop(settings["stop_timeout"]):
            log.error("the worker did not stop cleanly")
            return 1
    except KinesisSdkError as error:
        log.error(str(error))
        return 1
    log.leases(0)
    return 0


def _wait_for_end_of_input(stop: StopFlag) -> None:
    """Request a stop at the end of standard input: the demo holds the other end, so it has ended."""
    sys.stdin.read()
    stop.set()


if __name__ == "__main__":
    sys.exit(main())
