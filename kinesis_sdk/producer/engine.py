"""What callers do to a producer: hand over, wait for room, flush, close. The threads behind it are in `machine`.

Locks: `_lock` guards the pipelines and every counter here and there. Futures are resolved and the network is used
only after it was released, so a future's callback may call `put`. It can be re-entered only by a signal handler that
interrupted its holder; that is refused, because nothing good can come of it.

Waiting: `flush`, `close`, a `put` without room and `PendingRecord.result` wait for the producer's threads. Three kinds of
callers would wait for themselves and are rejected: the producer's own threads, which bring the results; a thread in
`close` that ends the remaining records; and a signal handler that interrupted the holder of `_lock` or of the state
lock of `record`. A handler that interrupted anything else may wait, even inside `flush`, `close` or `result`: they hold
no lock while they wait.

Interrupts: Python runs signal handlers in the main thread, between any two instructions, and they may raise. So
callers' threads do as little as possible: flushing and making room are done by the engine thread on request, and
an `accept` that does not come to its end is undone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kinesis_sdk.common.errors import BufferFullError, ProducerClosedError, ProducerError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.buffer_usage import Listener
from kinesis_sdk.producer.io_loop import IoLoop
from kinesis_sdk.producer.pipeline import StreamPipeline
from kinesis_sdk.producer.record import (
    NOT_PLACED,
    RECORD_OVERHEAD,
    REENTERED,
    PendingRecord,
    cost_of,
    interrupted_here,
    orphan,
    wait_guards,
)
from kinesis_sdk.producer.stats import Counters

_LOGGER = logging.getLogger(__name__)
_NEVER = float("inf")
ALL_TAKEN = object()
"""What `Engine.accept_many` returns when nothing is left; any other object may be an item."""

_JOIN_TIMEOUT = 2.0
"""Seconds that `close` waits for threads that have nothing left to do."""


class Engine(IoLoop):
    """Carries out what the pipelines decide; made as `IoLoop` is."""

    # ------------------------------------------------------------------ callers

    def pipeline(self, stream: StreamId) -> StreamPipeline:
        """The pipeline of a stream, made on first use."""
        if self._held_here():
            self._refuse_reentry()
        with self._lock:
            key = str(stream)
            pipeline = self._pipelines.get(key)
            if pipeline is None:
                pipeline = self._pipelines[key] = StreamPipeline(stream, self._config, self._rng)
                if self._broken is None:  # else nothing takes it out any more
                    wait_guards[self] = self._check_may_wait_for
            return pipeline

    def accept(
        self,
        pipeline: StreamPipeline,
        record: PendingRecord,
        data: bytes,
        hash_key: bytes,
        timeout: float | None,
    ) -> None:
        """Take a record over; from now on it ends with a result or a failure.

        Args:
            pipeline: Its stream.
            record: The record, with its keys.
            data: Its payload.
            hash_key: Its effective hash key (16 bytes).
            timeout: Most seconds to wait for room; None waits as long as it takes.

        Raises:
            BufferFullError: No room in that time.
            ProducerClosedError: The producer is closed.
        """
        if self._held_here():
            self._refuse_reentry()
        with self._lock:
            if self._closing or self._broken is not None:
                self._check_open()
            partition_key = record.partition_key
            cost = len(data) + len(partition_key) + RECORD_OVERHEAD
            usage = self._usage
            # What `has_room` asks, in place for its speed.
            charged = usage.bytes + cost
            if charged > usage.max_bytes or usage.count >= usage.max_records:
                self._wait_for_room(cost, timeout)
                charged = usage.bytes + cost
            record.arrived = self._now()
            try:
                # The short way of nearly every record: into an open aggregate that has records of its key already
                # and leaves earlier than it would. Nobody has to be woken for it.
                place = pipeline.open_by_key.get(partition_key)
                entry = None if place is None else place.entry
                if (
                    entry is not None
                    and entry.open_for == usage.epoch
                    and record.explicit_hash_key is None
                    and entry.aggregate.append_known(partition_key, data)
                ):
                    usage.bytes = charged
                    usage.count += 1
                    entry.cost += cost
                    records = entry.records
                    record._index = len(records)
                    record._delivery = entry.delivery
                    records.append(record)
                else:
                    self._take(pipeline, record, data, hash_key)
            except BaseException:
                self._undo(pipeline, record)
                raise

    def check_open(self) -> None:
        """Raise `ProducerClosedError` if nothing is accepted any more."""
        with self._lock:
            self._check_open()

    def accept_many(
        self,
        pipeline: StreamPipeline,
        items: Iterator[Any],
        hash_of: Callable[[str], bytes | None],
        accepted: list[PendingRecord],
    ) -> Any:
        """`accept` for plain records of one stream, under one lock: pairs of `str` and `bytes` for which there is room.

        Args:
            pipeline: Their stream.
            items: The records. Taking one runs no code of users: the lock is held.
            hash_of: Effective hash key (16 bytes) of a partition key; None if it is not a valid one.
            accepted: Each record is appended to it when it is taken over; it tells how far this came if it raises.

        Returns:
            The first item that is not such a record, which is for `accept`; `ALL_TAKEN` if there is none.

        Raises:
            ProducerClosedError: As `accept`.
        """
        if self._held_here():
            self._refuse_reentry()
        with self._lock:
            self._check_open()
            usage = self._usage
            open_by_key = pipeline.open_by_key
            largest = pipeline.plain_record_size
            max_bytes, max_records = usage.max_bytes, usage.max_records
            # Written back before anybody else looks at them; after an interrupt they are counted anew.
            held, count, epoch = usage.bytes, usage.count, usage.epoch
            now = self._now()
            record: PendingRecord | None = None
            rest: Any = ALL_TAKEN
            try:
                for item in items:
                    rest = item
                    if type(item) is not tuple or len(item) != 2:
                        break
                    partition_key, data = item
                    if type(data) is not bytes or type(partition_key) is not str or len(data) > largest:
                        break
                    cost = len(data) + len(partition_key) + RECORD_OVERHEAD
                    if held + cost > max_bytes or count >= max_records:
                        break
                    record = PendingRecord()
                    record.partition_key = partition_key
                    record.explicit_hash_key = None
                    record.arrived = now
                    record._details = None
                    record._listeners = None
                    place = open_by_key.get(partition_key)
                    entry = None if place is None else place.entry
                    # The short way, as in `accept`.
                    if (
                        entry is not None
                        and entry.open_for == epoch
                        and entry.aggregate.append_known(partition_key, data)
                    ):
                        held += cost
                        count += 1
                        entry.cost += cost
                        records = entry.records
                        record._index = len(records)
                        record._delivery = entry.delivery
                        records.append(record)
                    else:
                        hash_key = hash_of(partition_key)
                        if hash_key is None:
                            break
                        usage.bytes, usage.count = held, count
                        self._take(pipeline, record, data, hash_key)
                        held, count = usage.bytes, usage.count
                    accepted.append(record)
                    rest = ALL_TAKEN
                usage.bytes, usage.count = held, count
            except BaseException:
                # What was appended is taken over.
                self._undo(pipeline, None if accepted and accepted[-1] is record else record)
                raise
            return rest

    def try_accept(
        self,
        pipeline: StreamPipeline,
        record: PendingRecord,
        data: bytes,
        hash_key: bytes,
        listener: Listener | None = None,
    ) -> bool:
        """`accept` without waiting for room.

        Args:
            pipeline: Its stream.
            record: The record, with its keys.
            data: Its payload.
            hash_key: Its effective hash key (16 bytes).
            listener: Called once if there is no room now: when there may be some, or nothing is accepted any more.

        Returns:
            Whether the record was taken over.

        Raises:
            ProducerClosedError: The producer is closed.
        """
        if self._held_here():
            self._refuse_reentry()
        with self._lock:
            self._check_open()
            if self._usage.has_room(cost_of(record.partition_key, data)):
                record.arrived = self._now()
                try:
                    self._take(pipeline, record, data, hash_key)
                except BaseException:
                    self._undo(pipeline, record)
                    raise
                return True
            if listener is not None:
                self._usage.room_listeners[listener] = None
                self._start()
                self._wake.notify()
            return False

    def forget_listener(self, listener: Listener) -> None:
        """Do not call it any more; it need not be registered."""
        with self._lock:
            self._usage.forget(listener)

    def flush(self, timeout: float | None) -> int:
        """Send everything now, wait until all records accepted before have their final result and their callbacks ran.

        Returns:
            Records of which that is not true after ``timeout`` seconds; 0 is success.

        Raises:
            ProducerError: Called from a callback or hook of the producer, or from a signal handler that interrupted it.
        """
        self._check_may_wait("flush")
        with self._lock:
            self._check_usable()
            return self._drain(timeout)

    def begin_flush(self, listener: Listener) -> int:
        """`flush` without waiting.

        Args:
            listener: Called once when no record accepted before is left; at once if none is.

        Returns:
            What `left` wants to know.
        """
        if self._held_here():
            self._refuse_reentry()
        with self._lock:
            self._check_usable()
            epoch = self._request_flush()
            self._usage.add_flush_listener(epoch, listener)
            return epoch

    def left(self, epoch: int) -> int:
        """Records that a flush still waits for: without a final result, or with callbacks that have not run."""
        with self._lock:
            return self._usage.left(epoch)

    def close(self, timeout: float | None) -> int:
        """Flush, stop the threads, fail what is left after ``timeout`` seconds with `ProducerClosedError`.

        Returns:
            Records that failed so, and those with callbacks that have not run by then; 0 is success. Closing twice is
            harmless: the second caller waits, too, and gets how many are left.

        Raises:
            ProducerError: As for `flush`; the producer is open as before.
        """
        self._check_may_wait("close")
        ends = None if timeout is None else self._clock.monotonic() + timeout
        this_thread = threading.get_ident()
        left, ours = 0, False
        try:
            try:
                with self._lock:
                    # Not if another thread does it, perhaps a daemon's, while the interpreter ends. Also in a signal
                    # handler that interrupted this thread's own `close`: that one does not go on before the handler
                    # returns, so the handler's call does all there is to do.
                    ours = not self._closing or self._closer == this_thread
                    if ours:
                        self._closing = True
                        self._closer = this_thread
                        self._notify_room()  # who waits for it need not wait longer
                        if self._broken is None:
                            self._drain(timeout)
            finally:
                # Also when an interrupt ends the flush: nothing stays without a result.
                if ours:
                    left = self._break(
                        ProducerClosedError,
                        "the producer was closed before the record was acknowledged; it may or may not be stored",
                    )
            left += self._await_rest(ends)
        finally:
            if ours:
                self._stopped = True
                self._pool.stop()
                wait_guards.pop(self, None)
        if not ours:
            return left
        patience = _JOIN_TIMEOUT if left == 0 else 0.1
        if self._thread is not None:
            self._thread.join(patience)
        self._pool.join(patience)
        return left

    def _await_rest(self, ends: float | None) -> int:
        """Wait until nothing is to be done any more; return for how many records something is."""
        with self._lock:
            if not self._is_at_rest():
                left = None if ends is None else max(0.0, ends - self._clock.monotonic())
                self._changed.wait_for(self._is_at_rest, left)
            count, callbacks = self._usage.count, self._usage.open_callbacks
        if (
            callbacks
        ):  # without the lock: a handler of log records may put them, and hold a lock of its own meanwhile
            _LOGGER.warning("callbacks of %d records had not run when close() returned", callbacks)
        return count + callbacks

    def _is_at_rest(self) -> bool:
        usage = self._usage
        return self._broken is not None and not (usage.count or usage.callbacks or self._settling)

    def forget_after_fork(self) -> None:
        """In a forked child: the threads are gone and locks may be held for ever. Only say no from now on."""
        self._make_locks()
        self._pool = self._new_pool()
        self._thread = None
        self._closing = True
        wait_guards.pop(self, None)
        self._usage.forget()
        self._usage.recount(())
        text = "this producer belongs to the parent process; create a new one after the fork"
        self._broken = (ProducerClosedError, text, None)
        records = [record for pipeline in self._pipelines.values() for record in pipeline.live]
        records.extend(record for item in self._unfinished() for record in item.records)
        for record in records:
            orphan(record, ProducerClosedError(text))
        # No thread of this process completes these; `close` would wait for them forever.
        self._settling.clear()
        self._usage.callbacks.clear()

    def full(self, timeout: float | None) -> BufferFullError:
        """The error that says that there is no room, and was none for ``timeout`` seconds."""
        with self._lock:
            return self._usage.full(timeout)

    @property
    def pipelines(self) -> tuple[StreamPipeline, ...]:
        """All pipelines."""
        with self._lock:
            return tuple(self._pipelines.values())

    @property
    def counters(self) -> Counters:
        """What all pipelines did so far, together."""
        total = Counters()
        with self._lock:
            for pipeline in self._pipelines.values():
                total.add(pipeline.counters)
        return total

    def refused_for_size(self, pipeline: StreamPipeline) -> None:
        """A record is larger than its stream is known to take. Somebody may have raised the limit since."""
        if self._held_here():
            self._refuse_reentry()
        with self._lock:
            pipeline.topology.doubt_rarely(self._clock.monotonic())
            self._wake.notify()

    @property
    def outstanding(self) -> tuple[int, float]:
        """Records without a final result, and the age of the oldest of them (seconds). Takes a moment for each."""
        with self._lock:
            live = [record for pipeline in self._pipelines.values() for record in pipeline.live]
            now = self._clock.monotonic()
        return len(live), max(0.0, now - min((record.arrived for record in live), default=now))

    @property
    def buffered_bytes(self) -> int:
        """What is charged against ``max_buffered_bytes`` now."""
        return self._usage.bytes

    # ------------------------------------------------------------------ under the lock

    def _check_open(self) -> None:
        self._check_usable()
        if self._closing:
            raise ProducerClosedError("the producer is closed")

    def _check_usable(self) -> None:
        if self._broken is not None:
            # A new object each time: one that is raised again and again collects tracebacks.
            kind, text, cause = self._broken
            raise kind(text) from cause

    def _check_may_wait(self, what: str) -> None:
        """Raise `ProducerError` if what this thread wants to wait for could not come before it goes on."""
        if self._held_here() or interrupted_here():
            self._refuse_reentry()
        if self._serving.here:
            raise ProducerError(
                f"{what} waits for results that this very thread has to bring: do not call it from a callback or hook "
                "of a record, or from a signal handler that interrupted close(); let another thread do it"
            )

    def _check_may_wait_for(self, record: PendingRecord) -> None:
        """`_check_may_wait` for one record, if it is ours."""
        if (self._held_here() or self._serving.here) and self._owes(record):
            self._check_may_wait("result() of a record without one")

    def _owes(self, record: PendingRecord) -> bool:
        """Whether it is a record of ours that has no final result."""
        with self._lock:
            entry = record._delivery.entry
            return any(entry in pipeline.entries for pipeline in self._pipelines.values()) or any(
                item.entry is entry if item.entry is not None else record in item.records
                for item in self._unfinished()
            )

    def _refuse_reentry(self) -> None:
        raise ProducerError(REENTERED)

    def _drain(self, timeout: float | None) -> int:
        epoch = self._request_flush()
        if self._usage.left(epoch):
            # Also if the engine breaks meanwhile: then all fail, and that is a final result.
            self._changed.wait_for(lambda: self._usage.left(epoch) == 0, timeout)
        return self._usage.left(epoch)

    def _request_flush(self) -> int:
        epoch = self._usage.end_epoch()
        if self._usage.left(epoch):
            self._flush_requested = epoch
            self._start()
            self._wake.notify()
        return epoch

    def _take(self, pipeline: StreamPipeline, record: PendingRecord, data: bytes, hash_key: bytes) -> None:
        """There is room: the record is ours from here on. If this raises, `_undo` it."""
        usage = self._usage
        usage.charge(len(data) + len(record.partition_key) + RECORD_OVERHEAD)
        record._delivery = NOT_PLACED
        arrived = record.arrived
        ready = pipeline.add(record, data, hash_key, usage.epoch, arrived)
        if ready or self._thread is None or arrived + pipeline.buffered_time < self._sleeping_until:
            self._wake_engine(pipeline)

    def _undo(self, pipeline: StreamPipeline, record: PendingRecord | None) -> None:
        """Back to before a `_take` that did not come to its end: its record does not exist, all others do."""
        try:
            pipeline.undo(record, self._clock.monotonic())
            entries = [entry for other in self._pipelines.values() for entry in other.entries]
            self._usage.recount([*entries, *self._unfinished()])
            self._sleeping_until = -_NEVER
            self._wake.notify()
            self._notify_room()
        except BaseException as error:
            # Interrupted again, or a bug: rather fail every record than leave one without a result.
            self._crash(error)
            raise

    def _wait_for_room(self, cost: int, timeout: float | None) -> None:
        # A callback runs on a thread that has to make the room: it must not wait for it.
        if timeout != 0 and not self._serving.here:
            if interrupted_here():
                self._refuse_reentry()
            token = object()
            try:
                self._blocked.add(token)
                self._start()
                self._wake.notify()
                self._changed.wait_for(
                    lambda: self._usage.has_room(cost) or self._closing or self._broken is not None,
                    timeout,
                )
            finally:
                self._blocked.discard(token)
            self._check_open()
        if not self._usage.has_room(cost):
            raise self._usage.full(timeout)

    def _wake_engine(self, pipeline: StreamPipeline) -> None:
        self._start()
        now = self._clock.monotonic()
        if pipeline.next_event(now, self._config.max_connections - self._in_flight) < self._sleeping_until:
            self._wake.notify()
