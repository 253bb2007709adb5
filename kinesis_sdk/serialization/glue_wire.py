"""Wire format of the Glue Schema Registry: the bytes that AWS's serializers put in front of a payload.

| bytes | content |
|---|---|
| 0 | 3, the version of the header |
| 1 | compression of the payload: 0 none, 5 zlib |
| 2 to 17 | id of the schema version, a UUID |
| from 18 on | payload; for Protobuf, it begins with the index of the message type as a varint |
"""

from __future__ import annotations

import zlib

from kinesis_sdk.common.errors import SchemaRegistryError

HEADER_SIZE = 18
_HEADER_VERSION = 3
_NONE, _ZLIB = 0, 5
_MAX_INDEX_BYTES = 5


def header(version_id: bytes, *, compressed: bool) -> bytes:
    """Return the header of payloads of a schema version, from the 16 bytes of its id."""
    return bytes((_HEADER_VERSION, _ZLIB if compressed else _NONE)) + version_id


def has_header(data: bytes) -> bool:
    """Return whether a payload seems to have a header; random data seems to with a probability of 1 in 32,768."""
    return len(data) >= HEADER_SIZE and data[0] == _HEADER_VERSION and data[1] in {_NONE, _ZLIB}


def version_id_of(data: bytes) -> bytes:
    """Return the 16 bytes of the schema version id of a payload with a header."""
    return data[2:HEADER_SIZE]


def payload_of(data: bytes, max_bytes: int) -> bytes:
    """Return the payload behind a header (see `has_header`), decompressed to at most ``max_bytes``.

    A megabyte of zlib can become a gigabyte. Raises `SchemaRegistryError` if the compressed data is damaged or larger than this.
    """
    if data[1] == _NONE:
        return data[HEADER_SIZE:]
    inflater = zlib.decompressobj()
    try:
        payload = inflater.decompress(data[HEADER_SIZE:], max_bytes + 1)
    except zlib.error as error:
        raise SchemaRegistryError(f"the compressed payload is damaged: {error}") from error
    if len(payload) > max_bytes:
        raise SchemaRegistryError(f"the payload is larger than {max_bytes:,} bytes after decompression")
    if not inflater.eof or inflater.unused_data:
        raise SchemaRegistryError("the compressed payload is damaged: it does not end where the record ends")
    return payload


def encode_index(index: int) -> bytes:
    """Return the varint of a message index."""
    out = bytearray()
    while index > 0x7F:
        out.append(index & 0x7F | 0x80)
        index >>= 7
    out.append(index)
    return bytes(out)


def split_index(payload: bytes) -> tuple[int, bytes]:
    """Return the message index of a Protobuf payload, and the message; raise `SchemaRegistryError` if there is no index."""
    index = 0
    for place, byte in enumerate(payload[:_MAX_INDEX_BYTES]):
        index |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return index, payload[place + 1 :]
    raise SchemaRegistryError("the Protobuf payload does not begin with the index of a message type")
