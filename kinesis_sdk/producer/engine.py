"""What callers do to a producer: hand over, wait for room, flush, close. The threads behind it are in `machine`.

Locks: `_lock` guards the pipelines and every counter here and there. Futures are resolved and the network is used
only after it was released, so a future's callback may call `put`. It can be re-entered only by a signal handler that
interrupted its holder; that is refused, because nothing good can come of it.

Interrupts: Python runs signal handlers in the main thread, between any two instructions, and they may raise. So
callers' threads do as little as possible: flushing and making room are done by the engine thread on request, and
an `accept` that does not come to its end is undone.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from kinesis_sdk.common.errors import BufferFullError, ProducerClosedError, ProducerError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.ledger import Watcher
from kinesis_sdk.producer.machine import Machine
from kinesis_sdk.producer.ordered import OrderedPipeline
from kinesis_sdk.producer.pipeline import StreamPipeline
from kinesis_sdk.producer.record import PendingRecord, orphan

_NEVER = float("inf")
_PATIENCE = 2.0
"""Seconds that `close` waits for threads that have nothing left to do."""


class Engine(Machine):
    """Carries out what the pipelines decide; made as `Machine` is."""

    # ------------------------------------------------------------------ callers

    def pipeline(self, stream: StreamId) -> StreamPipeline:
        """The pipeline of a stream, made on first use."""
        with self._lock:
            key = str(stream)
            pipeline = self._pipelines.get(key)
            if pipeline is None:
                kind = OrderedPipeline if self._config.ordering == "per_shard" else StreamPipeline
                pipeline = self._pipelines[key] = kind(stream, self._config, self._rng)
            return pipeline

    def accept(self, pipeline: StreamPipeline, record: PendingRecord, timeout: float | None) -> None:
        """Take a record over; from now on it ends with a result or a failure.

        Args:
            pipeline: Its stream.
            record: The record.
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
            ledger = self._ledger
            # What `has_room` asks, in place for its speed.
            if ledger.bytes + record.cost > ledger.max_bytes or ledger.count >= ledger.max_records:
                self._wait_for_room(record, timeout)
            # And what `_take` does.
            try:
                record.epoch = ledger.epoch
                ledger.bytes += record.cost
                ledger.count += 1
                if (
                    pipeline.add(record, record.arrived)
                    or record.deadline < self._sleeping_until
                    or self._thread is None
                ):
                    self._wake_engine(pipeline)
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
        records: Sequence[PendingRecord],
        timeout: float | None,
        accepted: list[PendingRecord],
    ) -> None:
        """`accept` for many records of one stream, under one lock.

        Args:
            pipeline: Their stream.
            records: The records, in order.
            timeout: As for `accept`, for each record that finds no room.
            accepted: Each record is appended to it when it is taken over; it tells how far this came if it raises.

        Raises:
            BufferFullError: As `accept`.
            ProducerClosedError: As `accept`.
        """
        if self._held_here():
            self._refuse_reentry()
        arrived = 0.0
        with self._lock:
            self._check_open()
            waited = False
            for record in records:
                if waited:
                    record.restamp(arrived)
                if not self._ledger.has_room(record.cost):
                    self._wait_for_room(record, timeout)
                    waited, arrived = True, record.arrived
                self._take(pipeline, record)
                accepted.append(record)

    def try_accept(
        self, pipeline: StreamPipeline, record: PendingRecord, watcher: Watcher | None = None
    ) -> bool:
        """`accept` without waiting for room.

        Args:
            pipeline: Its stream.
            record: The record.
            watcher: Called once if there is no room now: when there may be some, or nothing is accepted any more.

        Returns:
            Whether the record was taken over.

        Raises:
            ProducerClosedError: The producer is closed.
        """
        if self._held_here():
            self._refuse_reentry()
        with self._lock:
            self._check_open()
            if self._ledger.has_room(record.cost):
                self._take(pipeline, record)
                return True
            if watcher is not None:
                self._ledger.room_watchers[watcher] = None
                self._start()
                self._wake.notify()
            return False

    def forget_watcher(self, watcher: Watcher) -> None:
        """Do not call it any more; it need not be registered."""
        with self._lock:
            self._ledger.forget(watcher)

    def flush(self, timeout: float | None) -> int:
        """Send everything now, wait until all records accepted before have their final result.

        Returns:
            Records that have none after ``timeout`` seconds; 0 is success.

        Raises:
            ProducerError: Called from a callback of the producer's own threads, or from a signal handler that
                interrupted the producer.
        """
        self._check_may_wait("flush")
        with self._lock:
            self._check_usable()
            return self._drain(timeout)

    def begin_flush(self, watcher: Watcher) -> int:
        """`flush` without waiting.

        Args:
            watcher: Called once when no record accepted before is left; at once if none is.

        Returns:
            What `left` wants to know.
        """
        if self._held_here():
            self._refuse_reentry()
        with self._lock:
            self._check_usable()
            epoch = self._request_flush()
            self._ledger.watch_flush(epoch, watcher)
            return epoch

    def left(self, epoch: int) -> int:
        """Records that a flush still waits for."""
        with self._lock:
            return self._ledger.left(epoch)

    def close(self, timeout: float | None) -> int:
        """Flush, stop the threads, fail what is left after ``timeout`` seconds with `ProducerClosedError`.

        Returns:
            Records that failed so; 0 is success. Closing twice is harmless.

        Raises:
            ProducerError: As for `flush`; the producer is open as before.
        """
        self._check_may_wait("close")
        left, ours = 0, False
        try:
            with self._lock:
                if self._closing:
                    return 0
                ours = self._closing = True
                self._tell_room()  # who waits for it need not wait longer
                if self._broken is None:
                    self._drain(timeout)
        finally:
            # Also when an interrupt ends the flush: nothing stays without a result.
            if ours:
                left = self._break(
                    ProducerClosedError,
                    "the producer was closed before the record was acknowledged; it may or may not be stored",
                )
                self._pool.stop()
        patience = _PATIENCE if left == 0 else 0.1
        if self._thread is not None:
            self._thread.join(patience)
        self._pool.join(patience)
        return left

    def forget_after_fork(self) -> None:
        """In a forked child: the threads are gone and locks may be held for ever. Only say no from now on."""
        self._make_locks()
        self._pool = self._new_pool()
        self._thread = None
        self._closing = True
        self._ledger.forget()
        text = "this producer belongs to the parent process; create a new one after the fork"
        self._broken = (ProducerClosedError, text, None)
        settling = [item for groups in self._settling.values() for _, items in groups for item in items]
        for record in [*self._all_live(), *(record for item in settling for record in item.records)]:
            orphan(record, ProducerClosedError(text))

    def full(self, timeout: float | None) -> BufferFullError:
        """The error that says that there is no room, and was none for ``timeout`` seconds."""
        with self._lock:
            return self._ledger.full(timeout)

    @property
    def pipelines(self) -> tuple[StreamPipeline, ...]:
        """All pipelines, for statistics."""
        with self._lock:
            return tuple(self._pipelines.values())

    @property
    def buffered_bytes(self) -> int:
        """What is charged against ``max_buffered_bytes`` now."""
        return self._ledger.bytes

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
        if self._held_here():
            self._refuse_reentry()
        if self._is_own_thread():
            raise ProducerError(
                f"{what} waits for results that this very thread has to bring: do not call it from a callback "
                "of a record; let another thread do it"
            )

    def _refuse_reentry(self) -> None:
        raise ProducerError(
            "a signal handler interrupted the producer and called it: raise an exception in the handler, or set "
            "a flag there, and flush or close where the program goes on"
        )

    def _is_own_thread(self) -> bool:
        thread = threading.current_thread()
        return thread is self._thread or thread in self._pool.threads

    def _drain(self, timeout: float | None) -> int:
        epoch = self._request_flush()
        if self._ledger.left(epoch):
            # Also if the engine breaks meanwhile: then all fail, and that is a final result.
            self._changed.wait_for(lambda: self._ledger.left(epoch) == 0, timeout)
        return self._ledger.left(epoch)

    def _request_flush(self) -> int:
        epoch = self._ledger.end_epoch()
        if self._ledger.left(epoch):
            self._flush_requested = epoch
            self._start()
            self._wake.notify()
        return epoch

    def _take(self, pipeline: StreamPipeline, record: PendingRecord) -> None:
        """There is room: the record is ours from here on, or this raises and it never was."""
        try:
            self._ledger.charge(record)
            ready = pipeline.add(record, record.arrived)
            if ready or self._thread is None or record.deadline < self._sleeping_until:
                self._wake_engine(pipeline)
        except BaseException:
            self._undo(pipeline, record)
            raise

    def _undo(self, pipeline: StreamPipeline, record: PendingRecord) -> None:
        """Back to before a `_take` that did not come to its end: its record does not exist, all others do."""
        try:
            pipeline.undo(record, self._clock.monotonic())
            records = self._all_live()
            for groups in self._settling.values():
                records.extend(other for _, items in groups for item in items for other in item.records)
            self._ledger.recount(records)
            self._sleeping_until = -_NEVER
            self._wake.notify()
            self._tell_room()
        except BaseException as error:
            # Interrupted again, or a bug: rather fail every record than leave one without a result.
            self._crash(error)
            raise

    def _wait_for_room(self, record: PendingRecord, timeout: float | None) -> None:
        # A callback runs on a thread that has to make the room: it must not wait for it.
        if timeout != 0 and not self._is_own_thread():
            token = object()
            try:
                self._blocked.add(token)
                self._start()
                self._wake.notify()
                self._changed.wait_for(
                    lambda: self._ledger.has_room(record.cost) or self._closing or self._broken is not None,
                    timeout,
                )
            finally:
                self._blocked.discard(token)
            self._check_open()
            # Its times count from now on: it must not expire because it had to wait.
            record.restamp(self._clock.monotonic())
        if not self._ledger.has_room(record.cost):
            raise self._ledger.full(timeout)

    def _wake_engine(self, pipeline: StreamPipeline) -> None:
        self._start()
        now = self._clock.monotonic()
        if pipeline.next_event(now, self._config.max_connections - self._in_flight) < self._sleeping_until:
            self._wake.notify()
