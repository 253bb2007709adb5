"""What a lease strategy is: a pure function from one look at the table to the leases to take now.

Every worker runs its strategy on its own scan; nobody leads. The strategy says what to do, the coordinator does it
with conditional writes, and what it could not do is decided anew at the next look.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import NamedTuple, Protocol

from kinesis_sdk.consumer.leases.table.expiry import LeaseObserver
from kinesis_sdk.consumer.leases.table.lease import Lease


class TakeReason(Enum):
    """Why a lease is taken."""

    RESUMED = "resumed"
    """It carries our worker id already: this worker was restarted."""
    NEW = "new"
    """It was never owned."""
    FREE = "free"
    """It has no owner: its last owner released it."""
    EXPIRED = "expired"
    """Its owner stopped renewing it."""
    STOLEN = "stolen"
    """It moves here from a live worker that holds more than its share: by handoff where its owner knows how."""


def reason_to_claim(lease: Lease) -> TakeReason:
    """Return why a lease that no live worker holds is taken."""
    if lease.owner is not None:
        return TakeReason.EXPIRED
    # Every write of an owner adds to the counter, and a release does so, too.
    return TakeReason.FREE if lease.counter else TakeReason.NEW


class Take(NamedTuple):
    """One decision of a strategy.

    Attributes:
        lease: The lease as seen; the write is conditional on it.
        reason: Why.
    """

    lease: Lease
    reason: TakeReason


@dataclass(frozen=True)
class Give:
    """A lease that its owner will be asked for, as far as this table tells.

    Attributes:
        lease: A lease of ours.
        to_owner: The worker to which the same plan gives it.
    """

    lease: Lease
    to_owner: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do after one look.

    Attributes:
        takes: In this order; each may still lose its conditional write.
        most: Most of ``takes`` to win: the others are substitutes for those that peers won first. None: all.
        gives: Leases of ours that peers should ask for. Information only: the receiver acts, not the giver.
        rescan_soon: Whether the next look should come soon, because the table is changing.
        put_standby_heartbeat: Whether this worker should make itself known although it holds nothing: others' plans depend on it.
    """

    takes: tuple[Take, ...] = ()
    most: int | None = None
    gives: tuple[Give, ...] = ()
    rescan_soon: bool = False
    put_standby_heartbeat: bool = False

    @property
    def moves(self) -> tuple[Take, ...]:
        """Takes from live workers."""
        return tuple(take for take in self.takes if take.reason is TakeReason.STOLEN)


@dataclass(frozen=True, kw_only=True)
class TakeLimits:
    """What a strategy may do.

    Attributes:
        max_leases: Most leases that a worker holds. Every worker is assumed to have the same limit; where they
            differ, leases that nobody takes within ``TableView.patience`` go to whoever has room.
        max_steals: Most leases that are taken from live workers in one look; None leaves it to the strategy.
    """

    max_leases: int
    max_steals: int | None = None


@dataclass(frozen=True, kw_only=True)
class TableView:
    """One look at the table, as one worker sees it.

    Attributes:
        leases: Every lease of the table.
        observed: Ages, fed with the same scan.
        me: This worker's id.
        now: Monotonic time *before* the scan began.
        limits: Bounds from the configuration.
        held: Keys of leases that this worker holds, or that are on their way to it: they count, they are not taken.
        busy: Keys whose previous shard consumer is still winding down here; taking one of them now would let two
            callbacks of a shard overlap.
        workers: Ids of workers known to live although they hold nothing; holders of leases need not be named.
        patience: Seconds that a free lease waits for the worker to which the plan gives it.
    """

    leases: Sequence[Lease]
    observed: LeaseObserver
    me: str
    now: float
    limits: TakeLimits
    held: Collection[str] = ()
    busy: Collection[str] = ()
    workers: Collection[str] = ()
    patience: float = 10.0


class LeaseStrategy(Protocol):
    """Decides which leases to take. Pure: no clock, no store, no state between looks."""

    def plan(self, view: TableView, rng: Random) -> Plan:
        """Decide what to do now.

        Args:
            view: The table and what this worker knows.
            rng: For choices that are random on purpose, so that workers do not race for the same lease.
        """
        ...


@dataclass
class Standings:
    """A table sorted by who keeps what. Finished leases (SHARD_END) are left out: they carry no work.

    Attributes:
        active: Number of unfinished leases.
        mine: Leases held here or on their way here.
        resumable: Leases that carry our id although we do not hold them: this process was restarted.
        free: Leases that nobody keeps, whoever's name they carry (but ours).
        by_owner: Leases that others keep.
        silent: Holders of at least one expired lease: probably dead, so nothing is planned for them.
        leaving: Workers that hold leases which are on their way to somebody else: those live, too.
    """

    active: int = 0
    mine: list[Lease] = field(default_factory=list)
    resumable: list[Lease] = field(default_factory=list)
    free: list[Lease] = field(default_factory=list)
    by_owner: dict[str, list[Lease]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, view: TableView) -> Standings:
        """Sort a table."""
        result = cls()
        observed, now, me = view.observed, view.now, view.me
        held = view.held if isinstance(view.held, (set, frozenset)) else frozenset(view.held)
        for lease in view.leases:
            if lease.is_finished:
                continue
            result.active += 1
            owner = lease.owner
            if lease.lease_key in held:
                result.mine.append(lease)
            elif owner is None:
                result.free.append(lease)
            elif observed.is_expired(lease, now):
                if owner == me:
                    result.resumable.append(lease)
                else:
                    result.free.append(lease)
                    result.silent.add(lease.holder or owner)
            elif owner == me:
                # With a handoff marker it is not ours yet: its last owner still works on it.
                if not lease.in_handoff:
                    result.resumable.append(lease)
            else:
                result.by_owner.setdefault(owner, []).append(lease)
            if lease.checkpoint_owner is not None and not observed.is_expired(lease, now):
                result.leaving.add(lease.checkpoint_owner)
        return result
