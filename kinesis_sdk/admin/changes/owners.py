"""Owners of leases, their kinds, and whether they are alive: judged only from the rows, by this process's own clock. Pure.

The table has no times. A worker is alive if one of its rows was seen to change, and silent if none of them changed for longer
than the failover time; otherwise, its state is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer import Lease

METRICS_AGE = 120.0
"""Seconds after which a KCL 3 worker's metrics count as old. The worker writes its metrics every 30 s, by its own wall clock."""


class OwnerWatch:
    """Knowledge about owners from successive reads of the table. An owner is silent after ``failover_time`` seconds without a change."""

    def __init__(self, failover_time: float = 10.0) -> None:
        self._failover_time = failover_time
        self._since: dict[str, tuple[tuple[object, ...], float]] = {}
        self._beats: dict[str, int] = {}
        self._changed: dict[str, float] = {}
        self._first_seen: dict[str, float] = {}
        self._python: set[str] = set()
        self._kcl3: dict[str, float] = {}
        self._rows: list[Lease] = []
        self._observed_at: float | None = None

    @property
    def leases(self) -> list[Lease]:
        """The newest rows."""
        return self._rows

    def observe(self, leases: Iterable[Lease], now: float) -> None:
        """Process a consistent read of all leases, made at ``now`` in monotonic seconds."""
        self._rows = list(leases)
        self._observed_at = now
        for lease in self._rows:
            holder = lease.holder
            state = (holder, lease.counter)
            known = self._since.get(lease.lease_key)
            if known is None or known[0] != state:
                self._since[lease.lease_key] = (state, now)
                # A row with a new holder shows the new holder's first write, and not whether the old holder is alive.
                if known is not None and holder is not None:
                    self._changed[holder] = now
            if holder is not None:
                self._first_seen.setdefault(holder, now)
            if lease.handoff_owner is not None and lease.handoff_owner == lease.owner:
                self._python.add(lease.handoff_owner)
            self._python.update(lease.draining)
            for worker, beat in lease.standby_heartbeats.items():
                self._python.add(worker)
                self._first_seen.setdefault(worker, now)
                if self._beats.get(worker, beat) < beat:
                    self._changed[worker] = now
                self._beats[worker] = max(beat, self._beats.get(worker, beat))

    def observe_metrics(self, reports: Mapping[str, float], *, wall: float, now: float) -> None:
        """Process the times of KCL 3 workers' last reports, in epoch seconds of their own clocks; ``wall`` and ``now`` are this process's."""
        for worker, reported in reports.items():
            if wall - reported <= METRICS_AGE:
                self._kcl3[worker] = now

    def kind(self, worker: str | None) -> OwnerKind | None:
        """Return the kind of the worker; None without a worker."""
        if worker is None:
            return None
        if worker in self._python:
            return OwnerKind.SDK
        return OwnerKind.KCL3 if worker in self._kcl3 else OwnerKind.OTHER

    def is_alive(self, worker: str, now: float) -> bool:
        """Return whether a worker was seen to write within the failover time, or has fresh metrics."""
        changed = self._changed.get(worker)
        if changed is not None:
            return now - changed <= self._failover_time
        return worker in self._kcl3 and not self._held(worker)

    def is_silent(self, worker: str, now: float) -> bool:
        """Return whether a worker's rows were watched for longer than the failover time without a change.

        The time since the newest read does not count, because a plan may wait for minutes until the user confirms it.
        """
        last = self._changed.get(worker, self._first_seen.get(worker))
        if last is None or self._observed_at is None:
            return False
        return min(now, self._observed_at) - last > self._failover_time

    def is_judged(self, worker: str, now: float) -> bool:
        """Return whether a worker is known to be alive or silent."""
        return self.is_alive(worker, now) or self.is_silent(worker, now)

    def workers(self) -> list[str]:
        """Return the ids of all workers named in the newest rows or metrics, sorted."""
        found = set(self._kcl3)
        for lease in self._rows:
            found.update(lease.standby_heartbeats)
            found.update(lease.draining)
            if lease.holder is not None and not lease.is_finished:
                found.add(lease.holder)
        return sorted(found)

    def check_known(self, field: str, worker: str) -> None:
        """Raise ConfigError, which names the argument ``field``, unless the newest rows or metrics name a worker."""
        workers = self.workers()
        if worker not in workers:
            close = get_close_matches(worker, workers)
            known = ", ".join(map(printable, list(dict.fromkeys([*close, *workers]))[:10]))
            raise ConfigError(field, worker, f"a worker of the table: {known or 'there is none'}")

    def is_draining(self, worker: str) -> bool:
        """Return whether a worker is to hold no leases."""
        return any(worker in lease.draining for lease in self._rows)

    def load(self, worker: str) -> int:
        """Return the number of unfinished leases that a worker holds."""
        return len(self._held(worker))

    def throughput(self, worker: str) -> float:
        """Return the KB/s of the unfinished leases that a worker holds, as far as their rows have it."""
        return sum(lease.throughput_kbps or 0.0 for lease in self._held(worker))

    def java_workers(self, now: float) -> list[str]:
        """Return the Java workers that are not known to be silent."""
        return [
            worker
            for worker in self.workers()
            if self.kind(worker) is not OwnerKind.SDK and not self.is_silent(worker, now)
        ]

    def _held(self, worker: str) -> list[Lease]:
        return [lease for lease in self._rows if lease.holder == worker and not lease.is_finished]
