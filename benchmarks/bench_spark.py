"""Spark: reading against what Spark's Arrow transport can carry, writing against an empty writer and against boto3.

    python benchmarks/bench_spark.py [--spark 4.3.0] [--rows 2000000]

Everything in one run on this machine: the fake AWS in a process of its own without shard limits, Spark with two slots.
The ratios are what counts; the fake shares the machine's cores. Best of ``--repeat`` runs each, taking turns.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

ROOT = Path(__file__).parents[1]
ACCOUNT = {"AWS_ACCESS_KEY_ID": "fake", "AWS_SECRET_ACCESS_KEY": "fake", "AWS_DEFAULT_REGION": "us-east-1"}
SLOTS = 2
PAYLOAD = 100
MAX_ROWS = 32_768
TARGET_READ, TARGET_WRITE = 0.35, 5.0
SERVERS = ("kinesis_sdk.testing", "tls_front.py")
"""Parts of the command lines of processes that stand for AWS."""


def fill(endpoint: str, stream: str, rows: int, shards: int = 2, *, plain: bool = False) -> int:
    """Put 100-byte rows evenly over the shards, aggregated or as plain records; returns the Kinesis records."""
    import boto3

    from kinesis_sdk.common.aggregate_reader import Aggregate
    from kinesis_sdk.common.hashkeys import hash_partition_key

    client = boto3.client("kinesis", endpoint_url=endpoint)
    keys = [f"key-{number}" for number in range(200)]
    hashes = {key: hash_partition_key(key) for key in keys}

    def record(first: int) -> tuple[str, bytes, int]:
        """Return key and data of a record whose first row has this number, and the number of the next one."""
        if plain:
            return keys[first % len(keys)], b"%0*d" % (PAYLOAD, first), first + 1
        aggregate, number = Aggregate(51_200, 1 << 40), first
        while number < rows:
            key = keys[number % len(keys)]
            if not aggregate.try_append(key, None, b"%0*d" % (PAYLOAD, number), hashes[key]):
                break
            number += 1
        return "a", aggregate.encode(), number

    entries: list[dict[str, Any]] = []
    count = done = 0
    while done < rows:
        key, data, done = record(done)
        place = str((count % shards << 128) // shards + 1)
        entries.append({"Data": data, "PartitionKey": key, "ExplicitHashKey": place})
        count += 1
        if len(entries) == (500 if plain else 90) or done == rows:
            assert not client.put_records(StreamName=stream, Records=entries)["FailedRecordCount"]
            entries = []
    return count


def register_yardsticks(spark: Any, rows: int) -> None:
    """Readers that repeat one ready Arrow batch with our schema, and a writer that only counts."""
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
        WriterCommitMessage,
    )

    from kinesis_sdk.spark.columns import DDL

    class CeilingReader(DataSourceReader):
        def __init__(self, batches: int) -> None:
            self.batches = batches

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(SLOTS)]

        def read(self, _partition: InputPartition) -> Iterator[Any]:
            from datetime import datetime, timezone

            from kinesis_sdk.common.aggregate_reader import Aggregate
            from kinesis_sdk.common.hashkeys import hash_partition_key
            from kinesis_sdk.common.records import KinesisRecord
            from kinesis_sdk.spark.arrow import BatchBuilder

            aggregate = Aggregate(1 << 30, MAX_ROWS)
            for number in range(MAX_ROWS):
                key = f"key-{number % 200}"
                assert aggregate.try_append(key, None, b"%0*d" % (PAYLOAD, number), hash_partition_key(key))
            record = KinesisRecord(aggregate.encode(), "a", "4" * 56, datetime.now(timezone.utc))
            (batch,) = BatchBuilder("yardstick", deaggregate=True).build("shardId-000000000000", [record])
            for _ in range(self.batches):
                yield batch
            if not self.batches:
                yield batch.slice(0, 1)

    class CeilingStreamReader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802 — Spark's interface
            return {"batch": 0}

        def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802 — Spark's interface
            return {"batch": 1}

        def partitions(self, start: Any, end: Any) -> list[InputPartition]:  # noqa: ARG002 — Spark's interface
            return CeilingReader(0).partitions()

        def read(self, partition: InputPartition) -> Iterator[Any]:
            return CeilingReader(rows // SLOTS // MAX_ROWS).read(partition)

    class EmptyWriter(DataSourceArrowWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Yardstick(DataSource):
        @classmethod
        def name(cls) -> str:
            return "yardstick"

        def schema(self) -> str:
            return DDL

        def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 — Spark's interface
            small = self.options.get("small") == "true"
            return CeilingReader(0 if small else rows // SLOTS // MAX_ROWS)

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 — Spark's interface
            return CeilingStreamReader()

        def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002 — Spark's interface
            return EmptyWriter()

    spark.dataSource.register(Yardstick)


def boto3_sender(endpoint: str, stream: str) -> Callable[[Any], None]:
    """What people write by hand: 500 records a call, failed ones again."""

    def send(rows: Any) -> None:
        import boto3

        client = boto3.client("kinesis", endpoint_url=endpoint)

        def put(entries: list[dict[str, Any]]) -> None:
            while entries:
                answer = client.put_records(StreamName=stream, Records=entries)
                if not answer["FailedRecordCount"]:
                    return
                entries = [e for e, r in zip(entries, answer["Records"], strict=True) if "ErrorCode" in r]

        entries: list[dict[str, Any]] = []
        for row in rows:
            entries.append({"Data": bytes(row.data), "PartitionKey": row.partitionKey})
            if len(entries) == 500:
                put(entries)
                entries = []
        put(entries)

    return send


_seen: dict[tuple[int, str], float] = {}
"""CPU seconds of workers of PySpark's daemon when last seen, by process id and start."""


