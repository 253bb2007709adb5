"""The columns of a user's schema: metadata of the record, the text of malformed values, and fields of the value.

Types are read from the JSON form of Spark's schema (``StructType.jsonValue``), so that this module does not need pyspark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

METADATA = {
    "_shard_id": ("shardId", "string"),
    "_sequence_number": ("sequenceNumber", "string"),
    "_sub_sequence_number": ("subSequenceNumber", "long"),
    "_arrival": ("approximateArrivalTimestamp", "timestamp"),
    "_partition_key": ("partitionKey", "string"),
    "_explicit_hash_key": ("explicitHashKey", "string"),
    "_stream": ("streamName", "string"),
    "_headers": ("headers", "map<string,binary>"),
    "_data": ("data", "binary"),
}
"""Columns that describe the record, in addition to the fields of its value: the column of the source, and the Spark type."""

NUMBERS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
"""Bits of Spark's whole numbers."""

_PLAIN = {*NUMBERS, "float", "double", "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz"}
_SQL = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_ACCEPTED = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal, string, binary, date, timestamp, timestamp_ntz, or an array, "
    "a map with text as keys, or a struct of these"
)
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_MAX_NESTING = 32
"""Maximum levels of a schema."""

_WIDTH = 16
"""Maximum bytes of a value in Arrow, without the characters of text."""


