"""The threads of a producer and what they work on: one lock, one engine thread, a pool of sending threads.

The engine thread wakes exactly when the next deadline is due, polls the pipelines and hands requests to the pool; a
pool thread makes one call and brings its result back. What callers do is in `engine`.

The end of a record has four steps (`_finish`): hooks for failed records, and metrics, see their payload; the futures
become final and the payload is released; its room is given back; callbacks run, and `flush` counts it. So when
`flush` returns, every future is final and every hook and callback has run, and a callback finds room for what it puts.
Callbacks do not run on the engine thread, which every stream needs, but on the pool's.

Standing still: where a process is frozen and thawed (Lambda between two invocations, a paused container), the
clock may have jumped. While there are records the engine thread looks at the clock at least each second; a jump
of more than a few seconds is time that no record has to answer for (`_moment`).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import KinesisSdkError, ProducerError
from kinesis_sdk.producer.buffer_usage import BufferUsage, callback_runs
from kinesis_sdk.producer.collector import Batch
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.failure_hooks import FailureHooks, is_power_of_two
from kinesis_sdk.producer.metrics import ProducerMetrics, Reading
from kinesis_sdk.producer.pending import Settled
from kinesis_sdk.producer.pipeline import StreamPipeline
from kinesis_sdk.producer.record import CallbackRun, PendingRecord, mark_failed, mark_stored
from kinesis_sdk.producer.sender import TaskPool, load_facts, put_records, without_frames

_LOGGER = logging.getLogger(__name__)
_NEVER = float("inf")
_LONGEST_SLEEP = 3_600.0
_PRESS_INTERVAL = 0.05
_HEARTBEAT = 1.0
_STANDSTILL = 5.0
"""Seconds between two looks at the clock, while there are records, from which on the process stood still."""

Relay: TypeAlias = Callable[[Sequence[PendingRecord]], None]
"""Told of each group of records that became final, without the lock, before `flush` counts them; never raising."""

_Group: TypeAlias = tuple[StreamPipeline, list[Settled]]
"""Final results of one stream."""


class _Serving(threading.local):
    """Whether a thread brings results now, so that it must not wait for any."""

    here = False


class IoLoop:
    """The producer's threads, and the state that they share with its callers under `_lock`.

    Args:
        client: Kinesis client; thread-safe.
        config: Settings.
        clock: Time.
        rng: Jitter.
        hooks: Who hears of failed records.
        metrics: Who hears of everything; None where nobody listens.

    Attributes:
        relay: Brings results to event loops.
    """

    def __init__(
        self,
        client: KinesisClient,
        config: ProducerConfig,
        clock: Clock,
        rng: random.Random,
        hooks: FailureHooks | None = None,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        self._client = client
        self._config = config
        self._hooks = hooks
        self._metrics = metrics
        self._unsampled = False
        self.relay: Relay | None = None
        self._clock = clock
        self._now = clock.monotonic
        self._rng = rng
        self._make_locks()
        self._pipelines: dict[str, StreamPipeline] = {}
        self._in_flight = 0
        self._usage = BufferUsage(config.max_buffered_bytes, config.max_buffered_records)
        self._settling: dict[int, list[_Group]] = {}
        self._blocked: set[object] = set()
        self._looked = clock.monotonic()
        self._pressed = -_NEVER
        self._sleeping_until = -_NEVER
        self._flush_requested = -1
        self._flushed = -1
        self._closing = False
        self._closer: int | None = None
        self._stopped = False
        # Why nothing is accepted any more: the class and text of the error, and its cause.
        self._broken: tuple[type[ProducerError], str, BaseException | None] | None = None
        self._pool = self._new_pool()
        self._thread: threading.Thread | None = None

    def _make_locks(self) -> None:
        self._lock = threading.RLock()
        self._held_here: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]
        self._wake = threading.Condition(self._lock)
        self._changed = threading.Condition(self._lock)
        self._serving = _Serving()

    def _new_pool(self) -> TaskPool:
        # Two more than requests at a time: shard maps load while all connections are busy.
        return TaskPool("kinesis-sdk-sender", self._config.max_connections + 2)

    def _is_broken(self) -> bool:
        return self._broken is not None

    def _unfinished(self) -> list[Settled]:
        """Final results that the futures may not have yet."""
        items = [item for groups in self._settling.values() for _, settled in groups for item in settled]
        items.extend(item for pipeline in self._pipelines.values() for item in pipeline.settled)
        return items

    def _notify_room(self) -> None:
        self._changed.notify_all()
        self._usage.notify_room()

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

    def _take_settled(self) -> list[_Group]:
        """Collect final results of all pipelines, for `_finish`."""
        groups = [
            (pipeline, pipeline.take_settled()) for pipeline in self._pipelines.values() if pipeline.settled
        ]
        if groups:
            self._settling[id(groups)] = groups
        return groups

    def _finish(self, groups: list[_Group], *, pooled: bool = False) -> None:
        """The end of records, as the top of this module says. Call it without the lock.

        Args:
            groups: Their final results.
            pooled: Callbacks run on a thread of the pool, instead of this one.
        """
        if not groups:
            return
        runs: list[CallbackRun] = []
        try:
            for pipeline, settled in groups:
                if self._metrics is not None:
                    self._metrics.settled(pipeline.stream, settled, pipeline.topology.predict)
                if self._hooks is not None:
                    self._hooks.tell(pipeline.stream, settled)
                for item in settled:
                    self._resolve(item, runs)
        except BaseException:
            # An interrupt, in `close`: the others get their results all the same, and who has one keeps it.
            for _, settled in groups:
                for item in settled:
                    self._resolve(item, runs)
            raise
        finally:
            with self._lock:
                self._settling.pop(id(groups), None)  # forgotten in a child that a hook or callback forked
                for _, settled in groups:
                    for item in settled:
                        self._usage.release(item)
                self._usage.callbacks.update(dict.fromkeys(runs))
                pooled = pooled and not self._stopped
                self._notify_room()
                self._usage.notify_flushes()
            if runs and pooled:
                self._pool.submit(lambda: self._call_back(runs))
            elif runs:
                self._run_callbacks(runs)

    def _resolve(self, item: Settled, runs: list[CallbackRun]) -> None:
        """Make the futures of a final result final, and add their callbacks to ``runs``."""
        called: list[PendingRecord] = []
        if item.entry is not None and item.stored is not None:
            called = mark_stored(item.entry, item.stored)
        elif item.error is not None:
            called = mark_failed(item.records, item.error)
        if called:
            runs.extend(callback_runs(called, item))
        if self.relay is not None:
            self.relay(item.records)

    def _call_back(self, runs: list[CallbackRun]) -> None:
        self._serving.here = True
        try:
            self._run_callbacks(runs)
        except BaseException as error:  # noqa: BLE001 - as in _run
            self._crash(error)

    def _run_callbacks(self, runs: list[CallbackRun]) -> None:
        """Run callbacks that are in the accounts, and take them out. Call it without the lock."""
        try:
            for run in runs:
                run.run()
        except BaseException:
            for run in runs:  # an interrupt, in `close`: the others run all the same
                run.run()
            raise
        finally:
            with self._lock:
                for run in runs:
                    self._usage.callbacks.pop(run, None)
                self._changed.notify_all()
                self._usage.notify_flushes()

    def _moment(self) -> float:
        """Now, under the lock. Time in which the process stood still is not counted against its records."""
        now = self._clock.monotonic()
        gap, self._looked = now - self._looked, now
        if gap > _STANDSTILL and self._usage.count:
            for pipeline in self._pipelines.values():
                pipeline.forgive(gap, now)
        return now

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
            self._notify_room()
        serving, self._serving.here = self._serving.here, True
        try:
            try:
                self._finish(settled)
            finally:
                self._finish(failed)
            self._sample()
        finally:
            self._serving.here = serving
        return sum(len(item.records) for _, items in failed for item in items)

    # ------------------------------------------------------------------ the engine thread

    def _run(self) -> None:
        self._serving.here = True
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
            now = self._moment()
            work, loads = self._collect_work(now)
            settled = self._take_settled()
            self._unsampled |= self._usage.count > 0
            sample = self._next_sample() <= now
            if not work and not loads and not settled and not sample:
                slots = self._config.max_connections - self._in_flight
                wake = min((p.next_event(now, slots) for p in self._pipelines.values()), default=_NEVER)
                wake = min(wake, self._next_press(), self._next_sample())
                self._sleeping_until = wake
                longest = _HEARTBEAT if self._usage.count else _LONGEST_SLEEP
                self._wake.wait(max(0.0, min(wake - now, longest)))
                self._sleeping_until = -_NEVER
                return True
        for pipeline, batch in work:
            self._pool.submit(lambda p=pipeline, b=batch: self._send(p, b))  # type: ignore[misc]
        for pipeline in loads:
            self._pool.submit(lambda p=pipeline: self._load(p))  # type: ignore[misc]
        if sample:
            self._sample()
        self._finish(settled, pooled=True)
        return True

    def _next_sample(self) -> float:
        """When metrics want to know what is pending; infinity if nothing was since they last did."""
        return self._metrics.next_sample if self._metrics is not None and self._unsampled else _NEVER

    def _sample(self) -> None:
        """Tell metrics what is pending and what came. Call it without the lock."""
        if self._metrics is None:
            return
        with self._lock:
            now = self._clock.monotonic()
            readings = [
                Reading(
                    pipeline.stream,
                    pipeline.counters.user_records_put,
                    pipeline.counters.wrong_shard_entries,
                    pipeline.pending,
                )
                for pipeline in self._pipelines.values()
            ]
            self._unsampled = False
        self._metrics.sample(now, readings)

    def _next_press(self) -> float:
        """When to hurry because a `put` waits for room; infinity if none does.

        Not all the time: requests should still have company, and what comes back failed has a delay of its own.
        """
        return self._pressed + _PRESS_INTERVAL if self._blocked or self._usage.room_listeners else _NEVER

    def _press(self, now: float) -> None:
        """A `put` waits for room, and deadlines may be far away."""
        self._pressed = now
        resting = all(pipeline.is_idle for pipeline in self._pipelines.values())
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
        self._serving.here = True
        try:
            if self._is_broken():
                return  # all records failed already
            batch.started = self._clock.monotonic()
            failure: KinesisSdkError | None = None
            response: Mapping[str, Any] = {}
            try:
                response = put_records(self._client, pipeline.stream, batch)
            except KinesisSdkError as error:
                failure = without_frames(error)
            if self._metrics is not None:
                ended = self._clock.monotonic()
                self._metrics.request(pipeline.stream, batch, response, failure, ended)
            with self._lock:
                if self._is_broken():
                    return
                self._in_flight -= 1
                now = self._moment()
                if failure is None:
                    pipeline.on_response(batch, response, now)
                else:
                    pipeline.on_failure(batch, failure, now)
                settled = self._take_settled()
                self._wake.notify()
            self._finish(settled)
        except BaseException as error:  # noqa: BLE001 - as in _run
            self._crash(error)

    def _load(self, pipeline: StreamPipeline) -> None:
        self._serving.here = True
        try:
            facts = None
            failure: KinesisSdkError | None = None
            try:
                facts = load_facts(self._client, pipeline.stream, describe=pipeline.topology.describing)
            except KinesisSdkError as error:
                failure = without_frames(error)
            with self._lock:
                if self._is_broken():
                    return
                now = self._moment()
                if facts is not None:
                    try:
                        pipeline.on_facts(facts, now)
                    except KinesisSdkError as error:
                        failure = without_frames(error)
                if failure is not None:
                    pipeline.on_facts_failed(failure, now)
                failures = pipeline.topology.failures
                settled = self._take_settled()
                self._wake.notify()
            if failure is not None and is_power_of_two(failures):
                # Less and less often: while records wait for a missing stream, a load fails every two seconds.
                _LOGGER.warning(
                    "stream %s: shard map not loaded, %d failures in a row: %s",
                    pipeline.stream,
                    failures,
                    failure,
                )
            self._finish(settled)
        except BaseException as error:  # noqa: BLE001 - as in _run
            self._crash(error)

    def _crash(self, error: BaseException) -> None:
        """An error that should not exist: say so, fail every record, take no more."""
        _LOGGER.critical("the producer's engine failed", exc_info=error)
        self._break(ProducerError, f"the producer's engine failed: {type(error).__name__}: {error}", error)
