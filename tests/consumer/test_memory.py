"""The bytes that a worker charges against ``max_prefetch_bytes`` are those that its records take in memory."""

from __future__ import annotations

import gc
import tracemalloc
from functools import cache
from itertools import product
from random import Random

import pytest

from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore, RetrievalConfig
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.runtime.runtime import InlineRuntime
from tests import fuzz
from tests.consumer.fleet.engines import STREAM, Fleet

MB = 1 << 20
COUNT = 8_000 if fuzz.TIMES else 3_000
"""User records of an aggregate. What a worker takes for each key besides is not in proportion to them, and counts less with more of them."""


def one_key(number):
    return "k", None, b""


def distinct_keys(number):
    return f"{number:x}", None, b"1"


def explicit_hash_keys(number):
    return "k", str(number << 100), b""


def small_payloads(number):
    return f"customer-{number % 16}", None, b"%020d" % number


@cache
def aggregate_of(shape, index):
    """Return an aggregate of `COUNT` user records. It is made once for all tests: that takes longer than a test."""
    aggregate = Aggregate(2**40, 2**40)
    for number in range(index * COUNT, (index + 1) * COUNT):
        key, explicit, data = shape(number)
        assert aggregate.try_append(key, explicit, data, hash_partition_key(key))
    return aggregate.encode()


class SlowCoroutines(InlineRuntime):
    """Keeps coroutines until the test finishes them."""

    def __init__(self, scenario):
        clock = scenario.fleet.clock
        super().__init__(clock, Random(1), clock.advance)
        self.scenario = scenario

    def run_async(self, awaitable, on_done):
        self.scenario.calls.append((awaitable, on_done))


class Waiting:
    """A worker whose handler is called and does not return: in turn, calls are left waiting or run."""

    def __init__(self, shape, *, concurrency, aggregates, budget=64 * MB, shards=1):
        self.fleet = Fleet(shards=shards)
        self.calls = []
        self.delivered = 0
        self.largest = 0
        for index in range(aggregates):
            place = (2**128 // shards) * (index % shards)
            self.fleet.raw.put_record(
                StreamName=STREAM,
                Data=aggregate_of(shape, index),
                PartitionKey="a",
                ExplicitHashKey=str(place),
            )
            self.fleet.clock.advance(1.0)
        gc.collect()
        tracemalloc.start()
        self.engine = ConsumerEngine(
            stream=StreamId(STREAM),
            worker_id="me",
            config=ConsumerConfig(
                initial_position="TRIM_HORIZON",
                concurrency=concurrency,
                retrieval=RetrievalConfig(max_prefetch_bytes=budget),
            ),
            handlers=HandlerSource.of(self.handle),
            store=InMemoryLeaseStore(),
            kinesis=self.fleet.kinesis,
            runtime=SlowCoroutines(self),
        )
        self.engine.start()

    async def handle(self, batch):
        self.delivered += len(batch.records)

    def tick(self):
        """Do what is due until nothing is, but what comes later than in two seconds."""
        end = self.fleet.clock.monotonic() + 2.0
        while (now := self.fleet.clock.monotonic()) < end:
            due = self.engine.tick(now)
            if due is None:
                return
            self.fleet.clock.advance_to(min(end, max(due, now + 0.1)))

    def finish_calls(self):
        calls, self.calls = self.calls, []
        for awaitable, on_done in calls:
            with pytest.raises(StopIteration):
                awaitable.send(None)
            on_done(None)

    def measure(self):
        gc.collect()
        return tracemalloc.get_traced_memory()[0], self.engine._budget.used


@pytest.fixture(scope="module")
def _imported():
    """A whole life of a worker, so that what is imported on first use is not measured."""
    for concurrency in (1, 2):
        scenario = Waiting(small_payloads, concurrency=concurrency, aggregates=1)
        scenario.tick()
        scenario.finish_calls()
        scenario.engine.abort()
        scenario.tick()
    tracemalloc.stop()
    gc.collect()
    # Or each collection looks through everything that the test process ever loaded. It stays so: `gc.unfreeze` would
    # also undo what tests/conftest.py does for all tests.
    gc.freeze()
    yield
    aggregate_of.cache_clear()


@pytest.fixture(autouse=True)
def _tracing_ends(_imported):
    yield
    tracemalloc.stop()


SHAPES = [one_key, explicit_hash_keys, distinct_keys, small_payloads]


ROUNDS = 2
"""Times that the calls waiting are measured and then ended. With a key for each record, a call has one record."""


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("concurrency", "shape"),
    fuzz.share(product((1, 8), SHAPES), unit=4),
    ids=lambda one: getattr(one, "__name__", one),
)
def test_the_budget_counts_what_is_in_memory(shape, concurrency):
    scenario = Waiting(shape, concurrency=concurrency, aggregates=4)
    before, nothing = scenario.measure()
    assert nothing == 0
    for _ in range(ROUNDS):
        scenario.tick()
        taken, charged = scenario.measure()
        assert taken - before <= 1.5 * charged + 200_000, "what is counted, and the worker itself"
        scenario.largest = max(scenario.largest, taken - before)
        scenario.finish_calls()
    assert scenario.delivered
    assert scenario.largest > 300_000, "there was something to measure"
    scenario.engine.abort()
    scenario.tick()
    assert scenario.engine._budget.used == 0


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("concurrency", "shape"),
    fuzz.share(product((1, 8), SHAPES), unit=4),
    ids=lambda one: getattr(one, "__name__", one),
)
def test_tiny_records_of_many_shards_stay_within_the_budget(shape, concurrency):
    """Eight shards have many times the budget to deliver, in records whose handlers wait."""
    scenario = Waiting(shape, concurrency=concurrency, aggregates=16, budget=MB, shards=8)
    before, _ = scenario.measure()
    for _ in range(ROUNDS):
        scenario.tick()
        scenario.largest = max(scenario.largest, scenario.measure()[0] - before)
        scenario.finish_calls()
    assert scenario.delivered
    one = COUNT * (64 * 2 + 512 + 64)
    assert scenario.largest < 1.5 * (MB + 2 * one), (
        "the budget, and the two answers that were read before one was counted"
    )
