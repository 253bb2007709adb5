"""``.proto`` text: made from a generated class, and read for the names of the messages that it defines.

AWS's serializers number the message types of a file by their full names in order, nested ones and the entries of maps included,
so the names are all that a deserializer needs from the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import ConfigError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
        ServiceDescriptorProto,
    )

_MAX_FIELD_NUMBER = 536_870_912
"""End of a range that reads ``to max``, exclusive."""


def message_names(file: Any) -> list[str]:
    """Return the full names of all message types of a file, given by its descriptor, sorted."""

    def walk(kinds: Iterable[Descriptor]) -> Iterator[str]:
        for kind in kinds:
            yield kind.full_name
            yield from walk(kind.nested_types)

    return sorted(walk(file.message_types_by_name.values()))


# ------------------------------------------------------------------ reading

_TOKEN = re.compile(
    r"""
      //[^\n]* | /\*.*?\*/                             # comments
    | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'        # strings
    | [\w.+-]+                                         # words and numbers
    | \S
    """,
    re.VERBOSE | re.DOTALL,
)


def message_names_of_text(text: str) -> list[str]:
    """Return the full names of all message types that ``.proto`` text defines, sorted.

    Raises:
        ValueError: If its braces do not match.
    """
    package = ""
    names: list[str] = []
    # Each open brace: the scope of the messages inside; None inside something that defines none.
    scopes: list[str | None] = [""]
    statement: list[str] = []
    brackets = 0
    for word in _TOKEN.findall(text):
        if word.startswith(("//", "/*")):
            continue
        brackets += (word == "[") - (word == "]")
        if brackets or word not in {"{", "}", ";"}:
            statement.append(word)
            continue
        scope = scopes[-1]
        if word == "{":
            scopes.append(_inner_scope(scope, statement, names))
        elif word == "}":
            scopes.pop()
            if not scopes:
                raise ValueError("unbalanced braces in the Protobuf schema")
        elif statement[:1] == ["package"] and len(statement) > 1:
            package = statement[1] + "."
        elif statement[:2] == ["map", "<"] and scope is not None and ">" in statement[:-1]:
            names.append(scope + _entry_name(statement[statement.index(">") + 1]))
        statement = []
    if len(scopes) != 1:
        raise ValueError("unbalanced braces in the Protobuf schema")
    return sorted(package + name for name in names)


def _inner_scope(scope: str | None, statement: list[str], names: list[str]) -> str | None:
    """Return the scope of the messages inside a brace, and note the message that it begins."""
    if scope is None or not statement:
        return None
    if statement[0] == "message" and len(statement) == 2:
        name = statement[1]
    elif "group" in statement[:2] and "=" in statement:
        name = statement[statement.index("group") + 1]
    else:
        return scope if statement[0] in {"oneof", "extend"} else None
    names.append(scope + name)
    return f"{scope}{name}."


def _entry_name(field: str) -> str:
    """Return the name of the message type that stands for the entries of a map field."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


# ------------------------------------------------------------------ writing

_SCALARS = (
    "double",
    "float",
    "int64",
    "uint64",
    "int32",
    "fixed64",
    "fixed32",
    "bool",
    "string",
    "group",
    "message",
    "bytes",
    "uint32",
    "enum",
    "sfixed32",
    "sfixed64",
    "sint32",
    "sint64",
)
"""Names of the field types, by number from 1."""
_TEXT, _GROUP, _MESSAGE, _BYTES, _ENUM = 9, 10, 11, 12, 14
_REQUIRED, _REPEATED = 2, 3


