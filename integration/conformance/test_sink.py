"""The DynamoDB sink on Amazon's DynamoDB Local, alone and behind LocalStack: the contract, the limits, and what answers really look like."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config

from integration.localstack.dynamodb_local import dynamodb_local
from integration.localstack.install import CannotInstallError
from kinesis_sdk.common.errors import EffectRejectedError, TransientSinkError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.sinks.dynamodb import MAX_ACTIONS, MAX_BYTES, DynamoDBSink
from kinesis_sdk.consumer.sinks.sink import SinkRow
from kinesis_sdk.testing.contracts.sinks import KEY, SINK_CHECKS, SinkUnderTest
from tests import HANG
from tests.consumer.sinks.books import Books, Unreliable
from tests.consumer.sinks.effects_table import create_table, user_record, write


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with dynamodb_local(tmp_path_factory.mktemp("dynamodb") / "dynamodb-local.log") as endpoint:
            yield endpoint
    except CannotInstallError as error:
        pytest.skip(f"no DynamoDB Local here: {error}")


@pytest.fixture(params=["local", "localstack"])
def client(request: Any) -> Any:
    config = Config(retries={"total_max_attempts": 1}, max_pool_connections=20)
    return boto3.client("dynamodb", endpoint_url=request.getfixturevalue(request.param), config=config)


class Tables:
    """Tables of one test; only their names are new, because both services live longer."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.positions, self.table = f"positions-{uuid4().hex}", f"effects-{uuid4().hex}"
        create_table(client, self.table, "id")

    def sink(self, **options: Any) -> DynamoDBSink:
        return DynamoDBSink(self.client, self.positions, **options)

    def put(self, handle: Any, effect: str, **more: Any) -> None:
        handle.put(None, TableName=self.table, Item={"id": {"S": effect}, **more})

    def items(self) -> list[Any]:
        pages = self.client.get_paginator("scan").paginate(TableName=self.table)
        return [item for page in pages for item in page["Items"]]

    def effects(self) -> list[str]:
        return [item["id"]["S"] for item in self.items()]


@pytest.fixture
def tables(client: Any) -> Iterator[Tables]:
    tables = Tables(client)
    yield tables
    for name in (tables.table, tables.positions):
        if name in [
            found for page in client.get_paginator("list_tables").paginate() for found in page["TableNames"]
        ]:
            client.delete_table(TableName=name)


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Any, tables: Tables) -> None:
    check(SinkUnderTest(tables.sink(), tables.put, tables.effects))


def begun(tables: Tables) -> tuple[DynamoDBSink, Any]:
    sink = tables.sink()
    sink.ensure_ready()
    assert sink.write(KEY, None, SinkRow(fence=1))
    return sink, sink.begin(KEY, SinkRow(fence=1))


AFTER = SinkRow(ExtendedSequenceNumber("7"), 1)


def test_a_transaction_with_all_its_actions_is_accepted(tables: Tables) -> None:
    _, transaction = begun(tables)
    for number in range(MAX_ACTIONS):
        tables.put(transaction.handle, f"{number}")
    with pytest.raises(EffectRejectedError, match=rf"record 3/3: its effect is number {MAX_ACTIONS + 1}"):
        transaction.handle.put(user_record(3), TableName=tables.table, Item={"id": {"S": "too many"}})
    assert transaction.commit(AFTER)
    assert len(tables.effects()) == MAX_ACTIONS


def test_a_transaction_that_just_fits_is_accepted_and_the_next_item_is_not(tables: Tables) -> None:
    """The sizes that are counted here are never below DynamoDB's: what passes the check passes DynamoDB."""
    _, transaction = begun(tables)
    size = 380_000
    count = MAX_BYTES // (size + 100)
    for number in range(count):
        tables.put(transaction.handle, f"{number}", data={"B": b"x" * size})
    with pytest.raises(
        EffectRejectedError, match=r"record 3/3: with its effect of .* bytes the transaction has"
    ):
        transaction.handle.put(
            user_record(3), TableName=tables.table, Item={"id": {"S": "large"}, "data": {"B": b"x" * size}}
        )
    assert transaction.commit(AFTER)
    assert len(tables.effects()) == count


def test_a_condition_that_fails_names_the_record(tables: Tables) -> None:
    sink, transaction = begun(tables)
    tables.client.put_item(TableName=tables.table, Item={"id": {"S": "there"}})
    tables.put(transaction.handle, "other")
    transaction.handle.put(
        user_record(3),
        TableName=tables.table,
        Item={"id": {"S": "there"}},
        ConditionExpression="attribute_not_exists(id)",
    )
    with pytest.raises(EffectRejectedError, match=r"record 3/3: ConditionalCheckFailed"):
        transaction.commit(AFTER)
    assert sink.read(KEY) == SinkRow(fence=1)
    assert tables.effects() == ["there"]


def test_transactions_of_several_shards_on_one_item(tables: Tables) -> None:
    """DynamoDB cancels all but one of several at once; each is repeated as a worker repeats it, and none counts twice."""
    sink = tables.sink()
    sink.ensure_ready()
    errors: list[BaseException] = []

    def work(shard: int) -> None:
        key = KEY._replace(lease_key=f"shardId-{shard:012}")
        row = SinkRow(fence=1)
        assert sink.write(key, None, row)
        for number in range(5):
            following = SinkRow(ExtendedSequenceNumber(str(number)), 1)
            while True:
                transaction = sink.begin(key, row)
                transaction.handle.update(
                    None,
                    TableName=tables.table,
                    Key={"id": {"S": "total"}},
                    UpdateExpression="ADD amount :one",
                    ExpressionAttributeValues={":one": {"N": "1"}},
                )
                try:
                    assert transaction.commit(following)
                except TransientSinkError:
                    continue
                break
            row = following

    def run(shard: int) -> None:
        try:
            work(shard)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(shard,)) for shard in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
    assert errors == []
    (item,) = tables.items()
    assert item["amount"]["N"] == "20"


def test_a_fleet_that_crashes_and_freezes(tables: Tables) -> None:
    sink = tables.sink(max_records=20)

    def effect(transaction: Any, what: Any) -> None:
        write(transaction, what, table=tables.table)

    unreliable = Unreliable(sink, Random(1), error=lambda: TransientSinkError("the answer is lost"))
    books = Books(1, sink=unreliable, write=effect).play(turns=8, splits=(3,), merges=(6,))
    items = sorted(tables.items(), key=lambda item: int(item["data"]["S"]))
    books.check([(item["shard"]["S"], item["id"]["S"], item["data"]["S"].encode()) for item in items])
