"""The job that `bench_spark_cluster.py` submits: the pipeline of ``examples/flights_pipeline.py``, until the stream is read.

    spark-submit --master spark://… benchmarks/spark_cluster/job.py JSON

The JSON object: ``options`` of the reader, ``folder`` for checkpoints and results, ``ledger``, whether a second query
records which user records of each Kinesis record it got, and ``connector``, whether AWS Labs' connector reads. A driver that is killed continues from the checkpoint when the job
is submitted again. Results are replaced as a whole, so a batch that runs again leaves no trace.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from flights_pipeline import delays


def _replace(path: Path, value: Any) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)


def main() -> int:
    task = json.loads(sys.argv[1])
    folder = Path(task["folder"])
    spark = SparkSession.builder.appName("flights").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def stream(schema: str, **more: str) -> Any:
        if task["connector"]:
            return spark.readStream.format("aws-kinesis").options(**task["options"]).load()
        reader = spark.readStream.format("kinesis_sdk").schema(schema)
        return reader.options(**task["options"], **more).load()

    def parsed(schema: str) -> Any:
        if task["connector"]:
            value = F.from_json(F.col("data").cast("string"), schema)
            return stream("").select(value.alias("value")).select("value.*")
        return stream(schema, valueFormat="json")

    def start(frame: Any, name: str, mode: str, sink: Any) -> Any:
        return (
            frame.writeStream.outputMode(mode)
            .queryName(name)
            .foreachBatch(sink)
            .option("checkpointLocation", str(folder / f"checkpoint-{name}"))
            .trigger(availableNow=True)
            .start()
        )

    def save_statistics(frame: Any, batch_id: int) -> None:
        week = F.col("week.start").cast("timestamp").cast("long")
        rows = frame.select(week.alias("week"), "origin", "flights", "mean_delay", "late").collect()
        _replace(folder / "statistics.json", {"batch": batch_id, "rows": [list(row) for row in rows]})

    def save_ledger(frame: Any, batch_id: int) -> None:
        sub = F.lit(None) if task["connector"] else F.col("subSequenceNumber")
        rows = frame.groupBy("sequenceNumber").agg(F.count("*"), F.min(sub), F.max(sub), F.sum(sub)).collect()
        _replace(folder / "ledger" / f"{batch_id:06d}.json", [list(row) for row in rows])

    began = time.time()
    flights = parsed("date timestamp, delay int, origin string")
    queries = [start(delays(flights), "delays", "complete", save_statistics)]
    if task["ledger"]:
        (folder / "ledger").mkdir(exist_ok=True)
        queries.append(
            start(
                stream("sequenceNumber string, subSequenceNumber bigint"),
                "ledger",
                "append",
                save_ledger,
            )
        )
    for query in queries:
        query.awaitTermination()
    seconds = time.time() - began
    batches = [
        {"rows": progress.numInputRows, "seconds": progress.durationMs.get("triggerExecution", 0) / 1000}
        | {name: millis / 1000 for name, millis in progress.durationMs.items()}
        for progress in queries[0].recentProgress
    ]
    _replace(folder / "run.json", {"began": began, "seconds": seconds, "batches": batches})
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
