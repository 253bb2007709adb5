"""Scheduler: runs many small tasks on few threads, from a heap of due times. Steps of one task never overlap."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.due_times import DueTimes

Step = Callable[[float], "float | None"]
"""Function that does the work that is due at a monotonic time and returns the next due time, or None when it is finished."""

_NEVER = float("inf")
_AFTER_ERROR = 1.0
"""Seconds until a step that raised an error runs again."""

Run = Callable[[Callable[[], None]], object]
"""Function that runs a function now or soon: a pool's ``submit``, or a plain call."""


class Task:
    """A scheduled step function. This is opaque to callers of the scheduler."""

    __slots__ = ("run", "running", "step", "woken")

    def __init__(self, step: Step, run: Run) -> None:
        self.step: Step = step
        self.run: Run = run
        self.running: bool = False
        self.woken: bool = False


class Scheduler:
    """Multiplexes tasks over a thread pool, or over the caller's thread.

    Thread-safe. Its lock is a leaf: no step runs while it is held. ``on_change`` is called from any thread when `dispatch` has
    to run again before the moment that it returned last.
    """

    def __init__(self, run: Run, clock: Clock, on_change: Callable[[], None]) -> None:
        self._run = run
        self._clock = clock
        self._on_change = on_change
        self._lock = threading.Lock()
        # Tasks that wait for a time: not those that run, nor those that only `wake` starts.
        self._due: DueTimes[Task] = DueTimes()
        self._tasks: set[Task] = set()
        # Last result of `dispatch`; minus infinity while `dispatch` runs, because it finds everything that becomes due in the meantime.
        self._next = -_NEVER

    def add(self, step: Step, run: Run | None = None) -> Task:
        """Add a task, which does nothing until it is woken.

        Pass ``run`` if the task's steps must neither wait for steps of other tasks nor delay them.
        """
        task = Task(step, run or self._run)
        with self._lock:
            self._tasks.add(task)
        return task

    def wake(self, task: Task) -> None:
        """Make a task due now. If a step is running, the task runs again afterwards."""
        with self._lock:
            if task not in self._tasks:
                return
            if task.running:
                task.woken = True
                return
            self._due.set(task, self._clock.monotonic())
        self._on_change()

    def dispatch(self, now: float) -> float | None:
        """Start all due tasks, and return the next due time; None if no task waits for a time."""
        while True:
            with self._lock:
                task = self._due.take(now)
                if task is None:
                    due = self._next = self._due.next
                    return None if due == _NEVER else due
                self._next = -_NEVER
                task.running = True
            task.run(lambda task=task: self._step(task))  # type: ignore[misc]

    def between_steps(self, task: Task, function: Callable[[], bool]) -> bool:
        """Run a function at once on this thread if no step of a task is running; return its result, or False if a step is running."""
        with self._lock:
            if task.running or task not in self._tasks:
                return False
            due = self._due.discard(task)
            task.running = True
        try:
            return function()
        finally:
            self._release(task, _NEVER if due is None else due)

    def __len__(self) -> int:
        with self._lock:
            return len(self._tasks)

    def _step(self, task: Task) -> None:
        due: float | None = self._clock.monotonic() + _AFTER_ERROR
        try:
            due = task.step(self._clock.monotonic())
        finally:
            # Do this after an error, too; the thread that runs the step gets the error. A task that stayed marked as
            # running would never be stepped again, and a stop would wait for it forever.
            self._release(task, due)

    def _release(self, task: Task, due: float | None) -> None:
        """Let a task be stepped again, at its due time or when it is woken; None ends it."""
        with self._lock:
            task.running = False
            if due is None:
                self._tasks.discard(task)
            elif task.woken:
                self._due.set(task, self._clock.monotonic())
            elif due != _NEVER:
                self._due.set(task, due)
            task.woken = False
            is_earlier = self._due.next < self._next
        if is_earlier:
            self._on_change()
