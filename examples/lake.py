"""Flights of a stream in a table on a lake, each once: Delta or Iceberg, written by Spark.

    python lake.py delta

reads the stream ``flights`` of your AWS account, or of AWS_ENDPOINT_URL, into a table below the folder ``lake``. Once a minute (or
each time the seconds after the format have passed) it compacts the table and says what is in it. It runs until you end it, with
SIGKILL if you like, and goes on where it was. Needs Spark 4.0 (pyspark and pyarrow, Java 17); Spark downloads the packages.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 — the name that Spark's documentation uses

from kinesis_sdk.spark import register

LAKE = f"file:{Path('lake').absolute()}"
FIELDS = "date STRING, delay INT, origin STRING, destination STRING"
POSITION = "_shard_id STRING, _sequence_number STRING, _sub_sequence_number BIGINT"
SETTINGS = {
    "delta": {
        "spark.jars.packages": "io.delta:delta-spark_4.0_2.13:4.4.0",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": LAKE,
        "spark.sql.catalog.lake.cache-enabled": "false",  # or reads may miss what a query has written since
    },
}
TABLES = {"delta": "delta", "iceberg": "lake.iceberg"}
COMPACTION = {
    "delta": "OPTIMIZE delta",
    "iceberg": "CALL lake.system.rewrite_data_files(table => 'iceberg', options => map('min-input-files', '2'))",
}


def main(kind: str, seconds: float = 60) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config(map=SETTINGS[kind]).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    table = TABLES[kind]
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table} ({FIELDS}, {POSITION}, day DATE)"
        f" USING {kind} PARTITIONED BY (day) LOCATION '{LAKE}/{kind}'"
    )
    flights = (
        spark.readStream.format("kinesis_sdk")
        .schema(f"{FIELDS}, {POSITION}")
        .options(streamName="flights", startingPosition="TRIM_HORIZON", valueFormat="json")
        .load()
        .withColumn("day", F.to_date("date", "yyyy/MM/dd HH:mm"))
    )
    query = (
        flights.writeStream.format(kind)
        .option("checkpointLocation", f"{LAKE}/{kind}-checkpoint")
        .trigger(processingTime="2 seconds")
        .toTable(table)
    )
    position = F.struct("_shard_id", "_sequence_number", "_sub_sequence_number")
    totals = (F.count("*"), F.count_distinct(position), F.count_distinct("file"))
    while not query.awaitTermination(seconds):
        print("compacting", flush=True)
        spark.sql(COMPACTION[kind])
        rows = spark.table(table).withColumn("file", F.input_file_name())
        count, positions, files = rows.agg(*totals).first()
        print(f"{count:,} flights, {count - positions} of them twice, in {files} files", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
