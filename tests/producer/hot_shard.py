"""Several producers that know nothing of each other, on one shard that takes less than they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kinesis_sdk.producer.config import SHARD_BYTES_PER_SECOND, SHARD_RECORDS_PER_SECOND, ProducerConfig
from kinesis_sdk.producer.stream.limiter import ShardRate
from kinesis_sdk.producer.stream.send_queue import SendQueue
from tests.producer.simulation import Simulation, run_together


@dataclass(frozen=True)
class Traffic:
    """What every producer puts.

    Attributes:
        name: For tables.
        size: Bytes of a user record.
        per_second: User records per second that use up a shard's limit.
        aggregation: Settings of the aggregation.
    """

    name: str
    size: int
    per_second: float
    aggregation: Mapping[str, Any]


RECORDS = Traffic("records", 10, SHARD_RECORDS_PER_SECOND, {"aggregation_enabled": False})
BYTES = Traffic("bytes", 10_000, SHARD_BYTES_PER_SECOND / 10_000, {"aggregation_enabled": False})
SMALL_AGGREGATES = Traffic(
    "records, aggregated", 10, 2 * SHARD_RECORDS_PER_SECOND, {"aggregation_max_count": 2}
)
AGGREGATES = Traffic("bytes, aggregated", 5_000, SHARD_BYTES_PER_SECOND / 5_000, {})
TRAFFICS = (RECORDS, SMALL_AGGREGATES, BYTES, AGGREGATES)


@dataclass(frozen=True)
class HotShardResult:
    """What happened after a time to settle.

    Attributes:
        utilisation: What the shard took, as a share of the limit that the traffic uses up first.
        thrown_back: Entries that the service threw back, as a share of all that were sent.
        fairness: Jain's index of the producers' shares: 1 is equal, 1/n is one for all.
        shares: Each producer's share of what the shard took.
    """

    utilisation: float
    thrown_back: float
    fairness: float
    shares: tuple[float, ...]


def run_hot_shard(
    producers: int,
    traffic: Traffic = RECORDS,
    *,
    overload: float = 2.0,
    seconds: float = 60.0,
    settle: float = 20.0,
    like_kpl: bool = False,
    latency: float = 0.04,
    joins: float | None = None,
    leaves: float | None = None,
    seed: int = 0,
) -> HotShardResult:
    """Let producers put more into one shard than it takes.

    Args:
        producers: How many.
        traffic: What they put.
        overload: What all together offer, as a multiple of what the shard takes.
        seconds: How long, after the time to settle.
        settle: Seconds that do not count.
        like_kpl: The KPL's rule: 150 % whatever the service says, every retry after half the buffered time.
        latency: Most seconds of a request, either way.
        joins: Seconds after which the last producer begins; None: with the others.
        leaves: Seconds after which all but the first producer stop; None: never.
        seed: Replays exactly.
    """
    config = ProducerConfig(record_ttl=5.0, **traffic.aggregation)
    fleet = [Simulation(config, shards=1, seed=seed, latency=latency)]
    fleet += [
        Simulation(config, seed=seed + i, latency=latency, beside=fleet[0]) for i in range(1, producers)
    ]
    clock = fleet[0].clock
    saved = ShardRate.on_throttled, SendQueue._retry_delay
    if like_kpl:
        ShardRate.on_throttled = lambda *_args: None  # type: ignore[method-assign]
        SendQueue._retry_delay = lambda *_args: config.record_max_buffered_time / 2  # type: ignore[method-assign]
    try:
        step = 0.05
        per_step = overload * traffic.per_second * step / producers
        payload = b"x" * traffic.size

        def keep_putting(simulation: Simulation, due: float = 0.0) -> None:
            due += per_step
            for _ in range(int(due)):
                simulation.put("key", payload)
            simulation.records.clear()  # nobody looks at single records here
            simulation.payloads.clear()
            simulation.requests.clear()
            simulation.settlements.clear()
            again = clock.monotonic() + step
            if leaves is None or again < leaves or simulation is fleet[0]:
                simulation.at(again, lambda: keep_putting(simulation, due - int(due)))

        for simulation in fleet[:-1] if joins is not None else fleet:
            keep_putting(simulation)
        if joins is not None:
            fleet[-1].at(joins, lambda: keep_putting(fleet[-1]))

        def counts() -> list[tuple[int, int, int]]:
            return [
                (c.kinesis_records_stored, c.kinesis_bytes_stored, c.failed_entries)
                for c in (simulation.pipeline.counters for simulation in fleet)
            ]

        run_together(fleet, settle)
        before = counts()
        run_together(fleet, settle + seconds)
        rows = [
            tuple(y - x for x, y in zip(b, a, strict=True)) for b, a in zip(before, counts(), strict=True)
        ]
    finally:
        ShardRate.on_throttled, SendQueue._retry_delay = saved  # type: ignore[method-assign]
    stored, size, failed = (sum(column) for column in zip(*rows, strict=True))
    shares = tuple(row[0] / max(1, stored) for row in rows)
    return HotShardResult(
        utilisation=max(stored / SHARD_RECORDS_PER_SECOND, size / SHARD_BYTES_PER_SECOND) / seconds,
        thrown_back=failed / max(1, failed + stored),
        fairness=1 / max(1e-9, producers * sum(share * share for share in shares)),
        shares=shares,
    )
