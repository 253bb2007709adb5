"""The DynamoDB sink on the fake: the contract, fleets in virtual time, and the limits of a transaction."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from kinesis_sdk.common.errors import (
    ConfigError,
    EffectRejectedError,
    SinkError,
    TransientSinkError,
)
from kinesis_sdk.consumer.sinks.dynamodb import MAX_ACTIONS, DynamoDBSink
from kinesis_sdk.consumer.sinks.sink import SinkRow
from kinesis_sdk.testing import FakeAws
from kinesis_sdk.testing.contracts.sinks import KEY, SINK_CHECKS, SinkUnderTest
from tests.consumer.sinks.effects_table import create_table, user_record, write
from tests.consumer.sinks.house import House


class Tables:
    def __init__(self, client=None):
        self.client = client or FakeAws().client("dynamodb")
        create_table(self.client, "effects", "id")
        self.calls = []

    def sink(self, **options):
        return DynamoDBSink(self.client, "positions", sleep=lambda _seconds: None, **options)

    def items(self):
        return self.client.scan(TableName="effects")["Items"]

    def effects(self):
        items = sorted(self.items(), key=lambda item: int(item["data"]["S"]))
        return [(item["shard"]["S"], item["id"]["S"], item["data"]["S"].encode()) for item in items]


def put_id(handle, effect):
    handle.put(None, TableName="effects", Item={"id": {"S": effect}})


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_contract(check):
    tables = Tables()
    check(SinkUnderTest(tables.sink(), put_id, lambda: [item["id"]["S"] for item in tables.items()]))


def test_the_rows_of_all_pages_are_listed(monkeypatch):
    """DynamoDB ends a page after 1 MB."""
    tables = Tables()
    sink = tables.sink()
    sink.ensure_ready()
    keys = [KEY._replace(lease_key=f"shardId-00000000000{number}") for number in range(3)]
    for key in keys:
        assert sink.write(key, None, SinkRow(fence=1))
    scan = tables.client.scan
    pages = []

    def scan_in_pages(**request):
        pages.append(request.get("ExclusiveStartKey"))
        assert len(pages) <= len(keys) + 1, "a page is asked for again"
        return scan(**request, Limit=1)

    monkeypatch.setattr(tables.client, "scan", scan_in_pages, raising=False)
    assert sorted(sink.lease_keys(KEY.application, KEY.stream)) == sorted(key.lease_key for key in keys)


def test_transactions_are_full_without_any_setting():
    tables = Tables()
    sent = []
    real = tables.client.transact_write_items

    def counted(**request):
        sent.append(len(request["TransactItems"]))
        return real(**request)

    tables.client.transact_write_items = counted
    house = House(sink=tables.sink())

    def handle(batch):
        for record in batch.records:
            write(batch.transaction, (batch.shard_id, record.id, record.data))

    house.fleet.put(250)
    house.fleet.add("w1", handle)
    house.fleet.run(5)
    assert sent == [100, 100, 53], "99 effects and the position, which are DynamoDB's maximum"


@pytest.fixture
def begun():
    tables = Tables()
    create_table(tables.client, "pairs", "a", "b")
    sink = tables.sink()
    sink.ensure_ready()
    assert sink.write(KEY, None, SinkRow(fence=1))
    transaction = sink.begin(KEY, SinkRow(fence=1))
    transaction.tables = tables
    return transaction


def test_too_many_effects_name_the_record(begun):
    for number in range(MAX_ACTIONS):
        begun.handle.put(user_record(number), TableName="effects", Item={"id": {"S": f"{number}"}})
    with pytest.raises(EffectRejectedError, match=r"record 99/3: .* 100 .* 99"):
        begun.handle.put(user_record(99), TableName="effects", Item={"id": {"S": "99"}})
    assert begun.commit(SinkRow(fence=1))
    assert len(begun.tables.items()) == MAX_ACTIONS, "DynamoDB accepts what is not refused"


def test_too_many_bytes_name_the_record(begun):
    body = {"S": "x" * 399_000}
    for number in range(10):
        begun.handle.put(
            user_record(number), TableName="effects", Item={"id": {"S": f"{number}"}, "body": body}
        )
    with pytest.raises(EffectRejectedError, match=r"record 10/3: .* 399\d+ bytes"):
        begun.handle.put(user_record(10), TableName="effects", Item={"id": {"S": "10"}, "body": body})
    with pytest.raises(EffectRejectedError, match=r"record 11/3: .* 409600"):
        begun.handle.put(
            user_record(11), TableName="effects", Item={"id": {"S": "11"}, "body": {"B": b"x" * 409_600}}
        )


def test_two_effects_on_one_item_name_both_records(begun):
    begun.handle.put(user_record(1), TableName="effects", Item={"id": {"S": "x"}, "data": {"S": "1"}})
    begun.handle.put(user_record(2), TableName="pairs", Item={"a": {"S": "x"}, "b": {"S": "1"}})
    begun.handle.put(user_record(3), TableName="pairs", Item={"a": {"S": "x"}, "b": {"S": "2"}})
    for method in ("delete", "check", "update"):
        with pytest.raises(EffectRejectedError, match=r"record 4/3: .*record 1/3"):
            getattr(begun.handle, method)(user_record(4), TableName="effects", Key={"id": {"S": "x"}})
    with pytest.raises(EffectRejectedError, match=r"record 5/3: .*record 3/3"):
        begun.handle.put(user_record(5), TableName="pairs", Item={"b": {"S": "2"}, "a": {"S": "x"}})
    assert begun.commit(SinkRow(fence=1))


def test_a_table_of_another_region_names_the_record(begun):
    with pytest.raises(EffectRejectedError, match=r"record 1/3: .*eu-west-9"):
        begun.handle.put(
            user_record(1),
            TableName="arn:aws:dynamodb:eu-west-9:123456789012:table/other",
            Item={"id": {"S": "x"}},
        )


def test_an_incomplete_effect_names_the_record(begun):
    with pytest.raises(EffectRejectedError, match=r"record 1/3: .*TableName"):
        begun.handle.update(user_record(1), TableName="effects")


def test_a_condition_of_the_handler_names_the_record_and_stores_nothing(begun):
    begun.tables.client.put_item(TableName="effects", Item={"id": {"S": "2"}})
    for number in (1, 2):
        begun.handle.put(
            user_record(number),
            TableName="effects",
            Item={"id": {"S": f"{number}"}},
            ConditionExpression="attribute_not_exists(id)",
        )
    with pytest.raises(EffectRejectedError, match="record 2/3"):
        begun.commit(SinkRow(fence=1))
    assert len(begun.tables.items()) == 1


def cancelled(*codes):
    return ClientError(
        {
            "Error": {"Code": "TransactionCanceledException", "Message": "cancelled"},
            "CancellationReasons": [{"Code": code, "Message": code.lower()} for code in codes],
        },
        "TransactWriteItems",
    )


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (cancelled("None", "TransactionConflict"), TransientSinkError, "record 1/3"),
        (cancelled("TransactionConflict", "None"), TransientSinkError, "the position"),
        (cancelled("None", "ThrottlingError"), TransientSinkError, "throttlingerror"),
        (cancelled("TransactionConflict", "ValidationError"), EffectRejectedError, "record 1/3"),
        (cancelled("None", "ItemCollectionSizeLimitExceeded"), EffectRejectedError, "record 1/3"),
        (ReadTimeoutError(endpoint_url="http://db"), TransientSinkError, "may have taken effect"),
        (
            ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "TransactWriteItems"),
            SinkError,
            "AccessDenied",
        ),
    ],
)
def test_errors_of_a_transaction(begun, monkeypatch, error, kind, text):
    def fail(**_request):
        raise error

    begun.handle.put(user_record(1), TableName="effects", Item={"id": {"S": "1"}})
    monkeypatch.setattr(begun.tables.client, "transact_write_items", fail, raising=False)
    with pytest.raises(kind, match=text) as caught:
        begun.commit(SinkRow(fence=1))
    assert type(caught.value) is kind


def test_a_table_with_another_key_is_refused():
    tables = Tables()
    with pytest.raises(ConfigError, match="table_name"):
        DynamoDBSink(tables.client, "effects", sleep=lambda _seconds: None).ensure_ready()
    with pytest.raises(ConfigError, match="max_records"):
        tables.sink(max_records=100)
