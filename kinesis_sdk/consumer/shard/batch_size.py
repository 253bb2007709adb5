"""The number of records of the next call of a handler. Pure: no clock, no I/O."""

from __future__ import annotations

_PATIENCE = 2
"""Failures in a row from which on each one halves the next call: most failures pass, and one says nothing about the size."""

_SUCCESSES = 3
"""Calls in a row that must succeed before the next one is doubled: with fewer, more records are repeated; with more, an outage has longer effects."""

_UNLIMITED = 1 << 62


class BatchSize:
    """Number of records of the next call: the first ones of those that are left.

    A call succeeds only if none of its records fails. If each fails with a chance of 0.3 %, a call of 2,500 succeeds once in two
    thousand times, and repeating it makes no progress. So the second failure in a row halves the next call, and so does each one
    after it; three successes in a row double it, up to the limit.

    **Bound.** Let S calls succeed, or get on before they fail (see `got_on`). They double the size at most S / 3 times, so it is
    halved at most ``S / 3 + log2 L + 1`` times, for a limit of L. Each row of failures has one more that does not halve, and
    there are at most S + 1 rows. So at most ``4/3 S + log2 L + 2`` calls with more than one record fail, and those with a single
    one are what that record needs. S is at most the number of records.

    Args:
        limit: Maximum records of a call; None for any number.

    Attributes:
        limit: See above.
        failures: Failures in a row without progress.
        is_reduced: Whether calls get fewer records than the limit allows, for their reader to log and to measure; nothing here
            depends on it.
    """

    __slots__ = ("_size", "_successes", "failures", "is_reduced", "limit")

    def __init__(self, limit: int | None) -> None:
        self.limit: int = _UNLIMITED if limit is None else limit
        self.failures: int = 0
        self.is_reduced: bool = False
        self._size = self.limit
        self._successes = 0

    def take(self, available: int) -> int:
        """Return the number of records of the next call: at least one if there are any."""
        return min(available, self._size)

    def succeeded(self, count: int) -> None:
        """Note that a call of so many records succeeded. It may have been larger than what `take` returned."""
        self.failures = 0
        if self._size == self.limit:
            return
        self._size = min(self.limit, max(self._size, count))
        self._successes += 1
        if self._successes == _SUCCESSES:
            self._successes = 0
            self._size = min(self.limit, 2 * self._size)

    def got_on(self) -> None:
        """Note that a call failed after some of its records were finished for good, so that they are not repeated."""
        self.failures = 0
        self._successes = 0

    def failed(self, count: int) -> None:
        """Note that a call of so many records failed, and that all of them are to be repeated."""
        self.failures += 1
        self._successes = 0
        if self.failures >= _PATIENCE:
            self._size = max(1, count // 2)
