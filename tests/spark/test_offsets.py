from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.common.position import AfterSequence, AtTimestamp, Ended, TrimHorizon
from kinesis_sdk.spark.errors import OffsetError
from kinesis_sdk.spark.offsets import ShardPosition, StreamOffset

MILLIS = st.integers(0, 2**45)
POSITIONS = st.one_of(
    st.builds(
        AfterSequence,
        st.integers(0, 10**128).map(str),
        arrival=st.none() | st.integers(1, 2**45),  # an unknown arrival is 0 in the text
        drained=st.none() | MILLIS,
    ),
    st.builds(AtTimestamp, MILLIS),
    st.just(TrimHorizon()),
    st.builds(Ended, st.none() | MILLIS),
)
SHARDS = st.dictionaries(st.integers(0, 10**12).map(lambda n: f"shardId-{n:012d}"), POSITIONS, max_size=8)
OFFSETS = st.builds(
    StreamOffset,
    stream=st.text("abc-_.", min_size=1),
    created=MILLIS,
    starting=st.sampled_from(["LATEST", "TRIM_HORIZON", "AT_TIMESTAMP 5"]),
    started=MILLIS,
    shards=SHARDS,
)


@given(OFFSETS)
def test_an_offset_survives_its_text(offset: StreamOffset) -> None:
    again = StreamOffset.from_json(offset.to_json())
    assert again == offset
    assert again.to_json() == offset.to_json()


@given(OFFSETS, st.randoms())
def test_the_text_does_not_depend_on_the_order_in_which_shards_came(
    offset: StreamOffset, random: Any
) -> None:
    items = list(offset.shards.items())
    random.shuffle(items)
    assert offset.with_shards(dict(items)).to_json() == offset.to_json()


@given(OFFSETS)
def test_spark_gets_the_same_text_from_the_dictionary(offset: StreamOffset) -> None:
    """Spark makes the text itself, from the dictionary and without sorting."""
    assert json.dumps(offset.to_dict(), separators=(",", ":")) == offset.to_json()
    shuffled = json.loads(json.dumps(offset.to_dict()))
    assert StreamOffset.from_dict(shuffled) == offset


def test_the_text_is_pinned() -> None:
    """Checkpoints outlive versions of this package."""
    shards: dict[str, ShardPosition] = {
        "shardId-000000000003": TrimHorizon(),
        "shardId-000000000002": Ended(),
        "shardId-000000000001": AtTimestamp(1795154863000),
        "shardId-000000000000": AfterSequence("4968402", arrival=1795154862950),
        "shardId-000000000004": AfterSequence("4968403", arrival=1795154862950, drained=1795154863001),
        "shardId-000000000005": Ended(7),
    }
    offset = StreamOffset(
        stream="orders", created=1767225600, starting="LATEST", started=1795154863000, shards=shards
    )
    assert offset.to_json() == (
        '{"created":1767225600,"init":"LATEST","shards":{"shardId-000000000000":{"s":"4968402","t":1795154862950},'
        '"shardId-000000000001":{"ts":1795154863000},"shardId-000000000002":{"end":true},'
        '"shardId-000000000003":{"th":true},"shardId-000000000004":{"c":1795154863001,"s":"4968403",'
        '"t":1795154862950},"shardId-000000000005":{"end":true,"t":7}},"stream":"orders","t0":1795154863000,"v":1}'
    )


def test_an_unknown_arrival_is_zero_in_the_text() -> None:
    """A position that the user wrote has no arrival time."""
    offset = StreamOffset.from_dict({**good(), "shards": {"a": {"s": "12", "t": 0}}})
    assert offset.shards == {"a": AfterSequence("12")}
    assert offset.to_dict()["shards"] == {"a": {"s": "12", "t": 0}}
    drained = StreamOffset.from_dict({**good(), "shards": {"a": {"s": "12", "t": 0, "c": 7}}})
    assert drained.shards == {"a": AfterSequence("12", drained=7)}
    assert json.dumps(drained.to_dict()["shards"]) == '{"a": {"c": 7, "s": "12", "t": 0}}'


def good() -> dict[str, Any]:
    return {"created": 1, "init": "LATEST", "shards": {"s": {"th": True}}, "stream": "x", "t0": 1, "v": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"v": None},
        {"shards": []},
        {"created": "1"},
        {"created": True},
        {"t0": 1.5},
        {"stream": None},
        {"shards": {"s": {}}},
        {"shards": {"s": {"s": "12"}}},
        {"shards": {"s": {"s": 12, "t": 1}}},
        {"shards": {"s": {"s": "x1", "t": 1}}},
        {"shards": {"s": {"th": False}}},
        {"shards": {"s": {"th": True, "ts": 1}}},
        {"shards": {"s": {"end": 1}}},
        {"shards": {"s": None}},
    ],
)
def test_what_is_no_offset_is_refused(change: dict[str, Any]) -> None:
    StreamOffset.from_dict(good())
    with pytest.raises(OffsetError):
        StreamOffset.from_dict({**good(), **change})


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_what_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(OffsetError):
        StreamOffset.from_dict(value)


def test_a_missing_field_and_broken_text_are_refused() -> None:
    for name in ("created", "init", "stream", "t0", "shards"):
        item = good()
        del item[name]
        with pytest.raises(OffsetError):
            StreamOffset.from_dict(item)
    with pytest.raises(OffsetError, match="not valid JSON"):
        StreamOffset.from_json("{")


def test_sequence_numbers_compare_as_numbers() -> None:
    assert AfterSequence("9").number < AfterSequence("10").number
