"""Model of the constants in seconds: one record, its attempts, and what a reader makes of the copies that were stored.

Clocks that are off, arrival times that jump, and requests that are stored long after the producer gave up are random, and far
more frequent than in reality: half of the attempts fail, and one store in ten is late.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple


@dataclass(frozen=True)
class Constants:
    """Constants of the specification, in seconds.

    Attributes:
        hold_off: H: what may be stored is not sent again before.
        margin: E: by how much clocks and arrivals may contradict each other.
        marked_margin: How long before its own arrival the copies before a marked one are searched at least.
        limit: L: how long before its own arrival they are searched at most.
        repeat_for: Age after which a record is not repeated, but begun anew.
        marks: Whether repetitions are marked.
        dates: Whether late copies are suspect; without, marks alone count.
        waits: Whether the producer waits for the hold-off that readers rely on.
    """

    hold_off: float = 4.0
    margin: float = 2.0
    marked_margin: float = 30.0
    limit: float = 900.0
    repeat_for: float = 600.0
    marks: bool = True
    dates: bool = True
    waits: bool = True


@dataclass(frozen=True)
class Conditions:
    """What happens to a record, in seconds.

    Attributes:
        clock_low: By how much the producer's clock may be behind the service's.
        clock_ahead: By how much it may be ahead.
        jitter: By how much an arrival time may differ from the time of storing, up or down.
        latest: After how long a request may still be stored.
        pause: Longest time between two attempts.
        patience: How long the producer tries.
        attempts: How often it tries.
    """

    clock_low: float = 0.0
    clock_ahead: float = 0.0
    jitter: float = 1.0
    latest: float = 300.0
    pause: float = 1.0
    patience: float = 30.0
    attempts: int = 5


class _Copy(NamedTuple):
    stored: float
    marked: bool
    identity: int
    date: float


class Outcome(NamedTuple):
    """What became of a record.

    Attributes:
        delivered: Number of positions at which it is delivered.
        acknowledged: Whether the producer acknowledged it.
        begun_anew: Whether it got a second identity.
    """

    delivered: int
    acknowledged: bool
    begun_anew: bool


def play(random: Random, constants: Constants, conditions: Conditions) -> Outcome:
    """Play one record."""
    copies, acknowledged, identities = _produce(random, constants, conditions)
    return Outcome(_read(random, constants, conditions, copies), acknowledged, identities > 1)


def _produce(random: Random, constants: Constants, conditions: Conditions) -> tuple[list[_Copy], bool, int]:
    clock = random.uniform(-conditions.clock_low, conditions.clock_ahead)
    copies: list[_Copy] = []
    identity = 0
    made = now = 0.0
    may_be_stored = False
    for _ in range(conditions.attempts):
        if now - made > constants.repeat_for:
            identity, made, may_be_stored = identity + 1, now, False
        gives_up = now + (6.0 if random.random() < 0.5 else random.uniform(0.01, 6.0))
        after = _stored_after(random, conditions)
        if after is not None:
            copies.append(_Copy(now + after, may_be_stored and constants.marks, identity, made + clock))
            if now + after < gives_up and random.random() < 0.4:
                return copies, True, identity + 1
        may_be_stored = True
        now = gives_up + random.uniform(0.02, conditions.pause)
        if constants.waits:
            now = max(now, made + constants.hold_off)
        if now > conditions.patience:
            break
    return copies, False, identity + 1


def _stored_after(random: Random, conditions: Conditions) -> float | None:
    """Return the seconds after which a request is stored; None if it never is."""
    fate = random.random()
    if fate < 0.2:
        return None
    if fate < 0.7:
        return random.expovariate(20)
    return random.uniform(0, 12 if fate < 0.9 else conditions.latest)


def _read(random: Random, constants: Constants, conditions: Conditions, copies: list[_Copy]) -> int:
    seen: list[tuple[int, float]] = []
    delivered = 0
    for copy in sorted(copies):
        arrived = copy.stored + random.uniform(-conditions.jitter, conditions.jitter)
        is_late = constants.dates and arrived >= copy.date + constants.hold_off - constants.margin
        since = copy.date - constants.margin
        if copy.marked:
            since = min(since, arrived - constants.marked_margin)
        since = max(since, arrived - constants.limit)
        is_repetition = (copy.marked or is_late) and any(
            identity == copy.identity and earlier >= since for identity, earlier in seen
        )
        delivered += not is_repetition
        seen.append((copy.identity, arrived))
    return delivered
