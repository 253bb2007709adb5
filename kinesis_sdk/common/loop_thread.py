"""A thread that does the due work and sleeps until more is due, for the loops of a worker and the reads of a fleet's poller."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kinesis_sdk.common.clock import Clock

_AFTER_ERROR = 1.0
"""Seconds until a loop continues after an error."""

_LONGEST_PAUSE = 3600.0
"""Maximum seconds of one wait; the platform rejects much longer waits."""


class LoopThread:
    """Calls a function whenever it is due, on one daemon thread.

    Args:
        name: Name of the thread.
        tick: Does the work that is due at a monotonic time and returns the next due time, or None to wait for `wake`.
        clock: Clock of these times.
        on_error: Called with each error that ``tick`` raises; the loop then continues after a second.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[float], float | None],
        clock: Clock,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._tick = tick
        self._clock = clock
        self._on_error = on_error
        self._condition = threading.Condition()
        self._woken = False
        self._stopped = False
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def is_stuck(self, timeout: float) -> bool:
        """Return whether the thread has ended by itself, or a call has been running for more than ``timeout`` seconds."""
        busy_since = self._busy_since
        if busy_since is not None and self._clock.monotonic() - busy_since > timeout:
            return True
        return not self._stopped and self._thread.ident is not None and not self._thread.is_alive()

    def wake(self) -> None:
        """Call the function now."""
        with self._condition:
            self._woken = True
            self._condition.notify()

    def stop(self, timeout: float | None = None) -> None:
        """End the loop after the running call; wait at most ``timeout`` seconds for its end, unless called from the loop itself."""
        with self._condition:
            self._stopped = True
            self._condition.notify()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._condition:
                if self._stopped:
                    return
                self._woken = False
            now = self._busy_since = self._clock.monotonic()
            try:
                due = self._tick(now)
            except BaseException as error:  # noqa: BLE001 - the loop continues, the error goes to its owner
                self._on_error(error)
                due = now + _AFTER_ERROR
            self._busy_since = None
            with self._condition:
                if not self._woken and not self._stopped:
                    pause = _LONGEST_PAUSE if due is None else due - self._clock.monotonic()
                    self._condition.wait(min(max(pause, 0.0), _LONGEST_PAUSE))
