"""Fleets of lease strategies alone: large tables and many workers, in seconds.

The decisions are those of the strategies that ship. Scans see the table as it is, writes follow 50 ms later, 5 ms apart, and
lose the race if a peer took the lease first. Nothing is renewed: the leases of a crashed worker expire by the time of their
last change. A clean stop releases leases; of a KCL 2.x worker it leaves them to expire.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig, LeaseConfig
from kinesis_sdk.consumer.leases import Lease
from kinesis_sdk.consumer.leases.strategies import Plan, TableView, TakeLimits, balanced, group_of
from kinesis_sdk.consumer.leases.strategies.balanced import plan_balanced
from kinesis_sdk.consumer.leases.strategies.base import Standings
from kinesis_sdk.consumer.leases.strategies.by_count import fair_shares, plan_by_count
from kinesis_sdk.consumer.leases.strategies.groups import Groups
from kinesis_sdk.consumer.leases.strategies.kcl2 import plan_kcl2
from tests.consumer.fleet.balance import GroupLoad, group_loads, spread
from tests.consumer.fleet.lifecycle import Lifecycle
from tests.consumer.fleet.table import LeaseTable
from tests.consumer.fleet.timeline import Alarm, Timeline

START = ExtendedSequenceNumber(TRIM_HORIZON)
UNLIMITED = TakeLimits(max_leases=sys.maxsize)
WITHOUT_STEALS = TakeLimits(max_leases=sys.maxsize, max_steals=0)


class ScanTimes:
    """A worker's lease observer that derives ages from the fleet's record of changes, instead of remembering scans."""

    def __init__(self, fleet: PlanFleet, worker: PlanWorker) -> None:
        self.failover_time = fleet.config.leases.failover_time
        self.is_gathering = False
        self._changed, self._scans = fleet.changed, worker.scans

    def first_scan(self, changed: float) -> float:
        """Return the time of this worker's first scan after a change; at the latest it is the current one."""
        return self._scans[bisect_left(self._scans, changed)]

    def silence(self, lease: Lease, now: float) -> float:
        if lease.owner is None and lease.counter == 0:
            return float("inf")
        return now - self._scans[bisect_left(self._scans, self._changed[lease.lease_key])]

    def unowned_longer(self, leases: Iterable[Lease], now: float, seconds: float) -> list[Lease]:
        """Return the leases that had changed by the last scan that is more than ``seconds`` ago."""
        scans, changed, failover = self._scans, self._changed, self.failover_time
        never = float("-inf")
        unowned = next((scan for scan in reversed(scans) if now - scan > seconds), never)
        owned = next((scan for scan in reversed(scans) if now - scan - failover > seconds), never)
        return [lease for lease in leases if changed[lease.lease_key] <= (owned if lease.owner else unowned)]


class PlanWorker:
    """A worker that scans, plans and takes.

    Attributes:
        scans: Times of its scans.
        owners: Owners of leases at its last scan.
        rebalance_allowed_at: Until then it requests no lease from a live worker unless it holds one.
        heartbeat_at: When it put its standby heartbeat; None without one.
    """

    def __init__(self, fleet: PlanFleet, name: str, rebalance_allowed_at: float) -> None:
        self.name = name
        self.life = Lifecycle()
        self.scans: list[float] = []
        self.owners: frozenset[str] | None = None
        self.rebalance_allowed_at = rebalance_allowed_at
        self.heartbeat_at: float | None = None
        self.alarm = Alarm(fleet.timeline, self.life, lambda: fleet.scan(self))

    def knows(self, other: PlanWorker) -> bool:
        """Return whether it saw another worker's heartbeat change: two scans since it was put."""
        if other.heartbeat_at is None or other.life.is_dead:
            return False
        return other is self or len(self.scans) - bisect_left(self.scans, other.heartbeat_at) >= 2


class PlanMemo:
    """Remembers the last plan: all workers that see the same table get the same one."""

    def __init__(self) -> None:
        self.key: tuple[Any, ...] | None = None
        """Facts on which the next plan depends; None computes it without the memo."""
        self._last: tuple[Any, ...] | None = None
        self._plan: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self.key is None or self.key != self._last:
            self._last, self._plan = self.key, plan_by_count(*arguments)
        return self._plan


