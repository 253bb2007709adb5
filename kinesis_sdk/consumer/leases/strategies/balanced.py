"""The default strategy: everybody computes the same shares from the same table and fetches only its own.

**Shares.** With ``n`` unfinished leases and ``N`` workers, everyone gets ``floor(n / N)``, and ``n mod N`` of them one
more. Each group of ``m`` workers gets ``floor`` or ``ceil`` of ``n * m / N``. Within these bounds the workers that
hold more than the floor keep the extra leases, so the leases that move are the fewest that any balanced table needs.

**Fetching.** Leases to place (free ones first, then what some hold above their share) and places to fill are put
into an order that depends on the table only. Each worker fetches what meets its own places. Peers that act on the
same table therefore never race, and after some of them acted the others still find their own leases where they were.

**A newcomer** holds nothing, so nobody counts it, and it counts no other newcomer. It fetches a single lease, any
one that a worker above the floor can spare, and looks again: by then all newcomers are in the table, and everybody
knows the true shares. So a cold start takes two looks, and a fleet that doubles does not fetch leases twice.

**More workers than leases.** Who holds nothing stays unseen, which matters to nobody but the groups: how many leases
are due to one depends on all of its workers. So where there are groups, a worker without a share leaves a mark (see
`standby`), and plans count it like any other.

**A fleet that gathers** (a look shows workers that the one before did not) is not levelled yet: free leases are
fetched at once, those of live workers once nobody new appears.

**It never oscillates.** Let D be the fewest moves to a balanced table. Nobody acts when D is 0; everything else that
is fetched lowers D by one, because it belongs to some plan of D moves. Views that differ (a scan is a moment old)
can make two workers fetch from one that can spare a single lease; the next look repairs that, from a lower D.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from kinesis_sdk.consumer.leases.strategies.base import (
    Give,
    Plan,
    Standings,
    TableView,
    Take,
    TakeReason,
    reason_to_claim,
)
from kinesis_sdk.consumer.leases.strategies.by_count import plan_by_count, shares
from kinesis_sdk.consumer.leases.strategies.by_throughput import plan_by_weight, spared_by_weight, weights_of
from kinesis_sdk.consumer.leases.strategies.groups import SEPARATOR, Groups
from kinesis_sdk.consumer.leases.table.lease import Lease

_SUBSTITUTES = 8
"""Leases that a newcomer tries until it wins one. Newcomers choose at random and rarely meet; where they do, the
next look is a second away."""


class BalancedStrategy:
    """Fair to workers and to groups, with the fewest moves; see the module's text.

    Args:
        by_throughput: Whether leases weigh what they deliver, where the table knows it; else they all weigh the same.
        separator: Ends the group's label in a worker id.
    """

    def __init__(self, *, by_throughput: bool = True, separator: str = SEPARATOR) -> None:
        self._by_throughput = by_throughput
        self._groups = Groups(separator)

    def plan(self, view: TableView, rng: Random) -> Plan:
        """Decide which leases to take now; see `LeaseStrategy.plan`."""
        return self.decide(view, Standings.of(view), rng)

    def decide(self, view: TableView, standings: Standings, rng: Random) -> Plan:
        """`plan` for a table that is sorted already."""
        room = max(0, view.limits.max_leases - len(standings.mine))
        resumed = [lease for lease in standings.resumable if lease.lease_key not in view.busy][:room]
        takes = [Take(lease, TakeReason.RESUMED) for lease in resumed]
        room -= len(takes)
        me = view.me
        holdings = standings.by_owner.copy()
        for worker in standings.silent:
            holdings.pop(worker, None)
        known = standings.leaving.union(view.workers) - standings.silent
        for worker in known:
            holdings.setdefault(worker, [])
        holdings[me] = [*standings.mine, *standings.resumable]
        groups = self._groups
        most = view.limits.max_leases
        weights = weights_of(view.leases) if self._by_throughput else None
        if not holdings[me] and me not in known:
            return self._introduce(view, holdings, standings.free, groups, weights, rng)

        parcels = (
            plan_by_count(holdings, standings.free, groups, most)
            if weights is None
            else plan_by_weight(holdings, standings.free, groups, most, weights)
        )
        steals = 0 if view.observed.is_gathering else view.limits.max_steals
        gives: list[Give] = []
        mine_to_come = False
        for parcel in parcels:
            if parcel.giver == me:
                gives.append(Give(parcel.lease, parcel.taker))
            if parcel.taker != me:
                continue
            mine_to_come = True
            if parcel.lease.lease_key in view.busy or room <= 0:
                continue
            if parcel.giver is None:
                takes.append(Take(parcel.lease, reason_to_claim(parcel.lease)))
            elif steals is None or steals > 0:
                takes.append(Take(parcel.lease, TakeReason.STOLEN))
                steals = None if steals is None else steals - 1
            else:
                continue
            room -= 1
        lying = view.observed.free_longer(standings.free, view.now, view.patience)
        takes.extend(self._left_lying(view, lying, takes, room, len(holdings), rng))
        return Plan(
            takes=tuple(takes),
            gives=tuple(gives),
            # Other free leases are fetched by somebody, as far as we know.
            rescan_soon=mine_to_come or len(lying) < len(standings.free),
            # Of one group nobody need know who holds nothing.
            put_standby_heartbeat=not holdings[me] and (me in view.workers or groups.differ(holdings)),
        )

    @staticmethod
    def _introduce(
        view: TableView,
        holdings: Mapping[str, Sequence[Lease]],
        free: Sequence[Lease],
        groups: Groups,
        weights: Mapping[str, int] | None,
        rng: Random,
    ) -> Plan:
        """Become visible: fetch one lease, if a share is due at all."""
        counts = {worker: len(leases) for worker, leases in holdings.items()}
        share = shares(counts, sum(counts.values()) + len(free), groups, view.limits.max_leases)
        if not share[view.me]:
            # More workers than leases: nothing is due, unless nobody else cares. Between groups it matters how many
            # we are.
            lying = view.observed.free_longer(free, view.now, view.patience)
            overdue = BalancedStrategy._left_lying(
                view, lying, (), view.limits.max_leases, len(holdings), rng
            )
            return Plan(takes=tuple(overdue[:1]), put_standby_heartbeat=groups.differ(holdings))
        moves = False
        candidates = [lease for lease in free if lease.lease_key not in view.busy] if view.busy else free
        if not candidates and view.limits.max_steals != 0:
            # Any lease of a worker that can spare one, not only those that a plan would name: other newcomers,
            # of whom we do not know, would all want the same.
            moves = True
            candidates = (
                _spared_by_count(holdings, counts, share, groups)
                if weights is None
                else spared_by_weight(holdings, groups, view.me, weights)
            )
            if view.busy:
                candidates = [lease for lease in candidates if lease.lease_key not in view.busy]
        chosen = rng.sample(candidates, min(_SUBSTITUTES, len(candidates)))
        return Plan(
            takes=tuple(
                Take(lease, TakeReason.STOLEN if moves else reason_to_claim(lease)) for lease in chosen
            ),
            most=1,
            rescan_soon=bool(chosen),
            put_standby_heartbeat=not chosen,
        )

    @staticmethod
    def _left_lying(
        view: TableView,
        lying: Sequence[Lease],
        takes: Sequence[Take],
        room: int,
        workers: int,
        rng: Random,
    ) -> list[Take]:
        """A part of the free leases that their takers did not fetch: they may have less room than we think.

        Another strategy's worker, or one with a lower limit, does not know that the plan counts on it.
        """
        planned = {take.lease.lease_key for take in takes}
        candidates = [
            lease for lease in lying if lease.lease_key not in planned and lease.lease_key not in view.busy
        ]
        number = min(room, -(-len(candidates) // workers))
        return [Take(lease, reason_to_claim(lease)) for lease in rng.sample(candidates, number)]


def _spared_by_count(
    holdings: Mapping[str, Sequence[Lease]],
    counts: Mapping[str, int],
    share: Mapping[str, int],
    groups: Mapping[str, str],
) -> list[Lease]:
    """Leases whose loss fits some plan of the fewest moves: those of the fuller workers of the giving groups."""
    givers = [worker for worker, count in counts.items() if count > share[worker]]
    giving = {groups[giver] for giver in givers}
    least = min((counts[giver] for giver in givers), default=0)
    return [
        lease
        for owner in sorted(counts)
        if counts[owner] >= max(least, 1) and groups[owner] in giving
        for lease in holdings[owner]
        if not lease.in_handoff
    ]
