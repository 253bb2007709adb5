"""A lease store of the user's own that fails: what repeating may cure keeps the worker alive, the rest ends it by name.

A whole fleet in virtual time, on a store that raises the SDK's errors and never an `AwsError`.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kinesis_sdk.common.errors import (
    AwsError,
    LeaseLostError,
    LeaseRowRejectedError,
    LeaseStoreError,
    TransientLeaseStoreError,
)
from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore, Lease, RecordHandler
from kinesis_sdk.consumer.leases.ownership.standby import StandbyHeartbeats
from tests.consumer.checkpoint_scenario import Scenario as CheckpointScenario
from tests.consumer.engine.deferred import Deferred
from tests.consumer.fleet.engines import UNHURRIED, Fleet, never_ending
from tests.consumer.fleet.table import LeaseTable
from tests.consumer.leases.held_lease import at
from tests.consumer.leases.rows import put_row
from tests.consumer.worker_scenario import Scenario, run_to_its_end
from tests.fuzz import seeds, share

METHODS = (
    "scan",
    "get",
    "create_if_absent",
    "take",
    "renew",
    "checkpoint",
    "prepare",
    "release",
    "request_handoff",
    "complete_handoff",
    "set_child_shard_ids",
    "put_standby_heartbeat",
    "delete",
)
CONFIG = UNHURRIED.with_fields(shard_sync_interval=5, lease_cleanup_interval=5, checkpoint_interval=3)


class Failing:
    """A store whose calls fail by script: before they have effect, or after (the response is lost)."""

    def __init__(self):
        self.rows = LeaseTable()
        self.outcome = lambda name: None
        self.failed = []

    def __getattr__(self, name):
        method = getattr(self.rows, name)
        if name not in {*METHODS, "pin", "set_hash_key_range"}:
            return method

        def call(*arguments, **more):
            outcome = self.outcome(name)
            if outcome is None:
                return method(*arguments, **more)
            error, has_effect = outcome
            if has_effect:
                method(*arguments, **more)
            self.failed.append(name)
            raise error

        return call


def fail_first(store, method, times, error, *, has_effect=False):
    """The first calls of a method fail."""

    def outcome(name):
        return (error, has_effect) if name == method and store.failed.count(name) < times else None

    store.outcome = outcome


class Preparing(RecordHandler):
    """Checkpoints in two phases."""

    fleet = None

    def process_records(self, batch):
        self.fleet.note("a", batch)
        batch.checkpointer.prepare_checkpoint().checkpoint()

    def shard_ended(self, checkpointer):
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer):
        checkpointer.checkpoint()


def play(fleet):
    """A scenario in which a worker calls every method of the store."""
    latest = CONFIG.with_fields(initial_position="LATEST", initial_rebalance_delay=5)

    class Handler(Preparing):
        pass

    Handler.fleet = fleet
    fleet.put(20)
    fleet.add("x|a", Handler)
    fleet.run(10)
    # It requests leases that the first worker hands off, and sends standby heartbeats before.
    fleet.add("y|b", config=latest)
    fleet.run(12)
    fleet.put(20)
    fleet.split()
    fleet.run(8)
    fleet.put(20)
    fleet.merge()
    fleet.run(25)
    fleet.put(20)
    assert fleet.run(120, until=fleet.all_delivered)
    fleet.stop("y|b")
    fleet.run(15)
    assert "y|b" not in fleet.engines, "a clean stop ends"
    fleet.put(20)
    assert fleet.run(120, until=fleet.all_delivered)
    assert set(fleet.owners().values()) == {"x|a"}


def fleet_on(store, arm, **more):
    """A fleet whose store begins to fail once a worker has started: a start that fails is for the user to see."""
    fleet = Fleet(shards=3, **{"config": CONFIG, "store": store, **more})
    start = fleet.add

    def add(*arguments, **more):
        store.outcome = lambda name: None
        engine = start(*arguments, **more)
        arm()
        return engine

    fleet.add = add
    return fleet


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("method", "has_effect"),
    [*((method, False) for method in METHODS), *((method, True) for method in share(METHODS, unit=3))],
)
def test_a_retryable_error_of_any_method_stops_no_worker(method, has_effect):
    store = Failing()
    error = TransientLeaseStoreError(f"{method}: connection reset")
    fleet = fleet_on(store, lambda: fail_first(store, method, 3, error, has_effect=has_effect))
    play(fleet)
    # A request that took effect is not repeated.
    times = 1 if has_effect and method == "request_handoff" else 3
    assert store.failed == [method] * times
    assert sorted(set(fleet.data())) == sorted(fleet.sent)


@pytest.mark.parametrize("has_effect", [False, True], ids=["no effect", "lost response"])
def test_a_missing_range_is_stored_after_the_store_has_recovered(has_effect):
    store = Failing()
    error = TransientLeaseStoreError("set_hash_key_range: connection reset")
    fleet = fleet_on(store, lambda: fail_first(store, "set_hash_key_range", 3, error, has_effect=has_effect))
    fleet.add("a")
    fleet.run(10)
    row = store.rows.list()[0]
    key = row.lease_key
    put_row(store.rows, replace(row, hash_key_range=None))
    fleet.run(120)
    assert store.rows.get(key).hash_key_range is not None
    assert store.failed == ["set_hash_key_range"] * (1 if has_effect else 3)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(unit=3, fuzz=100))
def test_a_fleet_on_an_unreliable_store_delivers_everything(seed):
    rng = Random(seed)
    store = Failing()

    def unreliable(name):
        chance = rng.random()
        return (TransientLeaseStoreError(f"{name}: timeout"), chance < 0.1) if chance < 0.2 else None

    def arm():
        store.outcome = unreliable

    config = CONFIG.with_fields(lease_scan_interval=1.0, max_idle_time_between_reads=None)
    fleet = fleet_on(store, arm, seed=seed, config=config)
    fleet.put(20)
    fleet.add("a")
    fleet.run(10)
    fleet.add("b")
    fleet.run(20)
    fleet.split()
    fleet.put(20)
    fleet.run(20)
    fleet.crash("a")
    fleet.merge()
    fleet.put(20)
    fleet.add("c")
    assert fleet.run(600, until=fleet.all_delivered)
    fleet.check_order()
    assert len(store.failed) > 20


@pytest.mark.parametrize(
    "method", ["scan", "get", "create_if_absent", "take", "renew", "checkpoint", "request_handoff"]
)
def test_an_error_that_is_not_retryable_ends_the_worker_with_it(method):
    store = Failing()
    error = LeaseStoreError(f"{method}: no such table")
    fleet = fleet_on(store, lambda: fail_first(store, method, 10**9, error))
    with pytest.raises(LeaseStoreError) as caught:
        play(fleet)
    assert caught.value is error


@pytest.mark.parametrize(
    "method",
    [
        "take",
        "renew",
        "checkpoint",
        "request_handoff",
        "complete_handoff",
        "release",
        "set_child_shard_ids",
        "put_standby_heartbeat",
    ],
)
def test_a_row_that_the_store_rejects_stops_no_worker(method):
    store = Failing()
    error = LeaseRowRejectedError("row too large")
    fleet = fleet_on(store, lambda: fail_first(store, method, 1, error))
    play(fleet)
    assert store.failed == [method]
    assert sorted(set(fleet.data())) == sorted(fleet.sent)


def test_lease_store_errors_are_no_aws_errors():
    assert not issubclass(LeaseStoreError, AwsError)
    assert TransientLeaseStoreError.retryable
    assert not LeaseStoreError.retryable
    assert not LeaseRowRejectedError.retryable


class Buggy(InMemoryLeaseStore):
    """Lets an error of its database's client out."""

    def __init__(self, broken):
        super().__init__()
        self.broken = broken
        self.armed = False

    def __getattribute__(self, name):
        if name == object.__getattribute__(self, "__dict__").get("broken") and self.armed:

            def fail(*arguments, **more):
                raise ConnectionResetError("the database is gone")

            return fail
        return super().__getattribute__(name)


