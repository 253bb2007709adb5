"""The producer's public face: real threads and a real clock, the fake service in the same process, no sockets."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dis
import logging
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from kinesis_sdk.common.errors import (
    BufferFullError,
    ConfigError,
    InvalidRecordError,
    PermanentAwsError,
    ProducerClosedError,
    ProducerError,
    PutManyError,
    RecordFailedError,
    ResourceNotFoundError,
)
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.producer.io import completion as completion_module
from kinesis_sdk.producer.io.sender import TaskPool
from kinesis_sdk.producer.records import record as record_module
from kinesis_sdk.producer.records.future import PendingRecord, wait_guards
from kinesis_sdk.producer.records.record import CallbackRun, PutResult, cost_of
from kinesis_sdk.producer.stream.pending import PendingRecords
from kinesis_sdk.producer.stream.responses import ResponseHandler
from kinesis_sdk.testing import FakeAws, Fault, VirtualClock
from tests.fuzz import TIMES, share
from tests.producer.simulation import STREAM
from tests.producer.stored import payloads as stored
from tests.producer.support import LONG, Gate, Held, Make, beside, failure_of, interpreted, settle

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
MIB = 1024 * 1024
ROOM = str(Path(sys.modules[Producer.__module__].__file__ or "").parent)
"""Where the producer's code is."""


# ---------------------------------------------------------------------- the main road


@pytest.mark.parametrize("stream", [STREAM, ARN, StreamId(STREAM), StreamId.parse(ARN)])
def test_a_lonely_record_of_a_stream_by_name_or_arn_is_sent_without_being_asked_for(
    make: Make, aws: FakeAws, stream: str | StreamId
) -> None:
    result = make().put(stream, "k", b"x").result(LONG)
    assert result.shard_id.startswith("shardId-")
    assert result.attempts[-1].success
    assert stored(aws) == {b"x": 1}


@pytest.mark.parametrize("key", [0, "0", " 00007 ", 2**128 - 1, str(2**128 - 1)])
def test_an_explicit_hash_key_places_the_record(make: Make, key: str | int) -> None:
    producer = make()
    expected = "shardId-000000000001" if int(key) > 2**127 else "shardId-000000000000"
    assert producer.put(STREAM, "k", b"x", key).result(LONG).shard_id == expected


def test_stats_and_memory_return_to_zero(make: Make) -> None:
    producer = make()
    for number in range(500):
        producer.put(STREAM, f"k{number}", b"0123456789")
    assert producer.flush(LONG) == 0
    stats = producer.stats()
    assert stats.user_records_put == stats.user_records_stored == 500
    assert stats.user_bytes_stored == 5_000
    assert 1 <= stats.kinesis_records_stored <= 500
    assert stats.user_records_failed == stats.failed_calls == 0
    assert stats.buffered_bytes == 0
    assert not producer._engine._shared.usage.outstanding


def test_stats_may_be_asked_for_at_any_moment(make: Make, restless: None) -> None:
    producer = make(aggregation_max_count=2)
    seen: list[tuple[int, int]] = []
    done, asked = threading.Event(), threading.Event()

    def ask() -> None:
        while not done.is_set():
            stats = producer.stats()
            seen.append((stats.user_records_put, stats.user_records_stored))
        asked.set()

    with beside(ask):
        try:
            for number in range(1_000):
                producer.put(STREAM, f"k{number % 40}", b"x")
            assert producer.flush(LONG) == 0
        finally:
            done.set()
    assert asked.is_set(), "it asked to the end"
    assert seen == sorted(seen)
    assert all(stored <= put for put, stored in seen)
    assert producer.stats().user_records_put == producer.stats().user_records_stored == 1_000


def test_many_streams_in_one_producer(make: Make, aws: FakeAws) -> None:
    client = aws.client("kinesis")
    names = [f"stream-{number}" for number in range(12)]
    for name in names:
        client.create_stream(StreamName=name, ShardCount=2)
    producer = make(max_connections=2)
    for number in range(120):
        producer.put(names[number % 12], f"k{number}", b"%d" % number)
    assert producer.flush(LONG) == 0
    for index, name in enumerate(names):
        assert stored(aws, name) == Counter(b"%d" % number for number in range(index, 120, 12))


def test_many_threads_and_every_future_resolves_exactly_once(
    make: Make, aws: FakeAws, restless: None
) -> None:
    aws.faults.add(Fault(kind="partial", operation="PutRecords", probability=0.3, count=50))
    producer = make(aggregation_max_size=500, max_connections=4)
    resolved: Counter[int] = Counter()
    futures: list[PendingRecord] = []

    def work(thread: int) -> None:
        for number in range(200):
            future = producer.put(STREAM, f"k{number % 17}", b"%d-%d" % (thread, number))
            future.add_done_callback(lambda f: resolved.update([id(f)]))
            futures.append(future)

    with beside(*(partial(work, number) for number in range(8))):
        pass
    assert producer.close(LONG) == 0
    assert resolved == dict.fromkeys(map(id, futures), 1)
    assert all(future.exception(0) is None for future in futures)
    assert set(stored(aws)) == {b"%d-%d" % (thread, number) for thread in range(8) for number in range(200)}


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "stream",
    ["", "a" * 129, "with space", None, 7, b"orders", ["orders"], {"a": 1}, "arn:aws:s3:::bucket", ARN[:-6]],
)
def test_bad_streams_are_refused_at_once(make: Make, stream: Any) -> None:
    producer = make()
    with pytest.raises(ConfigError) as caught:
        producer.put(stream, "k", b"x")
    assert caught.value.field == "stream"
    assert producer.stats().user_records_put == 0


def test_the_size_limit_counts_the_bytes_of_key_and_data(make: Make) -> None:
    producer = make()
    assert producer.put(STREAM, "k", b"x" * (MIB - 1)).result(LONG)
    assert producer.put(STREAM, "é" * 200, b"x" * (MIB - 400)).result(LONG)
    assert producer.put(STREAM, "🔑" * 256, b"x" * (MIB - 1024)).result(LONG)
    with pytest.raises(InvalidRecordError, match="1,048,577 bytes together"):
        producer.put(STREAM, "🔑" * 256, b"x" * (MIB - 1023))


# ---------------------------------------------------------------------- what the service says no to


