"""Thread-safe front end of the producer: accept, wait for room, flush and close.

| object | knows |
|---|---|
| `Engine` | what callers do |
| `SharedState` | the lock, the pipelines, the accounting of the buffer: what callers and threads share |
| `IoLoop` | the threads: when to wake, what to send |
| `Completion` | the end of records: hooks, metrics, futures, room, callbacks |
| `ReentryGuard` | which calls would never end, and are rejected |

Interrupts: Python runs signal handlers in the main thread, between any two instructions, and they may raise errors. So callers' threads do
as little as possible: they request flushes and room from the I/O loop, and an `accept` that was interrupted is undone.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.codec import codec_named
from kinesis_sdk.common.errors import BufferFullError, ProducerClosedError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.failures.hooks import FailureHooks
from kinesis_sdk.producer.io.buffer_usage import Listener
from kinesis_sdk.producer.io.completion import Completion, ReentryGuard, Relay
from kinesis_sdk.producer.io.loop import IoLoop, PutRecords
from kinesis_sdk.producer.io.metrics import MetricsSampler, ProducerMetrics
from kinesis_sdk.producer.io.sender import put_records
from kinesis_sdk.producer.io.shared import NEVER, SharedState
from kinesis_sdk.producer.records.future import PendingRecord, wait_guards
from kinesis_sdk.producer.records.record import NOT_PLACED, RECORD_OVERHEAD, BufferedRecord, cost_of
from kinesis_sdk.producer.stats import Counters
from kinesis_sdk.producer.stream.aggregator import Bin
from kinesis_sdk.producer.stream.pipeline import StreamPipeline

_LOGGER = FieldLogger(logging.getLogger(__name__))

ALL_TAKEN: Final = object()
"""Returned by `Engine.accept_many` when no item is left. This is a separate object, because None could be an item."""

_JOIN_TIMEOUT = 2.0
"""Seconds that `close` waits for the end of threads that have finished their work."""


class Engine:
    """Operations of a producer's callers. Thread-safe."""

    def __init__(
        self,
        client: KinesisClient,
        config: ProducerConfig,
        clock: Clock,
        rng: random.Random,
        hooks: FailureHooks | None = None,
        metrics: ProducerMetrics | None = None,
        put: PutRecords = put_records,
    ) -> None:
        self._config = config
        self._codec = None if config.compression is None else codec_named(config.compression)
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._shared = SharedState(config, clock)
        sampler = MetricsSampler(self._shared, metrics) if metrics is not None else None
        self._completion = Completion(self._shared, hooks, metrics, sampler)
        self._loop = IoLoop(client, self._shared, self._completion, metrics, sampler, put)
        self._reentry = ReentryGuard(self._shared, self._completion)
        self._closer: int | None = None
        # Copies for the fast path of `accept`: one attribute lookup fewer for each record.
        self._usage = self._shared.usage
        self._now = clock.monotonic
        self._copy_locks()

    def _copy_locks(self) -> None:
        self._lock = self._shared.lock
        self._held_here = self._shared.held_here

    @property
    def relay(self) -> Relay | None:
        """Brings results to event loops."""
        return self._completion.relay

    @relay.setter
    def relay(self, relay: Relay) -> None:
        self._completion.relay = relay

    # ------------------------------------------------------------------ accept

    def pipeline(self, stream: StreamId) -> StreamPipeline:
        """Return the pipeline of a stream, created on first use."""
        self._reentry.check_not_interrupted()
        shared = self._shared
        with self._lock:
            key = str(stream)
            pipeline = shared.pipelines.get(key)
            if pipeline is None:
                pipeline = shared.pipelines[key] = StreamPipeline(
                    stream, self._config, self._rng, wall_clock=self._clock.time, codec=self._codec
                )
                shared.agenda.enter(pipeline)
                if shared.rejection is None:  # else `close` is over, and nothing would remove it
                    wait_guards[self] = self._reentry.check_may_wait_for
            return pipeline

    def accept(
        self,
        pipeline: StreamPipeline,
        partition_key: str,
        explicit_hash_key: str | None,
        data: bytes,
        hash_key: bytes,
        timeout: float | None,
        kind: type[PendingRecord] = PendingRecord,
    ) -> PendingRecord:
        """Take ownership of a plain record of a ``kind``: the record will end with a result or a failure.

        Wait at most ``timeout`` seconds for room; None waits as long as it takes. Without room, raises `BufferFullError`.
        """
        made = kind()
        record: BufferedRecord = made
        record.partition_key = partition_key
        record.explicit_hash_key = explicit_hash_key
        record._details = None
        record._listeners = None
        if self._held_here():
            self._reentry.check_not_interrupted()
        with self._lock:
            if not self._shared.accepting:
                self._shared.check_open()
            cost = len(data) + len(partition_key) + RECORD_OVERHEAD
            usage = self._usage
            # `has_room`, written out for speed.
            charged = usage.bytes + cost
            count = usage.count
            if charged > usage.max_bytes or count >= usage.max_records:
                self._wait_for_room(cost, timeout)
                charged = usage.bytes + cost
                count = usage.count
            record.arrived = self._now()
            try:
                # The fast path of nearly every record: into an open aggregate whose deadline is no later than the record's, so that
                # the I/O loop need not be woken.
                known = pipeline.known
                place = known.by_key.get(partition_key)
                if place is None and explicit_hash_key is None:
                    place = known.find(partition_key, hash_key)
                entry = None if place is None else place.entry
                if (
                    entry is not None
                    and entry.open_for == usage.epoch
                    and explicit_hash_key is None
                    and (
                        entry.aggregate.append_known(partition_key, data)
                        or entry.aggregate.append_new(partition_key, data, hash_key)
                    )
                ):
                    usage.bytes = charged
                    usage.count = count + 1
                    entry.cost += cost
                    records = entry.records
                    record._index = len(records)
                    record._delivery = entry.delivery
                    records.append(record)
                else:
                    self._take(
                        pipeline, record, data, hash_key, cost, place if explicit_hash_key is None else None
                    )
            except BaseException:
                self._undo(pipeline, record, charged - cost, count)
                raise
        return made

    def accept_detailed(
        self,
        pipeline: StreamPipeline,
        record: BufferedRecord,
        data: bytes,
        hash_key: bytes,
        timeout: float | None,
    ) -> None:
        """Take ownership of a record with headers, or with an identity that begins its own run; never on the fast path."""
        self._reentry.check_not_interrupted()
        with self._lock:
            self._shared.check_open()
            usage = self._usage
            cost = cost_of(record.partition_key, data, record.header_fields)
            if not usage.has_room(cost):
                self._wait_for_room(cost, timeout)
            record.arrived = self._now()
            held, count = usage.bytes, usage.count
            try:
                self._take(pipeline, record, data, hash_key, cost)
            except BaseException:
                self._undo(pipeline, record, held, count)
                raise

    def accept_many(
        self,
        pipeline: StreamPipeline,
        items: Iterator[Any],
        hash_of: Callable[[str], bytes | None],
        accepted: list[PendingRecord],
    ) -> Any:
        """`accept` for plain records of one stream, under one lock: pairs of `str` and `bytes` for which there is room.

        Args:
            pipeline: Pipeline of their stream.
            items: The records. Accepting a plain record runs no code of users, which must not run under the lock.
            hash_of: Returns the effective hash key (16 bytes) of a partition key; None if the key is not valid.
            accepted: List to which each accepted record is appended, so it also shows how many records an interrupted call accepted.

        Returns:
            The first item that is not a plain record, which the caller passes to `accept`; `ALL_TAKEN` if there is none.
        """
        if self._held_here():
            self._reentry.check_not_interrupted()
        with self._lock:
            if not self._shared.accepting:
                self._shared.check_open()
            usage = self._usage
            known = pipeline.known
            by_key = known.by_key
            largest = pipeline.plain_record_size
            max_bytes, max_records = usage.max_bytes, usage.max_records
            # Written back before anything else reads them.
            held, count, epoch = usage.bytes, usage.count, usage.epoch
            held_before, count_before, accepted_before = held, count, len(accepted)
            now = self._now()
            record: BufferedRecord | None = None
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
                    made = PendingRecord()
                    record = made
                    record.partition_key = partition_key
                    record.explicit_hash_key = None
                    record.arrived = now
                    record._details = None
                    record._listeners = None
                    place = by_key.get(partition_key)
                    hash_key = None
                    if place is None:
                        hash_key = hash_of(partition_key)
                        if hash_key is None:
                            break
                        place = known.find(partition_key, hash_key)
                    entry = None if place is None else place.entry
                    # The fast path, as in `accept`.
                    if (
                        entry is not None
                        and entry.open_for == epoch
                        and (
                            entry.aggregate.append_known(partition_key, data)
                            or (
                                (hash_key := hash_key or hash_of(partition_key)) is not None
                                and entry.aggregate.append_new(partition_key, data, hash_key)
                            )
                        )
                    ):
                        held += cost
                        count += 1
                        entry.cost += cost
                        records = entry.records
                        record._index = len(records)
                        record._delivery = entry.delivery
                        records.append(record)
                    else:
                        hash_key = hash_key or hash_of(partition_key)
                        if hash_key is None:
                            break
                        usage.bytes, usage.count = held, count
                        self._take(pipeline, record, data, hash_key, cost, place)
                        held, count = usage.bytes, usage.count
                    accepted.append(made)
                    rest = ALL_TAKEN
                usage.bytes, usage.count = held, count
            except BaseException:
                # What was appended to `accepted` stays accepted.
                kept = accepted[accepted_before:]
                self._undo(
                    pipeline, None if kept and kept[-1] is record else record, held_before, count_before, kept
                )
                raise
            return rest

    def try_accept(
        self,
        pipeline: StreamPipeline,
        record: BufferedRecord,
        data: bytes,
        hash_key: bytes,
        listener: Listener | None = None,
    ) -> bool:
        """`accept` without waiting for room; return whether the record was accepted.

        If there is no room, ``listener`` is called once: when there may be room, or when nothing is accepted any longer.
        """
        self._reentry.check_not_interrupted()
        with self._lock:
            self._shared.check_open()
            usage = self._usage
            cost = cost_of(record.partition_key, data, record.header_fields)
            if usage.has_room(cost):
                record.arrived = self._now()
                held, count = usage.bytes, usage.count
                try:
                    self._take(pipeline, record, data, hash_key, cost)
                except BaseException:
                    self._undo(pipeline, record, held, count)
                    raise
                return True
            if listener is not None:
                usage.room_listeners[listener] = None
                self._loop.start()
                self._shared.wake.notify()
            return False

    def check_open(self) -> None:
        """Raise `ProducerClosedError` if nothing is accepted any longer."""
        with self._lock:
            self._shared.check_open()

    def rejected_for_size(self, pipeline: StreamPipeline) -> None:
        """Note that a record exceeds its stream's known size limit, because the limit may have been raised in the meantime."""
        self._reentry.check_not_interrupted()
        with self._lock:
            pipeline.topology.doubt_rarely(self._now())
            self._shared.agenda.touch(pipeline)
            self._shared.wake.notify()

    def forget_listener(self, listener: Listener) -> None:
        """Stop calling a listener; it need not be registered."""
        with self._lock:
            self._usage.forget(listener)

    # ------------------------------------------------------------------ flush and close

    def flush(self, timeout: float | None) -> int:
        """Send all buffered records now; wait until all records accepted before the call have a final result and their callbacks have run.

        Returns the number of records that are left after ``timeout`` seconds (None waits without limit); 0 is success.

        Raises:
            ProducerError: If called from a callback or hook of the producer, or from a signal handler that interrupted it.
        """
        self._reentry.check_may_wait("flush")
        with self._lock:
            self._shared.check_usable()
            return self._drain(timeout)

    def begin_flush(self, listener: Listener) -> int:
        """Start a `flush` without waiting, and return its epoch for `left`.

        ``listener`` is called once when no record that was accepted before is left, immediately if none is left now.
        """
        self._reentry.check_not_interrupted()
        with self._lock:
            self._shared.check_usable()
            epoch = self._request_flush()
            self._usage.add_flush_listener(epoch, listener)
            return epoch

    def left(self, epoch: int) -> int:
        """Return the number of records that a flush still waits for: without a final result, or with callbacks that have not run."""
        with self._lock:
            return self._usage.left(epoch)

    def close(self, timeout: float | None) -> int:
        """Flush, stop the threads, and fail the records that are left after ``timeout`` seconds with `ProducerClosedError`.

        Returns the number of records that failed here, plus the number of records whose callbacks have not run; 0 is success. Closing
        twice is harmless: the second caller also waits, and gets the number of records that are left.

        Raises:
            ProducerError: As for `flush`; the producer stays open.
        """
        self._reentry.check_may_wait("close")
        shared = self._shared
        ends = None if timeout is None else self._now() + timeout
        this_thread = threading.get_ident()
        left, ours = 0, False
        try:
            try:
                with self._lock:
                    # Leave this to another thread that is in `close` already, perhaps a daemon thread while the interpreter ends. A
                    # signal handler that interrupted this thread's own `close` does everything itself: the interrupted call does not
                    # continue before the handler returns.
                    ours = not shared.closing or self._closer == this_thread
                    if ours:
                        shared.accepting = False
                        shared.closing = True
                        self._closer = this_thread
                        shared.notify_room()  # callers that wait for room need not wait longer
                        if shared.rejection is None:
                            self._drain(timeout)
            finally:
                # This runs even if an interrupt ends the flush, so that no record stays without a result.
                if ours:
                    left = self._completion.reject_all(
                        ProducerClosedError,
                        "the producer was closed before the record was acknowledged; it may or may not be stored",
                    )
            left += self._await_rest(ends)
        finally:
            if ours:
                self._loop.stop()
                wait_guards.pop(self, None)
        if ours:
            self._loop.join(_JOIN_TIMEOUT if left == 0 else 0.1)
        return left

    def forget_after_fork(self) -> None:
        """Reject all calls in a forked child: the threads do not exist there, and locks may be held forever."""
        shared = self._shared
        shared.renew_locks()
        self._copy_locks()
        self._loop.forget_after_fork()
        wait_guards.pop(self, None)
        self._usage.clear()
        text = "this producer belongs to the parent process; create a new one after the fork"
        shared.accepting = False
        shared.closing = True
        shared.rejection = (ProducerClosedError, text, None)
        self._completion.forget_after_fork(ProducerClosedError(text))

    # ------------------------------------------------------------------ what there is

    def full(self, timeout: float | None) -> BufferFullError:
        """Return the error for a caller that waited ``timeout`` seconds and found no room."""
        with self._lock:
            return self._usage.full(timeout)

    @property
    def pipelines(self) -> tuple[StreamPipeline, ...]:
        """All pipelines."""
        with self._lock:
            return tuple(self._shared.pipelines.values())

    @property
    def counters(self) -> Counters:
        """Counts of all pipelines together."""
        total = Counters()
        with self._lock:
            for pipeline in self._shared.pipelines.values():
                total.add(pipeline.counters)
        return total

    @property
    def outstanding(self) -> tuple[int, float]:
        """Number of records without a final result, and age of the oldest record in seconds. Visits every record."""
        with self._lock:
            live = [
                record for pipeline in self._shared.pipelines.values() for record in pipeline.pending.live
            ]
            now = self._now()
        return len(live), max(0.0, now - min((record.arrived for record in live), default=now))

    @property
    def buffered_bytes(self) -> int:
        """Bytes charged against ``max_buffered_bytes`` now."""
        return self._usage.bytes

    # ------------------------------------------------------------------ under the lock

    def _take(
        self,
        pipeline: StreamPipeline,
        record: BufferedRecord,
        data: bytes,
        hash_key: bytes,
        cost: int,
        place: Bin | None = None,
    ) -> None:
        """Take ownership of a record for which there is room. If this raises, call `_undo`.

        ``place`` is where `OpenAggregates` puts the record; None if it has an explicit hash key or details, or if the place is not known.
        """
        usage = self._usage
        usage.charge(cost)
        record._delivery = NOT_PLACED
        arrived = record.arrived
        if place is not None and place.entry is None and pipeline.known.ends:
            earlier = pipeline.queue.begin(place, record, data, hash_key, usage.epoch, arrived)
        else:
            earlier = pipeline.queue.add(record, data, hash_key, usage.epoch, arrived)
        due = arrived + pipeline.buffered_time
        if earlier or not self._loop.is_running or pipeline.topology.next_load is not None:
            self._loop.wake_for(pipeline)
        elif due < pipeline.next_poll or due < self._shared.sleeping_until:
            # Only the record's deadline is new.
            self._loop.poll_by(pipeline, due)

    def _undo(
        self,
        pipeline: StreamPipeline,
        record: BufferedRecord | None,
        held: int,
        count: int,
        kept: Sequence[BufferedRecord] = (),
    ) -> None:
        """Undo an interrupted `accept`: remove its record, and keep all others.

        ``held`` and ``count`` are the bytes and records that were charged before; the lock has been held since, so they are still right.
        ``kept`` are records of the same call that stay accepted.
        """
        shared = self._shared
        try:
            pipeline.queue.rebuild(self._now(), without=record)
            self._usage.bytes = held + sum(other.cost for other in kept)
            self._usage.count = count + len(kept)
            shared.agenda.touch(pipeline)
            shared.sleeping_until = -NEVER
            shared.wake.notify()
            shared.notify_room()
        except BaseException as error:
            # Interrupted again, or a bug: failing every record is better than leaving one without a result.
            self._completion.crash(error)
            raise

    def _wait_for_room(self, cost: int, timeout: float | None) -> None:
        if timeout != 0 and self._reentry.may_wait_for_room():
            shared, usage = self._shared, self._usage
            token = object()
            try:
                shared.waiting_puts.add(token)
                self._loop.start()
                shared.wake.notify()
                shared.changed.wait_for(lambda: usage.has_room(cost) or not shared.accepting, timeout)
            finally:
                shared.waiting_puts.discard(token)
            shared.check_open()
        if not self._usage.has_room(cost):
            raise self._usage.full(timeout)

    def _drain(self, timeout: float | None) -> int:
        """Flush; return the number of records that are left after ``timeout`` seconds."""
        usage = self._usage
        epoch = self._request_flush()
        if usage.left(epoch):
            # This also ends if the producer crashes meanwhile: then all records fail, which is a final result.
            self._shared.changed.wait_for(lambda: usage.left(epoch) == 0, timeout)
        return usage.left(epoch)

    def _request_flush(self) -> int:
        epoch = self._usage.end_epoch()
        if self._usage.left(epoch):
            self._shared.flush_requested = epoch
            self._loop.start()
            self._shared.wake.notify()
        return epoch

    # ------------------------------------------------------------------ without the lock

    def _await_rest(self, ends: float | None) -> int:
        """Wait for final results and callbacks; return the number of records that still lack a result or a callback at ``ends``."""
        completion, usage = self._completion, self._usage
        with self._lock:
            if not completion.is_at_rest():
                left = None if ends is None else max(0.0, ends - self._now())
                self._shared.changed.wait_for(completion.is_at_rest, left)
            count, callbacks = usage.count, usage.open_callbacks
        if callbacks:
            # Log without the lock: a logging handler may put the log record, and hold a lock of its own meanwhile.
            _LOGGER.warning("callbacks of %d records had not run when close() returned", callbacks)
        return count + callbacks