class PlanFleet:
    """The table, the workers, and the time.

    Args:
        kind: ``lease_strategy`` of all workers.
        leases: Number of leases.
        seed: Of all random choices.
        settings: Settings of all workers, with this strategy; None for the defaults.

    Attributes:
        owned: Each owner's leases by key.
        unowned: Leases without an owner, by key.
        changed: When each lease was last written.
        idle: Lease-seconds without a live owner so far.
        owned_at: When the last lease without a live owner was taken.
        lost_races: Writes that failed because a peer took the lease first.
    """

    def __init__(self, kind: str, leases: int, seed: int = 1, settings: LeaseConfig | None = None) -> None:
        self.kind = kind
        self.config = ConsumerConfig(leases=settings or LeaseConfig(lease_strategy=kind))  # type: ignore[arg-type]
        self.groups = Groups()
        self.intervals = self.config.leases.intervals(leases)
        self.interval = self.intervals.scan
        self.rng = Random(f"{kind} {leases} {seed}")
        self.timeline = Timeline()
        rows = [Lease(lease_key=f"s{n:06d}", checkpoint=START) for n in range(leases)]
        self.table = LeaseTable(rows)
        self.table.on_write.append(self._index)
        self.size = leases
        self.changed = {row.lease_key: 0.0 for row in rows}
        self.owned: dict[str, dict[str, Lease]] = {}
        self.unowned = {row.lease_key: row for row in rows}
        # What all scans share: one list per owner, renewed only where something changed.
        self._lists: dict[str, list[Lease]] = {}
        self._owners: frozenset[str] | None = None
        # When the first and the last lease of a dead worker changed; only takes change its leases from then on. In
        # the order of the deaths: the order of a set of names would differ from run to run.
        self._dead: dict[str, tuple[float, float]] = {}
        self.workers: dict[str, PlanWorker] = {}
        self._orphans = leases
        self._orphaned_at = 0.0
        self.idle = self.owned_at = 0.0
        self._standbys: set[str] = set()
        self.lost_races = 0
        self._memo = PlanMemo()

    # Time

    @property
    def now(self) -> float:
        return self.timeline.now

    def run(self, until: float, done: Callable[[], bool] | None = None) -> bool:
        """Let time pass until a moment, or until ``done`` is true after an event."""
        return self.timeline.run(until, done)

    # Leases

    @property
    def orphans(self) -> int:
        """Leases without a live owner."""
        return self._orphans

    @orphans.setter
    def orphans(self, number: int) -> None:
        self.idle += self._orphans * (self.now - self._orphaned_at)
        self._orphans, self._orphaned_at = number, self.now
        if not number:
            self.owned_at = self.now

    @property
    def owners(self) -> frozenset[str]:
        """Holders of leases: the same set until it changes."""
        if self._owners is None:
            self._owners = frozenset(self.owned)
        return self._owners

    def _index(self, before: Lease, after: Lease) -> None:
        """Keep the table sorted by owner."""
        key = after.lease_key
        if before.owner is None:
            del self.unowned[key]
        else:
            del self.owned[before.owner][key]
            self._relist(before.owner)
        if after.owner is None:
            self.unowned[key] = after
        else:
            self.owned.setdefault(after.owner, {})[key] = after
            self._relist(after.owner)
        self.changed[key] = self.now

    def _relist(self, owner: str) -> None:
        if self.owned[owner]:
            if owner not in self._lists:
                self._owners = None
            self._lists[owner] = [*self.owned[owner].values()]
        else:
            self._owners = None
            del self.owned[owner]
            del self._lists[owner]
            self._dead.pop(owner, None)

    # Workers

    def start(self, number: int, within: float = 1.0, initial_rebalance_delay: float = 0.0) -> None:
        """Start workers of two groups in turn.

        Args:
            number: How many.
            within: Seconds within which they start.
            initial_rebalance_delay: As in `ConsumerConfig`.
        """
        for _ in range(number):
            index = len(self.workers)
            worker = PlanWorker(self, f"{'ab'[index % 2]}|w{index:05d}", self.now + initial_rebalance_delay)
            self.workers[worker.name] = worker
            worker.alarm.set(self.now + self.rng.random() * within)

    def start_at_rest(self, number: int) -> None:
        """Start with a balanced table and workers that scan at some time within an interval."""
        self.start(number, within=self.interval)
        names = [*self.workers]
        for index, row in enumerate(self.table.list()):
            self.table.take(row, names[index % number])
        self.orphans = 0
        self.run(self.interval)

    def live(self) -> list[PlanWorker]:
        return [worker for worker in self.workers.values() if not worker.life.is_dead]

    def end(self, worker: PlanWorker, *, clean: bool) -> None:
        """Stop a worker cleanly, or crash it."""
        worker.life.die()
        self._standbys.discard(worker.name)
        held = self.owned.get(worker.name, {})
        self.orphans += len(held)
        for key in [*held]:
            if clean and self.kind != "kcl2":
                self.table.release(held[key])
            else:
                # Its last renewal was at some time within an interval.
                self.changed[key] = self.now - self.rng.random() * self.config.leases.renew_interval
        if held:
            changes = [self.changed[key] for key in held]
            self._dead[worker.name] = min(changes), max(changes)

    def scan(self, worker: PlanWorker) -> None:
        """Let a worker scan the table, plan, and begin to take."""
        now = self.now
        worker.scans.append(now)
        times = ScanTimes(self, worker)
        standings, next_expiry = self._standings(worker, times)
        known = {name for name in self._standbys if worker.knows(self.workers[name])}
        delayed = not standings.mine and now < worker.rebalance_allowed_at
        view = TableView(
            leases=(),
            observed=times,  # type: ignore[arg-type]
            me=worker.name,
            now=now,
            limits=WITHOUT_STEALS if delayed else UNLIMITED,
            workers=known,
            claim_grace=2 * self.interval + 1,
        )
        known_owners, worker.owners = worker.owners, self.owners
        if known_owners is not None and known_owners is not worker.owners:
            times.is_gathering = bool(worker.owners - known_owners - {worker.name})
        plan = self._plan(view, standings)
        if plan.put_standby_heartbeat and worker.heartbeat_at is None:
            worker.heartbeat_at = now
            self._standbys.add(worker.name)
        elif worker.heartbeat_at is not None and not plan.put_standby_heartbeat:
            worker.heartbeat_at = None
            self._standbys.discard(worker.name)
        due = now + (self.intervals.rescan if plan.rescan_soon else self.interval)
        if self.intervals.scan_at_expiry:
            due = min(due, next_expiry)
        self._take(worker, plan, 0, 0, now + 0.05, due)

    def _standings(self, worker: PlanWorker, times: ScanTimes) -> tuple[Standings, float]:
        """Sort the table as this worker's scan shows it; return when the next lease expires as well."""
        now, failover, next_expiry = self.now, self.config.leases.failover_time, float("inf")
        standings = Standings(active=self.size, free=[*self.unowned.values()])
        standings.by_owner = self._lists.copy()
        standings.mine = standings.by_owner.pop(worker.name, [])
        for owner, (first, last) in self._dead.items():
            since = times.first_scan(first)
            if since == times.first_scan(last):
                # There was no scan between the two, so all of its leases have the same age.
                if now - since > failover:
                    standings.free.extend(standings.by_owner.pop(owner))
                    standings.silent.add(owner)
                elif since < now:
                    next_expiry = min(next_expiry, since + failover + 0.001)
                continue
            fresh = []
            for lease in standings.by_owner.pop(owner):
                since = times.first_scan(self.changed[lease.lease_key])
                if now - since > failover:
                    standings.free.append(lease)
                    standings.silent.add(owner)
                else:
                    fresh.append(lease)
                    if since < now:
                        next_expiry = min(next_expiry, since + failover + 0.001)
            if fresh:
                standings.by_owner[owner] = fresh
        return standings, next_expiry

    def _plan(self, view: TableView, standings: Standings) -> Plan:
        """Plan with the table that is sorted already, instead of sorting all of it at every scan."""
        if self.kind == "kcl2":
            return plan_kcl2(view, standings, self.rng, prioritize_very_old=True)
        visible = bool(standings.mine) or view.me in view.workers
        seen = (len(standings.free), len(standings.silent), frozenset(view.workers))
        self._memo.key = (self.table.writes, seen) if visible else None
        balanced.plan_by_count = self._memo  # type: ignore[assignment]
        try:
            return plan_balanced(view, standings, self.rng, groups=self.groups, by_throughput=True)
        finally:
            balanced.plan_by_count = plan_by_count  # type: ignore[attr-defined]

    def _take(self, worker: PlanWorker, plan: Plan, index: int, won: int, moment: float, due: float) -> None:
        """Take one lease each 5 ms. Writes that are bound to lose are counted, not simulated."""
        if index == len(plan.takes) or won == plan.most:
            worker.alarm.set(max(due, moment))
            return

        def write() -> None:
            nonlocal index, won
            if worker.life.is_dead:
                return
            chunk = 0
            while index < len(plan.takes) and won != plan.most and chunk < 4:
                seen = plan.takes[index].lease
                index += 1
                row = self.table.get(seen.lease_key)
                assert row is not None
                if row.counter != seen.counter:
                    self.lost_races += 1
                    continue
                chunk += 1
                won += 1
                if row.owner is None or self.workers[row.owner].life.is_dead:
                    self.orphans -= 1
                self.table.take(row, worker.name)
            self._take(worker, plan, index, won, self.now + 0.005 * max(1, chunk), due)

        self.timeline.at(moment, write)

    # Results

    def load(self) -> dict[str, int]:
        """Return the number of leases of each live worker."""
        return {worker.name: len(self.owned.get(worker.name, ())) for worker in self.live()}

    def spread(self) -> tuple[int, float]:
        """Return the spread over workers, and the maximum by which a group misses its share."""
        load = self.load()
        return spread(load), max(map(_deviation, group_loads(load).values()))

    def fewest_moves(self) -> int:
        """Return the moves to a fair table: leases without a live holder, and those above some holder's share."""
        load = self.load()
        fair = fair_shares(load, self.size, {name: group_of(name) for name in load}, sys.maxsize)
        return sum(max(0, fair[name] - count) for name, count in load.items())


def _deviation(load: GroupLoad) -> float:
    return abs(load.leases - load.share)
