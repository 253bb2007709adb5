"""The codecs without a registry: JSON, Avro and Protobuf."""

from __future__ import annotations

import copy
import io
import math
import sys
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.serialization import Deserializer, Serializer
from kinesis_sdk.serialization import AvroCodec, JsonCodec, ProtobufCodec
from kinesis_sdk.serialization.proto_names import message_names, message_names_of_text
from tests.serialization.cases import AVRO, JSON_SCHEMA, PROTO, pairs
from tests.serialization.messages import SHOP, Alpha, Line, Old, Order


@pytest.mark.parametrize("name", pairs())
def test_every_codec_reads_what_it_writes(name: str) -> None:
    pair = pairs()[name]
    data = pair.codec.serialize("orders", pair.value)
    assert type(data) is bytes
    assert pair.codec.deserialize("orders", data) == pair.value
    assert isinstance(pair.codec, Serializer)
    assert isinstance(pair.codec, Deserializer)


@pytest.mark.parametrize(
    ("module", "extra", "make"),
    [
        ("orjson", "orjson", lambda: JsonCodec(use_orjson=True)),
        ("jsonschema.validators", "json-schema", lambda: JsonCodec(JSON_SCHEMA)),
        ("fastavro", "avro", lambda: AvroCodec(AVRO)),
    ],
)
def test_a_missing_library_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, extra: str, make: Any
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install '\.\[{extra}\]'"):
        make()


# JSON


@pytest.mark.parametrize("use_orjson", [False, True])
def test_json_is_compact_utf_8(use_orjson: bool) -> None:
    codec = JsonCodec(use_orjson=use_orjson)
    assert codec.serialize("s", {"a": [1, "ä", None, True]}) == '{"a":[1,"ä",null,true]}'.encode()
    assert codec.deserialize("s", b' {"a": 1.5} ') == {"a": 1.5}
    with pytest.raises(ValueError):
        codec.deserialize("s", b'{"a":')
    with pytest.raises(TypeError):
        codec.serialize("s", {"a": object()})


def test_numbers_that_json_does_not_have() -> None:
    for number in (math.nan, math.inf):
        with pytest.raises(ValueError, match="JSON compliant"):
            JsonCodec().serialize("s", [number])


def test_a_value_that_violates_the_schema_is_not_quoted() -> None:
    codec = JsonCodec(JSON_SCHEMA)
    with pytest.raises(ValueError, match=r"^\$.id .*'type'"):
        codec.serialize("s", {"id": 123456})
    with pytest.raises(ValueError, match=r"^\$ .*'required'"):
        codec.serialize("s", {})
    assert JsonCodec(JSON_SCHEMA, validate=False).serialize("s", {}) == b"{}"
    assert codec.definition == JSON_SCHEMA
    assert JsonCodec({"type": "object"}).definition == '{"type":"object"}'


def test_a_schema_does_not_make_the_validator_load_documents() -> None:
    codec = JsonCodec({"$ref": "http://127.0.0.1:9/schema.json"})
    with pytest.raises(Exception, match=r"127\.0\.0\.1:9") as raised:
        codec.serialize("s", {})
    assert "Unresolvable" in type(raised.value).__name__ or "Unresolvable" in str(raised.value)


@pytest.mark.parametrize("schema", ["{", "[]", '{"type": "objekt"}', 3])
def test_what_is_not_a_json_schema(schema: Any) -> None:
    with pytest.raises(ConfigError, match=r"^schema="):
        JsonCodec(schema)


# Avro


def test_avro_schemas_may_be_parsed_already() -> None:
    codec = AvroCodec({"type": "record", "name": "a.R", "fields": [{"name": "x", "type": "int"}]})
    assert codec.definition == '{"type":"record","name":"a.R","fields":[{"name":"x","type":"int"}]}'
    assert codec.name == "a.R"
    assert AvroCodec("string").name is None
    assert AvroCodec('"string"').serialize("s", "x") == b"\x02x"
    assert AvroCodec(["null", "string"]).serialize("s", "x") == b"\x02\x02x"


