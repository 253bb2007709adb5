"""Sizes of the families of tests: a share of the cases runs as unit tests, all of them in `make fuzz`.

A family is one rule that is tried at every step of something, with many seeds, or in many sizes. The share must be large enough to
notice every mutant of `tests/mutants/` that the family alone notices (`make mutants`).

``KINESIS_SDK_FUZZ`` is set by `make fuzz`: 1 for all cases, 40 for forty times as many random ones. pytest then runs nothing but what has the
marker ``fuzz``. ``KINESIS_SDK_FUZZ_SEED`` is the first seed, and the one of Hypothesis: a run with the same one tries the same cases again,
and one with another tries new ones. Without it (0) the cases are those of `make test-all`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

TIMES = int(os.environ.get("KINESIS_SDK_FUZZ", "0"))
"""Zero for unit tests."""
FIRST_SEED = int(os.environ.get("KINESIS_SDK_FUZZ_SEED", "0")) if TIMES else 0
"""Zero for unit tests, whose cases are always the same."""


def how_many(*, unit: int, fuzz: int) -> int:
    """Return how many random cases to try, for a loop or for ``max_examples``."""
    return fuzz * TIMES if TIMES else unit


def seeds(*, unit: int, fuzz: int) -> range:
    """Return the seeds of random cases."""
    return range(FIRST_SEED, FIRST_SEED + how_many(unit=unit, fuzz=fuzz))


def share(cases: Iterable[T], *, unit: int) -> list[T]:
    """Return all cases when fuzzing, else this many of them, evenly spaced, with the first and the last one."""
    cases = list(cases)
    if TIMES or unit >= len(cases):
        return cases
    if unit == 1:
        return cases[:1]
    return [cases[round(index * (len(cases) - 1) / (unit - 1))] for index in range(unit)]
