"""Payloads for people: JSON, text, or bytes in hexadecimal."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

MAX_SHOWN_BYTES = 64 * 1024
"""Default number of payload bytes that `decode_payload` decodes."""

_HEX_ROW = 16
_DEPTH = 200
"""Levels of nested JSON that are laid out; deeper JSON stays unchanged."""


class PayloadKind(str, Enum):
    """Form in which a payload is shown."""

    JSON = "json"
    """A JSON object or array."""
    TEXT = "text"
    """Other UTF-8 text."""
    HEX = "hex"
    """Anything else, as hexadecimal digits."""
    EMPTY = "empty"
    """No bytes."""


@dataclass(frozen=True, kw_only=True)
class DecodedPayload:
    """A payload in readable form.

    Attributes:
        kind: How it is shown.
        text: The original JSON or text, or hexadecimal digits. The text may contain control characters and markup:
            escape it for a terminal (`escaped`) and for HTML.
        size: Bytes of the payload.
        truncated: Whether ``text`` shows only its beginning.
    """

    kind: PayloadKind
    text: str = field(repr=False)
    size: int
    truncated: bool = False

    def pretty(self) -> str:
        """Return the text in a form for people: JSON with one member per line, bytes in rows. Values are not changed."""
        if self.kind is PayloadKind.JSON:
            return pretty_json(self.text)
        if self.kind is PayloadKind.HEX:
            return _hex_rows(bytes.fromhex(self.text))
        return self.text

    def value(self) -> Any:
        """Return the JSON value, or the text."""
        return json.loads(self.text) if self.kind is PayloadKind.JSON else self.text


def decode_payload(data: bytes, *, limit: int = MAX_SHOWN_BYTES) -> DecodedPayload:
    """Return a payload as JSON if it is an object or array, otherwise as UTF-8 text if possible, otherwise in hexadecimal.

    A bare number or string is returned as text, because it looks the same. JSON that Python or another reader would change or reject (a
    number
    beyond a double's range, NaN, half of a surrogate pair) is returned as text as well, so that it is not altered.

    Args:
        data: The payload.
        limit: Bytes to decode. A longer payload is truncated, and not shown as JSON.
    """
    shown, size = data[:limit], len(data)
    truncated = size > limit
    if not data:
        return DecodedPayload(kind=PayloadKind.EMPTY, text="", size=0)
    text = _utf8(shown, truncated=truncated)
    if text is None or "\0" in text:
        return DecodedPayload(kind=PayloadKind.HEX, text=shown.hex(), size=size, truncated=truncated)
    is_json = not truncated and text.lstrip()[:1] in ("{", "[") and _is_faithful_json(text)
    return DecodedPayload(
        kind=PayloadKind.JSON if is_json else PayloadKind.TEXT, text=text, size=size, truncated=truncated
    )


def _utf8(data: bytes, *, truncated: bool) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        # The limit may have cut a character in two.
        if truncated and error.end == len(data) and error.reason == "unexpected end of data":
            return data[: error.start].decode("utf-8")
        return None


def _is_faithful_json(text: str) -> bool:
    def number(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            raise ValueError(f"{digits} is beyond the range of a double")
        return value

    def constant(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(text, parse_float=number, parse_constant=constant)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):  # UnicodeEncodeError is a ValueError
        return False
    return True


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def pretty_json(text: str) -> str:
    """Return valid JSON text with one member or element per line. Numbers, strings and repeated names stay unchanged."""
    parts: list[str] = []
    depth = 0
    tokens = _TOKEN.findall(text)
    for index, part in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else ""
        if part in ("{", "["):
            depth += 1
            if depth > _DEPTH:
                return text
            closes = following in ("}", "]")
            parts.append(part if closes else f"{part}\n{'  ' * depth}")
        elif part in ("}", "]"):
            depth -= 1
            empty = index > 0 and tokens[index - 1] in ("{", "[")
            parts.append(part if empty else f"\n{'  ' * depth}{part}")
        elif part == ",":
            parts.append(f",\n{'  ' * depth}")
        elif part == ":":
            parts.append(": ")
        else:
            parts.append(part)
    return "".join(parts)


def _hex_rows(data: bytes) -> str:
    rows: list[str] = []
    for at in range(0, len(data), _HEX_ROW):
        row = data[at : at + _HEX_ROW]
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        rows.append(f"{at:08x}  {row.hex(' '):<{3 * _HEX_ROW - 1}}  {letters}")
    return "\n".join(rows)


def escaped(text: str) -> str:
    r"""Return text that is safe to print on a terminal: every control and format character except newline and tab is escaped.

    A record may hold terminal sequences that move the cursor, change the title, or reverse the direction of writing. This function is for
    payloads, which keep their lines; a name within a line of output goes through `kinesis_sdk.common.text.printable`.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape", "surrogatepass").decode()
        for one in text
    )
