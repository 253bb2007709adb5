"""Flights through Kinesis with PySpark: write, read as a stream, and chart delays by airport and week.

    python examples/flights_pipeline.py

starts a fake Kinesis with the limits of Kinesis, puts 20,000 flights of 2001 into it (aggregated), reads them back with
Structured Streaming, and writes ``flights.png``. On AWS, with your own stream::

    python examples/flights_pipeline.py --aws --stream flights --region eu-west-1

``--flights`` takes a file of JSON lines or Parquet with the columns date, delay, distance, origin, destination.
Needs pyspark, pyarrow, pandas and matplotlib, and Java 17.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from kinesis_sdk.spark import progress_frame, progress_listener

COLUMNS = "date string, delay int, distance int, origin string, destination string"


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--flights", type=Path, help="JSON lines or Parquet (default: 20,000 packaged flights)"
    )
    parser.add_argument("--limit", type=int, help="use only this many flights")
    parser.add_argument("--stream", default="flights", help="stream name (default: %(default)s)")
    parser.add_argument(
        "--shards", type=int, default=4, help="shards of the fake's stream (default: %(default)s)"
    )
    parser.add_argument(
        "--aws", action="store_true", help="use AWS, or AWS_ENDPOINT_URL, instead of the fake"
    )
    parser.add_argument("--region", help="AWS region")
    parser.add_argument(
        "--batch-records",
        type=int,
        help="Kinesis records per shard and batch (default: 4 on the fake, else no limit)",
    )
    parser.add_argument(
        "--airports", type=int, default=8, help="airports in the chart (default: %(default)s)"
    )
    parser.add_argument(
        "--chart", type=Path, default=Path("flights.png"), help="PNG to write (default: %(default)s)"
    )
    parser.add_argument("--master", default="local[2]", help="Spark master (default: %(default)s)")
    return parser.parse_args(arguments)


@contextlib.contextmanager
def kinesis(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Yield the options of the data source for the stream's location."""
    target = {"streamName": options.stream}
    if options.aws:
        yield {**target, "region": options.region} if options.region else target
        return
    from kinesis_sdk.testing import start_server_process

    account = {"AWS_ACCESS_KEY_ID": "fake", "AWS_SECRET_ACCESS_KEY": "fake"}
    os.environ.update({name: os.environ.get(name, value) for name, value in account.items()})
    with start_server_process("--create-stream", f"{options.stream}:{options.shards}") as server:
        yield {**target, "endpointUrl": server.endpoint_url, "region": options.region or "us-east-1"}


@contextlib.contextmanager
def spark_session(master: str) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(master)
        .appName("flights")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def load_flights(spark: Any, options: argparse.Namespace, scratch: Path) -> Any:
    """Return flights as the writer expects them: partition key and payload."""
    from pyspark.sql import functions as F  # noqa: N812 — the name that Spark's documentation uses

    path = options.flights
    if path is None:
        packed = files("kinesis_sdk.testing").joinpath("data/flights-20k.ndjson.gz")
        path = scratch / "flights.json.gz"
        with as_file(packed) as source:
            shutil.copyfile(source, path)
    frame = (
        spark.read.parquet(str(path))
        if path.suffix == ".parquet"
        else spark.read.schema(COLUMNS).json(str(path))
    )
    if options.limit:
        frame = frame.limit(options.limit)
    moment = F.coalesce(
        F.try_to_timestamp(F.col("date").cast("string"), F.lit("yyyy/MM/dd HH:mm")),
        F.try_to_timestamp(F.col("date").cast("string")),
    )
    fields = F.struct(moment.alias("date"), "delay", "distance", "origin", "destination")
    # One task for a few shards, and all flights of an airport in one task, so that aggregates are fuller.
    return frame.select(F.col("origin").alias("partitionKey"), F.to_json(fields).alias("data")).repartition(
        2, "partitionKey"
    )


def delays(flights: Any) -> Any:
    """Return delay statistics by airport and week."""
    from pyspark.sql import functions as F  # noqa: N812 — the name that Spark's documentation uses

    return flights.groupBy(F.window("date", "7 days").alias("week"), "origin").agg(
        F.count("*").alias("flights"),
        F.avg("delay").alias("mean_delay"),
        F.avg((F.col("delay") > 15).cast("int")).alias("late"),
    )


def draw(statistics: Any, progress: Any, options: argparse.Namespace) -> None:
    """Draw the mean delay by week for the busiest airports, and the progress of the query."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    busiest = statistics.groupby("origin")["flights"].sum().nlargest(options.airports).index
    figure, (left, right) = plt.subplots(1, 2, figsize=(14, 5), width_ratios=(3, 1), layout="constrained")
    for origin in busiest:
        line = statistics[statistics["origin"] == origin].sort_values("start")
        left.plot(line["start"], line["mean_delay"], marker=".", label=origin)
    left.set(title="Mean delay by week of departure", ylabel="minutes")
    left.legend(ncols=4)
    left.grid(alpha=0.3)
    left.tick_params(axis="x", rotation=30)
    right.bar(progress["batchId"], progress["rows"])
    right.xaxis.get_major_locator().set_params(integer=True)
    right.set(title="Rows by micro-batch", xlabel="batch")
    figure.savefig(options.chart, dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job.

    Returns:
        0 if every flight that was put was read.
    """
    options = parse_arguments(arguments)
    with (
        tempfile.TemporaryDirectory() as folder,
        kinesis(options) as target,
        spark_session(options.master) as spark,
    ):
        from pyspark.sql import functions as F  # noqa: N812 — the name that Spark's documentation uses

        scratch = Path(folder)
        flights = load_flights(spark, options, scratch).cache()
        count = flights.count()
        began = time.monotonic()
        flights.write.format("kinesis_sdk").options(**target).mode("append").save()
        print(f"put {count:,} flights in {time.monotonic() - began:.1f} s")
        spark.streams.addListener(progress_listener())
        # A Kinesis record holds some 500 flights: a few of them per batch make the batches visible.
        records = options.batch_records or (None if options.aws or options.flights else 4)
        limits = {"maxRecordsPerShard": str(records)} if records else {}
        stream = (
            spark.readStream.format("kinesis_sdk")
            .schema("date timestamp, delay int, origin string")
            .options(**target, **limits, startingPosition="TRIM_HORIZON", valueFormat="json")
            .load()
        )
        query = (
            delays(stream)
            .writeStream.outputMode("complete")
            .format("memory")
            .queryName("delays")
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        table = spark.table("delays")
        read = table.agg(F.sum("flights")).first()[0] or 0
        print(f"read {read:,} flights back; busiest airports:")
        table.groupBy("origin").agg(
            F.sum("flights").alias("flights"),
            F.round(F.sum(F.col("mean_delay") * F.col("flights")) / F.sum("flights"), 1).alias(
                "mean delay, min"
            ),
            F.round(100 * F.sum(F.col("late") * F.col("flights")) / F.sum("flights"), 1).alias("late, %"),
        ).orderBy(F.desc("flights")).show(options.airports)
        statistics = table.select(
            F.col("week.start").alias("start"), "origin", "flights", "mean_delay", "late"
        ).toPandas()
        draw(statistics, progress_frame(query), options)
        print(f"chart: {options.chart}")
        if options.aws:
            return 0  # the stream may hold more than this run put
        return 0 if read == count else 1


if __name__ == "__main__":
    sys.exit(main())
