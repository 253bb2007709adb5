"""A batch ends at one time in all shards of all streams: no shard runs ahead of a watermark, no trigger falls behind unseen."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from integration.spark.harness import (
    Endpoint,
    IdempotentSink,
    SinkFailedError,
    TestStream,
    drain,
    python_workers,
    start,
    wait_for,
)
from integration.stored import stored_records
from kinesis_sdk.common.position import Ended
from kinesis_sdk.spark.offsets import QueryOffset
from kinesis_sdk.testing import FakeAws, FakeAwsServer

HALF, QUARTER = 1 << 127, 1 << 126
WINDOW = 2


class PastClock:
    """The clock of this machine, set back by some seconds; it only goes forward."""

    def __init__(self, back: float) -> None:
        self._back = back

    def monotonic(self) -> float:
        return time.monotonic() - self._back

    def time(self) -> float:
        return time.time() - self._back

    def advance_to(self, back: float) -> None:
        """Set it back by fewer seconds than before."""
        assert 0 <= back <= self._back
        self._back = back


class PastServer(FakeAwsServer):
    """A fake account that also says in its ``Date`` headers what its clock says."""

    def date(self) -> str:
        return formatdate(self.aws.clock.time(), usegmt=True)


class Past:
    """An account in the past, in this process: what is put into it arrived some time ago.

    Attributes:
        stream: A stream with two shards, the first one for hash keys below `HALF`.
    """

    def __init__(self, server: FakeAwsServer, clock: PastClock) -> None:
        self.clock = clock
        self.aws = server.aws
        self.client = self.aws.client("kinesis")
        self.stream = Endpoint(server.endpoint_url, None).create("orders", 2)
        self._number = 0

    def put(self, *hash_keys: int) -> None:
        """Put a record for each hash key, with one call: all of them arrive at the same time."""
        entries = []
        for hash_key in hash_keys:
            data = f"key-{hash_key}:{self._number}".encode()
            entries.append({"Data": data, "PartitionKey": "k", "ExplicitHashKey": str(hash_key)})
            self._number += 1
        answer = self.client.put_records(StreamName=self.stream.name, Records=entries)
        assert not answer["FailedRecordCount"]

    def skewed_history(self) -> None:
        """40 s of the first shard, which is split after 20 s, and only the last 10 s of the second one: 1,000 records."""
        for tick in range(200):
            back = 40 - tick / 5
            self.clock.advance_to(back)
            if tick == 100:
                self.stream.split(0)
            self.put(*[0, QUARTER] * 2, *[HALF] * (4 if back <= 10 else 0))
        self.clock.advance_to(0)

    def windows(self) -> dict[int, int]:
        """Records by the start of their window in epoch seconds, counted without Spark."""
        counts: Counter[int] = Counter()
        for _, record in stored_records(self.client, self.stream.name):
            counts[int(record["ApproximateArrivalTimestamp"].timestamp()) // WINDOW * WINDOW] += 1
        return dict(counts)


@pytest.fixture
def past(spark: Any) -> Iterator[Past]:
    del spark  # the account's variables are set with it
    clock = PastClock(3_600)
    with PastServer(FakeAws(clock=clock)) as server:
        yield Past(server, clock)


class WindowSink:
    """A foreachBatch sink for counts in update mode; the last count of a window is the one that holds.

    Attributes:
        counts: Counts by the start of the window.
        batches: Ids of the batches that were written.
    """

    def __init__(self, *, fail_at: int | None = None) -> None:
        self.counts: dict[int, int] = {}
        self.batches: set[int] = set()
        self._fail_at = fail_at

    def __call__(self, frame: Any, batch_id: int) -> None:
        if batch_id == self._fail_at:
            self._fail_at = None
            raise SinkFailedError("on purpose")
        for row in frame.selectExpr("cast(window.start as long) as start", "count").collect():
            self.counts[row["start"]] = row["count"]
        self.batches.add(batch_id)


def progress_of(query: Any) -> list[dict[str, Any]]:
    return [json.loads(progress.json) for progress in query.recentProgress]


def count_windows(
    spark: Any, stream: TestStream, sink: WindowSink, checkpoint: Path, **options: str
) -> list[dict[str, Any]]:
    """Count what a stream holds now; the reports of the batches. Watermarks are 6 s late."""
    from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

    arrival = "approximateArrivalTimestamp"
    query = (
        spark.readStream.format("kinesis_sdk")
        .options(**stream.reader_options(**options))
        .load()
        .withWatermark(arrival, "6 seconds")
        .groupBy(F.window(arrival, f"{WINDOW} seconds"))
        .count()
        .writeStream.outputMode("update")
        .foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    wait_for(lambda: not query.isActive, 300, "the end of the query")
    return progress_of(query)


def dropped(reports: list[dict[str, Any]]) -> int:
    operators = [operator for report in reports for operator in report["stateOperators"]]
    assert operators
    return sum(operator["numRowsDroppedByWatermark"] for operator in operators)


def needs_admission_control() -> None:
    from kinesis_sdk.spark.source import HAS_ADMISSION_CONTROL

    if not HAS_ADMISSION_CONTROL:
        pytest.skip("this version of Spark reads everything in one batch")


def offsets(checkpoint: Path) -> list[QueryOffset]:
    files = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [QueryOffset.from_json(path.read_text().splitlines()[-1]) for path in files]


def test_a_watermark_drops_nothing_around_a_split_and_a_restart(spark: Any, past: Past, folder: Path) -> None:
    needs_admission_control()
    past.skewed_history()
    sink, checkpoint = WindowSink(fail_at=3), folder / "checkpoint"
    first = count_windows(spark, past.stream, sink, checkpoint, maxBatchSpan="4s")
    assert sink.batches == {0, 1, 2}, "the query ended in its fourth batch"
    second = count_windows(spark, past.stream, sink, checkpoint, maxBatchSpan="4s")
    assert dropped(first) == dropped(second) == 0
    assert sink.counts == past.windows()
    assert sum(sink.counts.values()) == 1_000
    # The children were in the batch in which their parent ended, which tasks of one batch read in this order.
    ended_in = [
        len(offset.streams["orders"].shards)
        for offset in offsets(checkpoint)
        if any(isinstance(position, Ended) for position in offset.streams["orders"].shards.values())
    ]
    assert ended_in == [4], "one batch with the parent, its children, and the other shard"


class Chosen(TestStream):
    """A stream with other options for the reader than its name."""

    def __init__(self, stream: TestStream, **chosen: str) -> None:
        super().__init__(stream.endpoint, stream.name)
        self._chosen = chosen

    def options(self, **more: str) -> dict[str, str]:
        return {"endpointUrl": self.endpoint.url, "region": "us-east-1", **self._chosen, **more}


class NameSink:
    """A foreachBatch sink that keeps stream names and payloads by batch id."""

    def __init__(self) -> None:
        self._batches: dict[int, list[tuple[str, bytes]]] = {}

    def __call__(self, frame: Any, batch_id: int) -> None:
        rows = frame.select("streamName", "data").collect()
        self._batches[batch_id] = [(row["streamName"], bytes(row["data"])) for row in rows]

    def rows(self) -> list[tuple[str, bytes]]:
        return sorted(row for rows in self._batches.values() for row in rows)


@pytest.mark.core
def test_several_streams_in_one_query(spark: Any, stream: Any, folder: Path) -> None:
    first, second, third = stream(2), stream(1), stream(1)
    sink, checkpoint = NameSink(), folder / "checkpoint"
    expected: list[tuple[str, bytes]] = []

    def put(target: Any, *names: str, read: bool = True) -> None:
        for name in names:
            target.put(name.encode(), key=name)
            if read:
                expected.append((target.name, name.encode()))

    def read(*streams: Any) -> None:
        source = Chosen(first, streamNames=",".join(one.name for one in streams), startingPosition="LATEST")
        source.reader_options = lambda **more: source.options(  # type: ignore[method-assign]
            minProbeInterval="200ms", shardRefreshInterval="2s", **more
        )
        drain(spark, source, sink, checkpoint)
        assert sink.rows() == sorted(expected)

    put(first, "too early", read=False)
    time.sleep(1.5)  # LATEST is a time that is known to the second
    read(first, second)
    put(first, "a", "b", "c")
    put(second, "a", "d")
    put(third, "before", read=False)
    time.sleep(1.5)
    read(first, second)
    put(first, "e")
    time.sleep(1.5)  # the cut of this batch is later than the record of the third stream
    read(second, first)
    put(second, "f")
    put(third, "g")
    read(first, second, third)
    put(third, "h")
    read(third, first, second)
    query = start(
        spark, Chosen(first, streamNames=f"{first.name},{third.name}"), sink, checkpoint, trigger="now"
    )
    wait_for(lambda: not query.isActive, what="the refusal")
    message = f"the checkpoint is of stream {second.name}, which the query does not read"
    assert message in str(query.exception())


def test_children_after_their_parent_in_one_task_although_its_worker_is_killed(
    spark: Any, past: Past, folder: Path
) -> None:
    """A batch with a parent, its children and a grandchild, whose reader is killed within the batch."""
    for tick in range(40):
        past.clock.advance_to(60 - tick)
        if tick == 15:
            past.stream.split(0)
        if tick == 28:
            past.stream.split(1)
        past.put(*[0, QUARTER, QUARTER + QUARTER // 2, HALF] * 5)
    past.clock.advance_to(0)
    rows: dict[int, list[Any]] = {}
    killed: list[int] = []
    failed: list[int] = []

    def calls() -> int:
        return int(past.aws.stats()["calls"].get("GetRecords", 0))

    def kill_when(read: int) -> None:
        """Kill the workers when the tasks made some calls: pages are small, so that they are in the middle."""
        deadline = time.monotonic() + 300
        while calls() < read and time.monotonic() < deadline:
            time.sleep(0.01)
        for pid in python_workers(spark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    def sink(frame: Any, batch_id: int) -> None:
        from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

        killer = None
        if not killed:
            killer = threading.Thread(target=kill_when, args=(calls() + 8,), daemon=True)
            killer.start()
        context = spark.sparkContext
        context.setJobGroup(f"batch {batch_id}", "reads with a killed worker")
        rows[batch_id] = frame.select("shardId", "data", F.spark_partition_id().alias("task")).collect()
        if killer is not None:
            killer.join()
        tracker = context.statusTracker()
        for job in tracker.getJobIdsForGroup(f"batch {batch_id}"):
            failed.extend(
                tracker.getStageInfo(stage).numFailedTasks for stage in tracker.getJobInfo(job).stageIds
            )

    drain(spark, past.stream, sink, folder / "checkpoint", recordsPerFetch="20", fetchInterval="100ms")
    assert killed
    assert sum(failed) >= 1, "Spark ran a task again"
    (batch,) = [batch for batch in rows.values() if batch]
    tasks: dict[str, set[int]] = defaultdict(set)
    order: dict[str, list[int]] = defaultdict(list)
    shards: dict[str, list[str]] = defaultdict(list)
    for row in batch:
        key, _, number = bytes(row["data"]).decode().rpartition(":")
        tasks[key].add(row["task"])
        order[key].append(int(number))
        shards[key] += [] if row["shardId"] in shards[key][-1:] else [row["shardId"]]
    assert all(len(found) == 1 for found in tasks.values()), "a family is in one task"
    assert all(numbers == sorted(numbers) for numbers in order.values()), "the order of a key holds"
    assert sorted(number for numbers in order.values() for number in numbers) == list(range(800))
    assert sorted(len(ids) for ids in shards.values()) == [1, 2, 3, 3], "shards of a key, one after another"


@pytest.mark.parametrize(("option", "limit"), [("maxRowsPerTrigger", 100), ("maxBytesPerTrigger", 2_000)])
def test_no_batch_has_more_rows_or_bytes_than_its_limit(
    spark: Any, past: Past, folder: Path, option: str, limit: int
) -> None:
    """Records of each second arrive within a few milliseconds; half of the rows are in aggregates."""
    needs_admission_control()
    for tick in range(60):
        past.clock.advance_to(60 - tick)
        past.put(*[0, HALF] * 3)
        past.stream.put_aggregate([b"together:%d" % (6 * tick + number) for number in range(6)])
    past.clock.advance_to(0)
    sink = IdempotentSink(folder / "sink")
    drain(spark, past.stream, sink, folder / "checkpoint", **{option: str(limit)})
    stored = list(past.stream.payloads())
    assert len(stored) == 720
    assert sorted(sink.payloads()) == sorted(stored)
    batches = [json.loads(path.read_text()) for path in sorted(sink.folder.glob("*.json"))]
    sizes = [
        len(rows) if option == "maxRowsPerTrigger" else sum(len(row[3]) + len(row[4]) for row in rows)
        for rows in batches
        if rows
    ]
    assert max(sizes) <= limit
    assert sum(sizes) / limit <= len(sizes) <= 4 * sum(sizes) / limit, "batches use their limit"
