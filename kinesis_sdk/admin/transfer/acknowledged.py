"""Accounting of one source: which of its records are acknowledged, in as little memory as possible.

Pure. Positions are numbers of records in a file, or sequence and sub-sequence numbers in a shard: any value that rises in the order in
which the source is read.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

P = TypeVar("P", int, tuple[int, int])


class Ticket(NamedTuple, Generic[P]):
    """A record that was read and has no final result yet. ``ordinal`` is its number in this run."""

    ordinal: int
    position: P


class _Range(Generic[P]):
    """Consecutive records that are done."""

    __slots__ = ("first", "first_position", "last", "last_position")

    def __init__(self, ticket: Ticket[P]) -> None:
        self.first = self.last = ticket.ordinal
        self.first_position: P = ticket.position
        self.last_position: P = ticket.position


class AckTracker(Generic[P]):
    """Account of the records of a source that are done. Thread-safe.

    Every record up to `through` is done; after it, there are ranges of done records, with gaps of records that are in flight or failed.
    There
    are at most as many ranges as records in these gaps.

    Args:
        through: Position up to which every record was done in an earlier run; None if no record was.
        beyond: First and last positions of later ranges that were also done, in order.
    """

    def __init__(self, through: P | None = None, beyond: Sequence[tuple[P, P]] = ()) -> None:
        self._lock = threading.Lock()
        self._through: P | None = through
        self._before: list[tuple[P, P]] = list(beyond)
        self._next = 0
        self._low = 0
        self._by_first: dict[int, _Range[P]] = {}
        self._by_last: dict[int, _Range[P]] = {}

    def was_done(self, position: P) -> bool:
        """Return whether an earlier run finished a record."""
        with self._lock:
            if self._through is not None and position <= self._through:
                return True
            at = bisect_right(self._before, position, key=lambda pair: pair[0]) - 1
            return at >= 0 and position <= self._before[at][1]

    def begin(self, position: P) -> Ticket[P]:
        """Count a record that was read. Every record must be counted, in the order of the source."""
        with self._lock:
            ticket = Ticket(self._next, position)
            self._next += 1
            return ticket

    def finish(self, ticket: Ticket[P]) -> None:
        """Count a record as done. A failed record is not finished, and remains a gap."""
        with self._lock:
            made = _Range(ticket)
            left = self._by_last.pop(ticket.ordinal - 1, None)
            if left is not None:
                del self._by_first[left.first]
                made.first, made.first_position = left.first, left.first_position
            right = self._by_first.pop(ticket.ordinal + 1, None)
            if right is not None:
                del self._by_last[right.last]
                made.last, made.last_position = right.last, right.last_position
            if made.first == self._low:
                self._low = made.last + 1
                if self._through is None or made.last_position > self._through:
                    self._through = made.last_position
                return
            self._by_first[made.first] = self._by_last[made.last] = made

    @property
    def through(self) -> P | None:
        """Position up to which every record is done; None if no record is done."""
        with self._lock:
            return self._through

    def state(self) -> tuple[P | None, list[tuple[P, P]]]:
        """Return `through` and the ranges after it, to continue with another tracker."""
        with self._lock:
            ranges = [(one.first_position, one.last_position) for one in self._by_first.values()]
            # Ranges of the earlier run stay: this run may not have reached them yet.
            return self._through, _joined(ranges + self._before, self._through)


def _joined(ranges: list[tuple[P, P]], through: P | None) -> list[tuple[P, P]]:
    """Return the ranges in order, with overlapping ranges joined, and without ranges up to ``through``."""
    joined: list[tuple[P, P]] = []
    for first, last in sorted(ranges):
        if through is not None and last <= through:
            continue
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined
