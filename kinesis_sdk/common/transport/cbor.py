"""CBOR (RFC 8949) in the form of Kinesis: ``application/x-amz-cbor-1.1``, which the AWS SDK for Java, and therefore the KCL, uses.

A document has the same content in CBOR and in JSON, with two differences: ``Data`` is a byte string instead of base64 text, and a time is a
number of milliseconds with tag 1, where RFC 8949 has seconds. Requests have the form of the SDK for Java: maps and lists of indefinite
length, strings of definite length.

The library cbor2 would cost as much for records: it creates a dict for each record, and calls Python for each time value. `decode` needs
no library, and bounds its result: records, members of a record, levels, and all other values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from kinesis_sdk.common.base64coding import encode as encode_base64
from kinesis_sdk.common.base64coding import encode_by_standard_library
from kinesis_sdk.common.records import KinesisRecord, check_records
from kinesis_sdk.common.transport.decoding import (
    MALFORMED,
    MAX_RECORDS,
    Content,
    check_count,
    incomplete,
    moment_of,
    new,
)

CONTENT_TYPE = "application/x-amz-cbor-1.1"

MAX_DEPTH = 16
"""Maximum levels of maps, lists and tags in a document."""

MAX_ELEMENTS = 100_000
"""Maximum elements of all lists and maps, without the records of a page and their known members: ten for each record."""

MAX_MEMBERS = 32
"""Maximum members of a record, of which Kinesis documents five."""

INTEGER, BYTES, TEXT, LIST, MAP = 0x00, 0x40, 0x60, 0x80, 0xA0
"""Major types that Kinesis needs, in the upper three bits of an item's first byte."""

OPEN_LIST, OPEN_MAP, CLOSE = b"\x9f", b"\xbf", b"\xff"
"""A list and a map of indefinite length, and their end."""

_END = CLOSE[0]
_OPEN_ENDLESS = OPEN_MAP[0]
_UNKNOWN = -1
"""Length of an item that ends with `CLOSE`."""

_NEGATIVE, _TAG, _SIMPLE = 0x20, 0xC0, 0xE0
"""The other major types: negative integers, tags, and false, true, null and floating-point numbers."""

_NULL = b"\xf6\xf7"  # null, and undefined
_CONSTANTS = {0xF4: False, 0xF5: True, **dict.fromkeys(_NULL)}
_FLOATS = {0xF9: struct.Struct(">e"), 0xFA: struct.Struct(">f"), 0xFB: struct.Struct(">d")}
_TIME = 1
"""Tag of a time, which Kinesis gives in milliseconds."""

_ARRIVAL = b"\x1bApproximateArrivalTimestamp\xc1\x1b"
"""Name of the member without its first byte, tag, and first byte of an integer of eight bytes."""


LARGE = 512 if encode_base64 is encode_by_standard_library else 2048
"""Mean bytes of data from which records cost less in CBOR than in JSON (`benchmarks/bench_transport.py`): smaller records are read
and written faster by the json module, or by msgspec and pybase64, which are written in C."""


def is_cheaper(payloads: Sequence[bytes]) -> bool:
    """Return whether records with these payloads cost less in CBOR than in JSON."""
    return sum(map(len, payloads)) >= LARGE * len(payloads)


def head(kind: int, length: int) -> bytes:
    """Return the first bytes of an item: its major type with its length, or with the value of an integer."""
    if length < 24:
        return bytes((kind | length,))
    if length < 1 << 8:
        return bytes((kind | 24, length))
    if length < 1 << 16:
        return struct.pack(">BH", kind | 25, length)
    if length < 1 << 32:
        return struct.pack(">BI", kind | 26, length)
    return struct.pack(">BQ", kind | 27, length)


def text(value: str) -> bytes:
    """Return a text string. Raises UnicodeEncodeError for a lone surrogate, which only JSON can write."""
    encoded = value.encode()
    size = len(encoded)
    return (_TEXT_HEADS[size] if size < 256 else head(TEXT, size)) + encoded


_TEXT_HEADS = [head(TEXT, size) for size in range(256)]


def members(values: Mapping[str, str | int]) -> bytes:
    """Return members of a map. Raises the errors of `text`; integers must be at least 0."""
    parts: list[bytes] = []
    for name, value in values.items():
        parts += (text(name), text(value) if isinstance(value, str) else head(INTEGER, value))
    return b"".join(parts)


def document(body: bytes) -> Any:
    """Return the content of a document as if parsed from JSON.

    Raises:
        ValueError: If the document is not one CBOR item, contains a value that JSON lacks, or exceeds a bound.
    """
    reader = _Reader(body)
    try:
        value = reader.value()
    except (IndexError, OverflowError, struct.error) as error:
        raise ValueError(f"incomplete CBOR ({error})") from error
    reader.check_end()
    return value


