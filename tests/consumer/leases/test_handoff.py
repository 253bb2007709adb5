"""Handoffs between live workers of this package and of both kinds of Java workers, with failures at every step."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig, Lease, LeaseConfig
from kinesis_sdk.consumer.leases import Conflict
from kinesis_sdk.consumer.leases.ownership.handoff import IncomingHandoffs, supports_handoff
from kinesis_sdk.testing import Fault
from tests.consumer.engine.deferred import Deferred
from tests.consumer.fleet.dynamodb import on_dynamodb
from tests.consumer.fleet.engines import HORIZON, Fleet
from tests.consumer.java import JavaLeader, JavaWorker
from tests.consumer.leases.handoffs import add, duplicates, keep_putting, key, moves
from tests.fuzz import how_many, share

START = ExtendedSequenceNumber("TRIM_HORIZON")


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["memory", "dynamodb"])
@pytest.mark.parametrize("seed", share(range(4), unit=2))
def test_a_lease_that_moves_is_idle_for_less_than_a_second_and_delivers_nothing_twice(kind, seed):
    config = ConsumerConfig(initial_position="TRIM_HORIZON", leases=LeaseConfig(balance_by="count"))
    make = on_dynamodb if kind == "dynamodb" else Fleet
    fleet = make(shards=4, seed=seed, config=config)
    add(fleet, "a")
    keep_putting(fleet, 5 + seed * 0.37)
    add(fleet, "b")
    keep_putting(fleet, 15, lambda: sorted(fleet.owners().values()) == ["a", "a", "b", "b"])
    keep_putting(fleet, 3)
    assert sorted(fleet.owners().values()) == ["a", "a", "b", "b"]
    assert fleet.run(10, fleet.all_delivered)
    moved = moves(fleet)
    assert len(moved) == 2
    assert all((former, new) == ("a", "b") and idle < 0.5 for _, former, new, idle in moved), moved
    assert duplicates(fleet) == 0
    fleet.check_order()
    assert not [event for event in fleet.events if event[3] == "lease_lost"]


def test_a_move_costs_six_requests():
    fleet = on_dynamodb(2, config=HORIZON)
    add(fleet, "a")
    fleet.run(60)
    before = dict(fleet.aws.stats()["calls"])
    fleet.run(10)
    idle = {name: n - before.get(name, 0) for name, n in fleet.aws.stats()["calls"].items()}
    add(fleet, "b")
    before = dict(fleet.aws.stats()["calls"])
    fleet.run(10)
    spent = {name: n - before.get(name, 0) for name, n in fleet.aws.stats()["calls"].items()}
    assert len(moves(fleet)) == 1
    assert spent["UpdateItem"] - idle["UpdateItem"] <= 4
    assert spent.get("GetItem", 0) <= 6


def test_a_stop_releases_the_lease_to_its_requester():
    """The owner stops while a request waits: the lease goes to the requester, not to the crowd."""
    fleet = Fleet(shards=1)
    add(fleet, "a")
    fleet.run(5)
    row = fleet.store.request_handoff(fleet.store.list()[0], "nobody-else")
    assert not isinstance(row, Conflict)
    fleet.stop("a")
    fleet.run(1)
    (row,) = fleet.store.list()
    assert (row.owner, row.checkpoint_owner) == ("nobody-else", None)


def test_a_stopping_requester_passes_the_lease_on():
    fleet = Fleet(shards=2, config=HORIZON)
    add(fleet, "a")
    fleet.run(5)
    add(fleet, "b")
    fleet.run(10, lambda: any(row.in_handoff for row in fleet.store.list()))
    fleet.stop("b")
    fleet.put(10)
    stopped = fleet.clock.monotonic()
    assert fleet.run(10, lambda: set(fleet.owners().values()) == {"a"})
    assert fleet.clock.monotonic() - stopped < 3.5
    assert "b" not in fleet.engines


@pytest.mark.parametrize("phase", range(6))
def test_a_requester_that_dies_leaves_the_lease_to_its_owner(phase):
    """No worker has to wait until the lease expires under a dead requester's id: it is idle for seconds only."""
    fleet = on_dynamodb(1, seed=phase)
    add(fleet, "a")
    fleet.run(5 + phase * 0.15)
    keep_putting(fleet, 1)
    marked = fleet.store.request_handoff(fleet.store.list()[0], "dead")
    assert not isinstance(marked, Conflict)
    keep_putting(fleet, 8)
    row = fleet.store.get(key(0))
    assert (row.owner, row.checkpoint_owner) == ("a", None)
    stopped, began = (
        next(moment for moment, _, _, what in reversed(fleet.events) if what == wanted)
        for wanted in ("shutdown_requested", "initialize")
    )
    assert 2.5 < began - stopped < 4.5
    assert fleet.run(5, fleet.all_delivered)
    assert duplicates(fleet) == 0
    fleet.check_order()


