"""Effects per put, counted over random schedules of producers, workers and databases.

``KINESIS_SDK_EXACTLY_ONCE`` is the number of schedules; `make fuzz` plays 10,000. ``KINESIS_SDK_FIRST_EXACTLY_ONCE`` is the first seed, so that a
seed that failed can be played alone. ``python -m tests.exactly_once`` plays them in one process and prints what happened in them.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exactly_once.mutations import MUTATIONS
from tests.exactly_once.schedule import Played, Schedule, play

pytest.importorskip("sqlalchemy")

SCHEDULES = int(os.environ.get("KINESIS_SDK_EXACTLY_ONCE", "16"))
FIRST = int(os.environ.get("KINESIS_SDK_FIRST_EXACTLY_ONCE", "0"))
PER_TEST = 8
"""Schedules of one test."""

LOOKED_AT = 12
"""Schedules of which one test counts what happened in them; mostly, another test has played them before in the same process."""

_played: dict[int, Played] = {}


def play_once(seed: int, folder: Path) -> Played:
    """Play the schedule of a seed, or return what came of it: it would not differ, see `test_a_schedule_replays_exactly`."""
    if seed in _played:
        return _played[seed]
    played = play(seed, folder)
    if seed < LOOKED_AT:
        _played[seed] = played
    return played


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Log nothing: pytest would format each of the many warnings."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(FIRST, FIRST + SCHEDULES, PER_TEST))
def test_each_put_takes_effect_once(first: int, tmp_path: Path) -> None:
    for seed in range(first, min(first + PER_TEST, FIRST + SCHEDULES)):
        try:
            play_once(seed, tmp_path)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_schedules_have_what_they_are_for(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    copies = effects = 0
    for seed in range(LOOKED_AT):
        played = play_once(seed, tmp_path)
        counts += played.counts
        for verdict in played.verdicts.values():
            copies += verdict.copies
            effects += verdict.effects

    assert effects > 300
    assert copies > 50, "copies that readers had to recognize"
    for name in (
        "kills",
        "freezes",
        "killed while frozen",
        "commits refused",
        "lost answers of effects",
        "lost answers of leases",
        "calls in an outage of the effects",
        "calls in an outage of the leases",
        "reads of look-ups",
        "reads restarted in a look-up",
        "applications with fan-out",
        "leases set back",
        "finished leases set back",
        "lease tables restored",
        "splits",
        "merges",
        "producers, idempotent",
        "producers, ordered",
        "producers, plain",
        "producers killed",
        "records put again from a spool",
        "names put again",
    ):
        assert counts[name], name


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_oracle_finds_a_defect(name: str, tmp_path: Path) -> None:
    """Seeds are tried from one that is known to find it, so that this is quick until the schedules change."""
    mutation = MUTATIONS[name]
    with mutation.made():
        for seed in range(mutation.first_seed, mutation.first_seed + 300):
            try:
                play(seed, tmp_path)
            except AssertionError as error:
                assert str(error).startswith(mutation.finding), f"seed {seed}: {error}"
                return
    pytest.fail("not found")


def test_without_idempotent_producers_records_take_effect_twice(tmp_path: Path) -> None:
    """The baseline: the same schedules with plain producers store copies, and each copy has its effect."""
    twice = 0
    for seed in range(6):
        schedule = Schedule(seed, tmp_path, idempotent=False)
        schedule.play()
        effects = Counter(effect.data for effect in schedule.applications[0].database.effects())
        twice += sum(number > 1 for number in effects.values())
    assert twice > 5


def test_a_schedule_replays_exactly(tmp_path: Path) -> None:
    """Also one in which a worker's first call fails and is repeated after a jittered pause (57)."""
    for seed in (3, 57):
        first, second = play(seed, tmp_path), play(seed, tmp_path)
        assert first == second
