"""Polling: the times of a shard's GetRecords calls, the number of records to request, and retries.

`ShardCursor` has the position and the iterator.

API cost per shard: at most five GetRecords calls per second while the shard is behind, fewer if responses exceed 2 MiB per second
or other applications use the same limit. At the tip with the defaults: 120 calls per minute while every read returns records,
60 to 70 per minute once the shard stays empty, and a few more after hints (see `TipIdle`). One GetShardIterator per start
or expired iterator.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import (
    KinesisSdkError,
    ProtocolError,
    ResourceNotFoundError,
    ThrottledError,
)
from kinesis_sdk.common.metrics import NOT_MEASURED, BoundMetrics
from kinesis_sdk.common.position import Latest, Position
from kinesis_sdk.common.service_clock import ServiceClock, response_date
from kinesis_sdk.common.shard_cursor import ShardCursor, is_at_tip
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import GetRecordsPage
from kinesis_sdk.consumer.fetch.fetcher import FetchResult, read_child_shards, record_read
from kinesis_sdk.consumer.fetch.prefetch import RECORD_OVERHEAD
from kinesis_sdk.consumer.fetch.read_rate import READ_INTERVAL, ReadRate, TipIdle

_RETRIES = Backoff(READ_INTERVAL, 5.0)

_MAX_RESPONSE_BYTES = 10 * 1024 * 1024
"""Maximum bytes of records in one GetRecords response (API reference)."""

_SHARD_BYTES_PER_SECOND = 1024 * 1024
_SHARD_RECORDS_PER_SECOND = 1000
"""Write limits of a shard. These limits bound the records that can have arrived since the shard's tip was read."""

_SHRINK_AFTER_FAILURES = 2
"""Consecutive failures, not counting throttles, after which fewer records are requested. The response may be too large for the
timeout, or contain an unreadable record. The limit halves down to one record; each success doubles it again."""

_LIST_SHARDS_AFTER = 3
"""Responses without child shards at the end of a shard before ListShards is called: some emulators never send children."""


