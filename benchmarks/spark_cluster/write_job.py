"""The job that copies the stream ``orders`` while it is killed. Each row has the identity of its record as name and as data.

    spark-submit --master spark://… benchmarks/spark_cluster/write_job.py JSON

The JSON object: ``read`` and ``write``, options of the source and of the sink, and ``folder`` for the checkpoint, with the folders of steps. A step
is a moment in a task, and has a file in ``armed`` until the first task that gets there moves it to ``done`` and does what the step
says. A driver that is killed continues from the checkpoint when the job is submitted again.

With ``check`` it reads both streams instead, and writes ``check.json``: rows of the stream, and by reader the rows that are missing, that came
again, and that are foreign. The readers are this SDK's, and any other one, which sees every stored copy.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from kinesis_sdk.spark import RECORD_ID

BEFORE, BETWEEN, BEHIND = "before its rows", "between its rows", "behind its rows"
SPECULATION = "two attempts at once"
TASK_STEPS = (
    SPECULATION,
    *(f"Python worker of a task, {moment}" for moment in (BEFORE, BETWEEN, BEHIND)),
    *(f"executor, {moment} of a task" for moment in (BETWEEN, BEHIND)),
)
FOLDERS = ("armed", "done", "attempts")
PATIENCE = 120.0
"""Seconds for which a task waits for a second attempt."""


def _executor() -> int:
    """Return the id of the JVM that this worker belongs to."""
    pid = os.getpid()
    while "CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid, "the worker has no executor"
    return pid


def _take(folder: Path, step: str) -> bool:
    """Return whether this task is the one that does a step."""
    with contextlib.suppress(FileNotFoundError):
        (folder / "armed" / step).rename(folder / "done" / step)
        return True
    return False


def interrupted(folder: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for ``mapInArrow`` that yields its batches unchanged, and does the steps that are armed."""

    def die(moment: str) -> None:
        if _take(folder, f"Python worker of a task, {moment}"):
            os.kill(os.getpid(), signal.SIGKILL)
        if _take(folder, f"executor, {moment} of a task"):
            os.kill(_executor(), signal.SIGKILL)

    def await_other_attempt(attempts: Path, began: set[str]) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if {path.name for path in attempts.iterdir()} - began:
                (folder / "done" / SPECULATION).touch()
                time.sleep(1.0)  # the other attempt puts the same rows meanwhile
                return
            time.sleep(0.1)
        (folder / "armed" / SPECULATION).touch()  # another task may try

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        attempts = folder / "attempts" / f"{batch_id}-{context.partitionId()}"
        attempts.mkdir(parents=True, exist_ok=True)
        (attempts / str(context.taskAttemptId())).touch()
        began = {path.name for path in attempts.iterdir()}
        number = -1
        for number, batch in enumerate(batches):
            if number == 0:
                die(BEFORE)
            if number == 2:
                time.sleep(0.5)  # the sink puts the rows that it has
                die(BETWEEN)
                with contextlib.suppress(FileNotFoundError):
                    (folder / "armed" / SPECULATION).unlink()
                    await_other_attempt(attempts, began)
            yield batch
        if number >= 0:
            die(BEHIND)

    return run


def copy(spark: Any, task: dict[str, Any], folder: Path) -> None:
    frame = (
        spark.readStream.format("kinesis_sdk")
        .options(**task["read"])
        .load()
        .selectExpr(f"{RECORD_ID} AS data", "partitionKey", f"{RECORD_ID} AS dedupId")
    )
    query = (
        frame.mapInArrow(interrupted(folder), frame.schema)
        .writeStream.format("kinesis_sdk")
        .options(**task["write"])
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def check(spark: Any, task: dict[str, Any], folder: Path) -> None:
    def read(options: dict[str, str], column: str, **more: str) -> Any:
        frame = spark.read.format("kinesis_sdk").options(**{**options, **more}).load()
        return frame.selectExpr(f"{column} AS id")

    wanted = read(task["read"], RECORD_ID).persist()
    result: dict[str, Any] = {"rows": wanted.count()}
    target = {name: task["write"][name] for name in ("streamName", "endpointUrl", "region")}
    for reader, recognizes in (("of this SDK", "true"), ("any other", "false")):
        found = read(target, "CAST(data AS STRING)", recognizeRepetitions=recognizes).persist()
        distinct = found.distinct()
        result[reader] = {
            "missing": wanted.exceptAll(distinct).count(),
            "again": found.count() - distinct.count(),
            "foreign": distinct.exceptAll(wanted).count(),
        }
    (folder / "check.json").write_text(json.dumps(result))


def main() -> int:
    task = json.loads(sys.argv[1])
    folder = Path(task["folder"])
    spark = SparkSession.builder.appName("copy").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if task.get("check"):
        check(spark, task, folder)
    else:
        copy(spark, task, folder)
        (folder / "ended").touch()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
