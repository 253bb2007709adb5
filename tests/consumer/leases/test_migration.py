"""In a fleet of Java workers that migrates from KCL 2.x to 3.x: the elected leader, and what this package logs."""

from __future__ import annotations

import re

import pytest

from kinesis_sdk.common.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases import Lease
from kinesis_sdk.consumer.leases.java.migration import is_upgrading_from_2x, kcl2_leader
from tests.consumer.fleet.dynamodb import on_dynamodb
from tests.consumer.leases.handoffs import key
from tests.consumer.leases.java_membership import COUNT, join, tables

START = ExtendedSequenceNumber(TRIM_HORIZON)
# What Collections.shuffle(list, new Random(1947)) of Java 17 puts first, for lists of 1 to 40 elements.
FIRST = re.findall(
    r"\d+",
    "0 0 2 3 4 2 2 2 3 8 6 9 12 4 10 11 13 11 0 14 13 7 1 1 0 3 9 20 12 3 22 19 21 31 23 19 22 31 35 18",
)


def owned(*owners):
    return [Lease(lease_key=f"s{n}", checkpoint=START, owner=owner) for n, owner in enumerate(owners)]


@pytest.mark.parametrize(("size", "first"), [*enumerate(FIRST, 1)])
def test_the_election_is_javas(size, first):
    owners = [f"w{n:02d}" for n in range(size)]
    assert kcl2_leader(owned(*reversed(owners), None, owners[0])) == owners[int(first)]


def test_elections_recorded_with_the_real_kcl():
    assert kcl2_leader(owned("jP1-2", "jP2-2", "ours-2")) == "ours-2"
    assert kcl2_leader(owned("jP1-2", "jP2-2", "a-ours-2")) == "jP2-2"


def test_the_election_counts_owners_of_finished_leases_and_orders_as_java():
    finished = Lease(lease_key="end", checkpoint=ExtendedSequenceNumber(SHARD_END), owner="z")
    assert kcl2_leader([*owned("a", "b"), finished]) == "z"
    assert kcl2_leader([]) is None
    # UTF-16: a character beyond the basic plane comes before U+FFxx.
    assert kcl2_leader(owned("a", "\uff5e", "\U0001f600")) == "\uff5e"


def test_the_state_of_a_migration():
    assert is_upgrading_from_2x({"cv": {"S": "CLIENT_VERSION_UPGRADE_FROM_2X"}})
    assert not is_upgrading_from_2x({"cv": {"S": "CLIENT_VERSION_3X"}})
    assert not any(map(is_upgrading_from_2x, (None, {}, {"cv": {"N": "1"}}, {"cv": "text"})))


def scene(mode, name, *, version="CLIENT_VERSION_UPGRADE_FROM_2X"):
    """Two leases of Java workers and an unassigned one, which our worker takes; the fleet's migration state."""
    fleet = on_dynamodb(3, config=COUNT)
    fleet.store.ensure_ready()
    tables(fleet)
    table, hash_key = ("app-CoordinatorState", "key") if mode == "separate_table" else ("app", "leaseKey")
    item = {
        hash_key: {"S": "Migration3.0"},
        "cv": {"S": version},
        "entityType": {"S": "CLIENT_VERSION_MIGRATION"},
    }
    fleet.aws.client("dynamodb").put_item(TableName=table, Item=item)
    for n, owner in enumerate(("jP1-2", "jP2-2", None)):
        fleet.store.create_if_absent(Lease(lease_key=key(n), checkpoint=START, owner=owner, counter=n))
    fleet.add(name) if mode is None else join(fleet, name, mode)
    fleet.run(8)
    assert sorted(map(str, fleet.owners().values())) == sorted(["jP1-2", "jP2-2", name])
    return fleet


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if "migration" in r.getMessage()]


@pytest.mark.parametrize("mode", ["lease_table", "separate_table"])
def test_a_worker_that_blocks_a_migration_logs_it(mode, caplog):
    scene(mode, "ours-2")
    (warning,) = warnings(caplog)
    assert warning.startswith("worker ours-2: ")
    assert "elected" in warning


@pytest.mark.parametrize("mode", ["lease_table", "separate_table"])
def test_a_worker_that_does_not_block_a_migration_logs_nothing(mode, caplog):
    scene(mode, "a-ours-2")
    scene(mode, "ours-2", version="CLIENT_VERSION_3X")
    assert warnings(caplog) == []


def test_a_worker_without_metrics_blocks_a_migration_and_logs_it(caplog):
    scene(None, "a-ours-2")
    (warning,) = warnings(caplog)
    assert "worker metrics" in warning
