"""A streaming query in its own process, to be killed by a test: ``python -m integration.spark.driver JSON``.

The JSON object has ``options`` of the reader, ``sink`` and ``checkpoint`` (folders), and optionally ``format`` of the sink's
files (``json``, ``parquet`` or ``summary``), ``master`` and ``conf``. It runs until it is killed. If the query fails for another
reason than a slow machine, it prints the reason and ends with status 1.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark

from integration.sessions import kill_all, members

ROOT = Path(__file__).parents[2]


class Driver:
    """A driver process with all of its descendants: JVMs, executors, Python workers."""

    def __init__(self, log: Path, **task: Any) -> None:
        self._log = log
        output = log.open("ab")
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(_spark_home(log.parent / "spark-home")),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "integration.spark.driver", json.dumps(task)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Spark's daemons start their own process groups, but stay in the session.
            start_new_session=True,
        )
        output.close()

    def family(self, text: str = "") -> list[int]:
        """Return the ids of its processes whose command line contains a text."""
        return members(self._process.pid, text)

    def check(self) -> None:
        """Raise if it ended by itself."""
        status = self._process.poll()
        assert status is None, f"the driver ended with status {status}; its log ends:\n{self.tail()}"

    def tail(self) -> str:
        """Return the end of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])

    def kill(self) -> None:
        """SIGKILL all of them, so that nothing can clean up."""
        kill_all(self._process)


@contextlib.contextmanager
def running(log: Path, **task: Any) -> Iterator[Driver]:
    """Run a driver for the length of a with statement, and kill it at the end. If the test fails meanwhile, its output shows the driver's log."""
    driver = Driver(log, **task)
    try:
        yield driver
    except BaseException:
        sys.stderr.write(f"the driver's log ends:\n{driver.tail()}\n")
        raise
    finally:
        driver.kill()


def _spark_home(folder: Path) -> Path:
    """Return a folder with links to Spark's home: local-cluster leaves its executors' folders there."""
    if not folder.exists():
        folder.mkdir()
        for entry in Path(pyspark.__file__).parent.iterdir():
            (folder / entry.name).symlink_to(entry)
    return folder


def state_of(sink: Path) -> dict[int, int]:
    """Return the batches in a sink, and when each was last written."""
    return {int(path.stem): path.stat().st_mtime_ns for path in sink.glob("*.json")}


class ParquetSink:
    """A foreachBatch sink, idempotent by batch id: a folder of Parquet files for each batch, replaced as a whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, frame: Any, batch_id: int) -> None:
        frame.write.mode("overwrite").parquet(str(self.folder / f"batch={batch_id:06d}"))


class SummarySink:
    """A foreachBatch sink for rows that are too large to collect: a JSON object per batch, from sequence numbers to summaries.

    A summary has the ``rows`` of the Kinesis record, the number of different sub-sequence numbers (``subs``) with the ``first`` and
    ``last``, and the smallest and greatest MD5 of the ``payloads``, partition ``keys`` and ``explicit`` hash keys.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def __call__(self, frame: Any, batch_id: int) -> None:
        from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

        def ends(column: str) -> Any:
            digest = F.md5(F.col(column).cast("binary"))
            return F.array(F.min(digest), F.max(digest))

        sub = F.col("subSequenceNumber")
        summaries = frame.groupBy("sequenceNumber").agg(
            F.count("*").alias("rows"),
            F.count_distinct(sub).alias("subs"),
            F.min(sub).alias("first"),
            F.max(sub).alias("last"),
            ends("data").alias("payloads"),
            ends("partitionKey").alias("keys"),
            ends("explicitHashKey").alias("explicit"),
        )
        rows = [row.asDict() for row in summaries.collect()]
        path = self.folder / f"{batch_id:06d}.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps({row.pop("sequenceNumber"): row for row in rows}))
        temporary.replace(path)


def main() -> int:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    from integration.spark.harness import IdempotentSink, Lasting

    task = json.loads(sys.argv[1])
    builder = (
        SparkSession.builder.master(task.get("master", "local[2,3]"))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
    )
    for name, value in task.get("conf", {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    folder = Path(task["sink"])
    sinks = {"json": IdempotentSink, "parquet": ParquetSink, "summary": SummarySink}
    sink = sinks[task.get("format", "json")](folder)

    def begin() -> Any:
        return (
            spark.readStream.format("kinesis_sdk")
            .options(**task["options"])
            .load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", task["checkpoint"])
            .trigger(processingTime="200 milliseconds")
            .start()
        )

    lasting = Lasting(begin)
    while True:
        try:
            lasting.query.awaitTermination()
        except StreamingQueryException:
            lasting.check()
        else:
            return 1


if __name__ == "__main__":
    sys.exit(main())
