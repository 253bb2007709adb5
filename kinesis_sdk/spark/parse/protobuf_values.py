"""Protobuf: messages of a descriptor set, decoded by the protobuf library, and a plan that converts them to the columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from kinesis_sdk.common.errors import ConfigError, SchemaRegistryError
from kinesis_sdk.serialization import ProtobufCodec
from kinesis_sdk.spark.parse.columns import Kind
from kinesis_sdk.spark.parse.ddl import ddl_of
from kinesis_sdk.spark.parse.fitting import MalformedError, UnfitError

if TYPE_CHECKING:
    import pyarrow as pa

    from kinesis_sdk.spark.parse.registry import Frames

MAX_VALUES = 1_000_000
"""Maximum number of elements in arrays and maps of a message; each takes about a hundred bytes as a Python object."""

MAX_VALUE_BYTES = 256 * 1024 * 1024
"""Maximum bytes of a message's elements of arrays and maps as columns. An element may be a wide struct that takes two bytes in the message."""

MAX_CHECKED_BYTES = 2 * MAX_VALUES
"""Maximum bytes of a message that is checked for fields of another type. Fields that the descriptor lacks become Python objects for this
check, and such a field may take two bytes in the message."""

MAX_DESCRIPTOR_BYTES = 16 * 1024 * 1024
_MAX_LEVELS = 32
_WELL_KNOWN = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
_TIMESTAMP = "google.protobuf.Timestamp"
_UNSIGNED_64 = Kind("decimal", precision=20)
_KINDS = {
    FieldDescriptor.CPPTYPE_INT32: Kind("integer"),
    FieldDescriptor.CPPTYPE_INT64: Kind("long"),
    FieldDescriptor.CPPTYPE_UINT32: Kind("long"),
    FieldDescriptor.CPPTYPE_UINT64: _UNSIGNED_64,
    FieldDescriptor.CPPTYPE_DOUBLE: Kind("double"),
    FieldDescriptor.CPPTYPE_FLOAT: Kind("float"),
    FieldDescriptor.CPPTYPE_BOOL: Kind("boolean"),
    FieldDescriptor.CPPTYPE_ENUM: Kind("string"),
}
_FLOATS = {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}
_WIDER = {("integer", "long"), ("integer", "double"), ("float", "double")}

Convert = Callable[[Any], Any]


def message_type(descriptors: bytes, name: str) -> type[Message]:
    """Return the class of a message.

    Args:
        descriptors: A descriptor set with all files that its files import; Protobuf's own files may be missing.
        name: Full name of the message, or only its last part if no other message has the same last part.

    Raises:
        ConfigError: If the bytes are not a descriptor set, or the set does not contain the message.
    """
    pool = descriptor_pool.DescriptorPool()
    expected = (
        "a descriptor set with its imports, as `protoc --include_imports --descriptor_set_out=…` writes it"
    )
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
        there = {one.name for one in files}
        for known in _WELL_KNOWN:
            if known.DESCRIPTOR.name not in there:
                pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        for one in files:
            pool.AddSerializedFile(one.SerializeToString())
        found = [
            kind
            for file in files
            for kind in _messages(pool.FindFileByName(file.name).message_types_by_name.values())
        ]
    except (DecodeError, TypeError, KeyError) as error:
        raise ConfigError(
            "protobufDescriptor", f"{len(descriptors):,} bytes", f"{expected}: {error}"
        ) from None
    fitting = [kind for kind in found if name in {kind.full_name, kind.name}]
    exact = [kind for kind in fitting if kind.full_name == name]
    if len(exact or fitting) != 1:
        names = ", ".join(sorted(kind.full_name for kind in fitting or found)[:20])
        raise ConfigError("messageName", name, f"one of {names}")
    return message_factory.GetMessageClass((exact or fitting)[0])


def _messages(kinds: Any) -> Iterator[Any]:
    for kind in kinds:
        if not kind.GetOptions().map_entry:
            yield kind
            yield from _messages(kind.nested_types)


