"""Reading: nothing damaged is taken for good, nothing good is left out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any
from unittest import mock

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common import aggregate_reader
from kinesis_sdk.common.aggregate_reader import (
    MAGIC,
    SubRecord,
    SubRecordColumns,
    deaggregate,
    decode,
    effective_hash_key,
    is_misplaced,
    open_aggregate,
)
from kinesis_sdk.common.hashkeys import FULL_RANGE, MAX_HASH_KEY, HashKeyRange, hash_partition_key
from kinesis_sdk.common.records import KinesisRecord, UserRecord
from tests import fuzz

from . import reference
from .reference import Item, filled, seal

ITEMS: list[Item] = [("alpha", None, b"one"), ("beta", "340", b""), ("alpha", None, b"three")]
BLOB = filled(ITEMS).encode()
ARRIVAL = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=timezone.utc)


def carrier(data: bytes, number: str = "4960") -> KinesisRecord:
    return KinesisRecord(data, "outer", number, ARRIVAL, "KMS")


def hexed(*parts: str) -> bytes:
    return seal(bytes.fromhex("".join(parts)))


KEY_A = "0a0161"
GOOD = "1a0508001a0178"


# -- damage ------------------------------------------------------------------------------------------------


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=50, fuzz=1_000))
@given(
    st.lists(
        st.tuples(st.text("abc", min_size=1), st.none(), st.binary(max_size=30)), min_size=2, max_size=8
    ),
    st.data(),
)
def test_any_damage_is_noticed(items: list[Item], data: st.DataObject) -> None:
    blob = filled(items).encode()
    flips = data.draw(st.dictionaries(st.integers(0, len(blob) - 1), st.integers(1, 255), min_size=1))
    damaged = bytes(byte ^ flips.get(index, 0) for index, byte in enumerate(blob))
    tail = data.draw(st.integers(0, len(blob) - 1))
    for broken in (damaged, blob[:tail], blob[tail + 1 :], blob + b"\0", damaged[:tail]):
        assert decode(broken) is None
        assert deaggregate([carrier(broken)]) == [
            UserRecord(broken, "outer", "4960", ARRIVAL, "KMS", 0, None, False)
        ]


FRAGMENTS = st.one_of(
    st.sampled_from(
        [
            bytes.fromhex(text)
            for text in (
                KEY_A,
                GOOD,
                "0a0162",
                "120135",
                "1a0408001a00",
                "1a0508011a0179",
                "1a07080010001a017a",
                "1a020800",
                "1a021a00",
                "1a00",
                # Values that belong to no record of their own: two in one, packed, in an unexpected type.
                "1a07080008011a0178",
                "1a0808001a01781a0179",
                "1a090800100010001a0178",
                "1a060a01001a0178",
                "1a080a010008001a0178",
                "1a0908001201001a0178",
                "1a031a0178",
                "1a070d000000001a00",
                "1a0880808080001a00",
            )
        ]
    ),
    st.binary(max_size=6),
)


def text_at(table: Any, index: int) -> str:
    """An entry of a string table; protobuf hands out bytes where it is not UTF-8."""
    entry: str | bytes = table[index]
    return entry.decode("utf-8", "replace") if isinstance(entry, bytes) else entry


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A message as we write it, with some bytes replaced, left out or repeated."""
    keys, hashes = st.sampled_from("abc"), st.sampled_from([None, "0", "7"])
    items = draw(st.lists(st.tuples(keys, hashes, st.binary(max_size=5)), min_size=2, max_size=6))
    body = filled(items).encode()[4:-16]
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(body) - 1))
        size = draw(st.integers(0, 4))
        body = (
            body[:place]
            + draw(st.sampled_from([b"", b"\0", b"\x08", b"\x1a", body[place : place + 4]]))
            + body[place + size :]
        )
        body = body or b"\0"
    return body


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=70, fuzz=4_000))
@given(st.one_of(st.lists(FRAGMENTS, min_size=1, max_size=8).map(b"".join).filter(bool), mutated()))
def test_any_bytes_under_a_valid_digest_read_as_protobuf_reads_them(body: bytes) -> None:
    result = decode(seal(body))
    with mock.patch.object(aggregate_reader, "_SMALL", 0):  # as if records were large: read in another way
        assert decode(seal(body)) == result
    message = reference.AggregatedRecord()
    try:
        message.ParseFromString(body)
    except DecodeError:
        # The one message that we accept and a reader that knows tags does not: a malformed tag.
        assert result is None or b"\x22" in body
        return
    if result is None:
        assert not message.IsInitialized()
        return
    assert message.IsInitialized() or b"\x22" in body
    keys, hashes = message.partition_key_table, message.explicit_hash_key_table
    assert [sub.data for sub in result] == [record.data for record in message.records]
    for sub, record in zip(result, message.records, strict=True):
        place, hash_place = record.partition_key_index, record.explicit_hash_key_index
        has_hash = record.HasField("explicit_hash_key_index") and hash_place < len(hashes)
        assert sub.partition_key == (text_at(keys, place) if place < len(keys) else None)
        assert sub.explicit_hash_key == (text_at(hashes, hash_place) if has_hash else None)


