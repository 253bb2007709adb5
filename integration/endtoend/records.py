"""Checks of records: every acknowledged one processed, none twice without a cause, all in order. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from integration.endtoend.recorded_events import STRIDE, RecordedEvents, Violation
from kinesis_sdk.testing.accounting.verify import Delivery, Put

KILLED = "processed again after a kill"
FROZEN = "processed again after a freeze"
STALLED = "processed again after the machine stalled"
WIRE = "processed again after a fault on the wire"
STORED_TWICE = "stored twice by a retry"
STORED_ACROSS = "stored twice across a reshard"
STORED_BY_VICTIM = "stored twice by a producer that was killed"

_PAUSES = {"freeze": FROZEN, "stall": STALLED, "wire": WIRE}
_SHOWN = 5


def listed(kind: str, things: Sequence[object]) -> Iterator[Violation]:
    """Return one violation for any number of things, with the first of them."""
    if things:
        shown = ", ".join(map(str, things[:_SHOWN]))
        more = f" and {len(things) - _SHOWN} more" if len(things) > _SHOWN else ""
        yield Violation(kind, f"{shown}{more}")


def explain(recorded: RecordedEvents, again: Delivery, before: Sequence[Delivery], put: Put) -> str | None:
    """Return the reason of a duplicate, if an event accounts for it.

    A record at another position is a second copy in the stream: its producer must have had a reason to send it again. A
    record from the same position was read twice: either its previous reader was killed, frozen or cut off before the next
    one read it, or the next one was.
    """
    same = [d for d in before if d.position == again.position and d.shard_id == again.shard_id]
    if not same:
        return _explain_copy(recorded, again, before, put)
    last = same[-1]
    if (last.worker, last.acquisition) == (again.worker, again.acquisition):
        held = recorded.acquisitions[again.worker, again.acquisition]
        if not any(last.at <= at <= again.at for at in held.failures):
            return None
    killed_at = recorded.workers[last.worker].killed_at
    if killed_at is not None and killed_at <= again.at:
        return KILLED
    for worker in (last.worker, again.worker):
        pause = recorded.pause_of(worker, last.at, again.at)
        if pause is not None:
            return _PAUSES[pause.cause]
    return None


def _explain_copy(
    recorded: RecordedEvents, again: Delivery, before: Sequence[Delivery], put: Put
) -> str | None:
    copies = len({(d.shard_id, d.position) for d in (*before, again)})
    if put.position is None:
        producer = recorded.producer_of(again.number)
        if producer is not None and producer.killed_at is not None:
            return STORED_BY_VICTIM
    if copies > put.attempts:
        return None
    return STORED_ACROSS if again.number in recorded.moved else STORED_TWICE


def unacknowledged(recorded: RecordedEvents) -> dict[int, Put]:
    """Return processed records whose producer was killed before it learned that they were stored."""
    found: dict[int, Put] = {}
    for delivery in recorded.deliveries:
        if delivery.number not in recorded.puts:
            producer = recorded.producer_of(delivery.number)
            if producer is not None and producer.killed_at is not None:
                found[delivery.number] = Put("", delivery.at, None, "", 1, 0.0)
    return found


def check_results(recorded: RecordedEvents) -> Iterator[Violation]:
    """Check that every record of a producer that was not killed has a result, and that none failed."""
    by_producer: dict[int, int] = defaultdict(int)
    for number in recorded.puts:
        by_producer[number // STRIDE] += 1
    for run in recorded.producers.values():
        if run.killed_at is None and run.count is None:
            yield Violation("producer did not end", run.name)
        elif run.count is not None and by_producer[run.first // STRIDE] != run.count:
            have = by_producer[run.first // STRIDE]
            yield Violation("record without a result", f"{run.name}: {have} of {run.count} have one")
    yield from listed("record failed", sorted(n for n, put in recorded.puts.items() if put.position is None))
    yield from listed("not what was put", recorded.corrupt)


def in_time(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """Return deliveries in the order in which they happened. Those of a batch have one time and are ordered by position."""
    return sorted(deliveries, key=lambda d: (d.at, d.position))


def check_shard_order(deliveries: Sequence[Delivery]) -> Iterator[Violation]:
    """Check that a record is first delivered after all earlier records of its shard."""
    seen: dict[str, set[tuple[int, int]]] = defaultdict(set)
    highest: dict[str, tuple[int, int]] = {}
    wrong = []
    for delivery in deliveries:
        shard_id, position = delivery.shard_id, delivery.position
        if position in seen[shard_id]:
            continue
        seen[shard_id].add(position)
        if position < highest.get(shard_id, (-1, 0)):
            wrong.append(f"{delivery.number} of {shard_id} by {delivery.worker}")
        highest[shard_id] = max(position, highest.get(shard_id, (-1, 0)))
    yield from listed("out of the shard's order", wrong)


def check_lineage(recorded: RecordedEvents, deliveries: Sequence[Delivery]) -> Iterator[Violation]:
    """Check that a child's records come only after all of its parents' records. Repeated deliveries of parents do not count."""
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    seen: set[tuple[str, tuple[int, int]]] = set()
    for delivery in deliveries:
        begun.setdefault(delivery.shard_id, delivery.at)
        if (delivery.shard_id, delivery.position) not in seen:
            seen.add((delivery.shard_id, delivery.position))
            ended[delivery.shard_id] = delivery.at
    for shard_id, at in sorted(begun.items()):
        if shard_id not in recorded.shards:
            yield Violation("unknown shard", shard_id)
            continue
        for parent in recorded.shards[shard_id].parents:
            if ended.get(parent, at) > at:
                yield Violation("child before parent", f"{shard_id} before the end of {parent}")


def check_key_order(recorded: RecordedEvents, deliveries: Sequence[Delivery]) -> Iterator[Violation]:
    """Check that an ordered producer's records first appear in the order of their puts, key by key."""
    ordered = {run.first // STRIDE: run.name for run in recorded.producers.values() if run.ordered}
    seen: set[int] = set()
    highest: dict[tuple[int, str], int] = {}
    wrong = []
    for delivery in deliveries:
        number = delivery.number
        producer = number // STRIDE
        if producer not in ordered or number in seen:
            continue
        seen.add(number)
        put = recorded.puts.get(number)
        if put is None:
            continue  # Nothing is promised about records without an acknowledgement, from a killed producer.
        line = (producer, put.key)
        if number < highest.get(line, -1):
            wrong.append(f"{number} of {ordered[producer]}, key {put.key}, after {highest[line]}")
        highest[line] = max(number, highest.get(line, -1))
    yield from listed("out of the key's order", wrong)
