"""The hook on both sides: what a producer puts is encoded, what a consumer reads decodes itself on first access."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import Any

import pytest

from kinesis_sdk.common.errors import (
    ConfigError,
    DeserializationError,
    PermanentAwsError,
    PutManyError,
    SchemaPendingError,
    SchemaUnavailableError,
    SerializationError,
    ThrottledError,
)
from kinesis_sdk.common.records import KinesisRecord, UserRecord
from kinesis_sdk.common.serialization import Deserializer, Serializer, decoding_record_type
from kinesis_sdk.common.user_records import PlainRun, UserRecords
from kinesis_sdk.consumer import BisectBatch, ConsumerConfig, PoisonRecord, RecordBatch, StreamSpec
from kinesis_sdk.producer import AsyncProducer, Producer, ProducerConfig
from kinesis_sdk.testing import FakeAws
from kinesis_sdk.testing.clock import VirtualClock

LONG = 60.0
HORIZON = {"initial_position": "TRIM_HORIZON"}


class Numbers:
    """Integers as decimal text, with a prefix of the stream; counts its calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def serialize(self, stream: str, value: int) -> bytes:
        self.calls.append(value)
        if value < 0:
            raise ArithmeticError(f"secret {value}")
        return f"{stream}:{value}".encode()

    def deserialize(self, stream: str, data: bytes) -> int:
        self.calls.append(data)
        name, _, number = data.decode().partition(":")
        if name != stream:
            raise ArithmeticError(f"secret {data!r}")
        return int(number)


@pytest.fixture
def aws() -> FakeAws:
    aws = FakeAws(clock=VirtualClock(), throttle=False)
    for name in ("orders", "raw"):
        aws.client("kinesis").create_stream(StreamName=name, ShardCount=1)
    return aws


def stored(aws: FakeAws, stream: str) -> list[bytes]:
    client = aws.client("kinesis")
    iterator = client.get_shard_iterator(
        StreamName=stream, ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    return [record["Data"] for record in client.get_records(ShardIterator=iterator)["Records"]]


def a_producer(aws: FakeAws, **settings: Any) -> Producer:
    return Producer(ProducerConfig(aggregation_enabled=False, **settings), client=aws.client("kinesis"))


# The producer


def test_every_way_to_put_encodes(aws: FakeAws) -> None:
    with a_producer(aws, serializer=Numbers(), ordering="per_shard") as producer:
        producer.put("orders", "k", 1)
        assert producer.try_put("orders", "k", 2) is not None
        producer.send("orders", "k", 3)
        producer.put_many("orders", [("k", 4), ("k", 5, "0")])
        producer.put_many("orders", (("k", number) for number in (6, 7)))
    assert stored(aws, "orders") == [b"orders:%d" % number for number in range(1, 8)]


def test_asyncio_encodes(aws: FakeAws) -> None:
    async def main() -> None:
        producer = AsyncProducer(
            ProducerConfig(aggregation_enabled=False, serializer=Numbers(), record_max_buffered_time=0),
            client=aws.client("kinesis"),
        )
        async with producer:
            await producer.put_and_wait("orders", "k", 1)
            await producer.send("orders", "k", 2)
            await producer.put_many("orders", [("k", 3)])
            with pytest.raises(SerializationError):
                await producer.put("orders", "k", -1)

    asyncio.run(main())
    assert sorted(stored(aws, "orders")) == [b"orders:1", b"orders:2", b"orders:3"]


def test_asyncio_does_not_block_the_loop_for_a_serializer_that_waits(aws: FakeAws) -> None:
    threads: dict[int, threading.Thread] = {}

    class Waiting(Numbers):
        def would_block(self, stream: str, value: int) -> bool:
            return (stream, value) == ("orders", 1)

        def serialize(self, stream: str, value: int) -> bytes:
            threads[value] = threading.current_thread()
            return super().serialize(stream, value)

    async def main() -> None:
        async with AsyncProducer(
            ProducerConfig(serializer=Waiting(), record_max_buffered_time=0), client=aws.client("kinesis")
        ) as producer:
            for value in (1, 2):
                await producer.put_and_wait("orders", "k", value)

    asyncio.run(main())
    assert threads[1] is not threading.main_thread()
    assert threads[2] is threading.main_thread()


def test_a_stream_may_have_its_own_serializer(aws: FakeAws) -> None:
    arn = aws.client("kinesis").describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"][
        "StreamARN"
    ]
    with a_producer(aws, serializer={"orders": Numbers()}) as producer:
        producer.put("orders", "k", 1)
        producer.put(arn, "k", 2)
        producer.put("raw", "k", b"\0bytes")
        with pytest.raises(ValueError, match=r"^data: "):
            producer.put("raw", "k", 1)
    assert sorted(stored(aws, "orders")) == [b"orders:1", b"orders:2"]
    assert stored(aws, "raw") == [b"\0bytes"]


