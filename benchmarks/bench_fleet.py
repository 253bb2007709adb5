"""How fleets share leases: the KCL 2.x's strategy beside ours, in virtual time.

    python benchmarks/bench_fleet.py [--sizes 100/10 1000/200 10000/1000]

Per size and strategy: from a cold start, after 25 % of the workers crash, after the workers double, and after a
deploy in ten waves, which stops first or starts first: rounds (looks of the busiest worker) and seconds until every
lease has a live owner again (of a deploy: of the worst wave), and until nothing has to move any more; leases moved
against the fewest possible; writes that lost against a peer's; the spread over workers (largest load less the
smallest), the most by which one of two groups misses its share, and for how long the average lease had no live owner.
Then what looking and renewing costs at rest, and which of the strategy's targets are met.

The fewest moves of a deploy are those of its own events. A wave that stops first: every lease given up goes to a
survivor, for none may lie idle, and then what newcomers are due comes from others, for they have none; together two per
lease where nothing is idle (a KCL's leases expire when the newcomers are there already). One that starts first: each
lease once, since its owner goes. Newcomers of `balanced` then have a ``initial_rebalance_delay`` of 30 s.

The decisions are those of the shipped strategies. Scans see the table as it is, writes follow 50 ms later, 5 ms
apart, and lose where a peer was faster. Workers start within a second. A KCL's clean stop leaves its
leases to expire; ours releases them. Prices: on demand, us-east-1, 0.625 USD a million write units, 0.125 USD a
million read units, a month of 730 hours.
"""

from __future__ import annotations

import argparse
import sys
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from heapq import heappop, heappush
from random import Random
from typing import Any

from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig
from kinesis_sdk.consumer.leases import Lease
from kinesis_sdk.consumer.leases.intervals import scan_read_units
from kinesis_sdk.consumer.leases.strategies import Plan, TableView, TakeLimits, balanced, group_of
from kinesis_sdk.consumer.leases.strategies.balanced import plan_balanced
from kinesis_sdk.consumer.leases.strategies.base import Standings
from kinesis_sdk.consumer.leases.strategies.groups import Groups
from kinesis_sdk.consumer.leases.strategies.kcl2 import plan_kcl2

START = ExtendedSequenceNumber(TRIM_HORIZON)
WRITE_PRICE, READ_PRICE = 0.625e-6, 0.125e-6
MINUTES = 730 * 60
SIZES = ["100/10", "1000/200", "10000/1000"]
MOST_ROUNDS = 30
UNLIMITED = TakeLimits(max_leases=sys.maxsize)
PATIENT = TakeLimits(max_leases=sys.maxsize, max_steals=0)


class Sights:
    """An observer that knows from the world when each row last changed, instead of remembering it."""

    def __init__(self, world: World, worker: Worker) -> None:
        self.failover_time = world.config.failover_time
        self.is_gathering = False
        self._changed, self._looks = world.changed, worker.looks

    def first_look(self, changed: float) -> float:
        """When this worker first looked after a change; at the latest it does so now."""
        return self._looks[bisect_left(self._looks, changed)]

    def silence(self, lease: Lease, now: float) -> float:
        if lease.owner is None and lease.counter == 0:
            return float("inf")
        return now - self._looks[bisect_left(self._looks, self._changed[lease.lease_key])]

    def unowned_longer(self, leases: Iterable[Lease], now: float, seconds: float) -> list[Lease]:
        """What changed before the last of the looks that are so long ago."""
        looks, changed, failover = self._looks, self._changed, self.failover_time
        never = float("-inf")
        unowned = next((look for look in reversed(looks) if now - look > seconds), never)
        owned = next((look for look in reversed(looks) if now - look - failover > seconds), never)
        return [lease for lease in leases if changed[lease.lease_key] <= (owned if lease.owner else unowned)]


class Worker:
    def __init__(self, name: str) -> None:
        self.name = name
        self.looks: list[float] = []
        self.owners: frozenset[str] | None = None
        self.alive = True
        self.patient_until = 0.0
        self.marked_at: float | None = None

    def knows(self, other: Worker) -> bool:
        """Whether it saw another's mark change: two looks since it was made."""
        if other.marked_at is None or not other.alive:
            return False
        return other is self or len(self.looks) - bisect_left(self.looks, other.marked_at) >= 2


