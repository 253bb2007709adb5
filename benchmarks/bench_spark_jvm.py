"""Spark: this data source beside the Kinesis connector for the JVM by AWS Labs, on one Spark, by CPU time per row.

    python benchmarks/bench_spark_jvm.py [--rows 1000000] [--repeat 3] [--shards 2 64 1000] [--source CHECKOUT]

Needs Java 17, Maven, git and openssl; builds the connector from its source (see `jvm_connector`), and says why if it
cannot. Both read the same records from the same fake AWS in the same Spark session, without shard
limits, into the sink ``noop``, in turns, after a turn that warms up. CPU is that of the whole process tree (Java, Python,
the KPL's process) without the fake, the best of several turns. Each turn checks the number of rows.

Streams have 2, 64 and 1,000 shards, and hold aggregates or plain records. The session has two slots, or 16 where a stream has
more than two shards, because the connector has a task for each shard, and each waits for 5 s at the tip. With 16 slots it is told to wait
for 1 s, which spares it polls. A turn in which it ends its batch before the stream's end is taken again, and noted. Spark ends Python workers after a
minute without work, and a turn of the connector may take longer. So a small read, which is not measured, precedes ours.

The connector has five columns, and this data source eight unless a schema names fewer; *the same columns* are those five.
The connector cannot read in batches: our batch read is compared with its stream. Its records per shard and batch are
lifted from 100,000 to one batch, which is cheaper for it. Both pause between two calls as they do by default: without pauses,
the connector would poll without end while it waits at the tip.

The *floor* is a data source in Python that repeats one ready Arrow batch of the same rows: what Spark takes to start its
Python processes and to bring rows from Python to the JVM, whatever makes them. It has two tasks, and stands beside streams of two shards.

Writing: the connector's sink takes streams only, so that the rows come from a stream of Parquet files. Both write through a
TLS front (the KPL does not speak plain HTTP), with a rate limit that does not limit. The floor writes nothing.
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

from bench_spark import (
    ACCOUNT,
    MAX_ROWS,
    PAYLOAD,
    SLOTS,
    Speed,
    TryAgainError,
    best,
    fill,
    register_yardsticks,
)
from jvm_connector import CBOR, SPARK, build, reader_options
from tls_front import make_certificate, tls_front

ROOT = Path(__file__).parents[1]
TARGET = 0.7
RATE_LIMIT = 10_000
"""Percent of a shard's limits."""
MANY_SLOTS = 16
"""Slots of the session if a stream has more shards than `SLOTS`."""
FORMS = ("aggregated", "plain")
READING = ("stream", "batch")
PEER = "aws-kinesis"
WAKE = "wake"
"""Stream with a record for each slot, whose read starts the Python workers."""


def table(title: str, speeds: dict[str, Speed], peer: str, ours: tuple[str, ...]) -> None:
    """Print the speeds, and the ratio of each of ours to the connector's."""
    print(f"\n{title:44}     rows/s  CPU µs a row  of the connector's")
    for name, speed in speeds.items():
        print(f"  {name:42} {speed.rows:10,.0f} {speed.cpu:13.2f} {speed.cpu / speeds[peer].cpu:17.2f}x")
    for name in ours:
        ratio = speeds[name].cpu / speeds[peer].cpu
        print(
            f"  {name}: {ratio:.2f}x of the connector's CPU, target {TARGET}x: {'met' if ratio <= TARGET else 'missed'}",
            flush=True,
        )


