"""Model of the first attempts of a batch, in whole seconds: one row, the task that writes it first, and one that repeats it.

The moment before which no attempt of the batch began is 0. The first task sends the row late or early, also after the other one has begun (it
was frozen, or its driver lost the checkpoint). Its request is stored at once, late or never; then its producer may repeat it. The other task begins at
any moment, and its request may be late, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

WINDOW = 300
MARGIN = 1
"""By how much an arrival may contradict the order of records."""
HOLD_OFF = 3
"""After which a producer repeats what may be stored."""
WAIT = 6
"""For which a task that may repeat another one waits, and the longest hold-off of a first attempt."""


@dataclass(frozen=True)
class Rules:
    """Rules of writers and readers; the defaults are those of the specification.

    Attributes:
        marks_first: Whether first attempts say so.
        dates_batch: Whether they are dated by the beginning of the batch, and not by their own sending.
        waits: Whether a task that may repeat another one waits.
        keeps_own: Whether a first attempt claims no more than its own producer's hold-off.
        counts_attempts: Whether a repetition is known as such, and waits. It is not if a stage runs again.
        late_is_suspect: Whether a first attempt that arrives late is looked up.
    """

    marks_first: bool = True
    dates_batch: bool = True
    waits: bool = True
    keeps_own: bool = True
    counts_attempts: bool = True
    late_is_suspect: bool = True


class Schedule(NamedTuple):
    """What happens; seconds.

    Attributes:
        sent: When the first task sends the row.
        stored_after: After how long that is stored; None if it never is.
        repeated_after: After how long the repetition of its producer is stored; None if it makes none.
        begun: When the other task begins.
        pause: How long it does something else before it sends, after its wait.
        second_after: After how long its request is stored.
    """

    sent: int
    stored_after: int | None
    repeated_after: int | None
    begun: int
    pause: int
    second_after: int


class _Copy(NamedTuple):
    arrived: int
    suspect: bool
    since: int


def schedules() -> list[Schedule]:
    """Return all of them."""
    axes = range(11), (0, 1, 4, 9, None), (None, 0, 4), range(13), range(4), (0, 1, 9)
    return [Schedule(*values) for values in product(*axes)]


def play(schedule: Schedule, rules: Rules) -> Iterator[int]:
    """Yield how often the row is delivered, for each order of copies that arrive in one second."""
    first: list[_Copy] = []
    if schedule.stored_after is not None:
        first.append(_first(schedule.sent, schedule.sent + schedule.stored_after, rules))
    if schedule.repeated_after is not None:
        again = schedule.sent + HOLD_OFF
        since = _date(schedule.sent, rules) - MARGIN if rules.marks_first else schedule.sent - WINDOW
        first.append(_Copy(again + schedule.repeated_after, True, since))
    sent = schedule.begun + schedule.pause + (WAIT if rules.waits and rules.counts_attempts else 0)
    arrived = sent + schedule.second_after
    second = _Copy(arrived, True, sent - WINDOW) if rules.counts_attempts else _first(sent, arrived, rules)
    for copies in ([*first, second], [second, *reversed(first)]):
        yield _delivered(sorted(copies, key=lambda copy: copy.arrived))


def _date(sent: int, rules: Rules) -> int:
    return 0 if rules.dates_batch else sent


def _first(sent: int, arrived: int, rules: Rules) -> _Copy:
    if not rules.marks_first:
        return _Copy(arrived, True, sent - WINDOW)
    date = _date(sent, rules)
    holdoff = min(WAIT, HOLD_OFF + sent - date) if rules.keeps_own else WAIT
    is_late = arrived >= date + holdoff - MARGIN
    return _Copy(arrived, is_late and rules.late_is_suspect, date - MARGIN)


def _delivered(copies: list[_Copy]) -> int:
    return sum(
        not copy.suspect or not any(other.arrived >= copy.since for other in copies[:index])
        for index, copy in enumerate(copies)
    )