def decode(body: bytes) -> Content | None:
    """Decode a GetRecords response as `kinesis_sdk.common.transport.decoding.decode` does for JSON.

    Raises:
        ProtocolError: If a record is incomplete or malformed, there are more than 10,000, or another part exceeds a bound.
    """
    reader = _Reader(body)
    records: list[KinesisRecord] | None = None
    rest: dict[str, Any] = {"Records": []}
    try:
        kind, count = reader.head()
        if kind != MAP:
            return None
        for _ in reader.elements(count):
            name = reader.text()
            if name != "Records":
                value = reader.value(1)
                if name in _KEPT:
                    rest[name] = value
                continue
            kind, count = reader.head()
            if kind != LIST:
                return None
            if records is not None:
                raise ValueError("Records twice")
            records = reader.records(count)
        reader.check_end()
        if records is None:
            return None
        check_records(records)
    except (*MALFORMED, struct.error) as error:
        raise incomplete(error) from error
    return Content(records, rest)


_KEPT = frozenset({"NextShardIterator", "MillisBehindLatest", "ChildShards"})


class _Reader:
    """Reads the items of one document in order.

    No method checks whether a slice was cut short by the end of the document: each advances `pos` by the length that the item
    declares, so that the next read raises IndexError, or `check_end` finds `pos` after the end.
    """

    __slots__ = ("_body", "_left", "pos")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._left = MAX_ELEMENTS
        self.pos: int = 0

    def check_end(self) -> None:
        """Raise ValueError unless exactly the whole document was read."""
        if self.pos != len(self._body):
            raise ValueError("not one CBOR item")

    def head(self) -> tuple[int, int]:
        """Read the first bytes of an item; return its major type, and its length or argument."""
        body, pos = self._body, self.pos
        first = body[pos]
        kind, low = first & 0xE0, first & 0x1F
        self.pos = pos = pos + 1
        if low < 24:
            return kind, low
        if low < 28:
            self.pos = end = pos + (1 << (low - 24))
            return kind, int.from_bytes(body[pos:end], "big")
        if low == 31 and BYTES <= kind <= MAP:
            return kind, _UNKNOWN
        raise ValueError(f"an item begins with {first:#04x}")

    def elements(self, count: int) -> Iterator[int]:
        """Yield the index of each element of a list or map before the caller reads it."""
        if count != _UNKNOWN:
            self._charge(count)
            yield from range(count)
            return
        index = 0
        while self._body[self.pos] != _END:
            self._charge(1)
            yield index
            index += 1
        self.pos += 1

    def _charge(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError(f"more than {MAX_ELEMENTS:,} elements of lists and maps")

    def text(self) -> str:
        """Read a text string."""
        kind, count = self.head()
        if kind != TEXT:
            raise ValueError("not a text string")
        return self._string(kind, count).decode()

    def value(self, depth: int = 0) -> Any:
        """Read an item; return its content as if parsed from JSON."""
        if depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} levels")
        if self._body[self.pos] >= _SIMPLE:
            return self._simple()
        kind, count = self.head()
        if kind == TEXT:
            return self._string(kind, count).decode()
        if kind == INTEGER:
            return count
        if kind == MAP:
            return self._map(count, depth + 1)
        if kind == LIST:
            return [self.value(depth + 1) for _ in self.elements(count)]
        if kind == BYTES:
            return encode_base64(self._string(kind, count)).decode("ascii")
        if kind == _NEGATIVE:
            return -1 - count
        value = self.value(depth + 1)
        return value / 1000 if count == _TIME and isinstance(value, (int, float)) else value

    def _map(self, count: int, depth: int) -> dict[str, Any]:
        body = self._body
        found: dict[str, Any] = {}
        for _ in self.elements(count):
            pos = self.pos
            # Short names and short text values are read here, without a call: they are all that a result of PutRecords has.
            first = body[pos]
            if TEXT <= first < TEXT + 24:
                pos += 1
                self.pos = end = pos + first - TEXT
                name = body[pos:end].decode()
            else:
                name = self.text()
            pos = self.pos
            first = body[pos]
            if TEXT <= first < TEXT + 24:
                pos += 1
                self.pos = end = pos + first - TEXT
                found[name] = body[pos:end].decode()
            elif first == TEXT | 24:
                pos += 2
                self.pos = end = pos + body[pos - 1]
                found[name] = body[pos:end].decode()
            else:
                found[name] = self.value(depth)
        return found

    def _simple(self) -> Any:
        first = self._body[self.pos]
        self.pos += 1
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first not in _FLOATS:
            raise ValueError(f"an item begins with {first:#04x}")
        form = _FLOATS[first]
        start = self.pos
        self.pos += form.size
        return form.unpack_from(self._body, start)[0]

    def _string(self, kind: int, count: int) -> bytes:
        """Read the rest of a string, whose parts have a known length."""
        start = self.pos
        if count != _UNKNOWN:
            self.pos = start + count
            return self._body[start : self.pos]
        parts = []
        for _ in self.elements(count):
            part, size = self.head()
            if part != kind or size == _UNKNOWN:
                raise ValueError("a string within a string")
            parts.append(self._string(kind, size))
        return b"".join(parts)

    def records(self, count: int) -> list[KinesisRecord]:
        """Read the elements of ``Records``."""
        if count == _UNKNOWN:
            count = MAX_RECORDS + 1
            is_endless = True
        else:
            check_count(count)
            is_endless = False
        # The usual forms of the known members are read here, without a call: every record that is read pays for them.
        body, pos = self._body, self.pos
        reads, integer = body.startswith, int.from_bytes
        records: list[KinesisRecord] = []
        add = records.append
        millis: bytes | None = None
        moment: datetime | None = None
        for _ in range(count):
            first = body[pos]
            pos += 1
            if MAP <= first < MAP + 24:
                size = first - MAP
            elif first == _OPEN_ENDLESS:
                size = MAX_MEMBERS + 1
            elif first == _END and is_endless:
                break
            else:
                raise ValueError(f"a record begins with {first:#04x}")
            data = sequence_number = arrival = encryption = None
            key = ""
            for _ in range(size):
                first = body[pos]
                if first == 0x6E and reads(b"SequenceNumberx", pos + 1):
                    start = pos + 17
                    pos = start + body[pos + 16]
                    sequence_number = body[start:pos].decode()
                    continue
                if first == 0x64 and reads(b"Data", pos + 1):
                    first = body[pos + 5]
                    if first == 0x59:
                        start = pos + 8
                        pos = start + (body[pos + 6] << 8 | body[pos + 7])
                    elif first == 0x5A:
                        start = pos + 10
                        pos = start + integer(body[pos + 6 : start], "big")
                    elif first == 0x58:
                        start = pos + 7
                        pos = start + body[pos + 6]
                    elif 0x40 <= first < 0x58:
                        start = pos + 6
                        pos = start + first - 0x40
                    else:
                        start = 0
                    if start:
                        data = body[start:pos]
                        continue
                elif first == 0x6C and reads(b"PartitionKey", pos + 1):
                    first = body[pos + 13]
                    if 0x60 <= first < 0x78:
                        start = pos + 14
                        pos = start + first - 0x60
                        key = body[start:pos].decode()
                        continue
                    if first == 0x78:
                        start = pos + 15
                        pos = start + body[pos + 14]
                        key = body[start:pos].decode()
                        continue
                elif first == 0x78 and reads(_ARRIVAL, pos + 1):
                    start = pos + 31
                    pos = start + 8
                    if body[start:pos] != millis:
                        # Records of the same PutRecords call have the same arrival time.
                        millis = body[start:pos]
                        moment = datetime.fromtimestamp(integer(millis, "big") / 1000, timezone.utc)
                    arrival = moment
                    continue
                elif first == 0x6E and reads(b"EncryptionTypecKMS", pos + 1):
                    pos += 19
                    encryption = "KMS"
                    continue
                elif first == _END and size > MAX_MEMBERS:
                    pos += 1
                    break
                # Any other member, or an unusual form of a known member.
                self._charge(1)
                self.pos = pos
                name = self.text()
                if name == "Data":
                    data = self._payload()
                elif name == "ApproximateArrivalTimestamp":
                    arrival = self._arrival()
                elif name == "PartitionKey":
                    key = self._text_or_null() or ""
                elif name == "SequenceNumber":
                    sequence_number = self.text()
                elif name == "EncryptionType":
                    encryption = self._text_or_null()
                else:
                    self.value(2)
                pos = self.pos
            else:
                if size > MAX_MEMBERS:
                    raise ValueError(f"a record of more than {MAX_MEMBERS} members")
            if data is None:
                raise ValueError("a record without Data")
            add(new(KinesisRecord, (data, key, sequence_number, arrival, encryption)))
        else:
            if is_endless:
                check_count(count)
        self.pos = pos
        return records

    def _payload(self) -> bytes:
        kind, count = self.head()
        if kind != BYTES:
            raise ValueError("Data is not a byte string")
        return self._string(kind, count)

    def _text_or_null(self) -> str | None:
        if self._body[self.pos] in _NULL:
            self.pos += 1
            return None
        return self.text()

    def _arrival(self) -> datetime | None:
        """Read an arrival time, whether it is tagged or not."""
        if self._body[self.pos] == _TAG | _TIME:
            self.pos += 1
        value = self.value(2)
        return moment_of(value / 1000 if isinstance(value, (int, float)) else value)
