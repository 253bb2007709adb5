"""The KCL 2.x's strategy, rule by rule (``DynamoDBLeaseTaker``)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kinesis_sdk.common.sequence import LATEST, SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig, LeaseConfig
from kinesis_sdk.consumer.leases import Kcl2Strategy, Lease, LeaseObserver, TableView, TakeLimits, TakeReason
from tests.consumer.java_strategy import JavaKcl2Strategy


def lease(key, owner=None, *, ended=False, marker=None):
    return Lease(
        lease_key=f"s{key}",
        owner=owner,
        counter=1,
        checkpoint=ExtendedSequenceNumber(SHARD_END if ended else LATEST),
        checkpoint_owner=marker,
    )


def plan(leases, *, silent=None, held=(), seed=0, most=10**9, steals=None, strategy=Kcl2Strategy, **settings):
    """``silent``: seconds since a lease last changed, by key; others change with each look."""
    observer = LeaseObserver(10)
    silent = silent or {}
    for now in range(101):
        observer.observe(
            [
                item
                if item.owner is None or 100 - silent.get(item.lease_key, 0) < now
                else replace(item, counter=-1 - now)
                for item in leases
            ],
            float(now),
        )
    return strategy(**settings).plan(
        TableView(
            leases=leases,
            observed=observer,
            me="me",
            now=100.0,
            limits=TakeLimits(max_leases=most, max_steals=steals),
            held=set(held),
        ),
        Random(seed),
    )


def test_the_loops_run_at_the_kcls_intervals():
    config = ConsumerConfig(leases=LeaseConfig(lease_strategy="kcl2"))
    assert config.leases.renew_interval == pytest.approx(3.308, abs=0.001)
    assert config.leases.intervals(5).scan == config.leases.intervals(50_000).scan == pytest.approx(20.05)


def test_new_leases_are_very_old_and_the_first_worker_takes_them_all():
    leases = [lease(n) for n in range(20)] + [lease(30, "a"), lease(31, "b")]
    assert len(plan(leases).takes) == 20
    assert len(plan(leases, most=7).takes) == 7
    assert len(plan(leases, prioritize_very_old=False).takes) == 8, "ceil(22 / 3)"


def test_an_expired_lease_waits_for_its_share_until_it_is_very_old():
    leases = [lease(0, "me"), lease(1, "me"), lease(2, "a"), lease(3, "dead")]
    assert plan(leases, held={"s0", "s1"}, silent={"s3": 12}).takes == ()
    assert plan(leases, held={"s0", "s1"}, silent={"s3": 30}).takes == ()
    (take,) = plan(leases, held={"s0", "s1"}, silent={"s3": 32}).takes
    assert (take.lease.lease_key, take.reason) == ("s3", TakeReason.EXPIRED)


def test_very_old_leases_come_alone_and_within_the_limit():
    leases = [lease(n, "a") for n in range(9)] + [lease(n, "dead") for n in range(20, 24)] + [lease(30, "me")]
    silent = {f"s{n}": 50 for n in range(20, 24)}
    result = plan(leases, silent=silent, held={"s30"}, most=3)
    assert [take.reason for take in result.takes] == [TakeReason.EXPIRED] * 2


def test_one_is_stolen_from_the_most_loaded_unless_more_are_allowed():
    leases = [lease(n, "a") for n in range(9)] + [lease(n, "b") for n in range(20, 23)]
    for steals, number in ((None, 1), (1, 1), (3, 3), (50, 4), (0, 0)):
        takes = plan(leases, steals=steals).takes
        assert len(takes) == number
        assert {take.lease.owner for take in takes} <= {"a"}
        assert {take.reason for take in takes} <= {TakeReason.STOLEN}


def test_a_worker_at_its_target_is_robbed_only_for_one_that_lacks_two():
    """The article's stable imbalance: 3 and 2 with a target of 3 is left alone, 3 and 1 is not."""
    others = [lease(n, f"a{n % 3}") for n in range(9)]
    mine = [lease(20 + n, "me") for n in range(2)]
    assert plan(others + mine, held={"s20", "s21"}).takes == ()
    (take,) = plan([*others, mine[0]], held={"s20"}).takes
    assert take.reason is TakeReason.STOLEN


def test_a_lease_in_handover_is_no_loot():
    leases = [lease(n, "a", marker="b") for n in range(6)] + [lease(20, "me")]
    assert plan(leases, held={"s20"}).takes == ()


def test_finished_leases_count_in_java_only():
    leases = (
        [lease(n, "a") for n in range(2)] + [lease(9, "me")] + [lease(20 + n, ended=True) for n in range(4)]
    )
    assert plan(leases, held={"s9"}).takes == ()
    result = plan(leases, held={"s9"}, strategy=JavaKcl2Strategy, prioritize_very_old=False)
    assert len(result.takes) == 3, "Java: ceil(7 / 2) = 4, one is held, and finished ones are free to take"
    assert all(take.lease.is_finished for take in result.takes)
    owned = [lease(n, "a", ended=True) for n in range(8)] + [lease(20, "a"), lease(9, "me")]
    assert plan(owned, held={"s9"}).takes == ()
    (take,) = plan(owned, held={"s9"}, strategy=JavaKcl2Strategy).takes
    assert take.lease.lease_key == "s20", "the only one that is worth something"
