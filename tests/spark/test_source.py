"""The data source's classes without a JVM. Needs pyspark and pyarrow: runs in the Spark environments, and here where
they are."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed here; `make spark` runs this with it")
pytest.importorskip("pyarrow", reason="pyarrow is not installed here; `make spark` runs this with it")

from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import Ended, TrimHorizon
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer import Producer
from kinesis_sdk.spark import source
from kinesis_sdk.spark.columns import COLUMNS
from kinesis_sdk.spark.offsets import QueryOffset
from kinesis_sdk.spark.options import SourceOptions
from kinesis_sdk.spark.python_environment import MAX_TASKS_VARIABLE
from kinesis_sdk.spark.reading import ShardRange
from kinesis_sdk.spark.source import (
    HAS_ADMISSION_CONTROL,
    KinesisDataSource,
    KinesisStreamReader,
    RangePartition,
)
from kinesis_sdk.testing import FakeAws

KINDS = {"binary": BinaryType(), "string": StringType(), "long": LongType(), "timestamp": TimestampType()}
SCHEMA = StructType([StructField(name, KINDS[kind]) for name, kind in COLUMNS])
OPTIONS = {"streamName": "orders", "region": "us-east-1", "startingPosition": "TRIM_HORIZON"}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    aws = FakeAws()
    client = aws.client("kinesis")
    client.create_stream(StreamName="orders", ShardCount=2)
    monkeypatch.setattr(source, "shared_client", lambda _access: client)
    yield aws


def put(aws: FakeAws, *payloads: bytes) -> None:
    for payload in payloads:
        aws.client("kinesis").put_record(StreamName="orders", Data=payload, PartitionKey="k")


def stream_reader(**more: str) -> KinesisStreamReader:
    return KinesisDataSource({**OPTIONS, **more}).streamReader(SCHEMA)


def fields(*wanted: tuple[str, Any]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in wanted])


@pytest.mark.parametrize(
    "schema",
    [
        fields(),
        fields(("data", StringType())),
        fields(("payload", BinaryType())),
        fields(("data", BinaryType()), ("data", BinaryType())),
    ],
    ids=["empty", "wrong type", "unknown column", "a column twice"],
)
def test_a_schema_with_other_columns_is_refused(schema: StructType) -> None:
    with pytest.raises(ConfigError, match="schema"):
        KinesisDataSource(OPTIONS).reader(schema)
    with pytest.raises(ConfigError, match="schema"):
        KinesisDataSource(OPTIONS).streamReader(schema)


def test_a_read_has_the_columns_of_its_schema(aws: FakeAws) -> None:
    assert KinesisDataSource.name() == "kinesis_sdk"
    put(aws, b"0", b"1")
    schema = fields(("shardId", StringType()), ("data", BinaryType()))
    source = KinesisDataSource(OPTIONS)
    reader: Any = pickle.loads(pickle.dumps(source.reader(schema)))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [batch.schema.names for batch in batches] == [["shardId", "data"]]
    assert batches[0].column("data").to_pylist() == [b"0", b"1"]
    query: Any = pickle.loads(pickle.dumps(source.streamReader(schema)))
    begin = query.initialOffset()
    (part,) = query.partitions(begin, query.latestOffset(begin))
    assert [batch.schema.names for batch in query.read(part)] == [["shardId", "data"]]


def test_loading_checks_the_options() -> None:
    assert KinesisDataSource(OPTIONS).schema() == SCHEMA
    assert all(not field.metadata for field in KinesisDataSource(OPTIONS).schema().fields)
    for wrong in ({"maxBatchSpan": "60"}, {"streamNam": "x"}, {"aggregation": "maybe"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            KinesisDataSource({**OPTIONS, **wrong}).schema()
    with pytest.raises(ConfigError, match="streamName"):
        KinesisDataSource({}).schema()


def test_values_are_parsed_into_the_columns_of_the_schema(aws: FakeAws) -> None:
    put(aws, b'{"id":1}', b"?")
    source = KinesisDataSource({**OPTIONS, "valueFormat": "json"})
    with pytest.raises(ConfigError, match="a schema beside valueFormat=json"):
        source.schema()
    schema = fields(("_shard_id", StringType()), ("id", LongType()), ("_corrupt_record", StringType()))
    with pytest.raises(ConfigError, match="column _arrival"):
        source.reader(fields(("_arrival", StringType()), ("id", LongType())))
    reader: Any = pickle.loads(pickle.dumps(source.streamReader(schema)))
    begin = reader.initialOffset()
    (part,) = reader.partitions(begin, reader.latestOffset(begin))
    (batch,) = reader.read(part)
    assert [tuple(row.values())[1:] for row in batch.to_pylist()] == [(1, None), (None, "?")]
    assert batch.schema.names == ["_shard_id", "id", "_corrupt_record"]


def test_the_option_columns_is_the_schema_of_a_read(aws: FakeAws) -> None:
    put(aws, b'{"id":1}')
    for more, names in (
        ({"columns": "data, shardId"}, ["data", "shardId"]),
        ({"columns": "id BIGINT, _shard_id STRING", "valueFormat": "json"}, ["id", "_shard_id"]),
    ):
        source = KinesisDataSource({**OPTIONS, **more})
        schema = source.schema()
        assert schema.names == names
        reader = source.reader(schema)
        (batch,) = [batch for part in reader.partitions() for batch in reader.read(part)]
        assert batch.schema.names == names
        with pytest.raises(ConfigError, match="columns"):
            source.reader(fields(("partitionKey", StringType())))
    for more in (
        {"columns": "data, payload"},
        {"columns": "data, data"},
        {"columns": "id", "valueFormat": "json"},
        {"columns": "_arrival STRING, id INT", "valueFormat": "json"},
    ):
        with pytest.raises(ConfigError, match="column"):
            KinesisDataSource({**OPTIONS, **more}).schema()
    table = {"provider": "kinesis_sdk", **{f"option.{name}": text for name, text in OPTIONS.items()}}
    created = KinesisDataSource({**table, "option.columns": "id INT", "option.valueFormat": "json"}).schema()
    assert created.fields[0].metadata
    assert KinesisDataSource({}).reader(created)._rows.raw == ("data",)


def test_headers_are_a_column_with_the_option(aws: FakeAws) -> None:
    with Producer(client=aws.client("kinesis")) as producer:
        producer.put("orders", "k", b"0", headers={"n": "v", "bin": b"\xff"})
        producer.put("orders", "k", b"1")
    with_headers = KinesisDataSource({**OPTIONS, "includeHeaders": "true"})
    headers = StructField("headers", MapType(StringType(), BinaryType()))
    assert with_headers.schema() == StructType([*SCHEMA.fields, headers])
    reader: Any = pickle.loads(pickle.dumps(with_headers.reader(with_headers.schema())))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert {row["data"]: row["headers"] for row in rows} == {b"0": [("n", b"v"), ("bin", b"\xff")], b"1": []}
    with pytest.raises(ConfigError, match="expected no schema"):
        KinesisDataSource(OPTIONS).reader(with_headers.schema())


def test_a_table_keeps_its_options_in_its_schema(aws: FakeAws) -> None:
    put(aws, b"0", b"1")
    created = {
        **{f"option.{name.lower()}": value for name, value in OPTIONS.items()},
        "provider": "kinesis_sdk",
    }
    schema = StructType.fromJson(KinesisDataSource(created).schema().jsonValue())  # the catalog keeps JSON
    assert [field.name for field in schema.fields] == [name for name, _ in COLUMNS]
    reader: Any = KinesisDataSource({}).reader(schema)
    assert reader._options == KinesisDataSource(OPTIONS).reader(SCHEMA)._options
    query: Any = KinesisDataSource({"minProbeInterval": "2s"}).streamReader(schema)
    assert (query._options.stream_names, query._options.min_probe_interval) == ("orders", 2.0)
    with pytest.raises(ConfigError, match="INSERT INTO … WITH"):
        KinesisDataSource({}).writer(schema, overwrite=False)
    with pytest.raises(ConfigError, match="INSERT INTO … WITH"):
        KinesisDataSource({}).streamWriter(schema, overwrite=False)
    with pytest.raises(ConfigError, match="CREATE TEMPORARY VIEW"):
        KinesisDataSource({}).reader(SCHEMA)


def test_a_batch_read_of_some_shards(aws: FakeAws) -> None:
    for place, data in ((0, b"low"), (2**127, b"high")):
        aws.client("kinesis").put_record(
            StreamName="orders", Data=data, PartitionKey="k", ExplicitHashKey=str(place)
        )
    options = {**OPTIONS, "shardIds": "shardId-000000000001"}
    reader: Any = KinesisDataSource(options).reader(SCHEMA)
    rows = [
        value
        for part in reader.partitions()
        for batch in reader.read(part)
        for value in batch.column("data").to_pylist()
    ]
    assert rows == [b"high"]
    with pytest.raises(ConfigError, match="shardIds='shardId-000000000007'"):
        KinesisDataSource({**OPTIONS, "shardIds": "shardId-000000000007"}).reader(SCHEMA).partitions()
    with pytest.raises(ConfigError, match="shardIds="):
        KinesisDataSource(options).streamReader(SCHEMA)


def test_the_reader_takes_no_filters() -> None:
    """See `KinesisReader`: a pushed filter would also drop rows of other scans."""
    assert "pushFilters" not in vars(source.KinesisReader)


def test_making_readers_does_no_calls_and_pickling_leaves_the_planner_behind(aws: FakeAws) -> None:
    reader = stream_reader()
    assert set(aws.stats()["calls"]) <= {"CreateStream"}
    reader.initialOffset()
    copy = pickle.loads(pickle.dumps(reader))
    assert copy._planner is None
    assert copy._options == reader._options
    assert len(pickle.dumps(reader)) < 4_000


def test_the_starting_instant_is_the_same_whenever_it_is_asked_for(aws: FakeAws) -> None:
    reader = stream_reader(startingPosition="LATEST")
    first = reader.initialOffset()
    assert reader.initialOffset() == first


def test_a_query_with_and_without_a_start(aws: FakeAws) -> None:
    """From 4.2 on the engine passes the start; before, the reader knows it from what was asked last."""
    put(aws, b"0", b"1")
    new = stream_reader(minProbeInterval="200ms")
    begin = new.initialOffset()
    end = new.latestOffset(begin)
    assert end != begin
    assert new.latestOffset(end) == end
    old = stream_reader(minProbeInterval="200ms")
    assert QueryOffset.from_dict(old.latestOffset()).streams == QueryOffset.from_dict(end).streams
    restarted = stream_reader()
    assert restarted.partitions(end, end) == []
    assert restarted.latestOffset() == end
    rows = [
        value
        for part in new.partitions(begin, end)
        for batch in pickle.loads(pickle.dumps(new)).read(part)
        for value in batch.column("data").to_pylist()
    ]
    assert rows == [b"0", b"1"]
    assert list(new.read(RangePartition([]))) == [], "Spark makes a partition where there is none"
    nothing: Any = None
    assert list(new.read(nothing)) == [], "as Spark does before 4.2"
    report = new.reportLatestOffset()
    assert report is not None
    assert report["maxBehindMs"] == 0
    assert stream_reader().reportLatestOffset() is None
    assert new.commit(end) is None
    assert new.stop() is None


def test_the_options_decide_how_shards_are_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MAX_TASKS_VARIABLE, raising=False)

    def sizes(shards: int, **chosen: str) -> list[int]:
        stream = StreamId.parse("orders")
        ranges = [ShardRange(stream, f"shardId-{n:012d}", TrimHorizon(), Ended()) for n in range(shards)]
        tasks = source._group(ranges, SourceOptions.parse({**OPTIONS, **chosen}))
        return sorted((len(task.value) for task in tasks), reverse=True)

    assert sizes(3) == [1, 1, 1]
    assert sizes(64) == [1] * 64
    assert sizes(65) == [2] + [1] * 63
    assert sizes(1_000) == [16] * 40 + [15] * 24
    assert sizes(5, shardsPerTask="2") == [2, 2, 1]
    assert sizes(5, maxTasks="2") == [3, 2]
    assert sizes(0) == []
    monkeypatch.setenv(MAX_TASKS_VARIABLE, "4")
    assert sizes(12) == [3] * 4, "as many as suit the session"


@pytest.mark.skipif(not HAS_ADMISSION_CONTROL, reason="pyspark before 4.2 has no read limits")
def test_read_limits(aws: FakeAws) -> None:
    """Anything but `ReadAllAvailable` keeps the limits of the options, whatever number it has."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    assert isinstance(stream_reader().getDefaultReadLimit(), ReadMaxRows)
    assert isinstance(stream_reader(maxBatchSpan="100ms").getDefaultReadLimit(), ReadMaxRows)
    assert isinstance(stream_reader(maxBatchSpan="0").getDefaultReadLimit(), ReadAllAvailable)
    assert isinstance(
        stream_reader(maxBatchSpan="0", maxRecordsPerShard="5").getDefaultReadLimit(), ReadMaxRows
    )
    assert isinstance(
        stream_reader(maxBatchSpan="0", maxBytesPerTrigger="5").getDefaultReadLimit(), ReadMaxRows
    )
    put(aws, *[b"%d" % n for n in range(30)])
    limited = stream_reader(maxRecordsPerShard="3")
    begin = limited.initialOffset()

    def rows(limit: Any) -> int:
        reader = stream_reader(maxRecordsPerShard="3")
        end = reader.latestOffset(begin, limit)
        return sum(batch.num_rows for part in reader.partitions(begin, end) for batch in reader.read(part))

    assert rows(limited.getDefaultReadLimit()) == 3
    assert rows(ReadAllAvailable()) == 30, "the engine's word counts more than the options"


