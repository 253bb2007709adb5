"""Bytes that all shards of a worker may hold at once: read, on their way, and in handlers' hands."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable


class Reservation:
    """Bytes taken from a budget; give them back with `release`, once or more often."""

    __slots__ = ("_budget", "released", "size")

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget = budget
        self.size: int = size
        self.released: bool = False

    def resize(self, size: int) -> None:
        """What it really takes, once that is known; may exceed the reservation. Nothing once it was released."""
        self._budget._change(self, size)

    def release(self) -> None:
        """Give everything back."""
        self._budget._change(self, 0, final=True)


class Expansion:
    """How many bytes the user records of a shard's responses take beyond the Kinesis records.

    That is known only when a response is deaggregated, and was not read then if it found no room. So a response is
    expected to take what the last one took.

    Attributes:
        expected: Bytes to reserve beside those of the Kinesis records.
    """

    __slots__ = ("expected",)

    def __init__(self) -> None:
        self.expected: int = 0

    def charge(self, reservation: Reservation, size: int) -> Callable[[int], None]:
        """Return the ``charge`` of a response (see `FetchResult`) whose Kinesis records take ``size`` bytes."""
        most = 0
        reservation.resize(size + self.expected)

        def charge(more: int) -> None:
            nonlocal most
            most = max(most, more)
            self.expected = most
            reservation.resize(size + more)

        return charge


class ByteBudget:
    """A byte bound that shards share fairly: who asked first is served first, nobody is passed by.

    A reservation is granted if it fits, or if nothing is reserved at all (so that a bound below the size of one
    answer slows down and never blocks). Thread-safe; its lock is a leaf, wakers are called without it.

    Args:
        capacity: Bytes.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._lock = threading.Lock()
        self._used = 0
        self._waiting: OrderedDict[object, tuple[int, Callable[[], None]]] = OrderedDict()

    @property
    def used(self) -> int:
        """Bytes reserved now."""
        return self._used

    @property
    def is_crowded(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def reserve(self, who: object, size: int, wake: Callable[[], None]) -> Reservation | None:
        """Take bytes now, or queue.

        Args:
            who: The asker; it has at most one place in the queue, and keeps it when it asks again.
            size: Bytes, at least 1.
            wake: Called when asking again may succeed.
        """
        with self._lock:
            first = next(iter(self._waiting), None)
            mine = first is None or first is who
            if not mine or not self._fits(size):
                self._waiting[who] = (size, wake)
                return None
            self._waiting.pop(who, None)
            self._used += size
            following = self._next()
        if following is not None:
            following()
        return Reservation(self, size)

    def leave(self, who: object) -> None:
        """Give up a place in the queue."""
        with self._lock:
            self._waiting.pop(who, None)
            following = self._next()
        if following is not None:
            following()

    def _fits(self, size: int) -> bool:
        return self._used == 0 or self._used + size <= self.capacity

    def _next(self) -> Callable[[], None] | None:
        """The waker of the first in the queue, if its turn has come. With the lock held."""
        for size, wake in self._waiting.values():
            return wake if self._fits(size) else None
        return None

    def _change(self, reservation: Reservation, size: int, *, final: bool = False) -> None:
        with self._lock:
            if reservation.released:
                return
            reservation.released = final
            self._used += size - reservation.size
            reservation.size = size
            following = self._next()
        if following is not None:
            following()