def test_a_lease_that_a_kcl_3_leader_moved_is_not_reclaimed():
    """Its worker comes within ten seconds, and another one is given the lease if it does not."""
    fleet = on_dynamodb(1)
    add(fleet, "py")
    fleet.run(5)
    JavaLeader(fleet).start_handoff(key(0), "py", "java")
    fleet.run(3)
    handed = fleet.store.get(key(0))
    assert (handed.owner, handed.checkpoint_owner) == ("java", None)
    fleet.run(7)
    assert fleet.store.get(key(0)) == handed


def test_an_owner_restarted_under_its_id_completes_the_handoff():
    fleet = Fleet(shards=1)
    add(fleet, "a")
    fleet.run(5)
    fleet.store.request_handoff(fleet.store.list()[0], "b")
    fleet.crash("a")
    add(fleet, "b")
    add(fleet, "a")
    fleet.run(2.5)
    (row,) = fleet.store.list()
    assert (row.owner, row.checkpoint_owner) == ("b", None)


def test_the_handoff_timeout_does_not_wait_for_a_running_handler():
    scenario = Deferred()
    scenario.scan()
    assert scenario.owner == "me"
    (row,) = scenario.store.list()
    scenario.store.request_handoff(row, "b")
    for _ in range(28):
        scenario.scan(1.0)
        (row,) = scenario.store.list()
        assert (row.owner, row.checkpoint_owner) == ("b", "me"), "renewed, and still ours"
    for _ in range(4):
        scenario.scan(1.0)
    (row,) = scenario.store.list()
    assert (row.owner, row.checkpoint_owner) == ("b", None)
    assert not [*scenario.engine.coordinator.held]
    scenario.run_steps()
    assert scenario.engine.shard_health() == ()


def test_the_timeout_of_the_requester():
    """The owner renews and does not release: the requester takes the lease plainly."""
    fleet = Fleet(shards=2)
    store = fleet.store
    add(fleet, "b")
    fleet.run(3)
    first, second = sorted(store.list(), key=lambda row: row.lease_key)
    for row in (first, second):
        store.take(row, "deaf")
    deaf = {row.lease_key: row for row in store.list()}

    def renew(now):
        for lease in [*deaf.values()]:
            written = store.renew(lease)
            if isinstance(written, Conflict) and written.current.holder == "deaf":
                written = store.renew(written.current)
            if isinstance(written, Conflict):
                del deaf[lease.lease_key]
            else:
                deaf[lease.lease_key] = written
        return now + 3.0

    fleet.add_script("deaf", renew)
    fleet.run(10, lambda: any(row.in_handoff for row in store.list()))
    asked = fleet.clock.monotonic()
    assert fleet.run(60, lambda: "b" in [row.holder for row in store.list()])
    assert 29.5 <= fleet.clock.monotonic() - asked <= 31.5
    assert len(deaf) == 2, "it does not know yet"
    fleet.run(4)
    assert len(deaf) == 1


# Next to Java


def taken_by_java(*, v3, batch=0.0, **options):
    """A Java worker that took the only lease from ours, which takes no lease back."""
    fleet = on_dynamodb(1, **options)
    java = JavaWorker(fleet, "java", v3=v3, batch=batch)
    add(fleet, "py", config=fleet.config.with_fields(max_leases_to_steal_at_one_time=0))
    fleet.run(0.01)
    assert fleet.owners() == {key(0): "py"}
    java.take(key(0))
    fleet.add_script("java", java)
    return fleet, java


