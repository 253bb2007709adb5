"""Exact conversion of one decoded value to the types of a schema, by Spark's rules for JSON.

A field that does not fit is null, and the value has a flaw. All other fields keep their values. An array or a map with an element that
does not fit is null as a whole, except for structs in it, which are partly null.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from kinesis_sdk.spark.parse.columns import NUMBERS, Kind
from kinesis_sdk.spark.parse.moments import days_of, micros_of

_NOT_FINITE = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
    "+INF": math.inf,
    "-INF": -math.inf,
}
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_DIGITS = Context(prec=80, rounding=ROUND_HALF_UP)
_MAX_DECIMAL_TEXT = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


class MalformedError(ValueError):
    """A payload does not follow the format. The message contains no part of the payload."""


class UnfitError(ValueError):
    """A value does not fit its type. The message names types only, never the value."""


class Fitter:
    """Converts values to the types of fields.

    Args:
        fields: Types by name.
        zone: Time zone for timestamps whose text does not name one.
        text_of: Returns the text of a value in a text column; raises `UnfitError` if the value has no text.
    """

    def __init__(self, fields: Mapping[str, Kind], zone: tzinfo, text_of: Callable[[Any], str]) -> None:
        self._zone = zone
        self._text_of = text_of
        self._fields = [(name, self._converter(kind), kind) for name, kind in fields.items()]
        self._flaw: str | None = None

    def fit(self, value: Mapping[str, Any]) -> tuple[list[Any], str | None]:
        """Return the values of the fields in the form that Arrow accepts, and the problem of a value that does not fit, if there is one."""
        self._flaw = None
        return self._struct(value, self._fields, ""), self._flaw

    def _struct(
        self,
        value: Mapping[str, Any],
        fields: Sequence[tuple[str, Callable[[Any, str], Any], Kind]],
        path: str,
    ) -> list[Any]:
        fitted: list[Any] = []
        for name, convert, kind in fields:
            found = value.get(name)
            if found is not None:
                here = f"{path}.{name}" if path else name
                try:
                    found = convert(found, here)
                except UnfitError:
                    if self._flaw is None:
                        self._flaw = f"field {here}: {_described(found)} is no {kind}"
                    found = None
            fitted.append(found)
        return fitted

    def _converter(self, kind: Kind) -> Callable[[Any, str], Any]:
        if kind.fields is not None:
            fields = [(name, self._converter(inner), inner) for name, inner in kind.fields.items()]
            names = list(kind.fields)

            def to_struct(value: Any, path: str) -> dict[str, Any]:
                if not isinstance(value, Mapping):
                    raise UnfitError
                return dict(zip(names, self._struct(value, fields, path), strict=True))

            return to_struct
        if kind.inner is not None:
            convert = self._converter(kind.inner)

            def to_list(value: Any, path: str) -> list[Any]:
                if not isinstance(value, list | tuple):
                    raise UnfitError
                return [None if one is None else convert(one, path) for one in value]

            def to_map(value: Any, path: str) -> list[tuple[str, Any]]:
                if not isinstance(value, Mapping):
                    raise UnfitError
                return [
                    (text(name), None if one is None else convert(one, path)) for name, one in value.items()
                ]

            return to_map if kind.name == "map" else to_list
        plain = self._plain(kind)
        return lambda value, _path: plain(value)

    def _plain(self, kind: Kind) -> Callable[[Any], Any]:
        if kind.name in NUMBERS:
            limit = 2 ** (NUMBERS[kind.name] - 1)

            def whole(value: Any) -> int:
                if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
                    raise UnfitError
                return value

            return whole
        if kind.name == "decimal":
            return lambda value: decimal_of(value, kind)
        return {
            "float": _single,
            "double": _double,
            "boolean": _boolean,
            "string": lambda value: text(value if isinstance(value, str) else self._text_of(value)),
            "binary": _binary,
            "date": _date,
            "timestamp": lambda value: _moment(value, self._zone),
            "timestamp_ntz": lambda value: _moment(value, None),
        }[kind.name]


def text(value: str) -> str:
    """Return text without lone surrogates, which UTF-8 cannot encode; Java writes a question mark instead."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _described(value: Any) -> str:
    """Return the type of a value in words."""
    for types, words in _WORDS:
        if isinstance(value, types):
            return words
    return f"a value of type {type(value).__name__}"


_WORDS: list[tuple[Any, str]] = [
    (bool, "true or false"),
    (int, "a whole number"),
    ((float, Decimal), "a number"),
    (str, "text"),
    ((bytes, bytearray), "bytes"),
    (Mapping, "an object"),
    ((list, tuple), "an array"),
]


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise UnfitError
    return value


def _double(value: Any) -> float:
    if isinstance(value, str):
        found = _NOT_FINITE.get(value)
        if found is None:
            raise UnfitError
        return found
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnfitError
    try:
        return value + 0.0  # a zero without a sign
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _single(value: Any) -> float:
    found = _double(value)
    if isinstance(value, str) or not math.isfinite(found):
        return found
    return nearest_single(getattr(value, "text", None) or str(value)) + 0.0


def nearest_single(digits: str) -> float:
    """Return the nearest 32-bit number, or infinity for larger numbers. A conversion through 64 bits would round twice."""
    import pyarrow as pa

    nearest: float = pa.scalar(digits).cast(pa.float32()).as_py()
    return nearest


def decimal_of(value: Any, kind: Kind) -> Decimal:
    """Return a number, or the number in a text, rounded to a type's digits; raise `UnfitError` if it has too many digits before the point."""
    if isinstance(value, Decimal):
        found = value
    elif isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UnfitError
    else:
        digits = value if isinstance(value, str) else getattr(value, "text", None) or str(value)
        if len(digits) > _MAX_DECIMAL_TEXT or _DECIMAL.fullmatch(digits) is None:
            raise UnfitError
        found = Decimal(digits)
    if not found.is_finite() or (found and found.adjusted() >= 40):
        raise UnfitError
    if found and found.adjusted() < -(kind.scale + 2):
        found = Decimal(0)
    rounded = _DIGITS.quantize(found, Decimal(1).scaleb(-kind.scale))
    if rounded and rounded.adjusted() + kind.scale + 1 > kind.precision:
        raise UnfitError
    return rounded


def _binary(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if not isinstance(value, str):
        raise UnfitError
    try:
        return base64.b64decode(value.encode(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnfitError from error


def _date(value: Any) -> int:
    if isinstance(value, date) and not isinstance(value, datetime):
        return (value - _FIRST_DAY).days
    if not isinstance(value, str):
        raise UnfitError
    try:
        return days_of(value)
    except ValueError as error:
        raise UnfitError from error


def _moment(value: Any, zone: tzinfo | None) -> int:
    if isinstance(value, datetime):
        if (value.tzinfo is None) != (zone is None):
            if zone is None:
                raise UnfitError
            value = value.replace(tzinfo=zone)
        since: timedelta = (value if zone is not None else value.replace(tzinfo=timezone.utc)) - _EPOCH
        return since // _MICROSECOND
    if isinstance(value, int) and not isinstance(value, bool) and zone is not None:
        micros = value * 1_000_000
        if not -(2**63) <= micros < 2**63:
            raise UnfitError
        return micros
    if not isinstance(value, str):
        raise UnfitError
    try:
        return micros_of(value, zone)
    except ValueError as error:
        raise UnfitError from error
