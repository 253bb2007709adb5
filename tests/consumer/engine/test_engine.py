"""The engine with steps that do not run inline: callbacks that are still running, stops during a scan."""

from __future__ import annotations

from kinesis_sdk.consumer import InMemoryLeaseStore, ShardState
from tests.consumer.engine.deferred import Deferred


def test_a_shard_is_not_taken_again_while_its_old_consumer_still_runs():
    scenario = Deferred()
    scenario.scan()
    assert scenario.owner == "me"
    assert len(scenario.steps) == 1, "its first step is running"
    taken = scenario.store.take(scenario.store.list()[0], "other")
    scenario.store.release(taken)
    for _ in range(5):
        scenario.scan(3.4)
        assert scenario.owner is None
    scenario.run_steps()
    assert scenario.engine.shard_health() == ()
    scenario.scan()
    assert scenario.owner == "me"


def test_a_stop_during_a_scan_releases_the_lease_that_the_scan_takes():
    class Store(InMemoryLeaseStore):
        def take(self, lease, owner):
            scenario.engine.request_stop()
            return super().take(lease, owner)

    store = Store()
    scenario = Deferred(store, shards=3)
    scenario.scan()
    assert not scenario.stopped, "a lease is on its way"
    scenario.run_steps()
    assert scenario.stopped[0] == [None, None, None]
    assert scenario.engine.is_stopped
    assert [lease.counter for lease in store.list()].count(2) == 1, "one was taken and released, no more"


def test_renewals_are_woken_for_new_leases_and_failures():
    scenario = Deferred()
    scenario.scan()
    assert "renewals" in scenario.woken
    assert scenario.engine.shard_health()[0].state is ShardState.WAITING_ON_PARENTS


def test_a_step_that_fails_even_while_stopping_is_abandoned(caplog):
    scenario = Deferred()
    scenario.scan()

    def broken(now):
        raise RuntimeError("broken")

    ((consumer, _),) = scenario.engine._consumers.values()
    consumer.step = broken
    scenario.run_steps()
    assert scenario.stopped
    assert isinstance(scenario.engine.error, RuntimeError)
    assert scenario.owner == "me", "left to expire"
    assert "RuntimeError: broken" in caplog.text


def test_an_abort_writes_nothing_more():
    scenario = Deferred()
    scenario.scan()
    scenario.engine.abort()
    before = scenario.store.list()
    scenario.run_steps()
    assert scenario.store.list() == before
    assert scenario.engine.is_stopped
