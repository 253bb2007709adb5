"""The ways in beside `put`: try_put, put_many, send; the hooks for what is not stored; bounds by records."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_sdk.common.clock import SystemClock
from kinesis_sdk.common.errors import (
    BufferFullError,
    ConfigError,
    InvalidRecordError,
    ProducerClosedError,
    PutManyError,
    RecordFailedError,
    ResourceNotFoundError,
)
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer import FailedRecord, Producer, ProducerConfig
from kinesis_sdk.producer.records.future import PendingRecord
from kinesis_sdk.testing import VirtualClock
from tests.producer.simulation import STREAM
from tests.producer.stored import payloads
from tests.producer.support import LONG, Gate, Held, Make, beside, interpreted, settle

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


class Jump:
    """A clock that is the machine's, plus what a test adds."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._clock = SystemClock()

    def monotonic(self) -> float:
        return self._clock.monotonic() + self.ahead

    def time(self) -> float:
        return self._clock.time() + self.ahead


# ---------------------------------------------------------------------- all ways in are one way in

BAD: list[tuple[tuple[Any, ...], str]] = [
    (("", b"x"), "partition_key"),
    (("k" * 257, b"x"), "partition_key"),
    ((7, b"x"), "partition_key"),
    ((None, b"x", "0"), "explicit_hash_key"),
    ((b"k", b"x"), "partition_key"),
    ((["k"], b"x"), "partition_key"),
    (("\ud800", b"x"), "partition_key"),
    (("k", "text"), "data"),
    (("k", None), "data"),
    (("k", 5), "data"),
    (("k", [1, 2]), "data"),
    (("k", b"x" * (1024 * 1024 + 1)), "data"),
    (("k", b"x" * 1024 * 1024), "data"),
    (("é" * 200, b"x" * (1024 * 1024 - 399)), "data"),
    *(
        (("k", b"x", hash_key), "explicit_hash_key")
        for hash_key in (-1, 2**128, str(2**128), "0x10", "1.0", "", "٣", True, 1.5)
    ),
]


@pytest.mark.parametrize("way", ["put", "try_put", "send", "put_many"])
def test_every_way_in_refuses_the_same_records(make: Make, way: str) -> None:
    producer = make()
    for record, field in BAD:
        if way == "put_many":
            with pytest.raises(PutManyError) as many:
                producer.put_many(STREAM, [record])
            assert (many.value.index, many.value.accepted) == (0, ())
            error: Any = many.value.__cause__
        else:
            with pytest.raises(InvalidRecordError) as caught:
                getattr(producer, way)(STREAM, *record)
            error = caught.value
        assert isinstance(error, InvalidRecordError)
        assert error.field == field, record
        assert len(str(error)) < 300, "the payload is not repeated"
        assert producer.stats().user_records_put == producer.stats().buffered_bytes == 0


@pytest.mark.parametrize("way", ["put", "try_put", "send", "put_many"])
def test_every_way_in_checks_the_stream_and_says_when_it_is_closed(make: Make, way: str) -> None:
    producer = make()
    arguments: tuple[Any, ...] = ([("k", b"x")],) if way == "put_many" else ("k", b"x")
    with pytest.raises(ConfigError):
        getattr(producer, way)("no stream", *arguments)
    assert producer.close(LONG) == 0
    with pytest.raises(ProducerClosedError):
        getattr(producer, way)(STREAM, *arguments)


@pytest.mark.parametrize("way", ["put", "try_put", "send", "put_many"])
@pytest.mark.parametrize("data", [b"bytes", bytearray(b"bytes"), memoryview(b"__bytes")[2:], b""])
def test_every_way_in_stores(make: Make, gate: Gate, way: str, data: Any) -> None:
    producer = make()
    if way == "put_many":
        producer.put_many(ARN, [("k", data, 0), ["k", data]])  # type: ignore[list-item]
    else:
        getattr(producer, way)(ARN, "k", data, "0")
    assert producer.flush(LONG) == 0
    stats = producer.stats()
    assert stats.user_records_stored == stats.user_records_put > 0
    assert payloads(gate.aws) == {bytes(data): stats.user_records_put}


# ---------------------------------------------------------------------- try_put and the bounds


def test_try_put_never_waits_and_says_no(make: Make, gate: Gate) -> None:
    gate.open.clear()
    producer = make(max_buffered_records=2)
    futures = [producer.try_put(STREAM, "k", b"x") for _ in range(4)]
    assert [future is not None for future in futures] == [True, True, False, False]
    assert producer.stats().user_records_put == 2
    gate.open.set()
    assert producer.flush(LONG) == 0
    assert producer.try_put(STREAM, "k", b"x") is not None


