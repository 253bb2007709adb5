"""The doctor as a process, with real clients of boto3: what it finds, and how it ends where nothing works."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

from integration.commands import CLI, execute
from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing import FakeAws, FakeAwsServer


def doctor(url: str, *arguments: str, **environment: str) -> tuple[int, str]:
    command = (*CLI, "doctor", "orders", "billing", "--endpoint-url", url, *arguments)
    result = execute(command, env={**os.environ, **environment})
    assert "Traceback" not in result.stderr, result.stderr
    return result.returncode, result.stdout


def findings(text: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(text)["findings"]:
        found.setdefault(finding["code"], []).append(finding)
    return found


def fill(fake: FakeAws) -> None:
    kinesis = fake.client("kinesis")
    kinesis.create_stream(StreamName="orders", ShardCount=3)
    store = DynamoDBLeaseStore(fake.client("dynamodb"), "billing", deletion_protection=True)
    store.ensure_ready()
    for shard in list_shards(kinesis, StreamId("orders")):
        store.create_if_absent(Lease.for_shard(shard, "TRIM_HORIZON"))
    for number in range(100):
        kinesis.put_record(StreamName="orders", Data=b"x", PartitionKey=f"key-{number}")


def test_a_healthy_application_with_real_clients() -> None:
    fake = FakeAws()
    with FakeAwsServer(fake) as server:
        fill(fake)
        rows = fake.client("dynamodb").scan(TableName="billing")["Items"]
        code, text = doctor(server.endpoint_url, "--json", "--strict")
        found = findings(text)
        assert code == 0, text
        assert found["permissions-producer"][0]["level"] == "green"
        # This botocore knows the dry run, and the service's response is understood.
        assert not any("pip install -U boto3" in one["text"] for one in found["permissions-not-tried"])
        assert fake.stats()["records_stored"] == 100
        assert fake.client("dynamodb").scan(TableName="billing")["Items"] == rows


def test_wrong_credentials_are_named() -> None:
    fake = FakeAws(access_keys=["another"])
    with FakeAwsServer(fake) as server:
        code, text = doctor(server.endpoint_url, "--json")
    assert code == 1
    assert {one["title"] for one in findings(text)["unreachable"]} >= {
        "kinesis not reached",
        "dynamodb not reached",
    }


def test_an_endpoint_where_nothing_listens_is_named_soon() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    started = time.monotonic()
    code, text = doctor(f"http://127.0.0.1:{port}")
    assert code == 1
    assert "kinesis not reached" in text
    assert time.monotonic() - started < 60