class Jobs:
    """Queries, each with a checkpoint of its own.

    Args:
        spark: The session.
        folder: For checkpoints.
    """

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark, self._folder, self._checkpoints = spark, folder, 0

    def batch(self, name: str, options: dict[str, str], schema: str = "") -> Callable[[], None]:
        """A batch read into the sink ``noop``."""
        frame = self._spark.read.format(name).options(**options)
        if schema:
            frame = frame.schema(schema)
        return lambda: frame.load().write.format("noop").mode("overwrite").save()

    def stream(
        self,
        name: str,
        source: Callable[[], Any],
        sink: str,
        options: dict[str, str],
        rows: int,
        checkpoint: str = "",
        *,
        may_end_early: bool = False,
    ) -> Callable[[], None]:
        """A query that reads what is there now; it must find so many rows. It begins anew unless it has a checkpoint.

        With ``may_end_early``, a turn that finds fewer rows does not count.
        """

        def run() -> None:
            self._checkpoints += 1
            query = (
                source()
                .writeStream.format(sink)
                .options(**options)
                .option(
                    "checkpointLocation", str(self._folder / (checkpoint or f"query-{self._checkpoints}"))
                )
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            found = sum(progress["numInputRows"] for progress in query.recentProgress)
            if may_end_early and found < rows:
                raise TryAgainError(f"{name} ended its batch after {found:,} of {rows:,} rows")
            assert found == rows, f"{name} read {found:,} rows of {rows:,}"

        return run

    def read(self, name: str, options: dict[str, str], rows: int, schema: str = "") -> Callable[[], None]:
        """A streaming read into the sink ``noop``."""

        def source() -> Any:
            frame = self._spark.readStream.format(name).options(**options)
            return (frame.schema(schema) if schema else frame).load()

        return self.stream(name, source, "noop", {}, rows, may_end_early=name == PEER)


def read(
    spark: Any, jobs: Jobs, endpoint: str, options: argparse.Namespace, shards: int, form: str, slots: int
) -> None:
    """Compare reading of a stream."""
    rows, name = options.rows, stream_name(shards, form)
    records = fill(endpoint, name, rows, shards, plain=form == "plain")
    ours = {
        "streamName": name,
        "endpointUrl": endpoint,
        "region": "us-east-1",
        "startingPosition": "TRIM_HORIZON",
    }
    theirs = reader_options(name, endpoint, wait=1 if slots > SLOTS else 5)
    counted = spark.read.format("kinesis_sdk").options(**ours).load().count()
    assert counted == rows, f"a batch read found {counted:,} rows of {rows:,}"
    ready = rows // SLOTS // MAX_ROWS * MAX_ROWS * SLOTS
    peer, stream, batch = "connector, stream", "kinesis_sdk, stream", "kinesis_sdk, batch"
    same = "data binary, streamName string, partitionKey string, sequenceNumber string, approximateArrivalTimestamp timestamp"
    runs = {
        peer: (rows, jobs.read(PEER, theirs, rows)),
        WAKE: (1, jobs.batch("kinesis_sdk", {**ours, "streamName": WAKE})),
        stream: (rows, jobs.read("kinesis_sdk", ours, rows)),
        f"{stream}, the same columns": (rows, jobs.read("kinesis_sdk", ours, rows, same)),
        "floor, stream": (ready, jobs.read("yardstick", {}, ready)),
        batch: (rows, jobs.batch("kinesis_sdk", ours)),
        f"{batch}, the same columns": (rows, jobs.batch("kinesis_sdk", ours, same)),
        "floor, batch": (ready, jobs.batch("yardstick", {})),
    }
    wanted = [part for part in READING if part in options.only]
    floor = ready and shards <= SLOTS
    runs = {
        name: run
        for name, run in runs.items()
        if name in {peer, WAKE}
        or (any(part in name for part in wanted) and (floor or not name.startswith("floor")))
    }
    speeds = best(
        options.repeat,
        {name: size for name, (size, _) in runs.items()},
        {name: run for name, (_, run) in runs.items()},
    )
    del speeds[WAKE]
    title = f"{shards:,} shards, {rows:,} rows in {records:,} records"
    table(title, speeds, peer, tuple(name for name in speeds if name.startswith("kinesis_sdk")))


def stream_name(shards: int, form: str) -> str:
    return f"read-{shards}-{form}"


def write(spark: Any, jobs: Jobs, endpoint: str, rows: int, repeat: int, folder: Path) -> None:
    """Compare writing."""
    from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

    made = spark.range(0, rows, 1, SLOTS).select(
        F.lpad(F.col("id").cast("string"), PAYLOAD, "0").cast("binary").alias("data"),
        F.concat(F.lit("key-"), F.col("id") % 200).alias("partitionKey"),
    )
    made.write.parquet(str(folder / "rows"))

    def job(sink: str, options: dict[str, str]) -> Callable[[], None]:
        """One query, which finds the rows anew in each turn: the connector starts a KPL for each checkpoint."""
        turns = folder / f"rows-{sink}"
        turns.mkdir()

        def source() -> Any:
            turn = len(list(turns.iterdir()))
            for number, file in enumerate((folder / "rows").glob("*.parquet")):
                os.link(file, turns / f"{turn}-{number}.parquet")
            return spark.readStream.schema(made.schema).parquet(str(turns))

        return jobs.stream(sink, source, sink, options, rows, checkpoint=f"checkpoint-{sink}")

    ours = {
        "streamName": "ours",
        "endpointUrl": endpoint,
        "region": "us-east-1",
        "rateLimit": str(RATE_LIMIT),
    }
    theirs = {
        "kinesis.streamName": "theirs",
        "kinesis.endpointUrl": endpoint,
        "kinesis.region": "us-east-1",
        "kinesis.sink.recordTtl": "600000",
    }
    peer, mine = "connector, its KPL sink", "kinesis_sdk"
    runs = {
        peer: job(PEER, theirs),
        mine: job("kinesis_sdk", ours),
        "floor, the sink noop": job("noop", {}),
    }
    speeds = best(repeat, dict.fromkeys(runs, rows), runs)
    packed = {}
    for stream in ("theirs", "ours"):
        found = {
            deaggregate: spark.read.format("kinesis_sdk")
            .options(streamName=stream, endpointUrl=endpoint, region="us-east-1", deaggregate=deaggregate)
            .load()
            .count()
            for deaggregate in ("true", "false")
        }
        sent = rows * (repeat + 1)
        assert found["true"] >= sent, f"the stream {stream} has {found['true']:,} rows of {sent:,}"
        packed[stream] = found["true"] / found["false"]
    table(f"write {rows:,} rows from Parquet, over TLS", speeds, peer, (mine,))
    print(
        f"  user records a record: {packed['theirs']:,.0f} of the connector, {packed['ours']:,.0f} of kinesis_sdk"
    )


def measure(options: argparse.Namespace) -> int:
    import pyspark
    from pyspark.sql import SparkSession

    from kinesis_sdk.spark import register
    from kinesis_sdk.testing import start_server_process

    os.environ.update(ACCOUNT)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    reading = set(READING) & set(options.only)
    slots = MANY_SLOTS if reading and max(options.shards) > SLOTS else SLOTS
    streams = [(shards, form) for shards in options.shards for form in options.records if reading]
    created = [
        "ours:8",
        "theirs:8",
        f"{WAKE}:{slots}",
        *(f"{stream_name(*stream)}:{stream[0]}" for stream in streams),
    ]
    arguments = [argument for name in created for argument in ("--create-stream", name)]
    with (
        tempfile.TemporaryDirectory() as name,
        start_server_process("--no-throttle", *arguments) as server,
    ):
        folder = Path(name)
        certificate, key = make_certificate(folder)
        with tls_front(int(server.endpoint_url.rpartition(":")[2]), certificate, key) as port:
            os.environ["AWS_CA_BUNDLE"] = str(certificate)
            kpl = {"port": port, "caCertFile": certificate, "rateLimit": RATE_LIMIT}
            spark = (
                SparkSession.builder.master(f"local[{slots}]")
                .config("spark.jars", options.jar)
                .config("spark.sql.files.minPartitionNum", str(SLOTS))
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
                f"Spark {pyspark.__version__}, {slots} slots, {PAYLOAD} bytes a row, best of {options.repeat}"
            )
            jobs = Jobs(spark, folder)
            register(spark)
            register_yardsticks(spark, options.rows)
            fill(server.endpoint_url, WAKE, slots, slots, plain=True)
            for shards, form in streams:
                read(spark, jobs, server.endpoint_url, options, shards, form, slots)
            if "write" in options.only:
                https = f"https://127.0.0.1:{port}"
                write(spark, jobs, https, options.rows // 2, options.repeat, folder)
            spark.stop()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to read; half of it is written")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--shards", type=int, nargs="+", default=[2, 64, 1_000], help="of the streams that are read"
    )
    parser.add_argument("--records", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument(
        "--only",
        nargs="+",
        choices=(*READING, "write"),
        default=[*READING, "write"],
        help="ways to read, beside the connector's stream, and writing (default: all)",
    )
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
        python, jar = prepare(SPARK, CBOR), options.jar or build(options.source)
    except (CannotInstallError, CannotRunSparkError) as error:
        print(f"skipped: {error}")
        return 0
    return subprocess.run([str(python), *sys.argv, "--jar", str(jar)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
