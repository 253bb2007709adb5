"""The writer and foreachPartition: everything is stored when a task ends, or the task fails and says why."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

from kinesis_sdk.producer import ProducerConfig
from kinesis_sdk.spark import ConnectionSettings, KinesisPartitionWriter, ProducerSettings, shared_producer


def rows_of(spark: Any, count: int, partitions: int = 2) -> Any:
    number = F.col("id")
    return spark.range(0, count, 1, partitions).select(
        F.concat(F.lit("row-"), number).alias("data"),
        F.concat(F.lit("key-"), number % 50).alias("partitionKey"),
    )


def stored(spark: Any, stream: Any) -> Counter[str]:
    frame = spark.read.format("kinesis_sdk").options(**stream.options()).load()
    return Counter(bytes(row.data).decode() for row in frame.select("data").collect())


def save(frame: Any, stream: Any, **options: str) -> None:
    frame.write.format("kinesis_sdk").options(**stream.options(**options)).mode("append").save()


@pytest.mark.core
@pytest.mark.localstack
def test_text_and_hash_keys_and_random_partition_keys(spark: Any, stream: Any) -> None:
    orders = stream(2)
    began = time.time()
    save(rows_of(spark, 500), orders)
    save(rows_of(spark, 500).withColumn("explicitHashKey", F.lit(str(2**127 + 5))), orders)
    save(rows_of(spark, 500).select(F.col("data").cast("binary")), orders, partitionKey="random")
    save(rows_of(spark, 500), orders, aggregation="false")
    frame = spark.read.format("kinesis_sdk").options(**orders.options()).load()
    rows = frame.collect()
    assert Counter(bytes(row.data).decode() for row in rows) == {f"row-{n}": 4 for n in range(500)}
    hashed = [row for row in rows if row.explicitHashKey == str(2**127 + 5)]
    assert len(hashed) == 500
    assert {row.shardId for row in hashed} == {"shardId-000000000001"}
    assert sum(row.subSequenceNumber is None for row in rows) >= 500
    assert {row.streamName for row in rows} == {orders.name}
    assert all(
        began - 60 < row.approximateArrivalTimestamp.timestamp() < time.time() + 60 for row in rows[:5]
    )


def test_a_record_that_is_not_stored_fails_the_job_with_counts_by_cause(spark: Any, stream: Any) -> None:
    orders = stream(1)
    if orders.endpoint.server is None:
        pytest.skip("makes the service fail, which only our fake can be told to do")
    orders.endpoint.server.admin(
        "faults",
        {"kind": "partial", "operation": "PutRecords", "code": "InternalFailure", "stream": orders.name},
    )
    with pytest.raises(
        Exception, match=r"20 records of this task .*were not stored \(20 InternalFailure\)"
    ) as caught:
        save(rows_of(spark, 20, 1), orders, flushTimeout="1s")
    assert "PartitionFailedError" in str(caught.value)
    assert "attempt 3" in str(caught.value), "Spark tried the task again"
    assert "row-" not in str(caught.value), "payloads stay out of messages"


def test_a_row_that_the_service_would_refuse_fails_the_job_once(spark: Any, stream: Any) -> None:
    orders = stream(1)
    with pytest.raises(Exception, match=r"partitionKey: 10 of 10 rows are null; the first is row 1 "):
        save(rows_of(spark, 10, 1).withColumn("partitionKey", F.lit(None).cast("string")), orders)
    mixed = rows_of(spark, 20, 1).withColumn(
        "partitionKey", F.when(F.col("data").endswith("-15"), F.lit("")).otherwise(F.lit("k"))
    )
    with pytest.raises(Exception, match="partition_key: expected 1 to 256 characters"):
        save(mixed, orders)
    found = list(orders.payloads())
    assert len(found) == len(set(found)) <= 15, "no other attempt stored them again"


def test_bad_rows_are_left_out_where_the_option_says_so(spark: Any, stream: Any) -> None:
    orders, bad = stream(1), stream(1)
    mixed = rows_of(spark, 20, 2).withColumn(
        "partitionKey", F.when(F.col("data").endswith("-15"), F.lit("")).otherwise(F.lit("k"))
    )
    save(mixed, orders, badRows="skip")
    assert len(list(orders.payloads())) == 19
    save(mixed, orders, badRows="dlq", badRowsStream=bad.name)
    assert len(list(orders.payloads())) == 38
    letters = (
        spark.read.format("kinesis_sdk")
        .schema("data BINARY, partitionKey STRING, field STRING, problem STRING")
        .options(**bad.options(valueFormat="json"))
        .load()
    )
    (row,) = letters.collect()
    assert (bytes(row.data)[-3:], row.partitionKey, row.field) == (b"-15", "", "partition_key")


def test_a_sink_that_fails_in_the_middle_of_a_partition_and_is_tried_again(
    spark: Any, stream: Any, folder: Path
) -> None:
    """At least once: nothing is missing, and what the failed attempt had put is there twice."""
    orders = stream(1)
    marker = str(folder / "failed-once")

    def fail_once(batches: Any) -> Any:
        import pathlib

        import pyarrow as pa

        for batch in batches:
            for start in range(0, batch.num_rows, 100):
                if start == 300 and not pathlib.Path(marker).exists():
                    pathlib.Path(marker).touch()
                    raise RuntimeError("on purpose")
                yield pa.RecordBatch.from_arrays(batch.slice(start, 100).columns, schema=batch.schema)

    save(rows_of(spark, 1_000, 1).mapInArrow(fail_once, "data string, partitionKey string"), orders)
    found = stored(spark, orders)
    assert set(found) == {f"row-{number}" for number in range(1_000)}
    assert max(found.values()) <= 2


@pytest.mark.core
@pytest.mark.localstack
def test_stream_to_stream(spark: Any, stream: Any, folder: Path) -> None:
    source, target = stream(1), stream(1)
    source.put(*[f"k:{number}".encode() for number in range(300)])
    frame = spark.readStream.format("kinesis_sdk").options(**source.reader_options()).load()
    query = (
        frame.select("data", "partitionKey")
        .writeStream.format("kinesis_sdk")
        .options(**target.options())
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(900)
    assert stored(spark, target) == {f"k:{number}": 1 for number in range(300)}


@pytest.mark.core
@pytest.mark.localstack
def test_foreach_partition(spark: Any, stream: Any) -> None:
    orders = stream(2)
    settings = ProducerSettings(
        config=ProducerConfig(record_max_buffered_time=0.05),
        region_name="us-east-1",
        endpoint_url=orders.endpoint.url,
    )
    rows_of(spark, 2_000).foreachPartition(
        KinesisPartitionWriter(orders.name, partition_key="partitionKey", data="data", settings=settings)
    )
    name = orders.name

    def send(rows: Any) -> None:
        import sys

        sys.modules["pyarrow"] = None  # type: ignore[assignment] # as where it is not installed
        with shared_producer(settings) as producer:
            for row in rows:
                producer.put(name, row.partitionKey, row.data)
        del sys.modules["pyarrow"]

    rows_of(spark, 2_000).foreachPartition(send)
    assert stored(spark, orders) == {f"row-{number}": 2 for number in range(2_000)}


def test_credentials_of_a_role_are_resolved_in_each_process(
    spark: Any, stream: Any, monkeypatch: Any
) -> None:
    """Static credentials travel as options and stay out of plans; a role's are fetched where they are used."""
    orders = stream(1)
    secret = {"accessKeyId": "AKIDEXAMPLE", "secretAccessKey": "do-not-show-this"}
    save(rows_of(spark, 10), orders, **secret)
    frame = spark.read.format("kinesis_sdk").options(**orders.options(**secret)).load()
    assert frame.count() == 10
    assert "do-not-show-this" not in frame._jdf.queryExecution().toString()
    assert "do-not-show-this" not in repr(
        ConnectionSettings(access_key_id="a", secret_access_key="do-not-show-this")
    )
