"""The Glue Schema Registry: registration, caches, failures, evolution, and payloads that are not what they seem."""

from __future__ import annotations

import random
import threading
import tracemalloc
import uuid
import zlib
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kinesis_sdk.common.errors import (
    AwsError,
    ConfigError,
    PermanentAwsError,
    SchemaPendingError,
    SchemaRegistryError,
    ThrottledError,
)
from kinesis_sdk.consumer import ConsumerConfig
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.serialization import AvroCodec, GlueSchemaRegistry, JsonCodec, ProtobufCodec, Schema
from kinesis_sdk.serialization.glue_wire import encode_index, header, payload_of, split_index
from kinesis_sdk.serialization.schema_cache import SchemaCache
from kinesis_sdk.testing import FakeAws, Fault
from kinesis_sdk.testing.clock import VirtualClock
from tests.serialization.cases import PROTO, pairs
from tests.serialization.messages import Alpha, Line, Order

FIELD = {"name": "x", "type": "int"}
V1 = AvroCodec({"type": "record", "name": "R", "fields": [FIELD]})
V2 = AvroCodec({"type": "record", "name": "R", "fields": [FIELD, {"name": "y", "type": "int", "default": 9}]})
INCOMPATIBLE = AvroCodec({"type": "record", "name": "R", "fields": [FIELD, {"name": "z", "type": "int"}]})


@pytest.fixture
def aws() -> FakeAws:
    return FakeAws(clock=VirtualClock())


def open_registry(aws: FakeAws, **settings: Any) -> GlueSchemaRegistry:
    settings = {"auto_registration": True, **settings}
    clock = aws.clock
    assert isinstance(clock, VirtualClock)
    return GlueSchemaRegistry(
        client=aws.client("glue"), clock=clock, sleep=clock.advance, rng=random.Random(1), **settings
    )


def calls(aws: FakeAws) -> dict[str, int]:
    found: dict[str, int] = aws.stats()["calls"]
    return found


# Registration


def test_a_schema_is_created_once_with_its_settings(aws: FakeAws) -> None:
    registry = open_registry(
        aws, compatibility="FULL", description="Orders.", tags={"team": "shop"}, metadata={"owner": "ann"}
    )
    serializer = registry.serializer(V1)
    assert serializer.would_block("orders", {})
    data = serializer.serialize("orders", {"x": 1})
    assert not serializer.would_block("orders", {})
    for x in range(50):
        serializer.serialize("orders", {"x": x})
    assert calls(aws) == {
        "GetSchemaByDefinition": 1,
        "RegisterSchemaVersion": 1,
        "CreateSchema": 1,
        "PutSchemaVersionMetadata": 2,
    }
    glue = aws.client("glue")
    schema = glue.get_schema(SchemaId={"SchemaName": "orders", "RegistryName": "default-registry"})
    assert (schema["Compatibility"], schema["Description"], schema["DataFormat"]) == (
        "FULL",
        "Orders.",
        "AVRO",
    )
    version_id = str(uuid.UUID(bytes=data[2:18]))
    assert data[:2] == b"\x03\x00"
    metadata = glue.query_schema_version_metadata(SchemaVersionId=version_id)["MetadataInfoMap"]
    assert {name: value["MetadataValue"] for name, value in metadata.items()} == {
        "owner": "ann",
        "x-amz-meta-transport": "orders",
    }
    assert registry.schema_of(data) == Schema(V1.definition, "AVRO", "orders", version_id)


def test_streams_have_schemas_of_their_own_unless_one_is_named(aws: FakeAws) -> None:
    registry = open_registry(aws)
    for serializer in (registry.serializer(V1), registry.serializer(V1, schema_name="shared")):
        for stream in ("a", "b"):
            serializer.serialize(stream, {"x": 1})
    names = [schema["SchemaName"] for schema in aws.client("glue").list_schemas()["Schemas"]]
    assert names == ["a", "b", "shared"]


