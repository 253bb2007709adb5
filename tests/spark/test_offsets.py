from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.position import (
    MAX_MILLIS,
    AfterSequence,
    AtSequence,
    AtTimestamp,
    Ended,
    Latest,
    TrimHorizon,
)
from kinesis_sdk.spark.errors import OffsetError
from kinesis_sdk.spark.offsets import QueryOffset, ShardPosition, StreamOffset
from kinesis_sdk.testing.kinesis.sequence import SequenceNumbers
from tests import fuzz

MILLIS = st.integers(0, MAX_MILLIS)
NUMBERS = st.one_of(
    st.integers(0, 10**129 - 1).map(str),
    st.integers(2**185, 2**186 - 1).map(str),
    st.integers(2**185, 2**185 + 70).map(str),
    st.sampled_from(["0", "00", "007", "0" * 129, "9" * 129, "63", "64"]),
)
POSITIONS = st.one_of(
    st.builds(AfterSequence, NUMBERS),
    st.builds(AtSequence, NUMBERS),
    st.builds(AtTimestamp, MILLIS),
    st.just(TrimHorizon()),
    st.just(Ended()),
)
SHARD_IDS = st.one_of(
    st.integers(0, 10**14).map(lambda n: f"shardId-{n:012d}"),
    st.text("shardI-0123=x ", min_size=1, max_size=24),
    st.text(min_size=1, max_size=12),
    st.sampled_from(["0", "00", "7", "=7", "shardId-7", "shardId-", "shardId-0000000000x1", "=", "=="]),
)
STREAMS = st.builds(
    StreamOffset,
    created=st.integers(0, 2**35),
    shards=st.dictionaries(SHARD_IDS, POSITIONS, max_size=8),
)
OFFSETS = st.builds(
    QueryOffset,
    starting=st.sampled_from(["LATEST", "TRIM_HORIZON", "AT_TIMESTAMP 5"]),
    started=MILLIS,
    cut=MILLIS,
    streams=st.dictionaries(st.text("abc-_.", min_size=1), STREAMS, min_size=1, max_size=3),
)


def of_shards(shards: Mapping[str, ShardPosition]) -> QueryOffset:
    return QueryOffset(
        starting="LATEST",
        started=1795154863000,
        cut=1795154862950,
        streams={"orders": StreamOffset(created=1767225600, shards=shards)},
    )


def texts(shards: Mapping[str, ShardPosition]) -> Any:
    return of_shards(shards).to_dict()["streams"]["orders"]["shards"]


def test_the_text_is_pinned() -> None:
    """Checkpoints outlive versions of this package."""
    number = 49684021896783452109123456789012345678901234567890123456
    shards: dict[str, ShardPosition] = {
        "shardId-000000000003": TrimHorizon(),
        "shardId-000000000002": Ended(),
        "shardId-000000000001": AtTimestamp(1795154863000),
        "shardId-000000000000": AfterSequence(str(number)),
        "shardId-000000000004": AtSequence(str(number + 1)),
        "shardId-000000000010": AfterSequence("007"),
        "shard-a": AfterSequence(str(number + 1)),
        "7": AtSequence("64"),
    }
    offset = of_shards(shards)
    text = (
        '{"cut":1795154862950,"init":"LATEST","streams":{"orders":{"created":1767225600,"shards":{'
        '"0":">ga5s0wuLv4ypl1mCK0wfcghEUFy3LrA","1":"@1795154863000","10":">#007","2":"SHARD_END",'
        '"3":"TRIM_HORIZON","4":"=B","=7":"=AAAAAAAAAAAAAAAAAAAAAAAAAAAAABA","shard-a":'
        '">ga5s0wuLv4ypl1mCK0wfcghEUFy3LrB"}}},"t0":1795154863000,"v":2}'
    )
    assert offset.to_json() == text
    assert QueryOffset.from_json(text) == offset


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=15, fuzz=1_000))
@given(OFFSETS)
def test_an_offset_survives_its_text(offset: QueryOffset) -> None:
    again = QueryOffset.from_json(offset.to_json())
    assert again == offset
    assert again.to_json() == offset.to_json()


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=15, fuzz=1_000))
@given(OFFSETS, st.randoms())
def test_the_text_does_not_depend_on_the_order_in_which_streams_and_shards_came(
    offset: QueryOffset, random: Any
) -> None:
    def shuffled(items: Mapping[str, Any]) -> dict[str, Any]:
        pairs = list(items.items())
        random.shuffle(pairs)
        return dict(pairs)

    streams = {
        name: StreamOffset(created=stream.created, shards=shuffled(stream.shards))
        for name, stream in shuffled(offset.streams).items()
    }
    assert offset.cut is not None
    assert offset.with_streams(streams, offset.cut).to_json() == offset.to_json()


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=15, fuzz=1_000))
@given(OFFSETS)
def test_spark_gets_the_same_text_from_the_dictionary(offset: QueryOffset) -> None:
    """Spark makes the text itself, from the dictionary and without sorting."""
    text = offset.to_json()
    assert json.dumps(offset.to_dict(), separators=(",", ":")) == text
    assert json.dumps(json.loads(text), separators=(",", ":"), sort_keys=True) == text


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=15, fuzz=1_000))
@given(OFFSETS)
def test_an_offset_is_read_whatever_the_order_of_its_keys(offset: QueryOffset) -> None:
    def reverse(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: reverse(value[key]) for key in reversed(list(value))}
        return value

    assert QueryOffset.from_dict(reverse(offset.to_dict())) == offset


