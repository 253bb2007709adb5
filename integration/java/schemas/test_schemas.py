"""AWS's serializers for Java and ours on one schema registry: each reads what the other wrote."""

from __future__ import annotations

import os

import pytest

from integration.java.schemas.tool import STREAM, Case, SchemaTool, install
from integration.localstack.install import CannotInstallError
from kinesis_sdk.consumer import ConsumerConfig
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.serialization import AvroCodec, GlueSchemaRegistry, ProtobufCodec
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from tests.serialization.cases import AVRO, pairs


@pytest.fixture(scope="module")
def aws():
    return FakeAws(schema_delay=1)


@pytest.fixture(scope="module")
def endpoint(aws):
    with FakeAwsServer(aws) as server:
        yield server.endpoint_url


@pytest.fixture(scope="module")
def java(endpoint, tmp_path_factory):
    try:
        install()
    except CannotInstallError as error:
        if os.environ.get("REQUIRE_KCL") == "1":
            raise
        pytest.skip(f"AWS's serializers cannot run here: {error}")
    with SchemaTool(endpoint, tmp_path_factory.mktemp("java") / "java.log") as tool:
        yield tool


@pytest.fixture
def registry(endpoint):
    def make(**settings):
        return GlueSchemaRegistry(
            endpoint_url=endpoint, region_name="us-east-1", auto_registration=True, **settings
        )

    return make


@pytest.mark.parametrize("compression", ["none", "zlib"])
@pytest.mark.parametrize("name", pairs())
def test_each_reads_the_other(java, registry, name, compression):
    pair = pairs()[name]
    ours = registry(compression=compression)
    case = Case(pair.data_format, pair.schema_name, pair.schema, pair.java)
    from_java = java.serialize(case, compression.upper())
    assert ours.deserializer(pair.codec).deserialize(STREAM, from_java) == pair.value
    from_us = ours.serializer(pair.codec, schema_name=pair.schema_name).serialize(STREAM, pair.value)
    assert java.deserialize(from_us) == java.deserialize(from_java)
    assert ours.payload_of(from_us) == ours.payload_of(from_java)
    # As the KCL gives it to record processors.
    assert java.open(from_us) == (pair.schema_name, pair.data_format, ours.payload_of(from_us))
    opened = ours.schema_of(from_java)
    assert (opened.name, opened.data_format) == (pair.schema_name, pair.data_format)
    if pair.data_format != "PROTOBUF":
        assert from_us[:18] == from_java[:18], "one version, whoever registered it"


def test_java_reads_what_we_registered_first_and_the_other_way_around(java, registry, aws):
    """A new version is PENDING for a second here, which both sides wait for."""
    ours = registry()
    field = {"name": "x", "type": "int"}
    first = AvroCodec({"type": "record", "name": "R", "fields": [field]})
    second = AvroCodec(
        {"type": "record", "name": "R", "fields": [field, {"name": "y", "type": "int", "default": 9}]}
    )
    data = ours.serializer(first, schema_name="evolving").serialize(STREAM, {"x": 1})
    assert java.deserialize(data) == '{"x": 1}'
    newer = java.serialize(Case("AVRO", "evolving", second.definition, '{"x": 2, "y": 3}'))
    reader = ours.deserializer(second)
    assert [reader.deserialize(STREAM, each) for each in (data, newer)] == [
        {"x": 1, "y": 9},
        {"x": 2, "y": 3},
    ]
    third = AvroCodec(
        {"type": "record", "name": "R", "fields": [field, {"name": "z", "type": "int", "default": 8}]}
    )
    before = aws.stats()["calls"]["GetSchemaVersion"]
    newest = ours.serializer(third, schema_name="evolving").serialize(STREAM, {"x": 4, "z": 5})
    assert aws.stats()["calls"]["GetSchemaVersion"] > before, "it was pending"
    assert java.deserialize(newest) == '{"x": 4, "z": 5}'


@pytest.mark.parametrize("name", pairs())
def test_what_the_kpl_puts(java, registry, name):
    """The KPL takes a payload and a schema, and writes no message index."""
    pair = pairs()[name]
    codec = pair.codec
    if isinstance(codec, ProtobufCodec):
        codec = ProtobufCodec(codec.message_type, message_index=False, definition=pair.schema)
    case = Case(pair.data_format, pair.schema_name, pair.schema, pair.java)
    ours = registry()
    kpl = java.encode(case, codec.serialize(STREAM, pair.value))
    assert ours.serializer(codec, schema_name=pair.schema_name).serialize(STREAM, pair.value) == kpl
    assert ours.deserializer(codec).deserialize(STREAM, kpl) == pair.value


def test_records_through_a_stream(java, registry, aws, kinesis_worker, kinesis_stream):
    """From Java through a stream to our worker, and from our producer to Java."""
    ours = registry()
    pair = pairs()["avro"]
    case = Case("AVRO", pair.schema_name, AVRO, pair.java)
    kinesis_stream.put_aggregate([("k", java.serialize(case)), ("k", java.serialize(case, "ZLIB"))])
    config = ProducerConfig(serializer=ours.serializer(pair.codec, schema_name=pair.schema_name))
    with Producer(config, client=kinesis_stream.client) as producer:
        producer.put(kinesis_stream.name, "k", pair.value)
    seen = []
    worker = kinesis_worker(
        lambda batch: seen.extend((record.value, record.data) for record in batch.records),
        ConsumerConfig(initial_position="TRIM_HORIZON", deserializer=ours.deserializer()),
    )
    worker.run()
    assert [value for value, _ in seen] == [pair.value] * 3
    assert {java.deserialize(data) for _, data in seen} == {java.deserialize(seen[0][1])}
