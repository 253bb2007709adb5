"""Number of records in the next call of a handler. Pure: no clock, no I/O."""

from __future__ import annotations

_PATIENCE = 2
"""Number of the first consecutive failure that halves the next call; later failures halve it again. After a single failure, the next call
usually succeeds with any size."""

_SUCCESSES = 3
"""Consecutive successes that double the next call. A smaller number would repeat more records; a larger number would prolong the effect of
an outage."""

_UNLIMITED = 1 << 62


class BatchSize:
    """Number of records in the next call.

    A call succeeds only if none of its records fails. If each record fails with a probability of 0.3 %, a call of 2,500 records succeeds
    once in two thousand times, and repeating it makes no progress. So the second consecutive failure and each failure after it halve the
    next call. Three consecutive successes double the next call, up to the limit.

    **Bound.** Suppose that S calls succeed, or make progress before they fail (see `got_on`). These calls double the size at most S / 3
    times, so for a limit of L the size is halved at most ``S / 3 + log2 L + 1`` times. Each run of failures begins with a failure that
    does not halve the size, and there are at most S + 1 runs. So at most ``4/3 S + log2 L + 2`` calls with more than one record fail.
    Failures of calls with a single record are due to that record. S is at most the number of records.

    Attributes:
        limit: Maximum records of a call; None, as an argument, for any number.
        failures: Consecutive failures without progress.
        is_reduced: Whether the caller has logged that calls get fewer records than the limit allows. Not used here.
    """

    __slots__ = ("_size", "_successes", "failures", "is_reduced", "limit")

    def __init__(self, limit: int | None) -> None:
        self.limit: int = _UNLIMITED if limit is None else limit
        self.failures: int = 0
        self.is_reduced: bool = False
        self._size = self.limit
        self._successes = 0

    def take(self, available: int) -> int:
        """Return the number of records in the next call: at least one if records are available."""
        return min(available, self._size)

    def succeeded(self, count: int) -> None:
        """Note that a call with this many records succeeded. The call may have had more records than `take` returned."""
        self.failures = 0
        if self._size == self.limit:
            return
        self._size = min(self.limit, max(self._size, count))
        self._successes += 1
        if self._successes == _SUCCESSES:
            self._successes = 0
            self._size = min(self.limit, 2 * self._size)

    def got_on(self) -> None:
        """Note that a call failed after it had checkpointed some of its records, which are not repeated."""
        self.failures = 0
        self._successes = 0

    def failed(self, count: int) -> None:
        """Note that a call with this many records failed, and that all of them will be repeated."""
        self.failures += 1
        self._successes = 0
        if self.failures >= _PATIENCE:
            self._size = max(1, count // 2)