def cpu_seconds() -> float:
    """CPU time of this process and all its descendants but the servers: the JVM, its Python processes, ended ones too.

    The time of an ended process is part of its parent's, unless the parent is PySpark's daemon, which ignores the end of its workers.
    """
    # A process may end during a scan, as one does with each query, and then be in both times or in neither. So the processes are the same
    # before, in and after the scan that counts.
    scans = [_scan(), _scan(), _scan()]
    while not scans[0][1].keys() == scans[1][1].keys() == scans[2][1].keys():
        scans = [*scans[1:], _scan()]
    workers, times = scans[1]
    _seen.update(workers)
    return sum(times.values()) + sum(_seen[one] for one in _seen.keys() - workers.keys())


def _scan() -> tuple[dict[tuple[int, str], float], dict[int, float]]:
    """Return the CPU time of the workers of PySpark's daemon, and of all processes."""
    times: dict[int, float] = {}
    parents: dict[int, int] = {}
    starts: dict[int, str] = {}
    daemons: set[int] = set()
    tick = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has just ended
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_text()
                if not any(server in command for server in SERVERS):
                    pid = int(entry.name)
                    parents[pid], starts[pid] = int(fields[1]), fields[19]
                    times[pid] = sum(map(int, fields[11:15])) / tick
                    if "pyspark.daemon" in command:
                        daemons.add(pid)
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    workers = {(pid, starts[pid]): times[pid] for pid in family if parents[pid] in daemons}
    return workers, {pid: times[pid] for pid in family}


Result = TypeVar("Result")
_STARTS = 5


class TryAgainError(Exception):
    """A job that did not do its work because the machine is busy."""


def timed(run: Callable[[], Result]) -> tuple[Result, float, float]:
    """Return the result of a job, its seconds and its CPU seconds.

    It runs again if it raises `TryAgainError`, or if Spark gave it up because the machine is busy: a new Python process has ten
    seconds to connect.
    """
    for left in reversed(range(_STARTS)):
        began, used = time.perf_counter(), cpu_seconds()
        try:
            result = run()
        except Exception as error:
            if not left or not (isinstance(error, TryAgainError) or "connect back" in str(error)):
                raise
            sys.stderr.write(f"again: {str(error).splitlines()[0]}\n")
            continue
        return result, time.perf_counter() - began, cpu_seconds() - used
    raise AssertionError


class Speed(NamedTuple):
    """Rows per second, and CPU microseconds of Spark's processes per row; the best of several runs each."""

    rows: float
    cpu: float


def best(repeat: int, rows: dict[str, int], runs: dict[str, Callable[[], object]]) -> dict[str, Speed]:
    """The best of several turns; the first turn warms up."""
    found: dict[str, list[Speed]] = {name: [] for name in runs}
    for turn in range(repeat + 1):
        for name, run in runs.items():
            _, elapsed, used = timed(run)
            if turn:
                found[name].append(Speed(rows[name] / elapsed, used / rows[name] * 1e6))
    return {
        name: Speed(max(speed.rows for speed in speeds), min(speed.cpu for speed in speeds))
        for name, speeds in found.items()
    }


