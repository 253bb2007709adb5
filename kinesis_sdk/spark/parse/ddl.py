"""Columns in SQL notation, ``id BIGINT, at TIMESTAMP, tags ARRAY<STRING>``, from and to the JSON form of Spark's schema.

Spark can parse them only in its JVM, and a data source in Python has no JVM when its options are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kinesis_sdk.common.errors import ConfigError

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|[^\W\d]\w*|\d+|[<>(),:])\s*")
_NAMES = {
    "tinyint": "byte",
    "byte": "byte",
    "smallint": "short",
    "short": "short",
    "int": "integer",
    "integer": "integer",
    "bigint": "long",
    "long": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
_SQL = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}
_MAX_CHARACTERS = 1_000_000
_MAX_LEVELS = 32
_ACCEPTED = "columns with types, such as 'id BIGINT, at TIMESTAMP, tags ARRAY<STRING>'"
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def schema_of(text: str, option: str) -> dict[str, Any]:
    """Return the JSON form of the schema of columns.

    Raises:
        ConfigError: If the text is not a list of columns with types.
    """
    reader = _Reader(text, option)
    fields = reader.fields(end=None, levels=_MAX_LEVELS)
    return {"type": "struct", "fields": fields}


def ddl_of(schema: Mapping[str, Any]) -> str:
    """Return the columns of a schema's JSON form as text."""
    return ", ".join(f"{_quoted(field['name'])} {_type_text(field['type'])}" for field in schema["fields"])


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _type_text(kind: Any) -> str:
    if isinstance(kind, str):
        return _SQL.get(kind, kind.upper())
    if kind["type"] == "array":
        return f"ARRAY<{_type_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"MAP<STRING, {_type_text(kind['valueType'])}>"
    return (
        "STRUCT<"
        + ", ".join(f"{_quoted(field['name'])}: {_type_text(field['type'])}" for field in kind["fields"])
        + ">"
    )


class _Reader:
    """Reads tokens from the left."""

    def __init__(self, text: str, option: str) -> None:
        self._text, self._option = text, option
        self._tokens: list[str] = []
        at = 0
        while at < len(text) and len(text) <= _MAX_CHARACTERS:
            found = _TOKEN.match(text, at)
            if found is None:
                break
            self._tokens.append(found[1])
            at = found.end()
        if at < len(text) or not self._tokens:
            raise self._error()
        self._tokens.reverse()

    def fields(self, *, end: str | None, levels: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            name = self._next()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            elif not (name[0].isalpha() or name[0] == "_"):
                raise self._error()
            if self._peek() == ":":
                self._next()
            found.append({"name": name, "type": self._type(levels), "nullable": True, "metadata": {}})
            if self._peek() == end:
                if end is not None:
                    self._next()
                return found
            self._take(",")

    def _type(self, levels: int) -> Any:
        if not levels:
            raise self._error()
        word = self._next().lower()
        if word in _NAMES:
            return _NAMES[word]
        if word in {"decimal", "dec", "numeric"}:
            return self._decimal()
        if word == "array":
            self._take("<")
            inner = self._type(levels - 1)
            self._take(">")
            return {"type": "array", "elementType": inner, "containsNull": True}
        if word == "map":
            self._take("<")
            key = self._type(levels - 1)
            self._take(",")
            value = self._type(levels - 1)
            self._take(">")
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        if word == "struct":
            self._take("<")
            return {"type": "struct", "fields": self.fields(end=">", levels=levels - 1)}
        raise self._error()

    def _decimal(self) -> str:
        digits = ["10", "0"]
        if self._peek() == "(":
            self._next()
            digits = [self._next(), "0"]
            if self._peek() == ",":
                self._next()
                digits[1] = self._next()
            self._take(")")
        if not all(one.isdecimal() for one in digits) or not int(digits[1]) <= int(digits[0]) <= 38:
            raise self._error()
        return f"decimal({digits[0]},{digits[1]})"

    def _peek(self) -> str | None:
        return self._tokens[-1] if self._tokens else None

    def _next(self) -> str:
        if not self._tokens:
            raise self._error()
        return self._tokens.pop()

    def _take(self, wanted: str) -> None:
        if self._next() != wanted:
            raise self._error()

    def _error(self) -> ConfigError:
        return ConfigError(self._option, self._text, _ACCEPTED)
