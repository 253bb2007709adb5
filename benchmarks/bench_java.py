"""This package compared with the real Java KCL: CPU per user record, and the times of a fleet.

    python benchmarks/bench_java.py [--only cost no-table stop crash leader] [--kinds java ours] [--records 1600000]

Needs Java 17 and npm (see `integration/java`): KCL 3.1.3 with MultiLangDaemon and its Python child. Both sides use the
fake Kinesis of this package, and DynamoDB Local for the lease table.

**cost**: both read the same stream of two shards, aggregates of 400 records of 100 bytes, 50 aggregates a read (so
20,000 user records a batch), access each record's data and checkpoint each batch. CPU is that of the process and its
children from ``/proc``, without the fake and DynamoDB. *Warm* is the second half of the records; *cold* the first
eighth, with the start. The KCL's pause between two reads is its minimum (200 ms) instead of its default of 1.5 s, so
that idling costs nothing; all other settings are defaults.

**times**: a fleet of two on four shards, a record into each shard four times a second; the KCL's own settings
(polling, failover 10 s), ours with failover 10 s. Each scenario begins with its own fleet; in all but the first, the
leases already exist. *First record* is from the start of the process; *takes over* is from the signal until
a survivor has delivered a record of each of the victim's shards; *idle* is how long a shard that moves by handoff
goes without a worker: from the end of the last batch to the first record elsewhere.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from integration.java.evidence import tenures, wait_for  # noqa: E402
from integration.java.processes import Stage, WorkerProcess, open_stage  # noqa: E402
from integration.localstack.server import family  # noqa: E402
from kinesis_sdk.common.aggregate_reader import Aggregate  # noqa: E402
from kinesis_sdk.common.hashkeys import HashKeyRange, hash_partition_key  # noqa: E402
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber  # noqa: E402
from kinesis_sdk.consumer import DynamoDBLeaseStore  # noqa: E402
from kinesis_sdk.consumer.leases import Lease  # noqa: E402

NAMES = {"java": "KCL 3.1.3, its defaults", "ours": "kinesis_sdk"}
PER_AGGREGATE, SIZE, PER_READ = 400, 100, 50
COST_SHARDS, TIMES_SHARDS = 2, 4
_TICK = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process and its living descendants."""
    total = 0
    for one in (pid, *family(pid)):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        total += int(fields[11]) + int(fields[12])
    return total / _TICK


def memory_of(pid: int) -> float:
    """Return the resident megabytes of a process and its living descendants."""
    total = 0
    for one in (pid, *family(pid)):
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE") / 1e6


# Cost