NO_AGGREGATES: dict[str, bytes] = {
    "record cut short": hexed(KEY_A, "1a05", "08"),
    "endless length": hexed(KEY_A, "1a", "ffffffffffffffffffff01"),
    "bad wire type": hexed(KEY_A, "07"),
    "no key index": hexed(KEY_A, "1a03", "1a0178"),
    "no data": hexed(KEY_A, "1a02", "0800"),
    "neither": hexed(KEY_A, "1a00"),
    "second without data": hexed(KEY_A, GOOD, "1a02", "0800"),
    "second without key index": hexed(KEY_A, GOOD, "1a03", "1a0178"),
    "second without key index, empty data": hexed(KEY_A, GOOD, "1a02", "1a00"),
    "no key index beside explicit hash keys": hexed(KEY_A, "120135", GOOD, "1a03", "1a0178"),
    "bad key index beside missing data": hexed(KEY_A, "1a05", "0801", "1a0178", "1a02", "0800"),
    "two key indexes, then none": hexed(KEY_A, "1a07", "0800", "0800", "1a0178", "1a03", "1a0179"),
    "two payloads, then none": hexed(KEY_A, "1a08", "0800", "1a0178", "1a0179", "1a02", "0800"),
    "a packed key index": hexed(KEY_A, "1a06", "0a0100", "1a0178", GOOD),
    "two hash indexes, and no key index": hexed(
        KEY_A, "120135", "1a09", "0800", "1000", "1000", "1a0178", "1a03", "1a0178"
    ),
    "no message": seal(b""),
    "magic alone": MAGIC,
    "no room for a message": MAGIC + bytes(16),
    "nothing": b"",
    "plain": b"plain",
}


@pytest.mark.parametrize("blob", NO_AGGREGATES.values(), ids=NO_AGGREGATES)
@pytest.mark.parametrize("small", [400, 0])
def test_not_an_aggregate(blob: bytes, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate_reader, "_SMALL", small)
    assert decode(blob) is None
    assert [(user.data, user.aggregated) for user in deaggregate([carrier(blob)])] == [(blob, False)]


