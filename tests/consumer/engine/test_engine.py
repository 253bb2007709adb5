"""The engine with steps that do not run inline: callbacks that are still running, stops during a scan."""

from __future__ import annotations

from random import Random

from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore, ShardState
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.runtime.runtime import InlineRuntime
from tests.consumer.fleet.engines import STREAM, Fleet


class BusyPool(InlineRuntime):
    """Keeps the steps until the test runs them, and records what the engine reports."""

    def __init__(self, scenario):
        super().__init__(scenario.clock, Random(1), scenario.clock.advance)
        self.scenario = scenario

    def run_step(self, function):
        self.scenario.steps.append(function)

    def wake(self, loop):
        self.scenario.woken.append(loop)

    def on_stopped(self):
        self.scenario.stopped.append([lease.owner for lease in self.scenario.store.list()])


class Deferred:
    """An engine whose steps wait until the test runs them, like steps on a busy pool."""

    def __init__(self, store=None, shards=1):
        self.fleet = Fleet(shards=shards)
        self.clock = self.fleet.clock
        self.store = store or InMemoryLeaseStore()
        self.steps = []
        self.stopped = []
        self.woken = []
        self.engine = ConsumerEngine(
            stream=StreamId(STREAM),
            worker_id="me",
            config=ConsumerConfig(initial_position="TRIM_HORIZON"),
            handlers=HandlerSource.of(lambda batch: None),
            store=self.store,
            kinesis=self.fleet.kinesis,
            runtime=BusyPool(self),
        )
        self.engine.start()

    def scan(self, seconds=1.1):
        self.clock.advance(seconds)
        now = self.clock.monotonic()
        self.engine.renew(now)
        self.engine.tick_table(now)
        self.engine.scheduler.dispatch(now)

    def run_steps(self):
        while self.steps:
            self.steps.pop(0)()
            self.engine.scheduler.dispatch(self.clock.monotonic())

    @property
    def owner(self):
        return self.store.list()[0].owner


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
    assert "fatal error, stopping: RuntimeError: broken" in caplog.text


def test_an_abort_writes_nothing_more():
    scenario = Deferred()
    scenario.scan()
    scenario.engine.abort()
    before = scenario.store.list()
    scenario.run_steps()
    assert scenario.store.list() == before
    assert scenario.engine.is_stopped
