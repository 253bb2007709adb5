"""Workers that hold nothing: their heartbeats, what the heartbeats change, and what becomes of them."""

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
        self.heartbeats = {name: self.book(name) for name in names}

    def book(self, name):
        return StandbyHeartbeats(self.store, name, failover_time=10, heartbeat_interval=6, scan_interval=1)

    def scan(self, now, *names):
        for name in names or self.heartbeats:
            self.heartbeats[name].observe(self.store.list(), now)

    def standing(self, now, name):
        return set(self.heartbeats[name].workers(now))

    def written(self):
        return {worker: beat for row in self.store.list() for worker, beat in row.standby_heartbeats.items()}


def test_a_standby_heartbeat_expires_like_a_lease():
    scenario = Scenario("a", "b", "late")
    scenario.scan(0, "a", "b")
    scenario.heartbeats["a"].set_active(True, 0)
    assert scenario.heartbeats["a"].tick(0) == 1
    scenario.scan(0.5)
    assert scenario.standing(0.5, "b") == {"a"}, "it was not there before"
    assert scenario.standing(0.5, "late") == set(), "a first scan may show a stale heartbeat"
    assert scenario.standing(0.5, "a") == {"a"}, "of its own it knows"
    assert scenario.heartbeats["a"].tick(1) == 7, "the second comes at once, the others like renewals"
    scenario.scan(1.5)
    assert scenario.standing(1.5, "b") == scenario.standing(1.5, "late") == {"a"}
    assert scenario.heartbeats["a"].tick(6.9) == 7
    scenario.scan(11.5)
    assert scenario.standing(11.5, "b") == {"a"}
    assert scenario.standing(11.6, "b") == set(), "it was unchanged for a failover time"
    scenario.heartbeats["a"].tick(12)
    scenario.scan(12.5)
    assert scenario.standing(12.5, "b") == {"a"}


def test_a_worker_removes_its_standby_heartbeat_when_it_is_no_longer_needed():
    scenario = Scenario("a", "b")
    for now in (0, 1, 2):
        scenario.scan(now)
        scenario.heartbeats["a"].set_active(True, now)
        scenario.heartbeats["a"].tick(now)
    assert scenario.written() == {"a": 2}
    scenario.heartbeats["a"].set_active(False, 3)
    assert scenario.heartbeats["a"].due == 3
    scenario.heartbeats["a"].tick(3)
    assert scenario.written() == {}
    assert not scenario.heartbeats["a"].is_registered
    assert scenario.heartbeats["a"].due == float("inf")


def test_a_failed_write_is_repeated():
    scenario = Scenario("a")
    scenario.scan(0)
    heartbeats = scenario.heartbeats["a"]
    heartbeats.set_active(True, 0)
    write = scenario.store.put_standby_heartbeat
    scenario.store.put_standby_heartbeat = lambda *arguments: (_ for _ in ()).throw(
        TransientAwsError("no answer")
    )
    with pytest.raises(TransientAwsError):
        heartbeats.tick(0)
    assert heartbeats.due == 0
    scenario.store.put_standby_heartbeat = write
    heartbeats.tick(0.5)
    assert len(scenario.written()) == 1
    scenario.store.put_standby_heartbeat = lambda *arguments: (_ for _ in ()).throw(
        TransientAwsError("no answer")
    )
    with pytest.raises(TransientAwsError):
        heartbeats.withdraw()
    assert heartbeats.is_registered
    heartbeats.forget()
    assert not heartbeats.is_registered


def test_a_standby_heartbeat_moves_from_a_finished_row_and_the_newest_counts():
    scenario = Scenario("a", "b")
    for now in (0, 1, 2):
        scenario.scan(now)
        scenario.heartbeats["a"].set_active(True, now)
        scenario.heartbeats["a"].tick(now)
    (row,) = (row for row in scenario.store.list() if row.standby_heartbeats)
    end = replace(row, checkpoint=ExtendedSequenceNumber("SHARD_END"))
    scenario.store._rows[row.lease_key] = end
    scenario.scan(3)
    scenario.heartbeats["a"].set_active(True, 3)
    scenario.heartbeats["a"].tick(3)
    moved = [other for other in scenario.store.list() if other.standby_heartbeats]
    assert len(moved) == 2, "the finished row keeps its own until it is deleted"
    for now in (3.5, 4, 9):
        scenario.scan(now)
        assert scenario.standing(now, "b") == {"a"}
    assert scenario.standing(13.6, "b") == set(), "and the old value is not a heartbeat"
    scenario.store.delete(row.lease_key)
    for other in scenario.store.list():
        scenario.store.delete(other.lease_key)
    scenario.scan(14)
    scenario.heartbeats["a"].set_active(True, 14)
    assert scenario.heartbeats["a"].tick(14) == 20, "nothing to write on"


