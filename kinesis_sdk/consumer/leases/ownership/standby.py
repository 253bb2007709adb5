"""Workers that hold no lease: how their peers know of them, in a table that names only holders.

With fewer leases than workers somebody holds nothing, and which *group* (zone, cluster) is due how many leases depends
on those workers, too. So a worker without leases leaves a mark: an attribute of ours, ``standby:<worker id>``, on one
row of the table. Java ignores and keeps it, and everybody reads it with the scan that he makes anyway. Its value is a
beat that rises like a lease's counter: it counts as long as it changes within the failover time, by each observer's
own clock. What an observer finds at its first look may be of the dead and counts from the next beat on.

Marks are made where they change a plan: in fleets of more than one group, and by workers that wait for the place of
another one (``initial_rebalance_delay``). Cost: as many writes as one lease, and 40 bytes plus the worker's id on a row.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import NamedTuple
from zlib import crc32

from kinesis_sdk.common.errors import AwsError
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.store import LeaseStore, is_refused_row

_LOGGER = logging.getLogger(__name__)

_LEFT_BEHIND = 10
"""Failover times after which a mark that does not change is removed."""
_MOST_SWEPT = 5
"""Marks that are removed after one look."""


class _Beat(NamedTuple):
    lease_key: str
    value: int
    since: float
    changed: bool


class StandbyHeartbeats:
    """The marks of all workers, and this worker's own. Used by the loop that looks.

    Args:
        store: Lease table.
        worker_id: This worker.
        failover_time: Seconds without a change after which a mark counts as a dead worker's.
        heartbeat_interval: Seconds between two changes of our own mark.
        scan_interval: Seconds between the first two.
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
        self._beat_interval = heartbeat_interval
        self._first_interval = min(scan_interval, heartbeat_interval)
        self._beats: dict[str, _Beat] = {}
        self._rows: list[str] = []
        # Rows that take no more attributes, since they are as large as a row may be.
        self._refusing: set[str] = set()
        self._looked = False
        self._wanted = False
        self._marked: str | None = None
        self._beat = 0
        self._due = float("inf")

    def observe(self, leases: Iterable[Lease], now: float) -> None:
        """Take in a scan."""
        rows: list[str] = []
        last: dict[str, tuple[int, str]] = {}
        for lease in leases:
            if not lease.is_finished and lease.lease_key not in self._refusing:
                rows.append(lease.lease_key)
            for worker, value in lease.standby_heartbeats.items():
                # Two rows name a worker that had to move its mark; beats rise over both.
                last[worker] = max(last.get(worker, (-1, "")), (value, lease.lease_key))
        beats: dict[str, _Beat] = {}
        for worker, (value, lease_key) in last.items():
            before = self._beats.get(worker)
            if before is None or before.value != value:
                before = _Beat(lease_key, value, now, self._looked)
            beats[worker] = before
        self._looked = True
        self._beats = beats
        self._rows = sorted(rows)

    def workers(self, now: float) -> Collection[str]:
        """Workers that stand by and live, this one included if its mark is in the table."""
        return {
            worker
            for worker, beat in self._beats.items()
            if (beat.changed and now - beat.since <= self._failover_time)
            or (worker == self._worker_id and self._marked is not None)
        }

    def want(self, wanted: bool, now: float) -> None:
        """Whether this worker stands by from now on."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._due = now
        if self._marked is not None and self._marked not in self._rows:
            self._due = now  # its row is finished or gone

    @property
    def due(self) -> float:
        """When `tick` has something to write."""
        return self._due

    @property
    def is_marked(self) -> bool:
        """Whether a mark of ours is in the table, as far as we know."""
        return self._marked is not None

    def tick(self, now: float) -> float:
        """Beat, or take the mark away; returns when to do so again.

        Raises:
            AwsError: The write failed; it is due still.
        """
        if now < self._due:
            return self._due
        if not self._wanted:
            self.withdraw()
        elif self._rows:
            row = self._marked
            if row is None or row not in self._rows:
                # Not all on one row: each write of a lease costs by the size of its row.
                row = self._marked = self._rows[crc32(self._worker_id.encode()) % len(self._rows)]
            mine = self._beats.get(self._worker_id)
            self._beat = max(self._beat, mine.value if mine is not None else 0) + 1
            try:
                if not self._store.put_standby_heartbeat(row, self._worker_id, self._beat):
                    self._marked = None  # deleted a moment ago
            except AwsError as error:
                if not is_refused_row(error):
                    raise
                _LOGGER.warning("lease %s: takes no standby heartbeat: %s", row, error)
                self._refusing.add(row)
                self._rows.remove(row)
                self._marked = None
            first = mine is None or self._marked is None
            self._due = now + (self._first_interval if first else self._beat_interval)
        else:
            self._due = now + self._beat_interval
        return self._due

    def withdraw(self) -> None:
        """Take our mark away. Raises as `tick`."""
        self._wanted = False
        if self._marked is not None:
            self._store.put_standby_heartbeat(self._marked, self._worker_id, None)
            self._marked = None
        self._due = float("inf")

    def forget(self) -> None:
        """Leave our mark behind: it stops counting by itself."""
        self._wanted, self._marked, self._due = False, None, float("inf")

    def sweep(self, now: float) -> None:
        """Remove some of what the dead left behind; what fails is left to a later look."""
        old = [
            (worker, beat)
            for worker, beat in self._beats.items()
            if now - beat.since > _LEFT_BEHIND * self._failover_time and worker != self._worker_id
        ]
        for worker, beat in old[:_MOST_SWEPT]:
            try:
                self._store.put_standby_heartbeat(beat.lease_key, worker, None)
            except AwsError as error:
                if not error.retryable:
                    raise
                _LOGGER.debug(
                    "lease %s: the mark of %s stays for now: %s", beat.lease_key, printable(worker), error
                )
                return
            _LOGGER.info("lease %s: removed the mark of %s, which is gone", beat.lease_key, printable(worker))
