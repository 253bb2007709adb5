"""Pages to Arrow batches. Needs pyarrow: runs in the Spark environments, and here where it is installed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from hashlib import md5
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.aggregate_reader import MAGIC, Aggregate, deaggregate
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.hashkeys import (
    FULL_RANGE,
    HashKeyRange,
    explicit_hash_key_to_bytes,
    hash_partition_key,
)
from kinesis_sdk.common.headers import encode_headers
from kinesis_sdk.common.records import KinesisRecord
from tests import fuzz

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed here; `make spark` runs this with it")

from kinesis_sdk.spark import arrow  # noqa: E402 — after the skip
from kinesis_sdk.spark.arrow import BatchBuilder  # noqa: E402
from kinesis_sdk.spark.columns import COLUMN_NAMES, COLUMNS  # noqa: E402

SHARD = "shardId-000000000000"
NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
Item = tuple[str, str | None, bytes]


SMALLER = 32
MAX_ROWS, MAX_BYTES = arrow.MAX_ROWS // SMALLER, arrow.MAX_BYTES // SMALLER
PAGE = 10 * 1024 * 1024 // SMALLER


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all limits smaller, so that what reaches them is."""
    monkeypatch.setattr(arrow, "MAX_ROWS", MAX_ROWS)
    monkeypatch.setattr(arrow, "MAX_BYTES", MAX_BYTES)
    monkeypatch.setattr(arrow, "MAX_EXPANDED_CHARACTERS", arrow.MAX_EXPANDED_CHARACTERS // SMALLER)


def test_the_limits_are_what_a_worker_has_memory_for() -> None:
    assert (arrow.MAX_ROWS, arrow.MAX_BYTES) == (32_768, 32 * 1024 * 1024)
    assert arrow.MAX_EXPANDED_CHARACTERS == 256 * 1024 * 1024


def carrier(data: bytes, number: int = 1, key: str = "carrier") -> KinesisRecord:
    return KinesisRecord(data, key, str(number), NOON + timedelta(milliseconds=number))


def pack(items: Iterable[Item]) -> bytes:
    aggregate = Aggregate(1 << 30, 1 << 30)
    for key, explicit, data in items:
        place = hash_partition_key(key) if explicit is None else explicit_hash_key_to_bytes(explicit)
        assert aggregate.try_append(key, explicit, data, place)
    return aggregate.encode()


def rows_of(records: Iterable[KinesisRecord], **how: Any) -> list[dict[str, Any]]:
    columns = how.pop("columns", COLUMN_NAMES)
    builder = BatchBuilder("orders", deaggregate=how.pop("deaggregate", True), columns=columns)
    batches = list(builder.build(SHARD, records, **how))
    assert all(batch.schema.equals(builder.schema) for batch in batches), "4.2 and later compare exactly"
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_record_that_travelled_alone() -> None:
    assert rows_of([carrier(b"payload", 7, "k")]) == [
        {
            "data": b"payload",
            "partitionKey": "k",
            "sequenceNumber": "7",
            "subSequenceNumber": None,
            "approximateArrivalTimestamp": NOON + timedelta(milliseconds=7),
            "shardId": SHARD,
            "streamName": "orders",
            "explicitHashKey": None,
        }
    ]


def test_a_record_that_was_put_without_a_key_has_none() -> None:
    assert [row["partitionKey"] for row in rows_of([carrier(b"", 1, ""), carrier(b"", 2, "k")])] == [
        None,
        "k",
    ]


def test_the_schema_is_what_spark_was_told() -> None:
    schema = BatchBuilder("orders", deaggregate=True).schema
    assert schema.names == [name for name, _ in COLUMNS]
    assert schema.field("approximateArrivalTimestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("data").type == pa.binary()
    assert schema.field("subSequenceNumber").type == pa.int64()


@pytest.mark.parametrize("columns", [(), ("data", "data"), ("data", "key"), ("DATA",)])
def test_columns_must_be_different_names_of_the_source(columns: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="columns="):
        BatchBuilder("orders", deaggregate=True, columns=columns)


@pytest.mark.usefixtures("small")
def test_headers_are_a_column_if_asked() -> None:
    """Also if rows share large headers, which a batch has once for each row."""
    aggregate = Aggregate(1 << 30, 1 << 30)
    large = encode_headers({"large": b"\xff" * 6_000})
    for headers in (b"", encode_headers({"n": "v"}), *[large] * 400):
        assert aggregate.try_append("k", None, b"x", hash_partition_key("k"), headers=headers)
    page = [carrier(b"alone", 1), carrier(aggregate.encode(), 2)]
    builder = BatchBuilder("orders", deaggregate=True, columns=("headers", "data"))
    batches = list(builder.build(SHARD, page))
    assert len(batches) > 2
    assert max(batch.nbytes for batch in batches) <= MAX_BYTES
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows[:3] == [
        {"headers": [], "data": b"alone"},
        {"headers": [], "data": b"x"},
        {"headers": [("n", b"v")], "data": b"x"},
    ]
    assert rows[3:] == [{"headers": [("large", b"\xff" * 6_000)], "data": b"x"}] * 400
    assert "headers" not in rows_of(page)[0]


def test_what_a_batch_holds_does_not_count_the_columns_that_it_leaves_out() -> None:
    # With its key in each row this would be seven batches.
    page = [carrier(pack([("k" * 50_000, None, b"%d" % i) for i in range(150)]))]
    for columns in (["data"], ["subSequenceNumber", "shardId"], ["explicitHashKey"]):
        builder = BatchBuilder("orders", deaggregate=True, columns=columns)
        (batch,) = builder.build(SHARD, page)
        assert batch.num_rows == 150
    large = [carrier(bytes(PAGE), number) for number in range(1, 8)]
    (batch,) = BatchBuilder("orders", deaggregate=True, columns=["sequenceNumber"]).build(SHARD, large)
    assert batch.column(0).to_pylist() == list("1234567")


def test_without_deaggregation_an_aggregate_is_one_row() -> None:
    blob = pack([("a", None, b"0"), ("b", None, b"1")])
    (row,) = rows_of([carrier(blob)], deaggregate=False)
    assert row["data"] == blob
    assert row["subSequenceNumber"] is None


def test_what_is_no_intact_aggregate_passes_as_it_is() -> None:
    blob = bytearray(pack([("a", None, b"0")]))
    blob[-1] ^= 1
    (row,) = rows_of([carrier(bytes(blob))])
    assert row["data"] == bytes(blob)


def test_a_page_of_nothing_has_no_batches() -> None:
    assert list(BatchBuilder("orders", deaggregate=True).build(SHARD, [])) == []


@pytest.mark.usefixtures("small")
def test_an_aggregate_is_cut_where_a_batch_has_its_rows() -> None:
    half = MAX_ROWS // 2 + 1
    same = pack([("k", None, b"%d" % i) for i in range(half)])
    page = [carrier(same, number) for number in range(1, 6)]
    page.append(carrier(pack([("k", str(i), b"") for i in range(2 * MAX_ROWS + 3)]), 6))
    batches = list(BatchBuilder("orders", deaggregate=True).build(SHARD, page))
    assert [batch.num_rows for batch in batches] == [*[MAX_ROWS] * 4, 5 * half + 3 - 2 * MAX_ROWS]
    columns = {
        name: [value for batch in batches for value in batch.column(name).to_pylist()]
        for name in ("subSequenceNumber", "sequenceNumber", "data", "explicitHashKey")
    }
    assert columns["subSequenceNumber"] == [*range(half)] * 5 + [*range(2 * MAX_ROWS + 3)]
    assert columns["sequenceNumber"][::half][:5] == list("12345")
    assert columns["data"][: 5 * half] == [b"%d" % i for i in range(half)] * 5
    assert columns["explicitHashKey"][5 * half :] == [str(i) for i in range(2 * MAX_ROWS + 3)]


POOLS: list[Any] = []
"""Arrow crashes if a pool is gone before its arrays, which the traceback of a failed test keeps."""

LONG_KEYS = {
    "one key for all": [("k" * 50_000, None, b"%d" % i) for i in range(94)],
    "one long key among many": [("k" * 70_000 if i == 40 else "k", None, b"x") for i in range(90)],
    "a key that is a batch": [("k" * (MAX_BYTES + 1), None, b"%d" % i) for i in range(3)],
    "characters of many bytes": [("\N{GRINNING FACE}" * 15_000, None, b"") for _ in range(62)],
    "one explicit hash key for all": [("k", "0" * 50_000 + "5", b"%d" % i) for i in range(94)],
    "few explicit hash keys": [("k", None if i % 3 else "0" * 30_000 + "5", b"") for i in range(186)],
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("items", LONG_KEYS.values(), ids=LONG_KEYS)
def test_a_long_key_that_user_records_share_makes_more_batches_and_no_larger_ones(items: list[Item]) -> None:
    # Arrow writes a key out for each row: any of these would be a batch of three times the limit and more.
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    POOLS.append(pool)
    usual = pa.default_memory_pool()
    aggregate = Aggregate(1 << 40, 1 << 40)
    for key, explicit, data in items:
        assert aggregate.try_append(key, explicit, data, bytes(16))
    page = [carrier(b"before", 1), carrier(aggregate.encode(), 2), carrier(b"after", 3)]
    largest = max(len(key.encode()) + len(explicit or "") for key, explicit, _ in items)
    number = 0
    pa.set_memory_pool(pool)
    try:
        for batch in BatchBuilder("orders", deaggregate=True).build(SHARD, page):
            assert batch.nbytes <= MAX_BYTES or batch.num_rows == 1
            for row in batch.select(["data", "subSequenceNumber"]).to_pylist():
                if row["subSequenceNumber"] is not None:
                    assert row["subSequenceNumber"] == number
                    assert row["data"] == items[number][2]
                    number += 1
            columns = zip(batch.column("partitionKey"), batch.column("explicitHashKey"), strict=True)
            first = number - sum(value.is_valid for value in batch.column("subSequenceNumber"))
            pairs = [(str(key), explicit.as_py()) for key, explicit in columns]
            pairs = [pair for pair in pairs if pair[0] != "carrier"]
            assert pairs == [item[:2] for item in items[first:number]]
            del batch, columns
    finally:
        pa.set_memory_pool(usual)
    assert number == len(items)
    # Some columns exist twice while a batch is made, and the last batch is still there when the next one is made.
    assert pool.max_memory() <= 4 * max(MAX_BYTES, largest)


def test_a_long_key_of_the_table_that_no_user_record_has_counts_for_nothing() -> None:
    inside = pack([("k", None, b"%d" % number) for number in range(2_000)])[4:-16]
    unused = b"u" * 200_000
    # A second entry of the table: field 1, the length as a varint of three bytes, the key. Fields may come in any order.
    body = inside + b"\x0a\xc0\x9a\x0c" + unused
    blob = MAGIC + body + md5(body, usedforsecurity=False).digest()
    (batch,) = BatchBuilder("orders", deaggregate=True).build(SHARD, [carrier(blob)])
    assert batch.num_rows == 2_000
    assert set(batch.column("partitionKey").to_pylist()) == {"k"}


def test_rows_of_aggregates_and_of_records_alone_keep_what_is_theirs() -> None:
    page = [
        carrier(b"alone", 1),
        carrier(pack([("k", None, b""), ("k", "7", b""), ("l", None, b"")]), 2),
        carrier(b"alone", 3)._replace(approximate_arrival_timestamp=None),
        carrier(pack([("k", None, b""), ("l", None, b"")]), 4),
    ]
    rows = rows_of(page)
    assert [row["sequenceNumber"] for row in rows] == ["1", "2", "2", "2", "3", "4", "4"]
    assert [row["subSequenceNumber"] for row in rows] == [None, 0, 1, 2, None, 0, 1]
    assert [row["explicitHashKey"] for row in rows] == [None, None, "7", None, None, None, None]
    moments = [NOON + timedelta(milliseconds=number) for number in range(5)]
    expected = [moments[1], *[moments[2]] * 3, None, *[moments[4]] * 2]
    assert [row["approximateArrivalTimestamp"] for row in rows] == expected


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("column", ["partition key", "explicit hash key"])
def test_an_aggregate_that_would_expand_without_end_is_delivered_as_it_is_stored(
    column: str, caplog: pytest.LogCaptureFixture
) -> None:
    # 10 MiB on the stream can be terabytes of rows: a task that has to write them out never gets past the record.
    key, explicit = ("k" * 500_000, None) if column == "partition key" else ("k", "0" * 500_000 + "7")
    bodies = []
    for count in (2, 3):
        aggregate = Aggregate(1 << 30, 1 << 30)
        assert all(aggregate.try_append(key, explicit, b"", bytes(16)) for _ in range(count))
        bodies.append(aggregate.encode()[len(MAGIC) : -16])
    two, three = bodies
    # What the second one has more is a user record. Repeating its bytes is cheaper than to append 8,000 of them.
    record = three[len(two) :]
    assert three == two + record
    body = two + record * 7_998
    bomb = carrier(MAGIC + body + md5(body, usedforsecurity=False).digest(), 2)
    assert len(bomb.data) < 600_000
    page = [carrier(b"before", 1), bomb, carrier(pack([("k", None, b"after")] * 2), 3)]
    batches = list(BatchBuilder("orders", deaggregate=True).build(SHARD, page))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["data"], row["sequenceNumber"], row["subSequenceNumber"]) for row in rows] == [
        (b"before", "1", None),
        (bomb.data, "2", None),
        (b"after", "3", 0),
        (b"after", "3", 1),
    ]
    assert (
        "aggregate 2 delivered undecoded, as one row: the partition keys of its 8000 user records"
        in caplog.text
    )
    assert "kkkk" not in caplog.text
    # A read has the same rows whatever its columns are, also where the long key would not be written out.
    assert rows_of(page, columns=["data"]) == [{"data": row["data"]} for row in rows]


@pytest.mark.usefixtures("small")
def test_large_records_that_travelled_alone_share_batches_up_to_the_bound() -> None:
    page = [carrier(bytes(PAGE), number) for number in range(1, 8)]
    batches = list(BatchBuilder("orders", deaggregate=True).build(SHARD, page))
    assert [batch.num_rows for batch in batches] == [3, 3, 1]
    assert max(batch.nbytes for batch in batches) <= MAX_BYTES


def test_usual_pages_stay_one_batch() -> None:
    items: list[Item] = [(f"customer-{i % 50}", None, bytes(1_000)) for i in range(50)]
    page = [carrier(pack(items), number) for number in range(1, 201)]  # a page of 10 MB
    (batch,) = BatchBuilder("orders", deaggregate=True).build(SHARD, page)
    assert batch.num_rows == 10_000


@pytest.mark.usefixtures("small")
def test_records_alone_are_cut_at_the_target() -> None:
    page = [carrier(b"", number) for number in range(MAX_ROWS + 5)]
    sizes = [batch.num_rows for batch in BatchBuilder("orders", deaggregate=True).build(SHARD, page)]
    assert sizes == [MAX_ROWS, 5]


@pytest.mark.usefixtures("small")
def test_records_alone_count_when_an_aggregate_behind_them_is_cut() -> None:
    page = [carrier(b"", number) for number in range(5)]
    page.append(carrier(pack([("k", None, b"") for _ in range(MAX_ROWS)]), 6))
    sizes = [batch.num_rows for batch in BatchBuilder("orders", deaggregate=True).build(SHARD, page)]
    assert sizes == [MAX_ROWS, 5]


def test_more_user_records_than_numbers_were_prepared_for() -> None:
    page = [carrier(pack([("k", None, b"") for _ in range(count)]), count) for count in (10, 5_000, 3)]
    numbers = [row["subSequenceNumber"] for row in rows_of(page)]
    assert numbers == [*range(10), *range(5_000), *range(3)]


def test_a_key_index_beyond_its_table_gets_the_carriers_key(caplog: pytest.LogCaptureFixture) -> None:
    blob = pack([("a", None, b"secret-payload"), ("a", None, b"1")])
    # The last record's key index, from 0 to 5: field 1 as a varint.
    body = bytearray(blob[4:-16])
    at = bytes(body).rindex(b"\x08\x00")
    body[at + 1] = 5
    forged = blob[:4] + bytes(body) + md5(bytes(body), usedforsecurity=False).digest()
    with caplog.at_level(logging.WARNING, "kinesis_sdk.spark"):
        rows = rows_of([carrier(forged)])
    assert [row["partitionKey"] for row in rows] == ["a", "carrier"]
    assert "1 of 2 user records" in caplog.text
    assert "secret-payload" not in caplog.text


def test_a_misplaced_aggregate_is_delivered_unless_the_shards_range_is_given(
    caplog: pytest.LogCaptureFixture,
) -> None:
    low, high = HashKeyRange(0, (1 << 127) - 1), HashKeyRange(1 << 127, FULL_RANGE.end)
    page = [
        carrier(pack([("k", "5", b"mine"), ("k", "6", b"mine, too")]), 1),
        carrier(pack([("k", "5", b"mine"), ("k", str(1 << 127), b"not mine")]), 2),
        carrier(b"alone", 3),
    ]
    assert len(rows_of(page)) == 5
    with caplog.at_level(logging.WARNING, "kinesis_sdk.spark"):
        kept = rows_of(page, owned=low)
    assert [row["data"] for row in kept] == [b"mine", b"mine, too", b"alone"], (
        "a record alone is nobody's twice"
    )
    assert "aggregate 2 with 2 user records discarded" in caplog.text
    assert "not mine" not in caplog.text
    assert [row["data"] for row in rows_of(page, owned=high)] == [b"alone"]
    assert len(rows_of(page, owned=FULL_RANGE)) == 5


# What `str.isprintable` is true of. A filter would throw most of what is drawn away.
printable = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
texts = st.text(printable, min_size=1, max_size=6)
items = st.tuples(texts, st.none() | st.integers(0, FULL_RANGE.end).map(str), st.binary(max_size=8))


pages = st.lists(st.binary(max_size=8) | st.lists(items, min_size=2, max_size=5), max_size=8)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=25, fuzz=1_000))
@given(page=pages, columns=st.lists(st.sampled_from(COLUMN_NAMES), min_size=1, unique=True))
def test_any_columns_in_any_order_have_the_values_of_a_full_read(
    page: list[bytes | list[Item]], columns: list[str]
) -> None:
    records = [carrier(part if isinstance(part, bytes) else pack(part), n) for n, part in enumerate(page)]
    found = rows_of(records, columns=columns)
    assert found == [{name: row[name] for name in columns} for row in rows_of(records)]
    assert all(list(row) == columns for row in found)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=25, fuzz=1_000))
@given(page=pages)
def test_rows_are_what_the_shared_deaggregation_gives(page: list[bytes | list[Item]]) -> None:
    records = [carrier(part if isinstance(part, bytes) else pack(part), n) for n, part in enumerate(page)]
    expected = [
        (r.data, r.partition_key, r.sequence_number, r.sub_sequence_number if r.aggregated else None)
        for r in deaggregate(records)
    ]
    found = [
        (row["data"], row["partitionKey"], row["sequenceNumber"], row["subSequenceNumber"])
        for row in rows_of(records)
    ]
    assert found == expected
    hashes = [r.explicit_hash_key for r in deaggregate(records)]
    assert [row["explicitHashKey"] for row in rows_of(records)] == hashes
