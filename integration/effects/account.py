"""Result of a run: effects compared with the copies in its stream. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kinesis_sdk.common.record_ids import record_id
from kinesis_sdk.testing.accounting.stored_copies import StoredCopy, deliveries

HEADER = (
    f"{'store':<15} {'worker':<8} {'producer':<11} {'puts':>10} {'copies':>8} {'lost':>8} {'twice':>8} "
    f"{'seconds':>7} {'per s':>6}  faults"
)
"""Header for the lines of `Outcome.line`."""


@dataclass(frozen=True)
class Due:
    """The effects that the records in a stream must have.

    An idempotent producer's record must take effect once, at its first valid copy; a plain producer's at each of its copies.

    Attributes:
        ids: Ids of the records that take effect.
        numbers: Numbers of the puts with at least one such record.
        copies: Copies beyond the first of each put, stored by retries.
    """

    ids: frozenset[str]
    numbers: frozenset[int]
    copies: int


def due(stream: str, copies: Collection[StoredCopy]) -> Due:
    """Return the effects that the copies in a stream must have.

    `copies` are all of them, parents before children. Payloads are the numbers of the puts.
    """
    places = deliveries(copies, int)
    ids = (record_id(stream, *place[:1], str(place[1]), place[2]) for one in places.values() for place in one)
    present = frozenset(number for number, one in places.items() if one)
    return Due(frozenset(ids), present, len(copies) - len(places))


@dataclass(frozen=True)
class Verdict:
    """Effects compared with those that were due.

    Attributes:
        lost: Missing effects, of records in the stream and of acknowledged puts that are not in the stream.
        twice: Surplus effects: second ones, and effects of copies that readers should have dropped.
    """

    lost: int
    twice: int


def judge(wanted: Due, effects: Mapping[str, int], acknowledged: Iterable[int]) -> Verdict:
    """Compare the number of effects of each record id with those that were due.

    `acknowledged` are the numbers of the puts that the producer reported as stored.
    """
    missing = len(wanted.ids - effects.keys()) + len(set(acknowledged) - wanted.numbers)
    return Verdict(missing, sum(effects.values()) - len(wanted.ids & effects.keys()))


@dataclass
class Outcome:
    """Result of a run.

    Attributes:
        transactions: Whether its workers had a sink; with ``relay``, whether its outputs had ids.
        producers: Kind of its producers: idempotent, plain or mixed.
        puts: Number of records that were put.
        copies: Copies in the stream beyond the first of each put.
        lost, twice: See `Verdict`.
        faults: Faults by name.
        relay: Whether a relay stood between its producers and the stream.
    """

    store: str
    transactions: bool
    producers: str
    puts: int
    copies: int
    lost: int
    twice: int
    seconds: float
    faults: Counter[str] = field(default_factory=Counter)
    relay: bool = False

    @property
    def is_good(self) -> bool:
        """Whether everything took effect once with a sink, or something took effect again without one, as the faults intend."""
        return not self.lost and (not self.twice) == self.transactions

    def line(self) -> str:
        """Return the outcome as a line of a table."""
        kinds = ("relay", "no ids") if self.relay else ("sink", "no sink")
        faults = ", ".join(f"{number:,} {name}" for name, number in sorted(self.faults.items()))
        return (
            f"{self.store:<15} {kinds[not self.transactions]:<8} {self.producers:<11} {self.puts:>10,} "
            f"{self.copies:>8,} {self.lost:>8,} {self.twice:>8,} {self.seconds:>7.0f} {self.puts / self.seconds:>6,.0f}  {faults}"
        )


class Pace:
    """Limits the records put so far: to a rate, and to a backlog of records without effects.

    Without the backlog limit, slow workers would do most of their work after the last fault.

    Args:
        total: Total number of records.
        rate: Records per second.
        backlog: Maximum number of records without effects.
        now: Monotonic seconds.
    """

    def __init__(self, total: int, rate: float, backlog: int, now: float) -> None:
        self._total, self._rate, self._backlog = total, rate, backlog
        self._at = now
        self._allowed = 0.0

    def allowed(self, now: float, effects: int) -> int:
        """Return the number of records that can have been put at `now` (monotonic seconds), given the effects seen so far."""
        limit = min(self._total, effects + self._backlog)
        # Time spent at the limit does not permit a burst later.
        self._allowed = max(self._allowed, min(self._allowed + (now - self._at) * self._rate, limit))
        self._at = now
        return int(self._allowed)
