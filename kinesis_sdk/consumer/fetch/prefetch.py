"""Prefetching: reads the next records of a shard while the handler processes earlier records."""

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
"""Bytes that a Kinesis record takes in addition to its payload: tuple, key, sequence number (measured, CPython 3.11)."""

_MAX_READY = 2
"""Maximum responses of one shard that wait for the handler."""

_NEVER = float("inf")


def size_of(result: FetchResult) -> int:
    """Return the bytes that a result takes in memory before its user records are read."""
    records = result.records
    return sum([len(record.data) for record in records]) + RECORD_OVERHEAD * len(records)


def _refuse(_: FetchResult) -> bool:
    return False


class Prefetcher:
    """A `Fetcher` that reads ahead with another fetcher, on another thread, within a byte budget.

    `step` is a task of the scheduler and runs on the fetching threads. Any thread may call `close`; the shard's own step calls all
    other methods. Results are returned in the order of the reads, and an error after all earlier results. The lock is a leaf.

    Args:
        inner: Fetcher that makes the calls.
        budget: Byte budget of the worker.
        on_ready: Called from the fetching thread when `fetch` has a result or an error.

    Attributes:
        settle_quiet: Called on the fetching thread with a response without records, if no result waits for `fetch`. If it returns True,
            the response is settled: `fetch` does not return it, and the shard needs no step for it.
    """

    def __init__(self, inner: SizedFetcher, *, budget: ByteBudget, on_ready: Callable[[], None]) -> None:
        self._inner = inner
        self._budget = budget
        self._on_ready = on_ready
        self.settle_quiet: Callable[[FetchResult], bool] = _refuse
        self._wake: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._ready: deque[FetchResult] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self._closed = False
        self._reading: Reservation | None = None
        # Without the lock: only `step` uses it, and the scheduler never runs two steps of a task at once. The shard's step calls
        # the ``charge`` of a result later; a stale `expected` reserves too much or too little once.
        self._expansion = Expansion()

    def bind(self, wake: Callable[[], None]) -> None:
        """Set the function that makes the scheduler run `step` again."""
        self._wake = wake
        self._inner.listen(wake)

    @property
    def due(self) -> float:
        """Minus infinity if `fetch` has a result or an error, otherwise infinity until ``on_ready``."""
        with self._lock:
            return -_NEVER if self._ready or self._error is not None else _NEVER

    @property
    def started_at_millis(self) -> int | None:
        """See `FetchResult.started_at_millis`."""
        return self._inner.started_at_millis

    @property
    def waiting(self) -> FetchResult | None:
        """Oldest result that was read ahead; None if there is none."""
        with self._lock:
            return self._ready[0] if self._ready else None

    def fetch(self, now: float) -> FetchResult:
        """Return the next result without waiting; an empty result if there is none. See `Fetcher.fetch`."""
        del now  # the read was made by `step`
        error: BaseException | None = None
        with self._lock:
            if self._ready:
                # If fewer results wait, `step` has scheduled its next run itself.
                waits = len(self._ready) >= _MAX_READY
                result = self._ready.popleft()
            elif self._error is not None:
                error, self._error = self._error, None
                waits = True
            else:
                return FetchResult(records=[], header=NO_RESPONSE)
        if waits:
            self._wake()
        if error is not None:
            raise error
        return result

    def _was_closed(self) -> bool:
        with self._lock:
            return self._closed

    def close(self) -> None:
        """Stop reading, and drop all results that were read ahead, including the result of a read in flight."""
        with self._lock:
            self._closed = True
            dropped, self._ready = self._ready, deque()
            reading = self._reading
        if reading is not None:
            # Return the bytes now, not when the read returns: it may hang, and the other readers must not wait for it.
            reading.release()
        for result in dropped:
            result.on_done()
        self._budget.leave(self)
        self._inner.close()
        self._wake()

    def step(self, now: float) -> float | None:
        """Read once if it is due and there is room.

        Return the monotonic time of the next call: infinity until the function of `bind` is called, None after the last one.
        """
        with self._lock:
            if self._closed or self._ended:
                return None
            is_full = len(self._ready) >= _MAX_READY
            has_failed = self._error is not None and not _retryable(self._error)
        if is_full or has_failed:
            return _NEVER  # `fetch` wakes us
        if self._inner.due > now:
            return self._inner.due
        size = self._inner.expected_bytes(now) + self._expansion.expected
        reservation = self._budget.reserve(self, size, self._wake)
        if reservation is None:
            # This thread sees `_closed` false above. Then another thread runs `close`, whose `leave` finds nothing to remove.
            # Then `reserve` here queues this reader. This reader would stay in the queue, and all other readers would
            # wait behind it forever. So check again after queueing.
            if self._was_closed():
                self._budget.leave(self)
                return None
            return _NEVER
        self._reading = reservation
        try:
            result = self._inner.fetch(now)
        except BaseException as error:  # noqa: BLE001 - raised in `fetch`, on the thread of the shard's step
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
            if self._has_settled(result):
                return self._inner.due
        if not self._keep(result):
            reservation.release()
            return None
        self._on_ready()
        return None if result.header.ended else self._inner.due

    def _has_settled(self, result: FetchResult) -> bool:
        """Return whether a response without records needs no step of the shard."""
        if result.header.ended:
            return False
        with self._lock:
            if self._closed or self._ready or self._error is not None:
                return False
        return self.settle_quiet(result)

    def _keep(self, result: FetchResult) -> bool:
        """Queue a result; return False if `close` was called in between."""
        with self._lock:
            if self._closed:
                return False
            self._error = None
            self._ended = result.header.ended
            self._ready.append(result)
            return True


def _retryable(error: BaseException) -> bool:
    return isinstance(error, KinesisSdkError) and error.retryable
