"""Avro records to typed columns, without Spark, and the headers of a schema registry."""

from __future__ import annotations

import io
import json
import random
import uuid
from collections.abc import Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from kinesis_sdk.common.errors import ConfigError, ThrottledError
from kinesis_sdk.serialization import AvroCodec, GlueSchemaRegistry, JsonCodec
from kinesis_sdk.spark import avro_columns
from kinesis_sdk.spark.connection import ConnectionSettings
from kinesis_sdk.spark.errors import MalformedValueError
from kinesis_sdk.spark.parse.ddl import schema_of
from kinesis_sdk.spark.parse.form import ValueFormat
from kinesis_sdk.testing import FakeAws, Fault
from kinesis_sdk.testing.clock import VirtualClock

pytest.importorskip("pyarrow", reason="pyarrow is not installed here; `make spark` runs this with it")

from kinesis_sdk.spark.parse import avro_values, registry
from kinesis_sdk.spark.parse import rows as rows_module
from kinesis_sdk.spark.parse.rows import TypedRows
from tests.spark.typed import many, raw, rows_of, struct

UTC = timezone.utc


def record(**fields: Any) -> str:
    """Return the schema of a record; a field whose type is a list may be null."""
    return json.dumps(
        {
            "type": "record",
            "name": "shop.R",
            "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
        }
    )


def encoded(schema: str, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), value)
    return out.getvalue()


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def read(schema: str, columns: Mapping[str, Any], *payloads: bytes, **how: Any) -> list[dict[str, Any]]:
    return rows_of(ValueFormat(name="avro", settings={"schema": schema}, **how), dict(columns), *payloads)


MONEY = logical("bytes", "decimal", precision=9, scale=2)
EVERYTHING = record(
    o="boolean", i="int", l="long", f="float", d="double", s="string", b="bytes", n=["null", "int"],
    e={"type": "enum", "name": "E", "symbols": ["NEW", "OLD"]}, x={"type": "fixed", "name": "X", "size": 3},
    dt=logical("int", "date"), ms=logical("long", "timestamp-millis"), us=logical("long", "timestamp-micros"),
    lo=logical("long", "local-timestamp-millis"), tm=logical("int", "time-millis"), id=logical("string", "uuid"), m=MONEY,
    q={"type": "fixed", "name": "Q", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 4},
    r={"type": "record", "name": "P", "fields": [{"name": "x", "type": ["null", "double"]}, {"name": "e", "type": "E"}]},
    a={"type": "array", "items": ["null", MONEY]}, mp={"type": "map", "values": {"type": "array", "items": "P"}}, u=["int", "null", "long"],
)  # fmt: skip
VALUE: dict[str, Any] = {
    "o": True, "i": -5, "l": 2**62, "f": 0.5, "d": 1e300, "s": "é😀", "b": b"\0\xff", "n": None, "e": "OLD", "x": b"abc", "dt": date(1969, 12, 30),
    "ms": datetime(2026, 1, 31, 12, 0, 0, 5_000, UTC), "us": datetime(1900, 1, 1, 0, 0, 0, 7, UTC), "lo": datetime(2026, 1, 31, 12, tzinfo=UTC).replace(tzinfo=None),
    "tm": (datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)).time(), "id": uuid.UUID(int=5), "m": Decimal("-12.34"), "q": Decimal("1.5000"),
    "r": {"x": 2.5, "e": "NEW"}, "a": [Decimal("1.00"), None], "mp": {"k": [{"x": None, "e": "OLD"}]}, "u": 7,
}  # fmt: skip


def test_every_type_is_read_as_spark_reads_it() -> None:
    columns = avro_columns(EVERYTHING)
    assert columns == (
        "o BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, s STRING, b BINARY, n INT, e STRING, x BINARY, dt DATE, ms TIMESTAMP, us TIMESTAMP, "
        "lo TIMESTAMP_NTZ, tm INT, id STRING, m DECIMAL(9,2), q DECIMAL(18,4), r STRUCT<x: DOUBLE, e: STRING>, a ARRAY<DECIMAL(9,2)>, "
        "mp MAP<STRING, ARRAY<STRUCT<x: DOUBLE, e: STRING>>>, u BIGINT"
    )
    payload = encoded(EVERYTHING, VALUE)
    (row,) = read(EVERYTHING, schema_of(columns, "columns"), payload)
    assert row == {**VALUE, "tm": 1_000, "id": str(uuid.UUID(int=5)), "mp": [("k", VALUE["mp"]["k"])]}


