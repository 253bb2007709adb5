"""The KCL 2.x's strategy without its priority for very old leases, and fleets that run it."""

from __future__ import annotations

import sys
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.sequence import LATEST, SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases import (
    Kcl2Strategy,
    Lease,
    LeaseObserver,
    TableView,
    TakeLimits,
    TakeReason,
)
from tests.consumer.leases.balanced_plans import rounds
from tests.fuzz import how_many

NO_LIMITS = TakeLimits(max_leases=sys.maxsize, max_steals=1)


def takes_of(leases, observed, me, now, limits, rng, **more):
    view = TableView(leases=[*leases], observed=observed, me=me, now=now, limits=limits, **more)
    return [*Kcl2Strategy(prioritize_very_old=False).plan(view, rng).takes]


def lease(key, owner=None, *, counter=1, ended=False, handoff=None):
    return Lease(
        lease_key=f"s{key}",
        owner=owner,
        counter=counter,
        checkpoint=ExtendedSequenceNumber(SHARD_END if ended else LATEST),
        checkpoint_owner=handoff,
    )


def plan(leases, *, me="me", limits=NO_LIMITS, held=(), busy=(), expired=(), seed=0):
    observer = LeaseObserver(10)
    observer.observe([item for item in leases if item.lease_key in expired], 0)
    old = dict(observer._sightings)
    observer.observe(leases, 100)
    observer._sightings.update(old)
    return takes_of(leases, observer, me, 101, limits, Random(seed), held=held, busy=busy)


def keys(takes, reason=None):
    return {take.lease.lease_key for take in takes if reason in (None, take.reason)}


def test_a_finished_shard_weighs_nothing_and_is_not_taken():
    leases = [lease(0, ended=True), lease(1, "a", ended=True), lease(2), lease(3, "b")]
    assert keys(plan(leases)) == {"s2"}


def test_more_workers_than_leases_means_one_each():
    leases = [lease(n, f"w{n}") for n in range(3)] + [lease(9)]
    assert keys(plan(leases)) == {"s9"}


def test_a_dead_worker_does_not_count():
    leases = [lease(0, "dead"), lease(1, "dead")]
    assert keys(plan(leases, expired={"s0", "s1"})) == {"s0", "s1"}


def test_its_own_leases_are_resumed_even_while_they_look_alive():
    leases = [lease(n, "me") for n in range(3)] + [lease(7, "a"), lease(8, "a")]
    takes = plan(leases)
    assert keys(takes, TakeReason.RESUMED) == {"s0", "s1", "s2"}
    assert len(takes) == 3


def test_a_lease_that_is_still_being_handed_over_is_not_resumed():
    assert plan([lease(0, "me", handoff="a"), lease(1, "a")]) == []


def test_a_lease_whose_consumer_winds_down_here_is_not_taken():
    assert keys(plan([lease(0, "me"), lease(1)], busy={"s0", "s1"})) == set()


def test_the_bound_holds_for_resumed_and_free_leases():
    leases = [lease(n, "me") for n in range(3)] + [lease(n) for n in range(5, 9)]
    assert len(plan(leases, limits=TakeLimits(max_leases=2, max_steals=1))) == 2
    assert len(plan(leases, limits=TakeLimits(max_leases=2, max_steals=1), held={"s0"})) == 1
    assert len(plan(leases, limits=TakeLimits(max_leases=5, max_steals=1))) == 5
    # Lowered below what is held: what is left of it is less than nothing.
    assert plan(leases, limits=TakeLimits(max_leases=2, max_steals=1), held={"s0", "s1", "s2"}) == []


tables = st.lists(
    st.tuples(st.sampled_from([None, "me", "a", "b", "c"]), st.booleans(), st.booleans()), max_size=30
)


@given(tables, st.integers(1, 12), st.integers(0, 4), st.integers(0, 9), st.booleans())
def test_what_is_always_true_of_a_plan(rows, most, steals, seed, hold):
    leases = [lease(n, owner, ended=ended) for n, (owner, ended, _) in enumerate(rows)]
    expired = {f"s{n}" for n, (_, _, old) in enumerate(rows) if old}
    held = (
        {item.lease_key for item in leases if item.owner == "me" and not item.is_finished} if hold else set()
    )
    takes = plan(
        leases, limits=TakeLimits(max_leases=most, max_steals=steals), held=held, expired=expired, seed=seed
    )
    taken = [take.lease.lease_key for take in takes]
    assert len(taken) == len(set(taken))
    assert not held & set(taken)
    assert not takes or len(held) + len(taken) <= most
    stolen = [take for take in takes if take.reason is TakeReason.STOLEN]
    assert len(stolen) <= max(steals, 0)
    for take in takes:
        assert not take.lease.is_finished
        fresh_elsewhere = take.lease.owner not in (None, "me") and take.lease.lease_key not in expired
        assert fresh_elsewhere == (take.reason is TakeReason.STOLEN)
        assert (take.lease.owner == "me") == (take.reason is TakeReason.RESUMED)
    if stolen:
        free = [i for i in leases if not i.is_finished and i.owner != "me"]
        assert not any(i.owner is None or i.lease_key in expired for i in free)
    assert takes == plan(
        leases, limits=TakeLimits(max_leases=most, max_steals=steals), held=held, expired=expired, seed=seed
    )


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=25, fuzz=600))
@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 3), st.integers(0, 10**6), st.booleans())
def test_a_fleet_converges_to_a_spread_of_one(shards, workers, steals, seed, uneven):
    """Everybody plans on the same scan, then writes in random order."""
    rng, names = Random(seed), [f"w{n}" for n in range(workers)]
    rows = [lease(n, names[0] if uneven else rng.choice([None, *names])) for n in range(shards)]
    table = {row.lease_key: row for row in rows}
    strategy = Kcl2Strategy(prioritize_very_old=False)
    load, _ = rounds((names, table), strategy, 4 * shards + 30, seed, lockstep=True, steals=steals)
    assert sum(load.values()) == shards
    assert max(load.values()) - min(load[name] for name in names) <= 1
