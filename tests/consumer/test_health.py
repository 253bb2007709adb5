"""Answers to the health probes, and the numbers behind them. Lag while a handler fails or hangs: test_metrics."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kinesis_sdk.common.errors import ConfigError, ConsumerError, TransientAwsError
from kinesis_sdk.common.loop_thread import LoopThread
from kinesis_sdk.consumer import Worker
from kinesis_sdk.consumer.health import WorkerHealth
from kinesis_sdk.testing import VirtualClock
from tests.consumer.fleet.engines import Fleet

GOOD = WorkerHealth(
    worker_id="w",
    running=True,
    stopping=False,
    leases=(),
    shards=(),
    records_delivered=0,
    error=None,
    scan_overdue_seconds=0.0,
)


def test_a_worker_without_problems_is_live_and_ready():
    assert GOOD.live_problems() == []
    assert GOOD.ready_problems() == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"error": ConsumerError("broken")}, "the worker failed: ConsumerError: broken"),
        ({"stuck_loops": ("table",)}, "the loop 'table' makes no progress"),
    ],
)
def test_only_what_a_restart_mends_makes_a_worker_not_live(change, problem):
    health = replace(GOOD, **change)
    assert health.live_problems() == [problem]
    assert problem in health.ready_problems()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"running": False}, "the worker does not run"),
        ({"stopping": True}, "the worker stops"),
        ({"draining": True}, "the worker drains: an operator marked it in the lease table"),
        ({"scan_overdue_seconds": None}, "the lease table was not read yet"),
        ({"scan_overdue_seconds": 10.1}, "the lease table could not be read for 10 s longer than usual"),
        ({"renewal_overdue_seconds": 1.7}, "the renewal of a lease is 1.7 s late"),
    ],
)
def test_not_ready(change, problem):
    health = replace(GOOD, **change)
    assert health.ready_problems() == [problem]
    assert health.live_problems() == []


def test_short_delays_are_no_problem():
    assert replace(GOOD, scan_overdue_seconds=10.0, renewal_overdue_seconds=1.6).ready_problems() == []


# The numbers behind the results


def worker_of(fleet: Fleet, engine) -> Worker:
    """Return a worker whose `health` describes a simulated engine."""
    worker = Worker("orders", application_name="app", handler=lambda batch: None, clock=fleet.clock)
    worker._engine = engine
    return worker


def broken(*args, **kwargs):
    raise TransientAwsError("down", operation="Scan")


def test_a_table_that_cannot_be_read_makes_a_worker_not_ready():
    fleet = Fleet(shards=2)
    worker = worker_of(fleet, fleet.add("a"))
    assert worker.health().scan_overdue_seconds is None
    fleet.run(30)
    assert worker.health().ready_problems() == []
    scan, fleet.store.scan = fleet.store.scan, broken
    fleet.run(9)
    assert worker.health().ready_problems() == []
    fleet.run(5)
    assert worker.health().ready_problems() != []
    assert worker.health().live_problems() == []
    fleet.store.scan = scan
    fleet.run(11)
    assert worker.health().ready_problems() == []


def test_renewals_that_fail_make_a_worker_not_ready_before_the_lease_is_lost():
    fleet = Fleet(shards=2)
    worker = worker_of(fleet, fleet.add("a"))
    fleet.run(30)
    fleet.store.renew = broken
    unready_at = lost_at = None
    for _ in range(200):
        fleet.run(0.1)
        if unready_at is None and worker.health().ready_problems():
            unready_at = fleet.clock.monotonic()
        if lost_at is None and len(worker.health().leases) < 2:
            lost_at = fleet.clock.monotonic()
    assert unready_at is not None
    assert lost_at is not None
    assert unready_at < lost_at


def test_a_loop_that_does_not_return_is_stuck():
    clock = VirtualClock()
    loop = LoopThread("table", lambda now: None, clock, lambda error: None)
    assert not loop.is_stuck(600)
    loop._busy_since = clock.monotonic()  # its thread is inside a call
    clock.advance(600)
    assert not loop.is_stuck(600)
    clock.advance(1)
    assert loop.is_stuck(600)


# `to_dict`


def test_everything_serialises():
    fleet = Fleet(shards=2)
    fleet.more["until"] = "now"
    worker = worker_of(fleet, fleet.add("a"))
    fleet.put(5)
    fleet.run(1)
    health = worker.health()
    content = json.loads(json.dumps(health.to_dict()))
    assert content["until"].endswith("+00:00")
    assert content["stuck_loops"] == []
    assert {shard["state"] for shard in content["shards"]} == {"processing"}
    assert [shard["shard_id"] for shard in content["shards"]] == sorted(content["leases"])
    assert [shard["checkpoint"]["sequence_number"] for shard in content["shards"]] == [
        shard.checkpoint.sequence_number for shard in health.shards
    ]
    failed = replace(GOOD, error=ConsumerError("broken"))
    assert json.loads(json.dumps(failed.to_dict()))["error"] == "ConsumerError: broken"


# Settings


@pytest.mark.parametrize("port", [-1, 65_536, "8080", True])
def test_a_wrong_port_is_named(port):
    with pytest.raises(ConfigError, match="health_port"):
        Worker("orders", application_name="app", handler=lambda batch: None, health_port=port)


def test_a_wrong_host_is_named():
    with pytest.raises(ConfigError, match="health_host"):
        Worker("orders", application_name="app", handler=lambda batch: None, health_port=0, health_host="")
