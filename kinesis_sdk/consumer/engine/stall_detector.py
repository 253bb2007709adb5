"""No silent stall: which shards make no progress, and what is done about it.

A read that hangs is begun anew after the last record that was taken. A handler that hangs is reported. Python can not
stop it, and a second call beside it may process the same records twice at once, so nothing more is done unless
``handler_timeout`` says so: then its lease is given back, and whoever takes it begins at the last checkpoint with a
new handler. The call that hangs can not checkpoint any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.consumer.health import Stall
from kinesis_sdk.consumer.shard.consumer import ShardConsumer
from kinesis_sdk.consumer.shard.state import ShardState

_LOGGER = logging.getLogger(__name__)


MEASURE_INTERVAL = 5.0
"""Seconds between two observations of the age of the oldest unprocessed record."""


def find_stall(consumer: ShardConsumer, now: float, timeout: float) -> Stall | None:
    """What is wrong with a shard, if there was no progress for the timeout. Safe from any thread.

    Waiting for parents is a stall only if it is known to be for nothing, or if a parent's lease cannot be read: else a
    parent may take hours. Reading nothing new is none: an empty answer is
    progress.
    """
    running = consumer.running_callback
    if running is not None:
        name, since = running
        return Stall(f"{name} is running", now - since, reading=False) if now - since > timeout else None
    silent = now - consumer.last_progress
    if consumer.state is ShardState.COMPLETE or silent <= timeout:
        return None
    if consumer.state is ShardState.WAITING_ON_PARENTS:
        problem = consumer.held.problem or consumer.last_error
        return None if problem is None else Stall(problem, silent, reading=False)
    reading = consumer.waits_for_reads
    problem = consumer.last_error or ("nothing is read" if reading else "no progress")
    return Stall(problem, silent, reading=reading)


class StallDetector:
    """Reports shards without progress. Cost: nothing outside this process.

    Args:
        timeout: Seconds; see ``ConsumerConfig.stall_timeout``.
        read_again: Makes a consumer begin its read anew.
        handler_timeout: Seconds; see ``ConsumerConfig.handler_timeout``.
        give_up: Takes the shard away from a consumer whose handler hangs.
        measured: Whether there is a metrics sink: then the shards' ages are recorded every `MEASURE_INTERVAL`.
    """

    def __init__(
        self,
        timeout: float,
        read_again: Callable[[ShardConsumer], None],
        *,
        handler_timeout: float | None,
        give_up: Callable[[ShardConsumer], None],
        measured: bool = False,
    ) -> None:
        self.timeout = timeout
        interval = min(timeout, handler_timeout or timeout) / 4
        self._interval = min(interval, MEASURE_INTERVAL) if measured else interval
        self._handler_timeout = handler_timeout
        self._give_up = give_up
        self._read_again = read_again
        self._log_throttle = LogThrottle(_LOGGER)
        # By acquisition, of those that stall now: when a read was last restarted.
        self._acted: dict[str, float] = {}

    def look(self, consumers: Iterable[ShardConsumer], now: float) -> float:
        """Look at all shards; returns when to look again."""
        stalled: dict[str, float] = {}
        for consumer in consumers:
            self._look_at_handler(consumer, now)
            self._measure(consumer, now)
            stall = find_stall(consumer, now, self.timeout)
            token = consumer.held.token
            if stall is None:
                if token in self._acted:
                    consumer.metrics.add(catalogue.SHARD_STALLED, 0)
                continue
            shard_id = consumer.shard_id
            self._log_throttle.log(now, consumer.held.key, "shard %s: stalled: %s", shard_id, stall)
            consumer.metrics.add(catalogue.SHARD_STALLED, stall.seconds * 1000)
            last = self._acted.get(token, float("-inf"))
            if stall.reading and now - last >= self.timeout:
                last = now
                self._read_again(consumer)
            stalled[token] = last
        self._acted = stalled
        return now + self._interval

    def _measure(self, consumer: ShardConsumer, now: float) -> None:
        """Record the age of the oldest record, which no other step does while a handler hangs or fails."""
        if not consumer.metrics.enabled:
            return
        age = consumer.oldest_unprocessed_age(now)
        if age is not None:
            consumer.metrics.add(catalogue.OLDEST_UNPROCESSED_RECORD_AGE, age * 1000)
        if consumer.is_quarantined:
            consumer.metrics.add(catalogue.SHARD_QUARANTINED, 1)

    def _look_at_handler(self, consumer: ShardConsumer, now: float) -> None:
        running, timeout = consumer.running_callback, self._handler_timeout
        if timeout is None or running is None or now - running[1] <= timeout:
            return
        _LOGGER.error(
            "shard %s: %s runs for %.0f s and is given up; the shard begins again at %s",
            consumer.shard_id,
            running[0],
            now - running[1],
            consumer.held.lease.checkpoint,
        )
        self._give_up(consumer)
