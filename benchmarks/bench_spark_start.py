"""Spark: CPU time of a query from its start to its first row, by process, beside the floor of any data source in Python.

    python benchmarks/bench_spark_start.py [--repeat 5] [--jar CONNECTOR]

Each query reads one record of each of two shards into the sink ``noop`` and ends (AvailableNow), in turns in one warm Spark
session with two slots. The *floor* is a data source in Python that repeats one ready Arrow row. With the jar of AWS Labs' connector
(`bench_spark_jvm` builds it), the connector takes its turns, too.

The first table has the CPU of the whole process tree without the fake AWS, the best of several turns. The second one divides the
best turn of kinesis_sdk among the processes that Spark started for it. Processes are looked at every few milliseconds, and Java has
what is left. Workers outlive a query, so their imports are in the first turn only, which has a column of its own.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_spark import ACCOUNT, SLOTS, cpu_seconds, register_yardsticks
from bench_spark_jvm import Jobs
from jvm_connector import SPARK

ROOT = Path(__file__).parents[1]
TARGET = 1.0
"""Seconds of CPU beyond those of the connector."""

ROLES = {
    "lookup_data_sources": "look up the data sources",
    "create_data_source": "create the source",
    "plan_data_source_read": "plan the read",
    "python_streaming_source_runner": "offsets of the stream",
    "pyspark.daemon": "workers",
}


class Processes:
    """CPU of the Python processes below this one, by their role, while it runs."""

    def __init__(self) -> None:
        self._roles: dict[int, str] = {}
        self._seconds: dict[int, float] = {}
        self._before: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._look()
        self._before = dict(self._seconds)
        self._thread.start()

    def end(self) -> Counter[str]:
        """Return the seconds by role."""
        self._ended.set()
        self._thread.join()
        self._look()
        found: Counter[str] = Counter()
        for pid, seconds in self._seconds.items():
            found[self._roles[pid]] += seconds - self._before.get(pid, 0.0)  # type: ignore[assignment]
        return found

    def _run(self) -> None:
        while not self._ended.wait(0.02):
            self._look()

    def _look(self) -> None:
        tick = os.sysconf("SC_CLK_TCK")
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):  # it has just ended
                    command = (entry / "cmdline").read_text()
                    role = next((role for module, role in ROLES.items() if module in command), None)
                    if role is not None:
                        fields = (entry / "stat").read_text().rpartition(")")[2].split()
                        self._roles[int(entry.name)] = role
                        self._seconds[int(entry.name)] = sum(map(int, fields[11:13])) / tick


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
        register_yardsticks(spark, 0)
        jobs = Jobs(spark, Path(name))
        common = {
            "endpointUrl": server.endpoint_url,
            "region": "us-east-1",
            "startingPosition": "TRIM_HORIZON",
        }
        runs: dict[str, Callable[[], Any]] = {
            "floor": jobs.read("yardstick", {}, SLOTS),
            "kinesis_sdk": jobs.read("kinesis_sdk", {"streamName": "few", **common}, 2),
        }
        if options.jar:
            theirs = {f"kinesis.{key}": value for key, value in {"streamName": "few", **common}.items()}
            runs["connector"] = jobs.read("aws-kinesis", {**theirs, "kinesis.kinesisRegion": "us-east-1"}, 2)
        found: dict[str, list[tuple[float, Counter[str]]]] = {kind: [] for kind in runs}
        for turn in range(options.repeat + 1):
            for kind, run in runs.items():
                processes, used = Processes(), cpu_seconds()
                run()
                time.sleep(0.5)  # a process that has answered ends a moment later
                found[kind].append((cpu_seconds() - used, processes.end()))
            print(f"turn {turn}", file=sys.stderr, flush=True)
        spark.stop()
    print(f"{'CPU of a query, seconds':28}{'first':>8}{'best':>8}")
    for kind, costs in found.items():
        print(f"  {kind:26}{costs[0][0]:8.2f}{min(cost for cost, _ in costs[1:]):8.2f}")
    if options.jar:
        ours, peer = (min(cost for cost, _ in found[kind][1:]) for kind in ("kinesis_sdk", "connector"))
        print(
            f"  beyond the connector: {ours - peer:.2f} s, target {TARGET} s: {'met' if ours - peer <= TARGET else 'missed'}"
        )
    print(f"\n{'of kinesis_sdk':28}{'first':>8}{'best':>8}")
    (first, at_first), (cost, at_best) = (
        found["kinesis_sdk"][0],
        min(found["kinesis_sdk"][1:], key=lambda one: one[0]),
    )
    for role in ROLES.values():
        print(f"  {role:26}{at_first[role]:8.2f}{at_best[role]:8.2f}")
    print(f"  {'Java and this program':26}{first - at_first.total():8.2f}{cost - at_best.total():8.2f}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repeat", type=int, default=5, help="turns after the first one (default: %(default)s)"
    )
    parser.add_argument("--jar", help="jar of AWS Labs' connector")
    options = parser.parse_args()
    if importlib.util.find_spec("pyspark") is not None:
        return measure(options)
    sys.path.insert(0, str(ROOT))
    from integration.spark.environments import CannotRunSparkError, prepare

    try:
        python = prepare(SPARK)
    except CannotRunSparkError as error:
        print(f"skipped: {error}")
        return 0
    return subprocess.run([str(python), *sys.argv], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
