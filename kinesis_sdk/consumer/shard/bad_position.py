"""Quarantine of a shard that cannot be read from its starting position.

A quarantined shard keeps its lease, is not consumed, and is re-checked with a growing delay. Its starting position belongs
to another stream, is damaged, or is a timestamp that only another worker's configuration has (the lease table of the KCL does
not store it).

Reading from another position would silently lose or repeat records. Stopping the worker or releasing the lease would pass the
problem to the next worker, until all of them have stopped. Each check reads the lease row and asks the handler for its
starting position again, so it detects a repair of the row or of the handler's position.
"""

from __future__ import annotations

import logging

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.errors import InvalidPositionError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.metrics import BoundMetrics
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.consumer.shard.runtime import ShardRuntime

_LOGGER = FieldLogger(logging.getLogger(__name__))

_CHECKS = Backoff(10.0, 300.0)
"""Seconds between two checks."""


class Quarantine:
    """Quarantine of one shard, while `active`. Each check costs one GetItem call."""

    def __init__(self, runtime: ShardRuntime, held: HeldLease, metrics: BoundMetrics) -> None:
        self.active: bool = False
        self._logger = runtime.log(_LOGGER, held.shard_id)
        self._metrics = metrics
        self._runtime = runtime
        self._held = held
        self._failures = 0

    def enter(self, now: float, error: InvalidPositionError) -> float:
        """Quarantine the shard, or keep it quarantined after a check; return the monotonic time of the next check."""
        self.active = True
        self._failures += 1
        delay = _CHECKS.pause(self._failures, self._runtime.rng)
        self._logger.error(
            "shard %s: quarantined, cannot read from its starting position (%s); fix the lease row, or the position that "
            "the handler returns. Next check in %.0f s; other shards are not affected",
            self._held.shard_id,
            error,
            delay,
        )
        self._metrics.add(catalogue.SHARD_QUARANTINED, 1)
        return now + delay

    def leave(self) -> None:
        """End the quarantine, if any, because a read succeeded."""
        if self.active:
            self._metrics.add(catalogue.SHARD_QUARANTINED, 0)
        self.active = False
        self._failures = 0

    def accept_repair(self) -> None:
        """Accept a checkpoint that an operator wrote into the row of a quarantined shard."""
        if not self.active:
            return
        row, known = self._runtime.store.get(self._held.key), self._held.lease
        if row is None or (row.checkpoint, row.initial_timestamp_millis) == (
            known.checkpoint,
            known.initial_timestamp_millis,
        ):
            return
        if self._held.accept_repaired_row(row):
            self._logger.warning(
                "shard %s: lease row was repaired, checkpoint %s", self._held.shard_id, row.checkpoint
            )