class PollingFetcher:
    """Reads one shard with GetRecords. See `Fetcher`.

    Args:
        client: boto3 Kinesis client, or an object with its methods.
        stream: The stream.
        shard_id: The shard.
        start: Position to start from.
        rng: Source of jitter for the backoff.
        max_records: Maximum Kinesis records per call, from 1 to 10,000.
        idle: Pauses at the tip.
        read_rate: Read rate of the shard; it outlives this object.
        now: Monotonic seconds.
        clock: Clock that measures the calls.
        service_clock: Time at Kinesis, shared by all shards; None starts a new clock.
        metrics: Metrics of the shard.
        worker: Id of the worker, for the log.
    """

    def __init__(
        self,
        client: KinesisClient,
        stream: StreamId,
        shard_id: str,
        start: Position,
        *,
        rng: Random,
        max_records: int,
        idle: TipIdle,
        read_rate: ReadRate,
        now: float,
        clock: Clock,
        service_clock: ServiceClock | None = None,
        metrics: BoundMetrics = NOT_MEASURED,
        worker: str | None = None,
    ) -> None:
        self._client = client
        self._stream = stream
        self._shard_id = shard_id
        self._cursor = ShardCursor(
            client, stream, shard_id, start, clock=clock, metrics=metrics, worker=worker
        )
        self._rng = rng
        self._max_records = max_records
        self._limit = max_records
        self._idle = idle
        self._read_rate = read_rate
        self._clock = clock
        self._service_clock = service_clock or ServiceClock()
        self._metrics = metrics
        self._due = now
        self._tip_read_at: float | None = None
        self._failures = 0
        self._childless_ends = 0

    @property
    def due(self) -> float:
        """Monotonic time before which `fetch` should not be called."""
        return max(self._due, self._idle.due, self._read_rate.ready_at)

    @property
    def position(self) -> Position:
        """Position at which a new iterator would start."""
        return self._cursor.position

    def close(self) -> None:
        """Drop the iterator."""
        self._idle.close()
        self._cursor.close()

    def listen(self, wake: Callable[[], None]) -> None:
        """Call ``wake``, from any thread, when `due` becomes earlier."""
        self._idle.listen(wake)

    @property
    def waiting(self) -> FetchResult | None:
        """None, because nothing is read ahead."""
        return None

    def expected_bytes(self, now: float) -> int:
        """Return the maximum bytes in memory that the next read adds.

        Behind the tip, this is the largest response that Kinesis sends. At the tip, it is the maximum that the shard can have received
        since the last read, so that a thousand quiet shards do not wait for each other.
        """
        largest = _MAX_RESPONSE_BYTES + self._limit * RECORD_OVERHEAD
        if self._tip_read_at is None:
            return largest
        seconds = now - self._tip_read_at + 1.0
        per_second = _SHARD_BYTES_PER_SECOND + _SHARD_RECORDS_PER_SECOND * RECORD_OVERHEAD
        return min(largest, int(seconds * per_second))

    @property
    def started_at_millis(self) -> int | None:
        """See `FetchResult.started_at_millis`."""
        return self._cursor.started_at_millis

    def resolve_start(self) -> None:
        """Open a LATEST start now, so that `started_at_millis` is known; the first `fetch` uses the same iterator."""
        if isinstance(self._cursor.position, Latest):
            # The shard may be gone: its lease was created, no worker opened it, and its retention ended. The next `fetch`
            # gets the same error, which its caller can explain.
            with suppress(ResourceNotFoundError):
                self._cursor.open()

    def fetch(self, now: float) -> FetchResult:
        """Make one GetRecords call. See `Fetcher.fetch`."""
        self._read_rate.sent(now)
        limit = self._limit
        requested_at = self._clock.monotonic()
        try:
            page = self._cursor.fetch(limit)
            result = self._accept(page, requested_at)
        except KinesisSdkError as error:
            self._failures += 1
            if isinstance(error, ThrottledError):
                self._read_rate.throttled()
                self._metrics.add(catalogue.READS_THROTTLED, 1)
            elif self._failures >= _SHRINK_AFTER_FAILURES:
                self._limit = max(1, limit // 2)
            self._due = now + _RETRIES.pause(self._failures, self._rng)
            raise
        self._failures = 0
        size = sum([len(record.data) for record in page.records])
        self._read_rate.succeeded(now, size)
        record_read(self._metrics, result, size)
        self._limit = min(self._max_records, limit * 2)
        if is_at_tip(page, limit) and not result.header.ended:
            self._tip_read_at = now
            self._idle.read(now, len(page.records))
        else:
            self._idle.behind()
            self._tip_read_at = None
        self._due = now
        return result

    def _accept(self, page: GetRecordsPage, requested_at: float) -> FetchResult:
        """Check a page completely, then move the position (KCL ``DataFetcher.isValidResult``)."""
        try:
            children = self._child_shards(page)
        except KinesisSdkError:
            self._cursor.close()  # read the page again, with a new iterator
            raise
        self._cursor.advance(page)
        read_at = self._clock.monotonic()
        date = response_date(page.metadata)
        if date is not None:
            self._service_clock.observe(date, read_at)
        header = replace(
            page.header,
            child_shards=children,
            read_at=read_at,
            requested_at=requested_at,
            arrivals=self._service_clock.arrivals(page.records, page.header.millis_behind_latest, read_at),
            service_time=self._service_clock.time_at(requested_at),
        )
        return FetchResult(records=page.records, header=header, started_at_millis=self.started_at_millis)

    def _child_shards(self, page: GetRecordsPage) -> tuple[Shard, ...]:
        """Return the child shards if the shard has ended, otherwise an empty list."""
        children = read_child_shards(page.child_shards, self._shard_id)
        if page.next_iterator is not None:
            if children:
                raise ProtocolError(
                    f"GetRecords: the response for shard {self._shard_id} has both child shards and a next iterator"
                )
            return ()
        if self._stream.is_of_table and page.child_shards is not None:
            return children  # none if the stream is disabled, see `TableStreamClient.get_records`
        return children or self._children_from_listing()

    def _children_from_listing(self) -> tuple[Shard, ...]:
        self._childless_ends += 1
        if self._childless_ends >= _LIST_SHARDS_AFTER:
            children = tuple(
                shard for shard in list_shards(self._client, self._stream) if self._shard_id in shard.parents
            )
            if children:
                return children
        raise ProtocolError(f"GetRecords: shard {self._shard_id} ended without child shards")
