"""Operations of the fake Glue Schema Registry: registries, schemas, versions with PENDING, metadata.

Definitions are compared in a canonical form, as Glue does: Avro and JSON ignore spaces and the order of members,
Protobuf ignores comments and spaces. Compatibility is checked only for Avro; a version in another format always counts as compatible.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.testing.errors import AwsError
from kinesis_sdk.testing.glue.avro_compatibility import AvroSchema

_DEFAULT_REGISTRY = "default-registry"
_FORMATS = ("AVRO", "JSON", "PROTOBUF")
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
_NAME = re.compile(r"[a-zA-Z0-9-_$#.]{1,255}")
_MAX_DEFINITION = 170_000
_PROTOBUF_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|[\w.]+|\S', re.DOTALL)


def _invalid(message: str) -> AwsError:
    return AwsError("InvalidInputException", message)


@dataclass
class _Version:
    id: str
    number: int
    definition: str
    canonical: str
    status: str
    created: str
    due: float = 0.0
    """Time at which a PENDING version gets its `outcome`."""
    outcome: str = "AVAILABLE"
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass
class _Schema:
    registry: str
    name: str
    arn: str
    data_format: str
    compatibility: str
    description: str | None
    created: str
    tags: dict[str, str]
    updated: str = ""
    versions: list[_Version] = field(default_factory=list)


class FakeGlue:
    """The schema registry of Glue. Thread-safe.

    A new version of an existing schema is PENDING for `schema_delay` seconds.
    """

    target_prefix = "AWSGlue"

    def __init__(self, clock: Clock, *, region: str, account_id: str, schema_delay: float = 0.0) -> None:
        self._clock = clock
        self._arn = f"arn:aws:glue:{region}:{account_id}"
        self._delay = schema_delay
        self._lock = threading.RLock()
        self.operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "CreateRegistry": self.create_registry,
            "GetRegistry": self.get_registry,
            "ListRegistries": self.list_registries,
            "DeleteRegistry": self.delete_registry,
            "CreateSchema": self.create_schema,
            "GetSchema": self.get_schema,
            "ListSchemas": self.list_schemas,
            "UpdateSchema": self.update_schema,
            "DeleteSchema": self.delete_schema,
            "RegisterSchemaVersion": self.register_schema_version,
            "GetSchemaVersion": self.get_schema_version,
            "GetSchemaByDefinition": self.get_schema_by_definition,
            "ListSchemaVersions": self.list_schema_versions,
            "CheckSchemaVersionValidity": self.check_schema_version_validity,
            "PutSchemaVersionMetadata": self.put_schema_version_metadata,
            "QuerySchemaVersionMetadata": self.query_schema_version_metadata,
        }
        self.reset()

    def reset(self) -> None:
        """Forget all registries and schemas."""
        with self._lock:
            self._registries: dict[str, dict[str, Any]] = {}
            self._schemas: dict[tuple[str, str], _Schema] = {}
            self._versions: dict[str, tuple[_Schema, _Version]] = {}

    # ------------------------------------------------------------------ registries

    def create_registry(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateRegistry."""
        name = _name(request.get("RegistryName"), "Registry name")
        with self._lock:
            if name in self._registries:
                raise AwsError("AlreadyExistsException", f"Registry already exists. RegistryName: {name}")
            return dict(self._add_registry(name, request.get("Description"), request.get("Tags") or {}))

    def _add_registry(self, name: str, description: str | None, tags: dict[str, str]) -> dict[str, Any]:
        registry: dict[str, Any] = {
            "RegistryName": name,
            "RegistryArn": f"{self._arn}:registry/{name}",
            "Tags": dict(tags),
        }
        if description is not None:
            registry["Description"] = description
        self._registries[name] = registry
        return registry

    def _registry(self, identity: dict[str, Any] | None) -> str:
        """Return the name of an existing registry. The default registry is created on first use."""
        identity = identity or {}
        arn = identity.get("RegistryArn")
        name = str(arn).rpartition("/")[2] if arn else identity.get("RegistryName") or _DEFAULT_REGISTRY
        if name == _DEFAULT_REGISTRY and name not in self._registries:
            self._add_registry(name, None, {})
        if name not in self._registries:
            raise AwsError(
                "EntityNotFoundException",
                f"Registry is not found. RegistryName: {name}, RegistryArn: {arn or 'null'}",
            )
        return name

    def get_registry(self, request: dict[str, Any]) -> dict[str, Any]:
        """GetRegistry."""
        with self._lock:
            registry = self._registries[self._registry(request.get("RegistryId"))]
            return {
                **{name: value for name, value in registry.items() if name != "Tags"},
                "Status": "AVAILABLE",
            }

    def list_registries(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """ListRegistries, in one page."""
        with self._lock:
            return {
                "Registries": [
                    {
                        "RegistryName": each["RegistryName"],
                        "RegistryArn": each["RegistryArn"],
                        "Status": "AVAILABLE",
                    }
                    for each in self._registries.values()
                ]
            }

    def delete_registry(self, request: dict[str, Any]) -> dict[str, Any]:
        """DeleteRegistry: delete it and its schemas at once."""
        with self._lock:
            name = self._registry(request.get("RegistryId"))
            registry = self._registries.pop(name)
            for schema in [each for each in self._schemas.values() if each.registry == name]:
                self._forget(schema)
            return {"RegistryName": name, "RegistryArn": registry["RegistryArn"], "Status": "DELETING"}

    # ------------------------------------------------------------------ schemas

    def create_schema(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateSchema, with its first version, which is AVAILABLE at once."""
        name = _name(request.get("SchemaName"), "Schema name")
        data_format = _choice(request.get("DataFormat"), "DataFormat", _FORMATS)
        compatibility = _choice(request.get("Compatibility") or "NONE", "Compatibility", _COMPATIBILITIES)
        definition = request.get("SchemaDefinition")
        canonical = None if definition is None else _canonical(definition, data_format)
        with self._lock:
            registry = self._registry(request.get("RegistryId"))
            if (registry, name) in self._schemas:
                raise AwsError(
                    "AlreadyExistsException",
                    f"Schema already exists. SchemaName: {name}, RegistryName: {registry}",
                )
            schema = _Schema(
                registry,
                name,
                f"{self._arn}:schema/{registry}/{name}",
                data_format,
                compatibility,
                request.get("Description"),
                self._time(),
                dict(request.get("Tags") or {}),
            )
            schema.updated = schema.created
            self._schemas[registry, name] = schema
            answer = self._described(schema)
            answer["Tags"] = schema.tags
            if definition is not None and canonical is not None:
                version = self._add_version(schema, definition, canonical, "AVAILABLE")
                answer |= self._described(schema)
                answer |= {"SchemaVersionId": version.id, "SchemaVersionStatus": version.status}
            return answer

    def get_schema(self, request: dict[str, Any]) -> dict[str, Any]:
        """GetSchema."""
        with self._lock:
            schema = self._schema(request.get("SchemaId"))
            return {
                **self._described(schema),
                "SchemaStatus": "AVAILABLE",
                "CreatedTime": schema.created,
                "UpdatedTime": schema.updated,
            }

    def list_schemas(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListSchemas, in one page."""
        with self._lock:
            registry = self._registry(request["RegistryId"]) if request.get("RegistryId") else None
            return {
                "Schemas": [
                    {
                        "RegistryName": schema.registry,
                        "SchemaName": schema.name,
                        "SchemaArn": schema.arn,
                        "SchemaStatus": "AVAILABLE",
                        "CreatedTime": schema.created,
                        "UpdatedTime": schema.updated,
                    }
                    for schema in self._schemas.values()
                    if registry in {None, schema.registry}
                ]
            }

    def update_schema(self, request: dict[str, Any]) -> dict[str, Any]:
        """UpdateSchema: compatibility and description."""
        compatibility = request.get("Compatibility")
        if compatibility is not None:
            _choice(compatibility, "Compatibility", _COMPATIBILITIES)
        with self._lock:
            schema = self._schema(request.get("SchemaId"))
            schema.compatibility = compatibility or schema.compatibility
            schema.description = request.get("Description", schema.description)
            schema.updated = self._time()
            return {"SchemaArn": schema.arn, "SchemaName": schema.name, "RegistryName": schema.registry}

    def delete_schema(self, request: dict[str, Any]) -> dict[str, Any]:
        """DeleteSchema: delete it and its versions at once."""
        with self._lock:
            schema = self._schema(request.get("SchemaId"))
            self._forget(schema)
            return {"SchemaArn": schema.arn, "SchemaName": schema.name, "Status": "DELETING"}

    def _forget(self, schema: _Schema) -> None:
        del self._schemas[schema.registry, schema.name]
        for version in schema.versions:
            del self._versions[version.id]

    def _schema(self, identity: dict[str, Any] | None) -> _Schema:
        identity = identity or {}
        arn, name = identity.get("SchemaArn"), identity.get("SchemaName")
        registry = identity.get("RegistryName") or _DEFAULT_REGISTRY
        if arn:
            registry, _, name = str(arn).partition(":schema/")[2].partition("/")
        schema = self._schemas.get((registry, str(name)))
        if schema is None:
            raise AwsError(
                "EntityNotFoundException",
                f"Schema is not found. RegistryName: {registry}, SchemaName: {name}, SchemaArn: {arn or 'null'}",
            )
        return schema

    def _described(self, schema: _Schema) -> dict[str, Any]:
        latest = max((version.number for version in schema.versions), default=0)
        described: dict[str, Any] = {
            "RegistryName": schema.registry,
            "RegistryArn": f"{self._arn}:registry/{schema.registry}",
            "SchemaName": schema.name,
            "SchemaArn": schema.arn,
            "DataFormat": schema.data_format,
            "Compatibility": schema.compatibility,
            "SchemaCheckpoint": 1,
            "LatestSchemaVersion": latest,
            "NextSchemaVersion": latest + 1,
            "SchemaStatus": "AVAILABLE",
        }
        if schema.description is not None:
            described["Description"] = schema.description
        return described

    # ------------------------------------------------------------------ versions

    def register_schema_version(self, request: dict[str, Any]) -> dict[str, Any]:
        """RegisterSchemaVersion: return the existing version with the definition, or create a version."""
        definition = request.get("SchemaDefinition")
        with self._lock:
            schema = self._schema(request.get("SchemaId"))
            canonical = _canonical(definition, schema.data_format)
            version = self._with_definition(schema, canonical)
            if version is None or version.status == "FAILURE":
                if schema.compatibility == "DISABLED" and schema.versions:
                    raise _invalid(
                        f"Schema versions are disabled by the compatibility of the schema. SchemaName: {schema.name}"
                    )
                is_compatible = self._is_compatible(schema, str(definition))
                version = self._add_version(
                    schema, str(definition), canonical, "AVAILABLE" if is_compatible else "FAILURE"
                )
                if self._delay and len(schema.versions) > 1:
                    version.outcome, version.status = version.status, "PENDING"
                    version.due = self._clock.time() + self._delay
            return {"SchemaVersionId": version.id, "VersionNumber": version.number, "Status": version.status}

    def _add_version(self, schema: _Schema, definition: str, canonical: str, status: str) -> _Version:
        number = len(schema.versions) + 1
        version = _Version(str(uuid.uuid4()), number, definition, canonical, status, self._time())
        schema.versions.append(version)
        self._versions[version.id] = (schema, version)
        return version

    def _with_definition(self, schema: _Schema, canonical: str) -> _Version | None:
        found = [version for version in schema.versions if version.canonical == canonical]
        for version in found:
            self._settle(version)
        return next(
            (version for version in found if version.status != "FAILURE"), found[-1] if found else None
        )

    def _settle(self, version: _Version) -> None:
        if version.status == "PENDING" and self._clock.time() >= version.due:
            version.status = version.outcome

    def _is_compatible(self, schema: _Schema, definition: str) -> bool:
        for version in schema.versions:
            self._settle(version)
        former = [
            AvroSchema(version.definition)
            for version in schema.versions
            if version.status == "AVAILABLE" and schema.data_format == "AVRO"
        ]
        if not former or schema.compatibility in {"NONE", "DISABLED"}:
            return True
        new = AvroSchema(definition)
        compared = former if schema.compatibility.endswith("_ALL") else former[-1:]
        backward = schema.compatibility.startswith(("BACKWARD", "FULL"))
        forward = schema.compatibility.startswith(("FORWARD", "FULL"))
        return all(
            (not backward or new.can_read(old)) and (not forward or old.can_read(new)) for old in compared
        )

    def get_schema_version(self, request: dict[str, Any]) -> dict[str, Any]:
        """GetSchemaVersion: find a version by id or by number, or the latest version."""
        with self._lock:
            schema, version = self._find_version(request)
            self._settle(version)
            return {
                "SchemaVersionId": version.id,
                "SchemaDefinition": version.definition,
                "DataFormat": schema.data_format,
                "SchemaArn": schema.arn,
                "VersionNumber": version.number,
                "Status": version.status,
                "CreatedTime": version.created,
            }

    def _find_version(self, request: dict[str, Any]) -> tuple[_Schema, _Version]:
        version_id = request.get("SchemaVersionId")
        if version_id is not None:
            if version_id not in self._versions:
                raise AwsError(
                    "EntityNotFoundException",
                    f"Schema version is not found. SchemaVersionId: {version_id}",
                )
            return self._versions[version_id]
        wanted = request.get("SchemaVersionNumber") or {}
        if not wanted:
            raise _invalid("SchemaVersionId, or SchemaId and SchemaVersionNumber, must be given.")
        schema = self._schema(request.get("SchemaId"))
        for version in reversed(schema.versions):
            if wanted.get("LatestVersion") or version.number == wanted.get("VersionNumber"):
                return schema, version
        raise AwsError(
            "EntityNotFoundException",
            f"Schema version is not found. RegistryName: {schema.registry}, SchemaName: {schema.name}",
        )

    def get_schema_by_definition(self, request: dict[str, Any]) -> dict[str, Any]:
        """GetSchemaByDefinition."""
        with self._lock:
            schema = self._schema(request.get("SchemaId"))
            canonical = _canonical(request.get("SchemaDefinition"), schema.data_format)
            version = self._with_definition(schema, canonical)
            if version is None:
                raise AwsError(
                    "EntityNotFoundException",
                    f"Schema version is not found. RegistryName: {schema.registry}, SchemaName: {schema.name}, "
                    "SchemaArn: null",
                )
            return {
                "SchemaVersionId": version.id,
                "SchemaArn": schema.arn,
                "DataFormat": schema.data_format,
                "Status": version.status,
                "CreatedTime": version.created,
            }

    def list_schema_versions(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListSchemaVersions, in one page."""
        with self._lock:
            schema = self._schema(request.get("SchemaId"))
            for version in schema.versions:
                self._settle(version)
            return {
                "Schemas": [
                    {
                        "SchemaArn": schema.arn,
                        "SchemaVersionId": version.id,
                        "VersionNumber": version.number,
                        "Status": version.status,
                        "CreatedTime": version.created,
                    }
                    for version in schema.versions
                ]
            }

    def check_schema_version_validity(self, request: dict[str, Any]) -> dict[str, Any]:
        """CheckSchemaVersionValidity: return whether a definition can be parsed."""
        data_format = _choice(request.get("DataFormat"), "DataFormat", _FORMATS)
        try:
            _canonical(request.get("SchemaDefinition"), data_format)
        except AwsError as error:
            return {"Valid": False, "Error": error.message}
        return {"Valid": True}

    # ------------------------------------------------------------------ metadata

    def put_schema_version_metadata(self, request: dict[str, Any]) -> dict[str, Any]:
        """PutSchemaVersionMetadata."""
        pair = request.get("MetadataKeyValue") or {}
        key, value = pair.get("MetadataKey"), pair.get("MetadataValue")
        if not isinstance(key, str) or not isinstance(value, str):
            raise _invalid("MetadataKeyValue must have a MetadataKey and a MetadataValue.")
        with self._lock:
            schema, version = self._find_version(request)
            if version.metadata.get(key, {}).get("MetadataValue") == value:
                raise AwsError(
                    "AlreadyExistsException", "Resource already exist for schema version id: " + version.id
                )
            version.metadata[key] = {"MetadataValue": value, "CreatedTime": self._time()}
            return {
                "SchemaArn": schema.arn,
                "SchemaName": schema.name,
                "RegistryName": schema.registry,
                "LatestVersion": version is schema.versions[-1],
                "VersionNumber": version.number,
                "SchemaVersionId": version.id,
                "MetadataKey": key,
                "MetadataValue": value,
            }

    def query_schema_version_metadata(self, request: dict[str, Any]) -> dict[str, Any]:
        """QuerySchemaVersionMetadata, in one page."""
        with self._lock:
            _, version = self._find_version(request)
            return {"MetadataInfoMap": dict(version.metadata), "SchemaVersionId": version.id}

    def _time(self) -> str:
        return (
            datetime.fromtimestamp(self._clock.time(), timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
            + "Z"
        )


def _name(value: Any, what: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise _invalid(f"{what} is invalid: {value!r}")
    return value


def _choice(value: Any, member: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise _invalid(f"{member} must be one of {', '.join(choices)}: {value!r}")
    return str(value)


def _canonical(definition: Any, data_format: str) -> str:
    """Return the form in which definitions are compared."""
    if not isinstance(definition, str) or not definition.strip() or len(definition) > _MAX_DEFINITION:
        raise _invalid(f"Schema definition must have 1 to {_MAX_DEFINITION} characters.")
    problem = f"Schema definition of {data_format} data format is invalid: "
    if data_format == "PROTOBUF":
        tokens = [
            token for token in _PROTOBUF_TOKEN.findall(definition) if not token.startswith(("//", "/*"))
        ]
        if not {"message", "enum"} & set(tokens) or tokens.count("{") != tokens.count("}"):
            raise _invalid(problem + "it defines no message")
        return " ".join(tokens)
    try:
        document = json.loads(definition)
        if data_format == "AVRO":
            AvroSchema(definition)
        elif not isinstance(document, (dict, bool)):
            raise ValueError("it is not an object")
    except (ValueError, KeyError, TypeError) as error:
        raise _invalid(problem + str(error)) from error
    return json.dumps(document, sort_keys=True, separators=(",", ":"))
