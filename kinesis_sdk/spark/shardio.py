"""Reading one shard: iterators, pages, retries. What the driver's probes and the executors' tasks share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from random import Random
from typing import Any, NamedTuple, TypeVar

from kinesis_sdk.common.aws import KinesisClient, translate_errors
from kinesis_sdk.common.backoff import backoff
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import (
    AwsError,
    ExpiredIteratorError,
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
    TransientAwsError,
)
from kinesis_sdk.common.fast_get import GetRecordsPage, get_records
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.offsets import After, AtTimestamp, Ended, Horizon, Position

_LOGGER = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_BACKOFF = 0.25
_MOST_BACKOFF = 4.0

_SKEW = 5_000
"""Milliseconds by which the service's clock may be behind what we think that it is: at most one by its Date headers, and
nothing is known where they are missing."""


class Page(NamedTuple):
    """One answer of GetRecords.

    Attributes:
        records: In order; those before the position that was asked for are left out.
        caught_up: Whether nothing followed at that time.
        ended: Whether the shard ends after them.
        behind: Milliseconds to the tip.
    """

    records: list[KinesisRecord]
    caught_up: bool
    ended: bool
    behind: int


def arrival_of(record: KinesisRecord) -> int:
    """Arrival in epoch milliseconds.

    Raises:
        ProtocolError: The service did not say.
    """
    moment = record.approximate_arrival_timestamp
    if moment is None:
        raise ProtocolError("GetRecords: a record without ApproximateArrivalTimestamp")
    return round(moment.timestamp() * 1000)


class ServiceClock:
    """The service's clock, as far as the Date headers of its answers tell.

    A Date header has whole seconds, so each answer bounds the difference between the two clocks from both sides. The
    machine's own clock is used wherever it lies within the bounds, and is moved to the nearer bound elsewhere.
    """

    __slots__ = ("_clock", "_least", "_most")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._least = float("-inf")
        self._most = float("inf")

    def observe(self, metadata: Any, sent: float, received: float) -> None:
        """Learn from an answer.

        Args:
            metadata: ``ResponseMetadata``.
            sent: Wall time (seconds) before the call.
            received: Wall time after it.
        """
        headers = metadata.get("HTTPHeaders", {}) if isinstance(metadata, dict) else {}
        text = headers.get("date")
        if not text:
            return
        try:
            second = parsedate_to_datetime(text).timestamp()
        except ValueError:
            return
        least, most = second - received, second + 1 - sent
        if least > self._most or most < self._least:
            # A clock was set: what was learned before is void.
            self._least, self._most = least, most
        self._least = max(self._least, least)
        self._most = min(self._most, most)

    def millis(self) -> int:
        """Epoch milliseconds of the service, to the best of our knowledge."""
        return int((self._clock.time() + min(max(0.0, self._least), self._most)) * 1000)

    def past_millis(self) -> int:
        """As `millis`, but where our own clock is known to be wrong rather up to a second early than late."""
        offset = 0.0 if self._least <= 0.0 <= self._most else self._least
        return int((self._clock.time() + offset) * 1000)


class ShardIo:
    """Calls that read shards of one stream, repeated until ``retry_timeout``. Thread-safe as its client is.

    Args:
        client: boto3 Kinesis client or one of its shape.
        stream: The stream.
        clock: Time.
        sleep: Waits for some seconds.
        rng: Jitter.
        retry_timeout: Seconds for which a failing call is repeated.
    """

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
        self.service_clock = ServiceClock(clock)
        self._rng = rng
        self._retry_timeout = retry_timeout

    def repeat(self, call: Callable[[], T], what: str) -> T:
        """Make a call until it succeeds, fails for good, or ``retry_timeout`` is over.

        Raises:
            AwsError: The last failure.
            ProtocolError: The service broke its contract until the end.
        """
        deadline = self.clock.monotonic() + self._retry_timeout
        failures = 0
        while True:
            try:
                return call()
            except KinesisSdkError as error:
                failures += 1
                pause = backoff(failures, _FIRST_BACKOFF, _MOST_BACKOFF, self._rng)
                if not error.retryable or self.clock.monotonic() + pause > deadline:
                    raise
                _LOGGER.log(
                    logging.WARNING if failures > 3 else logging.DEBUG,
                    "%s: attempt %d failed (%s), next in %.2f s",
                    what,
                    failures,
                    error,
                    pause,
                )
            self.sleep(pause)

    def open(self, shard_id: str, position: Position, *, await_instant: bool = True) -> str:
        """A shard iterator at a position.

        Args:
            shard_id: The shard.
            position: The position; not `Ended`.
            await_instant: The service refuses an instant ahead of its own clock. True waits until it is past, since
                there is nothing to read before; False raises.

        Raises:
            AwsError: GetShardIterator failed.
            ProtocolError: The answer has no iterator.
        """
        request = {**self.stream.request, "ShardId": shard_id, **_iterator_request(position)}

        def call() -> str:
            sent = self.clock.time()
            try:
                with translate_errors("GetShardIterator", self.client):
                    answer = self.client.get_shard_iterator(**request)
            except PermanentAwsError as error:
                if await_instant and error.code == "InvalidArgumentException" and self._is_recent(position):
                    raise TransientAwsError(
                        error.message, operation=error.operation, code=error.code, endpoint=error.endpoint
                    ) from error
                raise
            self.service_clock.observe(answer.get("ResponseMetadata"), sent, self.clock.time())
            iterator = answer.get("ShardIterator")
            if not iterator:
                raise ProtocolError(f"GetShardIterator: no iterator for shard {shard_id}")
            return str(iterator)

        return self.repeat(call, f"GetShardIterator for {shard_id}")

    def _is_recent(self, position: Position) -> bool:
        """Whether the service may take a position for one in the future."""
        return isinstance(position, AtTimestamp) and position.millis > self.service_clock.millis() - _SKEW

    def cursor(
        self, shard_id: str, position: Position, *, via: Position | None = None, await_instant: bool = True
    ) -> Cursor:
        """A cursor at a position; see `Cursor`."""
        return Cursor(self, shard_id, position, via=via, await_instant=await_instant)


class Cursor:
    """A place in a shard that moves on with what is read, and outlives its iterators.

    Args:
        io: Calls.
        shard_id: The shard.
        position: Records before it are left out: up to a sequence number, or by their arrival.
        via: Where to open the iterator if not at ``position`` itself, because that is too old for the service.
        await_instant: See `ShardIo.open`.
    """

    __slots__ = (
        "_await_instant",
        "_io",
        "_iterator",
        "_least_arrival",
        "_least_number",
        "_position",
        "_via",
        "shard_id",
    )

    def __init__(
        self,
        io: ShardIo,
        shard_id: str,
        position: Position,
        *,
        via: Position | None = None,
        await_instant: bool = True,
    ) -> None:
        self._await_instant = await_instant
        self._io = io
        self.shard_id = shard_id
        self._position = position
        self._via = via
        self._iterator: str | None = None
        self._least_number = position.number if isinstance(position, After) else -1
        self._least_arrival = position.millis if isinstance(position, AtTimestamp) else -1

    def read(self, limit: int) -> Page:
        """The next page; an error leaves the place unchanged.

        Raises:
            AwsError: A call failed for good, or until ``retry_timeout``.
            ProtocolError: The service broke its contract until then.
        """
        io = self._io

        def fetch() -> GetRecordsPage:
            if self._iterator is None:
                where = self._via or self._position
                self._iterator = io.open(self.shard_id, where, await_instant=self._await_instant)
            sent = io.clock.time()
            answer = get_records(io.client, self._iterator, limit, io.stream.arn)
            io.service_clock.observe(answer.metadata, sent, io.clock.time())
            return answer

        def call() -> GetRecordsPage:
            had = self._iterator is not None
            try:
                return fetch()
            except ExpiredIteratorError:
                # Five minutes old: a new one at the same place.
                self._iterator = None
                raise
            except AwsError as error:
                if not had or error.operation != "GetRecords" or error.code != "InvalidArgumentException":
                    raise
                # That is how some emulators say it. A new one is not older than this call.
                self._iterator = None
                return fetch()

        answer = io.repeat(call, f"GetRecords from {self.shard_id}")
        records = answer.records
        if records:
            last = records[-1]
            if self._least_number >= 0 and int(records[0].sequence_number) <= self._least_number:
                records = [r for r in records if int(r.sequence_number) > self._least_number]
            if self._least_arrival >= 0 and arrival_of(records[0] if records else last) < self._least_arrival:
                records = [r for r in records if arrival_of(r) >= self._least_arrival]
            self._position = After(last.sequence_number, arrival_of(last))
            self._via = None
        self._iterator = answer.next_iterator
        behind = answer.header.millis_behind_latest or 0
        ended = answer.next_iterator is None
        # A full page has more behind it even where the service reports no lag (some emulators never do).
        caught_up = not behind and len(answer.records) < limit
        return Page(records, caught_up or ended, ended, behind)


def _iterator_request(position: Position) -> dict[str, Any]:
    if isinstance(position, After):
        return {
            "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
            "StartingSequenceNumber": position.sequence_number,
        }
    if isinstance(position, AtTimestamp):
        return {
            "ShardIteratorType": "AT_TIMESTAMP",
            "Timestamp": datetime.fromtimestamp(position.millis / 1000, timezone.utc),
        }
    if isinstance(position, Horizon):
        return {"ShardIteratorType": "TRIM_HORIZON"}
    assert not isinstance(position, Ended), "an ended shard is not opened"
    raise AssertionError
