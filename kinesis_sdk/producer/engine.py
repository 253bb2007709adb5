"""The thread shell of a producer: one lock, one engine thread, a pool of sending threads.

Threads: callers run `accept`; the engine thread wakes exactly when the next deadline is due, polls the
pipelines and hands requests to the pool; a pool thread makes one call and brings its result back.

Locks: `_lock` guards the pipelines and every counter here. Futures are resolved and the network is used only
after it was released, so a future's callback may call the producer.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterable

from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import BufferFullError, KinesisSdkError, ProducerClosedError, ProducerError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.collector import Batch
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.pipeline import Settled, StreamPipeline
from kinesis_sdk.producer.record import PendingRecord, acknowledge, fail
from kinesis_sdk.producer.sender import TaskPool, load_facts, put_records

_LOGGER = logging.getLogger(__name__)
_NEVER = float("inf")
_LONGEST_SLEEP = 3_600.0


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
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._changed = threading.Condition(self._lock)
        self._pipelines: dict[str, StreamPipeline] = {}
        self._in_flight = 0
        self._loading = 0
        self._buffered = 0
        self._sleeping_until = -_NEVER
        self._epoch = 0
        self._outstanding: dict[int, int] = {0: 0}
        self._closing = False
        self._broken: KinesisSdkError | None = None
        self._pool = TaskPool("kinesis-sdk-sender", config.max_connections + 2)
        self._thread: threading.Thread | None = None

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
        with self._lock:
            self._check_open()
            if self._buffered + record.cost > self._config.max_buffered_bytes:
                self._wait_for_room(record, timeout)
            record.epoch = self._epoch
            self._outstanding[self._epoch] += 1
            self._buffered += record.cost
            ready = pipeline.add(record, record.arrived)
            if ready or record.deadline < self._sleeping_until:
                self._wake_engine(pipeline)

    def flush(self, timeout: float | None) -> int:
        """Send everything now, wait until all records accepted before have their final result.

        Returns:
            Records that have none after ``timeout`` seconds; 0 is success.
        """
        with self._lock:
            self._check_usable()
            epoch = self._epoch
            self._epoch += 1
            self._outstanding[self._epoch] = 0
            now = self._clock.monotonic()
            for pipeline in self._pipelines.values():
                pipeline.flush(epoch, now)
            self._start()
            self._wake.notify()
            self._changed.wait_for(lambda: self._left(epoch) == 0 or self._broken is not None, timeout)
            left = self._left(epoch)
            if left == 0:
                self._outstanding = {e: n for e, n in self._outstanding.items() if e > epoch}
            return left

    def close(self, timeout: float | None) -> int:
        """Flush, stop the threads, fail what is left after ``timeout`` seconds with `ProducerClosedError`.

        Returns:
            Records that failed so; 0 is success. Closing twice is harmless.
        """
        with self._lock:
            if self._closing:
                return 0
            self._closing = True
        left = 0
        try:
            left = self.flush(timeout)
        finally:
            # Also when an interrupt ends the flush: nothing stays without a result.
            with self._lock:
                error = ProducerClosedError(
                    "the producer was closed before the record was acknowledged; it may or may not be stored"
                )
                now = self._clock.monotonic()
                for pipeline in self._pipelines.values():
                    pipeline.abandon(now, error)
                settled = self._take_settled()
                self._broken = self._broken or error
                self._wake.notify()
                self._changed.notify_all()
            _resolve(settled)
        self._pool.stop(self._config.request_timeout if left == 0 else 0.1)
        return left

    def forget_after_fork(self) -> None:
        """In a forked child: the threads are gone and locks may be held for ever. Only say no from now on."""
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._changed = threading.Condition(self._lock)
        self._closing = True
        self._broken = ProducerClosedError(
            "this producer belongs to the parent process; create a new one after the fork"
        )

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
        if self._closing:
            raise self._broken or ProducerClosedError("the producer is closed")
        self._check_usable()

    def _check_usable(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _left(self, epoch: int) -> int:
        return sum(count for e, count in self._outstanding.items() if e <= epoch)

    def _wait_for_room(self, record: PendingRecord, timeout: float | None) -> None:
        bound = self._config.max_buffered_bytes

        def has_room() -> bool:
            # One record that is larger than the bound may pass when it is alone.
            return self._buffered + record.cost <= bound or self._buffered == 0

        if timeout != 0:
            # Whatever is open should leave now: waiting for deadlines would only make the caller wait longer.
            now = self._clock.monotonic()
            for pipeline in self._pipelines.values():
                pipeline.flush(-1, now)
            self._start()
            self._wake.notify()
            self._changed.wait_for(lambda: has_room() or self._closing or self._broken is not None, timeout)
            self._check_open()
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
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kinesis-sdk-producer", daemon=True)
            self._thread.start()

    def _take_settled(self) -> list[Settled]:
        """Collect final results of all pipelines and give their room back."""
        settled: list[Settled] = []
        for pipeline in self._pipelines.values():
            if pipeline.settled:
                settled.extend(pipeline.take_settled())
        for item in settled:
            for record in item.records:
                self._buffered -= record.cost
                self._outstanding[record.epoch] = self._outstanding.get(record.epoch, 0) - 1
        if settled:
            self._changed.notify_all()
        return settled

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
            if self._broken is not None:
                return False
            now = self._clock.monotonic()
            work, loads = self._collect_work(now)
            settled = self._take_settled()
            if not work and not loads and not settled:
                slots = self._config.max_connections - self._in_flight
                wake = min((p.next_event(now, slots) for p in self._pipelines.values()), default=_NEVER)
                self._sleeping_until = wake
                self._wake.wait(max(0.0, min(wake - now, _LONGEST_SLEEP)))
                self._sleeping_until = -_NEVER
                return True
        _resolve(settled)
        for pipeline, batch in work:
            self._pool.submit(lambda p=pipeline, b=batch: self._send(p, b))  # type: ignore[misc]
        for pipeline in loads:
            self._pool.submit(lambda p=pipeline: self._load(p))  # type: ignore[misc]
        return True

    def _collect_work(self, now: float) -> tuple[list[tuple[StreamPipeline, Batch]], list[StreamPipeline]]:
        work: list[tuple[StreamPipeline, Batch]] = []
        loads: list[StreamPipeline] = []
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
            batch.started = self._clock.monotonic()
            failure: KinesisSdkError | None = None
            response = {}
            try:
                response = put_records(self._client, pipeline.stream, batch)
            except KinesisSdkError as error:
                failure = error
            with self._lock:
                self._in_flight -= 1
                now = self._clock.monotonic()
                if failure is None:
                    pipeline.on_response(batch, response, now)
                else:
                    pipeline.on_failure(batch, failure, now)
                if self._closing and self._broken is not None:
                    pipeline.abandon(now, self._broken)
                settled = self._take_settled()
                self._wake.notify()
            _resolve(settled)
        except BaseException as error:  # noqa: BLE001 - as in _run
            self._crash(error, [record for entry in batch.entries for record in entry.records])

    def _load(self, pipeline: StreamPipeline) -> None:
        try:
            facts = None
            failure: KinesisSdkError | None = None
            try:
                facts = load_facts(self._client, pipeline.stream, describe=not pipeline.topology.described)
            except KinesisSdkError as error:
                failure = error
            with self._lock:
                now = self._clock.monotonic()
                if facts is not None:
                    try:
                        pipeline.on_facts(facts, now)
                    except KinesisSdkError as error:
                        failure = error
                if failure is not None:
                    pipeline.on_facts_failed(failure, now)
                settled = self._take_settled()
                self._wake.notify()
            if failure is not None:
                _LOGGER.warning("shard map of stream %s not loaded: %s", pipeline.stream, failure)
            _resolve(settled)
        except BaseException as error:  # noqa: BLE001 - as in _run
            self._crash(error)

    def _crash(self, error: BaseException, in_hand: Iterable[PendingRecord] = ()) -> None:
        """An error that should not exist: say so, fail every record, take no more.

        Args:
            error: What happened.
            in_hand: Records that the failing thread had taken out of the pipelines.
        """
        _LOGGER.critical("the producer's engine failed", exc_info=error)
        failure = ProducerError(f"the producer's engine failed: {type(error).__name__}: {error}")
        failure.__cause__ = error
        with self._lock:
            self._broken = failure
            now = self._clock.monotonic()
            for pipeline in self._pipelines.values():
                pipeline.abandon(now, failure)
            settled = self._take_settled()
            self._changed.notify_all()
            self._wake.notify_all()
        _resolve(settled)
        for record in in_hand:
            if not record.done():
                fail(record, failure)


def _resolve(settled: Iterable[Settled]) -> None:
    for records, stored, error in settled:
        if stored is not None:
            acknowledge(records, stored)
        elif error is not None:
            for record in records:
                fail(record, error)
