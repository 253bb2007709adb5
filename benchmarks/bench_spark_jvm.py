"""Spark: this data source beside the Kinesis connector for the JVM by AWS Labs, on one Spark, by CPU time per row.

    python benchmarks/bench_spark_jvm.py [--rows 1000000] [--repeat 3] [--source CHECKOUT]

Needs Java 17, Maven, git and openssl; builds the connector from its source (see `jvm_connector`), and says why if it
cannot. Both read the same aggregates from the same fake AWS in the same Spark session with two slots, without shard
limits, into the sink ``noop``, in turns, after a turn that warms up. CPU is that of the whole process tree (Java, Python,
the KPL's process) without the fake, the best of several turns. Each turn checks the number of rows.

The connector cannot read in batches: our batch read is compared with its stream. Its records per shard and batch are
lifted from 100,000 to one batch, which is cheaper for it, and neither pauses between two calls.

The *floor* is a data source in Python that repeats one ready Arrow batch of the same rows: what Spark takes to bring rows
from Python to the JVM, whatever makes them.

Writing: both write the same rows through a TLS front (the KPL cannot speak plain HTTP), with a rate limit that does not
limit.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_spark import ACCOUNT, PAYLOAD, SLOTS, Speed, best, fill, register_yardsticks
from jvm_connector import SPARK, build
from tls_front import make_certificate, tls_front

ROOT = Path(__file__).parents[1]
TARGET = 0.7
RATE_LIMIT = 100_000
"""Percent of a shard's limits."""


def table(title: str, speeds: dict[str, Speed], peer: str) -> None:
    print(f"\n{title:44}     rows/s  CPU µs a row  of the connector", flush=True)
    for name, speed in speeds.items():
        print(f"  {name:42} {speed.rows:10,.0f} {speed.cpu:13.2f} {speed.cpu / speeds[peer].cpu:16.2f}x")