class World:
    """The table, the workers, and the time."""

    def __init__(self, kind: str, leases: int, seed: int = 1) -> None:
        self.kind = kind
        self.config = ConsumerConfig(lease_strategy=kind)  # type: ignore[arg-type]
        self.groups = Groups()
        self.intervals = self.config.intervals(leases)
        self.interval = self.intervals.scan
        self.soon = self.intervals.rescan
        self.rng = Random(f"{kind} {leases} {seed}")
        self.now = 0.0
        self.rows = {f"s{n:06d}": Lease(lease_key=f"s{n:06d}", checkpoint=START) for n in range(leases)}
        self.changed = dict.fromkeys(self.rows, 0.0)
        self.owned: dict[str, dict[str, Lease]] = {}
        self.lists: dict[str, list[Lease]] = {}
        self._owners: frozenset[str] | None = None
        # When the first and the last of their leases changed, which nothing but a take changes any more. In the
        # order of their deaths: that of a set of texts would differ from run to run.
        self.dead: dict[str, tuple[float, float]] = {}
        self.free: dict[str, Lease] = dict(self.rows)
        self.workers: dict[str, Worker] = {}
        self._orphans = leases
        self._orphaned_at = 0.0
        self.idle = self.owned_at = 0.0
        self.marked: set[str] = set()
        self.moved = self.failed = 0
        self.version = 0
        self._heap: list[tuple[float, int, Any]] = []
        self._number = 0

    def at(self, moment: float, action: Any) -> None:
        self._number += 1
        heappush(self._heap, (moment, self._number, action))

    def run(self, until: float, done: Any = lambda: False) -> bool:
        while self._heap and self._heap[0][0] <= until:
            self.now, _, action = heappop(self._heap)
            action()
            if done():
                return True
        self.now = until
        return bool(done())

    @property
    def orphans(self) -> int:
        """Leases without a live owner."""
        return self._orphans

    @orphans.setter
    def orphans(self, number: int) -> None:
        self.idle += self._orphans * (self.now - self._orphaned_at)
        self._orphans, self._orphaned_at = number, self.now
        if not number:
            self.owned_at = self.now

    # Workers

    def start(self, number: int, within: float = 1.0, patience: float = 0.0) -> None:
        for _ in range(number):
            index = len(self.workers)
            worker = Worker(f"{'ab'[index % 2]}|w{index:05d}")
            self.workers[worker.name] = worker
            worker.patient_until = self.now + patience
            self.at(self.now + self.rng.random() * within, lambda worker=worker: self.look(worker))

    def live(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.alive]

    def end(self, worker: Worker, *, clean: bool) -> None:
        worker.alive = False
        self.marked.discard(worker.name)
        held = self.owned.get(worker.name, {})
        self.orphans += len(held)
        for key in [*held]:
            if clean and self.kind != "kcl2":
                self._own(held[key], None)
            else:
                # Its last renewal was at any time within an interval.
                self.changed[key] = self.now - self.rng.random() * self.config.renew_interval
        if held:
            changes = [self.changed[key] for key in held]
            self.dead[worker.name] = min(changes), max(changes)

    def _own(self, row: Lease, owner: str | None) -> None:
        key = row.lease_key
        if row.owner is None:
            del self.free[key]
        else:
            del self.owned[row.owner][key]
            self._relist(row.owner)
        fresh = self.rows[key] = Lease(
            lease_key=key, owner=owner, counter=row.counter + 1, checkpoint=START, handoff_owner=owner
        )
        if owner is None:
            self.free[key] = fresh
        else:
            self.owned.setdefault(owner, {})[key] = fresh
            self._relist(owner)
        self.changed[key] = self.now
        self.version += 1

    def _relist(self, owner: str) -> None:
        """What looks share: a list per owner, made anew only where something changed."""
        if self.owned[owner]:
            if owner not in self.lists:
                self._owners = None
            self.lists[owner] = [*self.owned[owner].values()]
        else:
            self._owners = None
            del self.owned[owner]
            del self.lists[owner]
            self.dead.pop(owner, None)

    @property
    def owners(self) -> frozenset[str]:
        """Who holds leases: the same set until it changes."""
        if self._owners is None:
            self._owners = frozenset(self.owned)
        return self._owners

    def look(self, worker: Worker) -> None:
        if not worker.alive:
            return
        now = self.now
        worker.looks.append(now)
        sights = Sights(self, worker)
        standings = Standings(active=len(self.rows), free=[*self.free.values()])
        failover, early = self.config.failover_time, float("inf")
        standings.by_owner = self.lists.copy()
        standings.mine = standings.by_owner.pop(worker.name, [])
        for owner, (first, last) in self.dead.items():
            since = sights.first_look(first)
            if since == sights.first_look(last):
                # No look came between: they are all of one age.
                if now - since > failover:
                    standings.free.extend(standings.by_owner.pop(owner))
                    standings.silent.add(owner)
                elif since < now:
                    early = min(early, since + failover + 0.001)
                continue
            kept = []
            for lease in standings.by_owner.pop(owner):
                since = sights.first_look(self.changed[lease.lease_key])
                if now - since > failover:
                    standings.free.append(lease)
                    standings.silent.add(owner)
                else:
                    kept.append(lease)
                    if since < now:
                        early = min(early, since + failover + 0.001)
            if kept:
                standings.by_owner[owner] = kept
        known = {name for name in self.marked if worker.knows(self.workers[name])}
        patient = not standings.mine and now < worker.patient_until
        view = TableView(
            leases=(),
            observed=sights,  # type: ignore[arg-type]
            me=worker.name,
            now=now,
            limits=PATIENT if patient else UNLIMITED,
            workers=known,
            claim_grace=2 * self.interval + 1,
        )
        visible = bool(standings.mine) or worker.name in known
        seen = (len(standings.free), len(standings.silent), frozenset(known))
        MEMO.key = (id(self), self.version, seen, visible)
        known_owners, worker.owners = worker.owners, self.owners
        if known_owners is not None and known_owners is not worker.owners:
            sights.is_gathering = bool(worker.owners - known_owners - {worker.name})
        plan = self._plan(view, standings)
        if plan.put_standby_heartbeat and worker.marked_at is None:
            worker.marked_at = now
            self.marked.add(worker.name)
        elif worker.marked_at is not None and not plan.put_standby_heartbeat:
            worker.marked_at = None
            self.marked.discard(worker.name)
        due = now + (self.soon if plan.rescan_soon else self.interval)
        if self.intervals.scan_at_expiry:
            due = min(due, early)
        self._carry_out(worker, plan, 0, 0, now + 0.05, due)

    def _plan(self, view: TableView, standings: Standings) -> Plan:
        """Plan by the holders that the world knows, instead of grouping the whole table at every scan."""
        if self.kind == "kcl2":
            return plan_kcl2(view, standings, self.rng, prioritize_very_old=True)
        return plan_balanced(view, standings, self.rng, groups=self.groups, by_throughput=True)

    def _carry_out(self, worker: Worker, plan: Any, index: int, won: int, moment: float, due: float) -> None:
        """One write each 5 ms; writes that are bound to lose are counted, not simulated."""
        if index == len(plan.takes) or won == plan.most:
            self.at(max(due, moment), lambda: self.look(worker))
            return

        def write() -> None:
            nonlocal index, won
            if not worker.alive:
                return
            chunk = 0
            while index < len(plan.takes) and won != plan.most and chunk < 4:
                seen = plan.takes[index].lease
                index += 1
                row = self.rows[seen.lease_key]
                if row.counter != seen.counter or row.owner != seen.owner:
                    self.failed += 1
                    continue
                chunk += 1
                won += 1
                self.moved += 1
                if row.owner is None or not self.workers[row.owner].alive:
                    self.orphans -= 1
                self._own(row, worker.name)
            self._carry_out(worker, plan, index, won, self.now + 0.005 * max(1, chunk), due)

        self.at(moment, write)

    # Results

    def load(self) -> dict[str, int]:
        return {worker.name: len(self.owned.get(worker.name, ())) for worker in self.live()}

    def spread(self) -> tuple[int, float]:
        """Largest less smallest load of a worker, and the most by which a group misses its share."""
        load = self.load()
        groups: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for name, count in load.items():
            groups[group_of(name)] += count
            sizes[group_of(name)] += 1
        share = sum(load.values()) / len(load)
        return max(load.values()) - min(load.values()), max(abs(groups[g] - share * sizes[g]) for g in sizes)

    def fewest(self) -> int:
        """Moves to a fair table from here: what nobody live holds, and what some hold above their share."""
        load = self.load()
        share = balanced_shares(load, len(self.rows), {name: group_of(name) for name in load}, sys.maxsize)
        return sum(max(0, share[name] - count) for name, count in load.items())