ODD: dict[str, tuple[bytes, list[tuple[str | None, str | None, bytes]]]] = {
    "no records": (hexed(KEY_A), []),
    "key index beyond the table": (
        hexed(KEY_A, "1a05", "0801", "1a0178", GOOD),
        [(None, None, b"x"), ("a", None, b"x")],
    ),
    "largest key index": (hexed(KEY_A, "1a0e", "08ffffffffffffffffff01", "1a0178"), [(None, None, b"x")]),
    "no table": (hexed(GOOD), [(None, None, b"x")]),
    "hash index beyond the table": (
        hexed(KEY_A, "120135", "1a07", "0800", "1001", "1a0178"),
        [("a", None, b"x")],
    ),
    "hash index without a table": (hexed(KEY_A, "1a07", "0800", "1000", "1a0178"), [("a", None, b"x")]),
    "unused hash table": (hexed(KEY_A, "120135", GOOD), [("a", None, b"x")]),
    "hash index": (hexed(KEY_A, "120135", "1a07", "0800", "1000", "1a0178"), [("a", "5", b"x")]),
    "tags": (hexed(KEY_A, "1a0a", "0800", "1a0178", "2203", "0a0174"), [("a", None, b"x")]),
    "unknown field in a record": (hexed(KEY_A, "1a09", "0800", "1a0178", "7a02ffff"), [("a", None, b"x")]),
    "unknown fields outside": (hexed("7a02ffff", KEY_A, "a00107", GOOD), [("a", None, b"x")]),
    "table after the records": (hexed(GOOD, KEY_A), [("a", None, b"x")]),
    "invalid UTF-8": (hexed("0a02ff61", GOOD), [("\ufffda", None, b"x")]),
    "a surrogate in UTF-8": (hexed("0a03eda080", GOOD), [("\ufffd\ufffd\ufffd", None, b"x")]),
    "empty key": (hexed("0a00", GOOD), [("", None, b"x")]),
    "empty data": (hexed(KEY_A, "1a06", "0800", "1a00", "4001"), [("a", None, b"")]),
    "two key indexes": (
        hexed(KEY_A, "0a0162", "1a07", "0801", "0800", "1a0178", GOOD),
        [("a", None, b"x"), ("a", None, b"x")],
    ),
    "two payloads": (
        hexed(KEY_A, "1a08", "0800", "1a0179", "1a0178", GOOD),
        [("a", None, b"x"), ("a", None, b"x")],
    ),
    "two hash indexes, then none": (
        hexed(KEY_A, "120135", "120136", "1a09", "0800", "1000", "1001", "1a0178", GOOD),
        [("a", "6", b"x"), ("a", None, b"x")],
    ),
    "a packed key index beside another": (
        hexed(KEY_A, "0a0162", "1a08", "0801", "0a0100", "1a0178"),
        [("b", None, b"x")],
    ),
    "two key indexes and two payloads": (
        hexed(KEY_A, "0a0162", "1a0a", "0800", "0801", "1a0178", "1a0179"),
        [("b", None, b"y")],
    ),
    "two hash indexes": (
        hexed(KEY_A, "120135", "120136", "1a09", "0800", "1000", "1001", "1a0178"),
        [("a", "6", b"x")],
    ),
    "fields the other way round": (hexed(KEY_A, "0a0162", "1a05", "1a0178", "0801"), [("b", None, b"x")]),
    "an index longer than it need be": (
        hexed(KEY_A, "0a0162", "1a07", "08818000", "1a0178"),
        [("b", None, b"x")],
    ),
}


@pytest.mark.parametrize(("blob", "expected"), ODD.values(), ids=ODD)
def test_odd_but_intact(blob: bytes, expected: list[tuple[str | None, str | None, bytes]]) -> None:
    assert decode(blob) == expected
    users = deaggregate([carrier(blob)])
    assert [(user.partition_key, user.explicit_hash_key, user.data) for user in users] == [
        ("outer" if key is None else key, explicit, data) for key, explicit, data in expected
    ]
    assert [user.sub_sequence_number for user in users] == list(range(len(expected)))
    assert all(user.aggregated for user in users)


def rows_of_columns(blob: bytes) -> list[tuple[str | None, str | None, bytes]] | None:
    columns = open_aggregate(blob)
    if columns is None:
        return None
    hashes = columns.explicit_hash_keys
    given = [None] * len(columns.payloads) if hashes is None else hashes
    return list(zip(columns.partition_keys, given, columns.payloads, strict=True))


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=70, fuzz=2_000))
@given(st.lists(FRAGMENTS, min_size=1, max_size=8).map(b"".join).filter(bool))
def test_columns_hold_what_rows_hold(body: bytes) -> None:
    assert rows_of_columns(seal(body)) == decode(seal(body))
    assert open_aggregate(body) is None


