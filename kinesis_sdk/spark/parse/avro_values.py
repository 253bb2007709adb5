"""Avro: fastavro decodes a value, and a plan that is created once for each schema converts it to the columns.

fastavro gets the schema without logical types, so that it returns dates, times and decimals as numbers and bytes, which Arrow accepts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.serialization import AvroCodec
from kinesis_sdk.spark.parse.columns import Kind
from kinesis_sdk.spark.parse.ddl import ddl_of
from kinesis_sdk.spark.parse.fitting import MalformedError, UnfitError

if TYPE_CHECKING:
    import pyarrow as pa

    from kinesis_sdk.spark.parse.registry import Frames

MAX_OBJECT_BYTES = 256 * 1024 * 1024
"""Maximum bytes that the arrays and maps of a value may take as Python objects, estimated from the bytes of the value."""

_MAX_LEVELS = 32
_MICROS = {
    "timestamp-millis": 1_000,
    "timestamp-micros": 1,
    "local-timestamp-millis": 1_000,
    "local-timestamp-micros": 1,
}
_PRIMITIVES = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "enum": "string",
    "bytes": "binary",
    "fixed": "binary",
}
_DIGITS = Context(prec=38)
"""Maximum digits of a Spark decimal. Python's own context has 28, and would round."""

_UNITS = {
    *_MICROS,
    "timestamp-nanos",
    "local-timestamp-nanos",
    "date",
    "time-millis",
    "time-micros",
    "decimal",
}
"""Logical types that define the unit of a number."""

_WIDER = {("integer", "long"), ("integer", "double"), ("float", "double")}
_NUMERIC_UNIONS = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}

# Bytes of values as Python objects, and minimum bytes of their encodings.
_OBJECTS = {
    "null": 0,
    "boolean": 0,
    "enum": 0,
    "int": 36,
    "long": 36,
    "float": 24,
    "double": 24,
    "string": 64,
    "bytes": 40,
    "array": 64,
    "map": 240,
}
_LEAST = {"null": 0, "float": 4, "double": 8}
_ENTRY = 180

Convert = Callable[[Any], Any] | None
"""Converts a value that is not None; None instead of a converter leaves the value unchanged."""


class AvroParser:
    """Reads records, one in each payload.

    Args:
        fields: Types of the columns, by the name of the record's field.
        schema: Schema of the record as JSON text. With a registry, the schema to which other versions are resolved; None reads each
            version with its own schema, and fields that a version lacks are null.
        frames: Headers of a schema registry; None if payloads have no headers.

    Raises:
        ConfigError: If the schema lacks one of these fields, or defines it with another type.
    """

    def __init__(self, fields: Mapping[str, Kind], schema: str | None, frames: Frames | None = None) -> None:
        self._fields = fields
        self._schema = schema
        self._frames = frames
        self._plan = None if schema is None else AvroPlan(schema, fields, complete=True)
        self._plans: dict[str, AvroPlan | str] = {}  # or the problem of the schema version

    def columns(self, _payloads: pa.Array) -> None:
        """Return None."""
        return

    def row(self, payload: bytes) -> tuple[Sequence[Any] | None, str | None]:
        """Return the values of the fields in the form that Arrow accepts, and the problem of the payload; either may be None."""
        try:
            if self._frames is None:
                assert self._plan is not None
                return self._plan.row(payload), None
            definition, payload = self._frames.open(payload, "AVRO")
            return self._plan_of(definition).row(payload), None
        except MalformedError as error:
            return None, str(error)

    def _plan_of(self, definition: str) -> AvroPlan:
        """Return the plan for payloads of a schema version."""
        plan = self._plans.get(definition)
        if plan is None:
            try:
                plan = AvroPlan(self._schema or definition, self._fields, writer=definition)
            except (ConfigError, RecursionError) as error:
                plan = f"a schema version that does not fit: {error}"
            if len(self._plans) >= 100:
                self._plans.clear()
            self._plans[definition] = plan
        if isinstance(plan, str):
            raise MalformedError(plan)
        return plan


