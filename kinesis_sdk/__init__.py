"""Producer and consumer for Amazon Kinesis Data Streams, in pure Python.

    with Producer() as producer:                                  # a KPL
        producer.put("orders", "customer-7", b"...").result()

    Worker("orders", application_name="billing", handler=handle).run()   # a KCL

Everything is loaded on first use: importing this package imports neither boto3 nor protobuf.
"""

from __future__ import annotations

from kinesis_sdk._version import __version__

TYPE_CHECKING = False  # type checkers read it as True; importing typing would cost more than all of this
if TYPE_CHECKING:
    from kinesis_sdk.common.errors import (
        AwsConfigError,
        AwsError,
        BufferFullError,
        ConditionFailedError,
        ConfigError,
        ConsumerError,
        EndpointUnreachableError,
        ExpiredIteratorError,
        HandlerError,
        InvalidCheckpointError,
        InvalidPositionError,
        InvalidRecordError,
        KinesisSdkError,
        LeaseLostError,
        PermanentAwsError,
        ProducerClosedError,
        ProducerError,
        ProtocolError,
        PutManyError,
        RecordFailedError,
        ResourceNotFoundError,
        SpoolError,
        StreamRecreatedError,
        ThrottledError,
        TransientAwsError,
    )
    from kinesis_sdk.common.records import UserRecord
    from kinesis_sdk.common.sequence import ExtendedSequenceNumber
    from kinesis_sdk.common.stream import StreamId
    from kinesis_sdk.consumer import (
        BalancedStrategy,
        BisectBatch,
        Checkpointer,
        Conflict,
        ConsumerConfig,
        CoordinationConfig,
        DynamoDBLeaseStore,
        FailureConfig,
        HandlerErrorPolicy,
        InMemoryLeaseStore,
        Kcl2Strategy,
        Lease,
        LeaseConfig,
        LeaseProblem,
        LeaseStore,
        LeaseStrategy,
        LeaseTableConfig,
        PoisonRecord,
        PreparedCheckpoint,
        RecordBatch,
        RecordHandler,
        RetrievalConfig,
        RetryBatch,
        ShardContext,
        ShardHealth,
        ShardState,
        Stall,
        StopWorker,
        StreamSpec,
        TableScan,
        Worker,
        WorkerHealth,
    )
    from kinesis_sdk.producer import (
        AsyncProducer,
        Attempt,
        FailedRecord,
        FileSpool,
        Producer,
        ProducerConfig,
        ProducerStats,
        PutResult,
        SpooledRecord,
        read_spool,
    )

_HOMES = {
    "kinesis_sdk.common.errors": (
        "AwsConfigError",
        "AwsError",
        "BufferFullError",
        "ConditionFailedError",
        "ConfigError",
        "ConsumerError",
        "EndpointUnreachableError",
        "ExpiredIteratorError",
        "HandlerError",
        "InvalidCheckpointError",
        "InvalidPositionError",
        "InvalidRecordError",
        "KinesisSdkError",
        "LeaseLostError",
        "PermanentAwsError",
        "ProducerClosedError",
        "ProducerError",
        "ProtocolError",
        "PutManyError",
        "RecordFailedError",
        "ResourceNotFoundError",
        "SpoolError",
        "StreamRecreatedError",
        "ThrottledError",
        "TransientAwsError",
    ),
    "kinesis_sdk.common.records": ("UserRecord",),
    "kinesis_sdk.common.sequence": ("ExtendedSequenceNumber",),
    "kinesis_sdk.common.stream": ("StreamId",),
    "kinesis_sdk.consumer": (
        "BalancedStrategy",
        "BisectBatch",
        "Checkpointer",
        "Conflict",
        "ConsumerConfig",
        "CoordinationConfig",
        "DynamoDBLeaseStore",
        "FailureConfig",
        "HandlerErrorPolicy",
        "InMemoryLeaseStore",
        "Kcl2Strategy",
        "Lease",
        "LeaseConfig",
        "LeaseProblem",
        "LeaseStore",
        "LeaseStrategy",
        "LeaseTableConfig",
        "PoisonRecord",
        "PreparedCheckpoint",
        "RecordBatch",
        "RecordHandler",
        "RetrievalConfig",
        "RetryBatch",
        "ShardContext",
        "ShardHealth",
        "ShardState",
        "Stall",
        "StopWorker",
        "StreamSpec",
        "TableScan",
        "Worker",
        "WorkerHealth",
    ),
    "kinesis_sdk.producer": (
        "AsyncProducer",
        "Attempt",
        "FailedRecord",
        "FileSpool",
        "Producer",
        "ProducerConfig",
        "ProducerStats",
        "PutResult",
        "SpooledRecord",
        "read_spool",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "__version__",
    # producing
    "AsyncProducer",
    "Producer",
    "ProducerConfig",
    "ProducerStats",
    # what becomes of a record
    "Attempt",
    "FailedRecord",
    "FileSpool",
    "PutResult",
    "SpooledRecord",
    "read_spool",
    # consuming
    "StreamSpec",
    "Worker",
    # settings of a consumer
    "ConsumerConfig",
    "CoordinationConfig",
    "FailureConfig",
    "LeaseConfig",
    "LeaseTableConfig",
    "RetrievalConfig",
    # handlers, and what they get
    "Checkpointer",
    "PreparedCheckpoint",
    "RecordBatch",
    "RecordHandler",
    "ShardContext",
    # when a handler raises
    "BisectBatch",
    "HandlerErrorPolicy",
    "PoisonRecord",
    "RetryBatch",
    "StopWorker",
    # health
    "ShardHealth",
    "ShardState",
    "Stall",
    "LeaseProblem",
    "WorkerHealth",
    # leases
    "BalancedStrategy",
    "Conflict",
    "Kcl2Strategy",
    "LeaseStrategy",
    "DynamoDBLeaseStore",
    "InMemoryLeaseStore",
    "Lease",
    "LeaseStore",
    "TableScan",
    # records, positions and streams
    "ExtendedSequenceNumber",
    "StreamId",
    "UserRecord",
    # errors; the tree is drawn in kinesis_sdk.common.errors
    "AwsConfigError",
    "AwsError",
    "InvalidPositionError",
    "BufferFullError",
    "ConditionFailedError",
    "ConfigError",
    "ConsumerError",
    "EndpointUnreachableError",
    "ExpiredIteratorError",
    "HandlerError",
    "InvalidCheckpointError",
    "InvalidRecordError",
    "KinesisSdkError",
    "LeaseLostError",
    "PermanentAwsError",
    "ProducerClosedError",
    "ProducerError",
    "ProtocolError",
    "PutManyError",
    "RecordFailedError",
    "ResourceNotFoundError",
    "SpoolError",
    "StreamRecreatedError",
    "ThrottledError",
    "TransientAwsError",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
