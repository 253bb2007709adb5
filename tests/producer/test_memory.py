"""What a buffered record really costs, and that nothing grows while nothing gets through."""

from __future__ import annotations

import contextlib
import gc
import tracemalloc
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from kinesis_sdk.common.errors import BufferFullError
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.producer.io.shared import NEVER
from kinesis_sdk.producer.records.record import RECORD_OVERHEAD
from kinesis_sdk.producer.stream.limiter import ShardRate
from kinesis_sdk.testing import FakeAws, Fault
from tests.fuzz import how_many, share
from tests.producer.simulation import STREAM, Simulation
from tests.producer.support import LONG, Gate, interpreted, settle

SIZE = 100
COUNT = how_many(unit=1_000, fuzz=4_000)


@pytest.fixture(scope="module")
def frozen() -> None:
    gc.collect()
    # Or each collection looks through everything that the test process ever loaded. It stays so: `gc.unfreeze` would
    # also undo what tests/conftest.py does for all tests.
    gc.freeze()


@pytest.fixture
def traced(frozen: None) -> Iterator[None]:
    gc.collect()
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.fixture
def gate() -> Iterator[Gate]:
    aws = FakeAws(throttle=False)
    aws.client("kinesis").create_stream(StreamName=STREAM, ShardCount=4)
    # On a busy machine a call that gives up would send 500 records: their request costs a tenth of the charge.
    gate = Gate(aws, patience=None)
    yield gate
    gate.open.set()


def held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def warm(producer: Producer, gate: Gate) -> None:
    """Let it learn its stream, start its threads, fill its caches; then nothing gets through any more."""
    settle(producer)
    for number in range(500):
        producer.put(STREAM, f"key-{number}", bytes(SIZE))
    assert producer.flush(LONG) == 0
    while gate.arrived.acquire(blocking=False):
        pass
    gate.open.clear()
    producer.put(STREAM, "warm", b"up")
    producer.flush(0)
    assert gate.arrived.acquire(timeout=LONG)
    gate.requests.clear()
    # A thread that has not come round to waiting yet still refers to the records of the last request.
    while not is_at_rest(producer):
        pass


def is_at_rest(producer: Producer) -> bool:
    """Return whether the I/O thread sleeps, one thread of the pool is in the call that the gate holds, and no other has a task."""
    loop = producer._engine._loop
    with producer._engine._lock:
        return loop._shared.sleeping_until != -NEVER and loop._pool._idle == len(loop._pool.threads) - 1


def held_by(producer: Producer, *, flushed: bool = False) -> int:
    """`held`, while the engine's thread is not in the middle of something.

    Args:
        producer: Whose engine.
        flushed: Do first what that thread does for a flush, which would be measured half done.
    """
    with producer._engine._lock:
        if flushed:
            producer._pipeline(STREAM).queue.flush(-1, producer._clock.monotonic())
        return held()


@contextlib.contextmanager
def opening(gate: Gate) -> Iterator[None]:
    """Whatever a test finds, closing its producer must not wait."""
    try:
        yield
    finally:
        gate.open.set()


@pytest.mark.parametrize(
    ("way", "aggregated"),
    share(product(["put and keep", "put and drop", "send", "put_many"], [True, False]), unit=2),
)
@pytest.mark.fuzz
def test_a_buffered_record_costs_what_it_is_charged(
    traced: None, gate: Gate, way: str, aggregated: bool
) -> None:
    config = ProducerConfig(
        aggregation_enabled=aggregated,
        record_max_buffered_time=3_600.0,
        record_ttl=7_200.0,
        max_connections=1,
        rate_limit=10_000,
    )
    keys = [f"key-{number}" for number in range(500)]
    futures: list[Any] = [None] * COUNT
    with Producer(config, client=gate) as producer, opening(gate):
        warm(producer, gate)
        before = held_by(producer)
        charged = producer.stats().buffered_bytes
        for number in range(COUNT):
            key, data = keys[number % 500], bytes(SIZE)
            if way == "put and keep":
                futures[number] = producer.put(STREAM, key, data)
            elif way == "put and drop":
                producer.put(STREAM, key, data)
            elif way == "send":
                producer.send(STREAM, key, data)
            elif number % 500 == 0:
                futures[number : number + 500] = producer.put_many(STREAM, [(k, bytes(SIZE)) for k in keys])
        real = (held_by(producer) - before) / COUNT
        charge = (producer.stats().buffered_bytes - charged) / COUNT
    assert charge == pytest.approx(SIZE + 7 + RECORD_OVERHEAD, abs=1)
    # Whether a record will be alone is not known when it is charged: an aggregated one pays for more than it has.
    # 0.38 and 1.02 at most with Python 3.10 to 3.13, in which an object's size differs by some bytes.
    least, most = (0.25, 0.47) if aggregated else (0.5, 1.1)
    assert least < real / charge < most, f"{real - SIZE - 7:.0f} bytes of bookkeeping"