def test_columns_show_that_no_record_has_an_explicit_hash_key() -> None:
    unused = open_aggregate(hexed(KEY_A, "120135", GOOD))
    assert unused is not None
    assert unused.explicit_hash_keys is None
    used = open_aggregate(hexed(KEY_A, "120135", GOOD, "1a07", "0800", "1000", "1a0178"))
    assert used is not None
    assert used.explicit_hash_keys == [None, "5"]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_like_input(kind: type) -> None:
    subs = decode(kind(BLOB))
    assert subs == ITEMS
    assert all(type(sub.data) is bytes for sub in subs)
    assert decode(kind(b"plain")) is None
    assert [user.data for user in deaggregate([carrier(kind(BLOB)), carrier(kind(b"p"))])] == [
        b"one",
        b"",
        b"three",
        b"p",
    ]


# -- positions ---------------------------------------------------------------------------------------------


def test_the_usual_aggregate_is_read_by_columns() -> None:
    for hash_key in (None, "5"):
        body = filled([("k", hash_key, b"1"), ("l", hash_key, b"")]).encode()[4:-16]
        columns, rows = aggregate_reader._columns(body), aggregate_reader._rows(body)
        assert columns is not None
        assert rows is not None
        assert columns.keyed
        assert as_lists(columns) == as_lists(rows)


def as_lists(columns: SubRecordColumns) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, Sequence) else value
        for name, value in columns._asdict().items()
    }


@pytest.mark.parametrize(
    "blob",
    [
        BLOB,
        hexed(KEY_A, "1a05", "0801", "1a0178", GOOD),
        hexed(KEY_A, "1a0e", "08ffffffffffffffffff01", "1a0178", GOOD),
        hexed(KEY_A, "120135", "1a07", "0800", "1007", "1a0178", "1a07", "0800", "1000", "1a0178"),
        hexed(KEY_A, "120135", GOOD, "1a07", "0800", "1007", "1a0178"),
    ],
    ids=["some hash keys", "a key index beyond", "the largest key index", "a hash index beyond", "both"],
)
def test_an_odd_aggregate_is_read_by_columns_as_well(blob: bytes) -> None:
    """Row by row, a record of 10 MB held the interpreter's lock for seconds, and renewals waited for it."""
    columns, rows = aggregate_reader._columns(blob[4:-16]), aggregate_reader._rows(blob[4:-16])
    assert columns is not None
    assert rows is not None
    assert as_lists(columns) == as_lists(rows)


HOSTILE = {
    "no fields": b"\x1a\x00",
    "none and two of each": b"\x1a\x00\x1a\x08\x08\x00\x08\x00\x1a\x00\x1a\x00",
    "no key": b"\x1a\x02\x1a\x00",
    "no data": b"\x1a\x02\x08\x00",
    "a key, all others packed": b"\x1a\x02\x1a\x00" * 99 + b"\x1a\x67\x0a\x63" + bytes(99) + b"\x1a\x00",
}


