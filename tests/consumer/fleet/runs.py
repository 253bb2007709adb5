"""Random runs of simulated fleets, each from one seed, and the conditions of a good end."""

from __future__ import annotations

from random import Random
from typing import Any

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.config import ConsumerConfig, CoordinationConfig, LeaseConfig
from tests.consumer.fleet.connection import TableFaults
from tests.consumer.fleet.coordinators import CoordinatorFleet
from tests.consumer.fleet.operator import set_position
from tests.consumer.fleet.sql import move_to_sql

HORIZON = ConsumerConfig(
    initial_position="TRIM_HORIZON",
    coordination=CoordinationConfig(shard_sync_interval=3600, lease_cleanup_interval=3600),
)
"""Syncs with the stream and cleanups of leases are an hour apart."""


def chaos(seed: int, *, engine: Any = None) -> CoordinatorFleet:
    """Play a random run of a fleet, then let it settle. In the runs of odd seeds, operators change the table meanwhile.

    Args:
        seed: Seed of the run.
        engine: Engine of the empty database that has the leases; None for leases in memory.

    Returns:
        The fleet after it settled, for further checks.

    Raises:
        AssertionError: If an invariant breaks, or the fleet does not settle.
    """
    rng = Random(f"chaos {seed}")
    mixed = rng.random() < 0.25
    config = ConsumerConfig(
        initial_position="TRIM_HORIZON",
        leases=LeaseConfig(
            failover_time=rng.choice([6.0, 10.0, 10.0]),
            lease_scan_interval=rng.choice([1.5, 3.0, 5.0]),
            graceful_lease_handoff_timeout=rng.choice([0.0 if mixed else 10.0, 10.0]),
            lease_renewal_schedule=rng.choice([None, "kcl2"]),
            initial_rebalance_delay=20.0 if seed % 5 == 0 else 0.0,
        ),
        coordination=CoordinationConfig(shard_sync_interval=15.0),
    )
    theirs = config.with_fields(lease_strategy="kcl2", lease_renewal_schedule="kcl2")
    fleet = CoordinatorFleet(seed, rng.choice([1, 2, 3, 5, 8, 12]), config, drifting=rng.random() < 0.7)
    if engine is not None:
        move_to_sql(fleet.table, engine)
    if not mixed and seed % 3 == 0:
        # Rates of shards, up to a factor of 32 apart; some of them change when the faults end, and then stay.
        rates = Random(f"rates {seed}")
        fleet.rate = lambda key: fleet.rates.setdefault(key, 30 * 2 ** rates.uniform(0, 5))
    groups = rng.choice([("",), ("",), ("a|", "b|"), ("a|", "b|", "c|")])
    number = 0

    def add() -> None:
        nonlocal number
        number += 1
        if mixed and rng.random() < 0.5:
            fleet.add(f"java-{number}", config=theirs, java=True)
        else:
            fleet.add(f"{rng.choice(groups)}w{number}")

    def replace_all(gap: float, *, clean: bool, first_new: bool) -> None:
        """Deploy: one by one, all at once, or the new fleet before the old one stops."""
        for process in fleet.live:
            if first_new:
                add()
            process.stop() if clean else process.crash()
            if not first_new:
                add()
            fleet.run(fleet.now + gap)

    operator = Operator(fleet, seed, pins=not mixed) if seed % 2 else None
    for _ in range(rng.randint(1, 4)):
        add()
    for _ in range(rng.randint(2, 5)):
        fleet.run(fleet.now + rng.choice([0.2, 2.0, 8.0, 14.0]))
        if operator is not None:
            operator.act()
        action = rng.choice(
            ["add", "crash", "stop", "freeze", "faults", "split", "merge", "rolling", "at once", "blue/green"]
        )
        live = fleet.live
        if action == "add" and len(live) < 5:
            for _ in range(rng.choice([1, 1, 3])):
                add()
        elif action == "crash" and live:
            rng.choice(live).crash()
        elif action == "stop" and live:
            rng.choice(live).stop()
        elif action == "freeze" and live:
            rng.choice(live).freeze(rng.choice([0.5, 0.9, 1.1, 3.0]) * config.leases.failover_time)
        elif action == "faults":
            worst = rng.choice([0.02, 0.1, 0.3])
            fleet.faults = TableFaults(*(worst * rng.random() for _ in range(5)))
        elif action == "split" and len(fleet.open_shards()) < 14:
            for _ in range(rng.choice([1, 1, 3])):
                fleet.split()
        elif action == "merge":
            fleet.merge()
        elif action == "rolling":
            replace_all(rng.choice([0.5, 4.0]), clean=True, first_new=False)
        elif action == "at once":
            replace_all(0.0, clean=rng.random() < 0.5, first_new=False)
        elif action == "blue/green":
            replace_all(0.0, clean=rng.random() < 0.5, first_new=True)
    fleet.faults = TableFaults()
    for key in fleet.rates:
        if rng.random() < 0.2:
            fleet.rates[key] *= rng.choice([0.1, 10])
    if not fleet.live:
        add()
    if operator is not None:
        operator.end()
    settle(fleet, 400)
    if fleet.rate is not None:
        # Until measurements have caught up with the rates; a short run may not have measured anything yet.
        fleet.run(fleet.now + 10 * config.leases.failover_time)
        settle(fleet, 400)
    if not mixed or not fleet.java:
        rest(fleet, 3 * config.leases.lease_scan_interval + config.leases.failover_time)
    return fleet


