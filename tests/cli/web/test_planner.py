from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kinesis_sdk.admin import Connection
from kinesis_sdk.cli.web.planner import AdminPlanner
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.cli.web.generated import shard_name


@pytest.fixture
def account() -> FakeAws:
    aws = FakeAws()
    kinesis = aws.client("kinesis")
    kinesis.create_stream(StreamName="orders", ShardCount=1)
    for n in range(4):
        kinesis.put_record(StreamName="orders", PartitionKey="key", Data=b"%d" % n)
    DynamoDBLeaseStore(aws.client("dynamodb"), "billing", sleep=lambda _: None).ensure_ready()
    return aws


def planner(account: FakeAws) -> AdminPlanner:
    clients = {name: account.client(name) for name in ("kinesis", "dynamodb")}
    clock = VirtualClock(account.clock.time())
    connection = Connection(region="eu-west-1", clients=clients)
    return AdminPlanner(connection, stream="orders", clock=clock, sleep=clock.advance)


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
        "billing", {"operation": "skip-to", "leases": [shard_name(0)], "to": "LATEST"}
    )
    assert account.client("dynamodb").scan(TableName="billing")["Items"] == before
    assert shown["command"].startswith("kinesis-sdk leases skip-to billing")
    assert shown["command"].endswith("--region eu-west-1")
    assert shown["command"].count("--region") == 1
    (write,) = shown["writes"]
    assert any("leaseCounter" in line for line in write["lines"])
    assert callable(act)
    json.dumps(shown)


def test_a_plan_for_another_database_names_the_statement_and_the_database(
    account: FakeAws, tmp_path: Path
) -> None:
    pytest.importorskip("sqlalchemy")
    from kinesis_sdk.consumer.leases import SqlLeaseStore

    url = f"sqlite:///{tmp_path}/leases.db"
    store = SqlLeaseStore(url, "billing")
    store.ensure_ready()
    checkpoint = ExtendedSequenceNumber("TRIM_HORIZON", 0)
    store.create_if_absent(Lease(lease_key=shard_name(0), checkpoint=checkpoint, counter=7))
    clock = VirtualClock(account.clock.time())
    connection = Connection(clients={"kinesis": account.client("kinesis")}, lease_store=url)
    one = AdminPlanner(
        connection,
        stream="orders",
        clock=clock,
        sleep=clock.advance,
        audit_log=tmp_path / "audit.jsonl",
    )
    shown, act = one.plan("billing", {"operation": "skip-to", "leases": [shard_name(0)], "to": "LATEST"})
    assert shown["command"].endswith(f"--lease-store {url}")
    assert [write["title"] for write in shown["writes"]] == [f"UPDATE billing {shard_name(0)}"]
    act(lambda _line: None)
    lease = store.get(shard_name(0))
    assert lease is not None
    assert lease.counter == 9
    assert not lease.checkpoint.is_sentinel
    done = json.loads((tmp_path / "audit.jsonl").read_text().splitlines()[0])
    assert done["table"] == f"billing in {url}"
    assert done["write"]["equals"] == {"leaseCounter": {"N": "7"}}
    store.close()
    connection.database.dispose()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"operation": "drop"}, "operation"),
        ({"leases": []}, "leases"),
        ({"leases": shard_name(0)}, "leases"),
        ({"leases": [""]}, "leases"),
        ({"operation": "release", "leases": [1]}, "leases"),
        ({"operation": "pin", "leases": ["a", "b"]}, "leases"),
        ({"operation": "retry", "leases": ["a", "b"]}, "leases"),
        ({"operation": "pin", "to": ""}, "to"),
        ({"operation": "drain"}, "worker"),
        ({"operation": "undrain", "worker": 7}, "worker"),
        ({"to": "yesterday"}, "to"),
        ({"operation": "move", "to": ""}, "to"),
    ],
)
def test_a_wrong_change_is_named(account: FakeAws, change: dict[str, Any], field: str) -> None:
    add_lease(account)
    with pytest.raises(ConfigError, match=f"^{field}="):
        planner(account).plan(
            "billing", {"operation": "rewind", "leases": [shard_name(0)], "to": "-1h", **change}
        )