def test_the_bound_on_records_stands_beside_that_on_bytes(make: Make, gate: Gate) -> None:
    gate.open.clear()
    producer = make(max_buffered_records=3, put_timeout=0)
    for _ in range(3):
        producer.put(STREAM, "k", b"x")
    with pytest.raises(BufferFullError, match="max_buffered_records=3"):
        producer.put(STREAM, "k", b"x")
    with pytest.raises(BufferFullError):
        producer.send(STREAM, "k", b"x")
    gate.open.set()
    assert producer.flush(LONG) == 0
    assert producer.put(STREAM, "k", b"x").result(LONG)


# ---------------------------------------------------------------------- put_many


def test_put_many_keeps_the_order_and_gives_a_future_for_each(make: Make) -> None:
    producer = make(record_max_buffered_time=60.0)
    futures = producer.put_many(STREAM, ((f"k{n}", b"%d" % n) for n in range(1_000)))
    assert [future.partition_key for future in futures] == [f"k{n}" for n in range(1_000)]
    assert producer.flush(LONG) == 0
    assert all(future.result(0) for future in futures)
    assert producer.put_many(STREAM, []) == []


@pytest.mark.parametrize("bad", [0, 1, 255, 256, 257, 600])
def test_put_many_accepts_what_comes_before_a_bad_record_and_says_which_one(make: Make, bad: int) -> None:
    producer = make()
    records = [("k" if n != bad else "", b"%d" % n) for n in range(700)]
    with pytest.raises(PutManyError) as caught:
        producer.put_many(STREAM, records)
    assert caught.value.index == bad == len(caught.value.accepted)
    assert isinstance(caught.value.__cause__, InvalidRecordError)
    assert producer.flush(LONG) == 0
    assert all(future.result(0) for future in caught.value.accepted)
    assert producer.stats().user_records_put == bad


def test_put_many_says_how_far_it_came_when_the_iterable_raises(make: Make) -> None:
    def records() -> Iterator[tuple[str, bytes]]:
        yield "k", b"0"
        yield "k", b"1"
        raise OSError("the source is gone")

    producer = make()
    with pytest.raises(PutManyError) as caught:
        producer.put_many(STREAM, records())
    assert caught.value.index == 2
    assert isinstance(caught.value.__cause__, OSError)
    assert producer.flush(LONG) == 0


@pytest.mark.parametrize("item", [("k",), ("k", b"x", "0", "more"), 5, b"x", None])
def test_put_many_takes_pairs_and_triples_only(make: Make, item: Any) -> None:
    producer = make()
    with pytest.raises(PutManyError) as caught:
        producer.put_many(STREAM, [("k", b"x"), item])
    assert caught.value.index == 1


def test_put_many_with_a_full_buffer_says_how_far_it_came(make: Make, gate: Gate) -> None:
    gate.open.clear()
    producer = make(max_buffered_records=300, put_timeout=0)
    with pytest.raises(PutManyError) as caught:
        producer.put_many(STREAM, [("k", b"x")] * 1_000)
    assert caught.value.index == len(caught.value.accepted) == 300
    assert isinstance(caught.value.__cause__, BufferFullError)
    gate.open.set()
    assert producer.flush(LONG) == 0
    assert all(future.result(0) for future in caught.value.accepted)


def test_put_many_waits_for_room_and_keeps_the_bound(make: Make) -> None:
    producer = make(max_buffered_records=10)
    futures = producer.put_many(STREAM, [("k", b"x")] * 500)
    assert producer.flush(LONG) == 0
    assert all(future.result(0) for future in futures)


