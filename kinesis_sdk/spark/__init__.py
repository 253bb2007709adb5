"""Kinesis from PySpark. Importing it does not import pyspark, pyarrow or boto3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_sdk.spark.connection import ConnectionSettings
from kinesis_sdk.spark.errors import DataLossError, OffsetError, StalledError
from kinesis_sdk.spark.partition import (
    KinesisPartitionWriter,
    PartitionFailedError,
    ProducerSettings,
    TaskProducer,
    shared_producer,
)
from kinesis_sdk.spark.progress import describe_progress, progress_frame, progress_listener

if TYPE_CHECKING:
    from kinesis_sdk.spark.source import KinesisDataSource

__all__ = [
    # the data source
    "KinesisDataSource",
    "register",
    # foreachPartition
    "KinesisPartitionWriter",
    "PartitionFailedError",
    "ProducerSettings",
    "TaskProducer",
    "shared_producer",
    # connection and errors
    "ConnectionSettings",
    "DataLossError",
    "OffsetError",
    "StalledError",
    # progress
    "describe_progress",
    "progress_frame",
    "progress_listener",
]


def register(spark: Any) -> None:
    """Make ``format("kinesis_sdk")`` known to a session.

    Not needed where the package is installed beside pyspark: Spark finds ``pyspark_kinesis_sdk`` by itself.
    """
    from kinesis_sdk.spark.source import KinesisDataSource

    spark.dataSource.register(KinesisDataSource)


def __getattr__(name: str) -> Any:
    if name == "KinesisDataSource":
        from kinesis_sdk.spark.source import KinesisDataSource

        return KinesisDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
