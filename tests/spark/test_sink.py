"""The writers without a JVM. Needs pyspark and pyarrow: runs in the Spark environments, and here where they are."""

from __future__ import annotations

import json
import logging
import pickle
import time
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed here; `make spark` runs this with it")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed here; `make spark` runs this with it")

from pyspark.sql.types import (  # noqa: E402 — after the skip
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    Row,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kinesis_sdk.common.errors import ConfigError, InvalidRecordError  # noqa: E402
from kinesis_sdk.common.hashkeys import HashKeyRange, hash_partition_key  # noqa: E402
from kinesis_sdk.common.once import Names  # noqa: E402
from kinesis_sdk.common.once.table import FIRST, NAMED, REPEAT  # noqa: E402
from kinesis_sdk.common.records import KinesisRecord  # noqa: E402
from kinesis_sdk.spark import PartitionFailedError, partition, sink  # noqa: E402
from kinesis_sdk.spark.attempts import Attempt, FirstAttempts, StreamTask  # noqa: E402
from kinesis_sdk.spark.columns import COLUMNS  # noqa: E402
from kinesis_sdk.spark.options import SinkOptions  # noqa: E402
from kinesis_sdk.spark.sink import (  # noqa: E402
    Columns,
    KinesisStreamWriter,
    KinesisWriter,
    Written,
    _batches_of_rows,
    plan_columns,
    write_batches,
)
from kinesis_sdk.spark.stored_names import StoredNames  # noqa: E402
from kinesis_sdk.testing import FakeAws, Fault, VirtualClock  # noqa: E402
from tests.spark.producers import account, flags_of, headers_of, records_of, stored  # noqa: E402
from tests.spark.support import Around  # noqa: E402

ALL = Columns("data", "partitionKey", "explicitHashKey")
KEYED = Columns("data", "partitionKey", None)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    with account(monkeypatch) as aws:
        monkeypatch.setattr(sink, "shared_client", lambda _connection: aws.client("kinesis"))
        yield aws


def chosen(**more: str) -> SinkOptions:
    options = {"streamName": "orders", "region": "us-east-1", "recordMaxBufferedTime": "1ms", **more}
    return SinkOptions.parse({**options, "accessKeyId": "a", "secretAccessKey": "b"})


def batch(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def fields(*wanted: tuple[str, Any]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in wanted])


def test_columns_are_found_in_any_case_and_order() -> None:
    schema = fields(("PARTITIONKEY", StringType()), ("explicithashkey", StringType()), ("Data", BinaryType()))
    assert plan_columns(schema, chosen(), overwrite=False) == Columns(
        "Data", "PARTITIONKEY", "explicithashkey"
    )
    only = fields(("data", StringType()))
    assert plan_columns(only, chosen(partitionKey="random"), overwrite=False) == Columns("data", None, None)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ([("partitionKey", StringType())], "column data"),
        ([("data", IntegerType()), ("partitionKey", StringType())], "binary or string"),
        ([("data", StringType())], "partitionKey=random"),
        ([("data", StringType()), ("partitionKey", BinaryType())], "expected string"),
        ([("data", StringType()), ("partitionKey", StringType()), ("extra", StringType())], "column extra"),
        (
            [("data", StringType()), ("partitionKey", StringType()), ("extra", StringType())],
            "expected data, partitionKey, explicitHashKey, dedupId, headers, or .* sequenceNumber, .* shardId, streamName",
        ),
        ([("data", StringType()), ("partitionKey", StringType()), ("shardId", LongType())], "column shardId"),
    ],
)
def test_columns_that_do_not_fit(columns: list[tuple[str, Any]], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        plan_columns(fields(*columns), chosen(), overwrite=False)


def test_the_columns_of_a_read_are_accepted() -> None:
    kinds = {"binary": BinaryType(), "string": StringType(), "long": LongType(), "timestamp": TimestampType()}
    schema = fields(*((name, kinds[kind]) for name, kind in COLUMNS))
    assert plan_columns(schema, chosen(), overwrite=False) == ALL


@pytest.mark.parametrize("value", [BinaryType(), StringType()])
def test_a_column_of_headers(value: Any) -> None:
    headers = MapType(StringType(), value)
    schema = fields(("data", StringType()), ("partitionKey", StringType()), ("Headers", headers))
    columns = plan_columns(schema, chosen(), overwrite=False)
    assert columns == Columns("data", "partitionKey", None, None, "Headers")
    with pytest.raises(ConfigError, match="map<string,binary> or map<string,string>"):
        wrong = ("headers", MapType(StringType(), LongType()))
        plan_columns(fields(("data", StringType()), wrong), chosen(), overwrite=False)


def test_headers_of_a_column_are_stored(aws: FakeAws) -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "data": [b"0", b"1", b"2"],
            "headers": pa.array([[("n", b"v")], [], None], pa.map_(pa.string(), pa.binary())),
        }
    )
    columns = Columns("data", None, None, None, "headers")
    write_batches(chosen(partitionKey="random"), columns, [rows])
    assert headers_of(aws) == {b"0": {"n": b"v"}, b"1": {}, b"2": {}}


