"""Low watermark of a shard: the position up to which its records are processed without a gap.

Pure: no locks and no clock. Records get slots in the order of the shard and may finish in any order. The watermark is the
last record before the oldest unfinished record: a checkpoint beyond it would pass a record that is still being processed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from kinesis_sdk.common.records import UserRecord, position_of
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.user_records import payload_bytes

RECORD_OVERHEAD = 256
"""Bytes that an unfinished record takes in addition to its payload: the record, its slot, its place in lists (measured,
CPython 3.11)."""


class WatermarkTracker:
    """Unfinished and finished records of one shard. Used by one thread at a time.

    Attributes:
        outstanding_bytes: Payload and `RECORD_OVERHEAD` of the oldest unfinished record and all records after it.
    """

    __slots__ = ("_base", "_finished", "_records", "_watermark", "outstanding_bytes")

    def __init__(self) -> None:
        self._base = 0
        # The records from slot `_base` on, and the slots of the finished records among them.
        self._records: deque[UserRecord] = deque()
        self._finished: set[int] = set()
        self._watermark: UserRecord | None = None
        self.outstanding_bytes: int = 0

    @property
    def next_slot(self) -> int:
        """Slot of the next record to add."""
        return self._base + len(self._records)

    @property
    def base(self) -> int:
        """Slot of the oldest unfinished record."""
        return self._base

    @property
    def last_finished(self) -> UserRecord | None:
        """Last record up to which all records are finished; None if the first record is not."""
        return self._watermark

    @property
    def watermark(self) -> ExtendedSequenceNumber | None:
        """Position of `last_finished`."""
        record = self._watermark
        return None if record is None else position_of(record)

    def __len__(self) -> int:
        """Return the number of records from the oldest unfinished record on."""
        return len(self._records)

    def extend(self, records: Sequence[UserRecord]) -> int:
        """Add the next records of the shard and return the slot of the first record; later records get the slots after it."""
        first = self.next_slot
        self._records.extend(records)
        self.outstanding_bytes += payload_bytes(records) + RECORD_OVERHEAD * len(records)
        return first

    def finish(self, slots: Iterable[int]) -> None:
        """Mark records as finished. Raise `ValueError` for a slot that was never assigned or is already finished."""
        finished, end = self._finished, self.next_slot
        for slot in slots:
            if not self._base <= slot < end or slot in finished:
                raise ValueError(f"slot {slot} is not open (open: {self._base} to {end - 1})")
            finished.add(slot)
        while self._base in finished:
            finished.remove(self._base)
            self._base += 1
            self._watermark = self._records.popleft()
            self.outstanding_bytes -= len(self._watermark.data) + RECORD_OVERHEAD
        if not finished:
            finished.clear()  # a set that `remove` has emptied keeps the memory of all its former elements
