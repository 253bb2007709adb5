"""The pipeline's rules, one at a time, in virtual time."""

from __future__ import annotations

import pytest

from kinesis_sdk.common.errors import RecordFailedError, ResourceNotFoundError, ThrottledError
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.testing import Fault
from tests.producer.simulation import STREAM, Simulation


def fill(simulation: Simulation, count: int, *, keys: int = 50, size: int = 100, start: int = 0) -> None:
    for index in range(start, start + count):
        simulation.put(f"key-{index % keys}", f"{index:08d}".encode().ljust(size, b"."))


def test_records_are_aggregated_per_shard_and_acknowledged_in_place() -> None:
    simulation = Simulation(shards=4)
    simulation.run(until=1.0)
    fill(simulation, 1000)
    simulation.run()
    simulation.check()
    assert all(record.exception() is None for record in simulation.records)
    # 1,000 x 100 bytes on four shards: one aggregate each, one request.
    assert simulation.pipeline.counters.kinesis_records_stored <= 8
    assert len(simulation.stored()) == 1000


def test_a_record_leaves_at_its_deadline_plus_the_collection_extension() -> None:
    simulation = Simulation(latency=0.0)
    simulation.put("a", b"first")
    simulation.run()  # the first record also loads the map
    simulation.sent_at.clear()
    put_at = simulation.clock.monotonic()
    simulation.put("a", b"lonely")
    simulation.run()
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
    simulation.run()
    simulation.check()
    assert simulation.pipeline.counters.kinesis_records_stored == 2


def test_throttled_entries_are_retried_with_halved_deadlines() -> None:
    simulation = Simulation(latency=0.001)
    simulation.put("warm", b"up")
    simulation.run()
    simulation.aws.faults.add(Fault(kind="partial", operation="PutRecords", count=2))
    put_at = simulation.clock.monotonic()
    record = simulation.put("a", b"unlucky")
    simulation.run()
    attempts = record.result().attempts
    assert [a.success for a in attempts] == [False, False, True]
    assert attempts[0].code == "ProvisionedThroughputExceededException"
    # deadline 0.1 + extension 0.02, then twice half of it with its extension
    assert simulation.clock.monotonic() - put_at == pytest.approx(0.12 + 2 * (0.05 + 0.02), abs=0.01)
    assert attempts[1].delay == pytest.approx(0.07, abs=0.002)


def test_fail_if_throttled_fails_at_once_with_the_cause() -> None:
    simulation = Simulation(ProducerConfig(fail_if_throttled=True))
    simulation.aws.faults.add(Fault(kind="partial", operation="PutRecords"))
    record = simulation.put("a", b"unlucky")
    simulation.run()
    error = record.exception()
    assert isinstance(error, RecordFailedError)
    assert isinstance(error.__cause__, ThrottledError)
    assert len(error.attempts) == 1
    simulation.check()


def test_expiry_carries_the_real_cause_and_all_attempts() -> None:
    simulation = Simulation(ProducerConfig(record_ttl=2.0))
    simulation.aws.faults.add(Fault(kind="partial", operation="PutRecords", code="InternalFailure"))
    record = simulation.put("customer-1", b"unlucky")
    simulation.run()
    error = record.exception()
    assert isinstance(error, RecordFailedError)
    assert error.stream == STREAM
    assert error.partition_key == "customer-1"
    assert "InternalFailure" in str(error)
    assert "time-to-live" in str(error)
    assert error.attempts[-1].code == "Expired"
    assert {a.code for a in error.attempts[:-1]} == {"InternalFailure"}
    assert 2.0 <= simulation.clock.monotonic() < 2.5
    simulation.check()


def test_a_missing_stream_fails_at_once_not_after_the_time_to_live() -> None:
    simulation = Simulation()
    simulation.client.delete_stream(StreamName=STREAM)
    record = simulation.put("a", b"lost?")
    simulation.run()
    error = record.exception()
    assert isinstance(error, RecordFailedError)
    assert isinstance(error.__cause__, ResourceNotFoundError)
    assert simulation.clock.monotonic() < 1.0


def test_an_endpoint_that_nobody_listens_on_is_reported_within_a_second_or_two() -> None:
    simulation = Simulation()
    simulation.down = True
    record = simulation.put("a", b"hello?")
    simulation.run()
    error = record.exception()
    assert isinstance(error, RecordFailedError)
    assert "nobody listens" in str(error)
    assert simulation.clock.monotonic() < 2.0


