"""Each row once, although tasks of the writer run twice, responses are lost, and a request is stored late."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

from kinesis_sdk.spark.source import HAS_ADMISSION_CONTROL

ROWS = 400


def _fail_first_attempt(rows: Any) -> Any:
    """Yield batches, and die after the first one in the first attempt of each task."""
    context = TaskContext.get()
    for number, batch in enumerate(rows):
        if number and context is not None and context.attemptNumber() == 0:
            raise RuntimeError("this task dies, and Spark runs it again")
        yield batch


def _read(spark: Any, stream: Any) -> Counter[str]:
    frame = spark.read.format("kinesis_sdk").options(**stream.options()).load()
    return Counter(bytes(row.data).decode() for row in frame.select("data").collect())


@pytest.mark.core
def test_rows_with_names_are_read_once(spark: Any, stream: Any, folder: Path) -> None:
    orders = stream(2)
    if orders.endpoint.server is None:
        pytest.skip("makes the service lose responses, which only our fake can be told to do")
    faults = [
        {"kind": "timeout_after_storing", "operation": "PutRecords", "stream": orders.name, "count": 2},
        {"kind": "late_store", "operation": "PutRecords", "stream": orders.name, "count": 1, "seconds": 6},
    ]
    orders.endpoint.server.admin("faults", faults)
    number = F.col("id")
    frame = spark.range(0, ROWS, 1, 2).select(
        F.concat(F.lit("row-"), number).alias("data"),
        F.concat(F.lit("key-"), number % 50).alias("partitionKey"),
        F.concat(F.lit("name-"), number).alias("dedupId"),
    )
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    dying = frame.mapInArrow(_fail_first_attempt, frame.schema)
    for written in (dying, frame):
        written.write.format("kinesis_sdk").options(
            **orders.options(idempotent="true", recordMaxBufferedTime="50ms")
        ).mode("append").save()

    expected = {f"row-{n}": 1 for n in range(ROWS)}
    assert _read(spark, orders) == expected
    raw = spark.read.format("kinesis_sdk").options(**orders.options(deaggregate="false")).load()
    assert sum(bytes(row.data).count(b"row-") for row in raw.collect()) > ROWS, "the stream has copies"

    frame = (
        spark.readStream.format("kinesis_sdk")
        .options(**orders.options(maxRecordsPerShard="1", startingPosition="TRIM_HORIZON"))
        .load()
        .selectExpr("CAST(data AS STRING) AS data")
    )
    commits = folder / "checkpoint" / "commits"
    for _ in range(1 if HAS_ADMISSION_CONTROL else 100):  # Spark 4.0 runs one micro-batch per query
        seen = sorted(commits.glob("[0-9]*"))
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(folder / "out"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300), "the query does not end"
        if sorted(commits.glob("[0-9]*")) == seen:
            break
    assert Counter(row.data for row in spark.read.parquet(str(folder / "out")).collect()) == expected
