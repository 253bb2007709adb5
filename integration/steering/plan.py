"""Random operations on a live application, from a seed, with the disturbances before them. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "rewind to a time",
    "rewind to the horizon",
    "rewind to a record",
    "skip to LATEST",
    "skip to a time",
    "skip to a record",
    "release",
    "move",
    "swap",
    "pin",
    "unpin",
    "drain",
    "undrain",
    "export",
    "import",
]
Disturbance = Literal["split", "merge", "kill", "freeze", "stop"]

DECK: tuple[Kind, ...] = (
    *("rewind to a time",) * 4,
    "rewind to the horizon",
    "rewind to a record",
    "skip to LATEST",
    "skip to LATEST",
    "skip to a time",
    "skip to a record",
    "release",
    "release",
    "move",
    "swap",
    "pin",
    "unpin",
    "drain",
    "undrain",
    "export",
    "import",
)
"""Operations in their proportions. A whole deck is used up before it is shuffled again, so that none is missing."""

_DISTURBANCES: tuple[Disturbance, ...] = (
    "split",
    "split",
    "merge",
    "merge",
    "kill",
    "freeze",
    "freeze",
    "stop",
)
_SHORTEST, _LONGEST = 0.2, 2.5
_REACH = (3.0, 45.0)


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        number: From 1 on.
        kind: What the operator does.
        choice: From 0 to 1: which shard, worker or record.
        other: From 0 to 1: a second choice.
        reach: Seconds to look back, for times.
        several: Whether it concerns all shards, if that is possible.
        waits: Whether the operator waits until owners act on it.
        pause: Seconds to wait before it.
        disturbance: What happens to the fleet just before it; None for nothing.
        lasts: Seconds that a freeze lasts, or until a successor is started.
    """

    number: int
    kind: Kind
    choice: float
    other: float
    reach: float
    several: bool
    waits: bool
    pause: float
    disturbance: Disturbance | None
    lasts: float

    def __str__(self) -> str:
        before = f" after a {self.disturbance}" if self.disturbance else ""
        return f"{self.number}: {self.kind}{before}"


def make_operations(
    seed: int,
    count: int,
    *,
    failover_time: float,
    deck: Sequence[Kind] = DECK,
    disturbances: Sequence[Disturbance] = _DISTURBANCES,
    disturbed: float = 0.35,
) -> list[Operation]:
    """Return operations in order. For one seed they are always the same, and a longer list begins with the shorter one.

    Args:
        seed: The seed.
        count: Number of operations.
        failover_time: The workers', in seconds; freezes are sometimes shorter and mostly longer.
        deck: Operations to choose from; shuffled, and again when it is used up.
        disturbances: What can happen to the fleet; chosen in the same way.
        disturbed: Fraction of the operations that a disturbance precedes.
    """
    rng = random.Random(seed)
    kinds: list[Kind] = []
    faults: list[Disturbance] = []
    result = []
    for number in range(1, count + 1):
        if not kinds:
            kinds = rng.sample(list(deck), len(deck))
        disturbance: Disturbance | None = None
        if disturbances and rng.random() < disturbed:
            if not faults:
                faults = rng.sample(list(disturbances), len(disturbances))
            disturbance = faults.pop()
        result.append(
            Operation(
                number=number,
                kind=kinds.pop(),
                choice=rng.random(),
                other=rng.random(),
                reach=rng.uniform(*_REACH),
                several=rng.random() < 0.4,
                waits=rng.random() < 0.5,
                pause=rng.uniform(_SHORTEST, _LONGEST),
                disturbance=disturbance,
                lasts=failover_time * rng.uniform(0.4, 2.0)
                if disturbance == "freeze"
                else rng.uniform(0.0, failover_time),
            )
        )
    return result
