"""Rewinds to the number that a producer got for a record that is stored several times."""

from __future__ import annotations

import pytest

from kinesis_sdk.admin.changes.lease_change import LeaseChange
from kinesis_sdk.admin.changes.plans import plan_rewind
from kinesis_sdk.common.once.table import REPEAT, Run
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig
from tests.admin.changes.operators import SHARD, SteeredFleet
from tests.common.once.streams import aggregate

LEFT = "shardId-000000000001"


class Copies(SteeredFleet):
    """A fleet whose stream gets aggregates of an idempotent producer."""

    date = 0

    def copy(self, number: int, count: int = 1, flags: int = 0) -> str:
        """Store an aggregate, and let it be processed."""
        self.date = self.date or int(self.clock.time() * 1000)
        data = aggregate([Run(count, 4, flags, b"producer", self.date, number)], None)
        found = self.raw.put_record(StreamName="orders", PartitionKey="a", ExplicitHashKey="1", Data=data)
        self.run(5)
        return found["SequenceNumber"]

    def again(self, mark: int) -> list[tuple[str, bytes]]:
        return [(where, data) for _, where, data, _, _ in self.delivered[mark:]]


@pytest.fixture
def fleet(tmp_path):
    fleet = Copies(tmp_path, config=ConsumerConfig(initial_position="TRIM_HORIZON"))
    fleet.add("a", fleet.checkpointer("a", "each batch"))
    fleet.run(5)
    return fleet


@pytest.mark.parametrize("flags", [0, REPEAT], ids=["late", "marked"])
def test_the_record_is_delivered_again(fleet, flags):
    fleet.put(1)
    first = fleet.copy(100, 2)
    fleet.put(1)
    acknowledged = fleet.copy(101, 1, flags)
    fleet.put(1)
    fleet.run(5)
    assert [data for _, data in fleet.again(0)] == [b"0", b"100", b"101", b"1", b"2"]
    mark = len(fleet.delivered)
    desk = fleet.desk()
    plan = plan_rewind(desk, ExtendedSequenceNumber(acknowledged), [SHARD])
    assert plan.notes[0] == (
        f"record {acknowledged}/0 is a repetition; it is delivered at {first} in {SHARD}"
    )
    assert plan.command.parameters["to"] == f"at:{first}"
    LeaseChange(desk, plan).carry_out()
    fleet.run(5)
    assert [data for _, data in fleet.again(mark)] == [b"100", b"101", b"1", b"2"]


def test_a_copy_in_the_parent(fleet):
    first = fleet.copy(100)
    fleet.split()
    fleet.run(10)
    fleet.copy(50)
    acknowledged = fleet.copy(100, 1, REPEAT)
    mark = len(fleet.delivered)
    assert fleet.again(0) == [(SHARD, b"100"), (LEFT, b"50")]
    desk = fleet.desk()
    plan = plan_rewind(desk, ExtendedSequenceNumber(acknowledged), [LEFT])
    assert plan.notes[:2] == (
        f"record {acknowledged}/0 is a repetition; it is delivered at {first} in {SHARD}",
        f"rewind {SHARD} as well, to at:{first}",
    )
    assert [(change.goal.shard_id, str(change.goal.position)) for change in plan.changes] == [
        (LEFT, "TRIM_HORIZON/0")
    ]
    LeaseChange(desk, plan_rewind(fleet.desk(), ExtendedSequenceNumber(first), [SHARD])).carry_out()
    LeaseChange(desk, plan).carry_out()
    fleet.run(60)
    assert sorted(fleet.again(mark)) == [(SHARD, b"100"), (LEFT, b"50")]


def test_a_first_copy_that_may_have_expired(fleet):
    fleet.copy(100)
    acknowledged = fleet.copy(100, 1, REPEAT)
    fleet.clock.advance(24 * 3600 - 7)
    plan = plan_rewind(fleet.desk(), ExtendedSequenceNumber(acknowledged), [SHARD])
    assert "may be a repetition of one that has expired" in plan.notes[0]
    assert plan.command.parameters["to"] == f"at:{acknowledged}"


def test_a_plain_number_costs_no_further_call(fleet):
    fleet.load(3)
    number = next(sequence for *_, sequence, _ in fleet.delivered)
    calls = []

    class Counted:
        meta = fleet.raw.meta

        def __getattr__(self, name):
            calls.append(name)
            return getattr(fleet.raw, name)

    fleet.connection._clients["kinesis"] = Counted()
    plan = plan_rewind(fleet.desk(), ExtendedSequenceNumber(number), [SHARD])
    assert not any("repetition" in note for note in plan.notes)
    assert (calls.count("list_shards"), calls.count("get_records")) == (1, 4)
