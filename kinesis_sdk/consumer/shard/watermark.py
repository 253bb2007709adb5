"""Which records are done, when they are not done in order: the low watermark of a shard.

Pure: no locks, no clock. Records get tickets in the shard's order; tickets are finished in any order; the
watermark is the last record of the longest finished beginning, which is the largest position that a checkpoint
may name without passing over something that is still being worked on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.user_records import payload_bytes

RECORD_OVERHEAD = 256
"""Bytes that an open record takes beside its payload: the record itself, its ticket, its place in lists (measured, CPython
3.11)."""


class WatermarkTracker:
    """Open and finished records of one shard. Used by one thread at a time.

    Attributes:
        outstanding_bytes: Bytes from the oldest open record on, finished ones in between included: that is what stays
            in memory, `RECORD_OVERHEAD` and the payload of each.
    """

    __slots__ = ("_base", "_done", "_open", "_watermark", "outstanding_bytes")

    def __init__(self) -> None:
        self._base = 0
        self._open: deque[UserRecord] = deque()
        self._done: set[int] = set()
        self._watermark: UserRecord | None = None
        self.outstanding_bytes: int = 0

    @property
    def next_ticket(self) -> int:
        """The ticket that the next record gets."""
        return self._base + len(self._open)

    @property
    def base(self) -> int:
        """Ticket of the oldest open record; every smaller ticket is finished."""
        return self._base

    @property
    def watermark(self) -> ExtendedSequenceNumber | None:
        """Position of the last record before which, itself included, everything is finished; None: nothing yet."""
        record = self._watermark
        return None if record is None else position_of(record)

    def __len__(self) -> int:
        """Records from the oldest open one on."""
        return len(self._open)

    def extend(self, records: Sequence[UserRecord]) -> int:
        """Note records that come after all others; returns the first one's ticket, the others' follow it."""
        ticket = self._base + len(self._open)
        self._open.extend(records)
        self.outstanding_bytes += payload_bytes(records) + RECORD_OVERHEAD * len(records)
        return ticket

    def finish(self, tickets: Iterable[int]) -> None:
        """Note records as done.

        Raises:
            ValueError: A ticket that was never given, or is finished already: a record was done twice, or a
                position is made up; the watermark could not be trusted any more.
        """
        done, end = self._done, self.next_ticket
        for ticket in tickets:
            if not self._base <= ticket < end or ticket in done:
                raise ValueError(f"ticket {ticket} is not open (open: {self._base} to {end - 1})")
            done.add(ticket)
        while self._base in done:
            done.remove(self._base)
            self._base += 1
            self._watermark = self._open.popleft()
            self.outstanding_bytes -= len(self._watermark.data) + RECORD_OVERHEAD
        if not done:
            done.clear()  # an emptied set keeps the memory of all that were in it


def position_of(record: UserRecord) -> ExtendedSequenceNumber:
    """The position that stands for "everything up to this record"."""
    return ExtendedSequenceNumber(record.sequence_number, record.sub_sequence_number)