@pytest.mark.parametrize("aggregated", share([True, False], unit=1))
@pytest.mark.fuzz
def test_memory_is_flat_at_the_bound_while_the_endpoint_stalls(
    traced: None, gate: Gate, aggregated: bool
) -> None:
    bound = 2 * 1024 * 1024
    config = ProducerConfig(
        aggregation_enabled=aggregated,
        record_max_buffered_time=0.0,
        record_ttl=7_200.0,
        max_buffered_bytes=bound,
        max_connections=2,
        put_timeout=0,
        rate_limit=10_000,
    )
    with Producer(config, client=gate) as producer, opening(gate):
        warm(producer, gate)
        before = held_by(producer)

        def push(count: int) -> int:
            refused = 0
            for number in range(count):
                try:
                    producer.put(STREAM, f"key-{number % 500}", bytes(SIZE))
                    producer.send(STREAM, f"key-{number % 500}", bytes(SIZE))
                except BufferFullError:
                    refused += 1
                refused += producer.try_put(STREAM, "key-1", bytes(SIZE)) is None
            return refused

        assert push(2_000) > 1_000
        assert gate.arrived.acquire(timeout=LONG)  # the second connection is in use, too
        gate.requests.clear()
        full = held_by(producer, flushed=True) - before
        assert full < (0.7 if aggregated else 1.3) * bound, "encoded requests stand beside the bound"
        assert producer.stats().buffered_bytes <= bound
        for _ in range(3):
            assert push(1_000) == 2_000
            grown = held_by(producer, flushed=True) - before - full
            assert grown < 0.005 * bound
        assert producer.flush(0) > 0


class Nowhere(list[Any]):
    """A log that nobody reads."""

    def append(self, _item: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("trouble", "aggregated"),
    share(
        [
            pytest.param(trouble, aggregated, marks=marks)
            for trouble, marks in (
                ("no answer in time", ()),
                ("every entry is throttled", interpreted),
                ("every entry fails", ()),
            )
            for aggregated in (False, True)
        ],
        unit=2,
    ),
)
@pytest.mark.fuzz
def test_records_that_fail_over_and_over_do_not_grow(
    traced: None, monkeypatch: pytest.MonkeyPatch, trouble: str, aggregated: bool
) -> None:
    # A throttled shard would be asked for less, and there would be few attempts to look at.
    monkeypatch.setattr(ShardRate, "on_throttled", lambda *_args: None)
    count = 200  # what comes back fills aggregates, or requests, at once
    config = ProducerConfig(
        aggregation_enabled=aggregated,
        aggregation_max_size=2_000,
        collection_max_count=100 if not aggregated else 8,
        rate_limit=10_000,
    )
    simulation = Simulation(config, shards=4, throttle=False, latency=0.001, balanced=False)
    for number in range(100):
        simulation.put(f"key-{number}", bytes(SIZE))
    simulation.run()
    simulation.requests, simulation.sent_at = Nowhere(), Nowhere()
    if trouble == "every entry fails":
        simulation.aws.faults.add(Fault(kind="partial", operation="PutRecords", code="InternalFailure"))
    elif trouble == "every entry is throttled":
        simulation.aws.faults.add(Fault(kind="partial", operation="PutRecords"))
    else:
        simulation.aws.faults.add(Fault(kind="timeout_before_storing", operation="PutRecords"))
    before = held()
    begin = simulation.clock.monotonic()
    for number in range(count):
        simulation.put(f"key-{number % 100}", bytes(SIZE))
    records = simulation.records[-count:]
    charge = sum(record.cost for record in records)
    simulation.run(until=begin + 2.0)
    early = held() - before
    simulation.run(until=begin + how_many(unit=7, fuzz=12))
    late = held() - before
    assert not any(record.done() for record in records)
    most = max(len(record.history or ()) for record in records)
    assert 5 < most < 60
    # Nothing here depends on time, threads or the order of hashes: it is 1.98 with Python 3.11, 2.0 after other tests, and less with 3.13.
    assert late < (1.25 if aggregated else 2.1) * charge
    assert late - early < 0.25 * charge
