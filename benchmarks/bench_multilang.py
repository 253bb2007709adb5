"""`kinesis-sdk multilang` compared with the real MultiLangDaemon, with the same child and the same properties file.

    python benchmarks/bench_multilang.py [--only large small times] [--kinds java ours inside] [--records 800000]

Needs Java 17 and npm (see `integration/java`): KCL 3.1.3. Child of both daemons is ``integration/java/child.py`` on
amazon_kclpy; *in process* is the same processor with ``--in-process``, without a child. All use the fake Kinesis and the fake
DynamoDB of this package, whose CPU time does not count.

**large**: two shards, aggregates of 400 records of 100 bytes, 20,000 user records a batch. **small**: two shards, 100
plain records of 100 bytes a batch. Each batch is checkpointed. CPU is from ``/proc``, per user record: of the daemon, of its
children, and of both; *all* counts from the start of the process, *warm* is the second half of the records. *Memory* is the resident
set at the end. The pause between two reads is 200 ms, the KCL's minimum; all other settings are defaults.

**times**: two daemons on four shards, a record into each shard four times a second. The leases exist. The first starts; the
second joins and gets a share; then the second gets SIGTERM, and in a fleet of its own SIGKILL. *First record* is from the start
of the process, *takes over* from the signal until the first daemon has delivered from each of the second one's shards. The
properties file has no ``shutdownGraceMillis``, so each daemon has its default: 0 in Java.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench_java import (  # noqa: E402
    COST_SHARDS,
    SIZE,
    TIMES_SHARDS,
    Drip,
    Fleet,
    cpu_of,
    fill,
    make_leases,
    memory_of,
)

from integration.java.processes import Stage, WorkerProcess, open_stage  # noqa: E402
from integration.localstack.server import family  # noqa: E402

NAMES = {"java": "Java daemon 3.1.3", "ours": "kinesis-sdk multilang", "inside": "the same, in process"}
SMALL_BATCH = 100


def own_cpu(pid: int) -> float:
    """Return the CPU seconds of a process without its descendants."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_memory(pid: int) -> float:
    """Return the resident megabytes of a process without its descendants."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def start(
    stage: Stage,
    kind: str,
    name: str,
    stream: str,
    application: str,
    properties: Mapping[str, object],
    *,
    count_only: bool = False,
) -> WorkerProcess:
    """Run a daemon of a kind with its defaults and the properties."""
    child = stage.child(name, application, count_only=count_only)
    arguments: Sequence[str] = ()
    if kind == "inside":
        os.environ["BENCH_OPTIONS"] = str(child.with_suffix(".json"))
        arguments = ("--in-process", "benchmarks.multilang_processor:Processor")
    return stage.start_daemon(
        name,
        stream,
        application,
        child,
        ours=kind != "java",
        properties=properties,
        jvm=(),
        grace_millis=None,
        arguments=arguments,
    )


# Costs


def fill_plain(stage: Stage, stream: str, records: int) -> int:
    """Put plain records into both shards; returns their number."""
    stage.kinesis.create_stream(StreamName=stream, ShardCount=COST_SHARDS)
    count = 0
    for shard in stage.kinesis.list_shards(StreamName=stream)["Shards"]:
        place = shard["HashKeyRange"]["StartingHashKey"]
        for _ in range(records // COST_SHARDS // SMALL_BATCH):
            entries = [
                {"Data": os.urandom(SIZE), "PartitionKey": f"customer-{number:04d}", "ExplicitHashKey": place}
                for number in range(SMALL_BATCH)
            ]
            assert stage.kinesis.put_records(StreamName=stream, Records=entries)["FailedRecordCount"] == 0
            count += SMALL_BATCH
    return count


def measure(worker: WorkerProcess, records: int) -> dict[str, float]:
    """Return CPU µs per record and memory of a daemon that reads a whole stream."""
    pid = worker.process.pid
    marks = [(0, 0.0, 0.0)]
    while marks[-1][0] < records:
        time.sleep(0.02)
        assert worker.process.is_running, worker.process.tail()
        batches = worker.events("counted")
        done = sum(batch["count"] for batch in batches)
        if done > marks[-1][0]:
            marks.append((done, own_cpu(pid), cpu_of(pid)))
    assert done == records
    assert sum(batch["size"] for batch in batches) == records * SIZE
    half = next(mark for mark in marks if mark[0] >= records / 2)
    end = marks[-1]
    daemon, both = ((end[column] - half[column]) / (end[0] - half[0]) * 1e6 for column in (1, 2))
    return {
        "CPU µs per record, warm: daemon": daemon,
        "CPU µs per record, warm: children": both - daemon,
        "CPU µs per record, warm: both": both,
        "CPU µs per record, all: both": end[2] / records * 1e6,
        "memory of the daemon, MB": own_memory(pid),
        "memory with its children, MB": memory_of(pid),
        "processes": 1 + len(family(pid)),
        "user records per batch": records / len(batches),
    }


def cost(stage: Stage, name: str, count: int, kinds: Sequence[str], max_records: int) -> None:
    """Print the costs of all kinds on a stream."""
    found: dict[str, dict[str, float]] = {}
    for kind in kinds:
        application = f"{name}-{kind}"
        # Otherwise the Java worker needs two minutes to create its own.
        make_leases(stage, name, application)
        properties = {"maxRecords": max_records, "idleTimeBetweenReadsInMillis": 200}
        worker = start(stage, kind, "worker", name, application, properties, count_only=True)
        found[kind] = measure(worker, count)
        worker.kill()
    show(f"{name}: {count:,} user records of {SIZE} bytes", found)


def show(title: str, found: Mapping[str, Mapping[str, float]]) -> None:
    """Print a table with a column for each kind, and ratios to the first one."""
    first, *others = found
    print(f"\n{title}\n")
    heads = [NAMES[first], *(head for kind in others for head in (NAMES[kind], "ratio"))]
    print(f"| | {' | '.join(heads)} |")
    print(f"|---|{'---|' * len(heads)}")
    for what, base in found[first].items():
        cells = [number(base)]
        for kind in others:
            value = found[kind][what]
            cells += [number(value), f"{base / value:.1f}×" if value else ""]
        print(f"| {what} | {' | '.join(cells)} |", flush=True)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


# Times


class Daemons(Fleet):
    """Daemons of one kind on one stream, with their own application."""

    def start(self, name: str) -> WorkerProcess:
        return start(self._stage, self._kind, name, "times", self._application, {})


def times(kinds: Sequence[str]) -> None:
    found: dict[str, dict[str, float]] = {}
    for kind in kinds:
        found[kind] = {}
        for number_, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGKILL, "SIGKILL")):
            with (
                tempfile.TemporaryDirectory() as folder,
                open_stage(
                    Path(folder), "--create-stream", f"times:{TIMES_SHARDS}", fake_dynamodb=True
                ) as stage,
                Drip(stage, "times"),
            ):
                make_leases(stage, "times", name)
                daemons = Daemons(stage, kind, name)
                first, started = daemons.first("a")
                second, joined = daemons.join("b")
                found[kind].setdefault("first record", started)
                found[kind].setdefault("first record of a second daemon", joined)
                found[kind][f"takes over after {name}"] = daemons.take_over(second, first, number_)
    show("Times, seconds (failover time 10 s)", found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=("large", "small", "times"), default=["large", "small", "times"]
    )
    parser.add_argument("--kinds", nargs="+", choices=tuple(NAMES), default=list(NAMES))
    parser.add_argument("--records", type=int, default=800_000, help="of the large batches")
    options = parser.parse_args()
    settings: dict[str, Any] = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    os.environ.update(settings)
    if {"large", "small"} & set(options.only):
        with (
            tempfile.TemporaryDirectory() as folder,
            open_stage(Path(folder), "--no-throttle", fake_dynamodb=True) as stage,
        ):
            if "large" in options.only:
                cost(stage, "large", fill(stage, "large", options.records), options.kinds, 50)
            if "small" in options.only:
                cost(stage, "small", fill_plain(stage, "small", 30_000), options.kinds, SMALL_BATCH)
    if "times" in options.only:
        times(options.kinds)


if __name__ == "__main__":
    main()
