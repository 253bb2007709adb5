"""Protobuf messages to typed columns, without Spark."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.serialization import GlueSchemaRegistry, ProtobufCodec
from kinesis_sdk.spark import protobuf_columns
from kinesis_sdk.spark.connection import ConnectionSettings
from kinesis_sdk.spark.errors import MalformedValueError
from kinesis_sdk.spark.parse import protobuf_values
from kinesis_sdk.spark.parse.ddl import schema_of
from kinesis_sdk.spark.parse.form import ValueFormat
from kinesis_sdk.spark.parse.protobuf_values import message_type
from kinesis_sdk.testing import FakeAws
from kinesis_sdk.testing.clock import VirtualClock
from tests.serialization.cases import PROTO
from tests.serialization.messages import FILE as SHOP
from tests.spark.messages import SET, descriptors

pytest.importorskip("pyarrow", reason="pyarrow is not installed here; `make spark` runs this with it")

from kinesis_sdk.spark.parse import registry
from kinesis_sdk.spark.parse.rows import TypedRows
from tests.spark.typed import many, mapped, rows_of, struct

UTC = timezone.utc
All = message_type(SET, "All")


def read(
    columns: Mapping[str, Any],
    *payloads: bytes,
    message: str = "shop.All",
    mode: str = "PERMISSIVE",
    **settings: Any,
) -> list[dict[str, Any]]:
    settings = {"descriptor": SET, "message": message, **settings}
    return rows_of(ValueFormat(name="protobuf", mode=mode, settings=settings), dict(columns), *payloads)


COLUMNS = (
    "double_ DOUBLE, float_ FLOAT, int32_ INT, int64_ BIGINT, uint32_ BIGINT, uint64_ DECIMAL(20,0), sint32_ INT, fixed64_ DECIMAL(20,0), "
    "sfixed64_ BIGINT, bool_ BOOLEAN, string_ STRING, bytes_ BINARY, state STRING, at TIMESTAMP, took STRUCT<seconds: BIGINT, nanos: INT>, "
    "part STRUCT<x: INT>, parts ARRAY<STRUCT<x: INT>>, sizes ARRAY<INT>, named MAP<STRING, STRUCT<x: INT>>, counts MAP<STRING, BIGINT>, maybe INT"
)


def test_every_type_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    (tmp_path / "all.desc").write_bytes(SET)
    assert protobuf_columns(tmp_path / "all.desc", "shop.All") == COLUMNS
    message = All(
        double_=1.5, float_=0.5, int32_=-1, int64_=-(2**63), uint32_=2**32 - 1, uint64_=2**64 - 1, sint32_=-5, fixed64_=7, sfixed64_=-7, bool_=True,
        string_="é😀", bytes_=b"\0\xff", state=1, part={"x": 3}, parts=[{"x": 1}, {}], sizes=[0, 1], maybe=0,
    )  # fmt: skip
    message.at.FromDatetime(datetime(2026, 1, 31, 12, 0, 0, 7))  # noqa: DTZ001
    message.took.seconds = 90
    message.named["k"].x = 4
    message.counts[False] = 0
    schema = schema_of(COLUMNS, "columns")
    (row,) = read(schema, message.SerializeToString())
    assert row == {
        "double_": 1.5, "float_": 0.5, "int32_": -1, "int64_": -(2**63), "uint32_": 2**32 - 1, "uint64_": Decimal(2**64 - 1), "sint32_": -5,
        "fixed64_": Decimal(7), "sfixed64_": -7, "bool_": True, "string_": "é😀", "bytes_": b"\0\xff", "state": "OLD",
        "at": datetime(2026, 1, 31, 12, 0, 0, 7, UTC), "took": {"seconds": 90, "nanos": None}, "part": {"x": 3}, "parts": [{"x": 1}, {"x": None}],
        "sizes": [0, 1], "named": [("k", {"x": 4})], "counts": [("false", 0)], "maybe": 0,
    }  # fmt: skip
    nothing = {"parts": [], "sizes": [], "named": [], "counts": []}
    assert read(schema, b"") == [{**dict.fromkeys(row), **nothing}], (
        "Spark reads fields without presence as null"
    )
    (row,) = read(schema, b"", emit_defaults=True)
    assert (row["int32_"], row["string_"], row["state"], row["part"], row["maybe"]) == (
        0,
        "",
        "NEW",
        None,
        None,
    )


def test_a_zero_with_a_sign_and_parts_of_a_microsecond_are_read_as_spark_reads_them() -> None:
    message = All(double_=-0.0, float_=-0.0)
    message.at.nanos = -1_500
    (row,) = read(struct(double_="double", float_="float", at="timestamp"), message.SerializeToString())
    assert (str(row["double_"]), str(row["float_"])) == ("-0.0", "-0.0")
    assert row["at"] == datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)


def test_defaults_and_required_fields_of_proto2() -> None:
    old = message_type(SET, "Old")
    columns = struct(id="string", name="string", note="string", _corrupt_record="binary")
    rows = read(columns, old(id="").SerializeToString(), b"\x12\x01x", message="Old")
    assert rows == [
        {"id": "", "name": "unnamed", "note": None, "_corrupt_record": None},
        {"id": None, "name": None, "note": None, "_corrupt_record": b"\x12\x01x"},
    ]


def test_columns_may_be_other_numbers_and_fewer() -> None:
    payloads = [
        All(uint32_=5, uint64_=2**63 - 1, int32_=3, state=1).SerializeToString(),
        All(state=9).SerializeToString(),
    ]
    columns = struct(uint64_="long", uint32_="integer", int32_="double", state="integer")
    assert [list(row.values()) for row in read(columns, *payloads)] == [
        [2**63 - 1, 5, 3.0, 1],
        [None, None, None, 9],
    ]
    assert read(struct(state="string"), *payloads) == [
        {"state": "OLD"},
        {"state": "UNKNOWN_ENUM_VALUE_State_9"},
    ]
    large = All(uint32_=2**31).SerializeToString()
    with pytest.raises(MalformedValueError, match="field uint32_: a value that its type cannot have"):
        read(columns, large, mode="FAILFAST")


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (struct(zz="integer"), "column zz=.*a field of shop.All: double_"),
        (struct(int32_="string"), "column int32_=.*expected int, as the descriptor has it"),
        (struct(sizes="integer"), "column sizes=.*an array of int"),
        (struct(parts=many("integer")), "column parts=.*the message shop.Part"),
        (struct(named=many("integer")), "column named=.*a map"),
        (struct(part=struct(y="integer")), "column part.y"),
        (struct(counts=mapped("string")), "column counts=.*bigint"),
        (struct(int32_="integer", _corrupt_record="string"), "column _corrupt_record=.*binary"),
    ],
)
def test_a_column_that_the_message_lacks_is_refused(columns: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        TypedRows(ValueFormat(name="protobuf", settings={"descriptor": SET, "message": "All"}), columns)


def test_descriptors_and_messages_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="messageName='Order'"):
        message_type(SET, "Order")
    for damaged in (b"\xff", SET[:-3], descriptors('name: "a" dependency: "missing.proto"')):
        with pytest.raises(ConfigError, match="protobufDescriptor"):
            message_type(damaged, "All")
    with pytest.raises(ConfigError, match="descriptor="):
        protobuf_columns(tmp_path / "no.desc", "All")
    (tmp_path / "all.desc").write_bytes(SET)
    with pytest.raises(ConfigError, match="a message that does not contain itself"):
        protobuf_columns(tmp_path / "all.desc", "Node")


def test_malformed_values_keep_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    good = All(int32_=1, string_="x", sizes=[1]).SerializeToString()
    far = All(at={"seconds": 2**60}).SerializeToString()
    typed = good + b"\x1a\x01x"  # int32_ as text, which the library takes for an unknown field
    bad = [good[:-1], b"\xff", b"\x5a\x01\xff", far, b"\x18", typed]
    columns = struct(int32_="integer", at="timestamp", _corrupt_record="binary")
    rows = read(columns, good, *bad, good)
    assert [row["_corrupt_record"] for row in rows] == [None, *bad, None]
    assert [row["int32_"] for row in rows] == [1, *([None] * len(bad)), 1]
    assert len(read(columns, good, *bad, mode="DROPMALFORMED")) == 1
    newer = good + b"\xd8\x0f\x05"
    assert read(columns, newer) == [{"int32_": 1, "at": None, "_corrupt_record": None}]
    monkeypatch.setattr(protobuf_values, "MAX_CHECKED_BYTES", len(typed) - 1)
    assert read(columns, typed)[0]["int32_"] == 1, "too many fields to be looked at"


def test_depth_and_elements_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = struct(x="integer", next=struct(x="integer"), _corrupt_record="binary")
    for depth, fits in ((50, True), (5_000, False)):
        payload = b"\x08\x01"
        for _ in range(depth):
            size, prefix = len(payload), b""
            while size > 0x7F:
                prefix, size = prefix + bytes([size & 0x7F | 0x80]), size >> 7
            payload = b"\x12" + prefix + bytes([size]) + payload
        assert (read(columns, payload, message="Node")[0]["_corrupt_record"] is None) == fits
    monkeypatch.setattr(protobuf_values, "MAX_VALUES", 100)
    columns = struct(sizes=many("integer"), parts=many(struct(x="integer")), _corrupt_record="binary")
    few, some = (All(sizes=[1] * count, parts=[{}] * 60).SerializeToString() for count in (40, 41))
    assert [row["_corrupt_record"] for row in read(columns, few, some, few)] == [None, some, None]
    monkeypatch.setattr(protobuf_values, "MAX_VALUE_BYTES", 48 * 99)  # an element of `parts` counts 48 bytes
    assert [row["_corrupt_record"] for row in read(columns, few)] == [few]


def test_messages_behind_the_header_of_a_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    aws = FakeAws(clock=VirtualClock())

    def open_registry(**settings: Any) -> GlueSchemaRegistry:
        return GlueSchemaRegistry(client=aws.client("glue"), rng=random.Random(1), **settings)

    monkeypatch.setattr(registry, "shared_registry", lambda _connection: open_registry())
    order = message_type(descriptors(SHOP), "shop.Order")
    writer = open_registry(auto_registration=True)
    form = {"descriptor": descriptors(SHOP), "message": "Order"}
    columns = struct(id="string", _corrupt_record="binary")
    for index in (True, False):
        codec = ProtobufCodec(order, definition=PROTO, message_index=index)
        value = writer.serializer(codec).serialize("orders", order(id="x"))
        bad = [b"no header", value[:18] + b"\x7f", value[:-1]]
        settings = form if index else {**form, "index": False}
        glue = ConnectionSettings(region_name="us-east-1")
        rows = rows_of(ValueFormat(name="protobuf", registry=glue, settings=settings), columns, value, *bad)
        assert [(row["id"], row["_corrupt_record"]) for row in rows] == [
            ("x", None),
            *[(None, one) for one in bad],
        ]
