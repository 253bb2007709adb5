"""A shard whose lease names a position that can not be read.

It is another stream's, or damaged by hand, or a timestamp that only the configuration of the worker that wrote it
knows: the KCL's table does not hold the instant.

Reading on from somewhere else would lose or repeat records without anybody knowing, and stopping the worker would
stop every other worker in turn. So the lease is kept, the error reported as loudly as can be, and the row looked at
again with a growing pause: whoever repairs it (with the counter as it is) is noticed there.
"""

from __future__ import annotations

import logging

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.backoff import backoff
from kinesis_sdk.common.errors import InvalidPositionError
from kinesis_sdk.common.metrics import BoundMetrics
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.consumer.shard.state import ShardConsumerParts

_LOGGER = logging.getLogger(__name__)

_FIRST_PAUSE, _MOST_PAUSE = 10.0, 300.0


class Quarantine:
    """Keeps one shard from being read while its position is wrong. Cost: one GetItem per look at the row.

    Args:
        parts: What shard consumers share.
        held: The lease.
        metrics: Metrics of the shard.

    Attributes:
        active: Whether the shard is in quarantine.
    """

    def __init__(self, parts: ShardConsumerParts, held: HeldLease, metrics: BoundMetrics) -> None:
        self.active: bool = False
        self._metrics = metrics
        self._parts = parts
        self._held = held
        self._failures = 0

    def enter(self, now: float, error: InvalidPositionError) -> float:
        """Begin, or go on after a look that found nothing repaired; returns when to look again."""
        self.active = True
        self._failures += 1
        pause = backoff(self._failures, _FIRST_PAUSE, _MOST_PAUSE, self._parts.rng)
        shard_id = self._held.shard_id
        _LOGGER.error(
            "shard %s: not consumed, its lease has no position that can be read (%s); repair the row. "
            "Looking again in %.0f s; other shards go on",
            shard_id,
            error,
            pause,
        )
        self._metrics.add(catalogue.SHARD_QUARANTINED, 1)
        return now + pause

    def leave(self) -> None:
        """The position is good."""
        if self.active:
            self._metrics.add(catalogue.SHARD_QUARANTINED, 0)
        self.active = False
        self._failures = 0

    def look_for_repair(self) -> None:
        """Take over a checkpoint that somebody wrote by hand; raises as `LeaseStore.get`."""
        if not self.active:
            return
        row, known = self._parts.store.get(self._held.key), self._held.lease
        if row is None or (row.checkpoint, row.initial_timestamp_millis) == (
            known.checkpoint,
            known.initial_timestamp_millis,
        ):
            return
        if self._held.accept_repaired_row(row):
            _LOGGER.warning("shard %s: its lease was repaired: %s", self._held.shard_id, row.checkpoint)
