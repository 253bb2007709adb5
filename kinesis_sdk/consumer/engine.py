"""A whole worker without threads: coordinator, shard consumers and scheduler, driven by `tick` or by threads.

`Worker` puts threads around it. Tests call `tick` with virtual time, so that a fleet with crashes and resharding
runs in one thread and repeats exactly.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from random import Random
from typing import Literal

from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.metrics import Metrics, NoMetrics
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.coordinator import Coordinator
from kinesis_sdk.consumer.fetch.fetcher import Fetcher, Position
from kinesis_sdk.consumer.fetch.polling import PollingFetcher
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.health import ShardHealth
from kinesis_sdk.consumer.leases.held import HeldLease
from kinesis_sdk.consumer.leases.store import LeaseStore
from kinesis_sdk.consumer.scheduler import Scheduler, Task
from kinesis_sdk.consumer.shard_consumer import ShardConsumer
from kinesis_sdk.consumer.shard_state import ShardConsumerParts, ShardState, ShutdownReason
from kinesis_sdk.consumer.shards.children import ChildLeases

_LOGGER = logging.getLogger("kinesis_sdk.consumer")

Run = Callable[[Callable[[], None]], object]
Loop = Literal["renewals", "table", "steps"]
"""The three loops that threads run: `ConsumerEngine.renew`, ``tick_table`` and ``scheduler.dispatch``."""


def _inline(function: Callable[[], None]) -> None:
    function()


def _nothing() -> None:
    return None


def _wake_nobody(loop: Loop) -> None:
    del loop


class ConsumerEngine:
    """Everything that a worker does, as functions of the time.

    Locks: ``_lock`` guards the table of consumers and is a leaf. See the package's lock order.

    Args:
        stream: The stream.
        worker_id: This worker's id in the lease table.
        config: Settings.
        handlers: Makes handlers.
        store: Lease table.
        kinesis: boto3 Kinesis client or one of its shape.
        clock: Time.
        rng: Jitter and random choice.
        sleep: Waits inside calls (retries); a test advances its clock here.
        metrics: Sink for numbers.
        run_step: Runs steps of shards: a pool's ``submit``, or inline.
        run_renewal: Runs renewals: a pool's ``submit``, or inline.
        wake: Called from any thread with the loop whose due time may have moved forward.
        on_stopped: Called from any thread once a requested stop is complete; perhaps more than once.

    Attributes:
        coordinator: The lease loops.
        scheduler: The shard consumers' scheduler.
        error: The first fatal error, if any.
    """

    def __init__(
        self,
        *,
        stream: StreamId,
        worker_id: str,
        config: ConsumerConfig,
        handlers: HandlerSource,
        store: LeaseStore,
        kinesis: KinesisClient,
        clock: Clock,
        rng: Random,
        sleep: Callable[[float], None],
        metrics: Metrics | None = None,
        run_step: Run = _inline,
        run_renewal: Run = _inline,
        wake: Callable[[Loop], None] = _wake_nobody,
        on_stopped: Callable[[], None] = _nothing,
    ) -> None:
        self.worker_id = worker_id
        self.error: BaseException | None = None
        self._config = config
        self._stream = stream
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
        metrics = metrics or NoMetrics()
        self.coordinator = Coordinator(
            stream=stream,
            worker_id=worker_id,
            config=config,
            store=store,
            kinesis=kinesis,
            clock=clock,
            rng=rng,
            sleep=sleep,
            metrics=metrics,
            on_acquired=self._acquired,
            on_lost=self._lost,
            busy=self._busy,
            run=run_renewal,
            on_fatal=self.fail,
            on_renewal_failed=lambda: wake("renewals"),
        )
        self.scheduler = Scheduler(run_step, clock, lambda: wake("steps"))
        self._parts = ShardConsumerParts(
            stream=stream,
            worker_id=worker_id,
            config=config,
            handlers=handlers,
            store=store,
            children=ChildLeases(store, self.coordinator.list_shards, self._request_sync),
            open_fetcher=self._open_fetcher,
            list_shards=self.coordinator.list_shards,
            clock=clock,
            rng=rng,
            sleep=sleep,
            metrics=metrics,
        )

    def start(self) -> None:
        """Check stream and table, create missing leases.

        Raises:
            KinesisSdkError: Work is impossible.
        """
        self.coordinator.start(self._clock.monotonic())

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
            return now + self._config.lease_look_interval
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
            held.mark_lost("the worker was stopped at once")
            self.coordinator.forget(held)

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stopping

    @property
    def is_stopped(self) -> bool:
        """Whether a requested stop is complete."""
        with self._lock:
            # A look that was under way may still bring a lease, which then has to be released.
            return self._stopping and not self._consumers and not self._looking

    def _report_stopped(self) -> None:
        if self.is_stopped:
            self._on_stopped()

    # What happens to leases

    def _acquired(self, held: HeldLease) -> None:
        consumer = ShardConsumer(self._parts, held)
        task = self.scheduler.add(lambda now: self._step(consumer, now))
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
            self.scheduler.wake(entry[1])

    def _busy(self) -> set[str]:
        with self._lock:
            return {consumer.shard_id for consumer, _ in self._consumers.values()}

    def _request_sync(self) -> None:
        self.coordinator.request("sync")
        self._wake("table")

    def _step(self, consumer: ShardConsumer, now: float) -> float | None:
        try:
            due = consumer.step(now)
        except BaseException as error:  # noqa: BLE001 - a pool thread must not lose it; run() raises it
            self.fail(error)
            token = consumer.held.token
            if token in self._broken:
                consumer.abandon()  # it fails even while stopping
                due = None
            else:
                self._broken.add(token)
                due = now
        if due is None:
            self._completed(consumer)
        return due

    def _completed(self, consumer: ShardConsumer) -> None:
        self.coordinator.forget(consumer.held)
        with self._lock:
            self._consumers.pop(consumer.held.token, None)
            self._delivered_before += consumer.records_delivered
            waiting = [task for other, task in self._consumers.values() if other.is_waiting_on_parents]
        if consumer.reason is ShutdownReason.SHARD_END:
            for task in waiting:
                self.scheduler.wake(task)
            if not self._stopping:
                self.coordinator.request("look")  # its children are free
                self._wake("table")
        self._report_stopped()

    def _open_fetcher(self, shard_id: str, start: Position, now: float) -> Fetcher:
        return PollingFetcher(
            self._kinesis,
            self._stream,
            shard_id,
            start,
            rng=self._rng,
            max_records=self._config.max_records,
            idle_time=self._config.idle_time_between_reads,
            now=now,
        )

    # Looking inside

    @property
    def records_delivered(self) -> int:
        """User records delivered since the start."""
        with self._lock:
            return self._delivered_before + sum(c.records_delivered for c, _ in self._consumers.values())

    def shard_health(self) -> tuple[ShardHealth, ...]:
        """A snapshot of every shard consumer."""
        now = self._clock.monotonic()
        with self._lock:
            consumers = [consumer for consumer, _ in self._consumers.values()]
        return tuple(
            ShardHealth(
                shard_id=consumer.shard_id,
                state=consumer.state,
                millis_behind_latest=consumer.millis_behind_latest,
                seconds_since_progress=now - consumer.last_progress,
                records_delivered=consumer.records_delivered,
                checkpoint=consumer.held.lease.checkpoint,
                last_error=consumer.last_error,
            )
            for consumer in sorted(consumers, key=lambda consumer: consumer.shard_id)
            if consumer.state is not ShardState.COMPLETE
        )