class Memo:
    """Everybody who looks at the same table gets the same plan, so it need not be made a thousand times."""

    key: tuple[Any, ...] = ()
    last: tuple[Any, ...] = ()
    value: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if not self.key[-1] or self.key != self.last:
            self.last, self.value = self.key, original(*arguments)
        return self.value


MEMO = Memo()
original = balanced.plan_by_count
balanced_shares = sys.modules["kinesis_sdk.consumer.leases.strategies.by_count"].shares
balanced.plan_by_count = MEMO  # type: ignore[assignment]


def measure(world: World, name: str, fewest: int) -> list[str]:
    """Let the fleet recover; a row of the table."""
    begun, moved, failed, idle = world.now, world.moved, world.failed, world.idle
    looks = {worker.name: len(worker.looks) for worker in world.live()}

    def rounds() -> int:
        return max(len(worker.looks) - looks.get(worker.name, 0) for worker in world.live())

    limit = begun + MOST_ROUNDS * world.interval
    world.run(limit, lambda: not world._orphans)
    owned = (rounds(), world.now - begun) if not world.orphans else None
    last = [world.now]
    while world.now < limit:
        before = world.moved
        world.run(world.now + 2 * world.interval, lambda before=before: world.moved != before)
        if world.moved == before:
            break
        last[0] = world.now
    still = last[0] - begun if world.now < limit else None
    spread = world.spread()
    moves = world.moved - moved
    return [
        name,
        f"{owned[0]}" if owned else "-",
        f"{owned[1]:.1f}" if owned else "-",
        f"{still:.0f}" if still is not None else f"> {limit - begun:.0f}",
        f"{moves:,}",
        f"{fewest:,}",
        f"{moves / fewest:.2f}" if fewest else "-",
        f"{world.failed - failed:,}",
        f"{spread[0]}",
        f"{spread[1]:.1f}",
        f"{(world.idle - idle) / len(world.rows):.1f}",
    ]


