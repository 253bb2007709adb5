from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.testing.kinesis.sequence import DIGITS, SequenceNumbers, shard_index_of, stored_second_of

seconds = st.integers(10**9, 10**10 - 1)
indexes = st.integers(0, 2**32 - 1)


@given(index=indexes, created=seconds, stored=st.lists(seconds, min_size=1, max_size=20))
def test_numbers_rise_in_storage_order_whatever_the_clock_does(
    index: int, created: int, stored: list[int]
) -> None:
    numbers = SequenceNumbers(index, created)
    taken = [numbers.take(second) for second in stored]
    everything = [numbers.starting, *taken, numbers.ending(stored[-1])]
    assert everything == sorted(set(everything))
    for number, second in zip(taken, stored, strict=True):
        assert len(str(number)) == DIGITS
        assert number.bit_length() == 186
        assert number >> 184 == 2
        assert (number >> 4) & 0xFFFFFFFF == index == shard_index_of(number)
        assert stored_second_of(number) == second
        assert numbers.owns(number)


@given(index=indexes, other=indexes, created=seconds, later=seconds)
def test_a_shard_owns_only_its_own_numbers(index: int, other: int, created: int, later: int) -> None:
    mine, theirs = SequenceNumbers(index, created), SequenceNumbers(other, later)
    assert mine.owns(theirs.take(later)) == ((index, created) == (other, later))
    assert not mine.owns(0)
    assert not mine.owns(mine.take(created) + 1)


@given(parent=indexes, child=indexes, created=seconds)
def test_a_shard_created_in_a_later_second_starts_after_everything_of_its_parent(
    parent: int, child: int, created: int
) -> None:
    end = SequenceNumbers(parent, created).ending(10**10 - 1)
    assert SequenceNumbers(child, created + 1).starting > end
