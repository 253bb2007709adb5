"""The DynamoDB store beyond the contract: its table, its errors, and items as the Java KCL writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from kinesis_sdk.common.errors import ConfigError, ProtocolError, ThrottledError, TransientAwsError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer.leases import (
    Conflict,
    DynamoDBLeaseStore,
    Lease,
    lease_from_item,
    lease_to_item,
)
from kinesis_sdk.consumer.shard_sync import plan_bootstrap, plan_children
from kinesis_sdk.testing import FakeAws, Fault, VirtualClock

DATA = Path(__file__).parents[1] / "data"


def lease(key="shard-0", **more):
    more.setdefault("checkpoint", ExtendedSequenceNumber(TRIM_HORIZON))
    return Lease(lease_key=key, hash_key_range=HashKeyRange(0, 5), parent_shard_ids=("p",), **more)


def test_multi_stream_rows(store):
    row = lease("123:orders:17:shard-0", stream_name="123:orders:17", shard_id="shard-0")
    store.create_if_absent(row)
    assert store.get(row.lease_key) == row
    assert store.take(row, "a").shard == "shard-0"


# DynamoDB only


class Table:
    def __init__(self, **options):
        self.clock = VirtualClock()
        self.aws = FakeAws(clock=self.clock, **options)
        self.client = self.aws.client("dynamodb")

    def store(self, **more):
        return DynamoDBLeaseStore(
            self.client, "app", sleep=self.clock.advance, monotonic=self.clock.monotonic, **more
        )


def ready():
    table = Table()
    store = table.store()
    store.ensure_ready()
    return table, store


def test_the_table_is_made_in_one_call_with_its_index():
    table = Table(table_delay=5.0)
    table.store().ensure_ready()
    made = table.client.describe_table(TableName="app")["Table"]
    assert made["TableStatus"] == "ACTIVE"
    assert made["KeySchema"] == [{"AttributeName": "leaseKey", "KeyType": "HASH"}]
    (index,) = made["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "LeaseOwnerToLeaseKeyIndex"
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["leaseOwner", "leaseKey"]
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}
    assert made["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert table.aws.stats()["calls"]["CreateTable"] == 1
    assert 5.0 <= table.clock.monotonic() < 8.0
    table.store().ensure_ready()
    assert table.aws.stats()["calls"]["CreateTable"] == 1


def test_a_table_that_is_active_at_once_is_not_waited_for():
    table = Table()
    before = table.clock.monotonic()
    table.store().ensure_ready()
    assert table.clock.monotonic() == before
    assert table.store().list() == []


def test_provisioned_tables():
    table = Table()
    table.store(billing_mode="PROVISIONED", read_capacity=3, write_capacity=4).ensure_ready()
    made = table.client.describe_table(TableName="app")["Table"]
    assert made["ProvisionedThroughput"]["ReadCapacityUnits"] == 3
    assert made["ProvisionedThroughput"]["WriteCapacityUnits"] == 4


def test_a_race_for_the_table_is_no_error():
    table = Table(table_delay=1.0)
    first, second = table.store(), table.store()
    assert first._create()
    assert second._create()
    second.ensure_ready()


def test_a_table_that_never_becomes_active():
    table = Table(table_delay=10_000.0)
    with pytest.raises(TransientAwsError, match="600 s"):
        table.store().ensure_ready()


def test_a_dynamodb_that_answers_late_is_waited_for():
    table = Table()
    table.aws.faults.add(Fault(kind="error", operation="DescribeTable", count=25))
    table.store().ensure_ready()
    assert table.store().list() == []
    table.aws.faults.add(Fault(kind="error", operation="DescribeTable"))
    began = table.clock.monotonic()
    with pytest.raises(TransientAwsError):
        table.store().ensure_ready()
    assert 600 <= table.clock.monotonic() - began < 700


def test_a_foreign_table_is_refused():
    table = Table()
    table.client.create_table(
        TableName="app",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    with pytest.raises(ConfigError, match="table_name='app'"):
        table.store().ensure_ready()


def test_foreign_attributes_survive_every_write():
    table, store = ready()
    item = {
        "leaseKey": {"S": "shard-0"},
        "leaseCounter": {"N": "4"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": "TRIM_HORIZON"},
        "checkpointSubSequenceNumber": {"N": "0"},
        "throughputKBps": {"N": "0.000886"},
        "fromTheFuture": {"L": [{"S": "x"}]},
        "standby:b|1": {"N": "3"},
        "standby:not-a-beat": {"S": "x"},
    }
    table.client.put_item(TableName="app", Item=item)
    row = store.get("shard-0")
    row = store.checkpoint(store.renew(store.take(row, "a")), ExtendedSequenceNumber("5", 2))
    store.release(row)
    now = table.client.get_item(TableName="app", Key={"leaseKey": {"S": "shard-0"}})["Item"]
    assert now == {
        **item,
        "leaseCounter": {"N": "8"},
        "checkpoint": {"S": "5"},
        "checkpointSubSequenceNumber": {"N": "2"},
    }


def test_other_entities_and_malformed_items_are_told_apart():
    table, store = ready()
    for number, item in enumerate(json.loads((DATA / "kcl_other_items.json").read_text())):
        key = {"leaseKey": {"S": f"other-{number}"}, "entityType": {"S": "LEADER"}}
        table.client.put_item(TableName="app", Item={**item, **key})
    table.client.put_item(TableName="app", Item={"leaseKey": {"S": "bad"}})
    store.create_if_absent(lease())
    assert store.list() == [lease()]
    assert store.list(consistent=True) == [lease()]
    scan = store.scan()
    assert scan.leases == [lease()]
    assert scan.unreadable.keys() == {"bad"}
    assert "leaseCounter" in scan.unreadable["bad"]
    assert sorted(scan.others) == [f"other-{n}" for n in range(number + 1)]


def test_a_malformed_item_is_not_taken_for_none():
    """A child whose parent has no lease is read at once; one whose parent cannot be read has to wait."""
    table, store = ready()
    table.client.put_item(TableName="app", Item={"leaseKey": {"S": "shard-0"}, "leaseCounter": {"N": "1"}})
    with pytest.raises(ProtocolError, match="shard-0"):
        store.get("shard-0")
    assert not store.create_if_absent(lease())
    assert store.renew(lease(counter=0)) == Conflict(None), "a row that cannot be read is not ours"


def test_scans_go_through_all_pages():
    table, store = ready()
    padding = {"padding": {"S": "x" * 200_000}}
    for number in range(12):
        store.create_if_absent(replace(lease(f"shard-{number}"), extra=padding))
    assert len(store.list()) == 12
    assert table.aws.stats()["calls"]["Scan"] >= 3


def test_failures_are_translated_and_scans_repeated():
    table, store = ready()
    store.create_if_absent(lease())
    fault = {"kind": "error", "operation": "Scan", "code": "ProvisionedThroughputExceededException"}
    table.aws.faults.add(Fault(**fault, count=2))
    assert store.list() == [lease()]
    table.aws.faults.add(
        Fault(kind="error", operation="UpdateItem", code="ProvisionedThroughputExceededException")
    )
    with pytest.raises(ThrottledError):
        store.take(lease(), "a")


def test_tags_protection_and_recovery():
    table = Table()
    options = {"tags": {"team": "billing"}, "point_in_time_recovery": True, "deletion_protection": True}
    table.store(**options).ensure_ready()
    made = table.client.describe_table(TableName="app")["Table"]
    assert made["DeletionProtectionEnabled"]
    tags = table.client.list_tags_of_resource(ResourceArn=made["TableArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "billing"}]
    assert recovery(table) == "ENABLED"
    calls = table.aws.stats()["calls"]
    table.store(**options).ensure_ready()
    assert table.aws.stats()["calls"]["UpdateContinuousBackups"] == calls["UpdateContinuousBackups"] == 1


def recovery(table):
    answer = table.client.describe_continuous_backups(TableName="app")["ContinuousBackupsDescription"]
    return answer["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"]


def test_recovery_is_switched_on_where_the_creator_died_before():
    table = Table()
    table.store().ensure_ready()
    assert recovery(table) == "DISABLED"
    table.store(point_in_time_recovery=True).ensure_ready()
    assert recovery(table) == "ENABLED"
    table.store().ensure_ready()
    assert recovery(table) == "ENABLED", "never switched off"


# What the Java KCL wrote and read in the same situations

SCENES = json.loads((DATA / "kcl_coordination.json").read_text())
GROUPS = json.loads((DATA / "kcl_leases.json").read_text())
OURS = {"handoffOwner", "initialTimestampMillis"}


def items_after(*steps):
    """Our items after the same steps, without the attributes that Java does not know."""
    table, store = ready()
    for step in steps:
        step(store)
    found = {item["leaseKey"]["S"]: item for item in table.client.scan(TableName="app")["Items"]}
    return {key: {name: v for name, v in item.items() if name not in OURS} for key, item in found.items()}


def recorded(scene):
    return {item["leaseKey"]["S"]: item for item in SCENES[scene]}


def by_shape(items):
    """Attribute names and types."""
    return {key: {name: set(value) for name, value in item.items()} for key, item in items.items()}


def shards_of(scene):
    return [
        replace(lease_from_item(item), counter=0, owner=None, throughput_kbps=None) for item in SCENES[scene]
    ]


def test_created_leases_are_javas():
    scene = "lease: just created (2 shards, TRIM_HORIZON)"
    fresh = [
        Shard(row.lease_key, row.hash_key_range, starting_sequence_number=str(n))
        for n, row in enumerate(shards_of(scene))
    ]
    plan = plan_bootstrap(fresh, TRIM_HORIZON)
    ours = items_after(*[lambda store, row=row: store.create_if_absent(row) for row in plan])
    assert ours == recorded(scene)


def test_children_are_javas():
    scene = "lease: children just created by the parent's owner"
    children = [
        Shard(row.lease_key, row.hash_key_range, parent_shard_id=row.parent_shard_ids[0])
        for row in shards_of(scene)
    ]
    plan = plan_children(children)
    ours = items_after(*[lambda store, row=row: store.create_if_absent(row) for row in plan])
    assert ours == recorded(scene)


def test_a_first_take_is_javas_first_assignment():
    scene = "lease: first assignment by the leader (counter 0 -> 1, switches stays 0)"

    def take_all(store):
        for row in shards_of(scene):
            store.create_if_absent(row)
            store.take(row, "app6-a")

    assert items_after(take_all) == recorded(scene)


@pytest.mark.parametrize(
    "scene",
    [
        "lease: checkpointed at a plain record (shard 0)",
        "lease: checkpointed in the middle of an aggregate (shard 1, third of five)",
    ],
)
def test_a_checkpoint_is_javas(scene):
    def consume(store):
        for item in SCENES[scene]:
            wanted = lease_from_item(item)
            row = replace(wanted, counter=wanted.counter - 1, checkpoint=ExtendedSequenceNumber(TRIM_HORIZON))
            store.create_if_absent(row)
            if wanted.checkpoint.is_sentinel:
                store.renew(row)
            else:
                store.checkpoint(row, wanted.checkpoint)

    ours = items_after(consume)
    assert by_shape(ours) == by_shape(recorded(scene))
    for key, item in recorded(scene).items():
        assert {**item, "throughputKBps": None} == {**ours[key], "throughputKBps": None}
        if "throughputKBps" in item:
            assert float(item["throughputKBps"]["N"]) == float(ours[key]["throughputKBps"]["N"])


def test_the_end_of_a_shard_is_javas():
    scene = "lease: after split, parent at SHARD_END, children not yet owned"
    parent = lease_from_item(SCENES[scene][0])

    def end(store):
        row = replace(
            parent,
            counter=parent.counter - 2,
            owner=None,
            checkpoint=ExtendedSequenceNumber("5"),
            child_shard_ids=(),
        )
        store.create_if_absent(row)
        mine = store.take(row, parent.owner)
        store.set_child_shard_ids(parent.lease_key, reversed(parent.child_shard_ids))
        store.checkpoint(mine, ExtendedSequenceNumber(SHARD_END))

    (ours,) = items_after(end).values()
    theirs = recorded(scene)[parent.lease_key]
    assert {**ours, "throughputKBps": None} == {**theirs, "throughputKBps": None}


def test_every_version_of_a_handoff_is_javas():
    """The requester's mark, a checkpoint, renewals, the transfer: counters, switches and owners version by version."""
    scene = "lease: graceful handoff worker-1 -> worker-2, versions in order (one item)"
    versions = [lease_from_item(item) for item in SCENES[scene]]
    marked, checkpointed, *renewed, transferred, first_of_the_new_one = versions
    table, store = ready()
    before = replace(marked, owner="worker-1", checkpoint_owner=None)
    store.create_if_absent(before)

    def same(row, version):
        item = table.client.get_item(TableName="app", Key={"leaseKey": {"S": version.lease_key}})["Item"]
        shape = {name: set(value) for name, value in item.items() if name not in OURS}
        (theirs,) = [i for i in SCENES[scene] if lease_from_item(i) == version]
        assert shape == {name: set(value) for name, value in theirs.items()}
        row = replace(row, throughput_kbps=None, handoff_owner=None)
        assert row == replace(version, throughput_kbps=None)

    row = store.request_handoff(before, "worker-2")
    same(row, marked)
    row = store.checkpoint(before, checkpointed.checkpoint)  # it does not know of the mark yet
    same(row, checkpointed)
    assert isinstance(store.renew(replace(row, owner="worker-1", checkpoint_owner=None)), Conflict)
    for version in renewed:
        row = store.renew(replace(row, throughput_kbps=version.throughput_kbps))
        same(row, version)
    row = store.complete_handoff(row)
    same(row, transferred)
    row = store.renew(replace(row, throughput_kbps=first_of_the_new_one.throughput_kbps))
    same(row, first_of_the_new_one)


