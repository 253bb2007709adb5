"""Columns that fit a sample of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.spark.parse.ddl import ddl_of
from kinesis_sdk.spark.parse.fitting import MalformedError
from kinesis_sdk.spark.parse.json_values import JsonParser

_MAX_FIELDS = 10_000
_MAX_LEVELS = 16


def infer_columns(values: Iterable[bytes | str]) -> str:
    """Return columns that fit a sample of JSON values, for ``.schema(…)`` or the option ``columns``.

    The types are the same as in Spark's own inference: ``BIGINT``, ``DOUBLE``, ``BOOLEAN``, ``STRING``, structs and arrays. A field whose
    values differ in type is a ``STRING``; a field with whole and other numbers is a ``DOUBLE``. Text is never recognized as a date; change
    the type of such a column to ``TIMESTAMP`` yourself.

        sample = spark.read.format("kinesis_sdk").options(streamName="flights", columns="data").load().limit(1_000)
        print(infer_columns(row.data for row in sample.collect()))

    Args:
        values: Values of records. Malformed values are left out.

    Returns:
        Text such as ``delay BIGINT, origin STRING``, sorted by name.

    Raises:
        ConfigError: If no value is a JSON object with a member, or the values have more than 10,000 different fields.
    """
    parser = JsonParser({}, "UTC")
    found: Any = {}
    for value in values:
        payload = value.encode("utf-8", "replace") if isinstance(value, str) else bytes(value)
        try:
            members = parser.value(payload)
        except MalformedError:
            continue
        if members is not None:
            found = _joined(found, _shape(members, _MAX_LEVELS))
            if _size(found) > _MAX_FIELDS:
                raise ConfigError("values", "…", f"at most {_MAX_FIELDS:,} different fields")
    if not found:
        raise ConfigError("values", None, "a JSON object with members, at least")
    kind = _kind(found)
    return ddl_of(kind)


# A shape is None (null only), the name of a type, a dict of the shapes of members, or a list with the shape of the elements.
def _shape(value: Any, levels: int) -> Any:
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if -(2**63) <= value < 2**63 else "double"
    if isinstance(value, float):
        return "double"
    if isinstance(value, str) or not levels:
        return "string"
    if isinstance(value, Mapping):
        return {name: _shape(one, levels - 1) for name, one in value.items()}
    shape = None
    for one in value:
        shape = _joined(shape, _shape(one, levels - 1))
    return [shape]


def _joined(one: Any, other: Any) -> Any:
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _joined(one.get(name), other.get(name)) for name in dict.fromkeys([*one, *other])}
    if isinstance(one, list) and isinstance(other, list):
        return [_joined(one[0], other[0])]
    if {str(one), str(other)} == {"long", "double"}:
        return "double"
    return "string"


def _size(shape: Any) -> int:
    if isinstance(shape, dict):
        return len(shape) + sum(map(_size, shape.values()))
    return _size(shape[0]) if isinstance(shape, list) else 0


def _kind(shape: Any) -> Any:
    if isinstance(shape, dict):
        fields = [{"name": name, "type": _kind(shape[name])} for name in sorted(shape)]
        return {"type": "struct", "fields": fields} if fields else "string"
    if isinstance(shape, list):
        return {"type": "array", "elementType": _kind(shape[0])}
    return shape or "string"
