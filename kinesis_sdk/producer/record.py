"""A user record on its way: the future that the caller holds, and the result that it gets.

One object is both the record and its future: a service that puts a million records a minute allocates half
as much. The `concurrent.futures.Future` contract holds (``result``, ``wait``, ``as_completed``, callbacks,
``asyncio.wrap_future``), but the condition variable is made only when somebody waits, because making one for
each record would cost more than everything else that the producer does for it.

A record has six slots: its keys, when it came, which Kinesis record it is in (by the `Fate` that they share), its
place there, and what befell it before. Its payload is in that Kinesis record, too, once and ready to be sent. So the
end of a Kinesis record is one change, whatever the number of futures that get their result by it. What hardly any
record has is an attribute of the class until it is set.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, RUNNING
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.hashkeys import explicit_hash_key_to_bytes, hash_partition_key
from kinesis_sdk.common.records import Attempt

if TYPE_CHECKING:
    from kinesis_sdk.producer.aggregator import Entry

_LOGGER = logging.getLogger(__name__)

# Guards the making of a condition, and the outcome and owner of every fate of the process; held for well under a
# microsecond. Innermost lock: nothing else is taken under it.
_STATE_LOCK = threading.Lock()


def _renew_state_lock() -> None:
    """In a forked child: a thread that does not exist there may have held it."""
    global _STATE_LOCK  # noqa: PLW0603
    _STATE_LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_state_lock)

RECORD_OVERHEAD = 800
"""Bytes of bookkeeping that a buffered record is charged for, beside its data and keys. Measured: 200 in an aggregate,
800 alone, twice that if it failed some dozens of times (`tests/producer/test_memory.py`). What it will be is not
known when it is charged, so it is the most."""


def cost_of(partition_key: str, data: bytes) -> int:
    """Bytes that a buffered record is charged for."""
    return len(data) + len(partition_key) + RECORD_OVERHEAD


_new_tuple = tuple.__new__  # the constructor of a named tuple is a call of Python's on top of it


class PutResult(NamedTuple):
    """Where a user record is stored.

    Attributes:
        shard_id: Shard that holds it.
        sequence_number: Sequence number of the Kinesis record; shared with the other user records in it.
        sub_sequence_number: Position inside the aggregate from 0; 0 for a record that travelled alone.
        attempts: Every attempt; the last one succeeded.
    """

    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    attempts: tuple[Attempt, ...]


class Stored(NamedTuple):
    """What the service said about a Kinesis record that is stored for good, and when."""

    shard_id: str
    sequence_number: str
    started: float
    ended: float


class Fate:
    """What becomes of records: of all in a Kinesis record together, or of one alone.

    All records of a Kinesis record share its fate, but for those that somebody watches (has a callback, or may
    wait): they get one of their own, so that their end can be told under their own condition.

    Attributes:
        entry: The Kinesis record, until the final result.
        outcome: The final result; None until then.
    """

    __slots__ = ("entry", "outcome")

    def __init__(self, entry: Entry | None, outcome: Stored | BaseException | None = None) -> None:
        self.entry = entry
        self.outcome = outcome


class _Past:
    """What a record has once it did not go straight to its end; see the properties of `PendingRecord`."""

    __slots__ = ("due", "ended", "grace", "history", "last_error", "own_epoch")

    def __init__(self) -> None:
        self.due: float | None = None
        self.ended: float | None = None
        self.grace = 0.0
        self.history: list[Attempt] | None = None
        self.last_error: KinesisSdkError | None = None
        self.own_epoch: int | None = None


_NO_PAST = _Past()

UNPLACED = Fate(None)
"""Fate of a record that is in no Kinesis record yet. Nobody but its maker has that one."""


class PendingRecord(Future[PutResult]):
    """A user record that was accepted, and the future of its `PutResult`.

    Attributes:
        partition_key: The user's partition key.
        arrived: Monotonic seconds at which `put` took it.
        explicit_hash_key: Canonical decimal text if the user gave one.
        sent_blind: Nobody holds it as a future (`Producer.send`): its failure has to be told in another way.
        awaited: Who awaits it on an event loop (`aio`).
        order: In ordered mode, its place in the order of acceptance.
    """

    __slots__ = ("_fate", "_index", "_past", "arrived", "explicit_hash_key", "partition_key")

    partition_key: str
    explicit_hash_key: str | None
    arrived: float
    _fate: Fate
    _index: int
    _past: _Past | None  # a slot, because the first attribute in a dict costs 300 bytes with Python 3.13

    # Of the class: hardly ever set.
    sent_blind = False
    awaited: Any = None
    order = 0
    _kept = b""
    _lazy_condition: threading.Condition | None = None
    _done_callbacks: Any = ()  # a list as soon as there is one
    _waiters: Any = ()  # a list as soon as there is a condition, without which nobody may touch it

    # Whoever makes one sets the slots, because that costs half of a constructor in Python. The base class would make
    # a condition variable.
    __init__ = object.__init__

    @property
    def data(self) -> bytes:
        """Payload; released with the final result."""
        entry = self._fate.entry
        if entry is None:
            return self._kept
        index = self._index
        records = entry.records
        if index >= len(records) or records[index] is not self:
            index = next(number for number, record in enumerate(records) if record is self)
        return entry.aggregate.payload(index)

    @property
    def cost(self) -> int:
        """Bytes that it is charged for while it is buffered."""
        return cost_of(self.partition_key, self.data)

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
        """Which `flush` calls wait for it: those that came later."""
        own, entry = self.own_epoch, self._fate.entry
        if own is not None or entry is None:
            return own or 0
        return entry.epoch

    @property
    def last_event(self) -> float:
        """Monotonic seconds of arrival, or of the end of the last attempt."""
        past = self._past
        return self.arrived if past is None or past.ended is None else past.ended

    @property
    def history(self) -> list[Attempt] | None:
        """Attempts that failed."""
        past = self._past
        return None if past is None else past.history

    @property
    def last_error(self) -> KinesisSdkError | None:
        """Why the last attempt failed."""
        return (self._past or _NO_PAST).last_error

    @last_error.setter
    def last_error(self, error: KinesisSdkError) -> None:
        self._remember().last_error = error

    @property
    def due(self) -> float | None:
        """When it leaves its aggregate at the latest, if that is not as long after its arrival as usual."""
        return (self._past or _NO_PAST).due

    @due.setter
    def due(self, moment: float) -> None:
        self._remember().due = moment

    @property
    def grace(self) -> float:
        """Seconds that do not count against its time-to-live."""
        return (self._past or _NO_PAST).grace

    @grace.setter
    def grace(self, seconds: float) -> None:
        self._remember().grace = seconds

    @property
    def own_epoch(self) -> int | None:
        """Which `flush` calls wait for it, if not those that wait for the Kinesis record it is in."""
        return (self._past or _NO_PAST).own_epoch

    @own_epoch.setter
    def own_epoch(self, epoch: int) -> None:
        self._remember().own_epoch = epoch

    def _remember(self) -> _Past:
        past = self._past
        if past is None:
            past = self._past = _Past()
        return past

    @property
    def _state(self) -> str:  # type: ignore[override]
        # Never cancelled: accepted records can not be.
        return RUNNING if self._fate.outcome is None else FINISHED

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """The condition that the base class and `concurrent.futures.wait` synchronise on."""
        condition = self._lazy_condition
        if condition is None:
            with _STATE_LOCK:
                condition = self._lazy_condition
                if condition is None:
                    self._part()
                    self._waiters = []  # before the condition can be seen
                    condition = self._lazy_condition = threading.Condition()
        return condition

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        outcome = self._fate.outcome
        return outcome if isinstance(outcome, BaseException) else None

    @property
    def _result(self) -> PutResult | None:  # type: ignore[override]
        """The result, built when somebody asks for it."""
        outcome = self._fate.outcome
        return self._result_of(outcome) if type(outcome) is Stored else None

    def _result_of(self, stored: Stored) -> PutResult:
        shard_id, sequence_number, started, ended = stored
        final = _new_tuple(Attempt, (started - self.last_event, ended - started, "", "", True))
        attempts = (*self.history, final) if self.history else (final,)
        return _new_tuple(PutResult, (shard_id, sequence_number, self._index, attempts))

    def _part(self) -> None:
        """Under the state lock: it is watched from here on, and gets a fate of its own."""
        fate = self._fate
        entry = fate.entry
        if entry is not None and fate is entry.fate:
            entry.watch(self)
            self._fate = Fate(entry)

    def add_failed_attempt(self, started: float, ended: float, code: str, message: str) -> None:
        """Note an attempt that did not store the record."""
        self.add_attempt(Attempt(started - self.last_event, ended - started, code, message, False), ended)

    def add_attempt(self, attempt: Attempt, ended: float) -> None:
        """Note an attempt that ended at ``ended``; records that shared it may share the object."""
        past = self._remember()
        past.ended = ended
        if past.history is None:
            past.history = [attempt]
        else:
            past.history.append(attempt)

    def move(self, entry: Entry, index: int) -> None:
        """It is in another Kinesis record now, which has it in its list already."""
        with _STATE_LOCK:
            fate = self._fate
            if fate.entry is not None and fate is not fate.entry.fate:
                entry.watch(self)
                fate.entry = entry
            else:
                self._fate = entry.fate
            self._index = index

    def leave(self, data: bytes) -> None:
        """It is in no Kinesis record any more, because it failed; it keeps its payload until it is told so."""
        self._kept = data
        with _STATE_LOCK:
            fate = self._fate
            if fate.entry is not None and fate is not fate.entry.fate:
                fate.entry = None
            else:
                self._fate = Fate(None)

    def add_done_callback(self, fn: Any) -> None:
        """Call ``fn(future)`` when the record has its final result; at once if it has it already.

        It runs on a thread that the producer needs: keep it short. It may call ``put``, which does not wait
        for room there, but not ``flush`` or ``close``.
        """
        with _STATE_LOCK:
            if self._fate.outcome is None:
                self._part()
                if self._done_callbacks:
                    self._done_callbacks.append(fn)
                else:
                    self._done_callbacks = [fn]
                return
        self._call(fn)

    def _invoke_callbacks(self) -> None:
        for callback in self._done_callbacks:
            self._call(callback)

    def _call(self, callback: Any) -> None:
        try:
            callback(self)
        except BaseException:  # also SystemExit: it must not cost other records their result
            _LOGGER.exception("exception calling callback for %r", self)

    def done(self) -> bool:
        """Whether the final result is there."""
        return self._fate.outcome is not None

    def result(self, timeout: float | None = None) -> PutResult:
        """Where the record is stored.

        Args:
            timeout: Most seconds to wait; None waits as long as it takes (the record's time-to-live plus a
                request timeout bound that).

        Raises:
            RecordFailedError: The record's final failure.
            TimeoutError: No final result in that time (`concurrent.futures.TimeoutError`).
        """
        outcome = self._fate.outcome
        return self._result_of(outcome) if type(outcome) is Stored else super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The record's final failure, or None if it is stored; waits as `result`.

        Raises:
            TimeoutError: No final result in that time (`concurrent.futures.TimeoutError`).
        """
        return self._exception if self._fate.outcome is not None else super().exception(timeout)

    def __repr__(self) -> str:
        outcome = self._fate.outcome
        state = "pending" if outcome is None else "stored" if type(outcome) is Stored else "failed"
        return f"<PendingRecord {state} key={self.partition_key!r}>"


