"""Avro's binary encoding of single values, with fastavro (extra ``avro``)."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Mapping, ValuesView
from functools import partial
from typing import Any, ClassVar

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.serialization.extras import import_library

Definition = str | Mapping[str, Any] | list[Any]

_MAX_DEPTH = 500
_CONTAINERS = (ValuesView, list, tuple)

_DECIMAL = "kinesis-sdk-decimal"
_DECIMAL_BYTES = 1_024
"""Maximum bytes of a decimal of any precision. The time that Python takes to decode a decimal grows with the square of its bytes: a
megabyte takes minutes."""


class AvroCodec:
    """Serializer and deserializer for Avro. Payloads have no header, so writer and reader must both have the schema.

    Values have the types that fastavro accepts and returns: records are dicts, enums are strings, logical types are Python's own
    (`datetime`, `Decimal`, `UUID`).

    Args:
        schema: Avro schema as JSON text, or parsed.
        writer_schema: For ``deserialize``: the schema with which the payloads were written, if it differs. Avro's rules for
            schema resolution apply. It is not needed with a schema registry.

    Attributes:
        definition: Text of ``schema``.
        name: Full name of the record, enum or fixed type that the schema defines; None for other types.
        is_recursive: Whether a value may contain other values of the same type.

    Raises:
        ConfigError: If a schema is not an Avro schema.
        ImportError: If fastavro is missing.
    """

    data_format: ClassVar[str] = "AVRO"

    def __init__(self, schema: Definition, *, writer_schema: Definition | None = None) -> None:
        self._write = import_library("fastavro", "avro", "AvroCodec").schemaless_writer
        self.definition: str = (
            schema
            if isinstance(schema, str)
            else json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
        )
        self.parsed: Any = parse_avro("schema", self.definition)
        writer = self.parsed if writer_schema is None else parse_avro("writer_schema", writer_schema)
        self._read = avro_reader(writer, self.parsed)
        self.is_recursive: bool = _Shape(self.parsed).is_recursive
        self.name: str | None = name_of(self.parsed)

    def serialize(self, stream: str, value: Any, /) -> bytes:  # noqa: ARG002
        """Return the encoding of a value.

        Raises:
            Exception: If the value does not match the schema; the class of the error depends on the type.
            ValueError: If the schema is recursive, and the value more than 500 levels deep.
        """
        if self.is_recursive:
            _check_depth(value)
        out = io.BytesIO()
        self._write(out, self.parsed, value)
        return out.getvalue()

    def deserialize(self, stream: str, data: bytes, /) -> Any:  # noqa: ARG002
        """Return the value of an encoding.

        Raises:
            Exception: If it is damaged, or was written with another schema; the class of the error depends on the damage.
        """
        return self._read(data)


def _check_depth(value: Any) -> None:
    """Reject a value at which fastavro's C code would overflow the stack and kill the process."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        inner = (item.values() if isinstance(item, Mapping) else item for item in level)
        level = [item for items in inner if isinstance(items, _CONTAINERS) for item in items]
        if not level:
            return
    raise ValueError(f"a value of more than {_MAX_DEPTH} levels")


def parse_avro(field: str, schema: Definition) -> Any:
    """Return a schema in fastavro's form; raise `ConfigError` if it is not an Avro schema."""
    fastavro = import_library("fastavro", "avro", "Avro")
    if isinstance(schema, str):
        try:
            document = json.loads(schema)
        except RecursionError as error:
            raise ConfigError(field, f"{schema[:40]}…", f"an Avro schema: {error}") from error
        except ValueError:
            document = schema  # the name of a primitive type, such as `string`
    else:
        document = schema
    try:
        return fastavro.parse_schema(document)
    except Exception as error:
        raise ConfigError(field, schema, f"an Avro schema: {type(error).__name__}: {error}") from error