class ProtobufParser:
    """Reads messages, one in each payload.

    Args:
        fields: Types of the columns, by the name of the message's field.
        message: Class of the message.
        emit_defaults: Whether a field without presence that has its default value is read as this value; otherwise it is null, as in Spark.
        frames: Headers of a schema registry; None if payloads have none.
        index: Whether payloads after such a header begin with the index of the message type.

    Raises:
        ConfigError: If the message lacks one of these fields, or defines it with another type.
    """

    def __init__(
        self,
        fields: Mapping[str, Kind],
        message: type[Message],
        *,
        emit_defaults: bool = False,
        frames: Frames | None = None,
        index: bool = True,
    ) -> None:
        self._read: Convert = message.FromString
        self._frames = frames
        if frames is not None:
            deserializer = frames.registry.deserializer(ProtobufCodec(message, message_index=index))
            self._read = lambda payload: deserializer.deserialize("", payload)
        self._names = {field.number: field.name for field in message.DESCRIPTOR.fields}
        width = max((kind.element_width for kind in fields.values()), default=0)
        self._plan = _Plan(
            emit_defaults=emit_defaults, most=min(MAX_VALUES, MAX_VALUE_BYTES // max(width, 1))
        )
        self._convert = self._plan.message(message.DESCRIPTOR, fields, "")

    def columns(self, _payloads: pa.Array) -> None:
        """Return None."""
        return

    def row(self, payload: bytes) -> tuple[Sequence[Any] | None, str | None]:
        """Return the values of the fields in the form that Arrow accepts, and the problem of the payload; either may be None."""
        try:
            if self._frames is not None:
                self._frames.open(payload, "PROTOBUF")
            message = self._read(payload)
            if not message.IsInitialized():
                return None, "a message without a required field"
            if (mistyped := self._mistyped(payload, message)) is not None:
                return None, f"field {mistyped}: another type than the descriptor's"
            self._plan.left = self._plan.most
            return list(self._convert(message).values()), None
        except (MalformedError, UnfitError) as error:
            return None, str(error)
        except SchemaRegistryError as error:
            if error.retryable:
                raise
            return None, str(error)
        except (DecodeError, UnicodeDecodeError) as error:
            return None, f"no message of this type ({type(error).__name__})"

    def _mistyped(self, payload: bytes, message: Message) -> str | None:
        """Return a field that has another type in the payload. Protobuf treats it as an unknown field, so the column would be null."""
        size = len(payload) if self._frames is None else message.ByteSize()
        if size > MAX_CHECKED_BYTES:
            return None
        unknown = UnknownFieldSet(message)
        numbers = (unknown[index].field_number for index in range(len(unknown)))
        return next((self._names[number] for number in numbers if number in self._names), None)


def check_fields(message: type[Message], fields: Mapping[str, Kind]) -> None:
    """Raise `ConfigError` for a field that a message does not have."""
    _Plan(emit_defaults=False, most=MAX_VALUES).message(message.DESCRIPTOR, fields, "")


class _Plan:
    """Conversions of messages.

    Attributes:
        most: Maximum number of elements in a message.
        left: Number of further elements that this message may have.
    """

    def __init__(self, *, emit_defaults: bool, most: int) -> None:
        self.most = self.left = most
        self._emit_defaults = emit_defaults

    def message(self, kind: Any, fields: Mapping[str, Kind], path: str) -> Convert:
        """Return the conversion of a message to a struct; raise `ConfigError` if it lacks a field."""
        getters: list[tuple[str, Convert]] = []
        for name, wanted in fields.items():
            field = kind.fields_by_name.get(name)
            here = f"{path}.{name}" if path else name
            if field is None:
                names = ", ".join(kind.fields_by_name)
                raise ConfigError(f"column {here}", str(wanted), f"a field of {kind.full_name}: {names}")
            getters.append((name, self._getter(field, wanted, here)))
        return lambda message: {name: get(message) for name, get in getters}

    def _getter(self, field: Any, wanted: Kind, path: str) -> Convert:
        name = field.name
        if _is_map(field):
            return self._map(field, wanted, path)
        if _is_repeated(field):
            if wanted.name != "array" or wanted.inner is None:
                raise _other(field, wanted, path)
            convert = self._value(field, wanted.inner, path)

            def elements(message: Message) -> list[Any]:
                found = getattr(message, name)
                self._take(len(found))
                return [convert(one) for one in found]

            return elements
        convert = self._value(field, wanted, path)
        if field.has_presence:
            if field.has_default_value:
                return lambda message: convert(getattr(message, name))
            return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
        if self._emit_defaults:
            return lambda message: convert(getattr(message, name))
        if field.cpp_type in _FLOATS:
            return lambda message: convert(found) if _is_set(found := getattr(message, name)) else None
        default = field.default_value

        def unless_default(message: Message) -> Any:
            found = getattr(message, name)
            return None if found == default else convert(found)

        return unless_default

    def _map(self, field: Any, wanted: Kind, path: str) -> Convert:
        entry = field.message_type.fields_by_name
        if wanted.name != "map" or wanted.inner is None:
            raise _other(field, wanted, path)
        name = field.name
        key = _bool_text if entry["key"].cpp_type == FieldDescriptor.CPPTYPE_BOOL else str
        convert = self._value(entry["value"], wanted.inner, path)

        def entries(message: Message) -> list[tuple[str, Any]]:
            found = getattr(message, name)
            self._take(len(found))
            return [(key(one), convert(found[one])) for one in found]

        return entries

    def _take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise MalformedError(f"a message of more than {self.most:,} elements")

    def _value(self, field: Any, wanted: Kind, path: str) -> Convert:
        """Return the conversion of one value of a field; raise `ConfigError` for a type that it does not have."""
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            if field.message_type.full_name == _TIMESTAMP and wanted.name == "timestamp":
                return lambda value: _micros(value, path)
            if wanted.fields is None:
                raise _other(field, wanted, path)
            return self.message(field.message_type, wanted.fields, path)
        natural = _kind(field)
        if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM and wanted == natural:
            names = field.enum_type.values_by_number
            unknown = f"UNKNOWN_ENUM_VALUE_{field.enum_type.name}_"
            return lambda value: names[value].name if value in names else f"{unknown}{value}"
        if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM and wanted.name == "integer":
            return _same
        limit = {
            (FieldDescriptor.CPPTYPE_UINT32, "integer"): 2**31,
            (FieldDescriptor.CPPTYPE_UINT64, "long"): 2**63,
        }.get((field.cpp_type, wanted.name))
        if limit is not None:
            return lambda value: _below(value, limit, path)
        if natural == _UNSIGNED_64 == wanted:
            return Decimal
        if wanted == natural or (natural.name, wanted.name) in _WIDER:
            return _same
        raise _other(field, wanted, path)


def protobuf_columns(descriptor: str | Path, message_name: str) -> str:
    """Return the columns of a Protobuf message, for ``.schema(…)`` or the option ``columns``.

    The types are the same as in Spark's ``from_protobuf``, except that unsigned numbers have a type for all of their values, keys of maps
    are text,
    and ``google.protobuf.Duration`` is a struct.

        columns = protobuf_columns("flights.desc", "Flight")
        spark.readStream.format("kinesis_sdk").schema(f"{columns}, _arrival TIMESTAMP")

    Args:
        descriptor: Path of a descriptor set that ``protoc --include_imports --descriptor_set_out=…`` wrote.
        message_name: Full name of the message, or only its last part if no other message has the same last part.

    Returns:
        Text such as ``origin STRING, delay INT``, in the order of the descriptor.

    Raises:
        ConfigError: If the file cannot be read or does not contain the message, or if the message contains itself.
    """
    kind = message_type(read_descriptor(str(descriptor), "descriptor"), message_name).DESCRIPTOR
    return ddl_of(_struct(kind, kind.name, _MAX_LEVELS))


def read_descriptor(path: str, option: str) -> bytes:
    """Return the bytes of a descriptor set; raise `ConfigError` if the file cannot be read, or is larger than 16 MiB."""
    try:
        with Path(path).open("rb") as file:
            found = file.read(MAX_DESCRIPTOR_BYTES + 1)
    except OSError as error:
        raise ConfigError(option, path, f"the path of a descriptor set: {error.strerror}") from None
    if len(found) > MAX_DESCRIPTOR_BYTES:
        raise ConfigError(option, path, f"a file of at most {MAX_DESCRIPTOR_BYTES:,} bytes")
    return found


def _struct(kind: Any, path: str, levels: int) -> dict[str, Any]:
    if not levels:
        raise ConfigError(
            "messageName", path, "a message that does not contain itself: name its columns yourself"
        )
    fields = []
    for field in kind.fields:
        one: Any
        if _is_map(field):
            value = field.message_type.fields_by_name["value"]
            one = {"type": "map", "valueType": _type(value, path, levels)}
        elif _is_repeated(field):
            one = {"type": "array", "elementType": _type(field, path, levels)}
        else:
            one = _type(field, path, levels)
        fields.append({"name": field.name, "type": one})
    if not fields:
        raise ConfigError(
            "messageName", path, "messages with fields: name the columns without this one yourself"
        )
    return {"type": "struct", "fields": fields}


def _type(field: Any, path: str, levels: int) -> Any:
    if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
        return _kind(field).json_form
    if field.message_type.full_name == _TIMESTAMP:
        return "timestamp"
    return _struct(field.message_type, f"{path}.{field.name}", levels - 1)


def _kind(field: Any) -> Kind:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return Kind("binary" if field.type == FieldDescriptor.TYPE_BYTES else "string")
    return _KINDS[field.cpp_type]


def _is_repeated(field: Any) -> bool:
    found = getattr(field, "is_repeated", None)  # protobuf 6 and later; earlier ones have a label
    return bool(field.label == FieldDescriptor.LABEL_REPEATED if found is None else found)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _other(field: Any, wanted: Kind, path: str) -> ConfigError:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        expected = "a map" if _is_map(field) else f"the message {field.message_type.full_name}"
    else:
        expected = str(_kind(field))
    many = "an array of " if _is_repeated(field) and not _is_map(field) else ""
    return ConfigError(f"column {path}", str(wanted), f"{many}{expected}, as the descriptor has it")


def _same(value: Any) -> Any:
    return value


def _bool_text(value: bool) -> str:
    return "true" if value else "false"


def _below(value: int, limit: int, path: str) -> int:
    if value >= limit:
        raise UnfitError(f"field {path}: a value that its type cannot have")
    return value


def _is_set(value: float) -> bool:
    """Return whether an encoding contains a number without presence: any number except a zero without a sign."""
    return value != 0 or math.copysign(1.0, value) < 0


def _micros(value: Any, path: str) -> int:
    """Return the microseconds since 1970 of a ``Timestamp``; parts of a microsecond are cut off towards zero, as in Spark."""
    found: int = value.seconds * 1_000_000 + int(value.nanos / 1_000)
    if not -(2**63) <= found < 2**63:
        raise UnfitError(f"field {path}: a value that its type cannot have")
    return found
