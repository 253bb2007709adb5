"""Plan of a soak: random actions and their times, from a seed. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from integration.endtoend.fault_plan import WIRE_FAULTS

ActionKind = Literal[
    "kill worker",
    "stop worker",
    "freeze worker",
    "kill producer",
    "split",
    "merge",
    "scale",
    "wire",
]

_FIRST, _SHORTEST, _LONGEST = 3.0, 2.5, 7.0
_DECK: tuple[tuple[ActionKind, str | None], ...] = (
    ("kill worker", None),
    ("kill worker", None),
    ("stop worker", None),
    ("freeze worker", None),
    ("freeze worker", None),
    ("kill producer", None),
    ("split", None),
    ("merge", None),
    ("scale", None),
    *(("wire", name) for name in WIRE_FAULTS),
)


@dataclass(frozen=True)
class Action:
    """One action.

    Attributes:
        at: Seconds after the start.
        fault: Fault on the wire.
        seconds: Duration of a freeze or a fault, or time until a successor is started.
        choice: Random number from 0 to 1 for decisions at run time, such as a shard count.
    """

    at: float
    kind: ActionKind
    fault: str | None = None
    seconds: float = 0.0
    choice: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at:.1f} s: {self.kind}{f' {self.fault}' if self.fault else ''}{lasting}"


def make_plan(seed: int, seconds: float, *, failover_time: float) -> list[Action]:
    """Return the actions of a soak, in order.

    All kinds are about equally frequent: they are drawn from a shuffled deck, which is shuffled again once used up. The same
    seed gives the same plan, and a longer plan begins with the shorter one. Freezes are sometimes shorter than the failover
    time and mostly longer.
    """
    rng = random.Random(seed)
    plan: list[Action] = []
    deck: list[tuple[ActionKind, str | None]] = []
    at = _FIRST
    while at < seconds:
        if not deck:
            deck = list(_DECK)
            rng.shuffle(deck)
        kind, fault = deck.pop()
        lasts = 0.0
        if kind == "freeze worker":
            lasts = failover_time * rng.uniform(0.4, 2.0)
        elif kind == "wire":
            lasts = rng.uniform(1.5, failover_time * 1.3)
        elif kind in {"kill worker", "stop worker", "kill producer"}:
            lasts = rng.uniform(0.0, failover_time)
        plan.append(Action(at, kind, fault, lasts, rng.random()))
        at += rng.uniform(_SHORTEST, _LONGEST)
    return plan
