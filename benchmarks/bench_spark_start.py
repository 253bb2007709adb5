"""Spark: CPU time of a query from its start to its first row, by process, beside the floor of any data source in Python.

    python benchmarks/bench_spark_start.py [--repeat 5] [--source CHECKOUT]

Each query reads one record of each of two shards into the sink ``noop`` and ends (AvailableNow), in turns in one warm Spark
session with two slots. The *floor* is a data source in Python that does nothing: it imports nothing, and yields one number for each of
two partitions. AWS Labs' connector for the JVM takes its turns, too, if it can be built (see `jvm_connector`).

The table has the CPU of the whole process tree without the fake AWS, and of its parts: in the first turn, and the median and the
minimum of the others, each line by itself. Workers outlive a query, so their imports are in the first turn only. All queries of the session share them,
also the floor's: what `kinesis_sdk.spark.python_process` saves there, it saves for every source.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench_spark import ACCOUNT, SLOTS, cpu_seconds, timed
from bench_spark_jvm import Jobs
from jvm_connector import CBOR, SPARK, build

ROOT = Path(__file__).parents[1]
TARGET = 1.0
"""Seconds of CPU beyond those of the connector."""

ROLES = {
    "SparkSubmit": "Java",
    "python_streaming_source_runner": "offsets of the stream",
    "lookup_data_sources": "look up the data sources",
    "create_data_source": "create the source",
    "plan_data_source_read": "plan the read",
    "pyspark.daemon": "tasks",
}
"""Names of the parts, by a part of the command line; the first that fits counts."""

REST = "this program"
"""What is left of the whole, with processes that ended before they could be looked at."""


class Processes:
    """CPU of the processes below this one, by their role, while it runs.

    Attributes:
        looking: CPU seconds that looking at them has taken.
    """

    def __init__(self) -> None:
        self.looking: float = 0.0
        self._roles: dict[int, str] = {}
        self._seconds: dict[int, float] = {}
        self._ended = threading.Event()
        self._read()
        self._before = dict(self._seconds)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> Counter[str]:
        """Return the seconds by role."""
        self._ended.set()
        self._thread.join()
        found: Counter[str] = Counter()
        for pid, seconds in self._seconds.items():
            found[self._roles[pid]] += seconds - self._before.get(pid, 0.0)  # type: ignore[assignment]
        return found

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            self._look()
        self._look()

    def _look(self) -> None:
        began = time.thread_time()
        self._read()
        self.looking += time.thread_time() - began

    def _read(self) -> None:
        tick = os.sysconf("SC_CLK_TCK")
        parents: dict[int, int] = {}
        times: dict[int, float] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):  # it has just ended
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    parents[int(entry.name)] = int(fields[1])
                    times[int(entry.name)] = sum(map(int, fields[11:13])) / tick
        family = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= more
        for pid in family & times.keys():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_text()
                role = next((role for module, role in ROLES.items() if module in command), None)
                if role is not None:
                    self._roles[pid], self._seconds[pid] = role, times[pid]


def register_floor(spark: Any) -> None:
    """Register a data source that does what Spark's interface demands, and nothing else."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class NothingReader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802 — Spark's interface
            return {"batch": 0}

        def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802 — Spark's interface
            return {"batch": 1}

        def partitions(self, start: Any, end: Any) -> list[InputPartition]:  # noqa: ARG002 — Spark's interface
            return [InputPartition(number) for number in range(SLOTS)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (partition.value,)

    class Nothing(DataSource):
        @classmethod
        def name(cls) -> str:
            return "nothing"

        def schema(self) -> str:
            return "number INT"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 — Spark's interface
            return NothingReader()

    spark.dataSource.register(Nothing)


def by_process(run: Callable[[], Any]) -> tuple[float, Counter[str]]:
    """Return the CPU seconds of a query, and those of the processes by role."""
    processes, used = Processes(), cpu_seconds()
    try:
        run()
        time.sleep(0.5)  # a process that has answered ends a moment later
    finally:
        seconds = processes.end()
    return cpu_seconds() - used - processes.looking, seconds


def measure(options: argparse.Namespace) -> int:
    import boto3
    from pyspark.sql import SparkSession

    from kinesis_sdk.spark import register
    from kinesis_sdk.testing import start_server_process

    os.environ.update(ACCOUNT)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as name, start_server_process("--create-stream", "few:2") as server:
        client = boto3.client("kinesis", endpoint_url=server.endpoint_url)
        for place in (0, 1 << 127):
            client.put_record(StreamName="few", Data=b"1", PartitionKey="k", ExplicitHashKey=str(place))
        builder = SparkSession.builder.master(f"local[{SLOTS}]")
        if options.jar:
            builder = builder.config("spark.jars", options.jar)
        spark = (
            builder.config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("OFF")
        register(spark)
        register_floor(spark)
        jobs = Jobs(spark, Path(name))
        common = {
            "endpointUrl": server.endpoint_url,
            "region": "us-east-1",
            "startingPosition": "TRIM_HORIZON",
        }
        runs: dict[str, Callable[[], Any]] = {
            "floor": jobs.read("nothing", {}, SLOTS),
            "kinesis_sdk": jobs.read("kinesis_sdk", {"streamName": "few", **common}, 2),
        }
        if options.jar:
            theirs = {f"kinesis.{key}": value for key, value in {"streamName": "few", **common}.items()}
            runs["connector"] = jobs.read("aws-kinesis", {**theirs, "kinesis.kinesisRegion": "us-east-1"}, 2)
        found: dict[str, list[tuple[float, Counter[str]]]] = {kind: [] for kind in runs}
        for turn in range(options.repeat + 1):
            for kind, run in runs.items():
                found[kind].append(timed(partial(by_process, run))[0])
            print(f"turn {turn}", file=sys.stderr, flush=True)
        spark.stop()
    figures = {
        "first turn": lambda costs: costs[0],
        "median": lambda costs: median(costs[1:]),
        "minimum": lambda costs: min(costs[1:]),
    }
    print(f"{'CPU of a query, seconds':28}" + "".join(f"{kind:>33}" for kind in found))
    print(" " * 28 + "".join(f"{name:>11}" for name in figures) * len(found))

    def line(name: str, part: Callable[[tuple[float, Counter[str]]], float]) -> None:
        parts = {kind: [part(cost) for cost in costs] for kind, costs in found.items()}
        cells = (f"{figure(costs):11.2f}" for costs in parts.values() for figure in figures.values())
        print(f"  {name:26}" + "".join(cells))

    line("all", lambda cost: cost[0])
    for role in ROLES.values():
        line(role, lambda cost, role=role: cost[1][role])  # type: ignore[misc]
    line(REST, lambda cost: cost[0] - cost[1].total())
    if options.jar:
        for name in ("median", "minimum"):
            floor, ours, peer = (
                figures[name]([cost for cost, _ in found[kind]])
                for kind in ("floor", "kinesis_sdk", "connector")
            )
            print(
                f"{name} beyond the connector: {ours - peer:.2f} s, target {TARGET} s: {'met' if ours - peer <= TARGET else 'missed'}; "
                f"the floor of any data source in Python is {floor - peer:.2f} s beyond it"
            )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repeat", type=int, default=5, help="turns after the first one (default: %(default)s)"
    )
    parser.add_argument("--source", help="checkout or git directory of the connector")
    parser.add_argument("--jar", help="the connector's jar, if it is there already")
    options = parser.parse_args()
    if importlib.util.find_spec("pyspark") is not None:
        return measure(options)
    sys.path.insert(0, str(ROOT))
    from integration.localstack.install import CannotInstallError
    from integration.spark.environments import CannotRunSparkError, prepare

    jar = options.jar
    if not jar:
        try:
            jar = str(build(options.source))
        except CannotInstallError as error:
            print(f"without the connector: {error}")
    try:
        python = prepare(SPARK, CBOR)
    except CannotRunSparkError as error:
        print(f"skipped: {error}")
        return 0
    more = ["--jar", jar] if jar else []
    # An installed package has bytecode. Without, the process that plans batches compiles this package for each query.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run([str(python), *sys.argv, *more], check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