class BlindRecord(PendingRecord):
    """A record of `Producer.send`."""

    __slots__ = ()

    sent_blind = True


def acknowledge(entry: Entry, stored: Stored) -> None:
    """Give all user records of a Kinesis record their result. Call without holding locks."""
    run_callbacks(mark_stored(entry, stored))


def fail(record: PendingRecord, error: BaseException) -> None:
    """Give a user record its final failure. Call without holding locks."""
    run_callbacks(mark_failed((record,), error))


def run_callbacks(records: Iterable[PendingRecord]) -> None:
    """Run the callbacks of records that have their final result. Call without holding locks."""
    for record in records:
        record._invoke_callbacks()


def mark_stored(entry: Entry, stored: Stored) -> list[PendingRecord]:
    """`acknowledge`, but leave the callbacks to the caller.

    Returns:
        The records that have some, for `run_callbacks`.
    """
    fate = entry.fate
    with _STATE_LOCK:
        # Who begins to watch a record looks at this under the same lock: it is on the list, or sees the end.
        fate.outcome = stored
        fate.entry = None
        watched, entry.watched = entry.watched, ()
    return _mark(watched, stored)


def mark_failed(records: Iterable[PendingRecord], error: BaseException) -> list[PendingRecord]:
    """`fail` for records with the same error, but leave the callbacks to the caller; as `mark_stored`."""
    return _mark(records, error)


