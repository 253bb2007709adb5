"""Two copies of one process image, as after a virtual machine was restored twice, put records side by side: nothing is lost."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.once.reader import RunReader
from kinesis_sdk.common.once.shell import carry_out
from kinesis_sdk.common.once.stamps import fresh_entropy
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.testing import Fault
from tests.fuzz import seeds
from tests.producer.simulation import STREAM, Simulation, read_stream, run_together


def put(simulation: Simulation, key: str, data: bytes) -> None:
    simulation.put(key, data)


def delivered(simulation: Simulation) -> Counter[bytes]:
    """What readers deliver, by payload."""
    found: Counter[bytes] = Counter()
    for shard, records in read_stream(simulation.client, advance=simulation.clock.advance):
        reader = RunReader(STREAM, shard.shard_id, shard.hash_key_range)
        reader.begin(records)
        users = deaggregate(records, on_tagged=reader.add)
        look_up = reader.look_up()
        if look_up is not None:
            carry_out(
                look_up, simulation.client, simulation.stream, shard.shard_id, sleep=simulation.clock.advance
            )
        decision = reader.decide(round(simulation.clock.time() * 1000))
        found.update(user.data for user in users.without(decision.dropped))
    return found


def become_copy(twin: Simulation, original: Simulation) -> None:
    """Let the identities of a producer go on with whatever another one has drawn or counted so far."""
    plain = (bytes, str, int, float, tuple)
    state = vars(original.pipeline.stamps).items()
    vars(twin.pipeline.stamps).update({name: value for name, value in state if isinstance(value, plain)})


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(unit=8, fuzz=1_000))
def test_no_record_of_two_copies_of_an_image_is_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have equal state and equal clocks, and the kernel gives both equal bytes for ever. Only nanoseconds differ."""
    monkeypatch.setattr("kinesis_sdk.common.once.stamps.os.urandom", bytes)
    rng = random.Random(seed)
    config = ProducerConfig(
        idempotent=True,
        request_timeout=rng.choice([0.5, 2.0]),
        record_ttl=60.0,
        record_max_buffered_time=rng.choice([0.02, 0.1]),
        aggregation_max_count=rng.choice([1, 3, 100]),
    )
    shards = rng.choice([1, 2])
    first = Simulation(config, shards=shards, seed=seed, entropy=fresh_entropy)
    second = Simulation(config, shards=shards, seed=seed, entropy=fresh_entropy, beside=first)
    first.put("k0", b"before")
    run_together([first], first.clock.monotonic() + 2.0)
    become_copy(second, first)
    for kind in ("timeout_after_storing", "timeout_before_storing"):
        first.aws.faults.add(Fault(kind=kind, operation="PutRecords", probability=0.2))
    begin = first.clock.monotonic()
    for number in range(40):
        moment, key = begin + number * rng.choice([0.01, 0.05]), f"k{number % 5}"
        for name, twin in (("A", first), ("B", second)):
            twin.at(moment, partial(put, twin, key, f"{name}{number}".encode()))
    run_together([first, second], begin + 70.0)
    first.aws.faults.clear()
    found = delivered(first)
    for twin in (first, second):
        for record, data in zip(twin.records, twin.payloads, strict=True):
            assert record.done()
            assert found[data] == 1 or (record.exception() is not None and found[data] == 0), data
