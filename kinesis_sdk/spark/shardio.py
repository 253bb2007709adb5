"""Calls that read shards, with retries, for the driver's search for the end of a batch and for the executors' tasks.

`ShardCursor` decides which records are read, and from which iterator. The caller decides how to wait: the calls are generators of
steps (`kinesis_sdk.spark.steps`), which the driver runs for many shards at once, and a task for one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import NamedTuple, TypeVar

from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import InvalidPositionError, KinesisSdkError, ProtocolError, TransientAwsError
from kinesis_sdk.common.position import AfterSequence, AtSequence, AtTimestamp
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.sequence import rise
from kinesis_sdk.common.service_clock import EstimatedServiceClock
from kinesis_sdk.common.shard_cursor import ShardCursor, is_at_tip
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import GetRecordsPage
from kinesis_sdk.spark.offsets import ShardPosition
from kinesis_sdk.spark.steps import Pace, Steps, run

_LOGGER = logging.getLogger(__name__)

T = TypeVar("T")

_RETRIES = Backoff(0.25, 4.0)

_WARN_AFTER_FAILURES = 3

_SKEW = 5_000
"""Milliseconds by which the clock of Kinesis may be behind the estimate. With ``Date`` headers the error is at most one second;
without them it is unknown.
"""


class Page(NamedTuple):
    """One response of GetRecords.

    Attributes:
        records: Records without the records before the requested position. Their sequence numbers rise, also from page to page.
        caught_up: Whether no record followed at that time.
        ended: Whether the shard ends after the records.
        behind: Milliseconds from the last record to the tip; None if Kinesis reports no lag.
        dropped: Number of records before the requested position.
    """

    records: list[KinesisRecord]
    caught_up: bool
    ended: bool
    behind: int | None
    dropped: int = 0


def arrival_of(record: KinesisRecord) -> int:
    """Return the arrival time of a record in epoch milliseconds.

    Raises:
        ProtocolError: If the record has no arrival time.
    """
    moment = record.approximate_arrival_timestamp
    if moment is None:
        raise ProtocolError("GetRecords: a record without ApproximateArrivalTimestamp")
    return round(moment.timestamp() * 1000)


def first_number(position: ShardPosition) -> int:
    """Return the smallest sequence number that a record after a position can have; -1 if the position has no sequence number."""
    if isinstance(position, AfterSequence):
        return position.number + 1
    return int(position.sequence_number) if isinstance(position, AtSequence) else -1


class ShardIo:
    """Calls that read shards of one stream, each retried for up to ``retry_timeout`` seconds. Thread-safe if its client is."""

    def __init__(
        self,
        client: KinesisClient,
        stream: StreamId,
        *,
        clock: Clock,
        sleep: Callable[[float], None],
        rng: Random,
        retry_timeout: float,
    ) -> None:
        self.client = client
        self.stream = stream
        self.clock = clock
        self.sleep = sleep
        self.service_clock: EstimatedServiceClock = EstimatedServiceClock(clock)
        self._rng = rng
        self.retry_timeout: float = retry_timeout

    def retry(self, call: Callable[[], T], what: str, pace: Pace | None = None) -> Steps[T]:
        """Repeat a call until it succeeds, fails permanently, or ``retry_timeout`` has passed; ``what`` begins the log lines.

        Raises:
            AwsError: If the last attempt failed.
            ProtocolError: If the last response was malformed.
        """
        deadline = self.clock.monotonic() + self.retry_timeout
        failures = 0
        while True:
            if pace is not None:
                yield from pace.wait(self.clock)
            try:
                return call()
            except KinesisSdkError as error:
                failures += 1
                pause = _RETRIES.pause(failures, self._rng)
                due = self.clock.monotonic() + pause
                if not error.retryable or due > deadline:
                    raise
                _LOGGER.log(
                    logging.WARNING if failures > _WARN_AFTER_FAILURES else logging.DEBUG,
                    "%s: attempt %d failed, next attempt in %.2f s: %s",
                    what,
                    failures,
                    pause,
                    error,
                )
            yield due

    def is_recent(self, position: object) -> bool:
        """Return whether Kinesis may consider a position to be in the future."""
        return isinstance(position, AtTimestamp) and position.millis > self.service_clock.millis() - _SKEW

    def cursor(
        self,
        shard_id: str,
        position: ShardPosition,
        *,
        via: ShardPosition | None = None,
        await_instant: bool = True,
        pace: Pace | None = None,
    ) -> Cursor:
        """Return a cursor at a position; see `Cursor`."""
        return Cursor(self, shard_id, position, via=via, await_instant=await_instant, pace=pace)


class Cursor:
    """A position in a shard that advances with each read; failed reads are retried.

    Args:
        position: Position to start from. Records before it are dropped, by sequence number or by arrival time.
        via: Position to open the iterator at, if ``position`` is too old for Kinesis; None opens it at ``position``.
        await_instant: Kinesis rejects a timestamp ahead of its own clock. True retries until that time, because there are no records to
            read before it. False raises the error.
        pace: Limit of the reads; None without a limit.
    """

    __slots__ = (
        "_await_instant",
        "_cursor",
        "_io",
        "_last",
        "_min_arrival",
        "_min_number",
        "_pace",
        "shard_id",
    )

    def __init__(
        self,
        io: ShardIo,
        shard_id: str,
        position: ShardPosition,
        *,
        via: ShardPosition | None = None,
        await_instant: bool = True,
        pace: Pace | None = None,
    ) -> None:
        self._await_instant = await_instant
        self._pace = pace
        self._io = io
        self.shard_id: str = shard_id
        self._cursor = ShardCursor(
            io.client,
            io.stream,
            shard_id,
            position,
            open_at=via,
            clock=io.clock,
            on_response=io.service_clock.observe,
        )
        self._last: list[str] = []  # sequence number of the last record that was read, if there is one
        self._min_number = first_number(position)
        self._min_arrival = position.millis if isinstance(position, AtTimestamp) else -1

    def read(self, limit: int) -> Page:
        """Return the next page, and wait in this thread for retries; see `steps`."""
        return run(self.steps(limit), self._io.clock, self._io.sleep)

    def steps(self, limit: int) -> Steps[Page]:
        """Return the next page of at most ``limit`` (1 to 10,000) Kinesis records. An error leaves the cursor unchanged.

        Raises:
            AwsError: If a call failed permanently, or kept failing for ``retry_timeout``.
            ProtocolError: If the responses were malformed for as long; for example, if sequence numbers did not rise.
        """
        page = yield from self._io.retry(lambda: self._fetch(limit), f"shard {self.shard_id}", self._pace)
        records = page.records
        if records:
            if self._min_number >= 0 and int(records[0].sequence_number) < self._min_number:
                records = [r for r in records if int(r.sequence_number) >= self._min_number]
            if self._min_arrival >= 0:
                # The first record at that time or later. All records after it belong to the position, even with an earlier time.
                first = next((n for n, r in enumerate(records) if arrival_of(r) >= self._min_arrival), None)
                records = [] if first is None else records[first:]
                self._min_arrival = self._min_arrival if first is None else -1
        self._cursor.advance(page)
        self._last = [record.sequence_number for record in page.records[-1:]] or self._last
        header = page.header
        caught_up = header.ended or is_at_tip(page, limit)
        dropped = len(page.records) - len(records)
        return Page(records, caught_up, header.ended, header.millis_behind_latest, dropped)

    def _fetch(self, limit: int) -> GetRecordsPage:
        try:
            page = self._cursor.fetch(limit)
        except InvalidPositionError as error:
            if self._await_instant and self._io.is_recent(self._cursor.opens_at):
                raise TransientAwsError(
                    error.message, operation=error.operation, code=error.code, endpoint=error.endpoint
                ) from error
            raise
        # Readers and the search find their places by bisection. In a page out of order, they would skip records, or miss an end that is there.
        numbers = self._last + [record.sequence_number for record in page.records]
        if not rise(numbers):
            before, after = next(pair for pair in pairwise(numbers) if not rise(pair))
            raise ProtocolError(
                f"GetRecords: sequence number {after} follows {before} in shard {self.shard_id}; sequence numbers have to rise"
            )
        return page
