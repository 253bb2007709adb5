"""Results of a run: the facts of each step, and their differences from the fake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["same", "differs", "passed", "failed", "stopped"]
"""``same`` and ``differs``: a script, compared with the fake. ``passed`` and ``failed``: facts that must hold, or an error.
``stopped``: the run ended before the step."""

ABSENT = "(no such fact)"


@dataclass(frozen=True)
class Difference:
    """A fact that differs from the expected value.

    Attributes:
        fact: Its name.
        expected: Value of the fact on the fake, or the value that it must have.
        found: Its value here.
    """

    fact: str
    expected: Any
    found: Any


@dataclass(frozen=True)
class StepResult:
    """Result of a step.

    Attributes:
        name: Name of the step.
        status: How it ended.
        seconds: Time that it took.
        facts: All facts by name.
        differences: Facts that differ from their expected values.
        problem: Reason why the step failed or stopped; empty otherwise.
    """

    name: str
    status: Status
    seconds: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Cost:
    """Maximum costs of a run.

    Attributes:
        usd: US dollars by the table of prices, times the factor of the region.
        max_usd: Amount at which the run would have stopped.
        units: Billed units, by the names of the table of prices.
        calls: Counted calls, by operation; the calls of journeys are only included in the units.
    """

    usd: float
    max_usd: float
    units: Mapping[str, float]
    calls: Mapping[str, int]


@dataclass(frozen=True)
class Report:
    """Results of a run in a form that can be published: without account numbers, ARNs, payloads and names.

    Attributes:
        service: ``aws``, ``endpoint`` for another endpoint, or ``fake``.
        region: Region.
        date: Day of the run, in UTC.
        versions: Versions of kinesis-sdk, Python, boto3 and botocore.
        complete: Whether all chosen steps ran to their end.
        removed: Number of streams and tables that were created and then removed.
        left: Number of streams and tables that still exist.
        steps: Results, in the order of the run.
        cost: Cost of the run.
    """

    service: Literal["aws", "endpoint", "fake"]
    region: str
    date: str
    versions: Mapping[str, str]
    complete: bool
    removed: int
    left: int
    steps: tuple[StepResult, ...]
    cost: Cost

    @property
    def passed(self) -> bool:
        """Whether every step ended, every required fact was true, and no stream or table is left.

        Differences from the fake do not count.
        """
        bad = any(step.status in ("failed", "stopped") for step in self.steps)
        return self.complete and not bad and not self.left


def judge(facts: Mapping[str, Any], expected: Mapping[str, Any], *, exact: bool) -> tuple[Difference, ...]:
    """Return the facts that differ from their expected values. Unless ``exact``, facts without an expectation are fine."""
    names = dict.fromkeys([*expected, *(facts if exact else ())])
    pairs = [(name, expected.get(name, ABSENT), facts.get(name, ABSENT)) for name in names]
    return tuple(Difference(name, wanted, found) for name, wanted, found in pairs if wanted != found)