def test_every_version_of_a_take_over_is_javas():
    scene = "take-over after kill -9 of app2-b, versions in order (one item)"
    versions = [lease_from_item(item) for item in GROUPS[scene]]
    table, store = ready()
    store.create_if_absent(replace(versions[0], extra={}))
    row = store.get(versions[0].lease_key)
    for before, version in pairwise(versions):
        row = replace(row, counter=version.counter - 1, throughput_kbps=version.throughput_kbps)
        table.client.put_item(
            TableName="app", Item=lease_to_item(row)
        )  # what Java renewed between two records
        if version.owner != before.owner:
            row = store.take(row, version.owner)
        elif version.checkpoint != before.checkpoint:
            row = store.checkpoint(row, version.checkpoint)
        else:
            row = store.renew(row)
        assert replace(row, handoff_owner=None) == version
        item = table.client.get_item(TableName="app", Key={"leaseKey": {"S": version.lease_key}})["Item"]
        (theirs,) = [one for one in GROUPS[scene] if lease_from_item(one) == version]
        assert by_shape({"": {k: v for k, v in item.items() if k not in OURS}}) == by_shape({"": theirs})


def test_giving_back_leaves_what_java_accepted():
    scene = "lease: after a foreign worker removed itself as owner (evict)"
    wanted = lease_from_item(SCENES[scene][0])

    def give_back(store):
        row = replace(wanted, counter=wanted.counter - 2)
        store.create_if_absent(row)
        store.release(store.take(row, "py-1"))

    ours = items_after(give_back)
    assert by_shape(ours) == by_shape(recorded(scene))
    assert ours[wanted.lease_key]["leaseCounter"] == SCENES[scene][0]["leaseCounter"]


def test_the_table_is_javas():
    table = Table()
    table.store().ensure_ready()
    made = table.client.describe_table(TableName="app")["Table"]
    theirs = SCENES["table descriptions"][0]
    assert made["KeySchema"] == theirs["KeySchema"]

    def names(definitions):
        return sorted(definitions, key=lambda one: one["AttributeName"])

    assert names(made["AttributeDefinitions"]) == names(theirs["AttributeDefinitions"])
    (ours,), (index,) = made["GlobalSecondaryIndexes"], theirs["GlobalSecondaryIndexes"]
    for member in ("IndexName", "KeySchema", "Projection"):
        assert ours[member] == index[member]
    assert made["BillingModeSummary"]["BillingMode"] == theirs["BillingModeSummary"]["BillingMode"]
    assert made["DeletionProtectionEnabled"] == theirs["DeletionProtectionEnabled"]
