"""Cost of what a worker does at each wake, by counted steps: it follows what is due, and not how many leases or shards there are."""

from __future__ import annotations

import pytest

from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.engine.stall_detector import StallDetector
from kinesis_sdk.consumer.leases import Lease
from kinesis_sdk.consumer.leases.ownership.handoff import OutgoingHandoffs
from kinesis_sdk.consumer.runtime.scheduler import Scheduler
from kinesis_sdk.testing import VirtualClock
from tests.common.once.steps import steps_of
from tests.consumer.engine.deferred import Deferred
from tests.consumer.fleet.renewals import Renewals

PACKAGE = "kinesis_sdk/consumer"
FEW, MANY = 20, 80


def renewal(count):
    scene = Renewals(count)
    scene.run(20.0)
    due = scene.tick()
    scene.clock.advance(due - scene.clock.monotonic())
    before = sum(row.counter for row in scene.store.list())
    steps = steps_of(scene.tick, below=PACKAGE)
    assert sum(row.counter for row in scene.store.list()) == before + 1, "one heartbeat was due"
    return steps


def changed_lease(count):
    """Steps of a tick after a lease has ended, while nothing else is due."""
    scene = Renewals(count)
    scene.run(20.0)
    held = [*scene.held][count // 2]
    held.let_expire("of no interest")
    steps = steps_of(scene.tick, below=PACKAGE)
    assert [key for _, key in scene.lost] == [held.key]
    return steps


def wake_of_a_task(count):
    """Steps of the scheduler for one of many tasks, most of which wait for a time far away, or for a wake only."""
    clock = VirtualClock()
    scheduler = Scheduler(lambda function: function(), clock, lambda: None)
    tasks = [
        scheduler.add(lambda now, wait=float("inf") if number % 2 else 100.0: now + wait)
        for number in range(count)
    ]
    for task in tasks:
        scheduler.wake(task)
    scheduler.dispatch(clock.monotonic())

    def wakes():
        scheduler.wake(tasks[7])
        scheduler.dispatch(clock.monotonic())

    return steps_of(wakes, below=PACKAGE)


def all_held(count):
    """An engine that holds all shards, none of which has made its first step."""
    scenario = Deferred(shards=count)
    for _ in range(2):
        scenario.scan()
    assert len(scenario.engine.coordinator.held) == count
    return scenario


def end_of_a_shard(count):
    scenario = all_held(count)
    consumer, _ = next(iter(scenario.engine._consumers.values()))
    return steps_of(lambda: scenario.engine._completed(consumer), below="consumer/engine")


def next_reclaim(count):
    outgoing = OutgoingHandoffs(10.0)
    for number in range(count):
        row = Lease(lease_key=str(number), checkpoint=ExtendedSequenceNumber(TRIM_HORIZON))
        outgoing.add(row, float(number))

    def one():
        assert len(outgoing.pop_due(outgoing.due)) == 1

    return steps_of(one, below=PACKAGE)


@pytest.mark.parametrize(
    "steps", [renewal, changed_lease, wake_of_a_task, end_of_a_shard, next_reclaim], ids=lambda f: f.__name__
)
def test_the_cost_of_a_wake_does_not_depend_on_how_many_there_are(steps):
    few, many = steps(FEW), steps(MANY)
    assert 0 < many <= 1.2 * few + 10, f"{few} steps at {FEW}, {many} at {MANY}"


def scan(count):
    scenario = all_held(count)

    def look():
        scenario.engine.coordinator.request("scan")
        scenario.engine.coordinator.tick(scenario.clock.monotonic())

    return steps_of(look, below=PACKAGE)


def stall_check(count):
    scenario = all_held(count)
    consumers = [consumer for consumer, _ in scenario.engine._consumers.values()]
    detector = StallDetector(60.0, handler_timeout=None, handler=scenario.engine)
    return steps_of(lambda: detector.check(consumers, scenario.clock.monotonic()), below=PACKAGE)


def health(count):
    scenario = all_held(count)
    return steps_of(scenario.engine.shard_health, below=PACKAGE)


@pytest.mark.parametrize("steps", [scan, stall_check, health], ids=lambda f: f.__name__)
def test_what_looks_at_all_shards_costs_each_of_them_the_same(steps):
    few, many = steps(FEW), steps(MANY)
    assert few < many <= 4.4 * few, f"{few} steps at {FEW}, {many} at {MANY}"


def test_a_lease_whose_renewal_hangs_is_lost_at_the_failover_time_although_nothing_else_wakes():
    scene = Renewals(1, spread=0.0, inline=False)
    (held,) = scene.held
    taken_at = held.written_at
    scene.run(12.0)
    assert len(scene.sent) == 1
    ((lost_at, key),) = scene.lost
    assert key == held.key
    assert 10.0 < lost_at - taken_at < 10.01
    assert len(scene.held) == 0


def test_a_checkpoint_puts_a_heartbeat_off():
    scene = Renewals(2, spread=0.0)
    first, second = scene.held
    start = first.written_at
    assert scene.tick() == start + 6.0
    scene.clock.advance(3.0)
    for held in (first, second):
        held.checkpoint(ExtendedSequenceNumber("7"))
    assert scene.tick() == start + 9.0
    scene.clock.advance(5.9)
    counters = [held.lease.counter for held in scene.held]
    scene.tick()
    assert [held.lease.counter for held in scene.held] == counters
    scene.clock.advance(0.2)
    scene.tick()
    assert [held.lease.counter for held in scene.held] == [counter + 1 for counter in counters]
