"""A whole worker without threads: coordinator, shard consumers and scheduler, driven by `tick` or by threads.

`Worker` puts threads around it. Tests call `tick` with virtual time, so that a fleet with crashes and resharding
runs in one thread and repeats exactly.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Literal

from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import (
    AwsConfigError,
    AwsError,
    KinesisSdkError,
    LeaseLostError,
    PermanentAwsError,
)
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
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.engine.fetchers import FetcherSource
from kinesis_sdk.consumer.engine.lease_coordinator import LeaseCoordinator
from kinesis_sdk.consumer.engine.stall_detector import StallDetector, find_stall
from kinesis_sdk.consumer.fetch.budget import ByteBudget
from kinesis_sdk.consumer.fetch.fetcher import Fetcher, Position
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.health import LeaseProblem, ShardHealth
from kinesis_sdk.consumer.leases.java.worker_metrics import JavaMembership
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.consumer.leases.table.store import LeaseStore
from kinesis_sdk.consumer.runtime.scheduler import Run, Scheduler, Task
from kinesis_sdk.consumer.runtime.threads import run_inline
from kinesis_sdk.consumer.shard.consumer import ShardConsumer
from kinesis_sdk.consumer.shard.delivery import RunAsync
from kinesis_sdk.consumer.shard.state import ShardConsumerParts, ShardState, ShutdownReason
from kinesis_sdk.consumer.shard_sync.children import ChildLeases
from kinesis_sdk.consumer.streams import StreamDirectory, Streams, TrackedStream

_LOGGER = logging.getLogger(__name__)

_STREAM_OPERATIONS = ("ListShards", "GetShardIterator", "GetRecords", "DescribeStreamSummary")

Loop = Literal["renewals", "table", "steps"]
"""The three loops that threads run: `ConsumerEngine.renew`, ``tick_table`` and ``scheduler.dispatch``."""


def _inline(function: Callable[[], None]) -> None:
    function()


def _nothing() -> None:
    return None


def _wake_nobody(loop: Loop) -> None:
    del loop


def _millis(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


class ConsumerEngine:
    """Everything that a worker does, as functions of the time.

    Locks: ``_lock`` guards the table of consumers and is a leaf. See the package's lock order.

    Args:
        stream: The one stream.
        streams: Instead of it, several.
        worker_id: This worker's id in the lease table.
        application_name: Dimension of all metrics, and name of the registered consumer where enhanced fan-out is asked
            for.
        config: Settings.
        handlers: Makes handlers.
        store: Lease table.
        kinesis: boto3 Kinesis client or one of its shape.
        clock: Time.
        rng: Jitter and random choice.
        sleep: Waits inside calls (retries); a test advances its clock here.
        metrics: Sink for numbers.
        run_step: Runs steps of shards: a pool's ``submit``, or inline.
        run_fetch: Runs reads of shards: another pool's ``submit``, or inline.
        run_async: Runs coroutines, see `EventLoopThread.run`.
        run_renewal: Runs renewals: a pool's ``submit``, or inline.
        wake: Called from any thread with the loop whose due time may have moved forward.
        membership: Of a fleet of Java KCL 3 workers.
        on_stopped: Called from any thread once a requested stop is complete; perhaps more than once.
        on_stuck_read: Called when a read hangs: the thread that it has is lost for as long as it does.
        on_stuck_step: The same for a handler that is given up.

    Attributes:
        coordinator: The lease loops.
        scheduler: The shard consumers' scheduler.
        error: The first fatal error, if any.
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
        clock: Clock,
        rng: Random,
        sleep: Callable[[float], None],
        metrics: Metrics | None = None,
        run_step: Run = _inline,
        run_fetch: Run = _inline,
        run_async: RunAsync = run_inline,
        run_renewal: Run = _inline,
        wake: Callable[[Loop], None] = _wake_nobody,
        on_stopped: Callable[[], None] = _nothing,
        membership: JavaMembership | None = None,
        on_stuck_read: Callable[[], None] = _nothing,
        on_stuck_step: Callable[[], None] = _nothing,
    ) -> None:
        self.worker_id = worker_id
        self.error: BaseException | None = None
        self._config = config
        self._streams = StreamDirectory(config, kinesis, stream=stream, streams=streams, sleep=sleep)
        self._kinesis = kinesis
        self._clock = clock
        self._rng = rng
        self._wake = wake
        self._on_stopped = on_stopped
        self._lock = threading.Lock()
        self._consumers: dict[str, tuple[ShardConsumer, Task]] = {}
        self._broken: set[str] = set()
        self._stopping = False
        self._looking = False
        self._delivered_before = 0
        self._sink: Metrics = metrics or NoMetrics()
        self._sink_failures = SinkFailures()
        self._application_name = application_name
        self._metrics = BoundMetrics(
            self._sink,
            Scope({APPLICATION_NAME: application_name, WORKER_IDENTIFIER: worker_id}),
            self._sink_failures,
        )
        self._run_fetch = run_fetch
        self._budget = ByteBudget(config.max_prefetch_bytes)
        self._on_stuck_read = on_stuck_read
        self._on_stuck_step = on_stuck_step
        self._run_renewal = run_renewal
        # An idle shard is read rarely; that must not look like a stall.
        patience = max(config.stall_timeout, 2 * config.idle_times[2])
        self._watch = StallDetector(
            patience,
            self._read_again,
            handler_timeout=config.handler_timeout,
            give_up=self._give_up,
            measured=self._metrics.enabled,
        )
        if config.auto_checkpoint is not None:
            handlers = replace(handlers, auto_checkpoint=config.auto_checkpoint)
        self.coordinator = LeaseCoordinator(
            streams=self._streams,
            worker_id=worker_id,
            config=config,
            store=store,
            kinesis=kinesis,
            clock=clock,
            rng=rng,
            sleep=sleep,
            metrics=self._metrics,
            on_acquired=self._acquired,
            on_lost=self._lost,
            on_handoff_requested=self._wanted,
            on_streams_changed=self._streams_changed,
            busy=self._busy,
            run=run_renewal,
            on_fatal=self.fail,
            on_renewal_failed=lambda: wake("renewals"),
            membership=membership,
        )
        self.scheduler = Scheduler(run_step, clock, lambda: wake("steps"))
        self._fetchers = FetcherSource(
            kinesis=kinesis,
            config=config,
            application_name=application_name,
            budget=self._budget,
            scheduler=self.scheduler,
            run=run_fetch,
            rng=rng,
            clock=clock,
        )
        self._common: dict[str, Any] = {
            "worker_id": worker_id,
            "handlers": handlers,
            "store": store,
            "clock": clock,
            "rng": rng,
            "sleep": sleep,
            "budget": self._budget,
            "run": run_step,
            "run_async": run_async,
        }
        self._parts: dict[str | None, ShardConsumerParts] = {}

    def _parts_of(self, tracked: TrackedStream) -> ShardConsumerParts:
        """What the shard consumers of one stream share."""
        parts = self._parts.get(tracked.key)
        if parts is None:

            def listed() -> list[Shard]:
                return list_shards(self._kinesis, tracked.stream)

            parts = self._parts[tracked.key] = ShardConsumerParts(
                stream=tracked.stream,
                config=tracked.config,
                children=ChildLeases(self._common["store"], listed, self._request_sync, tracked),
                open_fetcher=partial(self._open_fetcher, tracked),
                measure=partial(self._measure, tracked.stream),
                list_shards=listed,
                lease_key=tracked.lease_key,
                **self._common,
            )
        return parts

    def _measure(self, stream: StreamId, shard_id: str) -> BoundMetrics:
        """The metrics of one acquisition of a shard."""
        scope = Scope(
            {APPLICATION_NAME: self._application_name, **stream_dimensions(stream), SHARD_ID: shard_id}
        )
        return BoundMetrics(self._sink, scope, self._sink_failures)

    def start(self) -> None:
        """Check stream and table, create missing leases.

        Raises:
            KinesisSdkError: Work is impossible.
        """
        self.coordinator.start()
        # Not on the pool: when handlers hang, that is what has to be reported.
        self.scheduler.wake(self.scheduler.add(self._look_for_stalls, _inline))

    def tick(self, now: float) -> float | None:
        """Do everything that is due, inline; returns when the next thing is, None once stopped.

        Only for use without threads: `run_step` and `run_renewal` must be the inline defaults.
        """
        self.renew(now)
        self.tick_table(now)
        self.scheduler.dispatch(now)
        if self.is_stopped:
            return None
        # Steps and looks change each other's due times; ask again after all of them ran.
        following = [self.renew(now), self.tick_table(now)]
        due = self.scheduler.dispatch(now)
        if due is not None:
            following.append(due)
        return None if self.is_stopped else min(following)

    def renew(self, now: float) -> float:
        """Heartbeats that are due; the body of the renewing thread."""
        return self.coordinator.renew(now)

    def tick_table(self, now: float) -> float:
        """Table loops that are due; the body of the looking thread. A fatal error begins a clean stop."""
        with self._lock:
            self._looking = True
        try:
            return self.coordinator.tick(now)
        except KinesisSdkError as error:
            self.fail(error)
            return now + self._config.lease_scan_interval
        finally:
            with self._lock:
                self._looking = False
            self._report_stopped()

    # Stopping

    def request_stop(self) -> None:
        """Begin a clean stop: running callbacks finish, handlers may checkpoint, leases are released."""
        with self._lock:
            first, self._stopping = not self._stopping, True
            entries = [*self._consumers.values()]
        if first:
            _LOGGER.info("worker %s: stopping, %d shards", self.worker_id, len(entries))
        self.coordinator.stop_taking()
        self._wake("table")
        for consumer, task in entries:
            consumer.request_stop()
            self.scheduler.wake(task)
        self._report_stopped()

    def fail(self, error: BaseException) -> None:
        """Note a fatal error (the first one stays) and begin a clean stop."""
        with self._lock:
            first = self.error is None
            if first:
                self.error = error
        if first:
            _LOGGER.error("worker %s: fatal: %s: %s", self.worker_id, type(error).__name__, error)
        self.request_stop()

    def abort(self) -> None:
        """Stop at once: nothing more is delivered or written; leases are left to expire."""
        self.request_stop()
        for held in self.coordinator.held:
            held.let_expire("the worker was stopped at once")
            self.coordinator.forget(held)
        # Their steps may not run any more: a handler hangs, or the pool is closed.
        with self._lock:
            consumers = [consumer for consumer, _ in self._consumers.values()]
        for consumer in consumers:
            consumer.metrics.retire()
        self._metrics.retire()

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stopping

    @property
    def is_stopped(self) -> bool:
        """Whether a requested stop is complete."""
        with self._lock:
            # A look that was under way may still bring a lease, which then has to be released.
            return (
                self._stopping
                and not self._consumers
                and not self._looking
                and not self.coordinator.is_winding_down
            )

    def _report_stopped(self) -> None:
        if self.is_stopped:
            self._metrics.retire()
            self._on_stopped()

    # What happens to leases

    def _acquired(self, held: HeldLease) -> None:
        tracked = self._streams.find(held.lease)
        if tracked is None:  # left out in this very moment, by a shard of it
            self.coordinator.forget(held)
            return
        consumer = ShardConsumer(self._parts_of(tracked), held)
        task = self.scheduler.add(lambda now: self._step(consumer, now))
        consumer.on_ready = lambda: self.scheduler.wake(task)
        # Known before its first step: that step may end it and look it up.
        with self._lock:
            if self._stopping:
                consumer.request_stop()
            self._consumers[held.token] = (consumer, task)
        self.scheduler.wake(task)
        self._wake("renewals")

    def _lost(self, held: HeldLease) -> None:
        with self._lock:
            entry = self._consumers.get(held.token)
        if entry is not None:
            # Not in its next step: a handler may hang for long, and the lease's next owner records already.
            entry[0].metrics.retire()
            self.scheduler.wake(entry[1])

    def _wanted(self, held: HeldLease) -> None:
        """Somebody asks for the lease: its consumer stops cleanly and hands it over."""
        with self._lock:
            entry = self._consumers.get(held.token)
        if entry is not None:
            self.scheduler.wake(entry[1])

    def _busy(self) -> set[str]:
        with self._lock:
            return {consumer.held.key for consumer, _ in self._consumers.values()}

    def _streams_changed(self) -> None:
        """Shards of streams that are not ours any more are given back."""
        with self._lock:
            entries = [*self._consumers.values()]
        for consumer, task in entries:
            if self._streams.find(consumer.held.lease) is None:
                consumer.request_stop()
                self.scheduler.wake(task)

    def _request_sync(self) -> None:
        self.coordinator.request("sync")
        self._wake("table")

    def _step(self, consumer: ShardConsumer, now: float) -> float | None:
        try:
            due = consumer.step(now)
        except BaseException as error:  # noqa: BLE001 - a pool thread must not lose it; run() raises it
            if not self._leave_out(consumer, error):
                self.fail(error)
            token = consumer.held.token
            if token in self._broken:
                consumer.abandon("abandoned after an error")  # it fails even while stopping
                due = None
            else:
                self._broken.add(token)
                due = now
        if due is None:
            self._completed(consumer)
        return due

    def _leave_out(self, consumer: ShardConsumer, error: BaseException) -> bool:
        """Whether an error ends one stream of several and not the worker: it was deleted, or may not be read."""
        if (
            self._streams.is_single
            or not isinstance(error, PermanentAwsError)
            or isinstance(error, AwsConfigError)
            or error.operation not in _STREAM_OPERATIONS
        ):
            return False
        tracked = self._streams.find(consumer.held.lease)
        if tracked is not None:
            self.coordinator.stream_gone(tracked, error)
        return True

    def _completed(self, consumer: ShardConsumer) -> None:
        self.coordinator.forget(consumer.held)
        if consumer.reason is ShutdownReason.HANDOVER:
            self._wake("table")  # it sees the lease off
        with self._lock:
            # The second time, if a handler that was given up does end.
            if self._consumers.pop(consumer.held.token, None) is not None:
                self._delivered_before += consumer.records_delivered
            waiting = [task for other, task in self._consumers.values() if other.is_waiting_on_parents]
        if consumer.reason is ShutdownReason.SHARD_END:
            self._fetchers.forget(consumer.held.key)
            for task in waiting:
                self.scheduler.wake(task)
            if not self._stopping:
                self.coordinator.request("look")  # its children are free
                self._wake("table")
        self._report_stopped()

    def _open_fetcher(
        self,
        tracked: TrackedStream,
        shard_id: str,
        start: Position,
        now: float,
        on_ready: Callable[[], None],
        metrics: BoundMetrics,
    ) -> Fetcher:
        key = tracked.lease_key(shard_id)
        return self._fetchers.open(
            tracked.stream,
            shard_id,
            key,
            start,
            now,
            on_ready,
            metrics=metrics,
            consumer_arn=tracked.config.consumer_arn,
        )

    # Watching

    def _look_for_stalls(self, now: float) -> float | None:
        if self.is_stopped:
            return None
        with self._lock:
            consumers = [consumer for consumer, _ in self._consumers.values()]
        return self._watch.look(consumers, now)

    def _read_again(self, consumer: ShardConsumer) -> None:
        consumer.read_again()
        self._on_stuck_read()
        consumer.on_ready()

    def _give_up(self, consumer: ShardConsumer) -> None:
        self._on_stuck_step()
        # A call: not on the thread that starts all steps.
        self._run_renewal(lambda: self._take_away(consumer))

    def _take_away(self, consumer: ShardConsumer) -> None:
        """Give the lease of a consumer back whose handler hangs, and forget the consumer: the shard is free."""
        try:
            consumer.held.release()
        except LeaseLostError:
            pass  # a peer has it already
        except AwsError as error:
            _LOGGER.warning("lease %s: could not be released, it will expire: %s", consumer.held.key, error)
        except BaseException as error:  # noqa: BLE001 - a pool thread must not lose it
            self.fail(error)
        consumer.abandon("its handler hangs")
        self._completed(consumer)

    # Looking inside

    @property
    def records_delivered(self) -> int:
        """User records delivered since the start."""
        with self._lock:
            return self._delivered_before + sum(c.records_delivered for c, _ in self._consumers.values())

    def lease_problems(self) -> tuple[LeaseProblem, ...]:
        """Return the leases that need repair."""
        problems = self.coordinator.problems
        return tuple(LeaseProblem(lease_key=key, problem=problems[key]) for key in sorted(problems))

    def shard_health(self) -> tuple[ShardHealth, ...]:
        """A snapshot of every shard consumer."""
        now = self._clock.monotonic()
        with self._lock:
            consumers = [consumer for consumer, _ in self._consumers.values()]
        return tuple(
            ShardHealth(
                shard_id=consumer.shard_id,
                state=consumer.state,
                oldest_unprocessed_millis=_millis(consumer.oldest_unprocessed_age(now)),
                read_lag_millis=consumer.millis_behind_latest,
                seconds_since_progress=now - consumer.last_progress,
                records_delivered=consumer.records_delivered,
                checkpoint=consumer.held.lease.checkpoint,
                last_error=consumer.last_error or consumer.held.problem,
                records_dead_lettered=consumer.records_dead_lettered,
                stall=find_stall(consumer, now, self._watch.timeout),
                quarantined=consumer.is_quarantined,
            )
            for consumer in sorted(consumers, key=lambda consumer: consumer.shard_id)
            if consumer.state is not ShardState.COMPLETE
        )
