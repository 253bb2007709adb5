"""What users import."""

from __future__ import annotations

import subprocess
import sys

import kinesis_sdk

PUBLIC = [
    "AsyncProducer",
    "Attempt",
    "AwsError",
    "BisectBatch",
    "BufferFullError",
    "Checkpointer",
    "ConfigError",
    "ConsumerConfig",
    "ConsumerError",
    "FailedRecord",
    "FileSpool",
    "InvalidCheckpointError",
    "InvalidRecordError",
    "KinesisSdkError",
    "LeaseLostError",
    "Producer",
    "ProducerClosedError",
    "ProducerConfig",
    "ProducerError",
    "ProducerStats",
    "PutManyError",
    "PutResult",
    "RecordBatch",
    "RecordFailedError",
    "RecordHandler",
    "SpoolError",
    "SpooledRecord",
    "StreamId",
    "StreamRecreatedError",
    "UserRecord",
    "Worker",
    "__version__",
    "read_spool",
]


def test_exported_names_are_pinned() -> None:
    assert sorted(kinesis_sdk.__all__) == PUBLIC
    assert dir(kinesis_sdk) == PUBLIC


def test_every_exported_name_exists_and_lives_where_it_says() -> None:
    for name in PUBLIC:
        assert getattr(kinesis_sdk, name) is not None
    for home, names in kinesis_sdk._HOMES.items():
        for name in names:
            value = getattr(kinesis_sdk, name)
            assert value.__module__.startswith(home.rsplit(".", 1)[0]), (name, value.__module__)


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
