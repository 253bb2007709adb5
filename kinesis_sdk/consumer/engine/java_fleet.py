"""The Java workers of a mixed fleet: worker metrics, decisions of a KCL 3 leader, migrations from KCL 2.x to 3.x."""

from __future__ import annotations

from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.engine.row_problems import PROBLEM_LOG_INTERVAL
from kinesis_sdk.consumer.leases.java.leader_lock import CLAIM_TIME, all_leases_expired
from kinesis_sdk.consumer.leases.java.migration import MIGRATION_KEY, is_upgrading_from_2x, kcl2_leader
from kinesis_sdk.consumer.leases.java.worker_metrics import LEADER_GRACE, JavaMembership
from kinesis_sdk.consumer.leases.strategies import Take, TakeReason
from kinesis_sdk.consumer.leases.table.expiry import LeaseObserver
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.store import TableScan

_NEVER = float("inf")


class JavaFleet:
    """The Java workers of this worker's fleet. Used by the table loop; `has_leader` is thread-safe.

    Args:
        membership: Membership in a fleet of Java KCL 3 workers; None for a fleet without such workers.
    """

    def __init__(
        self,
        membership: JavaMembership | None,
        *,
        observer: LeaseObserver,
        worker_id: str,
        failover_time: float,
        log: FieldLogger,
    ) -> None:
        self._membership = membership
        self._observer = observer
        self._worker_id = worker_id
        self._claim_time = CLAIM_TIME * failover_time
        self._logger = log
        self._migration_log = LogThrottle(log, interval=PROBLEM_LOG_INTERVAL)

    def tick(self, now: float) -> float:
        """Report this worker's metrics and read the metrics of other workers if due; return the next due time."""
        return _NEVER if self._membership is None else self._membership.tick(now)

    def withdraw(self) -> None:
        """Remove this worker's metrics."""
        if self._membership is not None:
            self._membership.withdraw()

    @property
    def is_reported(self) -> bool:
        """Whether the table contains metrics of this worker, as far as this worker knows."""
        return self._membership is not None and self._membership.is_reported

    def observe(self, scan: TableScan, now: float, seen_at: float) -> None:
        """Process a scan that began at ``now`` and ended at ``seen_at``."""
        self._check_leader(scan.leases, now)
        self._warn_of_migration(scan, seen_at)

    def _check_leader(self, rows: list[Lease], now: float) -> None:
        """Presume that a KCL 3 leader is dead once all its leases have expired, although its lock stays valid for two more minutes."""
        leader = None if self._membership is None else self._membership.leader(now)
        if self._membership is None or leader is None:
            return
        observer, claim_time = self._observer, self._claim_time
        if all_leases_expired(
            rows,
            leader,
            lambda lease: observer.is_expired(lease, now),
            lambda lease: observer.has_stopped(lease, now, claim_time),
        ):
            self._logger.warning(
                "KCL 3 leader %s stopped renewing its leases; taking unowned leases until its next heartbeat",
                printable(leader),
            )
            self._membership.presume_leader_dead()

    def _warn_of_migration(self, scan: TableScan, now: float) -> None:
        """Warn if this worker blocks the migration of the Java workers from KCL 2.x to 3.x."""
        membership = self._membership
        item = scan.others.get(MIGRATION_KEY) or (None if membership is None else membership.migration)
        if not is_upgrading_from_2x(item):
            return
        if membership is None:
            self._migration_log.log(
                now,
                "migration metrics",
                "worker %s: the migration of this application from KCL 2.x to 3.x cannot complete, because this worker "
                "publishes no worker metrics; set coordination.worker_metrics",
                self._worker_id,
            )
        if kcl2_leader(scan.leases) == self._worker_id:
            self._migration_log.log(
                now,
                "migration election",
                "worker %s: the migration of this application from KCL 2.x to 3.x cannot complete, because KCL 2.x elected "
                "this worker as leader, and only a Java worker can complete it; stop this worker until it has (10 "
                "minutes), or start it under another worker id",
                self._worker_id,
            )

    def has_leader(self, now: float) -> bool:
        """Return whether a KCL 3 leader is alive."""
        return self._membership is not None and self._membership.leader(now) is not None

    def decides(self, take: Take, now: float) -> bool:
        """Return whether a take is left to a live KCL 3 leader.

        The leader assigns each lease to the worker that it rates best, and would undo takes that follow another rule. This
        worker takes the leases that the leader assigned to it (its id is on the row), and unowned leases once any working
        leader would have assigned them.
        """
        if take.reason is TakeReason.RESUMED or not self.has_leader(now):
            return False
        # `unowned_for` is negative while the lease is held, so no lease is requested from a live worker.
        return self._observer.unowned_for(take.lease, now) < LEADER_GRACE

    def supports_handoff(self, lease: Lease) -> bool:
        """Return whether a lease's owner is a Java worker that understands handoffs."""
        owner = lease.owner
        return self._membership is not None and owner is not None and self._membership.has_metrics(owner)