def test_a_java_leader_moves_our_lease_to_a_java_worker():
    fleet = on_dynamodb(2)
    add(fleet, "py")
    keep_putting(fleet, 5)
    java = JavaWorker(fleet, "java", v3=True, offset=3.0)
    fleet.add_script("java", java)
    JavaLeader(fleet).start_handoff(key(0), "py", "java")
    row = java.item(key(0))
    assert (row["leaseOwner"]["S"], row["checkpointOwner"]["S"]) == ("java", "py")
    marked = fleet.clock.monotonic()
    keep_putting(fleet, 5, lambda: "checkpointOwner" not in java.item(key(0)))
    assert fleet.clock.monotonic() - marked <= 1.2
    row = java.item(key(0))
    assert row["leaseOwner"]["S"] == "java"
    assert row["ownerSwitchesSinceCheckpoint"] == {"N": "0"}
    assert "handoffOwner" not in row, "what Java gets is what Java writes"
    keep_putting(fleet, 12)
    assert key(0) in java.counters
    assert fleet.run(10, fleet.all_delivered)
    assert duplicates(fleet) == 0


@pytest.mark.parametrize("batch", [0.0, 12.0])
def test_a_java_leader_moves_a_java_workers_lease_to_us(batch):
    fleet, java = taken_by_java(v3=True, batch=batch)
    fleet.run(7)  # until we know that we lost it
    keep_putting(fleet, 10)
    JavaLeader(fleet).start_handoff(key(0), "java", "py")
    keep_putting(fleet, batch + 5)
    row = java.item(key(0))
    assert row["leaseOwner"]["S"] == "py"
    assert "checkpointOwner" not in row
    assert java.counters == {}
    assert fleet.run(10, fleet.all_delivered)
    assert duplicates(fleet) == 0
    fleet.check_order()


def test_leases_of_a_kcl_2_worker_are_taken_plainly():
    fleet = on_dynamodb(2)
    java = JavaWorker(fleet, "java", v3=False)
    add(fleet, "py")
    fleet.run(0.01)
    for n in range(2):
        java.take(key(n))
    fleet.add_script("java", java)
    fleet.run(20, lambda: "py" in fleet.owners().values())
    assert sorted(fleet.owners().values()) == ["java", "py"]
    assert "checkpointOwner" not in java.item(key(0)) and "checkpointOwner" not in java.item(key(1))
    fleet.run(4)
    assert len(java.lost) == 1


def test_a_kcl_2_worker_keeps_a_requested_lease_until_the_timeouts():
    """It does not know the marker. The leader that asked may be gone; our own timer ends it."""
    fleet, java = taken_by_java(v3=False, config=HORIZON)
    fleet.run(3)
    JavaLeader(fleet).start_handoff(key(0), "java", "py")
    marked = fleet.clock.monotonic()
    keep_putting(fleet, 60, lambda: "checkpointOwner" not in java.item(key(0)))
    assert 39 <= fleet.clock.monotonic() - marked <= 43
    assert java.item(key(0))["leaseOwner"]["S"] == "py"
    assert fleet.run(10, fleet.all_delivered)
    fleet.run(4)
    assert java.lost == [key(0)]


# Freezes, at every step


STEPS = ["requested", "noticed", "released", "taken"]


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("who", "length", "step"), share(product("ab", (2.0, 8.0, 15.0, 45.0), STEPS), unit=8)
)
def test_a_freeze_at_any_step_loses_nothing_and_moves_nothing_backwards(who, length, step):
    fleet = Fleet(shards=2)  # its store asserts that checkpoints and counters only rise
    add(fleet, "a")
    keep_putting(fleet, 5)
    add(fleet, "b")
    old = fleet.engines["a"]
    noticed = []
    if step == "noticed":
        # Between the scan that shows the marker and the step of the shard that acts on it.
        dispatch = old.scheduler.dispatch
        old.on_handoff_requested = noticed.append
        old.scheduler.dispatch = lambda now: now + 0.1 if noticed else dispatch(now)

    def reached():
        rows = fleet.store.list()
        if step == "requested":
            return any(row.in_handoff for row in rows)
        if step == "noticed":
            return bool(noticed)
        if step == "released":
            return any(row.owner == "b" and not row.in_handoff for row in rows)
        return bool([*fleet.engines["b"].coordinator.held])

    begun = fleet.clock.monotonic()
    while not reached():
        assert fleet.clock.monotonic() < begun + 60
        fleet.put(1)
        fleet.run(0.02, reached)
    fleet.freeze(who, length)
    if step == "noticed":
        old.scheduler.dispatch = dispatch
        del old.on_handoff_requested
        old.on_handoff_requested(noticed[0])
    keep_putting(fleet, length + 30, pause=0.5)
    assert fleet.run(30, fleet.all_delivered)
    fleet.check_order()
    assert sorted(fleet.owners().values()) == ["a", "b"]
    believers = [held.key for engine in fleet.engines.values() for held in engine.coordinator.held]
    assert sorted(believers) == sorted(fleet.owners())


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=2, fuzz=100), suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6))
def test_lost_responses_and_failures_at_any_step_only_delay(seed):
    rng = Random(seed)
    fleet = on_dynamodb(rng.randint(1, 5), seed=seed, config=HORIZON)
    add(fleet, "a")
    keep_putting(fleet, 3)
    for kind in ("timeout_after_storing", "error"):
        code = {"code": "InternalFailure"} if kind == "error" else {}
        for operation in ("UpdateItem", "GetItem", "Scan"):
            fleet.aws.faults.add(Fault(kind=kind, operation=operation, probability=0.15, **code))
    for name in "bc":
        add(fleet, name)
        keep_putting(fleet, rng.uniform(0.5, 6))
    if rng.random() < 0.5:
        fleet.freeze(rng.choice("abc"), rng.choice([3.0, 14.0]))
    if rng.random() < 0.3:
        fleet.crash(rng.choice("abc"))
    keep_putting(fleet, 15)
    fleet.aws.faults.clear()
    assert fleet.run(60, fleet.all_delivered)
    fleet.run(40)
    fleet.check_order()
    assert set(fleet.owners().values()) <= set(fleet.engines)
    assert not [row for row in fleet.store.list() if row.in_handoff]


