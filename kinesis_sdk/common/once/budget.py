"""Budget of look-ups: how many bytes of a shard they may read again, and with how many calls. Pure: time is passed in.

A forged record of 77 bytes can ask for 15 minutes of a shard. What a look-up leaves out because of its budget is delivered and counted as
unknown, so that the price of an attack is a possible second delivery, and never a loss or a stalled shard.
"""

from __future__ import annotations

_RESERVED = 4
"""A quarter of the budget is left for records whose earlier copy is a minute old at most, as those of honest producers are: a record
that pretends to be older cannot use it up."""

YOUNG_MILLIS = 60_000
"""Milliseconds before its arrival from which on a record is looked for, up to which it counts as young."""

CALL_BYTES = 400_000
"""Bytes for which a call counts at least: a shard takes five calls a second, and gives 2 MB. So the budget also bounds calls that return little."""


class LookUpBudget:
    """Bytes that look-ups may read: a bucket that fills by itself.

    A response is read as a whole, so the budget may be exceeded by one.

    Args:
        capacity: Bytes of the full bucket.
        per_second: Bytes by which it fills in a second; 0 for one task that does not wait for it.
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
        """Add what has accrued.

        Args:
            now_millis: A clock in milliseconds that does not run backwards for long; None adds nothing.
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
        """Return whether more may be read, for young records only or for all."""
        return self._left > (0 if only_young else self._capacity / _RESERVED)
