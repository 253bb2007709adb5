"""What only shows when steps do not run inline: callbacks still running, stops in the middle of a look."""

from __future__ import annotations

from random import Random

from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore, ShardState
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.handler import HandlerSource
from tests.consumer.simulation import STREAM, Fleet


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
            clock=self.clock,
            rng=Random(1),
            sleep=self.clock.advance,
            run_step=self.steps.append,
            wake=self.woken.append,
            on_stopped=lambda: self.stopped.append([lease.owner for lease in self.store.list()]),
        )
        self.engine.start()

    def look(self, seconds=1.1):
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
    scene = Deferred()
    scene.look()
    assert scene.owner == "me"
    assert len(scene.steps) == 1, "its first step is running"
    taken = scene.store.take(scene.store.list()[0], "other")
    scene.store.release(taken)
    for _ in range(5):
        scene.look(3.4)
        assert scene.owner is None
    scene.run_steps()
    assert scene.engine.shard_health() == ()
    scene.look()
    assert scene.owner == "me"


def test_a_stop_in_the_middle_of_a_look_releases_what_that_look_brings():
    class Store(InMemoryLeaseStore):
        def take(self, lease, owner):
            scene.engine.request_stop()
            return super().take(lease, owner)

    store = Store()
    scene = Deferred(store, shards=3)
    scene.look()
    assert not scene.stopped, "a lease is on its way"
    scene.run_steps()
    assert scene.stopped[0] == [None, None, None]
    assert scene.engine.is_stopped
    assert [lease.counter for lease in store.list()].count(2) == 1, "one was taken and released, no more"


def test_renewals_are_woken_for_new_leases_and_failures():
    scene = Deferred()
    scene.look()
    assert "renewals" in scene.woken
    assert scene.engine.shard_health()[0].state is ShardState.WAITING_ON_PARENTS


def test_a_step_that_fails_even_while_stopping_is_abandoned(caplog):
    scene = Deferred()
    scene.look()

    def broken(now):
        raise RuntimeError("broken")

    ((consumer, _),) = scene.engine._consumers.values()
    consumer.step = broken
    scene.run_steps()
    assert scene.stopped
    assert isinstance(scene.engine.error, RuntimeError)
    assert scene.owner == "me", "left to expire"
    assert "fatal: RuntimeError: broken" in caplog.text


def test_an_abort_writes_nothing_more():
    scene = Deferred()
    scene.look()
    scene.engine.abort()
    before = scene.store.list()
    scene.run_steps()
    assert scene.store.list() == before
    assert scene.engine.is_stopped
