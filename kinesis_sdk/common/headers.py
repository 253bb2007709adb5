"""Headers of user records: names with values, kept as tags of the KPL's aggregated format.

A header is a tag (field 4) of its user record: the tag's key is the name, its value the header's value. A value that is not UTF-8 is
written as base64, with `_BINARY` after the name, because the format's strings are UTF-8, and other readers would reject the whole
aggregate.

A user record with the same headers as the record before it in the aggregate has the tag `SAME_TAG` instead. Names that consist of a
letter and a digit belong to this package: `k1` is the table of runs of an idempotent producer (`kinesis_sdk.common.once.table`). Tags of
other programs whose keys are not valid names are not headers.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

MAX_HEADERS = 64
"""Maximum headers of a record."""

MAX_HEADER_BYTES = 8_192
"""Maximum bytes of a record's headers as they are stored: names, values, and five to seven bytes for each header."""

_NAME = re.compile(r"(?![A-Za-z][0-9]\Z)[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", re.ASCII)
_BINARY = ";b64"

MAX_TAGS = 256
"""Maximum tags of a user record with headers. A record with more tags is read without headers: no producer of this package writes so
many tags."""

_LONGEST_LENGTH = 5
"""Maximum bytes of a length in a tag; a longer length cannot occur within a record."""

_OVERHEAD, _TAG_OVERHEAD = 350, 180
"""Bytes of memory of decoded headers, and of each header, in addition to names and values (measured, CPython 3.11)."""

SAME_TAG = b"\x0a\x02h="
"""Tag of a user record that has the headers of the record before it."""

SAME_HEADERS = b"\x22\x04" + SAME_TAG
"""`SAME_TAG` as a field of the user record."""


def varint(value: int) -> bytes:
    """Return a number in protobuf's encoding."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_size(value: int) -> int:
    """Return the number of bytes that `varint` returns."""
    return max(1, -(-value.bit_length() // 7))


def tag_field(key: str, value: bytes) -> bytes:
    """Return a tag as a field of a user record."""
    name = key.encode()
    inner = b"".join((b"\x0a", varint(len(name)), name, b"\x12", varint(len(value)), value))
    return b"".join((b"\x22", varint(len(inner)), inner))


def encode_headers(headers: Mapping[str, str | bytes]) -> bytes:
    """Return headers, in order, as fields of a user record.

    Raises:
        ValueError: If there are too many, or a name or a value is not valid. The text names the header and shows no value.
    """
    if not isinstance(headers, Mapping):
        raise ValueError(f"expected a mapping, not {type(headers).__name__}")  # noqa: TRY004 - one kind of error for all
    if len(headers) > MAX_HEADERS:
        raise ValueError(f"expected at most {MAX_HEADERS}, not {len(headers):,}")
    fields = b"".join([tag_field(*_encoded(name, value)) for name, value in headers.items()])
    if len(fields) > MAX_HEADER_BYTES:
        raise ValueError(
            f"expected at most {MAX_HEADER_BYTES:,} bytes of names and values, not {len(fields):,}"
        )
    return fields


def _encoded(name: object, value: object) -> tuple[str, bytes]:
    """Return the key and the value of a header's tag."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        shown = f"{name[:40]!r}" if isinstance(name, str) else f"of type {type(name).__name__}"
        raise ValueError(
            f"a name is 1 to 128 ASCII letters, digits and characters of !#$%&'*+.^_`|~-, and not one letter and one digit; not {shown}"
        )
    if isinstance(value, str):
        try:
            return name, value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{name}: the value is not encodable as UTF-8 (a lone surrogate)") from None
    if not isinstance(value, bytes):
        raise ValueError(  # noqa: TRY004 - as above
            f"{name}: expected a value of str or bytes, not {type(value).__name__}"
        )
    if not value.isascii():
        try:
            value.decode()
        except UnicodeDecodeError:
            return name + _BINARY, b64encode(value)
    return name, value


class Headers(Mapping[str, bytes]):
    """Headers of a user record, by name and in the order in which they were put. Immutable; decoded on first access.

    ``repr`` shows names and lengths only, because values may be credentials.

    Args:
        tags: Tags of the user record, which may be forged; tags that are not headers are left out.
    """

    __slots__ = ("_found", "_tags")

    def __init__(self, tags: Sequence[bytes] = ()) -> None:
        self._tags = tags
        self._found: dict[str, bytes] | None = None

    def __getitem__(self, name: str) -> bytes:
        return self._decoded()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return shown_headers(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Headers, (tuple(self._tags),)

    def _decoded(self) -> dict[str, bytes]:
        found = self._found
        if found is None:
            # Several threads may do this at once, with the same result.
            found = self._found = dict(filter(None, map(_header_in, self._tags))) if self._tags else {}
        return found


NO_HEADERS = Headers()


def headers_in(fields: bytes) -> Headers:
    """Return the headers that `encode_headers` encoded."""
    if not fields:
        return NO_HEADERS
    tags: list[bytes] = []
    at = 0
    while at < len(fields):
        size, at = _length(fields, at + 1)
        tags.append(fields[at : at + size])
        at += size
    return Headers(tags)


def shown_headers(headers: Mapping[str, bytes]) -> str:
    """Return headers for a log: names, and lengths instead of values."""
    return "{" + ", ".join(f"{name!r}: <{len(value)} bytes>" for name, value in headers.items()) + "}"


def headers_overhead(each: Iterable[Headers]) -> int:
    """Return the bytes of memory of the headers of consecutive user records, without names and values."""
    total, last = 0, NO_HEADERS
    for headers in each:
        if headers is not last:
            last = headers
            total += _OVERHEAD + _TAG_OVERHEAD * len(headers._tags)
    return total


def headers_by_record(rows: Iterable[Sequence[bytes]]) -> list[Headers]:
    """Return the headers of each user record of an aggregate, from its tags. Equal neighbors may share an object."""
    found: list[Headers] = []
    last = NO_HEADERS
    for tags in rows:
        count = len(tags)
        if count == 0 or count > MAX_TAGS:
            last = NO_HEADERS
        elif count > 1 or tags[0] != SAME_TAG:
            last = Headers(tags[:])
        found.append(last)
    return found


def _header_in(tag: bytes) -> tuple[str, bytes] | None:
    """Return name and value of a header; None for a tag that is not a header."""
    try:
        key, at = _field(tag, 0, 0x0A)
        value, at = _field(tag, at, 0x12) if at < len(tag) else (b"", at)
        if at != len(tag):
            return None
        name = key.decode("ascii")
        if name.endswith(_BINARY):
            name, value = name.removesuffix(_BINARY), b64decode(value, validate=True)
    except (IndexError, ValueError):
        return None
    return (name, value) if _NAME.fullmatch(name) is not None else None


def _field(raw: bytes, at: int, mark: int) -> tuple[bytes, int]:
    """Return the value of a field and the offset after it."""
    if raw[at] != mark:
        raise ValueError("another field")
    size, at = _length(raw, at + 1)
    if at + size > len(raw):
        raise ValueError("cut off")
    return raw[at : at + size], at + size


def _length(raw: bytes, at: int) -> tuple[int, int]:
    """Return a length and the offset after it."""
    value = 0
    for number in range(_LONGEST_LENGTH):
        byte = raw[at + number]
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value, at + number + 1
    raise ValueError("not a length")