@pytest.mark.parametrize("method", ["scan", "take", "renew", "checkpoint"])
def test_any_other_exception_ends_run_with_it(method):
    scenario = Scenario()
    scenario.put(*[b"%d" % n for n in range(20)])
    store = Buggy(method)
    config = ConsumerConfig().with_fields(
        initial_position="TRIM_HORIZON",
        failover_time=1.0,
        epsilon=0.0,
        lease_scan_interval=0.1,
        checkpoint_interval=0.0,
    )

    def handle(batch):
        scenario.handle(batch)

    create = store.create_if_absent

    def create_and_arm(lease):
        store.armed = True
        return create(lease)

    store.create_if_absent = create_and_arm
    error = run_to_its_end(scenario.worker(handle, config=config, lease_store=store))
    assert isinstance(error, ConnectionResetError)
    assert str(error) == "the database is gone"


# Where a failure is handled on the spot, because no loop repeats it


def fail_calls(monkeypatch, store, method, times, error):
    """The next calls of a method fail."""
    call = getattr(store, method)
    failed = []

    def failing(*arguments, **more):
        if len(failed) < times:
            failed.append(method)
            raise error
        return call(*arguments, **more)

    monkeypatch.setattr(store, method, failing)
    return failed


@pytest.mark.parametrize("error", [LeaseStoreError("gone"), LeaseRowRejectedError("too large")])
def test_a_checkpoint_that_cannot_succeed_is_not_repeated(monkeypatch, error):
    scenario = CheckpointScenario()
    failed = fail_calls(monkeypatch, scenario.store, "checkpoint", 9, error)
    with pytest.raises((LeaseStoreError, LeaseLostError)):
        scenario.checkpointer.checkpoint()
    assert failed == ["checkpoint"]


