"""CSV: pyarrow reads whole columns at once, and `_Lines` reads single lines exactly.

pyarrow and `_Lines` return the same values for a line that pyarrow can parse.

Each payload is one line with the columns in the order of the schema. A line break at the end of a payload does not belong to the last
field; any other line break is an ordinary character.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.spark.parse.columns import NUMBERS, Kind
from kinesis_sdk.spark.parse.fitting import MalformedError, UnfitError, decimal_of, nearest_single
from kinesis_sdk.spark.parse.moments import days_column, days_of, micros_of, moments_column, time_zone

if TYPE_CHECKING:
    import pyarrow as pa

_WHOLE = re.compile(r"[+-]?[0-9]{1,1000}")
_NUMBER = re.compile(
    r"[\x00-\x20]*([+-]?)((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?[\x00-\x20]*"
)
_NOT_FINITE = re.compile(r"[\x00-\x20]*([+-]?)(NaN|Infinity)[\x00-\x20]*")
_INFINITY = {"Inf": math.inf, "-Inf": -math.inf}
_BOM = "\ufeff"


def check_fields(fields: Mapping[str, Kind]) -> None:
    """Raise `ConfigError` for a field that a line cannot have."""
    for name, kind in fields.items():
        if kind.fields is not None or kind.inner is not None:
            raise ConfigError(f"column {name}", str(kind), "no struct, array or map with valueFormat=csv")


class CsvParser:
    """Reads lines, one in each payload.

    Args:
        fields: Types of the fields of a line, in order.
        zone: Name of the time zone for timestamps whose text does not name one.
        sep: The character between fields.
        quote: The character around fields; empty to disable quotes.
        escape: The character before a quotation mark in a quoted field; empty to disable escapes.
        null: Text of a field that is null; an empty field is also null.
    """

    def __init__(
        self,
        fields: Mapping[str, Kind],
        zone: str,
        *,
        sep: str = ",",
        quote: str = '"',
        escape: str = "\\",
        null: str = "",
    ) -> None:
        self._fields = dict(fields)
        self._zone = zone
        self._lines = _Lines(sep, quote, escape)
        self._quote, self._escape, self._null = quote.encode(), escape.encode(), null
        self._converters = [(name, kind, _converter(kind, zone)) for name, kind in fields.items()]
        self._separator = sep
        mark, end = _escaped(quote), _escaped(sep)
        doubled = f"|{mark}{mark}" if escape == quote else ""
        field = f"(?:{mark}(?:[^{mark}{_escaped(escape)}]{doubled})*{mark}|[^{end}{mark}]*)"
        self._quoted_lines = f"^{field}(?:{end}{field})*$"

    def columns(self, payloads: pa.Array) -> list[pa.Array] | None:
        """Return the columns of payloads; None if a payload may need `row`."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import csv as reader

        lines = self._one_line_each(payloads)
        if lines is None:
            return None
        payloads, block = lines
        quoted = bool(self._quote) and self._quote in block
        if quoted:
            fitting = pc.match_substring_regex(payloads, self._quoted_lines)
            if not pc.all(fitting).as_py() or (self._null and self._quote * 2 in block):
                return None
        names = [str(number) for number in range(len(self._fields))]
        try:
            table = reader.read_csv(
                pa.BufferReader(block),
                read_options=reader.ReadOptions(
                    use_threads=False, block_size=len(block) + 1, column_names=names
                ),
                parse_options=reader.ParseOptions(
                    delimiter=self._separator,
                    quote_char=self._quote.decode() if quoted else False,
                    double_quote=self._quote == self._escape,
                    escape_char=False,
                    newlines_in_values=False,
                    ignore_empty_lines=False,
                ),
                convert_options=reader.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=["", self._null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=True,
                ),
            )
            if table.num_rows != len(payloads):
                return None
            found: list[pa.Array] = []
            for number, kind in enumerate(self._fields.values()):
                column = _column(table.column(number).combine_chunks(), kind, self._zone)
                if column is None:
                    return None
                found.append(column)
        except pa.ArrowInvalid:
            return None
        return found

    def row(self, payload: bytes) -> tuple[Sequence[Any] | None, str | None]:
        """Return the values of the fields in the form that Arrow accepts, and the problem of the payload; either may be None."""
        line = payload.decode("utf-8", "replace").removeprefix(_BOM)
        if line.endswith("\n"):
            line = line[:-1].removesuffix("\r")
        if not line:
            return None, None
        expected = len(self._converters)
        try:
            found = self._lines.fields(line, expected + 1)
        except MalformedError as error:
            return None, str(error)
        flaw = None
        if len(found) != expected:
            flaw = f"{'more' if len(found) > expected else 'fewer'} than {expected} fields"
        values: list[Any] = []
        for (name, kind, convert), one in zip(self._converters, found, strict=False):
            value = None
            if one is not None and one != self._null:
                try:
                    value = convert(one)
                except UnfitError:
                    flaw = flaw or f"field {name}: text is no {kind}"
            values.append(value)
        return values + [None] * (expected - len(values)), flaw

    def _one_line_each(self, payloads: pa.Array) -> tuple[pa.Array, bytes] | None:
        """Return the payloads without final line breaks, and as one text of lines; None if a payload is empty or has other line breaks."""
        import pyarrow.compute as pc

        if not pc.min(pc.binary_length(payloads)).as_py():
            return None
        block = _joined(payloads)
        if block.count(b"\n") >= len(payloads):
            payloads = pc.replace_substring_regex(payloads, r"\r?\n$", "")
            block = _joined(payloads)
            if block.count(b"\n") >= len(payloads) or not pc.min(pc.binary_length(payloads)).as_py():
                return None
        return None if b"\r" in block or _BOM.encode() in block else (payloads, block)


