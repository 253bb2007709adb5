"""Polling: GetShardIterator and GetRecords.

API cost per shard: at most five GetRecords per second while behind, fewer where answers exceed 2 MiB per second or
other applications use the same budget. At the tip with the defaults: 120 per minute while every read brings
records, 30 per minute once the shard stays empty (see `TipIdle`). One GetShardIterator per start or expiry.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.aws import KinesisClient, translate_errors
from kinesis_sdk.common.backoff import backoff
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import (
    AwsError,
    ExpiredIteratorError,
    InvalidPositionError,
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
    ThrottledError,
)
from kinesis_sdk.common.fastpath import GetRecordsPage, get_records
from kinesis_sdk.common.metrics import NOT_MEASURED, BoundMetrics
from kinesis_sdk.common.sequence import LATEST
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.fetch.fetcher import FetchResult, Position, read_child_shards, record_read
from kinesis_sdk.consumer.fetch.prefetch import RECORD_OVERHEAD
from kinesis_sdk.consumer.fetch.read_rate import READ_INTERVAL, ReadPace, TipIdle
from kinesis_sdk.consumer.fetch.service_clock import ServiceClock, date_of

_FIRST_BACKOFF, _MOST_BACKOFF = READ_INTERVAL, 5.0

_MOST_ANSWER = 10 * 1024 * 1024
"""Bytes of records that one GetRecords call brings at most (API reference)."""

_SHARD_BYTES_PER_SECOND = 1024 * 1024
_SHARD_RECORDS_PER_SECOND = 1000
"""What a shard takes in at most, so what can have come since its tip was read."""

_SMALLER_AFTER = 2
"""Failures in a row, throttles aside, after which less is asked for: an answer may be too large for its timeout, or
one record in it unreadable. Down to one record the limit halves; each success doubles it again."""

_ASK_LISTING_AFTER = 3
"""Answers without children at a shard's end before ListShards is asked (some emulators never send them)."""

_RESOLUTION_SLACK_MILLIS = 1000
"""The ``Date`` header has seconds only: the instant of a LATEST start is taken one second earlier."""

_LOGGER = logging.getLogger(__name__)