def test_stale_standby_heartbeats_are_removed():
    scenario = Scenario("a", "leader")
    for n in range(8):
        scenario.store.put_standby_heartbeat(f"s{n % 3}", f"dead{n}", 7)
    for now in (0, 50, 100.5):
        scenario.scan(now, "leader")
        scenario.heartbeats["leader"].remove_stale(now)
        assert scenario.standing(now, "leader") == set()
    assert len(scenario.written()) == 3, "a few at each scan"
    write = scenario.store.put_standby_heartbeat
    scenario.store.put_standby_heartbeat = lambda *arguments: (_ for _ in ()).throw(
        TransientAwsError("no answer")
    )
    scenario.heartbeats["leader"].remove_stale(100.6)
    scenario.store.put_standby_heartbeat = write
    scenario.scan(101, "leader")
    scenario.heartbeats["leader"].remove_stale(101)
    assert scenario.written() == {}


def groups_of(fleet):
    load = fleet.load()
    return {group: sum(n for name, n in load.items() if name[0] == group) for group in {n[0] for n in load}}


def test_a_large_zone_gets_its_share_although_its_idle_workers_own_no_lease():
    """Six shards, ten workers in zone a, two in b: five and one, in whatever order they start."""
    fleet = CoordinatorFleet(shards_at_start=6, config=HORIZON)
    for n in range(2):
        fleet.add(f"b|{n}")
    fleet.run(20)
    for n in range(10):
        fleet.add(f"a|{n}")
    settle(fleet, 40)
    assert groups_of(fleet) == {"a": 5, "b": 1}
    rest(fleet, 60)
    heartbeats = {worker for row in fleet.table.list() for worker in row.standby_heartbeats}
    assert heartbeats == {name for name, count in fleet.load().items() if not count}
    # Zone a goes, all of it: what it left behind does not keep anything from b, and is gone in the end.
    for process in fleet.live:
        if process.name[0] == "a":
            process.crash()
    fleet.run(fleet.now + HORIZON.leases.failover_time + 3)
    assert fleet.settled() is None
    assert fleet.load() == {"b|0": 3, "b|1": 3}
    fleet.run(fleet.now + 11 * HORIZON.leases.failover_time)
    assert not any(row.standby_heartbeats for row in fleet.table.list())


def test_without_groups_no_standby_heartbeat_is_written():
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


def test_a_clean_stop_removes_the_standby_heartbeat():
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
            "no shard is idle for longer than a scan"
        )
        if not surge:
            fleet.add(f"new-{n}")
        fleet.run(fleet.now + 20)
        assert fleet.settled() is None
    return (fleet.table.transfers - before) / 24


def test_a_surge_deploy_moves_each_lease_once():
    """The new worker waits for released leases; the bound is one move per lease, since every owner is new."""
    assert deploy(HORIZON.with_fields(initial_rebalance_delay=30.0), surge=True) == 1


def test_a_deploy_that_stops_first_moves_each_lease_twice_which_is_the_least():
    """A stop moves its share to survivors, for nothing may lie idle; a start moves a share to who has none."""
    assert deploy(HORIZON, surge=False) == pytest.approx(2, abs=0.1)


def test_the_initial_rebalance_delay_ends():
    fleet = CoordinatorFleet(
        shards_at_start=8, config=HORIZON.with_fields(initial_rebalance_delay=15.0), drifting=False
    )
    fleet.add("a")
    fleet.run(14)
    assert fleet.load() == {"a": 8}, "unowned leases are taken at once"
    fleet.add("b")
    fleet.run(28)
    assert fleet.load() == {"a": 8, "b": 0}
    fleet.run(40)
    assert fleet.load() == {"a": 4, "b": 4}
    rest(fleet, 30)