def test_a_value_that_cannot_be_encoded_is_not_accepted_and_not_quoted(aws: FakeAws) -> None:
    with a_producer(aws, serializer=Numbers()) as producer:
        with pytest.raises(SerializationError, match=r"^stream orders: .* ArithmeticError$") as raised:
            producer.put("orders", "k", -7)
        assert isinstance(raised.value.__cause__, ArithmeticError)
        with pytest.raises(PutManyError) as many:
            producer.put_many("orders", [("k", 1), ("k", -7), ("k", 2)])
        assert many.value.index == 1
        assert len(many.value.accepted) == 1
        assert isinstance(many.value.__cause__, SerializationError)
        for put in (producer.try_put, producer.send):
            with pytest.raises(SerializationError):
                put("orders", "k", -7)
    assert stored(aws, "orders") == [b"orders:1"]


def test_errors_of_this_package_reach_the_caller_of_put_as_they_are(aws: FakeAws) -> None:
    class Pending(Numbers):
        def serialize(self, stream: str, value: int) -> bytes:
            raise SchemaPendingError("version 3 is being checked")

    with a_producer(aws, serializer=Pending()) as producer, pytest.raises(SchemaPendingError) as raised:
        producer.put("orders", "k", 1)
    assert raised.value.retryable


def test_a_serializer_must_return_bytes(aws: FakeAws) -> None:
    class Text:
        def serialize(self, stream: str, value: Any) -> Any:
            return str(value)

    with (
        a_producer(aws, serializer=Text()) as producer,
        pytest.raises(SerializationError, match="returned str instead"),
    ):
        producer.put("orders", "k", 1)


