"""One suite for every lease store: in memory, DynamoDB as the fake plays it, DynamoDB as moto plays it."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import boto3
import pytest

from kinesis_sdk.common.errors import ConfigError, ProtocolError, ThrottledError, TransientAwsError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer.leases import (
    Conflict,
    DynamoDBLeaseStore,
    InMemoryLeaseStore,
    Lease,
    lease_from_item,
    lease_to_item,
)
from kinesis_sdk.consumer.shard_sync import plan_bootstrap, plan_children
from kinesis_sdk.testing import FakeAws, Fault, VirtualClock

DATA = Path(__file__).parents[1] / "data"


class OneAtATime:
    """moto checks a condition and writes without a lock in between: two racers may both win. One call at a time."""

    def __init__(self, client):
        self._client = client
        self._lock = threading.Lock()

    def __getattr__(self, name):
        value = getattr(self._client, name)
        if not callable(value):
            return value

        def call(**request):
            with self._lock:
                return value(**request)

        return call


@pytest.fixture(scope="module")
def moto_client():
    """One for all tests: to make one takes longer than most of them."""
    from moto import mock_aws

    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    with mock_aws():
        return boto3.client("dynamodb", region_name="us-east-1", **keys)


@pytest.fixture(params=["memory", "fake", "moto"])
def store(request):
    if request.param == "memory":
        yield InMemoryLeaseStore()
        return
    if request.param == "fake":
        clock = VirtualClock()
        client = FakeAws(clock=clock).client("dynamodb")
        store = DynamoDBLeaseStore(client, "app", sleep=clock.advance, monotonic=clock.monotonic)
        store.ensure_ready()
        yield store
        return
    from moto import mock_aws

    with mock_aws():  # empty again each time
        client = OneAtATime(request.getfixturevalue("moto_client"))
        store = DynamoDBLeaseStore(client, "app", sleep=lambda seconds: None)
        store.ensure_ready()
        yield store


def lease(key="shard-0", **more):
    more.setdefault("checkpoint", ExtendedSequenceNumber(TRIM_HORIZON))
    return Lease(lease_key=key, hash_key_range=HashKeyRange(0, 5), parent_shard_ids=("p",), **more)


def test_create_is_conditional(store):
    assert store.create_if_absent(lease())
    assert not store.create_if_absent(lease(counter=9))
    assert store.get("shard-0") == lease()
    assert store.list() == [lease()]
    assert store.get("other") is None


def test_take_counts_switches_only_from_another_owner(store):
    store.create_if_absent(lease())
    first = store.take(lease(), "a")
    assert (first.owner, first.counter, first.owner_switches) == ("a", 1, 0)
    again = store.take(first, "a")
    assert (again.counter, again.owner_switches) == (2, 0)
    stolen = store.take(again, "b")
    assert (stolen.owner, stolen.counter, stolen.owner_switches) == ("b", 3, 1)
    assert store.get("shard-0") == stolen


def test_a_write_with_an_old_counter_loses_and_shows_the_row(store):
    store.create_if_absent(lease())
    mine = store.take(lease(), "a")
    theirs = store.take(mine, "b")
    position = ExtendedSequenceNumber("7")
    for outcome in (
        store.renew(mine),
        store.checkpoint(mine, position),
        store.pin(mine, 5),
        store.release(mine),
        store.take(mine, "c"),
    ):
        assert outcome == Conflict(theirs)
    assert store.get("shard-0") == theirs


def test_checkpoint_writes_the_pair_and_clears_what_is_over(store):
    store.create_if_absent(
        lease(
            pending_checkpoint=ExtendedSequenceNumber("5", 1),
            pending_checkpoint_state=b"x",
            initial_timestamp_millis=5,
            owner_switches=4,
        )
    )
    mine = store.take(store.get("shard-0"), "a")
    done = store.checkpoint(mine, ExtendedSequenceNumber("12", 3))
    row = store.get("shard-0")
    assert row == done
    assert row.checkpoint == ExtendedSequenceNumber("12", 3)
    assert (row.owner_switches, row.pending_checkpoint, row.pending_checkpoint_state) == (0, None, None)
    assert row.initial_timestamp_millis is None
    assert row.counter == 2


def test_pin_renew_release(store):
    store.create_if_absent(lease())
    row = store.pin(store.take(lease(), "a"), 1_700_000_000_000)
    row = store.renew(row)
    row = store.release(row)
    assert (row.owner, row.counter, row.initial_timestamp_millis) == (None, 4, 1_700_000_000_000)
    assert store.get("shard-0") == row
    assert store.take(row, "b").owner_switches == 0


def test_children_are_written_without_touching_the_counter(store):
    store.create_if_absent(lease())
    mine = store.take(lease(), "a")
    assert store.set_child_shard_ids("shard-0", ["c2", "c1"])
    assert store.get("shard-0") == replace(mine, child_shard_ids=("c1", "c2"))
    ended = store.checkpoint(mine, ExtendedSequenceNumber(SHARD_END))
    assert not isinstance(ended, Conflict)
    assert store.get("shard-0").child_shard_ids == ("c1", "c2")
    assert not store.set_child_shard_ids("other", ["c"])


def test_take_ends_a_handover(store):
    store.create_if_absent(lease(owner="b", checkpoint_owner="a", counter=4))
    assert store.take(store.get("shard-0"), "c").checkpoint_owner is None
    assert store.get("shard-0").checkpoint_owner is None


def test_delete(store):
    store.create_if_absent(lease())
    mine = store.take(lease(), "a")
    store.delete("shard-0")
    store.delete("shard-0")
    assert store.list() == []
    assert store.renew(mine) == Conflict(None)
    assert store.get("shard-0") is None, "an update must not bring a row back"


def test_an_unowned_lease_is_deleted_only_as_it_was_seen(store):
    store.create_if_absent(lease())
    seen = store.get("shard-0")
    mine = store.take(seen, "a")
    assert not store.delete("shard-0", unowned=seen), "somebody lives by it"
    assert store.get("shard-0") == mine
    given_back = store.release(mine)
    assert not store.delete("shard-0", unowned=seen), "somebody began to read it"
    assert store.delete("shard-0", unowned=given_back)
    assert store.get("shard-0") is None
    assert store.delete("shard-0", unowned=given_back), "a lost answer"


def test_an_answer_that_was_lost_counts_as_success(store):
    store.create_if_absent(lease())
    taken = store.take(lease(), "a")
    assert store.take(lease(), "a") == taken
    assert store.take(lease(), "b") == Conflict(taken)
    renewed = store.renew(taken)
    assert store.renew(taken) == renewed
    position = ExtendedSequenceNumber("9")
    stored = store.checkpoint(renewed, position)
    assert store.checkpoint(renewed, position) == stored
    assert isinstance(store.checkpoint(renewed, ExtendedSequenceNumber("8")), Conflict)
    released = store.release(stored)
    assert store.release(stored) == released


def test_one_of_many_racers_wins(store):
    store.create_if_absent(lease())
    for round_number in range(5):
        seen = store.get("shard-0")
        outcomes: dict[str, object] = {}
        barrier = threading.Barrier(12)

        def race(name, seen=seen, barrier=barrier, outcomes=outcomes):
            barrier.wait()
            outcomes[name] = store.take(seen, name)

        threads = [threading.Thread(target=race, args=(f"w{n}",)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [name for name, outcome in outcomes.items() if isinstance(outcome, Lease)]
        assert len(winners) == 1
        row = store.get("shard-0")
        assert (row.owner, row.counter) == (winners[0], round_number + 1)


def test_one_of_many_creators_wins(store):
    results = []
    barrier = threading.Barrier(8)

    def race():
        barrier.wait()
        results.append(store.create_if_absent(lease()))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 7 + [True]


# Handover


def handing_over(store):
    store.create_if_absent(lease())
    mine = store.take(lease(), "a")
    return mine, store.request_handoff(mine, "b")


def test_a_request_names_both_and_leaves_the_counter(store):
    mine, asked = handing_over(store)
    assert (asked.owner, asked.checkpoint_owner, asked.counter) == ("b", "a", mine.counter)
    assert (asked.owner_switches, asked.holder, asked.in_handoff) == (0, "a", True)
    assert asked.handoff_owner == "b", "it says that it comes for it at once"
    assert store.get("shard-0") == asked
    assert store.request_handoff(mine, "b") == asked, "the answer was lost, the second one counts"
    assert store.request_handoff(mine, "c") == Conflict(asked)
    assert store.request_handoff(asked, "c") == Conflict(asked), "one at a time"
    assert store.request_handoff(replace(mine, lease_key="other"), "b") == Conflict(None)


def test_a_request_does_not_care_for_the_counter_but_for_the_owner(store):
    store.create_if_absent(lease())
    seen = store.take(lease(), "a")
    store.renew(store.renew(seen))
    asked = store.request_handoff(seen, "b")
    assert asked.counter == 3
    other = store.take(asked, "c")
    assert store.request_handoff(seen, "d") == Conflict(other)


def test_a_renewal_fails_once_and_then_goes_on_by_the_counter(store):
    mine, asked = handing_over(store)
    assert store.renew(mine) == Conflict(asked)
    assert store.release(mine) == Conflict(asked), "it has a next owner"
    renewed = store.renew(asked)
    assert (renewed.counter, renewed.owner, renewed.checkpoint_owner) == (2, "b", "a")
    assert store.renew(asked) == renewed, "a lost answer"


def test_checkpoints_go_on_during_a_handover_and_show_it(store):
    mine, _ = handing_over(store)
    stored = store.checkpoint(mine, ExtendedSequenceNumber("5"))
    assert (stored.counter, stored.owner, stored.checkpoint_owner) == (2, "b", "a")
    assert store.get("shard-0") == stored
    assert store.prepare(stored, ExtendedSequenceNumber("6")).in_handoff
    assert store.pin(store.get("shard-0"), 5).in_handoff


def test_the_end_of_a_handover(store):
    _, asked = handing_over(store)
    done = store.complete_handoff(asked)
    assert (done.owner, done.checkpoint_owner, done.counter) == ("b", None, 2)
    assert (done.owner_switches, done.handoff_owner) == (0, None)
    assert store.get("shard-0") == done
    assert store.complete_handoff(asked) == done, "a lost answer"
    taken = store.take(done, "b")
    assert (taken.counter, taken.owner_switches) == (3, 0)
    assert store.complete_handoff(asked) == Conflict(taken)


def test_a_forced_take_in_the_middle_fences_the_old_owner(store):
    _, asked = handing_over(store)
    forced = store.take(asked, "b")
    assert (forced.owner, forced.checkpoint_owner, forced.owner_switches) == ("b", None, 1)
    for outcome in (store.renew(asked), store.release(asked)):
        assert outcome == Conflict(forced)
    assert store.complete_handoff(asked).owner == "b", "that is what it wanted"
    assert store.get("shard-0") == forced


def test_a_handover_that_was_renamed_is_not_completed(store):
    """Both owners have to be as seen."""
    _, asked = handing_over(store)
    assert store.complete_handoff(replace(asked, owner="c")) == Conflict(asked)
    assert store.complete_handoff(replace(asked, checkpoint_owner="x")) == Conflict(asked)


# The rest


def test_a_prepared_checkpoint(store):
    store.create_if_absent(lease(owner_switches=3))
    mine = store.take(lease(), "a")
    position = ExtendedSequenceNumber("7", 2)
    row = store.prepare(mine, position, b"state")
    assert (row.pending_checkpoint, row.pending_checkpoint_state) == (position, b"state")
    assert (row.counter, row.owner_switches) == (2, 0)
    assert row.checkpoint == mine.checkpoint
    assert store.get("shard-0") == row
    assert store.prepare(mine, position, b"state") == row, "a lost answer"
    assert isinstance(store.prepare(mine, position, b"other"), Conflict)
    row = store.prepare(row, ExtendedSequenceNumber("8"))
    assert store.get("shard-0").pending_checkpoint_state is None, "state of another position"
    row = store.checkpoint(row, ExtendedSequenceNumber("5"))
    assert store.get("shard-0").pending_checkpoint is None, "any checkpoint clears it"


def test_ranges_are_written_without_touching_the_counter(store):
    bare = Lease(lease_key="shard-0", checkpoint=ExtendedSequenceNumber(TRIM_HORIZON))
    store.create_if_absent(bare)
    mine = store.take(bare, "a")
    assert store.set_hash_key_range("shard-0", HashKeyRange(3, 9))
    assert store.get("shard-0") == replace(mine, hash_key_range=HashKeyRange(3, 9))
    assert not isinstance(store.renew(mine), Conflict)
    assert not store.set_hash_key_range("other", HashKeyRange(3, 9))
    assert store.get("other") is None


def test_marks_of_standbys_are_left_without_touching_the_counter(store):
    store.create_if_absent(lease())
    mine = store.take(lease(), "a")
    assert store.put_standby_heartbeat("shard-0", "b|1", 1)
    assert store.put_standby_heartbeat("shard-0", "c:2", 5)
    assert store.get("shard-0") == replace(mine, standby_heartbeats={"b|1": 1, "c:2": 5})
    assert store.put_standby_heartbeat("shard-0", "b|1", 2)
    mine = store.checkpoint(store.renew(mine), ExtendedSequenceNumber("5"))
    assert not isinstance(mine, Conflict), "its holder need not know"
    assert store.get("shard-0").standby_heartbeats == {"b|1": 2, "c:2": 5}
    assert {row.lease_key: dict(row.standby_heartbeats) for row in store.list()} == {
        "shard-0": {"b|1": 2, "c:2": 5}
    }
    assert store.put_standby_heartbeat("shard-0", "b|1", None)
    assert store.put_standby_heartbeat("shard-0", "nobody", None), "none is one taken away"
    assert store.get("shard-0").standby_heartbeats == {"c:2": 5}
    assert not store.put_standby_heartbeat("other", "b|1", 1)
    assert not store.put_standby_heartbeat("other", "b|1", None)
    assert store.get("other") is None


def test_throughput_goes_with_renewals_and_checkpoints(store):
    store.create_if_absent(lease())
    mine = store.take(lease(), "a")
    row = store.renew(replace(mine, throughput_kbps=1.5))
    assert store.get("shard-0").throughput_kbps == 1.5
    store.renew(replace(row, throughput_kbps=None))
    assert store.get("shard-0").throughput_kbps == 1.5, "who measured nothing leaves it"
    row = store.get("shard-0")
    store.checkpoint(replace(row, throughput_kbps=0.000001), ExtendedSequenceNumber("5"))
    assert store.get("shard-0").throughput_kbps == 0.000001


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
    with pytest.raises(TransientAwsError, match="not ACTIVE after 600 s"):
        table.store().ensure_ready()


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
    table = Table()
    store = table.store()
    store.ensure_ready()
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
    table = Table()
    store = table.store()
    store.ensure_ready()
    for number, item in enumerate(json.loads((DATA / "kcl_other_items.json").read_text())):
        key = {"leaseKey": {"S": f"other-{number}"}, "entityType": {"S": "LEADER"}}
        table.client.put_item(TableName="app", Item={**item, **key})
    table.client.put_item(TableName="app", Item={"leaseKey": {"S": "bad"}})
    store.create_if_absent(lease())
    assert store.list() == [lease()]
    assert store.list(consistent=True) == [lease()]
    scan = store.scan()
    assert scan.leases == [lease()]
    assert scan.unreadable == {"bad": "not a lease item: KeyError: 'leaseCounter'"}
    assert sorted(scan.others) == [f"other-{n}" for n in range(number + 1)]


def test_a_malformed_item_is_not_taken_for_none():
    """A child whose parent has no lease is read at once; one whose parent can not be read has to wait."""
    table = Table()
    store = table.store()
    store.ensure_ready()
    table.client.put_item(TableName="app", Item={"leaseKey": {"S": "shard-0"}, "leaseCounter": {"N": "1"}})
    with pytest.raises(ProtocolError, match="row shard-0 cannot be read"):
        store.get("shard-0")
    assert not store.create_if_absent(lease())
    assert store.renew(lease(counter=0)) == Conflict(None), "what nobody can read is not ours"


def test_scans_go_through_all_pages():
    table = Table()
    store = table.store()
    store.ensure_ready()
    padding = {"padding": {"S": "x" * 200_000}}
    for number in range(12):
        store.create_if_absent(replace(lease(f"shard-{number}"), extra=padding))
    assert len(store.list()) == 12
    assert table.aws.stats()["calls"]["Scan"] >= 3


def test_failures_are_translated_and_scans_repeated():
    table = Table()
    store = table.store()
    store.ensure_ready()
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
    table = Table()
    store = table.store()
    store.ensure_ready()
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


def test_every_version_of_a_handover_is_javas():
    """The requester's mark, a checkpoint, renewals, the transfer: counters, switches and owners version by version."""
    scene = "lease: graceful handoff worker-1 -> worker-2, versions in order (one item)"
    versions = [lease_from_item(item) for item in SCENES[scene]]
    marked, checkpointed, *renewed, transferred, first_of_the_new_one = versions
    table = Table()
    store = table.store()
    store.ensure_ready()
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
    table = Table()
    store = table.store()
    store.ensure_ready()
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


def test_what_java_accepted_is_read_here():
    for recorded_item in SCENES["lease: hand-written items that KCL 3.1.3 accepted (before)"]:
        item = dict(recorded_item)
        if "pendingCheckpointState" in item:
            item["pendingCheckpointState"] = {"B": base64.b64decode(item["pendingCheckpointState"]["B"])}
        if "leaseCounter" in item:
            row = lease_from_item(item)
            assert lease_from_item(lease_to_item(row)) == row


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
