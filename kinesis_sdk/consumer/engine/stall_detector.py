"""Detection of stalled shards.

A hung read is restarted after the last accepted record. A shard that computes for long, for example on an aggregate forged to
be expensive, is only reported. A hung handler is also only reported, because Python cannot interrupt it, and a second call would
process the same records concurrently. With ``handler_timeout``, the lease is released instead: its next owner resumes from the
last checkpoint with a new handler, and the hung call can no longer checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.consumer.health import Stall
from kinesis_sdk.consumer.shard.consumer import ShardConsumer
from kinesis_sdk.consumer.shard.state import ShardState

_LOGGER = FieldLogger(logging.getLogger(__name__))

MEASURE_INTERVAL = 5.0
"""Seconds between two observations of the age of the oldest unprocessed record."""

_COMPUTING = "computing: records that were read are being decoded and compared with earlier copies"
"""Problem of a shard whose own computation takes long. Reading again would only repeat this computation."""


def find_stall(consumer: ShardConsumer, now: float, timeout: float) -> Stall | None:
    """Return the stall of a shard, or None if it made progress within the timeout. Thread-safe.

    A shard that waits for its parents is stalled only if the parents' leases cannot be read or consumed: reading a parent
    may take hours. A shard without new records is not stalled: an empty response is progress. A shard whose records are not due yet is not
    stalled either.
    """
    running = consumer.progress.running_callback
    if running is not None:
        name, since = running
        return Stall(f"{name} is running", now - since, reading=False) if now - since > timeout else None
    since_computing = consumer.progress.computing_since
    if since_computing is not None:
        busy = now - since_computing
        return Stall(_COMPUTING, busy, reading=False) if busy > timeout else None
    silent = now - max(consumer.progress.at, consumer.progress.waits_until)
    if consumer.state is ShardState.COMPLETE or silent <= timeout:
        return None
    if consumer.state is ShardState.WAITING_ON_PARENTS:
        problem = consumer.held.problem or consumer.progress.last_error
        return None if problem is None else Stall(problem, silent, reading=False)
    reading = (
        consumer.state is ShardState.PROCESSING
        and not consumer.is_quarantined
        and consumer.progress.waits_for_reads
    )
    problem = consumer.progress.last_error or ("nothing is read" if reading else "no progress")
    return Stall(problem, silent, reading=reading)


class StallHandler(Protocol):
    """Carries out the detector's decisions; `ConsumerEngine` implements it."""

    def restart_read(self, consumer: ShardConsumer, /) -> None:
        """Restart the hung read of a shard."""

    def release_shard(self, consumer: ShardConsumer, /) -> None:
        """Release the lease of a shard whose handler hangs."""


class StallDetector:
    """Detects shards that make no progress. Makes no calls to AWS.

    Args:
        timeout: Seconds without progress after which a shard is stalled; see ``FailureConfig.stall_timeout``.
        handler_timeout: Maximum seconds for one call of a handler; None for no limit. See
            ``FailureConfig.handler_timeout``.
        measured: Whether to record the age of each shard's oldest unprocessed record every `MEASURE_INTERVAL`.
    """

    def __init__(
        self,
        timeout: float,
        *,
        handler_timeout: float | None,
        handler: StallHandler,
        measured: bool = False,
    ) -> None:
        self.timeout = timeout
        interval = min(timeout, handler_timeout or timeout) / 4
        self._interval = min(interval, MEASURE_INTERVAL) if measured else interval
        self._handler_timeout = handler_timeout
        self._handler = handler
        self._log_throttle = LogThrottle(_LOGGER)
        # For shards that are stalled now: acquisition ─► monotonic time of the last restart of its read.
        self._restarted_at: dict[str, float] = {}

    def check(self, consumers: Iterable[ShardConsumer], now: float) -> float:
        """Check all shards; return when to check again."""
        stalled: dict[str, float] = {}
        for consumer in consumers:
            self._check_handler(consumer, now)
            self._measure(consumer, now)
            stall = find_stall(consumer, now, self.timeout)
            token = consumer.held.token
            if stall is None:
                if token in self._restarted_at:
                    consumer.metrics.add(catalogue.SHARD_STALLED, 0)
                continue
            shard_id = consumer.shard_id
            self._log_throttle.log(
                now, consumer.held.key, "shard %s: stalled: %s", shard_id, stall, extra=consumer.log_fields
            )
            consumer.metrics.add(catalogue.SHARD_STALLED, stall.seconds * 1000)
            last = self._restarted_at.get(token, float("-inf"))
            if stall.reading and now - last >= self.timeout:
                last = now
                self._handler.restart_read(consumer)
            stalled[token] = last
        self._restarted_at = stalled
        return now + self._interval

    def _measure(self, consumer: ShardConsumer, now: float) -> None:
        """Record the age of the oldest unprocessed record, because no other code records it while a handler hangs or fails."""
        if not consumer.metrics.enabled:
            return
        age = consumer.progress.oldest_unprocessed_age(now)
        if age is not None:
            consumer.metrics.add(catalogue.OLDEST_UNPROCESSED_RECORD_AGE, age * 1000)
        if consumer.is_quarantined:
            consumer.metrics.add(catalogue.SHARD_QUARANTINED, 1)

    def _check_handler(self, consumer: ShardConsumer, now: float) -> None:
        running, timeout = consumer.progress.running_callback, self._handler_timeout
        if timeout is None or running is None or now - running[1] <= timeout:
            return
        _LOGGER.error(
            "shard %s: %s exceeded handler_timeout after %.0f s; releasing the lease, processing resumes from %s",
            consumer.shard_id,
            running[0],
            now - running[1],
            consumer.held.lease.checkpoint,
            extra=consumer.log_fields,
        )
        self._handler.release_shard(consumer)