def test_an_endpoint_that_is_late_at_the_start_is_named_at_once_and_waited_for(
    make: Make, aws: FakeAws, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """A sidecar or a network that comes up a moment after the process."""
    logged: list[bool] = []

    def describe(**request: Any) -> dict[str, Any]:
        if len(logged) < 3:
            logged.append("failed to load shard map (attempt 1): DescribeStreamSummary" in caplog.text)
            raise EndpointConnectionError(endpoint_url="https://kinesis.example")
        gate.replace.pop("put_records", None)
        answer: dict[str, Any] = gate.client.describe_stream_summary(**request)
        return answer

    def put_records(**_: Any) -> dict[str, Any]:
        raise EndpointConnectionError(endpoint_url="https://kinesis.example")

    gate.replace["describe_stream_summary"] = describe
    gate.replace["put_records"] = put_records
    producer = make()
    with caplog.at_level(logging.WARNING):
        record = producer.put(STREAM, "k", b"x")
        assert record.result(LONG).shard_id
    assert logged == [False, True, True]
    assert stored(aws, STREAM) == Counter({b"x": 1})


def test_without_the_permission_to_put_records_fail_at_once_and_keep_no_request_in_memory(
    make: Make, aws: FakeAws
) -> None:
    aws.faults.add(Fault(kind="error", operation="PutRecords", code="AccessDeniedException", status=400))
    link = failure_of(make().put(STREAM, "k", b"x"), LONG).__cause__
    assert isinstance(link, PermanentAwsError)
    assert link.code == "AccessDeniedException"
    links = 0
    while link is not None:
        links += 1
        assert link.__traceback__ is None, "its frames hold the encoded request"
        link = link.__cause__ or link.__context__
    assert links >= 2


# ---------------------------------------------------------------------- backpressure


def test_a_full_buffer_refuses_at_once_if_told_so(make: Make, gate: Gate) -> None:
    gate.open.clear()
    producer = make(max_buffered_bytes=65_536, put_timeout=0)
    accepted = 0
    with pytest.raises(BufferFullError, match="max_buffered_bytes=65,536") as caught:
        for _ in range(1_000):
            producer.put(STREAM, "k", b"x" * 1_000)
            accepted += 1
    assert caught.value.retryable
    assert 10 < accepted < 66
    assert producer.stats().user_records_put == accepted
    assert producer.stats().buffered_bytes <= 65_536
    gate.open.set()
    assert producer.flush(LONG) == 0
    assert producer.put(STREAM, "k", b"x" * 1_000).result(LONG)


def test_a_full_buffer_refuses_after_the_time_given(make: Make, gate: Gate) -> None:
    gate.open.clear()
    producer = make(max_buffered_bytes=65_536, put_timeout=0.02)
    with pytest.raises(BufferFullError, match=r"0\.02 s"):
        for _ in range(1_000):
            producer.put(STREAM, "k", b"x" * 1_000)
    assert not producer._engine._shared.waiting_puts


def test_refusals_leave_what_is_open_alone(make: Make, gate: Gate) -> None:
    gate.open.clear()
    producer = make(max_buffered_bytes=65_536, put_timeout=0, record_max_buffered_time=60.0)
    for _ in range(1_000):
        try:
            producer.put(STREAM, "k", b"x" * 100)
        except BufferFullError:
            continue
    gate.open.set()
    assert producer.flush(LONG) == 0
    assert producer.stats().kinesis_records_stored == 1


def test_a_put_that_waits_goes_on_when_room_comes_and_the_bound_holds(make: Make, gate: Gate) -> None:
    gate.open.clear()
    producer = make(max_buffered_bytes=65_536)
    highest = 0

    def work() -> None:
        nonlocal highest
        for _ in range(400):
            producer.put(STREAM, "k", b"x" * 1_000)
            highest = max(highest, producer.stats().buffered_bytes)

    with beside(work) as (thread,):
        assert gate.arrived.acquire(timeout=LONG)
        assert thread.is_alive()
        gate.open.set()
    assert producer.flush(LONG) == 0
    assert 50_000 < highest <= 65_536
    assert producer.stats().user_records_stored == 400


def test_full_aggregates_do_not_wait_for_their_deadline_while_a_put_waits_for_room(make: Make) -> None:
    producer = make(max_buffered_bytes=MIB, record_max_buffered_time=3_600.0, record_ttl=7_200.0)
    settle(producer)
    with beside(lambda: [producer.put(STREAM, f"k{number}", b"x" * 1_000) for number in range(3_000)]):
        pass
    assert producer.flush(LONG) == 0


def test_backpressure_does_not_break_aggregation_up(make: Make, aws: FakeAws, gate: Gate) -> None:
    # One answer at a time makes room for as many records as it held. If waiting for room closed everything
    # that is open, each round would leave smaller aggregates than the one before.
    client = aws.client("kinesis")
    client.create_stream(StreamName="wide", ShardCount=16)
    producer = make(
        max_buffered_bytes=MIB, record_max_buffered_time=60.0, record_ttl=600.0, max_connections=1
    )
    settle(producer, "wide")
    known = producer.stats()
    for number in range(20_000):
        producer.put("wide", f"k{number}", b"x" * 100)
    assert producer.flush(LONG) == 0
    stats = producer.stats()
    assert stats.user_records_stored - known.user_records_stored == 20_000
    assert 20_000 / (stats.kinesis_records_stored - known.kinesis_records_stored) > 50


def test_time_spent_waiting_for_room_does_not_count_against_the_time_to_live(make: Make, gate: Gate) -> None:
    clock = VirtualClock()
    gate.open.clear()
    settings = {"max_buffered_bytes": 65_536, "record_max_buffered_time": 0.0, "request_timeout": 60.0}
    with make(clock=clock, record_ttl=3.0, **settings) as producer:
        producer.put(STREAM, "k", b"x" * 60_000)
        assert gate.arrived.acquire(timeout=LONG)
        results: list[PendingRecord] = []
        with beside(lambda: results.append(producer.put(STREAM, "k", b"x" * 60_000))):
            while not producer._engine._shared.waiting_puts:
                pass
            clock.advance(4.0)
            gate.open.set()
        assert results[0].result(LONG)


def test_a_record_larger_than_the_whole_buffer_passes_alone(make: Make) -> None:
    producer = make(max_buffered_bytes=65_536)
    futures = [producer.put(STREAM, "k", b"x" * 500_000) for _ in range(3)]
    assert all(future.result(LONG) for future in futures)


# ---------------------------------------------------------------------- flush and close


def test_flush_returns_what_is_left_when_the_endpoint_stalls(make: Make, gate: Gate) -> None:
    gate.open.clear()
    producer = make(record_max_buffered_time=60.0)
    for number in range(7):
        producer.put(STREAM, f"k{number}", b"x")
    assert producer.flush(0) == 7
    assert producer.flush(0.02) == 7
    assert gate.arrived.acquire(timeout=LONG)
    gate.open.set()
    assert producer.flush(LONG) == 0
    assert producer.flush(0) == 0


def test_flush_does_not_wait_for_what_comes_after_it(make: Make, gate: Gate) -> None:
    producer = make(record_max_buffered_time=60.0)
    producer.put(STREAM, "k", b"first")
    gate.open.clear()
    with beside(lambda: producer.flush(LONG)):
        assert gate.arrived.acquire(timeout=LONG)
        later = producer.put(STREAM, "k", b"later")
        gate.open.set()
    assert not later.done()


def test_a_flush_ends_although_a_retried_record_shares_a_kinesis_record_with_newer_ones(
    make: Make, gate: Gate
) -> None:
    producer = make(record_max_buffered_time=60.0)
    settle(producer)
    while gate.arrived.acquire(blocking=False):
        pass
    answers = [{"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "slow down"}]
    real = gate.client.put_records
    gate.replace["put_records"] = lambda **request: (
        {"Records": [answers.pop()]} if answers else real(**request)
    )
    gate.open.clear()
    first = producer.put(STREAM, "k", b"first")
    left: list[int] = []
    with beside(lambda: left.append(producer.flush(LONG))):
        assert gate.arrived.acquire(timeout=LONG)
        second = producer.put(STREAM, "k", b"second")  # of the next flush, and not due for a minute
        gate.open.set()
    assert left == [0]
    assert first.result(LONG).sequence_number == second.result(LONG).sequence_number, (
        "they were sent together"
    )
    assert producer.close(LONG) == 0


def test_an_unused_producer_starts_no_threads(make: Make) -> None:
    producer = make()
    assert producer.flush() == 0
    assert producer._engine._loop._thread is None
    assert producer.close() == 0
    assert producer._engine._loop._thread is None


def test_close_sends_everything_and_ends_the_threads(make: Make, aws: FakeAws) -> None:
    producer = make(record_max_buffered_time=60.0)
    futures = [producer.put(STREAM, f"k{number}", b"%d" % number) for number in range(100)]
    producer.flush(LONG)
    futures += [producer.put(STREAM, f"k{number}", b"%d" % number) for number in range(100, 200)]
    assert producer.close() == 0
    assert all(future.done() for future in futures)
    assert sorted(stored(aws)) == sorted(b"%d" % number for number in range(200))
    threads = [producer._engine._loop._thread, *producer._engine._loop._pool.threads]
    assert len(threads) > 1
    assert not any(thread.is_alive() for thread in threads if thread)


def test_closing_twice_is_harmless_and_put_and_flush_say_no(make: Make) -> None:
    producer = make()
    producer.put(STREAM, "k", b"x")
    assert producer.close() == 0
    assert producer.close() == 0
    for _ in range(50):
        with pytest.raises(ProducerClosedError, match="closed") as caught:
            producer.put(STREAM, "k", b"x")
    depth, traceback = 0, caught.value.__traceback__
    while traceback is not None:
        depth, traceback = depth + 1, traceback.tb_next
    assert depth < 10, "each one is a new object"
    with pytest.raises(ProducerClosedError):
        producer.flush()


def test_a_put_to_a_new_stream_after_close_does_not_keep_the_producer_alive(make: Make) -> None:
    producer = make()
    assert producer.put(STREAM, "k", b"x").result(LONG)
    assert producer.close(LONG) == 0
    with pytest.raises(ProducerClosedError):
        producer.put("another", "k", b"x")
    assert producer._engine not in wait_guards


def test_whoever_closes_second_waits_for_the_first(make: Make, gate: Gate) -> None:
    gate.open.clear()
    producer = make(record_max_buffered_time=60.0)
    future = producer.put(STREAM, "k", b"x")
    lefts: list[int] = []
    with beside(lambda: lefts.append(producer.close(LONG))):
        assert gate.arrived.acquire(timeout=LONG)
        assert producer.close(0.01) == 1, "still with the network"
        assert not future.done()
        with beside(lambda: lefts.append(producer.close(LONG) + 10 * (not future.done()))):
            gate.open.set()
    assert lefts == [0, 0]
    assert future.result(0)
    assert producer.close(0) == 0


def test_close_with_a_timeout_leaves_no_record_without_a_result(make: Make, gate: Gate) -> None:
    gate.open.clear()
    producer = make(aggregation_enabled=False, collection_max_count=1, max_connections=2)
    futures = [producer.put(STREAM, f"k{number}", b"x") for number in range(6)]
    assert gate.arrived.acquire(timeout=LONG)
    assert producer.close(0.01) == 6
    for future in futures:
        error = future.exception(0)
        assert isinstance(error, RecordFailedError)
        assert isinstance(error.__cause__, ProducerClosedError)
    sent = len(gate.requests)
    calls: list[object] = []
    futures[0].add_done_callback(calls.append)
    gate.open.set()  # answers that nobody waits for any more
    for thread in producer._engine._loop._pool.threads:
        thread.join(LONG)
        assert not thread.is_alive()
    assert calls == [futures[0]]
    assert isinstance(futures[0].exception(0), RecordFailedError)
    assert len(gate.requests) == sent, "what failed is not sent afterwards"
    assert producer.stats().buffered_bytes == 0


def test_a_request_that_a_thread_takes_up_after_close_is_not_made(
    make: Make, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[Callable[[], None]] = []
    submitted = threading.Semaphore(0)
    monkeypatch.setattr(TaskPool, "submit", lambda _, task: (tasks.append(task), submitted.release()))
    producer = make()
    record = producer.put(STREAM, "k", b"x")
    for _ in ("shard map", "request"):
        assert submitted.acquire(timeout=LONG)
    assert producer.close(0) == 1
    with beside(*tasks):
        pass
    assert not gate.requests
    assert isinstance(failure_of(record).__cause__, ProducerClosedError)


def test_closing_wakes_a_put_that_waits_for_room(make: Make, gate: Gate) -> None:
    gate.open.clear()
    producer = make(max_buffered_bytes=65_536)
    producer.put(STREAM, "k", b"x" * 60_000)
    outcome: list[BaseException] = []
    waiting = threading.Event()

    def work() -> None:
        waiting.set()
        try:
            producer.put(STREAM, "k", b"x" * 60_000)
        except ProducerClosedError as error:
            outcome.append(error)

    with beside(work):
        assert waiting.wait(LONG)
        assert gate.arrived.acquire(timeout=LONG)
        producer.close(0.01)
    assert len(outcome) == 1


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), SystemExit(1)])
def test_a_context_manager_delivers_whatever_ends_it(gate: Gate, aws: FakeAws, error: BaseException) -> None:
    config = ProducerConfig(record_max_buffered_time=60.0)
    with pytest.raises(type(error)), Producer(config, client=gate) as producer:
        future = producer.put(STREAM, "k", b"x")
        raise error
    assert future.done()
    assert stored(aws) == {b"x": 1}


def test_it_can_not_be_pickled(make: Make) -> None:
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(make())


# ---------------------------------------------------------------------- callbacks


def test_a_callback_that_puts_does_not_wait_for_room_that_its_own_thread_has_to_make(
    make: Make, gate: Gate
) -> None:
    gate.open.clear()
    producer = make(max_buffered_bytes=65_536, max_connections=1)
    outcome: list[object] = []
    called = threading.Event()

    def refill(_: object) -> None:
        try:
            for _number in range(200):
                producer.put(STREAM, "k", b"x" * 1_000)
        except BufferFullError as error:
            outcome.append(error)
        called.set()

    producer.put(STREAM, "k", b"first").add_done_callback(refill)
    gate.open.set()
    assert called.wait(LONG)
    assert len(outcome) == 1
    assert producer.flush(LONG) == 0


@pytest.mark.parametrize("method", ["flush", "close"])
def test_a_callback_may_not_wait_for_the_results_it_has_to_bring(make: Make, gate: Gate, method: str) -> None:
    gate.open.clear()
    producer = make()
    outcome: list[BaseException] = []
    called = threading.Event()

    def wait(_: object) -> None:
        try:
            getattr(producer, method)()
        except ProducerError as error:
            outcome.append(error)
        called.set()

    producer.put(STREAM, "k", b"x").add_done_callback(wait)
    gate.open.set()
    assert called.wait(LONG)
    assert "callback" in str(outcome[0])
    assert producer.put(STREAM, "k", b"x").result(LONG), "the producer is open as before"


@pytest.mark.parametrize("way", ["result", "exception", "wait", "as_completed"])
def test_a_callback_may_not_wait_for_a_record_of_its_own_producer(make: Make, way: str) -> None:
    producer = make(record_max_buffered_time=60.0, record_ttl=600.0)
    pending: list[PendingRecord] = []
    outcome: list[str] = []

    def wait(record: PendingRecord) -> None:
        later = producer.put(STREAM, "k", b"later")
        pending.append(later)
        ways: dict[str, Callable[[], object]] = {
            "result": lambda: later.result(LONG),
            "exception": lambda: later.exception(LONG),
            "wait": lambda: concurrent.futures.wait([record, later], timeout=LONG),
            "as_completed": lambda: list(concurrent.futures.as_completed([record, later], timeout=LONG)),
        }
        with contextlib.suppress(concurrent.futures.TimeoutError):
            later.result(timeout=0)  # does not wait
        try:
            ways[way]()
        except ProducerError as error:
            outcome.append(str(error))

    record = producer.put(STREAM, "k", b"x")
    record.add_done_callback(wait)
    assert producer.flush(LONG) == 0
    assert len(outcome) == 1
    assert "callback" in outcome[0]
    assert producer.flush(LONG) == 0
    assert concurrent.futures.wait([record, *pending], timeout=LONG).not_done == set(), (
        "no lock was left held"
    )


def test_a_callback_may_wait_for_a_record_of_another_producer(make: Make) -> None:
    producer, other = make(), make()
    results: list[PutResult] = []
    producer.put(STREAM, "k", b"x").add_done_callback(
        lambda _: results.append(other.put(STREAM, "k", b"y").result(LONG))
    )
    assert producer.flush(LONG) == 0
    assert len(results) == 1


def test_flush_and_close_wait_for_callbacks_and_count_them(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    producer = make(record_max_buffered_time=60.0, record_ttl=600.0)
    slow = Held()
    futures = [producer.put(STREAM, "k", b"x") for _ in range(3)]
    for future in futures:
        future.add_done_callback(slow)
    try:
        assert producer.flush(0) == 3
        assert slow.entered.wait(LONG)
        assert all(future.result(LONG) for future in futures), "the futures do not wait for callbacks"
        assert producer.stats().buffered_bytes == 0, "nor does the room"
        assert producer.flush(0) == 3
        later = producer.put(STREAM, "k", b"x")
        later.add_done_callback(slow.returned.append)
        with caplog.at_level(logging.WARNING):
            assert producer.close(0) >= 3
        assert later.done()
        assert later in slow.returned, "callbacks of what `close` fails run before it returns"
        assert "callbacks of 3 records" in caplog.text
        assert producer.close(0) == 3
    finally:
        slow.released.set()
    assert producer.close(LONG) == 0
    assert [record for record in slow.returned if record is not later] == futures


@pytest.mark.parametrize("method", ["flush", "close"])
def test_a_callback_of_a_record_that_close_fails_may_not_wait_for_that_close(
    make: Make, gate: Gate, method: str
) -> None:
    gate.open.clear()
    producer = make()
    outcome: list[str] = []
    threads: list[threading.Thread] = []

    def wait(_: PendingRecord) -> None:
        threads.append(threading.current_thread())
        try:
            getattr(producer, method)(LONG)
        except ProducerError as error:
            outcome.append(str(error))

    producer.put(STREAM, "k", b"x").add_done_callback(wait)
    assert producer.close(0) == 1
    assert threads == [threading.current_thread()]
    assert len(outcome) == 1
    assert "callback" in outcome[0]


def test_an_asyncio_or_other_flush_that_watches_is_told_after_the_callbacks(make: Make) -> None:
    producer = make(record_max_buffered_time=60.0, record_ttl=600.0)
    slow, told = Held(), threading.Event()
    order: list[Any] = []

    def watch() -> None:
        order.extend(slow.returned)
        told.set()

    record = producer.put(STREAM, "k", b"x")
    record.add_done_callback(slow)
    producer._engine.begin_flush(watch)
    slow.released.set()
    assert told.wait(LONG)
    assert order == [record]


def test_flush_does_not_wait_for_callbacks_of_what_comes_after_it(make: Make) -> None:
    producer = make(record_max_buffered_time=60.0, record_ttl=600.0)
    slow = Held()
    put: list[PendingRecord] = []

    def again(_: PendingRecord) -> None:
        put.append(producer.put(STREAM, "k", b"later"))
        put[0].add_done_callback(slow)

    producer.put(STREAM, "k", b"x").add_done_callback(again)
    try:
        assert producer.flush(LONG) == 0
        assert producer.flush(0) == 1
        assert put[0].result(LONG)
        assert producer.flush(0) == 1
    finally:
        slow.released.set()
    assert producer.flush(LONG) == 0


def test_a_callback_of_a_record_that_expired_does_not_hold_the_others_up(make: Make) -> None:
    producer = make(record_max_buffered_time=60.0, record_ttl=600.0)
    settle(producer)
    pipeline = producer._engine.pipeline(StreamId(STREAM))
    stuck = Held()
    pipeline.queue.record_ttl = -1.0
    expired = producer.put(STREAM, "k", b"expires at once")
    expired.add_done_callback(stuck)
    try:
        producer.flush(0)
        assert stuck.entered.wait(LONG)
        assert isinstance(expired.exception(0), RecordFailedError)
        pipeline.queue.record_ttl = 600.0
        other = producer.put(STREAM, "k", b"x")
        producer.flush(0)
        assert other.result(LONG)
    finally:
        stuck.released.set()


def test_a_callback_that_exits_does_not_stop_the_producer(make: Make) -> None:
    producer = make()

    def leave(_: object) -> None:
        raise SystemExit(1)

    futures = [producer.put(STREAM, f"k{number}", b"x") for number in range(20)]
    for future in futures:
        future.add_done_callback(leave)
    assert producer.flush(LONG) == 0
    assert all(future.result(LONG) for future in futures)
    assert producer.put(STREAM, "k", b"x").result(LONG)


# ---------------------------------------------------------------------- a bug in the engine


@pytest.mark.parametrize(
    "method",
    [
        "on_facts",
        *(
            pytest.param(method, marks=interpreted)
            for method in ("responses.on_response", "queue.poll", "queue.next_event")
        ),
    ],
)
def test_a_crash_fails_every_record_with_the_cause(
    make: Make, gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    if method != "responses.on_response":
        gate.open.clear()  # no record may be stored before the crash, however long that takes to come
    producer = make(record_max_buffered_time=0.02, collection_max_count=1)

    def broken(*_: object, **__: object) -> None:
        raise LookupError("a bug")

    *part, method = method.split(".")
    pipeline = producer._engine.pipeline(StreamId(STREAM))
    monkeypatch.setattr(getattr(pipeline, part[0]) if part else pipeline, method, broken)
    futures = []
    with caplog.at_level(logging.CRITICAL):
        for number in range(10):
            with contextlib.suppress(ProducerError, LookupError):  # it may have crashed already, or do so now
                futures.append(producer.put(STREAM, f"k{number}", b"x"))
        for future in futures:
            error = future.exception(LONG)
            assert isinstance(error, RecordFailedError)
            assert "LookupError: a bug" in str(error)
            assert isinstance(error.__cause__, ProducerError)
            assert isinstance(error.__cause__.__cause__, LookupError)
    if futures:
        assert "internal error" in caplog.text
        for _ in range(2):
            with pytest.raises(ProducerError, match="LookupError: a bug"):
                producer.put(STREAM, "k", b"x")
    gate.open.set()
    assert producer.close(LONG) == 0
    assert producer.stats().buffered_bytes == 0


@interpreted
def test_a_crash_in_the_middle_of_an_answer_resolves_every_record_once(
    make: Make, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    gate.open.clear()
    producer = make(aggregation_enabled=False, record_max_buffered_time=60.0, max_connections=1)
    futures = [producer.put(STREAM, f"k{number}", b"x") for number in range(10)]
    calls: Counter[int] = Counter()
    for future in futures:
        future.add_done_callback(lambda f: calls.update([id(f)]))
    pipeline = producer._engine.pipeline(StreamId(STREAM))
    judged: list[object] = []
    settle = ResponseHandler._settle

    def half(*arguments: Any, **options: Any) -> None:
        judged.append(arguments)
        if len(judged) == 5:
            raise LookupError("a bug")
        settle(pipeline.responses, *arguments, **options)

    monkeypatch.setattr(pipeline.responses, "_settle", half)
    gate.open.set()
    producer.flush(LONG)
    outcomes = [future.exception(LONG) for future in futures]
    assert sum(outcome is None for outcome in outcomes) == 4
    producer.close(LONG)  # callbacks run last
    assert calls == dict.fromkeys(map(id, futures), 1)


# ---------------------------------------------------------------------- threads


def test_an_idle_thread_does_not_hold_on_to_its_last_task() -> None:
    class Payload:
        pass

    pool = TaskPool("test", 1)
    payload = Payload()
    gone = threading.Event()
    weakref.finalize(payload, gone.set)
    pool.submit(lambda payload=payload: None)  # type: ignore[misc]
    del payload
    assert gone.wait(LONG)
    pool.stop()
    pool.join(LONG)


def test_a_pool_starts_no_more_threads_than_it_may_and_runs_everything() -> None:
    pool = TaskPool("test", 3)
    release, done = threading.Event(), threading.Semaphore(0)

    def task() -> None:
        assert release.wait(LONG)
        done.release()

    for _ in range(30):
        pool.submit(task)
    assert len(pool.threads) == 3
    release.set()
    for _ in range(30):
        assert done.acquire(timeout=LONG)
    pool.stop()
    pool.join(LONG)
    assert not any(thread.is_alive() for thread in pool.threads)


def test_a_thread_that_is_started_after_the_pool_was_stopped_ends_too() -> None:
    # As when `close` gives up while the I/O loop has collected a request and not submitted it yet.
    pool = TaskPool("test", 2)
    task = Held()
    pool.submit(task)
    assert task.entered.wait(LONG)
    pool.stop()
    pool.submit(lambda: None)
    assert len(pool.threads) == 2
    task.released.set()
    for thread in pool.threads:
        thread.join(LONG)
        assert not thread.is_alive()


def test_where_no_thread_can_be_started_requests_are_made_without(
    make: Make, monkeypatch: pytest.MonkeyPatch, aws: FakeAws
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("kinesis-sdk-sender"):
            raise RuntimeError("can't create new thread at interpreter shutdown")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    producer = make()
    futures = [producer.put(STREAM, f"k{number}", b"%d" % number) for number in range(10)]
    assert producer.flush(LONG) == 0
    assert all(future.result(0) for future in futures)
    assert len(stored(aws)) == 10


# ---------------------------------------------------------------------- the short way of a put


@pytest.mark.parametrize("way", ["put", "put_many"])
@interpreted
def test_only_a_record_that_changes_nothing_else_takes_the_fast_path(
    make: Make, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    producer = make(record_max_buffered_time=60.0)
    settle(producer)
    engine = producer._engine
    long_way: list[str] = []
    take = engine._take

    def counted(pipeline: Any, record: PendingRecord, *rest: Any) -> None:
        long_way.append(record.partition_key)
        take(pipeline, record, *rest)

    monkeypatch.setattr(engine, "_take", counted)

    def put(*record: Any) -> list[str]:
        long_way.clear()
        if way == "put":
            producer.put(STREAM, *record)
        else:
            producer.put_many(STREAM, [record])
        return list(long_way)

    assert put("k", b"begins an aggregate") == ["k"]
    assert put("k", b"joins it") == []
    half = hash_partition_key("k")[0] >> 7  # of the two shards
    new, other = (
        next(key for key in map(str, range(100)) if hash_partition_key(key)[0] >> 7 == wanted)
        for wanted in (half, 1 - half)
    )
    assert put(new, b"a new key of the same shard") == []
    assert put(other, b"begins the aggregate of the other shard") == [other]
    assert put("k", b"placed", 5) == ["k"]
    assert put("placed", b"by its own hash key alone", 5) == ["placed"]
    (pipeline,) = engine.pipelines
    assert "placed" not in pipeline.known.by_key
    producer.flush(LONG)
    assert put("k", b"begins another") == ["k"]
    assert put("k", b"joins it") == []
    assert put("k", b"fills it" * 6_500) == ["k"]
    assert put("k", b"begins another") == ["k"]
    with engine._lock:
        engine._shared.usage.end_epoch()  # a flush, and the engine's thread has not come to it yet
    assert put("k", b"is not waited for") == ["k"]
    with engine._lock:
        pipeline.topology.forget()
        pipeline.queue.aggregator.forget_keys()
    assert put("k", b"where to is not known any more") == ["k"]
    assert producer.flush(LONG) == 0


@pytest.mark.parametrize("way", ["put", "put_many"])
def test_in_ordered_mode_every_record_gets_its_number(make: Make, way: str) -> None:
    producer = make(ordering="per_shard", record_max_buffered_time=60.0)
    settle(producer)
    if way == "put":
        records = [producer.put(STREAM, "k", b"x") for _ in range(5)]
    else:
        records = producer.put_many(STREAM, [("k", b"x")] * 5)
    first = records[0].order
    assert [record.order for record in records] == list(range(first, first + 5))
    assert producer.flush(LONG) == 0


def test_keys_of_a_missing_stream_are_forgotten(make: Make, gate: Gate) -> None:
    producer = make(record_max_buffered_time=60.0)
    settle(producer)
    pipeline = producer._engine.pipeline(StreamId(STREAM))

    def gone(**_: Any) -> Any:
        raise ResourceNotFoundError("no such stream", operation="PutRecords")

    gate.replace["put_records"] = gone
    record = producer.put(STREAM, "k", b"x")
    assert producer.flush(LONG) == 0
    assert isinstance(failure_of(record, LONG).__cause__, ResourceNotFoundError)
    with producer._engine._lock:
        assert not pipeline.known.by_key
        assert not pipeline.known.ends


# ---------------------------------------------------------------------- interrupts and signals


class StruckError(Exception):
    """What a signal handler of a user raises."""


def strike() -> None:
    """What a signal handler of a user does."""
    raise StruckError


def struck(
    action: Callable[[], Any],
    after: int,
    handler: Callable[[], None] = strike,
    where: tuple[str, ...] = (ROOM,),
) -> tuple[BaseException | None, int]:
    """Run ``action``; its ``after``-th chance to handle a signal within the producer's code is taken by ``handler``.

    The interpreter handles signals when a call has returned, a function begins or a loop goes round.

    Args:
        action: What is interrupted.
        after: Which chance.
        handler: The signal handler.
        where: Files and folders whose code is interrupted.

    Returns:
        What came out, and how many chances there were.
    """
    chances = 0
    last: dict[int, str] = {}

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal chances
        if not frame.f_code.co_filename.startswith(where):
            return None
        frame.f_trace_opcodes = True
        chance = event == "call"
        if event == "opcode":
            before, name = last.get(id(frame), ""), dis.opname[frame.f_code.co_code[frame.f_lasti]]
            last[id(frame)] = name
            chance = before.startswith("CALL") or before in {"JUMP_BACKWARD", "JUMP_ABSOLUTE"}
        if chance:
            chances += 1
            if chances == after:
                handler()
        if event == "return":
            last.pop(id(frame), None)
        return trace

    traced = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except Exception as error:  # noqa: BLE001 - StruckError, or the one that is raised from it
        return error, chances
    finally:
        sys.settrace(traced)
    return None, chances


def check_accounting(producer: Producer) -> None:
    """What is charged is what is there."""
    engine = producer._engine
    with engine._lock:
        pipeline = engine._shared.pipelines[STREAM]
        live = pipeline.pending.live
        assert engine._shared.usage.bytes == sum(
            cost_of(record.partition_key, record.data) for record in live
        )
        assert engine._shared.usage.count == sum(engine._shared.usage.outstanding.values()) == len(live)
        assert pipeline.pending_count == len(live)
        for entry in pipeline.pending.entries:
            assert len(entry.records) == entry.aggregate.count
            assert entry.cost == sum(cost_of(record.partition_key, record.data) for record in entry.records)
            assert [record._index for record in entry.records] == list(range(len(entry.records)))


STRIDE = 1 if TIMES else 6
"""Of so many moments, one is struck."""


@pytest.mark.fuzz
@pytest.mark.parametrize("way", ["short", "long", "filling", "first"])
@interpreted
def test_a_signal_at_any_moment_of_put_leaves_the_rest_whole(make: Make, aws: FakeAws, way: str) -> None:
    producer = make(record_max_buffered_time=60.0, record_ttl=600.0)
    settle(producer)
    expected = stored(aws)
    uncertain: set[bytes] = set()
    limit = 51_200
    keys = iter(f"new {number}" for number in range(10**6))
    chances = 100
    after = 0
    while after < chances + 20:  # a way may be a little longer than the one before
        after += STRIDE
        if way == "first":
            assert producer.flush(LONG) == 0
        else:
            for number in range(2):
                data = b"%d before %d" % (number, after)
                producer.put(STREAM, "k", data)
                expected[data] += 1
        data = (b"struck %d" % after).ljust(limit if way == "filling" else 0, b".")
        key = next(keys) if way == "long" else "k"
        error, seen = struck(lambda: producer.put(STREAM, key, data), after)  # noqa: B023
        chances = seen if error is None else max(chances, seen)
        check_accounting(producer)
        if error is None:
            expected[data] += 1
        else:
            uncertain.add(data)
        data = b"after %d" % after
        producer.put(STREAM, "k", data)
        expected[data] += 1
        check_accounting(producer)
    assert chances > 8, "the trace reaches into the pipeline"
    assert producer.flush(LONG) == 0, "no count is off"
    assert producer.stats().buffered_bytes == 0
    found = stored(aws)
    for data in uncertain:
        assert found.pop(data, 0) <= 1
    assert found == expected


@pytest.mark.fuzz
@interpreted
def test_a_signal_at_any_moment_of_put_many_leaves_exactly_what_it_says(make: Make, aws: FakeAws) -> None:
    producer = make(record_max_buffered_time=60.0, record_ttl=600.0, aggregation_max_count=7)
    settle(producer)
    expected = stored(aws)
    futures: list[PendingRecord] = []
    counts: Counter[int] = Counter()
    chances = 250
    after = attempts = rounds = 0
    # How far `put_many` is after so many lines differs from call to call, so a round may miss a record.
    while not rounds or len(counts) < (10 if TIMES else 6):
        attempts += 1
        after += STRIDE
        if after >= chances + 20:  # a way may be a little longer than the one before, or much shorter
            rounds += 1
            assert rounds < 10, (
                f"put_many was never struck with {set(range(10)) - set(counts)} records accepted"
            )
            after = 1 + rounds % STRIDE
        assert producer.flush(LONG) == 0
        records: list[Any] = [
            ("k" if number % 3 else f"k{attempts}", b"%d of %d" % (number, attempts)) for number in range(8)
        ]
        records.insert(5, ("k", b"placed %d" % attempts, 7))
        result: list[PendingRecord] = []
        error, seen = struck(lambda: result.extend(producer.put_many(STREAM, records)), after)  # noqa: B023
        chances = seen if error is None else max(chances, seen)
        accepted = result if error is None else list(getattr(error, "accepted", ()))
        counts[len(accepted)] += 1
        futures.extend(accepted)
        expected.update(record[1] for record in records[: len(accepted)])
        check_accounting(producer)

    assert sum(counts.values()) > 100 // STRIDE
    assert producer.flush(LONG) == 0
    assert all(future.result(0) for future in futures)
    found = stored(aws)
    # Of a record that went the long way, the last thing to happen is its return.
    surplus = found - expected
    assert not expected - found
    assert all(data.startswith(b"placed") and count == 1 for data, count in surplus.items())


def test_an_interrupt_in_close_fails_what_is_left(
    make: Make, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.open.clear()
    producer = make()
    future = producer.put(STREAM, "k", b"x")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(producer._engine._shared.changed, "wait_for", interrupt)
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    assert isinstance(failure_of(future, LONG).__cause__, ProducerClosedError)
    assert producer.close() == 0


@interpreted
def test_an_interrupt_at_any_instruction_of_a_failure_in_close_loses_no_result(
    make: Make, gate: Gate
) -> None:
    """Ctrl-C between two bytecodes of the failure of the second record, at each of them in turn."""
    gate.open.clear()
    targets = {PendingRecords._settle_failure.__code__, PendingRecord.leave.__code__}
    interrupted = instruction = 0
    while True:
        instruction += 1
        producer = make(aggregation_enabled=False, record_max_buffered_time=60.0, record_ttl=600.0)
        futures = [producer.put(STREAM, f"k{number}", b"x") for number in range(3)]
        failures = steps = 0

        def trace(frame: FrameType, event: str, _: object, last: int = instruction) -> Any:
            nonlocal failures, steps
            if event == "call":
                if frame.f_code not in targets:
                    return None
                failures += frame.f_code is PendingRecords._settle_failure.__code__
                frame.f_trace_opcodes = True
            elif event == "opcode" and failures == 2:
                steps += 1
                if steps == last:
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            producer.close(0)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            sys.settrace(before)
        assert all(future.done() for future in futures), instruction
        assert all(isinstance(failure_of(future, LONG).__cause__, ProducerClosedError) for future in futures)
        assert producer.close(0) == 0
        assert producer.stats().buffered_bytes == 0
        if steps < instruction:
            break
    assert interrupted == instruction - 1 > 30


@pytest.mark.parametrize(
    "where",
    [pytest.param("a record", marks=interpreted), "a future", "a callback", "what was final before"],
)
def test_an_interrupt_while_close_ends_records_leaves_none_without_result_or_callback(
    make: Make,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    gate.open.clear()
    producer = make(aggregation_enabled=False, record_max_buffered_time=60.0, record_ttl=600.0)
    called: list[PendingRecord] = []
    futures = [producer.put(STREAM, f"k{number}", b"x") for number in range(5)]
    for future in futures:
        future.add_done_callback(called.append)
    here = threading.current_thread()
    calls: list[object] = []

    def interrupt(holder: object, name: str, nth: int) -> None:
        real = getattr(holder, name)

        def interrupted(*arguments: Any, **options: Any) -> Any:
            if threading.current_thread() is here:
                calls.append(name)
                if len(calls) == nth:
                    raise KeyboardInterrupt
            return real(*arguments, **options)

        monkeypatch.setattr(holder, name, interrupted)

    if where == "a record":
        interrupt(PendingRecords, "fail", 3)
    elif where == "a future":
        interrupt(completion_module, "mark_failed", 3)
    elif where == "a callback":
        interrupt(CallbackRun, "run", 3)
    else:
        interrupt(producer._engine._completion, "finish", 1)
    caplog.clear()  # the first producer with these settings is warned of them
    with pytest.raises(KeyboardInterrupt):
        producer.close(0)
    assert all(future.done() for future in futures)
    assert all(isinstance(failure_of(future, LONG).__cause__, ProducerClosedError) for future in futures)
    assert Counter(map(id, called)) == dict.fromkeys(map(id, futures), 1)
    assert not caplog.records, "what has run is not tried again"
    assert producer.close(0) == 0
    assert producer._engine._completion.is_at_rest()


def test_close_does_not_log_while_it_holds_the_lock(make: Make) -> None:
    # A handler of log records may put them, and hold a lock of its own that another thread's `put` waits for.
    producer = make()
    callback = Held()
    held: list[bool] = []

    class Shipping(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            held.append(producer._engine._held_here())

    producer.put(STREAM, "k", b"x").add_done_callback(callback)
    assert callback.entered.wait(LONG)
    handler = Shipping()
    logger = logging.getLogger("kinesis_sdk")
    logger.addHandler(handler)
    try:
        assert producer.close(0) == 1
        with beside(lambda: producer.close(0)):
            pass
    finally:
        logger.removeHandler(handler)
        callback.released.set()
    assert held == [False, False]


def test_an_interrupt_in_flush_changes_nothing(
    make: Make, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.open.clear()
    producer = make()
    future = producer.put(STREAM, "k", b"x")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(producer._engine._shared.changed, "wait_for", interrupt)
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
    gate.open.set()
    assert producer.flush(LONG) == 0
    assert future.result(0)


@pytest.mark.parametrize("way", ["flush", "close", "put", "put_many", "new stream", "result", "wait"])
def test_a_signal_handler_that_interrupted_the_producer_is_refused_and_not_locked_out(
    make: Make, way: str
) -> None:
    producer = make(record_max_buffered_time=60.0)
    record = producer.put(STREAM, "k", b"x")
    ways: dict[str, Callable[[], object]] = {
        "flush": producer.flush,
        "close": producer.close,
        "put": lambda: producer.put(STREAM, "k", b"x"),
        "put_many": lambda: producer.put_many(STREAM, [("k", b"x")]),
        "new stream": lambda: producer.put("other", "k", b"x"),
        "result": record.result,
        "wait": lambda: concurrent.futures.wait([record]),
    }
    with producer._engine._lock, pytest.raises((ProducerError, PutManyError), match="signal handler"):
        ways[way]()
    assert len(producer._engine.pipelines) == 1
    assert producer.close(LONG) == 0


def test_a_signal_handler_that_interrupted_a_change_of_state_is_refused_what_waits(make: Make) -> None:
    # No handler runs there with the Pythons of today: nothing is called under that lock.
    producer = make(record_max_buffered_time=60.0)
    record = producer.put(STREAM, "k", b"x")
    with record_module._STATE_LOCK:
        for wait in (producer.flush, producer.close, record.result, record.exception):
            with pytest.raises(ProducerError, match="signal handler"):
                wait(LONG)
        later = producer.put(STREAM, "k", b"x")
    assert producer.close(LONG) == 0
    assert record.result(0)
    assert later.result(0)


class Handler:
    """A signal handler that uses the producer at one chance of an action, and judges what it got.

    Args:
        producer: The producer.
        method: What it calls.
        earlier: Records that were put before.
        called: Those of them whose callbacks have run.
    """

    def __init__(
        self, producer: Producer, method: str, earlier: list[PendingRecord], called: list[PendingRecord]
    ) -> None:
        self.producer = producer
        self.method = method
        self.earlier = earlier
        self.called = called
        self.refused = self.ran = False

    def __call__(self) -> None:
        self.ran = True
        try:
            if self.method == "result":
                assert all(record.result(LONG) for record in self.earlier)
            else:
                assert getattr(self.producer, self.method)(LONG) == 0
                assert all(record.done() for record in self.earlier), "0 was true"
                assert {*map(id, self.called)} == {*map(id, self.earlier)}
        except ProducerClosedError:
            assert self.producer._engine._shared.closing
        except ProducerError as error:
            self.refused = True
            assert "signal handler" in str(error)


@pytest.mark.parametrize(
    ("method", "way"),
    share(
        product(
            ["flush", "close", "result"],
            [
                "put",
                "add_done_callback",
                "cancel",
                "exception",
                "result",
                "as_completed",
                "put_many",
                "wait",
                "close",
                "flush",
            ],
        ),
        unit=5,
    ),
)
@pytest.mark.fuzz
def test_a_signal_handler_at_any_moment_gets_a_true_answer_or_a_refusal(
    make: Make, way: str, method: str
) -> None:
    after, chances, refused, ran = 0, 1, 0, 0
    producer = None
    # Where nobody flushes, records have to go by themselves; elsewhere they stay until somebody does.
    buffered = 0.0 if "result" in {way, method} or way in {"exception", "wait", "as_completed"} else 60.0
    while after < chances:
        after += 1 if TIMES or not after else 3
        if producer is None or producer._engine._shared.closing:
            producer = make(record_max_buffered_time=buffered, record_ttl=600.0)
        called: list[PendingRecord] = []
        earlier = [producer.put(STREAM, "k", b"x") for _ in range(3)]
        for record in earlier:
            record.add_done_callback(called.append)
        record = producer.put(STREAM, "k", b"y")
        later: list[PendingRecord] = []
        ways: dict[str, Callable[[], object]] = {
            "add_done_callback": lambda: record.add_done_callback(later.append),  # noqa: B023
            "cancel": record.cancel,
            "result": lambda: record.result(LONG),  # noqa: B023
            "exception": lambda: record.exception(LONG),  # noqa: B023
            "wait": lambda: concurrent.futures.wait([record, *earlier], timeout=LONG),  # noqa: B023
            "as_completed": lambda: list(concurrent.futures.as_completed([record, *earlier], timeout=LONG)),  # noqa: B023
            "put": lambda: producer.put(STREAM, "k", b"z"),  # noqa: B023
            "put_many": lambda: producer.put_many(STREAM, [("k", b"z")]),  # noqa: B023
            "flush": lambda: producer.flush(LONG),  # noqa: B023
            "close": lambda: producer.close(LONG),  # noqa: B023
        }
        handler = Handler(producer, method, earlier, called)
        error, seen = struck(
            ways[way], after, handler, (ROOM, concurrent.futures.__file__, threading.__file__)
        )
        assert error is None or isinstance(error, (ProducerClosedError, PutManyError)), error
        chances = max(chances, min(seen, 60))
        refused += handler.refused
        ran += handler.ran
        if not producer._engine._shared.closing:
            assert producer.flush(LONG) == 0
        assert record.result(0)
        assert later == ([record] if way == "add_done_callback" else [])
    assert ran, "the trace reaches into the producer"
    if way in {"add_done_callback", "cancel", "result", "exception", "wait", "as_completed"}:
        assert refused == 0 or sys.version_info >= (3, 14), "no lock is held where signals are handled"


def test_a_signal_handler_may_close_while_close_waits(
    make: Make, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.open.clear()
    producer = make()
    future = producer.put(STREAM, "k", b"x")
    wait_for = producer._engine._shared.changed.wait_for
    answers: list[int] = []

    def interrupted(*arguments: Any) -> bool:
        monkeypatch.undo()
        gate.open.set()
        producer._engine._lock.release()  # as when it waits
        try:
            answers.append(producer.close(LONG))
            assert producer._engine._completion.is_at_rest(), (
                "it did not wait for the call that it interrupted"
            )
        finally:
            producer._engine._lock.acquire()
        return wait_for(*arguments)

    monkeypatch.setattr(producer._engine._shared.changed, "wait_for", interrupted)
    assert producer.close(LONG) == 0
    assert answers == [0]
    assert future.result(0)


# ---------------------------------------------------------------------- fork and exit


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_and_may_make_its_own(make: Make, gate: Gate, aws: FakeAws) -> None:
    gate.open.clear()
    producer = make(record_max_buffered_time=60.0)
    waiting = producer.put(STREAM, "k", b"parent's")
    inside: list[object] = []
    waiting.add_done_callback(inside.append)
    hold = Held()

    def lock() -> None:
        with waiting._condition:
            hold()

    holder = threading.Thread(target=lock)
    holder.start()
    assert hold.entered.wait(LONG)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(int(LONG))  # a lock that nobody releases here would otherwise hang the test
        lines = []
        try:
            for attempt in (
                lambda: producer.put(STREAM, "k", b"child's"),
                lambda: producer.flush(1),
                lambda: waiting.result(1),
            ):
                try:
                    attempt()
                    lines.append("nothing happened")
                except ProducerClosedError as error:
                    lines.append(str(error))
            lines.append(f"close {producer.close(1)}, callbacks {len(inside)}")
            account = FakeAws(throttle=False)
            account.client("kinesis").create_stream(StreamName=STREAM, ShardCount=1)
            config = ProducerConfig(record_max_buffered_time=0.0)
            with Producer(config, client=account.client("kinesis")) as own:
                lines.append(own.put(STREAM, "k", b"x").result(LONG).shard_id)
        except BaseException as error:  # noqa: BLE001 - the report is all that leaves the child
            lines.append(repr(error))
        os.write(writer, "\n".join(lines).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        report = pipe.read().splitlines()
    os.waitpid(child, 0)
    hold.released.set()
    holder.join(LONG)
    fix = "this producer belongs to the parent process; create a new one after the fork"
    assert report == [fix, fix, fix, "close 0, callbacks 0", "shardId-000000000000"]
    gate.open.set()
    assert producer.flush(LONG) == 0
    assert stored(aws) == {b"parent's": 1}
    assert inside == [waiting]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("way", ["callback", "hook"])
def test_close_in_a_forked_child_does_not_wait_for_what_runs_in_the_parent(gate: Gate, way: str) -> None:
    hold = Held()
    hook = hold if way == "hook" else None
    producer = Producer(ProducerConfig(record_max_buffered_time=0.005), client=gate, on_record_failed=hook)
    try:
        future = producer.put("nowhere" if way == "hook" else STREAM, "k", b"x")
        if way == "callback":
            future.add_done_callback(hold)
        assert hold.entered.wait(LONG)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                # Where it is not at rest, close() without a timeout would hang the test.
                if producer._engine._completion.is_at_rest() and producer.close() == 0:
                    code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        hold.released.set()
    assert producer.close(LONG) == 0


FORGETFUL = """
    import sys, threading
    from kinesis_sdk.producer import Producer, ProducerConfig
    from kinesis_sdk.testing import FakeAws

    class Client:
        def __init__(self):
            self.real = FakeAws().client("kinesis")
            self.real.create_stream(StreamName="s", ShardCount=2)
            self.list_shards = self.real.list_shards
            self.describe_stream_summary = self.real.describe_stream_summary
        def put_records(self, **request):
            answer = self.real.put_records(**request)
            for record in request["Records"]:
                print("stored", record["PartitionKey"], flush=True)
            return answer

    config = ProducerConfig(record_max_buffered_time=60.0, aggregation_enabled=False)
    broken = Producer(config, client=Client())
    broken.close = lambda timeout: 1 / 0
    producer = Producer(config, client=Client())
    for number in range(5):
        producer.put("s", f"key-{number}", b"x")
    {end}
"""


@pytest.mark.parametrize("end", share(["raise KeyboardInterrupt", "pass", "sys.exit(0)"], unit=1))
@pytest.mark.fuzz
def test_a_program_that_forgets_to_close_still_sends_everything(end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORGETFUL).replace("{end}", end)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert sorted(done.stdout.split("\n")) == ["", *(f"stored key-{number}" for number in range(5))], (
        done.stderr
    )
    assert "ZeroDivisionError" in done.stderr, (
        "one that can not be closed is reported and does not stop the others"
    )
