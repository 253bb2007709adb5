"""Random schedules: whatever the service does, every record ends well defined and nothing acknowledged is lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.errors import RecordFailedError
from kinesis_sdk.producer.config import ProducerConfig
from tests.fuzz import how_many, seeds
from tests.producer.simulation import STREAM, Simulation
from tests.producer.stream.schedules import SCHEDULES, check, drawn_limit, play


@settings(max_examples=SCHEDULES)
@given(seed=st.integers(0, 2**63))
def test_every_schedule_ends_well(seed: int) -> None:
    check(play(seed, limit=drawn_limit(seed)))


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=15, fuzz=2_000))
@given(seed=st.integers(0, 2**63), ordered=st.booleans())
def test_headers_stay_with_their_records_in_every_schedule(seed: int, ordered: bool) -> None:
    """Throttles, partial failures, lost answers, reshards, streams that come back: `Simulation.check` compares the headers of every copy."""
    simulation = play(seed, ordered=ordered, limit=None if ordered else drawn_limit(seed), headed=True)
    check(simulation)
    if ordered and not simulation.recreated:
        simulation.check_order()
    for record, headers in zip(simulation.records, simulation.headers, strict=True):
        if simulation.service_placed and headers:
            assert isinstance(record.exception(), RecordFailedError)


@settings(max_examples=how_many(unit=15, fuzz=100))
@given(seed=st.integers(0, 2**63))
def test_no_deadline_is_missed_while_the_endpoint_is_healthy(seed: int) -> None:
    rng = random.Random(seed)
    buffered_time = rng.choice([0.0, 0.01, 0.1, 2.0])
    latency = rng.choice([0.001, 0.05])
    config = ProducerConfig(
        aggregation_enabled=rng.random() < 0.7,
        aggregation_max_count=rng.choice([3, 4_294_967_295]),
        aggregation_max_size=rng.choice([200, 51_200]),
        record_max_buffered_time=buffered_time,
    )
    simulation = Simulation(config, shards=rng.choice([1, 2, 7]), seed=seed, latency=latency)
    for number in range(rng.randrange(1, 150)):
        data = b"%06d" % number
        key = f"k{rng.randrange(20)}"
        simulation.at(rng.uniform(0, 3.0), lambda k=key, d=data: simulation.put(k, d) and None)
    simulation.exactly_once = True
    simulation.finish()
    bound = buffered_time + min(0.05, 0.2 * buffered_time)
    for record in simulation.records:
        (attempt,) = record.result(0).attempts
        assert attempt.delay <= bound + 1e-6
        assert attempt.duration <= 2 * latency


@pytest.mark.parametrize("seed", [0, 50, 100, 150])
def test_a_schedule_replays_exactly(seed: int) -> None:
    first, second = play(seed), play(seed)
    assert first.sent_at == second.sent_at
    assert first.pipeline.counters == second.pipeline.counters


@settings(max_examples=SCHEDULES)
@given(seed=st.integers(0, 2**63))
def test_ordered_mode_keeps_the_order_of_every_key_in_every_schedule(seed: int) -> None:
    simulation = play(seed, ordered=True)
    simulation.check()
    if not simulation.recreated:
        simulation.check_order()


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(unit=3, fuzz=40))
def test_ordered_mode_keeps_the_order_of_records_that_wait_for_a_recreated_stream(seed: int) -> None:
    rng = random.Random(seed)
    config = ProducerConfig(
        missing_stream="wait",
        ordering="per_shard",
        record_max_buffered_time=0.02,
        record_ttl=36_000.0,
        aggregation_max_count=rng.choice([1, 3, 1_000]),
        collection_max_count=1,
    )
    simulation = Simulation(config, shards=rng.choice([2, 5]), seed=seed, latency=0.5, throttle=False)
    simulation.recreated = True
    simulation.stalls = rng.choice([0.0, 0.1])
    for number in range(500):
        key, data = f"k{rng.randrange(20)}", b"%06d" % number
        simulation.at(rng.uniform(0, 10.0), lambda k=key, d=data: simulation.put(k, d) and None)
    shards = rng.choice([1, 3, 4])
    simulation.at(3.0, lambda: simulation.client.delete_stream(StreamName=STREAM) and None)
    simulation.at(
        3.0 + rng.choice([0.1, 0.5, 3.0]),
        lambda: simulation.client.create_stream(StreamName=STREAM, ShardCount=shards) and None,
    )
    simulation.finish(delivered=True)
