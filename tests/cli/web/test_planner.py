from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest

from kinesis_sdk.admin import Connection
from kinesis_sdk.cli.web.planner import AdminPlanner, read_start, tell_outcomes
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing import FakeAws
from tests.cli.web.generated import shard_name


@pytest.fixture
def account() -> FakeAws:
    aws = FakeAws()
    kinesis = aws.client("kinesis")
    kinesis.create_stream(StreamName="orders", ShardCount=1)
    for n in range(4):
        kinesis.put_record(StreamName="orders", PartitionKey="key", Data=b"%d" % n)
    DynamoDBLeaseStore(aws.client("dynamodb"), "billing").ensure_ready()
    return aws


def planner(account: FakeAws) -> AdminPlanner:
    clients = {name: account.client(name) for name in ("kinesis", "dynamodb")}
    return AdminPlanner(Connection(region="eu-west-1", clients=clients), stream="orders")


def add_lease(account: FakeAws, *, owner: str | None = None) -> None:
    lease = Lease(
        lease_key=shard_name(0), owner=owner, checkpoint=ExtendedSequenceNumber("TRIM_HORIZON", 0), counter=7
    )
    store = DynamoDBLeaseStore(account.client("dynamodb"), "billing")
    assert store.create_if_absent(lease)


def test_a_plan_shows_the_write_and_the_command_and_writes_nothing(account: FakeAws) -> None:
    add_lease(account)
    before = account.client("dynamodb").scan(TableName="billing")["Items"]
    shown, act = planner(account).plan(
        "billing", {"operation": "skip-to", "lease": shard_name(0), "to": "LATEST"}
    )
    assert account.client("dynamodb").scan(TableName="billing")["Items"] == before
    assert shown["command"].startswith("kinesis-sdk leases skip-to billing")
    assert shown["command"].endswith("--region eu-west-1")
    (write,) = shown["writes"]
    assert any("leaseCounter" in line for line in write["lines"])
    assert callable(act)
    json.dumps(shown)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"operation": "drop"}, "operation"),
        ({"lease": ""}, "lease"),
        ({"to": "yesterday"}, "to"),
        ({"operation": "move", "to": ""}, "to"),
    ],
)
def test_a_wrong_change_is_named(account: FakeAws, change: dict[str, str], field: str) -> None:
    add_lease(account)
    with pytest.raises(ConfigError, match=f"^{field}="):
        planner(account).plan(
            "billing", {"operation": "rewind", "lease": shard_name(0), "to": "1h", **change}
        )


def test_a_start_is_read_as_the_command_line_reads_it() -> None:
    assert read_start("trim_horizon") == "TRIM_HORIZON"
    assert read_start("2026-11-21T09:00:00Z") == datetime(2026, 11, 21, 9, tzinfo=timezone.utc)
    number = "49680462609044105576921852033492368472613724648867102786"
    assert read_start(f"{number}/3") == ExtendedSequenceNumber(number, 3)


def test_nothing_to_tell_is_said() -> None:
    assert tell_outcomes([]) == {"text": "There was nothing to write."}
