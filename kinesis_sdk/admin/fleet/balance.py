"""The balance of a fleet: how evenly the leases are spread over workers and groups. Pure.

KCL users make this check manually: leases by group and by worker, compared with the fair share. The group of
a worker is the part of its id before ``|``; ids of other fleets may need another separator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kinesis_sdk.admin.fleet.model import FleetView, LeaseState
from kinesis_sdk.consumer.leases import GROUP_SEPARATOR, Groups, fair_shares

_NO_LIMIT = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class WorkerShare:
    """The leases of one worker.

    Attributes:
        worker_id: Its id.
        group: Its group; an empty text without a group.
        leases: Unfinished leases that it holds.
        share: Its leases in the balanced fleet that needs the fewest moves.
        throughput_kbps: KB/s of its leases; None if no row has any.
    """

    worker_id: str
    group: str
    leases: int
    share: int
    throughput_kbps: float | None = None


@dataclass(frozen=True, kw_only=True)
class GroupShare:
    """The leases of one group.

    Attributes:
        group: Its name; an empty text for workers without a group.
        workers: Live workers, including standby workers.
        leases: Unfinished leases that they hold.
        ideal: Fair share: leases by number of workers.
        least: Leases of the worker with the fewest.
        most: Leases of the worker with the most.
        throughput_kbps: KB/s of its leases; None if no row has any.
    """

    group: str
    workers: int
    leases: int
    ideal: float
    least: int
    most: int
    throughput_kbps: float | None = None


@dataclass(frozen=True, kw_only=True)
class Balance:
    """The distribution of the leases.

    Attributes:
        leases: Unfinished leases, owned or not.
        unowned: Unfinished leases that no live worker holds.
        workers: Live workers.
        ideal: Leases per worker.
        spread: Most minus fewest leases of a worker; a balanced fleet has 0 or 1.
        moves: Moves of owned leases needed to balance the fleet by number.
        throughput_kbps: KB/s of all leases; None if no row has any.
        groups: By name.
        by_worker: By group and id.
    """

    leases: int
    unowned: int
    workers: int
    ideal: float
    spread: int
    moves: int
    throughput_kbps: float | None
    groups: tuple[GroupShare, ...]
    by_worker: tuple[WorkerShare, ...]

    @property
    def busiest(self) -> WorkerShare | None:
        """The worker with the most leases; None without workers."""
        return max(self.by_worker, key=lambda worker: (worker.leases, worker.worker_id), default=None)


def balance_of(view: FleetView, separator: str = GROUP_SEPARATOR) -> Balance:
    """Return how evenly the leases of a fleet are spread. Silent and draining workers get no share.

    Args:
        view: The fleet.
        separator: Text that ends the group's label in a worker id.
    """
    groups = Groups(separator)
    total = sum(lease.state not in (LeaseState.FINISHED, LeaseState.MISSING) for lease in view.leases)
    live = {
        owner.worker_id: owner for owner in view.owners if owner.silent_for is None and not owner.is_draining
    }
    counts = {worker: len(owner.lease_keys) for worker, owner in live.items()}
    share: Mapping[str, int] = fair_shares(dict(counts), total, groups, _NO_LIMIT) if counts else {}
    workers = tuple(
        WorkerShare(
            worker_id=worker,
            group=groups[worker],
            leases=counts[worker],
            share=share[worker],
            throughput_kbps=owner.throughput_kbps,
        )
        for worker, owner in sorted(live.items(), key=lambda pair: (groups[pair[0]], pair[0]))
    )
    by_group: dict[str, list[WorkerShare]] = {}
    for worker in workers:
        by_group.setdefault(worker.group, []).append(worker)
    held = sum(counts.values())
    rates = [worker.throughput_kbps for worker in workers if worker.throughput_kbps is not None]
    return Balance(
        leases=total,
        unowned=total - held,
        workers=len(workers),
        ideal=total / len(workers) if workers else 0.0,
        spread=max(counts.values()) - min(counts.values()) if counts else 0,
        moves=sum(max(0, worker.leases - worker.share) for worker in workers),
        throughput_kbps=sum(rates) if rates else None,
        groups=tuple(
            GroupShare(
                group=name,
                workers=len(members),
                leases=sum(member.leases for member in members),
                ideal=total * len(members) / len(workers),
                least=min(member.leases for member in members),
                most=max(member.leases for member in members),
                throughput_kbps=_sum(member.throughput_kbps for member in members),
            )
            for name, members in sorted(by_group.items())
        ),
        by_worker=workers,
    )


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