def _mark(records: Iterable[PendingRecord], outcome: Stored | BaseException) -> list[PendingRecord]:
    """Give records an outcome of their own; return those that have callbacks."""
    # Whoever waits took the condition before looking at the state; so the state changes under the condition
    # where there is one, and under the state lock where there is none yet.
    called: list[PendingRecord] = []
    for record in records:
        with _STATE_LOCK:
            condition = record._lazy_condition
            if condition is None:
                record._fate = Fate(None, outcome)
        # One that was made since then belongs to somebody who saw the final state, and must not be told again.
        if condition is not None:
            _wake(record, condition, outcome)
        if record._kept:
            record._kept = b""
        if record._done_callbacks:
            called.append(record)
    return called


def orphan(record: PendingRecord, error: BaseException) -> None:
    """In a forked child: fail a record of the parent. Nobody waits here; callbacks are the parent's."""
    record._lazy_condition = None  # a thread that does not exist here may hold it
    record._fate = Fate(None, error)
    record._kept = b""


def _wake(record: PendingRecord, condition: threading.Condition, outcome: Stored | BaseException) -> None:
    """Make the state final for those who wait already, and wake them."""
    with condition:
        # Both locks: waiters look at the state under the condition, `add_done_callback` under the other.
        with _STATE_LOCK:
            record._fate = Fate(None, outcome)
        for waiter in record._waiters:
            if type(outcome) is Stored:
                waiter.add_result(record)
            else:
                waiter.add_exception(record)
        condition.notify_all()
