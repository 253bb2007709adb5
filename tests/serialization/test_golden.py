"""Bytes that AWS's serializers for Java wrote are read here, and ours are those that Java was seen to read."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kinesis_sdk.serialization import GlueSchemaRegistry, ProtobufCodec
from kinesis_sdk.serialization.glue_wire import HEADER_SIZE, split_index
from tests.serialization.cases import Pair, golden, pairs

GOLDEN = golden()
BYTES = {(each["name"], each["compression"]): each for each in GOLDEN["bytes"]}


class Recorded:
    """Glue with the schema versions of the recording."""

    def get_schema_version(self, **request: str) -> dict[str, Any]:
        (found,) = [
            each for each in GOLDEN["schemas"] if each["SchemaVersionId"] == request["SchemaVersionId"]
        ]
        return found

    def get_schema_by_definition(self, **request: Any) -> dict[str, Any]:
        for each in GOLDEN["schemas"]:
            if each["SchemaArn"].endswith("/" + request["SchemaId"]["SchemaName"]) and same(
                each["SchemaDefinition"], request["SchemaDefinition"]
            ):
                return each
        raise ClientError({"Error": {"Code": "EntityNotFoundException"}}, "GetSchemaByDefinition")


def same(one: str, other: str) -> bool:
    try:
        return json.loads(one) == json.loads(other)
    except ValueError:
        return one == other


def registry(compression: Any = "none") -> GlueSchemaRegistry:
    return GlueSchemaRegistry(client=Recorded(), compression=compression)


def test_the_recording_covers_every_value() -> None:
    assert set(BYTES) == {(name, compression) for name in pairs() for compression in ("none", "zlib")}
    assert GOLDEN["java"] == "software.amazon.glue:schema-registry-serde:1.1.27"


@pytest.mark.parametrize("compression", ["none", "zlib"])
@pytest.mark.parametrize("name", pairs())
def test_what_java_wrote_is_read(name: str, compression: str) -> None:
    pair = pairs()[name]
    codecs = [pair.codec] if isinstance(pair.codec, ProtobufCodec) else []
    data = bytes.fromhex(BYTES[name, compression]["java"])
    assert registry().deserializer(*codecs).deserialize("orders", data) == pair.value
    assert registry().deserializer(pair.codec).deserialize("orders", data) == pair.value


@pytest.mark.parametrize("compression", ["none", "zlib"])
@pytest.mark.parametrize("name", pairs())
def test_what_the_kpl_wrote_is_read(name: str, compression: str) -> None:
    pair = pairs()[name]
    codec = pair.codec
    if isinstance(codec, ProtobufCodec):
        codec = ProtobufCodec(codec.message_type, message_index=False)
    data = bytes.fromhex(BYTES[name, compression]["kpl"])
    assert registry().deserializer(codec).deserialize("orders", data) == pair.value


def written(pair: Pair, compression: str) -> bytes:
    serializer = registry(compression).serializer(pair.codec, schema_name=pair.schema_name)
    return serializer.serialize("orders", pair.value)


def plain(data: bytes) -> bytes:
    return zlib.decompress(data[HEADER_SIZE:]) if data[1] else data[HEADER_SIZE:]


@pytest.mark.parametrize("compression", ["none", "zlib"])
@pytest.mark.parametrize("name", pairs())
def test_ours_are_the_bytes_that_java_was_seen_to_read(name: str, compression: str) -> None:
    data, recorded = written(pairs()[name], compression), BYTES[name, compression]
    ours = bytes.fromhex(recorded["ours"])
    # Another release of zlib may compress differently.
    assert (data[:HEADER_SIZE], plain(data)) == (ours[:HEADER_SIZE], plain(ours))
    assert "7" in recorded["java_reads"] or name == "protobuf, a nested message"


@pytest.mark.parametrize("compression", ["none", "zlib"])
@pytest.mark.parametrize("name", pairs())
def test_ours_differ_from_java_s_in_the_text_of_protobuf_schemas_alone(name: str, compression: str) -> None:
    pair = pairs()[name]
    data, java = written(pair, compression), bytes.fromhex(BYTES[name, compression]["java"])
    assert plain(data) == plain(java)
    assert data[:2] == java[:2]
    assert (data[2:HEADER_SIZE] == java[2:HEADER_SIZE]) == (pair.data_format != "PROTOBUF")


def test_the_kpl_writes_protobuf_without_the_index_of_the_message_type() -> None:
    pair = pairs()["protobuf, a nested message"]
    java = bytes.fromhex(BYTES["protobuf, a nested message", "none"]["java"])
    kpl = bytes.fromhex(BYTES["protobuf, a nested message", "none"]["kpl"])
    assert split_index(plain(java)) == (3, pair.value.SerializeToString())
    assert plain(kpl) == pair.value.SerializeToString()
