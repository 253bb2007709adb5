"""Progress of a lease's owner: one attribute of the lease's row, written with each renewal and checkpoint.

Without a read of the stream or an extra call, the attribute shows other programs the lag of a shard, whether its handler returns, and on
which record it fails. The text is
``lagMillis|lastArrivalMillis|handlerMillis|failing|owner``; unknown parts are empty. With a `delivery_delay`, the first
part is ``lagMillis,delayMillis``. ``failing`` is
``attempts,sinceMillis,retryMillis,records,sequenceNumber/subSequenceNumber,error``, in which ``%`` and ``|`` are
percent-encoded. The owner is last, because worker ids may contain the separator. The Java KCL ignores and keeps the attribute.
"""

from __future__ import annotations

from typing import NamedTuple

from kinesis_sdk.common.position import MAX_MILLIS
from kinesis_sdk.common.sequence import ExtendedSequenceNumber, is_sequence_number
from kinesis_sdk.common.text import printable

_SEPARATOR = "|"

MAX_ERROR = 160
"""Maximum characters of an error (class and start of the text)."""
_MAX_NUMBER = 10**12
"""Largest number of attempts or records that is written or read."""


class Failing(NamedTuple):
    """Consecutive failed calls of a handler, during which the shard makes no progress.

    Attributes:
        attempts: Failed calls since the last successful call.
        since_millis: Milliseconds since the first of these calls failed.
        retry_millis: Milliseconds until the next call; 0 if it is due or runs.
        records: User records that the last call got and did not checkpoint; 0 if a callback other than
            ``process_records`` fails, or if the handler restarts repeatedly.
        position: Position of the first of these records; None if there are none. If ``records`` is 1, the handler fails on this
            record.
        error: Class and text of the last error, printable and at most `MAX_ERROR` characters.
    """

    attempts: int
    since_millis: int
    retry_millis: int
    records: int
    position: ExtendedSequenceNumber | None
    error: str

    def to_text(self) -> str:
        """Return the part ``failing`` of the attribute."""
        error = _printable(self.error).replace("%", "%25").replace(_SEPARATOR, "%7C")
        numbers = (
            min(max(self.attempts, 0), _MAX_NUMBER),
            min(max(self.since_millis, 0), MAX_MILLIS),
            min(max(self.retry_millis, 0), MAX_MILLIS),
            min(max(self.records, 0), _MAX_NUMBER),
        )
        return ",".join((*map(str, numbers), "" if self.position is None else str(self.position), error))

    @classmethod
    def from_text(cls, text: str) -> Failing:
        """Read the part ``failing`` of the attribute; raise `ValueError` if it is malformed."""
        attempts, since, retry, records, position, error = text.split(",", 5)
        sequence, _, sub = position.partition("/")
        if position and not is_sequence_number(sequence):
            raise ValueError(f"not a sequence number: {sequence[:60]!r}")
        return cls(
            _number(attempts, _MAX_NUMBER),
            _number(since, MAX_MILLIS),
            _number(retry, MAX_MILLIS),
            _number(records, _MAX_NUMBER),
            ExtendedSequenceNumber(sequence, _number(sub, _MAX_NUMBER)) if position else None,
            _printable(error[: 3 * MAX_ERROR].replace("%7C", _SEPARATOR).replace("%25", "%")),
        )


class Progress(NamedTuple):
    """The state of a shard that the owner of its lease knew when it wrote the row.

    Valid only while ``owner`` is the holder of the lease (`Lease.current_progress`), because other workers do not change the
    attribute. Clocks of two machines are never compared: ``handler_millis`` and the milliseconds in ``failing`` are
    durations. A reader adds the time since it saw the row change.

    Attributes:
        lag_millis: Age of the oldest unprocessed record in milliseconds, as in `ShardHealth.oldest_unprocessed_millis`; 0 if
            every record up to the last read was processed, None before the first read.
        last_arrival_millis: Arrival of the last processed record in epoch milliseconds, by the clock of Kinesis; None if
            no record was processed under this lease.
        handler_millis: Milliseconds for which the handler's current call had been running; None if no call was running.
        owner: Id of the worker that wrote the attribute.
        failing: The handler's failures; None if its last call succeeded or there was none.
        delay_millis: Milliseconds for which each record is held back after its arrival (`delivery_delay`).
    """

    lag_millis: int | None
    last_arrival_millis: int | None
    handler_millis: int | None
    owner: str
    failing: Failing | None = None
    delay_millis: int = 0

    def to_text(self) -> str:
        """Return the value of the attribute."""
        lag, *numbers = (
            "" if number is None else str(min(max(number, 0), MAX_MILLIS)) for number in self[:3]
        )
        if self.delay_millis:
            lag += f",{self.delay_millis}"
        failing = "" if self.failing is None else self.failing.to_text()
        return _SEPARATOR.join((lag, *numbers, failing, self.owner))

    @classmethod
    def from_text(cls, text: str) -> Progress:
        """Read the value of the attribute.

        Raises:
            ValueError: If the value is malformed.
        """
        lag, arrival, handler, failing, owner = text.split(_SEPARATOR, 4)
        if not owner:
            raise ValueError("names no owner")
        lag, comma, delay = lag.partition(",")
        return cls(
            _millis(lag),
            _millis(arrival),
            _millis(handler),
            owner,
            Failing.from_text(failing) if failing else None,
            _number(delay, MAX_MILLIS) if comma else 0,
        )


def _printable(error: str) -> str:
    return printable(error[:MAX_ERROR])[:MAX_ERROR]


def _millis(text: str) -> int | None:
    return _number(text, MAX_MILLIS) if text else None


def _number(text: str, largest: int) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"not a number: {text[:60]!r}")
    number = int(text[:20])
    if number > largest:
        raise ValueError(f"out of range: {text[:60]!r}")
    return number
