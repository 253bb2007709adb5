"""An engine whose steps wait until the test runs them."""

from __future__ import annotations

from random import Random

from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore
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
