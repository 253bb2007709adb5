"""Entry point for Spark, which imports top-level modules named ``pyspark_*`` and registers their ``DefaultSource``."""

from kinesis_sdk.spark.source import KinesisDataSource as DefaultSource

__all__ = ["DefaultSource"]
