"""Pinned leases and drained workers in the plans of every strategy: pins are honoured, and every fleet comes to rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.consumer.leases import BalancedStrategy, TakeReason
from kinesis_sdk.consumer.leases.strategies import Kcl2Strategy, group_of
from kinesis_sdk.consumer.leases.strategies.by_count import fair_shares
from kinesis_sdk.consumer.leases.strategies.by_throughput import MARGIN, weights_of
from tests.consumer.fleet.coordinators import CoordinatorFleet
from tests.consumer.leases.balanced_plans import NO_LIMIT, lease, moves, plan, reasons, rounds
from tests.fuzz import how_many

STRATEGIES = [BalancedStrategy(), BalancedStrategy(by_throughput=False), Kcl2Strategy()]


def pinned(number, worker, owner=None, **more):
    return replace(lease(number, owner, **more), pinned_to=worker)


def keys(takes):
    return sorted(take.lease.lease_key for take in takes)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_worker_takes_what_is_pinned_to_it_from_whoever_has_it(strategy):
    leases = [
        pinned(0, "me", "a"),
        pinned(1, "me"),
        lease(2, "a"),
        lease(3, "me"),
        lease(4, "me"),
        lease(5, "me"),
    ]
    result = plan(leases, strategy=strategy)
    assert keys(result.takes) == ["s00000", "s00001"], "although it holds more than its share"
    assert reasons(result) == {TakeReason.STOLEN: 1, TakeReason.FREE: 1}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_worker_without_leases_takes_what_is_pinned_to_it_first(strategy):
    """Nobody else knows that it is alive."""
    leases = [pinned(0, "me", "a"), *(lease(n, "a") for n in range(1, 6))]
    assert "s00000" in keys(plan(leases, strategy=strategy).takes)


def test_a_new_worker_leaves_alone_what_is_pinned_to_a_standby_worker():
    leases = [pinned(0, "w", "a"), *(lease(n, "a") for n in range(1, 6))]
    assert "s00000" in keys(plan(leases).takes), "w is not known to be alive"
    assert "s00000" not in keys(plan(leases, workers=["w"]).takes)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_pinned_to_a_live_peer_is_left_to_it(strategy):
    leases = [pinned(0, "a"), *(pinned(n, "a", "a") for n in range(1, 6)), lease(6, "me")]
    assert plan(leases, strategy=strategy).takes == ()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_pinned_to_a_dead_worker_is_taken_as_any_other(strategy):
    free = [pinned(0, "gone"), pinned(1, "gone", "gone"), lease(2, "me")]
    result = plan(free, strategy=strategy, expired={"s00001"}, looks=6)
    assert keys(result.takes) == ["s00000", "s00001"]
    held = [pinned(n, "gone", "a") for n in range(4)] + [lease(5, "me")]
    assert len(moves(plan(held, strategy=strategy))) == 1, "shares as without the pin"


def test_what_is_pinned_here_is_not_taken_from_a_worker_that_may_be_alive():
    """One lease of its holder has expired, so the holder counts as dead; the other one has not, so it is left alone."""
    leases = [pinned(0, "me", "a"), lease(1, "a"), lease(2, "me")]
    result = plan(leases, expired={"s00001"})
    assert keys(result.takes) == ["s00001"]
    assert reasons(result) == {TakeReason.EXPIRED: 1}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_pinned_to_a_draining_worker_is_taken_as_any_other(strategy):
    leases = [pinned(0, "a"), lease(2, "me"), lease(3, "a")]
    assert "s00000" in keys(plan(leases, strategy=strategy, draining={"a"}).takes)


def test_leases_of_a_draining_worker_are_requested():
    leases = [lease(0, "a"), lease(1, "a", marker="me"), lease(2, "b"), lease(3, "me")]
    result = plan(leases, draining={"a"})
    assert keys(result.takes) in ([], ["s00000"])
    both = {*keys(result.takes), *keys(plan(leases, "b", draining={"a"}).takes)}
    assert both == {"s00000"}, "by one of the peers; the other lease has to arrive first"
    assert reasons(plan([lease(0, "a"), lease(3, "me")], draining={"a"})) == {TakeReason.STOLEN: 1}
    newcomer = plan([lease(0, "a"), lease(1, "a"), lease(2, "b")], draining={"a"})
    assert reasons(newcomer) == {TakeReason.STOLEN: newcomer.most or 0} or newcomer.most == 1
    assert {take.lease.owner for take in newcomer.takes} == {"a"}


def test_limits_hold_for_pins_and_drains():
    leases = [pinned(n, "me", "a") for n in range(4)] + [lease(9, "me")]
    assert len(plan(leases, most=3).takes) == 2
    assert plan(leases, steals=0).takes == ()
    assert len(plan(leases, steals=1).takes) == 1
    assert plan(leases, busy={f"s{n:05d}" for n in range(4)}).takes == ()
    assert plan([lease(0, "a"), lease(1, "me")], steals=0, draining={"a"}).takes == ()


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=100, fuzz=3000))
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from("abc")), min_size=1, max_size=9),
    st.integers(0, 12),
)
def test_shares_with_pins(workers, free):
    """Who has more pinned leases than a fair share keeps these; the others share the rest fairly."""
    pins = {f"w{n}": min(count, held) for n, (held, count, _) in enumerate(workers)}
    counts = {f"w{n}": held for n, (held, _, _) in enumerate(workers)}
    groups = {f"w{n}": group for n, (_, _, group) in enumerate(workers)}
    total = sum(counts.values()) + free
    share = fair_shares(counts, total, groups, NO_LIMIT, pins)
    assert sum(share.values()) == total
    assert all(share[worker] >= pins[worker] for worker in counts)
    low = min(share.values())
    assert all(share[worker] <= max(low + 1, pins[worker]) for worker in counts)


def fleets(draw_rates):
    def build(seed):
        rng = Random(seed)
        names = [f"{rng.choice('ab')}|{n}" for n in range(rng.randint(1, 7))]
        visible = names[: rng.randint(0, len(names))]
        targets = [*names, "nobody"]
        table = {}
        for n in range(rng.randint(1, 40)):
            row = lease(
                n, rng.choice([None, *visible]), kbps=rng.choice([20, 100, 700]) if draw_rates else None
            )
            pin = rng.choice(targets) if rng.random() < rng.choice([0.1, 0.5]) else None
            table[row.lease_key] = replace(row, pinned_to=pin)
        return names, table

    return st.integers(0, 10**9).map(build)


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=30, fuzz=800))
@given(fleets(False), st.integers(0, 10**6), st.booleans())
def test_any_fleet_with_pins_comes_to_rest_by_count(fleet, seed, lockstep):
    names, before = fleet
    table = {}
    _, count = rounds(fleet, BalancedStrategy(), seed=seed, lockstep=lockstep, limit=80, final=table)
    free_share = Counter(row.owner for row in table.values())
    pins = Counter(row.pinned_to for row in table.values() if row.pinned_to in names)
    for row in table.values():
        assert row.owner == row.pinned_to or row.pinned_to not in names
    low = min(free_share[name] for name in names)
    assert all(free_share[name] <= max(low + 1, pins[name]) for name in names)
    assert count <= 2 * len(before) + len(names), "nothing moves back and forth"


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=20, fuzz=800))
@given(fleets(True), st.integers(0, 10**6), st.booleans())
def test_any_fleet_with_pins_comes_to_rest_by_throughput(fleet, seed, lockstep):
    names, before = fleet
    table = {}
    _, count = rounds(fleet, BalancedStrategy(), seed=seed, lockstep=lockstep, limit=120, final=table)
    for row in table.values():
        assert row.owner == row.pinned_to or row.pinned_to not in names
    weights = weights_of(table.values())
    if weights is not None:
        loads = dict.fromkeys(names, 0)
        for row in table.values():
            loads[row.owner] += weights[row.lease_key]
        margin = MARGIN * sum(loads.values()) / len(loads)
        for group in {group_of(name) for name in names}:
            members = [name for name in names if group_of(name) == group]
            emptiest = min(loads[name] for name in members)
            for name in members:
                movable = [
                    weights[r.lease_key] for r in table.values() if r.owner == name and r.pinned_to != name
                ]
                assert not movable or loads[name] - emptiest <= min(movable) + margin
    # Four workers in two zones with four leases, one of which carries nearly all records, look for their places by chance: one
    # of 3,000 random fleets of at most nine leases took 22 moves, and another one with six leases 34.
    assert count <= 8 * len(before) + len(names), "nothing moves back and forth"


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=20, fuzz=600))
@given(fleets(False), st.integers(0, 10**6))
def test_any_fleet_with_pins_comes_to_rest_by_the_kcl_2_strategy(fleet, seed):
    names, before = fleet
    table = {}
    _, count = rounds(fleet, Kcl2Strategy(), seed=seed, limit=200, final=table)
    for row in table.values():
        assert row.owner == row.pinned_to or row.pinned_to not in names
    assert count <= 3 * len(before) + len(names)


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=30, fuzz=800))
@given(fleets(False), st.integers(0, 10**6), st.booleans())
def test_any_fleet_with_drained_workers_comes_to_rest_without_them(fleet, seed, lockstep):
    names, before = fleet
    rng = Random(seed)
    draining = {name for name in names[1:] if rng.random() < 0.4}
    takers = [name for name in names if name not in draining]
    before = {key: replace(row, pinned_to=None) for key, row in before.items()}
    load, _ = rounds(
        (takers, before), BalancedStrategy(), seed=seed, lockstep=lockstep, limit=80, draining=draining
    )
    assert set(load) <= {*takers}
    assert max(load[name] for name in takers) - min(load[name] for name in takers) <= 1


def owner_of(fleet, key):
    return next(row.owner for row in fleet.leases() if row.lease_key == key)


def test_pins_in_a_live_fleet():
    """To a worker that holds its share, to one without any lease, across a crash of it, and back when it restarts."""
    fleet = CoordinatorFleet(shards_at_start=8)
    for name in "ab":
        fleet.add(name)
    fleet.run(60)
    to_a = [row.lease_key for row in fleet.leases() if row.owner == "b"][:3]
    for key in to_a:
        fleet.table.set_pin(key, "a")
    fleet.run(fleet.now + 30)
    assert {owner_of(fleet, key) for key in to_a} == {"a"}
    assert fleet.load() == {"a": 4, "b": 4}, "the pinned ones count as its share"
    transfers = fleet.table.transfers
    fleet.run(fleet.now + 120)
    assert fleet.table.transfers == transfers, "nothing moves any more"
    for row in fleet.leases():
        fleet.table.set_pin(row.lease_key, "a")
    fleet.run(fleet.now + 30)
    assert fleet.load() == {"a": 8, "b": 0}
    process = fleet.live[0]
    process.crash()
    fleet.run(fleet.now + 30)
    assert fleet.load() == {"b": 8}, "pins to a dead worker have no effect"
    fleet.add("a")
    fleet.run(fleet.now + 30)
    assert fleet.load() == {"a": 8, "b": 0}
    for row in fleet.leases():
        fleet.table.set_pin(row.lease_key, None)
    fleet.run(fleet.now + 60)
    assert fleet.load() == {"a": 4, "b": 4}
