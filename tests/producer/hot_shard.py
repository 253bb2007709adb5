"""Several producers that know nothing of each other, on one shard that takes less than they have."""

from __future__ import annotations

from dataclasses import dataclass

from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.limiter import ShardLimiter
from kinesis_sdk.producer.pipeline import StreamPipeline
from tests.producer.simulation import Simulation, run_together


@dataclass(frozen=True)
class HotShardResult:
    """What happened after a time to settle.

    Attributes:
        stored_per_second: Kinesis records that the shard took.
        wasted: Entries that the service threw back, as a share of all that were sent.
        fairness: Jain's index of the producers' shares: 1 is equal, 1/n is one for all.
    """

    stored_per_second: float
    wasted: float
    fairness: float


def run_hot_shard(
    producers: int,
    *,
    offered: int = 3_000,
    seconds: float = 60.0,
    settle: float = 20.0,
    like_kpl: bool = False,
    latency: float = 0.04,
    seed: int = 0,
) -> HotShardResult:
    """Let producers put small unaggregated records into one shard.

    Args:
        producers: How many.
        offered: Records per second of all together; the shard takes 1,000.
        seconds: How long, after the time to settle.
        settle: Seconds that do not count.
        like_kpl: The KPL's rule: 150 % whatever the service says, every retry after half the buffered time.
        latency: Most seconds of a request, either way.
        seed: Replays exactly.
    """
    config = ProducerConfig(aggregation_enabled=False, record_ttl=5.0)
    fleet = [Simulation(config, shards=1, seed=seed, latency=latency)]
    fleet += [
        Simulation(config, seed=seed + i, latency=latency, beside=fleet[0]) for i in range(1, producers)
    ]
    saved = ShardLimiter.on_throttled, StreamPipeline._retry_delay
    if like_kpl:
        ShardLimiter.on_throttled = lambda *_args: None  # type: ignore[method-assign]
        StreamPipeline._retry_delay = lambda *_args: config.record_max_buffered_time / 2  # type: ignore[method-assign]
    try:
        step = 0.05
        count = max(1, int(offered * step / producers))

        def keep_putting(simulation: Simulation) -> None:
            for _ in range(count):
                simulation.put("key", b"x" * 10)
            simulation.records.clear()  # nobody looks at single records here
            simulation.payloads.clear()
            simulation.requests.clear()
            simulation.settlements.clear()
            simulation.at(simulation.clock.monotonic() + step, lambda: keep_putting(simulation))

        for simulation in fleet:
            keep_putting(simulation)
        run_together(fleet, settle)
        before = [
            (s.pipeline.counters.kinesis_records_stored, s.pipeline.counters.failed_entries) for s in fleet
        ]
        run_together(fleet, settle + seconds)
        stored = [
            s.pipeline.counters.kinesis_records_stored - b[0] for s, b in zip(fleet, before, strict=True)
        ]
        failed = [s.pipeline.counters.failed_entries - b[1] for s, b in zip(fleet, before, strict=True)]
    finally:
        ShardLimiter.on_throttled, StreamPipeline._retry_delay = saved  # type: ignore[method-assign]
    return HotShardResult(
        stored_per_second=sum(stored) / seconds,
        wasted=sum(failed) / max(1, sum(failed) + sum(stored)),
        fairness=sum(stored) ** 2 / max(1, producers * sum(n * n for n in stored)),
    )
