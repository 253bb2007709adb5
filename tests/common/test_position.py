from __future__ import annotations

import pickle
from datetime import datetime, timezone

import pytest

from kinesis_sdk.common.position import (
    AfterSequence,
    AtSequence,
    AtTimestamp,
    Ended,
    Latest,
    Position,
    TrimHorizon,
    from_checkpoint,
    iterator_request,
    iterator_start,
    subscription_request,
)
from kinesis_sdk.common.sequence import ExtendedSequenceNumber

MILLIS = 1_769_860_800_250
MOMENT = datetime(2026, 1, 31, 12, 0, 0, 250_000, timezone.utc)


@pytest.mark.parametrize(
    ("position", "text", "request_", "subscription"),
    [
        (TrimHorizon(), "TRIM_HORIZON", {}, {}),
        (Latest(), "LATEST", {}, {}),
        (AtTimestamp(MILLIS), f"AT_TIMESTAMP {MILLIS}", {"Timestamp": MOMENT}, {"Timestamp": MOMENT}),
        (
            AtSequence("12"),
            "AT_SEQUENCE_NUMBER 12",
            {"StartingSequenceNumber": "12"},
            {"SequenceNumber": "12"},
        ),
        (
            AfterSequence("12"),
            "AFTER_SEQUENCE_NUMBER 12",
            {"StartingSequenceNumber": "12"},
            {"SequenceNumber": "12"},
        ),
    ],
)
def test_what_the_api_is_asked_for(
    position: Position, text: str, request_: dict[str, object], subscription: dict[str, object]
) -> None:
    kind = text.split(" ", maxsplit=1)[0]
    assert str(position) == text
    assert iterator_request(position) == {"ShardIteratorType": kind, **request_}
    assert subscription_request(position) == {"Type": kind, **subscription}
    assert pickle.loads(pickle.dumps(position)) == position


def test_a_position_inside_an_aggregate_opens_at_its_kinesis_record() -> None:
    inside = AfterSequence("12", sub_sequence_number=3)
    assert str(inside) == "AFTER_SEQUENCE_NUMBER 12/3"
    assert iterator_start(inside) == AtSequence("12")
    assert iterator_request(inside) == {
        "ShardIteratorType": "AT_SEQUENCE_NUMBER",
        "StartingSequenceNumber": "12",
    }
    whole = AfterSequence("12")
    assert iterator_start(whole) is whole


def test_the_end_of_a_shard_cannot_be_opened() -> None:
    assert str(Ended()) == "SHARD_END"
    with pytest.raises(ValueError, match="no iterator"):
        iterator_request(Ended())


@pytest.mark.parametrize(
    ("name", "sub", "millis", "position"),
    [
        ("TRIM_HORIZON", 0, None, TrimHorizon()),
        ("TRIM_HORIZON", 0, 5, TrimHorizon()),
        ("LATEST", 0, None, Latest()),
        ("LATEST", 0, 5, AtTimestamp(5)),
        ("AT_TIMESTAMP", 0, 0, AtTimestamp(0)),
        ("SHARD_END", 0, None, Ended()),
        ("12", 0, None, AfterSequence("12", sub_sequence_number=0)),
        ("12", 7, 5, AfterSequence("12", sub_sequence_number=7)),
    ],
)
def test_the_position_of_a_checkpoint(name: str, sub: int, millis: int | None, position: Position) -> None:
    assert from_checkpoint(ExtendedSequenceNumber(name, sub), millis) == position


def test_a_checkpoint_at_a_timestamp_needs_it() -> None:
    with pytest.raises(ValueError, match="AT_TIMESTAMP"):
        from_checkpoint(ExtendedSequenceNumber("AT_TIMESTAMP"))
