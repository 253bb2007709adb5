"""The lease loops of a worker: renew, look and take, sync, clean up.

Each loop is a method of the monotonic time that does what is due and returns when it is due again. Decisions
are pure functions (`plan_takes`, `plan_sync`, `plan_cleanup`); this module reads the table, carries them out and
reports what changed. `renew` has a thread of its own, so a slow look or handler never delays a heartbeat.

Cost per worker and minute with the defaults: 60 looks (one Scan page each while the table is below 1 MiB),
one ListShards and one consistent Scan, one cleanup Scan; per held lease 18 renewals, fewer where checkpoints
count as such.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Collection
from random import Random

from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import AwsError, KinesisSdkError, LeaseLostError, ProtocolError
from kinesis_sdk.common.metrics import Metrics
from kinesis_sdk.common.sequence import LATEST
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.failure import backoff
from kinesis_sdk.consumer.leases.held import HeldLease, HeldLeases
from kinesis_sdk.consumer.leases.lease import Lease
from kinesis_sdk.consumer.leases.observer import LeaseObserver
from kinesis_sdk.consumer.leases.planner import TakeLimits, plan_takes
from kinesis_sdk.consumer.leases.store import Conflict, LeaseStore
from kinesis_sdk.consumer.repeats import RepeatLog
from kinesis_sdk.consumer.shards.cleanup import needs_listing, plan_cleanup
from kinesis_sdk.consumer.shards.sync import (
    bootstrap_filter,
    plan_bootstrap,
    plan_bootstrap_from_all,
    plan_sync,
)

_LOGGER = logging.getLogger("kinesis_sdk.consumer.leases")

_LOOK_PER_LEASE = 0.005
_MOST_LOOK_INTERVAL = 20.0
_FIRST_BACKOFF, _MOST_BACKOFF = 0.2, 10.0


class Coordinator:
    """Keeps this worker's leases. `renew` belongs to one thread, `look`, `sync` and `clean_up` to another.

    Args:
        stream: The stream.
        worker_id: This worker.
        config: Settings.
        store: Lease table.
        kinesis: For ListShards.
        clock: Time.
        rng: Jitter and random choice.
        sleep: Waits between repetitions of calls at the start.
        metrics: Sink for numbers.
        on_acquired: Told about each lease taken.
        on_lost: Told about each lease that turns out to be lost.
        busy: Keys of shards whose previous consumer is still winding down.
        run: Runs a renewal now or soon (a small pool, or the caller).
        on_fatal: Told about an error that repeating does not cure.
        on_renewal_failed: Told that a renewal has to be repeated sooner than `renew` said.
    """

    def __init__(
        self,
        *,
        stream: StreamId,
        worker_id: str,
        config: ConsumerConfig,
        store: LeaseStore,
        kinesis: KinesisClient,
        clock: Clock,
        rng: Random,
        sleep: Callable[[float], None],
        metrics: Metrics,
        on_acquired: Callable[[HeldLease], None],
        on_lost: Callable[[HeldLease], None],
        busy: Callable[[], Collection[str]],
        run: Callable[[Callable[[], None]], object],
        on_fatal: Callable[[BaseException], None],
        on_renewal_failed: Callable[[], None],
    ) -> None:
        self.held = HeldLeases()
        self._stream = stream
        self._worker_id = worker_id
        self._config = config
        self._store = store
        self._kinesis = kinesis
        self._clock = clock
        self._rng = rng
        self._sleep = sleep
        self._metrics = metrics
        self._on_acquired = on_acquired
        self._on_lost = on_lost
        self._busy = busy
        self._run = run
        self._on_fatal = on_fatal
        self._on_renewal_failed = on_renewal_failed
        self._observer = LeaseObserver(config.failover_time)
        self._limits = TakeLimits(
            max_leases=config.max_leases_for_worker or sys.maxsize,
            max_steals=config.max_leases_to_steal_at_one_time,
        )
        self._repeats = RepeatLog(_LOGGER)
        self._renew_repeats = RepeatLog(_LOGGER)
        self._renew_repeats_lock = threading.Lock()
        self._failures = 0
        self._taking = True
        self._due: dict[str, float] = {}

    # Start

    def start(self, now: float) -> None:
        """Make the table, compare it with the stream, and be ready to look.

        Raises:
            KinesisSdkError: What makes work impossible: no such stream, access denied, nobody listening.
        """
        self._store.ensure_ready()
        call_with_retries(
            lambda: self._sync(now),
            operation="ListShards",
            client=self._kinesis,
            sleep=self._sleep,
        )
        now = self._clock.monotonic()
        self._due = {
            "look": now,
            "sync": now + self._jittered(self._config.shard_sync_interval),
            "clean_up": now + self._jittered(self._config.lease_cleanup_interval),
        }

    def stop_taking(self) -> None:
        """Take no more leases; those held are renewed until they are released."""
        self._taking = False

    def request(self, loop: str) -> None:
        """Make ``look``, ``sync`` or ``clean_up`` due now."""
        self._due[loop] = self._clock.monotonic()

    # The table loops

    def tick(self, now: float) -> float:
        """Run the table loops that are due; returns when the next one is."""
        if not self._taking:
            return now + self._config.lease_look_interval
        for name, loop, interval in (
            ("sync", self._sync, self._jittered(self._config.shard_sync_interval)),
            ("look", self._look, 0.0),
            ("clean_up", self._clean_up, self._jittered(self._config.lease_cleanup_interval)),
        ):
            if self._due[name] > now or not self._taking:
                continue
            # Before the work, so that a request that arrives meanwhile is not lost.
            self._due[name] = now + interval if interval else float("inf")
            try:
                following = loop(now)
            except KinesisSdkError as error:
                if not error.retryable:
                    raise
                self._failures += 1
                self._repeats.log(now, f"{name} {type(error).__name__}", "%s: %s; trying again", name, error)
                following = now + backoff(self._failures, _FIRST_BACKOFF, _MOST_BACKOFF, self._rng)
            else:
                self._failures = 0
            if following is not None:
                self._due[name] = min(self._due[name], following)
        return min(self._due.values())

    def _look(self, now: float) -> float:
        """Scan, plan, take. Reports the next due time: earlier if an owner's silence becomes too long."""
        leases = self._store.list()
        seen_at = self._clock.monotonic()
        self._observer.observe(leases, seen_at)
        takes = plan_takes(
            leases,
            self._observer,
            self._worker_id,
            now,
            self._limits,
            self._rng,
            held=self.held.keys(),
            busy=self._busy(),
        )
        for take in takes:
            if not self._taking:
                break
            self._take(take.lease, take.reason.value)
        self._measure(leases, len(takes))
        due = seen_at + self._look_interval(len(leases))
        expiry = self._observer.next_expiry(seen_at)
        # A hair later: a lease expires when its age is *above* the failover time.
        return due if expiry is None else min(due, expiry + 0.001)

    def _look_interval(self, leases: int) -> float:
        adapted = min(_MOST_LOOK_INTERVAL, leases * _LOOK_PER_LEASE)
        return max(self._config.lease_look_interval, adapted)

    def _take(self, lease: Lease, reason: str) -> None:
        sent_at = self._clock.monotonic()
        try:
            row = self._store.take(lease, self._worker_id)
        except AwsError as error:
            if not error.retryable:
                raise
            # If it had effect, the next look finds our own id on the row and resumes it.
            self._repeats.log(sent_at, "take", "lease %s: not taken: %s", lease.lease_key, error)
            return
        if isinstance(row, Conflict):
            _LOGGER.debug("lease %s: a peer was faster", lease.lease_key)
            return
        held = HeldLease(
            self._store,
            row,
            worker_id=self._worker_id,
            failover_time=self._config.failover_time,
            clock=self._clock,
            acquired_at=sent_at,
        )
        held.renew_at = sent_at + self._config.renew_interval
        self.held.add(held)
        former = f" from {lease.owner}" if lease.owner and lease.owner != self._worker_id else ""
        _LOGGER.info("lease %s: taken%s (%s)", lease.lease_key, former, reason)
        self._on_acquired(held)

    def _measure(self, leases: list[Lease], taken: int) -> None:
        dimensions = {"Operation": "TakeLeases", "WorkerIdentifier": self._worker_id}
        self._metrics.add("TotalLeases", len(leases), "Count", dimensions)
        self._metrics.add("LeasesToTake", taken, "Count", dimensions)
        self._metrics.add("CurrentLeases", len(self.held), "Count", dimensions)

    def _sync(self, now: float) -> None:  # noqa: ARG002 - every loop has the same shape
        """Create missing leases. Any worker may do it, at any time: creates are conditional."""
        # Leases first: a shard that is split in between then looks unfinished, never orphaned.
        leases = self._store.list(consistent=True)
        position = self._config.initial_checkpoint
        plan = plan_sync(self.list_shards(), leases, position) if leases else self._plan_bootstrap(position)
        for lease in plan:
            if self._store.create_if_absent(lease):
                _LOGGER.info("lease %s: created at %s", lease.lease_key, lease.checkpoint.sequence_number)
        if plan and self._due:
            self.request("look")

    def _plan_bootstrap(self, position: str) -> list[Lease]:
        chosen = bootstrap_filter(position, self._config.initial_timestamp)
        try:
            return plan_bootstrap(list_shards(self._kinesis, self._stream, shard_filter=chosen), position)
        except ProtocolError as error:
            if position == LATEST:
                raise  # a reshard is under way; the next listing is whole
            _LOGGER.info("%s; asking for all shards instead", error)
            return plan_bootstrap_from_all(self.list_shards(), position)

    def list_shards(self) -> list[Shard]:
        """All shards of the stream."""
        return list_shards(self._kinesis, self._stream)

    def _clean_up(self, now: float) -> None:  # noqa: ARG002 - see `_sync`
        """Delete leases of finished shards that nobody needs any more."""
        if not self._config.cleanup_leases_upon_shard_completion:
            return
        leases = self._store.list(consistent=True)
        listed = {shard.shard_id for shard in self.list_shards()} if needs_listing(leases) else None
        for key in plan_cleanup(leases, listed):
            self._store.delete(key)
            _LOGGER.info("lease %s: deleted, its shard is finished", key)

    def _jittered(self, interval: float) -> float:
        return interval * (0.8 + 0.4 * self._rng.random())

    # The renewal loop

    def renew(self, now: float) -> float:
        """Send the heartbeats that are due; returns when the next one is."""
        due = now + self._config.renew_interval
        for held in self.held:
            if held.gone is not None or not held.is_held(now):
                held.mark_lost(f"not renewed for {now - held.written_at:.1f} s")
                self.forget(held)
                self._on_lost(held)
                continue
            # A checkpoint is a heartbeat too.
            renew_at = max(held.renew_at, held.written_at + self._config.renew_interval)
            if held.renewing:
                continue
            if renew_at <= now:
                held.renewing = True
                self._run(lambda held=held: self._renew_one(held))  # type: ignore[misc]
            else:
                due = min(due, renew_at)
            # However long the next heartbeat is away, the moment of self-expiry is looked at.
            due = min(due, max(now, held.written_at + self._config.failover_time + 0.001))
        return due

    def forget(self, held: HeldLease) -> None:
        """Stop renewing a lease that was released or lost."""
        self.held.remove(held)

    def _renew_one(self, held: HeldLease) -> None:
        renewed = False
        try:
            held.renew()
            renewed = True
            held.renew_at = held.written_at + self._config.renew_interval
        except LeaseLostError:
            self.forget(held)
            self._on_lost(held)
        except AwsError as error:
            now = self._clock.monotonic()
            if not error.retryable:
                self._on_fatal(error)
            held.renew_at = now + min(self._config.renew_interval, 0.2 + self._rng.random() * 0.3)
            with self._renew_repeats_lock:
                self._renew_repeats.log(
                    now, type(error).__name__, "renewal of %s failed: %s", held.key, error
                )
        except BaseException as error:  # noqa: BLE001 - a pool thread must not lose it
            self._on_fatal(error)
        finally:
            held.renewing = False
        if not renewed:
            self._on_renewal_failed()
