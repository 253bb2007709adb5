"""Cases of the KPL's own tests that no other test of ours covers, with its numbers; `KPL_CASES.md` has all of them."""

from __future__ import annotations

import random
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from kinesis_sdk.common import aggregate_writer
from kinesis_sdk.common import hashkeys as hashkeys_module
from kinesis_sdk.common.aggregate_reader import Aggregate
from kinesis_sdk.common.errors import ProducerClosedError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, hash_partition_key
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.producer.io.sender import load_facts
from kinesis_sdk.producer.records.future import PendingRecord
from kinesis_sdk.producer.stream.pipeline import StreamPipeline
from kinesis_sdk.producer.stream.topology import StreamFacts
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.producer.simulation import STREAM
from tests.producer.support import (
    LONG,
    Gate,
    beside,
    make_record,
    put,
    shard,
)

HERE = Path(__file__).parent
TESTS = HERE.parent

# The three uneven shards of aggregator_test.cc and shard_map_test.cc.
HALF = 170141183460469231731687303715884105728
QUARTER = 85070591730234615865843651857942052863
UNEVEN = [shard(1, HALF, MAX_HASH_KEY), shard(2, 0, QUARTER - 1), shard(3, QUARTER, HALF - 1)]


def make_pipeline(shards: list[Shard], **settings: Any) -> StreamPipeline:
    """A pipeline that knows its stream, at time 0."""
    pipeline = StreamPipeline(StreamId(STREAM), ProducerConfig(**settings), random.Random(1))
    pipeline.topology.begin_load(0.0)
    pipeline.on_facts(StreamFacts(shards, None, False), 0.0)
    return pipeline


# ---------------------------------------------------------------------- the table itself


def test_every_test_that_the_table_names_exists() -> None:
    table = (HERE / "KPL_CASES.md").read_text("utf-8")
    named = re.findall(r"`([\w/]+)::(\w+)`", table)
    assert len(named) > 100
    sources = {file: (TESTS / f"{file}.py").read_text("utf-8") for file in {file for file, _ in named}}
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in sources[file]]
    assert not missing
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.endswith("here |")]
    bare = [row for row in rows if "::" not in row and "not applicable" not in row]
    assert not bare, "every row has a test, or says why it can not have one"


def test_closed_shards_are_left_out_even_if_the_service_lists_them() -> None:
    aws = FakeAws(throttle=False)
    aws.client("kinesis").create_stream(StreamName=STREAM, ShardCount=2)
    aws.client("kinesis").split_shard(
        StreamName=STREAM, ShardToSplit="shardId-000000000000", NewStartingHashKey="7"
    )
    gate = Gate(aws)

    def without_filter(**request: Any) -> dict[str, Any]:
        request.pop("ShardFilter", None)
        answer: dict[str, Any] = gate.client.list_shards(**request)
        return answer

    gate.replace["list_shards"] = without_filter
    facts = load_facts(gate, StreamId(STREAM), describe=False)  # type: ignore[arg-type]
    assert facts.shards is not None
    assert sorted(item.shard_id[-1] for item in facts.shards) == ["1", "2", "3"]
    with Producer(ProducerConfig(record_max_buffered_time=0.005), client=gate) as producer:
        assert producer.put(STREAM, "k", b"x").result(LONG)
        assert producer._pipeline(STREAM).topology.failures == 0


def test_without_aggregation_records_are_still_predicted_limited_and_collected() -> None:
    # In the KPL, AggregationEnabled=false also switched off prediction, rate limit and the collection's extension.
    pipeline = make_pipeline(UNEVEN, aggregation_enabled=False, rate_limit=100)
    rng = random.Random(1)
    for number in range(1_100):
        key = rng.randrange(QUARTER)
        put(pipeline, make_record("pk", b"%d" % number, hash_key=key, arrived=1.0, deadline=1.1), 1.0)
    sent = [entry for batch in pipeline.queue.poll(1.0, 24) for entry in batch.entries]
    assert len(sent) == 1_000, "two full requests, at the rate limit"
    assert {entry.shard_id for entry in sent} == {"shardId-000000000002"}
    assert all(len(entry.records) == 1 for entry in sent)
    more = [entry for batch in pipeline.queue.poll(1.05, 24) for entry in batch.entries]
    assert more == [], "what was let go since waits for company"
    assert len(pipeline.queue._collector) == 50
    assert pipeline.queue._collector.next_deadline == pytest.approx(1.1)


def test_what_a_reshard_leaves_behind_is_freed() -> None:
    pipeline = make_pipeline(UNEVEN)
    for generation in range(1, 60):
        start = generation * 10
        for hash_key in (0, HALF - 1, HALF, MAX_HASH_KEY):
            put(pipeline, make_record(hash_key=hash_key, deadline=generation + 60.0), float(generation))
        pipeline.queue.flush(-1, float(generation))
        batches = pipeline.queue.poll(float(generation), 24)
        pipeline.topology.begin_load(generation + 0.1)
        shards = [shard(start, 0, HALF - 1), shard(start + 1, HALF, MAX_HASH_KEY)]
        pipeline.on_facts(StreamFacts(shards, None, False), generation + 0.2)
        for batch in batches:
            batch.started = generation + 0.05
            answer = [
                {"ShardId": entry.shard_id, "SequenceNumber": str(generation)} for entry in batch.entries
            ]
            pipeline.responses.on_response(batch, {"Records": answer}, generation + 0.3)
    known = pipeline.topology.shard_map
    assert known is not None
    assert len(known._ranges) + len(known._previous_ranges) == 4
    assert len(pipeline.queue.lanes) <= 4
    assert pipeline.queue.aggregator.next_deadline == float("inf")
    assert not pipeline.pending.live


