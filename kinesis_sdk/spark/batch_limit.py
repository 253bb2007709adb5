"""Limits of a batch in rows and bytes: the time at which it has to end, according to the records that the driver has read so far.

The limits apply to all shards together, and a batch ends at the same time in all of them. So records are counted by time: a record belongs
to
every batch that ends after the arrival of this record and of all records before it in its shard.

Pure: no clock, no calls.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kinesis_sdk.spark.unread import UnreadRecord

_LEAST_PAGE, _MOST_PAGE = 25, 10_000
"""Minimum and maximum Kinesis records of a read."""

MOST_RECORDS = 1_000_000
"""Number of Kinesis records after which a batch with a limit ends in any case. The driver needs about 250 bytes of memory for each of
them."""


@dataclass(frozen=True)
class BatchLimits:
    """Maximum rows and bytes of a batch; None for no maximum."""

    rows: int | None = None
    size: int | None = None

    def __bool__(self) -> bool:
        return self.rows is not None or self.size is not None


class Tally:
    """Count of the records of many shards, in the order of their times, until a limit is reached.

    Args:
        expected: Expected number of Kinesis records in the batch; 0 if unknown.

    Attributes:
        records: Number of Kinesis records that were counted.
    """

    def __init__(self, limits: BatchLimits, expected: int = 0) -> None:
        self._expected = expected
        self._limits = limits
        self._places: dict[Hashable, tuple[int, int]] = {}  # next index, and latest arrival before it
        self.records: int = 0
        self._rows = self._size = 0

    @property
    def used(self) -> float:
        """Used part of the limits; 1 if a limit is reached."""
        return max(
            self._rows / (self._limits.rows or float("inf")),
            self._size / (self._limits.size or float("inf")),
            self.records / MOST_RECORDS,
        )

    def expected_end(self, first: int, known: int) -> int | None:
        """Return the time at which a limit will be reached at the rate between ``first`` and ``known``; None if no record is counted."""
        return first + int((known - first) / self.used) if self.records else None

    def next_page(self, shards: int) -> int:
        """Return the number of records to read from each shard: about a quarter more than the limits still allow."""
        left = self.records * (1 / self.used - 1) if self.records else self._expected
        return min(_MOST_PAGE, max(_LEAST_PAGE, int(left / shards * 1.25)))

    def end_before(
        self, unread: Mapping[Hashable, Sequence[UnreadRecord]], until: int
    ) -> tuple[int, str] | None:
        """Count the records before a time; return the time at which the batch has to end, and the limit; None if all records fit.

        ``unread`` has all records of each shard from its position up to ``until``. Times must increase from call to call. Records of one
        millisecond are never separated, and the records of the first millisecond fit in any case.
        """
        times: dict[int, list[UnreadRecord]] = {}
        for key, records in unread.items():
            index, latest = self._places.get(key, (0, 0))
            while index < len(records) and (time := max(latest, records[index].arrival)) < until:
                times.setdefault(time, []).append(records[index])
                index, latest = index + 1, time
            self._places[key] = index, latest
        for time in sorted(times):
            limit = self._add(times[time])
            if limit is not None:
                return time, limit
        return None

    def _add(self, records: Iterable[UnreadRecord]) -> str | None:
        """Count the records of a millisecond; return the limit that they exceed, if there is one."""
        before = self.records
        for record in records:
            self.records += 1
            self._rows += record.rows
            self._size += record.size
        if not before or self.used <= 1:
            return None
        is_bytes = self._limits.size is not None and self._rows <= (self._limits.rows or float("inf"))
        return "maxBytesPerTrigger" if is_bytes else "maxRowsPerTrigger"
