"""Low watermark of a shard: how far its records are processed without a gap.

Pure: no locks and no clock. Records get slots in the order of the shard and may finish in any order. The watermark is the
last record before the oldest unfinished one. It is the largest position that a checkpoint may name without passing a
record that is still being processed.
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
        outstanding_bytes: Bytes of memory from the oldest unfinished record on, including finished records after it:
            payload and `RECORD_OVERHEAD` of each.
    """

    __slots__ = ("_base", "_finished", "_records", "_watermark", "outstanding_bytes")

    def __init__(self) -> None:
        self._base = 0
        # The records from slot `_base` on, and the slots of those among them that are finished.
        self._records: deque[UserRecord] = deque()
        self._finished: set[int] = set()
        self._watermark: UserRecord | None = None
        self.outstanding_bytes: int = 0

    @property
    def next_slot(self) -> int:
        """Slot of the next record to be added."""
        return self._base + len(self._records)

    @property
    def base(self) -> int:
        """Slot of the oldest unfinished record; the records of all smaller slots are finished."""
        return self._base

    @property
    def last_finished(self) -> UserRecord | None:
        """The last record up to which all records are finished; None if the first one is not."""
        return self._watermark

    @property
    def watermark(self) -> ExtendedSequenceNumber | None:
        """Position up to which all records are finished, inclusive; None if the first one is not."""
        record = self._watermark
        return None if record is None else position_of(record)

    def __len__(self) -> int:
        """Return the number of records from the oldest unfinished one on."""
        return len(self._records)

    def extend(self, records: Sequence[UserRecord]) -> int:
        """Add records that follow all earlier ones.

        Returns:
            Slot of the first one; the slots of the others follow it.
        """
        first = self.next_slot
        self._records.extend(records)
        self.outstanding_bytes += payload_bytes(records) + RECORD_OVERHEAD * len(records)
        return first

    def finish(self, slots: Iterable[int]) -> None:
        """Mark records as finished.

        Raises:
            ValueError: If a slot was never assigned or is finished already. A record was then processed twice or a slot is
                wrong, and the watermark could not be trusted.
        """
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
            finished.clear()  # a set that was emptied by `remove` keeps the memory of all its former elements
