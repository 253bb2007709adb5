"""Workers that hold nothing: their marks, what the marks change, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinesis_sdk.common.errors import TransientAwsError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore, Lease
from kinesis_sdk.consumer.leases.ownership.standby import StandbyHeartbeats
from tests.consumer.fleet.coordinators import CoordinatorFleet
from tests.consumer.fleet.engines import Fleet
from tests.consumer.fleet.runs import rest, settle

HORIZON = ConsumerConfig(initial_position="TRIM_HORIZON")


class Scenario:
    """A few observers of one table."""

    def __init__(self, *names, rows=3):
        self.store = InMemoryLeaseStore(
            Lease(lease_key=f"s{n}", checkpoint=ExtendedSequenceNumber("LATEST")) for n in range(rows)
        )
        self.marks = {name: self.book(name) for name in names}

    def book(self, name):
        return StandbyHeartbeats(self.store, name, failover_time=10, heartbeat_interval=6, scan_interval=1)

    def scan(self, now, *names):
        for name in names or self.marks:
            self.marks[name].observe(self.store.list(), now)

    def standing(self, now, name):
        return set(self.marks[name].workers(now))

    def written(self):
        return {worker: beat for row in self.store.list() for worker, beat in row.standby_heartbeats.items()}


def test_a_mark_counts_as_long_as_a_lease():
    scenario = Scenario("a", "b", "late")
    scenario.scan(0, "a", "b")
    scenario.marks["a"].set_active(True, 0)
    assert scenario.marks["a"].tick(0) == 1
    scenario.scan(0.5)
    assert scenario.standing(0.5, "b") == {"a"}, "it was not there before"
    assert scenario.standing(0.5, "late") == set(), "who looks for the first time may see an old one"
    assert scenario.standing(0.5, "a") == {"a"}, "of its own it knows"
    assert scenario.marks["a"].tick(1) == 7, "the second comes at once, the others like renewals"
    scenario.scan(1.5)
    assert scenario.standing(1.5, "b") == scenario.standing(1.5, "late") == {"a"}
    assert scenario.marks["a"].tick(6.9) == 7
    scenario.scan(11.5)
    assert scenario.standing(11.5, "b") == {"a"}
    assert scenario.standing(11.6, "b") == set(), "it stood still for a failover time"
    scenario.marks["a"].tick(12)
    scenario.scan(12.5)
    assert scenario.standing(12.5, "b") == {"a"}


def test_a_mark_is_taken_away_by_who_needs_it_no_more():
    scenario = Scenario("a", "b")
    for now in (0, 1, 2):
        scenario.scan(now)
        scenario.marks["a"].set_active(True, now)
        scenario.marks["a"].tick(now)
    assert scenario.written() == {"a": 2}
    scenario.marks["a"].set_active(False, 3)
    assert scenario.marks["a"].due == 3
    scenario.marks["a"].tick(3)
    assert scenario.written() == {}
    assert not scenario.marks["a"].is_registered
    assert scenario.marks["a"].due == float("inf")


def test_a_failed_write_is_repeated():
    scenario = Scenario("a")
    scenario.scan(0)
    marks = scenario.marks["a"]
    marks.set_active(True, 0)
    write = scenario.store.put_standby_heartbeat
    scenario.store.put_standby_heartbeat = lambda *arguments: (_ for _ in ()).throw(
        TransientAwsError("no answer")
    )
    with pytest.raises(TransientAwsError):
        marks.tick(0)
    assert marks.due == 0
    scenario.store.put_standby_heartbeat = write
    marks.tick(0.5)
    assert len(scenario.written()) == 1
    scenario.store.put_standby_heartbeat = lambda *arguments: (_ for _ in ()).throw(
        TransientAwsError("no answer")
    )
    with pytest.raises(TransientAwsError):
        marks.withdraw()
    assert marks.is_registered
    marks.forget()
    assert not marks.is_registered


def test_a_mark_follows_its_row_and_the_youngest_counts():
    scenario = Scenario("a", "b")
    for now in (0, 1, 2):
        scenario.scan(now)
        scenario.marks["a"].set_active(True, now)
        scenario.marks["a"].tick(now)
    (row,) = (row for row in scenario.store.list() if row.standby_heartbeats)
    end = replace(row, checkpoint=ExtendedSequenceNumber("SHARD_END"))
    scenario.store._rows[row.lease_key] = end
    scenario.scan(3)
    scenario.marks["a"].set_active(True, 3)
    scenario.marks["a"].tick(3)
    moved = [other for other in scenario.store.list() if other.standby_heartbeats]
    assert len(moved) == 2, "the finished row keeps its own until it is deleted"
    for now in (3.5, 4, 9):
        scenario.scan(now)
        assert scenario.standing(now, "b") == {"a"}
    assert scenario.standing(13.6, "b") == set(), "and the old one is no sign of life"
    scenario.store.delete(row.lease_key)
    for other in scenario.store.list():
        scenario.store.delete(other.lease_key)
    scenario.scan(14)
    scenario.marks["a"].set_active(True, 14)
    assert scenario.marks["a"].tick(14) == 20, "nothing to write on"


def test_what_the_dead_left_is_swept():
    scenario = Scenario("a", "leader")
    for n in range(8):
        scenario.store.put_standby_heartbeat(f"s{n % 3}", f"dead{n}", 7)
    for now in (0, 50, 100.5):
        scenario.scan(now, "leader")
        scenario.marks["leader"].remove_stale(now)
        assert scenario.standing(now, "leader") == set()
    assert len(scenario.written()) == 3, "a few at each look"
    write = scenario.store.put_standby_heartbeat
    scenario.store.put_standby_heartbeat = lambda *arguments: (_ for _ in ()).throw(
        TransientAwsError("no answer")
    )
    scenario.marks["leader"].remove_stale(100.6)
    scenario.store.put_standby_heartbeat = write
    scenario.scan(101, "leader")
    scenario.marks["leader"].remove_stale(101)
    assert scenario.written() == {}


def groups_of(fleet):
    load = fleet.load()
    return {group: sum(n for name, n in load.items() if name[0] == group) for group in {n[0] for n in load}}


def test_a_zone_of_many_gets_what_it_is_due_although_nobody_sees_its_idle_workers():
    """Six shards, ten workers in zone a, two in b: five and one, whoever came first."""
    fleet = CoordinatorFleet(shards_at_start=6, config=HORIZON)
    for n in range(2):
        fleet.add(f"b|{n}")
    fleet.run(20)
    for n in range(10):
        fleet.add(f"a|{n}")
    settle(fleet, 40)
    assert groups_of(fleet) == {"a": 5, "b": 1}
    rest(fleet, 60)
    marks = {worker for row in fleet.table.list() for worker in row.standby_heartbeats}
    assert marks == {name for name, count in fleet.load().items() if not count}
    # Zone a goes, all of it: what it left behind does not keep anything from b, and is gone in the end.
    for process in fleet.live:
        if process.name[0] == "a":
            process.crash()
    fleet.run(fleet.now + HORIZON.leases.failover_time + 3)
    assert fleet.settled() is None
    assert fleet.load() == {"b|0": 3, "b|1": 3}
    fleet.run(fleet.now + 11 * HORIZON.leases.failover_time)
    assert not any(row.standby_heartbeats for row in fleet.table.list())


def test_who_has_no_groups_leaves_no_marks():
    fleet = CoordinatorFleet(shards_at_start=2, config=HORIZON)
    for n in range(5):
        fleet.add(f"w{n}")
    settle(fleet, 40)
    writes = [process.connection.writes for process in fleet.live]
    fleet.run(fleet.now + 60)
    idle = [n for n, count in enumerate(fleet.load().values()) if not count]
    assert len(idle) == 3
    assert all(fleet.live[n].connection.writes == writes[n] for n in idle)
    assert not any(row.standby_heartbeats for row in fleet.table.list())


def test_a_standby_costs_as_much_as_a_lease():
    fleet = CoordinatorFleet(shards_at_start=1, config=HORIZON, drifting=False)
    fleet.add("a|0")
    fleet.run(5)
    waiting = fleet.add("b|0")
    fleet.run(30)
    before = waiting.connection.writes
    fleet.run(630)
    assert (waiting.connection.writes - before) / 10 == pytest.approx(
        60 / HORIZON.leases.renew_interval, abs=0.3
    )


def test_a_clean_stop_takes_the_mark_away():
    fleet = Fleet(shards=1, config=HORIZON)
    for name in ("a|0", "b|0"):
        fleet.add(name)
    fleet.run(20)
    (row,) = fleet.store.list()
    (waiting,) = row.standby_heartbeats
    fleet.stop(waiting)
    fleet.run(2)
    assert waiting not in fleet.engines
    assert fleet.store.list()[0].standby_heartbeats == {}


# Deploys


def deploy(config, *, surge):
    """Every worker of a fleet at rest is replaced, one by one; leases moved per lease, and the longest gap."""
    fleet = CoordinatorFleet(shards_at_start=24, config=config, drifting=False)
    for n in range(6):
        fleet.add(f"old-{n}")
    settle(fleet, 60)
    before = fleet.table.transfers
    for n, process in enumerate(fleet.live):
        if surge:
            fleet.add(f"new-{n}")
            fleet.run(fleet.now + 8)
        process.stop()
        fleet.run(fleet.now + 2.5)
        assert all(row.owner in fleet.load() for row in fleet.leases()), (
            "nothing lies idle for longer than a look"
        )
        if not surge:
            fleet.add(f"new-{n}")
        fleet.run(fleet.now + 20)
        assert fleet.settled() is None
    return (fleet.table.transfers - before) / 24


def test_a_surge_deploy_moves_each_lease_once():
    """The newcomer waits for what is given back; the bound is one move per lease, since every owner is new."""
    assert deploy(HORIZON.with_fields(initial_rebalance_delay=30.0), surge=True) == 1


def test_a_deploy_that_stops_first_moves_each_lease_twice_which_is_the_least():
    """A stop moves its share to survivors, for nothing may lie idle; a start moves a share to who has none."""
    assert deploy(HORIZON, surge=False) == pytest.approx(2, abs=0.1)


def test_patience_ends():
    fleet = CoordinatorFleet(
        shards_at_start=8, config=HORIZON.with_fields(initial_rebalance_delay=15.0), drifting=False
    )
    fleet.add("a")
    fleet.run(14)
    assert fleet.load() == {"a": 8}, "what nobody keeps is taken at once"
    fleet.add("b")
    fleet.run(28)
    assert fleet.load() == {"a": 8, "b": 0}
    fleet.run(40)
    assert fleet.load() == {"a": 4, "b": 4}
    rest(fleet, 30)
