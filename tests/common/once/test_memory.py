"""The memory of a reader: what it finds, since when it is complete, its bounds, and what it costs."""

from __future__ import annotations

import gc
import itertools
import sys
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kinesis_sdk.common.once.budget import MAX_BYTES
from kinesis_sdk.common.once.memory import (
    ANCESTOR,
    CARRIER_BYTES,
    KEPT_MILLIS,
    NEVER,
    Recollection,
    RunMemory,
    Segment,
    _overlapping,
    key_of,
)
from kinesis_sdk.common.once.table import NAMED, REPEAT, Run
from tests import fuzz

KEY = b"producer" + bytes(6)
LATER = b"producer" + b"later!"
DIGEST = bytes(16)
BASE = 10**55
"""Sequence numbers of Kinesis have 56 digits."""


def name(number: int) -> bytes:
    return Random(number).randbytes(14)


def begun(max_bytes: int = MAX_BYTES) -> RunMemory:
    memory = RunMemory(max_bytes)
    memory.since, memory.first = 0, 1
    return memory


def add(memory: RunMemory | Recollection, sequence: int, arrival: int | None, key: bytes = KEY) -> None:
    """Add an aggregate of one run with one record, whose number is its sequence number."""
    memory.begin(sequence, arrival, DIGEST)
    memory.add_run(key, max(sequence, 0), 1, 0)


def numbers(memory: RunMemory, key: bytes = KEY) -> list[int]:
    """Return the numbers of the records that are there."""
    return sorted(first for first, _ in memory.parts(key, (0, 10**9), BASE, 0, -1))


def test_a_mark_does_not_change_the_key_and_a_name_has_no_date() -> None:
    plain = Run(3, 4, 0, b"producer", 5, 100)
    assert key_of(plain) == key_of(plain._replace(flags=REPEAT, number=7)) == b"producer\0\0\0\0\0\5"
    named = Run(1, 4, NAMED, b"producer", 5, 100)
    assert key_of(named) == key_of(named._replace(date=9, flags=NAMED | REPEAT)) == b"producer\0\0\0\0\0\144"


def test_a_name_is_not_a_date_of_the_same_bytes() -> None:
    memory = begun()
    memory.begin(1, 10, DIGEST)
    memory.add_name(KEY, 0)
    assert memory.has_name(KEY, 2, 0, 0)
    assert not memory.has_run(KEY, 0)
    assert numbers(memory) == []


