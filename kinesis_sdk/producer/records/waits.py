"""Threads that wait for the final result of a record, in `PendingRecord.result` and in functions of `concurrent.futures`.

`concurrent.futures.wait` and `as_completed` hold the conditions together with locks of their own, so only a dedicated thread acquires
these conditions (`Notifier`).
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinesis_sdk.producer.records.record import BufferedRecord


class Waits:
    """Synchronization of the threads that wait for one record.

    Attributes:
        locks: One lock for each thread in `PendingRecord.result`, held until there is a result.
        registered: Whether this object is among the record's listeners, or the record is final.
        shared: Whether another thread may use the condition.
        notified: Whether the record's state is final for `concurrent.futures`, which reads it under the condition.
        condition: Condition that `concurrent.futures.wait` and `as_completed` acquire; guards their ``waiters``.
    """

    __slots__ = ("condition", "locks", "notified", "registered", "shared", "waiters")

    def __init__(self) -> None:
        self.locks: list[Any] = []
        self.registered: bool = False
        self.shared: bool = False
        self.notified: bool = False
        self.condition: threading.Condition = threading.Condition()
        self.waiters: list[Any] = []

    def release(self) -> None:
        """Wake the threads in `PendingRecord.result`, because the record has its final result. Never blocks."""
        with contextlib.suppress(IndexError):  # `pop` takes each lock once, even if two threads do this
            while True:
                self.locks.pop().release()

    def notify(self, record: BufferedRecord, *, blocking: bool = True) -> bool:
        """Make the state final for `concurrent.futures`; return False if the condition is held and the call must not block."""
        if not self.condition.acquire(blocking):
            return False
        try:
            if not self.notified:
                self.notified = True
                stored = not isinstance(record._delivery.outcome, BaseException)
                for waiter in self.waiters:
                    if stored:
                        waiter.add_result(record)
                    else:
                        waiter.add_exception(record)
                self.condition.notify_all()
        finally:
            self.condition.release()
        return True


_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 1.0
"""First and longest pause, in seconds, before the next attempt to acquire a condition that is held."""


class Notifier:
    """Thread that notifies `concurrent.futures.wait` and `as_completed` of records with a final result.

    These functions hold their locks while signals are handled. This class prevents the following deadlock: the main thread is in
    `concurrent.futures.wait` and holds a condition; a signal handler interrupts it and calls `flush`; `flush` waits for the thread
    that delivers results; that thread waits for the condition.

    The notifier's thread does not block on a condition, either. A handler that raises at the wrong moment in
    `concurrent.futures.wait` leaves conditions held forever, and the threads that wait for other records must still be notified.
    """

    def __init__(self) -> None:
        self._records: queue.SimpleQueue[BufferedRecord] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def notify(self, record: BufferedRecord) -> None:
        """Notify the waiters of a record soon."""
        self._records.put(record)
        # Without blocking: the holder of the lock may be an interrupted frame, and notifies this record's waiters, too.
        while self._thread is None and not self._records.empty() and self._lock.acquire(blocking=False):
            try:
                if self._thread is None and not self._start():
                    with contextlib.suppress(queue.Empty):
                        while True:
                            _notify(self._records.get_nowait())
            finally:
                self._lock.release()

    def _start(self) -> bool:
        thread = threading.Thread(target=self._run, name="kinesis-sdk-notifier", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # from Python 3.12 on, no thread starts while the interpreter ends
            return False
        self._thread = thread
        return True

    def _run(self) -> None:
        held: list[BufferedRecord] = []
        pause, again = _FIRST_PAUSE, 0.0
        while True:
            try:
                record = self._records.get(timeout=max(0.0, again - time.monotonic()) if held else None)
            except queue.Empty:
                pass
            else:
                if not _notify(record, blocking=False):
                    if not held:
                        pause, again = _FIRST_PAUSE, time.monotonic() + _FIRST_PAUSE
                    held.append(record)
                del record  # else it would be kept alive until the next one comes
            if held and time.monotonic() >= again:
                held = [other for other in held if not _notify(other, blocking=False)]
                pause = min(2 * pause, _LONGEST_PAUSE)
                again = time.monotonic() + pause


def _notify(record: BufferedRecord, *, blocking: bool = True) -> bool:
    waits = record._waits
    return waits is None or waits.notify(record, blocking=blocking)


_notifier = Notifier()


def notify_waiters(record: BufferedRecord) -> None:
    """Notify the threads that wait for a record in functions of `concurrent.futures` soon; without blocking."""
    _notifier.notify(record)


def _renew_after_fork() -> None:
    """Renew the notifier in a forked child: its thread does not exist there."""
    global _notifier  # noqa: PLW0603
    _notifier = Notifier()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
