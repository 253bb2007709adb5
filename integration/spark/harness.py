"""Shared by the Spark tests: streams, a steady load with order per key, a sink that is idempotent by batch id."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import boto3

from integration.stored import stored_records, stored_shards
from kinesis_sdk.common.aggregate_reader import Aggregate, decode
from kinesis_sdk.common.hashkeys import hash_key_to_decimal, hash_partition_key
from kinesis_sdk.testing.http.process import ServerProcess


class Endpoint:
    """An AWS endpoint; ``server`` is our fake, or None for any other endpoint."""

    def __init__(self, url: str, server: ServerProcess | None) -> None:
        self.url = url
        self.server = server
        self.kinesis = boto3.client("kinesis", endpoint_url=url, region_name="us-east-1")

    def create(self, name: str, shards: int) -> TestStream:
        self.kinesis.create_stream(StreamName=name, ShardCount=shards)
        stream = TestStream(self, name)
        stream.settle()
        return stream


class TestStream:
    """A stream of one test."""

    __test__ = False

    def __init__(self, endpoint: Endpoint, name: str) -> None:
        self.endpoint = endpoint
        self.kinesis = endpoint.kinesis
        self.name = name

    def options(self, **more: str) -> dict[str, str]:
        """Return options of the data source for this stream.

        For each record that it stores, LocalStack hashes the whole content of the shard. If a request exceeded its timeout,
        its repetitions would make all later requests slower still, and so on.
        """
        return {
            "streamName": self.name,
            "endpointUrl": self.endpoint.url,
            "region": "us-east-1",
            # Users get ten minutes, three times a task. Here, nothing takes this long unless it hangs.
            "flushTimeout": "100s",
            "retryTimeout": "60s",
            **({} if self.endpoint.server else {"requestTimeout": "60s", "maxConnections": "1"}),
            **more,
        }

    def reader_options(self, **more: str) -> dict[str, str]:
        return self.options(
            startingPosition="TRIM_HORIZON", minProbeInterval="200ms", shardRefreshInterval="2s", **more
        )

    def settle(self) -> None:
        """Wait until the stream is ACTIVE."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            summary = self.kinesis.describe_stream_summary(StreamName=self.name)["StreamDescriptionSummary"]
            if summary["StreamStatus"] == "ACTIVE":
                return
            time.sleep(0.1)
        raise TimeoutError(f"{self.name} does not become ACTIVE")

    def put(self, *payloads: bytes, key: str = "k") -> None:
        for start in range(0, len(payloads), 500):
            left = [{"Data": data, "PartitionKey": key} for data in payloads[start : start + 500]]
            self.put_entries(left)

    def put_entries(self, entries: list[dict[str, Any]]) -> None:
        """Put entries, and repeat until each is stored."""
        while entries:
            answer = self.kinesis.put_records(StreamName=self.name, Records=entries)
            entries = [e for e, r in zip(entries, answer["Records"], strict=True) if "ErrorCode" in r]
            if entries:
                time.sleep(0.3)

    def put_aggregate(self, payloads: Iterable[bytes], key: str = "k") -> None:
        self.put_entries([aggregate_entry(payloads, key)])

    def payloads(self) -> Iterator[bytes]:
        """Return the payloads of all user records, read without the data source."""
        for _, record in stored_records(self.kinesis, self.name):
            found = decode(record["Data"])
            yield from [record["Data"]] if found is None else [one.data for one in found]

    def open_shards(self) -> list[dict[str, Any]]:
        shards = stored_shards(self.kinesis, self.name)
        alive = [s for s in shards if "EndingSequenceNumber" not in s["SequenceNumberRange"]]
        return sorted(alive, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))

    def split(self, index: int = 0) -> None:
        shard = self.open_shards()[index]
        low, high = (int(shard["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
        self.kinesis.split_shard(
            StreamName=self.name,
            ShardToSplit=shard["ShardId"],
            NewStartingHashKey=str((low + high + 1) // 2),
        )
        self.settle()

    def merge(self, index: int = 0) -> None:
        first, second = self.open_shards()[index : index + 2]
        self.kinesis.merge_shards(
            StreamName=self.name, ShardToMerge=first["ShardId"], AdjacentShardToMerge=second["ShardId"]
        )
        self.settle()

    def scale(self, shards: int) -> None:
        self.kinesis.update_shard_count(
            StreamName=self.name, TargetShardCount=shards, ScalingType="UNIFORM_SCALING"
        )
        self.settle()

    def delete(self) -> None:
        self.kinesis.delete_stream(StreamName=self.name)


def aggregate_entry(payloads: Iterable[bytes], key: str) -> dict[str, Any]:
    """Return a PutRecords entry with several user records of one key."""
    aggregate = Aggregate(1_000_000, 1_000_000)
    hash_key = hash_partition_key(key)
    for payload in payloads:
        assert aggregate.try_append(key, None, payload, hash_key)
    return {
        "Data": aggregate.encode(),
        "PartitionKey": aggregate.partition_key,
        "ExplicitHashKey": hash_key_to_decimal(hash_key),
    }


class Load:
    """Puts records of many keys in a thread: each key's in order, some of them as aggregates.

    `put` has the acknowledged payloads by key, in order.
    """

    def __init__(self, stream: TestStream, *, keys: int = 50, per_second: int = 400, seed: int = 1) -> None:
        self.put: dict[str, list[bytes]] = defaultdict(list)
        self._stream = stream
        self._keys = [f"key-{number}" for number in range(keys)]
        self._per_second = per_second
        self._rng = Random(seed)
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)
        if self._error is not None:
            raise self._error

    @property
    def total(self) -> int:
        return sum(len(payloads) for payloads in list(self.put.values()))

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                began = time.monotonic()
                count = self._round()
                self._stopped.wait(max(0.0, count / self._per_second - (time.monotonic() - began)))
        except BaseException as error:  # noqa: BLE001 — raised in `stop`
            self._error = error

    def _round(self) -> int:
        """Put every key at most once, so that a partial failure cannot reorder a key's records."""
        entries, taken = [], []
        for key in self._rng.sample(self._keys, self._rng.randint(1, len(self._keys))):
            known = len(self.put[key])
            size = self._rng.choice([1, 1, 1, 5])
            payloads = [f"{key}:{known + number}".encode() for number in range(size)]
            if size == 1:
                entries.append({"Data": payloads[0], "PartitionKey": key})
            else:
                entries.append(aggregate_entry(payloads, key))
            taken.append((key, payloads))
        self._stream.put_entries(entries)
        for key, payloads in taken:
            self.put[key] += payloads
        return sum(len(payloads) for _, payloads in taken)


class SinkFailedError(Exception):
    """The sink fails on purpose."""


class IdempotentSink:
    """A foreachBatch sink: one file per batch id, replaced as a whole. It can fail before and after the write.

    Attributes:
        calls: How often it was called.
        failures: How often it failed on purpose.
        replays: Number of repeated batches; the test fails unless they had the same rows.
    """

    def __init__(self, folder: Path, *, failing: float = 0.0, seed: int = 0) -> None:
        self.folder = folder
        self.failing = failing
        self.calls = 0
        self.failures = 0
        self.replays = 0
        self.differences: list[str] = []
        self._seen: set[int] = set()
        self._rng = Random(seed)
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, frame: Any, batch_id: int) -> None:
        self.calls += 1
        self.replays += batch_id in self._seen
        self._seen.add(batch_id)
        self._maybe_fail("before")
        rows = [
            [
                row.shardId,
                row.sequenceNumber,
                row.subSequenceNumber,
                row.partitionKey,
                bytes(row.data).decode(),
            ]
            for row in frame.collect()
        ]
        path = self.folder / f"{batch_id:06d}.json"
        text = json.dumps(rows)
        if path.exists() and sorted(json.loads(path.read_text())) != sorted(rows):
            self.differences.append(f"batch {batch_id} came again with other rows")
        temporary = path.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.replace(path)
        self._maybe_fail("after")

    def _maybe_fail(self, when: str) -> None:
        if self._rng.random() < self.failing:
            self.failures += 1
            raise SinkFailedError(f"on purpose, {when} the write")

    def rows(self) -> list[list[Any]]:
        return [row for path in sorted(self.folder.glob("*.json")) for row in json.loads(path.read_text())]

    def payloads(self) -> list[bytes]:
        return [row[4].encode() for row in self.rows()]


def account_for(put: dict[str, list[bytes]], got: list[bytes]) -> dict[str, int]:
    """Return missing records, duplicated records, and keys whose records came in another order."""
    counts = Counter(got)
    expected = [payload for payloads in put.values() for payload in payloads]
    by_key: dict[str, list[bytes]] = defaultdict(list)
    for payload in dict.fromkeys(got):
        by_key[payload.rpartition(b":")[0].decode()].append(payload)
    return {
        "records": len(expected),
        "missing": sum(payload not in counts for payload in expected),
        "duplicated": sum(count - 1 for count in counts.values()),
        "foreign": len(counts.keys() - set(expected)),
        "order breaks": sum(
            [p for p in by_key[key] if p in set(payloads)] != [p for p in payloads if p in counts]
            for key, payloads in put.items()
        ),
    }


def assert_same_rows(found: Any, expected: Any, rows: int) -> float:
    """Assert that two frames have the same rows; return how many of each are malformed, if they say so."""
    from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

    both = found.withColumn("side", F.lit(1)).unionAll(expected.withColumn("side", F.lit(-1)))
    different = both.groupBy(*found.columns).agg(F.sum("side").alias("more"), F.count("*").alias("rows"))
    flagged = F.col("_corrupt_record").isNotNull() if "_corrupt_record" in found.columns else F.lit(False)
    compared, malformed, differing = different.agg(
        F.sum("rows"), F.sum(F.when(flagged, F.col("rows"))), F.count(F.when(F.col("more") != 0, True))
    ).first()
    assert compared == 2 * rows
    assert not differing, "\n".join(map(str, different.filter("more != 0").limit(6).collect()))
    return (malformed or 0) / 2


PERFECT = {"missing": 0, "duplicated": 0, "foreign": 0, "order breaks": 0}


def wait_for(condition: Callable[[], bool], timeout: float = 1500.0, what: str = "it") -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen in {timeout:g} s")
        time.sleep(0.1)


class Lasting:
    """A streaming query that restarts from its checkpoint if Spark ended it because the machine was slow.

    Spark waits 10 s, which no setting changes, for a new Python process to connect, and otherwise ends the query. Production
    services restart such a query too. `begin` starts it.
    """

    def __init__(self, begin: Callable[[], Any]) -> None:
        self._begin = begin
        self._restarts = 10
        self.query = begin()

    def check(self) -> None:
        """Restart the query if it ended for that reason; fail if it ended for another one."""
        error = self.query.exception()
        if error is None:
            return
        assert "failed to connect back" in str(error), error
        assert self._restarts > 0, error
        self._restarts -= 1
        self.query = self._begin()


def start(
    spark: Any,
    stream: TestStream,
    sink: Any,
    checkpoint: Path,
    *,
    trigger: str = "200 milliseconds",
    **options: str,
) -> Any:
    """Start a streaming query into a foreachBatch sink."""
    frame = spark.readStream.format("kinesis_sdk").options(**stream.reader_options(**options)).load()
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    writer = writer.trigger(availableNow=True) if trigger == "now" else writer.trigger(processingTime=trigger)
    return writer.start()


def drain(spark: Any, stream: TestStream, sink: Any, checkpoint: Path, **options: str) -> None:
    """Read what the stream holds now; repeatedly if the Spark version reads one batch per run."""
    from kinesis_sdk.spark.source import HAS_ADMISSION_CONTROL

    for _ in range(1 if HAS_ADMISSION_CONTROL else 12):
        seen = sorted((checkpoint / "commits").glob("[0-9]*"))
        query = start(spark, stream, sink, checkpoint, trigger="now", **options)
        assert query.awaitTermination(1500), "the query does not end"
        if sorted((checkpoint / "commits").glob("[0-9]*")) == seen:
            return


def python_workers(spark: Any) -> list[int]:
    """Ids of this session's Python worker processes: children of the daemon that its JVM started."""
    jvm = spark.sparkContext._gateway.proc.pid
    table = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    parents = {}
    daemons = set()
    for line in table.splitlines():
        pid, parent, command = line.split(None, 2)
        parents[int(pid)] = int(parent)
        if "pyspark.daemon" in command:
            daemons.add(int(pid))
    ours = {pid for pid in daemons if jvm in (parents[pid], parents.get(parents[pid]))}
    return [pid for pid in daemons if parents[pid] in ours]