def scenarios(kind: str, leases: int, workers: int) -> list[list[str]]:
    world = World(kind, leases)
    rows = []
    world.start(workers)
    rows.append(measure(world, "cold start", leases))
    victims = world.rng.sample(world.live(), workers // 4)
    for victim in victims:
        world.end(victim, clean=False)
    rows.append(measure(world, "25 % crash", world.fewest()))

    world = World(kind, leases)
    settle(world, workers)
    world.start(workers)
    rows.append(measure(world, "workers double", world.fewest()))

    rows.append(deploy(kind, leases, workers, start_first=False))
    rows.append(deploy(kind, leases, workers, start_first=True))
    return rows


def deploy(kind: str, leases: int, workers: int, *, start_first: bool) -> list[str]:
    """Replace every worker in ten waves, five seconds between what stops and what starts."""
    world = World(kind, leases)
    settle(world, workers)
    moved, fewest, begun, idle, failed = world.moved, 0, world.now, world.idle, world.failed
    old = world.live()
    owned = rounds = 0.0
    for wave in range(10):
        left_now = old[wave::10]
        if start_first:
            # Long enough for everybody to have seen the newcomers' marks.
            ready = max(5, 3 * world.interval)
            world.start(len(left_now), patience=0.0 if kind == "kcl2" else ready + 30)
            world.run(world.now + ready)
            fewest += sum(len(world.owned.get(worker.name, ())) for worker in left_now)
        for worker in left_now:
            world.end(worker, clean=True)
        left, orphans = world.now, world.orphans
        if not start_first:
            world.run(left + 5)
            world.start(len(left_now))
            # Each orphan moves at least once; what the newcomers are due is counted on the table that they find.
            fewest += orphans - world.orphans + world.fewest()
        world.run(left + 65)
        ended = world.owned_at if not world.orphans else world.now
        looked = max(bisect_right(w.looks, ended) - bisect_left(w.looks, left) for w in world.live())
        owned, rounds = max((owned, rounds), (ended - left, looked))
    row = measure(world, f"deploy, {'start' if start_first else 'stop'}s first", fewest)
    row[1], row[2] = f"{rounds:.0f}", f"{owned:.1f}"
    row[3] = f"{world.now - 2 * world.interval - begun:.0f}" if not row[3].startswith(">") else row[3]
    row[4], row[6] = f"{world.moved - moved:,}", f"{(world.moved - moved) / fewest:.2f}"
    row[7] = f"{world.failed - failed:,}"
    row[10] = f"{(world.idle - idle) / len(world.rows):.1f}"
    return row


def targets(rows: list[list[str]], config: ConsumerConfig, leases: int) -> list[str]:
    """What the default strategy promises, held against its rows."""
    look = config.intervals(leases).scan
    limit = config.failover_time + 2 * look
    ours = {row[1]: row[2:] for row in rows if row[0] == "balanced"}
    cold, crash = ours["cold start"], ours["25 % crash"]
    checks = [
        (f"cold start: everything owned within 2 looks ({cold[0]})", float(cold[0]) <= 2),
        (
            f"crash: everything owned within failover time + 2 looks ({crash[1]} of {limit:.1f} s)",
            float(crash[1]) <= limit,
        ),
        ("spread over workers at most 1", all(int(row[7]) <= 1 for row in ours.values())),
        ("no group off by 1", all(float(row[8]) < 1 for row in ours.values())),
        ("moves at most 1.1 times the fewest", all(float(row[5]) <= 1.1 for row in ours.values())),
    ]
    return [f"  {'met   ' if met else 'MISSED'}  {what}" for what, met in checks]


def settle(world: World, workers: int) -> None:
    """Begin with a fleet at rest: shares dealt out, everybody looking at some time within an interval."""
    world.start(workers, within=world.interval)
    names = [*world.workers]
    for index, row in enumerate([*world.rows.values()]):
        world._own(row, names[index % workers])
    world.orphans = 0
    world.run(world.interval)


def costs(kind: str, leases: int, workers: int) -> list[str]:
    config = ConsumerConfig(lease_strategy=kind)  # type: ignore[arg-type]
    reads = workers * scan_read_units(leases) * 60 / config.intervals(leases).scan
    writes = leases * 60 / config.renew_interval
    return [
        f"{config.intervals(leases).scan:.1f} s",
        f"{config.renew_interval:.2f} s",
        f"{reads:,.0f}",
        f"{writes:,.0f}",
        f"{reads * MINUTES * READ_PRICE:,.0f}",
        f"{writes * MINUTES * WRITE_PRICE:,.0f}",
        f"{reads * MINUTES * READ_PRICE + writes * MINUTES * WRITE_PRICE:,.0f}",
    ]


def table(header: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    print()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="leases/workers")
    arguments = parser.parse_args()
    bills = []
    for size in arguments.sizes:
        leases, workers = map(int, size.split("/"))
        begun = time.process_time()
        rows = []
        for kind in ("kcl2", "balanced"):
            rows.extend([kind, *row] for row in scenarios(kind, leases, workers))
            bills.append([size, kind, *costs(kind, leases, workers)])
        order = [row[1] for row in rows[: len(rows) // 2]]
        rows.sort(key=lambda row: order.index(row[1]))
        print(f"{leases:,} leases, {workers:,} workers ({time.process_time() - begun:.0f} s of CPU)")
        header = ["strategy", "", "rounds", "owned s", "still s", "moved", "fewest", "ratio", "lost races"]
        table([*header, "spread", "group off", "idle s"], rows)
        print("targets of balanced")
        print("\n".join(targets(rows, ConsumerConfig(), leases)) + "\n")
    print("at rest, per minute and month")
    header = ["size", "strategy", "look", "renew", "read units/min", "writes/min"]
    table([*header, "USD reads", "USD writes", "USD"], bills)


if __name__ == "__main__":
    main()
