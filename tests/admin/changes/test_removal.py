"""Deletion of applications that have stopped, and of no others."""

from __future__ import annotations

import pytest

from kinesis_sdk.admin.changes.deletions import plan_app_deletion
from kinesis_sdk.common.errors import ChangeRefusedError
from tests.admin.changes.operators import TABLE, SteeredFleet


def stopped(tmp_path):
    fleet = SteeredFleet(tmp_path)
    fleet.add("a", fleet.checkpointer("a", "each batch"))
    fleet.load(5)
    fleet.stop("a")
    fleet.run(3)
    return fleet


def beside(fleet, suffix, key):
    fleet.dynamodb.create_table(
        TableName=TABLE + suffix,
        KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def test_it_is_watched_for_two_failover_times_and_deleted_with_its_tables(tmp_path):
    fleet = stopped(tmp_path)
    beside(fleet, "-CoordinatorState", "key")
    beside(fleet, "-WorkerMetricStats", "wid")
    beside(fleet, "-other", "id")
    begun = fleet.clock.monotonic()
    plan = plan_app_deletion(fleet.desk(fleet.dynamodb))
    assert fleet.clock.monotonic() - begun >= 20
    tables = [write.row for write in plan.description.writes]
    assert tables == [TABLE, TABLE + "-CoordinatorState", TABLE + "-WorkerMetricStats"]
    plan.apply()
    assert fleet.dynamodb.list_tables()["TableNames"] == [TABLE + "-other"]
    assert [line["event"] for line in fleet.lines()] == ["begin", "done"] * 3


@pytest.mark.parametrize("when", ["before the watch", "during the watch", "after the question"])
def test_an_application_that_runs_is_not_deleted(tmp_path, when):
    fleet = stopped(tmp_path)
    desk = fleet.desk(fleet.dynamodb)
    if when == "after the question":
        plan = plan_app_deletion(desk)
        fleet.add("b")
        fleet.run(1)
        with pytest.raises(ChangeRefusedError, match="has written to"):
            plan.apply()
    else:
        moment = fleet.clock.monotonic() + (0 if when == "before the watch" else 13)
        fleet.timeline.at(moment, lambda: fleet.add("b"))
        with pytest.raises(ChangeRefusedError, match="b writes to its table"):
            plan_app_deletion(desk)
    assert fleet.dynamodb.list_tables()["TableNames"] == [TABLE]


@pytest.mark.parametrize(
    ("holds", "message"), [(False, "java writes to its table"), (True, "java reported to its fleet")]
)
def test_a_java_worker_is_seen_by_its_metrics(tmp_path, holds, message):
    fleet = stopped(tmp_path)
    if holds:
        (row,) = fleet.store.list()
        fleet.store.take(row, "java")
        fleet.write("REMOVE handoffOwner")
    beside(fleet, "-WorkerMetricStats", "wid")
    fleet.dynamodb.put_item(
        TableName=TABLE + "-WorkerMetricStats",
        Item={"wid": {"S": "java"}, "lut": {"N": str(int(fleet.clock.time()))}},
    )
    with pytest.raises(ChangeRefusedError, match=message):
        plan_app_deletion(fleet.desk(fleet.dynamodb))
