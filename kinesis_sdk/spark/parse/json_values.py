"""JSON: pyarrow reads whole columns at once, and the standard library reads single values exactly.

They return the same values for every payload that both of them can read. `JsonParser.columns` declines payloads that pyarrow refuses or may
read differently; `JsonParser.row` decides about these.

pyarrow reads many values from one text, so it must be certain which payload each value belongs to. Each payload begins with ``{`` and
ends with ``}``, and a line break separates it from the next payload. In JSON text, ``}``, a line break and ``{`` follow each other only
between two outermost values, because strings have no line breaks. So each payload contains at least one value, and if there are as many
values as payloads, each contains exactly one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from kinesis_sdk.spark.parse.columns import Kind
from kinesis_sdk.spark.parse.fitting import Fitter, MalformedError, UnfitError
from kinesis_sdk.spark.parse.moments import days_column, moments_column, time_zone

if TYPE_CHECKING:
    import pyarrow as pa

MAX_DEPTH = 500
"""Maximum levels of a value, because the standard library parses by recursion."""

MAX_VALUES = 1_000_000
"""Maximum number of values in a payload; each takes about a hundred bytes as a Python object."""

MAX_VALUE_BYTES = 256 * 1024 * 1024
"""Maximum bytes of a payload's elements of arrays and maps as columns."""

_BLANKS = " \t\r\n"
_NESTED = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)
_ODD_NUMBERS = re.compile(rb"[:,\[][ \t\r\n]*(?:-?Inf(?!inity)|-NaN)")
"""Numbers that only pyarrow reads."""

_BEYOND = re.compile("[\U00010000-\U0010ffff]")
"""Characters that Spark writes as two escapes when it writes JSON as text."""

_LONGEST_NUMBER = 1_000
_BY_COLUMN = {"date", "timestamp", "timestamp_ntz", "float", "double"}
_SLOW = {"map", "binary"}
"""Types that pyarrow does not read from JSON as Spark does."""


