"""Comparison of the records that were put with the records that were processed. Pure.

`verify` explains duplicates by the faults of the demo. Callers with other faults pass their own function to `account_for`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Put(NamedTuple):
    """A record that was put, and its result.

    Attributes:
        put_at: Wall-clock seconds of `put`. All processes run on one machine, so times are comparable.
        position: Acknowledged position (sequence number, sub-sequence number); None if the record failed.
        shard_id: Shard of that position.
        acknowledged_after: Seconds from put to acknowledgement.
    """

    key: str
    put_at: float
    position: tuple[int, int] | None
    shard_id: str
    attempts: int
    acknowledged_after: float


class Delivery(NamedTuple):
    """One delivery of a record to a worker's handler.

    Attributes:
        number: Index of the record among the puts.
        position: (sequence number, sub-sequence number).
        at: Wall-clock seconds.
        acquisition: Number of the worker's acquisition of the lease; 0 if this was not logged.
    """

    number: int
    worker: str
    shard_id: str
    position: tuple[int, int]
    at: float
    acquisition: int = 0


Explain = Callable[[Delivery, Sequence[Delivery], Put], str | None]
"""Called with a duplicate delivery, the earlier deliveries in order, and the put; returns the reason, or None if it finds none."""


@dataclass(frozen=True)
class RunResult:
    """Result of a run.

    Attributes:
        lost: Numbers of acknowledged records that were never processed.
        failed: Number of records whose future failed.
        delivered: Number of distinct records processed.
        duplicates: Number of deliveries beyond the first of each record.
        explained: Duplicates with a reason, counted by reason.
        unexplained: Number of duplicates without a reason.
        out_of_order: Number of records processed for the first time after a record of the same key with a later
            acknowledged position.
        overtaken: Number of records stored after a later put of the same key. Retries may cause this unless ``ordering="per_shard"`` is
            set.
        put_to_process: Seconds from put to first processing, one value for each record.
        without_reason: The unexplained duplicates.
        unknown: Numbers of records that were processed but never put.
    """

    lost: list[int]
    failed: int
    delivered: int
    duplicates: int
    explained: Mapping[str, int]
    unexplained: int
    out_of_order: int
    overtaken: int
    put_to_process: list[float] = field(repr=False)
    without_reason: list[Delivery] = field(default_factory=list, repr=False)
    unknown: list[int] = field(default_factory=list)


def verify(
    puts: Sequence[Put],
    deliveries: Iterable[Delivery],
    *,
    killed: Mapping[str, float],
    lost_leases: Collection[tuple[str, int]] = (),
) -> RunResult:
    """Account for every record of a run whose only fault is a killed worker.

    Args:
        puts: Records that were put; the index is the number of the record.
        deliveries: Deliveries, in any order.
        killed: Wall-clock seconds at which workers were killed, by name.
        lost_leases: (worker, number) of acquisitions that ended because the worker lost the lease.
    """
    return account_for(
        dict(enumerate(puts)),
        deliveries,
        explain=lambda again, before, put: _explain(again, before, put, killed, lost_leases),
    )


def account_for(puts: Mapping[int, Put], deliveries: Iterable[Delivery], *, explain: Explain) -> RunResult:
    """Account for every record; `explain` finds the reason of a duplicate."""
    by_number: dict[int, list[Delivery]] = {}
    unknown: set[int] = set()
    for delivery in sorted(deliveries, key=lambda d: d.at):
        if delivery.number in puts:
            by_number.setdefault(delivery.number, []).append(delivery)
        else:
            unknown.add(delivery.number)
    explained: Counter[str] = Counter()
    without_reason: list[Delivery] = []
    for number, seen in by_number.items():
        for index, again in enumerate(seen[1:], start=1):
            reason = explain(again, seen[:index], puts[number])
            if reason:
                explained[reason] += 1
            else:
                without_reason.append(again)
    lost = [n for n, put in puts.items() if put.position is not None and n not in by_number]
    return RunResult(
        lost=lost,
        failed=sum(put.position is None for put in puts.values()),
        delivered=len(by_number),
        duplicates=sum(len(seen) - 1 for seen in by_number.values()),
        explained=dict(explained),
        unexplained=len(without_reason),
        out_of_order=_count_out_of_order(puts, by_number),
        overtaken=_count_overtaken(puts.values()),
        put_to_process=[seen[0].at - puts[n].put_at for n, seen in by_number.items()],
        without_reason=without_reason,
        unknown=sorted(unknown),
    )


def _explain(
    again: Delivery,
    before: Sequence[Delivery],
    put: Put,
    killed: Mapping[str, float],
    lost_leases: Collection[tuple[str, int]],
) -> str | None:
    """Return the reason of a repeated delivery: the record was stored twice, or processed again from the last checkpoint."""
    same = [d for d in before if d.shard_id == again.shard_id and d.position == again.position]
    if not same:
        return "stored twice by a retry" if put.attempts > 1 else None
    if any((d.worker, d.acquisition) == (again.worker, again.acquisition) for d in same):
        return None  # A handler that never fails gets each position once within an acquisition.
    if any(d.worker in killed for d in same):
        return "processed again after a worker was killed"
    if any(d.worker != again.worker for d in same):
        return "processed again after a lease moved"
    if any((d.worker, d.acquisition) in lost_leases for d in same):
        return "processed again after a lease was lost and taken again"
    return None


def _count_out_of_order(puts: Mapping[int, Put], by_number: Mapping[int, Sequence[Delivery]]) -> int:
    """Count first deliveries that break the order of a key's acknowledged positions."""
    firsts: dict[str, list[tuple[tuple[int, int], float, int]]] = {}
    for number, seen in by_number.items():
        put = puts[number]
        at = next((d.at for d in seen if d.position == put.position and d.shard_id == put.shard_id), None)
        if put.position is not None and at is not None:
            firsts.setdefault(put.key, []).append((put.position, at, number))
    wrong = 0
    for items in firsts.values():
        items.sort()
        latest = float("-inf")
        for _, at, _ in items:
            if at < latest:
                wrong += 1
            latest = max(latest, at)
    return wrong


def _count_overtaken(puts: Iterable[Put]) -> int:
    newest: dict[str, tuple[int, int]] = {}
    overtaken = 0
    for put in puts:
        if put.position is None:
            continue
        if put.position < newest.get(put.key, (0, 0)):
            overtaken += 1
        else:
            newest[put.key] = put.position
    return overtaken


def take_over_times(deliveries: Iterable[Delivery], *, killed: Mapping[str, float]) -> dict[str, float]:
    """Return, for each shard of a killed worker, the seconds from the kill until another worker processed a record.

    A shard belongs to the killed worker if it was the last to process that shard before the kill. A shard without
    records after the kill is not listed. `killed` contains wall-clock seconds by worker.
    """
    times: dict[str, float] = {}
    by_shard: dict[str, list[Delivery]] = {}
    for delivery in deliveries:
        by_shard.setdefault(delivery.shard_id, []).append(delivery)
    for victim, when in killed.items():
        for shard_id, seen in by_shard.items():
            before = [d for d in seen if d.at <= when]
            if not before or max(before, key=lambda d: d.at).worker != victim:
                continue
            after = [d.at - when for d in seen if d.at > when and d.worker != victim]
            if after:
                times[shard_id] = min(after)
    return times
