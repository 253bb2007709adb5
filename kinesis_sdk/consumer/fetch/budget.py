"""Byte budget that all shards of a worker share, for responses that are in flight, waiting or being processed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable


class Reservation:
    """Bytes taken from a budget. `release` returns them; further calls have no effect."""

    __slots__ = ("_budget", "released", "size")

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget = budget
        self.size: int = size
        self.released: bool = False

    def resize(self, size: int) -> None:
        """Set the actual size, which may exceed the reserved size. No effect after `release`."""
        self._budget._change(self, size)

    def release(self) -> None:
        """Return all bytes to the budget."""
        self._budget._change(self, 0, final=True)


class Expansion:
    """Bytes that the user records of a shard's responses take in addition to the Kinesis records.

    These bytes must be reserved before a response is read, but their number is known only once the response is deaggregated. So
    `expected`, the bytes to reserve for the next response, is the size of the last response.
    """

    __slots__ = ("expected",)

    def __init__(self) -> None:
        self.expected: int = 0

    def charge(self, reservation: Reservation, size: int) -> Callable[[int], None]:
        """Return the ``charge`` of a response (see `FetchResult`) whose Kinesis records take ``size`` bytes."""
        largest = 0
        reservation.resize(size + self.expected)

        def charge(more: int) -> None:
            nonlocal largest
            largest = max(largest, more)
            self.expected = largest
            reservation.resize(size + more)

        return charge


class ByteBudget:
    """Byte bound that shards share fairly: reservations are granted in the order of the requests.

    A reservation is granted if it fits, or if nothing else is reserved. So a bound below the size of one response slows the
    worker down, but never blocks it. Thread-safe; its lock is a leaf, and wakers are called without it.

    Args:
        capacity: Maximum bytes reserved at a time.
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
        """Whether a reader waits for bytes."""
        return bool(self._waiting)

    def reserve(self, reader: object, size: int, wake: Callable[[], None]) -> Reservation | None:
        """Reserve at least one byte now, or join the queue and return None; ``wake`` is then called when a retry may succeed.

        A reader has at most one place in the queue, and keeps it when it calls again.
        """
        with self._lock:
            first = next(iter(self._waiting), None)
            is_next = first is None or first is reader
            if not is_next or not self._fits(size):
                self._waiting[reader] = (size, wake)
                return None
            self._waiting.pop(reader, None)
            self._used += size
            following = self._next()
        if following is not None:
            following()
        return Reservation(self, size)

    def leave(self, reader: object) -> None:
        """Remove a reader from the queue."""
        with self._lock:
            self._waiting.pop(reader, None)
            following = self._next()
        if following is not None:
            following()

    def _fits(self, size: int) -> bool:
        return self._used == 0 or self._used + size <= self.capacity

    def _next(self) -> Callable[[], None] | None:
        """Return the waker of the first reader in the queue, or None if its bytes do not fit. Requires the lock."""
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
