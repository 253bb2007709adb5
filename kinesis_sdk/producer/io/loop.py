"""I/O loop of the producer: one coordinating thread and a pool of sender threads.

The loop sleeps until the earliest deadline of all streams, polls the pipelines that are due (`Agenda`), and submits requests and
loads to the pool. A pool thread makes one call, reports its outcome to the pipeline under the lock, and completes the records that have a
final result.

After a freeze (AWS Lambda between two invocations, a paused container), the lost time does not count against `record_ttl`. The loop
reads the clock at least once a second while there are records; a jump of several seconds is a freeze (`SharedState.read_clock`).
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.io.completion import Completion, Group
from kinesis_sdk.producer.io.metrics import MetricsSampler, ProducerMetrics
from kinesis_sdk.producer.io.sender import TaskPool, load_facts, put_records, without_frames
from kinesis_sdk.producer.io.shared import NEVER, SharedState
from kinesis_sdk.producer.stream.collector import Batch
from kinesis_sdk.producer.stream.pipeline import StreamPipeline
from kinesis_sdk.producer.stream.sealing import SealTask

_LOGGER = FieldLogger(logging.getLogger(__name__))
_MAX_SLEEP = 3_600.0
_HURRY_INTERVAL = 0.05
_HEARTBEAT = 1.0

PutRecords: TypeAlias = Callable[[KinesisClient, StreamId, Batch], Mapping[str, Any]]
"""Sends a request, as `sender.put_records` does."""


class IoLoop:
    """The producer's threads: they poll the pipelines, call Kinesis and report the outcomes.

    ``put`` sends a request: `sender.put_records`, or a wrapper around it. ``metrics`` and ``sampler`` are None if nothing is measured.
    """

    def __init__(
        self,
        client: KinesisClient,
        shared: SharedState,
        completion: Completion,
        metrics: ProducerMetrics | None = None,
        sampler: MetricsSampler | None = None,
        put: PutRecords = put_records,
    ) -> None:
        self._client = client
        self._put = put
        self._log_throttle = LogThrottle(_LOGGER)
        self._shared = shared
        self._completion = completion
        self._metrics = metrics
        self._sampler = sampler
        self._max_connections = shared.config.max_connections
        self._in_flight = 0
        self._flushed = -1
        self._hurried = -NEVER
        self._pool = self._new_pool()
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------ callers

    @property
    def is_running(self) -> bool:
        """Whether the thread of the loop was started."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread of the loop unless it runs. Call under the lock."""
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="kinesis-sdk-producer", daemon=True)
        self._thread = thread
        try:
            thread.start()
        except BaseException:
            # Not started. Or interrupted after the start: then the thread sees this and ends by itself.
            self._thread = None
            raise

    def wake_for(self, pipeline: StreamPipeline) -> None:
        """Schedule a pipeline whose state has changed. The loop is woken only if it would sleep longer.

        Call under the lock.
        """
        self.start()
        shared = self._shared
        if pipeline.pending.settled or shared.sleeping_until == -NEVER:
            # While the loop is awake, it polls the pipeline anyway. To compute the next event, each `put` would have to visit all busy
            # lanes.
            shared.agenda.touch(pipeline)
            moment = -NEVER
        else:
            moment = self._put_back(pipeline, shared.now())
        self._wake_before(moment)

    def poll_by(self, pipeline: StreamPipeline, moment: float) -> None:
        """Schedule a pipeline for a given time at the latest. The loop is woken only if it would sleep longer. Call under the lock."""
        self._shared.agenda.advance(pipeline, moment)
        self._wake_before(moment)

    def _wake_before(self, moment: float) -> None:
        """Wake the loop if it would sleep beyond this moment."""
        shared = self._shared
        if moment < shared.sleeping_until:
            shared.wake.notify()
            shared.sleeping_until = -NEVER

    def stop(self) -> None:
        """Let the threads of the pool end when all tasks are done."""
        self._shared.stopped = True
        self._pool.stop()

    def join(self, timeout: float) -> None:
        """Wait for the threads to end: at most ``timeout`` seconds for the loop's thread, and again for the pool's threads."""
        if self._thread is not None:
            self._thread.join(timeout)
        self._pool.join(timeout)

    def forget_after_fork(self) -> None:
        """Drop the references to the threads in a forked child, where they do not exist."""
        self._pool = self._new_pool()
        self._thread = None

    # ------------------------------------------------------------------ the thread of the loop

    def _new_pool(self) -> TaskPool:
        # Two more threads than concurrent requests, so that shard maps load while all connections are busy.
        return TaskPool("kinesis-sdk-sender", self._max_connections + 2)

    def _run(self) -> None:
        self._shared.delivering.here = True
        try:
            while self._turn():
                pass
        except BaseException as error:  # noqa: BLE001 - a bug here must fail every record, not hang them
            self._completion.crash(error)

    def _turn(self) -> bool:
        """Do the work that is due, or sleep until some work is due. Return False to end the thread."""
        shared, completion, sampler = self._shared, self._completion, self._sampler
        with shared.lock:
            if shared.rejection is not None or self._thread is not threading.current_thread():
                return False
            now = shared.read_clock()
            tasks, settled = self._collect_work(now)
            if sampler is not None:
                sampler.observe()
            sample = sampler is not None and sampler.next_sample <= now
            if not tasks and not settled and not sample:
                wake = min(
                    shared.agenda.next_moment,
                    self._next_hurry(),
                    sampler.next_sample if sampler is not None else NEVER,
                )
                shared.sleeping_until = wake
                longest = _HEARTBEAT if shared.usage.count else _MAX_SLEEP
                shared.wake.wait(max(0.0, min(wake - now, longest)))
                shared.sleeping_until = -NEVER
                return True
        for task in tasks:
            self._pool.submit(task)
        if sample and sampler is not None:
            sampler.sample()
        completion.finish(settled, self._pool)
        return True

    def _collect_work(self, now: float) -> tuple[list[Callable[[], None]], list[Group]]:
        """Return tasks for the pool (send requests, load shard maps, seal aggregates) and the final results to complete."""
        shared = self._shared
        pipelines, agenda = shared.pipelines, shared.agenda
        sends: list[Callable[[], None]] = []
        others: list[Callable[[], None]] = []
        if shared.flush_requested > self._flushed:
            self._flushed = shared.flush_requested
            for pipeline in self._busy():
                pipeline.queue.flush(self._flushed, now)
                agenda.touch(pipeline)
        if self._next_hurry() <= now:
            self._hurry(now)
        seen: list[StreamPipeline] = []
        for pipeline in agenda.due(now, self._has_connection):
            seen.append(pipeline)
            for batch in pipeline.queue.poll(now, self._max_connections - self._in_flight):
                self._in_flight += 1
                sends.append(functools.partial(self._send, pipeline, batch))
            if pipeline.pending.entries and pipeline.topology.wants_load(now):
                pipeline.topology.begin_load(now)
                others.append(functools.partial(self._load, pipeline))
            others.extend(
                functools.partial(self._seal, pipeline, tasks) for tasks in pipeline.queue.take_unsealed()
            )
        for pipeline in seen:
            self._put_back(pipeline, now)
        if len(pipelines) > 1:
            # Round-robin: the stream served first moves to the end.
            first = next(iter(pipelines))
            pipelines[first] = moved = pipelines.pop(first)
            agenda.enter(moved)
        return [*sends, *others], self._completion.take(seen)

    def _put_back(self, pipeline: StreamPipeline, now: float) -> float:
        """Note when a pipeline has to be polled next, and return that time."""
        queue, slots = pipeline.queue, self._max_connections - self._in_flight
        moment = queue.next_event(now, slots)
        self._shared.agenda.put_back(pipeline, moment, waits=slots == 0 and queue.has_requests)
        return moment

    def _has_connection(self) -> bool:
        return self._in_flight < self._max_connections

    def _busy(self) -> list[StreamPipeline]:
        """Return the pipelines that have records without a final result."""
        return [pipeline for pipeline in self._shared.pipelines.values() if pipeline.pending.entries]

    def _next_hurry(self) -> float:
        """Return the time at which to send early because a `put` waits for room; infinity if none waits.

        The loop does not send early all the time, because requests should still be shared, and retries have their own delay.
        """
        waiting = self._shared.waiting_puts or self._shared.usage.room_listeners
        return self._hurried + _HURRY_INTERVAL if waiting else NEVER

    def _hurry(self, now: float) -> None:
        """Send records before their deadlines, because a `put` waits for room."""
        self._hurried = now
        pipelines = self._busy()
        idle = all(pipeline.queue.is_idle for pipeline in pipelines)
        for pipeline in pipelines:
            self._shared.agenda.touch(pipeline)
            if idle:
                pipeline.queue.flush(-1, now)
            else:
                # A closed aggregate is in flight and will make room. Open aggregates would leave half empty, and emptier each
                # time, because a response makes room only for as many records as its request held.
                pipeline.queue.expedite()

    # ------------------------------------------------------------------ pool threads

    def _send(self, pipeline: StreamPipeline, batch: Batch) -> None:
        """Make one PutRecords call, and report its outcome."""
        shared = self._shared
        shared.delivering.here = True
        try:
            if shared.has_ended():
                return  # all records have failed already
            batch.started = shared.now()
            failure: KinesisSdkError | None = None
            response: Mapping[str, Any] = {}
            try:
                response = self._put(self._client, pipeline.stream, batch)
            except KinesisSdkError as error:
                failure = without_frames(error)
            if self._metrics is not None:
                self._metrics.request(pipeline.stream, batch, response, failure, shared.now())
            with shared.lock:
                if shared.has_ended():
                    return
                self._in_flight -= 1
                now = shared.read_clock()
                if failure is None:
                    pipeline.responses.on_response(batch, response, now)
                else:
                    pipeline.responses.on_failure(batch, failure, now)
                settled = self._completion.take((pipeline,))
                self._wake_before(self._put_back(pipeline, now))
                if shared.agenda.has_waiting:
                    shared.wake.notify()  # for the connection that is free now
            self._completion.finish(settled)
        except BaseException as error:  # noqa: BLE001 - as in _run
            self._completion.crash(error)

    def _seal(self, pipeline: StreamPipeline, tasks: Sequence[SealTask]) -> None:
        """Seal aggregates one after another, and report them together."""
        shared = self._shared
        shared.delivering.here = True
        try:
            for task in tasks:
                task.run()
            with shared.lock:
                if shared.has_ended():
                    return
                now = shared.read_clock()
                pipeline.queue.seals_ended(tasks, now)
                settled = self._completion.take((pipeline,))
                shared.agenda.touch(pipeline)
                shared.wake.notify()
            for error in [task.error for task in tasks if task.error is not None]:
                self._log_throttle.log(
                    now,
                    f"seal {pipeline.stream}",
                    "stream %s: an aggregate could not be compressed and is sent uncompressed: %s: %s",
                    pipeline.stream,
                    type(error).__name__,
                    error,
                    extra=log_fields(stream=pipeline.stream),
                )
            self._completion.finish(settled)
        except BaseException as error:  # noqa: BLE001 - as in _run
            self._completion.crash(error)

    def _load(self, pipeline: StreamPipeline) -> None:
        """Load the facts of a stream, and report them."""
        shared = self._shared
        shared.delivering.here = True
        try:
            facts = None
            failure: KinesisSdkError | None = None
            try:
                facts = load_facts(self._client, pipeline.stream, describe=pipeline.topology.describing)
            except KinesisSdkError as error:
                failure = without_frames(error)
            with shared.lock:
                if shared.has_ended():
                    return
                now = shared.read_clock()
                if facts is not None:
                    try:
                        pipeline.on_facts(facts, now)
                    except KinesisSdkError as error:
                        failure = without_frames(error)
                if failure is not None:
                    pipeline.responses.on_facts_failed(failure, now)
                failures = pipeline.topology.failures
                settled = self._completion.take((pipeline,))
                shared.agenda.touch(pipeline)
                shared.wake.notify()
            if failure is not None:
                # Throttled: while records wait for a missing stream, a load fails every two seconds.
                self._log_throttle.log(
                    now,
                    str(pipeline.stream),
                    "stream %s: failed to load shard map (attempt %d): %s",
                    pipeline.stream,
                    failures,
                    failure,
                    extra=log_fields(stream=pipeline.stream),
                )
            self._completion.finish(settled)
        except BaseException as error:  # noqa: BLE001 - as in _run
            self._completion.crash(error)
