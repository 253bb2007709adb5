"""Search for records in all shards of a stream: bounded, with progress, and able to stop at any record.

A search reads the window from its beginning, because Kinesis has no index. `kinesis_sdk.admin.reading` gives its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from kinesis_sdk.admin.merge import ShardRecord
from kinesis_sdk.admin.reading import RecordFilter
from kinesis_sdk.common.clock import Clock, SystemClock

PROGRESS_INTERVAL = 5.0
"""Seconds between two reports of a search."""


class Search:
    """One pass over records that yields the selected records. Another thread may read the counts of a search, and call `stop`.

    The search ends after ``limit`` records, or after ``seconds`` at the next record; None for no limit. ``on_progress`` is called every
    `PROGRESS_INTERVAL` seconds while records arrive.

    Attributes:
        reached: Arrival time of the newest record that was read; None before the first.
        end: Reason for the end: ``window`` (all records were read), ``limit``, ``time`` or ``stopped``; None while it runs.
    """

    def __init__(
        self,
        records: Iterable[ShardRecord],
        wanted: RecordFilter,
        *,
        limit: int | None = None,
        seconds: float | None = None,
        on_progress: Callable[[Search], None] = lambda _search: None,
        clock: Clock | None = None,
    ) -> None:
        self._records = records
        self._wanted = wanted
        self._limit = limit
        self._clock: Clock = clock or SystemClock()
        self._ends_at = None if seconds is None else self._clock.monotonic() + seconds
        self._on_progress = on_progress
        self._is_stopped = False
        self.read: int = 0
        self.found: int = 0
        self.reached: datetime | None = None
        self.end: str | None = None

    def stop(self) -> None:
        """End the search at the next record."""
        self._is_stopped = True

    def __iter__(self) -> Iterator[ShardRecord]:
        told = self._clock.monotonic()
        for one in self._records:
            now = self._clock.monotonic()
            if self._is_stopped or (self._ends_at is not None and now >= self._ends_at):
                self.end = "stopped" if self._is_stopped else "time"
                return
            self.read += 1
            self.reached = one.record.approximate_arrival_timestamp or self.reached
            if self._wanted.accepts(one.record):
                self.found += 1
                yield one
                if self.found == self._limit:
                    self.end = "limit"
                    return
            if now - told >= PROGRESS_INTERVAL:
                told = now
                self._on_progress(self)
        self.end = "window"

    def summary(self) -> str:
        """Return the progress in words."""
        until = "" if self.reached is None else f" up to {self.reached.strftime('%Y-%m-%d %H:%M:%SZ')}"
        return f"{self.read:,} records read{until}, {self.found:,} found"
