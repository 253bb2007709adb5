from __future__ import annotations

import copy
import pickle
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.common.sequence import (
    AT_TIMESTAMP,
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber,
    rise,
)

NUMBERS = st.integers(0, 10**56)
SUBS = st.integers(0, 2**40)
SENTINELS = (AT_TIMESTAMP, TRIM_HORIZON, LATEST, SHARD_END)
POSITIONS = st.builds(
    ExtendedSequenceNumber,
    st.one_of(NUMBERS.map(str), st.sampled_from(SENTINELS)),
    st.one_of(st.just(0), SUBS),
)


def test_order_of_the_kcl() -> None:
    ordered = [
        ExtendedSequenceNumber(AT_TIMESTAMP),
        ExtendedSequenceNumber(TRIM_HORIZON),
        ExtendedSequenceNumber(LATEST),
        ExtendedSequenceNumber("0"),
        ExtendedSequenceNumber("9", 0),
        ExtendedSequenceNumber("9", 1),
        ExtendedSequenceNumber("9", 10),
        ExtendedSequenceNumber("10", 0),
        ExtendedSequenceNumber("49" + "0" * 54),
        ExtendedSequenceNumber(SHARD_END),
    ]
    for (index, first), (other, second) in product(enumerate(ordered), repeat=2):
        assert (first < second) is (index < other)
        assert (first <= second) is (index <= other)
        assert (first > second) is (index > other)
        assert (first >= second) is (index >= other)
        assert (first == second) is (index == other)
    assert sorted(set(ordered)) == ordered


@given(st.lists(POSITIONS, max_size=12))
def test_sorting_is_total(positions: list[ExtendedSequenceNumber]) -> None:
    for one, two in pairwise(sorted(positions)):
        assert one <= two
        assert not two < one


@given(NUMBERS, SUBS, NUMBERS, SUBS)
def test_numbers_compare_as_integers_then_by_sub_sequence(a: int, b: int, c: int, d: int) -> None:
    one, two = ExtendedSequenceNumber(str(a), b), ExtendedSequenceNumber(str(c), d)
    assert (one < two) is ((a, b) < (c, d))
    assert (one == two) is ((a, b) == (c, d))


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], True),
        (["9", "10", "11"], True),
        (["09", "10", "100"], True),
        (["10", "11", "11"], False),
        (["10", "100", "11"], False),
        (["9", "10", "010"], False),
    ],
)
def test_numbers_that_rise_are_compared_as_integers(numbers: list[str], expected: bool) -> None:
    assert rise(numbers) is expected


@given(POSITIONS)
def test_pickling_copying_and_hashing(position: ExtendedSequenceNumber) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(position, protocol))
        assert again == position
        assert hash(again) == hash(position)
        assert str(again) == str(position)
        assert again.is_sentinel == position.is_sentinel
    assert copy.copy(position) == copy.deepcopy(position) == position
    assert (
        len({position, ExtendedSequenceNumber(position.sequence_number, position.sub_sequence_number)}) == 1
    )
    assert eval(repr(position)) == position


@pytest.mark.parametrize("name", ["sequence_number", "sub_sequence_number", "_key", "other"])
def test_immutable(name: str) -> None:
    position = ExtendedSequenceNumber("5", 1)
    with pytest.raises(AttributeError, match="immutable"):
        setattr(position, name, "6")
    with pytest.raises(AttributeError, match="immutable"):
        delattr(position, name)
    assert (position.sequence_number, position.sub_sequence_number) == ("5", 1)


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", " 1", "1 ", "1e5", "٣", "latest", "0x1", "1.0", "1" * 130, "9" * 100_000]
)
def test_texts_that_are_no_position(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        ExtendedSequenceNumber(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [None, 5, b"5", 5.0, ["5"]])
def test_positions_are_text(value: object) -> None:
    with pytest.raises(TypeError, match="decimal text"):
        ExtendedSequenceNumber(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("sub", [1.0, "1", None])
def test_sub_sequence_numbers_are_ints(sub: object) -> None:
    with pytest.raises(ValueError, match="an int"):
        ExtendedSequenceNumber("5", sub)  # type: ignore[arg-type]


def test_a_negative_sub_sequence_number_is_the_position_before_the_record() -> None:
    before, first, previous = (ExtendedSequenceNumber(*of) for of in (("5", -1), ("5", 0), ("4", 10**6)))
    assert previous < before < first
    assert not before.is_sentinel
    assert str(before) == "5/-1"


def test_sentinels_and_comparison_with_strangers() -> None:
    assert all(ExtendedSequenceNumber(name).is_sentinel for name in SENTINELS)
    assert not ExtendedSequenceNumber("1").is_sentinel
    assert [ExtendedSequenceNumber(name).is_shard_end for name in SENTINELS] == [False, False, False, True]
    assert ExtendedSequenceNumber("1") != "1"
    assert ExtendedSequenceNumber("1" * 129) > ExtendedSequenceNumber("1")
    with pytest.raises(TypeError):
        _ = ExtendedSequenceNumber("1") < 2
    assert str(ExtendedSequenceNumber("12", 3)) == "12/3"
