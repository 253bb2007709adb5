"""Records without a partition key: stored by streams that place records themselves, rejected by others, lost by none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.errors import InvalidRecordError, PermanentAwsError, RecordFailedError
from kinesis_sdk.producer import AsyncProducer, FileSpool, Producer, ProducerConfig, read_spool
from kinesis_sdk.producer.records.entry import Entry
from kinesis_sdk.producer.stream.collector import Batch
from kinesis_sdk.producer.stream.topology import Admission, StreamFacts, Topology
from kinesis_sdk.testing import FakeAws, Fault
from tests.producer.simulation import STREAM, Simulation
from tests.producer.stream.distribution import AUTO, BY_KEY, DENIED, simulate, switch
from tests.producer.stream.schedules import SCHEDULES
from tests.producer.support import LONG, failure_of, make_entry


def sent(simulation: Simulation) -> list[Entry]:
    return [item["entry"] for request in simulation.requests for item in request]


def code_of(record: Any) -> str:
    error = failure_of(record)
    assert error.partition_key is None
    return error.attempts[-1].code


# By stream


@pytest.mark.parametrize("default", ["UNSET", "AUTO"])
def test_a_stream_that_places_records_stores_them_without_a_key(default: Any) -> None:
    simulation = simulate(ProducerConfig(record_distribution_strategy_default=default), **AUTO)
    for number in range(20):
        simulation.put("" if number % 2 else "k", b"%d" % number)
    simulation.finish(delivered=True)
    found = {record.data: record.partition_key for record in simulation.stored()}
    assert found == {b"%d" % number: "" if number % 2 else "k" for number in range(20)}


def test_nothing_is_sent_without_a_key_before_that_is_known() -> None:
    """One load decides: no request is rejected on the way."""
    simulation = simulate(ProducerConfig(record_max_buffered_time=0.0))
    simulation.aws.faults.add(Fault(kind="error", operation="DescribeStreamSummary", count=3))
    records = [simulation.put("", b"no key"), simulation.put("k", b"key")]
    simulation.finish()
    assert code_of(records[0]) == "PartitionKeyRequired"
    assert isinstance(records[0].exception().__cause__, InvalidRecordError)
    assert records[1].exception() is None
    assert simulation.pipeline.counters.failed_calls == 0
    assert [entry.aggregate.partition_key for entry in sent(simulation)] == ["k"]


def test_they_wait_until_their_time_to_live_ends_if_it_stays_unknown() -> None:
    simulation = simulate(ProducerConfig(record_ttl=5.0), **AUTO)
    simulation.aws.faults.add(Fault(kind="error", operation="DescribeStreamSummary"))
    record = simulation.put_and_run("", b"x")
    assert code_of(record) == "Expired"
    assert 5.0 <= simulation.clock.monotonic() < 6.0


@pytest.mark.parametrize("default", ["UNSET", "AUTO", "USER_PARTITION_KEY"])
def test_without_the_permission_the_default_decides(default: Any) -> None:
    simulation = simulate(ProducerConfig(record_distribution_strategy_default=default), **AUTO)
    simulation.aws.faults.add(DENIED)
    record = simulation.put("", b"x")
    simulation.finish()
    if default == "AUTO":
        assert record.exception() is None
    else:
        assert code_of(record) == "PartitionKeyRequired"
        hint = {"UNSET": "kinesis:DescribeStreamSummary is missing", "USER_PARTITION_KEY": f"={default!r}"}
        assert hint[default] in str(record.exception())


def test_with_auto_as_default_nothing_is_aggregated_before_the_summary_is_read() -> None:
    simulation = simulate(
        ProducerConfig(record_distribution_strategy_default="AUTO", record_max_buffered_time=0.0)
    )
    for number in range(10):
        simulation.put("k", b"a%d" % number)
    simulation.run()
    assert [len(entry.records) for entry in sent(simulation)] == [1] * 10
    for number in range(10):
        simulation.at(simulation.clock.monotonic(), lambda n=number: simulation.put("k", b"b%d" % n) and None)
    simulation.finish()
    assert len(sent(simulation)) < 20, "it is known by now"
    assert not simulation.pipeline.topology.service_places


# Streams that change


def test_a_stream_that_begins_to_place_records_is_noticed_by_records_without_a_key() -> None:
    config = ProducerConfig(describe_stream_summary_interval=60.0)
    simulation = simulate(config, **BY_KEY)
    simulation.put_and_run("k", b"0")
    early = simulation.put("", b"1")
    simulation.run()
    assert code_of(early) == "PartitionKeyRequired"
    switch(simulation, "AUTO")
    simulation.run(until=simulation.clock.monotonic() + 61)
    late = simulation.put("", b"2")
    simulation.finish()
    assert late.exception() is None


def test_a_stream_that_stops_to_place_records_fails_those_without_a_key_and_no_other() -> None:
    simulation = simulate(**AUTO)
    simulation.put_and_run("k", b"warm up")
    switch(simulation, "USER_PARTITION_KEY")
    records = [simulation.put("k" if number % 3 else "", b"%d" % number) for number in range(600)]
    simulation.finish()
    for number, record in enumerate(records):
        if number % 3:
            assert record.exception() is None
        else:
            assert code_of(record) == "PartitionKeyRequired"
    assert simulation.pipeline.counters.failed_calls <= 4, "not one call for each bad record"


def test_a_wrong_default_costs_only_the_records_without_a_key() -> None:
    """Nothing says that the stream needs keys."""
    config = ProducerConfig(
        record_distribution_strategy_default="AUTO", record_max_buffered_time=2.0, max_connections=1
    )
    simulation = simulate(config, **BY_KEY)
    simulation.aws.faults.add(DENIED)
    simulation.put_and_run("k", b"warm up")
    records = [simulation.put("", b"%d" % number) for number in range(250)]
    while simulation.pipeline.topology.described:
        simulation.run(until=simulation.clock.monotonic() + 0.001)
    # Now they wait for a load, and will share a request with these.
    records += [simulation.put("k", b"%d" % number) for number in range(250, 400)]
    simulation.finish()
    for number, record in enumerate(records):
        if number >= 250:
            assert record.exception() is None
        else:
            assert code_of(record) == "ValidationException"


def test_a_rejected_request_is_divided_by_kind_before_it_is_halved() -> None:
    """After a hundred single rejections in a row, requests are no longer divided: then keyed records would fail, too."""
    queue = simulate().pipeline.queue
    entries = [make_entry() for _ in range(5)]
    for entry, key in zip(entries, ("", "k", "", "", "k"), strict=True):
        entry.aggregate._first_key = key
    queue.halve(Batch(entries))
    assert [batch.entries for batch in queue._isolated] == [
        [entries[1], entries[4]],
        [entries[0], entries[2], entries[3]],
    ]


def test_a_record_that_is_always_rejected_fails_alone() -> None:
    simulation = simulate(**AUTO)
    simulation.put_and_run("", b"warm up")
    simulation.refuse(lambda records: any(item["Data"] == b"bad" for item in records))
    records = [simulation.put("", data) for data in (b"0", b"bad", b"2")]
    simulation.run()
    assert [type(record.exception(timeout=0)) for record in records] == [
        type(None),
        RecordFailedError,
        type(None),
    ]
    assert code_of(records[1]) == "ValidationException"


# Topology


def test_what_the_topology_says() -> None:
    def topology(
        default: Any = "UNSET", facts: bool | str | None = "none yet", now: float = 10.0
    ) -> Topology:
        found = Topology(
            random.Random(1),
            ProducerConfig(
                record_distribution_strategy_default=default, describe_stream_summary_interval=60.0
            ),
        )
        if facts != "none yet":
            assert not isinstance(facts, str)
            found.begin_load(now)
            found.finish_load(StreamFacts(None, None, facts), now)
        return found

    assert topology().keyless(11.0) is Admission.WAIT
    assert topology("AUTO").keyless(11.0) is Admission.WAIT
    assert topology("USER_PARTITION_KEY").keyless(11.0) is Admission.REJECT
    for default in ("UNSET", "AUTO", "USER_PARTITION_KEY"):
        assert topology(default, facts=True).keyless(11.0) is Admission.SEND
        assert topology(default, facts=False).keyless(69.9) is Admission.REJECT
        assert topology(default, facts=False).keyless(70.0) is Admission.WAIT, "it may have changed"
    assert topology("AUTO", facts=None).keyless(11.0) is Admission.SEND
    assert topology("AUTO", facts=None).service_places
    assert topology("UNSET", facts=None).keyless(11.0) is Admission.REJECT
    doubted = topology(facts=True)
    doubted.doubt()
    assert doubted.keyless(11.0) is Admission.WAIT
    failed = topology("AUTO")
    failed.begin_load(10.0)
    failed.fail_load(10.1)
    assert failed.keyless(11.0) is Admission.SEND


def test_the_interval_of_the_summary_is_a_setting() -> None:
    topology = Topology(random.Random(1), ProducerConfig(describe_stream_summary_interval=7.0))
    topology.begin_load(10.0)
    topology.finish_load(StreamFacts(None, None, True), 10.1)
    assert topology.next_load == 17.0


# Random schedules


def play(seed: int) -> Simulation:
    rng = random.Random(seed)
    config = ProducerConfig(
        record_max_buffered_time=rng.choice([0.0, 0.1, 2.0]),
        record_ttl=rng.choice([0.5, 5.0, 30.0]),
        collection_max_count=rng.choice([2, 500]),
        max_connections=rng.choice([1, 24]),
        missing_stream="wait" if rng.random() < 0.5 else "fail",
        record_distribution_strategy_default=rng.choice(["UNSET", "AUTO", "USER_PARTITION_KEY"]),
        describe_stream_summary_interval=rng.choice([0.5, 300.0]),
    )
    simulation = simulate(config, seed=seed, **rng.choice([AUTO, BY_KEY]))
    for operation in rng.sample(["PutRecords", "ListShards", "DescribeStreamSummary"], rng.randrange(3)):
        simulation.aws.faults.add(Fault(kind="error", operation=operation, probability=0.3, count=20))
    if rng.random() < 0.2:
        simulation.aws.faults.add(DENIED)
    for number in range(rng.randrange(1, 80)):
        key = "" if rng.random() < 0.5 else f"k{rng.randrange(5)}"
        data = f"{number:04d}".encode()
        simulation.at(rng.uniform(0, 3), lambda k=key, d=data: simulation.put(k, d) and None)
    for _ in range(rng.randrange(3)):
        strategy = rng.choice(["AUTO", "USER_PARTITION_KEY"])
        simulation.at(rng.uniform(0, 3), lambda s=strategy: quietly(simulation, s))
    for _ in range(rng.randrange(2)):
        simulation.at(rng.uniform(0, 3), simulation.flush)
    simulation.run()
    return simulation


def quietly(simulation: Simulation, strategy: str) -> None:
    """Switch the stream past the faults."""
    operations = simulation.aws.kinesis.operations
    summary: Any = operations["DescribeStreamSummary"]({"StreamName": STREAM})
    arn = summary["StreamDescriptionSummary"]["StreamARN"]
    operations["UpdateStreamRecordDistributionStrategy"](
        {"StreamARN": arn, "RecordDistributionStrategy": strategy}
    )


@settings(max_examples=SCHEDULES)
@given(seed=st.integers(0, 2**63))
def test_every_schedule_with_records_without_a_key_ends_well(seed: int) -> None:
    simulation = play(seed)
    simulation.check()
    for entry in sent(simulation):
        if not entry.aggregate.partition_key:
            assert len(entry.records) <= 1, "never aggregated"


# Every way to put


@pytest.fixture
def aws() -> FakeAws:
    account = FakeAws(throttle=False)
    client = account.client("kinesis")
    client.create_stream(StreamName="auto", **AUTO)
    client.create_stream(StreamName="by-key", ShardCount=1)
    return account


@pytest.fixture
def make(aws: FakeAws) -> Iterator[Callable[..., Producer]]:
    made: list[Producer] = []

    def build(**arguments: Any) -> Producer:
        config = ProducerConfig(record_max_buffered_time=0.005)
        made.append(Producer(config, client=aws.client("kinesis"), **arguments))
        return made[-1]

    yield build
    for producer in made:
        producer.close(LONG)


def test_put_try_put_put_many_and_send(make: Callable[..., Producer], aws: FakeAws) -> None:
    producer = make()
    futures = [producer.put("auto", None, b"put"), producer.try_put("auto", None, b"try_put")]
    futures += producer.put_many("auto", [(None, b"many"), ("k", b"keyed"), (None, bytearray(b"array"))])
    producer.send("auto", None, b"send")
    assert producer.flush(LONG) == 0
    assert all(future is not None and future.result(0).shard_id for future in futures)
    assert futures[0] is not None
    assert futures[0].partition_key == ""
    stats = producer.stats()
    assert (stats.user_records_stored, stats.kinesis_records_stored) == (6, 6)


def test_put_rejects_them_once_the_stream_is_known(make: Callable[..., Producer]) -> None:
    producer = make()
    first = producer.put("by-key", None, b"x")
    assert isinstance(first.exception(LONG), RecordFailedError)
    with pytest.raises(InvalidRecordError, match=r"^partition_key: "):
        producer.put("by-key", None, b"x")
    assert producer.put("by-key", "k", b"x").result(LONG)


def test_ordered_mode_needs_keys(aws: FakeAws) -> None:
    with (
        Producer(ProducerConfig(ordering="per_shard"), client=aws.client("kinesis")) as producer,
        pytest.raises(InvalidRecordError, match="ordering='per_shard'"),
    ):
        producer.put("auto", None, b"x")


def test_the_asynchronous_producer(aws: FakeAws) -> None:
    async def main() -> list[str]:
        async with AsyncProducer(client=aws.client("kinesis")) as producer:
            stored = [await producer.put_and_wait("auto", None, b"x")]
            stored += [await each for each in await producer.put_many("auto", [(None, b"y"), (None, b"z")])]
            await producer.send("auto", None, b"send")
            assert await producer.flush(LONG) == 0
            return [result.shard_id for result in stored]

    assert len(asyncio.run(main())) == 3


def test_a_spool_keeps_them_without_a_key(
    make: Callable[..., Producer], aws: FakeAws, tmp_path: Path
) -> None:
    path = tmp_path / "unsent.jsonl"
    producer = make(on_record_failed=FileSpool(path))
    assert isinstance(producer.put("by-key", None, b"x").exception(LONG), RecordFailedError)
    producer.flush(LONG)
    (spooled,) = read_spool(path)
    assert (spooled.partition_key, spooled.data) == (None, b"x")
    again = producer.put("auto", spooled.partition_key, spooled.data, spooled.explicit_hash_key)
    assert again.result(LONG)


def test_a_denied_put_is_still_a_denied_put(make: Callable[..., Producer], aws: FakeAws) -> None:
    aws.faults.add(Fault(kind="error", operation="PutRecords", code="AccessDeniedException", status=400))
    error = make().put("auto", None, b"x").exception(LONG)
    assert isinstance(error, RecordFailedError)
    assert isinstance(error.__cause__, PermanentAwsError)