def test_columns_may_be_wider_and_fewer() -> None:
    schema = record(
        i="int",
        m=MONEY,
        f="float",
        r={
            "type": "record",
            "name": "P",
            "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}],
        },
    )
    payload = encoded(schema, {"i": 5, "m": Decimal("1.50"), "f": 0.5, "r": {"x": 1, "y": 2}})
    columns = struct(f="double", m="decimal(20,3)", i="long", r=struct(y="long"))
    assert read(schema, columns, payload) == [{"f": 0.5, "m": Decimal("1.500"), "i": 5, "r": {"y": 2}}]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (struct(zz="integer"), "column zz=.*a field of the Avro record: i, m, s"),
        (struct(i="string"), "column i=.*int, which is the type in the Avro schema"),
        (struct(i="short"), "column i"),
        (struct(m="decimal(8,2)"), r"column m=.*decimal\(9,2\)"),
        (struct(m="decimal(9,1)"), "column m"),
        (struct(s=many("string")), "column s"),
        (struct(r=struct(z="integer")), "column r.z"),
        (struct(w="string"), "column w=.*no union of several types"),
        (struct(i="integer", _corrupt_record="string"), "column _corrupt_record=.*binary"),
    ],
)
def test_a_column_that_the_schema_lacks_is_refused(columns: dict[str, Any], problem: str) -> None:
    schema = record(
        i="int", m=MONEY, s="string", w=["int", "string"], r={"type": "record", "name": "P", "fields": []}
    )
    with pytest.raises(ConfigError, match=problem):
        TypedRows(ValueFormat(name="avro", settings={"schema": schema}), columns)


@pytest.mark.parametrize(
    "schema", ["{", '"string"', '{"type":"array","items":"int"}', '{"type":"record"}', "[" * 100_000]
)
def test_a_schema_of_no_record_is_refused(schema: str) -> None:
    with pytest.raises(ConfigError, match="avroSchema"):
        avro_columns(schema)


def test_a_record_that_contains_itself_has_no_columns_but_its_fields_can_be_read() -> None:
    schema = record(i="int", next=["null", "shop.R"])
    with pytest.raises(ConfigError, match="no record that contains itself"):
        avro_columns(schema)
    payload = encoded(schema, {"i": 1, "next": {"i": 2, "next": None}})
    assert read(schema, struct(i="integer", next=struct(i="integer")), payload) == [
        {"i": 1, "next": {"i": 2}}
    ]
    deep = b"\x02\x02" * 100_000 + b"\x02\x00"
    assert read(schema, struct(i="integer", _corrupt_record="binary"), deep) == [
        {"i": None, "_corrupt_record": deep}
    ]


def test_malformed_values_keep_their_bytes() -> None:
    schema = record(i="int", s="string", ms=["null", logical("long", "timestamp-millis")])
    good = encoded(schema, {"i": 1, "s": "x", "ms": None})
    late = encoded(record(i="int", s="string", ms=["null", "long"]), {"i": 1, "s": "x", "ms": 2**62})
    bad = [b"", good[:-2], good + b"\0", b"\x02\xfe\xff\xff\xff\x0f", b"\x02\x02\xff\x00", b"\xff" * 12, late]
    columns = struct(i="integer", ms="timestamp", _corrupt_record="binary", _sequence_number="string")
    rows = read(schema, columns, good, *bad, good)
    assert [row["_corrupt_record"] for row in rows] == [None, *bad, None]
    assert [row["i"] for row in rows] == [1, *([None] * len(bad)), 1]
    assert [row["_sequence_number"] for row in rows] == [str(number) for number in range(len(bad) + 2)]
    assert len(read(schema, columns, good, *bad, mode="DROPMALFORMED")) == 1
    with pytest.raises(MalformedValueError, match="field ms: a value that its type cannot have"):
        read(schema, columns, good, late, mode="FAILFAST")


def test_numbers_that_their_type_cannot_have_are_malformed() -> None:
    wide, good = encoded(record(i="long"), {"i": 2**40}), encoded(record(i="int"), {"i": 1})
    for kind, there in (("integer", 1), ("date", date(1970, 1, 2))):
        schema = record(i="int" if kind == "integer" else logical("int", "date"))
        columns = struct(i=kind, _corrupt_record="binary")
        rows = read(schema, columns, good, wide, b"", good)
        assert [row["i"] for row in rows] == [there, None, None, there]
        assert [row["_corrupt_record"] for row in rows] == [None, wide, b"", None]
        assert len(read(schema, columns, good, wide, good, mode="DROPMALFORMED")) == 2
    with pytest.raises(MalformedValueError, match="a number that its column cannot have") as caught:
        read(schema, columns, good, wide, b"", mode="FAILFAST")
    assert caught.value.sequence_number == "1", "the first one"
    endless = record(i="long", k=["null", "shop.R"])
    assert read(endless, struct(i="long"), b"\xff" * 30 + b"\x01\x00") == [{"i": None}]