def by_hand(shards: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Decode numbers as the documentation tells a reader to, digit by digit."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    previous, result = "A" * 80, {}
    for key in sorted(shards):
        mark, digits = shards[key][0], shards[key][1:]
        if mark in "=>" and digits[:1] != "#":
            previous = previous[: len(previous) - len(digits)] + digits
            value = 0
            for digit in previous:
                value = value * 64 + alphabet.index(digit)
            result[key] = (mark, value)
    return result


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=30, fuzz=1_000))
@given(st.dictionaries(st.integers(0, 2000), POSITIONS, max_size=12))
def test_a_reader_can_decode_the_numbers_by_hand(items: dict[int, ShardPosition]) -> None:
    found = by_hand(texts({f"shardId-{n:012d}": position for n, position in items.items()}))
    expected = {
        str(n): (">" if isinstance(position, AfterSequence) else "=", position.number)
        for n, position in items.items()
        if isinstance(position, AfterSequence | AtSequence)
        and str(position.number) == position.sequence_number
    }
    assert found == expected


def test_a_number_is_shortened_by_the_previous_one_of_its_stream_only() -> None:
    shards = {f"shardId-{n:012d}": AfterSequence(str(64**3 + n)) for n in range(2)}
    streams = {name: StreamOffset(created=1, shards=shards) for name in ("a", "b")}
    written = of_shards({}).with_streams(streams, 5).to_dict()["streams"]
    assert written["a"]["shards"] == written["b"]["shards"] == {"0": ">BAAA", "1": ">B"}


def test_a_thousand_shards_take_forty_kilobytes() -> None:
    fake = {}
    for n in range(1000):
        numbers = SequenceNumbers(n, 1_767_225_600 + n // 7)
        numbers._position = Random(n).randrange(10**9)
        fake[f"shardId-{n:012d}"] = AfterSequence(str(numbers.take(1_795_154_863)))
    assert {len(position.sequence_number) for position in fake.values()} == {56}
    assert len(of_shards(fake).to_json()) <= 40_000

    # Numbers of the shards of a stream as in the documentation of Kinesis: equally far apart, then different.
    rng = Random(3)
    first, step = (
        49579844037727333356165064238440708846556371693205002258,
        22300745198530623141535718272648361505980416,
    )
    real = {
        f"shardId-{n:012d}": AtSequence(str(first + n * step + rng.randrange(1 << 130))) for n in range(1000)
    }
    assert len(of_shards(real).to_json()) <= 40_000

    unlike = {f"shardId-{n:012d}": AtSequence(str(rng.randrange(1 << 185, 1 << 186))) for n in range(1000)}
    assert len(of_shards(unlike).to_json()) <= 42_000


def test_the_initial_offset() -> None:
    initial = QueryOffset(starting="LATEST", started=7, streams={"orders": StreamOffset(created=5)})
    assert initial.is_initial
    assert initial.to_json() == (
        '{"cut":null,"init":"LATEST","streams":{"orders":{"created":5,"shards":{}}},"t0":7,"v":2}'
    )
    assert QueryOffset.from_json(initial.to_json()) == initial
    later = initial.with_streams(initial.streams, 9)
    assert not later.is_initial
    assert (later.cut, later.started, later.starting) == (9, 7, "LATEST")


@pytest.mark.parametrize(
    "position",
    [
        Latest(),
        AfterSequence("5", sub_sequence_number=0),
        AfterSequence("x"),
        AfterSequence(""),
        AtSequence("١"),
        AtSequence("9" * 130),
        AtTimestamp(-1),
        AtTimestamp(MAX_MILLIS + 1),
        None,
    ],
)
def test_what_no_offset_can_hold_is_not_written(position: Any) -> None:
    with pytest.raises(OffsetError, match="shardId-000000000003"):
        of_shards({"shardId-000000000003": position}).to_dict()


def good() -> dict[str, Any]:
    return {"cut": 1, "init": "LATEST", "streams": {"x": stream({"3": "=B"})}, "t0": 1, "v": 2}


def stream(shards: Any, created: Any = 1) -> dict[str, Any]:
    return {"created": created, "shards": shards}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v": 3}, "newer kinesis_sdk"),
        ({"v": None}, "version None"),
        ({"v": True}, "version True"),
        ({"v": 2.0}, "version 2.0"),
        ({"v": 1}, "version 1, which was never released"),
        ({"streams": []}, "streams must be"),
        ({"streams": {}}, "streams must be"),
        ({"streams": {"x": None}}, "stream x"),
        ({"streams": {"x": {"created": 1}}}, "stream x must have the keys .* missing: shards"),
        ({"streams": {"x": {**stream({}), "more": 1}}}, "unknown: more"),
        ({"streams": {"x": stream([])}}, "shards of stream x"),
        ({"streams": {"x": stream({}, "1")}}, "created of stream x"),
        ({"streams": {"x": stream({}, created=True)}}, "created of stream x"),
        ({"streams": {"not a name": stream({})}}, "not a name"),
        ({"streams": {"": stream({})}}, "stream names"),
        ({"streams": {"arn:aws:kinesis:us-east-1:123456789012:stream/x": stream({})}}, "stream names"),
        ({"streams": {5: stream({})}}, "stream names"),
        ({"t0": 1.5}, "t0"),
        ({"t0": -1}, "t0"),
        ({"t0": 10**18}, "t0"),
        ({"cut": "1"}, "cut"),
        ({"cut": None}, "cut"),
        ({"init": None}, "init"),
        ({"more": 1}, "unknown: more"),
    ],
)
def test_what_is_no_offset_is_rejected(change: dict[str, Any], message: str) -> None:
    QueryOffset.from_dict(good())
    with pytest.raises(OffsetError, match=message):
        QueryOffset.from_dict({**good(), **change})


