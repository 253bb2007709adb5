"""Responses that break the service's contract: what a broken proxy or emulator sends costs one stream one retry."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_sdk.metrics import MemoryMetrics
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.testing import FakeAws
from tests.producer.support import LONG, Gate

PLACE = {"ShardId": "shardId-000000000000", "SequenceNumber": "1"}
RANGE = {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)}
SHARD = {"ShardId": "shardId-000000000000", "HashKeyRange": RANGE}

RESULTS: dict[str, Any] = {
    "null": None,
    "number": 7,
    "text": "stored",
    "list": [],
    "empty": {},
    "shard-missing": {"SequenceNumber": "1"},
    "shard-list": {**PLACE, "ShardId": ["a"]},
    "shard-object": {**PLACE, "ShardId": {"a": 1}},
    "shard-number": {**PLACE, "ShardId": 5},
    "sequence-missing": {"ShardId": "shardId-000000000000"},
    "sequence-junk": {**PLACE, "SequenceNumber": "-x" * 1_000},
    "sequence-empty": {**PLACE, "SequenceNumber": ""},
    "sequence-int": {**PLACE, "SequenceNumber": 7},
    "sequence-list": {**PLACE, "SequenceNumber": ["1"]},
    "sequence-negative": {**PLACE, "SequenceNumber": "-1"},
    "sequence-fraction": {**PLACE, "SequenceNumber": "1.5"},
    "sequence-arabic": {**PLACE, "SequenceNumber": "\u0661\u0662"},
    "sequence-long": {**PLACE, "SequenceNumber": "1" * 130},
    "code-list": {**PLACE, "ErrorCode": ["a"]},
    "code-object": {"ErrorCode": {"a": 1}, "ErrorMessage": None},
}
"""Results of one Kinesis record of a PutRecords response, none of which says that it is stored."""

LISTINGS: dict[str, Any] = {
    "none": None,
    "list": [],
    "empty": {},
    "shards-null": {"Shards": None},
    "shards-number": {"Shards": 5},
    "shards-text": {"Shards": "all"},
    "shards-object": {"Shards": SHARD},
    "shard-null": {"Shards": [None]},
    "shard-list": {"Shards": [[]]},
    "shard-text": {"Shards": ["shardId-000000000000"]},
    "id-list": {"Shards": [{**SHARD, "ShardId": [7]}]},
    "id-number": {"Shards": [{**SHARD, "ShardId": 7}]},
    "id-missing": {"Shards": [{"HashKeyRange": RANGE}]},
    "range-null": {"Shards": [{**SHARD, "HashKeyRange": None}]},
    "range-list": {"Shards": [{**SHARD, "HashKeyRange": [0, 1]}]},
    "range-infinite": {"Shards": [{**SHARD, "HashKeyRange": {**RANGE, "EndingHashKey": float("inf")}}]},
    "range-junk": {"Shards": [{**SHARD, "HashKeyRange": {**RANGE, "EndingHashKey": "all"}}]},
    "range-digits": {"Shards": [{**SHARD, "HashKeyRange": {**RANGE, "EndingHashKey": "9" * 9_999}}]},
    "sequence-text": {"Shards": [{**SHARD, "SequenceNumberRange": "1-2"}]},
    "ending-number": {"Shards": [{**SHARD, "SequenceNumberRange": {"EndingSequenceNumber": 7}}]},
    "parent-list": {"Shards": [{**SHARD, "ParentShardId": ["a"]}]},
    "token-list": {"Shards": [SHARD], "NextToken": ["a"]},
    "token-object": {"Shards": [SHARD], "NextToken": {"a": 1}},
}

SUMMARIES: dict[str, Any] = {
    "none": None,
    "list": [],
    "empty": {},
    "null": {"StreamDescriptionSummary": None},
    "text": {"StreamDescriptionSummary": "orders"},
}


@pytest.fixture
def gate() -> Gate:
    return Gate(FakeAws(throttle=False))


@pytest.fixture
def producer(gate: Gate) -> Iterator[Producer]:
    with Producer(ProducerConfig(record_max_buffered_time=0.0), client=gate, metrics=MemoryMetrics()) as made:
        yield made


class Hostile:
    """Answers the first call for each stream with what the table says, and every later one truly."""

    def __init__(self, gate: Gate, method: str, answers: dict[str, Any]) -> None:
        self._real = getattr(gate.client, method)
        self._answers = answers
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.repeated = {name: threading.Event() for name in answers}
        for name in [*answers, "sound"]:
            gate.client.create_stream(StreamName=name, ShardCount=1)
        gate.replace[method] = self

    def __call__(self, **request: Any) -> Any:
        name = request["StreamName"]
        with self._lock:
            self.calls[name] += 1
            first = self.calls[name] == 1
        if first and name in self._answers:
            return self._answers[name]
        if name in self.repeated:
            self.repeated[name].set()
        return self._real(**request)


def test_a_malformed_result_is_neither_a_success_nor_the_end_of_the_producer(
    gate: Gate, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    Hostile(gate, "put_records", {name: {"Records": [result]} for name, result in RESULTS.items()})
    with caplog.at_level(logging.WARNING):
        futures = {name: producer.put(name, "k", b"x") for name in [*RESULTS, "sound"]}
        attempts = {
            name: [(attempt.code, attempt.success) for attempt in future.result(LONG).attempts]
            for name, future in futures.items()
        }
    assert attempts.pop("sound") == [("", True)], "another stream's records do not notice"
    assert attempts == {name: [("ProtocolError", False), ("", True)] for name in RESULTS}
    assert producer.put("sound", "k", b"x").result(LONG), "and the producer accepts more"
    assert not caplog.records


def test_the_sound_results_of_a_response_with_a_malformed_one_count(gate: Gate) -> None:
    config = ProducerConfig(aggregation_enabled=False, record_max_buffered_time=60.0)
    with Producer(config, client=gate) as producer:
        real = gate.client.put_records
        gate.client.create_stream(StreamName="orders", ShardCount=1)

        def second_is_null(**request: Any) -> dict[str, Any]:
            answer: dict[str, Any] = real(**request)
            if len(gate.requests) == 1:
                answer["Records"][1] = None
            return answer

        gate.replace["put_records"] = second_is_null
        futures = [producer.put("orders", f"k{number}", b"x") for number in range(3)]
        assert producer.flush(LONG) == 0
    assert [len(future.result(0).attempts) for future in futures] == [1, 2, 1]
    assert [len(request) for request in gate.requests] == [3, 1]


@pytest.mark.parametrize(
    ("method", "answers"), [("list_shards", LISTINGS), ("describe_stream_summary", SUMMARIES)]
)
def test_a_malformed_description_of_a_stream_is_asked_for_again(
    gate: Gate, producer: Producer, method: str, answers: dict[str, Any]
) -> None:
    hostile = Hostile(gate, method, answers)
    futures = {name: producer.put(name, "k", b"x") for name in [*answers, "sound"]}
    for future in futures.values():
        assert future.result(LONG)
    gate.open.clear()  # a load is wanted only while there are records
    held = [producer.put(name, "k", b"x") for name in answers]
    for name in answers:
        assert hostile.repeated[name].wait(LONG)
    gate.open.set()
    assert all(future.result(LONG) for future in held)
    assert producer.put("sound", "k", b"x").result(LONG), "the producer accepts more"
    assert hostile.calls["sound"] == 1, "another stream's load is not repeated"
