"""Fleets of lease coordinators: random runs that must end well, and the worth of the renewal schedules."""

from __future__ import annotations

from random import Random

import pytest

from kinesis_sdk.consumer.leases import Lease
from tests.consumer.fleet.connection import TableFaults
from tests.consumer.fleet.coordinators import CoordinatorFleet, FixedRateMeter
from tests.consumer.fleet.runs import HORIZON, chaos, rest, settle
from tests.consumer.fleet.sql import sqlite_engine
from tests.fuzz import how_many, seeds, share

SEEDS = seeds(unit=16, fuzz=2000)
"""Random runs. A failure names its seed, and ``chaos(seed)`` replays it."""
ON_SQLITE = seeds(unit=2, fuzz=400)
PART = 50


@pytest.mark.fuzz
@pytest.mark.parametrize("first", SEEDS[::PART])
def test_random_runs_end_well(first):
    for seed in range(first, min(first + PART, SEEDS.stop)):
        try:
            chaos(seed)
        except Exception as error:
            raise AssertionError(f"fleet.runs.chaos({seed}): {error}") from error


@pytest.mark.fuzz
@pytest.mark.parametrize("first", ON_SQLITE[::PART])
def test_random_runs_on_sqlite_end_well(first):
    """A fifth of the runs, with leases in SQLite: each answer and each row is what the store in memory has."""
    for seed in range(first, min(first + PART, ON_SQLITE.stop)):
        try:
            chaos(seed, engine=sqlite_engine())
        except Exception as error:
            raise AssertionError(f"fleet.runs.chaos({seed}, engine=sqlite_engine()): {error}") from error


@pytest.mark.fuzz
def test_a_seed_replays_exactly():
    def trace(seed, engine=None):
        fleet = chaos(seed, engine=engine)
        return fleet.now, fleet.table.transfers, sorted((r.lease_key, r.counter) for r in fleet.table.list())

    for seed in share((3, 11, 48), unit=1):
        assert trace(seed) == trace(seed) == trace(seed, sqlite_engine())


@pytest.mark.fuzz
def test_only_changes_by_operators_are_logged_as_changes_from_outside(caplog):
    """Lost, late and slow writes, freezes and drifting clocks: none of them makes an own write look like a foreign one."""
    for seed in range(0, how_many(unit=12, fuzz=80), 2):
        chaos(seed)
    assert "changed from outside" not in caplog.text
    for seed in range(1, 21, 2):
        chaos(seed)
        if "changed from outside" in caplog.text:
            break
    else:
        raise AssertionError("operators changed nothing that a worker noticed")


def fleet_of(names, shards, config=HORIZON, **more):
    fleet = CoordinatorFleet(shards_at_start=shards, config=config, **more)
    for name in names:
        fleet.add(name)
    return fleet


def test_a_cold_start_takes_two_scans_and_takes_each_lease_once():
    fleet = fleet_of([f"w{n}" for n in range(10)], 100)
    fleet.run(2.5)
    assert fleet.settled() is None
    assert fleet.table.transfers == 100


def test_a_crash_costs_the_failover_time_and_two_scans_and_moves_only_orphans():
    fleet = fleet_of([f"w{n}" for n in range(8)], 40)
    settle(fleet, 30)
    fleet.run(fleet.now + 7)
    before = fleet.table.transfers
    for process in fleet.processes[:2]:
        process.crash()
    fleet.run(fleet.now + HORIZON.leases.failover_time + 2 * HORIZON.leases.lease_scan_interval)
    assert fleet.settled() is None
    assert fleet.table.transfers - before == 10


def lost_leases(rule, kind, chance, *, hours):
    """Count spurious expiries: transfers from a live worker, in a fleet of two that is at rest."""
    fleet = fleet_of(["holder", "peer"], 12, HORIZON.with_fields(lease_renewal_schedule=rule), seed=5)
    settle(fleet, 30)
    for process in fleet.processes:
        process._consume = lambda held: None  # no checkpoints: renewals alone keep the leases
    fleet.faults = TableFaults(**{kind: chance})
    expired = 0
    original = fleet.table.take

    def take(lease: Lease, owner: str):
        nonlocal expired
        row = fleet.table.get(lease.lease_key)
        expired += row is not None and row.owner not in (None, owner) and not row.in_handoff
        return original(lease, owner)

    fleet.table.take = take
    fleet.run(fleet.now + hours * 3600)
    return expired


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("kind", "chance"), [("lost", 0.02), ("throttled", 0.2), ("unanswered", 0.1), ("slow", 0.05)]
)
def test_sparse_renewals_lose_no_lease_at_realistic_fault_rates(kind, chance):
    assert lost_leases(None, kind, chance, hours=how_many(unit=1, fuzz=16) / 20) == 0


