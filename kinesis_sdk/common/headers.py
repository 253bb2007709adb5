"""Headers of user records: names with values, kept as tags of the KPL's aggregated format.

A header is a tag (field 4) of its user record: the tag's key is the name, its value the header's value. A value that is not UTF-8 is written as
base64 under the name with `_BINARY` behind it, because the format's strings are UTF-8 and other readers reject the whole aggregate otherwise.

A user record with the same headers as the record before it in the aggregate has the tag `SAME_TAG` instead. Names of a letter and a digit are
this package's: `k1` is the table of runs of an idempotent producer (`kinesis_sdk.common.once.table`). Tags with other keys, which a
stranger may write, are not headers.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping

MAX_HEADERS = 64
"""Maximum headers of a record."""

MAX_HEADER_BYTES = 8_192
"""Maximum bytes of a record's headers as they are stored: names, values, and five to seven bytes for each header."""

_NAME = re.compile(r"(?![A-Za-z][0-9]\Z)[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", re.ASCII)
_BINARY = ";b64"

SAME_TAG = b"\x0a\x02h="
"""Tag of a user record that has the headers of the record before it."""

SAME_HEADERS = b"\x22\x04" + SAME_TAG
"""The same as a field of the user record."""


def varint(value: int) -> bytes:
    """Return a number in protobuf's encoding."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_headers(headers: Mapping[str, str | bytes]) -> bytes:
    """Return headers, in their order, as fields of a user record.

    Raises:
        ValueError: If there are too many, or a name or a value is not valid. The text names the header and shows no value.
    """
    if not isinstance(headers, Mapping):
        raise ValueError(f"expected a mapping, not {type(headers).__name__}")  # noqa: TRY004 - one kind of error for all
    if len(headers) > MAX_HEADERS:
        raise ValueError(f"expected at most {MAX_HEADERS}, not {len(headers):,}")
    parts: list[bytes] = []
    for name, value in headers.items():
        key, raw = _encoded(name, value)
        inner = b"".join((b"\x0a", varint(len(key)), key, b"\x12", varint(len(raw)), raw))
        parts += (b"\x22", varint(len(inner)), inner)
    fields = b"".join(parts)
    if len(fields) > MAX_HEADER_BYTES:
        raise ValueError(
            f"expected at most {MAX_HEADER_BYTES:,} bytes of names and values, not {len(fields):,}"
        )
    return fields


def _encoded(name: object, value: object) -> tuple[bytes, bytes]:
    """Return key and value of the tag of a header."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        shown = f"{name[:40]!r}" if isinstance(name, str) else f"of type {type(name).__name__}"
        raise ValueError(
            f"a name is 1 to 128 ASCII letters, digits and characters of !#$%&'*+.^_`|~-, and not one letter and one digit; not {shown}"
        )
    if isinstance(value, str):
        try:
            return name.encode(), value.encode()
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
            return (name + _BINARY).encode(), b64encode(value)
    return name.encode(), value
