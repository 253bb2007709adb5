"""Bounds of a reader's memory and of its look-ups: bytes of a shard that they may read again, and calls. Pure: time is passed in.

A forged record of 77 bytes can require 15 minutes of a shard. Records that a look-up leaves out because of its budget are delivered and
counted as unknown. So an attack can cause a second delivery, but never a loss or a stalled shard.
"""

from __future__ import annotations

_RESERVED = 4
"""Part of the budget (1/4) that only young records may use. Earlier copies of honest producers are at most a minute old, and records that
claim to have older copies cannot use up this part."""

YOUNG_MILLIS = 60_000
"""A record is young if the search for it begins at most this many milliseconds before its arrival."""

MAX_BYTES = 64 * 1024 * 1024
"""Default of the maximum bytes of the memory of one shard."""

OLDEST_MILLIS = 900_000
"""Maximum milliseconds from a record's date to its arrival, for records of idempotent producers."""

CALL_BYTES = 400_000
"""Minimum bytes that a call takes from the budget, so that calls with small responses are also bounded. A shard allows 2 MB and five calls
a second."""


class LookUpBudget:
    """Bytes that look-ups may read: a bucket that is refilled at a constant rate.

    A response is read as a whole, so the budget may be exceeded by one response.

    Args:
        capacity: Bytes of the full bucket.
        per_second: Bytes added in a second; 0 for a single task that does not wait for more.
        call_bytes: Minimum bytes that a response takes.
    """

    __slots__ = ("_at", "_call_bytes", "_capacity", "_left", "_per_second")

    def __init__(self, capacity: int, per_second: int = 0, *, call_bytes: int = CALL_BYTES) -> None:
        self._call_bytes = call_bytes
        self._capacity = capacity
        self._left: float = capacity
        self._per_second = per_second
        self._at: int | None = None

    def fill(self, now_millis: int | None) -> None:
        """Add the bytes for the elapsed time.

        Args:
            now_millis: Milliseconds by a clock that does not run backwards for long; with None, no bytes are added.
        """
        if now_millis is None:
            return
        if self._at is not None:
            gained = max(0, now_millis - self._at) * self._per_second / 1000
            self._left = min(self._capacity, self._left + gained)
        self._at = now_millis

    def take(self, size: int) -> None:
        """Note the bytes of a response."""
        self._left -= max(size, self._call_bytes)

    def allows(self, *, only_young: bool) -> bool:
        """Return whether more bytes may be read, for young records only or for all records."""
        return self._left > (0 if only_young else self._capacity / _RESERVED)