def test_a_stream_is_never_overwritten() -> None:
    with pytest.raises(ConfigError, match="append"):
        plan_columns(fields(("data", StringType()), ("partitionKey", StringType())), chosen(), overwrite=True)


def test_every_row_is_stored_when_the_task_ends(aws: FakeAws) -> None:
    batches = [
        batch(
            data=[b"%d" % n for n in range(start, start + 3_000)],
            partitionKey=[f"k{n % 9}" for n in range(3_000)],
        )
        for start in (0, 3_000)
    ]
    result = write_batches(chosen(), KEYED, iter(batches))
    assert (result.records, result.payload_bytes) == (6_000, sum(len(b"%d" % n) for n in range(6_000)))
    assert Counter(data for _, _, data in stored(aws)) == {b"%d" % n: 1 for n in range(6_000)}


def test_text_is_sent_as_utf8_and_hash_keys_choose_the_shard(aws: FakeAws) -> None:
    rows = batch(data=["ä", "b", "c"], partitionKey=["k"] * 3, explicitHashKey=["0", str(2**127), None])
    result = write_batches(chosen(), ALL, [rows])
    assert result.payload_bytes == 4
    found = {data: shard[-1] for shard, _, data in stored(aws)}
    assert found["ä".encode()] == "0"
    assert found[b"b"] == "1"
    assert len(found) == 3
    large = pa.RecordBatch.from_arrays(
        [pa.array(["z"], pa.large_string()), pa.array(["k"])], names=["data", "partitionKey"]
    )
    assert write_batches(chosen(), KEYED, [large]).records == 1


def test_random_keys_differ(aws: FakeAws) -> None:
    write_batches(chosen(partitionKey="random"), Columns("data", None, None), [batch(data=[b"x"] * 50)])
    assert len({key for _, key, _ in stored(aws)}) == 50


def test_no_rows_are_no_error(aws: FakeAws) -> None:
    assert write_batches(chosen(), KEYED, []).records == 0
    empty = pa.RecordBatch.from_arrays(
        [pa.array([], pa.binary()), pa.array([], pa.string())], ["data", "partitionKey"]
    )
    result = write_batches(chosen(), KEYED, [empty])
    assert (result.records, result.payload_bytes) == (0, 0)


