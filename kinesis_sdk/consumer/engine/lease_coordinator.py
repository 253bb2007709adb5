"""Lease loops of a worker: scan, take, sync and clean up.

Each loop method does the work that is due at ``now`` and returns its next due time. Decisions are pure (`LeaseStrategy`,
`plan_sync`, `plan_cleanup`); this module reads the table and applies them. Renewals run in their own loop, so a slow scan or
handler never delays a heartbeat.

Cost per worker and minute with the defaults: 60 scans (one page each while the table is below 1 MiB), one ListShards and
one consistent Scan, one cleanup Scan; per held lease 9 renewals, or fewer, because a checkpoint counts as a renewal. A lease that moves
costs six requests: the handoff request, about three reads, the handoff, the take.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.common.metrics import BoundMetrics
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.engine.java_fleet import JavaFleet
from kinesis_sdk.consumer.engine.position_cleanup import INTERVAL as POSITION_INTERVAL
from kinesis_sdk.consumer.engine.position_cleanup import PositionCleanup
from kinesis_sdk.consumer.engine.row_problems import PROBLEM_LOG_INTERVAL, RowProblems
from kinesis_sdk.consumer.leases.java.worker_metrics import JavaMembership
from kinesis_sdk.consumer.leases.leader import is_leader
from kinesis_sdk.consumer.leases.ownership.drain import Drain
from kinesis_sdk.consumer.leases.ownership.handoff import supports_handoff
from kinesis_sdk.consumer.leases.ownership.handoff_manager import HandoffManager
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease, HeldLeases
from kinesis_sdk.consumer.leases.ownership.listener import LeaseListener
from kinesis_sdk.consumer.leases.ownership.renewer import LeaseRenewer
from kinesis_sdk.consumer.leases.ownership.standby import StandbyHeartbeats
from kinesis_sdk.consumer.leases.strategies import Plan, TableView, Take, TakeLimits, TakeReason
from kinesis_sdk.consumer.leases.table.expiry import LeaseObserver
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.store import LeaseStore, TableScan, is_rejected_row
from kinesis_sdk.consumer.leases.table.transitions import Conflict
from kinesis_sdk.consumer.runtime.runtime import Runtime
from kinesis_sdk.consumer.shard_sync.audit import find_row_problems
from kinesis_sdk.consumer.shard_sync.leader_tasks import LeaderTasks
from kinesis_sdk.consumer.sinks.sink import AnySink, DeletesRows
from kinesis_sdk.consumer.streams import StreamDirectory, StreamListener, TrackedStream
from kinesis_sdk.consumer.until import Until

_LOGGER = FieldLogger(logging.getLogger(__name__))

_RETRIES = Backoff(0.2, 10.0)
_NEVER = float("inf")


class CoordinatorListener(LeaseListener, StreamListener, Protocol):
    """Receiver of a coordinator's events; `ConsumerEngine` implements it."""

    def on_until_reached(self) -> None:
        """End the worker, because every record from before its ``until`` is processed. Called from the table loop."""


