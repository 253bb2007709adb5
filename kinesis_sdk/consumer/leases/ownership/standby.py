"""Standby heartbeats, which make workers without leases visible to their peers.

The lease table names only owners, but the share of a *group* (zone, cluster) also depends on idle workers. An idle worker
therefore writes the attribute ``standby:<worker id>`` with an increasing number to one row. Peers see this attribute in
their regular scan; KCL workers ignore and keep it. The attribute expires like a lease: it must change within the failover
time, by each observer's own clock. A heartbeat found on the first scan may be stale and counts only after its value has changed.

Standby heartbeats are written only if they change a plan: in fleets with several groups, and during
``initial_rebalance_delay``. This costs as many writes as one lease, and 40 bytes plus the worker id in a row.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import NamedTuple
from zlib import crc32

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.leases.table.lease import Lease, shard_of_key
from kinesis_sdk.consumer.leases.table.store import LeaseStore, is_rejected_row

_LOGGER = FieldLogger(logging.getLogger(__name__))

_REMOVE_AFTER = 10
"""Failover times after which an unchanged standby heartbeat is removed."""
_MAX_REMOVED = 5
"""Maximum standby heartbeats to remove after one scan."""


class _Heartbeat(NamedTuple):
    lease_key: str
    value: int
    since: float
    changed: bool


class StandbyHeartbeats:
    """The standby heartbeats of all workers, and this worker's own. Used by the table loop.

    ``scan_interval`` is also the interval between this worker's first two writes, so that peers soon see the value change.
    """

    def __init__(
        self,
        store: LeaseStore,
        worker_id: str,
        *,
        failover_time: float,
        heartbeat_interval: float,
        scan_interval: float,
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._failover_time = failover_time
        self._heartbeat_interval = heartbeat_interval
        self._first_interval = min(scan_interval, heartbeat_interval)
        self._heartbeats: dict[str, _Heartbeat] = {}
        self._rows: list[str] = []
        # Rows that cannot grow, because they have DynamoDB's maximum size.
        self._full_rows: set[str] = set()
        self._has_scanned = False
        self._active = False
        self._row: str | None = None
        self._value = 0
        self._due = float("inf")

    def observe(self, leases: Iterable[Lease], now: float) -> None:
        """Process a scan."""
        rows: list[str] = []
        last: dict[str, tuple[int, str]] = {}
        for lease in leases:
            if not lease.is_finished and lease.lease_key not in self._full_rows:
                rows.append(lease.lease_key)
            for worker, value in lease.standby_heartbeats.items():
                # A worker that moved its heartbeat to another row may be on both rows; the new row has the higher value.
                last[worker] = max(last.get(worker, (-1, "")), (value, lease.lease_key))
        heartbeats: dict[str, _Heartbeat] = {}
        for worker, (value, lease_key) in last.items():
            before = self._heartbeats.get(worker)
            if before is None or before.value != value:
                before = _Heartbeat(lease_key, value, now, self._has_scanned)
            heartbeats[worker] = before
        self._has_scanned = True
        self._heartbeats = heartbeats
        self._rows = sorted(rows)

    def workers(self, now: float) -> Collection[str]:
        """Return the live standby workers, including this one if its heartbeat is in the table."""
        return {
            worker
            for worker, heartbeat in self._heartbeats.items()
            if (heartbeat.changed and now - heartbeat.since <= self._failover_time)
            or (worker == self._worker_id and self._row is not None)
        }

    def set_active(self, active: bool, now: float) -> None:
        """Set whether this worker writes a standby heartbeat from now on."""
        if active != self._active:
            self._active = active
            self._due = now
        if self._row is not None and self._row not in self._rows:
            self._due = now  # the row is finished or deleted, so the heartbeat must move

    @property
    def due(self) -> float:
        """Monotonic time of the next write of `tick`."""
        return self._due

    @property
    def is_registered(self) -> bool:
        """Whether the table contains a standby heartbeat of this worker, as far as this worker knows."""
        return self._row is not None

    def tick(self, now: float) -> float:
        """Write or remove the heartbeat if due; return the time of the next call. If this raises an error, the write is still due."""
        if now < self._due:
            return self._due
        if not self._active:
            self.withdraw()
        elif self._rows:
            row = self._row
            if row is None or row not in self._rows:
                # Spread the heartbeats over the rows: the cost of each write grows with the size of its row.
                row = self._row = self._rows[crc32(self._worker_id.encode()) % len(self._rows)]
            mine = self._heartbeats.get(self._worker_id)
            self._value = max(self._value, mine.value if mine is not None else 0) + 1
            try:
                if not self._store.put_standby_heartbeat(row, self._worker_id, self._value):
                    self._row = None  # the row was deleted after the scan
            except KinesisSdkError as error:
                if not is_rejected_row(error):
                    raise
                _LOGGER.warning(
                    "lease %s: cannot store a standby heartbeat, using another row: %s",
                    row,
                    error,
                    extra=self._fields(row),
                )
                self._full_rows.add(row)
                self._rows.remove(row)
                self._row = None
            first = mine is None or self._row is None
            self._due = now + (self._first_interval if first else self._heartbeat_interval)
        else:
            self._due = now + self._heartbeat_interval
        return self._due

    def _fields(self, lease_key: str) -> dict[str, str | None]:
        return log_fields(shard=shard_of_key(lease_key), worker=self._worker_id)

    def withdraw(self) -> None:
        """Remove this worker's heartbeat."""
        self._active = False
        if self._row is not None:
            self._store.put_standby_heartbeat(self._row, self._worker_id, None)
            self._row = None
        self._due = float("inf")

    def forget(self) -> None:
        """Stop writing the heartbeat and let it expire."""
        self._active, self._row, self._due = False, None, float("inf")

    def remove_stale(self, now: float) -> None:
        """Remove some heartbeats of dead workers; a later scan retries failed removals."""
        old = [
            (worker, heartbeat.lease_key)
            for worker, heartbeat in self._heartbeats.items()
            if now - heartbeat.since > _REMOVE_AFTER * self._failover_time and worker != self._worker_id
        ]
        for worker, lease_key in old[:_MAX_REMOVED]:
            try:
                self._store.put_standby_heartbeat(lease_key, worker, None)
            except KinesisSdkError as error:
                if not error.retryable:
                    raise
                _LOGGER.debug(
                    "lease %s: failed to remove the standby heartbeat of %s, retrying later: %s",
                    lease_key,
                    printable(worker),
                    error,
                    extra=self._fields(lease_key),
                )
                return
            _LOGGER.info(
                "lease %s: removed the standby heartbeat of dead worker %s",
                lease_key,
                printable(worker),
                extra=self._fields(lease_key),
            )
