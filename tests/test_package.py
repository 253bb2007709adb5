"""What users import."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import kinesis_sdk
from kinesis_sdk import consumer, producer
from kinesis_sdk.common import errors

PUBLIC = [
    "AsyncProducer",
    "Attempt",
    "AwsConfigError",
    "AwsError",
    "BalancedStrategy",
    "BisectBatch",
    "BufferFullError",
    "Checkpointer",
    "ConditionFailedError",
    "ConfigError",
    "Conflict",
    "ConsumerConfig",
    "ConsumerError",
    "CoordinationConfig",
    "DynamoDBLeaseStore",
    "EndpointUnreachableError",
    "ExpiredIteratorError",
    "ExtendedSequenceNumber",
    "FailedRecord",
    "FailureConfig",
    "FileSpool",
    "HandlerError",
    "HandlerErrorPolicy",
    "InMemoryLeaseStore",
    "InvalidCheckpointError",
    "InvalidPositionError",
    "InvalidRecordError",
    "Kcl2Strategy",
    "KinesisSdkError",
    "Lease",
    "LeaseConfig",
    "LeaseLostError",
    "LeaseProblem",
    "LeaseStore",
    "LeaseStrategy",
    "LeaseTableConfig",
    "PermanentAwsError",
    "PoisonRecord",
    "PreparedCheckpoint",
    "Producer",
    "ProducerClosedError",
    "ProducerConfig",
    "ProducerError",
    "ProducerStats",
    "ProtocolError",
    "PutManyError",
    "PutResult",
    "RecordBatch",
    "RecordFailedError",
    "RecordHandler",
    "ResourceNotFoundError",
    "RetrievalConfig",
    "RetryBatch",
    "ShardContext",
    "ShardHealth",
    "ShardState",
    "SpoolError",
    "SpooledRecord",
    "Stall",
    "StopWorker",
    "StreamId",
    "StreamRecreatedError",
    "StreamSpec",
    "TableScan",
    "ThrottledError",
    "TransientAwsError",
    "UserRecord",
    "Worker",
    "WorkerHealth",
    "__version__",
    "read_spool",
]


def test_exported_names_are_pinned() -> None:
    assert sorted(kinesis_sdk.__all__) == PUBLIC
    assert dir(kinesis_sdk) == PUBLIC


def test_every_exported_name_exists_and_its_home_exports_it() -> None:
    for home, names in kinesis_sdk._HOMES.items():
        module = import_module(home)
        for name in names:
            assert getattr(kinesis_sdk, name) is getattr(module, name)
            assert name in getattr(module, "__all__", [name])
    assert sorted(kinesis_sdk._HOME_OF) == [name for name in PUBLIC if name != "__version__"]


def test_type_checkers_see_the_same_names_from_the_same_homes() -> None:
    tree = ast.parse(Path(kinesis_sdk.__file__).read_text(encoding="utf-8"))
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        node.module: tuple(alias.name for alias in node.names)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
    }
    assert seen == kinesis_sdk._HOMES


def test_every_error_of_the_tree_is_exported() -> None:
    kinds = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.KinesisSdkError)
    }
    assert kinds <= set(kinesis_sdk.__all__)


FOR_STRATEGY_AUTHORS = {
    "IntervalSettings",
    "Intervals",
    "LeaseObserver",
    "Plan",
    "TableView",
    "Take",
    "TakeLimits",
    "TakeReason",
}
"""Plain words that only the author of a lease strategy needs; `kinesis_sdk.consumer` alone exports them."""


def test_every_public_name_of_producer_and_consumer_is_exported_at_the_top() -> None:
    exported = set(producer.__all__) | set(consumer.__all__)
    assert exported - set(kinesis_sdk.__all__) == FOR_STRATEGY_AUTHORS


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(kinesis_sdk, "Consumer2")


def test_importing_the_package_loads_next_to_nothing() -> None:
    code = (
        "import sys; before = set(sys.modules); import kinesis_sdk; "
        "loaded = set(sys.modules) - before; "
        "heavy = {'boto3', 'botocore', 'google', 'pyspark', 'tenacity', 'asyncio', 'concurrent', 'threading'}; "
        "sys.exit(', '.join(sorted(heavy & loaded)) or (0 if len(loaded) < 12 else f'{len(loaded)} modules'))"
    )
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_making_a_producer_or_worker_class_available_does_not_load_boto3() -> None:
    code = (
        "import sys, kinesis_sdk; kinesis_sdk.Producer; kinesis_sdk.Worker; "
        "sys.exit(', '.join({'boto3', 'botocore'} & set(sys.modules)) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
