"""CBOR (RFC 8949) as far as the AWS SDK for Java uses it with Kinesis: ``application/x-amz-cbor-1.1``.

The fake's documents are JSON objects as on the wire. In CBOR the same documents differ in two places, which the
two functions here translate: ``Data`` is a byte string instead of base64 text, and a point in time is tag 1 with
whole milliseconds instead of a number of seconds.
"""

from __future__ import annotations

import struct
from binascii import a2b_base64, b2a_base64
from typing import Any

CONTENT_TYPE = "application/x-amz-cbor-1.1"

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_INDEFINITE = 31
_EPOCH_TAG = 1
_MAX_DEPTH = 64
_SIMPLE_VALUES = {20: False, 21: True, 22: None, 23: None}
_FLOATS = {25: struct.Struct("!e"), 26: struct.Struct("!f"), 27: struct.Struct("!d")}
_TIMES = frozenset(
    {
        "ApproximateArrivalTimestamp",
        "ConsumerCreationTimestamp",
        "StreamCreationTimestamp",
        "Timestamp",
    }
)
_BLOBS = frozenset({"Data"})
_BREAK = object()


class _Reader:
    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def document(self) -> Any:
        value = self._item(0)
        if value is _BREAK or self._at != len(self._data):
            raise ValueError("not one CBOR item")
        return value

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise ValueError("the CBOR item ends early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _argument(self, info: int) -> int:
        if info < 24:
            return info
        if info > 27:
            raise ValueError("reserved CBOR length")
        return int.from_bytes(self._take(1 << (info - 24)), "big")

    def _item(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError("the CBOR item is nested too deeply")
        major, info = divmod(self._take(1)[0], 32)
        if major == _SIMPLE:
            return self._simple(info)
        if info == _INDEFINITE:
            return self._indefinite(major, depth)
        argument = self._argument(info)
        if major == _UNSIGNED:
            return argument
        if major == _NEGATIVE:
            return -1 - argument
        if major == _BYTES:
            return b2a_base64(self._take(argument), newline=False).decode()
        if major == _TEXT:
            return self._take(argument).decode()
        if major == _ARRAY:
            return [self._member(depth) for _ in range(argument)]
        if major == _MAP:
            return {self._member(depth): self._member(depth) for _ in range(argument)}
        value = self._member(depth)
        return value / 1000 if argument == _EPOCH_TAG and isinstance(value, (int, float)) else value

    def _member(self, depth: int) -> Any:
        value = self._item(depth + 1)
        if value is _BREAK:
            raise ValueError("a CBOR break where a value belongs")
        return value

    def _simple(self, info: int) -> Any:
        if info == _INDEFINITE:
            return _BREAK
        if info in _FLOATS:
            form = _FLOATS[info]
            return form.unpack(self._take(form.size))[0]
        if info not in _SIMPLE_VALUES:
            raise ValueError(f"CBOR simple value {info} is not understood")
        return _SIMPLE_VALUES[info]

    def _indefinite(self, major: int, depth: int) -> Any:
        members = []
        while (value := self._item(depth + 1)) is not _BREAK:
            members.append(value)
        if major == _ARRAY:
            return members
        if major == _MAP and len(members) % 2 == 0:
            return dict(zip(members[::2], members[1::2], strict=True))
        if major == _TEXT and all(isinstance(part, str) for part in members):
            return "".join(members)
        raise ValueError("this CBOR item cannot have indefinite length")


def decode(data: bytes) -> Any:
    """Convert a CBOR document to a JSON document.

    Raises:
        ValueError: If the data is not CBOR, or uses features that the SDK for Java does not write.
    """
    try:
        return _Reader(data).document()
    except TypeError as error:  # a map with a list as key
        raise ValueError(str(error)) from None


def _head(major: int, argument: int) -> bytes:
    first = major << 5
    if argument < 24:
        return bytes((first | argument,))
    if argument < 1 << 8:
        return bytes((first | 24, argument))
    if argument < 1 << 16:
        return struct.pack("!BH", first | 25, argument)
    if argument < 1 << 32:
        return struct.pack("!BI", first | 26, argument)
    return struct.pack("!BQ", first | 27, argument)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _head(_TEXT, len(encoded)) + encoded


def _write(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, str):
        parts.append(_text(value))
    elif isinstance(value, dict):
        parts.append(_head(_MAP, len(value)))
        for name, member in value.items():
            parts.append(_text(name))
            if name in _BLOBS and isinstance(member, str):
                blob = a2b_base64(member)
                parts += (_head(_BYTES, len(blob)), blob)
            elif name in _TIMES and isinstance(member, (int, float)):
                parts += (_head(_TAG, _EPOCH_TAG), _integer(round(member * 1000)))
            else:
                _write(member, parts)
    elif isinstance(value, (list, tuple)):
        parts.append(_head(_ARRAY, len(value)))
        for member in value:
            _write(member, parts)
    elif value is None:
        parts.append(b"\xf6")
    elif isinstance(value, bool):
        parts.append(b"\xf5" if value else b"\xf4")
    elif isinstance(value, int):
        parts.append(_integer(value))
    elif isinstance(value, float):
        parts.append(b"\xfb" + struct.pack("!d", value))
    else:
        raise TypeError(f"{type(value).__name__} has no place in a document")


def _integer(value: int) -> bytes:
    return _head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value)


def encode(value: Any) -> bytes:
    """Convert a JSON document to a CBOR document.

    Raises:
        TypeError: If a value has a type that JSON lacks.
    """
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)
