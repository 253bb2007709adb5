"""The few threads of a worker: a pool of daemon threads, and loops that sleep until they are due.

Daemon threads, not `concurrent.futures`: its threads are joined at interpreter exit, so a handler that hangs
would keep a process alive that was told twice to stop.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from kinesis_sdk.common.clock import Clock

_LONGEST_PAUSE = 3600.0
"""Seconds; waits beyond what the platform can count raise an error."""


class DaemonPool:
    """Runs functions on at most ``size`` daemon threads, which start as they are needed. Thread-safe.

    Functions must not raise: there is nobody to tell. An error that does escape goes to ``on_error``.

    Args:
        size: Most threads.
        name: Prefix of their names.
        on_error: Told about an error that escaped from a function.
    """

    def __init__(self, size: int, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._size = size
        self._name = name
        self._on_error = on_error
        self._condition = threading.Condition()
        self._todo: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._idle = 0
        self._closed = False

    def submit(self, function: Callable[[], None]) -> None:
        """Run a function soon; dropped once the pool is closed."""
        with self._condition:
            if self._closed:
                return
            self._todo.append(function)
            if self._idle >= len(self._todo) or self._threads >= self._size:
                self._condition.notify()
                return
            self._threads += 1
            number = self._threads
        threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True).start()

    def close(self) -> None:
        """Let threads end when their function returns; what waits is dropped."""
        with self._condition:
            self._closed = True
            self._todo.clear()
            self._condition.notify_all()

    def _work(self) -> None:
        while True:
            with self._condition:
                while not self._todo:
                    if self._closed:
                        return
                    self._idle += 1
                    self._condition.wait()
                    self._idle -= 1
                function = self._todo.popleft()
            try:
                function()
            except BaseException as error:  # noqa: BLE001 - the thread lives on, the error goes to its owner
                self._on_error(error)


class LoopThread:
    """Calls a function of the time whenever it is due, on one daemon thread.

    Args:
        name: Name of the thread.
        tick: Does what is due and returns when it is due again; None waits for `wake`.
        clock: Time.
        on_error: Told about an error that escaped from ``tick``; the loop goes on.
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
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Look again now."""
        with self._condition:
            self._woken = True
            self._condition.notify()

    def stop(self, timeout: float | None = None) -> None:
        """End after the running tick and wait for that, unless called from the loop itself."""
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
            now = self._clock.monotonic()
            try:
                due = self._tick(now)
            except BaseException as error:  # noqa: BLE001 - the loop goes on, the error goes to its owner
                self._on_error(error)
                due = now + 1.0
            with self._condition:
                if not self._woken and not self._stopped:
                    pause = _LONGEST_PAUSE if due is None else due - self._clock.monotonic()
                    self._condition.wait(min(max(pause, 0.0), _LONGEST_PAUSE))
