"""Payloads of a Glue Schema Registry as JSON, for people who inspect a stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, time
from typing import Any

from kinesis_sdk.common.errors import AwsError, SchemaRegistryError
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.serialization import GlueSchemaRegistry


class SchemaView:
    """Decodes payloads that have the header of a registry.

    Avro and JSON become JSON text; Protobuf loses only its header, because its classes are unknown here. A payload without a header, or one
    that cannot be decoded, is unchanged. ``notice`` is called with a sentence, once for each schema version that cannot be decoded.
    """

    def __init__(self, client: Any, notice: Callable[[str], None]) -> None:
        self._registry = GlueSchemaRegistry(client=client)
        self._deserializer = self._registry.deserializer()
        self._notice = notice
        self._noticed: set[bytes] = set()

    def shown(self, stream: str, record: UserRecord) -> UserRecord:
        """Return the record with the payload to show.

        Raises:
            AwsError: If the registry cannot be called.
            ImportError: If fastavro is missing.
        """
        data = record.data
        try:
            schema = self._registry.schema_of(data)
            if schema is None:
                return record
            if schema.data_format == "PROTOBUF":
                return record._replace(data=self._registry.payload_of(data))
            value = self._deserializer.deserialize(stream, data)
            return record._replace(data=json.dumps(value, ensure_ascii=False, default=_plain).encode())
        except (AwsError, ImportError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a library raises for a damaged payload; it is shown as it is
            version = data[2:18]
            if version not in self._noticed:
                self._noticed.add(version)
                problem = str(error) if isinstance(error, SchemaRegistryError) else type(error).__name__
                self._notice(f"record {record.sequence_number} is shown as it is: {problem}")
            return record


def _plain(value: Any) -> str:
    """Return a value that JSON cannot represent as text."""
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, (date, time)) else str(value)
