"""Avro and Protobuf parsed by the reader: the same rows as Spark's own functions make of the same values."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import uuid
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2
from pyspark.sql import functions as F  # noqa: N812 — Spark's habit

from integration.java import maven
from integration.localstack.install import CannotInstallError
from integration.spark.environments import FORMER, CannotRunSparkError, prepare_bare
from integration.spark.harness import aggregate_entry, assert_same_rows
from kinesis_sdk.serialization import AvroCodec, GlueSchemaRegistry
from kinesis_sdk.spark import avro_columns, protobuf_columns
from kinesis_sdk.spark.parse.protobuf_values import message_type
from tests.spark.messages import SET

ROWS = 20_000
UTC = timezone.utc


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


PART = {
    "type": "record",
    "name": "Part",
    "fields": [field("x", ["null", "double"]), field("at", logical("long", "timestamp-millis"))],
}
AVRO = {
    "type": "record",
    "name": "Everything",
    "fields": [
        field("o", "boolean"),
        field("i", ["null", "int"]),
        field("l", "long"),
        field("f", "float"),
        field("d", "double"),
        field("s", "string"),
        field("b", "bytes"),
        field("e", {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}),
        field("x", {"type": "fixed", "name": "Three", "size": 3}),
        field("dt", ["null", logical("int", "date")]),
        field("ms", logical("long", "timestamp-millis")),
        field("us", ["null", logical("long", "timestamp-micros")]),
        field("lo", logical("long", "local-timestamp-micros")),
        field("tm", logical("int", "time-millis")),
        field("id", logical("string", "uuid")),
        field("m", ["null", logical("bytes", "decimal", precision=9, scale=2)]),
        field(
            "q",
            {
                "type": "fixed",
                "name": "Sum",
                "size": 8,
                "logicalType": "decimal",
                "precision": 18,
                "scale": 4,
            },
        ),
        field("r", PART),
        field("a", {"type": "array", "items": ["null", "int"]}),
        field("p", {"type": "array", "items": "Part"}),
        field("mp", {"type": "map", "values": ["null", "string"]}),
        field("u", ["null", "int", "long"]),
    ],
}


def avro_value(rng: Random) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.1 else value

    def moment(unit: int) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
            microseconds=rng.randrange(-(10**15), 4 * 10**15) // unit * unit
        )

    def part() -> dict[str, Any]:
        return {"x": maybe(rng.uniform(-1e9, 1e9)), "at": moment(1_000)}

    texts = ["", "x", "é€😀", "two\nlines", "\0"]
    return {
        "o": rng.random() < 0.5,
        "i": maybe(rng.randrange(-(2**31), 2**31)),
        "l": rng.randrange(-(2**63), 2**63),
        "f": rng.choice([0.5, -0.25, 1e10]),
        "d": rng.choice([rng.uniform(-1e300, 1e300), float("inf"), 0.0]),
        "s": rng.choice(texts),
        "b": rng.randbytes(rng.randrange(5)),
        "e": rng.choice(["NEW", "OLD"]),
        "x": rng.randbytes(3),
        "dt": maybe(date(1970, 1, 1) + timedelta(days=rng.randrange(-200_000, 200_000))),
        "ms": moment(1_000),
        "us": maybe(moment(1)),
        "lo": moment(1).replace(tzinfo=None),
        "tm": (datetime(2026, 1, 1) + timedelta(milliseconds=rng.randrange(86_400_000))).time(),  # noqa: DTZ001
        "id": str(uuid.UUID(int=rng.getrandbits(128))),
        "m": maybe(Decimal(rng.randrange(-(10**9) + 1, 10**9)).scaleb(-2)),
        "q": Decimal(rng.randrange(-(10**18) + 1, 10**18)).scaleb(-4),
        "r": part(),
        "a": [maybe(rng.randrange(100)) for _ in range(rng.randrange(4))],
        "p": [part() for _ in range(rng.randrange(3))],
        "mp": {f"k{number}": maybe(rng.choice(texts)) for number in range(rng.randrange(3))},
        "u": rng.choice([None, rng.randrange(100), 2**40]),
    }


def avro_payloads(rng: Random, rows: int) -> list[bytes]:
    """Return values, of which some are cut off."""
    schema = fastavro.parse_schema(AVRO)
    found = []
    for _ in range(rows):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, avro_value(rng))
        payload = out.getvalue()
        found.append(payload[: rng.randrange(len(payload))] if rng.random() < 0.01 else payload)
    return found


def put_all(stream: Any, payloads: list[bytes]) -> None:
    for begin in range(0, len(payloads), 500):
        stream.put_entries([aggregate_entry(payloads[begin : begin + 500], f"key-{begin}")])


@pytest.fixture(scope="session")
def with_jars(spark: Any) -> Callable[[str], None]:
    """Give the session Spark's packages of a lock file, or skip."""

    def add(name: str) -> None:
        try:
            folder = maven.install(Path(__file__).with_name(name))
        except CannotInstallError as error:
            pytest.skip(str(error))
        for jar in folder.glob("*.jar"):
            spark.sql(f"ADD JAR '{jar}'")

    return add


