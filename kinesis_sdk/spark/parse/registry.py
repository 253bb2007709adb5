"""Headers of the AWS Glue Schema Registry in front of values."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import SchemaRegistryError
from kinesis_sdk.serialization import GlueSchemaRegistry, Schema, glue_wire
from kinesis_sdk.spark.connection import ConnectionSettings
from kinesis_sdk.spark.parse.fitting import MalformedError

if TYPE_CHECKING:
    import pyarrow as pa

    from kinesis_sdk.spark.parse.rows import Parser

MAX_UNKNOWN = 1_000
"""Maximum number of missing schema versions that a task requests. Each of them costs a call, and any program that may put records can name
missing versions."""

_MAX_KNOWN = 1_000
_MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
_HEADER = 18


class Frames:
    """Reads the headers of the payloads of one task.

    Attributes:
        registry: Client with its caches.
    """

    def __init__(self, registry: GlueSchemaRegistry) -> None:
        self.registry: GlueSchemaRegistry = registry
        self._known: dict[bytes, Schema] = {}
        self._unknown: set[bytes] = set()

    def open(self, payload: bytes, data_format: str) -> tuple[str, bytes]:
        """Return the definition of a payload's schema version, and the payload without header, decompressed.

        Raises:
            MalformedError: If the payload has no header or is damaged, or if its schema version does not exist or has another format.
            AwsError: If the version could not be loaded.
        """
        header = payload[:_HEADER]
        schema = self._known.get(header) or self._look_up(header, payload)
        if schema.data_format != data_format:
            raise MalformedError(f"a schema version of the format {schema.data_format}")
        try:
            return schema.definition, self.registry.payload_of(payload)
        except SchemaRegistryError as error:
            raise MalformedError(str(error)) from None

    def _look_up(self, header: bytes, payload: bytes) -> Schema:
        if header in self._unknown:
            raise MalformedError("a schema version that does not exist")
        if len(self._unknown) >= MAX_UNKNOWN:
            raise MalformedError(
                f"a schema version that was not looked up, after {MAX_UNKNOWN:,} that do not exist"
            )
        try:
            schema = self.registry.schema_of(payload)
        except SchemaRegistryError as error:
            if error.retryable:
                raise
            self._unknown.add(header)
            raise MalformedError(str(error)) from None
        if schema is None:
            raise MalformedError("no header of a Glue Schema Registry")
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[header] = schema
        return schema


def opened_length(payload: bytes) -> int:
    """Return the number of bytes of a payload without its header, decompressed; for a damaged payload, the number of its own bytes.

    A compressed payload may be a thousand times as long after decompression. It is decompressed again when it is parsed, because all
    decompressed payloads of a batch would not fit into memory.
    """
    if not glue_wire.has_header(payload):
        return len(payload)
    try:
        return len(glue_wire.payload_of(payload, _MAX_PAYLOAD_BYTES))
    except SchemaRegistryError:
        return len(payload)


class FramedParser:
    """A parser for payloads with headers that does not need the schema.

    Args:
        parser: Parser of the payloads without headers.
        frames: Reads the headers.
        data_format: The registry's name of the format.
    """

    def __init__(self, parser: Parser, frames: Frames, data_format: str) -> None:
        self._parser = parser
        self._frames = frames
        self._data_format = data_format

    def columns(self, payloads: pa.Array) -> list[pa.Array] | None:
        """Return the columns of payloads; None if a payload may need `row`."""
        import pyarrow as pa

        try:
            opened = [self._frames.open(one, self._data_format)[1] for one in payloads.to_pylist()]
        except MalformedError:
            return None
        return self._parser.columns(pa.array(opened, pa.binary()))

    def row(self, payload: bytes) -> tuple[Sequence[Any] | None, str | None]:
        """Return the values of the fields in the form that Arrow accepts, and the problem of the payload; either may be None."""
        try:
            return self._parser.row(self._frames.open(payload, self._data_format)[1])
        except MalformedError as error:
            return None, str(error)


_lock = threading.Lock()
_registries: dict[tuple[int, ConnectionSettings], GlueSchemaRegistry] = {}


def shared_registry(connection: ConnectionSettings) -> GlueSchemaRegistry:
    """Return the registry client of this process for these settings. Its caches outlive each task.

    Raises:
        AwsConfigError: If there is no region, the profile does not exist, or the endpoint is invalid.
    """
    slot = (os.getpid(), connection)
    with _lock:
        registry = _registries.get(slot)
        if registry is None:
            registry = _registries[slot] = GlueSchemaRegistry(
                session=connection.session(),
                region_name=connection.region_name,
                endpoint_url=connection.endpoint_url,
                max_payload_bytes=_MAX_PAYLOAD_BYTES,
            )
        return registry
