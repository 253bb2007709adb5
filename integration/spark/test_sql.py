"""SQL and DataFrame habits: views, tables, INSERT INTO, chosen columns, copies, and what Spark does with filters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyspark
import pytest
from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

pytestmark = pytest.mark.core

# Before 4.1, Spark fills no columns that an INSERT leaves out.
FILLS_COLUMNS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1)
HIGH = str(2**127)


def option_list(stream: Any, **more: str) -> str:
    return "(" + ", ".join(f"{name} '{value}'" for name, value in stream.options(**more).items()) + ")"


def with_list(stream: Any, **more: str) -> str:
    return "(" + ", ".join(f"'{name}' = '{value}'" for name, value in stream.options(**more).items()) + ")"


def load(spark: Any, stream: Any, **more: str) -> Any:
    return spark.read.format("kinesis_sdk").options(**stream.options(**more)).load()


def stored(spark: Any, stream: Any) -> list[str]:
    return sorted(bytes(row.data).decode() for row in load(spark, stream).collect())


@pytest.fixture
def names(spark: Any) -> Iterator[Any]:
    """Makes names of views and tables; they are dropped when the test ends."""
    made: list[tuple[str, str]] = []

    def make(kind: str) -> str:
        made.append((kind, f"{kind}_{len(made)}"))
        return made[-1][1]

    yield make
    for kind, name in made:
        spark.sql(f"DROP {kind} IF EXISTS {name}")


def test_a_view_is_read_and_inserted_into(spark: Any, stream: Any, names: Any) -> None:
    orders = stream(2)
    view, narrow = names("view"), names("view")
    chosen = option_list(orders, columns="shardId, partitionKey, data, explicitHashKey")
    spark.sql(f"CREATE TEMPORARY VIEW {view} USING kinesis_sdk OPTIONS {chosen}")
    spark.sql(
        f"CREATE TEMPORARY VIEW {narrow} (data BINARY, partitionKey STRING) "
        f"USING kinesis_sdk OPTIONS {option_list(orders, partitionKey='random')}"
    )
    spark.sql(f"INSERT INTO {narrow} VALUES (X'30', 'k'), (X'31', NULL)")
    if FILLS_COLUMNS:
        spark.sql(
            f"INSERT INTO {view} (partitionKey, data, explicitHashKey) SELECT 'k', encode('2', 'UTF-8'), '{HIGH}'"
        )
        with pytest.raises(Exception, match=r"partitionKey: 1 of 1 rows .*partitionKey=random"):
            spark.sql(f"INSERT INTO {view} (data) VALUES (X'33')")
    else:
        # All columns of the view, by position.
        columns = f"NULL, 'k', encode('2', 'UTF-8'), '{HIGH}'"
        spark.sql(f"INSERT INTO {view} SELECT {columns}")
    with pytest.raises(Exception, match="cannot be overwritten"):
        spark.sql(f"INSERT OVERWRITE {narrow} VALUES (X'30', 'k')")
    rows = spark.sql(f"SELECT * FROM {view} ORDER BY data").collect()
    assert [bytes(row.data) for row in rows] == [b"0", b"1", b"2"]
    assert [row.partitionKey for row in rows[::2]] == ["k", "k"]
    assert len(rows[1].partitionKey) == 16
    assert rows[2].shardId == "shardId-000000000001"
    assert spark.sql(f"SELECT count(data) FROM {narrow}").collect()[0][0] == 3


def test_a_table_keeps_its_options(spark: Any, stream: Any, names: Any) -> None:
    orders, others = stream(1), stream(1)
    table, listed = names("table"), names("table")
    kept = option_list(orders, minProbeInterval="200ms", columns="partitionKey, data")
    spark.sql(f"CREATE TABLE {table} USING kinesis_sdk OPTIONS {kept}")
    orders.put(b"0")
    assert [bytes(row.data) for row in spark.sql(f"SELECT data FROM {table}").collect()] == [b"0"]
    orders.put(b"1")
    assert spark.table(table).count() == 2, "each query reads what the stream holds then"
    assert spark.sql(f"SELECT * FROM {table} WITH {with_list(others)}").collect() == []
    with pytest.raises(Exception, match="INSERT INTO … WITH"):
        spark.sql(f"INSERT INTO {table} SELECT * FROM {table}")
    spark.sql(f"INSERT INTO {table} WITH {with_list(orders)} SELECT * FROM {table} WHERE data = X'31'")
    query = (
        spark.readStream.option("startingPosition", "TRIM_HORIZON")
        .table(table)
        .writeStream.format("memory")
        .queryName("streamed_table")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(900)
    assert sorted(bytes(row.data) for row in spark.table("streamed_table").collect()) == [b"0", b"1", b"1"]

    # What a table cannot have is refused when it is created, or says what to write.
    secret = option_list(orders, accessKeyId="AKIDEXAMPLE", secretAccessKey="do-not-show-this")
    with pytest.raises(Exception, match="no credentials in the options of a table") as caught:
        spark.sql(f"CREATE TABLE {names('table')} USING kinesis_sdk OPTIONS {secret}")
    assert "do-not-show-this" not in str(caught.value)
    with pytest.raises(Exception, match="tipLag"):
        spark.sql(
            f"CREATE TABLE {names('table')} USING kinesis_sdk OPTIONS {option_list(orders, tipLag='5')}"
        )
    spark.sql(f"CREATE TABLE {listed} (data BINARY) USING kinesis_sdk OPTIONS {option_list(orders)}")
    with pytest.raises(Exception, match="create it without columns"):
        spark.table(listed).collect()


def test_a_frame_that_was_read_can_be_written(spark: Any, stream: Any, endpoint: Any) -> None:
    source, target = stream(2), stream(2)
    frame = spark.range(20).select(
        F.concat(F.lit("row-"), "id").alias("data"),
        F.concat(F.lit("key-"), "id").alias("partitionKey"),
        F.when(F.col("id") % 2 == 0, HIGH).alias("explicitHashKey"),
    )
    frame.write.format("kinesis_sdk").options(**source.options()).mode("append").save()
    load(spark, source).write.format("kinesis_sdk").options(**target.options()).mode("append").save()

    def rows(stream: Any) -> list[Any]:
        columns = ["data", "partitionKey", "explicitHashKey", "shardId"]
        return sorted(map(tuple, load(spark, stream).select(*columns).collect()))

    assert len(rows(source)) == 20
    assert rows(target) == rows(source)
    if endpoint.server is None:
        return
    # Where the service distributes records, a record may have no key.
    name = f"{source.name[:100]}-auto"
    endpoint.kinesis.create_stream(
        StreamName=name,
        StreamModeDetails={"StreamMode": "ON_DEMAND"},
        RecordDistributionStrategy="AUTO",
    )
    spread = type(source)(endpoint, name)
    spread.settle()
    try:
        endpoint.kinesis.put_record(StreamName=name, Data=b"no key")
        keyless = load(spark, spread)
        assert [(bytes(row.data), row.partitionKey) for row in keyless.collect()] == [(b"no key", None)]
        keyless.write.format("kinesis_sdk").options(**spread.options()).mode("append").save()
        assert stored(spark, spread) == ["no key", "no key"]
    finally:
        spread.delete()


def test_filters_find_their_rows_also_where_spark_pushes_them(spark: Any, stream: Any) -> None:
    orders = stream(2)
    for place, data in (("0", b"low"), (HIGH, b"high")):
        orders.put_entries([{"Data": data, "PartitionKey": "k", "ExplicitHashKey": place}])
    first, second = "shardId-000000000000", "shardId-000000000001"
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, orders)
        assert [bytes(row.data) for row in frame.filter(F.col("shardId") == first).collect()] == [b"low"]
        assert frame.count() == 2
        both = frame.filter(F.col("shardId") == first).union(frame.filter(F.col("shardId") == second))
        assert sorted(bytes(row.data) for row in both.collect()) == [b"high", b"low"]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert [bytes(row.data) for row in load(spark, orders, shardIds=second).collect()] == [b"high"]
