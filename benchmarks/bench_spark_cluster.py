"""The example pipeline on a standalone Spark cluster: throughput, CPU per row, memory, exactly once under kills.

    python benchmarks/bench_spark_cluster.py [--shards 1000] [--rows 10000000] [--executors 1,2,4] [--cores 1] [--kills 8]
        [--only read connector kills]

Starts the master and two workers of the pip package, and a fake Kinesis whose stream holds flights of the last hour.

* **read** reads the stream with the pipeline of ``examples/flights_pipeline.py``, once for each number of executors, and compares
  its result with the truth.
* **connector** does the same by AWS Labs' connector for the JVM and ``from_json``, on the Spark version of the connector, beside ours. It builds the connector
  from its source (see `jvm_connector`), and is left out where that is not possible. It has a task for each shard, and each task waits for more than a second
  at the tip. So give the executors more ``--cores`` than the machine has, for instance 8.
* **kills** reads again while executors, Python workers, a cluster worker, the source's process and the driver are killed, with speculation
  on; a second query accounts for every user record. If the connector takes part, only executors are killed, of both.
* **writes** copies a smaller stream, each row with a name, while parts of the cluster are killed at each step of a write, with speculation on, without and with
  ``reconcile``; then it says what readers find (see `spark_cluster.writing`).

Everything shares this machine: what does not fit its cores shows as wall time, not as CPU time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.spark_cluster.cluster import SPECULATING, Cluster, Job  # noqa: E402
from benchmarks.spark_cluster.processes import PARTS, Sampler, Usage  # noqa: E402 — after the path
from kinesis_sdk.testing.accounting.verify import Delivery, Put, account_for  # noqa: E402

MIB = 1024 * 1024
ALL = ("read", "connector", "kills", "writes")
WRITES = ("names", "reconcile")
VICTIMS = ("executor JVM", "Python worker", "driver JVM", "cluster worker", "source process")
"""What is killed, in turn."""


class Run(NamedTuple):
    """A finished job."""

    name: str
    executors: int
    seconds: float
    batches: list[dict[str, Any]]
    usage: Usage
    kills: list[str]
    submissions: int
    folder: Path


def run_job(
    cluster: Cluster,
    folder: Path,
    executors: int,
    options: argparse.Namespace,
    *,
    kills: int = 0,
    connector: bool = False,
) -> Run:
    """Run the job until it has read the stream, and submit it again whenever its driver is gone."""
    folder.mkdir()
    rng = Random(options.seed)
    killed: list[str] = []
    sampler = Sampler(cluster.sessions)
    began = time.monotonic()
    conf = {"spark.jars": options.jar} if connector else {}
    if kills:
        conf |= SPECULATING
    task = {
        "options": theirs(cluster) if connector else ours(cluster, options),
        "folder": str(folder),
        "ledger": kills > 0,
        "connector": connector,
    }
    job = Job(
        cluster,
        f"job-{folder.name}",
        "job.py",
        task,
        executors,
        done=folder / "run.json",
        again=3 * kills + 2,
        conf=conf,
    )
    victims = VICTIMS[:1] if options.jar and "connector" in options.only else VICTIMS
    ready = began + options.kill_pause
    try:
        while not job.has_ended():
            batches = len(list((folder / "checkpoint-delays" / "commits").glob("[0-9]*")))
            due = batches > len(killed) if reads_in_batches() and not connector else time.monotonic() > ready
            if len(killed) < kills and due:
                time.sleep(rng.uniform(0.0, 3.0))
                wanted = victims[len(killed) % len(victims)]
                if cluster.kill(wanted):
                    killed.append(wanted)
                    ready = time.monotonic() + options.kill_pause
                    print(
                        f"  {time.monotonic() - began:6.1f} s  batch {batches}: killed {wanted}", flush=True
                    )
            time.sleep(0.2)
    finally:
        seconds = time.monotonic() - began
        usage = sampler.stop()
        job.kill()
    told = json.loads((folder / "run.json").read_text())
    seconds = seconds if kills else told["seconds"]
    name = "connector" if connector else "kinesis_sdk"
    return Run(name, executors, seconds, told["batches"], usage, killed, job.submissions, folder)


def reads_in_batches() -> bool:
    """Return whether this Spark runs AvailableNow in several batches. Before 4.2 it runs one, which therefore must not be limited."""
    import pyspark

    return tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)


def ours(cluster: Cluster, options: argparse.Namespace) -> dict[str, str]:
    """Return options of this data source."""
    chosen = {"maxBatchSpan": options.span} if options.span and reads_in_batches() else {}
    return cluster.source("flights", fetchInterval="0", **chosen)


def theirs(cluster: Cluster) -> dict[str, str]:
    """Return options of the connector, which waits at the tip of each shard for a second instead of five."""
    from jvm_connector import reader_options

    return reader_options("flights", cluster.endpoint, wait=1)


def check_statistics(run: Run, truth: dict[str, Any]) -> str:
    """Compare the pipeline's result with the truth, group by group. A wrong result of ours is an error, one of the connector is reported."""
    told = run.folder / "statistics.json"
    rows = json.loads(told.read_text())["rows"] if told.exists() else []
    found = {(week, origin): (flights, mean, late) for week, origin, flights, mean, late in rows}
    wrong = 0
    for week, origin, flights, total, late in truth["statistics"]:
        count, mean, share = found.pop((week, origin), (0, 0.0, 0.0))
        wrong += (
            count != flights or abs(mean * count - total) > 1e-6 * flights or round(share * count) != late
        )
    wrong += len(found)
    if wrong:
        text = f"{wrong} groups of the pipeline's result are wrong or too many"
        if run.name == "connector":
            return f"NOT right: {text}"
        raise RuntimeError(text)
    return f"the result's {len(truth['statistics']):,} groups of airport and week are right"


