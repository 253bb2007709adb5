"""Search for logs and take-overs of which a reader delivers a record twice, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from tests.once_model.layout import Plan
from tests.once_model.producing import Log, ProducerRules, Size, explore
from tests.once_model.reading import ReaderRules, Reading, TakeOver, first_valid_copies


@dataclass
class Result:
    """Result of a search.

    Attributes:
        states: States of stream and producer.
        schedules: Pairs of a log and a take-over.
        twice: Shortest counterexample in which a record is delivered at two positions; None if there is none.
        lost: Shortest counterexample in which an acknowledged record is not delivered; None if there is none.
        differs: First schedule of which not exactly the first valid copies are delivered; None if there is none.
    """

    states: int = 0
    schedules: int = 0
    twice: str | None = None
    lost: str | None = None
    differs: str | None = None


@cache
def _explored(plan: Plan, size: Size, rules: ProducerRules) -> tuple[dict[Log, frozenset[int]], int]:
    logs, states = explore(plan, size, rules)
    # Shortest first, in a fixed order: the first counterexample is then always the same, and a shortest one.
    return {log: logs[log] for log in sorted(logs, key=lambda log: (_copies(log), log))}, states


def _copies(log: Log) -> int:
    return sum(len(stored.copies) for records in log for stored in records)


def search(
    plans: Iterable[Plan],
    size: Size,
    reader: ReaderRules,
    producer: ProducerRules,
    *,
    take_overs: bool = True,
) -> Result:
    """Play every schedule of these plans.

    Args:
        plans: Reshards to play.
        size: Size of the search.
        reader: Rules of the readers.
        producer: Rules of the producer.
        take_overs: Whether shards change their owner; otherwise each has one.
    """
    result = Result()
    for plan in plans:
        logs, states = _explored(plan, size, producer)
        result.states += states
        for log, acknowledged in logs.items():
            reading = Reading(reader, plan, log)
            for take_over in reading.take_overs() if take_overs else [None]:
                result.schedules += 1
                _judge(result, plan, log, acknowledged, reading, take_over)
    return result


def _judge(
    result: Result,
    plan: Plan,
    log: Log,
    acknowledged: frozenset[int],
    reading: Reading,
    take_over: TakeOver | None,
) -> None:
    delivered = reading.deliver(take_over)
    times = Counter(reading.record_at(position) for position in delivered)
    if result.twice is None and any(count > 1 for count in times.values()):
        result.twice = describe(plan, log, take_over)
    if result.lost is None and not acknowledged <= times.keys():
        result.lost = describe(plan, log, take_over)
    if result.differs is None and delivered != first_valid_copies(plan, log):
        result.differs = describe(plan, log, take_over)


def describe(plan: Plan, log: Log, take_over: TakeOver | None) -> str:
    """Return a schedule as text: ``P: [r0@0,r1*@0]t1``, where ``*`` is a mark, ``@`` the date and ``t`` the arrival."""
    shards = [
        f"{shard}: "
        + " ".join(
            "["
            + ",".join(f"r{copy.record}{'*' * copy.marked}@{copy.date}" for copy in stored.copies)
            + f"]t{stored.arrived}"
            for stored in records
        )
        for shard, records in zip(plan.shards, log, strict=True)
        if records
    ]
    if take_over is not None:
        shards.append(f"take-over in {take_over.shard} after {take_over.delivered} at {take_over.checkpoint}")
    return "; ".join(shards)
