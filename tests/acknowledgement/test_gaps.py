"""The gap map: what is received, acknowledged and stored, in any order, and what a hostile state may be."""

from __future__ import annotations

import json
import random
import zlib

import pytest

from kinesis_sdk.acknowledgement.gaps import GapMap
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber

BASE = ExtendedSequenceNumber(TRIM_HORIZON)


def at(number: int, sub: int = 0) -> ExtendedSequenceNumber:
    return ExtendedSequenceNumber(str(number), sub)


def filled(*numbers: int, most: int = 10) -> GapMap:
    gaps = GapMap(most)
    for number in numbers:
        assert gaps.receive(at(number))
    return gaps


def test_the_watermark_is_behind_the_oldest_gap() -> None:
    gaps = filled(1, 2, 3, 4)
    assert gaps.watermark is None
    gaps.acknowledge(at(3))
    gaps.acknowledge(at(2))
    assert (gaps.watermark, gaps.unacknowledged, gaps.oldest) == (None, 2, at(1))
    gaps.acknowledge(at(1))
    assert (gaps.watermark, gaps.is_complete) == (at(3), False)
    gaps.acknowledge(at(4))
    gaps.acknowledge(at(4))
    assert (gaps.watermark, gaps.is_complete, gaps.oldest) == (at(4), True, None)


def test_a_record_comes_again_only_if_the_function_gave_it_back() -> None:
    gaps = filled(1, 2, 3)
    gaps.acknowledge(at(1))
    gaps.give_back(at(2))
    assert [gaps.receive(at(n)) for n in (1, 2, 3)] == [False, True, False]
    assert not gaps.receive(at(2)), "it is in the function's hands"
    gaps.acknowledge(at(2))
    gaps.give_back(at(2))
    assert not gaps.receive(at(2)), "it was acknowledged before its function raised"


def test_it_is_full_at_its_bound() -> None:
    gaps = filled(1, 2, most=2)
    assert [gaps.has_room(at(n)) for n in (1, 2, 3)] == [True, True, False]
    gaps.acknowledge(at(2))
    assert gaps.has_room(at(3))


def test_what_was_set_aside_does_not_come_again_and_keeps_nothing_open() -> None:
    gaps = filled(1, 2, 3, 4)
    for number in (2, 3):
        gaps.give_back(at(number))
    gaps.pass_over(at(3), itself=False)
    gaps.acknowledge(at(1))
    assert (gaps.watermark, gaps.unacknowledged) == (at(2), 2)
    gaps.pass_over(at(4), itself=True)
    assert (gaps.watermark, gaps.oldest) == (at(3), at(4)), "the function holds the last one"
    heir = GapMap(10)
    assert heir.restore(filled(1, 2, 3).to_state(BASE), BASE)
    heir.pass_over(at(2), itself=False)  # an operator left it out before the function got it
    assert [heir.receive(at(n)) for n in (2, 3)] == [True, True]
    heir.acknowledge(at(2))
    heir.acknowledge(at(3))
    assert heir.is_complete


def test_the_next_owner_gets_what_is_not_acknowledged() -> None:
    gaps = filled(1, 2, 3, 4, 5)
    for number in (1, 3, 5):
        gaps.acknowledge(at(number))
    assert gaps.watermark == at(1)
    heir = GapMap(10)
    assert heir.restore(gaps.to_state(at(1)), at(1))
    assert not heir.is_complete
    assert [n for n in range(2, 8) if heir.receive(at(n))] == [2, 4, 6, 7]
    assert heir.watermark is None
    heir.acknowledge(at(2))
    assert heir.watermark == at(3)


def test_a_state_that_was_not_read_to_its_end_is_passed_on() -> None:
    gaps = filled(1, 2, 3, 4, 5)
    for number in (3, 5):
        gaps.acknowledge(at(number))
    second = GapMap(10)
    assert second.restore(gaps.to_state(BASE), BASE)
    assert second.receive(at(1))
    second.acknowledge(at(1))
    third = GapMap(10)
    assert third.restore(second.to_state(at(1)), at(1))
    assert [n for n in range(2, 7) if third.receive(at(n))] == [2, 4, 6]


def test_a_state_of_another_checkpoint_is_not_used() -> None:
    gaps = filled(1, 2)
    gaps.acknowledge(at(2))
    heir = GapMap(10)
    assert not heir.restore(gaps.to_state(at(7)), at(6))
    assert heir.receive(at(2))


def test_any_order_of_acknowledgements_and_restarts_delivers_each_record_until_it_is_acknowledged() -> None:
    for seed in range(5):
        rng = random.Random(seed)
        records = [at(n // 3, n % 3) for n in range(60)]
        gaps, base, done, held = GapMap(12), BASE, set(), []
        place = 0
        for _ in range(400):
            if rng.random() < 0.5 and place < len(records) and gaps.has_room(records[place]):
                if gaps.receive(records[place]):
                    assert records[place] not in done
                    held.append(records[place])
                else:
                    assert records[place] in done
                place += 1
            elif held and rng.random() < 0.9:
                one = held.pop(rng.randrange(len(held)))
                gaps.acknowledge(one)
                done.add(one)
            else:  # another owner
                base = gaps.watermark or base
                state = None if gaps.is_complete else gaps.to_state(base)
                gaps, held = GapMap(12), []
                assert state is None or gaps.restore(state, base)
                place = next(
                    (n for n, one in enumerate(records) if base.is_sentinel or one > base), len(records)
                )
        assert done >= set(records[: records.index(gaps.watermark) + 1] if gaps.watermark else [])


def packed(item: object) -> bytes:
    return zlib.compress(json.dumps(item).encode())


GOOD = {"v": 1, "base": str(BASE), "end": "5/0", "left": ["2/0"]}


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"{}",
        packed([]),
        packed({**GOOD, "v": 2}),
        packed({**GOOD, "end": 5}),
        packed({**GOOD, "end": "TRIM_HORIZON/0"}),
        packed({**GOOD, "left": "2/0"}),
        packed({**GOOD, "left": ["2/x"]}),
        packed({**GOOD, "left": ["2/0"] * 2_001}),
        packed(GOOD)[:-3],
        zlib.compress(b" " * 600_000),
        zlib.compress(b"[" * 100_000),
    ],
)
def test_a_state_that_is_not_one_is_refused(state: bytes) -> None:
    with pytest.raises(ValueError, match=r"not|too long"):
        GapMap(10).restore(state, BASE)
    assert GapMap(10).restore(packed(GOOD), BASE)