@dataclass(frozen=True)
class Kind:
    """A type.

    Attributes:
        name: Spark's name: ``integer``, ``decimal``, ``array``, ``map``, ``struct``, …
        fields: Fields of a struct, by name.
        inner: Type of the elements of an array, or of the values of a map.
        precision: Digits of a decimal.
        scale: Digits of a decimal after the point.
    """

    name: str
    fields: Mapping[str, Kind] | None = None
    inner: Kind | None = None
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        """Return the type as SQL writes it."""
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.fields is not None:
            return f"struct<{','.join(f'{name}:{kind}' for name, kind in self.fields.items())}>"
        if self.inner is not None:
            return f"{self.name}<{'string,' if self.name == 'map' else ''}{self.inner}>"
        return _SQL.get(self.name, self.name)

    @property
    def json_form(self) -> str:
        """Spark's JSON form of a type without parts."""
        return str(self) if self.name == "decimal" else self.name

    @property
    def kinds(self) -> set[str]:
        """Names of this type and of all types in it."""
        inner = [*(self.fields or {}).values(), *([self.inner] if self.inner else [])]
        return {self.name}.union(*(kind.kinds for kind in inner))

    @property
    def width(self) -> int:
        """Maximum bytes of a value in Arrow, without the characters of text and the elements of arrays and maps."""
        return _WIDTH + sum(kind.width for kind in (self.fields or {}).values())

    @property
    def element_width(self) -> int:
        """Bytes of an element of the widest array or map in this type; 0 if there is none."""
        if self.inner is not None:
            return max(_WIDTH + self.inner.width, self.inner.element_width)
        return max((kind.element_width for kind in (self.fields or {}).values()), default=0)

    def arrow(self) -> pa.DataType:
        """Return the type of Arrow that Spark expects."""
        import pyarrow as pa

        if self.fields is not None:
            return pa.struct([(name, kind.arrow()) for name, kind in self.fields.items()])
        if self.inner is not None:
            inner = self.inner.arrow()
            return pa.map_(pa.string(), inner) if self.name == "map" else pa.list_(pa.field("element", inner))
        if self.name == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.name in NUMBERS:
            return getattr(pa, f"int{NUMBERS[self.name]}")()
        return {
            "float": pa.float32(),
            "double": pa.float64(),
            "boolean": pa.bool_(),
            "string": pa.string(),
            "binary": pa.binary(),
            "date": pa.date32(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "timestamp_ntz": pa.timestamp("us"),
        }[self.name]


@dataclass(frozen=True)
class Columns:
    """A schema, divided.

    Attributes:
        names: All columns, in order.
        fields: Fields of the value, by name.
        corrupt: Name of the column for malformed values; None without such a column.
        corrupt_kind: Type of this column: ``string`` for text formats, ``binary`` for other formats.
    """

    names: tuple[str, ...]
    fields: Mapping[str, Kind]
    corrupt: str | None = None
    corrupt_kind: str = "string"

    @classmethod
    def of(cls, schema: Mapping[str, Any], corrupt_name: str, corrupt_kind: str = "string") -> Columns:
        """Read the JSON form of a schema.

        Raises:
            ConfigError: If a column has a type that cannot be read, a metadata column has a wrong type, or no column is a field of the
                value.
        """
        fields: dict[str, Kind] = {}
        corrupt = None
        names: list[str] = []
        known = {_plain(name): name for name in METADATA}
        for field in schema["fields"]:
            name, given = field["name"], field["type"]
            if name in names:
                raise ConfigError(f"column {name}", _shown(given), "different names of columns")
            names.append(name)
            if name in METADATA:
                kind = METADATA[name][1]
                if _shown(given) != kind:
                    raise ConfigError(f"column {name}", _shown(given), _SQL.get(kind, kind))
            elif name == corrupt_name:
                if given != corrupt_kind:
                    raise ConfigError(f"column {name}", _shown(given), corrupt_kind)
                corrupt = name
            elif name.startswith("_") and _plain(name) in known:
                raise ConfigError("schema", name, f"{known[_plain(name)]}, or another name")
            else:
                fields[name] = _kind(name, given, _MAX_NESTING)
            if not field.get("nullable", True):
                raise ConfigError(
                    f"column {name}", "NOT NULL", "a nullable column: a record may lack any field"
                )
        if not fields:
            raise ConfigError("schema", ", ".join(names), "at least one column for a field of the value")
        return cls(tuple(names), fields, corrupt, corrupt_kind)

    @property
    def raw(self) -> tuple[str, ...]:
        """Columns of the source from which the columns of the schema are created."""
        described = [METADATA[name][0] for name in self.names if name in METADATA]
        return tuple(dict.fromkeys(["data", *described]))

    def schema(self) -> pa.Schema:
        """Return the schema that Spark expects of each batch."""
        import pyarrow as pa

        types = {
            "string": pa.string(),
            "long": pa.int64(),
            "binary": pa.binary(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "map<string,binary>": pa.map_(pa.string(), pa.binary()),
        }
        return pa.schema(
            [
                (name, self.fields[name].arrow() if name in self.fields else types[self._metadata_kind(name)])
                for name in self.names
            ]
        )

    def _metadata_kind(self, name: str) -> str:
        return METADATA[name][1] if name in METADATA else self.corrupt_kind


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _shown(given: Any) -> str:
    """Return a type of the JSON form as text."""
    if isinstance(given, str):
        return given
    if given.get("type") == "map":
        return f"map<{_shown(given['keyType'])},{_shown(given['valueType'])}>"
    return str(given.get("type", "?"))


def _kind(path: str, given: Any, levels: int) -> Kind:
    if levels == 0:
        raise ConfigError(f"column {path}", "…", f"at most {_MAX_NESTING} levels")
    if isinstance(given, str):
        if given in _PLAIN:
            return Kind(given)
        digits = _DECIMAL.fullmatch("decimal(10,0)" if given == "decimal" else given)
        if digits is None:
            raise ConfigError(f"column {path}", given, _ACCEPTED)
        return Kind("decimal", precision=int(digits[1]), scale=int(digits[2]))
    name = given.get("type")
    if name == "struct":
        inner: Sequence[Mapping[str, Any]] = given["fields"]
        fields = {one["name"]: _kind(f"{path}.{one['name']}", one["type"], levels - 1) for one in inner}
        if len(fields) < len(inner) or not all(one.get("nullable", True) for one in inner):
            raise ConfigError(f"column {path}", "struct", "different names of nullable fields")
        return Kind("struct", fields=fields)
    if name == "array" and given.get("containsNull", True):
        return Kind("array", inner=_kind(f"{path}[]", given["elementType"], levels - 1))
    if name == "map" and given["keyType"] == "string" and given.get("valueContainsNull", True):
        return Kind("map", inner=_kind(f"{path}[]", given["valueType"], levels - 1))
    raise ConfigError(f"column {path}", _shown(given), _ACCEPTED)