class _Lines:
    """Divides a line into fields."""

    def __init__(self, sep: str, quote: str, escape: str) -> None:
        self._sep, self._quote, self._escape = sep, quote, escape
        self._mark = re.compile(f"[{_escaped(quote + escape)}]") if quote else None
        blanks = "".join(sorted(set(map(chr, range(0x21))) - {sep}))
        self._blanks = re.compile(f"[{_escaped(blanks)}]*")

    def fields(self, text: str, most: int) -> list[str | None]:
        """Return the text of the fields of a line, at most ``most`` of them; None for a field without text or quotation marks.

        Raises:
            MalformedError: If the quotation marks of the line do not match.
        """
        found: list[str | None] = []
        at = 0
        while True:
            if self._mark is not None and text.startswith(self._quote, at):
                field, at = self._quoted(text, at + 1, self._mark)
                found.append(field)
            else:
                begin, end = at, text.find(self._sep, at)
                at = end if end >= 0 else len(text)
                found.append(text[begin:at] or None)
            if at == len(text) or len(found) == most:
                return found
            at += 1

    def _quoted(self, text: str, begin: int, mark: re.Pattern[str]) -> tuple[str, int]:
        """Return the text of a field that begins after its quotation mark, and the index of the separator after the field."""
        parts: list[str] = []
        at = begin
        while (found := mark.search(text, at)) is not None:
            at = found.start()
            following = text[at + 1 : at + 2]
            escaping = text[at] == self._escape
            if escaping and following and following in {self._quote, self._escape}:
                parts += [text[begin:at], following]
                begin = at = at + 2
            elif escaping and self._escape != self._quote:
                at += 1  # an ordinary character
            else:
                parts.append(text[begin:at])
                blanks = self._blanks.match(text, at + 1)
                assert blanks is not None
                end = blanks.end()
                if end < len(text) and text[end] != self._sep:
                    raise MalformedError(
                        "text between a closing quotation mark and the end of a field (is `escape` the character before quotation marks?)"
                    )
                return "".join(parts), end
        raise MalformedError("a quotation mark that is never closed")


