from __future__ import annotations

import base64
import json
import pickle
from datetime import datetime, timezone
from typing import Any

import pytest

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.records import API_NAMES, Attempt, KinesisRecord, UserRecord
from kinesis_sdk.common.transport import cbor
from kinesis_sdk.common.transport.decoding import decode, decode_by_standard_library
from kinesis_sdk.testing.http.cbor import encode as in_cbor

ARRIVAL = datetime(2026, 1, 2, tzinfo=timezone.utc)


def test_a_record_of_the_service() -> None:
    record = KinesisRecord.from_api(
        {
            "Data": b"x",
            "PartitionKey": "k",
            "SequenceNumber": "49",
            "ApproximateArrivalTimestamp": ARRIVAL,
            "EncryptionType": "KMS",
        }
    )
    assert record == KinesisRecord(b"x", "k", "49", ARRIVAL, "KMS")
    assert record.data == b"x"
    assert record.approximate_arrival_timestamp is ARRIVAL


def test_what_the_service_may_leave_out() -> None:
    assert KinesisRecord.from_api({"Data": b"", "SequenceNumber": "49"}) == KinesisRecord(
        b"", "", "49", None, None
    )


def test_records_cross_processes() -> None:
    for record in (
        KinesisRecord(b"x", "k", "49", ARRIVAL),
        UserRecord(b"x", "k", "49", ARRIVAL, None, 3, "5", True),
        Attempt(0.1, 0.2, "Expired", "m", False),
    ):
        again = pickle.loads(pickle.dumps(record))
        assert again == record
        assert type(again) is type(record)


# A new field of Kinesis records. Forgetting one of these places does not fail by itself: a field that a decoder of the transport does not
# read makes every response be read by boto3, which is slow, and one in another order ends up under another name.


def filled(data: bytes = b"x") -> dict[str, Any]:
    """An item of a GetRecords response with a value of its own for every field."""
    values: dict[str, Any] = {name: f"{index}4" for index, name in enumerate(API_NAMES.values())}
    return {**values, "Data": data, "ApproximateArrivalTimestamp": ARRIVAL}


def test_every_field_has_its_name_in_the_api() -> None:
    assert tuple(API_NAMES) == KinesisRecord._fields


def test_every_field_is_read_from_the_api() -> None:
    item = filled()
    record = KinesisRecord.from_api(item)
    assert record._asdict() == {field: item[name] for field, name in API_NAMES.items()}


def test_every_field_is_read_from_large_responses() -> None:
    item = filled()
    wire = {
        **item,
        "Data": base64.b64encode(item["Data"]).decode(),
        "ApproximateArrivalTimestamp": ARRIVAL.timestamp(),
    }
    body = json.dumps({"Records": [wire]}).encode()
    for content in (
        decode(body),
        decode_by_standard_library(body),
        cbor.decode(in_cbor({"Records": [wire]})),
    ):
        assert content is not None
        assert content.records == [KinesisRecord.from_api(item)]
        assert len(content.records[0]) == len(KinesisRecord._fields)


def test_user_records_begin_with_the_fields_of_their_kinesis_record() -> None:
    assert UserRecord._fields[: len(KinesisRecord._fields)] == KinesisRecord._fields


@pytest.mark.parametrize("aggregated", [False, True])
def test_every_field_reaches_the_user_record(aggregated: bool) -> None:
    data = b"x"
    if aggregated:
        aggregate = Aggregate(10_000, 100)
        assert aggregate.try_append("mine", None, b"one", hash_partition_key("mine"))
        assert aggregate.try_append("mine", None, b"two", hash_partition_key("mine"))
        data = aggregate.encode()
    carrier = KinesisRecord.from_api(filled(data))
    batch = deaggregate([carrier])
    carried = KinesisRecord._fields[2:]
    assert carried
    for record in [*batch, *(batch[index] for index in range(len(batch)))]:
        assert len(record) == len(UserRecord._fields)
        assert {field: getattr(record, field) for field in carried} == {
            field: getattr(carrier, field) for field in carried
        }
        assert record.aggregated is aggregated
        expected = {b"one": ("mine", 0), b"two": ("mine", 1), b"x": (carrier.partition_key, 0)}[record.data]
        assert (record.partition_key, record.sub_sequence_number) == expected
        assert record.explicit_hash_key is None
