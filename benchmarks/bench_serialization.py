"""CPU per record of the codecs, alone and with the header of the Glue Schema Registry.

    python benchmarks/bench_serialization.py [--rounds 7]

One thread, an order with six fields, the registry's answers from the cache. Candidates take turns, and the best round of each
counts. The first line is `json.dumps` and `json.loads` without any of ours.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from kinesis_sdk.serialization import AvroCodec, GlueSchemaRegistry, JsonCodec
from kinesis_sdk.testing import FakeAws

CALLS = 3_000
VALUE = {
    "id": "order-7",
    "customer": "customer-12",
    "amount": 1234,
    "price": 2.5,
    "paid": True,
    "lines": [{"sku": "a-1"}, {"sku": "b-2"}],
}
LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "long"},
        {"name": "price", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
    ],
}
SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}


class Plain:
    def serialize(self, stream: str, value: Any) -> bytes:  # noqa: ARG002
        return json.dumps(value).encode()

    def deserialize(self, stream: str, data: bytes) -> Any:  # noqa: ARG002
        return json.loads(data)


def candidates() -> dict[str, tuple[Any, Any]]:
    glue = FakeAws().client("glue")
    found: dict[str, tuple[Any, Any]] = {"json.dumps, json.loads": (Plain(), Plain())}
    codecs: dict[str, Any] = {
        "JsonCodec": JsonCodec(),
        "JsonCodec, orjson": JsonCodec(use_orjson=True),
        "JsonCodec, schema": JsonCodec(SCHEMA),
        "JsonCodec, schema, orjson, no check": JsonCodec(SCHEMA, validate=False, use_orjson=True),
        "AvroCodec": AvroCodec(AVRO),
    }
    for name, codec in codecs.items():
        found[name] = (codec, codec)
        if codec.definition is None:
            continue
        for compression in ("none", "zlib"):
            registry = GlueSchemaRegistry(client=glue, auto_registration=True, compression=compression)
            label = f"{name}, registry{', zlib' if compression == 'zlib' else ''}"
            found[label] = (
                registry.serializer(codec, schema_name=name.replace(" ", "_").replace(",", "")),
                registry.deserializer(codec),
            )
    return found


def cpu(call: Callable[[], object]) -> float:
    call()
    start = time.thread_time()
    for _ in range(CALLS):
        call()
    return (time.thread_time() - start) / CALLS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    best: dict[str, list[float]] = {}
    sizes: dict[str, int] = {}
    everyone = candidates()
    for _ in range(rounds):
        for name, (writer, reader) in everyone.items():
            data = writer.serialize("s", VALUE)
            sizes[name] = len(data)
            times = [
                cpu(lambda writer=writer: writer.serialize("s", VALUE)),
                cpu(lambda reader=reader, data=data: reader.deserialize("s", data)),
            ]
            best[name] = [min(pair) for pair in zip(times, best.get(name, times), strict=True)]
    print(f"{'':48} {'bytes':>6} {'write':>9} {'read':>9}")
    for name, (write, read) in best.items():
        print(f"{name:48} {sizes[name]:6} {write:6.1f} µs {read:6.1f} µs")


if __name__ == "__main__":
    main()
