"""In a fleet of Java KCL 3 workers: metrics items, and leases that are left to its leader."""

from __future__ import annotations

import json

import pytest

from kinesis_sdk.consumer.leases.java.leader_lock import LeaderLock, LeaderLockMonitor
from kinesis_sdk.consumer.leases.java.worker_metrics import metrics_item
from kinesis_sdk.testing import Fault
from tests.consumer.fleet.dynamodb import on_dynamodb
from tests.consumer.java import RENEW, JavaLeader, JavaWorker
from tests.consumer.leases.handoffs import duplicates, keep_putting, key, moves
from tests.consumer.leases.java_membership import COUNT, join, led, membership, tables


def test_the_item_is_the_kcls(java_items):
    (recorded, _) = java_items["WorkerMetricStats: no CPU source (platform unknown)"]
    item_key, values = metrics_item("worker-1", "separate_table", int(recorded["lut"]["N"]))
    assert {**item_key, **values} == recorded


def test_the_item_of_3_5():
    item_key, values = metrics_item("w", "lease_table", 7)
    assert item_key == {"leaseKey": {"S": "w"}}
    assert values["entityType"] == {"S": "WORKER_METRIC_STATS"}
    assert (values["sup"], values["slu"], values["lut"]) == ({"N": "1"}, {"N": "7"}, {"N": "7"})


@pytest.fixture
def java_items():
    from pathlib import Path

    return json.loads((Path(__file__).parents[1] / "data" / "kcl_coordination.json").read_text())


@pytest.mark.parametrize("mode", ["separate_table", "lease_table"])
def test_a_member_reports_each_half_minute_and_withdraws_when_it_stops(mode):
    fleet = on_dynamodb(1, config=COUNT)
    client = tables(fleet)
    table, hash_key = ("app-WorkerMetricStats", "wid") if mode == "separate_table" else ("app", "leaseKey")

    def item():
        return client.get_item(TableName=table, Key={hash_key: {"S": "py"}}).get("Item")

    join(fleet, "py", mode)
    fleet.run(5)
    first = int(item()["lut"]["N"])
    fleet.run(31)
    assert 29 <= int(item()["lut"]["N"]) - first <= 41
    assert [row.lease_key for row in fleet.store.list()] == [key(0)], "no lease"
    fleet.stop("py")
    fleet.run(5)
    assert "py" not in fleet.engines
    assert item() is None


@pytest.mark.parametrize("mode", ["separate_table", "lease_table"])
def test_takes_are_left_to_a_live_kcl_3_leader(mode):
    fleet, engine, _ = led(3, taken=2, mode=mode)
    fleet.run(40)
    assert fleet.owners() == {key(0): "java", key(1): "java", key(2): None}, (
        "the leader gives, we do not take"
    )
    JavaLeader(fleet).assign(key(2), "py")
    fleet.run(1.5)
    assert [held.key for held in engine.coordinator.held] == [key(2)]
    assert all(held._has_kcl3_leader(fleet.clock.monotonic()) for held in engine.coordinator.held), (
        "its rates are what is measured"
    )
    JavaLeader(fleet).start_handoff(key(1), "java", "py")
    keep_putting(fleet, 5)
    assert {held.key for held in engine.coordinator.held} == {key(1), key(2)}
    JavaLeader(fleet).start_handoff(key(2), "py", "java")
    keep_putting(fleet, 15)
    assert fleet.owners() == {key(0): "java", key(1): "py", key(2): "java"}
    assert fleet.run(5, fleet.all_delivered)
    assert duplicates(fleet) == 0


def test_a_draining_member_withdraws_its_metrics_and_passes_on_what_a_leader_assigns():
    """A KCL 3 leader gives most leases to the worker with fresh metrics that holds the fewest."""
    fleet, engine, _ = led(2, taken=2)
    client = fleet.aws.client("dynamodb")

    def is_reported():
        return "Item" in client.get_item(TableName="app-WorkerMetricStats", Key={"wid": {"S": "py"}})

    fleet.run(40)
    JavaLeader(fleet).start_handoff(key(1), "java", "py")
    fleet.run(8)
    assert fleet.owners() == {key(0): "java", key(1): "py"}
    assert is_reported()
    fleet.store.set_drain(key(0), "py", True)
    fleet.run(8)
    assert fleet.owners() == {key(0): "java", key(1): None}, "the leader gives it to another worker"
    assert not is_reported()
    JavaLeader(fleet).assign(key(1), "py")
    fleet.run(3)
    assert fleet.owners()[key(1)] is None
    JavaLeader(fleet).start_handoff(key(0), "java", "py")
    fleet.run(15)
    assert fleet.owners() == {key(0): None, key(1): None}
    assert not engine.coordinator.held
    for _ in range(2):
        fleet.store.set_drain(key(0), "py", False)
        fleet.run(8)
        assert is_reported(), "at once, and not half a minute after the last report"
        fleet.store.set_drain(key(0), "py", True)
        fleet.run(8)
        assert not is_reported()


def test_leases_that_a_live_leader_leaves_unclaimed_are_taken_after_a_while():
    fleet, _, _ = led(1)
    began = fleet.clock.monotonic()
    assert fleet.run(300, lambda: fleet.owners() == {key(0): "py"})
    assert 119 <= fleet.clock.monotonic() - began <= 125


