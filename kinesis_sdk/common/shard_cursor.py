"""Reading one shard by polling: a cursor that opens iterators, makes GetRecords calls and keeps its position.

The consumer and the Spark reader read through a cursor. The cursor decides *which records* are read, so that no record is
skipped or read twice: it opens iterators, replaces expired iterators, and resolves LATEST. Its caller
(`consumer.fetch.polling`, `spark.shardio`) decides *when* to read and how much, and handles failures.

API cost: one GetRecords for each read, and one GetShardIterator at the start and after each iterator that Kinesis rejects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.aws import KinesisClient, translate_errors
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import (
    AwsError,
    ExpiredIteratorError,
    InvalidPositionError,
    PermanentAwsError,
    ProtocolError,
)
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.metrics import NOT_MEASURED, BoundMetrics
from kinesis_sdk.common.position import (
    AfterSequence,
    AtTimestamp,
    Latest,
    Position,
    iterator_request,
    iterator_start,
)
from kinesis_sdk.common.service_clock import response_date
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import GetRecordsPage, get_records

_RESOLUTION_SLACK_MILLIS = 1000
"""Milliseconds by which a LATEST start is moved back, because the ``Date`` header has whole seconds only."""

_INVALID_ARGUMENT = "InvalidArgumentException"

_LOGGER = FieldLogger(logging.getLogger(__name__))

ResponseHook = Callable[[Mapping[str, Any] | None, float, float], None]
"""Called with ``ResponseMetadata`` and the wall times, in epoch seconds, before and after the call."""


class ShardCursor:
    """A position in a shard that advances with the reads, and outlives its iterators.

    Used by one thread at a time, except for `close`.

    A read has two steps: `fetch` makes the call and leaves the position unchanged; `advance` accepts the page. A page that
    is not accepted is read again.

    Args:
        client: boto3 Kinesis client, or an object with its methods.
        stream: The stream.
        shard_id: The shard.
        start: Position to start from; not `Ended`.
        clock: Clock that measures the calls.
        open_at: Position at which to open the first iterator, if Kinesis may no longer accept ``start``. The pages then begin
            with records before ``start``, which the caller has to drop.
        metrics: Metrics of the shard.
        on_response: Called after each successful call; None for no call.
        worker: Id of the worker that reads, for the log; None if there is none.
    """

    __slots__ = (
        "_client",
        "_clock",
        "_iterator",
        "_metrics",
        "_on_response",
        "_open_at",
        "_position",
        "_shard_id",
        "_started_at_millis",
        "_stream",
        "_worker",
    )

    def __init__(
        self,
        client: KinesisClient,
        stream: StreamId,
        shard_id: str,
        start: Position,
        *,
        clock: Clock,
        open_at: Position | None = None,
        metrics: BoundMetrics = NOT_MEASURED,
        on_response: ResponseHook | None = None,
        worker: str | None = None,
    ) -> None:
        self._client = client
        self._stream = stream
        self._shard_id = shard_id
        self._position = start
        self._open_at = open_at
        self._clock = clock
        self._metrics = metrics
        self._on_response = on_response
        self._worker = worker
        self._iterator: str | None = None
        self._started_at_millis: int | None = None

    @property
    def position(self) -> Position:
        """Position after all accepted pages, at which another cursor would start."""
        # LATEST is resolved once. A second LATEST iterator would skip the records that arrived between the two.
        if isinstance(self._position, Latest) and self._started_at_millis is not None:
            return AtTimestamp(self._started_at_millis)
        return self._position

    @property
    def opens_at(self) -> Position:
        """Position at which the next iterator is opened."""
        return self._open_at or self.position

    @property
    def started_at_millis(self) -> int | None:
        """Time to which a LATEST start was resolved, in epoch milliseconds of Kinesis.

        None for other starts, before the first iterator, and if Kinesis sent no date.
        """
        return self._started_at_millis

    def open(self) -> None:
        """Open an iterator, unless there is one. This resolves a LATEST start.

        Raises:
            InvalidPositionError: If the shard does not have the position.
            AwsError: If GetShardIterator failed otherwise.
            ProtocolError: If the response has no iterator.
        """
        if self._iterator is None:
            self._iterator = self._open()

    def close(self) -> None:
        """Drop the iterator; the next read opens a new iterator at the position. Callable from any thread, even during a read."""
        self._iterator = None

    def fetch(self, limit: int) -> GetRecordsPage:
        """Make one GetRecords call at the position. The position moves only in `advance`.

        Args:
            limit: Maximum number of Kinesis records, from 1 to 10,000.

        Raises:
            InvalidPositionError: If the shard does not have the position.
            AwsError: If a call failed otherwise.
            ProtocolError: If a response cannot be read.
        """
        iterator = self._iterator
        if iterator is None:
            iterator = self._iterator = self._open()
        try:
            return self._get_records(iterator, limit)
        except AwsError as error:
            if not isinstance(error, ExpiredIteratorError) and error.code != _INVALID_ARGUMENT:
                raise
        # The iterator is five minutes old, or Kinesis no longer accepts its form. (Some emulators report an expired one as
        # an invalid argument.) A new iterator at the position continues. If the new iterator is rejected as well, age
        # is not the cause, and the caller gets the error.
        self._iterator = None
        iterator = self._iterator = self._open()
        return self._get_records(iterator, limit)

    def advance(self, page: GetRecordsPage) -> None:
        """Move past a page that `fetch` returned."""
        if page.records:
            self._position = AfterSequence(page.records[-1].sequence_number)
            self._open_at = None
        self._iterator = page.next_iterator

    def _get_records(self, iterator: str, limit: int) -> GetRecordsPage:
        sent = self._clock.time()
        with self._metrics.timed(self._clock, catalogue.GET_RECORDS_TIME, catalogue.GET_RECORDS_SUCCESS):
            page = get_records(self._client, iterator, limit, self._stream.arn)
        if self._on_response is not None:
            self._on_response(page.metadata, sent, self._clock.time())
        return page

    def _open(self) -> str:
        position = self.opens_at
        request = {**self._stream.request, "ShardId": self._shard_id, **iterator_request(position)}
        sent = self._clock.time()
        try:
            with translate_errors("GetShardIterator", self._client):
                response = self._client.get_shard_iterator(**request)
        except PermanentAwsError as error:
            if error.code != _INVALID_ARGUMENT:
                raise
            raise invalid_position(self._shard_id, position, error) from error
        metadata = response.get("ResponseMetadata")
        if self._on_response is not None:
            self._on_response(metadata, sent, self._clock.time())
        iterator = response.get("ShardIterator")
        if not iterator:
            raise ProtocolError(
                f"GetShardIterator: the response for shard {self._shard_id} at {position} has no iterator"
            )
        if isinstance(position, Latest):
            self._resolve_latest(metadata)
        return str(iterator)

    def _resolve_latest(self, metadata: Mapping[str, Any] | None) -> None:
        date = response_date(metadata)
        if date is None:
            _LOGGER.warning(
                "shard %s: response has no usable Date header, cannot pin the LATEST start; a failover before the first "
                "checkpoint would skip records",
                self._shard_id,
                extra=log_fields(stream=self._stream, shard=self._shard_id, worker=self._worker),
            )
            return
        self._started_at_millis = int(date * 1000) - _RESOLUTION_SLACK_MILLIS


def is_at_tip(page: GetRecordsPage, limit: int) -> bool:
    """Return whether the shard had no records after a page when it was read.

    Args:
        page: The page.
        limit: Maximum number of records that was requested. A full page may have more records after it even if Kinesis
            reports no lag: some emulators never report a lag.
    """
    return not page.header.millis_behind_latest and len(page.records) < limit


def invalid_position(shard_id: str, position: Position, error: AwsError) -> InvalidPositionError:
    """Return the error for a position that Kinesis rejected with InvalidArgumentException.

    Args:
        shard_id: The shard.
        position: The position.
        error: The error of the call.
    """
    return InvalidPositionError(
        f"shard {shard_id} cannot be read from {iterator_start(position)}: the shard does not have this position "
        f"({error.message})",
        operation=error.operation,
        code=error.code,
        endpoint=error.endpoint,
        status=error.status,
        request_id=error.request_id,
    )
