"""Cases of the KPL's own tests that no other test of ours covers, with its numbers; `KPL_CASES.md` has all of them."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from kinesis_sdk.common import aggregate_writer
from kinesis_sdk.common import hashkeys as hashkeys_module
from kinesis_sdk.common.aggregate_reader import Aggregate, decode
from kinesis_sdk.common.errors import ProducerClosedError, TransientAwsError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, hash_partition_key
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.metrics import CloudWatchMetrics
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.producer.io.sender import load_facts
from kinesis_sdk.producer.records.entry import Entry
from kinesis_sdk.producer.records.future import PendingRecord
from kinesis_sdk.producer.stream.aggregator import Aggregator
from kinesis_sdk.producer.stream.collector import Batch
from kinesis_sdk.producer.stream.pipeline import StreamPipeline
from kinesis_sdk.producer.stream.topology import StreamFacts
from kinesis_sdk.testing import FakeAws
from tests.producer.simulation import STREAM, Simulation
from tests.producer.support import (
    LONG,
    Gate,
    RatedLane,
    acknowledge,
    add,
    make_entry,
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


# ---------------------------------------------------------------------- kinesis_record_test, reducer_test

PATTERNS: dict[str, Callable[[int], tuple[str, str | None]]] = {
    "same partition key": lambda n: ("a", None),
    "different partition keys": lambda n: (str(n), None),
    "mixed partition keys": lambda n: ("abbaacbadeeddd"[n % 14], None),
    "same explicit hash key": lambda n: ("pk", "123"),
    "different explicit hash keys": lambda n: ("pk", str(n)),
    "mixed explicit hash keys": lambda n: ("pk", "12211321455444"[n % 14]),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_thousand_records_of_which_nine_hundred_fit(pattern: str) -> None:
    # The KPL adds 1,000 and removes 100; we never take in what does not fit.
    aggregate = Aggregate(10**9, 900)
    expected = []
    for number in range(1_000):
        key, explicit = PATTERNS[pattern](number)
        data = b"%d" % number
        place = int(explicit).to_bytes(16, "big") if explicit else hash_partition_key(key)
        taken = aggregate.try_append(key, explicit, data, place)
        assert taken == (number < 900)
        if taken:
            expected.append((key, explicit, data))
    assert decode(aggregate.encode()) == expected
    assert aggregate.size == len(aggregate.encode())


def test_a_group_is_filled_and_emptied_again_and_again() -> None:
    aggregator = Aggregator(10**9, 100)
    for _ in range(3):
        records = [make_record(data=b"%d" % number) for number in range(100)]
        closed = [add(aggregator, record, "s") for record in records]
        assert closed[:-1] == [None] * 99
        entry = closed[-1]
        assert entry is not None
        assert entry.records == records
        assert aggregator.next_deadline == float("inf")


def test_a_giant_record_leaves_at_once_and_as_it_is() -> None:
    entry = add(Aggregator(10_000, 2**32), make_record("pk", b"a" * 11_000), "s")
    assert entry is not None
    assert entry.aggregate.encode() == b"a" * 11_000
    assert entry.aggregate.partition_key == "pk"


def test_a_flush_of_nothing_sends_nothing() -> None:
    pipeline = make_pipeline(UNEVEN)
    pipeline.queue.flush(0, 1.0)
    assert pipeline.queue.poll(1.0, 24) == []
    assert pipeline.queue.next_event(1.0, 24) == float("inf")


# ---------------------------------------------------------------------- aggregator_test, shard_map_test


def test_a_hundred_records_for_each_of_three_uneven_shards() -> None:
    pipeline = make_pipeline(UNEVEN, aggregation_max_count=100)
    for number, start in ((1, HALF), (2, 0), (3, QUARTER)):
        for data in range(100):
            put(pipeline, make_record("pk", b"%d" % data, hash_key=start, deadline=9.0), 1.0)
        pipeline.queue._collector.expedite()
        ((entry,),) = [batch.entries for batch in pipeline.queue.poll(1.0, 1)]
        assert entry.shard_id == f"shardId-{number:012d}"
        assert [record.data for record in entry.records] == [b"%d" % data for data in range(100)]


@pytest.mark.parametrize(
    ("hash_key", "number"),
    [(HALF, 1), (MAX_HASH_KEY, 1), (0, 2), (QUARTER - 1, 2), (QUARTER, 3), (HALF - 1, 3)],
)
def test_both_ends_of_each_uneven_shard(hash_key: int, number: int) -> None:
    topology = make_pipeline(UNEVEN).topology
    assert topology.predict(hash_key.to_bytes(16, "big")) == f"shardId-{number:012d}"


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


# ---------------------------------------------------------------------- limiter_test


def test_two_thousand_records_leave_in_the_order_of_their_deadlines() -> None:
    rng = random.Random(1337)
    entries = [make_entry(10, deadline=number / 1000) for number in range(1_000)]
    entries += [make_entry(10, deadline=2.0 + late / 1000) for late in rng.sample(range(100_000), 1_000)]
    limiter = RatedLane(100, 0.0)
    left: list[Entry] = []
    for entry in entries:
        limiter.add(entry)
        left.extend(limiter.release(0.0))
    assert len(left) == 1_000, "the bucket was full"
    now = 0.0
    while limiter:
        event = limiter.next_event(now)
        assert event is not None
        now = event
        left.extend(limiter.release(now))
    assert left == sorted(entries, key=lambda entry: entry.deadline)
    assert now == pytest.approx(1.0, abs=0.01), "and refilled by 1,000 a second"


def test_expired_records_leave_a_limiter_on_another_way() -> None:
    rng = random.Random(1337)
    limiter = RatedLane(100, 0.0)
    for_good = [make_entry(10, deadline=0.0, expires=1e9) for _ in range(1_500)]
    dead = [make_entry(10, deadline=0.001, expires=-rng.uniform(0, 1_000)) for _ in range(300)]
    dying = [make_entry(10, deadline=0.001, expires=0.3 + rng.uniform(0, 0.1)) for _ in range(300)]
    sent, expired = [], []
    for entry in for_good + dead + dying:
        limiter.add(entry)
    now = 0.0
    while limiter:
        expired.extend(limiter.take_expired(now))
        sent.extend(limiter.release(now))
        now = limiter.next_event(now) or now
    assert sent == for_good
    assert set(expired) == {*dead, *dying}


# ---------------------------------------------------------------------- retrier_test


def on_its_way(entries: int, records: int, **settings: Any) -> tuple[StreamPipeline, Batch]:
    """A request with that many Kinesis records of that many user records each, started at 10.0."""
    width = (MAX_HASH_KEY + 1) // 8
    shards = [shard(n, n * width, (n + 1) * width - 1) for n in range(8)]
    pipeline = make_pipeline(shards, **settings)
    for number in range(entries):
        for index in range(records):
            record = make_record(hash_key=number * width + index, arrived=9.0, deadline=9.5)
            put(pipeline, record, 9.0)
    pipeline.queue.flush(-1, 10.0)
    (batch,) = pipeline.queue.poll(10.0, 1)
    batch.started = 10.0
    assert [len(entry.records) for entry in batch.entries] == [records] * entries
    return pipeline, batch


def test_success() -> None:
    pipeline, batch = on_its_way(2, 10)
    answer = [
        {"SequenceNumber": "1234", "ShardId": "shardId-000000000000"},
        {"SequenceNumber": "4567", "ShardId": "shardId-000000000001"},
    ]
    pipeline.responses.on_response(batch, {"FailedRecordCount": 0, "Records": answer}, 10.005)
    first, second = pipeline.pending.take_settled()
    for item, number, name in ((first, "1234", "0"), (second, "4567", "1")):
        assert item.stored is not None
        assert item.entry is not None
        acknowledge(item.entry, item.stored)
        assert len(item.records) == 10
        for index, record in enumerate(item.records):
            result = record.result(0)
            assert result[:3] == (f"shardId-00000000000{name}", number, index)
            (attempt,) = result.attempts
            assert attempt.success
            assert (attempt.delay, attempt.duration) == (1.0, pytest.approx(0.005))
    assert pipeline.topology.next_load is None
    assert not pipeline.pending.live


def test_request_failure() -> None:
    pipeline, batch = on_its_way(1, 10)
    pipeline.responses.on_failure(
        batch, TransientAwsError("msg", operation="PutRecords", code="code"), 10.005
    )
    assert pipeline.pending.take_settled() == []
    assert len(pipeline.pending.live) == 10
    for record in pipeline.pending.live:
        (attempt,) = record.history or ()
        assert (attempt.code, attempt.success) == ("code", False)
        assert attempt.message.endswith("msg")
        assert attempt.duration == pytest.approx(0.005)
    assert pipeline.topology.next_load is None


@pytest.mark.parametrize("fail_if_throttled", [False, True])
def test_six_outcomes_in_one_answer(fail_if_throttled: bool) -> None:
    pipeline, batch = on_its_way(6, 10, fail_if_throttled=fail_if_throttled)
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


def test_a_wrong_shard_is_asked_about_once_for_all_records_inside() -> None:
    pipeline, batch = on_its_way(1, 10)
    asked: list[str] = []
    pipeline.responses._topology = Watched(pipeline.topology, asked)  # type: ignore[assignment]
    answer = [{"SequenceNumber": "1234", "ShardId": "shardId-000000000044"}]
    pipeline.responses.on_response(batch, {"Records": answer}, 10.005)
    assert asked == ["shardId-000000000044"]
    assert len(pipeline.pending.live) == 10
    assert all(record.history is None for record in pipeline.pending.live), (
        "the placement waits for a map: no blind resend"
    )


class Watched:
    """A topology that notes who asks for a new map."""

    def __init__(self, topology: Any, asked: list[str]) -> None:
        self._topology, self._asked = topology, asked

    def invalidate(self, seen_at: float, actual_shard_id: str) -> None:
        self._asked.append(actual_shard_id)
        self._topology.invalidate(seen_at, actual_shard_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topology, name)


# ---------------------------------------------------------------------- KinesisProducerTest and user issues


def test_eight_producers_side_by_side() -> None:
    aws = FakeAws(throttle=False)
    aws.client("kinesis").create_stream(StreamName=STREAM, ShardCount=2)
    config = ProducerConfig(record_max_buffered_time=0.005)
    made: list[Producer] = []

    def start() -> None:
        made.append(Producer(config, client=aws.client("kinesis")))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    futures = [producer.put(STREAM, "k", b"x") for producer in made]
    assert len(futures) == 8
    assert all(future.result(LONG) for future in futures)
    assert [producer.close(LONG) for producer in made] == [0] * 8


class Stopped:
    """A clock that moves when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


