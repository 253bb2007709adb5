"""Schemas and rows for the tests of parsed values."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kinesis_sdk.spark.parse.form import ValueFormat
from kinesis_sdk.spark.parse.rows import TypedRows

INTS = {"type": "array", "elementType": "integer", "containsNull": True}


def struct(**fields: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True} for name, kind in fields.items()],
    }


def many(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


def mapped(kind: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}


def raw(payloads: Sequence[bytes], columns: Sequence[str] = ("data",)) -> Any:
    """Return what the source has of records: their number is in the sequence number."""
    columns_of: dict[str, Any] = {
        "data": pa.array(payloads, pa.binary()),
        "sequenceNumber": pa.array([str(number) for number in range(len(payloads))]),
        "shardId": pa.array(["shardId-000000000000"] * len(payloads)),
    }
    return pa.RecordBatch.from_arrays([columns_of[name] for name in columns], names=list(columns))


def rows_of(form: ValueFormat, schema: dict[str, Any], *payloads: bytes) -> list[dict[str, Any]]:
    """Return the rows of payloads."""
    shape: TypedRows = pickle.loads(pickle.dumps(TypedRows(form, schema)))
    task = shape.begin()
    found = list(task.shape(raw(payloads, shape.raw)))
    assert all(batch.schema.equals(shape.columns.schema()) for batch in found)
    return [row for batch in found for row in batch.to_pylist()]


class OneByOne:
    """A parser that declines all columns."""

    def __init__(self, parser: Any) -> None:
        self.row = parser.row

    def columns(self, _payloads: Any) -> None:
        return None


def _numbers(kind: Any) -> Any:
    """The same type with numbers for dates and times, because Python has none as late as Spark's."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.int32() if pa.types.is_date(kind) else pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(_numbers(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _numbers(field.type)) for field in kind])
    return kind


def text_of(batch: Any) -> str:
    """The rows as text, because a NaN equals nothing."""
    columns = [column.cast(_numbers(column.type)).to_pylist() for column in batch.columns]
    return str(columns)
