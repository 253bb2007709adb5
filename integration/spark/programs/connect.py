"""A user's program on Spark Connect with a local server: ``python connect.py STREAM COPY ENDPOINT FOLDER`` prints a line of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kinesis_sdk.spark import progress_listener, register

ATTEMPTS = 4
"""Maximum starts of a query. Spark waits only 10 seconds for a new Python process to connect; no setting changes that."""


def run(start: Callable[[], Any]) -> None:
    """Run a query to its end; start it again if Spark did not wait long enough for its own Python process."""
    for attempt in range(ATTEMPTS):
        try:
            query = start()
            query.awaitTermination()
        except Exception as error:
            if "failed to connect back" not in str(error) or attempt == ATTEMPTS - 1:
                raise
        else:
            return


def main(stream: str, copy: str, endpoint: str, folder: str) -> None:
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    found: dict[str, Any] = {"session": type(spark).__module__}
    options = {"streamName": stream, "endpointUrl": endpoint, "region": "us-east-1"}
    rows = spark.range(500).selectExpr("CAST(id AS STRING) AS data", "CONCAT('k', id) AS partitionKey")
    rows.write.format("kinesis_sdk").options(**options).mode("append").save()
    found["read"] = spark.read.format("kinesis_sdk").options(**options).load().count()
    register(spark)
    lines: list[str] = []
    listener = progress_listener(lines.append)
    spark.streams.addListener(listener)
    reader = (
        spark.readStream.format("kinesis_sdk").options(**options).option("startingPosition", "TRIM_HORIZON")
    )

    def start_copy() -> Any:
        return (
            reader.load()
            .select("data", "partitionKey")
            .writeStream.format("kinesis_sdk")
            .options(**{**options, "streamName": copy})
            .option("checkpointLocation", f"{folder}/copy")
            .trigger(availableNow=True)
            .start()
        )

    run(start_copy)

    batches = f"{folder}/batches"

    def write_batch(frame: Any, batch_id: int) -> None:
        frame.select("data").write.mode("overwrite").parquet(f"{batches}/{batch_id}")

    def start_batches() -> Any:
        return (
            reader.load()
            .writeStream.foreachBatch(write_batch)
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )

    run(start_batches)
    found["batches"] = sorted(
        bytes(row.data).decode()
        for part in Path(batches).iterdir()
        for row in spark.read.parquet(str(part)).collect()
    )
    found["lines"] = lines
    spark.streams.removeListener(listener)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
