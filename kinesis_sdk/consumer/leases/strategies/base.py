"""The interface of lease strategies: a pure function from one scan of the table to the leases to take now.

Every worker runs its strategy on its own scan; there is no coordinator. The strategy decides, and the worker carries out the
decision with conditional writes. Takes that fail are decided again after the next scan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import NamedTuple, Protocol

from kinesis_sdk.consumer.leases.intervals import Intervals, IntervalSettings
from kinesis_sdk.consumer.leases.table.expiry import LeaseObserver
from kinesis_sdk.consumer.leases.table.lease import Lease


class TakeReason(Enum):
    """Reason for which a lease is taken."""

    RESUMED = "resumed"
    """The lease already carries this worker's id: the process was restarted."""
    NEW = "new"
    """The lease was never owned."""
    FREE = "free"
    """The lease has no owner: its last owner released it."""
    EXPIRED = "expired"
    """The owner stopped renewing the lease."""
    STOLEN = "stolen"
    """The lease moves from a live worker with more than its share, by handoff if that worker supports it."""


def reason_to_claim(lease: Lease) -> TakeReason:
    """Return the reason for taking a lease that no live worker holds."""
    if lease.owner is not None:
        return TakeReason.EXPIRED
    # Every write of an owner raises the counter, including a release.
    return TakeReason.FREE if lease.counter else TakeReason.NEW


