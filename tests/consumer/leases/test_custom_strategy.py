"""A lease strategy of the user's own: the interface, its example, and a fleet that runs it."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from random import Random

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer import (
    ConsumerConfig,
    Intervals,
    Lease,
    LeaseConfig,
    LeaseObserver,
    LeaseStrategy,
    Plan,
    TableView,
    Take,
    TakeLimits,
    TakeReason,
)
from tests.consumer.fleet.coordinators import CoordinatorFleet
from tests.consumer.fleet.runs import HORIZON


def example():
    """The strategy that the docstring of `LeaseStrategy` shows."""
    (code,) = re.findall(r"```python\n(.*?)```", LeaseStrategy.__doc__, re.DOTALL)
    names = {"ConsumerConfig": ConsumerConfig, "LeaseConfig": LeaseConfig}
    exec(textwrap.dedent(code), names)
    return names["config"]


class SmallestFirst:
    """Every worker holds at most two leases, in key order; a new worker gets what a holder of two can spare."""

    def plan(self, view, rng):
        mine = len(view.held)
        takes = []
        for lease in sorted(view.leases, key=lambda lease: lease.lease_key):
            if lease.is_finished or lease.lease_key in view.held or lease.lease_key in view.busy:
                continue
            if mine + len(takes) >= 2:
                break
            if view.observed.is_expired(lease, view.now):
                takes.append(Take(lease, TakeReason.FREE if lease.owner is None else TakeReason.EXPIRED))
            elif not mine and not takes and not lease.in_handoff:
                takes.append(Take(lease, TakeReason.STOLEN))
        return Plan(takes=tuple(takes), rescan_soon=bool(takes))

    def intervals(self, settings, leases):
        return Intervals(renewal=2.0, scan=7.0 + leases, rescan=0.5, scan_at_expiry=False)


def test_the_documented_example_runs():
    config = example()
    leases = [Lease(lease_key=f"s{n}", checkpoint=ExtendedSequenceNumber(TRIM_HORIZON)) for n in range(5)]
    leases.append(Lease(lease_key="other", owner="b", counter=1, checkpoint=ExtendedSequenceNumber("5")))
    leases.append(Lease(lease_key="mine", owner="me", counter=1, checkpoint=ExtendedSequenceNumber("5")))
    leases.append(Lease(lease_key="ended", checkpoint=ExtendedSequenceNumber(SHARD_END)))
    observer = LeaseObserver(10)
    observer.observe(leases, 0)
    view = TableView(
        leases=leases,
        observed=observer,
        me="me",
        now=1,
        limits=TakeLimits(max_leases=99),
        held={"s0"},
        busy={"s1"},
    )
    plan = config.leases.strategy.plan(view, Random(1))
    assert {take.lease.lease_key: take.reason for take in plan.takes} == {
        "s2": TakeReason.EXPIRED,
        "s3": TakeReason.EXPIRED,
        "s4": TakeReason.EXPIRED,
        "mine": TakeReason.RESUMED,
    }
    assert config.leases.renew_interval == 2.5


def test_a_fleet_follows_the_plans_and_the_intervals_of_a_users_strategy():
    fleet = CoordinatorFleet(
        shards_at_start=4, config=HORIZON.with_fields(lease_strategy=SmallestFirst()), drifting=False
    )
    workers = [fleet.add(name) for name in "ab"]
    for worker in workers:
        worker._consume = lambda held: None  # no checkpoints, which count as renewals
    fleet.run(60)
    assert fleet.load() == {"a": 2, "b": 2}
    assert fleet.believers().keys() == {row.lease_key for row in fleet.leases()}
    before = [(worker.connection.reads, worker.connection.writes) for worker in workers]
    fleet.run(60 + 110)
    for worker, (reads, writes) in zip(workers, before, strict=True):
        assert worker.connection.reads - reads == 10, "a scan every 11 s: 7 s and one for each lease"
        assert worker.connection.writes - writes == pytest.approx(2 * 110 / 2, abs=4), "two leases, every 2 s"
    fleet.add("c")._consume = lambda held: None
    fleet.run(60 + 110 + 40)
    assert sorted(fleet.load().values()) == [1, 1, 2], "the new worker was handed one lease"


def test_a_strategy_object_gets_the_settings():
    seen = []

    class Asking(SmallestFirst):
        def intervals(self, settings, leases):
            seen.append((settings, leases))
            return super().intervals(settings, leases)

    config = ConsumerConfig(
        leases=LeaseConfig(
            lease_strategy=Asking(),
            failover_time=20,
            epsilon=0.5,
            lease_scan_interval=3,
            lease_scan_read_capacity=7,
            lease_renewal_schedule="kcl2",
        )
    )
    config.leases.intervals(12)
    settings, leases = seen[-1]
    assert leases == 12
    assert vars(settings) == {
        "failover_time": 20,
        "epsilon": 0.5,
        "min_scan_interval": 3,
        "scan_read_capacity": 7,
        "renewal_schedule": "kcl2",
    }


def intervals_of(**values):
    class Strategy(SmallestFirst):
        def intervals(self, settings, leases):
            return replace(Intervals(renewal=2.0, scan=1.0, rescan=1.0), **values)

    return Strategy()


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (object(), "LeaseStrategy"),
        (SmallestFirst, "LeaseStrategy"),
        (None, "LeaseStrategy"),
        (7, "LeaseStrategy"),
        (intervals_of(renewal=10.0), "renewal=10.0 .* below failover_time"),
        (intervals_of(renewal=0), "renewal=0 "),
        (intervals_of(renewal=float("nan")), "renewal=nan"),
        (intervals_of(scan=0), "scan=0 "),
        (intervals_of(rescan=-1), "rescan=-1 "),
    ],
)
def test_an_unusable_strategy_is_named(strategy, message):
    with pytest.raises(ConfigError, match=f"lease_strategy.*{message}"):
        ConsumerConfig(leases=LeaseConfig(lease_strategy=strategy))