def test_without_auto_registration_a_schema_must_be_there(aws: FakeAws) -> None:
    strict = open_registry(aws, auto_registration=False).serializer(V1)
    with pytest.raises(SchemaRegistryError, match="orders of registry default-registry"):
        strict.serialize("orders", {"x": 1})
    with pytest.raises(SchemaRegistryError):  # again, without a call
        strict.serialize("orders", {"x": 1})
    assert calls(aws) == {"GetSchemaByDefinition": 1}
    open_registry(aws).serializer(V1).serialize("orders", {"x": 1})
    aws.clock.advance(6)  # type: ignore[attr-defined]
    assert strict.serialize("orders", {"x": 1})[18:] == b"\x02"


def test_a_value_that_cannot_be_encoded_registers_nothing(aws: FakeAws) -> None:
    with pytest.raises(Exception):  # noqa: B017 - whatever fastavro raises
        open_registry(aws).serializer(V1).serialize("orders", {"x": "text"})
    assert calls(aws) == {}


def test_a_registry_that_does_not_exist(aws: FakeAws) -> None:
    with pytest.raises(SchemaRegistryError, match="registry nowhere"):
        open_registry(aws, registry_name="nowhere").serializer(V1).serialize("orders", {"x": 1})


def test_another_producer_may_create_the_schema_first(aws: FakeAws) -> None:
    client = aws.client("glue")
    other = open_registry(aws).serializer(V1)

    class Racing:
        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

        def create_schema(self, **request: Any) -> Any:
            other.serialize("orders", {"x": 1})
            return client.create_schema(**request)

    registry = GlueSchemaRegistry(client=Racing(), auto_registration=True)
    assert registry.serializer(V1).serialize("orders", {"x": 1}) == other.serialize("orders", {"x": 1})


def test_a_version_that_is_pending_is_waited_for(aws: FakeAws) -> None:
    slow = FakeAws(clock=VirtualClock(), schema_delay=4)
    registry = open_registry(slow)
    registry.serializer(V1).serialize("orders", {"x": 1})
    before = slow.clock.time()
    data = registry.serializer(V2).serialize("orders", {"x": 1, "y": 2})
    assert 4 <= slow.clock.time() - before < 8
    assert registry.deserializer().deserialize("orders", data) == {"x": 1, "y": 2}


def test_a_version_that_stays_pending_is_an_error_to_retry() -> None:
    slow = FakeAws(clock=VirtualClock(), schema_delay=40)
    registry = open_registry(slow, timeout=10)
    registry.serializer(V1).serialize("orders", {"x": 1})
    serializer = registry.serializer(V2)
    with pytest.raises(SchemaPendingError, match=r"within 10 s") as raised:
        serializer.serialize("orders", {"x": 1})
    assert raised.value.retryable
    slow.clock.advance(40)  # type: ignore[attr-defined]
    assert serializer.serialize("orders", {"x": 1})[18:] == b"\x02\x12"


def test_an_incompatible_version_is_rejected(aws: FakeAws) -> None:
    registry = open_registry(aws)
    registry.serializer(V1).serialize("orders", {"x": 1})
    with pytest.raises(SchemaRegistryError, match="FAILURE") as raised:
        registry.serializer(INCOMPATIBLE).serialize("orders", {"x": 1, "z": 2})
    assert not raised.value.retryable


def test_a_throttle_is_retried_and_then_raised(aws: FakeAws) -> None:
    aws.faults.add(Fault(kind="throttle", operation="GetSchemaByDefinition", count=2))
    serializer = open_registry(aws).serializer(V1)
    serializer.serialize("orders", {"x": 1})
    aws.faults.add(Fault(kind="throttle", operation="GetSchemaVersion"))
    with pytest.raises(ThrottledError):
        open_registry(aws, timeout=3).deserializer().deserialize(
            "orders", serializer.serialize("orders", {"x": 1})
        )


