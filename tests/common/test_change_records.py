from __future__ import annotations

import pickle
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.types import Binary, TypeDeserializer, TypeSerializer
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.change_records import ChangeRecord, encode_change, encode_item
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.user_records import PlainRun, UserRecords
from tests import fuzz

MOMENT = datetime(2026, 1, 1, 12, 0, 5, tzinfo=timezone.utc)


def raw(**images: dict[str, Any]) -> dict[str, Any]:
    return {
        "eventID": "e1",
        "eventName": "MODIFY",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": MOMENT,
            "Keys": {"k": {"S": "a"}},
            "SequenceNumber": "1" * 21,
            "SizeBytes": 10,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
            **images,
        },
    }


def change(record: dict[str, Any]) -> ChangeRecord:
    carrier = KinesisRecord(encode_change(record), "key", "1" * 21, MOMENT)
    batch = UserRecords([PlainRun([carrier])]).of_type(ChangeRecord)
    (only,) = batch
    assert batch[0] == only
    assert isinstance(batch[0], ChangeRecord)
    assert isinstance(only, ChangeRecord)
    return only


IMAGE = {
    "k": {"S": "é\u2028"},
    "n": {"N": "12.50"},
    "b": {"B": b"\x00\xff"},
    "ss": {"SS": ["x"]},
    "ns": {"NS": ["1", "2"]},
    "bs": {"BS": [b"\x01", b"\x02"]},
    "null": {"NULL": True},
    "bool": {"BOOL": False},
    "list": {"L": [{"B": b"l"}, {"M": {"B": {"B": b"m"}, "S": {"S": "not a kind"}}}]},
}


def test_a_change_has_its_parts_in_pythons_types() -> None:
    one = change(raw(NewImage=IMAGE))
    assert one.raw == raw(NewImage=IMAGE)
    assert (one.event_name, one.event_id, one.view_type) == ("MODIFY", "e1", "NEW_AND_OLD_IMAGES")
    assert one.keys == {"k": "a"}
    assert one.new_image == {
        "k": "é\u2028",
        "n": Decimal("12.50"),
        "b": Binary(b"\x00\xff"),
        "ss": {"x"},
        "ns": {Decimal(1), Decimal(2)},
        "bs": {Binary(b"\x01"), Binary(b"\x02")},
        "null": None,
        "bool": False,
        "list": [Binary(b"l"), {"B": Binary(b"m"), "S": "not a kind"}],
    }
    assert one.old_image is None
    assert one.approximate_creation_time == MOMENT
    assert one.sequence_number == "1" * 21
    assert not one.is_expiry


def test_parts_are_decoded_once_and_only_when_they_are_read() -> None:
    broken = ChangeRecord(b"not JSON", "key", "1", MOMENT)
    assert broken.approximate_creation_time == MOMENT
    with pytest.raises(ValueError, match="Expecting value"):
        _ = broken.event_name
    one = change(raw(NewImage=IMAGE))
    assert one.new_image is one.new_image
    assert one.raw is one.raw


@pytest.mark.parametrize("name", ["PrincipalId", "principalId"])
def test_the_expiry_of_an_item_is_recognized(name: str) -> None:
    assert change({**raw(), "userIdentity": {name: "dynamodb.amazonaws.com", "Type": "Service"}}).is_expiry
    assert not change({**raw(), "userIdentity": {name: "someone"}}).is_expiry


def test_a_change_shows_no_payload_and_can_be_pickled() -> None:
    one = change(raw(NewImage={"secret": {"S": "swordfish"}}))
    assert "swordfish" not in repr(one)
    assert repr(one).startswith("ChangeRecord(data=<")
    copy = pickle.loads(pickle.dumps(one))
    assert copy == one
    assert copy.new_image == {"secret": "swordfish"}


def test_keys_have_one_text_for_each_item() -> None:
    assert encode_item({"a": {"S": "x"}, "b": {"N": "1"}}) == encode_item({"b": {"N": "1"}, "a": {"S": "x"}})
    texts = [encode_item({"a": value}) for value in ({"S": "1"}, {"N": "1"}, {"B": b"1"}, {"S": "{"})]
    assert len({*texts}) == 4


def test_what_boto3_does_not_return_is_an_error() -> None:
    with pytest.raises(TypeError, match="cannot hold object"):
        encode_change({"x": object()})


_TEXT, _BYTES = st.text(max_size=6), st.binary(max_size=6)
_LEAVES = st.none() | st.booleans() | _TEXT | _BYTES | st.integers(-(10**30), 10**30)
_SETS = st.sets(st.binary(min_size=1, max_size=6), min_size=1, max_size=3) | st.sets(
    st.text(min_size=1, max_size=6), min_size=1, max_size=3
)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=15, fuzz=1_000))
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=6),
        st.recursive(
            _LEAVES | _SETS,
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
            max_leaves=8,
        ),
        max_size=5,
    )
)
def test_every_item_survives(item: dict[str, Any]) -> None:
    serialize, deserialize = TypeSerializer().serialize, TypeDeserializer().deserialize
    image = {name: serialize(value) for name, value in item.items()}
    # boto3 sends Binary and receives bytes.
    received = {name: _received(value) for name, value in image.items()}
    one = change(raw(NewImage=received))
    assert one.raw["dynamodb"]["NewImage"] == received
    assert one.new_image == {name: deserialize(value) for name, value in received.items()}


def _received(value: dict[str, Any]) -> dict[str, Any]:
    ((kind, content),) = value.items()
    if kind == "B":
        return {kind: bytes(content)}
    if kind == "BS":
        return {kind: [bytes(element) for element in content]}
    if kind == "M":
        return {kind: {name: _received(member) for name, member in content.items()}}
    return {kind: [_received(member) for member in content]} if kind == "L" else value
