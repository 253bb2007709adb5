"""Fair shares by number of leases, with the fewest moves: the arithmetic of the default strategy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from kinesis_sdk.consumer.leases.table.lease import Lease

_KEY = attrgetter("lease_key")  # called for every lease that may move


class Assignment(NamedTuple):
    """A lease and the worker that should hold it.

    Attributes:
        lease: The lease.
        source: Live worker that holds it now; None if it is unassigned or expired.
        target: Worker that should hold it.
    """

    lease: Lease
    source: str | None
    target: str


def fair_shares(
    counts: Mapping[str, int],
    total: int,
    groups: Mapping[str, str],
    max_leases: int,
    pinned: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Return the number of leases that each worker should hold.

    Args:
        counts: Number of leases that each worker holds now.
        total: Leases to distribute; at least the sum of the counts.
        groups: Each worker's group.
        max_leases: Maximum leases of one worker.
        pinned: How many of the leases in ``counts`` are pinned to each worker; at most ``max_leases``.

    Returns:
        The share of each worker, which is floor or floor + 1. Among all shares that are fair to workers and to groups, these need the
        fewest moves. A worker with more pinned leases than its share keeps only its pinned leases; all other workers share the remaining
        leases.
    """
    if not pinned:
        return _even_shares(counts, total, groups, max_leases)
    rest, full = dict(counts), dict[str, int]()
    while True:
        floor = total // len(rest)
        # At least one worker of the rest has no more pinned leases than the floor: otherwise the pinned leases would
        # exceed the total.
        over = {worker: pinned[worker] for worker in rest if pinned.get(worker, 0) > floor}
        if not over:
            return {**full, **_even_shares(rest, total, groups, max_leases)}
        full.update(over)
        total -= sum(over.values())
        for worker in over:
            del rest[worker]


def _even_shares(
    counts: Mapping[str, int], total: int, groups: Mapping[str, str], max_leases: int
) -> dict[str, int]:
    floor, extra = divmod(total, len(counts))
    if floor >= max_leases or not extra:
        return dict.fromkeys(counts, min(floor, max_leases))
    members: dict[str, list[str]] = {}
    for worker in counts:
        members.setdefault(groups[worker], []).append(worker)
    extras: dict[str, int] = {}
    rounded: list[str] = []
    for group, workers in members.items():
        extras[group], rest = divmod(extra * len(workers), len(counts))
        if rest:
            rounded.append(group)
    # Rounding a group up saves a move if one of its workers can thereby keep a lease. Among the remaining groups, the
    # fuller groups are rounded up.
    rounded.sort(
        key=lambda group: (
            sum(counts[worker] > floor for worker in members[group]) <= extras[group],
            -sum(counts[worker] for worker in members[group]),
            group,
        )
    )
    for group in rounded[: extra - sum(extras.values())]:
        extras[group] += 1
    result = dict.fromkeys(counts, floor)
    for group, workers in members.items():
        if extras[group]:
            workers.sort()
            workers.sort(key=counts.__getitem__, reverse=True)
            for worker in workers[: extras[group]]:
                result[worker] = floor + 1
    return result


def plan_by_count(
    holdings: Mapping[str, Sequence[Lease]],
    free: Iterable[Lease],
    groups: Mapping[str, str],
    max_leases: int,
    pins: Mapping[str, str] | None = None,
) -> list[Assignment]:
    """Return assignments that balance the table; every worker computes the same result from the same table.

    Leases for which no worker has room do not move.

    Args:
        holdings: Leases of each worker; known workers without any lease are included.
        free: Unassigned and expired leases.
        groups: Each worker's group.
        max_leases: Maximum leases of one worker.
        pins: Worker of each pinned lease, by lease key; these leases are in its holdings and stay there.
    """
    to_place: list[tuple[Lease, str | None]] = [(lease, None) for lease in sorted(free, key=_KEY)]
    counts = {worker: len(leases) for worker, leases in holdings.items()}
    total = sum(counts.values()) + len(to_place)
    pins = pins or {}
    share = fair_shares(counts, total, groups, max_leases, Counter(pins.values()))
    workers = sorted(counts)
    places: list[str] = []
    for worker in workers:
        surplus = counts[worker] - share[worker]
        if surplus < 0:
            places.extend([worker] * -surplus)
        elif surplus:
            # A lease in handoff to this worker must arrive before it can move again.
            movable = [
                lease
                for lease in holdings[worker]
                if lease.checkpoint_owner is None and lease.lease_key not in pins
            ]
            movable.sort(key=_KEY)
            to_place.extend([(lease, worker) for lease in movable[-surplus:]])
    return [
        Assignment(lease, source, target) for (lease, source), target in zip(to_place, places, strict=False)
    ]
