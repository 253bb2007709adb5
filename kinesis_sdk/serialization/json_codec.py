"""JSON as UTF-8 text, with the standard library or orjson, optionally checked against a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.serialization.extras import import_library


class JsonCodec:
    """Serializer and deserializer for JSON.

    Values are encoded without spaces, as UTF-8. Numbers that are not finite are rejected by the standard library and encoded as
    ``null`` by orjson; orjson also encodes dates, UUIDs and dataclasses, and rejects integers of more than 64 bits.

    Args:
        schema: JSON Schema as text or as a mapping; None for JSON without a schema. ``serialize`` rejects a value that violates it, as
            AWS's serializer for Java does. References to other documents are not resolved. Needs the extra ``json-schema``.
        validate: Whether ``serialize`` checks values against ``schema``; without the check, the extra is not needed.
        use_orjson: Whether to use orjson (extra ``orjson``), which is several times faster.

    Attributes:
        definition: Text of the schema; None without a schema.

    Raises:
        ConfigError: If the schema is not a JSON object or boolean, or not a valid JSON Schema.
        ImportError: If a library is missing.
    """

    data_format: ClassVar[str] = "JSON"

    def __init__(
        self,
        schema: str | Mapping[str, Any] | bool | None = None,
        *,
        validate: bool = True,
        use_orjson: bool = False,
    ) -> None:
        self.definition: str | None = None
        self._check: Callable[[Any], None] | None = None
        if use_orjson:
            orjson = import_library("orjson", "orjson", "JsonCodec(use_orjson=True)")
            self._dumps: Callable[[Any], bytes] = orjson.dumps
            self._loads: Callable[[bytes], Any] = orjson.loads
        else:
            self._dumps = _dumps
            self._loads = json.loads
        if schema is None:
            return
        if isinstance(schema, str):
            self.definition = schema
            try:
                document = json.loads(schema)
            except (ValueError, RecursionError) as error:
                raise ConfigError("schema", schema, f"a JSON Schema, but it is not JSON: {error}") from error
        else:
            document = dict(schema) if isinstance(schema, Mapping) else schema
            self.definition = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
        if not isinstance(document, (dict, bool)):
            raise ConfigError("schema", schema, "a JSON object or a boolean")
        if validate:
            self._check = _validator(document)

    def serialize(self, stream: str, value: Any, /) -> bytes:  # noqa: ARG002
        """Return a value as JSON.

        Raises:
            TypeError: If a part of the value has no form in JSON.
            ValueError: If the value violates the schema, or a number is not finite; the message names the position in the value.
        """
        if self._check is not None:
            self._check(value)
        return self._dumps(value)

    def deserialize(self, stream: str, data: bytes, /) -> Any:  # noqa: ARG002
        """Return the value of JSON text.

        Raises:
            ValueError: If the text is not JSON.
        """
        return self._loads(data)


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _validator(schema: Any) -> Callable[[Any], None]:
    """Return a function that raises a ValueError for a value that violates the schema; raise `ConfigError` for a bad schema."""
    validators = import_library("jsonschema.validators", "json-schema", "A JSON Schema")
    registry = import_library("referencing", "json-schema", "A JSON Schema").Registry()
    exceptions = import_library("jsonschema.exceptions", "json-schema", "A JSON Schema")
    kind = validators.validator_for(schema, default=validators.Draft7Validator)
    try:
        kind.check_schema(schema)
    except exceptions.SchemaError as error:
        raise ConfigError("schema", schema, f"a valid JSON Schema: {error.message}") from error
    # With a registry of its own, the validator loads no documents over the network.
    validator = kind(schema, registry=registry)

    def check(value: Any) -> None:
        error = exceptions.best_match(validator.iter_errors(value))
        if error is not None:
            # Not its message, which quotes the value.
            raise ValueError(f"{error.json_path} violates {error.validator!r} of the JSON Schema")

    return check