def test_avro_is_resolved_to_the_reader_s_schema() -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}
    new = {
        **old,
        "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": "string", "default": "none"}],
    }
    data = AvroCodec(old).serialize("s", {"x": 7})
    assert AvroCodec(new, writer_schema=old).deserialize("s", data) == {"x": 7, "y": "none"}


def test_damaged_avro() -> None:
    codec = AvroCodec(AVRO)
    data = codec.serialize("s", pairs()["avro"].value)
    with pytest.raises(EOFError):
        codec.deserialize("s", data[:-3])
    with pytest.raises(ValueError, match="2 bytes are left"):
        codec.deserialize("s", data + b"\0\0")


@pytest.mark.parametrize("schema", ["{", {"type": "record"}, "strong", 7])
def test_what_is_not_an_avro_schema(schema: Any) -> None:
    with pytest.raises(ConfigError, match=r"^schema="):
        AvroCodec(schema)


# Protobuf


LIST = {"type": "record", "name": "L", "namespace": "a", "fields": [{"name": "n", "type": ["null", "L"]}]}
TREE = {"type": "record", "name": "T", "fields": [{"name": "c", "type": {"type": "array", "items": "T"}}]}


@pytest.mark.parametrize(("schema", "one"), [(LIST, b"\2"), (TREE, b"\2")])
def test_a_deep_avro_value_is_an_error_and_does_not_kill_the_process(schema: Any, one: bytes) -> None:
    codec = AvroCodec(schema)
    with pytest.raises(RecursionError):
        codec.deserialize("s", one * 20_000 + b"\0" * 20_001)
    value = codec.deserialize("s", one * 3 + b"\0" * (1 if schema is LIST else 4))
    assert codec.serialize("s", value) == one * 3 + b"\0" * (1 if schema is LIST else 4)
    deep: Any = None if schema is LIST else {"c": []}
    for _ in range(20_000):
        deep = {"n": deep} if schema is LIST else {"c": [deep]}
    with pytest.raises(ValueError, match="500 levels"):
        codec.serialize("s", deep)


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "record", "name": "R", "fields": []},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "null"}]},
        {"type": "array", "items": "null"},
    ],
)
def test_avro_arrays_of_nothing_are_refused(items: Any) -> None:
    """Five bytes could be an array of 2^60 items."""
    for schema in (
        {"type": "array", "items": items},
        {"type": "map", "values": {"type": "array", "items": items}},
    ):
        with pytest.raises(ConfigError, match=r"^schema="):
            AvroCodec(schema)


@pytest.mark.parametrize(
    "items",
    [
        "int",
        ["null", "int"],
        {"type": "enum", "name": "E", "symbols": ["A"]},
        {"type": "map", "values": "null"},
    ],
)
def test_other_avro_arrays_are_not(items: Any) -> None:
    codec = AvroCodec({"type": "array", "items": items})
    with pytest.raises(EOFError):
        codec.deserialize("s", b"\xfe\xff\xff\xff\x0f")


def varint(number: int) -> bytes:
    """Avro's encoding of a long of at least 0."""
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
PRICE = {"type": "record", "name": "P", "fields": [{"name": "of", "type": MONEY}]}


@pytest.mark.parametrize(
    ("schema", "before", "after"),
    [
        (MONEY, b"", b""),
        ({**MONEY, "precision": 1_500}, b"", b""),
        ({"type": "array", "items": ["null", MONEY]}, b"\2\2", b"\0"),
        (PRICE, b"", b""),
        (
            {
                "type": "record",
                "name": "Q",
                "fields": [{"name": "a", "type": PRICE}, {"name": "b", "type": "P"}],
            },
            b"\2\1",
            b"",
        ),
        (
            {
                "type": "record",
                "name": "L",
                "fields": [{"name": "m", "type": MONEY}, {"name": "n", "type": ["null", "L"]}],
            },
            b"",
            b"\0",
        ),
    ],
)
@pytest.mark.parametrize("resolved", [False, True])
def test_an_avro_decimal_of_many_bytes_is_an_error(
    schema: Any, before: bytes, after: bytes, resolved: bool
) -> None:
    """The time for one grows with the square of its bytes: a record of a megabyte would hold its shard up for minutes."""
    codec = AvroCodec({**schema, "doc": "newer"} if resolved else schema, writer_schema=schema)
    for size in (1, 4, 1_024):
        payload = before + varint(size) + b"\1" * size + after
        assert codec.deserialize("s", payload) == fastavro.schemaless_reader(
            io.BytesIO(payload), fastavro.parse_schema(copy.deepcopy(schema)), None
        )
    with pytest.raises(ValueError, match=r"1,025 bytes.* 1,024"):
        codec.deserialize("s", before + varint(1_025) + b"\1" * 1_025 + after)
    value = codec.deserialize("s", before + varint(2) + b"\1\2" + after)
    assert codec.serialize("s", value) == before + varint(2) + b"\1\2" + after


