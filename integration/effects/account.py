"""What a run found: effects compared with the copies that its stream holds. Pure."""

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
"""Heads the lines of `Outcome.line`."""


@dataclass(frozen=True)
class Due:
    """The effects that a stream's content asks for.

    An idempotent producer's record is due once, at its first valid copy. A plain producer's is due at each of its copies.

    Attributes:
        ids: Ids of the records that take effect.
        numbers: Numbers of the puts that have at least one of them.
        copies: Copies beyond the first of each put: what producers stored again.
    """

    ids: frozenset[str]
    numbers: frozenset[int]
    copies: int


def due(stream: str, copies: Collection[StoredCopy]) -> Due:
    """Return what the copies in a stream ask for.

    Args:
        stream: Name of the stream.
        copies: All of them, parents before children. Payloads are the numbers of the puts.
    """
    places = deliveries(copies, int)
    ids = (record_id(stream, *place[:1], str(place[1]), place[2]) for one in places.values() for place in one)
    present = frozenset(number for number, one in places.items() if one)
    return Due(frozenset(ids), present, len(copies) - len(places))


@dataclass(frozen=True)
class Verdict:
    """Effects compared with what was due.

    Attributes:
        lost: Effects that are missing: of records in the stream, and of acknowledged puts that are not in the stream.
        twice: Effects too many: second ones, and those of copies that readers should have dropped.
    """

    lost: int
    twice: int


def judge(wanted: Due, effects: Mapping[str, int], acknowledged: Iterable[int]) -> Verdict:
    """Compare effects with what was due.

    Args:
        wanted: What was due.
        effects: Number of effects of each record id.
        acknowledged: Numbers of the puts that the producer reported as stored.
    """
    missing = len(wanted.ids - effects.keys()) + len(set(acknowledged) - wanted.numbers)
    return Verdict(missing, sum(effects.values()) - len(wanted.ids & effects.keys()))


@dataclass
class Outcome:
    """What a run found.

    Attributes:
        store: Name of the store.
        transactions: Whether its workers had a sink.
        producers: Kind of its producers: idempotent, plain or mixed.
        puts: Records that were put.
        copies: Copies in the stream beyond the first of each put.
        lost: See `Verdict`.
        twice: See `Verdict`.
        seconds: Duration.
        faults: Faults by name.
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

    @property
    def is_good(self) -> bool:
        """With a sink, everything took effect once. Without, something did more often, as the faults intend."""
        return not self.lost and (not self.twice) == self.transactions

    def line(self) -> str:
        """Return the outcome as a line of a table."""
        faults = ", ".join(f"{number:,} {name}" for name, number in sorted(self.faults.items()))
        return (
            f"{self.store:<15} {'sink' if self.transactions else 'no sink':<8} {self.producers:<11} {self.puts:>10,} "
            f"{self.copies:>8,} {self.lost:>8,} {self.twice:>8,} {self.seconds:>7.0f} {self.puts / self.seconds:>6,.0f}  {faults}"
        )


class Pace:
    """How many records may be put by now: so many a second, and not too many ahead of their effects.

    Without the second limit, slow workers would do most of their work after the last fault.

    Args:
        total: Records to put in all.
        rate: Records per second.
        backlog: Maximum number of records that were put and have no effect yet.
        now: Monotonic seconds.
    """

    def __init__(self, total: int, rate: float, backlog: int, now: float) -> None:
        self._total, self._rate, self._backlog = total, rate, backlog
        self._at = now
        self._allowed = 0.0

    def allowed(self, now: float, effects: int) -> int:
        """Return how many records may have been put at this time.

        Args:
            now: Monotonic seconds.
            effects: Effects that were seen last.
        """
        limit = min(self._total, effects + self._backlog)
        # Time in which the limit held the producer back gives no burst later.
        self._allowed = max(self._allowed, min(self._allowed + (now - self._at) * self._rate, limit))
        self._at = now
        return int(self._allowed)
