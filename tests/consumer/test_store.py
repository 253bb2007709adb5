"""One suite for every lease store: in memory, DynamoDB as the fake plays it, DynamoDB as moto plays it."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import boto3
import pytest

from kinesis_sdk.common.errors import ConfigError, ThrottledError, TransientAwsError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases import Conflict, DynamoDBLeaseStore, InMemoryLeaseStore, Lease
from kinesis_sdk.testing import FakeAws, Fault, VirtualClock

DATA = Path(__file__).parent / "data"


@pytest.fixture(params=["memory", "fake", "moto"])
def store(request, monkeypatch):
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

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with mock_aws():
        client = boto3.client("dynamodb", region_name="us-east-1")
        store = DynamoDBLeaseStore(client, "app", sleep=lambda seconds: None)
        store.ensure_ready()
        yield store


@pytest.fixture
def atomic_store(store, request):
    # moto checks a condition and writes without a lock in between: two racers may both win.
    if "moto" in request.node.name:
        pytest.skip("moto's conditional writes are not atomic between threads")
    return store


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


def test_one_of_many_racers_wins(atomic_store):
    atomic_store.create_if_absent(lease())
    for round_number in range(5):
        seen = atomic_store.get("shard-0")
        outcomes: dict[str, object] = {}
        barrier = threading.Barrier(12)

        def race(name, seen=seen, barrier=barrier, outcomes=outcomes):
            barrier.wait()
            outcomes[name] = atomic_store.take(seen, name)

        threads = [threading.Thread(target=race, args=(f"w{n}",)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [name for name, outcome in outcomes.items() if isinstance(outcome, Lease)]
        assert len(winners) == 1
        row = atomic_store.get("shard-0")
        assert (row.owner, row.counter) == (winners[0], round_number + 1)


def test_one_of_many_creators_wins(atomic_store):
    results = []
    barrier = threading.Barrier(8)

    def race():
        barrier.wait()
        results.append(atomic_store.create_if_absent(lease()))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 7 + [True]


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


def test_other_entities_are_skipped_and_malformed_items_are_reported_once(caplog):
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
    assert [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()] == [
        "lease table app: item {'S': 'bad'} is skipped: not a lease item: KeyError: 'leaseCounter'"
    ]


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
