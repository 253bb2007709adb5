"""The policies of docs/iam against the calls that are made: nothing else is called, and nothing in them is without need.

The clients refuse what the policy does not allow, so that a missing action shows as it would with AWS.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from integration.waiting import eventually
from kinesis_sdk import ConsumerConfig, CoordinationConfig, Producer, RecordBatch, Worker
from kinesis_sdk.admin import Connection
from kinesis_sdk.common.errors import AwsError, SinkError
from kinesis_sdk.common.once.table import REPEAT
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import DynamoDBLeaseStore
from kinesis_sdk.consumer.sinks.dynamodb import DynamoDBEffects, DynamoDBSink
from kinesis_sdk.consumer.sinks.objects import ObjectContent, ObjectSink, S3Store
from kinesis_sdk.consumer.sinks.sink import SinkKey, SinkRow
from kinesis_sdk.lambda_events import kinesis_handler
from kinesis_sdk.metrics import CATALOGUE, CloudWatchMetrics, Scope
from kinesis_sdk.spark import KinesisPartitionWriter, ProducerSettings
from kinesis_sdk.spark.positions import StartingPosition
from kinesis_sdk.testing import FakeAws
from tests import HANG
from tests.admin.changes.operators import SteeredFleet
from tests.cli.invoking import invoke
from tests.cli.operators import steer_fleet
from tests.consumer.sinks.bucket import Bucket
from tests.consumer.sinks.house import House
from tests.lambda_events import repetitions
from tests.readme import DOCS
from tests.spark.support import Query, World

UNSEEN = {"dynamodb:TagResource", "kinesis:AddTagsToStream", "kms:GenerateDataKey", "kms:Decrypt"}
"""Not calls of ours: AWS asks for them when CreateTable or CreateStream has tags, and when a stream is encrypted."""


IAM = DOCS / "iam"
"""A policy for each role, and the options of producers and consumers."""

COMMANDS = {
    "operator-read-only": (
        "apps",
        "lag billing",
        "leases list billing",
        "leases show billing",
        "leases explain billing 0",
        "leases export billing -o {folder}/billing.jsonl",
        "balance billing",
        "worker list billing",
        "stream list",
        "stream describe orders --load",
        "stream consumers orders",
        "tail orders --from TRIM_HORIZON --until now --limit 1",
    ),
    "operator-steering": (
        "leases export billing -o {folder}/billing.jsonl",
        "leases rewind billing --to TRIM_HORIZON --yes",
        "leases skip-to billing --to LATEST --shard 0 --yes",
        "leases release billing --shard 0 --yes",
        "leases move billing --shard 0 --to b --yes",
        "leases pin billing --shard 0 --to b --yes",
        "leases unpin billing --shard 0 --yes",
        "worker drain billing b --yes",
        "worker undrain billing b --yes",
        "leases import billing {folder}/billing.jsonl --timeout 0s --yes",
    ),
    "operator-streams": (
        "stream retention orders 48 --yes",
        "stream retention orders 24 --yes",
        "stream split orders 1 --yes",
        "stream merge orders 2 3 --yes",
        "stream scale orders 4 --yes",
        "stream consumers orders --register billing",
        "stream consumers orders --deregister billing --yes",
        "leases delete-row billing --row 1 --yes",
        "leases delete-app billing --yes",
        "stream delete orders --yes",
        "stream create orders --shards 1 --tag team=billing",
    ),
}
"""Commands of the operators' roles, in an order in which each has something to do."""


def as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def policy(role: str) -> dict[str, Any]:
    """The statements of a policy, by name."""
    document = json.loads((IAM / f"{role}.json").read_text(encoding="utf-8"))
    return {statement["Sid"]: statement for statement in document["Statement"]}