@pytest.mark.parametrize("fail_if_throttled", [False, True])
def test_six_outcomes_in_one_answer(fail_if_throttled: bool) -> None:
    width = (MAX_HASH_KEY + 1) // 8
    shards = [shard(n, n * width, (n + 1) * width - 1) for n in range(8)]
    pipeline = make_pipeline(shards, fail_if_throttled=fail_if_throttled)
    for number in range(60):
        hash_key = number // 10 * width + number % 10
        put(pipeline, make_record(hash_key=hash_key, arrived=9.0, deadline=9.5), 9.0)
    pipeline.queue.flush(-1, 10.0)
    (batch,) = pipeline.queue.poll(10.0, 1)
    batch.started = 10.0
    troubles = [
        ("xx", "yy"),
        ("InternalFailure", "Internal service failure."),
        ("ServiceUnavailable", ""),
        ("ProvisionedThroughputExceededException", "..."),
    ]
    answer = [
        {"SequenceNumber": "1234", "ShardId": "shardId-000000000000"},
        {"SequenceNumber": "4567", "ShardId": "shardId-000000000001"},
        *({"ErrorCode": code, "ErrorMessage": message} for code, message in troubles),
    ]
    inside = [list(entry.records) for entry in batch.entries]
    pipeline.responses.on_response(batch, {"FailedRecordCount": 4, "Records": answer}, 10.005)
    settled = pipeline.pending.take_settled()
    stored = [item for item in settled if item.stored is not None]
    failed = [record for item in settled if item.error is not None for record in item.records]
    assert [len(item.records) for item in stored] == [10, 10]
    assert failed == (inside[5] if fail_if_throttled else [])
    for records, (code, message) in zip(inside[2:], troubles, strict=True):
        for record in records:
            (attempt,) = record.history or ()
            assert attempt.code == code
            assert message in attempt.message
    assert len(pipeline.pending.live) == (30 if fail_if_throttled else 40)
    assert pipeline.topology.next_load is None


def test_the_oldest_record_and_how_many_are_outstanding() -> None:
    aws = FakeAws(throttle=False)
    aws.client("kinesis").create_stream(StreamName=STREAM, ShardCount=1)
    gate = Gate(aws)
    gate.open.clear()
    clock = VirtualClock()
    config = ProducerConfig(record_max_buffered_time=60.0)
    with Producer(config, client=gate, clock=clock) as producer:
        assert producer.stats().oldest_record_age == 0
        producer.put(STREAM, "k", b"")
        clock.advance(2.0)
        producer.put(STREAM, "k", b"")
        stats = producer.stats()
        assert (stats.buffered_records, stats.oldest_record_age) == (2, 2.0)
        gate.open.set()
        assert producer.flush(LONG) == 0
        stats = producer.stats()
        assert (stats.buffered_records, stats.oldest_record_age) == (0, 0.0)


def test_hashing_is_not_a_matter_of_security(monkeypatch: pytest.MonkeyPatch) -> None:
    # A Python in FIPS mode refuses MD5 unless it is said what it is not for.
    asked: list[bool] = []
    real = hashkeys_module.md5

    def fips(data: bytes = b"", *, usedforsecurity: bool = True) -> Any:
        asked.append(usedforsecurity)
        return real(data, usedforsecurity=usedforsecurity)

    monkeypatch.setattr(hashkeys_module, "md5", fips)
    monkeypatch.setattr(aggregate_writer, "md5", fips)
    aggregate = Aggregate(1_000, 10)
    for data in (b"x", b"y"):
        assert aggregate.try_append("k", None, data, hash_partition_key("k"))
    aggregate.encode()
    assert len(asked) == 3
    assert not any(asked)


@pytest.mark.parametrize("turn", range(5))
def test_put_racing_close_never_loses_a_record_without_a_word(turn: int) -> None:
    aws = FakeAws(throttle=False)
    aws.client("kinesis").create_stream(StreamName=STREAM, ShardCount=2)
    producer = Producer(ProducerConfig(record_max_buffered_time=0.001), client=aws.client("kinesis"))
    accepted: list[PendingRecord] = []
    refused: list[Exception] = []
    begun = threading.Barrier(5)

    def put() -> None:
        begun.wait(LONG)
        try:
            while len(accepted) < 1_000_000:
                accepted.append(producer.put(STREAM, "k", b"x"))
        except ProducerClosedError as error:
            refused.append(error)

    with beside(*[put] * 4):
        begun.wait(LONG)
        left = producer.close(LONG)
    assert len(refused) == 4, "closing ends them all"
    assert all(future.done() for future in accepted)
    assert sum(future.exception(0) is not None for future in accepted) == left == 0