def test_after_the_leaders_death_leases_are_balanced_by_the_strategy():
    fleet, _, java = led(2, taken=2)
    fleet.aws.client("dynamodb").put_item(
        TableName="app-WorkerMetricStats", Item={"wid": {"S": "java"}, "lut": {"N": "1"}}
    )
    fleet.run(60)
    assert set(fleet.owners().values()) == {"java"}
    fleet.crash("heart")
    keep_putting(fleet, 160, lambda: "py" in [row.holder for row in fleet.store.list()])
    assert sorted(fleet.owners().values()) == ["java", "py"]
    assert java.lost == [], "leases of a KCL 3 worker are handed off, not taken"
    assert moves(fleet) == []


def test_a_leader_that_crashed_is_not_waited_for_as_long_as_its_lock_stands():
    fleet, _, _ = led(3, taken=2)
    fleet.run(40)
    assert fleet.owners() == {key(0): "java", key(1): "java", key(2): None}
    fleet.crash("java")
    fleet.crash("heart")
    crashed = fleet.clock.monotonic()
    assert fleet.run(60, lambda: set(fleet.owners().values()) == {"py"}), (
        "including unclaimed leases of other workers"
    )
    assert fleet.clock.monotonic() - crashed <= 10 + 3.4 + 2


@pytest.mark.parametrize("offset", [0.5, 5.0, 9.4])
def test_a_leader_keeps_the_first_lease_that_it_is_given(offset, caplog):
    """KCL 3 finds out about a lease up to 9.975 s after it was handed off and first writes up to 3.308 s later."""
    fleet, _, _ = led(2)
    for n in range(2):
        JavaLeader(fleet).assign(key(n), "py")
    fleet.run(10)
    assert set(fleet.owners().values()) == {"py"}
    java = JavaWorker(fleet, "java", v3=True, offset=offset)
    java._renew_at += (
        offset - 0.1
    ) % RENEW  # just before each discovery: its first write comes as late as it can
    fleet.add_script("java", java)
    JavaLeader(fleet).start_handoff(key(0), "py", "java")
    keep_putting(fleet, 40)
    assert fleet.owners() == {key(0): "java", key(1): "py"}
    assert java.lost == []
    assert moves(fleet) == []
    assert "stopped renewing" not in caplog.text
    assert fleet.run(5, fleet.all_delivered)
    assert duplicates(fleet) == 0


def test_a_leader_that_never_renews_its_first_lease_is_presumed_dead():
    fleet, _, _ = led(2)
    for n in range(2):
        JavaLeader(fleet).assign(key(n), "py")
    fleet.run(10)
    fleet.crash("heart")
    began = fleet.clock.monotonic()
    JavaLeader(fleet).start_handoff(key(0), "py", "java")
    assert fleet.run(10, lambda: fleet.owners() == {key(0): "java", key(1): "py"})
    assert fleet.run(60, lambda: set(fleet.owners().values()) == {"py"})
    assert 10 + 13.3 <= fleet.clock.monotonic() - began <= 10 + 13.4 + 5


def test_a_leader_presumed_dead_is_trusted_after_its_next_heartbeat():
    watch = LeaderLockMonitor()
    watch.observe(LeaderLock("java", "1", 120), 0)
    watch.presume_dead()
    assert watch.owner(1) is None
    watch.observe(LeaderLock("java", "1", 120), 10)
    assert watch.owner(10) is None
    watch.observe(LeaderLock("java", "2", 120), 30)
    assert watch.owner(31) == "java"


def test_missing_tables_and_failures_only_delay(caplog):
    fleet = on_dynamodb(1, config=COUNT)
    fleet.store.ensure_ready()
    member = membership(fleet, "py")
    assert member.tick(0) == 10
    assert "no tables yet" in caplog.text
    assert not member.has_metrics("java"), "a worker that wants its lease asks"
    client = tables(fleet)
    fleet.aws.faults.add(
        Fault(kind="error", operation="UpdateItem", code="ProvisionedThroughputExceededException", count=1)
    )
    member.tick(10)
    member.tick(20)
    assert client.scan(TableName="app-WorkerMetricStats")["Count"] == 1
    client.put_item(TableName="app-CoordinatorState", Item={"key": {"S": "Leader"}})
    member.tick(30)
    assert member.leader(30) is None
    assert "leader lock" in caplog.text
    fleet.aws.faults.add(Fault(kind="error", operation="DeleteItem", code="InternalFailure", count=1))
    member.withdraw()
    assert "delete worker metrics" in caplog.text


def test_a_report_whose_response_was_lost_is_deleted_too():
    fleet = on_dynamodb(1, config=COUNT)
    client = tables(fleet)
    member = membership(fleet, "py")
    fleet.aws.faults.add(Fault(kind="timeout_after_storing", operation="UpdateItem", count=1))
    member.tick(0)
    assert client.scan(TableName="app-WorkerMetricStats")["Count"] == 1
    member.withdraw()
    assert client.scan(TableName="app-WorkerMetricStats")["Count"] == 0
