"""The fake schema registry: operations, states and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kinesis_sdk.testing import FakeAws
from kinesis_sdk.testing.clock import VirtualClock
from kinesis_sdk.testing.glue.avro_compatibility import AvroSchema

DEFAULT = {"SchemaName": "orders", "RegistryName": "default-registry"}


def avro(*fields: Any, name: str = "R", **more: Any) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields), **more})


X = {"name": "x", "type": "int"}
Y = {"name": "y", "type": "int", "default": 0}
Z = {"name": "z", "type": "int"}


@pytest.fixture
def glue() -> Any:
    return FakeAws(clock=VirtualClock()).client("glue")


def create(glue: Any, **more: Any) -> Any:
    request = {"SchemaName": "orders", "DataFormat": "AVRO", "SchemaDefinition": avro(X), **more}
    return glue.create_schema(**request)


def fails(code: str, text: str = "") -> Any:
    return pytest.raises(ClientError, match=rf"\({code}\).*{text}")


def test_registries(glue: Any) -> None:
    made = glue.create_registry(RegistryName="shop", Description="d", Tags={"a": "b"})
    assert made["RegistryArn"] == "arn:aws:glue:us-east-1:123456789012:registry/shop"
    assert glue.get_registry(RegistryId={"RegistryName": "shop"})["Description"] == "d"
    with fails("AlreadyExistsException"):
        glue.create_registry(RegistryName="shop")
    with fails("InvalidInputException"):
        glue.create_registry(RegistryName="no spaces")
    with fails("EntityNotFoundException", "Registry is not found"):
        glue.get_registry(RegistryId={"RegistryName": "none"})
    create(glue, RegistryId={"RegistryName": "shop"})
    glue.delete_registry(RegistryId={"RegistryArn": made["RegistryArn"]})
    assert glue.list_registries()["Registries"] == []
    assert glue.list_schemas()["Schemas"] == []


def test_a_schema_and_its_versions(glue: Any) -> None:
    made = create(glue, Compatibility="BACKWARD", Description="d", Tags={"a": "b"})
    assert (made["SchemaVersionStatus"], made["LatestSchemaVersion"], made["Tags"]) == (
        "AVAILABLE",
        1,
        {"a": "b"},
    )
    second = glue.register_schema_version(SchemaId=DEFAULT, SchemaDefinition=avro(X, Y))
    assert (second["VersionNumber"], second["Status"]) == (2, "AVAILABLE")
    again = glue.register_schema_version(SchemaId={"SchemaArn": made["SchemaArn"]}, SchemaDefinition=avro(X))
    assert again["SchemaVersionId"] == made["SchemaVersionId"]
    assert glue.get_schema(SchemaId=DEFAULT)["NextSchemaVersion"] == 3
    by_number = glue.get_schema_version(SchemaId=DEFAULT, SchemaVersionNumber={"VersionNumber": 1})
    latest = glue.get_schema_version(SchemaId=DEFAULT, SchemaVersionNumber={"LatestVersion": True})
    assert by_number["SchemaVersionId"] == made["SchemaVersionId"]
    assert latest["SchemaDefinition"] == avro(X, Y)
    assert [each["VersionNumber"] for each in glue.list_schema_versions(SchemaId=DEFAULT)["Schemas"]] == [
        1,
        2,
    ]
    assert [each["SchemaName"] for each in glue.list_schemas()["Schemas"]] == ["orders"]
    with fails("AlreadyExistsException"):
        create(glue)


def test_definitions_are_compared_without_regard_to_their_form(glue: Any) -> None:
    made = create(glue)
    reordered = json.dumps(json.loads(avro(X)), indent=3, sort_keys=True)
    found = glue.get_schema_by_definition(SchemaId=DEFAULT, SchemaDefinition=reordered)
    assert found["SchemaVersionId"] == made["SchemaVersionId"]
    create(glue, SchemaName="proto", DataFormat="PROTOBUF", SchemaDefinition="message A { int32 x = 1; }")
    found = glue.get_schema_by_definition(
        SchemaId={"SchemaName": "proto"}, SchemaDefinition="// a comment\nmessage A {\n  int32 x=1;\n}"
    )
    assert found["Status"] == "AVAILABLE"


def test_what_is_not_found(glue: Any) -> None:
    with fails("EntityNotFoundException", "Schema is not found."):
        glue.get_schema_by_definition(SchemaId=DEFAULT, SchemaDefinition=avro(X))
    with fails("EntityNotFoundException", "Schema is not found."):
        glue.register_schema_version(SchemaId=DEFAULT, SchemaDefinition=avro(X))
    create(glue)
    with fails("EntityNotFoundException", "Schema version is not found."):
        glue.get_schema_by_definition(SchemaId=DEFAULT, SchemaDefinition=avro(X, Y))
    with fails("EntityNotFoundException", "Schema version is not found."):
        glue.get_schema_version(SchemaVersionId="00000000-0000-0000-0000-000000000000")
    with fails("EntityNotFoundException", "Schema version is not found."):
        glue.get_schema_version(SchemaId=DEFAULT, SchemaVersionNumber={"VersionNumber": 7})
    with fails("InvalidInputException"):
        glue.get_schema_version(SchemaId=DEFAULT)


@pytest.mark.parametrize(
    ("compatibility", "definition", "status"),
    [
        ("NONE", avro(Z, name="Other"), "AVAILABLE"),
        ("BACKWARD", avro(X, Y), "AVAILABLE"),
        ("BACKWARD", avro(X, Z), "FAILURE"),
        ("BACKWARD", avro(), "AVAILABLE"),
        ("FORWARD", avro(X, Z), "AVAILABLE"),
        ("FORWARD", avro(), "FAILURE"),
        ("FULL", avro(X, Y), "AVAILABLE"),
        ("FULL", avro(X, Z), "FAILURE"),
        ("FULL_ALL", avro(X, Y), "AVAILABLE"),
    ],
)
def test_compatibility(glue: Any, compatibility: str, definition: str, status: str) -> None:
    create(glue, Compatibility=compatibility)
    assert glue.register_schema_version(SchemaId=DEFAULT, SchemaDefinition=definition)["Status"] == status


def test_all_former_versions_count_if_the_compatibility_says_so(glue: Any) -> None:
    for name, status in (("BACKWARD", "AVAILABLE"), ("BACKWARD_ALL", "FAILURE")):
        create(glue, SchemaName=name, Compatibility=name, SchemaDefinition=avro())
        identity = {"SchemaName": name}
        # Readable with the second version, which has x; not with the first, which lacks it.
        glue.register_schema_version(SchemaId=identity, SchemaDefinition=avro({**X, "default": 0}))
        assert glue.register_schema_version(SchemaId=identity, SchemaDefinition=avro(X))["Status"] == status


def test_a_disabled_schema_takes_no_versions_until_it_is_changed(glue: Any) -> None:
    create(glue, Compatibility="DISABLED")
    with fails("InvalidInputException", "disabled"):
        glue.register_schema_version(SchemaId=DEFAULT, SchemaDefinition=avro(X, Y))
    glue.update_schema(SchemaId=DEFAULT, Compatibility="BACKWARD")
    assert (
        glue.register_schema_version(SchemaId=DEFAULT, SchemaDefinition=avro(X, Y))["Status"] == "AVAILABLE"
    )


def test_a_version_is_pending_for_a_time() -> None:
    aws = FakeAws(clock=VirtualClock(), schema_delay=5)
    glue = aws.client("glue")
    assert create(glue, Compatibility="BACKWARD")["SchemaVersionStatus"] == "AVAILABLE"
    for definition, status in ((avro(X, Y), "AVAILABLE"), (avro(X, Z), "FAILURE")):
        version = glue.register_schema_version(SchemaId=DEFAULT, SchemaDefinition=definition)
        assert version["Status"] == "PENDING"
        assert (
            glue.get_schema_by_definition(SchemaId=DEFAULT, SchemaDefinition=definition)["Status"]
            == "PENDING"
        )
        aws.clock.advance(5)  # type: ignore[attr-defined]
        assert glue.get_schema_version(SchemaVersionId=version["SchemaVersionId"])["Status"] == status


@pytest.mark.parametrize(
    ("data_format", "definition", "valid"),
    [
        ("AVRO", avro(X), True),
        ("AVRO", '"string"', True),
        ("AVRO", '{"type":"record","name":"R"}', False),
        ("AVRO", '{"type":"enum","name":"E"}', False),
        ("AVRO", '"strong"', False),
        ("AVRO", "{", False),
        ("JSON", "{}", True),
        ("JSON", "[]", False),
        ("PROTOBUF", "message A {}", True),
        ("PROTOBUF", "message A {", False),
        ("PROTOBUF", "nothing", False),
        ("JSON", "", False),
    ],
)
def test_validity(glue: Any, data_format: str, definition: str, valid: bool) -> None:
    answer = glue.check_schema_version_validity(DataFormat=data_format, SchemaDefinition=definition)
    assert answer["Valid"] is valid
    assert ("Error" in answer) is not valid
    if not valid:
        with fails("InvalidInputException"):
            create(glue, DataFormat=data_format, SchemaDefinition=definition)


def test_metadata(glue: Any) -> None:
    version = create(glue)["SchemaVersionId"]
    pair = {"MetadataKey": "k", "MetadataValue": "v"}
    glue.put_schema_version_metadata(SchemaVersionId=version, MetadataKeyValue=pair)
    found = glue.query_schema_version_metadata(SchemaVersionId=version)["MetadataInfoMap"]
    assert found["k"]["MetadataValue"] == "v"
    with fails("AlreadyExistsException"):
        glue.put_schema_version_metadata(SchemaVersionId=version, MetadataKeyValue=pair)
    with fails("InvalidInputException"):
        glue.put_schema_version_metadata(SchemaVersionId=version, MetadataKeyValue={"MetadataKey": "k"})


def test_deleting_and_reset(glue: Any) -> None:
    version = create(glue)["SchemaVersionId"]
    glue.delete_schema(SchemaId=DEFAULT)
    with fails("EntityNotFoundException"):
        glue.get_schema_version(SchemaVersionId=version)
    aws = FakeAws()
    create(aws.client("glue"))
    aws.reset()
    assert aws.client("glue").list_schemas()["Schemas"] == []


def test_choices_are_checked(glue: Any) -> None:
    for wrong in ({"DataFormat": "XML"}, {"Compatibility": "backward"}, {"SchemaName": "a b"}):
        with fails("InvalidInputException"):
            create(glue, **wrong)


def reads(reader: Any, writer: Any) -> bool:
    return AvroSchema(json.dumps(reader)).can_read(AvroSchema(json.dumps(writer)))


def test_avro_s_rules() -> None:
    assert reads("long", "int")
    assert not reads("int", "long")
    assert reads("bytes", "string")
    assert reads(["null", "long"], "int")
    assert not reads("int", ["null", "int"])
    assert reads({"type": "array", "items": "double"}, {"type": "array", "items": "float"})
    assert not reads({"type": "map", "values": "int"}, {"type": "array", "items": "int"})
    assert reads({"type": "map", "values": "long"}, {"type": "map", "values": "int"})
    assert not reads({"type": "fixed", "name": "F", "size": 3}, {"type": "fixed", "name": "F", "size": 4})
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    more = {**enum, "symbols": ["A", "B"]}
    assert reads(more, enum)
    assert not reads(enum, more)
    assert reads({**enum, "default": "A"}, more)
    tree = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}
    assert reads(tree, tree)
    renamed = {"type": "record", "name": "b.S", "aliases": ["a.R"], "fields": [{**Z, "aliases": ["x"]}]}
    old = {"type": "record", "name": "R", "namespace": "a", "fields": [X]}
    assert reads(renamed, old)
    assert not reads({**renamed, "aliases": []}, old)
    assert reads({"type": {"type": "int"}}, "int")