def test_a_change_at_the_same_moment_is_repeated(aws: FakeAws) -> None:
    client = aws.client("glue")
    failures = [
        ClientError(
            {
                "Error": {"Code": "ConcurrentModificationException"},
                "ResponseMetadata": {"HTTPStatusCode": 400},
            },
            "RegisterSchemaVersion",
        )
    ]

    class Busy:
        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

        def register_schema_version(self, **request: Any) -> Any:
            if failures:
                raise failures.pop()
            return client.register_schema_version(**request)

    registry = GlueSchemaRegistry(client=Busy(), auto_registration=True, sleep=lambda _seconds: None)
    assert registry.serializer(V1).serialize("orders", {"x": 1})[18:] == b"\x02"
    assert failures == []


def test_metadata_that_cannot_be_added_is_logged(aws: FakeAws, caplog: pytest.LogCaptureFixture) -> None:
    aws.faults.add(
        Fault(kind="error", operation="PutSchemaVersionMetadata", code="AccessDeniedException", status=400)
    )
    open_registry(aws).serializer(V1).serialize("orders", {"x": 1})
    assert "x-amz-meta-transport" in caplog.text


# Caches


def test_entries_are_refreshed_and_survive_an_outage(aws: FakeAws, caplog: pytest.LogCaptureFixture) -> None:
    clock = aws.clock
    assert isinstance(clock, VirtualClock)
    data = open_registry(aws).serializer(V1).serialize("orders", {"x": 1})
    reader = open_registry(aws, time_to_live=100).deserializer()
    for _ in range(20):
        reader.deserialize("orders", data)
    assert calls(aws)["GetSchemaVersion"] == 1
    clock.advance(101)
    reader.deserialize("orders", data)
    assert calls(aws)["GetSchemaVersion"] == 2
    clock.advance(101)
    aws.faults.add(
        Fault(kind="error", operation="GetSchemaVersion", code="AccessDeniedException", status=400)
    )
    for _ in range(20):
        assert reader.deserialize("orders", data) == {"x": 1}
    assert calls(aws)["GetSchemaVersion"] == 3
    assert caplog.records
    aws.faults.clear()
    clock.advance(61)
    reader.deserialize("orders", data)
    assert calls(aws)["GetSchemaVersion"] == 4


def test_an_outage_costs_one_attempt_per_minute(aws: FakeAws) -> None:
    clock = aws.clock
    assert isinstance(clock, VirtualClock)
    serializer = open_registry(aws, time_to_live=100).serializer(V1)
    serializer.serialize("orders", {"x": 1})
    before = calls(aws)["GetSchemaByDefinition"]
    aws.faults.add(Fault(kind="error", operation="GetSchemaByDefinition", status=503))
    clock.advance(101)
    for _ in range(10):
        serializer.serialize("orders", {"x": 1})
        clock.advance(10)
    assert calls(aws)["GetSchemaByDefinition"] == before + 2


@pytest.mark.parametrize(("error", "is_remembered"), [(ThrottledError, False), (PermanentAwsError, True)])
def test_an_error_that_passes_is_not_remembered(error: type[AwsError], is_remembered: bool) -> None:
    failures: list[AwsError] = [error("at first")]

    def load(key: str, _attempts: int | None) -> str:
        if failures:
            raise failures.pop()
        return key

    cache = SchemaCache(load, size=10, time_to_live=100, now=VirtualClock().monotonic)
    with pytest.raises(error):
        cache.get("a")
    assert cache.is_fresh("a") == is_remembered
    if is_remembered:
        with pytest.raises(error):
            cache.get("a")
    else:
        assert cache.get("a") == "a"


def test_while_one_thread_refreshes_an_entry_the_others_use_it() -> None:
    clock = VirtualClock()
    loads: list[int | None] = []
    nested: list[int] = []

    def load(_key: str, attempts: int | None) -> int:
        loads.append(attempts)
        if len(loads) == 2:
            thread = threading.Thread(target=lambda: nested.append(cache.get("k")))
            thread.start()
            thread.join()
        return len(loads)

    cache: SchemaCache[str, int] = SchemaCache(load, size=2, time_to_live=10, now=clock.monotonic)
    assert cache.get("k") == 1
    clock.advance(11)
    assert cache.get("k") == 2
    assert nested == [1]
    assert loads == [None, 1]


