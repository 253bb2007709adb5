"""A whole worker without threads: lease coordinator, shard consumers and scheduler.

A `Runtime` supplies time and threads. `Worker` runs the three loops (`ConsumerEngine.renew`, ``tick_table`` and
``scheduler.dispatch``) on threads. Tests call `ConsumerEngine.tick` with virtual time, so that a fleet with crashes and
resharding runs in one thread and every run repeats exactly.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.errors import (
    AwsConfigError,
    ConfigError,
    KinesisSdkError,
    LeaseLostError,
    PermanentAwsError,
    SinkError,
)
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.metrics import (
    APPLICATION_NAME,
    SHARD_ID,
    WORKER_IDENTIFIER,
    BoundMetrics,
    Metrics,
    NoMetrics,
    Scope,
    SinkFailures,
    stream_dimensions,
)
from kinesis_sdk.common.position import Position
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.engine.fetchers import FetcherSource
from kinesis_sdk.consumer.engine.lease_coordinator import LeaseCoordinator
from kinesis_sdk.consumer.engine.stall_detector import StallDetector, find_stall
from kinesis_sdk.consumer.fetch.budget import ByteBudget
from kinesis_sdk.consumer.fetch.fetcher import Fetcher
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.health import LeaseProblem, ShardHealth
from kinesis_sdk.consumer.leases.java.worker_metrics import JavaMembership
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.consumer.leases.table.store import LeaseStore
from kinesis_sdk.consumer.runtime.runtime import Runtime, run_now
from kinesis_sdk.consumer.runtime.scheduler import Scheduler, Task
from kinesis_sdk.consumer.runtime.threads import result_of
from kinesis_sdk.consumer.shard.consumer import ShardConsumer
from kinesis_sdk.consumer.shard.runtime import ShardRuntime
from kinesis_sdk.consumer.shard.state import ShardState, ShutdownReason
from kinesis_sdk.consumer.shard_sync.children import ChildLeases
from kinesis_sdk.consumer.sinks.sink import AnySink
from kinesis_sdk.consumer.streams import StreamDirectory, Streams, TrackedStream
from kinesis_sdk.consumer.until import Until, UntilOption, service_date

_LOGGER = FieldLogger(logging.getLogger(__name__))

_SINK_RETRIES = Backoff(0.5, 5.0)
_SINK_WAIT = 60.0
"""Seconds for which a start retries transient failures of the sink."""

_STREAM_OPERATIONS = ("ListShards", "GetShardIterator", "GetRecords", "DescribeStreamSummary")


def _millis(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


class ConsumerEngine:
    """A whole worker without threads, driven by calls that pass the time. Implements `CoordinatorListener` and `StallHandler`.

    ``_lock`` guards the table of consumers and is a leaf. `Worker`'s module states the lock order.

    Args:
        stream: The stream to consume, for the single-stream form of the lease table.
        streams: Several streams instead of ``stream``, see `Worker`.
        application_name: Dimension of all metrics, and default name of the registered consumer for enhanced fan-out.
        metrics: Sink for metrics; None records nothing.
        membership: Membership in a fleet of Java KCL 3 workers; None for a fleet without such workers.
        until: The moment up to which records are processed before the worker ends, see `Worker`; None if it does not end by itself.
        sink: Store in which effects and positions change together, see `Worker`; None without a sink.

    Attributes:
        error: The first fatal error, or None.
    """

    def __init__(
        self,
        *,
        stream: StreamId | None = None,
        streams: Streams | None = None,
        worker_id: str,
        application_name: str = "",
        config: ConsumerConfig,
        handlers: HandlerSource,
        store: LeaseStore,
        kinesis: KinesisClient,
        runtime: Runtime,
        metrics: Metrics | None = None,
        membership: JavaMembership | None = None,
        until: UntilOption | None = None,
        sink: AnySink | None = None,
    ) -> None:
        self.worker_id = worker_id
        self._logger = FieldLogger(_LOGGER, stream=stream, worker=worker_id)
        self._until_option = until
        self._until: Until | None = None
        self.error: BaseException | None = None
        self._config = config
        self._streams = StreamDirectory(
            config, kinesis, stream=stream, streams=streams, sleep=runtime.sleep, worker_id=worker_id
        )
        self._kinesis = kinesis
        self._runtime = runtime
        self._clock = runtime.clock
        self._lock = threading.Lock()
        self._consumers: dict[str, tuple[ShardConsumer, Task]] = {}
        # Lease key of a parent ─► token ─► consumer of a child.
        self._children: dict[str, dict[str, tuple[ShardConsumer, Task]]] = {}
        self._broken: set[str] = set()
        self._stopping = False
        self._in_table_tick = False
        self._delivered_before = 0
        self._sink: Metrics = metrics or NoMetrics()
        self._sink_failures = SinkFailures()
        self._application_name = application_name
        self._metrics = BoundMetrics(
            self._sink,
            Scope({APPLICATION_NAME: application_name, WORKER_IDENTIFIER: worker_id}),
            self._sink_failures,
        )
        self._budget = ByteBudget(config.retrieval.max_prefetch_bytes)
        self._stall_detector = StallDetector(
            # An idle shard is read rarely; that must not count as a stall.
            max(config.failure.stall_timeout, 2 * config.retrieval.idle_times(billed=True)[2]),
            handler_timeout=config.failure.handler_timeout,
            handler=self,
            measured=self._metrics.enabled,
        )
        if sink is not None:
            # The position in the sink counts, so the worker checkpoints the lease by itself.
            handlers = replace(handlers, auto_checkpoint=True)
        self._effects = sink
        if config.auto_checkpoint is not None:
            handlers = replace(handlers, auto_checkpoint=config.auto_checkpoint)
        self.coordinator: LeaseCoordinator = LeaseCoordinator(
            streams=self._streams,
            worker_id=worker_id,
            config=config,
            store=store,
            kinesis=kinesis,
            runtime=runtime,
            listener=self,
            metrics=self._metrics,
            membership=membership,
            sink=sink,
            application_name=application_name,
        )
        self.scheduler: Scheduler = Scheduler(runtime.run_step, runtime.clock, partial(runtime.wake, "steps"))
        self._fetchers = FetcherSource(
            kinesis=kinesis,
            retrieval=config.retrieval,
            application_name=application_name,
            budget=self._budget,
            scheduler=self.scheduler,
            run=runtime.run_fetch,
            rng=runtime.rng,
            clock=runtime.clock,
            worker_id=worker_id,
        )
        self._handlers = handlers
        self._store = store
        self._shard_runtimes: dict[str | None, ShardRuntime] = {}

    def _shard_runtime(self, tracked: TrackedStream) -> ShardRuntime:
        """Return the runtime that the shard consumers of one stream share."""
        runtime = self._shard_runtimes.get(tracked.key)
        if runtime is None:

            def listed() -> list[Shard]:
                return list_shards(self._kinesis, tracked.stream)

            runtime = self._shard_runtimes[tracked.key] = ShardRuntime(
                stream=tracked.stream,
                worker_id=self.worker_id,
                config=tracked.config,
                handlers=self._handlers,
                store=self._store,
                children=ChildLeases(
                    self._store, listed, self._request_sync, tracked, worker_id=self.worker_id
                ),
                open_fetcher=partial(self._open_fetcher, tracked),
                list_shards=listed,
                measure=partial(self._measure, tracked.stream),
                clock=self._runtime.clock,
                rng=self._runtime.rng,
                sleep=self._runtime.sleep,
                lease_key=tracked.lease_key,
                budget=self._budget,
                run_step=self._runtime.run_step,
                run_async=self._runtime.run_async,
                until=self._until,
                sink=self._effects,
                application_name=self._application_name,
            )
        return runtime

    def _measure(self, stream: StreamId, shard_id: str) -> BoundMetrics:
        """Return the metrics of one acquisition of a shard."""
        scope = Scope(
            {APPLICATION_NAME: self._application_name, **stream_dimensions(stream), SHARD_ID: shard_id}
        )
        return BoundMetrics(self._sink, scope, self._sink_failures)

    def start(self) -> None:
        """Check the streams and the lease table, and create missing leases."""
        if self._effects is not None:
            self._make_ready(self._effects)
        self.coordinator.start()
        if self._until_option is not None:
            self._until = self.coordinator.until = self._resolve_until(self._until_option)
            self._logger.info(
                "worker %s: ends once everything until %s is processed", self.worker_id, self._until
            )
        # Not on the pool for steps: the check must report stalls even if handlers hang in all threads of that pool.
        self.scheduler.wake(self.scheduler.add(self._check_stalls, run_now))

    def _make_ready(self, sink: AnySink) -> None:
        """Make the sink ready; transient errors are retried for `_SINK_WAIT` seconds."""
        deadline = self._clock.monotonic() + _SINK_WAIT
        failures = 0
        while True:
            try:
                return result_of(self._runtime.run_async, sink.ensure_ready())
            except SinkError as error:
                failures += 1
                pause = _SINK_RETRIES.pause(failures, self._runtime.rng)
                if not error.retryable or self._clock.monotonic() + pause > deadline:
                    raise
                self._logger.warning("worker %s: the sink is not ready, retrying: %s", self.worker_id, error)
                self._runtime.sleep(pause)

    def _resolve_until(self, until: UntilOption) -> Until:
        """Resolve ``until`` by the clock of Kinesis, which also decides about idle shards. Cost: one ListShards."""
        tracked = next(iter(self._streams.current()), None)
        if tracked is None:
            raise ConfigError("streams", "none", "at least one stream at the start of a worker with until")
        date = service_date(self._kinesis, tracked.stream, self._runtime.sleep)
        self._fetchers.observe_service_time(date, self._clock.monotonic())
        return Until.resolve(until, date)

    def tick(self, now: float) -> float | None:
        """Do all due work on the caller's thread; return the next due time, or None once stopped.

        This requires a runtime that runs functions inline, see `InlineRuntime`.
        """
        self.renew(now)
        self.tick_table(now)
        self.scheduler.dispatch(now)
        if self.is_stopped:
            return None
        # Steps and scans change each other's due times, so read them after all of them ran.
        following = [self.renew(now), self.tick_table(now)]
        due = self.scheduler.dispatch(now)
        if due is not None:
            following.append(due)
        return None if self.is_stopped else min(following)

    def renew(self, now: float) -> float:
        """Send the heartbeats that are due; return the next due time. Body of the renewal loop."""
        return self.coordinator.renew(now)

    def tick_table(self, now: float) -> float:
        """Run the table loops that are due; return the next due time. A fatal error starts a clean stop."""
        with self._lock:
            self._in_table_tick = True
        try:
            return self.coordinator.tick(now)
        except KinesisSdkError as error:
            self.on_fatal_error(error)
            return now + self._config.leases.lease_scan_interval
        finally:
            with self._lock:
                self._in_table_tick = False
            self._report_stopped()

    # Stopping

    def request_stop(self) -> None:
        """Start a clean stop: running callbacks finish, handlers may checkpoint, leases are released."""
        with self._lock:
            first, self._stopping = not self._stopping, True
            entries = [*self._consumers.values()]
        if first:
            self._logger.info("worker %s: stopping, %d shards", self.worker_id, len(entries))
        self.coordinator.stop_taking()
        self._runtime.wake("table")
        for consumer, task in entries:
            consumer.request_stop()
            self.scheduler.wake(task)
        self._report_stopped()

    def on_until_reached(self) -> None:
        """Stop, because the fleet processed everything that arrived before ``until``."""
        self._logger.info("worker %s: everything until %s is processed", self.worker_id, self._until)
        self.request_stop()

    def on_fatal_error(self, error: BaseException) -> None:
        """Keep the first fatal error and start a clean stop."""
        with self._lock:
            first = self.error is None
            if first:
                self.error = error
        if first:
            self._logger.error(
                "worker %s: fatal error, stopping: %s: %s", self.worker_id, type(error).__name__, error
            )
        self.request_stop()

    def abort(self) -> None:
        """Stop immediately: deliver and write nothing more, and let the leases expire."""
        self.request_stop()
        for held in self.coordinator.held:
            held.let_expire("the worker was aborted")
            self.coordinator.forget(held)
        # Retire the metrics here. The next steps may never run: a handler hangs, or the pool is closed.
        with self._lock:
            consumers = [consumer for consumer, _ in self._consumers.values()]
        for consumer in consumers:
            consumer.metrics.retire()
        self._metrics.retire()

    @property
    def until(self) -> Until | None:
        """The moment up to which records are processed before the worker ends; None before `start`, and if it does not end by itself."""
        return self._until

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stopping

    @property
    def is_stopped(self) -> bool:
        """Whether a requested stop is complete."""
        with self._lock:
            # A table tick that was running when the stop was requested may still take a lease, which must then be
            # released. Without `_in_table_tick`: the tick has sent its take; the stop finds no consumer and reports
            # that it is complete; the process ends; the take succeeds, and the lease has to expire.
            return (
                self._stopping
                and not self._consumers
                and not self._in_table_tick
                and not self.coordinator.is_winding_down
            )

    def _report_stopped(self) -> None:
        if self.is_stopped:
            self._metrics.retire()
            self._runtime.on_stopped()

    # Events of leases and streams (`CoordinatorListener`)

    def on_lease_acquired(self, held: HeldLease) -> None:
        """Start a shard consumer for a lease that was taken."""
        tracked = self._streams.find(held.lease)
        if tracked is None:
            # The scan found the stream and the take was sent; meanwhile an error in a shard of the stream suspended the
            # stream.
            self.coordinator.forget(held)
            return
        consumer = ShardConsumer(self._shard_runtime(tracked), held)
        task = self.scheduler.add(lambda now: self._step(consumer, now))
        consumer.on_ready = lambda: self.scheduler.wake(task)
        consumer.between_steps = partial(self.scheduler.between_steps, task)
        # Register the consumer before its first step: that step may end it, and `_completed` looks it up.
        with self._lock:
            if self._stopping:
                consumer.request_stop()
            self._consumers[held.token] = (consumer, task)
            for parent in consumer.parent_keys:
                self._children.setdefault(parent, {})[held.token] = (consumer, task)
        self.scheduler.wake(task)
        self._runtime.wake("renewals")

    def on_lease_lost(self, held: HeldLease) -> None:
        """End the shard consumer of a lost lease."""
        with self._lock:
            entry = self._consumers.get(held.token)
        if entry is not None:
            # Retire the metrics here and not in the consumer's next step: the handler may hang for long, while the next
            # owner already records the same series.
            entry[0].metrics.retire()
            self.scheduler.wake(entry[1])

    def on_handoff_requested(self, held: HeldLease) -> None:
        """End the shard consumer cleanly, and release the lease to the requester."""
        self._logger.info(
            "lease %s: handoff requested by %s",
            held.key,
            printable(held.handoff_requester or ""),
            extra=self._lease_fields(held),
        )
        with self._lock:
            entry = self._consumers.get(held.token)
        if entry is not None:
            self.scheduler.wake(entry[1])

    def on_release_wanted(self, held: HeldLease) -> None:
        """End the shard consumer cleanly, and release the lease."""
        with self._lock:
            entry = self._consumers.get(held.token)
        if entry is not None:
            entry[0].request_stop()
            self.scheduler.wake(entry[1])

    def _lease_fields(self, held: HeldLease) -> dict[str, str | None]:
        tracked = self._streams.find(held.lease)
        return log_fields(stream=None if tracked is None else tracked.stream, shard=held.shard_id)

    def busy_lease_keys(self) -> Collection[str]:
        """Return the keys of leases with a shard consumer, including consumers that are winding down."""
        with self._lock:
            return {consumer.held.key for consumer, _ in self._consumers.values()}

    def on_streams_changed(self) -> None:
        """Release the leases of streams that are no longer consumed."""
        with self._lock:
            entries = [*self._consumers.values()]
        for consumer, task in entries:
            if self._streams.find(consumer.held.lease) is None:
                consumer.request_stop()
                self.scheduler.wake(task)

    def on_stream_unavailable(self, tracked: TrackedStream, error: KinesisSdkError) -> None:
        """Suspend one of several streams until the streams are listed again, and release its leases."""
        if self._streams.suspend(tracked, str(error)):
            self._logger.error(
                "stream %s: suspended, cannot be consumed: %s",
                tracked,
                error,
                extra=log_fields(stream=tracked.stream),
            )
            self.on_streams_changed()

    def _request_sync(self) -> None:
        self.coordinator.request("sync")
        self._runtime.wake("table")

    # Shard consumers

    def _step(self, consumer: ShardConsumer, now: float) -> float | None:
        try:
            due = consumer.step(now)
        except BaseException as error:  # noqa: BLE001 - a pool thread must not lose it; run() raises it
            if not self._suspends_stream(consumer, error):
                self.on_fatal_error(error)
            token = consumer.held.token
            if token in self._broken:
                consumer.abandon("abandoned after an error")  # a second error, while it stops
                due = None
            else:
                self._broken.add(token)
                due = now
        if due is None:
            self._completed(consumer)
        return due

    def _suspends_stream(self, consumer: ShardConsumer, error: BaseException) -> bool:
        """Suspend the stream if the error concerns only this stream (deleted, access denied); return False if the worker must end."""
        if (
            self._streams.is_single
            or not isinstance(error, PermanentAwsError)
            or isinstance(error, AwsConfigError)
            or error.operation not in _STREAM_OPERATIONS
        ):
            return False
        tracked = self._streams.find(consumer.held.lease)
        if tracked is not None:
            self.on_stream_unavailable(tracked, error)
        return True

    def _completed(self, consumer: ShardConsumer) -> None:
        """Remove a consumer that ended. It is called twice if a hung handler was abandoned and ended later."""
        self.coordinator.forget(consumer.held)
        if consumer.reason is ShutdownReason.HANDOFF:
            self._runtime.wake("table")  # the table loop watches the outgoing lease
        with self._lock:
            if self._consumers.pop(consumer.held.token, None) is not None:
                self._delivered_before += consumer.progress.records_delivered
                for parent in consumer.parent_keys:
                    siblings = self._children[parent]
                    del siblings[consumer.held.token]
                    if not siblings:
                        del self._children[parent]
            # Wake only the children of this shard: each check of parents reads the table, and a thousand other shards may wait.
            children = [*self._children.get(consumer.held.key, {}).values()]
        if consumer.held.changed_from_outside and not self._stopping:
            self.coordinator.request("scan")  # the row still names this worker, which takes the lease again
            self._runtime.wake("table")
        if consumer.reason is ShutdownReason.SHARD_END:
            self._fetchers.forget(consumer.held.key)
            for child, task in children:
                if child.is_waiting_on_parents:
                    self.scheduler.wake(task)
            if not self._stopping:
                self.coordinator.request("scan")  # the leases of its children are unassigned
                self._runtime.wake("table")
        self._report_stopped()

    def _open_fetcher(
        self,
        tracked: TrackedStream,
        shard_id: str,
        start: Position,
        now: float,
        on_ready: Callable[[], None],
        metrics: BoundMetrics,
        *,
        polled: bool = False,
        look_up: int | None = None,
    ) -> Fetcher:
        key = tracked.lease_key(shard_id)
        if look_up is not None:
            return self._fetchers.open_look_up(tracked.stream, shard_id, key, start, now, look_up)
        return self._fetchers.open(
            tracked.stream,
            shard_id,
            key,
            start,
            now,
            on_ready,
            metrics=metrics,
            consumer_arn=tracked.config.retrieval.consumer_arn,
            polled=polled,
        )

    # Stalls (`StallHandler`)

    def _check_stalls(self, now: float) -> float | None:
        if self.is_stopped:
            return None
        with self._lock:
            consumers = [consumer for consumer, _ in self._consumers.values()]
        return self._stall_detector.check(consumers, now)

    def restart_read(self, consumer: ShardConsumer) -> None:
        """Restart reading after the last accepted record; the hung read keeps its thread."""
        consumer.restart_read()
        self._runtime.replace_stuck_thread("fetches")
        consumer.on_ready()

    def release_shard(self, consumer: ShardConsumer) -> None:
        """Release the lease of a hung handler, which keeps its thread."""
        self._runtime.replace_stuck_thread("steps")
        # The release calls the table, so it must not block the loop that starts all steps.
        self._runtime.run_renewal(lambda: self._release_hung_shard(consumer))

    def _release_hung_shard(self, consumer: ShardConsumer) -> None:
        try:
            consumer.held.release()
        except LeaseLostError:
            pass  # a peer already holds the lease
        except KinesisSdkError as error:
            self._logger.warning(
                "lease %s: release failed, leaving it to expire: %s",
                consumer.held.key,
                error,
                extra=self._lease_fields(consumer.held),
            )
        except BaseException as error:  # noqa: BLE001 - a pool thread must not lose it
            self.on_fatal_error(error)
        consumer.abandon("its handler hangs")
        self._completed(consumer)

    # Health

    @property
    def records_delivered(self) -> int:
        """User records delivered since the start."""
        with self._lock:
            return self._delivered_before + sum(
                c.progress.records_delivered for c, _ in self._consumers.values()
            )

    def lease_problems(self) -> tuple[LeaseProblem, ...]:
        """Return the leases that need repair."""
        problems = self.coordinator.rows.problems
        return tuple(LeaseProblem(lease_key=key, problem=problems[key]) for key in sorted(problems))

    def shard_health(self) -> tuple[ShardHealth, ...]:
        """Return a snapshot of every shard consumer, sorted by shard id."""
        now = self._clock.monotonic()
        with self._lock:
            consumers = [consumer for consumer, _ in self._consumers.values()]
        return tuple(
            ShardHealth(
                shard_id=consumer.shard_id,
                state=consumer.state,
                oldest_unprocessed_millis=_millis(consumer.progress.oldest_unprocessed_age(now)),
                read_lag_millis=consumer.progress.last_read.millis_behind_latest,
                seconds_since_progress=now - consumer.progress.at,
                records_delivered=consumer.progress.records_delivered,
                checkpoint=consumer.held.lease.checkpoint,
                last_error=consumer.progress.last_error or consumer.held.problem,
                records_dead_lettered=consumer.progress.records_dead_lettered,
                stall=find_stall(consumer, now, self._stall_detector.timeout),
                quarantined=consumer.is_quarantined,
            )
            for consumer in sorted(consumers, key=lambda consumer: consumer.shard_id)
            if consumer.state is not ShardState.COMPLETE
        )
