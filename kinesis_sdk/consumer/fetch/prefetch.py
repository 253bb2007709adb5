"""Reading ahead: the next batch of a shard is on its way while the handler works on the one before."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.response_header import NO_RESPONSE
from kinesis_sdk.consumer.fetch.budget import ByteBudget, Expansion, Reservation
from kinesis_sdk.consumer.fetch.fetcher import FetchResult, SizedFetcher

RECORD_OVERHEAD = 400
"""Bytes that a Kinesis record takes beside its payload: tuple, key, sequence number (measured, CPython 3.11)."""

_MOST_READY = 2
"""Answers of one shard that wait for the handler."""

_NEVER = float("inf")


def size_of(result: FetchResult) -> int:
    """Bytes that an answer takes in memory, before its user records are read."""
    records = result.records
    return sum([len(record.data) for record in records]) + RECORD_OVERHEAD * len(records)


class Prefetcher:
    """A `Fetcher` that reads with another one, on another thread, within a byte budget.

    `step` is a task of the scheduler and runs on the fetching threads; everything else belongs to the shard's
    own step. Records come out in order and none is lost: an error comes out after what was read before it.

    Its lock is a leaf.

    Args:
        inner: Reads.
        budget: Shared by all shards of the worker.
        on_ready: Called from the fetching thread when `fetch` has something.
    """

    def __init__(self, inner: SizedFetcher, *, budget: ByteBudget, on_ready: Callable[[], None]) -> None:
        self._inner = inner
        self._budget = budget
        self._on_ready = on_ready
        self._wake: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._ready: deque[FetchResult] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self._closed = False
        self._reading: Reservation | None = None
        self._expansion = Expansion()

    def bind(self, wake: Callable[[], None]) -> None:
        """Tell how to make `step` run again."""
        self._wake = wake

    @property
    def due(self) -> float:
        """In the past if there is something to `fetch`, else never: ``on_ready`` is called."""
        with self._lock:
            return -_NEVER if self._ready or self._error is not None else _NEVER

    @property
    def started_at_millis(self) -> int | None:
        """See `FetchResult.started_at_millis`."""
        return self._inner.started_at_millis

    @property
    def waiting(self) -> FetchResult | None:
        """The oldest answer that was read ahead."""
        with self._lock:
            return self._ready[0] if self._ready else None

    def fetch(self, now: float) -> FetchResult:
        """The next answer, without waiting. See `Fetcher.fetch`."""
        del now
        with self._lock:
            if self._ready:
                result = self._ready.popleft()
            elif self._error is not None:
                error, self._error = self._error, None
                result = None
            else:
                return FetchResult(records=[], header=NO_RESPONSE)
        self._wake()
        if result is None:
            raise error
        return result

    def _was_closed(self) -> bool:
        with self._lock:
            return self._closed

    def close(self) -> None:
        """Drop what was read ahead and read no more. A read under way ends in nothing."""
        with self._lock:
            self._closed = True
            dropped, self._ready = self._ready, deque()
            reading = self._reading
        if reading is not None:
            reading.release()  # it may hang for ever, others must not
        for result in dropped:
            result.on_done()
        self._budget.leave(self)
        self._inner.close()
        self._wake()

    def step(self, now: float) -> float | None:
        """Read once if it is time and there is room; returns when to look again."""
        with self._lock:
            if self._closed or self._ended:
                return None
            full = len(self._ready) >= _MOST_READY
            broken = self._error is not None and not _retryable(self._error)
        if full or broken:
            return _NEVER  # `fetch` wakes us
        if self._inner.due > now:
            return self._inner.due
        size = self._inner.expected_bytes(now) + self._expansion.expected
        reservation = self._budget.reserve(self, size, self._wake)
        if reservation is None:
            # `close` may run between the check of `_closed` above and `reserve`: its `leave` finds nothing in the
            # queue, then `reserve` queues this reader, and nothing takes it out again. All other readers would wait
            # behind it for ever.
            if self._was_closed():
                self._budget.leave(self)
                return None
            return _NEVER
        self._reading = reservation
        try:
            result = self._inner.fetch(now)
        except BaseException as error:  # noqa: BLE001 - raised where the shard's step asks for records
            reservation.release()
            with self._lock:
                self._error = error
            self._on_ready()
            return self._inner.due if _retryable(error) else _NEVER
        finally:
            self._reading = None
        if result.records:
            charge = self._expansion.charge(reservation, size_of(result))
            result = replace(result, charge=charge, on_done=reservation.release)
        else:
            reservation.release()
        if not self._keep(result):
            reservation.release()
            return None
        self._on_ready()
        return None if result.header.ended else self._inner.due

    def _keep(self, result: FetchResult) -> bool:
        """Queue an answer; False if nobody wants it any more."""
        with self._lock:
            if self._closed:
                return False
            self._error = None
            self._ended = result.header.ended
            self._ready.append(result)
            return True


def _retryable(error: BaseException) -> bool:
    return isinstance(error, KinesisSdkError) and error.retryable
