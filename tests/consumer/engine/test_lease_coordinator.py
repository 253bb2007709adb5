"""Application of a plan by the coordinator: from when a lease counts as held, which leases count, what the log says."""

from __future__ import annotations

import logging

import pytest

from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig
from kinesis_sdk.consumer.leases import Lease
from tests.consumer.fleet.coordinators import CoordinatorFleet, WorkerProcess
from tests.consumer.fleet.dynamodb import on_dynamodb
from tests.consumer.fleet.engines import Fleet
from tests.consumer.fleet.table import LeaseTable
from tests.consumer.java import JavaLeader
from tests.consumer.leases.handoffs import key
from tests.consumer.leases.java_membership import Heart, join, tables

HORIZON = ConsumerConfig(initial_position="TRIM_HORIZON")


class SlowTakes(LeaseTable):
    """A table whose takes have effect at once and respond after four seconds."""

    clock = None

    def take(self, lease, owner):
        row = super().take(lease, owner)
        self.clock.advance(4.0)
        return row


def test_belief_in_a_lease_begins_when_its_take_was_sent():
    """Peers count from the write: a holder that counted from the response would believe in the lease four seconds longer than its peers."""
    fleet = Fleet(store=SlowTakes())
    fleet.store.clock = fleet.clock
    engine = fleet.add("w")
    sent_at = fleet.clock.monotonic()
    engine.coordinator.tick(sent_at)
    (held,) = engine.coordinator.held
    assert fleet.clock.monotonic() >= sent_at + 4.0
    assert held.written_at == pytest.approx(sent_at, abs=0.1)
    assert held.is_held(sent_at + fleet.config.leases.failover_time - 0.2)
    assert not held.is_held(sent_at + fleet.config.leases.failover_time + 0.2)


class Reluctant(WorkerProcess):
    """A worker whose handlers do not end: what it is asked for stays with it until the timeout."""

    def on_handoff_requested(self, held):
        pass


def test_a_lease_with_a_handoff_request_does_not_count_as_held():
    """Two leases here, one of them on its way to a peer that holds one: a free fourth is due here, and not to the peer."""
    fleet = CoordinatorFleet(shards_at_start=2, config=HORIZON, drifting=False)
    process = fleet.join(Reluctant(fleet, "a", HORIZON))
    fleet.run(5)
    first, second = sorted(fleet.leases(), key=lambda row: row.lease_key)
    assert {first.owner, second.owner} == {"a"}
    start = ExtendedSequenceNumber(TRIM_HORIZON)
    fleet.table.create_if_absent(Lease(lease_key="of-b", checkpoint=start, owner="b", counter=1))
    fleet.table.request_handoff(first, "b")
    fleet.run(fleet.now + 2)
    assert process.held(first.lease_key).handoff_requester == "b"
    fleet.table.create_if_absent(Lease(lease_key="fourth", checkpoint=start))
    fleet.run(fleet.now + 1.5)  # after three seconds it would be taken even if it were due to the peer
    assert process.held(first.lease_key) is not None, "its handler does not end"
    assert process.held("fourth") is not None


def taken(caplog):
    """Reason of each take by lease key, in order."""
    return [
        (record.args[0], record.args[1].replace(" from ", ""), record.args[2])
        for record in caplog.records
        if record.msg.endswith("taken%s (%s)")
    ]


def test_the_log_says_why_a_lease_was_taken(caplog):
    caplog.set_level(logging.INFO, "kinesis_sdk.consumer")
    fleet = Fleet(shards=1)
    fleet.add("first")
    fleet.run(5)
    fleet.stop("first")
    fleet.run(5)
    fleet.add("second")
    fleet.run(5)
    fleet.crash("second")
    fleet.add("third")
    fleet.run(20)
    fleet.crash("third")
    fleet.add("third")
    fleet.run(5)
    shard = key(0)
    assert taken(caplog) == [
        (shard, "", "new"),
        (shard, "", "free"),
        (shard, "second", "expired"),
        (shard, "", "resumed"),
    ]


def test_the_log_distinguishes_a_handoff_from_a_restart(caplog):
    caplog.set_level(logging.INFO, "kinesis_sdk.consumer")
    fleet = Fleet(shards=2, config=HORIZON.with_fields(balance_by="count"))
    fleet.add("first")
    fleet.run(5)
    fleet.add("second")
    fleet.run(10)
    (take,) = taken(caplog)[2:]
    assert take[1:] == ("", "handed off")


def test_the_log_says_what_a_kcl_3_leader_assigned(caplog):
    caplog.set_level(logging.INFO, "kinesis_sdk.consumer")
    fleet = on_dynamodb(1, config=HORIZON)
    tables(fleet)
    fleet.add_script("heart", Heart(fleet))
    fleet.run(0.1)
    join(fleet, "py")
    fleet.run(5)
    JavaLeader(fleet).assign(key(0), "py")
    fleet.run(5)
    assert taken(caplog) == [(key(0), "", "assigned by the KCL 3 leader")]