@pytest.mark.parametrize("part", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("size", [3_000, 100_000])
def test_what_lacks_required_fields_takes_little_more_memory_than_what_has_them(
    part: bytes, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protobuf's error names each missing field: 190 bytes of memory for each byte of such a record."""
    assert aggregate_reader._FEW == 10_000
    monkeypatch.setattr(aggregate_reader, "_FEW", 1_000)
    blob = seal(b"\x0a\x01k" + part * (size // len(part)))
    errors: list[int] = []
    real = aggregate_reader._protobuf()

    class Rows:
        @staticmethod
        def FromString(body: bytes) -> Any:
            return Watched(real.rows.FromString(body))

    class Watched:
        def __init__(self, message: Any) -> None:
            self.message = message

        def __getattr__(self, name: str) -> Any:
            return getattr(self.message, name)

        def SerializeToString(self) -> bytes:
            try:
                return bytes(self.message.SerializeToString())
            except real.encode_error as error:
                errors.append(len(str(error)))
                raise

    with mock.patch.object(aggregate_reader, "_protobuf", lambda: real._replace(rows=Rows)):
        assert decode(blob) is None
    assert sum(errors) <= 60 * aggregate_reader._FEW
    assert [user.data for user in deaggregate([carrier(blob)])] == [blob]


def test_deaggregate_fills_every_field_in_order() -> None:
    usual = filled([("k", None, b"1"), ("l", None, b"2")]).encode()
    users = deaggregate([carrier(b"plain", "1"), carrier(BLOB, "2"), carrier(usual, "3"), carrier(b"", "4")])
    assert users == [
        UserRecord(b"plain", "outer", "1", ARRIVAL, "KMS", 0, None, False),
        UserRecord(b"one", "alpha", "2", ARRIVAL, "KMS", 0, None, True),
        UserRecord(b"", "beta", "2", ARRIVAL, "KMS", 1, "340", True),
        UserRecord(b"three", "alpha", "2", ARRIVAL, "KMS", 2, None, True),
        UserRecord(b"1", "k", "3", ARRIVAL, "KMS", 0, None, True),
        UserRecord(b"2", "l", "3", ARRIVAL, "KMS", 1, None, True),
        UserRecord(b"", "outer", "4", ARRIVAL, "KMS", 0, None, False),
    ]
    assert all(type(user) is UserRecord for user in users)
    assert deaggregate([]) == []
    assert type(decode(usual)[0]) is SubRecord  # type: ignore[index]


def test_a_bad_key_index_is_logged_with_its_numbers(caplog: pytest.LogCaptureFixture) -> None:
    blob = hexed(KEY_A, "1a05", "0809", "1a0178", GOOD)
    with caplog.at_level(logging.WARNING):
        assert len(deaggregate([carrier(blob, "777")])) == 2
    assert "777" in caplog.text
    assert "1 of 2" in caplog.text


# -- places ------------------------------------------------------------------------------------------------

NUMBERS = st.one_of(st.integers(0, MAX_HASH_KEY), st.sampled_from([0, 1, MAX_HASH_KEY - 1, MAX_HASH_KEY]))
SUBS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.one_of(st.none(), NUMBERS.map(str)), st.just(b"")), max_size=6
)


def outside(sub: tuple[str, str | None, bytes], start: int, end: int) -> bool:
    number = int.from_bytes(hash_partition_key(sub[0]), "big") if sub[1] is None else int(sub[1])
    return number < start or number > end


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=50, fuzz=1_500))
@given(SUBS, NUMBERS, NUMBERS)
def test_is_misplaced_is_the_range_rule(
    subs: list[tuple[str, str | None, bytes]], one: int, two: int
) -> None:
    start, end = min(one, two), max(one, two)
    expected = any(outside(sub, start, end) for sub in subs)
    assert is_misplaced([SubRecord(*sub) for sub in subs], HashKeyRange(start, end)) is expected


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=35, fuzz=1_000))
@given(SUBS.filter(lambda subs: len(subs) > 1), NUMBERS, NUMBERS, st.booleans())
def test_deaggregate_asks_for_each_misplaced_aggregate(
    subs: list[tuple[str, str | None, bytes]], one: int, two: int, discard: bool
) -> None:
    start, end = min(one, two), max(one, two)
    record = carrier(filled(subs).encode())
    asked: list[tuple[KinesisRecord, int]] = []

    def on_misplaced(found: KinesisRecord, count: int) -> bool:
        asked.append((found, count))
        return discard

    users = deaggregate(
        [carrier(b"plain"), record], hash_key_range=HashKeyRange(start, end), on_misplaced=on_misplaced
    )
    misplaced = any(outside(sub, start, end) for sub in subs)
    assert asked == ([(record, len(subs))] if misplaced else [])
    # A record that travelled alone is never judged: it is where the service put it.
    assert users == deaggregate([carrier(b"plain")] if misplaced and discard else [carrier(b"plain"), record])