def test_a_schema_that_was_deleted_is_gone_after_its_time(aws: FakeAws) -> None:
    clock = aws.clock
    assert isinstance(clock, VirtualClock)
    data = open_registry(aws).serializer(V1).serialize("orders", {"x": 1})
    reader = open_registry(aws, time_to_live=100).deserializer()
    reader.deserialize("orders", data)
    aws.client("glue").delete_schema(SchemaId={"SchemaName": "orders", "RegistryName": "default-registry"})
    reader.deserialize("orders", data)
    clock.advance(101)
    with pytest.raises(SchemaRegistryError, match="no schema version"):
        reader.deserialize("orders", data)


def test_the_cache_is_bounded(aws: FakeAws) -> None:
    registry = open_registry(aws, cache_size=3)
    serializer = registry.serializer(V1)
    payloads = [serializer.serialize(f"s{number}", {"x": number}) for number in range(10)]
    reader = registry.deserializer()
    for _ in range(3):
        for data in payloads:
            reader.deserialize("any", data)
    for cache in (registry._headers, registry._schemas):
        assert len(cache._entries) == 3
    assert len(reader._readers) <= 3


def test_an_unknown_version_is_not_requested_for_every_record(aws: FakeAws) -> None:
    reader = open_registry(aws).deserializer()
    data = b"\x03\x00" + uuid.uuid4().bytes + b"\x02"
    for _ in range(10):
        with pytest.raises(SchemaRegistryError, match="no schema version"):
            reader.deserialize("orders", data)
    assert calls(aws) == {"GetSchemaVersion": 1}


def test_a_missing_permission_is_an_error_of_aws(aws: FakeAws) -> None:
    aws.faults.add(
        Fault(kind="error", operation="GetSchemaVersion", code="AccessDeniedException", status=400)
    )
    with pytest.raises(PermanentAwsError):
        open_registry(aws).deserializer().deserialize("orders", b"\x03\x00" + bytes(16))


# Reading


def test_old_and_new_versions_are_read_with_one_schema(aws: FakeAws) -> None:
    registry = open_registry(aws)
    old = registry.serializer(V1).serialize("orders", {"x": 1})
    new = registry.serializer(V2).serialize("orders", {"x": 2, "y": 3})
    as_written, as_new = registry.deserializer(), registry.deserializer(V2)
    assert [as_written.deserialize("orders", data) for data in (old, new)] == [{"x": 1}, {"x": 2, "y": 3}]
    assert [as_new.deserialize("orders", data) for data in (old, new)] == [{"x": 1, "y": 9}, {"x": 2, "y": 3}]


def test_records_of_several_schemas_are_told_apart_by_name(aws: FakeAws) -> None:
    other = AvroCodec({"type": "record", "name": "Other", "fields": []})
    third = AvroCodec({"type": "record", "name": "Third", "fields": []})
    registry = open_registry(aws)
    reader = registry.deserializer(V2, other)
    payloads = [
        registry.serializer(codec, schema_name=name).serialize("s", value)
        for codec, name, value in ((V1, "r", {"x": 1}), (other, "other", {}))
    ]
    assert [reader.deserialize("s", data) for data in payloads] == [{"x": 1, "y": 9}, {}]
    stranger = registry.serializer(third, schema_name="third").serialize("s", {})
    with pytest.raises(SchemaRegistryError, match="schema third defines Third"):
        reader.deserialize("s", stranger)


def test_protobuf_messages_are_told_apart_by_their_index(aws: FakeAws) -> None:
    registry = open_registry(aws)
    values = [Order(id="1"), Line(sku="2"), Alpha(order=Order(id="3"))]
    payloads = [
        registry.serializer(ProtobufCodec(type(value), definition=PROTO)).serialize("s", value)
        for value in values
    ]
    reader = registry.deserializer(ProtobufCodec(Order), ProtobufCodec(Line), ProtobufCodec(Alpha))
    assert [reader.deserialize("s", data) for data in payloads] == values
    assert len({data[2:18] for data in payloads}) == 1, "one file, one schema version"
    with pytest.raises(SchemaRegistryError, match=r"shop\.Order\.Line"):
        registry.deserializer(ProtobufCodec(Order)).deserialize("s", payloads[1])
    with pytest.raises(SchemaRegistryError, match="the index 9"):
        reader.deserialize("s", payloads[0][:18] + b"\x09")
    with pytest.raises(SchemaRegistryError, match="the index"):
        reader.deserialize("s", payloads[0][:18])


