"""The KCL 2.x's strategy as Java runs it, for simulated Java workers."""

from __future__ import annotations

from random import Random

from kinesis_sdk.consumer.leases import Plan, TableView
from kinesis_sdk.consumer.leases.intervals import Intervals, IntervalSettings, kcl2_intervals
from kinesis_sdk.consumer.leases.strategies.base import Standings
from kinesis_sdk.consumer.leases.strategies.kcl2 import plan_kcl2


class JavaKcl2Strategy:
    """`Kcl2Strategy`, except that SHARD_END leases count in all totals and are taken, as in Java."""

    def __init__(self, *, prioritize_very_old: bool = True) -> None:
        self._prioritize_very_old = prioritize_very_old

    def plan(self, view: TableView, rng: Random) -> Plan:
        standings = Standings.of(view)
        standings.active += add_finished(standings, view)
        return plan_kcl2(view, standings, rng, prioritize_very_old=self._prioritize_very_old)

    def intervals(self, settings: IntervalSettings, leases: int) -> Intervals:
        return kcl2_intervals(settings)


def add_finished(standings: Standings, view: TableView) -> int:
    """Add the finished leases to their holders, and return how many there are."""
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
