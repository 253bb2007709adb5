"""The caller's side of a user record in flight: its future, and its result.

A `PendingRecord` is both the record and its `concurrent.futures.Future`: using one object instead of two halves the allocations. The
`Future` contract holds (``result``, ``wait``, ``as_completed``, callbacks, ``asyncio.wrap_future``), but the condition variable is
created only when a thread waits. Creating a condition for each record would cost more than the producer's other work for the record.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures._base import FINISHED, RUNNING
from typing import TYPE_CHECKING, Any, ClassVar

from kinesis_sdk.common.errors import ProducerError
from kinesis_sdk.producer.records.record import (
    REENTERED,
    BufferedRecord,
    PutResult,
    Stored,
    call_listener,
    interrupted_here,
)

wait_guards: dict[object, Callable[[PendingRecord], None]] = {}
"""Function that is called before a thread waits for a record; each producer has one. It raises `ProducerError` if the wait would never
end."""


class PendingRecord(BufferedRecord, Future[PutResult]):
    """A user record that was accepted, and the future of its `PutResult`.

    Attributes:
        partition_key: The user's partition key; empty for a record without a partition key.
        explicit_hash_key: Canonical decimal text, or None if the user set no explicit hash key.
    """

    __slots__ = ()

    # The constructor of `Future` would create a condition variable.
    if TYPE_CHECKING:

        def __init__(self) -> None: ...

    else:
        __init__ = object.__init__

    @property
    def _state(self) -> str:  # type: ignore[override]
        """State for `concurrent.futures`, which reads it under the condition. Never cancelled."""
        waits = self._waits
        final = self._delivery.outcome is not None if waits is None else waits.notified
        return FINISHED if final else RUNNING

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """Condition that `concurrent.futures.wait` and `as_completed` acquire."""
        waits = self._wait_here()
        condition = waits.condition
        if not waits.notified and not condition._is_owned():  # type: ignore[attr-defined]
            # A thread that sets the outcome reads `shared` afterwards, and this thread writes `shared` first and then reads
            # the outcome. So either that thread sees `shared` and notifies, or this one sees the outcome.
            waits.shared = True
            if self._delivery.outcome is not None:
                waits.notify(self)
        return condition

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        """Waiters of `concurrent.futures.wait` and `as_completed`; used under the condition."""
        waits = self._wait_here()
        if not waits.notified:
            # Here, not where the condition is taken: an error there would leave the conditions of other records held.
            self._check_may_wait()
        return waits.waiters

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        outcome = self._delivery.outcome
        return outcome if isinstance(outcome, BaseException) else None

    @property
    def _result(self) -> PutResult | None:  # type: ignore[override]
        """Result, created on access."""
        outcome = self._delivery.outcome
        return self._result_of(outcome) if type(outcome) is Stored else None

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(future)`` when the record has its final result; if it already has, at once on this thread.

        Callbacks of one record run once, one after the other, in the order in which they were added; callbacks of different records may
        run at the same time. They run on the producer's sending threads, so a slow callback delays requests. On such a thread the
        producer's `put` raises `BufferFullError` instead of waiting for room, and `flush`, `close` and `result` of a record that is not
        final raise `ProducerError`, because they would wait for the same thread. If `close` makes a record fail, the record's callbacks
        run on the thread that called `close`.

        `flush` and `close` wait until callbacks have run. Errors of a callback are logged, and have no other effect.
        """
        if fn is None:
            raise TypeError("fn must be callable, not None")
        if not self._listen(fn):
            call_listener(fn, self)

    def cancel(self) -> bool:
        """Return False, because an accepted record cannot be cancelled."""
        return False

    def cancelled(self) -> bool:
        """Return False, because an accepted record cannot be cancelled."""
        return False

    def running(self) -> bool:
        """Return whether there is no final result yet."""
        return self._delivery.outcome is None

    def done(self) -> bool:
        """Return whether the record has its final result."""
        return self._delivery.outcome is not None

    def result(self, timeout: float | None = None) -> PutResult:
        """Return the shard and sequence number of the record; wait for them if necessary.

        Args:
            timeout: Maximum seconds to wait; None waits for the result (at most the record's time-to-live plus a request's timeouts).

        Raises:
            RecordFailedError: If the record failed.
            TimeoutError: If there is no final result within ``timeout`` seconds (`concurrent.futures.TimeoutError`).
            ProducerError: If the wait would never end: in a callback of the same producer, or in a signal handler that interrupted the
                producer.
        """
        outcome = self._delivery.outcome or self._await_outcome(timeout)
        if type(outcome) is Stored:
            return self._result_of(outcome)
        assert isinstance(outcome, BaseException)
        try:
            raise outcome
        finally:
            del self, outcome  # else they and the traceback would hold each other

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the record's final failure, or None if it is stored; wait for it as `result` does.

        Raises:
            TimeoutError: If there is no final result within ``timeout`` seconds (`concurrent.futures.TimeoutError`).
            ProducerError: As for `result`.
        """
        outcome = self._delivery.outcome or self._await_outcome(timeout)
        return None if type(outcome) is Stored else outcome  # type: ignore[return-value]

    def _await_outcome(self, timeout: float | None) -> Stored | BaseException:
        if timeout is None or timeout > 0:
            self._check_may_wait()
            locks = self._wait_here().locks
            lock = threading.Lock()
            lock.acquire()
            locks.append(lock)
            try:
                # A thread that sets the outcome releases all locks afterwards, and this thread appends its lock first and
                # then reads the outcome. So either that thread finds the lock, or this one sees the outcome. Signals are
                # handled while this waits; the thread holds no lock that another thread needs.
                if self._delivery.outcome is None:
                    lock.acquire(timeout=-1 if timeout is None else timeout)
            finally:
                with contextlib.suppress(ValueError):  # it was released
                    locks.remove(lock)
        outcome = self._delivery.outcome
        if outcome is None:
            raise FutureTimeoutError
        return outcome

    def _check_may_wait(self) -> None:
        """Raise `ProducerError` if the final result cannot arrive before this thread continues."""
        if interrupted_here():
            raise ProducerError(REENTERED)
        for guard in tuple(wait_guards.values()):
            guard(self)

    def __repr__(self) -> str:
        outcome = self._delivery.outcome
        state = "pending" if outcome is None else "stored" if type(outcome) is Stored else "failed"
        return f"<PendingRecord {state} key={self.partition_key!r}>"


class BlindRecord(PendingRecord):
    """A record of `Producer.send`."""

    __slots__ = ()

    sent_blind: ClassVar[bool] = True
