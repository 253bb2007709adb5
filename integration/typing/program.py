"""A user's program, written with every annotation: `integration/test_typing.py` type-checks it, nothing runs it.

It passes boto3's own clients, as boto3-stubs types them, and names every type that a typed application has to write.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from datetime import datetime, timezone
from functools import partial

import boto3
from mypy_boto3_cloudwatch import CloudWatchClient
from mypy_boto3_dynamodb import DynamoDBClient
from mypy_boto3_kinesis import KinesisClient

import kinesis_sdk as ks
from kinesis_sdk.metrics import (
    CloudWatchMetrics,
    MemoryMetrics,
    Metric,
    Metrics,
    NoMetrics,
    OpenTelemetryMetrics,
    PrometheusMetrics,
    Scope,
)

# Only three of boto3's services have stubs here, so `boto3.client` itself is partially unknown to pyright.
KINESIS: KinesisClient = boto3.client("kinesis")  # pyright: ignore[reportUnknownMemberType]
DYNAMODB: DynamoDBClient = boto3.client("dynamodb")  # pyright: ignore[reportUnknownMemberType]
CLOUDWATCH: CloudWatchClient = boto3.client("cloudwatch")  # pyright: ignore[reportUnknownMemberType]

# ---------------------------------------------------------------------- producing


def make_producer() -> ks.Producer:
    session = boto3.Session(region_name="eu-west-1")
    ks.Producer(session=session)
    ks.Producer(ks.ProducerConfig.from_properties("kpl.properties"), region_name="eu-west-1")
    config = ks.ProducerConfig(ordering="per_shard", put_timeout=1.0, metrics_level="summary")
    return ks.Producer(
        config,
        client=KINESIS,
        on_record_failed=ks.FileSpool("unsent.jsonl"),
        on_send_error=report,
        metrics=MemoryMetrics(),
    )


def report(failed: ks.FailedRecord) -> None:
    cause: BaseException = failed.error
    print(failed.stream, failed.partition_key, failed.explicit_hash_key, len(failed.data), cause)


def put(producer: ks.Producer) -> ks.PutResult | None:
    future: Future[ks.PutResult] = producer.put("orders", "customer-7", b"...")
    maybe: Future[ks.PutResult] | None = producer.try_put("orders", "customer-7", b"...")
    many: Sequence[Future[ks.PutResult]] = producer.put_many("orders", [("a", b"1"), ("b", b"2")])
    producer.send("orders", "customer-7", b"...", explicit_hash_key=17)
    left: int = producer.flush(timeout=5.0)
    stats: ks.ProducerStats = producer.stats()
    print(maybe, many, left, stats)
    try:
        result = future.result(timeout=30)
    except ks.RecordFailedError as error:
        last: ks.Attempt = error.attempts[-1]
        print(error.stream, error.partition_key, last)
        return None
    shard_id: str = result.shard_id
    attempts: tuple[ks.Attempt, ...] = result.attempts
    print(shard_id, result.sequence_number, result.sub_sequence_number, attempts)
    return result


def put_again(producer: ks.Producer, records: Iterable[ks.SpooledRecord]) -> None:
    for record in records:
        producer.send(record.stream, record.partition_key, record.data, record.explicit_hash_key)
    put_again(producer, ks.read_spool("unsent.jsonl"))


async def put_from_coroutine() -> None:
    async with ks.AsyncProducer(client=KINESIS) as producer:
        future: asyncio.Future[ks.PutResult] = await producer.put("orders", "customer-7", b"...")
        result: ks.PutResult = await future
        print(result.shard_id, await producer.flush())


# ---------------------------------------------------------------------- consuming


def handle(batch: ks.RecordBatch) -> None:
    for record in batch.records:
        key: str = record.partition_key
        data: bytes = record.data
        arrived: datetime | None = record.approximate_arrival_timestamp
        print(batch.shard_id, batch.stream.name, key, data, arrived)
    record_or_none: ks.UserRecord | None = batch.records[-1] if batch.records else None
    batch.checkpoint(record_or_none)


async def handle_async(batch: ks.RecordBatch) -> None:
    await asyncio.sleep(0)
    batch.checkpoint()


class Billing(ks.RecordHandler):
    """All callbacks, plain."""

    def __init__(self, rate: float = 1.0) -> None:
        self.rate = rate
        self.shard: ks.ShardContext | None = None
        self.start: ks.ExtendedSequenceNumber | None = None

    def initialize(self, shard: ks.ShardContext) -> None:
        self.shard, self.start = shard, shard.checkpoint

    def process_records(self, batch: ks.RecordBatch) -> None:
        prepared: ks.PreparedCheckpoint = batch.checkpointer.prepare_checkpoint(batch.records[-1])
        prepared.checkpoint()

    def lease_lost(self) -> None:
        self.shard = None

    def shard_ended(self, checkpointer: ks.Checkpointer) -> None:
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer: ks.Checkpointer) -> None:
        checkpointer.checkpoint()


class AsyncBilling(ks.RecordHandler):
    """Callbacks as coroutines."""

    concurrency = 8

    async def initialize(self, shard: ks.ShardContext) -> None:
        print(shard.shard_id)

    async def process_records(self, batch: ks.RecordBatch) -> None:
        await asyncio.sleep(0)

    async def shutdown_requested(self, checkpointer: ks.Checkpointer) -> None:
        checkpointer.checkpoint()


def dead_letter(poison: ks.PoisonRecord) -> None:
    record: ks.UserRecord = poison.record
    error: BaseException = poison.error
    print(poison.stream, poison.shard_id, record.partition_key, poison.attempts, error)


async def dead_letter_async(poison: ks.PoisonRecord) -> None:
    await asyncio.sleep(0)
    dead_letter(poison)


POLICIES: list[ks.HandlerErrorPolicy] = [
    ks.RetryBatch(),
    ks.StopWorker(),
    ks.BisectBatch(dead_letter=dead_letter),
    ks.BisectBatch(dead_letter=dead_letter_async, attempts=5),
]

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


def make_workers() -> list[ks.Worker]:
    store: ks.LeaseStore = ks.DynamoDBLeaseStore(DYNAMODB, "billing")
    leases: list[ks.Lease] = store.scan().leases
    print(leases)
    streams: list[str | ks.StreamId | ks.StreamSpec] = [
        "orders",
        ks.StreamId.parse("refunds"),
        ks.StreamSpec(ARN, consumer_arn=f"{ARN}/consumer/billing:1", initial_position="TRIM_HORIZON"),
    ]
    start = ks.ConsumerConfig(
        initial_position=datetime(2026, 1, 31, tzinfo=timezone.utc),
        on_handler_error="stop",
        leases=ks.LeaseConfig(failover_time=5, balance_by="count"),
        lease_table=ks.LeaseTableConfig(lease_table_tags={"team": "billing"}),
        retrieval=ks.RetrievalConfig(retrieval_mode="fanout"),
        coordination=ks.CoordinationConfig(worker_metrics="lease_table"),
        failure=ks.FailureConfig(handler_timeout=300),
    )
    failover: float = start.leases.failover_time
    print(failover, start.with_fields(failover_time=3).leases)
    by_name = partial(ks.Worker, "orders", application_name="billing")
    return [
        ks.Worker(
            "orders",
            application_name="billing",
            handler=handle,
            config=start,
            kinesis_client=KINESIS,
            dynamodb_client=DYNAMODB,
        ),
        ks.Worker("orders", application_name="billing", handler=handle_async),
        ks.Worker("orders", application_name="billing", handler=Billing),
        ks.Worker("orders", application_name="billing", handler=AsyncBilling),
        ks.Worker("orders", application_name="billing", handler=lambda: Billing(rate=2.0)),
        ks.Worker(streams=streams, application_name="billing", handler=handle, lease_store=store),
        ks.Worker(streams=["orders", "refunds"], application_name="billing", handler=handle),
        ks.Worker(streams=lambda: ["orders"], application_name="billing", handler=handle),
        ks.Worker("orders", application_name="billing", handler=handle, lease_store=ks.InMemoryLeaseStore()),
        by_name(handler=handle),
        *(
            ks.Worker(
                "orders",
                application_name="billing",
                handler=handle,
                config=ks.ConsumerConfig(on_handler_error=policy),
            )
            for policy in POLICIES
        ),
    ]


def watch(worker: ks.Worker) -> list[str]:
    health: ks.WorkerHealth = worker.health()
    shards: tuple[ks.ShardHealth, ...] = health.shards
    stalls: list[ks.Stall] = [shard.stall for shard in shards if shard.stall is not None]
    behind = [shard.shard_id for shard in shards if shard.state is ks.ShardState.PROCESSING]
    lags: list[int | None] = [shard.oldest_unprocessed_millis for shard in shards]
    print(health.running, health.error, stalls, lags, json.dumps(health.to_dict()))
    return behind


# ---------------------------------------------------------------------- metrics


class Counting:
    """A sink of the user's own."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}

    def add(
        self,
        metric: Metric,
        scope: Scope,
        total: float,
        count: int = 1,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        self.seen[metric.name] = self.seen.get(metric.name, 0.0) + total

    def retire(self, scope: Scope) -> None:
        print(scope.dimensions.get("ShardId"))


def sinks() -> list[Metrics]:
    return [
        CloudWatchMetrics(CLOUDWATCH, level="summary", granularity="stream"),
        PrometheusMetrics(),
        OpenTelemetryMetrics(),
        MemoryMetrics(),
        NoMetrics(),
        Counting(),
    ]


# ---------------------------------------------------------------------- errors


def run(worker: ks.Worker, producer: ks.Producer) -> str:
    try:
        worker.run()
        producer.put_many("orders", [("a", b"1")])
    except ks.HandlerError as error:
        return f"handler: {error.__cause__}"
    except ks.ThrottledError as error:
        return error.operation
    except (ks.ResourceNotFoundError, ks.AwsConfigError, ks.InvalidPositionError) as error:
        return f"{error.code} {error.endpoint}"
    except (ks.EndpointUnreachableError, ks.TransientAwsError, ks.PermanentAwsError) as error:
        return f"{error.status} {error.request_id}"
    except ks.AwsError as error:
        return error.message
    except ks.PutManyError as error:
        return f"{error.index} {len(error.accepted)}"
    except (ks.BufferFullError, ks.ProducerClosedError, ks.SpoolError) as error:
        return str(error)
    except (ks.LeaseLostError, ks.InvalidCheckpointError, ks.StreamRecreatedError) as error:
        return str(error)
    except (ks.ConfigError, ks.InvalidRecordError) as error:
        return error.field
    except (ks.ProducerError, ks.ConsumerError, ks.ProtocolError) as error:
        return str(error)
    except ks.KinesisSdkError as error:
        return "later" if error.retryable else "never"
    return "stopped"
