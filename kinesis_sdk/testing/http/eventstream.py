"""Frames of ``application/vnd.amazon.eventstream``, the response format of SubscribeToShard.

```
4 bytes  length of the message          4 bytes  CRC-32 of the four before
4 bytes  length of the headers          headers: length, name, type 7 (text), 2 bytes length, value
4 bytes  CRC-32 of these eight          payload
                                        4 bytes  CRC-32 of everything before
```
"""

from __future__ import annotations

import json
import struct
import zlib

from kinesis_sdk.testing.errors import AwsError

CONTENT_TYPE = "application/vnd.amazon.eventstream"
_TEXT = 7
_KIND = "application/x-amz-json-1.1"


def _header(name: str, value: str) -> bytes:
    return (
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", _TEXT, len(value)) + value.encode()
    )


def encode_message(headers: dict[str, str], payload: bytes) -> bytes:
    """Encode a message with text headers (ASCII, shorter than 64 KiB)."""
    packed = b"".join(_header(name, value) for name, value in headers.items())
    prelude = struct.pack("!II", len(packed) + len(payload) + 16, len(packed))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + packed + payload
    return message + struct.pack("!I", zlib.crc32(message))


def encode_event(event_type: str, payload: bytes) -> bytes:
    """Encode an event with a JSON payload. The first event of a stream must be ``initial-response``."""
    return encode_message(
        {":message-type": "event", ":event-type": event_type, ":content-type": _KIND}, payload
    )


def encode_exception(error: AwsError) -> bytes:
    """Encode the error that ends a stream of events."""
    headers = {":message-type": "exception", ":exception-type": error.code, ":content-type": _KIND}
    return encode_message(headers, json.dumps({"message": error.message}).encode())