def test_decimals_keep_all_of_their_digits() -> None:
    number = 12345678901234567890123456789012345678
    payload = encoded(record(m="bytes"), {"m": number.to_bytes(16, "big", signed=True)})
    schema = record(m=logical("bytes", "decimal", precision=38, scale=2))
    rows = read(schema, struct(m="decimal(38,2)"), payload)
    assert str(rows[0]["m"]) == "123456789012345678901234567890123456.78"


def test_trees_and_odd_attributes_of_a_schema_are_read() -> None:
    children = {f"c{number}": ["null", "shop.R"] for number in range(20)}
    tree = record(i="int", **children, all={"type": "array", "items": "shop.R"})
    assert read(tree, struct(i="integer"), b"\x02" + bytes(21)) == [{"i": 1}], "without work for each path"
    default = {"type": "record", "name": "R", "fields": [
        {"name": "m", "type": {"type": "map", "values": "string"}, "default": {"type": "array"}},
        {"name": "b", "type": {"type": "bytes", "logicalType": "decimal"}},
    ]}  # fmt: skip
    assert read(json.dumps(default), struct(b="binary"), b"\0\x02a") == [{"b": b"a"}]


def test_the_size_of_decimals_and_of_arrays_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = record(m=MONEY)
    huge = encoded(record(m="bytes"), {"m": b"\x01" * 1_000_000})
    assert (
        read(schema, struct(m="decimal(9,2)"), huge, encoded(record(m="bytes"), {"m": b"\x7f" * 4}))
        == [{"m": None}] * 2
    )
    monkeypatch.setattr(avro_values, "MAX_OBJECT_BYTES", 10_000)
    items = {
        "type": "array",
        "items": {"type": "record", "name": "E", "fields": [{"name": "x", "type": ["null", "int"]}]},
    }
    schema = record(a=items)
    columns = struct(a=many(struct(x="integer")), _corrupt_record="binary")
    few, some = (encoded(schema, {"a": [{"x": None}] * count}) for count in (20, 50))
    assert [row["a"] is None for row in read(schema, columns, few, some)] == [False, True]
    numbers = record(a={"type": "array", "items": "double"}, s="string")
    payload = encoded(numbers, {"a": [1.5] * 200, "s": "x"})
    assert read(numbers, struct(a=many("double")), payload)[0]["a"] == [1.5] * 200
    with pytest.raises(ConfigError, match="items that take no bytes"):
        TypedRows(
            ValueFormat(name="avro", settings={"schema": record(a={"type": "array", "items": "null"})}),
            struct(a=many("string")),
        )


# ------------------------------------------------------------------ the Glue Schema Registry

GLUE = ConnectionSettings(region_name="us-east-1")
FIELD = {"name": "x", "type": "int"}


def version(*fields: Mapping[str, Any]) -> AvroCodec:
    return AvroCodec({"type": "record", "name": "R", "fields": [FIELD, *fields]})


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> FakeAws:
    """The service whose registry every task finds."""
    found = FakeAws(clock=VirtualClock())
    monkeypatch.setattr(registry, "shared_registry", lambda _connection: open_registry(found))
    return found


def open_registry(aws: FakeAws, **settings: Any) -> GlueSchemaRegistry:
    clock = aws.clock
    assert isinstance(clock, VirtualClock)
    return GlueSchemaRegistry(
        client=aws.client("glue"), clock=clock, sleep=clock.advance, rng=random.Random(1), **settings
    )


def typed(
    columns: dict[str, Any], *payloads: bytes, name: str = "avro", **settings: str
) -> list[dict[str, Any]]:
    return rows_of(ValueFormat(name=name, registry=GLUE, settings=settings), columns, *payloads)


def loads(aws: FakeAws) -> int:
    return int(aws.stats()["calls"].get("GetSchemaVersion", 0))


def test_versions_of_a_registry_are_read_as_they_were_written(aws: FakeAws) -> None:
    writer = open_registry(aws, auto_registration=True, compression="zlib")
    old = writer.serializer(version()).serialize("orders", {"x": 1})
    new = writer.serializer(version({"name": "y", "type": "int", "default": 9})).serialize(
        "orders", {"x": 2, "y": 3}
    )
    columns = struct(x="integer", y="integer")
    assert typed(columns, *[old, new] * 50) == [{"x": 1, "y": None}, {"x": 2, "y": 3}] * 50
    assert loads(aws) == 2
    resolved = version({"name": "y", "type": "int", "default": 9}).definition
    assert typed(columns, old, new, schema=resolved) == [{"x": 1, "y": 9}, {"x": 2, "y": 3}]


