"""User records in flight from the producer's side; `kinesis_sdk.producer.records.future` defines the caller's future.

A record has seven slots: its keys, its arrival, the `DeliveryState` of its Kinesis record (`Entry`), its index there, rarely used
details, and its listeners. Only the entry holds its payload, already encoded. All user records of an entry share one
`DeliveryState`, so completing an entry is a single assignment. Rarely used fields are class attributes and cost no memory until they
are set.

Signal handlers may interrupt the main thread between any two calls and then wait for the producer's threads (`flush`, `close`,
`result`). So the producer's threads must never wait for a lock that an interrupted frame of the main thread may hold. There are two kinds
of locks. While a caller's thread holds `_STATE_LOCK`, it makes no calls, because signals are handled at calls.
`kinesis_sdk.producer.records.waits` has the other kind.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.hashkeys import explicit_hash_key_to_bytes, hash_partition_key
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.records import Attempt
from kinesis_sdk.producer.records.native import mypyc_attr
from kinesis_sdk.producer.records.waits import Waits, notify_waiters

if TYPE_CHECKING:
    from kinesis_sdk.common.aggregate_writer import Aggregate
    from kinesis_sdk.common.once.identity import Identity

_LOGGER = FieldLogger(logging.getLogger(__name__))

# Guards the outcome of every delivery state of the process, and the listeners that are added before it. Held for well under a
# microsecond; callers' threads make no call under it. Innermost lock: nothing else is taken under it, and a thread that holds a
# producer's lock does not take it. Re-entrant only so that a signal handler can tell that it interrupted its holder.
_STATE_LOCK = threading.RLock()


def interrupted_here() -> bool:
    """Return whether this thread runs a signal handler that interrupted a change of a record's state on the same thread."""
    return bool(_STATE_LOCK._is_owned())  # type: ignore[attr-defined]


RECORD_OVERHEAD: Final = 800
"""Bytes of bookkeeping charged for a buffered record, in addition to its data and keys. Measured: 200 for an aggregated record, 800 for a
record that is not aggregated, and twice as many after a few dozen failures (`tests/producer/test_memory.py`). The value is the larger of
the first two numbers, because it is not known yet whether the record will be aggregated."""


def cost_of(partition_key: str, data: bytes, header_fields: bytes = b"") -> int:
    """Return the bytes that are charged for a buffered record."""
    return len(data) + len(partition_key) + RECORD_OVERHEAD + len(header_fields)


_new_tuple = tuple.__new__  # the constructor of a named tuple adds a Python call


class PutResult(NamedTuple):
    """Location of a stored user record, namely of the copy that Kinesis acknowledged.

    If an idempotent producer had to send the record again, readers may report an earlier copy; `kinesis_sdk.admin.first_copy` finds that
    copy.

    Attributes:
        shard_id: Shard that holds it.
        sequence_number: Sequence number of its Kinesis record; shared with the other user records in it.
        sub_sequence_number: Position inside the aggregate, starting at 0; 0 for a record that was not aggregated.
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
    """Fields of `entry.Entry` that a user record needs."""

    aggregate: Aggregate
    records: list[BufferedRecord]
    epoch: int
    delivery: DeliveryState
    has_listeners: bool


class DeliveryState:
    """Delivery state shared by all user records of a Kinesis record, or owned by a single user record.

    A record that failed, or that is not in a Kinesis record, has a delivery state of its own. ``entry`` is the Kinesis record until the
    final result, then None; ``outcome`` is the final result, None before.
    """

    __slots__ = ("entry", "outcome")

    def __init__(self, entry: KinesisRecord | None, outcome: Stored | BaseException | None = None) -> None:
        self.entry: KinesisRecord | None = entry
        self.outcome: Stored | BaseException | None = outcome


class _Details:
    """Fields that only a few records need, for example retried ones; see the properties of `BufferedRecord`."""

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

NOT_PLACED: Final = DeliveryState(None)
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


def _renew_after_fork() -> None:
    """Renew the lock in a forked child: a thread that does not exist there may have held it."""
    global _STATE_LOCK  # noqa: PLW0603
    _STATE_LOCK = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)


# Not written out in the class: then type checkers would reject the class attributes that `PendingRecord` keeps in its dict.
_SLOTS = ("_delivery", "_details", "_index", "_listeners", "arrived", "explicit_hash_key", "partition_key")


@mypyc_attr(allow_interpreted_subclasses=True)
class BufferedRecord:
    """An accepted user record from the producer's side; `PendingRecord` adds the future.

    The code that creates a record sets its slots, because a constructor in Python would cost twice as much.

    Attributes:
        partition_key: The user's partition key; empty for a record without a partition key.
        arrived: Monotonic seconds at which `put` accepted it.
        explicit_hash_key: Canonical decimal text, or None if the user set no explicit hash key.
        sent_blind: Whether the record was put without returning a future (`Producer.send`), so that a failure is reported in another way.
        awaited: Event loop and future that await the record, if `AsyncProducer` put it.
        order: In ordered mode, its position in the order of acceptance.
    """

    __slots__ = _SLOTS

    partition_key: str
    explicit_hash_key: str | None
    arrived: float
    _delivery: DeliveryState
    _index: int
    # A callback, the record's `Waits`, or a `_Chain` of several; None if there is none, or none is left.
    _listeners: Any
    _details: (
        _Details | None
    )  # a slot, because the first attribute in a dict costs 300 bytes with Python 3.13

    # Class attributes: few records have their own.
    sent_blind: ClassVar[bool] = False
    awaited: Any = None
    order = 0
    _kept = b""
    _waits: Waits | None = None

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
        """Bytes that are charged for the record while it is buffered."""
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
        """Flush epoch in which the record was accepted; a flush waits for its own epoch and all earlier epochs."""
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
    def last_error(self, error: KinesisSdkError | None) -> None:
        self._own_details().last_error = error

    @property
    def identity(self) -> Identity | None:
        """Identity, if the record has a ``dedup_id`` or an attempt may have stored it; see `common.once.stamps`."""
        return (self._details or _NO_DETAILS).identity

    @identity.setter
    def identity(self, identity: Identity | None) -> None:
        self._own_details().identity = identity

    @property
    def header_fields(self) -> bytes:
        """Headers, as `encode_headers` returns them. Empty if the record has no headers; released with the final result."""
        return (self._details or _NO_DETAILS).header_fields

    @header_fields.setter
    def header_fields(self, fields: bytes) -> None:
        self._own_details().header_fields = fields

    @property
    def held_until(self) -> float:
        """Monotonic seconds before which the record is not sent; minus infinity if no attempt can have stored it."""
        identity = self.identity
        return float("-inf") if identity is None else identity.held_until

    @property
    def due(self) -> float | None:
        """Monotonic seconds by which a retry must be sent; None for the usual deadline."""
        return (self._details or _NO_DETAILS).due

    @due.setter
    def due(self, moment: float | None) -> None:
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
        """Flush epoch of the record, if its Kinesis record has a different epoch; otherwise None."""
        return (self._details or _NO_DETAILS).own_epoch

    @own_epoch.setter
    def own_epoch(self, epoch: int | None) -> None:
        self._own_details().own_epoch = epoch

    def _epoch_in(self, epoch: int) -> int:
        """Return the flush epoch of the record; ``epoch`` is the epoch of its Kinesis record."""
        own = self.own_epoch
        return epoch if own is None else own

    def _own_details(self) -> _Details:
        past = self._details
        if past is None:
            past = self._details = _Details()
        return past

    def _wait_here(self) -> Waits:
        """Return the record's `Waits`; add it to the listeners if the record is not final."""
        waits = self._waits
        if waits is None:
            made = Waits()
            # Several threads may do this at once. No calls inside the lock: signals are handled at calls.
            with _STATE_LOCK:
                waits = self._waits
                if waits is None:
                    self._waits = waits = made
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
            # No calls inside the lock: signals are handled at calls.
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
        """Refer to another Kinesis record whose list already contains this record."""
        self._delivery = entry.delivery
        self._index = index
        if self._listeners is not None:  # read after the delivery state was written: see `_listen`
            entry.has_listeners = True

    def leave(self, data: bytes) -> None:
        """Leave the Kinesis record, because this record failed, and keep the payload until the future is final."""
        self._kept = data
        self._delivery = DeliveryState(None)


