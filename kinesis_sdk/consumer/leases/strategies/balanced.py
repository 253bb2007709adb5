"""The default strategy: every worker computes the same assignment from the same table and takes only its own part.

**Shares.** With ``n`` unfinished leases and ``N`` workers, each worker is assigned ``floor(n / N)`` leases, and ``n mod N`` of the workers
one more. Each group of ``m`` workers is assigned ``floor`` or ``ceil`` of ``n * m / N``. Within these bounds, the workers that hold more
than the floor keep the extra leases, so no balanced table needs fewer moves.

**Taking.** The leases to place (unassigned and expired leases first, then leases that workers hold above their share) and the open places
are sorted only by the table's content. Each worker takes the leases for its own places. Workers that act on
the same table therefore never compete for a lease, and a worker that acts later still finds its own leases unchanged.

**New workers.** A worker without leases does not appear in the table, so other workers do not count it, and it does not
count other new workers. A new worker takes any single lease that a worker above the floor can spare, and scans again. By then all new
workers are in the table and the shares are right. So a cold start takes two scans, and a fleet
that doubles does not move leases twice.

**More workers than leases.** A worker without a lease stays invisible. Invisible workers matter only to groups: the
share of a group depends on all of its workers. With several groups, a worker without a share therefore writes a standby
heartbeat (see `ownership.standby`), and plans count it like any other worker.

**Pinned leases** (``pinnedTo``) count as held by the worker that they are pinned to, while it is alive, and do not leave it.
That worker requests its pinned leases from their holders; if it has no leases, it takes the pinned leases first. All other
leases are shared as if the pinned leases had already arrived, so a table at rest stays at rest: each pinned lease moves
once. **Draining workers** count as absent and their leases as unassigned, but peers request these leases instead of taking them.

**A fleet that is starting** (a scan shows workers that the previous scan did not show) is not balanced yet: unassigned leases
are taken at once, leases of live workers only when no new worker appears.

**Termination.** Let D be the minimum number of moves to a balanced table. No worker moves a lease when D is 0; otherwise
every move lowers D by one, because it belongs to some plan of D moves. Two workers whose scans differ by a moment may
both take from a worker that can spare only one lease; the next scan corrects this, from a lower D.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from random import Random

from kinesis_sdk.consumer.leases.intervals import Intervals, IntervalSettings, default_intervals
from kinesis_sdk.consumer.leases.strategies.base import (
    Plan,
    Standings,
    TableView,
    Take,
    TakeReason,
    effective_pins,
    reason_to_claim,
)
from kinesis_sdk.consumer.leases.strategies.by_count import Assignment, fair_shares, plan_by_count
from kinesis_sdk.consumer.leases.strategies.by_throughput import plan_by_weight, spared_by_weight, weights_of
from kinesis_sdk.consumer.leases.strategies.groups import GROUP_SEPARATOR, Groups
from kinesis_sdk.consumer.leases.table.lease import Lease

_SUBSTITUTES = 8
"""Maximum leases that a new worker tries to take until a take succeeds. New workers choose at random and rarely choose the
same lease; if they do, the next scan is a second away."""


class BalancedStrategy:
    """Fair to workers and to groups, with the fewest moves; see the module's docstring.

    Args:
        by_throughput: Whether leases are weighted by throughput if the table has it; otherwise, they are counted.
        separator: Text that ends the group's label in a worker id.
    """

    def __init__(self, *, by_throughput: bool = True, separator: str = GROUP_SEPARATOR) -> None:
        self._by_throughput = by_throughput
        self._groups = Groups(separator)

    def plan(self, view: TableView, rng: Random) -> Plan:
        """Decide which leases to take now; see `LeaseStrategy.plan`."""
        return plan_balanced(
            view, Standings.of(view), rng, groups=self._groups, by_throughput=self._by_throughput
        )

    def intervals(self, settings: IntervalSettings, leases: int) -> Intervals:
        """Return the default intervals; see `LeaseStrategy.intervals`."""
        return default_intervals(settings, leases)


def plan_balanced(
    view: TableView, standings: Standings, rng: Random, *, groups: Groups, by_throughput: bool
) -> Plan:
    """Decide which leases to take; ``standings`` are the leases of ``view`` by holder."""
    room = max(0, view.limits.max_leases - len(standings.mine))
    resumed = [lease for lease in standings.resumable if lease.lease_key not in view.busy][:room]
    takes = [Take(lease, TakeReason.RESUMED) for lease in resumed]
    room -= len(takes)
    me = view.me
    holdings = standings.by_owner.copy()
    for worker in standings.silent:
        holdings.pop(worker, None)
    known = standings.leaving.union(view.workers) - standings.silent
    known.difference_update(view.draining)
    for worker in known:
        holdings.setdefault(worker, [])
    holdings[me] = [*standings.mine, *standings.resumable]
    max_leases = view.limits.max_leases
    weights = weights_of(view.leases) if by_throughput else None
    is_visible = bool(holdings[me]) or me in known
    # Leases of live workers: placed like unassigned leases, but requested instead of taken.
    surrendered = {lease.lease_key for lease in standings.surrendered}
    free = [*standings.free, *standings.surrendered] if surrendered else standings.free
    pins = effective_pins(standings.pinned, holdings, max_leases) if standings.pinned else {}
    assignments: list[Assignment] = []
    if pins:
        holdings, free, pins, assignments = _with_pins(holdings, free, standings.pinned, pins)
    if is_visible:
        assignments += (
            plan_by_count(holdings, free, groups, max_leases, pins)
            if weights is None
            else plan_by_weight(holdings, free, groups, max_leases, weights, pins)
        )
    steals = 0 if view.observed.is_gathering else view.limits.max_steals
    has_assignment = False
    for assignment in assignments:
        if assignment.target != me:
            continue
        has_assignment = True
        key = assignment.lease.lease_key
        if key in view.busy or room <= 0:
            continue
        if assignment.source is None and key not in surrendered:
            takes.append(Take(assignment.lease, reason_to_claim(assignment.lease)))
        elif steals is None or steals > 0:
            takes.append(Take(assignment.lease, TakeReason.STOLEN))
            steals = None if steals is None else steals - 1
        else:
            continue
        room -= 1
    if not is_visible:
        if takes:  # leases pinned to this worker; its share follows once its peers count it
            return Plan(takes=tuple(takes), rescan_soon=True)
        return _plan_first_lease(view, holdings, free, groups, weights, rng, pins, surrendered)
    unclaimed = view.observed.unowned_longer(standings.free, view.now, view.claim_grace)
    takes.extend(_take_unclaimed(view, unclaimed, takes, room, len(holdings), rng))
    return Plan(
        takes=tuple(takes),
        # All other unassigned leases are assigned to other workers, which will take them soon.
        rescan_soon=has_assignment or len(unclaimed) < len(standings.free),
        # Within a single group it does not matter which workers hold no lease.
        put_standby_heartbeat=not holdings[me] and (me in view.workers or groups.differ(holdings)),
    )


def _with_pins(
    holdings: Mapping[str, Sequence[Lease]],
    free: Sequence[Lease],
    pinned: Sequence[Lease],
    pins: Mapping[str, str],
) -> tuple[dict[str, list[Lease]], list[Lease], dict[str, str], list[Assignment]]:
    """Return the holdings and free leases as they are once all pinned leases have arrived, the pins, and the moves that lead there.

    An unexpired lease of a worker that is probably dead is neither held nor free, and cannot be moved.
    """
    places: dict[str, str | None] = {lease.lease_key: None for lease in free}
    places.update((lease.lease_key, worker) for worker, held in holdings.items() for lease in held)
    pins = {key: worker for key, worker in pins.items() if key in places}
    moves = [
        Assignment(lease, places[lease.lease_key], pins[lease.lease_key])
        for lease in sorted(pinned, key=lambda lease: lease.lease_key)
        if lease.lease_key in pins and places[lease.lease_key] != pins[lease.lease_key]
    ]
    moving = {move.lease.lease_key for move in moves}
    after = {
        worker: [lease for lease in held if lease.lease_key not in moving]
        for worker, held in holdings.items()
    }
    for move in moves:
        after[move.target].append(move.lease)
    return after, [lease for lease in free if lease.lease_key not in moving], pins, moves


def _plan_first_lease(
    view: TableView,
    holdings: Mapping[str, Sequence[Lease]],
    free: Sequence[Lease],
    groups: Groups,
    weights: Mapping[str, int] | None,
    rng: Random,
    pins: Mapping[str, str],
    surrendered: Collection[str],
) -> Plan:
    """Take one lease to become visible to other workers, if this worker has any share."""
    counts = {worker: len(leases) for worker, leases in holdings.items()}
    total = sum(counts.values()) + len(free)
    share = fair_shares(counts, total, groups, view.limits.max_leases, Counter(pins.values()))
    if surrendered:
        requested = [lease for lease in free if lease.lease_key in surrendered]
        free = [lease for lease in free if lease.lease_key not in surrendered]
    else:
        requested = []
    if not share[view.me]:
        # More workers than leases: this worker takes only leases that no other worker claims. With several groups, the
        # number of workers in each group matters.
        unclaimed = view.observed.unowned_longer(free, view.now, view.claim_grace)
        overdue = _take_unclaimed(view, unclaimed, (), view.limits.max_leases, len(holdings), rng)
        return Plan(takes=tuple(overdue[:1]), put_standby_heartbeat=groups.differ(holdings))
    moves = False
    candidates = [lease for lease in free if lease.lease_key not in view.busy] if view.busy else free
    if not candidates and view.limits.max_steals != 0:
        # Any lease of a worker that can spare one, not only the leases that a plan would name: other new workers, which
        # are invisible to this one, would all want the same leases.
        moves = True
        candidates = requested or (
            _spared_by_count(holdings, counts, share, groups, pins)
            if weights is None
            else spared_by_weight(holdings, groups, view.me, weights, pins)
        )
        if view.busy:
            candidates = [lease for lease in candidates if lease.lease_key not in view.busy]
    chosen = rng.sample(candidates, min(_SUBSTITUTES, len(candidates)))
    return Plan(
        takes=tuple(Take(lease, TakeReason.STOLEN if moves else reason_to_claim(lease)) for lease in chosen),
        most=1,
        rescan_soon=bool(chosen),
        put_standby_heartbeat=not chosen,
    )


def _take_unclaimed(
    view: TableView,
    unclaimed: Sequence[Lease],
    takes: Sequence[Take],
    room: int,
    workers: int,
    rng: Random,
) -> list[Take]:
    """Take a part of the leases that their assigned workers did not take in time.

    Workers with another strategy or a lower limit do not follow the plan that relies on them.
    """
    planned = {take.lease.lease_key for take in takes}
    candidates = [
        lease for lease in unclaimed if lease.lease_key not in planned and lease.lease_key not in view.busy
    ]
    number = min(room, -(-len(candidates) // workers))
    return [Take(lease, reason_to_claim(lease)) for lease in rng.sample(candidates, number)]


def _spared_by_count(
    holdings: Mapping[str, Sequence[Lease]],
    counts: Mapping[str, int],
    share: Mapping[str, int],
    groups: Mapping[str, str],
    pins: Mapping[str, str],
) -> list[Lease]:
    """Return the leases that could move in a plan with the fewest moves.

    These are the leases of the fuller workers in groups that hold more than their share.
    """
    sources = [worker for worker, count in counts.items() if count > share[worker]]
    source_groups = {groups[source] for source in sources}
    least = min((counts[source] for source in sources), default=0)
    return [
        lease
        for owner in sorted(counts)
        if counts[owner] >= max(least, 1) and groups[owner] in source_groups
        for lease in holdings[owner]
        if not lease.in_handoff and lease.lease_key not in pins
    ]
