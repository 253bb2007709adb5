from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.testing.dynamodb.attributes import (
    add_numbers,
    compare,
    contains,
    item_size,
    length_of,
    normalise,
)
from kinesis_sdk.testing.errors import AwsError

integers = st.integers(-(10**37), 10**37)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("8.86E-4", "0.000886"),
        ("1e3", "1000"),
        ("-0", "0"),
        ("00012.500", "12.5"),
        ("1E+10", "10000000000"),
        ("1" * 38, "1" * 38),
        ("9" * 38 + "E88", "9" * 38 + "0" * 88),
    ],
)
def test_numbers_have_one_spelling(sent: str, kept: str) -> None:
    assert normalise({"N": sent}) == {"N": kept}


@pytest.mark.parametrize(
    "value",
    [
        {"N": "x"},
        {"N": ""},
        {"N": 1},
        {"N": "NaN"},
        {"N": "Infinity"},
        {"N": "1" * 39},
        {"N": "1E126"},
        {"N": "1E-131"},
        {"X": "1"},
        {},
        {"S": "a", "N": "1"},
        {"S": 1},
        {"B": "*"},
        {"NULL": False},
        {"BOOL": "true"},
        {"SS": []},
        {"SS": ["a", "a"]},
        {"NS": ["1", "1.0"]},
        {"M": [1]},
        "a",
    ],
)
def test_bad_values_are_refused(value: Any) -> None:
    with pytest.raises(AwsError, match="ValidationException"):
        normalise(value)


def test_sets_compare_as_sets() -> None:
    assert normalise({"NS": ["10", "9"]}) == normalise({"NS": ["9.0", "1E1"]}) == {"NS": ["9", "10"]}


@given(integers, integers)
def test_numbers_add_and_compare_by_value(left: int, right: int) -> None:
    one, other = normalise({"N": str(left)}), normalise({"N": str(right)})
    assert Decimal(add_numbers(one["N"], other["N"])) == left + right
    assert Decimal(add_numbers(one["N"], other["N"], -1)) == left - right
    for operator, expected in [
        ("=", left == right),
        ("<>", left != right),
        ("<", left < right),
        ("<=", left <= right),
        (">", left > right),
        (">=", left >= right),
    ]:
        assert compare(one, operator, other) == expected


def test_order_needs_one_type_and_both_sides() -> None:
    assert not compare({"N": "1"}, "<", {"S": "2"})
    assert not compare(None, "<", {"N": "1"})
    assert not compare(None, "=", None)
    assert compare(None, "<>", {"N": "1"})


def test_contains_and_size() -> None:
    assert contains({"S": "abc"}, {"S": "b"})
    assert contains({"NS": ["1", "2"]}, {"N": "2"})
    assert not contains({"SS": ["1"]}, {"N": "1"})
    assert contains({"L": [{"N": "1"}]}, {"N": "1"})
    assert contains({"B": "AQID"}, {"B": "Ag=="})
    assert length_of({"B": "AQID"}) == 3
    assert length_of({"N": "5"}) is None
    assert item_size({"é": {"S": "é"}}) == 4
