"""The KPL's metrics, by name, unit, level and dimension."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_sdk.common.errors import ProtocolError, TransientAwsError
from kinesis_sdk.common.metrics import NoMetrics
from kinesis_sdk.common.records import Attempt
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.metrics import MemoryMetrics
from kinesis_sdk.producer.io.metrics import SAMPLE_INTERVAL, ProducerMetrics, Reading
from kinesis_sdk.producer.records.future import PendingRecord
from kinesis_sdk.producer.records.record import Stored
from kinesis_sdk.producer.stream.collector import Batch
from tests.producer.support import acknowledge, beside, make_entry, make_record, together

ORDERS = StreamId("orders")
S0, S1 = "shardId-000000000000", "shardId-000000000001"
OK = {"ShardId": S0, "SequenceNumber": "1"}
THROTTLED = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "slow down"}


class Item:
    """What the pipeline calls a settled item."""

    def __init__(self, records: list[PendingRecord], stored: Stored | None = None) -> None:
        self.records = records
        self.stored = stored

    @property
    def payloads(self) -> list[bytes]:
        return [record.data for record in self.records]


def make() -> tuple[ProducerMetrics, MemoryMetrics]:
    sink = MemoryMetrics()
    metrics = ProducerMetrics.of(sink)
    assert metrics is not None
    return metrics, sink


def numbers(sink: MemoryMetrics, name: str, **dimensions: str) -> tuple[float, float, float, float] | None:
    """Count, sum, minimum and maximum."""
    found = sink.get(name, **dimensions)
    return None if found is None else found[:4]


def unit_of(sink: MemoryMetrics, name: str) -> set[str]:
    return {series.unit for series in sink.snapshot() if series.name == name}


def failed_record(*codes: str, hash_key: int = 0, delay: float = 0.1) -> PendingRecord:
    record = make_record(hash_key=hash_key)
    for code in codes:
        record.add_attempt(Attempt(delay, 0.01, code, "", False), 0.0)
    return record


def predict(hash_key: bytes) -> str | None:
    return {0: S0, 1: S1}.get(int.from_bytes(hash_key, "big"))


def settle(metrics: ProducerMetrics, *items: Item) -> None:
    metrics.settled(ORDERS, items, predict)


def test_nobody_listening_costs_nothing() -> None:
    assert ProducerMetrics.of(None) is None
    assert ProducerMetrics.of(NoMetrics()) is None


def test_stored_records_at_every_level() -> None:
    metrics, sink = make()
    records = [make_record(data=b"x" * size, arrived=arrived) for size, arrived in ((10, 1.0), (30, 1.5))]
    settle(metrics, Item(records, Stored(S1, "1", 2.0, 2.1)))
    for dimensions in ({}, {"StreamName": "orders"}, {"StreamName": "orders", "ShardId": S1}):
        assert numbers(sink, "UserRecordsPut", **dimensions) == (2, 2, 1, 1)
        assert numbers(sink, "UserRecordsDataPut", **dimensions) == (2, 40, 10, 30)
        assert numbers(sink, "BufferingTime", **dimensions) == (2, 1500, 500, 1000)
        assert numbers(sink, "RetriesPerRecord", **dimensions) == (2, 0, 0, 0)
    assert sink.get("UserRecordExpired") is None
    assert unit_of(sink, "UserRecordsPut") == unit_of(sink, "RetriesPerRecord") == {"Count"}
    assert unit_of(sink, "UserRecordsDataPut") == {"Bytes"}
    assert unit_of(sink, "BufferingTime") == {"Milliseconds"}


def test_every_attempt_was_buffered_for() -> None:
    metrics, sink = make()
    record = make_record(arrived=1.0)
    record.add_failed_attempt(1.2, 1.3, "InternalFailure", "")
    record.add_failed_attempt(1.7, 1.8, "InternalFailure", "")
    settle(metrics, Item([record], Stored(S0, "1", 2.0, 2.1)))
    found = numbers(sink, "BufferingTime")
    assert found == (3, pytest.approx(200 + 400 + 200), pytest.approx(200), pytest.approx(400))
    assert numbers(sink, "RetriesPerRecord") == (1, 2, 2, 2)
    acknowledge(together([record]), Stored(S0, "1", 2.0, 2.1))
    assert sum(attempt.delay for attempt in record.result().attempts) == pytest.approx(0.8)


def test_failures_count_as_zero_at_the_shard_they_were_predicted_for() -> None:
    metrics, sink = make()
    settle(
        metrics,
        Item([make_record()] * 3, Stored(S0, "1", 2.0, 2.1)),
        Item([failed_record("InternalFailure", "Expired", hash_key=0)]),
        Item(
            [
                failed_record("AccessDeniedException", hash_key=1),
                failed_record("AccessDeniedException", hash_key=2),
            ]
        ),
    )
    found = sink.get("UserRecordsPut")
    assert found is not None
    assert found[:4] == (6, 3, 0, 1)
    assert found.mean == 0.5  # the success rate
    assert numbers(sink, "UserRecordsPut", StreamName="orders", ShardId=S0) == (4, 3, 0, 1)
    assert numbers(sink, "UserRecordsPut", StreamName="orders", ShardId=S1) == (1, 0, 0, 0)
    assert numbers(sink, "UserRecordExpired") == (1, 1, 1, 1)
    assert numbers(sink, "UserRecordExpired", StreamName="orders", ShardId=S0) == (1, 1, 1, 1)
    assert numbers(sink, "RetriesPerRecord") == (6, 1, 0, 1)
    found = numbers(sink, "BufferingTime", StreamName="orders", ShardId=S1)
    assert found == (1, pytest.approx(100), pytest.approx(100), pytest.approx(100))


def test_a_request_counts_its_kinesis_records_by_predicted_shard() -> None:
    metrics, sink = make()
    entries = [
        make_entry(11, shard_id=S0, hash_keys=(1, 2, 3)),
        make_entry(21, shard_id=S0),
        make_entry(31, shard_id=S1),
        make_entry(41, shard_id=None),
    ]
    batch = Batch(entries)
    batch.started = 10.0
    response = {"Records": [OK, THROTTLED, THROTTLED, {**OK, "ShardId": S1}]}
    metrics.request(ORDERS, batch, response, None, 10.25)
    assert numbers(sink, "RequestTime", StreamName="orders") == (1, 250, 250, 250)
    assert numbers(sink, "KinesisRecordsPerPutRecordsRequest", StreamName="orders") == (1, 4, 4, 4)
    assert numbers(sink, "UserRecordsPerPutRecordsRequest", StreamName="orders") == (1, 6, 6, 6)
    assert numbers(sink, "UserRecordsPerKinesisRecord", StreamName="orders") == (4, 6, 1, 3)
    assert numbers(sink, "KinesisRecordsPut") == (4, 2, 0, 1)
    assert numbers(sink, "KinesisRecordsPut", StreamName="orders", ShardId=S0) == (2, 1, 0, 1)
    assert numbers(sink, "KinesisRecordsPut", StreamName="orders", ShardId=S1) == (1, 0, 0, 0)
    size = entries[0].aggregate.size
    assert numbers(sink, "KinesisRecordsDataPut", StreamName="orders", ShardId=S0) == (1, size, size, size)
    assert numbers(sink, "KinesisRecordsDataPut") == (2, size + 40, min(size, 40), max(size, 40))
    assert numbers(sink, "AllErrors") == (4, 2, 0, 1)
    assert numbers(sink, "AllErrors", StreamName="orders", ShardId=S1) == (1, 1, 1, 1)
    code = THROTTLED["ErrorCode"]
    assert numbers(sink, "ErrorsByCode") == (2, 2, 1, 1)
    assert numbers(sink, "ErrorsByCode", ErrorCode=code) == (2, 2, 1, 1)
    assert numbers(sink, "ErrorsByCode", ErrorCode=code, StreamName="orders", ShardId=S0) == (1, 1, 1, 1)
    for name in ("RequestTime", "KinesisRecordsPerPutRecordsRequest", "UserRecordsPerPutRecordsRequest"):
        assert not any(dict(s.dimensions).get("ShardId") for s in sink.snapshot() if s.name == name)


@pytest.mark.parametrize(
    ("response", "failure", "code"),
    [
        ({}, TransientAwsError("late", code="ReadTimeoutError"), "ReadTimeoutError"),
        ({}, ProtocolError("odd"), "ProtocolError"),
        ({"Records": [OK]}, None, "ProtocolError"),
        ({}, None, "ProtocolError"),
    ],
)
def test_a_request_that_failed_is_one_error_and_no_kinesis_record(
    response: dict[str, Any], failure: Any, code: str
) -> None:
    metrics, sink = make()
    metrics.request(ORDERS, Batch([make_entry(), make_entry()]), response, failure, 1.0)
    assert numbers(sink, "AllErrors", StreamName="orders") == (1, 1, 1, 1)
    assert numbers(sink, "ErrorsByCode", ErrorCode=code, StreamName="orders") == (1, 1, 1, 1)
    assert sink.get("KinesisRecordsPut") is None
    assert numbers(sink, "UserRecordsPerKinesisRecord") == (2, 2, 1, 1)
    assert numbers(sink, "RequestTime") == (1, 1000, 1000, 1000)


def test_an_entry_with_neither_error_nor_place_is_an_error() -> None:
    metrics, sink = make()
    metrics.request(
        ORDERS, Batch([make_entry(), make_entry()]), {"Records": [{"ShardId": S0}, OK]}, None, 1.0
    )
    assert numbers(sink, "KinesisRecordsPut") == (2, 1, 0, 1)
    assert numbers(sink, "ErrorsByCode", ErrorCode="ProtocolError") == (1, 1, 1, 1)


def test_samples_tell_what_is_pending_and_what_came() -> None:
    metrics, sink = make()
    other = StreamId("orders", "arn:aws:kinesis:us-east-1:123456789012:stream/orders")
    assert metrics.next_sample < 0
    metrics.sample(1.0, [Reading(ORDERS, 10, 0, 7), Reading(other, 5, 0, 1)])
    assert metrics.next_sample == 1.0 + SAMPLE_INTERVAL
    elsewhere = {"StreamName": "orders", "AccountId": "123456789012", "Region": "us-east-1"}
    assert numbers(sink, "UserRecordsPending", StreamName="orders") == (1, 7, 7, 7)
    assert numbers(sink, "UserRecordsPending", **elsewhere) == (1, 1, 1, 1)
    assert numbers(sink, "UserRecordsReceived", StreamName="orders") == (10, 10, 1, 1)
    assert numbers(sink, "UserRecordsReceived", **elsewhere) == (5, 5, 1, 1)
    metrics.sample(2.0, [Reading(ORDERS, 9, 0, 0)])  # a put was interrupted and undone
    metrics.sample(3.0, [Reading(ORDERS, 12, 2, 0)])
    assert numbers(sink, "UserRecordsReceived") == (13, 13, 1, 1)
    assert numbers(sink, "ErrorsByCode", ErrorCode="Wrong Shard", StreamName="orders") == (2, 2, 1, 1)
    assert numbers(sink, "AllErrors", StreamName="orders") == (2, 2, 1, 1)
    assert numbers(sink, "UserRecordsPending") == (3, 7, 0, 7)


def test_records_that_are_begun_anew_are_counted_once() -> None:
    metrics, sink = make()
    metrics.sample(1.0, [Reading(ORDERS, 10, 0, 7)])
    assert numbers(sink, "BegunAnew", StreamName="orders") is None, "0 needs no series"
    for moment, so_far in ((2.0, 3), (3.0, 3), (4.0, 5)):
        metrics.sample(moment, [Reading(ORDERS, 10, 0, 7, so_far)])
    assert numbers(sink, "BegunAnew", StreamName="orders") == (5, 5, 1, 1)
    assert unit_of(sink, "BegunAnew") == {"Count"}


def test_two_producers_of_one_stream_add_up_and_end_apart() -> None:
    sink = MemoryMetrics()
    producers = [ProducerMetrics(sink), ProducerMetrics(sink)]
    for metrics, pending in zip(producers, (7, 5), strict=True):
        metrics.sample(1.0, [Reading(ORDERS, 10, 0, pending)])
        settle(metrics, Item([make_record()], Stored(S0, "1", 2.0, 2.1)))

    def pending_now() -> float | None:
        found = sink.get("UserRecordsPending", StreamName="orders")
        return None if found is None else found.last

    assert pending_now() == 12
    producers[0].retire()
    assert pending_now() == 5
    producers[0].sample(3.0, [Reading(ORDERS, 10, 0, 3)])  # of a thread that comes late
    assert pending_now() == 5
    producers[1].retire()
    assert pending_now() is None
    assert numbers(sink, "UserRecordsPut") == (2, 2, 1, 1)


def test_a_kinesis_record_costs_as_many_calls_as_metrics_not_as_user_records() -> None:
    class Counting(MemoryMetrics):
        calls = 0

        def add(self, *arguments: Any) -> None:
            type(self).calls += 1
            super().add(*arguments)

    metrics = ProducerMetrics.of(Counting())
    assert metrics is not None
    settle(metrics, Item([make_record() for _ in range(500)], Stored(S0, "1", 2.0, 2.1)))
    assert Counting.calls == 4


def test_a_sink_that_raises_costs_no_record_and_ever_fewer_log_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def add(self, *_: object) -> None:
            raise OSError("disk full")

        retire = add

    metrics = ProducerMetrics.of(Broken())
    assert metrics is not None
    with caplog.at_level(logging.WARNING):
        metrics.sample(1.0, [Reading(ORDERS, 1, 0, 1)])
        assert len(caplog.records) == 1
        metrics.request(ORDERS, Batch([make_entry()]), {"Records": [OK]}, None, 1.0)
        assert len(caplog.records) == 2
        for _ in range(18):
            settle(metrics, Item([make_record()], Stored(S0, "1", 2.0, 2.1)))
    assert len(caplog.records) == 5  # the 1st, 2nd, 4th, 8th and 16th
    assert "disk full" in caplog.text
    assert metrics.next_sample == 1.0 + SAMPLE_INTERVAL
    metrics.retire()


def test_a_signal_handler_may_close_the_producer_that_it_interrupted_in_a_sample() -> None:
    metrics, sink = make()

    def interrupted() -> Iterator[Reading]:
        metrics.sample(2.0, [Reading(ORDERS, 3, 0, 0)])
        metrics.retire()
        yield Reading(ORDERS, 3, 0, 0)

    with beside(lambda: metrics.sample(1.0, interrupted())):
        pass
    assert numbers(sink, "UserRecordsReceived") == (3, 3, 1, 1), "no difference is reported twice"


def test_dimensions_are_kept_for_a_bounded_number_of_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    from kinesis_sdk.producer.io import metrics as module

    monkeypatch.setattr(module, "_MAX_SCOPES_KEPT", 3)
    metrics, sink = make()
    for number in range(10):
        settle(metrics, Item([make_record()], Stored(f"shard-{number}", "1", 2.0, 2.1)))
        assert len(metrics._scopes) == number % 3 + 1
    assert numbers(sink, "UserRecordsPut", StreamName="orders") == (10, 10, 1, 1)
