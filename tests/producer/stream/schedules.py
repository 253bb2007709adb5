"""Random schedules of the producer in virtual time, each drawn from its seed alone, and what holds in all of them."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from kinesis_sdk.common.codec import AggregateCodec
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.testing import Fault
from tests.fuzz import how_many
from tests.producer.simulation import STREAM, Simulation
from tests.producer.stream.distribution import AUTO

FAULTS = (
    {"kind": "partial", "operation": "PutRecords", "probability": 0.3},
    {"kind": "partial", "operation": "PutRecords", "probability": 0.2, "code": "InternalFailure"},
    {"kind": "throttle", "operation": "PutRecords", "probability": 0.3},
    {"kind": "error", "operation": "PutRecords", "probability": 0.3},
    {"kind": "error", "operation": "PutRecords", "probability": 0.2, "status": 503},
    {"kind": "timeout_after_storing", "operation": "PutRecords", "probability": 0.2},
    {"kind": "timeout_before_storing", "operation": "PutRecords", "probability": 0.2},
    {"kind": "error", "operation": "ListShards", "probability": 0.5},
    {"kind": "expired_credentials", "operation": "PutRecords", "probability": 0.2},
)

SCHEDULES = how_many(unit=20, fuzz=2_000)
"""Random schedules of each property."""


def open_shards(simulation: Simulation) -> list[dict[str, Any]]:
    """The open shards in hash order, past the faults; none while the stream is deleted."""
    if STREAM not in simulation.client.list_streams()["StreamNames"]:
        return []
    listing = simulation.aws.kinesis.operations["ListShards"]
    answer = listing({"StreamName": STREAM, "ShardFilter": {"Type": "AT_LATEST"}})
    assert isinstance(answer, dict)
    shards: list[dict[str, Any]] = answer["Shards"]
    return sorted(shards, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))


def reshard(simulation: Simulation, rng: random.Random) -> None:
    """Split or merge something that is open."""
    shards = open_shards(simulation)
    if not shards:
        return
    if len(shards) > 1 and rng.random() < 0.5:
        index = rng.randrange(len(shards) - 1)
        simulation.client.merge_shards(
            StreamName=STREAM,
            ShardToMerge=shards[index]["ShardId"],
            AdjacentShardToMerge=shards[index + 1]["ShardId"],
        )
        return
    shard = rng.choice(shards)
    low, high = (int(shard["HashKeyRange"][end]) for end in ("StartingHashKey", "EndingHashKey"))
    if high - low > 2:
        simulation.client.split_shard(
            StreamName=STREAM,
            ShardToSplit=shard["ShardId"],
            NewStartingHashKey=str(rng.randrange(low + 1, high)),
        )


def rescale(simulation: Simulation, rng: random.Random) -> None:
    """Let the service divide the stream anew: many generations of shards at once."""
    count = len(open_shards(simulation))
    target = rng.choice([count * 2, (count + 1) // 2])
    if count and target != count:
        simulation.client.update_shard_count(
            StreamName=STREAM, TargetShardCount=target, ScalingType="UNIFORM_SCALING"
        )


def recreate(simulation: Simulation, rng: random.Random) -> None:
    """Delete the stream; another one of its name appears, at once or a little later."""
    if not open_shards(simulation):
        return
    simulation.client.delete_stream(StreamName=STREAM)
    simulation.recreated = True
    shards = rng.choice([1, 2, 3, 8])
    absence = rng.choice([0.0, 0.0, 0.3])
    if simulation.config.missing_stream == "wait":
        absence *= 10
    simulation.at(
        simulation.clock.monotonic() + absence,
        lambda: simulation.client.create_stream(StreamName=STREAM, ShardCount=shards) and None,
    )


def drawn_limit(seed: int) -> int | None:
    """A limit of requests per shard for half of the schedules, drawn apart from everything else."""
    return random.Random(f"limit {seed}").choice([None, None, 1, 3])


def drawn_idempotence(seed: int) -> dict[str, Any]:
    """Settings of an idempotent producer for half of the schedules, drawn apart from everything else."""
    rng = random.Random(f"idempotent {seed}")
    if rng.random() < 0.5:
        return {}
    timeout = rng.choice([0.5, 2.0, 6.0])
    return {
        "idempotent": True,
        "request_timeout": timeout,
        "record_ttl": rng.choice([4.0 + timeout, 30.0, 30.0]),
    }


def play(
    seed: int,
    *,
    ordered: bool = False,
    limit: int | None = None,
    changed: dict[str, Any] | None = None,
    headed: bool = False,
    codec: AggregateCodec | None = None,
    sealing_time: float = 0.0,
) -> Simulation:
    """One schedule, drawn from its seed alone.

    At most 120 records of up to 3,000 bytes: a limit has to be smaller than that to be reached.
    """
    rng = random.Random(seed)
    config = ProducerConfig(
        aggregation_enabled=rng.random() < 0.9,
        aggregation_max_count=rng.choice([3, 100, 4_294_967_295]),
        aggregation_max_size=rng.choice([64, 500, 5_000, 51_200]),
        collection_max_count=rng.choice([2, 50, 500]),
        record_max_buffered_time=rng.choice([0.0, 0.01, 0.1, 2.0]),
        record_ttl=rng.choice([0.5, 5.0, 30.0]),
        rate_limit=rng.choice([50, 150]),
        max_connections=rng.choice([1, 4, 24]),
        fail_if_throttled=rng.random() < 0.1,
        missing_stream="wait" if seed % 2 else "fail",
        ordering="per_shard" if ordered else "none",
        max_inflight_requests_per_shard=limit,
    )
    config = dataclasses.replace(config, **(drawn_idempotence(seed) if changed is None else changed))
    simulation = Simulation(
        config,
        shards=rng.choice([1, 2, 7]),
        seed=seed,
        latency=rng.choice([0.001, 0.05, 0.5]),
        codec=codec,
        sealing_time=sealing_time,
    )
    if headed:
        simulation.headed = random.Random(f"headers {seed}")
    auto = rng.random() < 0.1
    simulation.service_placed = auto
    if auto:
        simulation.client.delete_stream(StreamName=STREAM)
        simulation.client.create_stream(StreamName=STREAM, **AUTO)
    simulation.stalls = rng.choice([0.0, 0.0, 0.0, 0.1])
    faults = rng.sample(FAULTS, rng.randrange(4))
    for fault in faults:
        simulation.aws.faults.add(Fault(**fault, count=rng.choice([3, 30])))
    horizon = rng.choice([0.3, 3.0])
    keys = rng.choice([1, 5, 200])
    bursts = ordered and rng.random() < 0.5
    for number in range(rng.randrange(1, 120)):
        explicit = str(rng.randrange(2**128)) if rng.random() < 0.1 else None
        if ordered:
            explicit = None  # it would put the records of one key into several shards
        size = rng.choice([0, 10, 100, 100, 100, 3_000])
        data = f"{number:06d}".encode().ljust(size, b".")
        key = f"k{rng.randrange(keys)}"
        when = rng.uniform(0, horizon)
        if bursts:
            when = round(when, 1)  # many at the same instant: times alone do not tell their order
        simulation.at(when, lambda k=key, d=data, e=explicit: simulation.put(k, d, e) and None)
    # A record is stored twice if its response is lost. The same happens if its placement cannot be checked: there is no
    # shard map, or it arrives too late to show a shard that was open only briefly.
    simulation.exactly_once = not (
        auto
        or simulation.stalls
        or any(
            fault["kind"] == "timeout_after_storing" or fault["operation"] == "ListShards" for fault in faults
        )
    )
    reshards = 0
    if not auto:
        reshards = rng.randrange(4)
        for _ in range(reshards):
            simulation.at(rng.uniform(0, horizon), lambda: reshard(simulation, rng))
        if rng.random() < 0.2:
            reshards += 2
            simulation.at(rng.uniform(0, horizon), lambda: rescale(simulation, rng))
        simulation.exactly_once &= reshards <= 1
        if rng.random() < 0.1:
            simulation.at(rng.uniform(0, horizon), lambda: recreate(simulation, rng))
    for _ in range(rng.randrange(3)):
        simulation.at(rng.uniform(0, horizon), simulation.flush)
    if rng.random() < 0.3:
        begin = rng.uniform(0, horizon)
        # Three loads that fail in a row send again what landed in a new shard, although it may be right there.
        simulation.exactly_once &= not reshards
        simulation.at(begin, lambda: setattr(simulation, "down", True))
        simulation.at(begin + rng.choice([0.2, 3.0]), lambda: setattr(simulation, "down", False))
    simulation.run()
    return simulation


def check(simulation: Simulation) -> None:
    """The invariants of every schedule, and those of an idempotent producer."""
    simulation.check()
    if simulation.config.idempotent:
        simulation.check_identities()