def test_a_bad_row_is_shown_by_its_number_and_keys(aws: FakeAws) -> None:
    good = batch(data=[b"x"] * 3, partitionKey=["k"] * 3, explicitHashKey=[None] * 3)
    long_key = "customer-" + "7" * 300
    for bad, field, shown in (
        (
            (None, "customer-7", "12"),
            "data",
            "row 5 of this task, partitionKey 'customer-7', explicitHashKey '12'",
        ),
        ((b"secret", None, "12"), "partitionKey", "row 5 of this task, explicitHashKey '12'"),
        ((b"secret", "", None), "partition_key", "row 5 of this task, partitionKey ''"),
        ((b"secret", long_key, None), "partition_key", f"partitionKey '{long_key[:40]}... (309 characters)'"),
        ((b"secret", "k", "minus one"), "explicit_hash_key", "partitionKey 'k', explicitHashKey 'minus one'"),
        ((b"secret" * 2_000_000, "k\n", None), "data", r"row 5 of this task, partitionKey 'k\n'"),
    ):
        rows = [(b"x", "k", None), bad]
        kinds = {"data": pa.binary(), "partitionKey": pa.string(), "explicitHashKey": pa.string()}
        found = pa.RecordBatch.from_pydict(
            {name: [row[at] for row in rows] for at, name in enumerate(kinds)}, schema=pa.schema(kinds)
        )
        with pytest.raises(InvalidRecordError) as caught:
            write_batches(chosen(), ALL, [good, found])
        assert caught.value.field == field
        assert shown in str(caught.value)
        assert "secret" not in str(caught.value)
        assert pickle.loads(pickle.dumps(caught.value)).problem == caught.value.problem


def test_a_bad_row_is_counted_after_records_that_are_final(
    aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "_SWEEP", 10)
    with (
        pytest.raises(InvalidRecordError, match=r"row 36 of this task, partitionKey ''"),
        partition.shared_producer(chosen().settings) as producer,
    ):
        producer.put_columns("orders", ["k"] * 35, [b"x"] * 35)
        producer.flush()
        producer.put("orders", "", b"secret")


def test_a_null_key_becomes_random_where_the_option_says_so(aws: FakeAws) -> None:
    rows = batch(data=[b"0", b"1", b"2"], partitionKey=["k", None, None])
    assert write_batches(chosen(partitionKey="random"), KEYED, [rows]).records == 3
    keys = {data: key for _, key, data in stored(aws)}
    assert keys[b"0"] == "k"
    assert len(set(keys.values())) == 3


