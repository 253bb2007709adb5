"""A user's program, started with the interpreter of an environment that is not activated.

``python unactivated.py STREAM ENDPOINT`` prints a line of JSON. It needs only the installed package, nothing else of this repository.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from kinesis_sdk.spark import KinesisPartitionWriter, ProducerSettings, register


def main(stream: str, endpoint: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    found = {}
    options = {"streamName": stream, "endpointUrl": endpoint, "region": "us-east-1"}
    try:
        spark.read.format("kinesis_sdk").options(**options).load()
    except Exception as error:  # noqa: BLE001 - the test looks at its text
        found["before"] = str(error)[:1000]
    register(spark)
    rows = spark.range(20, numPartitions=2).selectExpr(
        "CAST(id AS STRING) AS data", "CONCAT('k', id) AS partitionKey"
    )
    rows.write.format("kinesis_sdk").options(**options, logLevel="info").mode("append").save()
    settings = ProducerSettings(region_name="us-east-1", endpoint_url=endpoint)
    rows.foreachPartition(
        KinesisPartitionWriter(stream, partition_key="partitionKey", data="data", settings=settings)
    )
    found["read"] = spark.read.format("kinesis_sdk").options(**options, logLevel="info").load().count()
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
