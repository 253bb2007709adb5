"""Shares by throughput, if the table has it (``throughputKBps``, KCL 3's attribute).

Measured rates jitter, and a plan that followed every change would never end. A stored rate is therefore rewritten only
when it changes materially (`ownership.throughput_meter`), and leases are sorted into classes, powers of two around the
median. A stream whose shards carry about equal load is balanced exactly by count. Idle shards also have a weight, because polling and
checkpoints are not free.

**Termination.** A plan depends on the rates in the table, and each of its moves lowers one objective (see `_Load`) by more
than a margin. While the stored rates are stable, the objective cannot increase, so moves end. **At rest**, the fullest and
the emptiest worker of a group differ by at most the lightest lease of the fullest worker plus a tenth of the workers' mean
load. **Moves** are close to the minimum that leads to this state (1.02 times the minimum in small fleets, where all tables can be tried);
finding the exact minimum is a packing problem and not worth its cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import log2
from statistics import median

from kinesis_sdk.consumer.leases.strategies.by_count import Assignment
from kinesis_sdk.consumer.leases.table.lease import Lease

MEDIAN_WEIGHT = 4
"""Weight of a lease of the median class; a lease of the lowest class weighs a quarter of this."""
_MIN_CLASS, _MAX_CLASS = -2, 6
IDLE_KBPS = 10.0
"""Minimum rate to compare with (1 % of a shard's capacity): below it, differences do not matter."""
MARGIN = 0.1
"""Part of a worker's mean load by which a move must lower the imbalance (the KCL's ``reBalanceThresholdPercentage``)."""
_MAX_SOURCES = 8
"""Number of the fullest workers of a group that are considered for the next move."""


def weights_of(leases: Iterable[Lease]) -> dict[str, int] | None:
    """Return the weights of leases by lease key.

    Returns:
        None if leases should be counted: fewer than half of them carry a rate, or all are in one class.
    """
    active = [lease for lease in leases if not lease.is_finished]
    rates = {lease.lease_key: lease.throughput_kbps for lease in active if lease.throughput_kbps is not None}
    if not rates or 2 * len(rates) < len(active):
        return None
    middle = median(rates.values())
    reference = max(middle, IDLE_KBPS)
    # A lease without a rate (a KCL 1.x or 2.x holds it, or its shard never got a record) weighs as much as the median of the
    # known rates. On a stream below `IDLE_KBPS`, that is less than MEDIAN_WEIGHT. With MEDIAN_WEIGHT, a lease would weigh four
    # times as much with a worker that writes no rates as it does here, and would be taken back repeatedly.
    weights = dict.fromkeys((lease.lease_key for lease in active), _weight(middle, reference))
    for key, rate in rates.items():
        weights[key] = _weight(rate, reference)
    return weights if len(set(weights.values())) > 1 else None


def _weight(rate: float, reference: float) -> int:
    exponent = round(log2(max(rate, 1e-9) / reference))
    return int(MEDIAN_WEIGHT * 2.0 ** max(_MIN_CLASS, min(_MAX_CLASS, exponent)))


class _Load:
    """Loads of workers and groups while a plan is made.

    The objective is the sum of the squares of the workers' loads plus, for each group, the square of its load over its
    size. Every move lowers it by more than a margin, so no sequence of moves returns to an earlier state.

    Workers carry out their parts of a plan independently, each after its own scan, so each part must lower the objective
    without the other parts. Therefore, within one plan, each worker and each group is either a source or a target. When
    a worker carries out its part, the source is at least as full, and the target at least as empty, as the plan assumed.
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
        self.sources: set[str] = set()
        self.targets: set[str] = set()
        self.source_groups: set[str] = set()
        self.target_groups: set[str] = set()

    def may_move(self, source: str, target: str) -> bool:
        """Return whether every worker and group is still either a source or a target after a move."""
        one, other = self.groups[source], self.groups[target]
        crosses = one != other
        return (
            source not in self.targets
            and target not in self.sources
            and not (crosses and (one in self.target_groups or other in self.source_groups))
        )

    def add_move(self, source: str, target: str) -> None:
        """Note that a lease of a live worker moves."""
        self.sources.add(source)
        self.targets.add(target)
        one, other = self.groups[source], self.groups[target]
        if one != other:
            self.source_groups.add(one)
            self.target_groups.add(other)

    def add(self, worker: str, weight: int, number: int) -> None:
        """Change the load of a worker."""
        self.by_worker[worker] += weight
        self.by_group[self.groups[worker]] += weight
        self.counts[worker] += number

    def gain(self, source: str, target: str, weight: int) -> float:
        """Return the reduction of the objective by a move, divided by twice its weight."""
        result = float(self.by_worker[source] - self.by_worker[target] - weight)
        one, other = self.groups[source], self.groups[target]
        if one != other:
            result += self.by_group[one] / self.size[one] - self.by_group[other] / self.size[other]
            result -= weight / 2 * (1 / self.size[one] + 1 / self.size[other])
        return result


def plan_by_weight(
    holdings: Mapping[str, Sequence[Lease]],
    free: Iterable[Lease],
    groups: Mapping[str, str],
    max_leases: int,
    weights: Mapping[str, int],
    pins: Mapping[str, str] | None = None,
) -> list[Assignment]:
    """Assign leases to workers by weight; every worker computes the same result from the same table.

    Unassigned leases go to the least loaded worker of the least loaded group, heaviest first. Then leases move while a
    move lowers the imbalance by more than the margin.

    Args:
        holdings: Leases of each worker; known workers without any lease are included.
        free: Unassigned and expired leases.
        groups: Each worker's group.
        max_leases: Maximum leases of one worker.
        weights: Weight by lease key.
        pins: Worker of each pinned lease, by lease key; these leases are in its holdings and stay there.
    """
    pins = pins or {}
    load = _Load(holdings, groups, weights)
    result: dict[str, Assignment] = {}
    heaps: dict[str, list[tuple[int, str]]] = {group: [] for group in load.size}
    for worker, weight in load.by_worker.items():
        if load.counts[worker] < max_leases:
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
        if load.counts[worker] < max_leases:
            heappush(heaps[group], (load.by_worker[worker], worker))
    # A lease that this plan placed may still be placed better; a lease in handoff must arrive before it can move again.
    movable = {
        worker: [lease for lease in held if not lease.in_handoff and lease.lease_key not in pins]
        for worker, held in holdings.items()
    }
    for placed in result.values():
        movable[placed.target].append(placed.lease)
    for leases in movable.values():
        leases.sort(key=lambda lease: (-weights[lease.lease_key], lease.lease_key))
    least_gain = MARGIN * sum(load.by_worker.values()) / len(load.by_worker)
    while True:
        move = _best_move(load, movable, weights, max_leases, least_gain, result)
        if move is None:
            return [*result.values()]
        lease, source, target = move
        if lease.lease_key not in result:
            load.add_move(source, target)
        movable[source].remove(lease)
        load.add(source, -weights[lease.lease_key], -1)
        load.add(target, weights[lease.lease_key], 1)
        origin = None if lease.lease_key in result else source
        result[lease.lease_key] = Assignment(lease, origin, target)


def spared_by_weight(
    holdings: Mapping[str, Sequence[Lease]],
    groups: Mapping[str, str],
    me: str,
    weights: Mapping[str, int],
    pins: Mapping[str, str],
) -> list[Lease]:
    """Return the leases of other workers that would lower the imbalance if moved alone to this worker."""
    load = _Load(holdings, groups, weights)
    least_gain = MARGIN * sum(load.by_worker.values()) / len(load.by_worker)
    return [
        lease
        for owner in sorted(holdings)
        for lease in holdings[owner]
        if owner != me
        and not lease.in_handoff
        and lease.lease_key not in pins
        and load.gain(owner, me, weights[lease.lease_key]) > least_gain
    ]


def _best_move(
    load: _Load,
    movable: Mapping[str, Sequence[Lease]],
    weights: Mapping[str, int],
    max_leases: int,
    least_gain: float,
    placed: Collection[str],
) -> tuple[Lease, str, str] | None:
    """Return the move from the fullest to the emptiest workers of the groups that lowers the objective most.

    A lease that this plan only ``placed`` is not held yet, so it may still go anywhere.
    """
    fullest: dict[str, list[str]] = {}
    emptiest: dict[str, str] = {}
    for worker in sorted(load.by_worker, key=lambda worker: (load.by_worker[worker], worker)):
        group = load.groups[worker]
        if load.counts[worker] < max_leases and worker not in load.sources:
            emptiest.setdefault(group, worker)
        if movable[worker]:
            fullest.setdefault(group, []).append(worker)
    best: tuple[float, Lease, str, str] | None = None
    for candidates in fullest.values():
        for source in candidates[-_MAX_SOURCES:]:
            for target in emptiest.values():
                if target == source:
                    continue
                fits = load.may_move(source, target)
                for lease in movable[source]:
                    if not fits and lease.lease_key not in placed:
                        continue
                    weight = weights[lease.lease_key]
                    gain = load.gain(source, target, weight)
                    total = gain * weight
                    if gain > least_gain and (best is None or total > best[0]):
                        best = (total, lease, source, target)
    return None if best is None else best[1:]
