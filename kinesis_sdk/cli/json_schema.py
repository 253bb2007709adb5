"""JSON Schemas of types in the form that `plain` gives them (dataclasses, typed dictionaries, their parts), with texts from docstrings."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_SIMPLE: Mapping[object, Mapping[str, Any]] = {
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    datetime: {"type": "string", "format": "date-time"},
    Any: {},
    object: {},
    ExtendedSequenceNumber: {
        "type": "object",
        "properties": {
            "sequence_number": {
                "type": "string",
                "description": "Decimal digits, or a word such as TRIM_HORIZON.",
            },
            "sub_sequence_number": {"type": "integer"},
        },
        "required": ["sequence_number", "sub_sequence_number"],
    },
    HashKeyRange: {
        "type": "object",
        "properties": {
            "start": {"type": "string", "description": "Decimal digits."},
            "end": {"type": "string", "description": "Decimal digits, inclusive."},
        },
        "required": ["start", "end"],
    },
}


def schema_of(kind: Any, *, is_open: bool = True) -> dict[str, Any]:
    """Return the schema of a type. If ``is_open``, objects may have further fields, as a later release may add them.

    Raises:
        TypeError: If the type, or a part of it, has no plain form.
    """
    maker = _Maker(is_open=is_open)
    found = maker.of(kind)
    return {**found, "$defs": maker.definitions} if maker.definitions else found


class _Maker:
    def __init__(self, *, is_open: bool) -> None:
        self._is_open = is_open
        self.definitions: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        if kind in _SIMPLE:
            return dict(_SIMPLE[kind])
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return self._any_of(arguments)
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin is not None and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if origin is not None and issubclass(origin, Collection):
            return {"type": "array", "items": self.of(arguments[0])}
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [one.value for one in kind]}
        if is_dataclass(kind) or is_typeddict(kind):
            return self._named(kind)
        raise TypeError(f"no schema is known for {kind!r}")

    def _any_of(self, kinds: tuple[Any, ...]) -> dict[str, Any]:
        found = [self.of(one) for one in kinds]
        if all(set(one) == {"type"} for one in found):
            return {"type": [one["type"] for one in found]}
        return {"anyOf": found}

    def _named(self, kind: Any) -> dict[str, Any]:
        name = kind.__name__.lstrip("_")
        if name not in self.definitions:
            self.definitions[name] = {}  # for a recursive type
            self.definitions[name] = self._object(kind)
        return {"$ref": f"#/$defs/{name}"}

    def _object(self, kind: Any) -> dict[str, Any]:
        hints = get_type_hints(kind)
        required = (
            [field.name for field in fields(kind) if field.repr]
            if is_dataclass(kind)
            else [name for name in hints if name in kind.__required_keys__]
        )
        names = required if is_dataclass(kind) else list(hints)
        title, texts = _texts(kind)
        properties = {}
        for name in names:
            properties[name] = self.of(hints[name])
            if name in texts:
                properties[name] = {**properties[name], "description": texts[name]}
        found: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
        if title:
            found["description"] = title
        if not self._is_open:
            found["additionalProperties"] = False
        return found


def _texts(kind: Any) -> tuple[str, dict[str, str]]:
    """Return the first line of a docstring, and its descriptions of the ``Attributes``."""
    lines = (inspect.getdoc(kind) or "").splitlines()
    if not lines:
        return "", {}
    texts: dict[str, str] = {}
    name = None
    begun = False
    for line in lines[1:]:
        if line == "Attributes:":
            begun = True
        elif begun and (found := re.match(r" {4}(\w+): (.*)", line)):
            name = found[1]
            texts[name] = found[2]
        elif begun and name is not None and line.startswith("        "):
            texts[name] += f" {line.strip()}"
        elif line.strip():
            begun, name = False, None
    return lines[0], {name: text.replace("``", "`") for name, text in texts.items()}
