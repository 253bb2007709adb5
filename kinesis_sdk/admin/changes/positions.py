"""A time, a record or LATEST as a checkpoint: the last record before it.

A checkpoint means *processed up to here*. So a start becomes the last user record before it, or TRIM_HORIZON if there is none
up to the horizon.

Cost per shard: a GetShardIterator and a GetRecords, if a record arrived within a second before the start. Otherwise, two more calls each
time that the silence before the start is ten times longer, and up to seven calls to find the end of the silence. Each shard is read at most
once a second, which leaves four of the shard's five reads to the application.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timezone

from kinesis_sdk.common.aggregate_reader import count_user_records
from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import ConfigError, ThrottledError
from kinesis_sdk.common.position import (
    AfterSequence,
    AtSequence,
    AtTimestamp,
    Latest,
    Position,
    TrimHorizon,
)
from kinesis_sdk.common.position_text import parse_position
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.sequence import LATEST, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shard_cursor import ShardCursor, is_at_tip
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import GetRecordsPage

READ_INTERVAL = 1.0
"""Seconds between two GetRecords calls on one shard."""
_PAGE = 1000
_NARROW = 1.0
"""Length in seconds to which the search narrows the window before it reads every record in it."""


@dataclass(frozen=True)
class AfterRecord:
    """A start right after a record, to skip records up to this record; if ``whole``, after all user records of its Kinesis record."""

    record: ExtendedSequenceNumber
    whole: bool = False

    def __str__(self) -> str:
        return f"after:{self.record.sequence_number}" if self.whole else f"after:{self.record}"


Start = datetime | ExtendedSequenceNumber | AfterRecord | str
"""Start of an application: a time, a record (inclusive), the position after a record, ``LATEST`` or ``TRIM_HORIZON``."""

REWIND_STARTS: tuple[type[Position], ...] = (TrimHorizon, Latest, AtTimestamp, AtSequence)
SKIP_STARTS: tuple[type[Position], ...] = (Latest, AtTimestamp, AtSequence, AfterSequence)


def parse_start(text: str, accepted: Collection[type[Position]], *, now: float) -> Start:
    """Parse a start in the grammar of `kinesis_sdk.common.position_text`.

    Args:
        text: The text.
        accepted: Starts that the change accepts: `REWIND_STARTS` or `SKIP_STARTS`.
        now: Epoch seconds, for times such as ``-15m``.

    Raises:
        ConfigError: If the text is not such a start.
    """
    position = parse_position(text, field="to", now=now, accepted=accepted)
    if isinstance(position, AtTimestamp):
        return position.moment
    if isinstance(position, AtSequence):
        return ExtendedSequenceNumber(position.sequence_number)
    if isinstance(position, AfterSequence):
        index = position.sub_sequence_number
        if index is None:
            return AfterRecord(ExtendedSequenceNumber(position.sequence_number), whole=True)
        if AfterSequence in accepted and index >= 0:
            return AfterRecord(ExtendedSequenceNumber(position.sequence_number, index))
        return ExtendedSequenceNumber(position.sequence_number, index + 1)
    return str(position)


def show_start(start: Start) -> str:
    """Return a start as text that `parse_start` reads."""
    if isinstance(start, datetime):
        return start.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(start, ExtendedSequenceNumber):
        index = f"/{start.sub_sequence_number}" if start.sub_sequence_number else ""
        return f"at:{start.sequence_number}{index}"
    return str(start)


@dataclass(frozen=True, kw_only=True)
class ResolvedStart:
    """A start in one shard.

    Attributes:
        arrival: Arrival time of the first record after the start, if a record was read.
        rate: Records per second near the start, measured in the page that was read; None if unknown.
    """

    position: ExtendedSequenceNumber
    arrival: datetime | None = None
    rate: float | None = None
    note: str = ""


class PositionResolver:
    """Resolves starts to checkpoints by reading the stream. One thread per shard.

    ``horizon`` is the time in epoch seconds before which the stream has no records: its creation, or now minus its retention.
    """

    def __init__(
        self,
        client: KinesisClient,
        stream: StreamId,
        *,
        clock: Clock,
        sleep: Callable[[float], None],
        horizon: float,
    ) -> None:
        self._client = client
        self._stream = stream
        self._clock = clock
        self._sleep = sleep
        self._horizon = horizon
        self._next_reads: dict[str, float] = {}
        self._records: dict[tuple[str, str], KinesisRecord] = {}

    def _search(self, shard_id: str) -> _Search:
        return _Search(
            self._client,
            self._stream,
            shard_id,
            self._clock,
            self._sleep,
            horizon=self._horizon,
            next_reads=self._next_reads,
        )

    def resolve(self, shard_id: str, start: Start) -> ResolvedStart:
        """Return the checkpoint of a start.

        Raises:
            ConfigError: If the start is in the future.
            InvalidPositionError: If the shard does not have the record.
            AwsError: If a call failed.
        """
        search = self._search(shard_id)
        if isinstance(start, datetime):
            moment = start.timestamp()
            if moment > self._clock.time():
                raise ConfigError("to", show_start(start), "a moment in the past")
            note = ""
            if moment < self._horizon:
                begin = datetime.fromtimestamp(self._horizon, timezone.utc)
                note = f"the stream has nothing before {show_start(begin)}: it starts there"
            found = search.last_before(moment, lambda record: _arrival(record) >= moment)
            return _with_note(found, note)
        if isinstance(start, ExtendedSequenceNumber):
            return search.before_record(start, self._records.get((shard_id, start.sequence_number)))
        if isinstance(start, AfterRecord):
            return search.behind_record(start)
        if start == TRIM_HORIZON:
            return ResolvedStart(position=ExtendedSequenceNumber(TRIM_HORIZON))
        if start == LATEST:
            # Not the tip: a shard that is written to as fast as it is read has no tip, so the search would never end.
            return search.last_before(self._clock.time(), search.arrived_since_first_read)
        raise ConfigError("to", start, "a moment, LATEST, TRIM_HORIZON or a sequence number")

    def record_at(self, shard_id: str, start: ExtendedSequenceNumber) -> KinesisRecord:
        """Return the Kinesis record of a start. A following `resolve` does not read it again.

        Raises:
            ConfigError: If the shard no longer has the record.
            InvalidPositionError: If the shard never had the sequence number.
            AwsError: If a call failed.
        """
        record = self._search(shard_id).record_at(start)
        self._records[shard_id, start.sequence_number] = record
        return record

    def arrival_of(self, shard_id: str, position: ExtendedSequenceNumber) -> datetime | None:
        """Return the arrival time of a checkpoint's record or, if that record has expired, of the first record after it.

        None if there is no such record, or if the position is a sentinel.
        """
        if position.is_sentinel:
            return None
        search = self._search(shard_id)
        record = search.first_at(AtSequence(position.sequence_number))
        return None if record is None else record.approximate_arrival_timestamp


def _with_note(found: ResolvedStart, note: str) -> ResolvedStart:
    return found if not note else ResolvedStart(**{**vars(found), "note": note})


def _arrival(record: KinesisRecord) -> float:
    stamp = record.approximate_arrival_timestamp
    return 0.0 if stamp is None else stamp.timestamp()


def _check_index(start: ExtendedSequenceNumber, record: KinesisRecord) -> None:
    last = last_user_record(record)
    if start > last:
        raise ConfigError("to", str(start), f"an index of up to {last.sub_sequence_number} in this aggregate")


def last_user_record(record: KinesisRecord) -> ExtendedSequenceNumber:
    """Return the checkpoint after a whole Kinesis record: its last user record."""
    return ExtendedSequenceNumber(record.sequence_number, max(count_user_records(record) - 1, 0))


class _Search:
    """The reads of one shard for one start."""

    def __init__(
        self,
        client: KinesisClient,
        stream: StreamId,
        shard_id: str,
        clock: Clock,
        sleep: Callable[[float], None],
        *,
        horizon: float,
        next_reads: dict[str, float],
    ) -> None:
        self._client = client
        self._stream = stream
        self._shard_id = shard_id
        self._clock = clock
        self._sleep = sleep
        self._horizon = horizon
        self._next_reads = next_reads
        # A second after the tip that the first page with records showed, in epoch seconds of Kinesis.
        self._first_tip: float | None = None

    def arrived_since_first_read(self, record: KinesisRecord) -> bool:
        """Return whether a record did not exist when the search began."""
        return self._first_tip is not None and _arrival(record) >= self._first_tip

    def first_at(self, position: Position) -> KinesisRecord | None:
        """Return the first record at a position."""
        cursor = self._cursor(position)
        while True:
            page = self._read(cursor, 1)
            if page.records:
                return page.records[0]
            if page.next_iterator is None or is_at_tip(page, 1):
                return None

    def record_at(self, start: ExtendedSequenceNumber) -> KinesisRecord:
        """Return the Kinesis record that a start names."""
        record = self.first_at(AtSequence(start.sequence_number))
        if record is None or record.sequence_number != start.sequence_number:
            raise ConfigError(
                "to",
                start.sequence_number,
                f"the sequence number of a record that shard {self._shard_id} still has",
            )
        return record

    def before_record(
        self, start: ExtendedSequenceNumber, record: KinesisRecord | None = None
    ) -> ResolvedStart:
        """Return the checkpoint right before a record. ``record`` is its Kinesis record, if it was already read."""
        if record is None:
            record = self.record_at(start)
        arrival = record.approximate_arrival_timestamp
        if start.sub_sequence_number > 0:
            _check_index(start, record)
            position = ExtendedSequenceNumber(start.sequence_number, start.sub_sequence_number - 1)
            return ResolvedStart(position=position, arrival=arrival)
        number = int(start.sequence_number)
        return self.last_before(_arrival(record), lambda one: int(one.sequence_number) >= number)

    def behind_record(self, start: AfterRecord) -> ResolvedStart:
        """Return the checkpoint at a record, so that the next record is processed first."""
        record = self.record_at(start.record)
        position = last_user_record(record) if start.whole else start.record
        _check_index(position, record)
        return ResolvedStart(position=position, arrival=record.approximate_arrival_timestamp)

    def last_before(self, moment: float, is_beyond: Callable[[KinesisRecord], bool]) -> ResolvedStart:
        """Return the last record before the first record beyond a start; ``moment`` is about the time of the start in epoch seconds."""
        back, empty_from = 1.0, moment
        while True:
            low = moment - back
            at_horizon = low <= self._horizon
            found = self._scan(
                TrimHorizon() if at_horizon else _at(low), is_beyond, probe=back > 10 * _NARROW
            )
            if isinstance(found, ResolvedStart) and (
                found.position.sequence_number != TRIM_HORIZON or at_horizon
            ):
                return found
            if found is None:
                # There are records before the start in this window, and more than a page of them: narrow the window.
                return self._narrow(max(low, self._horizon), empty_from, is_beyond)
            empty_from, back = low, back * 10

    def _narrow(self, low: float, high: float, is_beyond: Callable[[KinesisRecord], bool]) -> ResolvedStart:
        """Bisect the time: some record before the start arrived after ``low``, and no such record arrived after ``high``."""
        while high - low > _NARROW:
            middle = (low + high) / 2
            record = self.first_at(_at(middle))
            if record is not None and not is_beyond(record):
                low = middle
            else:
                high = middle
        found = self._scan(_at(low) if low > self._horizon else TrimHorizon(), is_beyond)
        assert found is not None
        return found

    def _scan(
        self, position: Position, is_beyond: Callable[[KinesisRecord], bool], *, probe: bool = False
    ) -> ResolvedStart | None:
        """Read from a position to the first record beyond the start, or to the tip.

        Returns the last record before the start; TRIM_HORIZON if the first record is beyond the start; None after an undecided page.
        With ``probe``, the search stops after the first page with records.
        """
        cursor = self._cursor(position)
        last: KinesisRecord | None = None
        while True:
            page = self._read(cursor, _PAGE)
            for index, record in enumerate(page.records):
                if is_beyond(record):
                    return _resolved(last, record, _rate(page.records[index:]))
                last = record
            if page.next_iterator is None or is_at_tip(page, _PAGE):
                return _resolved(last, None, _rate(page.records))
            if probe and last is not None:
                return None

    def _cursor(self, position: Position) -> ShardCursor:
        return ShardCursor(self._client, self._stream, self._shard_id, position, clock=self._clock)

    def _read(self, cursor: ShardCursor, limit: int) -> GetRecordsPage:
        wait = self._next_reads.get(self._shard_id, 0.0) - self._clock.monotonic()
        if wait > 0:
            self._sleep(wait)
        page = call_with_retries(
            lambda: self._fetch(cursor, limit), operation=None, client=self._client, sleep=self._sleep
        )
        cursor.advance(page)
        if self._first_tip is None and page.records:
            behind = (page.header.millis_behind_latest or 0) / 1000
            self._first_tip = _arrival(page.records[-1]) + behind + 1.0
        self._next_reads[self._shard_id] = self._clock.monotonic() + READ_INTERVAL
        return page

    def _fetch(self, cursor: ShardCursor, limit: int) -> GetRecordsPage:
        try:
            return cursor.fetch(limit)
        except ThrottledError:
            self._sleep(READ_INTERVAL)  # the shard's readers come first
            raise


def _at(moment: float) -> AtTimestamp:
    return AtTimestamp(max(int(moment * 1000), 0))


def _resolved(last: KinesisRecord | None, beyond: KinesisRecord | None, rate: float | None) -> ResolvedStart:
    return ResolvedStart(
        position=ExtendedSequenceNumber(TRIM_HORIZON) if last is None else last_user_record(last),
        arrival=None if beyond is None else beyond.approximate_arrival_timestamp,
        rate=rate,
    )


def _rate(records: list[KinesisRecord]) -> float | None:
    """Return the rate of consecutive records in user records per second; None if there are too few, or all arrived at once."""
    if len(records) < 2:
        return None
    seconds = _arrival(records[-1]) - _arrival(records[0])
    return (sum(map(count_user_records, records)) - 1) / seconds if seconds > 0 else None