# Decisions


def test_owners_that_support_handoffs():
    lease = Lease(lease_key="s", checkpoint=START, owner="a", handoff_owner="a")
    assert supports_handoff(lease)
    assert not supports_handoff(replace(lease, owner="java"))
    assert not supports_handoff(replace(lease, owner=None))


def test_incoming_handoffs_ignore_stale_reads_for_a_while():
    incoming = IncomingHandoffs("b", timeout=30, failover_time=10)
    before = Lease(lease_key="s", checkpoint=START, owner="a", counter=5)
    incoming.add_request(replace(before, owner="b", checkpoint_owner="a"), 0)
    incoming.observe([before], 1)
    assert incoming.keys() == {"s"}
    incoming.observe([replace(before, counter=6)], 1)
    assert incoming.keys() == set(), (
        "the counter moved and the request is not on the row: another worker took the lease"
    )
    incoming.add_request(replace(before, owner="b", checkpoint_owner="a"), 2)
    incoming.observe([before], 8)
    assert incoming.keys() == set()


def test_an_arrived_lease_is_known_until_it_moves_again():
    incoming = IncomingHandoffs("b", timeout=30, failover_time=10)
    row = Lease(lease_key="s", checkpoint=START, owner="b", checkpoint_owner="a", counter=5)
    incoming.add_request(row, 0)
    incoming.observe([row], 1)
    assert incoming.arrived == set()
    here = replace(row, checkpoint_owner=None, counter=6)
    for moment in (2, 3):
        incoming.observe([here], moment)
        assert (incoming.keys(), incoming.arrived) == (set(), {"s"})
    incoming.observe([replace(here, owner="c", counter=7)], 4)
    assert incoming.arrived == set()


def test_a_shard_that_ends_before_its_handoff_is_not_waited_for():
    incoming = IncomingHandoffs("b", timeout=30, failover_time=10)
    row = Lease(lease_key="s", checkpoint=START, owner="b", checkpoint_owner="a")
    incoming.add_request(row, 0)
    end = replace(row, checkpoint=ExtendedSequenceNumber("SHARD_END"), counter=3)
    incoming.observe([end], 1)
    assert incoming.keys() == set()
    incoming.observe([end], 2)
    assert incoming.keys() == set(), "nor is it taken after the timeout"


@pytest.mark.parametrize("requester", ["alive", "dead"])
def test_a_lease_whose_shard_ends_during_its_handoff_keeps_no_owner(monkeypatch, requester):
    """A shard that has ended is not handed to anyone: the requester may be gone, and no plan takes a finished lease."""
    fleet = Fleet(shards=1)
    add(fleet, "a")
    fleet.run(3)
    first = key(0)
    checkpoint = fleet.store.checkpoint

    def requested_at_the_end(lease, position, *more, **named):
        if position.is_shard_end and lease.lease_key == first and not lease.in_handoff:
            assert fleet.store.request_handoff(fleet.store.get(first), "b").in_handoff
        return checkpoint(lease, position, *more, **named)

    monkeypatch.setattr(fleet.store, "checkpoint", requested_at_the_end)
    fleet.split()
    if requester == "alive":
        add(fleet, "b")
    assert fleet.run(5, lambda: fleet.store.get(first).is_finished)
    fleet.run(0.1)  # and not only once its former owner takes it back, which may have ended as well
    row = fleet.store.get(first)
    assert (row.is_finished, row.owner, row.checkpoint_owner) == (True, None, None)


