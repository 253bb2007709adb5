"""Progress of a shard, for other threads: its lag, its running callback, its failures.

The worker's health, the stall detector and each heartbeat read it while a handler may hang, so no method here takes a lock or waits. The
shard's step sets the attributes. Each attribute is a single reference, which a method reads once.
"""

from __future__ import annotations

from kinesis_sdk.common.response_header import NO_RESPONSE, ResponseHeader
from kinesis_sdk.consumer.handler import AwaitingHandler
from kinesis_sdk.consumer.leases.table.progress import Failing, Progress
from kinesis_sdk.consumer.shard.delivery import Delivery
from kinesis_sdk.consumer.shard.failures import FailingCalls
from kinesis_sdk.consumer.shard.reader import ShardReader
from kinesis_sdk.consumer.shard.runtime import ShardRuntime

_MAX_QUIET = 10.0
"""Seconds without a response that are normal at the tip. Fan-out sends an event about every five seconds."""


class ShardProgress:
    """Progress of one shard under one lease. The shard's step sets the attributes, any thread calls the methods.

    Attributes:
        handler: The handler since the last start of the shard; like `reader` and `delivery`, None before the start.
        at: Monotonic time of the last successful read or delivery.
        unoffered_since: Arrival of the oldest record that was read but not offered to the delivery, or will be read again;
            None if there is none.
        failing_callback: Consecutive failures of a callback without records, or restarts without progress.
        error: Failure that holds up the shard, unless the handler fails on records; None if there is none.
        records_before: User records that were delivered before the last start of the shard.
    """

    def __init__(self, runtime: ShardRuntime) -> None:
        self._worker_id = runtime.worker_id
        self._delay = runtime.config.delivery_delay
        self._quiet = max(_MAX_QUIET, 2 * runtime.config.retrieval.idle_times(billed=True)[2])
        self.handler: AwaitingHandler | None = None
        self.reader: ShardReader | None = None
        self.delivery: Delivery | None = None
        self.at: float = runtime.clock.monotonic()
        self.last_read: ResponseHeader = NO_RESPONSE
        self.unoffered_since: float | None = None
        self.failing_callback: FailingCalls | None = None
        self.error: str | None = None
        self.records_before: int = 0

    @property
    def records_delivered(self) -> int:
        """User records whose delivery succeeded, including dead-lettered ones."""
        delivery = self.delivery
        return self.records_before + (delivery.records_delivered if delivery is not None else 0)

    @property
    def records_dead_lettered(self) -> int:
        """User records that the dead-letter hook accepted."""
        delivery = self.delivery
        return delivery.records_dead_lettered if delivery is not None else 0

    @property
    def last_error(self) -> str | None:
        """Failure that currently holds up the shard; None if there is none."""
        delivery = self.delivery
        return self.error or (delivery.last_error if delivery is not None else None)

    @property
    def running_callback(self) -> tuple[str, float] | None:
        """Name of the running callback and the monotonic time at which it began; None if no callback is running."""
        handler, delivery = self.handler, self.delivery
        running = handler.running if handler is not None else None
        if running is None and delivery is not None:
            since = delivery.calling_since
            running = ("process_records", since) if since is not None else None
        return running

    @property
    def computing_since(self) -> float | None:
        """See `ShardReader.computing_since`."""
        reader = self.reader
        return None if reader is None else reader.computing_since

    @property
    def waits_for_reads(self) -> bool:
        """Whether there is no work until another thread has read a response."""
        reader, delivery = self.reader, self.delivery
        return (
            delivery is not None
            and delivery.lanes.is_empty
            and reader is not None
            and reader.reading_since is None
            and reader.computing_since is None
        )

    @property
    def waits_until(self) -> float:
        """Monotonic time until which records wait to become due; a past time if none waits."""
        delivery = self.delivery
        return float("-inf") if delivery is None else delivery.waits_until

    def oldest_unprocessed_age(self, now: float) -> float | None:
        """Return the seconds since the oldest unprocessed record was due.

        With `delivery_delay`, a record becomes due this time after its arrival. See `_oldest_age` for the age since its arrival.
        """
        age = self._oldest_age(now)
        return age if age is None or not self._delay else max(0.0, age - self._delay)

    def _oldest_age(self, now: float) -> float | None:
        """Return the seconds since the oldest unprocessed record arrived at Kinesis.

        For records that were read, `ArrivalTimes` has the time. For records not yet read, the last response gives an upper bound: its lag
        plus the time since. At the tip, no record is known to wait, so the age is 0 while responses arrive as often as from an idle shard.
        The age is None before the first read, or if Kinesis reports no lag.
        """
        delivery, reader = self.delivery, self.reader
        if delivery is not None and not delivery.lanes.is_empty:
            since = delivery.lanes.waiting_since
            return None if since is None else max(0.0, now - since)
        since = self.unoffered_since
        if since is None and reader is not None:
            since = reader.waiting_since
        if since is not None:
            return max(0.0, now - since)
        if reader is not None and reader.is_done:
            return 0.0
        last_read = self.last_read
        read_at, millis = last_read.read_at, last_read.millis_behind_latest
        if read_at is None or millis is None:
            return None
        silent = max(0.0, now - read_at)
        if not millis:
            return silent if silent > self._quiet else 0.0
        return millis / 1000 + silent

    def heartbeat(self, now: float) -> Progress:
        """Return the progress that the next heartbeat stores for other programs."""
        running, delivery = self.running_callback, self.delivery
        arrival = delivery.lanes.last_arrival if delivery is not None else None
        age = self.oldest_unprocessed_age(now)
        return Progress(
            None if age is None else round(age * 1000),
            None if arrival is None else round(arrival.timestamp() * 1000),
            None if running is None else round((now - running[1]) * 1000),
            self._worker_id,
            self._failing(now),
            round(self._delay * 1000),
        )

    def _failing(self, now: float) -> Failing | None:
        delivery, calls = self.delivery, self.failing_callback
        if calls is None and delivery is not None:
            calls = delivery.failing
        if calls is None:
            return None
        return Failing(
            attempts=calls.attempts,
            since_millis=round((now - calls.since) * 1000),
            retry_millis=max(0, round((calls.retry_at - now) * 1000)),
            records=calls.records,
            position=calls.position,
            error=calls.error,
        )