def check_ledger(run: Run, truth: dict[str, Any]) -> str:
    """Account for every Kinesis record, and for the user records of each. The connector does not say which user records it has."""
    puts: dict[int, Put] = {}
    numbers: dict[int, int] = {}
    sizes: list[int] = []
    for number, (place, count) in enumerate(truth["put"].items()):
        shard, sequence = place.split()
        numbers[int(sequence)] = number
        sizes.append(count)
        puts[number] = Put(shard, 0.0, (int(sequence), 0), shard, 1, 0.0)
    deliveries = []
    incomplete = 0
    for path in sorted((run.folder / "ledger").glob("*.json")):
        for sequence, rows, *subs in json.loads(path.read_text()):
            number = numbers.get(int(sequence), -1)
            if number >= 0:
                count = sizes[number]
                whole = [0, count - 1, count * (count - 1) // 2]
                incomplete += rows != count or (subs[0] is not None and subs != whole)
                shard = puts[number].shard_id
                deliveries.append(Delivery(number, path.stem, shard, (int(sequence), 0), float(path.stem)))
    result = account_for(puts, deliveries, explain=lambda *_: None)
    text = (
        f"{sum(sizes):,} user records in {len(puts):,} Kinesis records: {len(result.lost)} missing, "
        f"{result.duplicates} twice, {len(result.unknown)} unknown, {incomplete} incomplete, {result.out_of_order} out of order"
    )
    if result.lost or result.duplicates or result.unknown or incomplete or result.out_of_order:
        if run.name == "connector":
            return f"NOT exactly once: {text}"
        raise RuntimeError(text)
    return text


def print_throughput(runs: list[Run], rows: int, shards: int) -> None:
    parts = [name for _, name in PARTS if name not in {"cluster worker", "master"}]
    totals: dict[tuple[int, str], tuple[float, float]] = {}
    head = "".join(f"{part:>16}" for part in (*parts, "all but fake"))
    print(
        f"\nexecutors              rows/s  seconds  batches   CPU µs a row:{head}   source: ms a shard and batch"
    )
    for run in runs:
        spent = {part: run.usage.cpu.get(part, 0.0) for part in parts}
        spent["all but fake"] = sum(spent.values()) - spent["fake Kinesis"]
        cpu = "".join(f"{seconds / rows * 1e6:16.2f}" for seconds in spent.values())
        cost = spent["source process"] / max(1, len(run.batches)) / shards * 1e3
        print(
            f"{run.executors:3} {run.name:12} {rows / run.seconds:11,.0f} {run.seconds:8.1f} {len(run.batches):8}                {cpu}{cost:31.2f}"
        )
        totals[run.executors, run.name] = spent["all but fake"], run.seconds
    for (executors, name), (cpu_seconds, seconds) in totals.items():
        peer = totals.get((executors, "connector"))
        if peer and name != "connector":
            print(
                f"{executors:3} {name}: {cpu_seconds / peer[0]:.2f}x of the connector's CPU, {seconds / peer[1]:.2f}x of its time"
            )


def print_memory(run: Run, what: str) -> None:
    """Print the largest resident size of each part by quarter of the run."""
    print(f"\nMiB of the largest process, {what}   1st quarter       2nd       3rd       4th   4th/2nd")
    for _, part in PARTS:
        samples = run.usage.memory.get(part, [])
        if samples:
            end = max(at for at, _ in samples) + 1e-9
            peaks = [0] * 4
            for at, resident in samples:
                quarter = int(at / end * 4)
                peaks[quarter] = max(peaks[quarter], resident)
            growth = f"{peaks[3] / peaks[1]:10.2f}" if peaks[1] else ""
            print(f"  {part:40}" + "".join(f"{peak / MIB:10,.0f}" for peak in peaks) + growth)


def measure(options: argparse.Namespace) -> int:
    import pyspark

    from benchmarks.spark_cluster.writing import write_under_kills

    if options.only == ["writes"]:
        options.rows, options.shards = 0, 1
    if "writes" not in options.only:
        options.write_rows = 0
    kinds = [False, True] if options.jar and "connector" in options.only else [False]
    with tempfile.TemporaryDirectory(prefix="spark-cluster-") as name:
        folder = Path(name)
        began = time.monotonic()
        cluster = Cluster(folder, options)
        try:
            truth = cluster.truth
            print(
                f"\nSpark {pyspark.__version__}, {os.cpu_count()} cores, ready after {time.monotonic() - began:.0f} s",
                flush=True,
            )
            if options.rows:
                print(
                    f"{options.shards:,} shards, {options.rows:,} rows in {len(truth['put']):,} Kinesis records of {options.hours:g} h",
                    flush=True,
                )
            runs = []
            for executors in options.executors if "read" in options.only else ():
                for connector in kinds:
                    run = run_job(
                        cluster,
                        folder / f"run-{executors}-{connector}",
                        executors,
                        options,
                        connector=connector,
                    )
                    print(
                        f"{executors} executors, {run.name}: {run.seconds:.0f} s, {run.submissions} submissions; {check_statistics(run, truth)}",
                        flush=True,
                    )
                    runs.append(run)
            if runs:
                print_throughput(runs, options.rows, options.shards)
                last = [run for run in runs if run.name == "kinesis_sdk"][-1]
                print_memory(last, f"{last.executors} executors")
            most = max(options.executors)
            runs = []
            for connector in kinds if options.kills and "kills" in options.only else ():
                print(
                    f"\nkills, {most} executors, speculation, {'connector' if connector else 'kinesis_sdk'}",
                    flush=True,
                )
                run = run_job(
                    cluster,
                    folder / f"kills-{connector}",
                    most,
                    options,
                    kills=options.kills,
                    connector=connector,
                )
                print(
                    f"  {run.seconds:.0f} s, {len(run.kills)} kills, {run.submissions} submissions of the job"
                )
                runs.append(run)
                print(f"  {check_statistics(run, truth)}")
                print(f"  {check_ledger(run, truth)}")
                print_memory(run, "with kills")
            if runs:
                print_throughput(runs, options.rows, options.shards)
            if "writes" in options.only:
                write_under_kills(cluster, folder, most, options.writes)
        finally:
            cluster.stop()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--spark", help="version (default: the one of the connector if it takes part, else 4.3.0)"
    )
    parser.add_argument("--shards", type=int, default=1_000, help="default: %(default)s")
    parser.add_argument("--rows", type=int, default=10_000_000, help="user records (default: %(default)s)")
    parser.add_argument(
        "--rows-per-record", type=int, default=167, help="of an aggregate (default: %(default)s)"
    )
    parser.add_argument("--hours", type=float, default=1.0, help="stream time (default: %(default)s)")
    parser.add_argument(
        "--executors",
        type=lambda text: [int(part) for part in text.split(",") if part],
        default=[1, 2, 4],
        help="numbers of executors (default: 1,2,4)",
    )
    parser.add_argument("--cores", type=int, default=1, help="of each executor (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=8, help="default: %(default)s; 0 for none")
    parser.add_argument(
        "--kill-pause",
        type=float,
        default=30.0,
        help="seconds before each kill of a job that reads everything in one batch (default: %(default)s)",
    )
    parser.add_argument(
        "--span", default="5m", help="maxBatchSpan; '' for the source's default (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    parser.add_argument(
        "--write-rows",
        type=int,
        default=200_000,
        help="rows that are copied under kills (default: %(default)s)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=ALL,
        default=[part for part in ALL if part != "connector"],
        help="parts of the run (default: all but the connector)",
    )
    parser.add_argument(
        "--writes",
        nargs="+",
        choices=WRITES,
        default=list(WRITES),
        help="with names only, and with reconcile in addition (default: both)",
    )
    parser.add_argument("--source", help="checkout or git directory of the connector")
    parser.add_argument("--jar", help="the connector's jar, if it is there already")
    options = parser.parse_args()
    if importlib.util.find_spec("pyspark") is not None:
        # A terminated run stops its cluster, too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return measure(options)
    sys.path.insert(0, str(Path(__file__).parent))
    from jvm_connector import CBOR, SPARK, build

    from integration.localstack.install import CannotInstallError
    from integration.spark.environments import NEWEST, CannotRunSparkError, prepare

    reading = [part for part in options.only if part != "writes"]
    jar = options.jar
    if "connector" in reading and not jar:
        try:
            jar = str(build(options.source))
        except CannotInstallError as error:
            print(f"without the connector: {error}", flush=True)
    newest = options.spark or NEWEST
    runs = [(options.spark or SPARK if jar else newest, reading)] if reading else []
    if "writes" in options.only:  # only the newest version reads a backlog in several batches
        runs.append((newest, ["writes"]))
    for version, parts in runs:
        try:
            python = prepare(version, *([CBOR] if version == SPARK else []))
        except CannotRunSparkError as error:
            print(f"skipped: {error}")
            return 0
        more = ["--only", *parts, *(["--jar", jar] if jar else [])]
        if status := subprocess.run([str(python), *sys.argv, *more], check=False).returncode:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