@pytest.mark.parametrize("marker", [None, "dead"])
def test_a_finished_lease_that_names_an_idle_worker_is_released(marker):
    """Its owner handed it over with its last write, or was killed before it could; the worker that it names finds it in a scan."""
    fleet = Fleet(shards=2)
    add(fleet, "a")
    fleet.run(3)
    first = key(0)
    fleet.split()
    fleet.run(5)
    fleet.stop("a")
    fleet.run(3)
    end = fleet.store.get(first)
    assert (end.is_finished, end.owner) == (True, None)
    fleet.store._rows[first] = replace(end, owner="b", checkpoint_owner=marker)
    add(fleet, "b")
    started = fleet.clock.monotonic()
    assert fleet.run(20, lambda: fleet.store.get(first).owner is None)
    # The worker of the marker may be alive until the lease expires.
    assert (fleet.clock.monotonic() - started > fleet.config.leases.failover_time) is (marker is not None)
    row = fleet.store.get(first)
    assert (row.is_finished, row.owner, row.checkpoint_owner) == (True, None, None)
    assert fleet.run(20, lambda: set(fleet.owners().values()) == {"b"})


@pytest.mark.parametrize("found_by", ["poll", "scan"])
def test_a_finished_lease_is_left_to_its_old_owner_while_shard_ended_runs(found_by):
    fleet = Fleet(shards=1)
    first, table = key(0), fleet.store
    seen, leases = [], []

    def let_pass(seconds):
        fleet.clock.advance(seconds)
        now = fleet.clock.monotonic()
        fleet.engines["a"].renew(now)
        fleet.engines["b"].tick(now)

    class Slow(fleet.recorder("a")):
        def shard_ended(self, checkpointer):
            (held,) = [held for held in fleet.engines["a"].coordinator.held if held.key == first]
            leases.append(held)
            if found_by == "poll":
                fleet.engines["b"].coordinator._handoffs.request(table.get(first))
                let_pass(2)  # a scan, after which the row is polled
            super().shard_ended(checkpointer)
            if found_by == "scan":
                table.request_handoff(table.get(first), "b")
            for _ in range(125):
                let_pass(0.2)
                row = table.get(first)
                seen.append((held.gone, row.is_finished, row.owner, row.checkpoint_owner))

    fleet.add("a", Slow)
    fleet.run(3)
    add(fleet, "b")
    fleet.run(3)
    fleet.split()
    assert fleet.run(60, lambda: len(leases) == 1)
    assert seen == [(None, True, "b", "a")] * 125
    assert fleet.run(5, lambda: leases[0].gone is not None)
    assert leases[0].gone == "released"
    row = table.get(first)
    assert (row.is_finished, row.owner, row.checkpoint_owner) == (True, None, None)
    assert not [event for event in fleet.events if event[3] == "lease_lost"]


def test_incoming_handoffs_are_polled_fast_first_and_have_two_timeouts():
    incoming = IncomingHandoffs("b", timeout=30, failover_time=10)
    assert incoming.next_poll(0) is None
    row = Lease(lease_key="s", checkpoint=START, owner="b", checkpoint_owner="a")
    incoming.add_request(row, 0)
    incoming.observe([row, replace(row, lease_key="t")], 0)
    assert incoming.next_poll(1) == 1.2
    assert incoming.next_poll(6) == 6.5
    assert [one.lease.lease_key for one in incoming.overdue(30)] == ["s"]
    assert [one.lease.lease_key for one in incoming.overdue(40)] == ["s", "t"]


def test_handoffs_can_be_disabled():
    config = ConsumerConfig(
        initial_position="TRIM_HORIZON", leases=LeaseConfig(graceful_lease_handoff_timeout=0)
    )
    fleet = Fleet(shards=2, config=config)
    add(fleet, "a")
    fleet.run(5)
    add(fleet, "b")
    fleet.run(8)
    assert sorted(fleet.owners().values()) == ["a", "b"]
    assert [event[3] for event in fleet.events].count("lease_lost") == 1