def proto_text(file: Any) -> str:
    """Return ``.proto`` text with the definitions of a file, given by its descriptor. Comments and custom options are not known to generated classes.

    Raises:
        ConfigError: If the file uses editions or groups.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    return "\n".join(_file(FileDescriptorProto.FromString(file.serialized_pb))) + "\n"


def _file(proto: FileDescriptorProto) -> Iterator[str]:
    syntax = proto.syntax or "proto2"
    if syntax not in {"proto2", "proto3"}:
        raise ConfigError(
            "message_type", proto.name, "a message of a file in proto2 or proto3 syntax, or a definition"
        )
    yield f'syntax = "{syntax}";'
    if proto.package:
        yield f"package {proto.package};"
    public = set(proto.public_dependency)
    for number, name in enumerate(proto.dependency):
        yield f'import {"public " if number in public else ""}"{name}";'
    for name, value in _options(proto.options):
        yield f"option {name} = {value};"
    for enum in proto.enum_type:
        yield from _enum(enum)
    for message in proto.message_type:
        yield from _message(message, syntax)
    yield from _extensions(proto.extension, syntax)
    for service in proto.service:
        yield from _service(service)


def _message(proto: DescriptorProto, syntax: str) -> Iterator[str]:
    yield f"message {proto.name} {{"
    yield from _indented(_message_body(proto, syntax))
    yield "}"


def _message_body(proto: DescriptorProto, syntax: str) -> Iterator[str]:
    for name, value in _options(proto.options):
        yield f"option {name} = {value};"
    yield from _reserved(
        [(each.start, each.end - 1) for each in proto.reserved_range], list(proto.reserved_name)
    )
    for each in proto.extension_range:
        yield f"extensions {_range(each.start, each.end - 1)};"
    maps = {kind.name: kind for kind in proto.nested_type if kind.options.map_entry}
    begun: set[int] = set()
    for field in proto.field:
        if not field.HasField("oneof_index") or field.proto3_optional:
            yield _field(field, syntax, maps)
        elif field.oneof_index not in begun:
            begun.add(field.oneof_index)
            yield f"oneof {proto.oneof_decl[field.oneof_index].name} {{"
            yield from _indented(
                _field(each, syntax, maps, in_oneof=True)
                for each in proto.field
                if each.HasField("oneof_index")
                and each.oneof_index == field.oneof_index
                and not each.proto3_optional
            )
            yield "}"
    for enum in proto.enum_type:
        yield from _enum(enum)
    for kind in proto.nested_type:
        if kind.name not in maps:
            yield from _message(kind, syntax)
    yield from _extensions(proto.extension, syntax)


def _field(
    proto: FieldDescriptorProto, syntax: str, maps: dict[str, DescriptorProto], *, in_oneof: bool = False
) -> str:
    options = [*_field_options(proto)]
    suffix = f" [{', '.join(options)}]" if options else ""
    entry = maps.get(proto.type_name.rpartition(".")[2]) if proto.type == _MESSAGE else None
    if entry is not None and proto.label == _REPEATED:
        key, value = entry.field
        return f"map<{_type(key)}, {_type(value)}> {proto.name} = {proto.number}{suffix};"
    label = ""
    if proto.label == _REPEATED:
        label = "repeated "
    elif in_oneof:
        label = ""
    elif proto.label == _REQUIRED:
        label = "required "
    elif syntax == "proto2" or proto.proto3_optional:
        label = "optional "
    return f"{label}{_type(proto)} {proto.name} = {proto.number}{suffix};"


def _type(proto: FieldDescriptorProto) -> str:
    if proto.type == _GROUP:
        raise ConfigError("message_type", proto.name, "a message without groups, or a definition")
    if proto.type in {_MESSAGE, _ENUM}:
        return proto.type_name
    return _SCALARS[proto.type - 1]


def _field_options(proto: FieldDescriptorProto) -> Iterator[str]:
    if proto.HasField("default_value"):
        value = proto.default_value
        if proto.type == _TEXT:
            value = _quoted(value)
        elif proto.type == _BYTES:  # escaped already
            value = f'"{value}"'
        yield f"default = {value}"
    for name, option in _options(proto.options):
        yield f"{name} = {option}"
    if proto.json_name and proto.json_name != _json_name(proto.name):
        yield f"json_name = {_quoted(proto.json_name)}"


def _json_name(name: str) -> str:
    return re.sub(r"_+([^_])?", lambda match: (match[1] or "").upper(), name)


def _enum(proto: EnumDescriptorProto) -> Iterator[str]:
    yield f"enum {proto.name} {{"
    for name, option in _options(proto.options):
        yield f"  option {name} = {option};"
    ranges = [(each.start, each.end) for each in proto.reserved_range]
    yield from _indented(_reserved(ranges, list(proto.reserved_name), maximum=2**31 - 1))
    for value in proto.value:
        options = ", ".join(f"{name} = {option}" for name, option in _options(value.options))
        yield f"  {value.name} = {value.number}{f' [{options}]' if options else ''};"
    yield "}"


def _service(proto: ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {proto.name} {{"
    for method in proto.method:
        takes, gives = method.input_type, method.output_type
        takes = f"stream {takes}" if method.client_streaming else takes
        gives = f"stream {gives}" if method.server_streaming else gives
        yield f"  rpc {method.name} ({takes}) returns ({gives});"
    yield "}"


def _extensions(fields: Iterable[FieldDescriptorProto], syntax: str) -> Iterator[str]:
    for field in fields:
        yield f"extend {field.extendee} {{"
        yield f"  {_field(field, syntax, {})}"
        yield "}"


def _reserved(
    ranges: list[tuple[int, int]], names: list[str], *, maximum: int = _MAX_FIELD_NUMBER - 1
) -> Iterator[str]:
    if ranges:
        yield f"reserved {', '.join(_range(start, end, maximum) for start, end in ranges)};"
    if names:
        yield f"reserved {', '.join(map(_quoted, names))};"


def _range(start: int, end: int, maximum: int = _MAX_FIELD_NUMBER - 1) -> str:
    """Return a closed range as text."""
    if start == end:
        return str(start)
    return f"{start} to {'max' if end == maximum else end}"


def _options(options: Any) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the options that Protobuf itself defines and that have one value."""
    for field, value in options.ListFields():
        if field.is_extension or field.message_type is not None or field.name == "map_entry":
            continue
        if field.enum_type is not None and isinstance(value, int):
            yield field.name, field.enum_type.values_by_number[value].name
        elif isinstance(value, bool):
            yield field.name, str(value).lower()
        elif isinstance(value, str):
            yield field.name, _quoted(value)
        elif isinstance(value, (int, float)):
            yield field.name, str(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _indented(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield f"  {line}"
