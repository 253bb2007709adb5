"""Fleets of lease strategies alone, and the parts that all simulated fleets share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases import Lease
from tests.consumer.fleet.lifecycle import Lifecycle
from tests.consumer.fleet.plans import PlanFleet
from tests.consumer.fleet.table import LeaseTable
from tests.consumer.fleet.timeline import Alarm, Timeline


def test_a_cold_start_takes_each_lease_once_and_ends_level():
    fleet = PlanFleet("balanced", 100)
    fleet.start(10)
    assert fleet.run(60, lambda: not fleet.orphans)
    fleet.run(60)
    assert fleet.table.transfers == 100
    assert set(fleet.load().values()) == {10}
    assert fleet.spread() == (0, 0.0)
    assert fleet.fewest_moves() == 0


def test_the_kcls_strategy_takes_leases_more_than_once_at_a_cold_start():
    fleet = PlanFleet("kcl2", 100)
    fleet.start(10)
    fleet.run(300)
    assert not fleet.orphans
    assert fleet.table.transfers > 110
    assert fleet.lost_races > 100


@pytest.mark.parametrize(("clean", "seconds"), [(True, 3), (False, 13)])
def test_leases_of_an_ended_worker_are_taken_after_a_scan_or_the_failover_time(clean, seconds):
    fleet = PlanFleet("balanced", 40)
    fleet.start_at_rest(8)
    assert not fleet.orphans
    begun = fleet.now
    fleet.end(fleet.live()[0], clean=clean)
    assert fleet.orphans == 5
    assert fleet.fewest_moves() == 5
    assert fleet.run(begun + seconds, lambda: not fleet.orphans)
    assert clean or fleet.now > begun + 5
    assert fleet.table.transfers - 40 == 5


def test_an_alarm_rings_once_at_its_last_setting_and_never_for_a_dead_worker():
    timeline, life, rung = Timeline(), Lifecycle(), []
    alarm = Alarm(timeline, life, lambda: rung.append(timeline.now))
    alarm.set(1.0)
    alarm.set(3.0)
    timeline.run(5)
    assert rung == [3.0]
    alarm.set(6.0)
    life.die()
    timeline.run(10)
    assert rung == [3.0]
    assert timeline.now == 10


def test_events_of_one_time_run_by_rank_and_then_in_order():
    timeline, order = Timeline(), []
    for name, rank in (("late", 2), ("first", 1), ("second", 1)):
        timeline.at(4.0, lambda name=name: order.append(name), rank=rank)
    assert timeline.run(9, lambda: len(order) == 3)
    assert order == ["first", "second", "late"]
    assert timeline.now == 4.0


def test_the_table_rejects_writes_that_break_an_invariant():
    table = LeaseTable([Lease(lease_key="s", checkpoint=ExtendedSequenceNumber("5"), counter=3)])
    (row,) = table.list()
    with pytest.raises(AssertionError):
        table._swap(row, lambda lease: replace(lease, counter=lease.counter + 2))
    table = LeaseTable([row])
    with pytest.raises(AssertionError):
        table.checkpoint(row, ExtendedSequenceNumber("4"))
    table = LeaseTable([row])
    seen = []
    table.on_write.append(lambda before, after: seen.append((before.owner, after.owner)))
    taken = table.take(row, "a")
    table.renew(taken)
    table.take(row, "b")  # loses: the counter has moved
    assert seen == [(None, "a"), ("a", "a")]
    assert (table.writes, table.transfers) == (2, 1)
