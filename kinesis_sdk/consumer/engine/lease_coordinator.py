"""The lease loops of a worker: renew, look and take, sync, clean up.

Each loop is a method of the monotonic time that does what is due and returns when it is due again. Decisions
are pure (`LeaseStrategy`, `plan_sync`, `plan_cleanup`); this module reads the table, carries them out and
reports what changed. `renew` has a thread of its own, so a slow look or handler never delays a heartbeat.

Cost per worker and minute with the defaults: 60 looks (one Scan page each while the table is below 1 MiB),
one ListShards and one consistent Scan, one cleanup Scan; per held lease 9 renewals, fewer where checkpoints
count as such. A lease that moves costs six requests: the asking write, about three reads, the handoff, the take.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from random import Random

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.backoff import backoff
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import AwsError, KinesisSdkError
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.common.metrics import BoundMetrics
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.leases.java.leader_lock import CLAIM_TIME, keeps_nothing
from kinesis_sdk.consumer.leases.java.migration import MIGRATION_KEY, is_upgrading_from_2x, kcl2_leader
from kinesis_sdk.consumer.leases.java.worker_metrics import PATIENCE, JavaMembership
from kinesis_sdk.consumer.leases.leader import is_leader
from kinesis_sdk.consumer.leases.ownership.handoff import supports_handoff
from kinesis_sdk.consumer.leases.ownership.handoff_manager import HandoffManager
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease, HeldLeases
from kinesis_sdk.consumer.leases.ownership.renewer import LeaseRenewer
from kinesis_sdk.consumer.leases.ownership.standby import StandbyHeartbeats
from kinesis_sdk.consumer.leases.strategies import TableView, Take, TakeLimits, TakeReason
from kinesis_sdk.consumer.leases.table.expiry import LeaseObserver
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.store import Conflict, LeaseStore, TableScan, is_refused_row
from kinesis_sdk.consumer.shard_sync.audit import find_cycles, find_row_problems
from kinesis_sdk.consumer.shard_sync.leader_tasks import LeaderTasks
from kinesis_sdk.consumer.streams import StreamDirectory, TrackedStream

_LOGGER = logging.getLogger(__name__)

_FIRST_BACKOFF, _MOST_BACKOFF = 0.2, 10.0
_PROBLEM_LOG_INTERVAL = 600.0
"""Seconds between two log lines of one problem that has to be repaired by hand."""
_REFUSED_PAUSE = 300.0
"""Seconds for which a lease is left alone whose row the table refuses to write."""
_NEVER = float("inf")


class LeaseCoordinator:
    """Keeps this worker's leases. `renew` belongs to one thread, `look`, `sync` and `clean_up` to another.

    Args:
        streams: The streams.
        worker_id: This worker.
        config: Settings.
        store: Lease table.
        kinesis: For ListShards.
        clock: Time.
        rng: Jitter and random choice.
        sleep: Waits between repetitions of calls at the start.
        metrics: Metrics of the worker.
        on_acquired: Told about each lease taken.
        on_lost: Told about each lease that turns out to be lost.
        on_handoff_requested: Told about each held lease that somebody asked for.
        on_streams_changed: Told that shards of some stream may not be ours to consume any more.
        busy: Keys of leases whose previous shard consumer is still winding down.
        run: Runs a renewal now or soon (a small pool, or the caller).
        on_fatal: Told about an error that repeating does not cure.
        membership: Of a fleet of Java KCL 3 workers; None: of none.
        on_renewal_failed: Told that a renewal has to be repeated sooner than `renew` said.

    Attributes:
        held: The leases held here.
        problems: By lease key, why no worker can consume a shard, as of the last scan. Replaced, never changed.
    """

    def __init__(
        self,
        *,
        streams: StreamDirectory,
        worker_id: str,
        config: ConsumerConfig,
        store: LeaseStore,
        kinesis: KinesisClient,
        clock: Clock,
        rng: Random,
        sleep: Callable[[float], None],
        metrics: BoundMetrics,
        on_acquired: Callable[[HeldLease], None],
        on_lost: Callable[[HeldLease], None],
        on_handoff_requested: Callable[[HeldLease], None],
        on_streams_changed: Callable[[], None],
        busy: Callable[[], Collection[str]],
        run: Callable[[Callable[[], None]], object],
        on_fatal: Callable[[BaseException], None],
        on_renewal_failed: Callable[[], None],
        membership: JavaMembership | None = None,
    ) -> None:
        self.held = HeldLeases()
        self._streams = streams
        self._worker_id = worker_id
        self._config = config
        self._store = store
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._on_acquired = on_acquired
        self._on_handoff_requested = on_handoff_requested
        self._busy = busy
        self._on_streams_changed = on_streams_changed
        self._renewals = LeaseRenewer(
            self.held,
            config=config,
            clock=clock,
            rng=rng,
            run=run,
            on_lost=on_lost,
            on_handoff_requested=self._wanted,
            on_fatal=on_fatal,
            on_failed=on_renewal_failed,
        )
        self._duties = LeaderTasks(
            store=store,
            kinesis=kinesis,
            streams=streams,
            config=config,
            sleep=sleep,
            on_gone=self.stream_gone,
        )
        self._observer = LeaseObserver(config.failover_time)
        self._strategy = config.strategy
        self._renewal_interval = config.renew_interval
        self._limits = TakeLimits(
            max_leases=config.max_leases_for_worker or sys.maxsize,
            max_steals=config.max_leases_to_steal_at_one_time,
        )
        self._patient_until = _NEVER
        self._standby = StandbyHeartbeats(
            store,
            worker_id,
            failover_time=config.failover_time,
            heartbeat_interval=self._renewal_interval,
            scan_interval=config.lease_scan_interval,
        )
        self._log_throttle = LogThrottle(_LOGGER)
        self.problems: Mapping[str, str] = {}
        self._problem_log = LogThrottle(_LOGGER, logging.ERROR, _PROBLEM_LOG_INTERVAL)
        self._migration_log = LogThrottle(_LOGGER, interval=_PROBLEM_LOG_INTERVAL)
        # Rows that the table refuses to write: counter, what is wrong, and until when they are left alone.
        self._refused: dict[str, tuple[int, str, float]] = {}
        self._refused_lock = threading.Lock()
        self._failures = 0
        self._taking = True
        self._stopped_at: float | None = None
        self._moves = HandoffManager(
            store,
            worker_id,
            config=config,
            clock=clock,
            held=self.held,
            busy=busy,
            take=self._take,
            on_handoff_requested=self._wanted,
            metrics=metrics,
        )
        self._membership = membership
        self._leads = False
        self._rows: list[Lease] = []
        self._to_sync: list[TrackedStream] = []
        self._sync_asked = False
        self._due: dict[str, float] = {}

    # Start

    def start(self) -> None:
        """Make the table, compare it with the streams, and be ready to look.

        Raises:
            KinesisSdkError: What makes work impossible: no such stream, access denied, nobody listening.
        """
        self._store.ensure_ready()
        self._streams.refresh(first=True)
        self._duties.start()
        now = self._clock.monotonic()
        self._patient_until = now + self._config.initial_rebalance_delay
        self._due = {
            "look": now,
            "arrivals": _NEVER,
            "sync": now + self._jittered(self._config.shard_sync_interval),
            "clean_up": now + self._jittered(self._config.lease_cleanup_interval),
        }
        if self._membership is not None:
            self._due["membership"] = self._membership.tick(now)
        if not self._streams.is_single:
            self._due["streams"] = now + self._jittered(self._config.stream_list_interval)

    def stop_taking(self) -> None:
        """Take no more leases; those held are renewed until they are released."""
        if self._taking:
            self._stopped_at = self._clock.monotonic()
            self._taking = self._moves.taking = False

    @property
    def is_winding_down(self) -> bool:
        """Whether a clean stop has something left to do at the table.

        That is: to pass on leases that this worker asked for, and to take its mark or metrics back.
        """
        return (
            bool(self._moves)
            or self._standby.is_marked
            or (self._membership is not None and self._membership.is_reported)
        )

    def request(self, loop: str) -> None:
        """Make ``look``, ``sync`` or ``clean_up`` due now; a sync that is asked for needs no leader."""
        if loop == "sync":
            self._sync_asked = True
        self._due[loop] = self._clock.monotonic()

    # The table loops

    def tick(self, now: float) -> float:
        """Run the table loops that are due; returns when the next one is."""
        if not self._taking:
            return self._pass_on(now)
        self._due["departures"] = self._moves.next_reclaim(now)
        for name, loop, interval in (
            ("streams", self._list_streams, self._jittered(self._config.stream_list_interval)),
            ("membership", self._report, 0.0),
            ("sync", self._sync, self._jittered(self._config.shard_sync_interval)),
            ("look", self._look, 0.0),
            ("arrivals", self._moves.meet, 0.0),
            ("departures", self._moves.reclaim_unclaimed, 0.0),
            ("standby", self._standby.tick, 0.0),
            ("clean_up", self._clean_up, self._jittered(self._config.lease_cleanup_interval)),
        ):
            if self._due.get(name, _NEVER) > now or not self._taking:
                continue
            # Before the work, so that a request that arrives meanwhile is not lost.
            self._due[name] = now + interval if interval else _NEVER
            try:
                following = loop(now)
            except KinesisSdkError as error:
                if not error.retryable:
                    raise
                self._failures += 1
                self._log_throttle.log(
                    now, f"{name} {type(error).__name__}", "%s: %s; trying again", name, error
                )
                following = now + backoff(self._failures, _FIRST_BACKOFF, _MOST_BACKOFF, self._rng)
            else:
                self._failures = 0
            if following is not None:
                self._due[name] = min(self._due[name], following)
        return min(self._due.values())

    def _look(self, now: float) -> float:
        """Scan, plan, take. Reports the next due time: earlier if an owner's silence becomes too long."""
        with self._metrics.timed(self._clock, catalogue.LIST_LEASES_TIME, catalogue.LIST_LEASES_SUCCESS):
            scan = self._store.scan()
        rows = scan.leases
        seen_at = self._clock.monotonic()
        self._observer.observe(rows, seen_at)
        # Leases of streams that are not ours, and of the other form of keys, are neither counted nor taken.
        leases = [lease for lease in rows if self._streams.find(lease) is not None]
        self._lead(scan, leases, now, seen_at)
        refused = self._examine(scan, leases, seen_at)
        self._moves.observe(leases, seen_at)
        self._standby.observe(leases, seen_at)
        intervals = self._config.intervals(len(leases))
        plan = self._strategy.plan(
            TableView(
                leases=leases,
                observed=self._observer,
                me=self._worker_id,
                now=now,
                limits=self._limits_at(now),
                held=self._moves.held_or_incoming_keys(
                    leases, lambda row: self._observer.is_expired(row, now)
                ),
                busy={*self._busy(), *refused},
                workers=self._standby.workers(seen_at),
                # By then the peer that it waits for has looked twice.
                claim_grace=2 * intervals.scan + self._config.lease_scan_interval,
            ),
            self._rng,
        )
        before = len(self.held) + len(self._moves)
        won = 0
        for take in plan.takes:
            if not self._taking or won == plan.most:
                break
            if self._is_left_to_java(take, now):
                continue
            self._carry_out(take)
            won = len(self.held) + len(self._moves) - before
        self._due["arrivals"] = self._moves.next_incoming_poll(seen_at)
        # Also while the last one is leaving, so that nobody misses us in between.
        self._standby.want(plan.put_standby_heartbeat and not won and not self._moves.holds_on, seen_at)
        self._due["standby"] = self._standby.due
        self._measure(leases, len(plan.takes) if plan.most is None else plan.most, now)
        due = seen_at + (intervals.rescan if plan.rescan_soon else intervals.scan)
        if not intervals.scan_at_expiry:
            return due
        expiry = self._observer.next_expiry(seen_at)
        # A hair later: a lease expires when its age is *above* the failover time.
        return due if expiry is None else min(due, expiry + 0.001)

    def _examine(self, scan: TableScan, leases: list[Lease], now: float) -> set[str]:
        """Tell which leases cannot be worked on.

        Returns:
            Keys of leases whose rows the table refuses to write: nothing is gained by taking them now.
        """
        with self._refused_lock:
            counters = {lease.lease_key: lease.counter for lease in leases} if self._refused else {}
            for key, (counter, _, until) in [*self._refused.items()]:
                # A repair by hand may leave the counter as it is, so the row is tried again after a while.
                if counters.get(key) != counter or now >= until:
                    del self._refused[key]
            refused = {key: problem for key, (_, problem, _) in self._refused.items()}
        problems = {**find_row_problems(scan, self._streams), **find_cycles(leases), **refused}
        for key, problem in problems.items():
            self._problem_log.log(now, key, "lease %s: needs repair: %s", key, problem)
        for lease in leases:
            if lease.damaged:
                names = printable(", ".join(lease.damaged))
                self._problem_log.log(
                    now,
                    f"{lease.lease_key} damaged",
                    "lease %s: ignored what cannot be read: %s",
                    lease.lease_key,
                    names,
                )
        for held in self.held:
            held.problem = problems.get(held.key)
        self.problems = problems
        return set(refused)

    def _note_refused(self, lease: Lease, problem: str) -> None:
        """Leave a lease alone for a while whose row the table refuses to write. From any thread."""
        until = self._clock.monotonic() + _REFUSED_PAUSE
        with self._refused_lock:
            self._refused[lease.lease_key] = (lease.counter, problem, until)

    def _limits_at(self, now: float) -> TakeLimits:
        """What may be taken now: a patient newcomer leaves alone what others hold."""
        if self.held or now >= self._patient_until:
            self._patient_until = 0.0
            return self._limits
        return replace(self._limits, max_steals=0)

    def _lead(self, scan: TableScan, leases: list[Lease], now: float, seen_at: float) -> None:
        """Who leads, and whether the leases leave a hole."""
        rows = self._rows = scan.leases
        leads = is_leader(leases, self._worker_id, lambda lease: self._observer.is_expired(lease, now))
        if leads and not self._leads:
            _LOGGER.info("worker %s: leads", self._worker_id)
        self._leads = leads
        self._mistrust_java(rows, now)
        self._warn_of_migration(scan, seen_at)
        if leads:
            self._standby.sweep(seen_at)
        holes = self._duties.audit(leases, seen_at, leads=leads)
        if holes:
            self._to_sync += holes
            self._due["sync"] = seen_at

    def _report(self, now: float) -> float:
        assert self._membership is not None
        return self._membership.tick(now)

    def _mistrust_java(self, rows: list[Lease], now: float) -> None:
        """A Java leader that lets its own leases expire assigns none either, though its lock stands for long."""
        leader = None if self._membership is None else self._membership.leader(now)
        if self._membership is None or leader is None:
            return
        observer, claim_time = self._observer, CLAIM_TIME * self._config.failover_time
        if keeps_nothing(
            rows,
            leader,
            lambda lease: observer.is_expired(lease, now),
            lambda lease: observer.has_stopped(lease, now, claim_time),
        ):
            _LOGGER.warning("Java leader %s stopped renewing its leases; taking them over", printable(leader))
            self._membership.give_leader_up()

    def _warn_of_migration(self, scan: TableScan, now: float) -> None:
        """Tell that this worker keeps a fleet of Java workers from going from KCL 2.x to 3.x."""
        membership = self._membership
        item = scan.others.get(MIGRATION_KEY) or (None if membership is None else membership.migration)
        if not is_upgrading_from_2x(item):
            return
        if membership is None:
            self._migration_log.log(
                now,
                "migration metrics",
                "worker %s: the migration of this application from KCL 2.x to 3.x cannot complete, because this worker "
                "publishes no worker metrics; set worker_metrics",
                self._worker_id,
            )
        if kcl2_leader(scan.leases) == self._worker_id:
            self._migration_log.log(
                now,
                "migration election",
                "worker %s: the migration of this application from KCL 2.x to 3.x cannot complete, because KCL 2.x's "
                "election names this worker, and only a Java worker completes it; stop this worker until it has (10 "
                "minutes), or start it under another worker id",
                self._worker_id,
            )

    def _java_leads(self, now: float) -> bool:
        return self._membership is not None and self._membership.leader(now) is not None

    def _is_left_to_java(self, take: Take, now: float) -> bool:
        """Whether a decision belongs to a Java leader that lives.

        Such a leader gives every lease to the worker that it judges best, and would undo what we decide by another
        rule. We take what it gave us (our name on it), and only what it left lying for a time in which a leader
        whose assignments work at all would have come round.
        """
        if take.reason is TakeReason.RESUMED or not self._java_leads(now):
            return False
        # Of a lease that somebody keeps the time is negative: nothing is moved here by ourselves.
        return self._observer.unowned_for(take.lease, now) < PATIENCE

    # Handovers

    def _wanted(self, held: HeldLease) -> None:
        _LOGGER.info("lease %s: %s asks for it", held.key, printable(held.handoff_requester or ""))
        self._on_handoff_requested(held)

    def _carry_out(self, take: Take) -> None:
        """A decision of the planner. Moving a lease away from a live worker is asked for, if that worker can hear."""
        if (
            take.reason is TakeReason.STOLEN
            and self._config.graceful_lease_handoff_timeout > 0
            and self._knows_handover(take.lease)
        ):
            try:
                self._moves.ask(take.lease)
            except AwsError as error:
                if not is_refused_row(error):
                    raise
                self._note_refused(take.lease, f"its row cannot be written: {error}")
        else:
            self._take(take.lease, self._reason_text(take))

    def _reason_text(self, take: Take) -> str:
        if take.reason is TakeReason.RESUMED:
            if self._moves.has_arrived(take.lease.lease_key):
                return "handed off"
            if self._java_leads(self._clock.monotonic()) and self._observer.has_changed(take.lease):
                return "assigned by the Java leader"
        return take.reason.value

    def _knows_handover(self, lease: Lease) -> bool:
        if supports_handoff(lease):
            return True
        owner = lease.owner
        return self._membership is not None and owner is not None and self._membership.has_metrics(owner)

    def _pass_on(self, now: float) -> float:
        """While stopping: what still arrives goes to whoever looks next, instead of expiring on our name."""
        assert self._stopped_at is not None
        if self._membership is not None:
            self._membership.withdraw()
        try:
            self._standby.withdraw()
        except AwsError as error:
            _LOGGER.warning("worker %s: its mark stays behind: %s", self._worker_id, error)
            self._standby.forget()
        return min(self._moves.pass_on(now, self._stopped_at), now + self._config.lease_scan_interval)

    def _take(self, lease: Lease, reason: str) -> None:
        sent_at = self._clock.monotonic()
        try:
            row = self._store.take(lease, self._worker_id)
        except AwsError as error:
            if is_refused_row(error):
                self._note_refused(lease, f"its row cannot be written: {error}")
                return
            if not error.retryable:
                raise
            # If it had effect, the next look finds our own id on the row and resumes it.
            self._log_throttle.log(sent_at, "take", "lease %s: not taken: %s", lease.lease_key, error)
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
            java_leads=self._java_leads,
            metrics=self._metrics,
        )
        held.renew_at = sent_at + self._renewal_interval
        self.held.add(held)
        former = (
            f" from {printable(lease.holder)}" if lease.holder and lease.holder != self._worker_id else ""
        )
        _LOGGER.info("lease %s: taken%s (%s)", lease.lease_key, former, reason)
        self._metrics.add(catalogue.TAKEN_LEASES, 1)
        if reason == TakeReason.EXPIRED.value:
            self._metrics.add(catalogue.EXPIRED_LEASES_TAKEN, 1)
        self._metrics.add(catalogue.CURRENT_LEASES, len(self.held))
        self._on_acquired(held)

    def _measure(self, leases: list[Lease], taken: int, now: float) -> None:
        """Record what a scan that began at ``now`` showed."""
        owned = [lease for lease in leases if lease.owner is not None and not lease.is_finished]
        kept = [lease for lease in owned if not self._observer.is_expired(lease, now)]
        alive = {self._worker_id, *self._standby.workers(now), *(lease.holder for lease in kept)}
        self._metrics.add(catalogue.EXPIRED_LEASES, len(owned) - len(kept))
        self._metrics.add(catalogue.NUM_WORKERS, len(alive))
        self._metrics.add(catalogue.TOTAL_LEASES, len(leases))
        self._metrics.add(catalogue.LEASES_TO_TAKE, taken)
        self._metrics.add(catalogue.CURRENT_LEASES, len(self.held))
        self._metrics.add(catalogue.UNREADABLE_LEASES, len(self.problems))

    # Duties

    def _sync(self, now: float) -> None:
        """Create missing leases: as the leader, or because somebody found one missing."""
        wanted, self._to_sync = self._to_sync, []
        everything = self._leads
        if self._sync_asked:
            # Only then: who asks between these lines must not be forgotten.
            self._sync_asked, everything = False, True
        if not everything and not wanted:
            return
        try:
            created = self._duties.sync(None if everything else wanted)
        except KinesisSdkError:
            self._to_sync, self._sync_asked = wanted, everything
            raise
        if created:
            self._due["look"] = now

    def _clean_up(self, now: float) -> None:
        """Delete what nobody needs any more, as the leader."""
        if self._leads:
            self._duties.clean_up(self._rows, now)

    def _list_streams(self, now: float) -> None:
        """Which streams are ours now; shards of others are given back."""
        before = {tracked.key for tracked in self._streams.current()}
        self._streams.refresh()
        current = {tracked.key: tracked for tracked in self._streams.current()}
        if before == current.keys():
            return
        for key in sorted(current.keys() - before, key=str):
            _LOGGER.info("stream %s: is consumed from now on", key)
            self._to_sync.append(current[key])
        for key in sorted(before - current.keys(), key=str):
            _LOGGER.info("stream %s: is not consumed any more", key)
        self._on_streams_changed()
        if self._to_sync and not self._leads:
            # The leader may learn of a new stream a whole interval later than we do.
            self._to_sync = [one for one in self._to_sync if not self._has_leases(one)]
        self._due["sync"] = now

    def _has_leases(self, tracked: TrackedStream) -> bool:
        return any(tracked.owns(lease) for lease in self._rows)

    def stream_gone(self, tracked: TrackedStream, error: KinesisSdkError) -> None:
        """Leave one of several streams out until they are listed again. From any thread."""
        if self._streams.suspend(tracked, str(error)):
            _LOGGER.error("stream %s: can not be consumed and is left out: %s", tracked, error)
            self._on_streams_changed()

    def _jittered(self, interval: float) -> float:
        return interval * (0.8 + 0.4 * self._rng.random())

    # Renewing

    def renew(self, now: float) -> float:
        """Send the heartbeats that are due; returns when the next one is. For a thread of its own."""
        return self._renewals.tick(now)

    def forget(self, held: HeldLease) -> None:
        """Stop renewing a lease that was released, handed off or lost. From any thread."""
        if held.refused is not None:
            self._note_refused(held.lease, held.refused)
        self.held.remove(held)
        self._metrics.add(catalogue.CURRENT_LEASES, len(self.held))
        self._moves.went(held)
