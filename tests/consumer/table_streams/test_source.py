from __future__ import annotations

from typing import Any

import pytest

from kinesis_sdk.common.errors import ConfigError, ConsumerError, ProtocolError, ResourceNotFoundError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import (
    ConsumerConfig,
    DynamoDbStream,
    InMemoryLeaseStore,
    RecordBatch,
    RetrievalConfig,
    Worker,
)
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.consumer.fleet.tables import KEYS, TYPES

ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000"


def with_table(**more: Any) -> FakeAws:
    aws = FakeAws(clock=VirtualClock())
    aws.client("dynamodb").create_table(
        TableName="orders", KeySchema=KEYS, AttributeDefinitions=TYPES, BillingMode="PAY_PER_REQUEST", **more
    )
    return aws


ENABLED = {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}}


def test_an_arn_needs_no_call() -> None:
    stream = DynamoDbStream(ARN).resolve(None)
    assert stream == StreamId("orders", ARN)
    assert stream.is_of_table
    assert (stream.region, stream.account_id) == ("eu-west-1", "123456789012")
    assert DynamoDbStream(ARN).region == "eu-west-1"
    assert DynamoDbStream("orders").region is None
    assert not StreamId("orders", "arn:aws:kinesis:eu-west-1:123456789012:stream/orders").is_of_table
    assert not StreamId("orders").is_of_table


@pytest.mark.parametrize(
    "table",
    ["", "ab", "a b", "x" * 256, None, 5, "arn:aws:kinesis:eu-west-1:123456789012:stream/orders", ARN + "/x"],
)
def test_what_is_neither_a_table_nor_a_stream_is_rejected(table: Any) -> None:
    with pytest.raises(ConfigError, match="table="):
        DynamoDbStream(table)


def test_a_name_means_the_newest_stream_of_the_table() -> None:
    aws = with_table(**ENABLED)
    streams, dynamodb = aws.client("dynamodbstreams"), aws.client("dynamodb")
    first = DynamoDbStream("orders").resolve(streams)
    dynamodb.update_table(TableName="orders", StreamSpecification={"StreamEnabled": False})
    assert DynamoDbStream("orders").resolve(streams) == first, "what is left of it can be read"
    aws.clock.advance(60)  # type: ignore[attr-defined]
    dynamodb.update_table(TableName="orders", **ENABLED)
    second = DynamoDbStream("orders").resolve(streams)
    assert second != first
    assert second.arn == dynamodb.describe_table(TableName="orders")["Table"]["LatestStreamArn"]


def test_a_table_without_a_stream_is_named() -> None:
    aws = with_table()
    for table in ("orders", "nothing"):
        with pytest.raises(ResourceNotFoundError, match=f"table {table} "):
            DynamoDbStream(table).resolve(aws.client("dynamodbstreams"))


def test_a_damaged_list_is_an_error() -> None:
    class Damaged:
        def __init__(self, response: Any) -> None:
            self.list_streams = lambda **_: response

    with pytest.raises(ProtocolError, match="Streams"):
        DynamoDbStream("orders").resolve(Damaged({}), lambda _: None)
    with pytest.raises(ProtocolError, match="ARN"):
        DynamoDbStream("orders").resolve(Damaged({"Streams": [{"StreamLabel": "1", "StreamArn": "x"}]}))


def worker(**more: Any) -> Worker:
    return Worker(DynamoDbStream("orders"), application_name="copy", handler=lambda batch: None, **more)


class Decoder:
    def deserialize(self, stream: str, data: bytes, /) -> Any:
        return stream, data


def test_enhanced_fan_out_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="enhanced fan-out"):
        worker(config=ConsumerConfig(retrieval=RetrievalConfig(retrieval_mode="fanout")))
    with pytest.raises(ConfigError, match="ChangeRecord"):
        worker(config=ConsumerConfig(deserializer=Decoder()))


def test_several_tables_are_refused() -> None:
    with pytest.raises(ConfigError, match="streams"):
        Worker(streams=[DynamoDbStream("orders")], application_name="copy", handler=lambda batch: None)  # type: ignore[list-item]


def test_a_table_without_stream_ends_the_start() -> None:
    aws = with_table()
    with pytest.raises(ResourceNotFoundError, match="no stream"):
        worker(
            dynamodbstreams_client=aws.client("dynamodbstreams"),
            lease_store=InMemoryLeaseStore(),
            clock=VirtualClock(),
        ).start()


def test_changes_are_of_tables_only() -> None:
    kinesis: Any = RecordBatch(records=[], shard_id="s", stream=StreamId("orders"), checkpointer=None)  # type: ignore[arg-type]
    with pytest.raises(ConsumerError, match=r"use batch\.records"):
        _ = kinesis.changes
    records: list[Any] = [object()]
    table: Any = RecordBatch(records=records, shard_id="s", stream=StreamId("orders", ARN), checkpointer=None)  # type: ignore[arg-type]
    assert table.changes is records
