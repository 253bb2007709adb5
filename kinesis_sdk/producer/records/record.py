"""User records in flight: the caller's future and its result.

A `PendingRecord` is both the record and its `concurrent.futures.Future`: one object instead of two halves the allocations. The
`Future` contract holds (``result``, ``wait``, ``as_completed``, callbacks, ``asyncio.wrap_future``), but the condition variable is
created only when a thread waits: one for each record would cost more than the rest of the producer's work for it.

A record has seven slots: its keys, its arrival, the `DeliveryState` of its Kinesis record (`Entry`), its index there, rarely used
details, and its listeners. Its payload is in the entry, once and already encoded. All user records of an entry share one
`DeliveryState`, so completing an entry is a single assignment. Rarely used fields are class attributes and cost no memory until they
are set.

Signal handlers may interrupt the main thread between any two calls and then wait for the producer's threads (`flush`, `close`,
`result`). So those threads must never wait for a lock that such an interrupted frame may hold. There are two kinds of locks here. Under
`_STATE_LOCK`, a caller's thread makes no call (signals are handled at calls). The conditions of `concurrent.futures.wait` and
`as_completed` are held together with locks of these functions, so only a thread made for that purpose takes them (`_Notifier`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures._base import FINISHED, RUNNING
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kinesis_sdk.common.errors import KinesisSdkError, ProducerError
from kinesis_sdk.common.hashkeys import explicit_hash_key_to_bytes, hash_partition_key
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.records import Attempt

if TYPE_CHECKING:
    from kinesis_sdk.common.aggregate_reader import Aggregate
    from kinesis_sdk.common.once.identity import Identity

_LOGGER = FieldLogger(logging.getLogger(__name__))

# Guards the outcome of every delivery state of the process, and the listeners that are added before it. Held for well under a
# microsecond; callers' threads make no call under it. Innermost lock: nothing else is taken under it, and a thread that holds a
# producer's lock does not take it. Re-entrant only so that a signal handler can tell that it interrupted its holder.
_STATE_LOCK = threading.RLock()

wait_guards: dict[object, Callable[[PendingRecord], None]] = {}
"""One function per producer, called before a thread waits for a record. It raises `ProducerError` if the wait could not end."""


def interrupted_here() -> bool:
    """Return whether a signal handler runs here that interrupted a change of a record's state on this thread."""
    return bool(_STATE_LOCK._is_owned())  # type: ignore[attr-defined]


RECORD_OVERHEAD = 800
"""Bytes of bookkeeping charged for a buffered record, in addition to its data and keys. Measured: 200 in an aggregate, 800 if it
is not aggregated, twice that after some dozens of failures (`tests/producer/test_memory.py`). When a record is charged, it is not known
whether it will be aggregated, so this is the larger of the first two numbers."""


def cost_of(partition_key: str, data: bytes, header_fields: bytes = b"") -> int:
    """Return the bytes that a buffered record is charged for."""
    return len(data) + len(partition_key) + RECORD_OVERHEAD + len(header_fields)


_new_tuple = tuple.__new__  # the constructor of a named tuple adds a Python call


class PutResult(NamedTuple):
    """Location of a stored user record: it names the copy that was acknowledged.

    If an idempotent producer had to send the record again, readers may report an earlier copy; `kinesis_sdk.admin.first_copy` tells which.

    Attributes:
        shard_id: Shard that holds it.
        sequence_number: Sequence number of its Kinesis record; shared with the other user records in it.
        sub_sequence_number: Position inside the aggregate from 0; 0 for a record that was not aggregated.
        attempts: All attempts; the last one succeeded.
    """

    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    attempts: tuple[Attempt, ...]


class Stored(NamedTuple):
    """Shard and sequence number of a stored Kinesis record, and start and end of its request (monotonic seconds)."""

    shard_id: str
    sequence_number: str
    started: float
    ended: float


class KinesisRecord(Protocol):
    """The fields of `entry.Entry` that a user record needs."""

    aggregate: Aggregate
    records: list[PendingRecord]
    epoch: int
    delivery: DeliveryState
    has_listeners: bool


