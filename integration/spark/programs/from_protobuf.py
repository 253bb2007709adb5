"""Rows of Spark's ``from_protobuf``, made by a Spark whose package of Protobuf is to be had.

``python from_protobuf.py JAR DESCRIPTOR MESSAGE VALUES ROWS`` reads a column ``data`` from Parquet files and writes it as Parquet files, with the
columns of the message.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.protobuf.functions import from_protobuf


def main(jar: str, descriptor: str, message: str, values: str, rows: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jar)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    value = from_protobuf("data", message, descriptor, {"mode": "PERMISSIVE"})
    spark.read.parquet(values).select("data", value.alias("v")).select("data", "v.*").write.parquet(rows)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
