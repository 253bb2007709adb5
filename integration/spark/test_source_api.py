"""Spark's side of the contract: discovery, options, offsets, call order, progress."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.spark.harness import IdempotentSink, start, wait_for
from kinesis_sdk.spark import progress_frame, progress_listener
from kinesis_sdk.spark.source import HAS_ADMISSION_CONTROL, KinesisDataSource, KinesisStreamReader

pytestmark = pytest.mark.core


def test_unknown_options_and_bad_values_are_errors(spark: Any, stream: Any) -> None:
    orders = stream(1)
    for entry in (spark.read, spark.readStream):
        with pytest.raises(Exception, match="maxRecordsPerShard"):
            entry.format("kinesis_sdk").options(**orders.options(maxRecordPerShard="5")).load()
    with pytest.raises(Exception, match="maxConnections"):
        spark.range(1).selectExpr("'x' AS data", "'k' AS partitionKey").write.format("kinesis_sdk").options(
            **orders.options(maxConnection="5")
        ).mode("append").save()
    with pytest.raises(Exception, match="expected no schema, or some of the columns"):
        spark.read.format("kinesis_sdk").schema("data string").options(**orders.options()).load().collect()


def test_a_missing_stream_is_named(spark: Any, endpoint: Any) -> None:
    options = {"streamName": "no-such-stream", "endpointUrl": endpoint.url, "region": "us-east-1"}
    with pytest.raises(Exception, match="no-such-stream"):
        spark.read.format("kinesis_sdk").options(**options).load().collect()


def test_the_engine_asks_in_the_order_that_the_reader_expects(spark: Any, stream: Any, folder: Path) -> None:
    """A new Spark version that asks differently must show here first."""
    orders = stream(1)
    orders.put(b"k:0")
    path = str(folder / "calls")

    def make() -> Any:
        note = path

        class Reader(KinesisStreamReader):
            def _note(self, name: str) -> None:
                with open(note, "a") as log:  # noqa: PTH123
                    log.write(name + "\n")

            def initialOffset(self) -> Any:  # noqa: N802
                self._note("initialOffset")
                return KinesisStreamReader.initialOffset(self)

            def latestOffset(self, start: Any = None, limit: Any = None) -> Any:  # noqa: N802
                self._note("latestOffset(start)" if start is not None else "latestOffset()")
                return KinesisStreamReader.latestOffset(self, start, limit)

            def partitions(self, start: Any, end: Any) -> Any:
                self._note("partitions(same)" if start == end else "partitions")
                return KinesisStreamReader.partitions(self, start, end)

        class Source(KinesisDataSource):
            @classmethod
            def name(cls) -> str:
                return "kinesis_recorded"

            def streamReader(self, schema: Any) -> Any:  # noqa: N802
                return Reader(KinesisDataSource.streamReader(self, schema)._options)

        return Source

    spark.dataSource.register(make())
    for _ in range(2):
        frame = spark.readStream.format("kinesis_recorded").options(**orders.reader_options()).load()
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(900)
        with Path(path).open("a") as log:
            log.write("--\n")
    first, second = (part.split() for part in Path(path).read_text().split("--\n")[:2])
    if HAS_ADMISSION_CONTROL:
        assert first[:2] == ["initialOffset", "latestOffset(start)"]
        assert "latestOffset()" not in first + second
    else:
        assert first[:2] == ["latestOffset()", "initialOffset"]
        assert second[0] == "partitions(same)", "before the question without a start comes the resume point"
    assert "partitions" in first
    assert "initialOffset" not in second


def test_progress(spark: Any, stream: Any, folder: Path) -> None:
    orders = stream(2)
    lines: list[str] = []
    listener = progress_listener(lines.append)
    spark.streams.addListener(listener)
    sink = IdempotentSink(folder / "sink")
    query = start(spark, orders, sink, folder / "checkpoint")
    try:
        for number in range(3):
            orders.put(f"k:{number}".encode())
            wait_for(lambda n=number + 1: len(sink.rows()) == n, what=f"record {number}")
        wait_for(lambda: len(lines) >= 3, what="three lines")
        frame = progress_frame(query)
        last = query.lastProgress
    finally:
        query.stop()
        spark.streams.removeListener(listener)
    assert " 1 rows, " in lines[0]
    assert "lag " in lines[0]
    assert frame["rows"].sum() >= 3
    assert list(frame["batchId"]) == sorted(frame["batchId"])
    assert (frame["shards"] == 2).all()
    if HAS_ADMISSION_CONTROL:
        latest = last["sources"][0]["latestOffset"]
        latest = json.loads(latest) if isinstance(latest, str) else latest
        assert latest["maxBehindMs"] == 0
        assert latest["limitedBy"] is None
        assert (latest["shards"], latest["streams"]) == (2, [orders.name])


def test_discovery_and_a_broken_neighbour(folder: Path) -> None:
    """Spark finds the format by itself; a broken pyspark_* module of somebody else hides it, register() does not."""
    (folder / "pyspark_broken").mkdir()
    (folder / "pyspark_broken" / "__init__.py").write_text("raise RuntimeError('broken')\n")
    script = """
import sys
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "512m").getOrCreate())
spark.sparkContext.setLogLevel("OFF")
if sys.argv[1] == "register":
    from kinesis_sdk.spark import register
    register(spark)
try:
    spark.read.format("kinesis_sdk").load().collect()
except Exception as error:
    print("FOUND" if "streamName" in str(error) else "MISSING " + str(error)[:200])
"""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    result = subprocess.run(
        [sys.executable, "-c", script, "register"],
        env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert "FOUND" in result.stdout, result.stdout + result.stderr[-2000:]


@pytest.mark.skipif(
    not HAS_ADMISSION_CONTROL, reason="Spark 4.0 keeps the source that it found by itself in this session"
)
def test_the_number_of_tasks_follows_the_session(spark: Any, stream: Any) -> None:
    """A registered source makes two tasks per slot; `maxTasks` makes another number."""
    from kinesis_sdk.spark import register

    orders = stream(12)
    width = 2**128 // 12
    orders.put_entries(
        [
            {"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": str(shard * width + 1)}
            for shard in range(12)
        ]
    )
    register(spark)
    read = spark.read.format("kinesis_sdk").options(**orders.options())
    slots = spark.sparkContext.defaultParallelism
    assert read.load().rdd.getNumPartitions() == min(12, 2 * slots)
    assert read.option("maxTasks", "3").load().rdd.getNumPartitions() == 3
    assert read.load().count() == 12


def test_register_after_spark_has_found_the_source(spark: Any, stream: Any) -> None:
    """Spark 4.0 refuses the second source of the same name; later versions replace the first one."""
    from kinesis_sdk.spark import register

    orders = stream(1)
    orders.put(b"k:0")
    read = spark.read.format("kinesis_sdk").options(**orders.options())
    assert read.load().count() == 1
    register(spark)
    register(spark)
    assert read.load().count() == 1