def test_borders_belong_to_the_range() -> None:
    number = int.from_bytes(hash_partition_key("a"), "big")
    subs = [SubRecord("a", None, b"")]
    assert not is_misplaced(subs, HashKeyRange(number, number))
    assert is_misplaced(subs, HashKeyRange(0, number - 1))
    assert is_misplaced(subs, HashKeyRange(number + 1, MAX_HASH_KEY))


def test_without_a_range_or_without_a_judge_everything_is_delivered() -> None:
    nowhere = HashKeyRange(0, 0)
    expected = deaggregate([carrier(BLOB)])
    assert len(expected) == 3
    assert deaggregate([carrier(BLOB)], hash_key_range=nowhere) == expected

    def never(_record: KinesisRecord, _count: int) -> bool:
        raise AssertionError("asked without a range")

    assert deaggregate([carrier(BLOB)], on_misplaced=never) == expected
    assert deaggregate([carrier(BLOB)], hash_key_range=FULL_RANGE, on_misplaced=never) == expected


def test_user_records_without_a_place_do_not_condemn_an_aggregate() -> None:
    here = HashKeyRange(0, 0)
    for sub in (
        SubRecord(None, None, b""),
        SubRecord("a", "x", b""),
        SubRecord("a", "", b""),
        SubRecord("a", str(2**128), b""),
    ):
        assert not is_misplaced([sub], here)
        assert is_misplaced([sub, SubRecord("a", None, b"")], here)


@pytest.mark.parametrize(
    ("explicit", "expected"),
    [
        ("0", bytes(16)),
        ("255", bytes(15) + b"\xff"),
        (str(MAX_HASH_KEY), b"\xff" * 16),
        (str(2**128), None),
        ("-1", None),
        ("", None),
        ("1e5", None),
        ("٣", None),
        ("1" * 100_000, None),
        (None, bytes.fromhex("e2fc714c4727ee9395f324cd2e7f331f")),
    ],
)
def test_effective_hash_key(explicit: str | None, expected: bytes | None) -> None:
    assert effective_hash_key("abcd", explicit) == expected


def test_the_place_of_a_giant_key_is_not_remembered() -> None:
    """An aggregate may hold keys of megabytes, of which a cache that counts would keep thousands."""
    aggregate_reader._known_place.cache_clear()
    giants = ["k" * 257, "\U0001f600" * 257, "k" * 100_000]
    items: list[Item] = [(key, None, b"") for key in giants] + [("k", "0" * 257, b""), ("k" * 256, "7", b"")]
    asked = []
    users = deaggregate(
        [carrier(filled(items).encode())],
        hash_key_range=HashKeyRange(0, 7),
        on_misplaced=lambda record, count: bool(asked.append(count)),
    )
    assert asked == [5], "the first giant lies outside of the range"
    assert len(users) == 5
    subs = [SubRecord(key, explicit, data) for key, explicit, data in items]
    for key in giants:
        assert is_misplaced([SubRecord(key, None, b"")], HashKeyRange(0, 7))
    assert not is_misplaced(subs[4:], HashKeyRange(0, 7))
    assert not is_misplaced(subs, FULL_RANGE)
    assert aggregate_reader._known_place.cache_info().currsize == 1


# Tags


def tagged(*tags: bytes, later: tuple[bytes, ...] = ()) -> bytes:
    """An aggregate of two user records, the first with these tags and the second with those."""

    def record(of_record: tuple[bytes, ...]) -> bytes:
        body = b"\x08\x00\x1a\x01x" + b"".join(b"\x22" + bytes([len(tag)]) + tag for tag in of_record)
        return b"\x1a" + bytes([len(body)]) + body

    return seal(b"\x0a\x01k" + record(tags) + record(later))