@pytest.mark.parametrize("index", [0, 1, 127, 128, 300, 2**31])
def test_message_indexes_are_varints(index: int) -> None:
    assert split_index(encode_index(index) + b"rest") == (index, b"rest")


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\x03\x00" + bytes(15), b"\x02\x00" + bytes(20), b"\x03\x04" + bytes(20)]
)
def test_payloads_without_a_header(aws: FakeAws, data: bytes) -> None:
    registry = open_registry(aws)
    with pytest.raises(SchemaRegistryError, match=f"of {len(data)} bytes"):
        registry.deserializer().deserialize("orders", data)

    class Length:
        def deserialize(self, stream: str, data: bytes) -> Any:
            return stream, len(data)

    assert registry.deserializer(fallback=Length()).deserialize("orders", data) == ("orders", len(data))
    assert registry.schema_of(data) is None
    assert registry.payload_of(data) == data
    assert calls(aws) == {}


def test_compressed_payloads_are_checked(aws: FakeAws) -> None:
    registry = open_registry(aws, compression="zlib", max_payload_bytes=1000)
    data = registry.serializer(JsonCodec({})).serialize("orders", "x" * 500)
    assert data[1] == 5
    assert registry.deserializer().deserialize("orders", data) == "x" * 500
    assert registry.payload_of(data) == b'"' + b"x" * 500 + b'"'
    for damaged, problem in (
        (data[:-1], "does not end where"),
        (data + b"x", "does not end where"),
        (data[:18] + b"junk", "the compressed payload is damaged"),
        (data[:18] + zlib.compress(bytes(1001)), "larger than 1,000 bytes"),
    ):
        with pytest.raises(SchemaRegistryError, match=problem):
            registry.deserializer().deserialize("orders", damaged)


def test_a_payload_that_would_become_too_large_is_not_decompressed_first() -> None:
    bomb = header(bytes(16), compressed=True) + zlib.compress(bytes(4_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(SchemaRegistryError, match="larger than 1,000 bytes"):
            payload_of(bomb, 1_000)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 500_000


def test_a_json_codec_needs_a_schema_to_write(aws: FakeAws) -> None:
    with pytest.raises(ConfigError, match="JsonCodec"):
        open_registry(aws).serializer(JsonCodec())
    with pytest.raises(ConfigError, match="`definition`"):
        open_registry(aws).serializer(ProtobufCodec(Order))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("registry_name", ""),
        ("auto_registration", 1),
        ("compatibility", "backward"),
        ("compression", "gzip"),
        ("description", ""),
        ("cache_size", 0),
        ("time_to_live", -1),
        ("timeout", 0),
        ("max_payload_bytes", 0),
    ],
)
def test_settings_out_of_range(aws: FakeAws, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}="):
        open_registry(aws, **{name: value})


# With producer and worker


def test_from_put_to_handler(kinesis_aws: FakeAws, kinesis_stream: Any, kinesis_worker: Any) -> None:
    registry = open_registry(kinesis_aws, compression="zlib")
    pair = pairs()["avro"]
    config = ProducerConfig(serializer=registry.serializer(pair.codec))
    with Producer(config, client=kinesis_stream.client) as producer:
        producer.put_many(
            kinesis_stream.name, [("k", {**pair.value, "amount": number}) for number in range(20)]
        )
    seen: list[int] = []
    worker = kinesis_worker(
        lambda batch: seen.extend(record.value["amount"] for record in batch.records),
        ConsumerConfig(initial_position="TRIM_HORIZON", deserializer=registry.deserializer()),
    )
    worker.run()
    assert sorted(seen) == list(range(20))
