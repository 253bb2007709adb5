"""Pools of daemon threads.

It replaces `concurrent.futures`, whose threads are joined at interpreter exit: a hung handler would keep a process alive even after a
second stop signal.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from kinesis_sdk.common.log_fields import FieldLogger, log_fields

_LOGGER = FieldLogger(logging.getLogger(__name__))


class DaemonPool:
    """Runs functions on at most ``size`` daemon threads, which start when they are first needed. Thread-safe.

    Functions must not raise, because no caller waits for them. An error that escapes goes to ``on_error``.

    If the operating system starts no more threads (the pids limit of a container), functions wait for the pool's existing
    threads. A pool without threads runs them on the caller's thread. Every function always runs, because callers have recorded that it is
    under way, and would otherwise wait for it forever.

    Args:
        size: Maximum threads.
        name: Prefix of the threads' names.
        on_error: Called with an error that escaped from a function.
        worker_id: Id of the worker, for the log.
    """

    def __init__(
        self,
        size: int,
        name: str,
        on_error: Callable[[BaseException], None],
        worker_id: str | None = None,
    ) -> None:
        self._worker_id = worker_id
        self._size = size
        self._max_size = 2 * size
        self._name = name
        self._on_error = on_error
        self._condition = threading.Condition()
        self._todo: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._idle = 0
        self._closed = False
        self._short_of_threads = False
        self._members: set[int] = set()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on a thread of this pool."""
        return threading.get_ident() in self._members

    def submit(self, function: Callable[[], None]) -> None:
        """Run a function soon. The function is dropped if the pool is closed."""
        with self._condition:
            if self._closed:
                return
            self._todo.append(function)
            if self._idle >= len(self._todo) or self._threads >= self._size:
                self._condition.notify()
                return
            self._threads += 1
            number = self._threads
        try:
            threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True).start()
        except RuntimeError as error:
            self._run_without_thread(error)
        else:
            self._short_of_threads = False

    def _run_without_thread(self, error: RuntimeError) -> None:
        """Leave the queue to the other threads, or run its functions here if there are no threads."""
        with self._condition:
            # Decrement only now, and then run the whole queue. Between the failed start and this line another `submit` may
            # have counted on the missing thread, and only queued its function.
            self._threads -= 1
            others = self._threads
        if not self._short_of_threads:  # log once per shortage
            self._short_of_threads = True
            _LOGGER.warning(
                "pool %s: cannot start another thread, continuing with %d: %s",
                self._name,
                others,
                error,
                extra=log_fields(worker=self._worker_id),
            )
        if others:
            return
        ident = threading.get_ident()
        nested = ident in self._members
        self._members.add(ident)
        try:
            while (function := self._next()) is not None:
                self._call(function)
        finally:
            if not nested:
                self._members.discard(ident)

    def _next(self) -> Callable[[], None] | None:
        with self._condition:
            return self._todo.popleft() if self._todo else None

    def _call(self, function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - the thread continues, the error goes to its owner
            self._on_error(error)

    def widen(self) -> None:
        """Allow one more thread, up to twice the size, because a thread hangs."""
        with self._condition:
            self._size = min(self._max_size, self._size + 1)

    def close(self) -> None:
        """Let threads end when their function returns, and drop queued functions."""
        with self._condition:
            self._closed = True
            self._todo.clear()
            self._condition.notify_all()

    def _work(self) -> None:
        self._members.add(threading.get_ident())
        while True:
            with self._condition:
                while not self._todo:
                    if self._closed:
                        # Python reuses thread identifiers, so a new thread would count as a member of this pool.
                        self._members.discard(threading.get_ident())
                        return
                    self._idle += 1
                    self._condition.wait()
                    self._idle -= 1
                function = self._todo.popleft()
            self._call(function)