@interpreted
def test_put_many_takes_the_lock_once_for_a_chunk(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = make()
    sizes: list[int] = []
    engine = producer._engine
    accept_many = engine.accept_many

    def counted(pipeline: Any, items: Any, hash_of: Any, accepted: list[PendingRecord]) -> Any:
        before = len(accepted)
        rest = accept_many(pipeline, items, hash_of, accepted)
        sizes.append(len(accepted) - before)
        return rest

    monkeypatch.setattr(engine, "accept_many", counted)
    clock = producer._now()
    monkeypatch.setattr(producer, "_now", lambda: clock)
    for records in ([("k", b"x")] * 1_000, tuple([("k", b"x")] * 1_000), iter([("k", b"x")] * 1_000)):
        producer.put_many(STREAM, records)
        assert sizes == [256, 256, 256, 232]
        sizes.clear()
    producer.put_many(STREAM, iter([("k", b"x" * 600_000)] * 3))
    assert sizes == [2, 1]
    assert producer.flush(LONG) == 0


def test_put_many_does_not_keep_the_records_of_a_slow_source_back(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = make()
    now = producer._now()
    times = iter([now, now + 1.0, now + 1.001, now + 1.002])
    monkeypatch.setattr(producer, "_now", lambda: next(times))
    known: list[int] = []

    def records() -> Iterator[tuple[str, bytes]]:
        for _ in range(4):
            known.append(producer.stats().user_records_put)
            yield "k", b"x"

    producer.put_many(STREAM, records())
    assert known == [0, 0, 2, 2]
    assert producer.flush(LONG) == 0


# ---------------------------------------------------------------------- send and the hooks


def test_a_failed_send_is_told_with_its_payload_and_its_cause(make: Make) -> None:
    told: list[FailedRecord] = []
    producer = make(on_send_error=told.append)
    producer.send("nowhere", "k", b"secret", 7)
    producer.put("nowhere", "k", b"has a future")
    producer.send(STREAM, "k", b"is stored")
    assert producer.flush(LONG) == 0
    (failed,) = told
    assert (failed.stream, failed.partition_key, failed.explicit_hash_key) == ("nowhere", "k", "7")
    assert failed.data == b"secret"
    assert isinstance(failed.error, RecordFailedError)
    assert isinstance(failed.error.__cause__, ResourceNotFoundError)
    assert "secret" not in repr(failed)


def test_every_record_that_is_not_stored_is_told_before_flush_returns(make: Make) -> None:
    told: list[FailedRecord] = []
    producer = make(on_record_failed=told.append)
    future = producer.put(ARN.replace("orders", "nowhere"), "k", b"0")
    producer.send("nowhere", "k", b"1")
    assert producer.flush(LONG) == 0
    assert future.done()
    assert future.data == b"", "the payload is released, but not before the hook saw it"
    assert sorted((failed.data, failed.stream) for failed in told) == [
        (b"0", ARN.replace("orders", "nowhere")),
        (b"1", "nowhere"),
    ]


def test_what_is_left_at_close_is_told(make: Make, gate: Gate) -> None:
    gate.open.clear()
    told: list[FailedRecord] = []
    producer = make(on_record_failed=told.append, record_max_buffered_time=60.0)
    producer.put(STREAM, "a", b"with the network")
    assert producer.flush(0) == 1
    assert gate.arrived.acquire(timeout=LONG)
    producer.put(STREAM, "b", b"not yet")
    assert producer.close(0) == 2
    assert sorted(failed.data for failed in told) == [b"not yet", b"with the network"]
    assert all(isinstance(failed.error.__cause__, ProducerClosedError) for failed in told)


@interpreted
def test_what_a_crash_leaves_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[FailedRecord] = []
    producer = make(on_record_failed=told.append)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(producer._engine.pipeline(StreamId(STREAM)).responses, "on_response", broken)
    future = producer.put(STREAM, "k", b"y")
    assert isinstance(future.exception(LONG), RecordFailedError)
    assert [failed.data for failed in told] == [b"y"]


def test_room_is_given_back_only_when_the_hook_has_seen_the_payload(make: Make) -> None:
    slow = Held()
    producer = make(on_record_failed=slow, max_buffered_records=1)
    producer.put("nowhere", "k", b"x")
    assert slow.entered.wait(LONG)
    assert producer.try_put(STREAM, "k", b"y") is None
    assert producer.flush(0) == 1
    slow.released.set()
    assert producer.flush(LONG) == 0
    assert producer.try_put(STREAM, "k", b"y") is not None


def test_a_callback_finds_room_for_what_it_puts(make: Make) -> None:
    again: list[PendingRecord] = []
    producer = make(max_buffered_records=1)
    future = producer.put("nowhere", "k", b"x")
    future.add_done_callback(lambda f: again.append(producer.put(STREAM, "k", b"x")))
    with pytest.raises(RecordFailedError):
        future.result(LONG)
    assert producer.flush(LONG) == 0
    producer.close(LONG)
    assert again[0].result(LONG)


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_hook_that_raises_costs_no_record_its_result(
    make: Make, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    def broken(_: FailedRecord) -> None:
        raise error("broken hook")

    producer = make(on_send_error=broken, on_record_failed=broken)
    with caplog.at_level(logging.ERROR):
        producer.send("nowhere", "k", b"secret")
        future = producer.put("nowhere", "k", b"secret")
        assert producer.flush(LONG) == 0
    assert isinstance(future.exception(LONG), RecordFailedError)
    assert "broken hook" in caplog.text
    assert "secret" not in caplog.text
    assert producer.put(STREAM, "k", b"x").result(LONG)


def test_without_hooks_failed_sends_are_logged_less_and_less_often(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    producer = make()
    with caplog.at_level(logging.ERROR):
        for _ in range(20):
            producer.send("nowhere", "k", b"secret")
        assert producer.flush(LONG) == 0
    lines = [record.getMessage() for record in caplog.records]
    assert [int(line.split()[0]) for line in lines] == [1, 2, 4, 8, 16]
    assert "secret" not in caplog.text


def test_futures_are_final_when_flush_returns(make: Make) -> None:
    producer = make()
    for _ in range(20):
        futures = producer.put_many(STREAM, [("k", b"x")] * 200)
        assert producer.flush(LONG) == 0
        assert all(future.done() for future in futures)


# ---------------------------------------------------------------------- a process that stood still


def test_time_in_which_the_process_stood_still_is_not_counted(make: Make, gate: Gate) -> None:
    clock = Jump()
    gate.open.clear()
    with make(clock=clock, record_max_buffered_time=5.0, record_ttl=30.0) as producer:
        on_its_way = producer.put(STREAM, "a", b"on its way")
        assert producer.flush(0) == 1
        assert gate.arrived.acquire(timeout=LONG)
        buffered = producer.put(STREAM, "b", b"buffered")
        calls = iter([False])

        def fails_once(**request: Any) -> dict[str, Any]:
            if next(calls, True):
                return gate.client.put_records(**request)
            raise ConnectionError("cut off while it was frozen")

        gate.replace["put_records"] = fails_once
        clock.ahead = 3_600.0  # frozen for an hour
        gate.open.set()
        assert buffered.result(LONG)
        assert on_its_way.result(LONG).attempts[0].code
        assert producer.flush(LONG) == 0
        assert producer.stats().expired_user_records == 0


def test_an_idle_hour_before_a_put_is_no_standstill(make: Make, gate: Gate) -> None:
    clock = VirtualClock()
    with make(clock=clock, record_max_buffered_time=0.0, record_ttl=30.0) as producer:
        assert producer.put(STREAM, "a", b"x").result(LONG)
        clock.advance(3_600.0)
        gate.open.clear()
        record = producer.put(STREAM, "a", b"y")
        assert gate.arrived.acquire(timeout=LONG)
        assert gate.arrived.acquire(timeout=LONG)
        assert record.grace == 0.0
        gate.open.set()
        assert record.result(LONG)


# ---------------------------------------------------------------------- a stream that changes who places its records


def test_a_stream_that_goes_back_to_partition_keys_is_aggregated_again(make: Make, gate: Gate) -> None:
    clock = Jump()
    strategy = "AUTO"

    def describe(**request: Any) -> dict[str, Any]:
        answer = gate.client.describe_stream_summary(**request)
        answer["StreamDescriptionSummary"]["RecordDistributionStrategy"] = strategy
        return answer

    gate.replace["describe_stream_summary"] = describe
    with make(clock=clock, record_max_buffered_time=60.0, record_ttl=600.0) as producer:
        pipeline = producer._engine.pipeline(StreamId(STREAM))
        while not pipeline.topology.service_places:
            producer.put(STREAM, "k", b"x")
            assert producer.flush(LONG) == 0
        strategy = "USER"
        clock.ahead += 301.0
        while pipeline.topology.service_places:
            producer.put(STREAM, "k", b"x")
            assert producer.flush(LONG) == 0
        before = producer.stats().kinesis_records_stored
        producer.put_many(STREAM, [("k", b"x")] * 100)
        assert producer.flush(LONG) == 0
        assert producer.stats().kinesis_records_stored == before + 1


def test_a_stream_whose_record_limit_was_raised_is_asked_again_but_rarely(make: Make, gate: Gate) -> None:
    clock = Jump()
    asked: list[int] = []

    def describe(**request: Any) -> dict[str, Any]:
        asked.append(1)
        return gate.client.describe_stream_summary(**request)

    gate.replace["describe_stream_summary"] = describe
    large = b"x" * (2 * 1024 * 1024)
    with make(clock=clock, record_max_buffered_time=0.005, max_user_record_size=10 * 1024 * 1024) as producer:
        settle(producer)
        arn = gate.client.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]["StreamARN"]
        gate.client.update_max_record_size(StreamARN=arn, MaxRecordSizeInKiB=10_240)
        known = len(asked)
        for _ in range(20):
            with pytest.raises(InvalidRecordError, match="1,048,576"):
                producer.put(STREAM, "k", large)
        settle(producer)
        assert len(asked) == known, "it was asked just now"
        clock.ahead += 61.0
        with pytest.raises(InvalidRecordError):
            producer.put(STREAM, "k", large)
        settle(producer)
        assert len(asked) == known + 1
        assert producer.put(STREAM, "k", large).result(LONG)
        clock.ahead += 61.0
        with pytest.raises(InvalidRecordError, match="10,485,760"):
            producer.put(STREAM, "k", large * 5)
        settle(producer)
        assert len(asked) == known + 1, "more than this the configuration does not allow"


# ---------------------------------------------------------------------- its own client


def test_a_producer_without_a_client_makes_one_by_its_settings(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kinesis_sdk.producer import producer as module

    wanted: list[Any] = []
    monkeypatch.setattr(module, "make_client", lambda *given, **named: wanted.append((given, named)) or gate)
    config = ProducerConfig(max_connections=5, connect_timeout=1.5, request_timeout=9.0)
    with Producer(config, region_name="eu-west-1", endpoint_url="http://e") as producer:
        assert producer.put(STREAM, "k", b"x").result(LONG)
    named = {"session": None, "region_name": "eu-west-1", "endpoint_url": "http://e"}
    times = {"connect_timeout": 1.5, "read_timeout": 9.0}
    assert wanted == [(("kinesis",), {**named, **times, "max_pool_connections": 7})]


# ---------------------------------------------------------------------- metrics


def test_without_metrics_nothing_is_measured(make: Make) -> None:
    assert make()._engine._metrics is None
    assert make(metrics_level="none")._engine._metrics is None


def test_a_metrics_level_sends_to_cloudwatch_and_closes_with_the_producer(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kinesis_sdk.metrics import cloudwatch

    uploaded: list[dict[str, Any]] = []

    class Client:
        def put_metric_data(self, **request: Any) -> dict[str, Any]:
            uploaded.append(request)
            return {}

    wanted: list[tuple[str, Any]] = []

    def make_client(service: str, **settings: Any) -> Client:
        wanted.append((service, settings["region_name"]))
        return Client()

    monkeypatch.setattr(cloudwatch, "make_client", make_client)
    config = ProducerConfig(metrics_level="summary", metrics_granularity="global", metrics_namespace="orders")
    with Producer(config, client=gate, region_name="eu-west-1") as producer:
        producer.put(STREAM, "k", b"x")
    assert wanted == [("cloudwatch", "eu-west-1")]
    assert {request["Namespace"] for request in uploaded} == {"orders"}
    names = {datum["MetricName"] for request in uploaded for datum in request["MetricData"]}
    assert "UserRecordsPut" in names
    assert "UserRecordsReceived" not in names, "that is detailed"


def test_while_there_are_records_the_engine_looks_at_the_clock_each_second(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = make(record_max_buffered_time=60.0, record_ttl=600.0)
    waits: list[float] = []
    asleep = threading.Event()
    wake = producer._engine._shared.wake
    wait = wake.wait

    def noted(timeout: float | None = None) -> bool:
        assert timeout is not None
        waits.append(timeout)
        asleep.set()
        return wait(timeout)

    monkeypatch.setattr(wake, "wait", noted)
    future = producer.put(STREAM, "k", b"x")
    assert asleep.wait(LONG)
    assert max(waits) <= 1.0
    assert not future.done()
    assert producer.flush(LONG) == 0


def test_records_of_put_many_do_not_age_while_an_earlier_one_waits_for_room(make: Make, gate: Gate) -> None:
    clock = VirtualClock()
    gate.open.clear()
    futures: list[PendingRecord] = []
    with make(clock=clock, record_max_buffered_time=0.0, max_buffered_records=2) as producer:
        with beside(lambda: futures.extend(producer.put_many(STREAM, [("k", b"x")] * 4))):
            while not producer._engine._shared.waiting_puts:
                pass
            clock.advance(4.0)
            gate.open.set()
        assert [future.arrived for future in futures] == [0.0, 0.0, 4.0, 4.0]
        assert not any(future.grace for future in futures)