def test_a_lease_that_is_overdue_for_its_requester_is_handed_off_after_a_failure(monkeypatch):
    scenario = Deferred()
    scenario.scan()
    scenario.store.request_handoff(scenario.store.list()[0], "b")
    failed = fail_calls(
        monkeypatch, scenario.store, "complete_handoff", 1, TransientLeaseStoreError("timeout")
    )
    for _ in range(34):
        scenario.scan(1.0)
    (row,) = scenario.store.list()
    assert (row.owner, row.checkpoint_owner) == ("b", None)
    assert failed
    assert scenario.engine.error is None


def test_a_worker_with_a_row_of_a_former_process_that_is_rejected_goes_on(monkeypatch):
    fleet = Fleet(shards=1)
    fleet.add("a")
    fleet.run(5)
    fleet.store.request_handoff(fleet.store.list()[0], "b")
    fleet.crash("a")
    failed = fail_calls(
        monkeypatch, fleet.store, "complete_handoff", 10**9, LeaseRowRejectedError("row too large")
    )
    fleet.add("a")
    fleet.run(5)
    assert failed
    assert fleet.engines["a"].error is None


def test_a_worker_stops_although_its_standby_heartbeat_cannot_be_removed(monkeypatch):
    fleet = Fleet(shards=1)
    fleet.add("x|a")
    fleet.run(5)
    fleet.add("y|b")
    assert fleet.run(20, lambda: any(row.standby_heartbeats for row in fleet.store.list()))
    failed = fail_calls(
        monkeypatch, fleet.store, "put_standby_heartbeat", 10**9, LeaseStoreError("access denied")
    )
    fleet.stop("y|b")
    fleet.run(5)
    assert failed
    assert "y|b" not in fleet.engines


def test_heartbeats_of_dead_workers_are_removed_after_the_store_has_recovered(monkeypatch):
    store = InMemoryLeaseStore([Lease(lease_key="s", checkpoint=at(1), standby_heartbeats={"dead": 1})])
    heartbeats = StandbyHeartbeats(store, "me", failover_time=10, heartbeat_interval=6, scan_interval=1)
    for now in (0, 1, 200):
        heartbeats.observe(store.list(), now)
    failed = fail_calls(monkeypatch, store, "put_standby_heartbeat", 1, TransientLeaseStoreError("timeout"))
    heartbeats.remove_stale(200)
    assert store.get("s").standby_heartbeats == {"dead": 1}
    heartbeats.remove_stale(201)
    assert failed
    assert store.get("s").standby_heartbeats == {}


def test_a_handler_that_hangs_loses_its_lease_although_it_cannot_be_released(monkeypatch, caplog):
    calls = []

    async def handle(batch):
        pass

    fleet = Fleet(config=CONFIG.with_fields(handler_timeout=60.0))
    fleet.runtime = never_ending(calls)
    fleet.put(3)
    engine = fleet.add("a", handle)
    assert fleet.run(20, lambda: len(calls) == 1)
    failed = fail_calls(monkeypatch, fleet.store, "release", 1, LeaseStoreError("access denied"))
    assert fleet.run(120, lambda: len(calls) == 2), "the shard is consumed again"
    assert failed
    assert engine.error is None
    assert "access denied" in caplog.text


def test_a_range_that_the_store_rejects_stops_no_worker(monkeypatch, caplog):
    fleet = Fleet(shards=2, config=CONFIG)
    engine = fleet.add("a")
    fleet.run(10)
    row = fleet.store.list()[0]
    put_row(fleet.store, replace(row, hash_key_range=None))
    failed = fail_calls(
        monkeypatch, fleet.store, "set_hash_key_range", 10**9, LeaseRowRejectedError("row too large")
    )
    fleet.run(90)
    assert failed
    assert engine.error is None
    fleet.put(20)
    assert fleet.run(30, until=fleet.all_delivered)
