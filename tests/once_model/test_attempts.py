"""Every schedule of a row that is written by two tasks: it is delivered once, and each rule that is left out has a counterexample."""

from __future__ import annotations

from collections import Counter

import pytest

from tests import fuzz
from tests.once_model.attempts import Rules, play, schedules

SCHEDULES = fuzz.share(schedules(), unit=2_500)


def deliveries(rules: Rules) -> Counter[int]:
    return Counter(times for schedule in SCHEDULES for times in play(schedule, rules))


@pytest.mark.fuzz
@pytest.mark.parametrize("rules", [Rules(), Rules(marks_first=False)], ids=["first", "named"])
def test_a_row_is_delivered_once_whatever_its_attempts_do(rules: Rules) -> None:
    assert set(deliveries(rules)) == {1}


@pytest.mark.fuzz
@pytest.mark.parametrize(
    "rules",
    [
        Rules(dates_batch=False),
        Rules(waits=False),
        Rules(keeps_own=False),
        Rules(counts_attempts=False),
        Rules(late_is_suspect=False),
    ],
    ids=[
        "dated-when-sent",
        "no-wait",
        "a-longer-claim-than-its-own-hold-off",
        "a-stage-that-runs-again",
        "late-copies-are-not-looked-up",
    ],
)
def test_without_a_rule_it_comes_twice_and_is_never_lost(rules: Rules) -> None:
    found = deliveries(rules)
    assert found[0] == 0
    assert sum(count for times, count in found.items() if times > 1) > len(SCHEDULES) / 500