@pytest.mark.full
def test_rows_are_those_of_from_avro(spark: Any, stream: Any, with_jars: Callable[[str], None]) -> None:
    with_jars("avro.jars")
    orders = stream(2)
    put_all(orders, avro_payloads(Random(31), ROWS))
    reader = spark.read.format("kinesis_sdk").options(**orders.options())
    schema = json.dumps(AVRO)
    columns = avro_columns(schema)
    from_avro = F.expr(f"from_avro(data, '{schema}', map('mode', 'PERMISSIVE'))")
    expected = reader.schema("data binary").load().select(from_avro.alias("v")).select("v.*")
    found = reader.schema(columns).options(valueFormat="avro", avroSchema=schema).load()
    assert found.schema.simpleString() == expected.schema.simpleString()
    maps_as_text = [F.to_json(name).alias(name) if name == "mp" else name for name in found.columns]
    assert_same_rows(found.select(maps_as_text), expected.select(maps_as_text), ROWS)


def test_values_of_a_schema_registry(spark: Any, stream: Any, endpoint: Any) -> None:
    registry = GlueSchemaRegistry(region_name="us-east-1", endpoint_url=endpoint.url, auto_registration=True)
    orders = stream(1)
    serializer = registry.serializer(
        AvroCodec({"type": "record", "name": "Order", "fields": [field("id", "long")]})
    )
    orders.put(*(serializer.serialize(orders.name, {"id": number}) for number in range(20)), b"?")
    rows = (
        spark.read.format("kinesis_sdk")
        .options(
            **orders.options(),
            valueFormat="avro",
            schemaRegistry="glue",
            schemaRegistryEndpointUrl=endpoint.url,
        )
        .schema("id BIGINT, _corrupt_record BINARY")
        .load()
        .collect()
    )
    assert sorted(row.id for row in rows if row.id is not None) == list(range(20))
    assert [bytes(row._corrupt_record) for row in rows if row.id is None] == [b"?"]


def protobuf_message(rng: Random) -> Any:
    kind = message_type(SET, "shop.All")
    message = kind()

    def maybe(name: str, value: Any) -> None:
        if rng.random() < 0.7:
            setattr(message, name, value)

    def whole(bits: int) -> int:
        return rng.choice([0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), rng.randrange(2 ** (bits - 1))])

    def real() -> float:
        return rng.choice([0.0, -0.0, math.nan, math.inf, -math.inf, 0.5, -1e-3, 1e30])

    maybe("double_", rng.choice([real(), rng.uniform(-1e300, 1e300), 5e-324]))
    maybe("float_", real())
    for name, bits in (("int32_", 32), ("int64_", 64), ("sint32_", 32), ("sfixed64_", 64), ("maybe", 32)):
        maybe(name, whole(bits))
    for name, bits in (("uint32_", 32), ("uint64_", 64), ("fixed64_", 64)):
        maybe(name, whole(bits) % 2**bits)
    maybe("bool_", rng.random() < 0.5)
    maybe("string_", rng.choice(["", "x", "é€😀", "two\nlines", "\0"]))
    maybe("bytes_", rng.randbytes(rng.randrange(5)))
    maybe("state", rng.choice([0, 1, 9, -3]))
    if rng.random() < 0.7:
        message.at.seconds = rng.randrange(-(10**10), 10**11)
        message.at.nanos = rng.choice([0, 7, 999, 1_000, 999_999_999, -1, -1_500])
    if rng.random() < 0.7:
        message.took.seconds, message.took.nanos = (
            rng.randrange(-(10**6), 10**6),
            rng.choice([0, 1_000, -2_000]),
        )
    if rng.random() < 0.7:
        message.part.SetInParent()
        message.part.x = rng.randrange(3)
    message.parts.extend([kind().part.__class__(x=rng.randrange(3)) for _ in range(rng.randrange(4))])
    message.sizes.extend([whole(32) for _ in range(rng.randrange(4))])
    for _ in range(rng.randrange(3)):
        message.named[rng.choice(["", "k", "é"])].x = rng.randrange(3)
        message.counts[rng.random() < 0.5] = whole(64)
    return message