def test_a_null_key_is_accepted_where_the_service_distributes_records(
    aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = aws.client("kinesis")
    client.create_stream(
        StreamName="spread",
        StreamModeDetails={"StreamMode": "ON_DEMAND"},
        RecordDistributionStrategy="AUTO",
    )
    looks: list[Any] = []
    monkeypatch.setattr(sink, "shared_client", lambda connection: looks.append(connection) or client)
    keyed = batch(data=[b"0"] * 3, partitionKey=["k"] * 3)
    mixed = batch(data=[b"1", b"2"], partitionKey=[None, "k"])
    options = chosen(streamName="spread")
    assert write_batches(options, KEYED, [keyed]).records == 3
    assert looks == [], "a task without null keys makes no call of its own"
    assert write_batches(options, KEYED, [keyed, mixed, mixed]).records == 7
    assert looks == [options.settings.connection]
    keys = [record.get("PartitionKey") for _, record in records_of(aws, "spread") if record["Data"] == b"1"]
    assert keys == [None, None], "stored as they are, not under keys that were made up"


def test_what_is_not_stored_fails_the_task_with_counts(aws: FakeAws) -> None:
    aws.faults.add(Fault(kind="partial", operation="PutRecords", code="InternalFailure"))
    rows = batch(data=[b"do-not-show"] * 7, partitionKey=["k"] * 7)
    with pytest.raises(PartitionFailedError, match=r"7 records .*7 InternalFailure") as caught:
        write_batches(chosen(flushTimeout="200ms", errorSample="1"), KEYED, [rows])
    assert caught.value.causes == {"InternalFailure": 7}
    assert "do-not-show" not in str(caught.value)


def test_writers_travel_and_report(aws: FakeAws, caplog: pytest.LogCaptureFixture) -> None:
    rows = batch(data=[b"abc"] * 4, partitionKey=["k"] * 4)
    with caplog.at_level(logging.INFO, "kinesis_sdk.spark"):
        writer: Any = pickle.loads(pickle.dumps(KinesisWriter(chosen(), KEYED)))
        message = pickle.loads(pickle.dumps(writer.write(iter([rows]))))
        assert isinstance(message, Written)
        writer.commit([message, None])
        writer.abort([message, None])
        stream: Any = pickle.loads(pickle.dumps(KinesisStreamWriter(chosen(), KEYED)))
        stream.commit([message], batchId=5)
        stream.abort([None], batchId=6)
    assert "write to orders: 4 records (12 bytes of payload) stored by 1 tasks" in caplog.text
    assert "write to orders failed after storing at least 4 records" in caplog.text
    assert "batch 5 to orders: 4 records" in caplog.text
    assert "batch 6 to orders failed after storing at least 0 records" in caplog.text
    assert "abc" not in caplog.text


def test_rows_become_batches_where_streams_give_rows(aws: FakeAws) -> None:
    rows = iter([Row(data=b"%d" % n, partitionKey="k") for n in range(25_000)])
    sizes = [item.num_rows for item in _batches_of_rows(rows)]
    assert sizes == [10_000, 10_000, 5_000]


NAMED_ROWS = Columns("data", "partitionKey", None, "dedupId")


def test_a_first_attempt_says_so_and_what_may_repeat_one_waits(aws: FakeAws) -> None:
    options = chosen(idempotent="true", dedupNamespace="orders")
    attempts, clock = FirstAttempts(), VirtualClock()
    waits: list[tuple[float, int]] = []

    def sleep(seconds: float) -> None:
        waits.append((seconds, len(stored(aws))))
        clock.advance(seconds)

    def write(number: int, count: int, attempt: int = 0) -> None:
        rows = batch(
            data=pa.array([b"%d-%d" % (number, n) for n in range(count)], pa.binary()),
            partitionKey=["k"] * count,
            dedupId=[f"{number}-{n}" for n in range(count)],
        )
        task = StreamTask("run", number, 40 + number, attempt, speculates=False)
        batches = [rows, rows.slice(0, 0)]
        write_batches(options, NAMED_ROWS, batches, task=task, attempts=attempts, clock=clock, sleep=sleep)

    def flags() -> Counter[int]:
        return Counter(flags_of(aws).values())

    write(5, 3)
    assert flags() == {NAMED | REPEAT: 3}
    assert waits == [(15, 0)], "before it puts the first row"
    write(6, 2)
    assert flags() == {NAMED | REPEAT: 3, NAMED | FIRST: 2}
    assert len(waits) == 1
    write(7, 0)
    write(8, 1, attempt=1)
    assert waits[1:] == [(15, 5)]
    write(9, 0, attempt=1)
    assert len(waits) == 2, "without rows it need not wait"
    assert flags() == {NAMED | REPEAT: 4, NAMED | FIRST: 2}


def named_rows(count: int, *, first: int = 0) -> Any:
    numbers = range(first, first + count)
    return batch(
        data=pa.array([b"%d" % n for n in numbers], pa.binary()),
        partitionKey=[f"k{n % 5}" for n in numbers],
        dedupId=[f"name-{n}" for n in numbers],
    )


def test_a_task_that_may_repeat_another_leaves_out_what_the_stream_has(aws: FakeAws) -> None:
    """Other consumers than this SDK's see every stored copy, and nothing recognizes one after the window."""
    options = chosen(idempotent="true", dedupNamespace="orders", reconcile="1h")
    attempts = FirstAttempts()

    def write(rows: Any, number: int, *, run: str = "run 1", **chosen: Any) -> None:
        task = StreamTask(run, number, 40 + number, 0, speculates=False)
        write_batches(
            chosen.get("options", options),
            NAMED_ROWS,
            [rows.slice(0, 4), rows.slice(0, 0), rows.slice(4)],
            task=task,
            attempts=attempts,
            sleep=lambda _seconds: None,
        )

    write(named_rows(6), 5)
    write(named_rows(20), 5, run="run 2")
    assert Counter(payload for _, _, payload in stored(aws)) == {b"%d" % n: 1 for n in range(20)}
    reads = aws.stats()["calls"]["GetRecords"]
    write(named_rows(3, first=50), 6, run="run 2")
    assert aws.stats()["calls"]["GetRecords"] == reads, "known to be the first attempt"
    without = chosen(idempotent="true", dedupNamespace="orders")
    write(named_rows(2), 7, run="run 3", options=without)
    other = chosen(idempotent="true", dedupNamespace="payments", reconcile="1h")
    write(named_rows(2), 7, run="run 4", options=other)
    assert len(stored(aws)) == 20 + 3 + 2 + 2, "not asked for, and the same names of another service"


def test_a_stored_row_counts_only_where_readers_find_it_and_names_are_bounded(aws: FakeAws) -> None:
    options = chosen(idempotent="true", dedupNamespace="orders", recordMaxBufferedTime="10s")
    write_batches(options, NAMED_ROWS, [named_rows(8)])
    client = aws.client("kinesis")
    low, high = client.list_shards(StreamName="orders")["Shards"]
    ranges = [
        HashKeyRange(*(int(shard["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending")))
        for shard in (low, high)
    ]
    names = Names("orders")

    def found(owned: HashKeyRange, most: int = 100) -> StoredNames:
        names = StoredNames("orders", most)
        (record,) = [record for shard, record in records_of(aws) if shard == low["ShardId"]]
        names.add([KinesisRecord.from_api(record)], owned)
        return names

    def known(of: StoredNames) -> set[int]:
        keys = {n: hash_partition_key(f"k{n % 5}") for n in range(8)}
        identities = {n: names.identity(f"name-{n}", 300.0, key) for n, key in keys.items()}
        return {n for n, one in identities.items() if (one.incarnation, one.number) in of}

    here = {n for n in range(8) if hash_partition_key(f"k{n % 5}") in ranges[0]}
    assert 2 < len(here) < 8
    assert known(found(ranges[0])) == here
    assert known(found(ranges[1])) == set(), "the wrong shard: its producer meant to put the rows again"
    lowest = min(hash_partition_key(f"k{n % 5}") for n in here)
    part = HashKeyRange(ranges[0].start, int.from_bytes(lowest, "big"))
    assert known(found(part)) == set(), (
        "readers drop the whole aggregate, because it has a row of another shard"
    )
    full = found(ranges[0], most=2)
    assert (len(full), full.is_full, len(known(full))) == (2, True, 2)


def test_a_row_with_a_bad_name_is_a_bad_row_when_rows_are_reconciled(aws: FakeAws) -> None:
    rows = batch(data=[b"1", b"2", b"3"], partitionKey=["k"] * 3, dedupId=["1", "x" * 300, "3"])
    options = {"idempotent": "true", "dedupNamespace": "orders", "reconcile": "1h"}
    for _ in range(2):
        found = write_batches(chosen(badRows="skip", **options), NAMED_ROWS, [rows])
        assert found.left_out == {"dedup_id": 1}
    assert sorted(payload for _, _, payload in stored(aws)) == [b"1", b"3"]
    with pytest.raises(InvalidRecordError, match="row 1 of this task"):
        write_batches(chosen(**options), NAMED_ROWS, [rows])


def test_rows_are_reconciled_from_the_time_at_which_their_batch_began(
    aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = chosen(idempotent="true", dedupNamespace="orders", reconcile="1h")
    attempts = FirstAttempts()
    write_batches(options, NAMED_ROWS, [named_rows(2)])
    later = round(time.time() * 1000) + 3_600_000
    attempts.end(StreamTask("run", 1, 41, 0, speculates=False), later)
    task = StreamTask("run", 2, 42, 1, speculates=False)
    client = aws.client("kinesis")
    asked = []

    class Listening(Around):
        def get_shard_iterator(self, **request: Any) -> Any:
            asked.append(request.pop("Timestamp"))
            return client.get_shard_iterator(**{**request, "ShardIteratorType": "LATEST"})

    monkeypatch.setattr(sink, "shared_client", lambda _connection: Listening(client))
    write_batches(
        options, NAMED_ROWS, [named_rows(1)], task=task, attempts=attempts, sleep=lambda _seconds: None
    )
    assert {round(moment.timestamp() * 1000) for moment in asked} == {later}


def test_a_task_that_fails_is_no_batch_that_was_written(aws: FakeAws) -> None:
    options = chosen(idempotent="true", dedupNamespace="orders")
    attempts = FirstAttempts()
    rows = batch(data=[b"1"], partitionKey=[None], dedupId=["a"])
    task = StreamTask("run", 0, 40, 0, speculates=False)
    with pytest.raises(InvalidRecordError):
        write_batches(options, NAMED_ROWS, [rows], task=task, attempts=attempts)
    assert attempts.begin(StreamTask("run", 1, 41, 0, speculates=False)) == Attempt(wait=15, again=True)


@pytest.mark.parametrize(
    ("columns", "more", "knows"),
    [(NAMED_ROWS, {}, True), (NAMED_ROWS, {"firstAttempts": "never"}, False), (KEYED, {}, False)],
    ids=["names", "never", "no-names"],
)
def test_a_stream_writer_knows_its_task_by_the_properties_that_spark_sets(
    aws: FakeAws, monkeypatch: pytest.MonkeyPatch, columns: Columns, more: dict[str, str], knows: bool
) -> None:
    given: list[StreamTask | None] = []

    def write(_options: Any, _columns: Any, _batches: Any, *, task: StreamTask | None) -> Written:
        given.append(task)
        return Written(0, 0)

    monkeypatch.setattr(sink, "write_batches", write)
    properties = {"spark.jobGroup.id": "run", "streaming.sql.batchId": "3"}
    context = SimpleNamespace(getLocalProperty=properties.get, stageId=lambda: 7, attemptNumber=lambda: 2)
    monkeypatch.setattr(sink, "TaskContext", SimpleNamespace(get=lambda: context))
    writer = KinesisStreamWriter(chosen(idempotent="true", dedupNamespace="orders", **more), columns)
    writer.write(iter([]))
    assert given == [StreamTask("run", 3, 7, 2, speculates=False) if knows else None]
    monkeypatch.setattr(sink, "TaskContext", SimpleNamespace(get=lambda: None))
    writer.write(iter([]))
    assert given[1:] == [None]


def test_a_column_names_the_rows(aws: FakeAws) -> None:
    options = chosen(idempotent="true", dedupNamespace="orders", dedupWindow="60s")
    assert options.settings.config.idempotent
    assert options.dedup_window == 60
    schema = fields(("data", BinaryType()), ("partitionKey", StringType()), ("dedupId", StringType()))
    columns = plan_columns(schema, options, overwrite=False)
    assert columns == Columns("data", "partitionKey", None, "dedupId")
    rows = batch(data=[b"1", b"2"], partitionKey=["k", "k"], dedupId=["a", None])
    for _ in range(2):
        assert write_batches(options, columns, [rows]).records == 2
    with pytest.raises(ConfigError, match="idempotent=true"):
        plan_columns(schema, chosen(), overwrite=False)
    with pytest.raises(ConfigError, match="dedupNamespace"):
        plan_columns(schema, chosen(idempotent="true"), overwrite=False)
    with pytest.raises(ConfigError, match=r"partitionKey.*dedupId"):
        plan_columns(
            schema, chosen(idempotent="true", dedupNamespace="orders", partitionKey="random"), overwrite=False
        )


# ------------------------------------------------------------------ rows that can never be stored


def bad_ones() -> Any:
    """Two good rows, and one of each kind that Kinesis rejects."""
    kinds = {"data": pa.binary(), "partitionKey": pa.string(), "explicitHashKey": pa.string()}
    rows = [
        (b"good-0", "k", None),
        (None, "without data", "7"),
        (b"1", None, None),
        (b"2", "x" * 300, None),
        (b"3", "k", "minus one"),
        (b"good-4", "k", None),
    ]
    return pa.RecordBatch.from_pydict(
        {name: [row[at] for row in rows] for at, name in enumerate(kinds)}, schema=pa.schema(kinds)
    )


COUNTS = {"data": 1, "partition_key": 2, "explicit_hash_key": 1}


def test_bad_rows_are_left_out_and_counted(aws: FakeAws, caplog: pytest.LogCaptureFixture) -> None:
    options = chosen(badRows="skip")
    messages = [write_batches(options, ALL, [bad_ones(), bad_ones()]) for _ in range(2)]
    assert [message.left_out for message in messages] == [
        {name: 2 * count for name, count in COUNTS.items()}
    ] * 2
    assert [(message.records, message.payload_bytes) for message in messages] == [(4, 24)] * 2
    assert sorted(data for _, _, data in stored(aws)) == [b"good-0"] * 4 + [b"good-4"] * 4
    assert "the row has none (row 2 of this task, partitionKey 'without data'" in caplog.text
    KinesisWriter(options, ALL).commit([pickle.loads(pickle.dumps(one)) for one in messages])
    assert (
        "16 rows that Kinesis would reject were left out (badRows=skip): 4 by data, 4 by explicit_hash_key"
        in caplog.text
    )


def test_bad_rows_go_into_another_stream(aws: FakeAws) -> None:
    aws.client("kinesis").create_stream(StreamName="bad", ShardCount=1)
    with_names = Columns("data", "partitionKey", "explicitHashKey", headers="headers")
    batch = bad_ones()
    headers = pa.array([[("h", b"\xff")]] + [None] * 5, pa.map_(pa.string(), pa.binary()))
    batch = batch.append_column("headers", headers)
    found = write_batches(chosen(badRows="dlq", badRowsStream="bad"), with_names, [batch])
    assert (found.records, found.left_out) == (2, COUNTS)
    assert len(stored(aws)) == 2
    letters = [json.loads(data) for _, _, data in stored(aws, "bad")]
    assert {(one["data"], one["field"]) for one in letters} == {
        (None, "data"), ("MQ==", "partition_key"), ("Mg==", "partition_key"), ("Mw==", "explicit_hash_key")
    }  # fmt: skip
    (long,) = [one for one in letters if one["data"] == "Mg=="]
    assert (long["partitionKey"], long["explicitHashKey"], long["headers"]) == ("x" * 300, None, None)
    assert "row 4 of this task" in long["problem"]


def test_a_row_that_is_too_large_goes_into_the_other_stream_without_its_data(aws: FakeAws) -> None:
    aws.client("kinesis").create_stream(StreamName="bad", ShardCount=1)
    large = batch(data=[b"secret" * 200_000, b"good"], partitionKey=["k", "k"])
    found = write_batches(chosen(badRows="dlq", badRowsStream="bad"), KEYED, [large])
    assert (found.records, found.payload_bytes, found.left_out) == (1, 4, {"data": 1})
    (letter,) = [json.loads(data) for _, _, data in stored(aws, "bad")]
    problem = letter.pop("problem")
    assert letter == {"data": None, "dataBytes": 1_200_000, "partitionKey": "k", "field": "data"}
    assert "1,200,001 bytes" in problem


def test_a_bad_row_that_fits_nowhere_fails_the_write(aws: FakeAws) -> None:
    aws.client("kinesis").create_stream(StreamName="bad", ShardCount=1)
    large = batch(data=[b"secret"], partitionKey=["k" * 1_200_000])
    with pytest.raises(InvalidRecordError, match="nor can it be put into bad") as caught:
        write_batches(chosen(badRows="dlq", badRowsStream="bad"), KEYED, [large])
    assert "secret" not in str(caught.value)


def test_a_bad_row_fails_the_write_once(aws: FakeAws) -> None:
    """The task has a result, so that Spark does not try it again; the commit fails."""
    for writer in (KinesisWriter(chosen(), ALL), KinesisStreamWriter(chosen(), ALL)):
        good = writer.write(
            iter([batch(data=[b"x"], partitionKey=["k"], explicitHashKey=pa.array([None], pa.string()))])
        )
        bad = pickle.loads(pickle.dumps(writer.write(iter([bad_ones()]))))
        with pytest.raises(InvalidRecordError, match="data: 1 of 6 rows"):
            writer.commit([good, bad], *([7] if isinstance(writer, KinesisStreamWriter) else []))


@pytest.mark.parametrize(
    "more", [{"badRows": "dlq"}, {"badRowsStream": "bad"}, {"badRows": "skip", "badRowsStream": "bad"}]
)
def test_bad_rows_have_a_stream_with_dlq_only(more: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="badRowsStream"):
        chosen(**more)
