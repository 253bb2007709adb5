"""Values in the forms of both sides: what ours take, and what AWS's serializers for Java take and show.

``golden.json`` has the bytes that each side made of them, and what Java read. It is made by

    python -m integration.java.schemas.golden > tests/serialization/golden.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from kinesis_sdk.serialization import AvroCodec, JsonCodec, ProtobufCodec
from tests.serialization.messages import Line, Order

GOLDEN = Path(__file__).parent / "golden.json"

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "amount", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "price", "type": "double"},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Line",
                        "fields": [{"name": "sku", "type": "string"}],
                    },
                },
            },
        ],
    },
    separators=(",", ":"),
)
JSON_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"id": {"type": "string"}, "amount": {"type": "integer"}},
        "required": ["id"],
    },
    separators=(",", ":"),
)
PROTO = """\
syntax = "proto3";
package shop;
option java_package = "com.shop";
option java_multiple_files = true;
message Order {
  reserved 20, 30 to max; // `message Beta {` in a comment is none
  reserved "secret";
  string id = 1;
  map<string, int32> attrs_by_key = 2;
  repeated Line lines = 3;
  oneof pay { string card = 4; int64 cash = 5; }
  optional int32 priority = 6;
  State state = 7;
  repeated sint32 sizes = 8 [packed = false];
  enum State { NEW = 0; OLD = 1; }
  message Line { string sku = 1 [json_name = "article"]; }
}
message Alpha { Order order = 1; }
"""


class Pair(NamedTuple):
    """A value on both sides.

    Attributes:
        data_format: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        schema_name: Name of the schema.
        schema: Its text.
        java: The value as `integration.java.schemas.tool.Case` describes it.
        value: The value as our codecs take and return it.
        codec: Codec for it.
    """

    data_format: str
    schema_name: str
    schema: str
    java: str
    value: Any
    codec: Any


def pairs() -> dict[str, Pair]:
    """Return all values by name."""
    avro = {
        "id": "ä-7",
        "amount": -3,
        "note": None,
        "price": 2.5,
        "state": "OLD",
        "lines": [{"sku": "x"}, {"sku": ""}],
    }
    order = Order(
        id="ä-7",
        attrs_by_key={"k": 3},
        lines=[{"sku": "x"}],
        cash=5,
        priority=0,
        state="OLD",
        sizes=[-1, 300],
    )
    return {
        "avro": Pair("AVRO", "orders-avro", AVRO, json.dumps(avro), avro, AvroCodec(AVRO)),
        "avro with a value of a union": Pair(
            "AVRO",
            "orders-avro",
            AVRO,
            json.dumps({**avro, "note": {"string": "long " * 40}}),
            {**avro, "note": "long " * 40},
            AvroCodec(AVRO),
        ),
        "json": Pair(
            "JSON",
            "orders-json",
            JSON_SCHEMA,
            '{"id":"ä-7","amount":3}',
            {"id": "ä-7", "amount": 3},
            JsonCodec(JSON_SCHEMA),
        ),
        "protobuf": Pair(
            "PROTOBUF",
            "orders-proto",
            PROTO,
            'shop.Order\nid: "ä-7" attrs_by_key { key: "k" value: 3 } lines { sku: "x" } cash: 5 priority: 0 '
            "state: OLD sizes: -1 sizes: 300",
            order,
            ProtobufCodec(Order, definition=PROTO),
        ),
        "protobuf, a nested message": Pair(
            "PROTOBUF",
            "orders-proto",
            PROTO,
            'shop.Order.Line\nsku: "x"',
            Line(sku="x"),
            ProtobufCodec(Line, definition=PROTO),
        ),
    }


def golden() -> dict[str, Any]:
    """Return the recorded bytes."""
    found: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found