def _escaped(characters: str) -> str:
    """Return the text for ASCII characters in a regular expression of Python or pyarrow."""
    return "".join(f"\\x{ord(one):02x}" for one in characters)


def _joined(payloads: pa.Array) -> bytes:
    import pyarrow as pa
    import pyarrow.compute as pc

    one = pa.LargeListArray.from_arrays(pa.array([0, len(payloads)], pa.int64()), payloads)
    joined: bytes = pc.binary_join(one, b"\n")[0].as_py()
    return joined


def _column(column: pa.Array, kind: Kind, zone: str) -> pa.Array | None:
    """Return a column of text in the type that Spark expects; None if a value needs `CsvParser.row`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind.name == "date":
        return days_column(column)
    if kind.name in {"timestamp", "timestamp_ntz"}:
        return moments_column(column, zone if kind.name == "timestamp" else None)
    if kind.name == "boolean":
        lower = pc.ascii_lower(column)
        known = pc.is_in(lower, pa.array(["true", "false"]), skip_nulls=False)
        if not pc.all(pc.or_(known, column.is_null()), min_count=0).as_py():
            return None
        return pc.equal(lower, "true")
    if kind.name == "decimal" and not _is_safe_decimal(column, kind):
        return None
    if kind.name in NUMBERS and pc.any(pc.match_substring_regex(column, "[xX]"), min_count=0).as_py():
        return None  # pyarrow reads hexadecimal numbers
    found = column.cast(kind.arrow())
    if kind.name in {"float", "double"} and not pc.all(pc.is_finite(found), min_count=0).as_py():
        return None
    return found


def _is_safe_decimal(column: pa.Array, kind: Kind) -> bool:
    """Return whether pyarrow reads numbers correctly: a number that is too large or has more than 38 digits may overflow."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = pc.abs(column.cast(pa.float64()))
    fits = pc.less(sizes, 0.999 * 10.0 ** (kind.precision - kind.scale))
    return bool(pc.all(pc.and_(fits, pc.less_equal(pc.utf8_length(column), 38)), min_count=0).as_py())


def _converter(kind: Kind, zone: str) -> Callable[[str], Any]:
    """Return a function from the text of a field to its value."""
    if kind.name in NUMBERS:
        limit = 2 ** (NUMBERS[kind.name] - 1)

        def whole(found: str) -> int:
            if _WHOLE.fullmatch(found) is None or not -limit <= int(found) < limit:
                raise UnfitError
            return int(found)

        return whole
    if kind.name == "decimal":
        return lambda found: decimal_of(found, kind)
    region = time_zone(zone)
    converters: dict[str, Callable[[str], Any]] = {
        "float": lambda found: _number(found, nearest_single),
        "double": lambda found: _number(found, float),
        "boolean": _boolean,
        "string": str,
        "binary": str.encode,
        "date": _counted(days_of),
        "timestamp": _counted(lambda found: micros_of(found, region)),
        "timestamp_ntz": _counted(lambda found: micros_of(found, None)),
    }
    return converters[kind.name]


def _number(found: str, nearest: Callable[[str], float]) -> float:
    """Return the number that Java would read."""
    if found in _INFINITY:
        return _INFINITY[found]
    if (number := _NUMBER.fullmatch(found)) is not None:
        return -nearest(number[2]) if number[1] == "-" else nearest(number[2])
    if (number := _NOT_FINITE.fullmatch(found)) is None:
        raise UnfitError
    return math.nan if number[2] == "NaN" else -math.inf if number[1] == "-" else math.inf


def _boolean(found: str) -> bool:
    lower = found.lower()
    if lower not in {"true", "false"}:
        raise UnfitError
    return lower == "true"


def _counted(count: Callable[[str], int]) -> Callable[[str], int]:
    def convert(found: str) -> int:
        try:
            return count(found)
        except ValueError as error:
            raise UnfitError from error

    return convert