class DeliveryState:
    """Delivery state shared by all user records of a Kinesis record, or owned by a single one.

    A record that failed, or that is not in a Kinesis record, has its own. ``entry`` is the Kinesis record, None from the final result on;
    ``outcome`` is the final result, None before.
    """

    __slots__ = ("entry", "outcome")

    def __init__(self, entry: KinesisRecord | None, outcome: Stored | BaseException | None = None) -> None:
        self.entry: KinesisRecord | None = entry
        self.outcome: Stored | BaseException | None = outcome


class _Details:
    """Fields that few records need, such as retried ones; see the properties of `PendingRecord`."""

    __slots__ = ("due", "ended", "grace", "header_fields", "history", "identity", "last_error", "own_epoch")

    def __init__(self) -> None:
        self.due: float | None = None
        self.ended: float | None = None
        self.grace = 0.0
        self.header_fields = b""
        self.history: list[Attempt] | None = None
        self.identity: Identity | None = None
        self.last_error: KinesisSdkError | None = None
        self.own_epoch: int | None = None


_NO_DETAILS = _Details()

REENTERED = (
    "the producer was called from a signal handler that interrupted it: raise an exception from the handler or set a flag there, "
    "and call the producer outside the handler"
)
"""Error text for a call from a signal handler that interrupted the producer."""

NOT_PLACED = DeliveryState(None)
"""Delivery state of a record that is not in a Kinesis record yet; only the thread in `put` has a reference to the record."""


class _Chain:
    """Two or more listeners of a record, in the order in which they were added."""

    __slots__ = ("before", "last")

    def __init__(self, before: Any, last: Any) -> None:
        self.before = before
        self.last = last

    def unroll(self) -> list[Any]:
        """Return the listeners in the order in which they were added."""
        listeners = [self.last]
        before = self.before
        while type(before) is _Chain:
            listeners.append(before.last)
            before = before.before
        listeners.append(before)
        listeners.reverse()
        return listeners


class _Waits:
    """Synchronization of the threads that wait for one record.

    Attributes:
        locks: One held lock for each thread in `PendingRecord.result`, released when there is a result.
        registered: Whether it is among the record's listeners, or the record is final.
        shared: Whether another thread may use the condition.
        notified: Whether the record's state is final for `concurrent.futures`, which reads it under the condition.
        condition: Taken by `concurrent.futures.wait` and `as_completed`; guards their ``waiters``.
    """

    __slots__ = ("condition", "locks", "notified", "registered", "shared", "waiters")

    def __init__(self) -> None:
        self.locks: list[Any] = []
        self.registered = False
        self.shared = False
        self.notified = False
        self.condition = threading.Condition()
        self.waiters: list[Any] = []

    def release(self) -> None:
        """Wake the threads in `PendingRecord.result`, because the record has its final result. Never blocks."""
        with contextlib.suppress(IndexError):  # `pop` takes each lock once, even if two threads do this
            while True:
                self.locks.pop().release()

    def notify(self, record: PendingRecord, *, blocking: bool = True) -> bool:
        """Make the state final for `concurrent.futures`; return False if the condition is held and this must not block."""
        if not self.condition.acquire(blocking):
            return False
        try:
            if not self.notified:
                self.notified = True
                stored = type(record._delivery.outcome) is Stored
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
"""First and longest pause, in seconds, before a held condition is tried again."""


class _Notifier:
    """Thread that tells `concurrent.futures.wait` and `as_completed` about records with a final result.

    These functions hold their locks while signals are handled. The sequence that this class prevents: the main thread is in
    `concurrent.futures.wait` and holds a condition; a signal handler interrupts it and calls `flush`; `flush` waits for the thread
    that delivers results; that thread waits for the condition; nothing continues.

    The notifier's thread does not block on a condition either. A handler that raises at the wrong moment in
    `concurrent.futures.wait` leaves conditions held for ever, and the threads that wait for other records must still be notified.
    """

    def __init__(self) -> None:
        self._records: queue.SimpleQueue[PendingRecord] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def notify(self, record: PendingRecord) -> None:
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
        held: list[PendingRecord] = []
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


def _notify(record: PendingRecord, *, blocking: bool = True) -> bool:
    waits = record._waits
    return waits is None or waits.notify(record, blocking=blocking)


_notifier = _Notifier()


def _renew_after_fork() -> None:
    """Renew the locks in a forked child: a thread that does not exist there may have held them."""
    global _STATE_LOCK, _notifier  # noqa: PLW0603
    _STATE_LOCK = threading.RLock()
    _notifier = _Notifier()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)


