"""The example pipeline on a standalone Spark cluster: throughput, CPU per row, memory, exactly once under kills.

    python benchmarks/bench_spark_cluster.py [--shards 1000] [--rows 10000000] [--executors 1,2,4] [--kills 8]

Starts the master and two workers of the pip package, and a fake Kinesis whose stream holds flights of the last hour. Reads the
stream with the pipeline of ``examples/flights_pipeline.py``, once for each number of executors, and compares its result with
the truth. Then reads it again while executors, Python workers, a cluster worker, the source's process and the driver are killed;
a second query of that run accounts for every user record. Everything shares this machine: what does not fit its cores
shows as wall time, not as CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
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

from benchmarks.spark_cluster.processes import PARTS, Child, Sampler, Usage, look  # noqa: E402 — after the path
from kinesis_sdk.testing.accounting.verify import Delivery, Put, account_for  # noqa: E402

ACCOUNT = {"AWS_ACCESS_KEY_ID": "fake", "AWS_SECRET_ACCESS_KEY": "fake", "AWS_DEFAULT_REGION": "us-east-1"}
MIB = 1024 * 1024
VICTIMS = ("executor JVM", "Python worker", "driver JVM", "cluster worker", "source process")
"""What is killed, in turn."""


class Cluster:
    """A master and two workers, and the stream that its jobs read."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        import pyspark

        self._home = Path(pyspark.__file__).parent
        self._folder = folder
        self._options = options
        self._children: dict[str, Child] = {}
        self.sessions: set[int] = set()
        environment = {
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            **ACCOUNT,
        }
        self._environment = environment
        self.stream = self._start(
            "stream",
            [
                sys.executable, "-m", "benchmarks.spark_cluster.stream", str(folder), "--shards", str(options.shards),
                "--rows", str(options.rows), "--rows-per-record", str(options.rows_per_record), "--hours", str(options.hours),
            ],
        )  # fmt: skip
        self.endpoint = self.stream.first_line()
        self.truth: dict[str, Any] = json.loads((folder / "truth.json").read_text())
        spark_class = str(self._home / "bin" / "spark-class")
        ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = self._start("master", [spark_class, "org.apache.spark.deploy.master.Master", *ports])
        self.url = master.wait_for_text("Starting Spark master at").rpartition(" ")[2]
        master.wait_for_text("New state: ALIVE")
        self._worker = [spark_class, "org.apache.spark.deploy.worker.Worker", *ports]
        self._worker += ["--cores", str(-(-max(options.executors) // 2)), "--memory", "8g"]
        for number in range(2):
            self.start_worker(number)

    def _start(self, name: str, command: list[str]) -> Child:
        child = Child(command, self._folder / f"{name}.log", self._environment)
        self._children[name] = child
        self.sessions.add(child.session)
        return child

    def start_worker(self, number: int) -> None:
        """Start a worker, also in place of one that was killed."""
        name = f"worker-{number}"
        (self._folder / f"{name}.log").unlink(missing_ok=True)
        child = self._start(name, [*self._worker, "--work-dir", str(self._folder / name), self.url])
        child.wait_for_text("Successfully registered with master")

    def restart_dead_workers(self) -> None:
        for number in range(2):
            child = self._children[f"worker-{number}"]
            if child.poll() is not None:
                child.kill()  # its executors, too
                self.start_worker(number)

    def submit(self, name: str, folder: Path, executors: int, *, ledger: bool) -> Child:
        options = self._options
        source = {
            "streamName": "flights",
            "endpointUrl": self.endpoint,
            "region": "us-east-1",
            "startingPosition": "TRIM_HORIZON",
            "fetchInterval": "0",
        }
        if options.span:
            source["maxBatchSpan"] = options.span
        conf = {
            "spark.cores.max": str(executors),
            "spark.executor.cores": "1",
            "spark.executor.memory": "1g",
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.streaming.numRecentProgressUpdates": "10000",
            "spark.task.maxFailures": "50",
            "spark.deploy.maxExecutorRetries": "-1",
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            **{f"spark.executorEnv.{key}": value for key, value in ACCOUNT.items()},
        }
        command = [str(self._home / "bin" / "spark-submit"), "--master", self.url]
        for key, value in conf.items():
            command += ["--conf", f"{key}={value}"]
        task = {"options": source, "folder": str(folder), "ledger": ledger}
        return self._start(
            name, [*command, str(ROOT / "benchmarks" / "spark_cluster" / "job.py"), json.dumps(task)]
        )

    def stop(self) -> None:
        for child in reversed(self._children.values()):
            child.kill()


class Run(NamedTuple):
    """A finished job."""

    executors: int
    seconds: float
    batches: list[dict[str, Any]]
    usage: Usage
    kills: list[str]
    submissions: int
    folder: Path


def run_job(cluster: Cluster, folder: Path, executors: int, kills: int = 0, seed: int = 0) -> Run:
    """Run the job until it has read the stream, and submit it again whenever its driver is gone."""
    folder.mkdir()
    rng = Random(seed)
    killed: list[str] = []
    sampler = Sampler(cluster.sessions)
    began = time.monotonic()
    submissions = 1
    job = cluster.submit("job-1", folder, executors, ledger=kills > 0)
    try:
        while True:
            status = job.poll()
            if status == 0 and (folder / "run.json").exists():
                break
            if status is not None:
                if not kills or submissions > 3 * kills:
                    raise RuntimeError(f"the job ended with status {status}; its log ends:\n{job.tail()}")
                job.kill()
                submissions += 1
                job = cluster.submit(f"job-{submissions}", folder, executors, ledger=True)
            cluster.restart_dead_workers()
            batches = len(list((folder / "checkpoint-delays" / "commits").glob("[0-9]*")))
            if len(killed) < kills and batches > len(killed):
                time.sleep(rng.uniform(0.0, 3.0))
                wanted = VICTIMS[len(killed) % len(VICTIMS)]
                # The process that works is the one to kill: a Python worker, and not the daemon that forks them.
                found = [process for process in look(cluster.sessions) if process.part == wanted]
                if found:
                    victim = max(found, key=lambda process: process.cpu)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim.pid, 9)
                        killed.append(wanted)
                        print(
                            f"  {time.monotonic() - began:6.1f} s  batch {batches}: killed {wanted}",
                            flush=True,
                        )
            time.sleep(0.2)
    finally:
        seconds = time.monotonic() - began
        usage = sampler.stop()
        job.kill()
    told = json.loads((folder / "run.json").read_text())
    return Run(
        executors, seconds if kills else told["seconds"], told["batches"], usage, killed, submissions, folder
    )


def check_statistics(run: Run, truth: dict[str, Any]) -> str:
    """Compare the pipeline's result with the truth, group by group."""
    rows = json.loads((run.folder / "statistics.json").read_text())["rows"]
    found = {(week, origin): (flights, mean, late) for week, origin, flights, mean, late in rows}
    wrong = 0
    for week, origin, flights, total, late in truth["statistics"]:
        count, mean, share = found.pop((week, origin), (0, 0.0, 0.0))
        wrong += (
            count != flights or abs(mean * count - total) > 1e-6 * flights or round(share * count) != late
        )
    wrong += len(found)
    if wrong:
        raise RuntimeError(f"{wrong} groups of the pipeline's result are wrong or too many")
    return f"the result's {len(truth['statistics']):,} groups of airport and week are right"


def check_ledger(run: Run, truth: dict[str, Any]) -> str:
    """Account for every Kinesis record, and for the user records of each."""
    puts: dict[int, Put] = {}
    numbers: dict[tuple[str, int], int] = {}
    sizes: list[int] = []
    for number, (place, count) in enumerate(truth["put"].items()):
        shard, sequence = place.split()
        numbers[shard, int(sequence)] = number
        sizes.append(count)
        puts[number] = Put(shard, 0.0, (int(sequence), 0), shard, 1, 0.0)
    deliveries = []
    incomplete = 0
    for path in sorted((run.folder / "ledger").glob("*.json")):
        for shard, sequence, rows, first, last, total in json.loads(path.read_text()):
            number = numbers.get((shard, int(sequence)), -1)
            if number >= 0:
                count = sizes[number]
                incomplete += (rows, first, last, total) != (count, 0, count - 1, count * (count - 1) // 2)
            deliveries.append(Delivery(number, path.stem, shard, (int(sequence), 0), float(path.stem)))
    result = account_for(puts, deliveries, explain=lambda *_: None)
    text = (
        f"{sum(sizes):,} user records in {len(puts):,} Kinesis records: {len(result.lost)} missing, "
        f"{result.duplicates} twice, {len(result.unknown)} unknown, {incomplete} incomplete, {result.out_of_order} out of order"
    )
    if result.lost or result.duplicates or result.unknown or incomplete or result.out_of_order:
        raise RuntimeError(text)
    return text


def print_throughput(runs: list[Run], rows: int, shards: int) -> None:
    parts = [name for _, name in PARTS if name not in {"cluster worker", "master"}]
    head = "".join(f"{part:>16}" for part in parts)
    print(f"\nexecutors   rows/s  seconds  batches   CPU µs a row:{head}   source: ms a shard and batch")
    for run in runs:
        cpu = "".join(f"{run.usage.cpu.get(part, 0.0) / rows * 1e6:16.2f}" for part in parts)
        cost = run.usage.cpu.get("source process", 0.0) / max(1, len(run.batches)) / shards * 1e3
        print(
            f"{run.executors:9} {rows / run.seconds:8,.0f} {run.seconds:8.1f} {len(run.batches):8}                {cpu}{cost:31.2f}"
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

    with tempfile.TemporaryDirectory(prefix="spark-cluster-") as name:
        folder = Path(name)
        began = time.monotonic()
        cluster = Cluster(folder, options)
        try:
            records = len(cluster.truth["put"])
            print(
                f"Spark {pyspark.__version__}, {os.cpu_count()} cores, {options.shards:,} shards, {options.rows:,} rows "
                f"in {records:,} Kinesis records of {options.hours:g} h; ready after {time.monotonic() - began:.0f} s",
                flush=True,
            )
            runs = []
            for executors in options.executors:
                run = run_job(cluster, folder / f"run-{executors}", executors)
                print(
                    f"{executors} executors: {run.seconds:.0f} s; {check_statistics(run, cluster.truth)}",
                    flush=True,
                )
                runs.append(run)
            print_throughput(runs, options.rows, options.shards)
            if runs:
                print_memory(runs[-1], f"{runs[-1].executors} executors")
            if options.kills:
                print(f"\nkills, {max(options.executors)} executors", flush=True)
                run = run_job(cluster, folder / "kills", max(options.executors), options.kills, options.seed)
                print(
                    f"  {run.seconds:.0f} s, {len(run.kills)} kills, {run.submissions} submissions of the job"
                )
                print(f"  {check_statistics(run, cluster.truth)}")
                print(f"  {check_ledger(run, cluster.truth)}")
                print_memory(run, "with kills")
        finally:
            cluster.stop()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spark", default="4.3.0", help="version (default: %(default)s)")
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
        help="numbers of executors, with one core each (default: 1,2,4)",
    )
    parser.add_argument("--kills", type=int, default=8, help="default: %(default)s; 0 for none")
    parser.add_argument(
        "--span", default="5m", help="maxBatchSpan; '' for the source's default (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    options = parser.parse_args()
    if importlib.util.find_spec("pyspark") is not None:
        # A terminated run stops its cluster, too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return measure(options)
    from integration.spark.environments import prepare

    return subprocess.run([str(prepare(options.spark)), *sys.argv], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