def test_an_endpoint_that_goes_away_later_is_waited_for() -> None:
    simulation = Simulation()
    simulation.put("a", b"first")
    simulation.run()
    simulation.down = True
    record = simulation.put("a", b"second")
    back = simulation.clock.monotonic() + 10
    simulation.at(back, lambda: setattr(simulation, "down", False))
    simulation.run()
    assert record.exception() is None
    assert len(record.result().attempts) > 2
    simulation.check()


def test_a_timeout_after_storing_duplicates_but_never_loses() -> None:
    simulation = Simulation()
    simulation.aws.faults.add(Fault(kind="timeout_after_storing", operation="PutRecords", count=2))
    fill(simulation, 100)
    simulation.run()
    simulation.check()
    assert all(record.exception() is None for record in simulation.records)
    assert len(simulation.stored()) > 100


def test_aggregates_that_straddle_a_split_go_again_whole() -> None:
    simulation = Simulation(shards=1, latency=0.01)
    fill(simulation, 10)
    simulation.run()
    fill(simulation, 500, start=10)
    # The split comes while the aggregates are open, grouped by the old map.
    simulation.at(
        simulation.clock.monotonic() + 0.05,
        lambda: simulation.client.split_shard(
            StreamName=STREAM, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**127)
        ),
    )
    simulation.run()
    simulation.check()
    assert all(record.exception() is None for record in simulation.records)
    assert simulation.pipeline.counters.wrong_shard_entries >= 1
    fill(simulation, 100, start=600)
    wrong = simulation.pipeline.counters.wrong_shard_entries
    simulation.run()
    simulation.check()
    assert simulation.pipeline.counters.wrong_shard_entries == wrong, "the map was refreshed"


def test_a_single_record_is_stored_wherever_it_lands() -> None:
    simulation = Simulation(ProducerConfig(aggregation_enabled=False), shards=1)
    simulation.put("a", b"first")
    simulation.run()
    simulation.client.split_shard(
        StreamName=STREAM, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**127)
    )
    record = simulation.put("a", b"second")
    simulation.run()
    assert len(record.result().attempts) == 1
    assert len(simulation.stored()) == 2


def test_one_poisonous_entry_does_not_take_the_others_with_it() -> None:
    # The stream takes 1 MiB, the producer was told 10 MiB and could not ask.
    simulation = Simulation(
        ProducerConfig(max_user_record_size=10 * 1024 * 1024, aggregation_max_size=64), shards=2
    )
    simulation.aws.faults.add(
        Fault(kind="error", operation="DescribeStreamSummary", code="AccessDeniedException", status=400)
    )
    fill(simulation, 20)
    giant = simulation.put("giant", b"x" * (2 * 1024 * 1024))
    simulation.run()
    simulation.check()
    assert isinstance(giant.exception(), RecordFailedError)
    assert all(record.exception() is None for record in simulation.records if record is not giant)


def test_rate_limit_holds_a_hot_shard_back() -> None:
    simulation = Simulation(ProducerConfig(aggregation_enabled=False, rate_limit=100), shards=1)
    simulation.put("a", b"first")
    simulation.run()
    begin = simulation.clock.monotonic()
    fill(simulation, 5000, size=10)
    simulation.run()
    # a full bucket of 1,000, then 1,000 a second
    assert simulation.clock.monotonic() - begin == pytest.approx(4.0, abs=0.3)
    simulation.check()


def test_a_record_that_waits_too_long_for_its_shard_expires_there() -> None:
    simulation = Simulation(
        ProducerConfig(aggregation_enabled=False, rate_limit=100, record_ttl=1.5), shards=1
    )
    simulation.put("a", b"first")
    simulation.run()
    fill(simulation, 5000, size=10)
    simulation.run()
    simulation.check()
    failed = [record for record in simulation.records if record.exception() is not None]
    assert 2000 < len(failed) < 3500
    assert "rate limit" in str(failed[0].exception())


def test_a_short_answer_is_a_failed_attempt_not_a_misattributed_one() -> None:
    simulation = Simulation(latency=0.0)
    simulation.put("a", b"first")
    simulation.run()
    real = simulation.client.put_records
    calls = []

    def short(**kwargs: object) -> dict[str, object]:
        answer = real(**kwargs)
        calls.append(1)
        if len(calls) == 1:
            answer["Records"] = answer["Records"][:-1]
        return answer

    simulation.client.put_records = short
    record = simulation.put("a", b"second")
    simulation.run()
    assert [a.success for a in record.result().attempts] == [False, True]
