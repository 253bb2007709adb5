"""Sharing of leases by fleets, in virtual time: the default strategy compared with that of the KCL 2.x.

    python benchmarks/bench_fleet.py [--sizes 100/10 1000/200 10000/1000]

Scenarios for each size and strategy: a cold start, a crash of 25 % of the workers, a doubling of the workers, and a deploy in
ten waves that stops or starts workers first. The columns are:

    rounds      scans of the busiest worker until every lease has a live owner again (of a deploy: in the worst wave)
    owned s     seconds until then
    still s     seconds until no lease moves any longer
    moved       leases moved; "fewest" is the minimum possible, and "ratio" compares them
    lost races  writes that failed because another worker was faster
    spread      largest load of a worker less the smallest
    group off   maximum by which one of the two groups misses its share
    idle s      seconds for which the average lease had no live owner

Then a table shows what a shorter take-over costs: 25 % of the workers crash, with the default ``lease_scan_read_capacity`` and with one
unit for 100 leases, at which workers scan every 4.9 s. The simulation gives every scan what it asks for; a DynamoDB partition serves
3,000 read units and 1,000 write units a second.

The next table has the cost of scans and renewals at rest. Before it are the targets of the default strategy. The last one has
the CPU time of the renewal loop of one worker by the number of its leases, without the calls: the cost of a heartbeat must not
grow with it.

The fewest moves of a deploy are those that its own events cause. If a wave stops workers first, every released lease moves to a
survivor, because none may be idle, and the new workers later get their share from others: two moves for each lease if
none is idle. (Leases of a KCL expire when the new workers have already started.) If a wave starts workers first, each lease
moves once, because its owner ends. The new workers of `balanced` then have an ``initial_rebalance_delay`` of 30 s.

`fleet_plans.py` is the simulation. Workers start within a second. Costs: on demand, us-east-1, 0.625 USD for a
million write units, 0.125 USD for a million read units, a month of 730 hours.
"""

from __future__ import annotations

import argparse
import sys
import time
from bisect import bisect_left, bisect_right
from pathlib import Path

from kinesis_sdk.consumer import ConsumerConfig, LeaseConfig
from kinesis_sdk.consumer.leases.intervals import scan_read_units

sys.path.insert(0, str(Path(__file__).parent.parent))

from fleet_plans import PlanFleet

from tests.consumer.fleet.renewals import Renewals

WRITE_COST, READ_COST = 0.625e-6, 0.125e-6
MINUTES = 730 * 60
SIZES = ["100/10", "1000/200", "10000/1000"]
MAX_ROUNDS = 30
TAKEOVERS = [
    (1_000, 200, 5.0),
    (10_000, 100, 5.0),
    (10_000, 100, 100.0),
    (10_000, 2_000, 5.0),
    (10_000, 2_000, 100.0),
]
"""Leases, workers and ``lease_scan_read_capacity``."""
HELD = [250, 1000, 4000]
"""Leases of one worker."""


def measure(fleet: PlanFleet, name: str, fewest: int) -> list[str]:
    """Let the fleet recover; return a row of the table."""
    begun, moved, failed, idle = fleet.now, fleet.table.transfers, fleet.lost_races, fleet.idle
    scans = {worker.name: len(worker.scans) for worker in fleet.live()}

    def rounds() -> int:
        return max(len(worker.scans) - scans.get(worker.name, 0) for worker in fleet.live())

    limit = begun + MAX_ROUNDS * fleet.interval
    fleet.run(limit, lambda: not fleet.orphans)
    owned = (rounds(), fleet.now - begun) if not fleet.orphans else None
    last = [fleet.now]
    while fleet.now < limit:
        before = fleet.table.transfers
        fleet.run(fleet.now + 2 * fleet.interval, lambda before=before: fleet.table.transfers != before)
        if fleet.table.transfers == before:
            break
        last[0] = fleet.now
    still = last[0] - begun if fleet.now < limit else None
    spread = fleet.spread()
    moves = fleet.table.transfers - moved
    return [
        name,
        f"{owned[0]}" if owned else "-",
        f"{owned[1]:.1f}" if owned else "-",
        f"{still:.0f}" if still is not None else f"> {limit - begun:.0f}",
        f"{moves:,}",
        f"{fewest:,}",
        f"{moves / fewest:.2f}" if fewest else "-",
        f"{fleet.lost_races - failed:,}",
        f"{spread[0]}",
        f"{spread[1]:.1f}",
        f"{(fleet.idle - idle) / fleet.size:.1f}",
    ]