class JsonParser:
    """Reads JSON objects, one in each payload.

    Args:
        fields: Types of the members that are read.
        zone: Name of the time zone of timestamps whose text names none.
    """

    def __init__(self, fields: Mapping[str, Kind], zone: str) -> None:
        import pyarrow as pa
        from pyarrow import json as reader

        self._fields = dict(fields)
        self._zone = zone
        self._fitter = Fitter(fields, time_zone(zone), self.text_of)
        kinds: set[str] = set().union(*(kind.kinds for kind in fields.values()))
        self._whole_columns = not kinds & _SLOW
        self._wrapping = _wrapping(fields.values())
        width = max((kind.element_width for kind in fields.values()), default=0)
        self._most = min(MAX_VALUES, MAX_VALUE_BYTES // max(width, 1))
        self._read = reader.read_json
        self._block = reader.ReadOptions
        self._options = reader.ParseOptions(
            explicit_schema=pa.schema([(name, _read_as(kind)) for name, kind in fields.items()])
            if self._whole_columns
            else None,
            unexpected_field_behavior="ignore",
        )

    def columns(self, payloads: pa.Array) -> list[pa.Array] | None:
        """Return the columns of payloads, none of which is null; None if a payload may need `row`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._whole_columns:
            return None
        if not _framed(payloads):
            payloads = pc.ascii_trim(payloads.view(pa.string()), characters=_BLANKS).view(pa.binary())
            if not _framed(payloads):
                return None
        block = _joined(payloads)
        if self._is_excessive(payloads, block) or _has_odd_numbers(block):
            return None
        # The regular expressions of Arrow take a quarter of the time of Python's.
        if self._wrapping is not None and pc.any(pc.match_substring_regex(payloads, self._wrapping)).as_py():
            return None
        try:
            table = self._read(
                pa.BufferReader(block),
                read_options=self._block(use_threads=False, block_size=len(block) + 1),
                parse_options=self._options,
            )
            if table.num_rows != len(payloads):
                return None
            found: list[pa.Array] = []
            for name, kind in self._fields.items():
                column = table.column(name).combine_chunks()
                finished = _finished(column, kind, self._zone)
                if finished is None:
                    return None
                finished.validate(full=True)  # the text must be UTF-8
                found.append(finished)
        except pa.ArrowInvalid:
            return None
        return found

    def row(self, payload: bytes) -> tuple[Sequence[Any] | None, str | None]:
        """Return the values of the fields in the form that Arrow accepts, and the problem of the payload; either may be None."""
        try:
            members = self.value(payload)
        except MalformedError as error:
            return None, str(error)
        return (None, None) if members is None else self._fitter.fit(members)

    def value(self, payload: bytes) -> Mapping[str, Any] | None:
        """Return the members of a payload's object; None for a blank payload.

        Text after the object is ignored, as in Spark.

        Raises:
            MalformedError: If the payload is not an object, or has too many levels or values.
        """
        if problem := _excess(payload, self._most):
            raise MalformedError(problem)
        text = payload.decode("utf-8", "replace").lstrip(_BLANKS)
        if not text:
            return None
        try:
            value, _ = _DECODER.raw_decode(text)
        except (ValueError, RecursionError):
            raise MalformedError("no JSON") from None
        if not isinstance(value, dict):
            raise MalformedError("JSON, but not an object")
        return value

    @staticmethod
    def text_of(value: Any) -> str:
        """Return the text of a value in a text column."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return double_text(value)
        if isinstance(value, int):
            return str(value)
        if isinstance(value, dict | list):
            return _BEYOND.sub(_escaped, json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        raise UnfitError

    def _is_excessive(self, payloads: pa.Array, block: bytes) -> bool:
        """Return whether a payload may have too many levels or values."""
        import pyarrow.compute as pc

        least = min(self._most, 2 * MAX_DEPTH)
        if (pc.max(pc.binary_length(payloads)).as_py() or 0) <= least:
            return False
        openers = block.count(b"{") + block.count(b"[")
        if openers - len(payloads) <= MAX_DEPTH and len(block) <= self._most:
            return False
        return any(len(one) > least and _excess(one, self._most) for one in payloads.to_pylist())


def double_text(value: float) -> str:
    """Return a number as Java writes it, and a number that is not finite in quotation marks, as in Spark's JSON."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    sign, digits, _ = Decimal(repr(float(value))).as_tuple()
    shown = "".join(map(str, digits)).rstrip("0")
    exponent = math.floor(Decimal(repr(float(value))).adjusted())
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{exponent}"


def _escaped(found: re.Match[str]) -> str:
    pair = found[0].encode("utf-16-be").hex().upper()
    return f"\\u{pair[:4]}\\u{pair[4:]}"


class _Number(float):
    """A number with a fraction or an exponent, and its text."""

    text: str

    def __new__(cls, text: str) -> _Number:
        found = super().__new__(cls, text)
        found.text = text
        return found


def _whole(text: str) -> int | _Number:
    return int(text) if len(text) <= _LONGEST_NUMBER else _Number(text)


_DECODER = json.JSONDecoder(parse_float=_Number, parse_int=_whole, parse_constant=_Number)


def _framed(payloads: pa.Array) -> bool:
    import pyarrow.compute as pc

    begins, ends = pc.starts_with(payloads, pattern="{"), pc.ends_with(payloads, pattern="}")
    return bool(pc.all(pc.and_(begins, ends)).as_py())


def _joined(payloads: pa.Array) -> bytes:
    """Return the payloads with line breaks in between."""
    import pyarrow as pa
    import pyarrow.compute as pc

    one = pa.LargeListArray.from_arrays(pa.array([0, len(payloads)], pa.int64()), payloads)
    joined: bytes = pc.binary_join(one, b"\n")[0].as_py()
    return joined


def _has_odd_numbers(block: bytes) -> bool:
    # A search for one byte is many times faster than the pattern, and many texts contain neither byte.
    possible = (b"I" in block and b"Inf" in block) or (b"N" in block and b"-NaN" in block)
    return possible and _ODD_NUMBERS.search(block) is not None


def _wrapping(kinds: Iterable[Kind]) -> str | None:
    """Return a pattern for numbers that pyarrow may misread as decimals, because numbers that are too large overflow."""
    left, scale = list(kinds), -1
    while left:
        kind = left.pop()
        left += [*(kind.fields or {}).values(), *([kind.inner] if kind.inner else [])]
        if kind.name == "decimal":
            scale = max(scale, kind.scale)
    if scale < 0:
        return None
    number = r"[+-]?[0-9.]{1,38}[eE]"
    text = number + r'[+-]?[0-9]+"'  # as a whole: many names of things begin like a number
    return rf'[:,\[][ \t\r\n]*(?:"?[+-]?(?:[0-9]{{{39 - scale}}}|[0-9.]{{38}})|{number}|"{text})'


def _excess(payload: bytes, most: int) -> str | None:
    """Return the bound that a payload exceeds."""
    openers = payload.count(b"{") + payload.count(b"[")
    if openers > MAX_DEPTH:
        level = 0
        for found in _NESTED.finditer(payload):
            if found[0] in b"{[":
                level += 1
                if level > MAX_DEPTH:
                    return f"JSON of more than {MAX_DEPTH} levels"
            elif found[0] in b"}]":
                level -= 1
    if len(payload) > most and openers + payload.count(b",") > most:
        return f"JSON of more than {most:,} values"
    return None


def _read_as(kind: Kind) -> pa.DataType:
    """Return the type that pyarrow reads."""
    import pyarrow as pa

    if kind.fields is not None:
        return pa.struct([(name, _read_as(inner)) for name, inner in kind.fields.items()])
    if kind.inner is not None:
        return pa.list_(_read_as(kind.inner))
    return pa.string() if kind.name in {"date", "timestamp", "timestamp_ntz"} else kind.arrow()


def _finished(column: pa.Array, kind: Kind, zone: str) -> pa.Array | None:
    """Return a column that pyarrow read, in the type that Spark expects; None if a value needs `JsonParser.row`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not kind.kinds & _BY_COLUMN:
        return column.cast(kind.arrow()) if kind.inner is not None or kind.fields is not None else column
    if kind.fields is not None:
        inner = [
            _finished(column.field(number), each, zone) for number, each in enumerate(kind.fields.values())
        ]
        if any(each is None for each in inner):
            return None
        return pa.StructArray.from_arrays(inner, fields=list(kind.arrow()), mask=column.is_null())
    if kind.inner is not None:
        values = _finished(column.values, kind.inner, zone)
        if values is None:
            return None
        return pa.ListArray.from_arrays(column.offsets, values, type=kind.arrow(), mask=column.is_null())
    if kind.name == "date":
        return days_column(column)
    if kind.name in {"timestamp", "timestamp_ntz"}:
        return moments_column(column, zone if kind.name == "timestamp" else None)
    # Not finite: numbers that only pyarrow reads, or numbers that are too large.
    if not pc.all(pc.is_finite(column), min_count=0).as_py():
        return None
    return pc.add(column, pa.scalar(0.0, column.type))  # a zero without a sign
