"""Spark: what a whole job costs, read → JSON → filter → aggregate, by where the JSON is parsed, and beside the connector for the JVM.

    python benchmarks/bench_spark_job.py [--rows 1000000] [--repeat 3] [--source CHECKOUT]

All jobs read the same flights (JSON of about 100 bytes, aggregated, two shards) from the same fake AWS in one warm Spark session with two slots, in
turns. Each is a streaming query (AvailableNow) that keeps flights that were late and sums them up by airport; each result is compared with
the truth. CPU is that of the whole process tree without the fake, the best of several turns.

A query also takes CPU to start. It is measured with a stream of a few rows, and is not part of the cost of a row.

The connector is built from its source (see `jvm_connector`). Where that is not possible, the jobs of this data source are compared alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from bench_spark import ACCOUNT, SLOTS, timed

ROOT = Path(__file__).parents[1]
TARGET = 0.5
LATE = 15
FIELDS = "date STRING, delay INT, distance INT, origin STRING, destination STRING"
USED = "delay INT, origin STRING"
TYPED = "kinesis_sdk, valueFormat=json"
FEW = 20
"""Rows of the stream with which the start of a query is measured."""

Sums = Counter[str]


def fill(endpoint: str, stream: str, rows: int) -> Sums:
    """Put flights, and return the truth: minutes of late flights by airport."""
    import boto3

    from kinesis_sdk.common.aggregate_reader import Aggregate
    from kinesis_sdk.common.hashkeys import hash_partition_key

    client = boto3.client("kinesis", endpoint_url=endpoint)
    rng = Random(1)
    airports = [f"{first}{second}X" for first in "ABCDEFGH" for second in "ABCDE"]
    hashes = {airport: hash_partition_key(airport) for airport in airports}
    truth: Sums = Counter()
    done = number = 0
    while done < rows:
        aggregate = Aggregate(51_200, 1 << 40)
        while done < rows:
            origin, delay = rng.choice(airports), rng.randrange(-30, 90)
            flight = {
                "date": f"2001-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d} {rng.randrange(24):02d}:{rng.randrange(60):02d}",
                "delay": delay,
                "distance": rng.randrange(50, 3_000),
                "origin": origin,
                "destination": rng.choice(airports),
            }
            if not aggregate.try_append(origin, None, json.dumps(flight).encode(), hashes[origin]):
                break
            done += 1
            if delay > LATE:
                truth[origin] += delay
        client.put_record(
            StreamName=stream,
            Data=aggregate.encode(),
            PartitionKey="a",
            ExplicitHashKey=str((number % 2) << 127),
        )
        number += 1
    return truth


class Jobs:
    """The jobs, by name: functions of the stream that return sums by airport.

    Args:
        spark: The session.
        endpoint: The fake AWS.
        folder: For checkpoints.
        has_connector: Whether the connector for the JVM is there.
    """

    def __init__(self, spark: Any, endpoint: str, folder: Path, *, has_connector: bool) -> None:
        self._spark, self._endpoint, self._folder = spark, endpoint, folder
        self._queries = 0
        self.all: dict[str, Callable[[str], Sums]] = {
            "kinesis_sdk, all columns, from_json": lambda stream: self._run(self._two_steps(stream, "")),
            "kinesis_sdk, data only, from_json": lambda stream: self._run(
                self._two_steps(stream, "data binary")
            ),
            TYPED: lambda stream: self._run(self._typed(stream)),
        }
        if has_connector:
            self.all = {"connector, from_json": lambda stream: self._run(self._connector(stream)), **self.all}

    def _ours(self, stream: str) -> Any:
        return self._spark.readStream.format("kinesis_sdk").options(
            streamName=stream, endpointUrl=self._endpoint, region="us-east-1", startingPosition="TRIM_HORIZON"
        )

    def _two_steps(self, stream: str, schema: str) -> Any:
        reader = self._ours(stream)
        return self._parsed((reader.schema(schema) if schema else reader).load())

    def _typed(self, stream: str) -> Any:
        return self._ours(stream).schema(USED).option("valueFormat", "json").load()

    def _connector(self, stream: str) -> Any:
        options = {
            "kinesis.streamName": stream,
            "kinesis.endpointUrl": self._endpoint,
            "kinesis.region": "us-east-1",
            "kinesis.kinesisRegion": "us-east-1",
            "kinesis.startingPosition": "TRIM_HORIZON",
            "kinesis.maxFetchRecordsPerShard": "100000000",
        }
        return self._parsed(self._spark.readStream.format("aws-kinesis").options(**options).load())

    @staticmethod
    def _parsed(frame: Any) -> Any:
        from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

        return frame.select(F.from_json(F.col("data").cast("string"), USED).alias("f")).select("f.*")

    def _run(self, rows: Any) -> Sums:
        found: Sums = Counter()

        def take(batch: Any, _number: int) -> None:
            late = batch.filter(f"delay > {LATE}").groupBy("origin").agg({"delay": "sum"})
            found.update({row[0]: row[1] for row in late.collect()})

        self._queries += 1
        query = (
            rows.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self._folder / f"query-{self._queries}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return found


def cost(label: str, job: Callable[[str], Sums], stream: str, truth: Sums) -> float:
    """Return the CPU seconds of a job; its result must be right."""
    found, _, used = timed(lambda: job(stream))
    assert found == truth, f"{label}: {len(found)} airports, of {len(truth)}"
    return used


def measure(options: argparse.Namespace) -> int:
    import pyspark
    from pyspark.sql import SparkSession

    from kinesis_sdk.testing import start_server_process

    os.environ.update(ACCOUNT)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with (
        tempfile.TemporaryDirectory() as name,
        start_server_process(
            "--no-throttle", "--create-stream", "few:2", "--create-stream", "many:2"
        ) as server,
    ):
        builder = (
            SparkSession.builder.master(f"local[{SLOTS}]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "2g")
            .config("spark.sql.shuffle.partitions", "2")
        )
        spark = (builder.config("spark.jars", options.jar) if options.jar else builder).getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        truths = {
            stream: fill(server.endpoint_url, stream, rows)
            for stream, rows in (("few", FEW), ("many", options.rows))
        }
        jobs = Jobs(spark, server.endpoint_url, Path(name), has_connector=bool(options.jar))
        found: dict[tuple[str, str], list[float]] = {}
        for turn in range(options.repeat + 1):
            for stream, truth in truths.items():
                for label, job in jobs.all.items():
                    used = cost(label, job, stream, truth)
                    if turn:  # the first one warms up
                        found.setdefault((label, stream), []).append(used)
        spark.stop()
    peer = next(iter(jobs.all))
    print(f"Spark {pyspark.__version__}, {SLOTS} slots, {options.rows:,} flights, best of {options.repeat}")
    print(f"\n{'job':40} CPU µs a row   of the first   CPU s to start a query")
    rows = {label: min(per_row(found, label, options.rows)) for label in jobs.all}
    for label in jobs.all:
        print(
            f"  {label:38} {rows[label]:12.2f} {rows[label] / rows[peer]:13.2f}x {min(found[label, 'few']):16.2f}"
        )
    if options.jar:
        turns = [
            ours / theirs
            for ours, theirs in zip(
                *(per_row(found, job, options.rows) for job in (TYPED, peer)), strict=True
            )
        ]
        print(
            f"  {TYPED}: {rows[TYPED] / rows[peer]:.2f}x of the connector; by turn {' '.join(f'{one:.2f}' for one in turns)}, "
            f"median {median(turns):.2f}x; target {TARGET}x in each turn: {'met' if max(turns) <= TARGET else 'missed'}"
        )
    return 0


def per_row(found: Mapping[tuple[str, str], Sequence[float]], job: str, rows: int) -> list[float]:
    """Return the CPU µs of a row in each turn: what the turn took beyond the best start of a query."""
    start = min(found[job, "few"])
    return [(used - start) / (rows - FEW) * 1e6 for used in found[job, "many"]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="flights (default: %(default)s)")
    parser.add_argument(
        "--repeat", type=int, default=3, help="turns after the one that warms up (default: %(default)s)"
    )
    parser.add_argument("--source", help="checkout or git directory of the connector")
    parser.add_argument("--jar", help="the connector's jar, if it is there already")
    parser.add_argument("--alone", action="store_true", help="without the connector")
    options = parser.parse_args()
    if importlib.util.find_spec("pyspark") is not None:
        return measure(options)
    sys.path.insert(0, str(ROOT))
    from jvm_connector import CBOR, SPARK, build

    from integration.localstack.install import CannotInstallError
    from integration.spark.environments import NEWEST, CannotRunSparkError, prepare

    jar = options.jar
    if not jar and not options.alone:
        try:
            jar = str(build(options.source))
        except CannotInstallError as error:
            print(f"without the connector: {error}")
    try:
        python = prepare(SPARK, CBOR) if jar else prepare(NEWEST)
    except CannotRunSparkError as error:
        print(f"skipped: {error}")
        return 0
    more = ["--jar", jar] if jar and not options.jar else []
    return subprocess.run([str(python), *sys.argv, *more], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
