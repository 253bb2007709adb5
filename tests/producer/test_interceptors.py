"""Interceptors of a producer: they see every record once, in order, and cannot break what they stand around."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.errors import ConfigError, ProducerError, PutManyError, RecordFailedError
from kinesis_sdk.producer import (
    AsyncProducer,
    PendingRecord,
    Producer,
    ProducerConfig,
    ProducerInterceptor,
    Put,
    SendRequest,
)
from kinesis_sdk.testing import FakeAws, Fault
from tests.producer.simulation import STREAM
from tests.producer.stored import stored, stored_headers
from tests.producer.support import LONG


class Noting(ProducerInterceptor):
    """Adds its name to the headers, and notes what it hears."""

    def __init__(self, name: str, heard: list[Any]) -> None:
        self.name = name
        self.heard = heard

    def on_put(self, put: Put) -> Put:
        self.heard.append((self.name, put.data, dict(put.headers)))
        return put._replace(headers={**put.headers, self.name: "seen"})

    def on_accepted(self, put: Put, record: PendingRecord) -> None:
        self.heard.append((self.name, "accepted", sorted(put.headers), type(record)))

    @contextmanager
    def on_request(self, request: SendRequest) -> Iterator[None]:
        self.heard.append((self.name, "begins", request.kinesis_records, len(request.records)))
        try:
            yield
        except Exception as error:
            self.heard.append((self.name, "raised", type(error).__name__))
            raise
        else:
            self.heard.append((self.name, "rejected", request.rejected))


def made(aws: FakeAws, *interceptors: Any, kind: Any = Producer, **settings: Any) -> Any:
    config = ProducerConfig(**{"record_max_buffered_time": 0.005, **settings})
    return kind(config, client=aws.client("kinesis"), interceptors=interceptors)


def by_side(heard: list[Any]) -> list[Any]:
    """Put what the caller's thread heard before what the I/O thread heard: either may be ahead of the other."""
    return sorted(heard, key=lambda one: one[1] in ("begins", "raised", "rejected"))


async def asynchronously(aws: FakeAws, heard: list[Any], way: Callable[[AsyncProducer], Any]) -> None:
    async with made(aws, Noting("a", heard), Noting("b", heard), kind=AsyncProducer) as producer:
        await way(producer)


HEADERS = {"own": b"\xff"}
WAYS: dict[str, Callable[[Any], Any]] = {
    "put": lambda producer: producer.put(STREAM, "k", b"x", headers=HEADERS),
    "try_put": lambda producer: producer.try_put(STREAM, "k", b"x", headers=HEADERS),
    "put_many": lambda producer: producer.put_many(STREAM, [Put(STREAM, "k", b"x", headers=HEADERS)]),
    "send": lambda producer: producer.send(STREAM, "k", b"x", headers=HEADERS),
    "put_and_wait": lambda producer: producer.put_and_wait(STREAM, "k", b"x", headers=HEADERS),
}


@pytest.mark.parametrize(
    ("way", "in_loop"),
    [
        *((way, False) for way in ("put", "try_put", "put_many", "send")),
        *((way, True) for way in ("put", "put_many", "send", "put_and_wait")),
    ],
)
def test_every_way_in_passes_all_interceptors_in_order(aws: FakeAws, way: str, in_loop: bool) -> None:
    heard: list[Any] = []
    if in_loop:
        asyncio.run(asynchronously(aws, heard, WAYS[way]))
    else:
        with made(aws, Noting("a", heard), Noting("b", heard)) as producer:
            WAYS[way](producer)
    heard = by_side(heard)
    kind = heard[2][3]
    assert issubclass(kind, PendingRecord)
    assert heard == [
        ("a", b"x", {"own": b"\xff"}),
        ("b", b"x", {"own": b"\xff", "a": "seen"}),
        ("a", "accepted", ["a", "b", "own"], kind),
        ("b", "accepted", ["a", "b", "own"], kind),
        ("a", "begins", 1, 1),
        ("b", "begins", 1, 1),
        ("b", "rejected", 0),
        ("a", "rejected", 0),
    ]
    assert stored_headers(aws) == {b"x": {"own": b"\xff", "a": b"seen", "b": b"seen"}}


def test_plain_records_pass_them_too(aws: FakeAws) -> None:
    heard: list[Any] = []
    with made(aws, Noting("a", heard)) as producer:
        producer.put(STREAM, "k", b"0")
        producer.put(STREAM, "k", b"1")
        producer.put_many(STREAM, [("k", b"2"), ("k", b"3")])
        producer.send(STREAM, "k", b"4")
        producer.try_put(STREAM, "k", b"5")
    assert stored_headers(aws) == {b"%d" % number: {"a": b"seen"} for number in range(6)}


class Changing(ProducerInterceptor):
    def __init__(self, **changes: Any) -> None:
        self.changes = changes

    def on_put(self, put: Put) -> Put:
        return put._replace(**self.changes)


class Json:
    def serialize(self, stream: str, value: Any) -> bytes:
        return json.dumps([stream, value]).encode()


