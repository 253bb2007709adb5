"""Imports that would skip records, stop workers, read children before their parents, or name a command that does something else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinesis_sdk.admin.changes.description import Status
from kinesis_sdk.admin.changes.lease_change import LeaseChange
from kinesis_sdk.admin.changes.marks import plan_pin
from kinesis_sdk.admin.changes.plans import export_leases, plan_import, plan_rewind
from kinesis_sdk.admin.changes.rows import Row
from kinesis_sdk.admin.changes.transfer import Export, refuse_other_stream
from kinesis_sdk.admin.command import Command
from kinesis_sdk.common.errors import ChangeRefusedError, ConfigError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.lease import lease_to_item
from tests.admin.changes.operators import CLEANING, HORIZON, SHARD, TABLE, SteeredFleet


def loaded(tmp_path, workers=("a",), **more):
    fleet = SteeredFleet(tmp_path, **more)
    for name in workers:
        fleet.add(name, fleet.checkpointer(name, "each batch"))
    fleet.load(8)
    return fleet


def changed(export, **fields):
    """The export with other fields in its first row."""
    first, *others = export.rows
    row = Row.of(lease_to_item(replace(first.lease, **fields)))
    return replace(export, rows=(row, *others))


def without_rows(fleet):
    for name in [*fleet.engines]:
        fleet.stop(name)
    fleet.run(5)
    for lease in fleet.store.list():
        fleet.dynamodb.delete_item(TableName=TABLE, Key={"leaseKey": {"S": lease.lease_key}})


@pytest.mark.parametrize("there", [True, False], ids=["live", "no rows"])
@pytest.mark.parametrize(
    ("checkpoint", "evidence"), [("17", "but the shard starts at"), ("SHARD_END", "the shard is open")]
)
def test_positions_that_would_stop_every_worker_are_refused(tmp_path, there, checkpoint, evidence):
    fleet = loaded(tmp_path)
    export = changed(export_leases(fleet.desk()), checkpoint=ExtendedSequenceNumber(checkpoint))
    if not there:
        without_rows(fleet)
    desk = fleet.desk()
    plan = plan_import(desk, export)
    assert any(evidence in refusal.reason for refusal in plan.refusals)
    with pytest.raises(ChangeRefusedError):
        LeaseChange(desk, plan).carry_out()


@pytest.mark.parametrize("pinned", [True, False])
def test_a_row_that_was_at_latest_is_put_back_with_a_number(tmp_path, pinned):
    """LATEST again would mean the time of the next read: what arrived since the export would be skipped."""
    fleet = loaded(tmp_path)
    first = fleet.put_count
    export = changed(
        export_leases(fleet.desk()),
        checkpoint=ExtendedSequenceNumber("LATEST"),
        initial_timestamp_millis=round(fleet.moment().timestamp() * 1000) if pinned else None,
        pending_checkpoint=ExtendedSequenceNumber("LATEST"),
    )
    without_rows(fleet)
    fleet.put(12)
    fleet.run(5)
    desk = fleet.desk()
    LeaseChange(desk, plan_import(desk, export)).carry_out(wait=0)
    row = fleet.store.get(SHARD)
    assert not row.checkpoint.is_sentinel
    assert (row.initial_timestamp_millis, row.pending_checkpoint) == (None, None)
    fleet.put(4)
    fleet.run(2)
    mark = len(fleet.delivered)
    fleet.add("b", fleet.checkpointer("b", "each batch"))
    fleet.run(20)
    assert [int(entry[2]) for entry in fleet.delivered[mark:]] == [*range(first, fleet.put_count)]


def test_a_row_at_a_time_that_nobody_knows_is_refused(tmp_path):
    fleet = loaded(tmp_path)
    export = changed(export_leases(fleet.desk()), checkpoint=ExtendedSequenceNumber("AT_TIMESTAMP"))
    without_rows(fleet)
    with pytest.raises(ConfigError, match="its position is AT_TIMESTAMP"):
        plan_import(fleet.desk(), export)


@pytest.mark.parametrize("cleaned", [True, False])
def test_children_that_were_born_after_the_export_come_again_after_their_parent(tmp_path, cleaned):
    fleet = loaded(tmp_path, workers=("a", "b"), shards=2, config=CLEANING if cleaned else HORIZON)
    desk = fleet.desk()
    export, first = export_leases(desk), fleet.put_count
    fleet.load(6)
    fleet.split()
    fleet.load(6)
    fleet.run(6)
    mark = len(fleet.delivered)
    plan = plan_import(desk, export)
    outcomes = LeaseChange(desk, plan).carry_out()
    assert {outcome.status for outcome in outcomes} <= {Status.DONE, Status.UNCHANGED}
    fleet.run(30)
    again = fleet.delivered[mark:]
    assert sorted(int(entry[2]) for entry in again) == [*range(first, fleet.put_count)]
    shards = fleet.raw.list_shards(StreamName="orders")["Shards"]
    for shard in shards:
        parent = shard.get("ParentShardId")
        places = [index for index, entry in enumerate(again) if entry[1] == parent]
        own = [index for index, entry in enumerate(again) if entry[1] == shard["ShardId"]]
        if places and own:
            assert max(places) < min(own), "children wait for their parent"


def test_a_finished_row_that_is_put_back_waits_for_nobody(tmp_path):
    fleet = loaded(tmp_path)
    fleet.split()
    fleet.load(10)
    export = export_leases(fleet.desk())
    assert any(row.lease.is_finished for row in export.rows)
    without_rows(fleet)
    desk = fleet.desk()
    change = LeaseChange(desk, plan_import(desk, export))
    outcomes = change.carry_out(wait=0)
    assert len(outcomes) == len(export.rows)
    fleet.add("b", fleet.checkpointer("b", "each batch"))
    assert change._executor.wait(30.0)


def test_the_command_of_an_import_names_the_table_and_is_repeated_as_a_whole(tmp_path):
    fleet = loaded(tmp_path)
    desk = fleet.desk()
    export = export_leases(desk)
    fleet.load(10)
    plan = plan_import(desk, replace(export, file="app.jsonl"))
    assert plan.command == Command.of("import", application="app", stream="orders", export="app.jsonl")
    assert LeaseChange(desk, plan).remaining() == plan.command


def test_a_table_of_several_streams_is_not_steered_with_a_recreated_one(tmp_path):
    fleet = loaded(tmp_path)
    fleet.stop("a")
    fleet.run(5)
    row = fleet.store.get(SHARD)
    without_rows(fleet)
    created = int(
        fleet.raw.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"][
            "StreamCreationTimestamp"
        ].timestamp()
    )
    for epoch, refused in ((created - 500, True), (created, False)):
        name = f"123456789012:orders:{epoch}"
        lease = replace(row, lease_key=f"{name}:{SHARD}", stream_name=name, shard_id=SHARD)
        fleet.dynamodb.put_item(TableName=TABLE, Item=lease_to_item(lease))
        plan = plan_rewind(fleet.desk(), "TRIM_HORIZON")
        assert any("recreated" in refusal.reason for refusal in plan.refusals) is refused
        fleet.dynamodb.delete_item(TableName=TABLE, Key={"leaseKey": {"S": lease.lease_key}})


def test_a_pin_on_a_row_that_was_deleted_meanwhile_is_not_reported_as_done(tmp_path):
    fleet = loaded(tmp_path)
    desk = fleet.desk()
    store = desk.application.store
    set_pin = store.set_pin

    def deleted(key, worker):
        fleet.dynamodb.delete_item(TableName=TABLE, Key={"leaseKey": {"S": key}})
        return set_pin(key, worker)

    store.set_pin = deleted
    with pytest.raises(ChangeRefusedError, match="nothing was pinned"):
        plan_pin(desk, SHARD).apply()


@pytest.mark.parametrize(
    ("created", "refused"), [(1_000.0, False), (1_000.9, False), (1_002.0, True), (998.0, True)]
)
def test_the_export_of_a_stream_of_the_same_name_is_refused_whichever_is_older(created, refused):
    export = Export(application="billing", stream="orders", stream_created=1_000.0, at=1_500.0, rows=())
    assert bool(refuse_other_stream(export, stream="orders", stream_created=created)) is refused