@pytest.mark.parametrize("value", [Numbers, {"orders": None}, {"orders": len}, "json", 7])
def test_what_is_not_a_serializer(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^serializer="):
        ProducerConfig(serializer=value)


@pytest.mark.parametrize("value", [Numbers, {"orders": Numbers()}, len, "json", 7])
def test_what_is_not_a_deserializer(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^deserializer="):
        ConsumerConfig(deserializer=value)
    with pytest.raises(ConfigError, match=r"^deserializer="):
        StreamSpec("orders", deserializer=value)


# The consumer


def test_without_a_deserializer_the_value_is_the_payload() -> None:
    assert UserRecord(b"x", "k", "49").value == b"x"


def test_a_value_is_decoded_once_and_only_when_it_is_accessed() -> None:
    numbers = Numbers()
    records = UserRecords([PlainRun([KinesisRecord(b"orders:7", "k", "49")])]).of_type(
        decoding_record_type(numbers, "orders", "shardId-0")
    )
    (record,) = records
    assert numbers.calls == []
    assert (record.value, record.value, record.data) == (7, 7, b"orders:7")
    assert numbers.calls == [b"orders:7"]
    assert records[0] == record == UserRecord(b"orders:7", "k", "49")
    assert repr(record) == repr(UserRecord(b"orders:7", "k", "49"))
    again = pickle.loads(pickle.dumps(record))
    assert isinstance(again, UserRecord)
    assert again.value == again.data, "the deserializer stays behind"
    assert again.id == record.id
    assert again == record


def test_a_value_of_none_is_kept_too() -> None:
    class Nothing:
        calls = 0

        def deserialize(self, stream: str, data: bytes) -> None:
            self.calls += 1

    nothing = Nothing()
    record = decoding_record_type(nothing, "orders")(b"x", "k", "49")
    assert record.value is None
    assert record.value is None
    assert nothing.calls == 1


def a_failure(error: Exception) -> DeserializationError:
    class Failing:
        def deserialize(self, stream: str, data: bytes) -> None:
            raise error

    record = decoding_record_type(Failing(), "orders", "shardId-3")(b"secret", "k", "49", None, None, 5)
    with pytest.raises(DeserializationError) as raised:
        _ = record.value
    assert raised.value.__cause__ is error
    return raised.value


def test_a_payload_that_cannot_be_decoded_is_named_and_not_quoted() -> None:
    error = a_failure(ArithmeticError("secret"))
    assert "secret" not in str(error)
    assert (error.shard_id, error.sequence_number, error.sub_sequence_number) == ("shardId-3", "49", 5)
    assert not error.retryable
    assert BisectBatch(dead_letter=print).may_be_poison(error)


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("policy", ["retry", BisectBatch(dead_letter=lambda poison: None, attempts=2)])
def test_the_log_of_a_worker_does_not_quote_the_payload_either(
    kinesis_stream: Any, kinesis_worker: Any, caplog: pytest.LogCaptureFixture, policy: Any, *, wraps: bool
) -> None:
    """Libraries quote what they reject, and a traceback shows all causes of an error."""

    class Quoting:
        attempts = 0

        def deserialize(self, stream: str, data: bytes) -> str:
            self.attempts += 1
            if self.attempts < 3:
                raise ArithmeticError(f"{data!r} is not accepted")
            return data.decode()

    kinesis_stream.put("k", b"secret")

    def handle(batch: RecordBatch) -> None:
        for record in batch.records:
            try:
                _ = record.value
            except DeserializationError as error:
                if wraps:
                    raise LookupError("no value") from error
                raise

    worker = kinesis_worker(
        handle, ConsumerConfig(deserializer=Quoting(), on_handler_error=policy, **HORIZON)
    )
    worker.run()
    assert "decoded: ArithmeticError" in caplog.text
    assert ("LookupError: no value" in caplog.text) is wraps
    assert "test_hook.py" in caplog.text, "the traceback of the handler is there"
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "cause",
    [SchemaPendingError("being checked"), ThrottledError("slow down"), PermanentAwsError("access denied")],
)
def test_a_schema_that_cannot_be_loaded_is_not_the_fault_of_the_record(cause: Exception) -> None:
    error = a_failure(cause)
    assert isinstance(error, SchemaUnavailableError)
    assert error.retryable
    assert str(cause) in str(error)
    assert not BisectBatch(dead_letter=print).may_be_poison(error)


def test_a_worker_decodes_aggregates_and_plain_records(kinesis_stream: Any, kinesis_worker: Any) -> None:
    name = kinesis_stream.name.encode()
    kinesis_stream.put("k", name + b":1")
    kinesis_stream.put_aggregate([("k", name + b":2"), ("m", name + b":3")])
    seen: list[int] = []
    worker = kinesis_worker(
        lambda batch: seen.extend(record.value for record in batch.records),
        ConsumerConfig(deserializer=Numbers(), **HORIZON),
    )
    worker.run()
    assert seen == [1, 2, 3]


def test_keys_that_are_processed_concurrently_decode_too(kinesis_stream: Any, kinesis_worker: Any) -> None:
    name = kinesis_stream.name.encode()
    kinesis_stream.put_aggregate([(f"k{number % 3}", name + b":%d" % number) for number in range(9)])
    seen: list[int] = []
    worker = kinesis_worker(
        lambda batch: seen.extend(record.value for record in batch.records),
        ConsumerConfig(deserializer=Numbers(), concurrency=4, **HORIZON),
    )
    worker.run()
    assert sorted(seen) == list(range(9))


def test_poison_goes_to_the_dead_letter_hook_and_the_rest_is_delivered(
    kinesis_stream: Any, kinesis_worker: Any
) -> None:
    name = kinesis_stream.name.encode()
    kinesis_stream.put_aggregate([("k", name + b":1"), ("k", b"other:2"), ("k", name + b":3")])
    seen: list[int] = []
    dead: list[PoisonRecord] = []

    def handle(batch: RecordBatch) -> None:
        values = [record.value for record in batch.records]
        seen.extend(values)

    policy = BisectBatch(dead_letter=dead.append, attempts=1)
    worker = kinesis_worker(
        handle, ConsumerConfig(deserializer=Numbers(), on_handler_error=policy, **HORIZON)
    )
    worker.run()
    assert seen == [1, 3]
    (poison,) = dead
    assert poison.record.data == b"other:2"
    assert isinstance(poison.error, DeserializationError)
    assert poison.error.sub_sequence_number == 1


def test_records_wait_for_a_registry_that_is_down(kinesis_stream: Any, kinesis_worker: Any) -> None:
    name = kinesis_stream.name.encode()
    kinesis_stream.put("k", name + b":1")
    failures = [ThrottledError("slow down")] * 4

    class Unreliable(Numbers):
        def deserialize(self, stream: str, data: bytes) -> int:
            if failures:
                raise failures.pop()
            return super().deserialize(stream, data)

    seen: list[int] = []
    dead: list[PoisonRecord] = []
    policy = BisectBatch(dead_letter=dead.append, attempts=1)
    worker = kinesis_worker(
        lambda batch: seen.extend(record.value for record in batch.records),
        ConsumerConfig(deserializer=Unreliable(), on_handler_error=policy, **HORIZON),
    )
    worker.run_for(60)
    assert seen == [1]
    assert dead == []


def test_the_protocols_describe_what_users_write() -> None:
    assert isinstance(Numbers(), Serializer)
    assert isinstance(Numbers(), Deserializer)