def test_the_oldest_record_and_how_many_are_outstanding() -> None:
    aws = FakeAws(throttle=False)
    aws.client("kinesis").create_stream(StreamName=STREAM, ShardCount=1)
    gate = Gate(aws)
    gate.open.clear()
    clock = Stopped()
    config = ProducerConfig(record_max_buffered_time=60.0)
    with Producer(config, client=gate, clock=clock) as producer:
        assert producer.stats().oldest_record_age == 0
        producer.put(STREAM, "k", b"")
        clock.now += 2.0
        producer.put(STREAM, "k", b"")
        stats = producer.stats()
        assert (stats.buffered_records, stats.oldest_record_age) == (2, 2.0)
        gate.open.set()
        assert producer.flush(LONG) == 0
        stats = producer.stats()
        assert (stats.buffered_records, stats.oldest_record_age) == (0, 0.0)


def test_metrics_may_have_credentials_of_their_own() -> None:
    seen: dict[str, set[str]] = {}
    sent = threading.Event()

    def client(service: str, key: str) -> Any:
        session = boto3.Session(
            aws_access_key_id=key, aws_secret_access_key="s" * 40, region_name="us-west-1"
        )
        made = session.client(service, config=Config(retries={"total_max_attempts": 1}))

        def answer(request: Any, **_: Any) -> None:
            seen.setdefault(service, set()).add(re.findall(r"Credential=(\w+)/", str(request.headers))[0])
            if service == "kinesis":
                sent.set()
            raise ConnectionError("no network in tests")

        made.meta.events.register("before-send", answer)
        return made

    metrics = CloudWatchMetrics(client("cloudwatch", "AKIABBBBBBBBBBBBBBBB"))
    config = ProducerConfig(record_ttl=LONG, record_max_buffered_time=0.0)
    with Producer(config, client=client("kinesis", "AKIAAAAAAAAAAAAAAAAA"), metrics=metrics) as producer:
        future = producer.put(STREAM, "k", b"")
        assert sent.wait(LONG)
        producer.close(0)
    assert future.exception(LONG) is not None
    metrics.close()
    assert seen == {"kinesis": {"AKIAAAAAAAAAAAAAAAAA"}, "cloudwatch": {"AKIABBBBBBBBBBBBBBBB"}}


@pytest.mark.parametrize("shards", [1, 16, 64])
def test_a_minute_of_buffered_time_and_many_shards(shards: int) -> None:
    # 16 shards and more, 60 s to fill, 30 s to live: the KPL delivered nothing at all.
    simulation = Simulation(ProducerConfig(record_max_buffered_time=60.0), shards=shards, latency=0.01)
    for number in range(200):
        simulation.put(f"key-{number}", b"%d" % number)
    simulation.run()
    assert simulation.clock.monotonic() < 30.0
    simulation.check()
    assert all(record.exception() is None for record in simulation.records)


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

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait(LONG)
    left = producer.close(LONG)
    for thread in threads:
        thread.join(LONG)
    assert len(refused) == 4, "closing ends them all"
    assert all(future.done() for future in accepted)
    assert sum(future.exception(0) is not None for future in accepted) == left == 0