class AvroPlan:
    """Conversion of the records of one schema.

    Args:
        schema: Schema as JSON text.
        fields: Types of the columns.
        writer: Schema with which the values were written, if it differs.
        complete: Whether a field that the schema lacks is an error; otherwise the field is null.

    Raises:
        ConfigError: If the schema is not an Avro schema of a record, or a field has another type.
    """

    def __init__(
        self, schema: str, fields: Mapping[str, Kind], *, writer: str | None = None, complete: bool = False
    ) -> None:
        types = _Types(schema)
        self._codec = AvroCodec(
            _plain(schema), writer_schema=None if writer in {None, schema} else _plain(str(writer))
        )
        written = _Types(writer) if writer else types
        self._most = MAX_OBJECT_BYTES // max(written.expansion, 1)
        if writer not in {None, schema}:
            types.check_units(types.record, Kind("struct", fields=fields), written, written.record, "")
        known = {field["name"]: field["type"] for field in types.record["fields"]}
        self._fields: list[tuple[str, Convert]] = []
        for name, kind in fields.items():
            if name in known:
                self._fields.append((name, types.converter(known[name], kind, name)))
            elif complete:
                raise ConfigError(
                    f"column {name}", str(kind), f"a field of the Avro record: {', '.join(known)}"
                )
            else:
                self._fields.append((name, None))

    def row(self, payload: bytes) -> list[Any]:
        """Return the values of the fields.

        Raises:
            MalformedError: If the payload is not a value of the schema.
        """
        if len(payload) > self._most:
            raise MalformedError(
                f"a value of more than {self._most:,} bytes, whose arrays or maps may take too much memory"
            )
        try:
            record = self._codec.deserialize("", payload)
        except Exception as error:  # noqa: BLE001 — which one depends on the damage
            raise MalformedError(f"no value of the Avro schema ({type(error).__name__})") from None
        values: list[Any] = []
        for name, convert in self._fields:
            value = record.get(name)
            if convert is not None and value is not None:
                try:
                    value = convert(value)
                except UnfitError:
                    raise MalformedError(f"field {name}: a value that its type cannot have") from None
            values.append(value)
        return values


def avro_columns(schema: str) -> str:
    """Return the columns of an Avro record, for ``.schema(…)`` or the option ``columns``.

    The types are the same as in Spark's ``from_avro``.

        columns = avro_columns(Path("flight.avsc").read_text())
        spark.readStream.format("kinesis_sdk").schema(f"{columns}, _arrival TIMESTAMP")

    Args:
        schema: Schema of a record as JSON text.

    Returns:
        Text such as ``delay INT, origin STRING``, in the order of the record's fields.

    Raises:
        ConfigError: If the schema is not an Avro schema of a record, or has a type that no column can have, such as a union of several
            types.
        ImportError: If fastavro is missing.
    """
    types = _Types(schema)
    fields = [
        {"name": field["name"], "type": types.spark_type(field["type"], field["name"])}
        for field in types.record["fields"]
    ]
    return ddl_of({"fields": fields})


def _plain(schema: str) -> str:
    """Return a schema without logical types."""
    document = json.loads(schema)
    for part in _parts(document):
        if isinstance(part.get("type"), str):
            part.pop("logicalType", None)
    return json.dumps(document)


def _parts(document: Any) -> Iterator[dict[str, Any]]:
    """Yield the types of a schema and the fields of its records; defaults and foreign attributes are left out."""
    left = [document]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            left.extend(part[key] for key in ("type", "items", "values", "fields") if key in part)
            yield part
        elif isinstance(part, list):
            left.extend(part)