class PendingRecord(Future[PutResult]):
    """A user record that was accepted, and the future of its `PutResult`.

    Attributes:
        partition_key: The user's partition key; empty for a record without one.
        arrived: Monotonic seconds at which `put` accepted it.
        explicit_hash_key: Canonical decimal text if the user gave one, else None.
        sent_blind: Whether it was put without returning a future (`Producer.send`), so that a failure is reported in another way.
        awaited: Event loop and future that await it, if it was put by `AsyncProducer`.
        order: In ordered mode, its position in the order of acceptance.
    """

    __slots__ = (
        "_delivery",
        "_details",
        "_index",
        "_listeners",
        "arrived",
        "explicit_hash_key",
        "partition_key",
    )

    partition_key: str
    explicit_hash_key: str | None
    arrived: float
    _delivery: DeliveryState
    _index: int
    # A callback, the record's `_Waits`, or a `_Chain` of several; None if there is none, or none is left.
    _listeners: Any
    _details: (
        _Details | None
    )  # a slot, because the first attribute in a dict costs 300 bytes with Python 3.13

    # Class attributes: few records have their own.
    sent_blind = False
    awaited: Any = None
    order = 0
    _kept = b""
    _waits: _Waits | None = None

    # The creator of a record sets its slots: a constructor in Python would cost twice as much, and the constructor of the base class
    # would create a condition variable.
    if TYPE_CHECKING:

        def __init__(self) -> None: ...

    else:
        __init__ = object.__init__

    @property
    def data(self) -> bytes:
        """Payload; released with the final result."""
        entry = self._delivery.entry
        if entry is None:
            return self._kept
        index = self._index
        records = entry.records
        if index >= len(records) or records[index] is not self:
            index = next(number for number, record in enumerate(records) if record is self)
        return entry.aggregate.payload(index)

    @property
    def cost(self) -> int:
        """Bytes that the record is charged for while it is buffered."""
        return cost_of(self.partition_key, self.data, self.header_fields)

    @property
    def hash_key(self) -> bytes:
        """Effective hash key (16 bytes)."""
        explicit = self.explicit_hash_key
        return (
            hash_partition_key(self.partition_key)
            if explicit is None
            else explicit_hash_key_to_bytes(explicit)
        )

    @property
    def epoch(self) -> int:
        """Flush epoch in which the record was accepted; a flush waits for its own epoch and all earlier ones."""
        own, entry = self.own_epoch, self._delivery.entry
        if own is not None or entry is None:
            return own or 0
        return entry.epoch

    @property
    def last_event(self) -> float:
        """Monotonic seconds of arrival, or of the end of the last attempt."""
        past = self._details
        return self.arrived if past is None or past.ended is None else past.ended

    @property
    def history(self) -> list[Attempt] | None:
        """Failed attempts; None if there are none."""
        past = self._details
        return None if past is None else past.history

    @property
    def last_error(self) -> KinesisSdkError | None:
        """Error of the last attempt; None if no attempt has failed."""
        return (self._details or _NO_DETAILS).last_error

    @last_error.setter
    def last_error(self, error: KinesisSdkError) -> None:
        self._own_details().last_error = error

    @property
    def identity(self) -> Identity | None:
        """Identity, if the application named the record or an attempt of it may be stored; see `common.once.stamps`."""
        return (self._details or _NO_DETAILS).identity

    @identity.setter
    def identity(self, identity: Identity | None) -> None:
        self._own_details().identity = identity

    @property
    def header_fields(self) -> bytes:
        """Headers, as `encode_headers` returns them. Empty if there are none; released with the final result."""
        return (self._details or _NO_DETAILS).header_fields

    @header_fields.setter
    def header_fields(self, fields: bytes) -> None:
        self._own_details().header_fields = fields

    @property
    def held_until(self) -> float:
        """Monotonic seconds before which it is not sent; minus infinity if no attempt of it may be stored."""
        identity = self.identity
        return float("-inf") if identity is None else identity.held_until

    @property
    def due(self) -> float | None:
        """Monotonic seconds at which a retry leaves its aggregate at the latest; None for the usual deadline."""
        return (self._details or _NO_DETAILS).due

    @due.setter
    def due(self, moment: float) -> None:
        self._own_details().due = moment

    @property
    def grace(self) -> float:
        """Seconds for which the process was frozen, which do not count against the time-to-live."""
        return (self._details or _NO_DETAILS).grace

    @grace.setter
    def grace(self, seconds: float) -> None:
        self._own_details().grace = seconds

    @property
    def own_epoch(self) -> int | None:
        """Flush epoch of the record, if its Kinesis record has another one; else None."""
        return (self._details or _NO_DETAILS).own_epoch

    @own_epoch.setter
    def own_epoch(self, epoch: int) -> None:
        self._own_details().own_epoch = epoch

    def _own_details(self) -> _Details:
        past = self._details
        if past is None:
            past = self._details = _Details()
        return past

    @property
    def _state(self) -> str:  # type: ignore[override]
        """State for `concurrent.futures`, which reads it under the condition. Never cancelled."""
        waits = self._waits
        final = self._delivery.outcome is not None if waits is None else waits.notified
        return FINISHED if final else RUNNING

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """Condition taken by `concurrent.futures.wait` and `as_completed`."""
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

    def _wait_here(self) -> _Waits:
        """Return the record's `_Waits`; add it to the listeners if the record is not final."""
        waits = self._waits
        if waits is None:
            # Atomic: several threads may do this at once.
            waits = self.__dict__.setdefault("_waits", _Waits())
        if not waits.registered:
            # Any thread registers it, not only its creator, which may have been interrupted.
            if not self._listen(waits):
                waits.release()
            waits.registered = True
        return waits

    def _listen(self, listener: Any) -> bool:
        """Add a listener unless the record is final; return whether it was added."""
        added = listener
        while True:
            before = self._listeners
            if before is not None:
                added = _Chain(before, listener)
            # No call in here: signals are handled at calls.
            with _STATE_LOCK:
                delivery = self._delivery
                if delivery.outcome is not None:
                    return False
                if self._listeners is before:
                    self._listeners = added
                    # T1 (the I/O loop) moves the record without this lock: it writes the new delivery state, then reads the
                    # listeners. T2 (this thread) wrote the listeners above, and reads the delivery state now. If T1 read the
                    # listeners too early to see ours, it has written the delivery state before, and T2 marks the new entry.
                    while True:
                        entry = delivery.entry
                        if entry is not None:
                            entry.has_listeners = True
                        if self._delivery is delivery:
                            return True
                        delivery = self._delivery

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        outcome = self._delivery.outcome
        return outcome if isinstance(outcome, BaseException) else None

    @property
    def _result(self) -> PutResult | None:  # type: ignore[override]
        """Result, created on access."""
        outcome = self._delivery.outcome
        return self._result_of(outcome) if type(outcome) is Stored else None

    def _result_of(self, stored: Stored) -> PutResult:
        shard_id, sequence_number, started, ended = stored
        final = _new_tuple(Attempt, (started - self.last_event, ended - started, "", "", True))
        attempts = (*self.history, final) if self.history else (final,)
        return _new_tuple(PutResult, (shard_id, sequence_number, self._index, attempts))

    def add_failed_attempt(self, started: float, ended: float, code: str, message: str) -> None:
        """Note an attempt that did not store the record."""
        self.add_attempt(Attempt(started - self.last_event, ended - started, code, message, False), ended)

    def add_attempt(self, attempt: Attempt, ended: float) -> None:
        """Note an attempt that ended at ``ended``. Records with the same attempt may share the object."""
        past = self._own_details()
        past.ended = ended
        if past.history is None:
            past.history = [attempt]
        else:
            past.history.append(attempt)

    def move(self, entry: KinesisRecord, index: int) -> None:
        """Refer to another Kinesis record, which already has this record in its list."""
        self._delivery = entry.delivery
        self._index = index
        if self._listeners is not None:  # read after the delivery state was written: see `_listen`
            entry.has_listeners = True

    def leave(self, data: bytes) -> None:
        """Leave the Kinesis record, because this record failed, and keep the payload until the future is final."""
        self._kept = data
        self._delivery = DeliveryState(None)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(future)`` when the record has its final result; at once, on this thread, if it has it already.

        Callbacks of one record run once, one after the other, in the order in which they were added; callbacks of different records may
        run at the same time. They run on the producer's sending threads, so a slow callback delays requests. On such a thread the
        producer's `put` raises `BufferFullError` instead of waiting for room, and `flush`, `close` and `result` of a record that is not
        final raise `ProducerError`, because they would wait for that very thread. Callbacks of records that `close` fails run on the
        thread that called it.

        `flush` and `close` wait until callbacks have run. Errors of a callback are logged, and have no other effect.
        """
        if fn is None:
            raise TypeError("fn must be callable, not None")
        if not self._listen(fn):
            _call(fn, self)

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
            timeout: Maximum seconds to wait; None waits as long as it takes (at most the record's time-to-live plus a
                request's timeouts).

        Raises:
            RecordFailedError: If the record failed.
            TimeoutError: If there is no final result in that time (`concurrent.futures.TimeoutError`).
            ProducerError: If the wait could not end: in a callback of the same producer, or in a signal handler that
                interrupted it.
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
            TimeoutError: If there is no final result in that time (`concurrent.futures.TimeoutError`).
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

    sent_blind = True


_CALLBACK_RAISED = "exception calling callback %s of a user record"


class CallbackRun:
    """Callbacks of records with a final result and the same flush epoch.

    ``left`` is the number of records whose callbacks have not returned.
    """

    __slots__ = ("_records", "epoch", "left")

    def __init__(self, records: Sequence[PendingRecord], epoch: int = 0) -> None:
        self._records = records
        self.epoch: int = epoch
        self.left: int = len(records)

    def run(self) -> None:
        """Run the remaining callbacks. Call without locks."""
        for record in self._records:
            listeners = record._listeners
            if listeners is None:
                continue  # this method was interrupted, and is called again
            record._listeners = None
            if type(listeners) is _Chain:
                for listener in listeners.unroll():
                    if type(listener) is not _Waits:
                        _call(listener, record)
            else:
                try:
                    listeners(record)
                except BaseException:  # `_call`, written out for speed
                    _LOGGER.exception(_CALLBACK_RAISED, _name_of(listeners))
            self.left -= 1


def _call(callback: Callable[[Any], object], record: PendingRecord) -> None:
    try:
        callback(record)
    except BaseException:  # also SystemExit: other records must still get their result
        _LOGGER.exception(_CALLBACK_RAISED, _name_of(callback))


def _name_of(callback: object) -> str:
    """Return the name of a callback for the log. Its `repr` may show keys and payloads."""
    return getattr(callback, "__qualname__", type(callback).__qualname__)


def mark_stored(entry: KinesisRecord, stored: Stored) -> list[PendingRecord]:
    """Give all user records of a Kinesis record their result; return the records with callbacks, for a `CallbackRun`.

    Call without locks.
    """
    delivery = entry.delivery
    with _STATE_LOCK:
        # A listener is added under the same lock: either it is there now, or `_listen` sees the outcome and does not add it.
        delivery.outcome = stored
        delivery.entry = None
    if entry.aggregate.has_headers:
        _forget_headers(entry.records)
    return _release(entry.records) if entry.has_listeners else []


def mark_failed(records: Iterable[PendingRecord], error: BaseException) -> list[PendingRecord]:
    """Give user records the same final failure; return the records with callbacks, as `mark_stored`."""
    for record in records:
        delivery = DeliveryState(None, error)
        with _STATE_LOCK:
            record._delivery = delivery
        if record._kept:
            record._kept = b""
    _forget_headers(records)
    return _release(records)


def _forget_headers(records: Iterable[PendingRecord]) -> None:
    for record in records:
        if record._details is not None:
            record._details.header_fields = b""


def _release(records: Iterable[PendingRecord]) -> list[PendingRecord]:
    """Wake the threads that wait for these records; return the records with callbacks."""
    called: list[PendingRecord] = []
    for record in records:
        listeners = record._listeners
        if listeners is None:
            continue
        kind = type(listeners)
        if kind is _Waits or kind is _Chain:
            waits = record._waits
            if waits is not None:
                waits.release()
                if waits.shared:
                    _notifier.notify(record)
            if kind is _Waits:
                record._listeners = None
                continue
        called.append(record)
    return called


def orphan(record: PendingRecord, error: BaseException) -> None:
    """Fail a record of the parent in a forked child. No thread waits here, and callbacks are the parent's."""
    record.__dict__.pop("_waits", None)  # a thread that does not exist here may hold its condition
    record._listeners = None
    record._delivery = DeliveryState(None, error)
    record._kept = b""