@pytest.mark.parametrize(
    "value",
    [
        *(None, {}, [], 5, True, "", "x", "LATEST", "shard_end", "TRIM_HORIZON "),
        *(
            ">+",
            ">/",
            "> B",
            ">B\n",
            ">B=",
            ">Ⅷ",
            ">é",
            "=" + "_" * 73,
            "=" + "_" * 72,
        ),  # no digits, or too many
        *(">AB", "=AA", "="),  # more digits than a number needs, or none for the first number, which 0 has
        *("=#", "=#7", "=#00x", "=#0", ">#٠٠", "=#0" + "0" * 129),
        *("@", "@-1", "@05", "@1.5", "@1e3", "@999999999999999", "@1000000000000000", "@ 1", "@١"),
        {"s": "12", "t": 1},
    ],
)
def test_what_is_no_position_is_rejected(value: Any) -> None:
    item = {**good(), "streams": {"x": stream({"3": value})}}
    if value == "=":  # the number 0 has no digit that differs from those of the previous number
        assert QueryOffset.from_dict(item).streams["x"].shards == {"shardId-000000000003": AtSequence("0")}
        return
    with pytest.raises(OffsetError, match="shardId-000000000003"):
        QueryOffset.from_dict(item)


@pytest.mark.parametrize(
    "key", ["", "05", "=shard", "shardId-000000000005", "=shardId-000000000005", "9" * 121, "x" * 129, 5]
)
def test_what_is_no_key_of_a_shard_is_rejected(key: Any) -> None:
    """Two keys for one shard would be two positions."""
    with pytest.raises(OffsetError, match="key"):
        QueryOffset.from_dict({**good(), "streams": {"x": stream({key: "TRIM_HORIZON"})}})


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_what_is_no_object_is_rejected(value: Any) -> None:
    with pytest.raises(OffsetError):
        QueryOffset.from_dict(value)


def test_a_missing_field_is_rejected() -> None:
    for name in good():
        item = good()
        del item[name]
        with pytest.raises(OffsetError, match=name):
            QueryOffset.from_dict(item)


@pytest.mark.parametrize("text", ["", "{", "NaN", "[" * 100_000, '{"v":' + "9" * 10_000 + "}", '{"v":2}{'])
def test_a_broken_text_is_rejected(text: str) -> None:
    with pytest.raises(OffsetError):
        QueryOffset.from_json(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["v", "cut", "t0", "x", "3"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=40, fuzz=1_000))
@given(JSON, st.sampled_from(["cut", "init", "streams", "t0", "shards", "position"]))
def test_whatever_json_a_checkpoint_has_the_error_is_ours(value: Any, place: str) -> None:
    item = good()
    if place == "shards":
        item["streams"] = {"x": stream(value)}
    elif place == "position":
        item["streams"] = {"x": stream({"3": value})}
    else:
        item[place] = value
    for candidate in (item, value):
        try:
            offset = QueryOffset.from_dict(candidate)
        except OffsetError:
            continue
        assert offset.to_dict() == candidate


@given(st.text("=>@#ABab01-_\n", max_size=80), st.text("=01ashrdI-", max_size=20))
def test_only_the_canonical_text_of_a_position_is_read(value: str, key: str) -> None:
    item = {**good(), "streams": {"x": stream({key: value})}}
    try:
        offset = QueryOffset.from_dict(item)
    except OffsetError:
        return
    assert offset.to_dict() == item


def test_sequence_numbers_compare_as_numbers() -> None:
    assert AfterSequence("9").number < AfterSequence("10").number
    assert AtSequence("9").number < AtSequence("10").number