class _Types:
    """The types of a schema.

    Attributes:
        record: The record that it defines.
    """

    def __init__(self, schema: str) -> None:
        try:
            self._codec = AvroCodec(schema)
        except ConfigError as error:
            raise ConfigError("avroSchema", error.value, error.accepted) from None
        parsed = self._codec.parsed
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise ConfigError("avroSchema", schema, "the schema of a record")
        self.record: Mapping[str, Any] = parsed
        self._named = {
            part["name"]: part
            for part in _parts(parsed["fields"])
            if isinstance(part.get("type"), str)
            and part["type"] in {"record", "error", "enum", "fixed"}
            and "name" in part
        }
        self._named[parsed["name"]] = parsed
        self._sizes: dict[tuple[str, int], tuple[int, int]] = {}

    def _of(self, source: Any, path: str) -> tuple[str, Mapping[str, Any]]:
        """Return the name of a type, without null, and its definition."""
        while True:
            if isinstance(source, list):
                branches = [one for one in source if one != "null"]
                names = frozenset(self._of(one, path)[0] for one in branches)
                if len(branches) != 1:
                    if not branches:
                        return "null", {}
                    if names not in _NUMERIC_UNIONS:
                        raise ConfigError(
                            f"column {path}",
                            "a union",
                            "no union of several types; read it as a column of its own stream",
                        )
                    return _NUMERIC_UNIONS[names], {}
                source = branches[0]
            elif isinstance(source, str):
                if source not in self._named:
                    return source, {}
                source = self._named[source]
            elif isinstance(source["type"], str):
                return source["type"].replace("error", "record"), source
            else:
                source = source["type"]

    def converter(self, source: Any, kind: Kind, path: str) -> Convert:
        """Return the conversion to a type of Spark.

        Raises:
            ConfigError: If there is none.
        """
        name, definition = self._of(source, path)
        if name == "null":
            return None
        if name == "record" and kind.fields is not None:
            return self._to_struct(definition, kind.fields, path)
        if name == "array" and kind.name == "array" and kind.inner is not None:
            inner = self.converter(definition["items"], kind.inner, f"{path}[]")
            return (
                None if inner is None else lambda value: [one if one is None else inner(one) for one in value]
            )
        if name == "map" and kind.name == "map" and kind.inner is not None:
            convert = self.converter(definition["values"], kind.inner, f"{path}[]")
            return lambda value: [
                (key, one if one is None or convert is None else convert(one)) for key, one in value.items()
            ]
        if kind.fields is None and kind.inner is None and name in _PRIMITIVES:
            found = self._scalar(name, definition)
            if found == kind or (found.name, kind.name) in _WIDER:
                return self._number(definition, found)
            if (
                found.name == "decimal" == kind.name
                and kind.scale >= found.scale
                and kind.precision - kind.scale >= found.precision - found.scale
            ):
                return self._number(definition, found)
        shown = self._scalar(name, definition) if name in _PRIMITIVES else name
        raise ConfigError(f"column {path}", str(kind), f"{shown}, which is the type in the Avro schema")

    def _to_struct(self, definition: Mapping[str, Any], fields: Mapping[str, Kind], path: str) -> Convert:
        known = {field["name"]: field["type"] for field in definition["fields"]}
        missing = [name for name in fields if name not in known]
        if missing:
            raise ConfigError(
                f"column {path}.{missing[0]}",
                str(fields[missing[0]]),
                f"a field of the Avro record: {', '.join(known)}",
            )
        converters = [
            (name, self.converter(known[name], kind, f"{path}.{name}")) for name, kind in fields.items()
        ]

        def to_struct(value: Mapping[str, Any]) -> dict[str, Any]:
            found = {}
            for name, convert in converters:
                one = value[name]
                found[name] = one if one is None or convert is None else convert(one)
            return found

        return to_struct

    def check_units(self, source: Any, kind: Kind, writer: _Types, written: Any, path: str) -> None:
        """Raise `ConfigError` if the units of a number differ between writer and reader, such as milliseconds and microseconds.

        Avro resolves such types by the numbers alone. A writer's type without a unit may get a unit.
        """
        name, definition = self._of(source, path)
        for branch in written if isinstance(written, list) else [written]:
            other_name, other = writer._of(branch, path)
            if name == other_name == "record":
                theirs = {field["name"]: field["type"] for field in other["fields"]}
                for field in definition["fields"]:
                    found = [one for one in (field["name"], *field.get("aliases", ())) if one in theirs]
                    if found and field["name"] in (kind.fields or {}):
                        inner, here = (
                            (kind.fields or {})[field["name"]],
                            f"{path}.{field['name']}".lstrip("."),
                        )
                        self.check_units(field["type"], inner, writer, theirs[found[0]], here)
            elif name == other_name in {"array", "map"} and kind.inner is not None:
                key = "items" if name == "array" else "values"
                self.check_units(definition[key], kind.inner, writer, other[key], f"{path}[]")
            else:
                units = [(one.get("logicalType"), one.get("scale", 0)) for one in (definition, other)]
                if units[0] != units[1] and all(unit in _UNITS for unit, _ in units):
                    shown = [
                        f"{unit} of scale {scale}" if unit == "decimal" else unit for unit, scale in units
                    ]
                    raise ConfigError(f"column {path}", shown[1], f"{shown[0]}, as in avroSchema")

    @staticmethod
    def _scalar(name: str, definition: Mapping[str, Any]) -> Kind:
        """Return Spark's type for a type without parts."""
        logical = definition.get("logicalType")
        if name == "int" and logical == "date":
            return Kind("date")
        if name == "long" and logical in _MICROS:
            return Kind("timestamp_ntz" if str(logical).startswith("local") else "timestamp")
        if name in {"bytes", "fixed"} and logical == "decimal" and definition.get("precision", 39) <= 38:
            return Kind("decimal", precision=definition["precision"], scale=definition.get("scale", 0))
        return Kind(_PRIMITIVES[name])

    @staticmethod
    def _number(definition: Mapping[str, Any], found: Kind) -> Convert:
        """Return the conversion of the number or bytes behind a logical type."""
        if found.name == "decimal":
            scale, limit = found.scale, 10**found.precision
            bytes_of_limit = limit.bit_length() // 8 + 1

            def to_decimal(value: bytes) -> Decimal:
                if len(value) > bytes_of_limit and len(value) > definition.get("size", 0):
                    raise UnfitError
                number = int.from_bytes(value, "big", signed=True)
                if not -limit < number < limit:
                    raise UnfitError
                return Decimal(number).scaleb(-scale, _DIGITS)

            return to_decimal
        factor = (
            _MICROS.get(definition.get("logicalType", ""), 1) if found.name.startswith("timestamp") else 1
        )
        if factor == 1:
            return None

        def to_micros(value: int) -> int:
            if not -(2**63) <= value * factor < 2**63:
                raise UnfitError
            return value * factor

        return to_micros

    def spark_type(self, source: Any, path: str, levels: int = _MAX_LEVELS) -> Any:
        """Return the JSON form of the type that Spark gives a column.

        Raises:
            ConfigError: If there is none.
        """
        name, definition = self._of(source, path)
        if levels == 0:
            raise ConfigError(f"column {path}", name, "no record that contains itself")
        if name == "record":
            fields = [
                {
                    "name": field["name"],
                    "type": self.spark_type(field["type"], f"{path}.{field['name']}", levels - 1),
                }
                for field in definition["fields"]
            ]
            return {"type": "struct", "fields": fields}
        if name == "array":
            return {
                "type": "array",
                "elementType": self.spark_type(definition["items"], f"{path}[]", levels - 1),
            }
        if name == "map":
            return {
                "type": "map",
                "valueType": self.spark_type(definition["values"], f"{path}[]", levels - 1),
            }
        return "string" if name == "null" else self._scalar(name, definition).json_form

    @property
    def expansion(self) -> int:
        """Maximum bytes of Python objects per byte of a value's repeated parts; 0 without such parts.

        Repeated parts are in arrays and maps, and in records that contain themselves. Each branch of their unions counts separately,
        because it has bytes of its own, so a tree expands no more than one of its nodes.
        """
        ratio = 0
        repeated: list[Any] = [self.record] if self._codec.is_recursive else []
        for part in _parts(self.record["fields"]):
            if isinstance(part.get("type"), str) and part["type"] in {"array", "map"}:
                is_map = part["type"] == "map"
                inner = part["values" if is_map else "items"]
                objects, least = self._size(inner, _MAX_LEVELS)
                size, encoded = (objects + _ENTRY, least + 1) if is_map else (objects + 8, least)
                ratio = max(ratio, -(-size // max(encoded, 1)))
                repeated.append(inner)
        for branch in self._branches(repeated):
            objects, least = self._size(branch, _MAX_LEVELS)
            ratio = max(ratio, -(-objects // max(least, 1)))
        return ratio

    def _branches(self, sources: Sequence[Any]) -> Iterator[Any]:
        """Yield the branches of all unions in types, each named type once."""
        left, seen = list(sources), set()
        while left:
            source = left.pop()
            if isinstance(source, list):
                yield from source
                left.extend(source)
                continue
            if isinstance(source, str):
                if source in seen or source not in self._named:
                    continue
                seen.add(source)
                source = self._named[source]
            left.extend(source[key] for key in ("type", "items", "values") if key in source)
            left.extend(field["type"] for field in source.get("fields", ()))

    def _size(self, source: Any, levels: int) -> tuple[int, int]:
        """Return the maximum bytes of a value as Python objects, and the minimum bytes of its encoding, both without arrays and maps.

        In a union, only branches without bytes of their own count.
        """
        if isinstance(source, list):
            sizes = [self._size(one, levels - 1) for one in source] if levels else []
            return max((objects for objects, least in sizes if not least), default=0), 1
        name, definition = self._of(source, "")
        if name == "record":
            key = definition["name"], levels
            if key not in self._sizes:
                # Compute each record once per level: the fields of a tree would double the work at each level.
                fields = definition["fields"] if levels else []
                parts = [self._size(field["type"], levels - 1) for field in fields]
                self._sizes[key] = (
                    240 + 16 * len(parts) + sum(one for one, _ in parts),
                    sum(least for _, least in parts),
                )
            return self._sizes[key]
        if name == "fixed":
            return definition["size"] + 40, definition["size"]
        return _OBJECTS[name], _LEAST.get(name, 1)
