"""Items by the moments at which they are due: steps of shards, streams of a producer."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_SPARE = 64
"""Maximum replaced moments in the heap, in addition to one moment for each item."""


class DueTimes(Generic[T]):
    """Items, each with one moment. Not thread-safe; the unit of moments is the caller's.

    Another moment replaces an item's former moment, which stays in the heap until its turn comes. An item that is always replaced long
    before its moment would leave millions of old moments, so the heap is rebuilt when most of its moments were replaced.
    """

    __slots__ = ("_entries", "_heap", "_order")

    def __init__(self) -> None:
        self._entries: dict[T, tuple[float, int, T]] = {}
        self._heap: list[tuple[float, int, T]] = []
        self._order = 0

    def set(self, item: T, moment: float) -> None:
        """Make an item due at a given time, instead of at its former time."""
        self._order += 1
        entry = self._entries[item] = (moment, self._order, item)
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entries) + _SPARE:
            self._heap[:] = self._entries.values()
            heapq.heapify(self._heap)

    def discard(self, item: T) -> float | None:
        """Forget an item, and return its moment; None if there is no such item."""
        entry = self._entries.pop(item, None)
        return None if entry is None else entry[0]

    def take(self, now: float) -> T | None:
        """Remove and return the item that is due first; None if no item is due.

        Of items that are due at the same moment, the item that was set first is returned.
        """
        heap, entries = self._heap, self._entries
        while heap and heap[0][0] <= now:
            entry = heapq.heappop(heap)
            item = entry[2]
            if entries.get(item) is entry:
                del entries[item]
                return item
        return None

    @property
    def next(self) -> float:
        """Earliest moment of an item; infinity without items."""
        heap, entries = self._heap, self._entries
        while heap and entries.get(heap[0][2]) is not heap[0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else float("inf")
