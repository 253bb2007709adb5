"""Kinesis from PySpark. Importing it does not import pyspark."""

from kinesis_sdk.spark.partition import (
    KinesisPartitionWriter,
    PartitionFailedError,
    ProducerSettings,
    TaskProducer,
    shared_producer,
)

__all__ = [
    # foreachPartition
    "KinesisPartitionWriter",
    "PartitionFailedError",
    "ProducerSettings",
    "TaskProducer",
    "shared_producer",
]
