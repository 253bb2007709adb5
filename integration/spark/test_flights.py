"""The main job: real flights through the PySpark writer, the stream, and the PySpark reader, compared exactly."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from integration.spark.harness import Lasting, wait_for
from kinesis_sdk.consumer import ConsumerConfig, RecordBatch, RetrievalConfig, Worker
from kinesis_sdk.testing.flights import load_flights

pytestmark = pytest.mark.core


def flights_frame(spark: Any, partitions: int = 2) -> Any:
    rows = [(flight.origin, number, flight.line.decode()) for number, flight in enumerate(load_flights())]
    return spark.createDataFrame(rows, "partitionKey string, number long, data string").repartition(
        partitions
    )


def by_position(rows: list[Any]) -> dict[tuple[str, str, int], tuple[str, str]]:
    """Return key and data of each position in the stream, which must be there once."""
    found = {
        (row.shardId, row.sequenceNumber, row.subSequenceNumber): (
            row.partitionKey,
            bytes(row.data).decode(),
        )
        for row in rows
    }
    assert len(found) == len(rows)
    return found


@pytest.mark.localstack
@pytest.mark.scene
def test_flights_through_kinesis_and_back(spark: Any, stream: Any, folder: Path) -> None:
    """Writer, streaming reader into Parquet, batch reader and the consumer's workers, with a split on the way."""
    flights = stream(2)
    frame = flights_frame(spark).cache()
    sent = Counter((row.partitionKey, row.data) for row in frame.collect())
    consumed: Counter[tuple[str, str]] = Counter()
    lock = threading.Lock()

    def handle(batch: RecordBatch) -> None:
        with lock:
            consumed.update((record.partition_key, record.data.decode()) for record in batch.records)

    workers = [
        Worker(
            flights.name,
            application_name=f"{flights.name}-workers",
            handler=handle,
            config=ConsumerConfig(
                initial_position="TRIM_HORIZON", retrieval=RetrievalConfig(idle_time_between_reads=0.25)
            ),
            endpoint_url=flights.endpoint.url,
        )
        for _ in range(2)
    ]
    threads = [threading.Thread(target=worker.run, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    output = folder / "parquet"
    source = spark.readStream.format("kinesis_sdk").options(**flights.reader_options()).load()
    writer = (
        source.writeStream.format("parquet")
        .option("path", str(output))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="500 milliseconds")
    )
    lasting = Lasting(writer.start)
    try:
        half = frame.sample(0.5, seed=1)
        rest = frame.subtract(half)
        for part in (half, rest):
            (
                part.select("partitionKey", "data")
                .write.format("kinesis_sdk")
                .options(**flights.options())
                .mode("append")
                .save()
            )
            flights.split()

        def different(rows: Any) -> int:
            # Not all rows: what is in the stream twice would make up for a flight that is yet to come.
            return int(rows.select("partitionKey", "data").distinct().count())

        def arrived() -> bool:
            lasting.check()
            # With a schema, because Spark finds none in a folder that the query has made and not yet written to.
            rows = spark.read.schema(source.schema).parquet(str(output)) if output.exists() else None
            return rows is not None and different(rows) >= len(sent)

        wait_for(arrived, what="the Parquet output")

        def processed() -> bool:
            assert all(thread.is_alive() for thread in threads), "a worker ended"
            return len(consumed) >= len(sent)

        wait_for(processed, what="the consumer's workers")
    except BaseException:
        sys.stderr.write(
            f"{lasting.query.status}\n{lasting.query.lastProgress}\n{consumed.total()} records consumed, {len(consumed)} of {len(sent)} flights\n"
        )
        raise
    finally:
        lasting.query.stop()
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join(20)
    rows = spark.read.parquet(str(output)).collect()
    received = {(row.partitionKey, bytes(row.data).decode()) for row in rows}
    # The writer delivers at least once: an aggregate that a producer with the old map put across the split goes
    # again, and is in the stream twice. The reader brings what is in the stream, each position once.
    assert received == set(sent)
    assert set(consumed) == set(sent)
    streamed = by_position(rows)
    unsplit = [row for row in rows if row.shardId in {"shardId-000000000000", "shardId-000000000001"}]
    before = Counter((row.partitionKey, bytes(row.data).decode()) for row in unsplit)
    assert all(before[flight] <= sent[flight] for flight in before), "nothing twice without a split"
    carriers = {row.sequenceNumber for row in rows}
    assert len(rows) > 20 * len(carriers), "the writer aggregates"
    batch = by_position(spark.read.format("kinesis_sdk").options(**flights.options()).load().collect())
    # The query ended when it had seen each flight, and the second copy of one may follow.
    assert streamed.items() <= batch.items()
    assert set(batch.values()) == set(sent)
    assert json.loads(rows[0].data)["origin"] == rows[0].partitionKey