K1 = b"\x0a\x02k1\x12\x05value"


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("blob", "expected"),
    [
        (tagged(), None),
        (tagged(K1), "value"),
        (tagged(b"\x0a\x02k2\x12\x01x", K1), "value"),
        (tagged(later=(K1,)), None),  # only the first record counts
        (tagged(K1, later=(K1,)), "value"),
        (tagged(K1, K1), None),
        (tagged(b"\x0a\x02k1"), ""),
        (tagged(b"\x12\x05value"), None),  # a tag without a key
        (tagged(b"\xff\xff", K1), "value"),  # one that does not parse
        (tagged(b"\x0a\x02k1\x12\x02\xff\xfe"), "\ufffd\ufffd"),
        (tagged(b"\x0a\x02k1\x12\x00"), ""),
        (tagged(b"\x12\x05value\x0a\x02k1"), "value"),  # in another order
        (tagged(K1 + b"\x12\x05other"), "other"),  # the last one of a field counts
        (tagged(K1 + b"\x0a\x02k2"), None),
        (tagged(b"\x0a\x02k1\x12\x85\x00value"), "value"),  # a length that takes more bytes than it has to
    ],
)
def test_the_first_records_tag_is_read(
    blob: bytes, expected: str | None, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(aggregate_reader, "_columns", lambda body: None)
    columns = open_aggregate(blob)
    assert columns is not None
    assert columns.tag == expected
    assert columns.payloads == [b"x", b"x"]


FIELDS_OF_TAGS = st.lists(
    st.sampled_from(
        [b"\x0a\x02k1", b"\x0a\x02k2", b"\x12\x05value", b"\x12\x00", b"\x18\x05", b"\x12\x85\x00value"]
    )
    | st.binary(max_size=140).map(lambda value: b"\x12" + varint(len(value)) + value)
    | st.binary(max_size=4),
    max_size=4,
).map(b"".join)


def varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80, number >> 7])


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=40, fuzz=1_000))
@given(
    FIELDS_OF_TAGS | FIELDS_OF_TAGS.map(lambda fields: b"\x0a\x02k1" + fields),
    st.integers(0, 200),
    st.integers(0, 256),
)
def test_a_tag_in_the_usual_layout_is_read_as_protobuf_reads_it(tag: bytes, at: int, byte: int) -> None:
    damaged = bytearray(tag)
    if at < len(tag) and byte < 256:
        damaged[at] = byte
    for raw in (tag, bytes(damaged), tag[:at], tag + b"\0"):
        assert aggregate_reader._value_of(raw, b"k1") == aggregate_reader._parsed_value_of(raw, b"k1")


@pytest.mark.parametrize("length", [0, 1, 40, 126, 127, 128, 129, 255, 256])
def test_values_of_every_length_are_read(length: int) -> None:
    raw = b"\x0a\x02k1\x12" + varint(length) + b"v" * length
    assert (
        aggregate_reader._value_of(raw, b"k1")
        == aggregate_reader._parsed_value_of(raw, b"k1")
        == b"v" * length
    )


def test_a_length_of_two_bytes_is_not_mistaken_for_one_that_fits() -> None:
    raw = b"\x0a\x02k1\x12\x85\x00value\x1a\x7d" + bytes(125)
    assert raw[5] == len(raw) - 6
    assert aggregate_reader._value_of(raw, b"k1") == aggregate_reader._parsed_value_of(raw, b"k1") == b"value"


def test_an_aggregate_that_the_caller_judges_is_not_asked_about_again() -> None:
    record = KinesisRecord(tagged(K1), "a", "1")
    nowhere = HashKeyRange(0, 0)
    seen: list[str | None] = []

    def judge(carrier: KinesisRecord, columns: SubRecordColumns) -> bool:
        seen.append(columns.tag)
        return judged

    for judged in (True, False):
        users = deaggregate(
            [record, KinesisRecord(tagged(), "a", "2")],
            hash_key_range=nowhere,
            on_misplaced=lambda carrier, count: True,
            on_tagged=judge,
        )
        assert len(users) == (2 if judged else 0)
    assert seen == ["value", "value"]