def test_they_may_change_everything_before_the_serializer(aws: FakeAws) -> None:
    aws.client("kinesis").create_stream(StreamName="other", ShardCount=1)
    change = Changing(stream=STREAM, partition_key="new", data={"n": 2}, explicit_hash_key="7")
    with made(aws, change, serializer=Json()) as producer:
        producer.put("other", "k", {"n": 1}).result(LONG)
    (record,) = deaggregate(stored(aws))
    assert (record.data, record.partition_key) == (b'["orders", {"n": 2}]', "new")


class Failing(ProducerInterceptor):
    def __init__(self, *methods: str) -> None:
        self.methods = methods

    def fail(self, method: str) -> None:
        if method in self.methods:
            raise KeyError(method)

    def on_put(self, put: Put) -> Put:
        self.fail("on_put")
        return None if "returns" in self.methods else put  # type: ignore[return-value]

    def on_accepted(self, put: Put, record: PendingRecord) -> None:
        self.fail("on_accepted")

    def on_request(self, request: SendRequest) -> Any:
        self.fail("on_request")

        @contextmanager
        def around() -> Iterator[None]:
            self.fail("enter")
            try:
                yield
            except Exception:
                self.fail("exit")
                if "suppress" in self.methods:
                    return
                raise
            self.fail("exit")

        return around()


@pytest.mark.parametrize(("method", "kind"), [("on_put", KeyError), ("returns", TypeError)])
def test_what_on_put_raises_is_raised_and_nothing_is_accepted(
    aws: FakeAws, method: str, kind: type[Exception]
) -> None:
    with made(aws, Failing(method)) as producer:
        for way in (producer.put, producer.try_put, producer.send):
            with pytest.raises(kind):
                way(STREAM, "k", b"x")
        with pytest.raises(PutManyError) as many:
            producer.put_many(STREAM, [("k", b"x")])
        assert isinstance(many.value.__cause__, kind)
        assert producer.stats().user_records_put == 0


@pytest.mark.parametrize("method", ["on_accepted", "on_request", "enter", "exit"])
def test_what_the_others_raise_is_logged_and_costs_no_record(
    aws: FakeAws, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Any] = []
    with made(aws, Failing(method), Noting("b", heard)) as producer:
        assert producer.put(STREAM, "k", b"secret").result(LONG)
    assert [one[1] for one in by_side(heard)] == [b"secret", "accepted", "begins", "rejected"]
    name = method if method.startswith("on_") else "on_request"
    assert f"Failing.{name}" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("method", ["exit", "suppress"])
def test_the_error_of_a_call_reaches_the_records_whatever_they_do(aws: FakeAws, method: str) -> None:
    heard: list[Any] = []
    aws.faults.add(
        Fault(kind="error", operation="PutRecords", code="AccessDeniedException", status=400, count=1)
    )
    with made(aws, Failing(method), Noting("b", heard)) as producer:
        record = producer.put(STREAM, "k", b"x")
        error = record.exception(LONG)
    assert isinstance(error, RecordFailedError)
    assert error.attempts[-1].code == "AccessDeniedException"
    assert by_side(heard)[-1] == ("b", "raised", "PermanentAwsError")


def test_rejected_records_are_counted_and_each_attempt_is_a_request(aws: FakeAws) -> None:
    heard: list[Any] = []
    aws.faults.add(Fault(kind="partial", operation="PutRecords", count=1, probability=1.0))
    # Neither record leaves before both are there, however slow the machine is.
    with made(aws, Noting("a", heard), aggregation_enabled=False, record_max_buffered_time=LONG) as producer:
        accepted = producer.put_many(STREAM, [("k", b"0"), ("k", b"1")])
        producer.flush()
        assert all(record.result(LONG) for record in accepted)
    rejected = [one[2] for one in heard if one[1] == "rejected"]
    assert rejected[0] > 0
    assert rejected[-1] == 0
    begun = [one[2:] for one in heard if one[1] == "begins"]
    assert begun[0] == (2, 2)


def test_what_is_no_interceptor_is_refused(aws: FakeAws) -> None:
    for wrong in (Noting, object()):
        with pytest.raises(ConfigError, match="interceptors"):
            made(aws, wrong)


def test_they_cannot_wait_for_the_thread_that_they_run_on(aws: FakeAws) -> None:
    caught: list[Exception] = []

    class Flushing(ProducerInterceptor):
        @contextmanager
        def on_request(self, request: SendRequest) -> Iterator[None]:
            try:
                producer.flush()
            except ProducerError as error:
                caught.append(error)
            yield

    with made(aws, Flushing()) as producer:
        assert producer.put(STREAM, "k", b"x").result(LONG)
    assert len(caught) == 1


def test_a_request_shows_its_records_and_no_payload(aws: FakeAws) -> None:
    seen: list[SendRequest] = []
    records: list[list[PendingRecord]] = []

    class Looking(ProducerInterceptor):
        @contextmanager
        def on_request(self, request: SendRequest) -> Iterator[None]:
            seen.append(request)
            records.append(list(request.records))
            yield

    with made(aws, Looking()) as producer:
        record = producer.put(STREAM, "secret key", b"secret")
        assert record.result(LONG)
    (request,) = seen
    assert records == [[record]]
    assert repr(request) == f"<SendRequest stream='orders' kinesis_records=1 size={len('secret key') + 6}>"
