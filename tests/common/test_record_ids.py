"""The identity of a record: the same for every reader, and free of charge."""

from __future__ import annotations

import base64
import pickle
import sqlite3
import sys

import pytest

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.errors import ConsumerError
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.record_ids import located_record_type, record_id
from kinesis_sdk.common.records import KinesisRecord, UserRecord
from kinesis_sdk.common.serialization import decoding_record_type
from kinesis_sdk.lambda_events import KinesisEvent
from kinesis_sdk.spark import RECORD_ID

SHARD = "shardId-000000000000"


def aggregate(number: int, count: int) -> KinesisRecord:
    aggregate = Aggregate(1 << 20, 1000)
    for index in range(count):
        assert aggregate.try_append(f"k{index}", None, b"%d" % index, hash_partition_key(f"k{index}"))
    return KinesisRecord(aggregate.encode(), "a", str(number))


def test_it_names_stream_shard_and_position() -> None:
    records = deaggregate([aggregate(49, 3), KinesisRecord(b"x", "k", "50")])
    located = records.of_type(located_record_type(UserRecord, "orders", SHARD))
    assert [record.id for record in located] == [
        f"orders/{SHARD}/49/0",
        f"orders/{SHARD}/49/1",
        f"orders/{SHARD}/49/2",
        f"orders/{SHARD}/50/0",
    ]
    assert [located[index].id for index in range(4)] == [record.id for record in located]
    assert [record.id for record in located] == [
        record_id("orders", SHARD, record.sequence_number, record.sub_sequence_number) for record in located
    ]


def test_a_record_without_its_shard_says_how_to_make_one() -> None:
    with pytest.raises(ConsumerError, match="record_id"):
        _ = UserRecord(b"x", "k", "49").id


def test_it_is_kept_by_pickles_and_costs_no_memory() -> None:
    kind = located_record_type(UserRecord, "orders", SHARD)
    record = kind(b"x", "k", "49", None, None, 7)
    assert kind is located_record_type(UserRecord, "orders", SHARD)
    again = pickle.loads(pickle.dumps(record))
    assert again == record == UserRecord(b"x", "k", "49", None, None, 7)
    assert again.id == record.id == f"orders/{SHARD}/49/7"
    assert sys.getsizeof(record) == sys.getsizeof(UserRecord(*record))
    assert not hasattr(record, "__dict__")


def test_records_with_a_deserializer_have_it_too() -> None:
    class Upper:
        def deserialize(self, stream: str, data: bytes, /) -> str:
            return data.decode().upper()

    record = decoding_record_type(Upper(), "orders", SHARD)(b"x", "k", "49")
    assert (record.value, record.id) == ("X", f"orders/{SHARD}/49/0")
    again = pickle.loads(pickle.dumps(record))
    assert (again.value, again.id) == (b"x", record.id)
    unknown = decoding_record_type(Upper(), "orders")(b"x", "k", "49")
    assert pickle.loads(pickle.dumps(unknown)) == unknown


def test_a_lambda_function_and_spark_give_the_same() -> None:
    carrier = aggregate(49, 2)
    expected = [record_id("orders", SHARD, "49", index) for index in range(2)]
    event = {
        "Records": [
            {
                "eventSource": "aws:kinesis",
                "eventSourceARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/c:1",
                "eventID": f"{SHARD}:49",
                "kinesis": {
                    "partitionKey": "a",
                    "sequenceNumber": "49",
                    "data": base64.b64encode(carrier.data).decode(),
                    "approximateArrivalTimestamp": 1.0,
                },
            }
        ]
    }
    opened = KinesisEvent(event)
    assert [record.id for record in opened.user_records] == expected
    assert [record.id for delivery in opened for record in delivery.user_records] == expected

    with sqlite3.connect(":memory:") as database:
        database.create_function("concat_ws", -1, lambda separator, *parts: separator.join(map(str, parts)))
        rows = "(SELECT 'orders' streamName, ? shardId, '49' sequenceNumber, ? subSequenceNumber)"
        answers = [
            database.execute(f"SELECT {RECORD_ID} FROM {rows}", (SHARD, sub)).fetchone()[0]
            for sub in (0, 1, None)
        ]
    database.close()
    assert answers == [*expected, expected[0]]
