"""A declarative pipeline for ``spark-pipelines``: a stream into a table, record counts by shard, and the records into another stream."""

from __future__ import annotations

import os
from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

CONNECTION = {"endpointUrl": os.environ["PIPELINE_ENDPOINT"], "region": "us-east-1"}
spark: Any = SparkSession.active()


@dp.table  # type: ignore[untyped-decorator]
def orders() -> Any:
    return (
        spark.readStream.format("kinesis_sdk")
        .options(**CONNECTION, streamName=os.environ["PIPELINE_STREAM"], startingPosition="TRIM_HORIZON")
        .load()
    )


@dp.materialized_view  # type: ignore[untyped-decorator]
def per_shard() -> Any:
    return spark.read.table("orders").groupBy("shardId").count()


dp.create_sink("copy", "kinesis_sdk", {**CONNECTION, "streamName": os.environ["PIPELINE_COPY"]})


@dp.append_flow(target="copy")  # type: ignore[untyped-decorator]
def copied() -> Any:
    return spark.readStream.table("orders").select("data", "partitionKey")
