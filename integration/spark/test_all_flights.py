"""Three million flights: PySpark writer, stream, PySpark reader, Parquet, compared exactly. ``make spark-full``.

The same stream is read at the same time by two of the consumer's workers; shards are split, merged and rescaled
meanwhile, and the reading driver is killed again and again. ``FLIGHTS`` names a Parquet file of flights (date, delay,
distance, origin, destination); without it the packaged 20,000 are numbered and repeated.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

from integration.spark.driver import ROOT, Driver, ParquetSink, running
from integration.spark.harness import drain, wait_for
from kinesis_sdk.testing.flights import load_flights

pytestmark = pytest.mark.full

FLIGHTS = 3_000_000
SHARDS = 16
KILLS = int(os.environ.get("SPARK_KILLS", "4"))

WORKER = textwrap.dedent(
    """
    import sys, threading
    from kinesis_sdk.consumer import ConsumerConfig, FailureConfig, Worker

    stream, endpoint, path = sys.argv[1:]
    lock = threading.Lock()
    output = open(path, "wb")

    def handle(batch):
        with lock:
            output.write(b"".join([record.data + b"\\n" for record in batch.records]))
            output.flush()

    failure = FailureConfig(misplaced_aggregates="discard")
    config = ConsumerConfig(initial_position="TRIM_HORIZON", failure=failure)
    Worker(stream, application_name=stream + "-app", handler=handle, config=config, endpoint_url=endpoint).run()
    """
)


def write_input(spark: Any, path: Path) -> Any:
    """The flights as the writer wants them, each with a number of its own."""
    given = os.environ.get("FLIGHTS")
    if given:
        flights = spark.read.parquet(given)
    else:
        lines = [flight.line.decode() for flight in load_flights()]
        schema = "date string, delay int, distance int, origin string, destination string"
        once = spark.createDataFrame([(line,) for line in lines], "line string").select(
            F.from_json("line", schema).alias("f")
        )
        flights = once.select("f.*").crossJoin(spark.range(0, FLIGHTS // len(lines)).drop("id"))
    numbered = flights.select(F.monotonically_increasing_id().alias("n"), "*")
    rows = numbered.select(F.col("origin").alias("partitionKey"), F.to_json(F.struct("*")).alias("data"))
    rows.write.parquet(str(path))
    return spark.read.parquet(str(path))


class Workers:
    """Two worker processes of the consumer, which write what they get to a file each."""

    def __init__(self, stream: Any, folder: Path) -> None:
        self.paths = [folder / f"worker-{number}.txt" for number in range(2)]
        self._lines = dict.fromkeys(self.paths, 0)
        self._read = dict.fromkeys(self.paths, 0)
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, stream.name, stream.endpoint.url, str(path)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            for path in self.paths
        ]

    def lines(self) -> int:
        """How many records they have by now."""
        for path, process in zip(self.paths, self._processes, strict=True):
            assert process.poll() is None, "a worker ended"
            if path.exists():
                with path.open("rb") as file:
                    file.seek(self._read[path])
                    while block := file.read(1 << 24):
                        self._lines[path] += block.count(b"\n")
                        self._read[path] += len(block)
        return sum(self._lines.values())

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_exc: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def stop(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            assert process.wait(60) == 0


def order_breaks(rows: Any) -> int:
    """How often a batch brings a key something older than an earlier batch did."""
    number = F.lpad("sequenceNumber", 130, "0")
    spans = rows.groupBy("partitionKey", "batch").agg(
        F.min(number).alias("first"), F.max(number).alias("last")
    )
    before = F.max("last").over(
        Window.partitionBy("partitionKey").orderBy("batch").rowsBetween(Window.unboundedPreceding, -1)
    )
    return spans.withColumn("before", before).filter("first <= before").count()


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def timer() -> Iterator[Any]:
    began = time.monotonic()

    def tell(what: str) -> None:
        print(f"  {time.monotonic() - began:6.1f} s  {what}", flush=True)

    yield tell


def test_all_flights(spark: Any, stream: Any, folder: Path, timer: Any, stack: contextlib.ExitStack) -> None:
    flights = stream(SHARDS)
    sent = write_input(spark, folder / "input")
    count = sent.count()
    timer(f"{count:,} flights are ready")
    checkpoint = folder / "checkpoint"
    sink = ParquetSink(folder / "output")
    sink.folder.mkdir()
    options = flights.reader_options(misplacedAggregates="discard")
    task = {"options": options, "sink": str(sink.folder), "checkpoint": str(checkpoint), "format": "parquet"}
    failures: list[BaseException] = []
    killed = 0
    is_put = threading.Event()

    def read() -> None:
        nonlocal killed
        steps = [
            lambda: flights.split(0),
            lambda: flights.merge(2),
            lambda: flights.scale(20),
            lambda: flights.split(7),
        ]
        rng = Random(1)
        while killed < KILLS or not is_put.is_set():
            seen = commits_of(checkpoint)
            with running(folder / "driver.log", **task) as driver:

                def goes_on(seen: int = seen, driver: Driver = driver) -> bool:
                    driver.check()
                    return commits_of(checkpoint) > seen

                wait_for(goes_on, 300, "a batch of the driver")
                time.sleep(rng.uniform(0.0, 4.0))
            killed += 1
            if steps:
                steps.pop(0)()
            timer(f"the driver was killed, shards: {len(flights.open_shards())}")

    def guarded() -> None:
        try:
            read()
        except BaseException as error:  # noqa: BLE001 — it is raised in the test
            failures.append(error)

    workers = stack.enter_context(Workers(flights, folder))
    # Spark finds data sources written in Python by the session of the calling thread: it is the writer that stays in
    # this one.
    reader = threading.Thread(target=guarded, daemon=True)
    reader.start()
    sent.write.format("kinesis_sdk").options(**flights.options()).mode("append").save()
    timer("all are put")
    is_put.set()
    reader.join()
    if failures:
        raise failures[0]
    drain(spark, flights, sink, checkpoint, misplacedAggregates="discard")
    timer(f"{killed} drivers were killed, and the rest is read")
    wait_for(lambda: workers.lines() >= count, 600, "all records at the consumer's workers")
    workers.stop()
    timer("the consumer's workers have them all, too")

    rows = spark.read.parquet(str(sink.folder)).withColumn("data", F.col("data").cast("string"))
    received = rows.select("partitionKey", "data")
    result = {
        "flights": count,
        "missing": sent.exceptAll(received).count(),
        "duplicated or foreign": received.exceptAll(sent).count(),
        "order breaks": order_breaks(rows),
        "batches": commits_of(checkpoint),
        "user records per Kinesis record": round(count / rows.select("sequenceNumber").distinct().count()),
    }
    consumed = spark.read.text([str(path) for path in workers.paths]).withColumnRenamed("value", "data")
    payloads = sent.select("data")
    result |= {
        "missing at the consumer": payloads.subtract(consumed).count(),
        "foreign at the consumer": consumed.subtract(payloads).count(),
        "delivered twice at the consumer": consumed.count() - count,
    }
    timer(str(result))
    assert result["missing"] == result["duplicated or foreign"] == result["order breaks"] == 0
    assert result["missing at the consumer"] == result["foreign at the consumer"] == 0
    assert result["user records per Kinesis record"] > 20
    assert killed >= KILLS
    batch = spark.read.format("kinesis_sdk").options(**flights.options(misplacedAggregates="discard")).load()
    again = batch.select("partitionKey", F.col("data").cast("string"))
    assert sent.exceptAll(again).count() == again.exceptAll(sent).count() == 0
    timer("a batch read brings the same")


def commits_of(checkpoint: Path) -> int:
    return len(list((checkpoint / "commits").glob("[0-9]*")))
