"""Producer and consumer for Amazon Kinesis Data Streams, in pure Python.

    with Producer() as producer:                                  # a KPL
        producer.put("orders", "customer-7", b"...").result()

    Worker("orders", application_name="billing", handler=handle).run()   # a KCL

Everything is loaded on first use: importing this package imports neither boto3 nor protobuf.
"""

from __future__ import annotations

from kinesis_sdk._lazy import lazy_names
from kinesis_sdk._version import __version__ as __version__

TYPE_CHECKING = False  # type checkers read it as True; importing typing would cost more than all of this
if TYPE_CHECKING:
    from kinesis_sdk.common.change_records import ChangeRecord as ChangeRecord
    from kinesis_sdk.common.errors import AdminError as AdminError
    from kinesis_sdk.common.errors import AuditLogError as AuditLogError
    from kinesis_sdk.common.errors import AwsConfigError as AwsConfigError
    from kinesis_sdk.common.errors import AwsError as AwsError
    from kinesis_sdk.common.errors import BufferFullError as BufferFullError
    from kinesis_sdk.common.errors import ChangeRefusedError as ChangeRefusedError
    from kinesis_sdk.common.errors import CodecUnavailableError as CodecUnavailableError
    from kinesis_sdk.common.errors import ConditionFailedError as ConditionFailedError
    from kinesis_sdk.common.errors import ConfigError as ConfigError
    from kinesis_sdk.common.errors import ConsumerError as ConsumerError
    from kinesis_sdk.common.errors import DeadLetterError as DeadLetterError
    from kinesis_sdk.common.errors import DeserializationError as DeserializationError
    from kinesis_sdk.common.errors import EffectRejectedError as EffectRejectedError
    from kinesis_sdk.common.errors import EndpointUnreachableError as EndpointUnreachableError
    from kinesis_sdk.common.errors import ExpiredIteratorError as ExpiredIteratorError
    from kinesis_sdk.common.errors import HandlerError as HandlerError
    from kinesis_sdk.common.errors import InvalidCheckpointError as InvalidCheckpointError
    from kinesis_sdk.common.errors import InvalidEventError as InvalidEventError
    from kinesis_sdk.common.errors import InvalidPositionError as InvalidPositionError
    from kinesis_sdk.common.errors import InvalidRecordError as InvalidRecordError
    from kinesis_sdk.common.errors import KinesisSdkError as KinesisSdkError
    from kinesis_sdk.common.errors import LeaseLostError as LeaseLostError
    from kinesis_sdk.common.errors import LeaseRowRejectedError as LeaseRowRejectedError
    from kinesis_sdk.common.errors import LeaseStoreError as LeaseStoreError
    from kinesis_sdk.common.errors import LeaseTableNotFoundError as LeaseTableNotFoundError
    from kinesis_sdk.common.errors import PermanentAwsError as PermanentAwsError
    from kinesis_sdk.common.errors import ProducerClosedError as ProducerClosedError
    from kinesis_sdk.common.errors import ProducerError as ProducerError
    from kinesis_sdk.common.errors import ProtocolError as ProtocolError
    from kinesis_sdk.common.errors import PutManyError as PutManyError
    from kinesis_sdk.common.errors import RecordFailedError as RecordFailedError
    from kinesis_sdk.common.errors import ResourceNotFoundError as ResourceNotFoundError
    from kinesis_sdk.common.errors import RestartShardError as RestartShardError
    from kinesis_sdk.common.errors import SchemaPendingError as SchemaPendingError
    from kinesis_sdk.common.errors import SchemaRegistryError as SchemaRegistryError
    from kinesis_sdk.common.errors import SchemaUnavailableError as SchemaUnavailableError
    from kinesis_sdk.common.errors import SerializationError as SerializationError
    from kinesis_sdk.common.errors import SinkError as SinkError
    from kinesis_sdk.common.errors import SpoolError as SpoolError
    from kinesis_sdk.common.errors import StreamRecreatedError as StreamRecreatedError
    from kinesis_sdk.common.errors import ThrottledError as ThrottledError
    from kinesis_sdk.common.errors import TransientAwsError as TransientAwsError
    from kinesis_sdk.common.errors import TransientLeaseStoreError as TransientLeaseStoreError
    from kinesis_sdk.common.errors import TransientSinkError as TransientSinkError
    from kinesis_sdk.common.errors import UnacknowledgedError as UnacknowledgedError
    from kinesis_sdk.common.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from kinesis_sdk.common.interceptors import DeliveredBatch as DeliveredBatch
    from kinesis_sdk.common.record_ids import record_id as record_id
    from kinesis_sdk.common.records import UserRecord as UserRecord
    from kinesis_sdk.common.sequence import ExtendedSequenceNumber as ExtendedSequenceNumber
    from kinesis_sdk.common.stream import StreamId as StreamId
    from kinesis_sdk.consumer import AsyncSink as AsyncSink
    from kinesis_sdk.consumer import AsyncSqlSink as AsyncSqlSink
    from kinesis_sdk.consumer import BalancedStrategy as BalancedStrategy
    from kinesis_sdk.consumer import BisectBatch as BisectBatch
    from kinesis_sdk.consumer import Checkpointer as Checkpointer
    from kinesis_sdk.consumer import CircuitBreaker as CircuitBreaker
    from kinesis_sdk.consumer import Conflict as Conflict
    from kinesis_sdk.consumer import ConsumerConfig as ConsumerConfig
    from kinesis_sdk.consumer import CoordinationConfig as CoordinationConfig
    from kinesis_sdk.consumer import DynamoDBLeaseStore as DynamoDBLeaseStore
    from kinesis_sdk.consumer import DynamoDBSink as DynamoDBSink
    from kinesis_sdk.consumer import DynamoDbStream as DynamoDbStream
    from kinesis_sdk.consumer import FailureConfig as FailureConfig
    from kinesis_sdk.consumer import Handler as Handler
    from kinesis_sdk.consumer import HandlerErrorPolicy as HandlerErrorPolicy
    from kinesis_sdk.consumer import InMemoryLeaseStore as InMemoryLeaseStore
    from kinesis_sdk.consumer import InMemorySink as InMemorySink
    from kinesis_sdk.consumer import Kcl2Strategy as Kcl2Strategy
    from kinesis_sdk.consumer import Lease as Lease
    from kinesis_sdk.consumer import LeaseConfig as LeaseConfig
    from kinesis_sdk.consumer import LeaseProblem as LeaseProblem
    from kinesis_sdk.consumer import LeaseStore as LeaseStore
    from kinesis_sdk.consumer import LeaseStrategy as LeaseStrategy
    from kinesis_sdk.consumer import LeaseTableConfig as LeaseTableConfig
    from kinesis_sdk.consumer import ObjectSink as ObjectSink
    from kinesis_sdk.consumer import PoisonRecord as PoisonRecord
    from kinesis_sdk.consumer import PreparedCheckpoint as PreparedCheckpoint
    from kinesis_sdk.consumer import RecordBatch as RecordBatch
    from kinesis_sdk.consumer import RecordHandler as RecordHandler
    from kinesis_sdk.consumer import RetrievalConfig as RetrievalConfig
    from kinesis_sdk.consumer import RetryBatch as RetryBatch
    from kinesis_sdk.consumer import S3Store as S3Store
    from kinesis_sdk.consumer import ShardContext as ShardContext
    from kinesis_sdk.consumer import ShardHealth as ShardHealth
    from kinesis_sdk.consumer import ShardState as ShardState
    from kinesis_sdk.consumer import Sink as Sink
    from kinesis_sdk.consumer import SqlLeaseStore as SqlLeaseStore
    from kinesis_sdk.consumer import SqlSink as SqlSink
    from kinesis_sdk.consumer import Stall as Stall
    from kinesis_sdk.consumer import StartingPosition as StartingPosition
    from kinesis_sdk.consumer import StopWorker as StopWorker
    from kinesis_sdk.consumer import StreamSpec as StreamSpec
    from kinesis_sdk.consumer import TableScan as TableScan
    from kinesis_sdk.consumer import Worker as Worker
    from kinesis_sdk.consumer import WorkerHealth as WorkerHealth
    from kinesis_sdk.consumer import WorkerParts as WorkerParts
    from kinesis_sdk.producer import AsyncProducer as AsyncProducer
    from kinesis_sdk.producer import Attempt as Attempt
    from kinesis_sdk.producer import FailedRecord as FailedRecord
    from kinesis_sdk.producer import FileSpool as FileSpool
    from kinesis_sdk.producer import PendingRecord as PendingRecord
    from kinesis_sdk.producer import Producer as Producer
    from kinesis_sdk.producer import ProducerConfig as ProducerConfig
    from kinesis_sdk.producer import ProducerInterceptor as ProducerInterceptor
    from kinesis_sdk.producer import ProducerStats as ProducerStats
    from kinesis_sdk.producer import Put as Put
    from kinesis_sdk.producer import PutResult as PutResult
    from kinesis_sdk.producer import RecordIdentity as RecordIdentity
    from kinesis_sdk.producer import SendRequest as SendRequest
    from kinesis_sdk.producer import SpooledRecord as SpooledRecord
    from kinesis_sdk.producer import read_spool as read_spool
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "kinesis_sdk.producer": (
                # producing
                "Producer",
                "AsyncProducer",
                "Put",
                "ProducerConfig",
                "ProducerStats",
                # code around records and requests
                "ProducerInterceptor",
                "SendRequest",
                # the result of a record
                "PendingRecord",
                "PutResult",
                "Attempt",
                # records that could not be stored
                "FailedRecord",
                "FileSpool",
                "SpooledRecord",
                "RecordIdentity",
                "read_spool",
            ),
            "kinesis_sdk.consumer": (
                # consuming
                "Worker",
                "WorkerParts",
                "StreamSpec",
                "DynamoDbStream",
                # settings of a worker
                "ConsumerConfig",
                "LeaseConfig",
                "LeaseTableConfig",
                "RetrievalConfig",
                "CoordinationConfig",
                "FailureConfig",
                # handlers, and what they get
                "Handler",
                "RecordHandler",
                "RecordBatch",
                "ShardContext",
                "StartingPosition",
                "Checkpointer",
                "PreparedCheckpoint",
                # policies for a handler that raises
                "HandlerErrorPolicy",
                "RetryBatch",
                "BisectBatch",
                "CircuitBreaker",
                "PoisonRecord",
                "StopWorker",
                # sinks: effects and positions that change together
                "Sink",
                "SqlSink",
                "AsyncSink",
                "ObjectSink",
                "S3Store",
                "AsyncSqlSink",
                "DynamoDBSink",
                "InMemorySink",
                # watching a worker
                "WorkerHealth",
                "ShardHealth",
                "ShardState",
                "Stall",
                "LeaseProblem",
                # lease stores
                "LeaseStore",
                "DynamoDBLeaseStore",
                "InMemoryLeaseStore",
                "SqlLeaseStore",
                "Lease",
                "TableScan",
                "Conflict",
                # lease strategies; kinesis_sdk.consumer has what a strategy of your own needs
                "LeaseStrategy",
                "BalancedStrategy",
                "Kcl2Strategy",
            ),
            # records, positions and streams
            "kinesis_sdk.common.records": ("UserRecord",),
            "kinesis_sdk.common.interceptors": ("ConsumerInterceptor", "DeliveredBatch"),
            "kinesis_sdk.common.record_ids": ("record_id",),
            "kinesis_sdk.common.change_records": ("ChangeRecord",),
            "kinesis_sdk.common.sequence": ("ExtendedSequenceNumber",),
            "kinesis_sdk.common.stream": ("StreamId",),
            "kinesis_sdk.common.errors": (
                # errors; the tree is drawn in kinesis_sdk.common.errors
                "KinesisSdkError",
                "ConfigError",
                "ProtocolError",
                "InvalidEventError",
                # errors of serialization
                "SerializationError",
                "DeadLetterError",
                "DeserializationError",
                "SchemaUnavailableError",
                "SchemaRegistryError",
                "SchemaPendingError",
                # errors of the producer
                "ProducerError",
                "ProducerClosedError",
                "BufferFullError",
                "InvalidRecordError",
                "RecordFailedError",
                "PutManyError",
                "SpoolError",
                # errors of the consumer
                "ConsumerError",
                "HandlerError",
                "LeaseLostError",
                "LeaseStoreError",
                "LeaseTableNotFoundError",
                "TransientLeaseStoreError",
                "SinkError",
                "TransientSinkError",
                "UnacknowledgedError",
                "EffectRejectedError",
                "LeaseRowRejectedError",
                "RestartShardError",
                "InvalidCheckpointError",
                "InvalidPositionError",
                "StreamRecreatedError",
                # errors of AWS calls
                "AwsError",
                "AdminError",
                "AuditLogError",
                "ChangeRefusedError",
                "AwsConfigError",
                "PermanentAwsError",
                "ResourceNotFoundError",
                "CodecUnavailableError",
                "ConditionFailedError",
                "ExpiredIteratorError",
                "TransientAwsError",
                "ThrottledError",
                "EndpointUnreachableError",
            ),
        },
        imported=["__version__"],
    )