class PollingFetcher:
    """Reads one shard with GetRecords. See `Fetcher`.

    Args:
        client: boto3 Kinesis client or one of its shape.
        stream: The stream.
        shard_id: The shard.
        start: Where to start.
        rng: Jitter of the backoff.
        max_records: Most Kinesis records per call.
        idle: How long to wait at the tip.
        pace: The shard's budget of reads, which outlives this object.
        now: Monotonic time.
        clock: Time, for the duration of calls.
        service_clock: The service's time as far as it is known; shared by all shards. None starts without knowledge.
        metrics: Metrics of the shard.
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
        pace: ReadPace,
        now: float,
        clock: Clock,
        service_clock: ServiceClock | None = None,
        metrics: BoundMetrics = NOT_MEASURED,
    ) -> None:
        self._client = client
        self._stream = stream
        self._shard_id = shard_id
        self._start = start
        self._rng = rng
        self._max_records = max_records
        self._limit = max_records
        self._idle = idle
        self._pace = pace
        self._clock = clock
        self._service_clock = service_clock or ServiceClock()
        self._metrics = metrics
        self._due = now
        self._tip_read_at: float | None = None
        self._iterator: str | None = None
        self._last_sequence: str | None = None
        self._started_at_millis: int | None = None
        self._failures = 0
        self._childless_ends = 0

    @property
    def due(self) -> float:
        """Monotonic time before which `fetch` should not be called."""
        return max(self._due, self._pace.ready_at)

    @property
    def position(self) -> Position:
        """Where a new iterator would start."""
        if self._last_sequence is not None:
            return Position.after_sequence_number(self._last_sequence)
        # LATEST must not be resolved a second time: what arrived in between would be skipped.
        if self._start.kind == LATEST and self._started_at_millis is not None:
            return Position.at_timestamp(self._started_at_millis)
        return self._start

    def close(self) -> None:
        """Forget the iterator."""
        self._iterator = None

    @property
    def waiting(self) -> FetchResult | None:
        """Nothing: every `fetch` is a call."""
        return None

    def expected_bytes(self, now: float) -> int:
        """Bytes in memory that the next read brings at most.

        Behind the tip that is the largest answer of the service; at the tip, what a shard can have taken in
        since, so that a thousand quiet shards do not wait for each other.
        """
        most = _MOST_ANSWER + self._limit * RECORD_OVERHEAD
        if self._tip_read_at is None:
            return most
        seconds = now - self._tip_read_at + 1.0
        each = _SHARD_BYTES_PER_SECOND + _SHARD_RECORDS_PER_SECOND * RECORD_OVERHEAD
        return min(most, int(seconds * each))

    @property
    def started_at_millis(self) -> int | None:
        """See `FetchResult.started_at_millis`."""
        return self._started_at_millis

    def resolve_start(self) -> None:
        """Open a LATEST start now, so that `started_at_millis` is known; the first `fetch` uses the same iterator.

        Raises as `fetch`.
        """
        if self._start.kind == LATEST and self._iterator is None and self._started_at_millis is None:
            self._iterator = self._open()

    def fetch(self, now: float) -> FetchResult:
        """Read once. See `Fetcher.fetch`."""
        self._pace.sent(now)
        try:
            page, result = self._read()
        except KinesisSdkError as error:
            self._failures += 1
            if isinstance(error, ThrottledError):
                self._pace.throttled()
                self._metrics.add(catalogue.READS_THROTTLED, 1)
            elif self._failures >= _SMALLER_AFTER:
                self._limit = max(1, self._limit // 2)
            self._due = now + backoff(self._failures, _FIRST_BACKOFF, _MOST_BACKOFF, self._rng)
            raise
        self._failures = 0
        size = sum([len(record.data) for record in page.records])
        self._pace.succeeded(now, size)
        record_read(self._metrics, result, size)
        # A full page has more behind it even where the service reports no lag (some emulators never do).
        full = len(page.records) >= self._limit
        self._limit = min(self._max_records, self._limit * 2)
        if (result.header.millis_behind_latest or 0) > 0 or full or result.header.ended:
            self._idle.behind()
            self._tip_read_at = None
            self._due = now
        else:
            self._tip_read_at = now
            self._due = now + self._idle.after(len(page.records))
        return result

    def _read(self) -> tuple[GetRecordsPage, FetchResult]:
        if self._iterator is None:
            self._iterator = self._open()
        try:
            page = self._get_records(self._iterator)
        except AwsError as error:
            if not isinstance(error, ExpiredIteratorError) and error.code != "InvalidArgumentException":
                raise
            # Five minutes old, or of a form the service does not know any more: a new one at the same place.
            self._iterator = self._open()
            page = self._get_records(self._iterator)
        return page, self._accept(page)

    def _get_records(self, iterator: str) -> GetRecordsPage:
        with self._metrics.timed(self._clock, catalogue.GET_RECORDS_TIME, catalogue.GET_RECORDS_SUCCESS):
            return get_records(self._client, iterator, self._limit, self._stream.arn)

    def _open(self) -> str:
        position = self.position
        try:
            with translate_errors("GetShardIterator", self._client):
                answer = self._client.get_shard_iterator(
                    **self._stream.request, ShardId=self._shard_id, **position.request
                )
        except PermanentAwsError as error:
            if error.code != "InvalidArgumentException":
                raise
            raise InvalidPositionError(
                f"shard {self._shard_id} can not be read from {position}: the lease's checkpoint is not a "
                f"position of this shard ({error.message})",
                operation=error.operation,
                code=error.code,
                endpoint=error.endpoint,
                status=error.status,
                request_id=error.request_id,
            ) from error
        iterator = answer.get("ShardIterator")
        if not iterator:
            raise ProtocolError(f"GetShardIterator: no iterator for shard {self._shard_id} at {position}")
        if position.kind == LATEST:
            self._resolve(answer)
        return str(iterator)

    def _resolve(self, answer: Mapping[str, Any]) -> None:
        moment = date_of(answer.get("ResponseMetadata", {}))
        if moment is None:
            _LOGGER.warning(
                "shard %s: the service sent no usable date with its answer, so this LATEST start can not be "
                "remembered; a failover before the first checkpoint would skip records",
                self._shard_id,
            )
            return
        self._started_at_millis = int(moment * 1000) - _RESOLUTION_SLACK_MILLIS

    def _accept(self, page: GetRecordsPage) -> FetchResult:
        """Check an answer completely before the position moves (KCL ``DataFetcher.isValidResult``)."""
        following = page.next_iterator
        children: tuple[Shard, ...] = ()
        try:
            children = read_child_shards(page.child_shards, self._shard_id)
            if following and children:
                raise ProtocolError(
                    f"GetRecords: shard {self._shard_id} has child shards and goes on at the same time"
                )
            if not following and not children:
                children = self._children_from_listing()
        except KinesisSdkError:
            self._iterator = None
            raise
        if page.records:
            self._last_sequence = page.records[-1].sequence_number
        self._iterator = following
        read_at = self._clock.monotonic()
        date = date_of(page.metadata)
        if date is not None:
            self._service_clock.observe(date, read_at)
        header = replace(
            page.header,
            child_shards=children,
            read_at=read_at,
            arrivals=self._service_clock.arrivals(page.records, page.header.millis_behind_latest, read_at),
        )
        return FetchResult(records=page.records, header=header, started_at_millis=self._started_at_millis)

    def _children_from_listing(self) -> tuple[Shard, ...]:
        self._childless_ends += 1
        if self._childless_ends >= _ASK_LISTING_AFTER:
            children = tuple(
                shard for shard in list_shards(self._client, self._stream) if self._shard_id in shard.parents
            )
            if children:
                return children
        raise ProtocolError(f"GetRecords: shard {self._shard_id} ended without child shards")
