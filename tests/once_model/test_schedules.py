"""Random schedules of the real producer and the real rules of readers: what is delivered are the first valid copies."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import how_many
from tests.once_model.simulated import Outcome, play

Draw = Callable[[Random], "float | None"]


def check(outcome: Outcome) -> None:
    """Nothing acknowledged is lost, whatever the clocks show, and no first valid copy is dropped."""
    for name in outcome.acknowledged:
        assert outcome.delivered.get(name), f"{name!r} was acknowledged and is lost"
    for name, positions in outcome.expected.items():
        assert positions <= outcome.delivered.get(name, set()), f"the first valid copy of {name!r} is dropped"


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=25, fuzz=1000))
@given(seed=st.integers(0, 2**63))
def test_each_record_is_delivered_at_its_first_valid_copy(seed: int) -> None:
    outcome = play(seed)

    check(outcome)
    assert outcome.delivered == {name: found for name, found in outcome.expected.items() if found}
    for name in outcome.idempotent:
        assert len(outcome.delivered.get(name, ())) <= 1


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=10, fuzz=250))
@given(seed=st.integers(0, 2**63))
@pytest.mark.parametrize(
    "draw",
    [
        lambda random: -random.uniform(0, 1.5),
        lambda random: -random.uniform(0, 60),
        lambda random: None,
    ],
    ids=["low", "a-minute-low", "no-date"],
)
def test_a_clock_that_is_behind_changes_nothing(draw: Draw, seed: int) -> None:
    outcome = play(seed, date_offset=draw)

    check(outcome)
    assert outcome.delivered == {name: found for name, found in outcome.expected.items() if found}


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=10, fuzz=250))
@given(seed=st.integers(0, 2**63))
def test_a_clock_that_is_ahead_loses_nothing(seed: int) -> None:
    check(play(seed, date_offset=lambda random: random.uniform(2, 120)))


def test_the_schedules_store_records_twice_and_a_clock_ahead_shows_them() -> None:
    repeated = sum(play(seed).repeated > 0 for seed in range(12))
    ahead = (play(seed, date_offset=lambda _: 60.0, only_late=True) for seed in range(60))

    assert repeated > 2, "lost responses and late writes make copies"
    twice = any(len(outcome.delivered.get(name, ())) > 1 for outcome in ahead for name in outcome.idempotent)
    assert twice, "dates that are too late hide a late original, as documented"
