"""How `make effects` judges a run, and paces it."""

from __future__ import annotations

import pytest

from integration.effects.account import Verdict, due, judge
from kinesis_sdk.testing.accounting.stored_copies import CopyPosition, StoredCopy


def copy(number: int, sequence: int, *, idempotent: bool, valid: bool = True) -> StoredCopy:
    place = CopyPosition("shardId-000000000000", sequence, 0)
    return StoredCopy(place, 0.0, str(number).encode(), idempotent, valid)


def name(sequence: int) -> str:
    return f"s/shardId-000000000000/{sequence}/0"


# Put 0 is idempotent and stored three times, first where it does not belong; put 1 is plain and stored twice.
COPIES = [
    copy(0, 10, idempotent=True, valid=False),
    copy(0, 11, idempotent=True),
    copy(1, 12, idempotent=False),
    copy(0, 13, idempotent=True),
    copy(1, 14, idempotent=False),
]
RIGHT = {name(11): 1, name(12): 1, name(14): 1}


@pytest.mark.parametrize(
    ("changes", "lost", "twice"),
    [
        pytest.param({name(12): 2}, 0, 1, id="a copy took effect twice"),
        pytest.param({name(13): 1}, 0, 1, id="a second copy of an idempotent put took effect"),
        pytest.param({name(10): 1}, 0, 1, id="a misplaced copy of an idempotent put took effect"),
        pytest.param({name(14): 0}, 1, 0, id="a copy of a plain put took no effect"),
        pytest.param({name(11): 0, name(13): 1}, 1, 1, id="the wrong copy of an idempotent put took effect"),
    ],
)
def test_what_is_wrong_is_counted(changes: dict[str, int], lost: int, twice: int) -> None:
    effects = {one: number for one, number in {**RIGHT, **changes}.items() if number}
    assert judge(due("s", COPIES), effects, [0, 1]) == Verdict(lost, twice)


def test_an_acknowledged_put_that_is_not_in_the_stream_is_lost() -> None:
    assert judge(due("s", COPIES), RIGHT, [0, 1, 2]) == Verdict(lost=1, twice=0)
    only_misplaced = due("s", COPIES[:1])
    assert judge(only_misplaced, {}, [0]) == Verdict(lost=1, twice=0)
    assert judge(only_misplaced, {}, []) == Verdict(lost=0, twice=0)