def test_a_version_that_does_not_fit_makes_its_values_malformed(aws: FakeAws) -> None:
    writer = open_registry(aws, auto_registration=True, compatibility="NONE")
    other = AvroCodec({"type": "record", "name": "R", "fields": [{"name": "x", "type": "string"}]})
    values = [
        writer.serializer(version()).serialize("orders", {"x": 1}),
        writer.serializer(other).serialize("orders", {"x": "secret"}),
        writer.serializer(JsonCodec({"type": "object"})).serialize("notes", {"x": 1}),
        b"no header",
        b"\x03\x05" + bytes(16) + b"damaged",
        b"\x03\x00" + bytes(16) + b"\x02",
    ]
    rows = typed(struct(x="integer", _corrupt_record="binary"), *values)
    assert [(row["x"], row["_corrupt_record"]) for row in rows] == [
        (1, None),
        *[(None, one) for one in values[1:]],
    ]


@pytest.mark.parametrize(
    ("written", "wanted", "kind", "fits"),
    [
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), "timestamp", False),
        (logical("int", "date"), logical("long", "timestamp-millis"), "timestamp", False),
        (["null", logical("bytes", "decimal", precision=9, scale=4)], MONEY, "decimal(9,2)", False),
        (logical("bytes", "decimal", precision=5, scale=2), MONEY, "decimal(9,2)", True),
        ("long", logical("long", "timestamp-millis"), "timestamp", True),
    ],
)
def test_a_writers_numbers_in_another_unit_are_malformed(
    aws: FakeAws, written: Any, wanted: Any, kind: str, fits: bool
) -> None:
    writer = open_registry(aws, auto_registration=True)
    definition, reader = (
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": one}}]}
        for one in (written, wanted)
    )
    raw_schema = json.dumps(definition).replace("logicalType", "plainType")
    header = writer.serializer(AvroCodec(definition)).serialize("orders", {"a": []})[:18]
    value = b"\x02" if kind.startswith("decimal") else 5
    payload = header + encoded(raw_schema, {"a": [value]})
    rows = typed(struct(a=many(kind), _corrupt_record="binary"), payload, schema=json.dumps(reader))
    assert (rows[0]["a"] is not None, rows[0]["_corrupt_record"]) == (fits, None if fits else payload)


def test_versions_that_do_not_exist_are_looked_up_once_and_not_without_end(
    aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MAX_UNKNOWN", 20)
    good = open_registry(aws, auto_registration=True).serializer(version()).serialize("orders", {"x": 1})
    forged = [b"\x03\x00" + number.to_bytes(16, "big") + b"\x02" for number in range(100)]
    rows = typed(struct(x="integer"), *forged, good, *forged)
    assert [row["x"] for row in rows] == [None] * 201, "not even a good version is looked up any more"
    assert loads(aws) == 20
    rows = typed(struct(x="integer"), good, *forged, good)
    assert (rows[0]["x"], rows[-1]["x"]) == (1, 1), "a known one needs no call"


def test_a_registry_that_is_down_fails_the_task(aws: FakeAws) -> None:
    good = open_registry(aws, auto_registration=True).serializer(version()).serialize("orders", {"x": 1})
    aws.faults.add(Fault(kind="throttle", operation="GetSchemaVersion"))
    with pytest.raises(ThrottledError):
        typed(struct(x="integer"), good)


def test_json_behind_a_header_is_read_without_its_schema(aws: FakeAws) -> None:
    serializer = open_registry(aws, auto_registration=True).serializer(JsonCodec({"type": "object"}))
    values = [serializer.serialize("orders", {"x": number}) for number in range(3)]
    rows = typed(struct(x="integer", _corrupt_record="string"), values[0], b"{}", *values[1:], name="json")
    assert [row["x"] for row in rows] == [0, None, 1, 2]
    assert [row["_corrupt_record"] for row in rows] == [None, "{}", None, None]
    assert [row["x"] for row in typed(struct(x="integer"), *values, name="json")] == [0, 1, 2]


def test_compressed_values_are_opened_in_small_parts(aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_BYTES", 100_000)
    writer = open_registry(aws, auto_registration=True, compression="zlib")
    value = writer.serializer(JsonCodec({"type": "object"})).serialize("orders", {"x": "a" * 10_000})
    assert len(value) < 200
    task = TypedRows(ValueFormat(name="json", registry=GLUE), struct(x="string")).begin()
    parts = list(task.shape(raw([value] * 30)))
    assert sum(part.num_rows for part in parts) == 30
    assert max(part.nbytes for part in parts) < 100_000


def test_one_client_serves_the_tasks_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registries", {})
    connection = ConnectionSettings(region_name="us-east-1", access_key_id="a", secret_access_key="b")
    assert registry.shared_registry(connection) is registry.shared_registry(connection)
    assert (
        len(
            list(
                TypedRows(ValueFormat(name="avro", registry=connection), struct(x="integer"))
                .begin()
                .shape(raw([b"?"]))
            )
        )
        == 1
    )
    assert len(registry._registries) == 1
