"""The policy of docs/permissions.md against the calls that are made: nothing else is called, and nothing in it is without need.

The clients refuse what the policy does not allow, so that a missing action shows as it would with AWS.
"""

from __future__ import annotations

import fnmatch
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kinesis_sdk import ConsumerConfig, CoordinationConfig, Producer, RecordBatch, Worker
from kinesis_sdk.common.errors import AwsError
from kinesis_sdk.metrics import CATALOGUE, CloudWatchMetrics, Scope
from kinesis_sdk.spark import KinesisPartitionWriter, ProducerSettings
from kinesis_sdk.spark.positions import StartingPosition
from kinesis_sdk.testing import FakeAws
from tests.readme import DOCS, blocks
from tests.spark.support import Query, World

UNSEEN = {"dynamodb:TagResource", "kms:GenerateDataKey", "kms:Decrypt"}
"""Not calls of ours: AWS asks for them when CreateTable has tags and when a stream is encrypted."""


def as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


class Account:
    """A fake account whose clients may do what some statements of the page's policy allow."""

    def __init__(self) -> None:
        self.aws = FakeAws(region="eu-west-1", account_id="123456789012")
        (policy,) = blocks("json", DOCS / "permissions.md")
        self.statements = {one["Sid"]: one for one in json.loads(policy.text)["Statement"]}
        self.allowed: set[str] = set()
        self.used: set[tuple[str, str]] = set()
        self.refused: list[str] = []
        admin = self.aws.client("kinesis")
        admin.create_stream(StreamName="orders", ShardCount=1)
        self.stream_arn = admin.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"][
            "StreamARN"
        ]

    def check(self, service: str, operation: str, request: dict[str, Any]) -> None:
        action, resource = f"{service}:{operation}", self._resource(service, request)
        for name in self.allowed:
            statement = self.statements[name]
            if action in as_list(statement["Action"]) and any(
                resource is None or fnmatch.fnmatchcase(resource, pattern)
                for pattern in as_list(statement["Resource"])
            ):
                self.used.add((name, action))
                break
        else:
            self.refused.append(f"{action} on {resource}")
            error: Any = {"Error": {"Code": "AccessDeniedException", "Message": f"no {action} on {resource}"}}
            raise ClientError(error, operation)

    def _resource(self, service: str, request: dict[str, Any]) -> str | None:
        if service == "dynamodb":
            return f"arn:aws:dynamodb:eu-west-1:123456789012:table/{request['TableName']}"
        if service == "cloudwatch":
            return "*"
        named = request.get("ConsumerARN") or request.get("StreamARN")
        if named is None and "StreamName" in request:
            named = self.stream_arn.rpartition("/")[0] + "/" + request["StreamName"]
        return named  # a page token or an iterator names its stream to AWS

    def client(self, service: str) -> Any:
        return Guarded(self, service)


class Guarded:
    """A client that asks the account first."""

    def __init__(self, account: Account, service: str) -> None:
        self._account, self._service = account, service
        self._inner = account.aws.client(service)
        self.meta = self._inner.meta

    def __getattr__(self, method: str) -> Callable[..., Any]:
        call = getattr(self._inner, method)
        operation = "".join(part.capitalize() for part in method.split("_"))

        def checked(**request: Any) -> Any:
            self._account.check(self._service, operation, request)
            return call(**request)

        return checked


@pytest.fixture
def account() -> Account:
    return Account()


def produce(account: Account) -> None:
    account.allowed |= {"Produce"}
    with Producer(client=account.client("kinesis")) as producer:
        producer.put("orders", "customer-7", b"data").result(30)


def consume(account: Account, *, reshard: bool = False, **settings: Any) -> None:
    """Run a worker until it has the record (and, after a reshard, has deleted the parent's lease)."""
    account.allowed |= {"Consume", "LeaseTable"}
    received = threading.Event()

    def handle(_batch: RecordBatch) -> None:
        received.set()

    streams = settings.pop("streams", None)
    worker = Worker(
        None if streams else "orders",
        streams=streams,
        application_name="billing",
        handler=handle,
        kinesis_client=account.client("kinesis"),
        dynamodb_client=account.client("dynamodb"),
        config=ConsumerConfig(
            initial_position="TRIM_HORIZON",
            checkpoint_interval=0,
            coordination=CoordinationConfig(
                shard_sync_interval=1, lease_cleanup_interval=1, parent_shard_poll_interval=0.2
            ),
        ).with_fields(**settings),
    )
    worker.start()
    try:
        assert received.wait(30)
        if reshard:
            admin = account.aws.client("kinesis")
            admin.split_shard(
                StreamName="orders", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**127)
            )
            # A parent's lease goes once its children have been read.
            admin.put_records(
                StreamName="orders",
                Records=[
                    {"Data": b"data", "PartitionKey": "k", "ExplicitHashKey": key}
                    for key in ("0", str(2**127))
                ],
            )
            deleted = ("LeaseTable", "dynamodb:DeleteItem")
            for _ in range(300):
                if deleted in account.used:
                    break
                threading.Event().wait(0.1)
    finally:
        worker.stop(timeout=30)