class Account:
    """A fake account whose clients may do what some statements of the page's policy allow."""

    def __init__(self) -> None:
        self.aws = FakeAws(region="eu-west-1", account_id="123456789012")
        self.statements: dict[str, Any] = {}
        for path in IAM.iterdir():
            for name, statement in policy(path.stem).items():
                assert self.statements.setdefault(name, statement) == statement, f"{path.name}: {name}"
        self.allowed: set[str] = set()
        self.used: set[tuple[str, str]] = set()
        self.refused: list[str] = []
        admin = self.aws.client("kinesis")
        admin.create_stream(StreamName="orders", ShardCount=1)
        self.stream_arn = admin.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"][
            "StreamARN"
        ]

    def check(self, service: str, operation: str, request: dict[str, Any]) -> None:
        for action, resource in self._needed(service, operation, request):
            if not self.allows(action, resource):
                self.refused.append(f"{action} on {resource}")
                code = "AccessDenied" if service == "s3" else "AccessDeniedException"
                error: Any = {"Error": {"Code": code, "Message": f"no {action} on {resource}"}}
                raise ClientError(error, operation)

    def allows(self, action: str, resource: str | None) -> bool:
        """Return whether an allowed statement has an action for a resource, and note that it was used."""
        for name in self.allowed:
            statement = self.statements[name]
            if action in as_list(statement["Action"]) and any(
                resource is None or fnmatch.fnmatchcase(resource, pattern)
                for pattern in as_list(statement["Resource"])
            ):
                self.used.add((name, action))
                return True
        return False

    def _needed(
        self, service: str, operation: str, request: dict[str, Any]
    ) -> Iterator[tuple[str, str | None]]:
        """The actions that AWS asks for, each with its resource. A few calls need others than that of their own name."""
        if operation == "TransactWriteItems":
            for item in request["TransactItems"]:
                ((kind, effect),) = item.items()
                action = "ConditionCheckItem" if kind == "ConditionCheck" else f"{kind}Item"
                yield f"dynamodb:{action}", self._resource(service, action, effect)
        elif service == "s3":
            bucket = f"arn:aws:s3:::{request['Bucket']}"
            if operation == "ListObjectsV2":
                yield "s3:ListBucket", bucket
            elif operation == "CopyObject":
                source = request["CopySource"]
                yield "s3:GetObject", f"arn:aws:s3:::{source['Bucket']}/{source['Key']}"
                yield "s3:PutObject", f"{bucket}/{request['Key']}"
            else:
                yield f"s3:{operation}", f"{bucket}/{request['Key']}"
        else:
            yield f"{service}:{operation}", self._resource(service, operation, request)

    def _resource(self, service: str, operation: str, request: dict[str, Any]) -> str | None:
        if service == "dynamodb":
            if "TableName" not in request:
                return "*"  # ListTables
            return f"arn:aws:dynamodb:{self.aws.region}:123456789012:table/{request['TableName']}"
        if service == "cloudwatch":
            return "*"
        named = request.get("ConsumerARN") or request.get("StreamARN")
        if named is None and "StreamName" in request:
            named = self.stream_arn.rpartition("/")[0] + "/" + request["StreamName"]
        if operation == "ListStreams":
            return "*"
        return named  # a page token or an iterator names its stream to AWS

    def client(self, service: str) -> Any:
        return Guarded(self, service, self.aws.client(service))


class Guarded:
    """A client that asks the account first."""

    def __init__(self, account: Account, service: str, inner: Any) -> None:
        self._account, self._service, self._inner = account, service, inner
        self.meta = getattr(inner, "meta", None)

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
        producer.put("orders", "customer-7", b"data").result(HANG)


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
        assert received.wait(HANG)
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
            eventually(lambda: deleted in account.used, account.refused)
    finally:
        worker.stop(timeout=HANG)


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
    eventually(lambda: account.used == actions(account, "Produce"))
    producer.close(30)
    assert account.refused == []


def test_metrics_need_their_statement(account: Account) -> None:
    account.allowed = {"Metrics"}
    metrics = CloudWatchMetrics(account.client("cloudwatch"), upload_delay=0.1)
    metrics.add(CATALOGUE[0], Scope({"StreamName": "orders"}), 1.0)
    assert metrics.close(HANG) == 0
    assert account.refused == []
    assert account.used == actions(account, "Metrics")


