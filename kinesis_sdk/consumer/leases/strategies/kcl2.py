"""The strategy of the KCL 2.x: every worker takes leases up to ceil(leases / workers), and steals one at a time.

Source: ``DynamoDBLeaseTaker`` (v2.7.3). It is here for fleets that should behave exactly like the Java workers beside
them, and as the yardstick of the default strategy. Its limits: it moves more leases than necessary, it leaves a group of
workers with more than its share (the floor and the ceiling of a share both count as balanced), and at a cold start the
first worker takes every lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kinesis_sdk.consumer.leases.intervals import Intervals, IntervalSettings, kcl2_intervals
from kinesis_sdk.consumer.leases.strategies.base import (
    Plan,
    Standings,
    TableView,
    Take,
    TakeReason,
    reason_to_claim,
)
from kinesis_sdk.consumer.leases.table.lease import Lease

VERY_OLD = 3
"""Failover times after which a lease is taken whatever the share is (``veryOldLeaseDurationNanosMultiplier``)."""


class Kcl2Strategy:
    """Takes unowned leases, then steals, as ``DynamoDBLeaseTaker`` does.

    Args:
        prioritize_very_old: ``enablePriorityLeaseAssignment``: whether leases that were unchanged for three failover
            times, and new ones that were never owned, are taken whatever the share is.
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
    """Decide which leases to take from a table whose leases are grouped by holder already.

    Args:
        view: The table and what this worker knows.
        standings: The same table by holder.
        rng: For the random choices.
        prioritize_very_old: See `Kcl2Strategy`.
    """
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

    # The renewer's part: at the start it renews leases that carry this worker's id, even expired ones.
    room = max(0, limits.max_leases - len(standings.mine))
    takes = [Take(lease, TakeReason.RESUMED) for lease in available(standings.resumable)[:room]]
    count = len(standings.mine) + len(takes)

    if prioritize_very_old:
        max_age = VERY_OLD * view.observed.failover_time
        very_old = [lease for lease in standings.free if view.observed.silence(lease, view.now) > max_age]
        if very_old:
            room = max(0, limits.max_leases - count)
            old = [Take(lease, reason_to_claim(lease)) for lease in available(very_old)[:room]]
            return Plan(takes=(*takes, *old))

    workers = len(standings.by_owner) + 1
    share = 1 if workers >= total else -(-total // workers)
    need = min(share, limits.max_leases) - count
    if need <= 0:
        return Plan(takes=tuple(takes))
    if standings.free:
        free = [Take(lease, reason_to_claim(lease)) for lease in available(standings.free)[:need]]
        return Plan(takes=(*takes, *free))
    most = max(map(len, standings.by_owner.values()), default=0)
    number = _number_to_steal(most, share, need, limits.max_steals)
    chosen = available(_stealable(standings, most, rng))[:number] if number else ()
    return Plan(takes=(*takes, *(Take(lease, TakeReason.STOLEN) for lease in chosen)))


def _stealable(standings: Standings, most: int, rng: Random) -> Sequence[Lease]:
    """Return the leases of a worker that holds the most, one of several picked at random."""
    # Sorted, so that the choice depends on the generator and not on the order of the scan.
    victim = rng.choice(sorted(owner for owner, owned in standings.by_owner.items() if len(owned) == most))
    # A lease in handoff is on its way already, and a finished one carries no work.
    return [lease for lease in standings.by_owner[victim] if not lease.in_handoff and not lease.is_finished]


def _number_to_steal(most: int, share: int, need: int, max_steals: int | None) -> int:
    """Return the number that ``chooseLeasesToSteal`` steals.

    That is the excess of the fullest worker, or one if it has no excess and this worker lacks more than one.
    """
    if most < share:
        return 0
    excess = most - share
    number = min(need, excess) if excess else int(need > 1)
    return min(number, 1 if max_steals is None else max_steals)
