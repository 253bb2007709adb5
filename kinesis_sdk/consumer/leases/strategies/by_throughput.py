"""Shares by what leases deliver, where the table knows it (``throughputKBps``, KCL 3's attribute).

Measured rates jitter, and a plan that follows every jitter never rests. So a rate stays in the table as it is until it
is another one (`leases.throughput`), and leases are sorted into classes, powers of two around the median: a stream whose
shards are about even is balanced by count, exactly. Idle shards do not weigh nothing: polling and checkpoints cost as
well.

**It never oscillates**: a plan depends on the rates in the table, each of its moves lowers one number (see `_Load`) by
more than a margin, and while rates are steady that number has nowhere to come back from. **At rest** the fullest and
the emptiest worker of a group differ by no more than the lightest lease of the fullest and a tenth of a worker's mean
load. **Moves** are about the fewest that lead to such a rest (1.02 times in small fleets, where all tables can be
tried); the very fewest is a packing problem, and not worth its price.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import log2
from statistics import median

from kinesis_sdk.consumer.leases.strategies.by_count import Assignment
from kinesis_sdk.consumer.leases.table.lease import Lease

MEDIAN_WEIGHT = 4
"""Weight of a lease of the median class; the least class is a quarter of it."""
_LEAST_CLASS, _MOST_CLASS = -2, 6
IDLE_KBPS = 10.0
"""Rates are compared with at least this (1 % of a shard's capacity): below it, differences do not matter."""
MARGIN = 0.1
"""Part of a worker's mean load by which a move must improve matters (the KCL's ``reBalanceThresholdPercentage``)."""
_DONORS = 8
"""Fullest workers of a group that are looked at for the next move."""


def weights_of(leases: Iterable[Lease]) -> dict[str, int] | None:
    """Weights by class, by lease key.

    Returns:
        None where leases should be counted: fewer than half of them carry a rate, or all are of one class.
    """
    active = [lease for lease in leases if not lease.is_finished]
    rates = {lease.lease_key: lease.throughput_kbps for lease in active if lease.throughput_kbps is not None}
    if not rates or 2 * len(rates) < len(active):
        return None
    middle = median(rates.values())
    reference = max(middle, IDLE_KBPS)
    # Of a lease without a rate nothing is known (a KCL 1.x or 2.x holds it, or its shard never got a record), so it
    # weighs what the median of the known ones weighs. On a stream below `IDLE_KBPS` that is less than MEDIAN_WEIGHT:
    # with the latter, a lease would weigh four times as much with a peer that writes no rates as it does here, and
    # would be taken back again and again.
    weights = dict.fromkeys((lease.lease_key for lease in active), _weight(middle, reference))
    for key, rate in rates.items():
        weights[key] = _weight(rate, reference)
    return weights if len(set(weights.values())) > 1 else None


def _weight(rate: float, reference: float) -> int:
    exponent = round(log2(max(rate, 1e-9) / reference))
    return int(MEDIAN_WEIGHT * 2.0 ** max(_LEAST_CLASS, min(_MOST_CLASS, exponent)))


class _Load:
    """Loads of workers and groups while a plan is made.

    The plan lowers one number: the sum of the squares of the workers' loads plus, for each group, the square of its
    load over its size. Every move lowers it by more than a margin, so there is no way back, and no circle.

    Workers carry out their own parts of a plan, whenever they look, so each part must lower the number without the
    others. Therefore in one plan a worker either gives or gets, and so does a group: whoever gives was at least as full
    before, and whoever gets at least as empty, as the plan thought when it came to that move.
    """

    def __init__(
        self, holdings: Mapping[str, Sequence[Lease]], groups: Mapping[str, str], weights: Mapping[str, int]
    ) -> None:
        self.groups = groups
        self.by_worker = {w: sum(weights[lease.lease_key] for lease in held) for w, held in holdings.items()}
        self.counts = {worker: len(held) for worker, held in holdings.items()}
        self.size: dict[str, int] = {}
        self.by_group: dict[str, int] = {}
        for worker, load in self.by_worker.items():
            group = groups[worker]
            self.size[group] = self.size.get(group, 0) + 1
            self.by_group[group] = self.by_group.get(group, 0) + load
        self.givers: set[str] = set()
        self.takers: set[str] = set()
        self.giving_groups: set[str] = set()
        self.taking_groups: set[str] = set()

    def may_move(self, giver: str, taker: str) -> bool:
        """Whether a move fits the parts that the plan has given out so far."""
        one, other = self.groups[giver], self.groups[taker]
        crosses = one != other
        return (
            giver not in self.takers
            and taker not in self.givers
            and not (crosses and (one in self.taking_groups or other in self.giving_groups))
        )

    def note_move(self, giver: str, taker: str) -> None:
        self.givers.add(giver)
        self.takers.add(taker)
        one, other = self.groups[giver], self.groups[taker]
        if one != other:
            self.giving_groups.add(one)
            self.taking_groups.add(other)

    def add(self, worker: str, weight: int, number: int) -> None:
        self.by_worker[worker] += weight
        self.by_group[self.groups[worker]] += weight
        self.counts[worker] += number

    def gain(self, giver: str, taker: str, weight: int) -> float:
        """By how much a move lowers the sum, over twice its weight."""
        result = float(self.by_worker[giver] - self.by_worker[taker] - weight)
        one, other = self.groups[giver], self.groups[taker]
        if one != other:
            result += self.by_group[one] / self.size[one] - self.by_group[other] / self.size[other]
            result -= weight / 2 * (1 / self.size[one] + 1 / self.size[other])
        return result


def plan_by_weight(
    holdings: Mapping[str, Sequence[Lease]],
    free: Iterable[Lease],
    groups: Mapping[str, str],
    most: int,
    weights: Mapping[str, int],
) -> list[Assignment]:
    """Who should fetch which lease, by weight; the same for everyone who looks at the same table.

    Free leases go to the least loaded worker of the least loaded group, heaviest first; then leases move while a
    move lowers the imbalance by more than the margin.

    Args:
        holdings: Leases of each worker; workers without any are named if they are known.
        free: Leases that nobody keeps.
        groups: Each worker's group.
        most: Most leases of one worker.
        weights: Weight by lease key.
    """
    load = _Load(holdings, groups, weights)
    result: dict[str, Assignment] = {}
    heaps: dict[str, list[tuple[int, str]]] = {group: [] for group in load.size}
    for worker, weight in load.by_worker.items():
        if load.counts[worker] < most:
            heaps[groups[worker]].append((weight, worker))
    for heap in heaps.values():
        heapify(heap)
    for lease in sorted(free, key=lambda lease: (-weights[lease.lease_key], lease.lease_key)):
        weight = weights[lease.lease_key]
        group = min(
            (group for group, heap in heaps.items() if heap),
            key=lambda g: (heaps[g][0][0] + (load.by_group[g] + weight / 2) / load.size[g], g),
            default=None,
        )
        if group is None:
            break
        _, worker = heappop(heaps[group])
        load.add(worker, weight, 1)
        result[lease.lease_key] = Assignment(lease, None, worker)
        if load.counts[worker] < most:
            heappush(heaps[group], (load.by_worker[worker], worker))
    # What was just placed may still be placed better; a lease in handoff has to arrive before it can go on.
    movable = {worker: [lease for lease in held if not lease.in_handoff] for worker, held in holdings.items()}
    for placed in result.values():
        movable[placed.taker].append(placed.lease)
    for leases in movable.values():
        leases.sort(key=lambda lease: (-weights[lease.lease_key], lease.lease_key))
    least_gain = MARGIN * sum(load.by_worker.values()) / len(load.by_worker)
    while True:
        move = _best_move(load, movable, weights, most, least_gain, result)
        if move is None:
            return [*result.values()]
        lease, giver, taker = move
        if lease.lease_key not in result:
            load.note_move(giver, taker)
        movable[giver].remove(lease)
        load.add(giver, -weights[lease.lease_key], -1)
        load.add(taker, weights[lease.lease_key], 1)
        origin = None if lease.lease_key in result else giver
        result[lease.lease_key] = Assignment(lease, origin, taker)


def spared_by_weight(
    holdings: Mapping[str, Sequence[Lease]],
    groups: Mapping[str, str],
    me: str,
    weights: Mapping[str, int],
) -> list[Lease]:
    """Leases of others that would be better here, each for itself."""
    load = _Load(holdings, groups, weights)
    least_gain = MARGIN * sum(load.by_worker.values()) / len(load.by_worker)
    return [
        lease
        for owner in sorted(holdings)
        for lease in holdings[owner]
        if owner != me
        and not lease.in_handoff
        and load.gain(owner, me, weights[lease.lease_key]) > least_gain
    ]


def _best_move(
    load: _Load,
    movable: Mapping[str, Sequence[Lease]],
    weights: Mapping[str, int],
    most: int,
    least_gain: float,
    placed: Collection[str],
) -> tuple[Lease, str, str] | None:
    """The move that lowers the sum most: among the fullest workers of each group and the emptiest of each.

    What was only ``placed`` by this plan is nobody's yet, so it may still go anywhere.
    """
    fullest: dict[str, list[str]] = {}
    emptiest: dict[str, str] = {}
    for worker in sorted(load.by_worker, key=lambda worker: (load.by_worker[worker], worker)):
        group = load.groups[worker]
        if load.counts[worker] < most and worker not in load.givers:
            emptiest.setdefault(group, worker)
        if movable[worker]:
            fullest.setdefault(group, []).append(worker)
    best: tuple[float, Lease, str, str] | None = None
    for donors in fullest.values():
        for giver in donors[-_DONORS:]:
            for taker in emptiest.values():
                if taker == giver:
                    continue
                fits = load.may_move(giver, taker)
                for lease in movable[giver]:
                    if not fits and lease.lease_key not in placed:
                        continue
                    weight = weights[lease.lease_key]
                    gain = load.gain(giver, taker, weight)
                    total = gain * weight
                    if gain > least_gain and (best is None or total > best[0]):
                        best = (total, lease, giver, taker)
    return None if best is None else best[1:]