STARTED = f"""
import pickle, sys
from kinesis_sdk.spark import connection, source
options = {{**{OPTIONS!r}, "accessKeyId": "a", "secretAccessKey": "b"}}
read = source.KinesisDataSource(options).streamReader(source.KinesisDataSource(options).schema())
def is_reached(*_): raise ConnectionError
"""
PLAN = """
connection.ConnectionSettings.client = is_reached
try: read.planner
except ConnectionError: pass
"""
READ = """
from kinesis_sdk.common.position import Ended, TrimHorizon
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.reading import ShardRange
connection.ConnectionSettings.client = is_reached
ranges = [ShardRange(StreamId.parse("orders"), "shardId-0", TrimHorizon(), Ended())]
try: next(pickle.loads(pickle.dumps(read)).read(source.RangePartition(ranges)))
except ConnectionError: pass
"""
CALLS = {
    "botocore",
    "boto3",
    "http.client",
    "kinesis_sdk.common.transport",
    "kinesis_sdk.common.aggregate_reader",
}
PLANNING = {"kinesis_sdk.spark.planner", "kinesis_sdk.spark.probe", "kinesis_sdk.spark.listing"}
READING = {"kinesis_sdk.spark.arrow", "kinesis_sdk.spark.repetitions", "kinesis_sdk.common.once.reader"}


@pytest.mark.parametrize(
    ("code", "needless"),
    [
        (
            "",
            CALLS
            | PLANNING
            | READING
            | {"kinesis_sdk.spark.reading", "kinesis_sdk.spark.offsets", "pyarrow", "kinesis_sdk.producer"},
        ),
        (PLAN, READING | {"boto3", "pyarrow", "kinesis_sdk.producer", "kinesis_sdk.common.aggregate_reader"}),
        (READ, PLANNING | {"boto3", "kinesis_sdk.producer"}),
        (
            "connection.ConnectionSettings(region_name='a', access_key_id='a', secret_access_key='b').client()",
            {"boto3"},
        ),
    ],
    ids=["creates the source", "plans", "reads", "makes a client"],
)
def test_each_process_of_a_query_imports_what_it_needs(code: str, needless: set[str]) -> None:
    """A query starts several Python processes, and each of them imports anew."""
    shown = f"print(*({needless!r} & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", f"{STARTED}\n{code}\n{shown}"], check=True, capture_output=True, text=True
    )
    assert found.stdout.split() == []
