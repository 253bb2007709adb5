"""The thread shell of a producer: one lock, one engine thread, a pool of sending threads.

Threads: callers run `accept`; the engine thread wakes exactly when the next deadline is due, polls the
pipelines and hands requests to the pool; a pool thread makes one call and brings its result back.

Locks: `_lock` guards the pipelines and every counter here. Futures are resolved and the network is used only
after it was released, so a future's callback may call `put`. It can be re-entered only by a signal handler that
interrupted its holder; that is refused, because nothing good can come of it.

Interrupts: Python runs signal handlers in the main thread, between any two instructions, and they may raise. So
callers' threads do as little as possible: flushing and making room are done by the engine thread on request, and
an `accept` that does not come to its end is undone.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable

from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import BufferFullError, KinesisSdkError, ProducerClosedError, ProducerError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.collector import Batch
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.pipeline import Settled, StreamPipeline
from kinesis_sdk.producer.record import PendingRecord, acknowledge, fail, orphan
from kinesis_sdk.producer.sender import TaskPool, load_facts, put_records, without_frames

_LOGGER = logging.getLogger(__name__)
_NEVER = float("inf")
_LONGEST_SLEEP = 3_600.0
_PRESS_INTERVAL = 0.05
_PATIENCE = 2.0
"""Seconds that `close` waits for threads that have nothing left to do."""


class Engine:
    """Carries out what the pipelines decide.

    Args:
        client: Kinesis client; thread-safe.
        config: Settings.
        clock: Time.
        rng: Jitter.
    """

    def __init__(
        self, client: KinesisClient, config: ProducerConfig, clock: Clock, rng: random.Random
    ) -> None:
        self._client = client
        self._config = config
        self._clock = clock
        self._rng = rng
        self._make_locks()
        self._pipelines: dict[str, StreamPipeline] = {}
        self._in_flight = 0
        self._buffered = 0
        self._blocked: set[object] = set()
        self._pressed = -_NEVER
        self._sleeping_until = -_NEVER
        self._epoch = 0
        self._flush_requested = -1
        self._flushed = -1
        self._outstanding: Counter[int] = Counter()
        self._closing = False
        # Why nothing is accepted any more: the class and text of the error, and its cause.
        self._broken: tuple[type[ProducerError], str, BaseException | None] | None = None
        self._pool = self._new_pool()
        self._thread: threading.Thread | None = None

    def _make_locks(self) -> None:
        self._lock = threading.RLock()
        self._held_here: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]
        self._wake = threading.Condition(self._lock)
        self._changed = threading.Condition(self._lock)

    def _new_pool(self) -> TaskPool:
        # Two more than requests at a time: shard maps load while all connections are busy.
        return TaskPool("kinesis-sdk-sender", self._config.max_connections + 2)

    # ------------------------------------------------------------------ callers

    def pipeline(self, stream: StreamId) -> StreamPipeline:
        """The pipeline of a stream, made on first use."""
        with self._lock:
            key = str(stream)
            pipeline = self._pipelines.get(key)
            if pipeline is None:
                pipeline = self._pipelines[key] = StreamPipeline(stream, self._config, self._rng)
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
            self._check_open()
            if self._buffered + record.cost > self._config.max_buffered_bytes:
                self._wait_for_room(record, timeout)
            try:
                record.epoch = self._epoch
                self._outstanding[self._epoch] += 1
                self._buffered += record.cost
                ready = pipeline.add(record, record.arrived)
                if ready or self._thread is None or record.deadline < self._sleeping_until:
                    self._wake_engine(pipeline)
            except BaseException:
                self._undo(pipeline, record)
                raise

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
                self._changed.notify_all()  # who waits for room need not wait longer
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
        text = "this producer belongs to the parent process; create a new one after the fork"
        self._broken = (ProducerClosedError, text, None)
        for pipeline in self._pipelines.values():
            for record in pipeline.live:
                orphan(record, ProducerClosedError(text))

    @property
    def pipelines(self) -> tuple[StreamPipeline, ...]:
        """All pipelines, for statistics."""
        with self._lock:
            return tuple(self._pipelines.values())

    @property
    def buffered_bytes(self) -> int:
        """What is charged against ``max_buffered_bytes`` now."""
        return self._buffered

    # ------------------------------------------------------------------ under the lock

    def _check_open(self) -> None:
        self._check_usable()
        if self._closing:
            raise ProducerClosedError("the producer is closed")

    def _is_broken(self) -> bool:
        return self._broken is not None

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
        epoch = self._epoch
        self._epoch = epoch + 1
        if self._left(epoch) == 0:
            return 0
        self._flush_requested = epoch
        self._start()
        self._wake.notify()
        self._changed.wait_for(lambda: self._left(epoch) == 0 or self._broken is not None, timeout)
        return self._left(epoch)

    def _left(self, epoch: int) -> int:
        return sum(count for e, count in self._outstanding.items() if e <= epoch)

    def _undo(self, pipeline: StreamPipeline, record: PendingRecord) -> None:
        """Back to before an `accept` that did not come to its end: its record does not exist, all others do."""
        try:
            pipeline.undo(record, self._clock.monotonic())
            live = [other for p in self._pipelines.values() for other in p.live]
            self._buffered = sum(other.cost for other in live)
            self._outstanding = Counter(other.epoch for other in live)
            self._sleeping_until = -_NEVER
            self._wake.notify()
            self._changed.notify_all()
        except BaseException as error:
            # Interrupted again, or a bug: rather fail every record than leave one without a result.
            self._crash(error)
            raise

    def _wait_for_room(self, record: PendingRecord, timeout: float | None) -> None:
        bound = self._config.max_buffered_bytes

        def has_room() -> bool:
            # One record that is larger than the bound may pass when it is alone.
            return self._buffered + record.cost <= bound or self._buffered == 0

        # A callback runs on a thread that has to make the room: it must not wait for it.
        if timeout != 0 and not self._is_own_thread():
            token = object()
            try:
                self._blocked.add(token)
                self._start()
                self._wake.notify()
                self._changed.wait_for(
                    lambda: has_room() or self._closing or self._broken is not None, timeout
                )
            finally:
                self._blocked.discard(token)
            self._check_open()
            # Its times count from now on: it must not expire because it had to wait.
            record.restamp(self._clock.monotonic())
        if not has_room():
            waited = f" for {timeout:g} s" if timeout else ""
            raise BufferFullError(
                f"{self._buffered:,} bytes are buffered{waited}; the bound is max_buffered_bytes={bound:,}"
            )

    def _wake_engine(self, pipeline: StreamPipeline) -> None:
        self._start()
        now = self._clock.monotonic()
        if pipeline.next_event(now, self._config.max_connections - self._in_flight) < self._sleeping_until:
            self._wake.notify()

    def _start(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="kinesis-sdk-producer", daemon=True)
        self._thread = thread
        try:
            thread.start()
        except BaseException:
            # Not started, or interrupted on the way: then it ends by itself as soon as it sees this.
            self._thread = None
            raise

    def _take_settled(self) -> list[Settled]:
        """Collect final results of all pipelines and give their room back."""
        settled: list[Settled] = []
        for pipeline in self._pipelines.values():
            if pipeline.settled:
                settled.extend(pipeline.take_settled())
        outstanding = self._outstanding
        for item in settled:
            for record in item.records:
                self._buffered -= record.cost
                left = outstanding[record.epoch] - 1
                if left:
                    outstanding[record.epoch] = left
                else:
                    del outstanding[record.epoch]
        if settled:
            self._changed.notify_all()
        return settled

    def _break(self, kind: type[ProducerError], text: str, cause: BaseException | None = None) -> int:
        """Accept nothing any more and fail what has no final result; answers that still come are dropped.

        Returns:
            How many records failed.
        """
        with self._lock:
            if self._broken is not None:
                return 0
            self._broken = (kind, text, cause)
            settled = self._take_settled()
            failure = kind(text)
            failure.__cause__ = cause
            now = self._clock.monotonic()
            for pipeline in self._pipelines.values():
                pipeline.abandon(now, failure)
            failed = self._take_settled()
            self._wake.notify_all()
            self._changed.notify_all()
        _resolve(settled)
        _resolve(failed)
        return len(failed)

    # ------------------------------------------------------------------ the engine thread

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:  # noqa: BLE001 - a bug here must fail every record, not hang them
            self._crash(error)

    def _turn(self) -> bool:
        """Do what is due and sleep until there is more; False ends the thread."""
        with self._lock:
            if self._broken is not None or self._thread is not threading.current_thread():
                return False
            now = self._clock.monotonic()
            work, loads = self._collect_work(now)
            settled = self._take_settled()
            if not work and not loads and not settled:
                slots = self._config.max_connections - self._in_flight
                wake = min((p.next_event(now, slots) for p in self._pipelines.values()), default=_NEVER)
                wake = min(wake, self._next_press())
                self._sleeping_until = wake
                self._wake.wait(max(0.0, min(wake - now, _LONGEST_SLEEP)))
                self._sleeping_until = -_NEVER
                return True
        for pipeline, batch in work:
            self._pool.submit(lambda p=pipeline, b=batch: self._send(p, b))  # type: ignore[misc]
        for pipeline in loads:
            self._pool.submit(lambda p=pipeline: self._load(p))  # type: ignore[misc]
        _resolve(settled)  # last: callbacks of users run here
        return True

    def _next_press(self) -> float:
        """When to hurry because a `put` waits for room; infinity if none does.

        Not all the time: requests should still have company, and what comes back failed has a delay of its own.
        """
        return self._pressed + _PRESS_INTERVAL if self._blocked else _NEVER

    def _press(self, now: float) -> None:
        """A `put` waits for room, and deadlines may be far away."""
        self._pressed = now
        resting = all(pipeline.is_resting for pipeline in self._pipelines.values())
        for pipeline in self._pipelines.values():
            if resting:
                pipeline.flush(-1, now)
            else:
                # Something closed is on its way and makes room. What is open would only leave half empty, and
                # more so each time: one answer makes room for as many records as it held.
                pipeline.expedite()

    def _collect_work(self, now: float) -> tuple[list[tuple[StreamPipeline, Batch]], list[StreamPipeline]]:
        work: list[tuple[StreamPipeline, Batch]] = []
        loads: list[StreamPipeline] = []
        if self._flush_requested > self._flushed:
            self._flushed = self._flush_requested
            for pipeline in self._pipelines.values():
                pipeline.flush(self._flushed, now)
        if self._next_press() <= now:
            self._press(now)
        for pipeline in self._pipelines.values():
            for batch in pipeline.poll(now, self._config.max_connections - self._in_flight):
                self._in_flight += 1
                work.append((pipeline, batch))
            if pipeline.has_work and pipeline.topology.wants_load(now):
                pipeline.topology.begin_load(now)
                loads.append(pipeline)
        if len(self._pipelines) > 1:
            # Who was served first is served last in the next turn.
            first = next(iter(self._pipelines))
            self._pipelines[first] = self._pipelines.pop(first)
        return work, loads

    # ------------------------------------------------------------------ pool threads

    def _send(self, pipeline: StreamPipeline, batch: Batch) -> None:
        try:
            if self._is_broken():
                return  # all records failed already
            batch.started = self._clock.monotonic()
            failure: KinesisSdkError | None = None
            response = {}
            try:
                response = put_records(self._client, pipeline.stream, batch)
            except KinesisSdkError as error:
                failure = without_frames(error)
            with self._lock:
                if self._is_broken():
                    return
                self._in_flight -= 1
                now = self._clock.monotonic()
                if failure is None:
                    pipeline.on_response(batch, response, now)
                else:
                    pipeline.on_failure(batch, failure, now)
                settled = self._take_settled()
                self._wake.notify()
            _resolve(settled)
        except BaseException as error:  # noqa: BLE001 - as in _run
            self._crash(error)

    def _load(self, pipeline: StreamPipeline) -> None:
        try:
            facts = None
            failure: KinesisSdkError | None = None
            try:
                facts = load_facts(self._client, pipeline.stream, describe=not pipeline.topology.described)
            except KinesisSdkError as error:
                failure = without_frames(error)
            with self._lock:
                if self._is_broken():
                    return
                now = self._clock.monotonic()
                if facts is not None:
                    try:
                        pipeline.on_facts(facts, now)
                    except KinesisSdkError as error:
                        failure = without_frames(error)
                if failure is not None:
                    pipeline.on_facts_failed(failure, now)
                settled = self._take_settled()
                self._wake.notify()
            if failure is not None:
                _LOGGER.warning("shard map of stream %s not loaded: %s", pipeline.stream, failure)
            _resolve(settled)
        except BaseException as error:  # noqa: BLE001 - as in _run
            self._crash(error)

    def _crash(self, error: BaseException) -> None:
        """An error that should not exist: say so, fail every record, take no more."""
        _LOGGER.critical("the producer's engine failed", exc_info=error)
        self._break(ProducerError, f"the producer's engine failed: {type(error).__name__}: {error}", error)


def _resolve(settled: Iterable[Settled]) -> None:
    for records, stored, error in settled:
        if stored is not None:
            acknowledge(records, stored)
        elif error is not None:
            for record in records:
                fail(record, error)
