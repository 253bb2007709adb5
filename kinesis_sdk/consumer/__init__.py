"""The consumer: the work of the KCL, without a JVM.

Imports only `kinesis_sdk.common`; boto3 is imported when the first client is created.
"""

from kinesis_sdk.common.error_policy import (
    BisectBatch,
    CircuitBreaker,
    HandlerErrorPolicy,
    PoisonRecord,
    RetryBatch,
    StopWorker,
)
from kinesis_sdk.consumer.checkpointer import Checkpointer, PreparedCheckpoint
from kinesis_sdk.consumer.config import (
    ConsumerConfig,
    CoordinationConfig,
    FailureConfig,
    LeaseConfig,
    LeaseTableConfig,
    RetrievalConfig,
)
from kinesis_sdk.consumer.handler import Handler, RecordBatch, RecordHandler, ShardContext, StartingPosition
from kinesis_sdk.consumer.health import LeaseProblem, ShardHealth, Stall, WorkerHealth
from kinesis_sdk.consumer.leases import (
    BalancedStrategy,
    Conflict,
    DynamoDBLeaseStore,
    InMemoryLeaseStore,
    Intervals,
    IntervalSettings,
    Kcl2Strategy,
    Lease,
    LeaseObserver,
    LeaseStore,
    LeaseStrategy,
    Plan,
    SqlLeaseStore,
    TableScan,
    TableView,
    Take,
    TakeLimits,
    TakeReason,
)
from kinesis_sdk.consumer.shard.state import ShardState
from kinesis_sdk.consumer.sinks import (
    AsyncSink,
    AsyncSqlSink,
    DynamoDBSink,
    InMemorySink,
    ObjectSink,
    S3Store,
    Sink,
    SqlSink,
)
from kinesis_sdk.consumer.streams import StreamSpec
from kinesis_sdk.consumer.table_streams.source import DynamoDbStream
from kinesis_sdk.consumer.worker import Worker, WorkerParts

__all__ = [
    # running
    "DynamoDbStream",
    "StreamSpec",
    "Worker",
    "WorkerParts",
    # settings
    "ConsumerConfig",
    "CoordinationConfig",
    "FailureConfig",
    "LeaseConfig",
    "LeaseTableConfig",
    "RetrievalConfig",
    # handling
    "Checkpointer",
    "Handler",
    "PreparedCheckpoint",
    "RecordBatch",
    "RecordHandler",
    "ShardContext",
    "StartingPosition",
    # effects that happen once
    "AsyncSink",
    "AsyncSqlSink",
    "DynamoDBSink",
    "InMemorySink",
    "ObjectSink",
    "S3Store",
    "Sink",
    "SqlSink",
    # failing
    "BisectBatch",
    "CircuitBreaker",
    "HandlerErrorPolicy",
    "PoisonRecord",
    "RetryBatch",
    "StopWorker",
    # watching
    "LeaseProblem",
    "ShardHealth",
    "ShardState",
    "Stall",
    "WorkerHealth",
    # lease tables
    "Conflict",
    "DynamoDBLeaseStore",
    "InMemoryLeaseStore",
    "Lease",
    "LeaseStore",
    "SqlLeaseStore",
    "TableScan",
    # lease strategies
    "BalancedStrategy",
    "IntervalSettings",
    "Intervals",
    "Kcl2Strategy",
    "LeaseObserver",
    "LeaseStrategy",
    "Plan",
    "TableView",
    "Take",
    "TakeLimits",
    "TakeReason",
]
