"""Each row once, although tasks of the writer run twice, responses are lost, and a request is stored late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

from integration.spark.harness import wait_for
from kinesis_sdk.common.aggregate_reader import open_aggregate
from kinesis_sdk.common.once.table import FIRST, NAMED, REPEAT, decode_table
from kinesis_sdk.spark.source import HAS_ADMISSION_CONTROL

ROWS = 400


def _fail_first_attempt(rows: Any) -> Any:
    """Yield batches, and die after the first one in the first attempt of each task."""
    context = TaskContext.get()
    for number, batch in enumerate(rows):
        if number and context is not None and context.attemptNumber() == 0:
            raise RuntimeError("this task dies, and Spark runs it again")
        yield batch


def _read(spark: Any, stream: Any, **more: str) -> Counter[str]:
    frame = spark.read.format("kinesis_sdk").options(**stream.options(**more)).load()
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
            **orders.options(idempotent="true", dedupNamespace="orders", recordMaxBufferedTime="50ms")
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
        assert query.awaitTermination(900), "the query does not end"
        if sorted(commits.glob("[0-9]*")) == seen:
            break
    assert Counter(row.data for row in spark.read.parquet(str(folder / "out")).collect()) == expected


def test_a_job_that_runs_again_stores_no_row_twice(spark: Any, stream: Any) -> None:
    """For consumers that see every stored copy."""
    orders = stream(2)
    number = F.col("id")
    frame = spark.range(0, ROWS, 1, 2).select(
        F.concat(F.lit("row-"), number).alias("data"),
        F.concat(F.lit("key-"), number % 50).alias("partitionKey"),
        F.concat(F.lit("name-"), number).alias("dedupId"),
    )
    options = orders.options(idempotent="true", dedupNamespace="orders", reconcile="1h")
    for part in (frame.where(F.col("data").endswith("3")), frame):
        part.write.format("kinesis_sdk").options(**options).mode("append").save()
    assert _read(spark, orders, recognizeRepetitions="false") == {f"row-{n}": 1 for n in range(ROWS)}


FAILING_BATCH = 3


def _attempts_of_rows(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield rows that say in which batch and attempt they are written; the first attempts of one batch die when their rows are put."""
    import pyarrow as pa

    context = TaskContext.get()
    assert context is not None
    number, attempt = context.getLocalProperty("streaming.sql.batchId"), context.attemptNumber()
    rows = 0
    for batch in batches:
        values = batch.column(0).to_pylist()
        rows += len(values)
        yield pa.RecordBatch.from_pydict(
            {
                "data": [f"{number} {attempt} {value}" for value in values],
                "partitionKey": [f"key-{value % 10}" for value in values],
                "dedupId": [str(value) for value in values],
            }
        )
    if rows and attempt == 0 and int(number) == FAILING_BATCH:
        raise RuntimeError("this task dies, and Spark runs it again")


def test_from_the_second_batch_on_a_process_writes_first_attempts(
    spark: Any, stream: Any, folder: Path
) -> None:
    orders = stream(1)
    query = (
        spark.readStream.format("rate")
        .options(rowsPerSecond="20", numPartitions="2")
        .load()
        .select("value")
        .mapInArrow(_attempts_of_rows, "data STRING, partitionKey STRING, dedupId STRING")
        .writeStream.format("kinesis_sdk")
        .options(**orders.options(idempotent="true", dedupNamespace="orders", recordMaxBufferedTime="50ms"))
        .option("checkpointLocation", str(folder / "writer"))
        .trigger(processingTime="1 second")
        .start()
    )
    try:
        wait_for(
            lambda: query.lastProgress is not None and query.lastProgress["batchId"] > FAILING_BATCH + 1,
            what="the batches behind the one that fails",
        )
    finally:
        query.stop()
    raw = spark.read.format("kinesis_sdk").options(**orders.options(deaggregate="false")).load()
    flags: dict[tuple[int, int], set[int]] = {}
    for row in raw.select("data").collect():
        columns = open_aggregate(bytes(row.data))
        assert columns is not None
        assert columns.tag is not None
        table = decode_table(columns.tag, orders.name, len(columns.payloads))
        assert table is not None
        for run, payload in zip(table.runs, columns.payloads, strict=True):
            number, attempt, _ = payload.decode().split()
            flags.setdefault((int(number), int(attempt)), set()).add(run.flags)
    assert flags.pop((FAILING_BATCH, 1)) == {NAMED | REPEAT}, "a repetition is no first attempt, and says so"
    assert all(attempt == 0 for _, attempt in flags)
    late = {number: found for (number, _), found in flags.items() if number >= 2}
    assert late
    # A process that had no task before, or whose task died with it, is at its first batch.
    assert all(found <= {NAMED | REPEAT, NAMED | FIRST} for found in late.values())
    assert any(NAMED | FIRST in found for found in late.values())
    seen = Counter(row.split()[2] for row in _read(spark, orders).elements())
    assert set(seen.values()) == {1}
