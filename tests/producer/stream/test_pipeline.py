"""The pipeline's rules, one at a time, in virtual time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from kinesis_sdk.common.aggregate_reader import Aggregate
from kinesis_sdk.common.errors import (
    EndpointUnreachableError,
    PermanentAwsError,
    ProducerClosedError,
    ResourceNotFoundError,
    ThrottledError,
    TransientAwsError,
)
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, hash_partition_key
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.records.entry import Entry
from kinesis_sdk.producer.records.future import PendingRecord
from kinesis_sdk.producer.stream.collector import Batch
from kinesis_sdk.producer.stream.dispatch import HoldOff
from kinesis_sdk.producer.stream.pipeline import StreamPipeline
from kinesis_sdk.producer.stream.topology import StreamFacts
from kinesis_sdk.testing import Fault
from tests.fuzz import seeds
from tests.producer.simulation import STREAM, Simulation
from tests.producer.stream.distribution import AUTO, BY_KEY, DENIED, switch
from tests.producer.support import failure_of, make_record, shard, tiling
from tests.producer.support import put as put_record

MIB = 1024 * 1024


def fill(simulation: Simulation, count: int, *, keys: int = 50, size: int = 100, start: int = 0) -> None:
    for index in range(start, start + count):
        simulation.put(f"key-{index % keys}", f"{index:08d}".encode().ljust(size, b"."))


def test_records_are_aggregated_per_shard_and_acknowledged_in_place() -> None:
    simulation = Simulation(shards=4)
    simulation.run(until=1.0)
    fill(simulation, 1000)
    simulation.finish(delivered=True)
    # 1,000 x 100 bytes on four shards: one aggregate each, one request.
    assert simulation.pipeline.counters.kinesis_records_stored <= 8
    assert len(simulation.stored()) == 1000


def test_a_record_leaves_at_its_deadline_plus_the_collection_extension() -> None:
    simulation = Simulation(latency=0.0)
    simulation.warm()
    simulation.sent_at.clear()
    put_at = simulation.clock.monotonic()
    simulation.put_and_run("a", b"lonely")
    assert simulation.sent_at == [pytest.approx(put_at + 0.1 + 0.02)]
    simulation.check()


def test_flush_does_not_wait_for_deadlines() -> None:
    simulation = Simulation(ProducerConfig(record_max_buffered_time=60.0), latency=0.0)
    simulation.put("a", b"first")
    simulation.flush()
    simulation.run(until=0.01)
    assert simulation.records[0].done()


def test_flush_makes_retries_quick_too() -> None:
    simulation = Simulation(ProducerConfig(record_max_buffered_time=60.0, record_ttl=300.0), latency=0.001)
    simulation.aws.faults.add(Fault(kind="partial", operation="PutRecords", count=3))
    simulation.put("a", b"first")
    simulation.flush()
    simulation.run(until=1.0)
    assert simulation.records[0].done()
    assert len(simulation.records[0].result().attempts) == 4


def test_before_the_first_map_only_equal_hash_keys_share_an_aggregate() -> None:
    simulation = Simulation(ProducerConfig(record_max_buffered_time=0.05), shards=8)
    simulation.aws.faults.add(Fault(kind="error", operation="ListShards", status=500))
    fill(simulation, 200, keys=10)
    simulation.run(until=5.0)
    simulation.check()
    entries = [item["entry"] for request in simulation.requests for item in request]
    assert entries
    assert all(len({record.hash_key for record in entry.records}) == 1 for entry in entries)
    assert all(record.exception() is None for record in simulation.records)


def test_a_late_map_regroups_what_was_buffered_without_one() -> None:
    simulation = Simulation(ProducerConfig(record_max_buffered_time=1.0), shards=2, latency=0.01)
    fill(simulation, 500, keys=100)
    simulation.finish()
    assert simulation.pipeline.counters.kinesis_records_stored == 2


def test_throttled_entries_are_retried_with_halved_deadlines() -> None:
    simulation = Simulation(latency=0.001)
    simulation.warm()
    simulation.aws.faults.add(Fault(kind="partial", operation="PutRecords", count=2))
    put_at = simulation.clock.monotonic()
    record = simulation.put_and_run("a", b"unlucky")
    attempts = record.result().attempts
    assert [a.success for a in attempts] == [False, False, True]
    assert attempts[0].code == "ProvisionedThroughputExceededException"
    # deadline 0.1 + extension 0.02, then twice half of it with its extension
    assert simulation.clock.monotonic() - put_at == pytest.approx(0.12 + 2 * (0.05 + 0.02), abs=0.01)
    assert attempts[1].delay == pytest.approx(0.07, abs=0.002)


def test_fail_if_throttled_fails_at_once_with_the_cause() -> None:
    simulation = Simulation(ProducerConfig(fail_if_throttled=True))
    simulation.aws.faults.add(Fault(kind="partial", operation="PutRecords"))
    record = simulation.put_and_run("a", b"unlucky")
    error = failure_of(record)
    assert isinstance(error.__cause__, ThrottledError)
    assert len(error.attempts) == 1
    simulation.check()


def test_expiry_carries_the_real_cause_and_all_attempts() -> None:
    simulation = Simulation(ProducerConfig(record_ttl=2.0))
    simulation.aws.faults.add(Fault(kind="partial", operation="PutRecords", code="InternalFailure"))
    record = simulation.put_and_run("customer-1", b"unlucky")
    error = failure_of(record)
    assert error.stream == STREAM
    assert error.partition_key == "customer-1"
    assert "InternalFailure" in str(error)
    assert "time-to-live" in str(error)
    assert error.attempts[-1].code == "Expired"
    assert {a.code for a in error.attempts[:-1]} == {"InternalFailure"}
    assert 2.0 <= simulation.clock.monotonic() < 2.5
    simulation.check()


@pytest.mark.parametrize("ordering", ["none", "per_shard"])
def test_a_record_that_expires_without_an_attempt_names_the_failure_that_it_waited_for(ordering: Any) -> None:
    config = ProducerConfig(
        record_ttl=2.0, max_connections=1, collection_max_count=1, aggregation_max_size=64, ordering=ordering
    )
    simulation = Simulation(config, shards=1)
    simulation.warm()
    simulation.down = True
    fill(simulation, 300)
    simulation.finish()
    waited = [record for record in simulation.records[1:] if len(record.exception().attempts) == 1]
    assert len(waited) > 200, "one connection, one Kinesis record at a time: most never had an attempt"
    for record in simulation.records[1:]:
        error = failure_of(record)
        assert isinstance(error.__cause__, EndpointUnreachableError)
        assert "nobody listens" in str(error)
        if record in waited:
            assert "waited for" in str(error)


@pytest.mark.parametrize("seconds", [0.6, 4.0, 20.0])
def test_an_endpoint_that_is_late_at_the_start_loses_nothing(seconds: float) -> None:
    """A sidecar or a network that comes up a moment after the process."""
    simulation = Simulation(ProducerConfig(record_ttl=30.0))
    simulation.down = True
    records = [simulation.put(f"k{number}", b"x") for number in range(100)]
    simulation.run(simulation.clock.monotonic() + seconds)
    assert not any(record.done() for record in records)
    simulation.down = False
    simulation.finish()
    assert [record.exception() for record in records] == [None] * 100


def test_a_record_that_waits_for_the_shard_map_names_why_there_is_none() -> None:
    simulation = Simulation(ProducerConfig(record_ttl=2.0, ordering="per_shard"))
    simulation.aws.faults.add(Fault(kind="error", operation="ListShards", status=500, code="InternalFailure"))
    record = simulation.put_and_run("a", b"first")
    error = failure_of(record)
    assert isinstance(error.__cause__, TransientAwsError)
    assert "InternalFailure" in str(error)


def test_a_record_that_waits_for_its_shard_alone_does_not_blame_an_older_failure() -> None:
    simulation = Simulation(
        ProducerConfig(aggregation_enabled=False, rate_limit=100, record_ttl=1.5), shards=1, throttle=False
    )
    simulation.aws.faults.add(Fault(kind="error", operation="PutRecords", status=500, count=1))
    simulation.warm()
    fill(simulation, 3_000, size=10)
    simulation.finish()
    errors = [record.exception() for record in simulation.records]
    assert any(errors)
    assert all(
        "rate limit" in str(error) and error.__cause__ is None for error in errors if error is not None
    )


def test_a_missing_stream_fails_at_once_not_after_the_time_to_live() -> None:
    simulation = Simulation()
    simulation.client.delete_stream(StreamName=STREAM)
    record = simulation.put_and_run("a", b"lost?")
    error = failure_of(record)
    assert isinstance(error.__cause__, ResourceNotFoundError)
    assert simulation.clock.monotonic() < 1.0


def put_steadily(simulation: Simulation, begin: float, end: float, rate: int = 200) -> None:
    """Schedule records at a constant rate."""
    for number in range(round((end - begin) * rate)):
        simulation.at(begin + number / rate, lambda n=number: simulation.put(f"key-{n % 50}", b"x" * 100))


def test_a_stream_that_comes_back_gets_aggregates_at_once() -> None:
    simulation = Simulation()
    simulation.warm()
    simulation.recreated = True
    gone = simulation.clock.monotonic()
    simulation.client.delete_stream(StreamName=STREAM)
    back = gone + 40.0
    simulation.at(back, lambda: simulation.client.create_stream(StreamName=STREAM, ShardCount=2))
    put_steadily(simulation, gone, back, rate=10)
    put_steadily(simulation, back, back + 10.0)
    simulation.run(until=back + 2.0)
    before = simulation.pipeline.counters.kinesis_records_stored
    simulation.finish()
    assert all(record.exception() is None for record in simulation.records[-1_000:])
    sent = simulation.pipeline.counters.kinesis_records_stored - before
    assert sent < 400, "1,600 records: not one by one until the backoff of failed loads is over"


# ---------------------------------------------------------------------- records that wait for their stream


def waiting(ordering: Any = "none", **settings: Any) -> Simulation:
    """A producer that waits for its stream, which does not exist yet."""
    config = ProducerConfig(missing_stream="wait", ordering=ordering, **settings)
    simulation = Simulation(config, throttle=False)
    simulation.client.delete_stream(StreamName=STREAM)
    return simulation


def loads(simulation: Simulation) -> int:
    """How often the stream was asked about."""
    calls: Counter[str] = Counter(simulation.aws.stats()["calls"])
    return calls["DescribeStreamSummary"] + calls["ListShards"]


@pytest.mark.parametrize("ordering", ["none", "per_shard"])
def test_records_wait_for_a_stream_that_is_created_later(ordering: Any) -> None:
    simulation = waiting(ordering)
    put_steadily(simulation, 0.0, 25.0, rate=100)
    simulation.at(20.0, lambda: simulation.client.create_stream(StreamName=STREAM, ShardCount=2))
    simulation.run(until=20.0)
    assert len(simulation.requests) <= 1, (
        "one request may find out, no more are sent to a stream that is missing"
    )
    assert loads(simulation) < 25
    simulation.run(until=22.5)
    assert all(record.done() for record in simulation.records[:2_000]), "it was found within two seconds"
    simulation.finish()
    assert max(len(record.result().attempts) for record in simulation.records) <= 2
    assert simulation.pipeline.counters.kinesis_records_stored < 200, (
        "what waited was aggregated by the new map"
    )


@pytest.mark.parametrize("ordering", ["none", "per_shard"])
def test_records_wait_for_a_stream_that_is_deleted_and_recreated(ordering: Any) -> None:
    config = ProducerConfig(missing_stream="wait", ordering=ordering)
    simulation = Simulation(config, throttle=False, shards=3)
    simulation.recreated = True
    put_steadily(simulation, 0.0, 20.0, rate=100)
    simulation.at(5.0, lambda: simulation.client.delete_stream(StreamName=STREAM))
    simulation.at(13.0, lambda: simulation.client.create_stream(StreamName=STREAM, ShardCount=2))
    simulation.finish()
    assert max(len(record.result().attempts) for record in simulation.records) <= 2
    gone = [at for at in simulation.sent_at if 5.2 < at < 13.0]
    assert not gone, "nothing is sent to a stream that is missing"
    late = [item for request in simulation.requests[-50:] for item in request]
    assert sum(item["count"] for item in late) > 5 * len(late), "aggregated again"


@pytest.mark.parametrize("ordering", ["none", "per_shard"])
def test_records_fail_with_the_cause_if_their_stream_does_not_come(ordering: Any) -> None:
    simulation = waiting(ordering, record_ttl=10.0)
    simulation.recreated = True  # there is no stream to look into
    put_steadily(simulation, 0.0, 1.0)
    simulation.run()
    simulation.check()
    for record in simulation.records:
        error = failure_of(record)
        assert isinstance(error.__cause__, ResourceNotFoundError)
        assert "ResourceNotFoundException" in str(error)
        assert len(error.attempts) <= 2
    assert 10.0 <= simulation.records[0].last_event <= 10.1
    assert len(simulation.requests) <= 1
    assert loads(simulation) < 20


def test_without_the_permission_to_describe_a_missing_stream_requests_find_it_but_rarely() -> None:
    simulation = waiting()
    for operation in ("ListShards", "DescribeStreamSummary"):
        simulation.aws.faults.add(
            Fault(kind="error", operation=operation, code="AccessDeniedException", status=400)
        )
    for number in range(100):
        simulation.put(f"key-{number}", b"x")
    simulation.at(20.0, lambda: simulation.client.create_stream(StreamName=STREAM, ShardCount=2))
    simulation.finish()
    assert all(len(record.result().attempts) < 25 for record in simulation.records)
    assert len(simulation.requests) < 100


@pytest.mark.parametrize("ordering", ["none", "per_shard"])
def test_what_is_isolated_expires_although_its_stream_is_missing(ordering: Any) -> None:
    pipeline = make_pipeline(HALVES, missing_stream="wait", record_ttl=2.0, ordering=ordering)
    put(pipeline, 1, 200, expires=13.0)
    batch = send(pipeline, 11.0)
    assert len(batch.entries) == 2
    refused = PermanentAwsError("no", operation="PutRecords", code="ValidationException", status=400)
    pipeline.responses.on_failure(batch, refused, 11.1)
    assert pipeline.queue._isolated, "each is to be sent alone"
    pipeline.topology.begin_load(11.2)
    pipeline.responses.on_facts_failed(ResourceNotFoundError("gone", operation="ListShards"), 11.2)
    assert not pipeline.queue.poll(11.3, 24)
    assert not pipeline.pending.take_settled()
    assert not pipeline.queue.poll(13.1, 24)
    settled = pipeline.pending.take_settled()
    assert sum(len(item.records) for item in settled) == 2
    assert all(isinstance(item.error.__cause__, ResourceNotFoundError) for item in settled if item.error)
    assert not pipeline.pending.entries


def test_a_record_names_the_load_that_found_its_stream_missing_although_there_was_a_map() -> None:
    pipeline = make_pipeline(None, missing_stream="wait")
    load(pipeline, WHOLE, 10.0, service_places=True)
    put(pipeline, 1, expires=41.0)
    gone = ResourceNotFoundError("gone", operation="ListShards")
    pipeline.topology.begin_load(11.0)
    pipeline.responses.on_facts_failed(gone, 11.0)
    assert not pipeline.queue.poll(11.1, 24)
    assert not pipeline.queue.poll(41.1, 24)
    (item,) = pipeline.pending.take_settled()
    assert item.error is not None
    assert item.error.__cause__ is gone


def test_a_record_does_not_blame_an_older_failure_for_its_missing_stream() -> None:
    pipeline = make_pipeline(None, missing_stream="wait")
    put(pipeline, 1, expires=41.0)
    older = EndpointUnreachableError("connection reset", operation="PutRecords")
    pipeline.responses.on_failure(send(pipeline, 11.0), older, 11.1)
    put(pipeline, 1, now=11.2, expires=41.0)
    gone = ResourceNotFoundError("gone", operation="ListShards")
    pipeline.topology.begin_load(11.3)
    pipeline.responses.on_facts_failed(gone, 11.3)
    assert not pipeline.queue.poll(41.1, 24)
    settled = pipeline.pending.take_settled()
    assert sum(len(item.records) for item in settled) == 2
    assert all(item.error is not None and item.error.__cause__ is gone for item in settled)


def test_a_load_that_fails_for_another_reason_does_not_keep_records_from_a_stream() -> None:
    simulation = waiting()
    simulation.put("a", b"x")
    simulation.run(until=5.0)
    simulation.aws.faults.add(Fault(kind="error", operation="ListShards", status=500))
    simulation.client.create_stream(StreamName=STREAM, ShardCount=2)
    simulation.run(until=10.0)
    assert simulation.records[0].result(0)


def test_a_missing_stream_is_looked_for_soon_whatever_failed_before() -> None:
    pipeline = make_pipeline(HALVES, missing_stream="wait", record_ttl=600.0)
    now = 11.0
    for _ in range(12):
        pipeline.topology.begin_load(now)
        pipeline.responses.on_facts_failed(TransientAwsError("busy", operation="ListShards"), now)
    put(pipeline, 1, 2, now=now)
    batch = send(pipeline, now)
    assert pipeline.queue.next_event(now, 24) > now + 10, "the next load is far away"
    pipeline.responses.on_failure(batch, ResourceNotFoundError("gone", operation="PutRecords"), now)
    assert now < pipeline.queue.next_event(now, 24) <= now + 2.0
    assert pipeline.topology.wants_load(now + 2.0)


def test_a_stream_that_was_asked_about_is_waited_for_when_its_endpoint_goes_away() -> None:
    simulation = waiting()
    simulation.put("a", b"x")
    simulation.run(until=0.01)  # not there, said somebody at the endpoint
    assert not simulation.requests
    simulation.down = True
    simulation.at(9.0, lambda: setattr(simulation, "down", False))
    simulation.at(10.0, lambda: simulation.client.create_stream(StreamName=STREAM, ShardCount=2))
    simulation.run()
    assert simulation.records[0].exception() is None


def test_a_stream_that_is_waited_for_does_not_keep_other_streams_records_from_making_room() -> None:
    simulation = waiting()
    for number in range(10):
        simulation.put(f"key-{number}", b"x")
    simulation.run(until=3.0)
    assert not simulation.records[0].done()
    assert simulation.pipeline.queue.is_idle


def test_aggregates_that_straddle_a_split_go_again_whole() -> None:
    simulation = Simulation(shards=1, latency=0.01)
    fill(simulation, 10)
    simulation.run()
    fill(simulation, 500, start=10)
    # The split comes while the aggregates are open, grouped by the old map.
    simulation.at(
        simulation.clock.monotonic() + 0.05,
        simulation.split,
    )
    simulation.finish(delivered=True)
    assert simulation.pipeline.counters.wrong_shard_entries >= 1
    fill(simulation, 100, start=600)
    wrong = simulation.pipeline.counters.wrong_shard_entries
    simulation.finish()
    assert simulation.pipeline.counters.wrong_shard_entries == wrong, "the map was refreshed"


def test_a_single_record_is_stored_wherever_it_lands() -> None:
    simulation = Simulation(ProducerConfig(aggregation_enabled=False), shards=1)
    simulation.warm()
    simulation.split()
    record = simulation.put_and_run("a", b"second")
    assert len(record.result().attempts) == 1
    assert len(simulation.stored()) == 2


def test_without_aggregation_the_children_of_a_split_are_used_at_their_own_rates() -> None:
    config = ProducerConfig(aggregation_enabled=False, rate_limit=100)
    simulation = Simulation(config, shards=1, throttle=False)
    simulation.warm()
    simulation.split()
    simulation.put_and_run("a", b"lands in a child")
    begin = simulation.clock.monotonic()
    fill(simulation, 4_000, size=10, keys=1_000)
    simulation.run()
    # two full buckets of 1,000, then 2,000 a second; the parent's alone would take 3 s
    assert simulation.clock.monotonic() - begin == pytest.approx(1.0, abs=0.4)
    simulation.check()


def test_single_failures_between_successes_stay_short_pauses() -> None:
    simulation = Simulation(latency=0.001)
    took = []
    for number in range(20):
        simulation.aws.faults.add(Fault(kind="error", operation="PutRecords", status=500, count=1))
        begin = simulation.clock.monotonic()
        simulation.put_and_run("a", b"%d" % number)
        took.append(simulation.clock.monotonic() - begin)
    assert [len(record.result(0).attempts) for record in simulation.records] == [2] * 20
    assert max(took) < 0.35, (
        "the twentieth failure of a process's life pauses the stream no longer than the first"
    )


def test_a_short_answer_is_a_failed_attempt_not_a_misattributed_one() -> None:
    simulation = Simulation(latency=0.0)
    simulation.warm()
    real = simulation.client.put_records
    calls = []

    def short(**kwargs: object) -> dict[str, object]:
        answer = real(**kwargs)
        calls.append(1)
        if len(calls) == 1:
            answer["Records"] = answer["Records"][:-1]
        return answer

    simulation.client.put_records = short
    record = simulation.put_and_run("a", b"second")
    assert [a.success for a in record.result().attempts] == [False, True]


# ---------------------------------------------------------------------- the pipeline by hand


def make_pipeline(shards: Sequence[Shard] | None, **settings: Any) -> StreamPipeline:
    """A pipeline at time 10 that has its facts, or waits for them if there are no shards."""
    pipeline = StreamPipeline(StreamId(STREAM), ProducerConfig(**settings), random.Random(1))
    if shards is not None:
        load(pipeline, shards, 10.0)
    return pipeline


def load(
    pipeline: StreamPipeline, shards: Sequence[Shard], now: float, *, service_places: bool = False
) -> None:
    pipeline.topology.begin_load(now)
    pipeline.on_facts(StreamFacts(shards, None, service_places), now)


def put(pipeline: StreamPipeline, *hash_keys: int, now: float = 11.0, **times: float) -> None:
    for hash_key in hash_keys:
        put_record(
            pipeline, make_record(hash_key=hash_key, **{"arrived": now, "deadline": now, **times}), now
        )


def send(pipeline: StreamPipeline, now: float) -> Batch:
    """Everything there is, in one request that starts now."""
    pipeline.queue.flush(-1, now)
    (batch,) = pipeline.queue.poll(now, 1)
    batch.started = now
    return batch


def landed(*shard_ids: str) -> dict[str, Any]:
    return {"Records": [{"ShardId": shard_id, "SequenceNumber": "1"} for shard_id in shard_ids]}


WHOLE = [shard(0, 0, MAX_HASH_KEY)]
HALVES = [shard(1, 0, 99), shard(2, 100, MAX_HASH_KEY)]
QUARTERS = [shard(3, 0, 49), shard(4, 50, 99), shard(5, 100, MAX_HASH_KEY)]


def test_a_shard_that_even_a_newer_map_does_not_know_is_asked_about() -> None:
    # Two reshards while a request is on its way: the map that comes back to is two generations younger.
    pipeline = make_pipeline(WHOLE)
    put(pipeline, 1, 2)
    batch = send(pipeline, 11.0)
    load(pipeline, HALVES, 12.0)
    load(pipeline, QUARTERS, 13.0)
    pipeline.responses.on_response(batch, landed("shardId-000000000000"), 14.0)
    assert not pipeline.pending.take_settled(), "the result is not known yet"
    assert pipeline.queue.next_event(14.0, 24) == 14.0 or pipeline.topology.wants_load(14.0), (
        "a load must come"
    )
    load(pipeline, QUARTERS, 14.0)
    assert pipeline.counters.wrong_shard_entries == 1
    pipeline.responses.on_response(send(pipeline, 14.1), landed("shardId-000000000003"), 14.2)
    (item,) = pipeline.pending.take_settled()
    assert len(item.records) == 2
    assert not pipeline.pending.entries


def test_a_map_asked_for_before_the_record_was_sent_has_not_the_last_word() -> None:
    pipeline = make_pipeline(HALVES)
    put(pipeline, 1, 2)
    pipeline.topology.invalidate(10.5, "shardId-000000000003")
    pipeline.topology.begin_load(10.6)
    batch = send(pipeline, 11.0)
    pipeline.responses.on_response(batch, landed("shardId-000000000003"), 11.5)
    pipeline.on_facts(StreamFacts(HALVES, None, False), 11.6)  # as it was before the split
    assert pipeline.counters.wrong_shard_entries == 0
    assert pipeline.topology.wants_load(12.0)
    load(pipeline, QUARTERS, 12.0)
    (item,) = pipeline.pending.take_settled()
    assert item.stored is not None
    assert pipeline.counters.user_record_retries == 0, "it was stored at the first try"


def test_a_verdict_waits_for_a_map_that_fails_to_load_but_not_for_ever() -> None:
    trouble = TransientAwsError("busy", operation="ListShards")
    for failures, ttl, waits in ((2, 30.0, True), (3, 30.0, False), (1, 2.5, False)):
        pipeline = make_pipeline(HALVES)
        put(pipeline, 1, 2, expires=11.0 + ttl)
        pipeline.responses.on_response(send(pipeline, 11.0), landed("shardId-000000000003"), 11.1)
        now = 12.0
        for _ in range(failures):
            pipeline.topology.begin_load(now)
            pipeline.responses.on_facts_failed(trouble, now + 0.1)
            assert pipeline.topology.next_load is not None
            now = pipeline.topology.next_load
        assert (pipeline.counters.user_record_retries == 0) == waits
        if waits:
            load(pipeline, QUARTERS, now)
            (item,) = pipeline.pending.take_settled()
            assert item.stored is not None
            assert pipeline.counters.user_record_retries == 0, "it was stored at the first try"


def test_an_entry_without_error_and_without_place_is_tried_again() -> None:
    pipeline = make_pipeline(WHOLE)
    put(pipeline, 1, 2)
    pipeline.responses.on_response(send(pipeline, 11.0), {"Records": [{"SequenceNumber": "1"}]}, 11.1)
    assert not pipeline.pending.take_settled()
    pipeline.responses.on_response(send(pipeline, 11.2), landed("shardId-000000000000"), 11.3)
    (item,) = pipeline.pending.take_settled()
    history = item.records[0].history
    assert history is not None
    assert [attempt.code for attempt in history] == ["ProtocolError"]
    assert item.records[0].history == item.records[1].history


def test_neighbours_of_an_expired_record_may_belong_to_a_shard_without_a_limiter() -> None:
    # Same shard id, other range: the stream was deleted and made anew while records waited for the limiter.
    pipeline = make_pipeline(WHOLE, rate_limit=1, aggregation_max_count=2)
    record = make_record(data=b"x" * MIB, hash_key=7, arrived=11.0, deadline=11.0)
    put_record(pipeline, record, 11.0)  # empties the shard's bucket
    pipeline.queue.flush(-1, 11.0)
    for _ in range(2):
        put(pipeline, 1, expires=13.0)
        put(pipeline, 200, expires=60.0)  # two of these fill an aggregate, which goes to its limiter
        pipeline.queue.flush(-1, 11.0)
    load(pipeline, tiling((0, 0, 99), (1, 100, MAX_HASH_KEY)), 12.0)
    pipeline.queue.poll(13.0, 0)
    assert [item.error is not None for item in pipeline.pending.take_settled()] == [True, True]
    assert sorted(pipeline.queue.lanes) == ["shardId-000000000000", "shardId-000000000001"]
    assert len(pipeline.pending.live) == 3


def test_requests_that_fail_together_are_one_failure() -> None:
    pipeline = make_pipeline(WHOLE, aggregation_enabled=False, collection_max_count=1)
    put(pipeline, *range(24))
    pipeline.queue.flush(-1, 11.0)
    batches = pipeline.queue.poll(11.0, 24)
    assert len(batches) == 24
    for batch in batches:
        batch.started = 11.0
    for batch in batches:
        pipeline.responses.on_failure(batch, TransientAwsError("reset", operation="PutRecords"), 11.01)
    assert pipeline.queue.pause.until <= 11.01 + 0.05
    again = pipeline.queue.poll(11.2, 24)
    for batch in again:
        batch.started = 11.2
        pipeline.responses.on_failure(batch, TransientAwsError("reset", operation="PutRecords"), 11.21)
    assert 11.21 + 0.05 <= pipeline.queue.pause.until <= 11.21 + 0.1


def test_a_missing_stream_is_forgotten_with_its_map() -> None:
    pipeline = make_pipeline(HALVES)
    put(pipeline, 1, 2)
    batch = send(pipeline, 11.0)
    pipeline.responses.on_failure(batch, ResourceNotFoundError("gone", operation="PutRecords"), 11.1)
    assert pipeline.topology.shard_map is None
    assert len(pipeline.pending.take_settled()) == 2
    put(pipeline, 1, 101, now=20.0)
    assert pipeline.topology.wants_load(20.0)
    entries = send(pipeline, 20.0).entries
    assert [entry.shard_id for entry in entries] == [None, None], "no prediction by the old map"


def test_abandoned_records_fail_wherever_they_are() -> None:
    pipeline = make_pipeline(HALVES, aggregation_max_count=2)
    put(pipeline, 1, 2)
    sent = send(pipeline, 11.0)
    put(pipeline, 3, 4)
    unknown = send(pipeline, 11.0)
    pipeline.responses.on_response(unknown, landed("shardId-000000000009"), 11.1)
    put(pipeline, 5)  # open
    put(pipeline, 6, 7)  # closed
    assert len(pipeline.pending.live) == 7
    pipeline.responses.abandon(12.0, ProducerClosedError("closed"))
    failed = [item.records[0] for item in pipeline.pending.take_settled()]
    assert len(failed) == 7
    assert not pipeline.pending.entries
    assert pipeline.queue.poll(100.0, 24) == []
    assert pipeline.queue.next_event(100.0, 24) == float("inf")
    assert all(record in failed for entry in sent.entries for record in entry.records)


def test_an_aggregate_that_waits_for_company_is_divided_when_the_stream_turns_out_to_place_records_itself() -> (
    None
):
    pipeline = make_pipeline(None)
    put(pipeline, 1, 1)  # of one hash key: together, as long as nobody knows the stream
    assert pipeline.queue.poll(11.0, 0) == []
    assert len(pipeline.queue._collector) == 1, "closed, and ready to be sent"
    load(pipeline, HALVES, 11.01, service_places=True)
    entries = send(pipeline, 11.1).entries
    assert [len(entry.records) for entry in entries] == [1, 1], "as one it would be sent again, for its place"


def test_what_is_isolated_is_sent_once_although_everything_is_grouped_anew() -> None:
    simulation = Simulation(ProducerConfig(aggregation_max_count=5, max_connections=1), shards=1)
    simulation.warm()
    simulation.refuse(lambda records: len(records) > 1)
    fill(simulation, 40)
    while not simulation.pipeline.queue._isolated:
        simulation.run(until=simulation.clock.monotonic() + 0.001)
    now = simulation.clock.monotonic()
    simulation.pipeline.queue.forgive(6.0, now)  # the process stood still, so what is unsent is grouped anew
    simulation.exactly_once = True
    simulation.finish()


def test_rest_means_that_only_open_aggregates_hold_records() -> None:
    pipeline = make_pipeline(HALVES)
    assert pipeline.queue.is_idle
    put(pipeline, 1, 2)
    assert pipeline.queue.is_idle
    batch = send(pipeline, 11.0)
    assert not pipeline.queue.is_idle
    pipeline.responses.on_response(batch, landed("shardId-000000000001"), 11.1)
    assert pipeline.queue.is_idle
    put(pipeline, 1, 2)
    now = 11.0
    for _ in range(3):
        now = max(now, pipeline.queue._retries.next_due) if pipeline.queue._retries else now
        pipeline.responses.on_response(
            send(pipeline, now), {"Records": [{"ErrorCode": "InternalFailure"}]}, now
        )
    assert len(pipeline.queue._retries) == 2
    assert pipeline.queue.is_idle, "what fails again and again does not keep others from being sent"


# ---------------------------------------------------------------------- deadlines near the time-to-live


@pytest.mark.parametrize(
    ("buffered_time", "ttl"),
    [(3_600.0, 0.1), (3_600.0, 5.0), (5.0, 5.0), (0.1, 0.1), (0.0, 0.1), (3_600.0, 604_800.0)],
)
def test_a_record_is_sent_before_it_expires_however_long_it_may_be_buffered(
    buffered_time: float, ttl: float
) -> None:
    config = ProducerConfig(record_max_buffered_time=buffered_time, record_ttl=ttl)
    simulation = Simulation(config, latency=0.001)
    for key in ("a", "b"):
        simulation.put(key, b"x")
    simulation.run()
    ended = simulation.clock.monotonic()
    simulation.check()
    assert [record.exception() for record in simulation.records] == [None, None]
    assert ended - simulation.records[0].arrived <= min(buffered_time + 0.06, ttl)


def test_an_entry_does_not_expire_while_it_waits_for_company() -> None:
    # Closed 30 ms before its end, the extension for collection would be 50 ms.
    pipeline = make_pipeline(WHOLE, record_max_buffered_time=1.0)
    put(pipeline, 1, deadline=11.0, expires=11.03)
    assert len(pipeline.queue.poll(11.0, 24)) == 1


@pytest.mark.parametrize("buffered_time", [0.0, 0.1])
def test_attempts_of_a_record_that_always_fails_are_bounded(buffered_time: float) -> None:
    simulation = Simulation(ProducerConfig(record_max_buffered_time=buffered_time), latency=0.001)
    simulation.aws.faults.add(Fault(kind="partial", operation="PutRecords"))
    for number in range(10):
        simulation.put(f"k{number}", b"x")
    simulation.finish()
    for record in simulation.records:
        error = failure_of(record)
        assert 20 < len(error.attempts) < 60
    assert len(simulation.requests) < 400


# ---------------------------------------------------------------------- streams of other kinds


def test_a_stream_that_places_records_itself_gets_singles_without_a_limit() -> None:
    simulation = Simulation(throttle=False)
    simulation.recreate(**AUTO)
    simulation.warm()
    begin = simulation.clock.monotonic()
    fill(simulation, 3_000, size=10)
    simulation.run()
    assert simulation.clock.monotonic() - begin < 1.0
    simulation.check()
    assert simulation.pipeline.counters.kinesis_records_stored == 3_001
    assert not simulation.pipeline.queue.lanes


@pytest.mark.fuzz
@pytest.mark.parametrize("failing", [None, "ListShards", "DescribeStreamSummary"])
@pytest.mark.parametrize("seed", seeds(unit=7, fuzz=20))
def test_what_was_aggregated_before_that_was_known_is_not_lost(seed: int, failing: str | None) -> None:
    simulation = Simulation(ProducerConfig(record_max_buffered_time=0.0), seed=seed, latency=0.05)
    simulation.recreate(**AUTO)
    if failing:
        simulation.aws.faults.add(Fault(kind="error", operation=failing, count=3))
    fill(simulation, 60, keys=6, size=10)  # leaves at once, ten records of one key together
    simulation.finish(delivered=True)
    assert any(item["count"] > 1 for request in simulation.requests for item in request)


def test_a_stream_may_start_to_place_records_itself() -> None:
    simulation = Simulation(throttle=False)
    simulation.recreate(**BY_KEY)
    fill(simulation, 100)
    simulation.run()
    fill(simulation, 100, start=100)
    switch(simulation, "AUTO")
    simulation.finish()
    fill(simulation, 100, start=200)
    simulation.finish()
    assert simulation.pipeline.topology.service_places
    assert all(record.exception() is None for record in simulation.records)


LARGE = {"aggregation_max_size": 10 * MIB, "collection_max_size": 10 * MIB}


@pytest.mark.parametrize(
    ("known", "limit", "aggregates"), [(True, 1_024, 4), (False, 1_024, 4), (True, 10_240, 2)]
)
def test_an_aggregate_is_as_large_as_a_record_of_the_stream_may_be(
    known: bool, limit: int, aggregates: int
) -> None:
    simulation = Simulation(ProducerConfig(**LARGE), throttle=False)
    simulation.recreate(ShardCount=1, MaxRecordSizeInKiB=limit)
    if not known:
        simulation.aws.faults.add(DENIED)
    simulation.warm()
    fill(simulation, 300, size=10_000)
    simulation.finish(delivered=True)
    assert simulation.pipeline.counters.kinesis_records_stored == aggregates


def test_an_aggregate_leaves_room_for_its_partition_key() -> None:
    simulation = Simulation(ProducerConfig(**LARGE), throttle=False, shards=1)
    simulation.warm()
    half = b"x" * (MIB // 2 - 1_000)
    pair = Aggregate(10 * MIB, 100)
    assert pair.try_append("k", None, half, hash_partition_key("k"))
    assert pair.try_append("k", None, half, hash_partition_key("k"))
    missing = MIB - 1 - pair.size  # to the limit of a record, with the one byte of the aggregate's key
    simulation.requests.clear()
    for spare in (0, 1):
        simulation.put("k", half)
        simulation.put_and_run("k", half + b"x" * (missing + spare))
    assert simulation.pipeline.counters.failed_calls == 0, "nothing was refused for its size"
    entries = [item for request in simulation.requests for item in request]
    assert [item["count"] for item in entries] == [2, 1, 1]
    assert entries[0]["size"] == MIB - 1
    simulation.check()


def test_without_a_map_a_hash_key_is_limited_as_its_shard_is() -> None:
    simulation = Simulation(
        ProducerConfig(aggregation_enabled=False, rate_limit=100), shards=4, throttle=False
    )
    simulation.aws.faults.add(Fault(kind="error", operation="ListShards", status=500))
    simulation.put("a", b"first")
    simulation.run(until=1.0)
    begin = simulation.clock.monotonic()
    fill(simulation, 3000, keys=1, size=10)
    last = simulation.put("other", b"not held back by the hot key")
    simulation.run(until=begin + 0.5)
    assert last.done()
    simulation.run(until=begin + 10)
    assert all(record.done() for record in simulation.records)
    spread = [at for at in simulation.sent_at if at > begin + 1.5]
    assert spread, "a full bucket of 1,000 went at once, then 1,000 a second"


# ---------------------------------------------------------------------- refused whole, for one record or for its size


@pytest.mark.parametrize("ordering", ["none", "per_shard"])
def test_an_aggregate_that_a_stream_takes_no_more_goes_in_parts(ordering: Any) -> None:
    config = ProducerConfig(ordering=ordering, rate_limit=10_000, **LARGE)
    simulation = Simulation(config, throttle=False, shards=1)
    simulation.recreate(ShardCount=1, MaxRecordSizeInKiB=10_240)
    simulation.warm()
    simulation.client.update_max_record_size(
        StreamARN=simulation.client.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"][
            "StreamARN"
        ],
        MaxRecordSizeInKiB=1_024,
    )
    simulation.clock.advance(60.0)  # the stream is updating for a while
    fill(simulation, 300, size=10_000)
    simulation.finish(delivered=True)
    assert simulation.pipeline.max_record_size == MIB, "it asked again"
    sent = len(simulation.requests)
    fill(simulation, 300, size=10_000, start=1_000)
    simulation.finish()
    assert len(simulation.requests) - sent <= 4, "and makes smaller ones from then on"


@pytest.mark.parametrize("ordering", ["none", "per_shard"])
def test_one_poisonous_user_record_does_not_take_its_aggregate_with_it(ordering: Any) -> None:
    simulation = Simulation(ProducerConfig(ordering=ordering), shards=1, latency=0.001)
    simulation.warm()
    simulation.refuse(lambda records: any(b"poison" in entry["Data"] for entry in records))
    fill(simulation, 50)
    bad = simulation.put("key-7", b"poison")
    fill(simulation, 50, start=50)
    simulation.finish()
    assert [record for record in simulation.records if record.exception() is not None] == [bad]
    assert len(simulation.requests) < 30


# ---------------------------------------------------------------------- requests in flight for each shard


def test_what_the_service_places_is_not_dropped_from_a_request_that_the_limit_makes_smaller() -> None:
    pipeline = make_pipeline(HALVES, max_inflight_requests_per_shard=1)
    put(pipeline, 1, 2)
    batch = send(pipeline, 11.0)
    pipeline.topology.doubt()
    load(pipeline, HALVES, 11.1, service_places=True)
    put(pipeline, 150, now=11.1)
    assert pipeline.queue.poll(11.1, 0) == [], "all connections are busy"
    load(pipeline, HALVES, 11.7)
    put(pipeline, 3, now=11.7)
    pipeline.queue.flush(-1, 11.7)
    # One half of the rejected aggregate is sent first. Meanwhile, its shard takes no other request.
    pipeline.responses.on_failure(
        batch, PermanentAwsError("bad", code="ValidationException", operation="PutRecords"), 11.8
    )
    sent = pipeline.queue.poll(11.8, 10)
    shards = [[entry.shard_id for entry in request.entries] for request in sent]
    assert shards == [["shardId-000000000001"], [None]]


def test_a_part_of_an_aggregate_does_not_occupy_a_shard_that_the_service_chooses() -> None:
    pipeline = make_pipeline(HALVES, max_inflight_requests_per_shard=1)
    put(pipeline, 1, 2)
    batch = send(pipeline, 11.0)
    pipeline.topology.doubt()
    load(pipeline, HALVES, 11.1, service_places=True)
    pipeline.responses.on_failure(
        batch, PermanentAwsError("bad", code="ValidationException", operation="PutRecords"), 11.2
    )
    parts = []
    while not parts or pipeline.pending.entries:
        (part,) = pipeline.queue.poll(11.3, 1)
        parts.append(part)
        pipeline.responses.on_response(part, landed("shardId-000000000002"), 11.4)
        assert len(parts) <= 2
    assert sum(policy.outstanding for policy in pipeline.queue.policies) == 0
    # The shard takes requests again when the stream no longer places records itself.
    load(pipeline, HALVES, 12.0)
    put(pipeline, 1, now=12.0)
    assert len(send(pipeline, 12.0).entries) == 1


# ---------------------------------------------------------------------- ordered mode


def test_records_of_one_instant_keep_their_order_when_a_divided_aggregate_is_grouped_anew() -> None:
    config = ProducerConfig(ordering="per_shard", aggregation_max_count=8)
    simulation = Simulation(config, shards=1, latency=0.001)
    simulation.warm()
    refusals = [True]
    simulation.refuse(lambda _records: bool(refusals) and refusals.pop())
    fill(
        simulation, 83, keys=1
    )  # as put_many does: all of them have one arrival, and the last aggregate has room
    while refusals:
        simulation.run(until=simulation.clock.monotonic() + 0.001)
    simulation.run(until=simulation.clock.monotonic() + 0.001)
    assert simulation.pipeline.counters.failed_calls == 1
    assert len(simulation.pipeline.pending.live) > 60, "the parts are younger than what waits behind them"
    simulation.pipeline.queue.forgive(6.0, simulation.clock.monotonic())
    simulation.finish(delivered=True)


def test_a_lane_stops_at_the_first_sign_that_its_shard_is_closed() -> None:
    config = ProducerConfig(ordering="per_shard", record_max_buffered_time=0.01)
    simulation = Simulation(config, shards=1, latency=0.001)
    simulation.put("warm", b"up")
    simulation.run(until=0.05)
    simulation.split()
    sign = simulation.put("key-1", b"alone, so it is stored wherever it lands")
    simulation.run(until=0.1)
    assert sign.result(0).shard_id != "shardId-000000000000"
    put_steadily(simulation, 0.1, 1.0)
    simulation.finish()
    # The map may be loaded again half a second after the first load. An aggregate that was sent before that would
    # have had to go again.
    assert simulation.pipeline.counters.wrong_shard_entries == 0


@pytest.mark.parametrize("event", ["reshard", "freeze", "interrupt"])
def test_lanes_do_not_wait_for_a_halved_request_that_was_grouped_again(event: str) -> None:
    pipeline = make_pipeline(HALVES, ordering="per_shard", record_ttl=60.0)

    def add(hash_key: int, now: float) -> PendingRecord:
        record = make_record(hash_key=hash_key, arrived=now)
        pipeline.queue.add(record, record.data, record.hash_key, 0, now)
        return record

    records = [add(1, 11.0), add(150, 11.0)]
    batch = send(pipeline, 11.0)
    assert len(batch.entries) == 2
    # Both shards are closed while the request is in flight: the lanes wait for its entries.
    load(pipeline, [shard(3, 0, 99), shard(4, 100, MAX_HASH_KEY)], 11.1)
    records += [add(1, 11.2), add(150, 11.2)]
    pipeline.queue.flush(0, 11.2)
    assert pipeline.queue.poll(11.2, 10) == []
    # The request is rejected because of one bad record and halved, but before the halves leave, everything is grouped again.
    pipeline.responses.on_failure(
        batch, PermanentAwsError("bad", code="ValidationException", operation="PutRecords"), 11.3
    )
    if event == "reshard":
        load(pipeline, [shard(5, 0, 99), shard(6, 100, MAX_HASH_KEY)], 11.4)
    elif event == "freeze":
        pipeline.queue.forgive(6.0, 11.4)
    else:
        pipeline.queue.rebuild(11.4)
    pipeline.queue.flush(0, 11.5)
    assert pipeline.queue.next_event(11.5, 10) == 11.5
    (again,) = pipeline.queue.poll(11.5, 10)
    assert sorted(record.order for entry in again.entries for record in entry.records) == [1, 2, 3, 4]
    assert sum(policy.outstanding for policy in pipeline.queue.policies) == 2, (
        "one entry of each lane is on its way"
    )
    assert all(not record.done() for record in records)


class Interrupts(HoldOff):
    """A dispatch policy that allows everything from a moment on, and is interrupted when the first entry is sent."""

    def __init__(self, begin: float) -> None:
        self._begin, self._due = begin, True

    def may_send(self, entry: Entry, now: float) -> float:
        return max(now, self._begin)

    def on_sent(self, entry: Entry, now: float) -> None:
        due, self._due = self._due, False
        if due:
            raise KeyboardInterrupt


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("begin", [pytest.param(11.0, id="passes"), pytest.param(11.1, id="released")])
@pytest.mark.parametrize("settings", [{"ordering": "per_shard"}, {"max_inflight_requests_per_shard": 1}])
def test_an_interrupt_while_policies_are_notified_leaves_the_lane_open(
    settings: dict[str, Any], begin: float, is_first: bool
) -> None:
    pipeline = make_pipeline(None, record_ttl=60.0, **settings)
    queue, interrupts = pipeline.queue, Interrupts(begin)
    queue.policies = (interrupts, *queue.policies) if is_first else (*queue.policies, interrupts)
    load(pipeline, WHOLE, 10.0)
    put(pipeline, 1)
    with pytest.raises(KeyboardInterrupt):
        queue.flush(-1, 11.0)
        queue.poll(11.2, 1)
    queue.rebuild(11.3)
    assert sum(policy.outstanding for policy in queue.policies) == 0
    batch = send(pipeline, 11.4)
    assert sum(len(entry.records) for entry in batch.entries) == 1


def test_when_everything_is_refused_not_every_record_is_tried_alone() -> None:
    simulation = Simulation(latency=0.001)
    simulation.warm()
    simulation.aws.faults.add(
        Fault(kind="error", operation="PutRecords", code="ValidationException", status=400)
    )
    fill(simulation, 2_000)
    simulation.finish()
    assert all(record.exception() is not None for record in simulation.records[1:])
    assert len(simulation.requests) < 600
