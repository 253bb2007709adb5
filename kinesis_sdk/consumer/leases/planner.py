"""Which leases to take: the KCL 2.x algorithm by count, as a pure function.

Every worker runs it on its own view of the table (``DynamoDBLeaseTaker``). The fair share is
ceil(leases / workers); expired leases come first; only where none is left is one stolen from the worker that
holds most, and never to swap a difference of one. Finished leases (SHARD_END) carry no work and do not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

from kinesis_sdk.consumer.leases.lease import Lease
from kinesis_sdk.consumer.leases.observer import LeaseObserver


class TakeReason(Enum):
    """Why a lease is taken."""

    RESUMED = "resumed"
    """It carries our worker id already: this worker was restarted."""
    EXPIRED = "expired"
    """Nobody owns it, or its owner stopped renewing."""
    STOLEN = "stolen"
    """Its owner holds more than its share."""


@dataclass(frozen=True)
class Take:
    """One decision of the planner.

    Attributes:
        lease: The lease as seen; the write is conditional on its counter.
        reason: Why.
    """

    lease: Lease
    reason: TakeReason


@dataclass(frozen=True, kw_only=True)
class TakeLimits:
    """What the planner may do.

    Attributes:
        max_leases: Most leases that this worker holds.
        max_steals: Most leases stolen in one look.
    """

    max_leases: int
    max_steals: int


def plan_takes(
    leases: Iterable[Lease],
    observed: LeaseObserver,
    me: str,
    now: float,
    limits: TakeLimits,
    rng: Random,
    *,
    held: Collection[str] = (),
    busy: Collection[str] = (),
) -> list[Take]:
    """Decide which leases to take now.

    Args:
        leases: Every lease of the table.
        observed: Ages, fed with the same scan.
        me: This worker's id.
        now: Monotonic time.
        limits: Bounds from the configuration.
        rng: Source of the random choice that keeps workers from racing for the same lease.
        held: Keys of leases that this worker holds: they count, they are not taken.
        busy: Keys whose previous shard consumer is still winding down here; taking one of them now would
            let two callbacks of a shard overlap.

    Returns:
        Takes in order; each may still lose its conditional write.
    """
    active = [lease for lease in leases if not lease.is_finished]
    mine: list[Lease] = []
    resumable: list[Lease] = []
    free: list[Lease] = []
    by_owner: dict[str, list[Lease]] = {}
    for lease in active:
        if lease.lease_key in held:
            mine.append(lease)
        elif lease.owner is None or observed.is_expired(lease, now):
            free.append(lease)
        elif lease.owner == me:
            # With a handover marker it is not ours yet: its last owner still works on it.
            if lease.checkpoint_owner is None:
                resumable.append(lease)
        else:
            by_owner.setdefault(lease.owner, []).append(lease)
    resumable.extend(lease for lease in free if lease.owner == me)
    free = [lease for lease in free if lease.owner != me]

    def available(candidates: Sequence[Lease]) -> list[Lease]:
        result = [lease for lease in candidates if lease.lease_key not in busy]
        rng.shuffle(result)
        return result

    room = max(0, limits.max_leases - len(mine))
    takes = [Take(lease, TakeReason.RESUMED) for lease in available(resumable)[:room]]
    count = len(mine) + len(takes)

    workers = len(by_owner) + 1
    share = 1 if workers >= len(active) else -(-len(active) // workers)
    need = min(share, limits.max_leases) - count
    if need <= 0:
        return takes
    if free:
        return takes + [Take(lease, TakeReason.EXPIRED) for lease in available(free)[:need]]
    if not by_owner or limits.max_steals == 0:
        return takes
    most = max(len(owned) for owned in by_owner.values())
    # Sorted, so that the choice depends on the generator and not on the order of the scan.
    victim = rng.choice(sorted(owner for owner, owned in by_owner.items() if len(owned) == most))
    excess = most - share
    number = min(need, excess, limits.max_steals) if excess > 0 else int(need > 1)
    # A lease in handover is on its way already.
    loot = [lease for lease in by_owner[victim] if lease.checkpoint_owner is None]
    return takes + [Take(lease, TakeReason.STOLEN) for lease in available(loot)[:number]]
