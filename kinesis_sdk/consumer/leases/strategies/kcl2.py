"""The strategy of KCL 2.x: every worker takes leases up to ceil(leases / workers), and steals one lease at a time.

Source: ``DynamoDBLeaseTaker`` (v2.7.3). It is for fleets that should behave exactly like their Java workers, and for comparison with the
default strategy. The strategy has limits. It moves more leases than necessary. It may leave a group of workers with more
than the group's share, because both the floor and the ceiling of a worker's share count as balanced. At a cold start, the first
worker takes every lease.

The strategy departs from the KCL only for pinned leases and draining workers, which no KCL supports: a pinned lease goes to its
worker and does not leave it, and a draining worker does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from random import Random

from kinesis_sdk.consumer.leases.intervals import Intervals, IntervalSettings, kcl2_intervals
from kinesis_sdk.consumer.leases.strategies.base import (
    Plan,
    Standings,
    TableView,
    Take,
    TakeReason,
    effective_pins,
    reason_to_claim,
)
from kinesis_sdk.consumer.leases.table.lease import Lease

VERY_OLD = 3
"""Failover times after which a lease is taken regardless of the share (``veryOldLeaseDurationNanosMultiplier``)."""


class Kcl2Strategy:
    """Takes unowned leases, then steals leases, as ``DynamoDBLeaseTaker`` does.

    Args:
        prioritize_very_old: ``enablePriorityLeaseAssignment``: whether leases that were unchanged for three failover
            times, and new leases that were never owned, are taken regardless of the share.
    """

    def __init__(self, *, prioritize_very_old: bool = True) -> None:
        self._prioritize_very_old = prioritize_very_old

    def plan(self, view: TableView, rng: Random) -> Plan:
        """Decide which leases to take now; see `LeaseStrategy.plan`."""
        return plan_kcl2(view, Standings.of(view), rng, prioritize_very_old=self._prioritize_very_old)

    def intervals(self, settings: IntervalSettings, leases: int) -> Intervals:  # noqa: ARG002 - the KCL ignores the size
        """Return the KCL's intervals; see `LeaseStrategy.intervals`."""
        return kcl2_intervals(settings)


def plan_kcl2(view: TableView, standings: Standings, rng: Random, *, prioritize_very_old: bool) -> Plan:
    """Decide which leases to take; ``standings`` are the leases of ``view`` by holder."""
    total = standings.active
    limits = view.limits

    def available(candidates: Sequence[Lease]) -> list[Lease]:
        result = (
            [lease for lease in candidates if lease.lease_key not in view.busy]
            if view.busy
            else [*candidates]
        )
        rng.shuffle(result)
        return result

    # The renewer's part: at the start it renews leases that carry this worker's id, even expired leases.
    room = max(0, limits.max_leases - len(standings.mine))
    takes = [Take(lease, TakeReason.RESUMED) for lease in available(standings.resumable)[:room]]
    count = len(standings.mine) + len(takes)

    workers = {*standings.by_owner, view.me}
    pins = effective_pins(standings.pinned, workers, limits.max_leases) if standings.pinned else {}
    unpinned = standings.free
    if pins:
        unpinned = [lease for lease in standings.free if lease.lease_key not in pins]
        pinned_here = available(_pinned_here(standings, pins, view.me))[: max(0, limits.max_leases - count)]
        free_keys = {lease.lease_key for lease in standings.free}
        claimed = [lease for lease in pinned_here if lease.lease_key in free_keys]
        stolen = [lease for lease in pinned_here if lease.lease_key not in free_keys][: limits.max_steals]
        takes += [Take(lease, reason_to_claim(lease)) for lease in claimed]
        takes += [Take(lease, TakeReason.STOLEN) for lease in stolen]
        count += len(claimed) + len(stolen)

    if prioritize_very_old:
        max_age = VERY_OLD * view.observed.failover_time
        # For the same time, a lease that is pinned to another live worker is left to that worker.
        very_old = [lease for lease in unpinned if view.observed.silence(lease, view.now) > max_age] + [
            lease
            for lease in (standings.free if pins else ())
            if pins.get(lease.lease_key, view.me) != view.me
            and view.observed.unowned_for(lease, view.now) > max_age
        ]
        if very_old:
            room = max(0, limits.max_leases - count)
            old = [Take(lease, reason_to_claim(lease)) for lease in available(very_old)[:room]]
            return Plan(takes=(*takes, *old))

    share, full = _share(total, workers, Counter(pins.values()))
    need = 0 if view.me in full else min(share, limits.max_leases) - count
    if need <= 0:
        return Plan(takes=tuple(takes))
    if unpinned:
        free = [Take(lease, reason_to_claim(lease)) for lease in available(unpinned)[:need]]
        return Plan(takes=(*takes, *free))
    loads = {owner: len(owned) for owner, owned in standings.by_owner.items()}
    if pins:
        movable = {
            owner: sum(lease.lease_key not in pins for lease in owned)
            for owner, owned in standings.by_owner.items()
        }
        # A worker in `full` should hold only its pinned leases, so all its other leases are excess.
        loads = {
            owner: share + movable[owner] if owner in full else load
            for owner, load in loads.items()
            if movable[owner]
        }
    most = max(loads.values(), default=0)
    number = _number_to_steal(most, share, need, limits.max_steals)
    chosen = available(_stealable(standings, loads, most, pins, rng))[:number] if number else ()
    return Plan(takes=(*takes, *(Take(lease, TakeReason.STOLEN) for lease in chosen)))


def _pinned_here(standings: Standings, pins: Mapping[str, str], me: str) -> list[Lease]:
    """Return the leases pinned to this worker that it does not hold yet."""
    here = {lease.lease_key for lease in (*standings.mine, *standings.resumable)}
    return [
        lease
        for lease in standings.pinned
        if pins.get(lease.lease_key) == me and lease.lease_key not in here and not lease.in_handoff
    ]


def _share(total: int, workers: Collection[str], pinned: Mapping[str, int]) -> tuple[int, set[str]]:
    """Return the share of a worker, and the workers with more pinned leases than this share.

    These workers keep only their pinned leases; all other workers share the remaining leases.
    """
    full: set[str] = set()
    while True:
        number = len(workers) - len(full)
        share = 1 if number >= total else -(-total // number)
        over = {worker for worker in pinned if worker not in full and pinned[worker] > share}
        if not over:
            return share, full
        full |= over
        total -= sum(pinned[worker] for worker in over)


def _stealable(
    standings: Standings, loads: Mapping[str, int], most: int, pins: Mapping[str, str], rng: Random
) -> Sequence[Lease]:
    """Return the leases of the fullest worker; among several fullest workers, one is chosen at random."""
    # Sorted, so that the choice depends on the generator and not on the order of the scan.
    victim = rng.choice(sorted(owner for owner, load in loads.items() if load == most))
    # A lease in handoff is on its way already, and a finished one carries no work.
    return [
        lease
        for lease in standings.by_owner[victim]
        if not lease.in_handoff and not lease.is_finished and lease.lease_key not in pins
    ]


def _number_to_steal(most: int, share: int, need: int, max_steals: int | None) -> int:
    """Return the number of leases that ``chooseLeasesToSteal`` steals.

    It steals up to the fullest worker's surplus; if there is none, one lease, provided this worker is short by two or more.
    """
    if most < share:
        return 0
    excess = most - share
    number = min(need, excess) if excess else int(need > 1)
    return min(number, 1 if max_steals is None else max_steals)