class LeaseCoordinator:
    """Acquires and keeps this worker's leases.

    One thread calls `renew`, and another thread calls `tick`; `request`, `stop_taking` and `forget` are thread-safe.

    Args:
        membership: Membership in a fleet of Java KCL 3 workers; None for a fleet without such workers.
        sink: Sink whose rows of finished shards are deleted; None without a sink.

    Attributes:
        until: The moment up to which records are processed before the worker ends; None if it does not end by itself. Set before the
            first `tick`.
    """

    def __init__(
        self,
        *,
        streams: StreamDirectory,
        worker_id: str,
        config: ConsumerConfig,
        store: LeaseStore,
        kinesis: KinesisClient,
        runtime: Runtime,
        listener: CoordinatorListener,
        metrics: BoundMetrics,
        membership: JavaMembership | None = None,
        sink: AnySink | None = None,
        application_name: str = "",
    ) -> None:
        self._logger = FieldLogger(_LOGGER, stream=streams.single, worker=worker_id)
        self.held: HeldLeases = HeldLeases()
        self._streams = streams
        self._worker_id = worker_id
        self._config = config
        self._store = store
        self._clock = runtime.clock
        self._rng = runtime.rng
        self._metrics = metrics
        self._listener = listener
        self._renewer = LeaseRenewer(
            self.held,
            failover_time=config.leases.failover_time,
            renew_interval=config.leases.renew_interval,
            handoff_timeout=config.leases.graceful_lease_handoff_timeout,
            runtime=runtime,
            listener=listener,
        )
        self._leader_tasks = LeaderTasks(
            store=store,
            kinesis=kinesis,
            streams=streams,
            settings=config.coordination,
            sleep=runtime.sleep,
            rng=runtime.rng,
            listener=listener,
            worker_id=worker_id,
        )
        self._positions: PositionCleanup | None = None
        rows: object = sink
        if isinstance(rows, DeletesRows) and config.coordination.cleanup_leases_upon_shard_completion:
            self._positions = PositionCleanup(
                rows,
                application=application_name,
                streams=streams,
                store=store,
                list_readable=self._leader_tasks.list_readable,
                runtime=runtime,
                worker_id=worker_id,
            )
        self._observer = LeaseObserver(config.leases.failover_time)
        self._strategy = config.leases.strategy
        self._renewal_interval = config.leases.renew_interval
        self._limits = TakeLimits(
            max_leases=config.leases.max_leases_for_worker or sys.maxsize,
            max_steals=config.leases.max_leases_to_steal_at_one_time,
        )
        self._rebalance_allowed_at = _NEVER
        self._standby = StandbyHeartbeats(
            store,
            worker_id,
            failover_time=config.leases.failover_time,
            heartbeat_interval=self._renewal_interval,
            scan_interval=config.leases.lease_scan_interval,
        )
        self._drain = Drain(store, worker_id)
        self._log_throttle = LogThrottle(self._logger)
        self.rows: RowProblems = RowProblems(
            streams=streams,
            misfits=self._leader_tasks.misfits,
            clock=runtime.clock,
            log=self._logger,
            fields=self._fields,
        )
        self._java = JavaFleet(
            membership,
            observer=self._observer,
            worker_id=worker_id,
            failover_time=config.leases.failover_time,
            log=self._logger,
        )
        self._drain_log = LogThrottle(self._logger, interval=PROBLEM_LOG_INTERVAL)
        self._failures = 0
        self._taking = True
        self._stopped_at: float | None = None
        self._handoffs = HandoffManager(
            store,
            worker_id,
            failover_time=config.leases.failover_time,
            handoff_timeout=config.leases.graceful_lease_handoff_timeout,
            clock=runtime.clock,
            held=self.held,
            listener=listener,
            metrics=metrics,
            fields=self._fields,
        )
        self.until: Until | None = None
        self._next_scan: float | None = None
        self._leads = False
        self._rows: list[Lease] = []
        self._to_sync: list[TrackedStream] = []
        self._sync_requested = False
        self._due: dict[str, float] = {}

    def _stream_of(self, lease: Lease) -> StreamId | None:
        tracked = self._streams.find(lease)
        return None if tracked is None else tracked.stream

    def _fields(self, lease: Lease) -> dict[str, str | None]:
        return log_fields(
            stream=self._stream_of(lease) or lease.stream_name, shard=lease.shard, worker=self._worker_id
        )

    # Start and stop

    def start(self) -> None:
        """Create the table if it is missing, sync it with the streams, and schedule the first scan."""
        self._store.ensure_ready()
        self._streams.refresh(first=True)
        self._leader_tasks.start()
        now = self._clock.monotonic()
        self._rebalance_allowed_at = now + self._config.leases.initial_rebalance_delay
        self._due = {
            "scan": now,
            "incoming": _NEVER,
            "sync": now + self._jittered(self._config.coordination.shard_sync_interval),
            "cleanup": now + self._jittered(self._config.coordination.lease_cleanup_interval),
        }
        if self._positions is not None:
            self._due["positions"] = self._due["cleanup"]
        self._due["membership"] = self._java.tick(now)
        if not self._streams.is_single:
            self._due["streams"] = now + self._jittered(self._config.coordination.stream_list_interval)

    def stop_taking(self) -> None:
        """Take no more leases; held leases are renewed until they are released."""
        if self._taking:
            self._stopped_at = self._clock.monotonic()
            self._taking = False

    @property
    def is_draining(self) -> bool:
        """Whether an operator requested that this worker hands off its leases and takes none."""
        return self._drain.active

    @property
    def is_winding_down(self) -> bool:
        """Whether a clean stop still has work to do at the table.

        Incoming leases must be passed on, the standby heartbeat and the worker metrics must be removed.
        """
        return bool(self._handoffs) or self._standby.is_registered or self._java.is_reported

    def scan_overdue(self, now: float) -> float | None:
        """Return the seconds by which the next scan is late; None before the first scan. Thread-safe."""
        due = self._next_scan
        return None if due is None else max(0.0, now - due)

    def renewal_overdue(self, now: float) -> float:
        """Return the seconds by which the most overdue renewal is late. Thread-safe."""
        oldest = min((held.written_at for held in self.held if held.gone is None), default=now)
        return max(0.0, now - oldest - self._renewal_interval)

    def request(self, loop: str) -> None:
        """Make the loop ``scan``, ``sync`` or ``cleanup`` due now.

        A requested sync runs on any worker, not only on the leader.
        """
        if loop == "sync":
            self._sync_requested = True
        self._due[loop] = self._clock.monotonic()

    # The table loops

    def tick(self, now: float) -> float:
        """Run the table loops that are due; return the next due time."""
        if not self._taking:
            return self._wind_down(now)
        self._due["outgoing"] = self._handoffs.next_reclaim(now)
        coordination = self._config.coordination
        list_interval = self._jittered(coordination.stream_list_interval)
        sync_interval = self._jittered(coordination.shard_sync_interval)
        cleanup_interval = self._jittered(coordination.lease_cleanup_interval)
        next_due = min(self._due.values())
        if next_due > now:
            return next_due
        for name, loop, interval in (
            ("streams", self._list_streams, list_interval),
            ("membership", self._report_membership, 0.0),
            ("sync", self._sync, sync_interval),
            ("scan", self._scan_leases, 0.0),
            ("incoming", self._poll_incoming, 0.0),
            ("outgoing", self._reclaim_unclaimed, 0.0),
            ("standby", self._standby.tick, 0.0),
            ("drain", self._drain.tick, 0.0),
            ("cleanup", self._clean_up, cleanup_interval),
            ("positions", self._clean_up_positions, POSITION_INTERVAL),
        ):
            if self._due.get(name, _NEVER) > now or not self._taking:
                continue
            # Set the next due time before the work. Otherwise: another thread calls request("scan") while the loop runs; the
            # loop then overwrites the due time of that request, and the scan comes an interval late.
            self._due[name] = now + interval if interval else _NEVER
            try:
                following = loop(now)
            except KinesisSdkError as error:
                if not error.retryable:
                    raise
                self._failures += 1
                self._log_throttle.log(
                    now,
                    f"{name} {type(error).__name__}",
                    "worker %s: lease loop %r failed, retrying: %s",
                    self._worker_id,
                    name,
                    error,
                )
                following = now + _RETRIES.pause(self._failures, self._rng)
            else:
                self._failures = 0
                if name == "scan":
                    self._next_scan = following
            if following is not None:
                self._due[name] = min(self._due[name], following)
        return min(self._due.values())

    def _scan_leases(self, now: float) -> float:
        """Scan the table, plan, and apply the plan; return the monotonic time of the next scan."""
        with self._metrics.timed(self._clock, catalogue.LIST_LEASES_TIME, catalogue.LIST_LEASES_SUCCESS):
            scan = self._store.scan()
        rows = scan.leases
        seen_at = self._clock.monotonic()
        self._observer.observe(rows, seen_at)
        # Leases of other streams, and lease keys of the other form (single or multi-stream), are neither counted nor taken.
        leases = [lease for lease in rows if self._streams.find(lease) is not None]
        self._find_foreign_changes(leases)
        self._update_leadership(scan, leases, now, seen_at)
        unwritable = self.rows.find(scan, leases, self.held, seen_at)
        self._handoffs.observe(leases, seen_at)
        self._standby.observe(leases, seen_at)
        self._drain.observe(rows, seen_at)
        self._due["drain"] = self._drain.due
        intervals = self._config.leases.intervals(len(leases))
        planned = leases if self.until is None else self.until.open_leases(leases)
        view = TableView(
            leases=planned,
            observed=self._observer,
            me=self._worker_id,
            now=now,
            limits=self._limits_at(now),
            held=self._handoffs.held_or_incoming_keys(
                leases, lambda row: self._observer.is_expired(row, now)
            ),
            busy={*self._listener.busy_lease_keys(), *unwritable},
            workers=self._standby.workers(seen_at),
            draining=self._drain.workers,
            # By then, the worker to which a lease is assigned has scanned the table twice.
            claim_grace=2 * intervals.scan + self._config.leases.lease_scan_interval,
        )
        if self._drain.active:
            self._hand_off_all(view, seen_at)
            plan = Plan()
        else:
            plan = self._strategy.plan(view, self._rng)
        before = len(self.held) + len(self._handoffs)
        won = 0
        for take in plan.takes:
            if not self._taking or won == plan.most:
                break
            if self._java.decides(take, now):
                continue
            self._execute(take)
            won = len(self.held) + len(self._handoffs) - before
        self._due["incoming"] = self._handoffs.next_incoming_poll(seen_at)
        # A worker whose last lease is being handed off stays registered, so that its peers count it without a gap.
        self._standby.set_active(
            plan.put_standby_heartbeat and not won and not self._handoffs.keeps_or_expects_leases, seen_at
        )
        self._due["standby"] = self._standby.due
        self._measure(leases, len(plan.takes) if plan.most is None else plan.most, now)
        self._release_done(planned, leases, unwritable, now)
        if self.until is not None and not planned and self._is_all_processed(self.until, leases):
            self._listener.on_until_reached()
        due = seen_at + (intervals.rescan if plan.rescan_soon else intervals.scan)
        if not intervals.scan_at_expiry:
            return due
        expiry = self._observer.next_expiry(seen_at)
        # Add 1 ms: a lease is expired only once its age exceeds failover_time.
        return due if expiry is None else min(due, expiry + 0.001)

    def _is_all_processed(self, until: Until, leases: list[Lease]) -> bool:
        """Return whether every record from before ``until`` is processed. Called after a scan that showed no open lease.

        Cost, once: one ListShards per stream and two Scans.
        """
        # The first scan proves nothing: it may be stale, and it is not a snapshot. The scan may show a parent after its
        # end, yet miss the leases of its children, which were created meanwhile. The second scan starts after every
        # write that the first scan shows. If the second scan finds no new lease and all leases are still done, the two
        # scans missed no lease. The shard sync in between finds shards without a lease.
        current = self._streams.current()
        if len(current) < len(self._streams.all()) or self.rows.problems:
            return False  # a suspended stream or an unreadable row may have unprocessed records
        if self._leader_tasks.sync():
            self.request("scan")
            return False
        scan = self._store.scan(consistent=True)
        again = [lease for lease in scan.leases if self._streams.find(lease) is not None]
        return (
            not until.open_leases(again)
            and {lease.lease_key for lease in again} <= {lease.lease_key for lease in leases}
            and not find_row_problems(scan, self._streams)
            and all(any(map(tracked.owns, again)) for tracked in current)
        )

    def _find_foreign_changes(self, leases: list[Lease]) -> None:
        """End held leases whose rows another worker or an operator changed; pick up operators' requests."""
        rows = {lease.lease_key: lease for lease in leases} if len(self.held) else {}
        for held in self.held:
            row = rows.get(held.key)
            if row is None:
                continue
            if held.observe_foreign_change(row):
                self.held.remove(held)
                self._listener.on_lease_lost(held)
            else:
                held.observe_handler_request(row)

    def _hand_off_all(self, view: TableView, seen_at: float) -> None:
        """Hand off the leases of this draining worker.

        Peers request these leases, so no shard becomes idle. Leases that no peer requests within two scans are released.
        """
        is_overdue = seen_at - self._drain.since >= view.claim_grace
        if is_overdue:
            for held in self.held:
                if held.handoff_requester is None:
                    self._listener.on_release_wanted(held)
        held_keys = {*self.held.keys(), *view.busy}
        for lease in view.leases:
            # A leader assigned the lease to this worker, a peer handed it off, or this process was restarted.
            resumable = lease.owner == self._worker_id and not lease.in_handoff and not lease.is_finished
            if resumable and lease.lease_key not in held_keys:
                self._pass_on(lease)
        others = {
            lease.holder
            for lease in view.leases
            if lease.holder is not None and not view.observed.is_expired(lease, view.now)
        }
        if is_overdue and not {*others, *view.workers} - {*view.draining, self._worker_id}:
            self._drain_log.log(
                seen_at,
                "drain",
                "worker %s: draining, but no other worker is known that could take its leases: their shards are not consumed "
                "until another worker takes them, or until a drain ends",
                self._worker_id,
            )

    def _release_done(
        self, planned: list[Lease], leases: list[Lease], unwritable: Collection[str], now: float
    ) -> None:
        """Release leases that name this worker although it neither holds nor will take them.

        These are finished leases and, with ``until``, leases whose shards are processed. Their shard ended during the handoff
        to this worker, or the process was killed between the end of the shard and the release. No plan takes such a lease, so
        its row would name this worker forever.
        """
        kept = {*self.held.keys(), *self._listener.busy_lease_keys(), *unwritable}
        own = [lease for lease in leases if lease.owner == self._worker_id and lease.lease_key not in kept]
        if not own:
            return
        takeable = {lease.lease_key for lease in planned if not lease.is_finished}
        for lease in own:
            if lease.lease_key in takeable:
                continue
            # During a handoff the old owner still holds the lease. Its `shard_ended` may run long after the checkpoint;
            # then the old owner releases the lease. If the old owner died, the lease expires.
            if lease.holder == self._worker_id or self._observer.is_expired(lease, now):
                self._pass_on(lease)

    def _pass_on(self, row: Lease) -> None:
        """Release a lease whose row names this worker, although this worker does not take it."""
        try:
            self._store.release(row)
        except KinesisSdkError as error:
            if not is_rejected_row(error):
                raise
            self.rows.skip(row, error)

    def _poll_incoming(self, now: float) -> float:
        busy: Collection[str] | None = None
        for row, reason in self._handoffs.poll_incoming(now):
            if row.is_finished or not self._taking or self._drain.active:
                # The shard ended, or this worker stops or drains, after it requested the lease. Release the lease so
                # that it does not stay under this worker's id, but not while the old owner holds it.
                if not row.in_handoff:
                    self._pass_on(row)
                continue
            if busy is None:
                busy = self._listener.busy_lease_keys()
            if row.lease_key not in busy:
                self._take(row, reason)
        return self._handoffs.next_incoming_poll(now)

    def _reclaim_unclaimed(self, now: float) -> float:
        for row, reason in self._handoffs.reclaim_unclaimed(now):
            if self._drain.active:
                self._pass_on(row)
            elif self._taking and row.lease_key not in self._listener.busy_lease_keys():
                self._take(row, reason)
        return self._handoffs.next_reclaim(now)

    def _limits_at(self, now: float) -> TakeLimits:
        """Return the limits for this scan: nothing is taken from live workers during `initial_rebalance_delay`."""
        if self.held or now >= self._rebalance_allowed_at:
            self._rebalance_allowed_at = 0.0
            return self._limits
        return replace(self._limits, max_steals=0)

    def _update_leadership(self, scan: TableScan, leases: list[Lease], now: float, seen_at: float) -> None:
        """Decide whether this worker leads, and audit the hash range coverage."""
        self._rows = scan.leases
        leads = is_leader(leases, self._worker_id, lambda lease: self._observer.is_expired(lease, now))
        if leads and not self._leads:
            self._logger.info("worker %s became leader", self._worker_id)
        self._leads = leads
        self._java.observe(scan, now, seen_at)
        if leads:
            self._standby.remove_stale(seen_at)
        uncovered = self._leader_tasks.audit(leases, seen_at, leads=leads)
        if uncovered:
            self._to_sync += uncovered
            self._due["sync"] = seen_at

    def _report_membership(self, now: float) -> float:
        if self._drain.active:
            # A KCL 3 leader assigns leases to every worker with fresh metrics, most of them to workers without leases.
            self._java.withdraw()
            return now + self._config.leases.lease_scan_interval
        return self._java.tick(now)

    # Taking

    def _execute(self, take: Take) -> None:
        """Request a handoff from a live owner that supports it, otherwise take the lease."""
        if (
            take.reason is TakeReason.STOLEN
            and self._config.leases.graceful_lease_handoff_timeout > 0
            and self._owner_supports_handoff(take.lease)
        ):
            try:
                self._handoffs.request(take.lease)
            except KinesisSdkError as error:
                if not is_rejected_row(error):
                    raise
                self.rows.skip(take.lease, error)
        else:
            self._take(take.lease, self._reason_text(take))

    def _reason_text(self, take: Take) -> str:
        if take.reason is TakeReason.RESUMED:
            if self._handoffs.has_arrived(take.lease.lease_key):
                return "handed off"
            if self._java.has_leader(self._clock.monotonic()) and self._observer.has_changed(take.lease):
                return "assigned by the KCL 3 leader"
        return take.reason.value

    def _owner_supports_handoff(self, lease: Lease) -> bool:
        return supports_handoff(lease) or self._java.supports_handoff(lease)

    def _take(self, lease: Lease, reason: str) -> None:
        sent_at = self._clock.monotonic()
        try:
            row = self._store.take(lease, self._worker_id)
        except KinesisSdkError as error:
            if is_rejected_row(error):
                self.rows.skip(lease, error)
                return
            if not error.retryable:
                raise
            # The response is missing, but the write may have succeeded. Then the next scan finds this worker's id on a
            # row that is not held here, and the plan resumes the lease.
            self._log_throttle.log(
                sent_at,
                "take",
                "lease %s: take failed: %s",
                lease.lease_key,
                error,
                extra=self._fields(lease),
            )
            return
        if isinstance(row, Conflict):
            self._logger.debug(
                "lease %s: lost the race to another worker", lease.lease_key, extra=self._fields(lease)
            )
            return
        held = HeldLease(
            self._store,
            row,
            worker_id=self._worker_id,
            failover_time=self._config.leases.failover_time,
            clock=self._clock,
            acquired_at=sent_at,
            has_kcl3_leader=self._java.has_leader,
            metrics=self._metrics,
            stream=self._stream_of(lease),
        )
        held.renew_at = sent_at + self._renewal_interval
        self.held.add(held)
        source = (
            f" from {printable(lease.holder)}" if lease.holder and lease.holder != self._worker_id else ""
        )
        self._logger.info(
            "lease %s: taken%s (%s)", lease.lease_key, source, reason, extra=self._fields(lease)
        )
        self._metrics.add(catalogue.TAKEN_LEASES, 1)
        if reason == TakeReason.EXPIRED.value:
            self._metrics.add(catalogue.EXPIRED_LEASES_TAKEN, 1)
        self._metrics.add(catalogue.CURRENT_LEASES, len(self.held))
        self._listener.on_lease_acquired(held)

    def _wind_down(self, now: float) -> float:
        """Finish a clean stop: remove this worker's traces from the table and pass incoming leases on."""
        assert self._stopped_at is not None
        self._java.withdraw()
        try:
            self._standby.withdraw()
        except KinesisSdkError as error:
            self._logger.warning("worker %s: failed to remove standby heartbeat: %s", self._worker_id, error)
            self._standby.forget()
        self._handoffs.drop_overdue_at_stop(now, self._stopped_at)
        try:
            self._poll_incoming(now)
        except KinesisSdkError as error:
            self._log_throttle.log(
                now, "wind down", "worker %s: failed to pass incoming leases on: %s", self._worker_id, error
            )
        return min(self._handoffs.next_incoming_poll(now), now + self._config.leases.lease_scan_interval)

    def _measure(self, leases: list[Lease], taken: int, now: float) -> None:
        """Record the metrics of a scan that began at ``now``."""
        owned = [lease for lease in leases if lease.owner is not None and not lease.is_finished]
        alive = [lease for lease in owned if not self._observer.is_expired(lease, now)]
        workers = {self._worker_id, *self._standby.workers(now), *(lease.holder for lease in alive)}
        self._metrics.add(catalogue.EXPIRED_LEASES, len(owned) - len(alive))
        self._metrics.add(catalogue.NUM_WORKERS, len(workers))
        self._metrics.add(catalogue.TOTAL_LEASES, len(leases))
        self._metrics.add(catalogue.LEASES_TO_TAKE, taken)
        self._metrics.add(catalogue.CURRENT_LEASES, len(self.held))
        self._metrics.add(catalogue.UNREADABLE_LEASES, len(self.rows.problems))

    # Leader tasks and streams

    def _sync(self, now: float) -> None:
        """Create missing leases: as the leader, or because the audit or a shard consumer found a missing lease."""
        uncovered, self._to_sync = self._to_sync, []
        everything = self._leads
        if self._sync_requested:
            # Clear the flag only after seeing it set. An unconditional clear would drop a request("sync") that another
            # thread makes between the test and the assignment.
            self._sync_requested, everything = False, True
        if not everything and not uncovered:
            return
        try:
            created = self._leader_tasks.sync(None if everything else uncovered)
        except KinesisSdkError:
            self._to_sync, self._sync_requested = uncovered, everything
            raise
        if created:
            self._due["scan"] = now

    def _clean_up(self, now: float) -> None:
        """Delete leases that are no longer needed, if this worker leads."""
        if self._leads:
            self._leader_tasks.clean_up(self._rows, now)

    def _clean_up_positions(self, _now: float) -> None:
        """Delete rows of the sink that are no longer needed, if this worker leads."""
        if self._positions is None:
            return
        if self._leads:
            self._positions.start()
        else:
            self._positions.forget()

    def _list_streams(self, now: float) -> None:
        """List the streams again; start new streams and release the leases of removed streams."""
        before = {tracked.key for tracked in self._streams.current()}
        self._streams.refresh()
        current = {tracked.key: tracked for tracked in self._streams.current()}
        if before == current.keys():
            return
        for key in sorted(current.keys() - before, key=str):
            self._logger.info("stream %s: started consuming", key, extra=log_fields(stream=key))
            self._to_sync.append(current[key])
        for key in sorted(before - current.keys(), key=str):
            self._logger.info("stream %s: stopped consuming", key, extra=log_fields(stream=key))
        self._listener.on_streams_changed()
        if self._to_sync and not self._leads:
            # Create the leases of a new stream here: the leader may list it a whole interval later than this worker.
            self._to_sync = [tracked for tracked in self._to_sync if not self._has_leases(tracked)]
        self._due["sync"] = now

    def _has_leases(self, tracked: TrackedStream) -> bool:
        return any(tracked.owns(lease) for lease in self._rows)

    def _jittered(self, interval: float) -> float:
        return interval * (0.8 + 0.4 * self._rng.random())

    # Held leases

    def renew(self, now: float) -> float:
        """Send the heartbeats that are due; return the next due time. Runs on its own thread."""
        return self._renewer.tick(now)

    def forget(self, held: HeldLease) -> None:
        """Stop renewing a lease that was released, handed off or lost. Thread-safe."""
        if held.unwritable is not None:
            self.rows.note_unwritable(held.lease, held.unwritable)
        self.held.remove(held)
        self._metrics.add(catalogue.CURRENT_LEASES, len(self.held))
        self._handoffs.on_lease_ended(held)