def test_a_copy_counts_that_arrived_at_the_very_beginning_of_the_window() -> None:
    memory = begun()
    for arrival in (1000, 1000 + KEPT_MILLIS // 2, 1000 + KEPT_MILLIS):  # in segments of their own
        memory.begin(arrival, arrival, DIGEST)
        memory.add_name(name(arrival), 0)
        memory.add_run(KEY, arrival, 1, 1)
    assert len(memory._sealed) == 2
    for arrival in (1000, 1000 + KEPT_MILLIS // 2, 1000 + KEPT_MILLIS):
        assert memory.has_name(name(arrival), BASE, 0, arrival)
        assert not memory.has_name(name(arrival), BASE, 0, arrival + 1)
        assert memory.parts(KEY, (arrival, arrival), BASE, 0, arrival) == [(arrival, arrival)]
        assert memory.parts(KEY, (arrival, arrival), BASE, 0, arrival + 1) == []


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("is_compressed", [False, True])
def test_equal_bytes_of_a_name_are_found_before_a_position(is_sealed: bool, is_compressed: bool) -> None:
    segment = Segment()
    for number, arrival in enumerate((50, 60, 70)):
        segment.begin(BASE + 10 * number, arrival, b"%016d" % number)
        segment.add_name(name(1), 3)
    if is_sealed:
        segment.seal()
    if is_compressed:
        segment.compress()

    def is_found(sequence: int, digest: int, key: int = 1) -> bool:
        return segment.has_equal_name(name(key), BASE + sequence, b"%016d" % digest)

    assert [is_found(at, 0) for at in (0, 1, 11, 30)] == [False, True, True, True]
    assert [is_found(at, 1) for at in (10, 11, 20)] == [False, True, True]
    assert [is_found(at, 2) for at in (20, 21)] == [False, True]
    assert not is_found(30, 2, key=2)
    ancestor = Segment()
    ancestor.begin(ANCESTOR, 50, b"%016d" % 0)
    ancestor.add_name(name(1), 0)
    assert not ancestor.has_equal_name(name(1), BASE, b"%016d" % 0)


def test_equal_bytes_are_found_in_the_shard_only() -> None:
    memory = begun()
    memory.begin(5, 10, b"a" * 16)
    memory.add_run(KEY, 1, 3, 0)
    found = Recollection()
    found.begin_shard()
    found.begin(ANCESTOR, 5, b"b" * 16)
    found.add_run(KEY, 1, 3, 0)
    memory.restore(found.finish(), 0, 5)
    assert memory.has_equal(KEY, (1, 3), 6, b"a" * 16)
    assert not memory.has_equal(KEY, (1, 3), 5, b"a" * 16)
    assert not memory.has_equal(KEY, (1, 3), 6, b"b" * 16)
    assert not memory.has_equal(LATER, (1, 3), 6, b"a" * 16)


def test_what_is_forgotten_by_age_raises_both_bounds() -> None:
    memory = begun()
    add(memory, 1, 1000)
    add(memory, 2, 20_000)
    add(memory, 3, 20_000 + KEPT_MILLIS)
    assert (numbers(memory), memory.since, memory.first) == ([2, 3], 1001, 2)
    add(memory, 4, 30_001 + KEPT_MILLIS)
    assert (numbers(memory), memory.since, memory.first) == ([3, 4], 20_001, 3)


def test_what_is_forgotten_for_its_size_raises_both_bounds() -> None:
    memory = begun(1600)
    for number in range(1, 40):
        add(memory, number, 500 - number)  # arrivals need not be in the order of positions
    kept = numbers(memory)
    assert kept == [*range(kept[0], 40)]
    assert 5 < len(kept) < 12
    assert (memory.first, memory.since) == (kept[0], 500)
    assert memory.size <= 1600 + 305, "exceeded by one aggregate at most"


def test_copies_without_arrival_leave_no_bound_behind() -> None:
    memory = begun(1)
    add(memory, 1, None)
    add(memory, 2, None)
    assert memory.since == NEVER


def test_a_look_up_reaches_back() -> None:
    memory = begun()
    memory.since, memory.first = 5000, 7
    add(memory, 7, 5000)
    found = Recollection()
    found.begin_shard()
    add(found, 3, 200)
    found.begin_shard()
    add(found, ANCESTOR, 100)
    memory.restore(found.finish(), 50, 3)
    assert (memory.since, memory.first, numbers(memory)) == (50, 3, [0, 3, 7])
    add(memory, 8, 5000 + 3 * KEPT_MILLIS)
    assert (memory.since, memory.first, numbers(memory)) == (5001, 8, [8])


def test_what_a_look_up_brought_is_forgotten_from_the_oldest_on() -> None:
    memory = begun()
    memory.since, memory.first = 5000, 7
    add(memory, 7, 5000)
    found = Recollection()
    found.begin_shard()
    add(found, 3, 200)
    found.begin_shard()
    add(found, ANCESTOR, 100)
    memory.restore(found.finish(), 50, 3)
    memory.reach(4850, 5000)
    add(memory, 8, 5000 + KEPT_MILLIS)
    assert (memory.since, memory.first, numbers(memory)) == (101, 3, [3, 7, 8])


def test_an_aggregate_may_be_equal_to_one_that_a_look_up_brought() -> None:
    memory = begun()
    memory.since, memory.first = 5000, 7
    add(memory, 7, 5000, LATER)
    found = Recollection()
    found.begin_shard()
    add(found, 6, 9000)  # arrivals need not be in the order of positions
    memory.restore(found.finish(), 50, 6)
    assert not memory.add_single(8, 9100, DIGEST, KEY, 6, 1, 8000)
    assert memory.add_single(9, 9100, DIGEST, KEY, 6, 1, 9001)


def test_a_look_up_that_does_not_fit_keeps_the_newest() -> None:
    memory = begun(2000)
    memory.since, memory.first = 5000, 90
    add(memory, 90, 5000)
    found = Recollection(memory.room)
    found.begin_shard()
    for number in range(3, 90):
        add(found, number, number)
    memory.restore(found.finish(), found.since or 0, found.first or 3)
    kept = numbers(memory)
    assert kept == [*range(kept[0], 91)]
    assert len(kept) > 3
    assert (memory.first, memory.since) == (kept[0], kept[0])


def test_a_memory_that_is_full_has_no_room() -> None:
    memory = begun(2000)
    assert memory.room == 2000
    for number in range(1, 40):
        add(memory, number, number)
    assert memory.room == 0


def test_suspects_from_far_back_keep_the_memory_for_longer() -> None:
    memory = begun()
    add(memory, 1, 0)
    memory.reach(300_000, 300_000)
    add(memory, 2, 300_000)
    assert numbers(memory) == [1, 2]
    memory.reach(10_000, 330_000)  # nearer ones in between do not shorten that
    memory.reach(160_000, 331_000)
    add(memory, 3, 355_000)
    assert numbers(memory) == [1, 2, 3]
    add(memory, 4, 400_001 + KEPT_MILLIS)  # unused for a minute
    assert numbers(memory) == [3, 4][1:]


def test_a_recollection_is_in_the_order_of_the_path() -> None:
    found = Recollection()
    found.begin_shard()
    add(found, 8, 80)
    add(found, 9, 90)
    found.begin_shard()
    add(found, ANCESTOR, 40)
    assert [(len(one), one.newest) for one in found.finish()] == [(1, 40), (2, 90)]
    assert (found.since, found.first) == (None, None)


def test_a_recollection_leaves_the_oldest_out() -> None:
    found = Recollection(2000)
    found.begin_shard()
    for number in range(1, 50):
        add(found, number, number * 10)
    found.begin_shard()
    add(found, ANCESTOR, 5)
    segments = found.finish()
    assert segments[-1].newest == 490
    assert sum(one.size for one in segments) <= 2000
    kept = sum(len(one) for one in segments if one.last != ANCESTOR)
    assert (found.first, found.since) == (50 - kept, 491 - kept * 10)


# Random contents: the memory finds what a list finds


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", fuzz.seeds(unit=12, fuzz=1000))
def test_it_finds_what_a_search_of_a_list_finds(seed: int) -> None:
    rng = Random(seed)
    memory = RunMemory(rng.choice((1, 3000, 20_000, 10**7)))
    memory.since, memory.first = 0, 0
    names = [name(number) for number in range(rng.choice((1, 5, 300)))]
    every: list[tuple[int, int, int, bytes, int, int]] = []  # sequence, sub, arrival, key, number, count
    sequence, arrival = BASE, 1_700_000_000_000
    for _ in range(rng.choice((30, 400))):
        sequence += rng.randrange(1, 5) << 76
        arrival += rng.choice((-900, 0, 5, 800, 3000))
        memory.begin(sequence, arrival, DIGEST)
        sub = 0
        for _ in range(rng.randrange(1, 6)):
            if rng.random() < 0.5:
                key = rng.choice(names)
                memory.add_name(key, sub)
                every.append((sequence, sub, arrival, key, -1, 1))
                sub += 1
            else:
                key, number, count = rng.choice((KEY, LATER)), rng.randrange(60), rng.randrange(1, 9)
                memory.add_run(key, number, count, sub)
                every.append((sequence, sub, arrival, key, number, count))
                sub += count
        if rng.random() < 0.05:
            memory.reach(rng.randrange(200_000), arrival)
    for _ in range(200):
        at, at_sub, at_arrival, *_ = rng.choice(every)
        at_sub, since = at_sub + rng.choice((0, 1)), at_arrival - rng.randrange(60_000)
        if since < memory.since:
            continue
        before = [one for one in every if one[:2] < (at, at_sub) and one[2] >= since]
        key = rng.choice(names)
        assert memory.has_name(key, at, at_sub, since) == any(one[3] == key and one[4] < 0 for one in before)
        first = rng.randrange(60)
        wanted = first, first + rng.randrange(9)
        found = {
            n for low, high in memory.parts(KEY, wanted, at, at_sub, since) for n in range(low, high + 1)
        }
        assert found == {
            n
            for one in before
            if one[3] == KEY and one[4] >= 0
            for n in range(max(first, one[4]), min(wanted[1] + 1, one[4] + one[5]))
        }


# Costs

NAMES = 24_000 if fuzz.TIMES else 6_000
"""Names of a memory that is measured. Its limit grows with them, so that as many are compressed or forgotten."""


def filled(fill: Callable[[RunMemory], None], max_bytes: int) -> tuple[RunMemory, int]:
    """Return a memory after it was filled, and the bytes that it really takes."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        memory = RunMemory(max_bytes)
        memory.since, memory.first = 0, 0
        fill(memory)
        gc.collect()
        return memory, tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def names_of(count: int, each: int) -> Callable[[RunMemory], None]:
    def fill(memory: RunMemory) -> None:
        rng = Random(1)
        memory.reach(900_000, 0)
        for index in range(count // each):
            memory.begin(BASE + (index << 76), index, rng.randbytes(16))
            for sub in range(each):
                memory.add_name(rng.randbytes(14), sub)

    return fill


def runs_of(count: int) -> Callable[[RunMemory], None]:
    def fill(memory: RunMemory) -> None:
        rng = Random(1)
        memory.reach(900_000, 0)
        for index in range(count):
            memory.begin(BASE + (index << 76), index, rng.randbytes(16))
            memory.add_run(b"producer" + index.to_bytes(6, "big"), 10**9 + 100 * index, 100, 0)

    return fill


def overlaps_of(count: int, numbers: int, length: int) -> Callable[[RunMemory], None]:
    """Runs that nobody but an attacker writes: with one key, in any order, each later than those before."""

    def fill(memory: RunMemory) -> None:
        rng = Random(1)
        memory.reach(900_000, 0)
        for index in range(count // 10):
            memory.begin(BASE + (index << 76), index, rng.randbytes(16))
            for sub in range(10):
                memory.add_run(KEY, rng.randrange(numbers), length, sub * length)

    return fill


FILLS = [
    names_of(NAMES, 1),
    names_of(NAMES, 10),
    runs_of(NAMES * 2 // 3),
    overlaps_of(NAMES // 4, 1 << 30, 1),
    overlaps_of(NAMES // 2, 3000, 1),
    overlaps_of(NAMES // 20, 3000, 300),
]


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("fill", "max_bytes"), fuzz.share(itertools.product(FILLS, [1 << 30, 70 * NAMES]), unit=6)
)
def test_its_size_is_estimated(fill: Any, max_bytes: int) -> None:
    memory, real = filled(fill, max_bytes)
    if sys.version_info >= (3, 11):  # the size of a dict's entries differs before
        assert 0.7 * real < memory.size < 1.5 * real
    assert real < 1.25 * max_bytes


@pytest.mark.fuzz
@pytest.mark.parametrize(("each", "at_most"), [(1, 100), (10, 55), (100, 45)])
def test_a_name_takes_few_bytes_once_memory_is_short(each: int, at_most: int) -> None:
    memory, real = filled(names_of(NAMES, each), NAMES * (CARRIER_BYTES // each + 33) * 8 // 7)
    assert len(memory) == NAMES, "nothing was forgotten"
    assert real / len(memory) < 1.25 * at_most, "the newest ones are not compressed yet"
    for segment in [*memory._sealed, memory._open]:
        segment.seal()
        if not segment.is_compressed:
            segment.compress()
    assert sum(segment.size for segment in [*memory._sealed, memory._open]) / NAMES < at_most


def test_the_copies_of_one_name_are_not_searched_one_by_one() -> None:
    """An application that puts one name without pause: each copy is compared with the latest one before it."""
    memory = begun()
    looked = 0

    class Counting(list[int]):
        def __getitem__(self, index: Any) -> Any:
            nonlocal looked
            looked += 1
            return super().__getitem__(index)

    for sequence in range(2000):
        memory.begin(sequence, sequence, DIGEST)
        memory.add_name(name(1), 0)
    segment = memory._open
    segment._several[name(1)] = Counting(segment._several[name(1)])
    for sequence in range(1, 2000):
        assert memory.has_name(name(1), sequence, 0, sequence - 1)
    assert looked <= 15 * 2000, "the steps of a bisection, and one copy"
    looked = 0
    for sequence in range(1, 2000):
        assert not memory.has_equal_name(name(1), sequence, 0, b"another digest..")
    assert looked <= 15 * 2000, "the same"


def test_the_runs_of_one_date_are_not_searched_one_by_one() -> None:
    """A request has up to 500 aggregates, all of one date."""
    memory = begun()
    for sequence in range(500):
        memory.begin(sequence, sequence, DIGEST)
        memory.add_run(KEY, sequence * 10, 10, 0)
    segment = memory._open
    known = segment._runs[KEY]
    assert isinstance(known, list)
    looked = [len([*_overlapping(known, (n * 10, n * 10 + 9))]) for n in range(500)]
    assert looked == [1] * 500
