"""The keys that change leases, down to the rows of a fake lease table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.cli import steer
from kinesis_sdk.cli.spelling import spell
from kinesis_sdk.cli.tui.changes import Planned
from kinesis_sdk.cli.tui.steering import SteeringChanges
from kinesis_sdk.common.errors import AdminError, ChangeRefusedError, ConfigError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing import FakeAws, VirtualClock

SHARD = "shardId-000000000000"


class World:
    """A stream with records, and a lease whose owner has stopped."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = VirtualClock()
        self.aws = FakeAws(clock=self.clock)
        monkeypatch.setattr(
            steer, "clock_and_sleep", lambda: {"clock": self.clock, "sleep": self.clock.advance}
        )
        monkeypatch.setattr(
            "kinesis_sdk.cli.tui.steering.clock_and_sleep",
            lambda: {"clock": self.clock, "sleep": self.clock.advance},
        )
        kinesis = self.aws.client("kinesis")
        kinesis.create_stream(StreamName="orders", ShardCount=1)
        self.store = DynamoDBLeaseStore(
            self.aws.client("dynamodb"), "billing", sleep=self.clock.advance, monotonic=self.clock.monotonic
        )
        self.store.ensure_ready()
        (shard,) = list_shards(kinesis, StreamId("orders"))
        self.store.create_if_absent(Lease.for_shard(shard, "TRIM_HORIZON"))
        self.numbers = []
        for _ in range(5):
            put = kinesis.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
            self.numbers.append(put["SequenceNumber"])
            self.clock.advance(60.0)
        taken = self.store.take(self.lease, "stopped")
        assert isinstance(taken, Lease)
        self.store.checkpoint(taken, ExtendedSequenceNumber(self.numbers[-1]))
        connection = Connection(clients={"kinesis": kinesis, "dynamodb": self.aws.client("dynamodb")})
        application = Application(connection, "billing", stream="orders", sleep=self.clock.advance)
        self.changes = SteeringChanges(application, wait=5.0, audit_log=tmp_path / "audit.jsonl")
        self.audit = tmp_path / "audit.jsonl"

    @property
    def lease(self) -> Lease:
        found = self.store.get(SHARD)
        assert found is not None
        return found

    def plan(self, verb: str, to: str | None = None) -> Planned:
        return self.changes.plan(Command.of(verb, application="billing", shard=SHARD, to=to))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_rewind_shows_its_write_and_makes_it_only_when_it_is_applied(world: World) -> None:
    before = world.lease
    planned = world.plan("rewind", f"at:{world.numbers[1]}")
    assert world.lease == before
    assert not planned.refused
    text = "\n".join(planned.lines)
    assert f"{SHARD}, held by stopped (kinesis_sdk): free: repeats 3 min" in text
    assert "checkpoint" in text
    assert world.numbers[0] in text
    result = planned.act()
    assert world.lease.checkpoint.sequence_number == world.numbers[0]
    assert world.lease.counter == before.counter + 2
    assert result[0].startswith(f"{SHARD}: ")
    assert world.audit.exists()


def test_a_change_that_has_nothing_to_do_cannot_be_confirmed(world: World) -> None:
    planned = world.plan("skip-to", "LATEST")
    assert planned.refused
    assert any("unchanged" in line for line in planned.lines)


def test_a_move_to_a_worker_that_cannot_take_it_is_refused(world: World) -> None:
    other = replace(world.lease, lease_key="shardId-000000000009", owner=None)
    world.store.create_if_absent(other)
    world.store.take(other, "old-kcl")
    planned = world.plan("move", "old-kcl")
    assert planned.refused
    assert planned.lines[0].startswith("Refused: ")


def test_who_leaves_does_not_wait_for_a_worker(world: World) -> None:
    planned = world.plan("rewind", "TRIM_HORIZON")
    world.changes.stop()
    with pytest.raises(AdminError, match="left before"):
        planned.act()
    assert world.lease.checkpoint.sequence_number == "TRIM_HORIZON"


def test_a_request_to_a_failing_handler_is_planned_refused_and_made(world: World) -> None:
    with pytest.raises(ConfigError, match="tells of no record on which its handler fails"):
        world.plan("skip-record")
    planned = world.plan("retry")
    assert not planned.refused
    assert spell(planned.command) == f"kinesis-sdk leases retry billing --shard {SHARD}"
    assert f"{SHARD}: handlerRequest: – → retry," in planned.lines[0]
    assert world.lease.handler_request is None
    (said,) = planned.act()
    assert said.startswith("Written, but no worker has acted on it for 5 s"), "its owner has stopped"
    assert world.lease.handler_request is not None
    world.store.release(world.lease)
    with pytest.raises(ChangeRefusedError, match="no worker holds the lease"):
        world.plan("retry")
