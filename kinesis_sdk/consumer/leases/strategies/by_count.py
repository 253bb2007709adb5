"""Fair shares by count, with the fewest moves: the arithmetic of the default strategy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from kinesis_sdk.consumer.leases.table.lease import Lease

_KEY = attrgetter("lease_key")  # called for every lease that may move


class Assignment(NamedTuple):
    """A lease and where it goes.

    Attributes:
        lease: The lease.
        giver: Live worker that holds it; None if it is free.
        taker: Worker that shall hold it.
    """

    lease: Lease
    giver: str | None
    taker: str


def shares(counts: Mapping[str, int], total: int, groups: Mapping[str, str], most: int) -> dict[str, int]:
    """How many leases each worker should hold.

    Args:
        counts: Leases that each worker holds now.
        total: Leases to share out; at least the sum of the counts.
        groups: Each worker's group.
        most: Most leases of one worker.

    Returns:
        A share per worker, floor or floor + 1. Among all shares that are fair to workers and to groups it is one
        with the fewest moves.
    """
    floor, extra = divmod(total, len(counts))
    if floor >= most or not extra:
        return dict.fromkeys(counts, min(floor, most))
    members: dict[str, list[str]] = {}
    for worker in counts:
        members.setdefault(groups[worker], []).append(worker)
    extras: dict[str, int] = {}
    rounded: list[str] = []
    for group, workers in members.items():
        extras[group], rest = divmod(extra * len(workers), len(counts))
        if rest:
            rounded.append(group)
    # Rounding up is worth a move where somebody keeps a lease by it; else the fuller group keeps what it has.
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
    holdings: Mapping[str, Sequence[Lease]], free: Iterable[Lease], groups: Mapping[str, str], most: int
) -> list[Assignment]:
    """Who should fetch which lease; the same for everyone who looks at the same table.

    Args:
        holdings: Leases of each worker; workers without any are named if they are known.
        free: Leases that nobody keeps.
        groups: Each worker's group.
        most: Most leases of one worker.

    Returns:
        Parcels; applying all of them balances the table, except for what nobody has room for.
    """
    to_place: list[tuple[Lease, str | None]] = [(lease, None) for lease in sorted(free, key=_KEY)]
    counts = {worker: len(leases) for worker, leases in holdings.items()}
    total = sum(counts.values()) + len(to_place)
    share = shares(counts, total, groups, most)
    workers = sorted(counts)
    places: list[str] = []
    for worker in workers:
        surplus = counts[worker] - share[worker]
        if surplus < 0:
            places.extend([worker] * -surplus)
        elif surplus:
            # One in handoff is on its way to this worker; it has to arrive before it can go on.
            movable = [lease for lease in holdings[worker] if lease.checkpoint_owner is None]
            movable.sort(key=_KEY)
            to_place.extend([(lease, worker) for lease in movable[-surplus:]])
    return [Assignment(lease, giver, taker) for (lease, giver), taker in zip(to_place, places, strict=False)]
