"""Effects per put, counted over random schedules of producers, workers and databases.

``python -m tests.exactly_once`` plays more of them in one process and prints what happened in them; ``--first`` plays a seed that failed alone.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import fuzz
from tests.exactly_once.mutations import MUTATIONS
from tests.exactly_once.schedule import Played, Schedule, play

pytest.importorskip("sqlalchemy")

CHOSEN = (32, 26, 50, 2, 3, 15, 18, 8)
"""Short schedules, in which everything happens that can happen: those of unit tests."""

_played: dict[int, Played] = {}


def play_once(seed: int, folder: Path) -> Played:
    """Play the schedule of a seed, or return what came of it: it would not differ, see `test_a_schedule_replays_exactly`."""
    if seed not in _played:
        _played[seed] = play(seed, folder)
    return _played[seed]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Log nothing: pytest would format each of the many warnings."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", fuzz.seeds(unit=0, fuzz=240) or CHOSEN)
def test_each_put_takes_effect_once(seed: int, tmp_path: Path) -> None:
    play_once(seed, tmp_path)


def test_the_schedules_have_what_they_are_for(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    copies = effects = 0
    for seed in CHOSEN:
        played = play_once(seed, tmp_path)
        counts += played.counts
        for verdict in played.verdicts.values():
            copies += verdict.copies
            effects += verdict.effects

    assert effects > 300
    assert copies > 30, "copies that readers had to recognize"
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
    for seed in (32, 57):
        schedule = Schedule(seed, tmp_path, idempotent=False)
        schedule.play()
        effects = Counter(effect.data for effect in schedule.applications[0].database.effects())
        twice += sum(number > 1 for number in effects.values())
    assert twice > 5


def test_a_schedule_replays_exactly(tmp_path: Path) -> None:
    """Also one in which a worker's first call fails and is repeated after a jittered pause (57)."""
    for seed in (CHOSEN[0], 57):
        first, second = play_once(seed, tmp_path), play(seed, tmp_path)
        assert first == second
