"""Runs that overlap, in any order: what is found is what a search of a list finds."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import NamedTuple

import pytest

from kinesis_sdk.common.once.memory import Segment
from kinesis_sdk.common.once.pieces import NO_ARRIVAL, Pieces, add_copy, has_copy
from tests.common.once.steps import steps_of
from tests.fuzz import seeds

LAST = 3 * 4096


class Stored(NamedTuple):
    """A run as a list keeps it."""

    first: int
    last: int
    place: int
    arrival: int


def numbers(rng: Random) -> tuple[int, int]:
    """Draw a run: mostly near others, sometimes across blocks."""
    first = rng.choice([rng.randrange(40), 4096 - rng.randrange(40), rng.randrange(LAST)])
    return first, first + rng.choice([0, 0, rng.randrange(10), rng.randrange(60), rng.randrange(2 * 4096)])


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(unit=30, fuzz=2_000))
def test_pieces_are_found_as_in_a_list(seed: int) -> None:
    rng = Random(seed)
    pieces, stored = Pieces(), list[Stored]()
    place, arrival = 0, 1000
    for _ in range(rng.choice([3, 30])):
        place += rng.choice([0, 1, 5])
        arrival += rng.choice([-700, 0, 1, 900])
        copy = place, rng.choice([arrival, arrival, NO_ARRIVAL])
        first, last = numbers(rng)
        pieces.add(first, last, copy)
        stored.append(Stored(first, last, *copy))
    for _ in range(30):
        wanted, limit = numbers(rng), rng.randrange(place + 3)
        since = rng.choice([0, arrival - 500, arrival, arrival + 1, 10**9])
        parts = [*pieces.parts(wanted, limit, since)]
        assert all(a <= b for a, b in parts)
        assert all(b < c for (_, b), (c, _) in pairwise(parts)), "disjoint and in order"
        assert {number for a, b in parts for number in range(a, b + 1)} == {
            number
            for one in stored
            if one.place < limit and one.arrival >= since
            for number in range(max(one.first, wanted[0]), min(one.last, wanted[1]) + 1)
        }


def test_a_copy_that_answers_nothing_more_is_left_out() -> None:
    copies = [(1, 50)]
    assert not add_copy(copies, (2, 50)), "it arrived no later"
    assert not add_copy(copies, (1, 60)), "at the same place, the later arrival answers for both"
    assert add_copy(copies, (3, 70))
    assert copies == [(1, 60), (3, 70)]
    assert [has_copy(copies, limit, 60) for limit in (1, 2, 3, 4)] == [False, True, True, True]
    assert [has_copy(copies, 9, since) for since in (70, 71)] == [True, False]
    assert not has_copy([], 9, 0)
    pieces = Pieces()
    assert pieces.add(0, 9, (1, 50)) > 0
    assert pieces.add(3, 3, (2, 40)) > 0, "a piece is divided"
    assert pieces.add(3, 3, (3, 40)) == 0


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(unit=30, fuzz=2_000))
def test_a_segment_finds_what_a_search_of_a_list_finds(seed: int) -> None:
    """With re-reads, which ask for what is before a position in the middle, and arrivals that are unknown or out of order."""
    rng = Random(seed)
    segment = Segment()
    runs: list[tuple[bytes, int, int, tuple[int, int], int, bytes]] = []
    names: list[tuple[bytes, tuple[int, int], int]] = []
    contents: dict[bytes, list[tuple[bool, bytes, int, int]]] = {}
    keys = [b"key-%010d" % number for number in range(rng.choice([1, 2]))]
    sequence, at = 100, 1000
    for _ in range(rng.randrange(1, 25)):
        sequence += rng.randrange(1, 3)
        at += rng.choice([-500, 0, 0, 1, 700])
        arrival = None if rng.random() < 0.05 else at
        arrived = NO_ARRIVAL if arrival is None else arrival
        digest = b"%016d" % rng.randrange(rng.choice([6, 10**9]))
        drawn = [
            (rng.random() < 0.3, rng.choice(keys), *(rng.randrange(30), rng.randrange(1, 9)))
            for _ in range(rng.randrange(1, 5))
        ]
        segment.begin(sequence, arrival, digest)
        sub = 0
        for is_name, key, number, count in contents.setdefault(digest, drawn):  # equal bytes, equal tables
            if is_name:
                segment.add_name(key, sub)
                names.append((key, (sequence, sub), arrived))
                sub += 1
            else:
                segment.add_run(key, number, count, sub)
                runs.append((key, number, number + count - 1, (sequence, sub), arrived, digest))
                sub += count
    if rng.random() < 0.5:
        segment.seal()
        if rng.random() < 0.5:
            segment.compress()
    for _ in range(40):
        key, first = rng.choice(keys), rng.randrange(32)
        last = first + rng.randrange(8)
        position = rng.randrange(99, sequence + 3), rng.randrange(6)
        since = rng.choice([0, at - 500, at, at + 1, at + 700, 10**15])
        expected = {
            number
            for of, a, b, where, arrived, _ in runs
            if of == key and where < position and arrived >= since
            for number in range(max(first, a), min(last, b) + 1)
        }
        found = [n for a, b in segment.parts(key, (first, last), *position, since) for n in range(a, b + 1)]
        assert sorted(found) == sorted(expected), "and each number once"
        assert segment.has_name(key, *position, since) == any(
            of == key and where < position and arrived >= since for of, where, arrived in names
        )
        if runs:
            of, a, b, _, _, digest = rng.choice(runs)
            assert segment.has_equal(of, (a, b), position[0], digest) == any(
                one[0] == of and one[3][0] < position[0] and one[5] == digest and one[1] <= b and one[2] >= a
                for one in runs
            )


@pytest.mark.parametrize(
    ("limit", "since", "expected"), [(4000, 3999, True), (4000, 4000, False), (1, 0, True), (0, 0, False)]
)
def test_the_copies_of_a_piece_are_not_walked(limit: int, since: int, expected: bool) -> None:
    copies = [(number, number) for number in range(4000)]
    assert has_copy(copies, limit, since) == expected
    assert steps_of(lambda: has_copy(copies, limit, since)) < 40
