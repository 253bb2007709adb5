"""The bill: hours that have begun, calls before they are made, and limits."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_sdk.common.errors import AdminError
from kinesis_sdk.testing import FakeAws, Fault, VirtualClock
from kinesis_sdk.verify import PRICES, LimitReachedError, Meter, Scratch

HOUR = 3600.0


class Bill:
    """A meter, and calls that succeed."""

    def __init__(self, **limits: float) -> None:
        self.clock = VirtualClock()
        self.meter = Meter(clock=self.clock, **{"max_usd": 100.0, "max_seconds": 1e6, **limits})

    def call(self, operation: str, **request: Any) -> None:
        stream = request.get("StreamName")
        self.meter.begin(operation, request, stream)
        self.meter.end(operation, request, stream, {})

    @property
    def units(self) -> dict[str, float]:
        return self.meter.units()


def test_an_hour_that_has_begun_counts_as_a_whole_one_until_the_stream_is_deleted() -> None:
    bill = Bill()
    bill.call("CreateStream", StreamName="s", ShardCount=2)
    assert bill.units == {"shard_hour": 2}
    bill.clock.advance(HOUR)
    assert bill.units == {"shard_hour": 2}
    bill.clock.advance(1)
    assert bill.units == {"shard_hour": 4}
    bill.call("DeleteStream", StreamName="s")
    bill.clock.advance(10 * HOUR)
    assert bill.units == {"shard_hour": 4}
    assert bill.meter.usd == pytest.approx(4 * PRICES["shard_hour"].usd)


@pytest.mark.parametrize(
    ("calls", "shards"),
    [
        ([("SplitShard", {})], 2 + 2),
        ([("MergeShards", {})], 2 + 1),
        ([("UpdateShardCount", {"TargetShardCount": 4})], 2 + 4),
        ([("UpdateShardCount", {"TargetShardCount": 3})], 2 + 5),
        ([("SplitShard", {}), ("UpdateShardCount", {"TargetShardCount": 6})], 2 + 2 + 6),
    ],
)
def test_shards_count_that_a_change_makes(calls: list[tuple[str, dict[str, Any]]], shards: int) -> None:
    bill = Bill()
    bill.call("CreateStream", StreamName="s", ShardCount=2)
    for operation, request in calls:
        bill.call(operation, StreamName="s", **request)
    assert bill.units["shard_hour"] == shards


def test_readers_of_enhanced_fan_out_count_for_each_shard_also_for_later_ones() -> None:
    bill = Bill()
    bill.call("CreateStream", StreamName="s", ShardCount=3)
    bill.call("RegisterStreamConsumer", StreamName="s")
    bill.call("RegisterStreamConsumer", StreamName="s")
    bill.call("SplitShard", StreamName="s")
    assert bill.units["fan_out_hour"] == 3 + 3 + 2 * 2


@pytest.mark.parametrize(
    ("operation", "request_", "units"),
    [
        ("PutRecord", {"Data": b"x"}, {"put_unit": 1}),
        ("PutRecords", {"Records": [{"Data": b"x" * 25 * 1024}, {"Data": b"x"}]}, {"put_unit": 3}),
        ("PutItem", {"TableName": "t", "Item": {"k": {"S": "x" * 1100}}}, {"write_unit": 4}),
        ("TransactWriteItems", {"TransactItems": [{"Put": {"TableName": "t"}}] * 3}, {"write_unit": 8}),
        ("Scan", {"TableName": "t"}, {"read_unit": 1}),
        ("GetRecords", {"StreamArn": "a"}, {"table_stream_read": 1}),
        (
            "CreateStream",
            {"StreamName": "s", "StreamModeDetails": {"StreamMode": "ON_DEMAND"}},
            {"on_demand_hour": 1},
        ),
        ("CreateStream", {"StreamName": "s"}, {"shard_hour": 4}),
        ("ListShards", {}, {}),
    ],
)
def test_units_of_a_call(operation: str, request_: dict[str, Any], units: dict[str, float]) -> None:
    bill = Bill()
    bill.call(operation, **request_)
    assert bill.units == units
    assert bill.meter.calls == {operation: 1}


def test_a_call_beyond_the_limit_is_not_counted_and_others_go_on() -> None:
    bill = Bill(max_usd=0.04)
    bill.call("CreateStream", StreamName="s", ShardCount=2)
    with pytest.raises(LimitReachedError, match=r"bring the costs to 0\.0450 of 0\.04 USD"):
        bill.call("CreateStream", StreamName="t", ShardCount=1)
    with pytest.raises(LimitReachedError):
        bill.meter.reserve(shard_hour=1)
    bill.call("PutRecord", StreamName="s", Data=b"x")
    assert bill.meter.calls == {"CreateStream": 1, "PutRecord": 1}
    assert bill.meter.usd < 0.04


def test_what_fails_is_not_billed_by_the_hour() -> None:
    bill = Bill()
    bill.meter.begin("CreateStream", {"StreamName": "s", "ShardCount": 9}, "s")
    assert bill.units == {}


def test_the_price_of_a_region_is_a_multiple() -> None:
    bill = Bill(factor=2.0)
    bill.meter.reserve(shard_hour=1)
    assert bill.meter.usd == 2 * PRICES["shard_hour"].usd


def scratch() -> tuple[Scratch, FakeAws]:
    clock = VirtualClock()
    aws = FakeAws(clock=clock, throttle=False)
    clients = {service: aws.client(service) for service in ("kinesis", "dynamodb", "dynamodbstreams")}
    meter = Meter(max_usd=1.0, max_seconds=1e6, clock=clock)
    return Scratch(clients, run="0123abcd", meter=meter, sleep=clock.advance), aws


MINE = "kinesis-sdk-verify-0123abcd-001x"


@pytest.mark.parametrize(
    ("service", "method", "request_"),
    [
        ("kinesis", "delete_stream", {"StreamName": "orders"}),
        ("kinesis", "delete_stream", {"StreamARN": "arn:aws:kinesis:us-east-1:123456789012:stream/orders"}),
        ("kinesis", "delete_stream", {"StreamName": "kinesis-sdk-verify-89abcdef-001x"}),
        ("kinesis", "put_record", {"Data": b"x", "PartitionKey": "k"}),
        (
            "kinesis",
            "put_record",
            {"StreamName": MINE, "StreamARN": "orders", "Data": b"x", "PartitionKey": "k"},
        ),
        ("dynamodb", "delete_table", {"TableName": "billing"}),
        ("dynamodb", "batch_write_item", {"RequestItems": {MINE: [], "billing": []}}),
        (
            "dynamodb",
            "transact_write_items",
            {"TransactItems": [{"Delete": {"TableName": "billing", "Key": {}}}]},
        ),
        ("dynamodb", "scan", {"TableName": "billing"}),
    ],
)
def test_what_a_run_has_not_made_is_not_touched(service: str, method: str, request_: dict[str, Any]) -> None:
    run, aws = scratch()
    with pytest.raises(AdminError, match=r"not belong to this run|names no stream or table"):
        getattr(run.client(service), method)(**request_)
    assert aws.stats()["calls"] == {}


def test_what_is_throttled_is_asked_for_again_and_what_is_refused_is_not() -> None:
    run, aws = scratch()
    kinesis = run.client("kinesis")
    kinesis.create_stream(StreamName=MINE, ShardCount=1)
    aws.faults.add(Fault(kind="throttle", operation="ListShards", count=2))
    assert len(kinesis.list_shards(StreamName=MINE)["Shards"]) == 1
    assert run.meter.calls["ListShards"] == 3
    with pytest.raises(Exception, match="ResourceInUseException"):
        kinesis.create_stream(StreamName=MINE, ShardCount=1)
    assert run.meter.calls["CreateStream"] == 2