def avro_reader(writer: Any, reader: Any | None = None) -> Callable[[bytes], Any]:
    """Return a function that decodes values.

    Args:
        writer: Schema with which the values were written, in fastavro's form.
        reader: Schema to which the values are resolved; None or an equal schema leaves them unchanged.

    Returns:
        A function that takes an encoding. It raises a ValueError if bytes are left over, and other exceptions for other damage.

    Raises:
        ConfigError: If a few bytes could encode an array of any length, because its items take no bytes.
    """
    fastavro = import_library("fastavro", "avro", "Avro")
    shape = _Shape(writer)
    if shape.has_weightless_items:
        raise ConfigError(
            "schema", name_of(writer) or "array", "an Avro schema without arrays of items that take no bytes"
        )
    # A value of a recursive schema may be of any depth. fastavro's C code would overflow the stack and kill the process;
    # its Python code raises a RecursionError.
    module = import_library("fastavro._read_py", "avro", "Avro") if shape.is_recursive else fastavro
    schemaless_reader = module.schemaless_reader
    target = None if reader == writer else reader
    source_schema = _with_bounded_decimals(writer) if shape.has_decimals else writer

    def read(data: bytes) -> Any:
        source = io.BytesIO(data)
        value = schemaless_reader(source, source_schema, target)
        left = len(data) - source.tell()
        if left:
            raise ValueError(f"{left} bytes are left after the Avro value")
        return value

    return read


def _with_bounded_decimals(writer: Any) -> Any:
    """Return a copy of a schema, in fastavro's form, whose decimals are read by `_bounded_decimal`."""
    readers = import_library("fastavro.read", "avro", "Avro").LOGICAL_READERS
    readers.setdefault(f"bytes-{_DECIMAL}", partial(_bounded_decimal, readers["bytes-decimal"]))
    bounded = copy.deepcopy(writer)
    open_parts: list[Any] = [bounded]
    while open_parts:
        part = open_parts.pop()
        if isinstance(part, dict):
            if part.get("type") == "bytes" and part.get("logicalType") == "decimal":
                part["logicalType"] = _DECIMAL
            open_parts.extend(part.values())
        elif isinstance(part, list):
            open_parts.extend(part)
    return bounded


def _bounded_decimal(read: Callable[..., Any], data: bytes, writer: Any = None, reader: Any = None) -> Any:
    most = max(_DECIMAL_BYTES, writer["precision"] // 2 + 1)  # a byte holds more than two digits
    if len(data) > most:
        raise ValueError(f"a decimal of {len(data):,} bytes, although {most:,} bytes hold its precision")
    return read(data, writer, reader)


class _Shape:
    """Properties of the values of a schema in fastavro's form.

    Attributes:
        is_recursive: Whether a value may contain other values of the same type.
        has_weightless_items: Whether there is an array whose items take no bytes.
        has_decimals: Whether there is a decimal without a fixed number of bytes.
    """

    def __init__(self, parsed: Any) -> None:
        self.is_recursive = False
        self.has_weightless_items = False
        self.has_decimals = False
        self._open: set[str] = set()
        self._weightless: dict[str, bool] = {"null": True}
        self._visit(parsed)

    def _visit(self, schema: Any) -> bool:
        """Visit a type and everything in it; return whether its values take no bytes."""
        if isinstance(schema, list):
            for branch in schema:
                self._visit(branch)
            return False  # the number of the branch
        if isinstance(schema, str):
            self.is_recursive = self.is_recursive or schema in self._open
            return self._weightless.get(schema, False)
        kind = schema["type"]
        if kind == "array":
            self.has_weightless_items = self._visit(schema["items"]) or self.has_weightless_items
            return False
        if kind == "map":
            self._visit(schema["values"])
            return False
        if kind == "fixed":
            weightless = bool(schema["size"] == 0)
        elif kind in {"record", "error"}:
            self._open.add(schema["name"])
            parts = [self._visit(field["type"]) for field in schema["fields"]]  # a list, to visit all of them
            weightless = all(parts)
            self._open.remove(schema["name"])
        else:
            self.has_decimals = self.has_decimals or (kind, schema.get("logicalType")) == ("bytes", "decimal")
            return bool(kind == "null")
        self._weightless[schema["name"]] = weightless
        return weightless


def name_of(parsed: Any) -> str | None:
    """Return the full name of a named type in fastavro's form; None for other types."""
    name = parsed.get("name") if isinstance(parsed, dict) else None
    return name if isinstance(name, str) else None
