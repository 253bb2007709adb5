"""The AWS Glue Schema Registry: payloads name the schema version with which they were written.

The wire format and the calls that find a schema version are the same as in AWS's serializers for Java
(``software.amazon.glue:schema-registry-serde``), which the KPL and the KCL use as well: GetSchemaByDefinition for a schema that is
registered; RegisterSchemaVersion or CreateSchema for a new schema, with ``auto_registration``; GetSchemaVersion for reading.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from kinesis_sdk.common.aws import call_with_retries, make_client, translate_errors
from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import (
    AwsError,
    ConfigError,
    SchemaPendingError,
    SchemaRegistryError,
    TransientAwsError,
)
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.serialization import Deserializer
from kinesis_sdk.common.validation import check_bool, check_choice, check_int, check_seconds, check_text
from kinesis_sdk.serialization import glue_wire
from kinesis_sdk.serialization.avro_codec import AvroCodec, avro_reader, name_of, parse_avro
from kinesis_sdk.serialization.json_codec import JsonCodec
from kinesis_sdk.serialization.proto_names import message_names_of_text
from kinesis_sdk.serialization.protobuf_codec import ProtobufCodec
from kinesis_sdk.serialization.schema_cache import SchemaCache

if TYPE_CHECKING:
    import boto3

_LOGGER = FieldLogger(logging.getLogger(__name__))

Compatibility = Literal[
    "NONE", "DISABLED", "BACKWARD", "BACKWARD_ALL", "FORWARD", "FORWARD_ALL", "FULL", "FULL_ALL"
]
_COMPATIBILITIES = (
    "NONE",
    "DISABLED",
    "BACKWARD",
    "BACKWARD_ALL",
    "FORWARD",
    "FORWARD_ALL",
    "FULL",
    "FULL_ALL",
)
SchemaCodec = JsonCodec | AvroCodec | ProtobufCodec
"""Codecs that have a schema."""

_TRANSPORT = "x-amz-meta-transport"
_POLLS = Backoff(0.2, 3.0)
_MAX_ATTEMPTS = 10


class GlueClient(Protocol):
    """The part of boto3's Glue client that the SDK calls. Any object of this shape works."""

    def get_schema_by_definition(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """GetSchemaByDefinition."""
        ...

    def get_schema_version(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """GetSchemaVersion."""
        ...

    def register_schema_version(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """RegisterSchemaVersion."""
        ...

    def create_schema(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """CreateSchema."""
        ...

    def put_schema_version_metadata(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """PutSchemaVersionMetadata."""
        ...


class Schema(NamedTuple):
    """A schema version in the registry.

    Attributes:
        definition: Text of the schema.
        data_format: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        name: Name of the schema.
        version_id: Id of the version, a UUID as text.
    """

    definition: str
    data_format: str
    name: str
    version_id: str


class Registration(NamedTuple):
    """A schema version that a writer uses."""

    definition: str
    data_format: str
    name: str


class GlueSchemaRegistry:
    """Client of the Glue Schema Registry with its caches, shared by serializers and deserializers. Thread-safe.

    The defaults are the same as in AWS's serializers for Java.

    Args:
        registry_name: Registry for schemas that are written, 1 to 255 characters. Readers find a schema version only by its id, in any
            registry of the account and region.
        auto_registration: Whether to register a missing schema or version. Otherwise `put` raises `SchemaRegistryError` for the schema.
        compatibility: Compatibility of a schema that has to be created; an existing schema keeps its compatibility.
        compression: ``"zlib"`` compresses payloads. Readers recognize compressed payloads by the header.
        description: Description of a schema that has to be created, at most 2,048 characters.
        tags: Tags of a schema that has to be created.
        metadata: Metadata added to each version that is registered, in addition to the name of the stream.
        cache_size: Maximum number of schema versions that are kept for writing, and for reading; at least 1.
        time_to_live: Seconds after which a schema version is requested again; at least 0.
        timeout: Maximum seconds for which a call is retried, and for which `put` waits until the compatibility of a new version is checked;
            0.1 to 600.
        max_payload_bytes: Maximum bytes of a payload after decompression; at least 1.
        client: A boto3 Glue client; None creates one.
        session: Session with credentials and region for the client.
        region_name: Region for the client.
        endpoint_url: Endpoint for the client.
        clock: Clock of the caches; replaced in tests.
        sleep: Function that waits the given seconds before another attempt; replaced in tests.
        rng: Source of jitter.

    Raises:
        ConfigError: If a value is out of its range.
        AwsConfigError: If no client can be created.
    """

    def __init__(
        self,
        *,
        registry_name: str = "default-registry",
        auto_registration: bool = False,
        compatibility: Compatibility = "BACKWARD",
        compression: Literal["none", "zlib"] = "none",
        description: str | None = None,
        tags: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        cache_size: int = 200,
        time_to_live: float = 86_400.0,
        timeout: float = 30.0,
        max_payload_bytes: int = 64 * 1024 * 1024,
        client: GlueClient | None = None,
        session: boto3.Session | None = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        check_text("registry_name", registry_name, 1, 255)
        check_bool("auto_registration", auto_registration)
        check_choice("compatibility", compatibility, _COMPATIBILITIES)
        check_choice("compression", compression, ("none", "zlib"))
        if description is not None:
            check_text("description", description, 1, 2048)
        check_int("cache_size", cache_size, 1)
        check_seconds("time_to_live", time_to_live, 0)
        check_seconds("timeout", timeout, 0.1, 600)
        check_int("max_payload_bytes", max_payload_bytes, 1)
        self.registry_name = registry_name
        self.auto_registration = auto_registration
        self.compression = compression
        self.cache_size = cache_size
        self._compatibility = compatibility
        self._description = description
        self._tags = dict(tags or {})
        self._metadata = dict(metadata or {})
        self._timeout = timeout
        self._max_payload_bytes = max_payload_bytes
        self._client: GlueClient = client or make_client(
            "glue",
            session=session,
            region_name=region_name,
            endpoint_url=endpoint_url,
            max_pool_connections=4,
        )
        self._sleep = sleep or time.sleep
        self._rng = rng or random.Random()
        self._now = (clock or SystemClock()).monotonic
        self._streams: dict[Registration, str] = {}
        self._headers: SchemaCache[Registration, bytes] = SchemaCache(
            self._find_header, size=cache_size, time_to_live=time_to_live, now=self._now
        )
        self._schemas: SchemaCache[bytes, Schema] = SchemaCache(
            self._load_schema, size=cache_size, time_to_live=time_to_live, now=self._now
        )

    def serializer(self, codec: SchemaCodec, *, schema_name: str | None = None) -> GlueSerializer:
        """Return a serializer that encodes with a codec and names the schema version in each payload.

        Args:
            codec: Format and schema of the values.
            schema_name: Name of the schema, 1 to 255 characters; None uses the name of the stream, as AWS's serializers do.

        Raises:
            ConfigError: If a `JsonCodec` has no schema, or the name is not valid.
        """
        return GlueSerializer(self, codec, schema_name)

    def deserializer(self, *codecs: SchemaCodec, fallback: Deserializer | None = None) -> GlueDeserializer:
        """Return a deserializer that decodes each payload with the schema version that it names.

        Args:
            codecs: Codecs of the expected payloads. Without an `AvroCodec`, Avro values are read with the schema with which they were
                written; otherwise, each value is resolved to the schema with its record's name. Protobuf needs a `ProtobufCodec` for each
                message type. A `JsonCodec` chooses the library.
            fallback: Decodes payloads without a header, for example from the time before the registry; None raises
                `SchemaRegistryError` for them.
        """
        return GlueDeserializer(self, codecs, fallback)

    def header_for(self, key: Registration, stream: str) -> bytes:
        """Return the header of payloads that are written with a schema; register it if necessary.

        Raises:
            SchemaRegistryError: If the schema is not registered, or not compatible.
            AwsError: If a call failed.
        """
        if self.auto_registration and key not in self._streams:
            self._streams[key] = stream
        return self._headers.get(key)

    def knows_header_for(self, key: Registration) -> bool:
        """Return whether `header_for` returns without a call."""
        return self._headers.is_fresh(key)

    def schema_of(self, data: bytes) -> Schema | None:
        """Return the schema version that a payload names; None for a payload without a header.

        Raises:
            SchemaRegistryError: If this version does not exist.
            AwsError: If the version could not be loaded.
        """
        return self._schemas.get(glue_wire.version_id_of(data)) if glue_wire.has_header(data) else None

    def payload_of(self, data: bytes) -> bytes:
        """Return a payload without its header, decompressed, as the KCL passes it to record processors.

        Args:
            data: A payload; a payload without a header is returned unchanged.

        Raises:
            SchemaRegistryError: If the payload is damaged, or larger than ``max_payload_bytes``.
        """
        return glue_wire.payload_of(data, self._max_payload_bytes) if glue_wire.has_header(data) else data

    # ------------------------------------------------------------------ reading

    def _load_schema(self, version_id: bytes, attempts: int | None) -> Schema:
        text = str(uuid.UUID(bytes=version_id))
        try:
            response = self._call(
                "GetSchemaVersion", self._client.get_schema_version, attempts, SchemaVersionId=text
            )
        except AwsError as error:
            if error.code == _NOT_FOUND:
                raise SchemaRegistryError(
                    f"there is no schema version {text} in this account and region"
                ) from error
            raise
        name = str(response.get("SchemaArn", "")).rpartition("/")[2]
        return Schema(response["SchemaDefinition"], response["DataFormat"], name, text)

    # ------------------------------------------------------------------ writing

    def _find_header(self, key: Registration, attempts: int | None) -> bytes:
        schema_id = {"SchemaName": key.name, "RegistryName": self.registry_name}
        try:
            found = self._call(
                "GetSchemaByDefinition",
                self._client.get_schema_by_definition,
                attempts,
                SchemaId=schema_id,
                SchemaDefinition=key.definition,
            )
        except AwsError as error:
            if error.code != _NOT_FOUND:
                raise
            if not self.auto_registration:
                raise SchemaRegistryError(
                    f"schema {key.name} of registry {self.registry_name} does not exist or lacks this version, and "
                    "auto_registration is off"
                ) from error
            found = self._register(key, schema_id)
        version_id = self._available(key, found["SchemaVersionId"], found.get("Status"))
        compressed = self.compression == "zlib"
        return glue_wire.header(uuid.UUID(version_id).bytes, compressed=compressed)

    def _register(self, key: Registration, schema_id: Mapping[str, str]) -> Mapping[str, Any]:
        """Register a version; create its schema if necessary."""

        def register() -> Mapping[str, Any]:
            return self._call(
                "RegisterSchemaVersion",
                self._client.register_schema_version,
                None,
                SchemaId=schema_id,
                SchemaDefinition=key.definition,
            )

        try:
            registered = register()
        except AwsError as error:
            if error.code != _NOT_FOUND:
                raise
            try:
                created = self._create(key)
                registered = {
                    "SchemaVersionId": created["SchemaVersionId"],
                    "Status": created.get("SchemaVersionStatus"),
                }
            except AwsError as refused:
                if refused.code == _NOT_FOUND:
                    raise SchemaRegistryError(f"registry {self.registry_name} does not exist") from refused
                if refused.code != "AlreadyExistsException":
                    raise
                registered = register()  # another producer was faster
        _LOGGER.info(
            "registered schema %s in registry %s, version id %s",
            key.name,
            self.registry_name,
            registered["SchemaVersionId"],
        )
        self._put_metadata(registered["SchemaVersionId"], key)
        return registered

    def _create(self, key: Registration) -> Mapping[str, Any]:
        optional: dict[str, Any] = {}
        if self._description is not None:
            optional["Description"] = self._description
        if self._tags:
            optional["Tags"] = self._tags
        return self._call(
            "CreateSchema",
            self._client.create_schema,
            None,
            RegistryId={"RegistryName": self.registry_name},
            SchemaName=key.name,
            DataFormat=key.data_format,
            Compatibility=self._compatibility,
            SchemaDefinition=key.definition,
            **optional,
        )

    def _put_metadata(self, version_id: str, key: Registration) -> None:
        """Add metadata to a new version. The metadata is information for people, so a failure is only logged."""
        metadata = {**self._metadata}
        if key in self._streams:
            metadata[_TRANSPORT] = self._streams[key]
        for name, value in metadata.items():
            try:
                self._call(
                    "PutSchemaVersionMetadata",
                    self._client.put_schema_version_metadata,
                    None,
                    SchemaVersionId=version_id,
                    MetadataKeyValue={"MetadataKey": name, "MetadataValue": value},
                )
            except AwsError as error:
                if error.code != "AlreadyExistsException":
                    _LOGGER.warning(
                        "schema version %s: metadata %s was not added: %s", version_id, name, error
                    )

    def _available(self, key: Registration, version_id: str, status: str | None) -> str:
        """Return the id of a version once the registry has accepted it.

        Raises:
            SchemaRegistryError: If the registry rejects the version.
            SchemaPendingError: If the registry has not checked the version within the timeout.
        """
        ends = self._now() + self._timeout
        attempt = 0
        while status == "PENDING":
            left = ends - self._now()
            if left <= 0:
                raise SchemaPendingError(
                    f"schema {key.name}: the registry has not checked version {version_id} within {self._timeout:g} s"
                )
            attempt += 1
            self._sleep(min(left, _POLLS.pause(attempt, self._rng)))
            response = self._call(
                "GetSchemaVersion", self._client.get_schema_version, None, SchemaVersionId=version_id
            )
            status = response.get("Status")
        if status != "AVAILABLE":
            raise SchemaRegistryError(
                f"schema {key.name}: version {version_id} has the status {status}; "
                "FAILURE means that it is not compatible with the earlier versions"
            )
        return version_id

    def _call(
        self,
        operation: str,
        method: Callable[..., Mapping[str, Any]],
        attempts: int | None,
        **request: Any,
    ) -> Mapping[str, Any]:
        def attempt() -> Mapping[str, Any]:
            try:
                with translate_errors(operation, self._client):
                    return method(**request)
            except AwsError as error:
                if error.code != "ConcurrentModificationException":
                    raise
                # Another producer is registering a version of the schema.
                raise TransientAwsError(
                    error.message,
                    operation=operation,
                    code=error.code,
                    endpoint=error.endpoint,
                    status=error.status,
                    request_id=error.request_id,
                ) from error

        return call_with_retries(
            attempt,
            operation=None,
            timeout=self._timeout,
            attempts=attempts or _MAX_ATTEMPTS,
            sleep=self._sleep,
        )


_NOT_FOUND = "EntityNotFoundException"


class GlueSerializer:
    """Serializer with the registry's header; made by `GlueSchemaRegistry.serializer`."""

    def __init__(self, registry: GlueSchemaRegistry, codec: SchemaCodec, schema_name: str | None) -> None:
        if codec.definition is None:
            expected = (
                "a ProtobufCodec with `definition`, the text of its .proto file"
                if isinstance(codec, ProtobufCodec)
                else "a JsonCodec with a schema"
            )
            raise ConfigError("codec", codec, expected)
        if schema_name is not None:
            check_text("schema_name", schema_name, 1, 255)
        self._registry = registry
        self._codec = codec
        self._schema_name = schema_name
        self._definition = codec.definition
        self._keys: dict[str, Registration] = {}
        self._compress = registry.compression == "zlib"
        is_indexed = isinstance(codec, ProtobufCodec) and codec.message_index
        self._index = glue_wire.encode_index(codec.index) if is_indexed else b""  # type: ignore[union-attr]

    def would_block(self, stream: str, value: Any, /) -> bool:  # noqa: ARG002
        """Return whether ``serialize`` would call the registry."""
        return not self._registry.knows_header_for(self._key(stream))

    def serialize(self, stream: str, value: Any, /) -> bytes:
        """Return the payload of a value; register its schema if necessary.

        Raises:
            SchemaRegistryError: If the schema is not registered, or not compatible.
            AwsError: If a call to the registry failed.
            Exception: If the codec cannot encode the value; its error is raised unchanged.
        """
        # Before the registration: a value that cannot be encoded must not register a schema.
        payload = self._index + self._codec.serialize(stream, value)
        header = self._registry.header_for(self._key(stream), stream)
        return header + (zlib.compress(payload) if self._compress else payload)

    def _key(self, stream: str) -> Registration:
        key = self._keys.get(stream)
        if key is None:
            name = self._schema_name or stream
            key = self._keys[stream] = Registration(self._definition, self._codec.data_format, name)
        return key


class GlueDeserializer:
    """Deserializer of payloads with the registry's header; made by `GlueSchemaRegistry.deserializer`."""

    def __init__(
        self, registry: GlueSchemaRegistry, codecs: tuple[SchemaCodec, ...], fallback: Deserializer | None
    ) -> None:
        self._registry = registry
        self._fallback = fallback
        self._avro = [codec for codec in codecs if isinstance(codec, AvroCodec)]
        self._protobuf = {codec.name: codec for codec in codecs if isinstance(codec, ProtobufCodec)}
        self._json = next((codec for codec in codecs if isinstance(codec, JsonCodec)), None)
        self._readers: dict[Schema, Callable[[bytes], Any]] = {}

    def deserialize(self, stream: str, data: bytes, /) -> Any:
        """Return the value of a payload; load its schema version if it is not cached.

        Raises:
            SchemaRegistryError: If the payload has no header or is damaged, or if its schema version does not exist or is not expected.
            AwsError: If the schema version could not be loaded.
            Exception: If the payload is damaged; the error of the format's library is raised unchanged.
        """
        schema = self._registry.schema_of(data)
        if schema is None:
            if self._fallback is not None:
                return self._fallback.deserialize(stream, data)
            raise SchemaRegistryError(
                f"the payload of {len(data):,} bytes does not begin with the header of a Glue Schema Registry"
            )
        reader = self._readers.get(schema)
        if reader is None:
            reader = self._reader(schema)
            if len(self._readers) >= self._registry.cache_size:
                self._readers.clear()
            self._readers[schema] = reader
        return reader(self._registry.payload_of(data))

    def _reader(self, schema: Schema) -> Callable[[bytes], Any]:
        """Return a function that decodes payloads of a schema version; raise `SchemaRegistryError` if they are not expected."""
        if schema.data_format == "AVRO":
            return self._avro_reader(schema)
        if schema.data_format == "JSON":
            codec = self._json or JsonCodec()
            return lambda payload: codec.deserialize("", payload)
        if schema.data_format == "PROTOBUF":
            return self._protobuf_reader(schema)
        raise SchemaRegistryError(f"schema {schema.name} has the unknown data format {schema.data_format}")

    def _avro_reader(self, schema: Schema) -> Callable[[bytes], Any]:
        writer = parse_avro("schema", schema.definition)
        if not self._avro:
            return avro_reader(writer)
        name = name_of(writer)
        if len(self._avro) == 1:
            fitting = self._avro
        else:
            fitting = [codec for codec in self._avro if codec.name == name]
            if not fitting:
                raise SchemaRegistryError(
                    f"schema {schema.name} defines {name}, and no AvroCodec of the deserializer has this name"
                )
        return avro_reader(writer, fitting[0].parsed)

    def _protobuf_reader(self, schema: Schema) -> Callable[[bytes], Any]:
        unindexed = [codec for codec in self._protobuf.values() if not codec.message_index]
        if len(unindexed) == 1 == len(self._protobuf):
            return lambda payload: unindexed[0].deserialize("", payload)
        try:
            names = message_names_of_text(schema.definition)
        except ValueError as error:
            raise SchemaRegistryError(f"schema {schema.name}: {error}") from error
        codecs = self._protobuf

        def read(payload: bytes) -> Any:
            index, message = glue_wire.split_index(payload)
            if index >= len(names):
                raise SchemaRegistryError(
                    f"schema {schema.name} defines {len(names)} message types, and the payload has the index {index}"
                )
            codec = codecs.get(names[index])
            if codec is None:
                raise SchemaRegistryError(
                    f"the payload is a {names[index]}, for which the deserializer has no ProtobufCodec"
                )
            return codec.deserialize("", message)

        return read
