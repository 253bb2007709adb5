"""Work on many shards at once: generators that wait without holding a thread.

A *step* function is a generator that makes its calls itself and yields only when it has to wait; the yielded value is the monotonic time
at which it continues. `run_all` runs many of them on a few threads. A shard that waits for the limit of reads per second or for a retry
does not delay other shards. With one thread, `run_all` runs in the caller's thread and waits with the passed function, so that tests run it
in virtual time.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from kinesis_sdk.common.clock import Clock

T = TypeVar("T")

Steps = Generator[float, None, T]
"""Yields the monotonic time, in seconds, before which it does not continue, and returns its result."""


class Pace:
    """Limit of the calls for one shard: at most ``count`` calls in any period of ``seconds``.

    Kinesis allows five reads per second and shard, for all readers together. The planner makes three of them and leaves two to other
    readers and to the tasks of the same query.
    """

    __slots__ = ("_seconds", "_times")

    def __init__(self, count: int = 3, seconds: float = 1.0) -> None:
        self._times: deque[float] = deque(maxlen=count)
        self._seconds = seconds

    def wait(self, clock: Clock) -> Steps[None]:
        """Wait until the next call may be made, and count it."""
        now = clock.monotonic()
        if len(self._times) == self._times.maxlen:
            due = self._times[0] + self._seconds
            while now < due:
                yield due
                now = clock.monotonic()
        self._times.append(now)


def run(steps: Steps[T], clock: Clock, sleep: Callable[[float], None]) -> T:
    """Run one generator of steps in the calling thread, and return its result."""
    try:
        while True:
            sleep(max(0.0, next(steps) - clock.monotonic()))
    except StopIteration as stop:
        result: T = stop.value
        return result


def run_all(
    work: Iterable[Steps[None]], *, clock: Clock, sleep: Callable[[float], None], threads: int
) -> None:
    """Run generators of steps until all have ended. Each generator is used by one thread at a time.

    A single thread calls ``sleep`` with the seconds until the next step. With several threads, they wait for each other in real time.

    Raises:
        Exception: The first exception that a generator raised. All other generators are closed at their next step.
    """
    waiting = [(float("-inf"), number, steps) for number, steps in enumerate(work)]
    threads = min(threads, len(waiting))
    if threads > 1:
        _Crew(waiting, clock).run(threads)
        return
    try:
        while waiting:
            due, number, steps = waiting[0]
            pause = due - clock.monotonic()
            if pause > 0:
                sleep(pause)
            heapq.heappop(waiting)
            try:
                due = next(steps)
            except StopIteration:
                continue
            heapq.heappush(waiting, (due, number, steps))
    finally:
        for _, _, steps in waiting:
            steps.close()


class _Crew:
    """Threads that run steps."""

    def __init__(self, waiting: list[tuple[float, int, Steps[None]]], clock: Clock) -> None:
        self._waiting = waiting
        self._left = len(waiting)
        self._clock = clock
        self._changed = threading.Condition()
        self._error: BaseException | None = None

    def run(self, threads: int) -> None:
        """Run all generators, with the calling thread as one of the threads."""
        others = [
            threading.Thread(target=self._work, name=f"kinesis-look-{number}", daemon=True)
            for number in range(1, threads)
        ]
        for thread in others:
            thread.start()
        try:
            self._work()
        except BaseException as error:
            # Only an interrupt (Ctrl-C) arrives here: errors of the steps are stored. All other threads stop at their next step.
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()
            raise
        finally:
            for thread in others:
                thread.join()
            for _, _, steps in self._waiting:
                steps.close()
        if self._error is not None:
            raise self._error

    def _next(self) -> tuple[int, Steps[None]] | None:
        """Wait until a generator is due, and return it; None if all have ended."""
        with self._changed:
            while True:
                if self._error is not None or not self._left:
                    return None
                if not self._waiting:
                    self._changed.wait()
                    continue
                pause = self._waiting[0][0] - self._clock.monotonic()
                if pause <= 0:
                    _, number, steps = heapq.heappop(self._waiting)
                    return number, steps
                self._changed.wait(pause)

    def _work(self) -> None:
        while True:
            item = self._next()
            if item is None:
                return
            number, steps = item
            try:
                due = next(steps)
            except StopIteration:
                with self._changed:
                    self._left -= 1
                    if not self._left:
                        self._changed.notify_all()
            except BaseException as error:  # noqa: BLE001 — raised by `run`
                with self._changed:
                    self._error = self._error or error
                    self._changed.notify_all()
                return
            else:
                with self._changed:
                    heapq.heappush(self._waiting, (due, number, steps))
                    self._changed.notify()