def actions(account: Account, *names: str) -> set[tuple[str, str]]:
    return {(name, action) for name in names for action in as_list(account.statements[name]["Action"])}


def test_producing_needs_its_statement_and_all_of_it(account: Account) -> None:
    produce(account)
    assert account.refused == []
    assert account.used == actions(account, "Produce")


def test_producing_without_what_may_be_missing(account: Account) -> None:
    account.statements["Produce"]["Action"] = "kinesis:PutRecords"
    produce(account)
    assert account.refused


def test_consuming_needs_its_statements_and_all_of_them(account: Account) -> None:
    produce(account)
    account.allowed.clear()
    account.used.clear()
    consume(account, reshard=True)
    assert account.refused == []
    assert account.used == actions(account, "Consume", "LeaseTable")


@pytest.mark.parametrize(
    ("statement", "settings"),
    [
        ("FanOut", {"retrieval_mode": "fanout"}),
        ("SeveralStreams", {"streams": ["orders"]}),
        ("LeaseTableOptions", {"lease_table_pitr_enabled": True, "lease_table_tags": {"team": "billing"}}),
        ("KclFleet", {"worker_metrics": "separate_table"}),
    ],
)
def test_an_option_needs_its_statement_and_all_of_it(
    account: Account, statement: str, settings: dict[str, Any]
) -> None:
    produce(account)
    account.used.clear()
    account.allowed = {statement}
    admin = account.aws.client("dynamodb")
    for name, key in (("WorkerMetricStats", "wid"), ("CoordinatorState", "key")):
        admin.create_table(
            TableName=f"billing-{name}",
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    consume(account, **settings)
    assert account.refused == []
    used = {action for name, action in account.used if name == statement}
    assert {action for _, action in actions(account, statement)} - used <= UNSEEN


def test_the_spark_reader_needs_its_statement_and_all_of_it(account: Account) -> None:
    """Planning on the driver and reading on the executors, through a split."""
    world = World()
    account.aws = world.aws
    account.allowed = {"SparkRead"}
    payloads = world.put(5)
    world.client = account.client("kinesis")
    query = Query(world, {"starting_position": StartingPosition.parse("TRIM_HORIZON")})
    query.run()
    admin = world.aws.client("kinesis")
    world.client = admin
    world.split("shardId-000000000000")
    payloads += world.put(5)
    world.client = account.client("kinesis")
    query.restart()
    query.run()
    assert query.payloads == payloads
    assert account.refused == []
    assert account.used == actions(account, "SparkRead")


@pytest.mark.parametrize("missing", ["ListShards", "GetShardIterator", "GetRecords", "DescribeStreamSummary"])
def test_the_spark_reader_fails_without_any_of_its_actions(account: Account, missing: str) -> None:
    world = World()
    account.aws = world.aws
    account.allowed = {"SparkRead"}
    account.statements["SparkRead"]["Action"].remove(f"kinesis:{missing}")
    world.put(5)
    world.client = account.client("kinesis")
    with pytest.raises(AwsError, match=missing):
        Query(world, {"starting_position": StartingPosition.parse("TRIM_HORIZON")}).run()


def test_the_spark_writer_needs_what_the_producer_needs(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.allowed = {"Produce"}
    producer = Producer(client=account.client("kinesis"))
    monkeypatch.setattr(ProducerSettings, "make_producer", lambda _settings: producer)
    write = KinesisPartitionWriter("orders", partition_key="key", data="data")
    write([{"key": "customer-7", "data": b"data"}])
    # The writer flushes at once, so its record may be stored before the producer has looked up the shards in the background.
    deadline = time.monotonic() + 30
    while account.used != actions(account, "Produce") and time.monotonic() < deadline:
        time.sleep(0.01)
    producer.close(30)
    assert account.refused == []
    assert account.used == actions(account, "Produce")


def test_metrics_need_their_statement(account: Account) -> None:
    account.allowed = {"Metrics"}
    metrics = CloudWatchMetrics(account.client("cloudwatch"), upload_delay=0.1)
    metrics.add(CATALOGUE[0], Scope({"StreamName": "orders"}), 1.0)
    assert metrics.close() == 0
    assert account.refused == []
    assert account.used == actions(account, "Metrics")


def test_every_statement_is_tried_here(account: Account) -> None:
    tried = {
        "Produce", "Consume", "LeaseTable", "SparkRead", "FanOut", "SeveralStreams", "LeaseTableOptions", "KclFleet",
        "Metrics",
    }  # fmt: skip
    assert set(account.statements) - tried == {"EncryptedStreams"}
    assert {action for _, action in actions(account, "EncryptedStreams")} <= UNSEEN
