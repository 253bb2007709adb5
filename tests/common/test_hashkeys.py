from __future__ import annotations

import time
from hashlib import md5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.common.errors import InvalidRecordError
from kinesis_sdk.common.hashkeys import (
    FULL_RANGE,
    MAX_HASH_KEY,
    HashKeyRange,
    explicit_hash_key_to_bytes,
    hash_key_to_decimal,
    hash_partition_key,
    parse_explicit_hash_key,
)

NUMBERS = st.integers(0, MAX_HASH_KEY)


def test_partition_keys_hash_to_md5_big_endian() -> None:
    # The vector of the KPL's own user_record_test.
    assert hash_partition_key("abcd").hex().upper() == "E2FC714C4727EE9395F324CD2E7F331F"
    assert hash_key_to_decimal(hash_partition_key("abcd")) == str(0xE2FC714C4727EE9395F324CD2E7F331F)
    assert hash_partition_key("") == bytes.fromhex("d41d8cd98f00b204e9800998ecf8427e")
    assert hash_partition_key("ключ") == md5("ключ".encode()).digest()


@given(NUMBERS)
def test_bytes_and_decimal_are_two_forms_of_one_number(number: int) -> None:
    raw = explicit_hash_key_to_bytes(str(number))
    assert len(raw) == 16
    assert int.from_bytes(raw, "big") == number
    assert hash_key_to_decimal(raw) == str(number)


@given(NUMBERS, NUMBERS)
def test_order_of_bytes_is_order_of_numbers(one: int, two: int) -> None:
    assert (explicit_hash_key_to_bytes(str(one)) < explicit_hash_key_to_bytes(str(two))) == (one < two)


@given(NUMBERS, st.integers(0, 20), st.sampled_from(["", " ", "\t", "\n"]))
def test_explicit_hash_keys_become_canonical(number: int, zeros: int, blank: str) -> None:
    assert parse_explicit_hash_key(number) == str(number)
    assert parse_explicit_hash_key(blank + "0" * zeros + str(number) + blank) == str(number)


@pytest.mark.parametrize(("value", "canonical"), [("0", "0"), ("000", "0"), (0, "0"), ("007", "7")])
def test_zero_and_leading_zeros(value: str | int, canonical: str) -> None:
    assert parse_explicit_hash_key(value) == canonical


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "٣",  # a digit for str.isdigit and int()
        "²",
        "1e5",
        "1.0",
        "-1",
        "+1",
        "1_000",
        "0x10",
        "1 2",
        "abc",
        str(2**128),
        2**128,
        -1,
        True,
        False,
        None,
        1.0,
        b"1",
        "9" * 65,
        10**5000,
        -(10**5000),
        "1" + "0" * 5000,
        "1" * 10_000_000,
    ],
    ids=lambda value: f"{type(value).__name__}-{value if len(repr_of(value)) < 60 else 'huge'}",
)
def test_bad_values_are_rejected_with_field_and_range(value: object) -> None:
    started = time.thread_time()
    with pytest.raises(InvalidRecordError) as caught:
        parse_explicit_hash_key(value)  # type: ignore[arg-type]
    # A quadratic conversion of ten million digits takes minutes of this thread's own CPU time.
    assert time.thread_time() - started < 10.0
    message = str(caught.value)
    assert caught.value.field == "explicit_hash_key"
    assert len(message) < 250
    if isinstance(value, str) or type(value) is int:
        assert "0 to 2^128-1" in message


def repr_of(value: object) -> str:
    return "?" * 100 if isinstance(value, int) and value.bit_length() > 256 else repr(value)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_range_membership(one: int, two: int, probe: int) -> None:
    start, end = min(one, two), max(one, two)
    owned = HashKeyRange(start, end)
    for number in (probe, start, end):
        expected = start <= number <= end
        raw = number.to_bytes(16, "big")
        assert (number in owned) is expected
        assert (raw in owned) is expected
        assert (owned.start_bytes <= raw <= owned.end_bytes) is expected


@pytest.mark.parametrize(
    ("start", "end"), [(1, 0), (-1, 5), (0, MAX_HASH_KEY + 1), (MAX_HASH_KEY + 1, 2**129)]
)
def test_impossible_ranges(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="range"):
        HashKeyRange(start, end)


def test_full_range_and_order() -> None:
    assert FULL_RANGE.start_bytes == bytes(16)
    assert FULL_RANGE.end_bytes == b"\xff" * 16
    assert sorted([HashKeyRange(5, 6), HashKeyRange(0, 9), HashKeyRange(0, 2)]) == [
        HashKeyRange(0, 2),
        HashKeyRange(0, 9),
        HashKeyRange(5, 6),
    ]


def test_ranges_overlap_where_they_share_a_key():
    middle = HashKeyRange(10, 20)
    for other in (HashKeyRange(0, 10), HashKeyRange(20, 30), HashKeyRange(12, 13), HashKeyRange(0, 99)):
        assert middle.overlaps(other)
        assert other.overlaps(middle)
    for other in (HashKeyRange(0, 9), HashKeyRange(21, 30)):
        assert not middle.overlaps(other)
        assert not other.overlaps(middle)