@pytest.mark.fuzz
def test_an_unreachable_table_costs_leases_only_beyond_a_third_of_the_failover_time():
    """A third of the failover time without the table costs nothing; two thirds may, with sparse renewals."""

    def outage(rule, seconds):
        fleet = fleet_of(["holder", "peer"], 12, HORIZON.with_fields(lease_renewal_schedule=rule))
        settle(fleet, 30)
        for _ in range(how_many(unit=3, fuzz=12)):
            fleet.run(fleet.now + 29.3)
            before = fleet.table.transfers
            fleet.faults = TableFaults(throttled=1.0)
            fleet.at(fleet.now + seconds, lambda: setattr(fleet, "faults", TableFaults()))
            fleet.run(fleet.now + seconds + 20)
            if fleet.table.transfers != before:
                return True
        return False

    third = HORIZON.leases.failover_time / 3
    assert not outage("sparse", third - 0.6)
    assert not outage("kcl2", 2 * third - 0.6)
    assert outage("sparse", 2 * third - 0.6)


def test_leases_beyond_the_limits_of_some_workers_are_taken_by_others():
    """Plans assume the same limit for all workers; leases that one cannot take go to a worker with room."""
    small = HORIZON.with_fields(max_leases_for_worker=1)
    fleet = CoordinatorFleet(shards_at_start=9, config=HORIZON)
    fleet.add("small", config=small)
    fleet.add("large")
    fleet.run(60)
    assert fleet.load() == {"small": 1, "large": 8}
    before = fleet.table.transfers
    fleet.run(fleet.now + 60)
    assert fleet.table.transfers == before


RATED = [(0, 20, 5), (1, 20, 5), (0, 6, 8), (7, 6, 8), (4, 6, 8)]


@pytest.mark.fuzz
@pytest.mark.parametrize(("seed", "shards", "workers"), share(RATED, unit=1))
def test_by_throughput_a_fleet_rests_while_rates_are_steady(seed, shards, workers):
    """Rates up to 32 times each other, measured with a jitter: moves end, begin again as rates change, and end."""
    rng = Random(seed)
    names = [f"{rng.choice('ab')}|{n}" for n in range(workers)]
    fleet = fleet_of(names, shards, seed=seed, jitter=1.18)
    fleet.rate = lambda key: fleet.rates.setdefault(key, 100 * 2 ** rng.uniform(-2, 3))
    for change in share((1, 5, 0.2), unit=2):
        for key in fleet.rates:
            fleet.rates[key] *= change if rng.random() < 0.2 else 1
        before = fleet.table.transfers
        # A number in the table may be set once more when it was set on the way.
        fleet.run(fleet.now + how_many(unit=100, fuzz=300))
        assert fleet.settled() is None
        assert fleet.table.transfers - before <= (3 if change == 1 else 2) * shards, (
            "no lease goes round in circles"
        )
        rest(fleet, how_many(unit=50, fuzz=240))


@pytest.mark.fuzz
@pytest.mark.parametrize("kbps", share([0.15, 5.0, 28.0], unit=2))
def test_beside_kcl_2_workers_a_slow_stream_comes_to_rest(kbps):
    """KCL 2.x writes no rates: a lease that its workers hold must weigh what the known ones weigh."""
    theirs = HORIZON.with_fields(lease_strategy="kcl2", lease_renewal_schedule="kcl2")
    fleet = CoordinatorFleet(shards_at_start=8, config=HORIZON, jitter=1.1)
    fleet.rate = lambda key: kbps
    for n in range(2):
        fleet.add(f"java-{n}", config=theirs, java=True)
    fleet.run(60)
    for n in range(2):
        fleet.add(f"ours-{n}")
    fleet.run(fleet.now + 60)
    assert fleet.load() == {"java-0": 2, "java-1": 2, "ours-0": 2, "ours-1": 2}
    before = fleet.table.transfers
    fleet.run(fleet.now + 150)
    assert fleet.table.transfers == before
    rated = [row.throughput_kbps for row in fleet.leases() if row.throughput_kbps is not None]
    assert 4 <= len(rated) < 8, "half of the leases were never measured"


def test_shards_without_records_beside_slow_ones_move_nothing():
    """Eight slow shards and four that never got a record, shared evenly, stay where they are."""
    fleet = fleet_of(["one", "other"], 12)
    empty = {f"shardId-{n:012d}" for n in range(8, 12)}
    settle(fleet, 30)
    before = fleet.table.transfers
    fleet.rate = lambda key: 0.15
    for process in fleet.processes:
        for held in process.coordinator.held:
            if held.key not in empty:
                held.meter = FixedRateMeter(fleet, held.key)
    fleet.run(fleet.now + 120)
    assert {row.lease_key for row in fleet.leases() if row.throughput_kbps is None} == empty
    assert fleet.load() == {"one": 6, "other": 6}
    assert fleet.table.transfers == before
