"""Collection of Kinesis records of all shards into PutRecords requests."""

from __future__ import annotations

from collections.abc import Callable

from kinesis_sdk.producer.records.entry import Entry

_NEVER = float("inf")
_AT_ONCE = -_NEVER


class Batch:
    """One PutRecords request. The I/O loop sets ``started`` (monotonic seconds)."""

    __slots__ = ("entries", "started")

    def __init__(self, entries: list[Entry]) -> None:
        self.entries: list[Entry] = entries
        self.started: float = 0.0


class Collector:
    """Kinesis records that wait until their request is full or due. Pure, not thread-safe.

    A request is cut when a connection is free, so records that arrive while all connections are busy share it. A single record above
    ``max_size`` (bytes of data and partition keys) gets its own request.
    """

    __slots__ = ("_deadline", "_entries", "_next_expiry", "_size", "max_count", "max_size")

    def __init__(self, max_count: int, max_size: int) -> None:
        self.max_count: int = max_count
        self.max_size: int = max_size
        self._entries: list[Entry] = []
        self._size = 0
        self._deadline = _NEVER
        # Never later than the earliest expiry inside; corrected when it is reached.
        self._next_expiry = _NEVER

    def add(self, entry: Entry, deadline: float) -> None:
        """Add a Kinesis record that must be sent by ``deadline`` (monotonic seconds)."""
        entry.leave_by = deadline
        self._entries.append(entry)
        self._size += entry.size
        if deadline < self._deadline:  # noqa: PLR1730 - `min` is a call for every entry
            self._deadline = deadline
        if entry.expires < self._next_expiry:  # noqa: PLR1730
            self._next_expiry = entry.expires

    def expedite(self) -> None:
        """Make all records due now."""
        for entry in self._entries:
            entry.leave_by = _AT_ONCE
        if self._entries:
            self._deadline = _AT_ONCE

    def is_due(self, now: float) -> bool:
        """Return whether a request should be sent now, because it is full or a deadline has passed."""
        return bool(self._entries) and (
            self._deadline <= now or len(self._entries) >= self.max_count or self._size >= self.max_size
        )

    def take(self) -> Batch:
        """Remove the first records, as many as the limits of a request allow, and return them as one request."""
        if len(self._entries) <= self.max_count and self._size <= self.max_size:
            batch = Batch(self._entries)
            self._keep([])
            return batch
        size = 0
        count = 0
        for entry in self._entries:
            size += entry.size
            if count and (count >= self.max_count or size > self.max_size):
                break
            count += 1
        batch = Batch(self._entries[:count])
        self._keep(self._entries[count:])
        return batch

    def take_where(self, wanted: Callable[[Entry], bool]) -> list[Entry]:
        """Remove and return the Kinesis records for which ``wanted`` returns True, in order."""
        taken = [entry for entry in self._entries if wanted(entry)]
        if taken:
            self._keep([entry for entry in self._entries if not wanted(entry)])
        return taken

    def take_expired(self, now: float) -> list[Entry]:
        """Remove and return the Kinesis records that hold an expired user record."""
        if now < self._next_expiry:
            return []
        expired = self.take_where(lambda entry: entry.expires <= now)
        self._next_expiry = min((entry.expires for entry in self._entries), default=_NEVER)
        return expired

    def _keep(self, entries: list[Entry]) -> None:
        self._entries = entries
        self._size = sum([entry.size for entry in entries])
        self._deadline = min([entry.leave_by for entry in entries], default=_NEVER)

    @property
    def next_deadline(self) -> float:
        """Earliest deadline; infinity if empty."""
        return self._deadline

    @property
    def next_expiry(self) -> float:
        """Time at which `take_expired` may return a record; infinity if there are no records."""
        return self._next_expiry if self._entries else _NEVER

    def __len__(self) -> int:
        return len(self._entries)
