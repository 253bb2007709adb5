"""A user record on its way: the future that the caller holds, and the result that it gets.

One object is both the record and its future: a service that puts a million records a minute allocates half
as much. The `concurrent.futures.Future` contract holds (``result``, ``wait``, ``as_completed``, callbacks,
``asyncio.wrap_future``), but the condition variable is made only when somebody waits, because making one for
each record would cost more than everything else that the producer does for it.

What every record has lives in slots, what hardly any has is an attribute of the class until it is set, and lists
are made when there is something to put in: half the time and memory, and a third of the objects that the garbage
collector has to visit again and again while records are on their way.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, RUNNING
from typing import Any, NamedTuple, cast

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.records import Attempt

_LOGGER = logging.getLogger(__name__)

# Guards the making of a condition and the change to a final state of every record of the process; held for
# well under a microsecond. Innermost lock: nothing else is taken under it.
_STATE_LOCK = threading.Lock()


def _renew_state_lock() -> None:
    """In a forked child: a thread that does not exist there may have held it."""
    global _STATE_LOCK  # noqa: PLW0603
    _STATE_LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_state_lock)

RECORD_OVERHEAD = 800
"""Bytes of bookkeeping that a buffered record is charged for, beside its data and keys. Measured: 500 to 700 in an
aggregate, 850 alone, twice that if it failed some dozens of times (`tests/producer/test_memory.py`)."""


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


class PendingRecord(Future[PutResult]):
    """A user record that was accepted, and the future of its `PutResult`.

    Attributes:
        partition_key: The user's partition key.
        explicit_hash_key: Canonical decimal text if the user gave one.
        data: Payload; released with the final result.
        hash_key: Effective hash key (16 bytes).
        arrived: Monotonic seconds at which `put` took it.
        deadline: Monotonic seconds at which it leaves its aggregate at the latest.
        expires: Monotonic seconds at which it fails if it is not stored.
        cost: Bytes that it is charged for while it is buffered.
        epoch: Which `flush` calls wait for it: those that came later.
        history: Attempts that failed.
        last_event: Monotonic seconds of arrival, or of the end of the last attempt.
        last_error: Why the last attempt failed.
        sent_blind: Nobody holds it as a future (`Producer.send`): its failure has to be told in another way.
        awaited: Who awaits it on an event loop (`aio`).
        order: In ordered mode, its place in the order of acceptance.
    """

    __slots__ = (
        "_done_callbacks",
        "_index",
        "_lazy_condition",
        "_state",
        "_stored",
        "arrived",
        "cost",
        "data",
        "deadline",
        "epoch",
        "expires",
        "explicit_hash_key",
        "hash_key",
        "last_event",
        "partition_key",
    )

    # Of the class: hardly ever set.
    sent_blind = False
    awaited: Any = None
    order = 0
    history: list[Attempt] | None = None
    last_error: KinesisSdkError | None = None
    _exception: BaseException | None = None
    _index: int
    _waiters: Any = ()  # a list as soon as there is a condition, without which nobody may touch it

    def __init__(  # the base class would make a condition variable; everything it sets is set here
        self,
        partition_key: str,
        explicit_hash_key: str | None,
        data: bytes,
        hash_key: bytes,
        arrived: float,
        deadline: float,
        expires: float,
    ) -> None:
        self._lazy_condition: threading.Condition | None = None
        self._state = RUNNING  # accepted records can not be cancelled
        self._done_callbacks: Any = ()  # a list as soon as there is one
        self._stored: Stored | None = None
        self.partition_key = partition_key
        self.explicit_hash_key = explicit_hash_key
        self.data = data
        self.hash_key = hash_key
        self.arrived = self.last_event = arrived
        self.deadline = deadline
        self.expires = expires
        self.cost = len(data) + len(partition_key) + RECORD_OVERHEAD
        self.epoch = 0

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """The condition that the base class and `concurrent.futures.wait` synchronise on."""
        condition = self._lazy_condition
        if condition is None:
            with _STATE_LOCK:
                condition = self._lazy_condition
                if condition is None:
                    self._waiters = []  # before the condition can be seen
                    condition = self._lazy_condition = threading.Condition()
        return condition

    @property
    def _result(self) -> PutResult | None:  # type: ignore[override]
        """The result, built when somebody asks for it."""
        stored = self._stored
        if stored is None:
            return None
        final = Attempt(stored.started - self.last_event, stored.ended - stored.started, "", "", True)
        return PutResult(stored.shard_id, stored.sequence_number, self._index, (*(self.history or ()), final))

    def restamp(self, now: float) -> None:
        """It was accepted ``now``: shift its times."""
        shift = now - self.arrived
        self.arrived = self.last_event = now
        self.deadline += shift
        self.expires += shift

    def add_failed_attempt(self, started: float, ended: float, code: str, message: str) -> None:
        """Note an attempt that did not store the record."""
        self.add_attempt(Attempt(started - self.last_event, ended - started, code, message, False), ended)

    def add_attempt(self, attempt: Attempt, ended: float) -> None:
        """Note an attempt that ended at ``ended``; records that shared it may share the object."""
        self.last_event = ended
        if self.history is None:
            self.history = [attempt]
        else:
            self.history.append(attempt)

    def add_done_callback(self, fn: Any) -> None:
        """Call ``fn(future)`` when the record has its final result; at once if it has it already.

        It runs on a thread that the producer needs: keep it short. It may call ``put``, which does not wait
        for room there, but not ``flush`` or ``close``.
        """
        with _STATE_LOCK:
            if self._state != FINISHED:
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
        return self._state == FINISHED

    def result(self, timeout: float | None = None) -> PutResult:
        """Where the record is stored.

        Args:
            timeout: Most seconds to wait; None waits as long as it takes (the record's time-to-live plus a
                request timeout bound that).

        Raises:
            RecordFailedError: The record's final failure.
            TimeoutError: No final result in that time (`concurrent.futures.TimeoutError`).
        """
        if self._state == FINISHED and self._exception is None:
            return cast(PutResult, self._result)
        return super().result(timeout)

    def __repr__(self) -> str:
        state = "failed" if self._exception else "stored" if self._state == FINISHED else "pending"
        return f"<PendingRecord {state} key={self.partition_key!r}>"


def acknowledge(records: Iterable[PendingRecord], stored: Stored) -> None:
    """Give all user records of one Kinesis record their result, in order. Call without holding locks."""
    run_callbacks(mark_stored(records, stored))


def fail(record: PendingRecord, error: BaseException) -> None:
    """Give a user record its final failure. Call without holding locks."""
    run_callbacks(mark_failed((record,), error))


def run_callbacks(records: Iterable[PendingRecord]) -> None:
    """Run the callbacks of records that have their final result. Call without holding locks."""
    for record in records:
        record._invoke_callbacks()


def mark_stored(records: Iterable[PendingRecord], stored: Stored) -> list[PendingRecord]:
    """`acknowledge`, but leave the callbacks to the caller.

    Returns:
        The records that have some, for `run_callbacks`.
    """
    # Whoever waits took the condition before looking at the state; so the state changes under the condition
    # where there is one, and under the state lock where there is none yet.
    waited: list[tuple[PendingRecord, threading.Condition]] = []
    called: list[PendingRecord] = []
    with _STATE_LOCK:
        for index, record in enumerate(records):
            record._index = index
            record._stored = stored
            record.data = b""
            condition = record._lazy_condition
            if condition is not None:
                waited.append((record, condition))
                continue
            record._state = FINISHED
            if record._done_callbacks:
                called.append(record)
    for record, condition in waited:
        _wake(record, condition)
        if record._done_callbacks:
            called.append(record)
    return called


def mark_failed(records: Iterable[PendingRecord], error: BaseException) -> list[PendingRecord]:
    """`fail` for records with the same error, but leave the callbacks to the caller; as `mark_stored`."""
    called: list[PendingRecord] = []
    for record in records:
        with _STATE_LOCK:
            record._exception = error
            record.data = b""
            condition = record._lazy_condition
            if condition is None:
                record._state = FINISHED
        # One that was made since then belongs to somebody who saw the final state, and must not be told again.
        if condition is not None:
            _wake(record, condition)
        if record._done_callbacks:
            called.append(record)
    return called


def orphan(record: PendingRecord, error: BaseException) -> None:
    """In a forked child: fail a record of the parent. Nobody waits here; callbacks are the parent's."""
    record._exception = error
    record.data = b""
    record._lazy_condition = None  # a thread that does not exist here may hold it
    record._state = FINISHED


def _wake(record: PendingRecord, condition: threading.Condition) -> None:
    """Make the state final for those who wait already, and wake them."""
    with condition:
        # Both locks: waiters look at the state under the condition, `add_done_callback` under the other.
        with _STATE_LOCK:
            record._state = FINISHED
        for waiter in record._waiters:
            if record._exception is None:
                waiter.add_result(record)
            else:
                waiter.add_exception(record)
        condition.notify_all()
