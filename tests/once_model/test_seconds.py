"""The constants in seconds: nothing twice with clocks that are right or low, nothing lost with any clock."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.fuzz import how_many
from tests.once_model.seconds import Conditions, Constants, Outcome, play

SCHEDULES = how_many(unit=1_000, fuzz=30_000)
SPECIFIED = Constants()


def _play(constants: Constants, conditions: Conditions, schedules: int = SCHEDULES) -> Counter[Outcome]:
    random = Random(7)
    return Counter(play(random, constants, conditions) for _ in range(schedules))


def _twice(outcomes: Counter[Outcome]) -> int:
    return sum(
        count for outcome, count in outcomes.items() if outcome.delivered > 1 and not outcome.begun_anew
    )


def _lost(outcomes: Counter[Outcome]) -> int:
    return sum(count for outcome, count in outcomes.items() if outcome.acknowledged and not outcome.delivered)


@pytest.mark.fuzz
@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(),
        Conditions(clock_low=1.5),
        Conditions(clock_low=60),
        Conditions(clock_low=1.5, pause=120, patience=900, attempts=12, latest=290),
    ],
    ids=["right", "low", "a minute low", "outage"],
)
def test_with_a_clock_that_is_not_ahead_each_record_is_delivered_once(conditions: Conditions) -> None:
    outcomes = _play(SPECIFIED, conditions)

    assert _twice(outcomes) == _lost(outcomes) == 0
    # The schedules are such that something could have gone wrong.
    assert outcomes[Outcome(delivered=1, acknowledged=True, begun_anew=False)] > SCHEDULES / 4


@pytest.mark.parametrize(
    ("constants", "conditions"),
    [
        (Constants(dates=False), Conditions(clock_low=1.5)),
        (Constants(waits=False), Conditions()),
        (Constants(marks=False), Conditions(clock_ahead=2)),
        (Constants(margin=0), Conditions()),
        (SPECIFIED, Conditions(clock_ahead=60)),
        (SPECIFIED, Conditions(clock_ahead=6)),
    ],
    ids=["no-dates", "no-hold-off", "no-marks", "no-margin", "a-minute-ahead", "ahead"],
)
def test_without_a_rule_or_with_a_clock_ahead_records_come_twice_and_none_is_lost(
    constants: Constants, conditions: Conditions
) -> None:
    random = Random(7)
    outcomes: Counter[Outcome] = Counter()
    while not _twice(outcomes) and outcomes.total() < 100_000:
        outcomes.update(play(random, constants, conditions) for _ in range(1_000))

    assert _twice(outcomes) > 0
    assert _lost(outcomes) == 0


def test_a_record_is_begun_anew_only_when_it_is_too_old_to_be_repeated() -> None:
    short = _play(SPECIFIED, Conditions())
    long = _play(SPECIFIED, Conditions(pause=120, patience=900, attempts=12))

    assert not any(outcome.begun_anew for outcome in short)
    assert any(outcome.begun_anew for outcome in long)


def test_the_limit_of_a_look_up_covers_the_age_until_which_a_record_is_repeated() -> None:
    long = Conditions(pause=120, patience=900, attempts=12)

    assert _twice(_play(Constants(limit=120), long)) > 0
