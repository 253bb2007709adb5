"""Workers that a test drives step by step, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.interceptors import ConsumerInterceptor
from kinesis_sdk.common.metrics import Metrics
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.handler import Handler, HandlerSource
from kinesis_sdk.consumer.leases.table.store import LeaseStore
from kinesis_sdk.consumer.runtime.runtime import InlineRuntime
from kinesis_sdk.consumer.sinks.location import sink_at
from kinesis_sdk.consumer.sinks.sink import AnySink
from kinesis_sdk.consumer.until import UntilOption


def stepped_engine(
    stream: str,
    handler: Handler,
    *,
    config: ConsumerConfig,
    lease_store: LeaseStore,
    kinesis: KinesisClient,
    clock: Clock,
    sleep: Callable[[float], None],
    worker_id: str,
    rng: Random,
    sink: AnySink | str | None = None,
    interceptors: Sequence[ConsumerInterceptor] = (),
    metrics: Metrics | None = None,
    until: UntilOption | None = None,
) -> ConsumerEngine:
    """Return a worker without threads: all work runs inside the calls of its methods.

    ``start()`` starts it; ``tick(now)`` does the due work and returns the next due time, or None once stopped;
    ``request_stop()`` and ``abort()`` end it; ``error`` is the error that stopped it.

    Args:
        stream: Name or ARN of the stream.
        handler: As for `Worker`.
        config: Settings of the worker.
        lease_store: The lease table; workers that share it are a fleet.
        kinesis: boto3 Kinesis client, or an object with its methods.
        clock: Monotonic and wall clock.
        sleep: Called with seconds instead of waiting; a test advances its clock here.
        worker_id: Id of the worker in the lease table.
        rng: Source of jitter and random choice.
        sink: As for `Worker`.
        interceptors: As for `Worker`.
        metrics: As for `Worker`.
        until: As for `Worker`.

    Raises:
        ConfigError: If an argument is not valid.
    """
    return ConsumerEngine(
        stream=StreamId.parse(stream),
        worker_id=worker_id,
        application_name="test",
        config=config,
        handlers=HandlerSource.of(handler, interceptors),
        store=lease_store,
        kinesis=kinesis,
        runtime=InlineRuntime(clock, rng, sleep),
        metrics=metrics,
        until=until,
        sink=None if sink is None else sink_at("sink", sink),
    )