@pytest.mark.parametrize("role", COMMANDS)
def test_an_operator_needs_the_policy_and_all_of_it(
    role: str, account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two live workers in virtual time, and every command of the role at its command line."""
    fleet = SteeredFleet(tmp_path, shards=2)
    account.aws = fleet.aws
    account.stream_arn = account.stream_arn.replace("eu-west-1", "us-east-1")
    account.statements = json.loads(json.dumps(account.statements).replace("eu-west-1", "us-east-1"))
    fleet.store = DynamoDBLeaseStore(
        fleet.dynamodb, "billing", sleep=fleet.clock.advance, monotonic=fleet.clock.monotonic
    )
    fleet.store.ensure_ready()
    for name in ("a", "b"):
        fleet.add(name, fleet.checkpointer(name, "each batch"))
    fleet.load(30)
    connection = Connection(
        region="us-east-1", clients={service: account.client(service) for service in ("kinesis", "dynamodb")}
    )
    steer_fleet(monkeypatch, fleet, connection, tmp_path)
    account.allowed = set(policy(role))
    for command in COMMANDS[role]:
        if command.startswith(("leases delete", "leases import")) and fleet.engines:
            for name in ("a", "b"):
                fleet.stop(name)
            fleet.run(60)
        if command.startswith("leases import"):
            # A row that it has to put back. A running leader would be faster.
            fleet.store.delete("shardId-000000000001")
        invoke(*command.format(folder=tmp_path).split())
        if fleet.engines:
            fleet.load(5)
    assert account.refused == []
    needed = actions(account, *account.allowed)
    if role != "operator-read-only":  # what the others have of this role is tried with it
        needed = actions(account, *account.allowed - set(policy("operator-read-only")))
    assert {action for _, action in needed - account.used} <= UNSEEN


def test_a_role_has_the_statements_that_its_tests_try() -> None:
    """So that the tests above, which name statements, are tests of the files."""
    assert {path.stem: list(policy(path.stem)) for path in IAM.iterdir()} == {
        "producer": ["Produce"],
        "consumer": ["Consume", "LeaseTable"],
        "consumer-fan-out": ["Consume", "LeaseTable", "FanOut"],
        "spark-reader": ["SparkRead"],
        "spark-writer": ["Produce"],
        "operator-read-only": ["OperatorRead", "OperatorReadTable", "OperatorFind"],
        "operator-steering": ["OperatorRead", "OperatorReadTable", "OperatorFind", "OperatorSteer"],
        "operator-streams": [
            "OperatorRead", "OperatorReadTable", "OperatorFind", "OperatorStreams", "OperatorConsumers",
            "OperatorDeleteStream", "OperatorDeleteTables",
        ],
        "sink-dynamodb": ["SinkPositions", "SinkEffects"],
        "sink-s3": ["SinkObjects", "SinkBucket"],
        "lambda": ["LambdaRead", "LambdaLogs"],
        "options": ["SeveralStreams", "LeaseTableOptions", "KclFleet", "Metrics", "EncryptedStreams"],
    }  # fmt: skip


class PaymentsFleet:
    """Workers in virtual time, whose sink in DynamoDB may do what the policy allows, with effects of each kind."""

    def __init__(self, account: Account) -> None:
        self.admin = account.aws.client("dynamodb")
        self.admin.create_table(
            TableName="payments",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        self.admin.put_item(TableName="payments", Item={"id": {"S": "open"}})
        self.sink = DynamoDBSink(account.client("dynamodb"), "billing-positions", sleep=lambda _seconds: None)

    @staticmethod
    def effects(transaction: DynamoDBEffects, name: str) -> None:
        """Put one item, update one, delete one, and demand one."""
        put, total, old = ({"id": {"S": f"{name}-{kind}"}} for kind in ("put", "total", "old"))
        transaction.put(None, TableName="payments", Item=put)
        transaction.update(
            None,
            TableName="payments",
            Key=total,
            UpdateExpression="ADD amount :one",
            ExpressionAttributeValues={":one": {"N": "1"}},
        )
        transaction.delete(None, TableName="payments", Key=old)
        transaction.check(
            None,
            TableName="payments",
            Key={"id": {"S": "open"}},
            ConditionExpression="attribute_exists(id)",
        )

    def ids(self) -> set[str]:
        return {item["id"]["S"] for item in self.admin.scan(TableName="payments")["Items"]}


def through_a_split(sink: Any, handler: Callable[[RecordBatch], None]) -> House:
    """Consume until the row of a parent shard has been deleted: a day after the split, when its records have expired."""
    rarely = {"idle_time_between_reads": 600.0, "failover_time": 300.0, "lease_scan_interval": 60.0}
    house = House(config=ConsumerConfig(initial_position="TRIM_HORIZON").with_fields(**rarely), sink=sink)
    house.add("a", handler)
    house.put_and_run(2, 1200)
    house.fleet.split()
    house.put_and_run(4, 2 * 3600)
    house.fleet.run(28 * 3600)
    return house


def use(sink: Any, write: Callable[[Any], None]) -> None:
    """What a worker does with a sink: the start, a claim, a batch, the next claim, the end of the shard, and the clean-up."""
    key = SinkKey("billing", "orders", "shardId-000000000000")
    sink.ensure_ready()
    assert sink.read(key) is None
    claimed, ended = SinkRow(fence=1), SinkRow(ExtendedSequenceNumber("7"), fence=1, ended=True)
    assert sink.write(key, None, claimed)
    transaction = sink.begin(key, claimed)
    write(transaction.handle)
    assert transaction.commit(ended)
    assert sink.lease_keys("billing", "orders") == [key.lease_key]
    assert sink.delete_ended(key)


def test_a_sink_in_dynamodb_needs_its_policy_and_all_of_it(account: Account) -> None:
    account.allowed = set(policy("sink-dynamodb"))
    payments = PaymentsFleet(account)

    def handle(batch: RecordBatch) -> None:
        payments.effects(batch.transaction, batch.records[0].sequence_number)

    house = through_a_split(payments.sink, handle)
    assert account.refused == []
    assert account.used == actions(account, *account.allowed)
    assert len(payments.ids()) > 1
    assert "shardId-000000000000" not in payments.sink.lease_keys("totals", "stream")
    assert house.errors("a") == [None, None]


@pytest.mark.parametrize(
    ("statement", "action"),
    [
        (name, action)
        for name, statement in policy("sink-dynamodb").items()
        for action in as_list(statement["Action"])
    ],
)
def test_a_sink_in_dynamodb_fails_without_any_of_its_actions(
    account: Account, statement: str, action: str
) -> None:
    account.allowed = set(policy("sink-dynamodb"))
    account.statements[statement]["Action"].remove(action)
    payments = PaymentsFleet(account)
    with pytest.raises(SinkError, match=f"no {action} on"):
        use(payments.sink, lambda transaction: payments.effects(transaction, "1"))
    assert account.refused


class GuardedBucket(Bucket):
    """The bucket of the sink's own tests, with what S3 documents: a missing object is refused to those who may not list."""

    def __init__(self, account: Account) -> None:
        super().__init__()
        self._account = account

    def get_object(self, **request: Any) -> Any:
        bucket = f"arn:aws:s3:::{request['Bucket']}"
        if request["Key"] not in self.objects and not self._account.allows("s3:ListBucket", bucket):
            self._account.refused.append(f"s3:ListBucket on {bucket}")
            error: Any = {"Error": {"Code": "AccessDenied", "Message": f"no s3:ListBucket on {bucket}"}}
            raise ClientError(error, "GetObject")
        return super().get_object(**request)


def object_sink(account: Account) -> tuple[ObjectSink, dict[str, bytes]]:
    bucket = GuardedBucket(account)
    client: Any = Guarded(account, "s3", bucket)
    return ObjectSink(S3Store(client, "example-bucket", prefix="orders/")), bucket.objects


def write_line(transaction: ObjectContent) -> None:
    transaction.write(UserRecord(b"", "k", "7", None, None, 0), b"line")


def test_a_sink_in_s3_needs_its_policy_and_all_of_it(account: Account) -> None:
    account.allowed = set(policy("sink-s3"))
    sink, objects = object_sink(account)

    def handle(batch: RecordBatch) -> None:
        for record in batch.records:
            batch.transaction.write(record, record.data)

    house = through_a_split(sink, handle)
    assert account.refused == []
    assert account.used == actions(account, *account.allowed)
    written = [content for name, content in objects.items() if not name.startswith(("orders/_",))]
    assert sorted(b"".join(written)) == sorted(b"".join(house.fleet.sent))
    assert "shardId-000000000000" not in sink.lease_keys("totals", "stream")


@pytest.mark.parametrize(
    ("statement", "action"),
    [
        ("SinkObjects", "s3:GetObject"),
        ("SinkObjects", "s3:PutObject"),
        ("SinkObjects", "s3:DeleteObject"),
        ("SinkBucket", "s3:ListBucket"),
    ],
)
def test_a_sink_in_s3_fails_without_any_of_its_actions(account: Account, statement: str, action: str) -> None:
    account.allowed = set(policy("sink-s3"))
    account.statements[statement]["Action"] = [
        other for other in as_list(account.statements[statement]["Action"]) if other != action
    ]
    sink, _ = object_sink(account)
    with pytest.raises(SinkError, match=f"no {action} on"):
        use(sink, write_line)


LOOK_UP = ("kinesis:GetShardIterator", "kinesis:GetRecords", "kinesis:ListShards")
"""What `look_up` of a Lambda function calls."""


def look_up(account: Account) -> list[int]:
    """Handle two events that have later copies of records before them: one in the shard, one in its parent."""
    world = repetitions.World()
    account.aws = world.aws
    account.statements = json.loads(json.dumps(account.statements).replace("eu-west-1", "us-east-1"))
    account.stream_arn = world.client.describe_stream_summary(StreamName="orders")[
        "StreamDescriptionSummary"
    ]["StreamARN"]
    account.allowed = {"LambdaRead"}
    world.put(1, keys=[repetitions.LEFT])
    world.put(1, flags=REPEAT, keys=[repetitions.LEFT])
    events = [world.event(1)]
    world.client.split_shard(
        StreamName="orders", ShardToSplit=repetitions.SHARD, NewStartingHashKey=str(2**127)
    )
    world.clock.advance(5)
    world.put(1, flags=REPEAT, keys=[repetitions.LEFT], made_for=repetitions.CHILD)
    events.append(world.event(shard_id=repetitions.CHILD))
    seen: list[int] = []
    handler = kinesis_handler(lambda record: seen.append(int(record.data)), look_up=account.client("kinesis"))
    for event in events:
        handler(event, None)
    return seen


def test_a_lambda_function_that_looks_up_needs_no_more_than_its_policy(account: Account) -> None:
    assert look_up(account) == []
    assert account.refused == []
    assert {action for _, action in account.used} == set(LOOK_UP)


@pytest.mark.parametrize("missing", LOOK_UP)
def test_a_lambda_function_delivers_again_what_it_may_not_look_up(account: Account, missing: str) -> None:
    account.statements["LambdaRead"]["Action"].remove(missing)
    assert set(look_up(account)) == {1}
    assert {refused.split()[0] for refused in account.refused} == {missing}


def test_a_lambda_function_makes_no_call(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lambda reads with the function's role; AWS documents these actions. The function itself needs none of them."""
    produce(account)
    cursor = account.aws.client("kinesis").get_shard_iterator(
        StreamName="orders", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
    )
    (record,) = account.aws.client("kinesis").get_records(ShardIterator=cursor["ShardIterator"])["Records"]
    seen = []

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a client was made")

    monkeypatch.setattr(boto3, "client", refuse)
    monkeypatch.setattr(boto3.Session, "client", refuse)
    handler = kinesis_handler(lambda record: seen.append(record.data))
    stored = {
        "partitionKey": record["PartitionKey"],
        "sequenceNumber": record["SequenceNumber"],
        "data": base64.b64encode(record["Data"]).decode(),
        "approximateArrivalTimestamp": record["ApproximateArrivalTimestamp"].timestamp(),
    }
    event = {
        "kinesis": stored,
        "eventSource": "aws:kinesis",
        "eventSourceARN": account.stream_arn,
        "eventID": f"shardId-000000000000:{record['SequenceNumber']}",
    }
    handler({"Records": [event]}, None)
    assert seen == [b"data"]


def test_every_statement_is_tried_here(account: Account) -> None:
    tried = {
        "Produce", "Consume", "LeaseTable", "SparkRead", "FanOut", "SeveralStreams", "LeaseTableOptions", "KclFleet",
        "Metrics", "OperatorRead", "OperatorReadTable", "OperatorFind", "OperatorSteer", "OperatorStreams",
        "OperatorConsumers", "OperatorDeleteStream", "OperatorDeleteTables", "SinkPositions", "SinkEffects", "SinkObjects",
        "SinkBucket", "LambdaRead",
    }  # fmt: skip
    assert set(account.statements) - tried == {"EncryptedStreams", "LambdaLogs"}
    assert {action for _, action in actions(account, "EncryptedStreams")} <= UNSEEN


def test_the_page_names_the_actions_that_are_not_tried(account: Account) -> None:
    page = (DOCS / "permissions.md").read_text(encoding="utf-8")
    section = page.split("## What is not tried")[1].split("\n## ")[0]
    lambdas = {"kinesis:DescribeStream", "kinesis:DescribeStreamSummary", "kinesis:SubscribeToShard"}
    for action in UNSEEN | lambdas | {action for _, action in actions(account, "LambdaLogs")}:
        assert f"`{action}`" in section
