"""Objects for signal handlers: `StopFlag`, an event that they may set, and `SignalCopies`, which detects copies of a signal."""

from __future__ import annotations

from queue import Empty, SimpleQueue

_SAME_SIGNAL = 1.0
"""Seconds within which a second signal of one number is a copy of the first signal."""


class StopFlag:
    """An event that is never cleared, and that a signal handler may set. Thread-safe.

    `threading.Event` is not made for signal handlers. Python runs a handler in the main thread, between any two of its
    instructions. Suppose that the signal arrives while the main thread is inside `Event.wait` or `Event.set` and holds the event's lock.
    Then `set` in the handler waits for that lock, but the interrupted code below it cannot release the lock, and the process never ends. A
    `SimpleQueue` has no such lock: its methods may interrupt each other in one thread.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """Return whether `set` was called."""
        return self._is_set

    def set(self) -> None:
        """Set the flag, and end all calls of `wait`."""
        self._is_set = True
        self._wakes.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set.

        Without a timeout, the main thread may miss a signal that the system delivers to another thread.

        Args:
            timeout: Maximum seconds to wait; None waits indefinitely.

        Returns:
            Whether the flag is set.
        """
        if self._is_set:
            return True
        try:
            self._wakes.get(timeout=timeout)
        except Empty:
            return self._is_set
        self._wakes.put(None)  # for the next waiting thread
        return True


class SignalCopies:
    """Memory of received signals, which distinguishes a copy from a second signal.

    `timeout`, shells and service managers may send one signal both to a process and to its group, so that it arrives twice.
    """

    def __init__(self) -> None:
        self._received: dict[int, float] = {}

    def is_copy(self, number: int, now: float) -> bool:
        """Note a signal, and return whether it is a copy: a signal of the same number arrived less than a second ago.

        Args:
            number: Number of the signal.
            now: Monotonic seconds.
        """
        if now - self._received.get(number, float("-inf")) < _SAME_SIGNAL:
            return True
        self._received[number] = now
        return False
