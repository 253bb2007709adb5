"""Polling: GetShardIterator and GetRecords.

API cost per shard: at most five GetRecords per second while behind, one per ``idle_time_between_reads`` at the
tip (60 per minute by default), one GetShardIterator per start or expiry.
"""

from __future__ import annotations

import logging
from email.utils import parsedate_to_datetime
from random import Random
from typing import Any

from kinesis_sdk.common.aws import KinesisClient, translate_errors
from kinesis_sdk.common.errors import (
    AwsError,
    ExpiredIteratorError,
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
)
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.sequence import LATEST
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.config import READ_INTERVAL
from kinesis_sdk.consumer.failure import backoff
from kinesis_sdk.consumer.fetch.fetcher import FetchResult, Position, read_child_shards

_FIRST_BACKOFF, _MOST_BACKOFF = READ_INTERVAL, 5.0

_ASK_LISTING_AFTER = 3
"""Answers without children at a shard's end before ListShards is asked (some emulators never send them)."""

_RESOLUTION_SLACK_MILLIS = 1000
"""The ``Date`` header has seconds only: the instant of a LATEST start is taken one second earlier."""

_LOGGER = logging.getLogger("kinesis_sdk.consumer.fetch")


class PollingFetcher:
    """Reads one shard with GetRecords. See `Fetcher`.

    Args:
        client: boto3 Kinesis client or one of its shape.
        stream: The stream.
        shard_id: The shard.
        start: Where to start.
        rng: Jitter of the backoff.
        max_records: Most Kinesis records per call.
        idle_time: Seconds between reads at the tip.
        now: Monotonic time.
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
        idle_time: float,
        now: float,
    ) -> None:
        self._client = client
        self._stream = stream
        self._shard_id = shard_id
        self._start = start
        self._rng = rng
        self._max_records = max_records
        self._idle_time = idle_time
        self._due = now
        self._iterator: str | None = None
        self._last_sequence: str | None = None
        self._started_at_millis: int | None = None
        self._failures = 0
        self._childless_ends = 0

    @property
    def due(self) -> float:
        """Monotonic time before which `fetch` should not be called."""
        return self._due

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

    def fetch(self, now: float) -> FetchResult:
        """Read once. See `Fetcher.fetch`."""
        try:
            result = self._read()
        except KinesisSdkError:
            self._failures += 1
            self._due = now + backoff(self._failures, _FIRST_BACKOFF, _MOST_BACKOFF, self._rng)
            raise
        self._failures = 0
        # A full page has more behind it even where the service reports no lag (some emulators never do).
        full = len(result.records) >= self._max_records
        behind = result.millis_behind_latest > 0 or full or result.ended
        self._due = now + (READ_INTERVAL if behind else self._idle_time)
        return result

    def _read(self) -> FetchResult:
        if self._iterator is None:
            self._iterator = self._open()
        try:
            answer = self._get_records(self._iterator)
        except AwsError as error:
            if not isinstance(error, ExpiredIteratorError) and error.code != "InvalidArgumentException":
                raise
            # Five minutes old, or of a form the service does not know any more: a new one at the same place.
            self._iterator = self._open()
            answer = self._get_records(self._iterator)
        return self._accept(answer)

    def _get_records(self, iterator: str) -> dict[str, Any]:
        request: dict[str, Any] = {"ShardIterator": iterator, "Limit": self._max_records}
        if self._stream.arn:
            request["StreamARN"] = self._stream.arn
        with translate_errors("GetRecords", self._client):
            return self._client.get_records(**request)

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
            raise PermanentAwsError(
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

    def _resolve(self, answer: dict[str, Any]) -> None:
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        date = headers.get("date") or headers.get("Date")
        try:
            moment = parsedate_to_datetime(date).timestamp() if date else None
        except ValueError:
            moment = None
        if moment is None:
            _LOGGER.warning(
                "shard %s: the service sent no usable date with its answer, so this LATEST start can not be "
                "remembered; a failover before the first checkpoint would skip records",
                self._shard_id,
            )
            return
        self._started_at_millis = int(moment * 1000) - _RESOLUTION_SLACK_MILLIS

    def _accept(self, answer: dict[str, Any]) -> FetchResult:
        """Check an answer completely before the position moves (KCL ``DataFetcher.isValidResult``)."""
        if not isinstance(answer.get("Records"), list):
            self._iterator = None
            raise ProtocolError(f"GetRecords: the answer for shard {self._shard_id} has no Records")
        following = answer.get("NextShardIterator")
        children: tuple[Shard, ...] = ()
        try:
            children = read_child_shards(answer.get("ChildShards"), self._shard_id)
            if following and children:
                raise ProtocolError(
                    f"GetRecords: shard {self._shard_id} has child shards and goes on at the same time"
                )
            if not following and not children:
                children = self._children_from_listing()
        except KinesisSdkError:
            self._iterator = None
            raise
        records = [KinesisRecord.from_api(item) for item in answer["Records"]]
        if records:
            self._last_sequence = records[-1].sequence_number
        self._iterator = following or None
        return FetchResult(
            records=records,
            millis_behind_latest=int(answer.get("MillisBehindLatest") or 0),
            ended=not following,
            child_shards=children,
            started_at_millis=self._started_at_millis,
        )

    def _children_from_listing(self) -> tuple[Shard, ...]:
        self._childless_ends += 1
        if self._childless_ends >= _ASK_LISTING_AFTER:
            children = tuple(
                shard for shard in list_shards(self._client, self._stream) if self._shard_id in shard.parents
            )
            if children:
                return children
        raise ProtocolError(f"GetRecords: shard {self._shard_id} ended without child shards")
