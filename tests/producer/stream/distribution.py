"""Streams whose records the service distributes: simulated producers, and the change of the strategy."""

from __future__ import annotations

from typing import Any

from kinesis_sdk.producer import ProducerConfig
from kinesis_sdk.testing import Fault
from tests.producer.simulation import STREAM, Simulation

AUTO = {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}, "RecordDistributionStrategy": "AUTO"}
BY_KEY = {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}}
DENIED = Fault(kind="error", operation="DescribeStreamSummary", code="AccessDeniedException", status=400)


def simulate(config: ProducerConfig | None = None, *, seed: int = 0, **stream: Any) -> Simulation:
    simulation = Simulation(config, seed=seed, throttle=False)
    if stream:
        simulation.recreate(**stream)
    return simulation


def switch(simulation: Simulation, strategy: str) -> None:
    arn = simulation.client.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"][
        "StreamARN"
    ]
    simulation.client.update_stream_record_distribution_strategy(
        StreamARN=arn, RecordDistributionStrategy=strategy
    )
