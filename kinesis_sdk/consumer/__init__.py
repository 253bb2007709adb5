"""The consumer: what the KCL is, without a JVM.

Imports `kinesis_sdk.common` only, and boto3 not before a client is made.
"""

from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.failure import HandlerErrorPolicy, RetryBatch, StopWorker
from kinesis_sdk.consumer.handler import RecordBatch, RecordHandler, ShardContext
from kinesis_sdk.consumer.health import ShardHealth, WorkerHealth
from kinesis_sdk.consumer.leases import (
    DynamoDBLeaseStore,
    InMemoryLeaseStore,
    Lease,
    LeaseStore,
)
from kinesis_sdk.consumer.shard_state import ShardState
from kinesis_sdk.consumer.worker import Worker

__all__ = [
    # running
    "ConsumerConfig",
    "Worker",
    # handling
    "Checkpointer",
    "RecordBatch",
    "RecordHandler",
    "ShardContext",
    # failing
    "HandlerErrorPolicy",
    "RetryBatch",
    "StopWorker",
    # watching
    "ShardHealth",
    "ShardState",
    "WorkerHealth",
    # leases
    "DynamoDBLeaseStore",
    "InMemoryLeaseStore",
    "Lease",
    "LeaseStore",
]