_CALLBACK_RAISED = "exception calling callback %s of a user record"


class CallbackRun:
    """Callbacks of records with a final result and the same flush epoch.

    ``left`` is the number of records whose callbacks have not returned.
    """

    __slots__ = ("_records", "epoch", "left")

    def __init__(self, records: Sequence[BufferedRecord], epoch: int = 0) -> None:
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
                    if type(listener) is not Waits:
                        call_listener(listener, record)
            else:
                try:
                    listeners(record)
                except BaseException:  # `call_listener`, written out for speed
                    _LOGGER.exception(_CALLBACK_RAISED, _name_of(listeners))
            self.left -= 1


def call_listener(callback: Callable[[Any], object], record: BufferedRecord) -> None:
    """Call a callback; log an error that it raises."""
    try:
        callback(record)
    except BaseException:  # also SystemExit: other records must still get their result
        _LOGGER.exception(_CALLBACK_RAISED, _name_of(callback))


def _name_of(callback: object) -> str:
    """Return the name of a callback for the log. Its `repr` may show keys and payloads."""
    return getattr(callback, "__qualname__", type(callback).__qualname__)


def mark_stored(entry: KinesisRecord, stored: Stored) -> list[BufferedRecord]:
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


def mark_failed(records: Iterable[BufferedRecord], error: BaseException) -> list[BufferedRecord]:
    """Give user records the same final failure; like `mark_stored`, return the records with callbacks."""
    for record in records:
        delivery = DeliveryState(None, error)
        with _STATE_LOCK:
            record._delivery = delivery
        if record._kept:
            record._kept = b""
    _forget_headers(records)
    return _release(records)


def _forget_headers(records: Iterable[BufferedRecord]) -> None:
    for record in records:
        if record._details is not None:
            record._details.header_fields = b""


def _release(records: Iterable[BufferedRecord]) -> list[BufferedRecord]:
    """Wake the threads that wait for these records; return the records with callbacks."""
    called: list[BufferedRecord] = []
    for record in records:
        listeners = record._listeners
        if listeners is None:
            continue
        kind = type(listeners)
        if kind is Waits or kind is _Chain:
            waits = record._waits
            if waits is not None:
                waits.release()
                if waits.shared:
                    notify_waiters(record)
            if kind is Waits:
                record._listeners = None
                continue
        called.append(record)
    return called


def orphan(record: BufferedRecord, error: BaseException) -> None:
    """Fail a record of the parent in a forked child. No thread waits here, and callbacks are the parent's."""
    record._waits = None  # a thread that does not exist here may hold its condition
    record._listeners = None
    record._delivery = DeliveryState(None, error)
    record._kept = b""