def test_a_decimal_may_have_as_many_bytes_as_its_precision_needs() -> None:
    codec = AvroCodec({**MONEY, "precision": 4_000})
    value = Decimal(10**4_000 - 1).scaleb(-2)
    assert codec.deserialize("s", codec.serialize("s", value)) == value
    with pytest.raises(ValueError, match="2,001"):
        codec.deserialize("s", varint(2_002) + b"\1" * 2_002)


def test_a_schema_that_is_too_deep_is_refused() -> None:
    with pytest.raises(ConfigError, match="an Avro schema"):
        AvroCodec('{"type": "array", "items": ' * 30_000)


def test_a_protobuf_codec_takes_one_class() -> None:
    codec = ProtobufCodec(Order)
    with pytest.raises(TypeError, match="not Line"):
        codec.serialize("s", Line(sku="x"))
    with pytest.raises(ConfigError, match=r"^message_type="):
        ProtobufCodec(dict)  # type: ignore[type-var]
    with pytest.raises(Exception, match="id"):
        ProtobufCodec(Old).serialize("s", Old())


def test_message_types_are_numbered_by_full_name() -> None:
    assert message_names(SHOP) == [
        "shop.Alpha",
        "shop.Order",
        "shop.Order.AttrsByKeyEntry",
        "shop.Order.Line",
    ]
    assert [ProtobufCodec(kind).index for kind in (Alpha, Order, Line)] == [0, 1, 3]


def test_the_names_in_text_are_those_of_the_file() -> None:
    assert message_names_of_text(PROTO) == message_names(SHOP)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("message A{}", ["A"]),
        ("package p; /* message B {} */ message A { // message C {\n }", ["p.A"]),
        ('message A { string message = 1 [(note) = "message B {}", (deep) = { x: 1 }]; }', ["A"]),
        (
            "message A { message B { message C {} } enum D { E = 0; } oneof o { B b = 1; } }",
            ["A", "A.B", "A.B.C"],
        ),
        ("message A { map<string, A> some_map = 1; }", ["A", "A.SomeMapEntry"]),
        (
            "message A { repeated group Item = 1 { map<int32,int32> m = 2; } }",
            ["A", "A.Item", "A.Item.MEntry"],
        ),
        (
            "option (o) = { message: {} }; message A {} service S { rpc M (A) returns (A) { option x = 1; } }",
            ["A"],
        ),
        ("syntax = 'proto3'; message Zeta {} message alpha {}", ["Zeta", "alpha"]),
        (
            "message A { message AttrsEntry { option map_entry = true; } repeated A.AttrsEntry attrs = 1; }",
            ["A", "A.AttrsEntry"],
        ),
    ],
)
def test_names_of_messages_in_text(text: str, names: list[str]) -> None:
    assert message_names_of_text(text) == names


@pytest.mark.parametrize("text", ["message A {", "message A {} }"])
def test_braces_that_do_not_match(text: str) -> None:
    with pytest.raises(ValueError, match="unbalanced braces"):
        message_names_of_text(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message Order {", "unbalanced braces"),
        ("package shop; message Order {}", "shop.Alpha exists only in the class or only in the text"),
        (PROTO + "message Beta {}", "shop.Beta exists only in the class or only in the text"),
    ],
)
def test_the_text_of_another_file_is_refused(text: str, reason: str) -> None:
    assert ProtobufCodec(Order, definition=PROTO).definition == PROTO
    with pytest.raises(ConfigError, match=reason) as caught:
        ProtobufCodec(Order, definition=text)
    assert caught.value.field == "definition"