def measure(options: argparse.Namespace) -> int:
    import pyspark
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

    from kinesis_sdk.producer import ProducerConfig
    from kinesis_sdk.spark import KinesisPartitionWriter, ProducerSettings
    from kinesis_sdk.testing import start_server_process

    os.environ.update(ACCOUNT)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with start_server_process(
        "--no-throttle",
        "--create-stream",
        "read:2",
        "--create-stream",
        "small:2",
        "--create-stream",
        "write:8",
        "--create-stream",
        "hand:8",
    ) as server:
        spark = (
            SparkSession.builder.master(f"local[{SLOTS}]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "2g")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("OFF")
        records = fill(server.endpoint_url, "read", options.rows)
        fill(server.endpoint_url, "small", SLOTS)
        register_yardsticks(spark, options.rows)
        where = {"endpointUrl": server.endpoint_url, "region": "us-east-1"}

        def read(name: str, **more: str) -> Callable[[], object]:
            frame = spark.read.format(name).options(**more)
            return lambda: frame.load().write.format("noop").mode("overwrite").save()

        ours = {"streamName": "read", "fetchInterval": "0", **where}
        whole = options.rows // SLOTS // MAX_ROWS * MAX_ROWS * SLOTS
        reading = best(
            options.repeat,
            {"ceiling": whole, "ours": options.rows, "small ceiling": 1, "small": 1},
            {
                "ceiling": read("yardstick"),
                "ours": read("kinesis_sdk", **ours),
                "small ceiling": read("yardstick", small="true"),
                "small": read("kinesis_sdk", **{**ours, "streamName": "small"}),
            },
        )
        print(f"Spark {pyspark.__version__}, {SLOTS} slots, {options.rows:,} rows of {PAYLOAD} bytes")
        print(
            f"\nread ({options.rows / records:,.0f} user records in a Kinesis record)      rows/s   per slot  CPU µs a row"
        )
        for name, label in (("ceiling", "Arrow transport ceiling"), ("ours", "kinesis_sdk")):
            speed = reading[name]
            print(f"  {label:33} {speed.rows:12,.0f} {speed.rows / SLOTS:10,.0f} {speed.cpu:13.2f}")
        print(
            f"  ratio {reading['ours'].rows / reading['ceiling'].rows:.0%} (target {TARGET_READ:.0%}), "
            f"of CPU time {reading['ceiling'].cpu / reading['ours'].cpu:.0%}; a job of one record takes "
            f"{1 / reading['small'].rows:.2f} s, at the ceiling {1 / reading['small ceiling'].rows:.2f} s"
        )

        count = options.rows // 2
        rows = (
            spark.range(0, count, 1, SLOTS)
            .select(
                F.lpad(F.col("id").cast("string"), PAYLOAD, "0").cast("binary").alias("data"),
                F.concat(F.lit("key-"), F.col("id") % 200).alias("partitionKey"),
            )
            .persist()
        )
        rows.count()
        by_hand = rows.limit(count // 4).repartition(SLOTS).persist()
        by_hand.count()
        sink = {"streamName": "write", "rateLimit": "10000", **where}
        settings = ProducerSettings(
            config=ProducerConfig(rate_limit=10_000, max_connections=8, record_max_buffered_time=0.5),
            region_name="us-east-1",
            endpoint_url=server.endpoint_url,
        )
        helper = KinesisPartitionWriter("write", partition_key="partitionKey", data="data", settings=settings)
        sender = boto3_sender(server.endpoint_url, "hand")
        writing = best(
            options.repeat,
            {"empty": count, "ours": count, "helper": count, "boto3": count // 4},
            {
                "empty": lambda: rows.write.format("yardstick").mode("append").save(),
                "ours": lambda: rows.write.format("kinesis_sdk").options(**sink).mode("append").save(),
                "helper": lambda: rows.foreachPartition(helper),
                "boto3": lambda: by_hand.foreachPartition(sender),
            },
        )
        print(
            "\nwrite                                     rows/s   per slot  of boto3  CPU µs a row  of boto3"
        )
        floor = writing["boto3"]
        for name, label in (
            ("empty", "empty Arrow writer"),
            ("ours", "kinesis_sdk, df.write"),
            ("helper", "kinesis_sdk, foreachPartition"),
            ("boto3", "boto3 in foreachPartition"),
        ):
            speed = writing[name]
            print(
                f"  {label:33} {speed.rows:12,.0f} {speed.rows / SLOTS:10,.0f} {speed.rows / floor.rows:8.1f}x "
                f"{speed.cpu:13.2f} {floor.cpu / speed.cpu:8.1f}x"
            )
        print(
            f"  df.write: {writing['ours'].rows / floor.rows:.1f}x boto3 (target {TARGET_WRITE:.0f}x), "
            f"{writing['ours'].rows / writing['empty'].rows:.0%} of the empty writer"
        )
        spark.stop()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spark", default="4.3.0", help="version (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows to read; half of it is written")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    if importlib.util.find_spec("pyspark") is not None:
        return measure(options)
    sys.path.insert(0, str(ROOT))
    from integration.spark.environments import prepare

    return subprocess.run([str(prepare(options.spark)), *sys.argv], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
