"""Avro's rules of schema resolution: whether data of one schema can be read with another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


class AvroSchema:
    """A parsed Avro schema; `definition` is JSON text. Raises ValueError if the schema is not an Avro schema."""

    def __init__(self, definition: str) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}
        self.root: Any = self._parse(json.loads(definition), "")

    def _parse(self, schema: Any, namespace: str) -> Any:
        if isinstance(schema, str):
            return self._reference(schema, namespace)
        if isinstance(schema, list):
            return [self._parse(branch, namespace) for branch in schema]
        if not isinstance(schema, dict) or "type" not in schema:
            raise ValueError("an Avro schema is a name, a list or an object with a type")
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._parse_named(schema, kind, namespace)
        if kind == "array":
            return {"type": "array", "items": self._parse(schema["items"], namespace)}
        if kind == "map":
            return {"type": "map", "values": self._parse(schema["values"], namespace)}
        return self._parse(kind, namespace)

    def _reference(self, name: str, namespace: str) -> Any:
        if name in _PRIMITIVES:
            return name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full not in self._named:
            raise ValueError(f"there is no type {name}")
        return {"type": "reference", "name": full}

    def _parse_named(self, schema: Mapping[str, Any], kind: str, namespace: str) -> Any:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise ValueError(f"the {kind} has no name")
        space = name.rpartition(".")[0] or schema.get("namespace", namespace)
        full = name if "." in name or not space else f"{space}.{name}"
        parsed: dict[str, Any] = {"type": "record" if kind == "error" else kind, "name": full}
        aliases = schema.get("aliases") or []
        parsed["aliases"] = {each if "." in each or not space else f"{space}.{each}" for each in aliases}
        self._named[full] = parsed
        if kind == "enum":
            parsed["symbols"] = list(schema["symbols"])
            parsed["default"] = schema.get("default")
        elif kind == "fixed":
            parsed["size"] = schema["size"]
        else:
            if not isinstance(schema.get("fields"), list):
                raise ValueError(f"the record {full} has no fields")
            parsed["fields"] = [
                {
                    "name": field["name"],
                    "aliases": set(field.get("aliases") or []),
                    "type": self._parse(field["type"], space),
                    "has_default": "default" in field,
                }
                for field in schema["fields"]
            ]
        return parsed

    def can_read(self, writer: AvroSchema) -> bool:
        """Return whether data of another schema can be read with this schema."""
        return _Comparison(self, writer).resolves(self.root, writer.root)

    def resolved(self, schema: Any) -> Any:
        """Return a schema with a reference replaced by its definition."""
        if isinstance(schema, dict) and schema["type"] == "reference":
            return self._named[schema["name"]]
        return schema


class _Comparison:
    def __init__(self, reader: AvroSchema, writer: AvroSchema) -> None:
        self._reader = reader
        self._writer = writer
        self._assumed: set[tuple[str, str]] = set()

    def resolves(self, reader: Any, writer: Any) -> bool:
        reader, writer = self._reader.resolved(reader), self._writer.resolved(writer)
        if isinstance(writer, list):
            return all(self.resolves(reader, branch) for branch in writer)
        if isinstance(reader, list):
            return any(self.resolves(branch, writer) for branch in reader)
        if isinstance(reader, str) or isinstance(writer, str):
            return reader == writer or (
                isinstance(reader, str) and isinstance(writer, str) and reader in _PROMOTIONS.get(writer, ())
            )
        if reader["type"] != writer["type"]:
            return False
        if reader["type"] == "array":
            return self.resolves(reader["items"], writer["items"])
        if reader["type"] == "map":
            return self.resolves(reader["values"], writer["values"])
        return self._named(reader, writer)

    def _named(self, reader: Mapping[str, Any], writer: Mapping[str, Any]) -> bool:
        if reader["name"] != writer["name"] and writer["name"] not in reader["aliases"]:
            return False
        pair = (reader["name"], writer["name"])
        if pair in self._assumed:  # a type inside itself
            return True
        self._assumed.add(pair)
        if reader["type"] == "fixed":
            return bool(reader["size"] == writer["size"])
        if reader["type"] == "enum":
            return reader["default"] is not None or set(writer["symbols"]) <= set(reader["symbols"])
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = [name for name in (field["name"], *field["aliases"]) if name in written]
            if names:
                if not self.resolves(field["type"], written[names[0]]["type"]):
                    return False
            elif not field["has_default"]:
                return False
        return True