class Operator:
    """Changes a live lease table at random: rewinds, releases, drains, pins.

    Args:
        fleet: The fleet.
        seed: Seed of the run.
        pins: Whether leases are pinned. Not next to KCL 2.x workers, which do not know pins and take such leases back.
    """

    def __init__(self, fleet: CoordinatorFleet, seed: int, *, pins: bool) -> None:
        self._fleet = fleet
        self._rng = Random(f"operator {seed}")
        self._kinds = ["restart", "free", "drain", "undrain"] + ["pin", "pin", "unpin"] * pins

    def act(self) -> None:
        """Make up to three changes at this moment."""
        fleet, rng = self._fleet, self._rng
        for _ in range(rng.randint(0, 3)):
            kind = rng.choice(self._kinds)
            rows = sorted(fleet.table.list(), key=lambda row: row.lease_key)
            ours = [process for process in fleet.live if process not in fleet.java]
            # An operator waits for the end of a handoff, which takes 40 s at most.
            still = [row for row in rows if not row.in_handoff]
            if kind in ("restart", "free") and still:
                row = rng.choice(still)
                target = ExtendedSequenceNumber(str(rng.randint(1, 10**6)))
                set_position(
                    fleet.table,
                    row.lease_key,
                    min(target, row.checkpoint),
                    free=kind == "free" or row.owner is None,
                )
            elif kind == "drain" and ours:
                fleet.drain(rng.choice(ours))
            elif kind == "undrain" and ours:
                fleet.undrain(rng.choice(ours))
            elif kind == "pin" and rows and ours:
                fleet.table.set_pin(rng.choice(rows).lease_key, rng.choice(ours).name)
            elif kind == "unpin" and rows:
                fleet.table.set_pin(rng.choice(rows).lease_key, None)

    def end(self) -> None:
        """Leave at least one worker that takes leases; remove all pins in half of the runs."""
        if not self._fleet.takers:
            for process in self._fleet.live:
                self._fleet.undrain(process)
        if self._rng.random() < 0.5:
            for row in self._fleet.table.list():
                self._fleet.table.set_pin(row.lease_key, None)


def settle(fleet: CoordinatorFleet, patience: float) -> float:
    """Let time pass until every lease is owned and the table is balanced.

    Args:
        fleet: The fleet.
        patience: Maximum seconds.

    Returns:
        Seconds that it took.
    """
    started_at = fleet.now
    thawed_at = max((process.life.frozen_until for process in fleet.processes), default=0.0)
    fleet.run(max(started_at, thawed_at) + fleet.config.leases.failover_time)
    while (problem := fleet.settled()) is not None:
        assert fleet.now - started_at < patience, f"not settled after {patience:g} s: {problem}"
        fleet.run(fleet.now + 2)
    return fleet.now - started_at


def rest(fleet: CoordinatorFleet, seconds: float) -> None:
    """Check that nothing moves once a fleet is balanced, and that exactly one process believes in each lease."""
    before = fleet.table.transfers
    fleet.run(fleet.now + seconds)
    assert fleet.table.transfers == before, "leases move although the table is balanced"
    assert fleet.settled() is None, fleet.settled()
    assert all(len(names) == 1 for names in fleet.believers().values()), fleet.believers()