class Readings:
    """The jobs that read.

    Args:
        spark: The session.
        endpoint: The fake.
        rows: Rows of the stream ``read``, which each job must find.
        folder: For checkpoints.
    """

    def __init__(self, spark: Any, endpoint: str, rows: int, folder: Path) -> None:
        self._spark, self._endpoint, self._rows, self._folder = spark, endpoint, rows, folder
        self._checkpoints = 0

    def ours(self) -> dict[str, str]:
        return {
            "streamName": "read",
            "endpointUrl": self._endpoint,
            "region": "us-east-1",
            "startingPosition": "TRIM_HORIZON",
            "fetchInterval": "0",
        }

    def theirs(self) -> dict[str, str]:
        return {
            "kinesis.streamName": "read",
            "kinesis.endpointUrl": self._endpoint,
            "kinesis.region": "us-east-1",
            "kinesis.kinesisRegion": "us-east-1",
            "kinesis.startingPosition": "TRIM_HORIZON",
            "kinesis.maxFetchRecordsPerShard": "100000000",
            "kinesis.getRecords.fetchIntervalMs": "0",
        }

    def stream(self, name: str, options: dict[str, str]) -> Callable[[], None]:
        def run() -> None:
            self._checkpoints += 1
            query = (
                self._spark.readStream.format(name)
                .options(**options)
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", str(self._folder / str(self._checkpoints)))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            found = sum(progress["numInputRows"] for progress in query.recentProgress)
            assert found == self._rows, f"{name} read {found:,} rows of {self._rows:,}"

        return run

    def batch(self, name: str, options: dict[str, str]) -> Callable[[], None]:
        frame = self._spark.read.format(name).options(**options)
        return lambda: frame.load().write.format("noop").mode("overwrite").save()


def read(spark: Any, endpoint: str, rows: int, repeat: int, folder: Path) -> bool:
    """Compare reading; returns whether both of ours meet the target."""
    records = fill(endpoint, "read", rows)
    register_yardsticks(spark, rows)
    readings = Readings(spark, endpoint, rows, folder)
    counted = spark.read.format("kinesis_sdk").options(**readings.ours()).load().count()
    assert counted == rows, f"a batch read found {counted:,} rows of {rows:,}"
    peer, stream, batch = "JVM connector, stream", "kinesis_sdk, stream", "kinesis_sdk, batch"
    floor = "floor: ready batches through Spark"
    sizes = dict.fromkeys((peer, stream, batch), rows)
    sizes[floor] = rows // SLOTS // 32_768 * 32_768 * SLOTS
    speeds = best(
        repeat,
        sizes,
        {
            peer: readings.stream("aws-kinesis", readings.theirs()),
            stream: readings.stream("kinesis_sdk", readings.ours()),
            batch: readings.batch("kinesis_sdk", readings.ours()),
            floor: readings.batch("yardstick", {}),
        },
    )
    table(f"read ({rows / records:,.0f} user records in a record)", speeds, peer)
    ratios = {name: speeds[name].cpu / speeds[peer].cpu for name in (stream, batch)}
    print(
        "  "
        + ", ".join(
            f"{name.split()[-1]} {ratio:.2f}x (target {TARGET}x: {'met' if ratio <= TARGET else 'missed'})"
            for name, ratio in ratios.items()
        )
    )
    return all(ratio <= TARGET for ratio in ratios.values())


def write(spark: Any, endpoint: str, count: int, repeat: int) -> None:
    """Compare writing."""
    from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

    rows = (
        spark.range(0, count, 1, SLOTS)
        .select(
            F.lpad(F.col("id").cast("string"), PAYLOAD, "0").cast("binary").alias("data"),
            F.concat(F.lit("key-"), F.col("id") % 200).alias("partitionKey"),
        )
        .persist()
    )
    rows.count()
    ours = {"streamName": "ours", "endpointUrl": endpoint, "region": "us-east-1", "rateLimit": str(RATE_LIMIT)}
    theirs = {
        "kinesis.streamName": "theirs",
        "kinesis.endpointUrl": endpoint,
        "kinesis.region": "us-east-1",
        "kinesis.sink.recordTtl": "600000",
    }
    peer = "JVM connector, its KPL sink"
    speeds = best(
        repeat,
        {peer: count, "kinesis_sdk, df.write": count},
        {
            peer: lambda: rows.write.format("aws-kinesis").options(**theirs).mode("append").save(),
            "kinesis_sdk, df.write": lambda: (
                rows.write.format("kinesis_sdk").options(**ours).mode("append").save()
            ),
        },
    )
    table("write, over TLS", speeds, peer)


def measure(options: argparse.Namespace) -> int:
    import pyspark
    from pyspark.sql import SparkSession

    from kinesis_sdk.testing import start_server_process

    os.environ.update(ACCOUNT)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with (
        tempfile.TemporaryDirectory() as name,
        start_server_process(
            "--no-throttle",
            *("--create-stream", "read:2"),
            *("--create-stream", "ours:8"),
            *("--create-stream", "theirs:8"),
        ) as server,
    ):
        folder = Path(name)
        certificate, key = make_certificate(folder)
        with tls_front(int(server.endpoint_url.rpartition(":")[2]), certificate, key) as port:
            os.environ["AWS_CA_BUNDLE"] = str(certificate)
            kpl = {"port": port, "caCertFile": certificate, "rateLimit": RATE_LIMIT}
            spark = (
                SparkSession.builder.master(f"local[{SLOTS}]")
                .config("spark.jars", options.jar)
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.driver.memory", "2g")
                .config(
                    "spark.driver.extraJavaOptions",
                    " ".join(f"-Dkinesis.producer.{name}={value}" for name, value in kpl.items()),
                )
                .getOrCreate()
            )
            spark.sparkContext.setLogLevel("OFF" if not options.verbose else "WARN")
            print(
                f"Spark {pyspark.__version__}, {SLOTS} slots, {options.rows:,} rows of {PAYLOAD} bytes, "
                f"best of {options.repeat}"
            )
            if "read" in options.only:
                read(spark, server.endpoint_url, options.rows, options.repeat, folder)
            if "write" in options.only:
                write(spark, f"https://127.0.0.1:{port}", options.rows // 2, options.repeat)
            spark.stop()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to read; half of it is written")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=("read", "write"), default=["read", "write"])
    parser.add_argument("--source", help="checkout or git directory of the connector")
    parser.add_argument("--jar", help="the connector's jar, if it is there already")
    parser.add_argument("--verbose", action="store_true", help="show Spark's warnings")
    options = parser.parse_args()
    if importlib.util.find_spec("pyspark") is not None:
        return measure(options)
    sys.path.insert(0, str(ROOT))
    from integration.localstack.install import CannotInstallError
    from integration.spark.environments import CannotRunSparkError, prepare

    if shutil.which("openssl") is None:
        print("skipped: there is no openssl on the PATH, which makes the certificate of the TLS front")
        return 0
    try:
        python, jar = prepare(SPARK), options.jar or build(options.source)
    except (CannotInstallError, CannotRunSparkError) as error:
        print(f"skipped: {error}")
        return 0
    return subprocess.run([str(python), *sys.argv, "--jar", str(jar)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