def scenarios(kind: str, leases: int, workers: int) -> list[list[str]]:
    fleet = PlanFleet(kind, leases)
    rows = []
    fleet.start(workers)
    rows.append(measure(fleet, "cold start", leases))
    victims = fleet.rng.sample(fleet.live(), workers // 4)
    for victim in victims:
        fleet.end(victim, clean=False)
    rows.append(measure(fleet, "25 % crash", fleet.fewest_moves()))

    fleet = PlanFleet(kind, leases)
    fleet.start_at_rest(workers)
    fleet.start(workers)
    rows.append(measure(fleet, "workers double", fleet.fewest_moves()))

    rows.append(deploy(kind, leases, workers, start_first=False))
    rows.append(deploy(kind, leases, workers, start_first=True))
    return rows


def deploy(kind: str, leases: int, workers: int, *, start_first: bool) -> list[str]:
    """Replace every worker in ten waves, with five seconds between stops and starts; return a row of the table."""
    fleet = PlanFleet(kind, leases)
    fleet.start_at_rest(workers)
    moved, fewest, begun, idle, failed = fleet.table.transfers, 0, fleet.now, fleet.idle, fleet.lost_races
    old = fleet.live()
    owned = rounds = 0.0
    for wave in range(10):
        left_now = old[wave::10]
        if start_first:
            # Long enough for all workers to see the heartbeats of the new ones.
            ready = max(5, 3 * fleet.interval)
            fleet.start(len(left_now), initial_rebalance_delay=0.0 if kind == "kcl2" else ready + 30)
            fleet.run(fleet.now + ready)
            fewest += sum(len(fleet.owned.get(worker.name, ())) for worker in left_now)
        for worker in left_now:
            fleet.end(worker, clean=True)
        left, orphans = fleet.now, fleet.orphans
        if not start_first:
            fleet.run(left + 5)
            fleet.start(len(left_now))
            # Each orphan moves at least once; the share of the new workers is computed from the table that they find.
            fewest += orphans - fleet.orphans + fleet.fewest_moves()
        fleet.run(left + 65)
        ended = fleet.owned_at if not fleet.orphans else fleet.now
        scanned = max(bisect_right(w.scans, ended) - bisect_left(w.scans, left) for w in fleet.live())
        owned, rounds = max((owned, rounds), (ended - left, scanned))
    row = measure(fleet, f"deploy, {'start' if start_first else 'stop'}s first", fewest)
    row[1], row[2] = f"{rounds:.0f}", f"{owned:.1f}"
    row[3] = f"{fleet.now - 2 * fleet.interval - begun:.0f}" if not row[3].startswith(">") else row[3]
    row[4], row[6] = f"{fleet.table.transfers - moved:,}", f"{(fleet.table.transfers - moved) / fewest:.2f}"
    row[7] = f"{fleet.lost_races - failed:,}"
    row[10] = f"{(fleet.idle - idle) / fleet.size:.1f}"
    return row


def targets(rows: list[list[str]], config: ConsumerConfig, leases: int) -> list[str]:
    """Compare the rows of the default strategy with its targets."""
    scan_interval = config.leases.intervals(leases).scan
    limit = config.leases.failover_time + 2 * scan_interval
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


def costs(kind: str, leases: int, workers: int) -> list[str]:
    config = ConsumerConfig(leases=LeaseConfig(lease_strategy=kind))  # type: ignore[arg-type]
    reads = workers * scan_read_units(leases) * 60 / config.leases.intervals(leases).scan
    writes = leases * 60 / config.leases.renew_interval
    return [
        f"{config.leases.intervals(leases).scan:.1f} s",
        f"{config.leases.renew_interval:.2f} s",
        f"{reads:,.0f}",
        f"{writes:,.0f}",
        f"{reads * MINUTES * READ_COST:,.0f}",
        f"{writes * MINUTES * WRITE_COST:,.0f}",
        f"{reads * MINUTES * READ_COST + writes * MINUTES * WRITE_COST:,.0f}",
    ]


def takeover(leases: int, workers: int, capacity: float) -> list[str]:
    """Let 25 % of the workers of a fleet at rest crash; return a row of the table."""
    settings = LeaseConfig(lease_scan_read_capacity=capacity)
    fleet = PlanFleet("balanced", leases, settings=settings)
    fleet.start_at_rest(workers)
    fleet.run(fleet.now + 2 * fleet.interval)
    for victim in fleet.rng.sample(fleet.live(), workers // 4):
        fleet.end(victim, clean=False)
    begun = fleet.now
    fleet.run(begun + 10 * fleet.interval, lambda: not fleet.orphans)
    limit = settings.failover_time + 2 * fleet.interval
    reads = workers * scan_read_units(leases) / fleet.interval
    writes = leases / fleet.config.leases.renew_interval
    return [
        f"{leases:,}",
        f"{workers:,}",
        f"{capacity:g}",
        f"{fleet.interval:.1f} s",
        "-" if fleet.orphans else f"{fleet.now - begun:.1f} s",
        f"{limit:.1f} s",
        f"{reads:,.0f}",
        f"{writes:,.0f}",
        f"{reads * MINUTES * 60 * READ_COST:,.0f}",
    ]


def renewals() -> list[list[str]]:
    """Return CPU time of a heartbeat by number of held leases: the minimum of three minutes, compared with the fewest leases."""
    rows: list[list[str]] = []
    first = 0.0
    for count in HELD:
        scene = Renewals(count)
        scene.run(10.0)
        best, sent = float("inf"), 0
        for _ in range(3):
            before = sum(row.counter for row in scene.store.list())
            begun = time.process_time()
            scene.run(60.0)
            best = min(best, time.process_time() - begun)
            sent = sum(row.counter for row in scene.store.list()) - before
        each = best / sent
        first = first or each
        rows.append(
            [f"{count:,}", f"{sent:,}", f"{each * 1e6:.1f}", f"{each / first:.2f}", f"{best / 60:.4f}"]
        )
    return rows


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
    print("25 % of the workers crash")
    rows = [takeover(*size) for size in TAKEOVERS]
    header = ["leases", "workers", "capacity", "look", "owned", "limit", "read units/s", "writes/s"]
    table([*header, "USD reads/month"], rows)
    print("at rest, per minute and month")
    header = ["size", "strategy", "look", "renew", "read units/min", "writes/min"]
    table([*header, "USD reads", "USD writes", "USD"], bills)
    print("renewal loop of one worker, without the calls")
    table(["leases", "heartbeats/min", "us each", "ratio", "cores"], renewals())


if __name__ == "__main__":
    main()
