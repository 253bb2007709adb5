"""The real Java KCL beside this package: CPU per user record, and the times of a fleet.

    python benchmarks/bench_java.py [--only cost|times] [--records 1600000]

Needs Java 17 and npm (see `integration/java`): KCL 3.1.3 with MultiLangDaemon and its Python child; our fake is the
Kinesis of both sides, DynamoDB Local their lease table.

**cost**: both read the same stream of two shards, aggregates of 400 records of 100 bytes, 50 aggregates a read (so
20,000 user records a batch), look at each record's data and checkpoint each batch. CPU of the process and its
children from ``/proc``, without the fake's and DynamoDB's. *Warm* is the second half of the records; *cold* the first
eighth, with the start. The KCL's pause between two reads is its least (200 ms) instead of its default of 1.5 s, so
that idling costs it nothing; everything else is the default.

**times**: a fleet of two on four shards, a record into each shard four times a second; the KCL's own settings
(polling, failover 10 s), ours with failover 10 s. *First record* is from the start of the process; *takes over* is from
the signal until a survivor has delivered a record of each of the victim's shards; *idle* is how long a shard that
moves by handover goes without a worker: from the end of the last batch to the first record elsewhere.
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
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from integration.java.evidence import tenures, wait_for  # noqa: E402
from integration.java.processes import Stage, WorkerProcess, open_stage  # noqa: E402
from integration.localstack.server import family  # noqa: E402
from kinesis_sdk.common.aggregation import Aggregate  # noqa: E402
from kinesis_sdk.common.hashkeys import HashKeyRange, hash_partition_key  # noqa: E402
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber  # noqa: E402
from kinesis_sdk.consumer import DynamoDBLeaseStore  # noqa: E402
from kinesis_sdk.consumer.leases import Lease  # noqa: E402

PER_AGGREGATE, SIZE, PER_READ = 400, 100, 50
COST_SHARDS, TIMES_SHARDS = 2, 4
_TICK = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and its living descendants."""
    total = 0
    for one in (pid, *family(pid)):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        total += int(fields[11]) + int(fields[12])
    return total / _TICK


def memory_of(pid: int) -> float:
    """Resident megabytes of a process and its living descendants."""
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
    """CPU µs per record and memory of a worker that reads the whole stream."""
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
        # So that the Java worker does not need two minutes to make its own.
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
    """A record into each shard four times a second."""

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


Start = Callable[[str], WorkerProcess]


def first_records(worker: WorkerProcess, since: float) -> dict[str, float]:
    """By shard: when its first batch after a moment was delivered."""
    found: dict[str, float] = {}
    for event in worker.events("records"):
        if event["t"] > since:
            found.setdefault(event["shard"], event["t"])
    return found


def held(stage: Stage, application: str, worker: WorkerProcess) -> set[str]:
    """Leases of a worker that are not on their way elsewhere."""
    return {
        key
        for key, row in stage.rows(application).items()
        if row.get("leaseOwner", {}).get("S") == worker.name and "checkpointOwner" not in row
    }


def take_over(
    stage: Stage, application: str, victim: WorkerProcess, survivor: WorkerProcess, number: int
) -> float:
    """Seconds from a signal until the survivor delivered from each of the victim's shards."""
    shards = held(stage, application, victim)
    assert shards
    moment = time.monotonic()
    victim.process.signal(number)
    wait_for(lambda: shards <= first_records(survivor, moment).keys(), 400, survivor.process.tail)
    return max(t for shard, t in first_records(survivor, moment).items() if shard in shards) - moment


def scene(stage: Stage, application: str, start: Start) -> dict[str, Any]:
    """All times of one kind of workers."""
    result: dict[str, Any] = {}

    def joins(name: str) -> WorkerProcess:
        worker = start(name)
        wait_for(lambda: worker.events("records"), 400, worker.process.tail)
        result.setdefault("joins", []).append(worker.events("records")[0]["t"] - worker.started_at)
        wait_for(lambda: len(held(stage, application, worker)) == TIMES_SHARDS // 2, 200, "an even share")
        time.sleep(5)
        return worker

    first = start("a")
    wait_for(lambda: first.events("records"), 400, first.process.tail)
    result["first"] = first.events("records")[0]["t"] - first.started_at
    wait_for(lambda: len(held(stage, application, first)) == TIMES_SHARDS, 200, "all leases")
    second = joins("b")
    gaps = [
        later.begin - former.end
        for parts in tenures([first, second]).values()
        for former, later in itertools.pairwise(parts)
    ]
    result["idle"] = max(gaps)
    result["stop"] = take_over(stage, application, second, first, signal.SIGTERM)
    third = joins("c")
    result["crash"] = take_over(stage, application, third, first, signal.SIGKILL)
    fourth = joins("d")
    # The Java leader is the first; ours has none that matters.
    result["leader"] = take_over(stage, application, first, fourth, signal.SIGKILL)
    return result


def times() -> None:
    found = {}
    for kind in ("ours", "java"):
        with (
            tempfile.TemporaryDirectory() as folder,
            open_stage(Path(folder), "--create-stream", f"times:{TIMES_SHARDS}") as stage,
            Drip(stage, "times"),
        ):

            def start(name: str, stage: Stage = stage, kind: str = kind) -> WorkerProcess:
                if kind == "java":
                    return stage.start_java(name, "times", "times", properties={}, jvm=(), grace_millis=0)
                return stage.start_ours(name, "times", "times", worker_metrics="off")

            found[kind] = scene(stage, "times", start)
            print(kind, found[kind], file=sys.stderr)
    print("\nTimes of a fleet, seconds (failover time 10 s)\n")
    print("| | KCL 3.1.3, its defaults | kinesis_sdk |")
    print("|---|---|---|")
    java, ours = found["java"], found["ours"]
    for name, what in (
        ("first", "first record, no lease table yet"),
        ("idle", "idle time of a shard that moves to a new worker, longest"),
        ("stop", "takes over after SIGTERM (the daemon's default)"),
        ("crash", "takes over after SIGKILL"),
        ("leader", "takes over after SIGKILL of the leader"),
    ):
        print(f"| {what} | {java[name]:.1f} | {ours[name]:.1f} |")
    print(
        "| an added worker's first record | "
        + " | ".join(", ".join(f"{seconds:.1f}" for seconds in one["joins"]) for one in (java, ours))
        + " |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("cost", "times"))
    parser.add_argument("--records", type=int, default=1_600_000)
    options = parser.parse_args()
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        os.environ[name] = value
    if options.only != "times":
        cost(options.records)
    if options.only != "cost":
        times()


if __name__ == "__main__":
    main()