OF_ANOTHER_TYPE = (
    b"\x1a\x01x",
    b"\x0d\0\0\0\0",
    b"\x5d\1\2\3\4",
    b"\xb8\x01\x05",
    b"\xc8\x01\x03",
    b"\xca\x01\x02\x03\x04",
)
"""Fields of the message in another encoding than its own; the last one is a packed list."""
NOT_THERE = (b"\xd8\x0f\x05", b"\xda\x0f\x02hi")
"""Fields that the message does not have."""
DIFFERING = (b"\xb2\x01", b"\xd2\x01", b"\xda\x01")
"""First bytes of the duration and of the maps, of which damaged ones are read in other ways."""


def protobuf_payload(rng: Random) -> bytes:
    """Return a value, of which some are cut off, damaged, or have further fields."""
    message = protobuf_message(rng)
    payload: bytes = message.SerializeToString(deterministic=True)
    chance = rng.random()
    if chance < 0.01:
        return payload + rng.choice(OF_ANOTHER_TYPE + NOT_THERE)
    if chance < 0.02:
        return payload[: rng.randrange(len(payload))]
    if chance < 0.03:
        at = rng.randrange(len(payload))
        damaged = payload[:at] + bytes([payload[at] ^ 1 << rng.randrange(8)]) + payload[at + 1 :]
        return payload if any(one in damaged for one in DIFFERING) else damaged
    return payload


@pytest.mark.full
def test_rows_are_those_of_from_protobuf(spark: Any, stream: Any, folder: Path) -> None:
    """A Spark of its own reads the same values from a file, because the package for a newer one was not to be had."""
    try:
        python = prepare_bare(FORMER)
        (jar,) = maven.install(Path(__file__).with_name("protobuf.jars")).glob("*.jar")
    except (CannotInstallError, CannotRunSparkError) as error:
        pytest.skip(str(error))
    orders = stream(2)
    rng = Random(34)
    payloads = [protobuf_payload(rng) for _ in range(ROWS)]
    put_all(orders, payloads)
    imported = b"".join(
        descriptor_pb2.FileDescriptorSet(
            file=[descriptor_pb2.FileDescriptorProto.FromString(known.DESCRIPTOR.serialized_pb)]
        ).SerializeToString()
        for known in (timestamp_pb2, duration_pb2)
    )
    descriptor, values, rows = folder / "all.desc", folder / "values", folder / "rows"
    descriptor.write_bytes(imported + SET)
    spark.createDataFrame([(one,) for one in payloads], "data BINARY").write.parquet(str(values))
    program = Path(__file__).parent / "programs" / "from_protobuf.py"
    command = [str(one) for one in (python, program, jar, descriptor, "shop.All", values, rows)]
    done = subprocess.run(
        command, env={**os.environ, "PYSPARK_PYTHON": str(python)}, capture_output=True, text=True, timeout=900, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    columns = f"{protobuf_columns(descriptor, 'shop.All')}, _data BINARY"
    settings = {"valueFormat": "protobuf", "protobufDescriptor": str(descriptor), "messageName": "shop.All"}
    found = spark.read.format("kinesis_sdk").options(**orders.options(), **settings).schema(columns).load()
    same = [
        name
        for name in found.columns
        if name not in {"uint32_", "uint64_", "fixed64_", "took", "named", "counts", "_data"}
    ]
    maps = [
        f"array_sort(transform(map_entries({name}), e -> struct(CAST(e.key AS STRING) AS key, e.value AS value))) AS {name}"
        for name in ("named", "counts")
    ]
    whole = [
        f"CAST(CAST({name} AS DECIMAL(21,0)) + IF({name} < 0, {2**bits}BD, 0BD) AS DECIMAL(21,0)) AS {name}"
        for name, bits in (("uint32_", 32), ("uint64_", 64), ("fixed64_", 64))
    ]
    micros = "IF(took IS NULL, NULL, COALESCE(took.seconds, 0) * 1000000 + COALESCE(took.nanos, 0) DIV 1000) AS took"
    interval = "unix_micros(TIMESTAMP'1970-01-01 00:00:00Z' + took) AS took"
    expected = spark.read.parquet(str(rows)).selectExpr(*same, *whole, *maps, interval, "data")
    assert_same_rows(found.selectExpr(*same, *whole, *maps, micros, "_data AS data"), expected, ROWS)
    malformed = expected.filter(
        " AND ".join(f"{name} IS NULL" for name in expected.columns if name != "data")
    ).count()
    assert 0.01 * ROWS < malformed < 0.03 * ROWS
