"""Kinesis from PySpark. Importing this package does not import pyspark, pyarrow or boto3."""

from __future__ import annotations

from typing import Any

from kinesis_sdk._lazy import lazy_names

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.spark.columns import RECORD_ID as RECORD_ID
    from kinesis_sdk.spark.connection import ConnectionSettings as ConnectionSettings
    from kinesis_sdk.spark.errors import DataLossError as DataLossError
    from kinesis_sdk.spark.errors import MalformedValueError as MalformedValueError
    from kinesis_sdk.spark.errors import OffsetError as OffsetError
    from kinesis_sdk.spark.errors import StalledError as StalledError
    from kinesis_sdk.spark.parse.avro_values import avro_columns as avro_columns
    from kinesis_sdk.spark.parse.inference import infer_columns as infer_columns
    from kinesis_sdk.spark.parse.protobuf_values import protobuf_columns as protobuf_columns
    from kinesis_sdk.spark.partition import KinesisPartitionWriter as KinesisPartitionWriter
    from kinesis_sdk.spark.partition import PartitionFailedError as PartitionFailedError
    from kinesis_sdk.spark.partition import ProducerSettings as ProducerSettings
    from kinesis_sdk.spark.partition import TaskProducer as TaskProducer
    from kinesis_sdk.spark.partition import shared_producer as shared_producer
    from kinesis_sdk.spark.progress import describe_progress as describe_progress
    from kinesis_sdk.spark.progress import progress_frame as progress_frame
    from kinesis_sdk.spark.progress import progress_listener as progress_listener
    from kinesis_sdk.spark.source import KinesisDataSource as KinesisDataSource
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            # the data source
            "kinesis_sdk.spark.source": ("KinesisDataSource",),
            # the identity of a row
            "kinesis_sdk.spark.columns": ("RECORD_ID",),
            # foreachPartition
            "kinesis_sdk.spark.partition": (
                "KinesisPartitionWriter",
                "PartitionFailedError",
                "ProducerSettings",
                "TaskProducer",
                "shared_producer",
            ),
            # columns of values
            "kinesis_sdk.spark.parse.avro_values": ("avro_columns",),
            "kinesis_sdk.spark.parse.inference": ("infer_columns",),
            "kinesis_sdk.spark.parse.protobuf_values": ("protobuf_columns",),
            # connection settings
            "kinesis_sdk.spark.connection": ("ConnectionSettings",),
            # errors
            "kinesis_sdk.spark.errors": (
                "DataLossError",
                "MalformedValueError",
                "OffsetError",
                "StalledError",
            ),
            # progress
            "kinesis_sdk.spark.progress": ("describe_progress", "progress_frame", "progress_listener"),
        },
        imported=["register"],
    )


def register(spark: Any) -> None:
    """Register ``format("kinesis_sdk")`` with a session.

    This call is not needed if the package is installed in the environment of the Python that Spark starts, because Spark then finds
    ``pyspark_kinesis_sdk`` by itself. On a ``local`` master, Spark may start a Python other than the one of this program. Unless the user
    chose it with ``PYSPARK_PYTHON``, the Python functions of this session then run with the interpreter of this program.

    The call also sets the number of tasks that suits the cluster: two per slot of the session, unless the option ``maxTasks`` is set.

    Raises:
        ConfigError: If Spark starts a Python that cannot import this package, and only the user can choose another Python.
    """
    from kinesis_sdk.spark.python_environment import pass_on_parallelism, use_this_environment
    from kinesis_sdk.spark.source import KinesisDataSource

    use_this_environment(spark)
    pass_on_parallelism(spark)
    try:
        spark.dataSource.register(KinesisDataSource)
    except Exception as error:
        # Spark 4.0 found the package by itself for an earlier read or write of this session, and keeps that data source.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
