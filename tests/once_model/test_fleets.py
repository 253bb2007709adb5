"""Whole workers and a producer on one timeline: workers die and take over while responses are lost and records are stored late."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.testing import Fault
from kinesis_sdk.testing.accounting.stored_copies import CopyPosition, deliveries, read_copies
from tests import fuzz
from tests.consumer.fleet.engines import Fleet
from tests.once_model.simulated import _Patient, _plan_puts, _WithAnyClock
from tests.producer.simulation import STREAM
from tests.producer.stream.schedules import reshard

HORIZON = 20.0


def play(seed: int) -> tuple[dict[bytes, set[CopyPosition]], dict[bytes, set[CopyPosition]], int]:
    """Return the positions by the oracle, those that the workers delivered, and the copies beyond the first of each record."""
    random = Random(seed)
    fleet = Fleet(shards=random.choice([1, 2]), seed=seed)
    config = ProducerConfig(
        idempotent=True,
        request_timeout=random.choice([0.5, 2.0]),
        record_ttl=60.0,
        aggregation_max_count=random.choice([1, 3, 100]),
    )
    producer = _WithAnyClock(config, seed=seed, beside=fleet, balanced=False)  # type: ignore[arg-type]
    for kind, seconds in (("timeout_after_storing", 0.0), ("late_store", random.choice([3.0, 6.0, 30.0]))):
        fleet.aws.faults.add(
            Fault.from_dict(
                {
                    "kind": kind,
                    "operation": "PutRecords",
                    "seconds": seconds,
                    "probability": 0.5,
                    "count": random.choice([1, 5]),
                }
            )
        )
    _plan_puts(producer, 0, random, HORIZON)
    for _ in range(random.randrange(3)):
        producer.at(random.uniform(0, HORIZON), partial(reshard, producer, random))

    def produce(now: float) -> float:
        while producer.turn(now):
            """Go on until nothing is due."""
        return producer.upcoming(now)

    fleet.add_script("producer", produce)
    for number in range(2):
        fleet.add(f"worker-{number}")
    number = 2
    for _ in range(random.randrange(1, 4)):
        fleet.run(random.uniform(1, HORIZON))
        fleet.crash(random.choice(list(fleet.engines)))
        fleet.add(f"worker-{number}")
        number += 1
    fleet.run(150)
    copies = read_copies(_Patient(producer), STREAM)
    expected = {name: set(found) for name, found in deliveries(copies, lambda data: data).items() if found}
    delivered: dict[bytes, set[CopyPosition]] = {}
    for _, shard, data, sequence_number, sub in fleet.delivered:
        delivered.setdefault(data, set()).add(CopyPosition(shard, int(sequence_number), sub))
    assert {
        data
        for record, data in zip(producer.records, producer.payloads, strict=True)
        if record.exception() is None
    } <= delivered.keys(), "an acknowledged record is lost"
    return expected, delivered, len(copies) - len({copy.data for copy in copies})


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=3, fuzz=20))
@given(seed=st.integers(0, 2**63))
def test_workers_that_die_deliver_each_record_at_its_first_valid_copy(seed: int) -> None:
    expected, delivered, _ = play(seed)

    assert delivered == expected


def test_the_streams_of_these_fleets_have_copies() -> None:
    assert any(play(seed)[2] > 0 for seed in range(6))
