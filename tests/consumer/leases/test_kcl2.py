"""The KCL 2.x's strategy, rule by rule (``DynamoDBLeaseTaker``), and fleets that run it. What all strategies do: test_balanced.py."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.sequence import LATEST, SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig, LeaseConfig
from kinesis_sdk.consumer.leases import Kcl2Strategy, Lease, LeaseObserver, TableView, TakeLimits, TakeReason
from tests.consumer.java_strategy import JavaKcl2Strategy
from tests.consumer.leases.balanced_plans import rounds
from tests.fuzz import how_many


def lease(key, owner=None, *, ended=False, marker=None):
    return Lease(
        lease_key=f"s{key}",
        owner=owner,
        counter=1,
        checkpoint=ExtendedSequenceNumber(SHARD_END if ended else LATEST),
        checkpoint_owner=marker,
    )


def plan(
    leases,
    *,
    silent=None,
    expired=(),
    held=(),
    seed=0,
    most=10**9,
    steals=None,
    limits=None,
    strategy=Kcl2Strategy,
    **settings,
):
    """Return the takes. ``silent``: seconds since a lease last changed, by key; all others change with each look.

    With ``expired`` keys, without the priority for very old leases.
    """
    silent = dict.fromkeys(expired, 12) | (silent or {})
    if expired != ():
        settings["prioritize_very_old"] = False
    observer = LeaseObserver(10)
    changes = {100 - seconds for seconds in silent.values()}
    for now in sorted({0, 100, *changes, *(change + 1 for change in changes)}):
        observer.observe(
            [
                item
                if item.owner is None or 100 - silent.get(item.lease_key, 0) < now
                else replace(item, counter=-1 - now)
                for item in leases
            ],
            float(now),
        )
    view = TableView(
        leases=leases,
        observed=observer,
        me="me",
        now=100.0,
        limits=limits or TakeLimits(max_leases=most, max_steals=steals),
        held=set(held),
    )
    return strategy(**settings).plan(view, Random(seed)).takes


def test_the_loops_run_at_the_kcls_intervals():
    config = ConsumerConfig(leases=LeaseConfig(lease_strategy="kcl2"))
    assert config.leases.renew_interval == pytest.approx(3.308, abs=0.001)
    assert config.leases.intervals(5).scan == config.leases.intervals(50_000).scan == pytest.approx(20.05)


def test_new_leases_are_very_old_and_the_first_worker_takes_them_all():
    leases = [lease(n) for n in range(20)] + [lease(30, "a"), lease(31, "b")]
    assert len(plan(leases)) == 20
    assert len(plan(leases, most=7)) == 7
    assert len(plan(leases, prioritize_very_old=False)) == 8, "ceil(22 / 3)"


def test_an_expired_lease_waits_for_its_share_until_it_is_very_old():
    leases = [lease(0, "me"), lease(1, "me"), lease(2, "a"), lease(3, "dead")]
    assert plan(leases, held={"s0", "s1"}, silent={"s3": 12}) == ()
    assert plan(leases, held={"s0", "s1"}, silent={"s3": 30}) == ()
    (take,) = plan(leases, held={"s0", "s1"}, silent={"s3": 32})
    assert (take.lease.lease_key, take.reason) == ("s3", TakeReason.EXPIRED)


def test_very_old_leases_come_alone_and_within_the_limit():
    leases = [lease(n, "a") for n in range(9)] + [lease(n, "dead") for n in range(20, 24)] + [lease(30, "me")]
    silent = {f"s{n}": 50 for n in range(20, 24)}
    result = plan(leases, silent=silent, held={"s30"}, most=3)
    assert [take.reason for take in result] == [TakeReason.EXPIRED] * 2


def test_one_is_stolen_from_the_most_loaded_unless_more_are_allowed():
    leases = [lease(n, "a") for n in range(9)] + [lease(n, "b") for n in range(20, 23)]
    for steals, number in ((None, 1), (1, 1), (3, 3), (50, 4), (0, 0)):
        takes = plan(leases, steals=steals)
        assert len(takes) == number
        assert {take.lease.owner for take in takes} <= {"a"}
        assert {take.reason for take in takes} <= {TakeReason.STOLEN}


def test_a_worker_at_its_target_is_robbed_only_for_one_that_lacks_two():
    """The article's stable imbalance: 3 and 2 with a target of 3 is left alone, 3 and 1 is not."""
    others = [lease(n, f"a{n % 3}") for n in range(9)]
    mine = [lease(20 + n, "me") for n in range(2)]
    assert plan(others + mine, held={"s20", "s21"}) == ()
    (take,) = plan([*others, mine[0]], held={"s20"})
    assert take.reason is TakeReason.STOLEN


def test_a_lease_in_handover_is_no_loot():
    leases = [lease(n, "a", marker="b") for n in range(6)] + [lease(20, "me")]
    assert plan(leases, held={"s20"}) == ()


def test_finished_leases_count_in_java_only():
    leases = (
        [lease(n, "a") for n in range(2)] + [lease(9, "me")] + [lease(20 + n, ended=True) for n in range(4)]
    )
    assert plan(leases, held={"s9"}) == ()
    result = plan(leases, held={"s9"}, strategy=JavaKcl2Strategy, prioritize_very_old=False)
    assert len(result) == 3, "Java: ceil(7 / 2) = 4, one is held, and finished ones are free to take"
    assert all(take.lease.is_finished for take in result)
    owned = [lease(n, "a", ended=True) for n in range(8)] + [lease(20, "a"), lease(9, "me")]
    assert plan(owned, held={"s9"}) == ()
    (take,) = plan(owned, held={"s9"}, strategy=JavaKcl2Strategy)
    assert take.lease.lease_key == "s20", "the only one that is worth something"


def test_a_dead_worker_does_not_count():
    leases = [lease(0, "dead"), lease(1, "dead")]
    assert len(plan(leases, expired={"s0", "s1"})) == 2


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
