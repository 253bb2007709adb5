"""Progress of a lease's owner: one attribute of the lease's row, written with each renewal and checkpoint.

It tells from outside, without a read of the stream and without an extra call, how far behind a shard is and whether its
handler returns. The text is ``lagMillis|lastArrivalMillis|handlerMillis|owner``; a number that is not known is empty. The
owner is last, because worker ids may contain the separator. The Java KCL ignores and keeps the attribute.
"""

from __future__ import annotations

from typing import NamedTuple

_SEPARATOR = "|"
_MAX_MILLIS = 253_402_300_799_999
"""The end of the year 9999, in epoch milliseconds; no duration is longer."""


class Progress(NamedTuple):
    """The state of a shard, as the owner of its lease knew it when it wrote the row.

    Valid only while ``owner`` is the holder of the lease (`Lease.current_progress`): other workers leave the attribute as
    it is. Clocks of two machines are never compared: ``handler_millis`` is a duration, to which a reader adds the time
    since it saw the row change.

    Attributes:
        lag_millis: Age of the oldest unprocessed record in milliseconds, as in `ShardHealth.oldest_unprocessed_millis`; 0 if
            all records were processed as of the last read, None before the first read.
        last_arrival_millis: Arrival of the last processed record in epoch milliseconds, by the clock of Kinesis; None if
            no record was processed under this lease.
        handler_millis: Milliseconds for which the running call of the handler had been running; None if none was running.
        owner: Id of the worker that wrote it.
    """

    lag_millis: int | None
    last_arrival_millis: int | None
    handler_millis: int | None
    owner: str

    def to_text(self) -> str:
        """Return the value of the attribute."""
        numbers = ("" if number is None else str(min(max(number, 0), _MAX_MILLIS)) for number in self[:3])
        return _SEPARATOR.join((*numbers, self.owner))

    @classmethod
    def from_text(cls, text: str) -> Progress:
        """Read the value of the attribute.

        Raises:
            ValueError: If it is malformed.
        """
        lag, arrival, handler, owner = text.split(_SEPARATOR, 3)
        if not owner:
            raise ValueError("names no owner")
        return cls(_millis(lag), _millis(arrival), _millis(handler), owner)


def _millis(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"not a number of milliseconds: {text[:60]!r}")
    millis = int(text[:20])
    if millis > _MAX_MILLIS:
        raise ValueError(f"out of range: {text[:60]!r}")
    return millis