def fill(stage: Stage, stream: str, records: int) -> int:
    """Put aggregates into both shards; returns the number of user records."""
    rng = random.Random(7)
    stage.kinesis.create_stream(StreamName=stream, ShardCount=COST_SHARDS)
    shards = stage.kinesis.list_shards(StreamName=stream)["Shards"]
    put = 0
    for shard in shards:
        place = shard["HashKeyRange"]["StartingHashKey"]
        low, high = (int(shard["HashKeyRange"][name]) for name in ("StartingHashKey", "EndingHashKey"))
        keys = [
            key
            for key in (f"customer-{number:04d}" for number in range(200))
            if low <= int.from_bytes(hash_partition_key(key), "big") <= high
        ][:16]
        for _ in range(records // COST_SHARDS // PER_AGGREGATE // PER_READ):
            entries = []
            for _ in range(PER_READ):
                aggregate = Aggregate(51_200, PER_AGGREGATE)
                for _ in range(PER_AGGREGATE):
                    key = rng.choice(keys)
                    assert aggregate.try_append(key, None, rng.randbytes(SIZE), hash_partition_key(key))
                entries.append({"Data": aggregate.encode(), "PartitionKey": "a", "ExplicitHashKey": place})
            answer = stage.kinesis.put_records(StreamName=stream, Records=entries)
            assert answer["FailedRecordCount"] == 0
            put += PER_READ * PER_AGGREGATE
    return put


def read_everything(worker: WorkerProcess, records: int) -> dict[str, float]:
    """Return CPU µs per record and memory of a worker that reads the whole stream."""
    marks = [(0, 0.0)]
    while marks[-1][0] < records:
        time.sleep(0.02)
        assert worker.process.is_running, worker.process.tail()
        batches = worker.events("counted")
        done = sum(batch["count"] for batch in batches)
        if done > marks[-1][0]:
            marks.append((done, cpu_of(worker.process.pid)))
    assert done == records
    assert sum(batch["size"] for batch in batches) == records * SIZE
    began, ended = min(b["t"] for b in batches), max(b["t"] for b in batches)
    half = next(mark for mark in marks if mark[0] >= records / 2)
    eighth = next(mark for mark in marks if mark[0] >= records / 8)
    return {
        "warm": (marks[-1][1] - half[1]) / (records - half[0]) * 1e6,
        "cold": eighth[1] / eighth[0] * 1e6,
        "all": marks[-1][1] / records * 1e6,
        "batch": median(batch["count"] for batch in batches),
        "memory": memory_of(worker.process.pid),
        "rate": records / (ended - began),
    }


def cost(records: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        open_stage(Path(folder), "--no-throttle") as stage,
    ):
        put = fill(stage, "cost", records)
        ours = stage.start_ours(
            "ours", "cost", "cost-ours", count_only=True, max_records=PER_READ, worker_metrics="off"
        )
        ours_cost = read_everything(ours, put)
        ours.stop()
        # Otherwise the Java worker needs two minutes to create its own.
        make_leases(stage, "cost", "cost-java")
        java = stage.start_java(
            "java",
            "cost",
            "cost-java",
            count_only=True,
            properties={"maxRecords": PER_READ, "idleTimeBetweenReadsInMillis": 200},
            jvm=(),
        )
        java_cost = read_everything(java, put)
        java.kill()
    print(f"\nCPU µs per user record ({put:,} records of {SIZE} B in aggregates of {PER_AGGREGATE})\n")
    print("| | MultiLangDaemon + Python child | kinesis_sdk | ratio |")
    print("|---|---|---|---|")
    for name, what in (
        ("warm", "warm: second half"),
        ("all", "all, with the start"),
        ("cold", "first eighth, with the start"),
    ):
        print(
            f"| {what} | {java_cost[name]:.2f} | {ours_cost[name]:.2f} | {java_cost[name] / ours_cost[name]:.1f}× |"
        )
    print(f"| user records per batch (median) | {java_cost['batch']:,.0f} | {ours_cost['batch']:,.0f} | |")
    print(f"| records per second reached | {java_cost['rate']:,.0f} | {ours_cost['rate']:,.0f} | |")
    print(f"| memory at the end, MB | {java_cost['memory']:.0f} | {ours_cost['memory']:.0f} | |")


def make_leases(stage: Stage, stream: str, application: str) -> None:
    """Write the table of leases at the beginning of the stream, as the KCL would."""
    store = DynamoDBLeaseStore(stage.dynamodb, application)
    store.ensure_ready()
    for shard in stage.kinesis.list_shards(StreamName=stream)["Shards"]:
        bounds = shard["HashKeyRange"]
        store.create_if_absent(
            Lease(
                lease_key=shard["ShardId"],
                checkpoint=ExtendedSequenceNumber(TRIM_HORIZON),
                hash_key_range=HashKeyRange(int(bounds["StartingHashKey"]), int(bounds["EndingHashKey"])),
            )
        )


# Times


class Drip:
    """Puts a record into each shard four times a second."""

    def __init__(self, stage: Stage, stream: str) -> None:
        self._stage, self._stream = stage, stream
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._places = [
            shard["HashKeyRange"]["StartingHashKey"]
            for shard in stage.kinesis.list_shards(StreamName=stream)["Shards"]
        ]

    def __enter__(self) -> Drip:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            entries = [
                {"Data": b"%d" % number, "PartitionKey": "k", "ExplicitHashKey": place}
                for place in self._places
            ]
            self._stage.kinesis.put_records(StreamName=self._stream, Records=entries)
            if self._stop.wait(0.25):
                return


def first_records(worker: WorkerProcess, since: float) -> dict[str, float]:
    """Return the time of each shard's first batch after a moment."""
    found: dict[str, float] = {}
    for event in worker.events("records"):
        if event["t"] > since:
            found.setdefault(event["shard"], event["t"])
    return found


def held(stage: Stage, application: str, worker: WorkerProcess) -> set[str]:
    """Return the leases of a worker that are not in handoff."""
    return {
        key
        for key, row in stage.rows(application).items()
        if row.get("leaseOwner", {}).get("S") == worker.name and "checkpointOwner" not in row
    }


def take_over(
    stage: Stage, application: str, victim: WorkerProcess, survivor: WorkerProcess, number: int
) -> float:
    """Return the seconds from a signal until the survivor delivered from each of the victim's shards."""
    shards = held(stage, application, victim)
    assert shards
    moment = time.monotonic()
    victim.process.signal(number)
    wait_for(lambda: shards <= first_records(survivor, moment).keys(), 400, survivor.process.tail)
    return max(t for shard, t in first_records(survivor, moment).items() if shard in shards) - moment


class Fleet:
    """Workers of one kind on one stream, with their own application."""

    def __init__(self, stage: Stage, kind: str, application: str) -> None:
        self._stage, self._kind, self._application = stage, kind, application

    def start(self, name: str) -> WorkerProcess:
        if self._kind == "java":
            return self._stage.start_java(
                name, "times", self._application, properties={}, jvm=(), grace_millis=0
            )
        return self._stage.start_ours(name, "times", self._application, worker_metrics="off")

    def first(self, name: str) -> tuple[WorkerProcess, float]:
        """Start a worker that gets all leases; return the seconds to its first record."""
        worker = self.start(name)
        wait_for(lambda: worker.events("records"), 400, worker.process.tail)
        seconds = worker.events("records")[0]["t"] - worker.started_at
        wait_for(lambda: len(held(self._stage, self._application, worker)) == TIMES_SHARDS, 200, "all leases")
        return worker, seconds

    def join(self, name: str) -> tuple[WorkerProcess, float]:
        """Start another worker that gets some leases; return the seconds to its first record."""
        worker = self.start(name)
        wait_for(lambda: worker.events("records"), 400, worker.process.tail)
        seconds = worker.events("records")[0]["t"] - worker.started_at
        time.sleep(5)  # until all leases that move together have moved
        return worker, seconds

    def take_over(self, victim: WorkerProcess, survivor: WorkerProcess, number: int) -> float:
        return take_over(self._stage, self._application, victim, survivor, number)


def no_table(fleet: Fleet) -> dict[str, float]:
    """Without a lease table: start to first record."""
    return {"first record, no lease table yet": fleet.first("a")[1]}


def a_stop(fleet: Fleet) -> dict[str, float]:
    """Leases exist; a worker joins, and stops on SIGTERM."""
    first, started = fleet.first("a")
    second, joined = fleet.join("b")
    idle = max(
        later.begin - former.end
        for parts in tenures([first, second]).values()
        for former, later in itertools.pairwise(parts)
    )
    return {
        "first record, leases are there": started,
        "first record of a worker that joins": joined,
        "idle time of a shard that moves to it, longest": idle,
        "takes over after SIGTERM": fleet.take_over(second, first, signal.SIGTERM),
    }


def a_crash(fleet: Fleet) -> dict[str, float]:
    """The second of two workers is killed."""
    first, _ = fleet.first("a")
    second, _ = fleet.join("b")
    return {"takes over after SIGKILL": fleet.take_over(second, first, signal.SIGKILL)}


def a_leaders_crash(fleet: Fleet) -> dict[str, float]:
    """The first of two workers, the leader of a Java fleet, is killed."""
    first, _ = fleet.first("a")
    second, _ = fleet.join("b")
    return {
        "takes over after SIGKILL of the first (Java's leader)": fleet.take_over(
            first, second, signal.SIGKILL
        )
    }


SCENES: dict[str, Callable[[Fleet], dict[str, float]]] = {
    "no-table": no_table,
    "stop": a_stop,
    "crash": a_crash,
    "leader": a_leaders_crash,
}


def times(scenes: list[str], kinds: list[str]) -> None:
    print("\nTimes of a fleet of two, seconds (failover time 10 s)\n")
    print(f"| | {' | '.join(NAMES[kind] for kind in kinds)} |")
    print(f"|---|{'---|' * len(kinds)}", flush=True)
    for scene in scenes:
        found = []
        for kind in kinds:
            with (
                tempfile.TemporaryDirectory() as folder,
                open_stage(Path(folder), "--create-stream", f"times:{TIMES_SHARDS}") as stage,
                Drip(stage, "times"),
            ):
                if scene != "no-table":
                    make_leases(stage, "times", scene)
                found.append(SCENES[scene](Fleet(stage, kind, scene)))
        for what in found[0]:
            print(f"| {what} | {' | '.join(f'{one[what]:.1f}' for one in found)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=("cost", *SCENES), default=["cost", *SCENES])
    parser.add_argument("--kinds", nargs="+", choices=tuple(NAMES), default=list(NAMES), help="for the times")
    parser.add_argument("--records", type=int, default=1_600_000)
    options = parser.parse_args()
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        os.environ[name] = value
    if "cost" in options.only:
        cost(options.records)
    scenes = [scene for scene in SCENES if scene in options.only]
    if scenes:
        times(scenes, options.kinds)


if __name__ == "__main__":
    main()
