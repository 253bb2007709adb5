"""A consumer worker of an end-to-end run: one process, which logs its actions before and after they happen.

| line | when |
| --- | --- |
| ``shard``, ``at``, ``acquisition``, ``groups`` | a batch, before anything else happens to it |
| ``init`` shard, ``acquisition``, ``position``, ``at`` | ``initialize`` |
| ``checkpointing``, ``checkpointed`` acquisition, ``position``, ``at`` | before and after a checkpoint |
| ``checkpoint_failed`` acquisition, ``at``, ``why`` | it raised |
| ``end`` lost, shard_end or requested, ``acquisition``, ``at`` | the last callback |
| ``stalled`` seconds, ``at`` | it got no time to run, up to now |
| ``corrupt`` | a record that is not what was put |
| ``leases`` | it holds so many now |
| ``error`` | why it ends |
"""

from __future__ import annotations

import itertools
import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from integration.endtoend.producer_process import wait_for_end
from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stop_flag import StopFlag
from kinesis_sdk.consumer import Checkpointer, ConsumerConfig, RecordBatch, RecordHandler, Worker
from kinesis_sdk.consumer.handler import ShardContext
from kinesis_sdk.testing.accounting.delivery_log import LineWriter, write_groups
from kinesis_sdk.testing.flights import load_flights, make_payload, read_number

_LOGGER = logging.getLogger(__name__)

_TICK = 0.1
_STOP_SECONDS = 240.0
STALL_SECONDS = 1.0
"""A tick that is this many seconds late counts as a stall of the process or the machine."""


def as_json(position: ExtendedSequenceNumber) -> list[Any]:
    """Return a position for a line of the log."""
    return [position.sequence_number, position.sub_sequence_number]


class Journal:
    """Makes handlers, which log everything.

    Args:
        log: Destination.
        run: Name of the run; records of other runs are skipped.
        checkpoint_every: Minimum seconds between two checkpoints of a shard, so that a killed worker leaves something
            to be processed again.
        batch_seconds: Seconds that each batch takes.
    """

    def __init__(
        self, log: LineWriter, run: str, checkpoint_every: float, batch_seconds: float = 0.0
    ) -> None:
        self.log = log
        self.run = run
        self.checkpoint_every = checkpoint_every
        self.batch_seconds = batch_seconds
        self.flights = load_flights()
        self.numbers = itertools.count(1)

    def make(self) -> RecordHandler:
        """Return a handler for one acquisition of a lease."""
        return _Handler(self)

    def wrong(self, batch: RecordBatch) -> list[str]:
        """Return the records of a batch that differ from the put ones."""
        found = []
        for record in batch.records:
            number = read_number(self.run.encode(), record.data)
            flight = self.flights[(number or 0) % len(self.flights)]
            if number is not None and (record.data, record.partition_key) != (
                make_payload(self.run, number, flight),
                flight.origin,
            ):
                found.append(f"{number} of {batch.shard_id}")
        return found


class _Handler(RecordHandler):
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._number = next(journal.numbers)
        self._checkpointed_at = 0.0

    def _write(self, **item: Any) -> None:
        self._journal.log.write({**item, "acquisition": self._number, "at": time.time()})

    def initialize(self, shard: ShardContext) -> None:
        self._write(init=shard.shard_id, position=as_json(shard.checkpoint))

    def process_records(self, batch: RecordBatch) -> None:
        groups = write_groups(self._journal.run.encode(), batch.records)
        self._write(shard=batch.shard_id, groups=groups)
        for text in self._journal.wrong(batch):
            self._journal.log.write({"corrupt": text})
        time.sleep(self._journal.batch_seconds)
        if time.monotonic() - self._checkpointed_at >= self._journal.checkpoint_every:
            self._checkpoint(batch.checkpointer)

    def lease_lost(self) -> None:
        self._write(end="lost")

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        self._checkpoint(checkpointer)
        self._write(end="shard_end")

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        self._checkpoint(checkpointer)
        self._write(end="requested")

    def _checkpoint(self, checkpointer: Checkpointer) -> None:
        self._write(checkpointing=True, position=as_json(checkpointer.largest_delivered))
        try:
            checkpointer.checkpoint()
        except KinesisSdkError as error:
            self._write(checkpoint_failed=True, why=str(error))
            raise
        self._checkpointed_at = time.monotonic()
        self._write(checkpointed=True, position=as_json(checkpointer.last_checkpoint))


def _watch_time(log: LineWriter) -> None:
    """Log each time in which this process could not run."""
    last = time.monotonic()
    while True:
        time.sleep(_TICK)
        now = time.monotonic()
        if now - last - _TICK > STALL_SECONDS:
            log.write({"stalled": now - last, "at": time.time()})
        last = now


def start_worker(make: Callable[[], Worker], stop: StopFlag) -> Worker | None:
    """Start a worker. If a busy machine gives no response within a minute, start another, as a supervisor would.

    Returns None if told to stop before the worker started. Raises KinesisSdkError for an error that does not pass.
    """
    while not stop.is_set():
        worker = make()
        try:
            worker.start()
        except KinesisSdkError as error:
            if not error.retryable:
                raise
            _LOGGER.warning("the worker could not start and is replaced: %s", error)
        else:
            return worker
    return None


def main() -> int:
    """Consume until told to stop."""
    settings = json.loads(sys.stdin.readline())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    stop = StopFlag()
    wait_for_end(stop)
    log = LineWriter(Path(settings["log"]))
    threading.Thread(target=_watch_time, args=(log,), name="time", daemon=True).start()
    journal = Journal(log, settings["run"], settings["checkpoint_every"], settings["batch_seconds"])

    def make() -> Worker:
        return Worker(
            settings["stream"],
            application_name=settings["application_name"],
            handler=journal.make,
            config=ConsumerConfig().with_fields(**settings["config"]),
            worker_id=settings["worker_id"],
            region_name=settings["region"],
            endpoint_url=settings["endpoint_url"],
        )

    try:
        worker = start_worker(make, stop)
        held = -1
        while worker is not None and not stop.wait(_TICK):
            health = worker.health()
            if len(health.leases) != held:
                held = len(health.leases)
                log.write({"leases": held})
            if health.error is not None:
                raise health.error
        if worker is not None and not worker.stop(_STOP_SECONDS):
            log.write({"error": "the stop was not clean"})
            return 1
    except KinesisSdkError as error:
        log.write({"error": str(error)})
        return 1
    log.write({"leases": 0})
    return 0


if __name__ == "__main__":
    sys.exit(main())