class Take(NamedTuple):
    """One decision of a strategy.

    Attributes:
        lease: The lease in the scan; the write is conditional on it.
        reason: Why it is taken. `TakeReason.STOLEN` requests a handoff from the owner if possible; with all other reasons, one write takes
            the lease.
    """

    lease: Lease
    reason: TakeReason


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The decisions after one scan.

    Attributes:
        takes: Leases to take, in this order; each write may still lose against a write of another worker.
        most: Maximum number of ``takes`` that may succeed; further entries replace leases that other workers took first. None
            takes all.
        rescan_soon: Whether the next scan should come soon, because the table is changing.
        put_standby_heartbeat: Whether this worker should make itself visible although it holds no lease, because the
            plans of other workers depend on it.
    """

    takes: tuple[Take, ...] = ()
    most: int | None = None
    rescan_soon: bool = False
    put_standby_heartbeat: bool = False


@dataclass(frozen=True, kw_only=True)
class TakeLimits:
    """Bounds that the configuration sets for a plan.

    Attributes:
        max_leases: Maximum leases that a worker holds. Every worker is assumed to have the same limit; if limits differ, any worker with
            room takes leases that were not taken within ``TableView.claim_grace``.
        max_steals: Maximum leases to take from live workers after one scan; with None, the strategy decides.
    """

    max_leases: int
    max_steals: int | None = None


@dataclass(frozen=True, kw_only=True)
class TableView:
    """One scan of the table, as one worker sees it.

    Attributes:
        leases: Every lease of the table.
        observed: Ages of the leases, fed with the same scan.
        me: This worker's id.
        now: Monotonic time *before* the scan began.
        limits: Bounds from the configuration.
        held: Keys of leases that this worker holds or that are incoming. Held leases count towards its share
            and must not be taken.
        busy: Keys that must not be taken now: their previous shard consumer is still shutting down in this worker (two
            callbacks of a shard would overlap), or their rows cannot be written.
        workers: Ids of workers that are known to be alive although they hold no lease; owners of leases need not be listed.
        draining: Ids of workers that an operator drains (`ownership.drain`): they hand off all leases and take none. A draining worker
            does not call the strategy.
        claim_grace: Seconds for which an unassigned lease is left to the worker to which the plan assigns it.
    """

    leases: Sequence[Lease]
    observed: LeaseObserver
    me: str
    now: float
    limits: TakeLimits
    held: Collection[str] = ()
    busy: Collection[str] = ()
    workers: Collection[str] = ()
    draining: Collection[str] = ()
    claim_grace: float = 10.0


class LeaseStrategy(Protocol):
    """Decides which leases a worker takes, and the intervals of its scans and renewals.

    Set `LeaseConfig.lease_strategy` to an object of this shape, or to the name of a built-in strategy. Both methods are
    pure: without a clock, the store, or state between calls. All workers of one configuration share the object.

    A plan must not take a lease whose key is in ``view.held`` or ``view.busy``, nor a finished lease, and must respect
    ``view.limits``. The worker writes on the condition that the lease has not changed since the scan, so an outdated plan does no
    harm: it takes nothing. Leases that carry this worker's id and are not held (after a restart) should be resumed.

    Example: every worker takes leases that no live worker holds, but no leases of live workers.

    ```python
    from kinesis_sdk.consumer import Intervals, Plan, Take, TakeReason

    class FirstCome:
        def plan(self, view, rng):
            room = view.limits.max_leases - len(view.held)
            unowned = [
                lease
                for lease in view.leases
                if not lease.is_finished
                and lease.lease_key not in view.held
                and lease.lease_key not in view.busy
                and (lease.owner == view.me or view.observed.is_expired(lease, view.now))
                and not lease.in_handoff
            ]
            rng.shuffle(unowned)  # so that workers do not race for the same lease
            return Plan(
                takes=tuple(
                    Take(lease, TakeReason.RESUMED if lease.owner == view.me else TakeReason.EXPIRED)
                    for lease in unowned[: max(0, room)]
                )
            )

        def intervals(self, settings, leases):
            return Intervals(renewal=settings.failover_time / 4, scan=5.0, rescan=1.0)

    config = ConsumerConfig(leases=LeaseConfig(lease_strategy=FirstCome()))
    ```
    """

    def plan(self, view: TableView, rng: Random) -> Plan:
        """Decide which leases to take after a scan.

        Args:
            view: The table, and this worker's knowledge.
            rng: Source of deliberately random choices, so that workers do not race for the same lease.
        """
        ...

    def intervals(self, settings: IntervalSettings, leases: int) -> Intervals:
        """Return the intervals of scans and renewals.

        Called when the configuration is checked, with 0 leases, and after each scan. ``renewal`` must not depend on the
        number of leases.

        Args:
            settings: Failover time and the other settings that bound the intervals.
            leases: Number of leases in the table.
        """
        ...


@dataclass
class Standings:
    """The leases of a table by holder, without finished leases (SHARD_END), which carry no work.

    Attributes:
        active: Number of unfinished leases.
        mine: Leases held by this worker, or incoming.
        resumable: Leases that carry this worker's id although it does not hold them: the process was restarted.
        free: Unassigned and expired leases, except expired leases that carry this worker's id.
        by_owner: Leases that other workers hold, by their owner.
        silent: Holders of at least one expired lease: probably dead, so no lease is assigned to them.
        leaving: Workers that still work on a lease in handoff to another worker, so that they are alive.
        surrendered: Leases that draining workers hold, without leases in handoff. Peers request these leases.
        pinned: Leases that an operator pinned to a worker (``pinnedTo``), with any holder; see `effective_pins`.

    Draining workers are in none of the sets of workers.
    """

    active: int = 0
    mine: list[Lease] = field(default_factory=list)
    resumable: list[Lease] = field(default_factory=list)
    free: list[Lease] = field(default_factory=list)
    by_owner: dict[str, list[Lease]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    surrendered: list[Lease] = field(default_factory=list)
    pinned: list[Lease] = field(default_factory=list)

    @classmethod
    def of(cls, view: TableView) -> Standings:
        """Return the leases of a scan by holder."""
        result = cls()
        observed, now, me = view.observed, view.now, view.me
        held = view.held if isinstance(view.held, (set, frozenset)) else frozenset(view.held)
        for lease in view.leases:
            if lease.is_finished:
                continue
            result.active += 1
            if lease.pinned_to is not None:
                result.pinned.append(lease)
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
                # A lease with a handoff marker is not held here yet: its last owner still works on it.
                if not lease.in_handoff:
                    result.resumable.append(lease)
            elif owner not in view.draining:
                result.by_owner.setdefault(owner, []).append(lease)
            elif not lease.in_handoff:
                result.surrendered.append(lease)
            if lease.checkpoint_owner is not None and not observed.is_expired(lease, now):
                result.leaving.add(lease.checkpoint_owner)
        result.leaving.difference_update(view.draining)
        return result


def effective_pins(pinned: Iterable[Lease], alive: Collection[str], max_leases: int) -> dict[str, str]:
    """Return the worker that gets each pinned lease, by lease key.

    A pin to a worker that is not known to be alive has no effect: the lease is taken like any other. Only a worker without leases itself
    knows that it is alive, so it takes the leases that are pinned to it; from then on, its peers do not take these leases.
    Pins beyond a worker's ``max_leases`` have no effect.
    """
    result: dict[str, str] = {}
    counts: dict[str, int] = {}
    for lease in sorted(pinned, key=lambda lease: lease.lease_key):
        worker = lease.pinned_to
        if worker is None or worker not in alive or counts.get(worker, 0) >= max_leases:
            continue
        if lease.in_handoff and lease.owner != worker:
            continue  # the lease must arrive before it can move again
        counts[worker] = counts.get(worker, 0) + 1
        result[lease.lease_key] = worker
    return result
