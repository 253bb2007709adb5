"""The KCL 2.x's own strategy: every worker takes towards ceil(leases / workers), one theft at a time.

Source: ``DynamoDBLeaseTaker`` (v2.7.3). Kept for fleets that want to behave exactly like the Java workers beside
them, and as the yardstick of the default strategy. What it does not do: it moves more than it must, it leaves a
group of workers with more than its share (its floor and its ceiling both count as balanced), and at a cold start
the first worker takes everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

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
"""Failover times after which a lease is taken whatever the share says (``veryOldLeaseDurationNanosMultiplier``)."""


class Kcl2Strategy:
    """Take, then steal, as ``DynamoDBLeaseTaker`` does.

    Args:
        prioritize_very_old: ``enablePriorityLeaseAssignment``: leases that stood still for three failover times,
            and new ones that nobody owned yet, are taken whatever the share says.
        count_finished: Whether SHARD_END leases count in all totals, and are taken, as in Java; ours carry no work.
    """

    def __init__(self, *, prioritize_very_old: bool = True, count_finished: bool = False) -> None:
        self._prioritize_very_old = prioritize_very_old
        self._count_finished = count_finished

    def plan(self, view: TableView, rng: Random) -> Plan:
        """Decide which leases to take now; see `LeaseStrategy.plan`."""
        standings = Standings.of(view)
        if self._count_finished:
            standings.active += _add_finished(standings, view)
        return self.decide(view, standings, rng)

    def decide(self, view: TableView, standings: Standings, rng: Random) -> Plan:
        """`plan` for a table that is sorted already."""
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

        # The renewer's part: leases that carry our id are renewed at the start, even expired ones.
        room = max(0, limits.max_leases - len(standings.mine))
        takes = [Take(lease, TakeReason.RESUMED) for lease in available(standings.resumable)[:room]]
        count = len(standings.mine) + len(takes)

        if self._prioritize_very_old:
            most_age = VERY_OLD * view.observed.failover_time
            very_old = [
                lease for lease in standings.free if view.observed.silence(lease, view.now) > most_age
            ]
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
        loot = available(self._loot(standings, most, rng))[:number] if number else ()
        return Plan(takes=(*takes, *(Take(lease, TakeReason.STOLEN) for lease in loot)))

    @staticmethod
    def _loot(standings: Standings, most: int, rng: Random) -> Sequence[Lease]:
        """Leases of a worker that holds the most, one of several picked at random."""
        # Sorted, so that the choice depends on the generator and not on the order of the scan.
        victim = rng.choice(
            sorted(owner for owner, owned in standings.by_owner.items() if len(owned) == most)
        )
        # A lease in handoff is on its way already; a finished one is nothing to win.
        return [
            lease for lease in standings.by_owner[victim] if not lease.in_handoff and not lease.is_finished
        ]


def _number_to_steal(most: int, share: int, need: int, max_steals: int | None) -> int:
    """``chooseLeasesToSteal``: the excess, or one if nobody has an excess but we lack more than one."""
    if most < share:
        return 0
    excess = most - share
    number = min(need, excess) if excess else int(need > 1)
    return min(number, 1 if max_steals is None else max_steals)


def _add_finished(standings: Standings, view: TableView) -> int:
    """Count finished leases as Java does; returns how many there are."""
    number = 0
    for lease in view.leases:
        if not lease.is_finished:
            continue
        number += 1
        if lease.lease_key in view.held:
            standings.mine.append(lease)
        elif view.observed.is_expired(lease, view.now):
            standings.free.append(lease)
        elif lease.owner == view.me:
            standings.mine.append(lease)
        elif lease.owner is not None:
            standings.by_owner.setdefault(lease.owner, []).append(lease)
    return number
