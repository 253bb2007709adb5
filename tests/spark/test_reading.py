from __future__ import annotations

import threading
from random import Random
from typing import Any

import pytest

from kinesis_sdk.common.errors import KinesisSdkError, PermanentAwsError
from kinesis_sdk.common.position import AfterSequence, AtTimestamp, Ended, TrimHorizon
from kinesis_sdk.common.service_clock import EstimatedServiceClock
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.errors import DataLossError, StalledError
from kinesis_sdk.spark.reading import ReadPolicy, ShardRange, read_range, read_ranges
from kinesis_sdk.spark.shardio import ShardIo
from kinesis_sdk.testing import Fault, VirtualClock
from tests import HANG

from .support import HALF, STREAM, World

SHARD = "shardId-000000000000"
POLICY = ReadPolicy(limit=10_000, interval=0.25, stall_timeout=60.0, fail_on_data_loss=True)


def io_of(world: World) -> ShardIo:
    return ShardIo(
        world.client,
        StreamId.parse(STREAM),
        clock=world.clock,
        sleep=world.clock.advance,
        rng=Random(1),
        retry_timeout=30.0,
    )


def numbers(world: World, shard_id: str = SHARD) -> list[str]:
    iterator = world.client.get_shard_iterator(
        StreamName=STREAM, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    return [r["SequenceNumber"] for r in world.client.get_records(ShardIterator=iterator)["Records"]]


def payloads(world: World, item: ShardRange, **changes: Any) -> list[bytes]:
    policy = ReadPolicy(**{**POLICY.__dict__, **changes})
    return [record.data for records in read_range(io_of(world), item, policy) for record in records]


def test_a_range_is_exclusive_at_its_start_and_inclusive_at_its_end() -> None:
    world = World()
    put = world.put(10)
    found = numbers(world)
    item = ShardRange(SHARD, AfterSequence(found[2]), AfterSequence(found[6]))
    for limit in (1, 2, 3, 10_000):
        assert payloads(world, item, limit=limit) == put[3:7]
    assert payloads(world, ShardRange(SHARD, TrimHorizon(), AfterSequence(found[0]))) == put[:1]


def test_an_iterator_that_expires_in_the_middle_goes_on_where_it_was() -> None:
    world = World()
    put = world.put(60)
    found = numbers(world)
    world.aws.faults.add(Fault(kind="expired_iterator", probability=0.4))
    assert (
        payloads(world, ShardRange(SHARD, AfterSequence(found[4]), AfterSequence(found[-1])), limit=3)
        == put[5:]
    )


def test_an_end_that_is_gone_is_a_loss_at_once_when_something_later_is_there() -> None:
    world = World()
    world.put(10)
    found = numbers(world)
    gone = AfterSequence(str(int(found[4]) + 1))
    with pytest.raises(DataLossError) as caught:
        payloads(world, ShardRange(SHARD, AfterSequence(found[2]), gone))
    assert caught.value.shard_id == SHARD
    assert (
        len(payloads(world, ShardRange(SHARD, AfterSequence(found[2]), gone), fail_on_data_loss=False)) == 2
    )


def test_an_end_that_does_not_come_is_waited_for_and_then_a_loss() -> None:
    world = World()
    world.put(3)
    found = numbers(world)
    before = world.clock.monotonic()
    with pytest.raises(DataLossError):
        payloads(world, ShardRange(SHARD, TrimHorizon(), AfterSequence(str(int(found[2]) + 1))), interval=0.0)
    assert 5 <= world.clock.monotonic() - before < 10


def test_an_end_behind_the_end_of_the_shard_is_a_loss() -> None:
    world = World()
    world.put(3)
    found = numbers(world)
    world.split(SHARD)
    with pytest.raises(DataLossError):
        payloads(world, ShardRange(SHARD, TrimHorizon(), AfterSequence(str(int(found[2]) + 1))))


def test_the_end_of_a_shard_that_stays_open_is_given_up() -> None:
    world = World()
    world.put(3)
    with pytest.raises(StalledError, match="returned no record for 6"):
        payloads(world, ShardRange(SHARD, TrimHorizon(), Ended()))


def test_calls_for_a_shard_keep_their_distance() -> None:
    world = World(throttle=True)
    put = world.put(40)
    found = numbers(world)
    world.clock.advance(2)
    before = world.clock.monotonic()
    assert payloads(world, ShardRange(SHARD, TrimHorizon(), AfterSequence(found[-1])), limit=4) == put
    assert 9 * 0.25 <= world.clock.monotonic() - before < 4
    assert world.aws.stats()["reads_throttled"] == 0


def run_ranges(world: World, items: list[ShardRange]) -> list[tuple[str, bytes]]:
    return [
        (item.shard_id, record.data)
        for item, records in read_ranges(lambda: io_of(world), items, POLICY)
        for record in records
    ]


def test_many_ranges_are_read_whole_and_each_in_order() -> None:
    world = World(20)
    expected: dict[str, list[bytes]] = {}
    for shard in world.open_shards():
        hash_key = int(shard["HashKeyRange"]["StartingHashKey"])
        expected[shard["ShardId"]] = world.put(30, hash_key=hash_key)
    items = [ShardRange(name, TrimHorizon(), AfterSequence(numbers(world, name)[-1])) for name in expected]
    got = run_ranges(world, items)
    for name, put in expected.items():
        assert [data for shard_id, data in got if shard_id == name] == put


def test_a_failure_of_one_range_is_the_readers_failure() -> None:
    world = World(2)
    world.put(3, hash_key=0)
    world.put(3, hash_key=HALF)
    world.aws.faults.add(
        Fault(kind="error", operation="GetRecords", shard_id=SHARD, code="AccessDeniedException", status=400)
    )
    items = [ShardRange(name, TrimHorizon(), Ended()) for name in (SHARD, "shardId-000000000001")]
    with pytest.raises(PermanentAwsError, match="AccessDenied"):
        run_ranges(world, items[:1])
    world.split("shardId-000000000001")
    with pytest.raises(KinesisSdkError):
        run_ranges(world, items)


def test_closing_the_reader_early_stops_its_threads() -> None:
    world = World(3)
    for shard in world.open_shards():
        world.put(5, hash_key=int(shard["HashKeyRange"]["StartingHashKey"]))
        world.split(shard["ShardId"])
    items = [ShardRange(f"shardId-{n:012d}", TrimHorizon(), Ended()) for n in range(3)]
    pages = read_ranges(lambda: io_of(world), items, POLICY)
    next(pages)
    pages.close()
    for thread in threading.enumerate():
        if thread.name.startswith("kinesis-read"):
            thread.join(HANG)
            assert not thread.is_alive()


def test_the_service_clock_uses_our_own_within_a_headers_second() -> None:
    clock = VirtualClock(1_700_000_000.0)
    service = EstimatedServiceClock(clock)
    assert service.millis() == 1_700_000_000_000

    def answer(second: int) -> dict[str, Any]:
        from email.utils import formatdate

        return {"HTTPHeaders": {"date": formatdate(second, usegmt=True)}}

    service.observe(answer(1_700_000_000), 1_700_000_000.2, 1_700_000_000.3)
    assert service.millis() == 1_700_000_000_000
    # The service is at least 4.9 s ahead.
    service.observe(answer(1_700_000_005), 1_700_000_000.0, 1_700_000_000.1)
    assert service.millis() == 1_700_000_004_900
    # And behind: a clock was set, what was known is void.
    service.observe(answer(1_699_999_990), 1_700_000_000.0, 1_700_000_000.1)
    assert service.millis() == 1_699_999_991_000
    service.observe({"HTTPHeaders": {"date": "nonsense"}}, 0, 0)
    service.observe(None, 0, 0)
    service.observe({}, 0, 0)
    assert service.millis() == 1_699_999_991_000


def test_a_start_by_time_holds_where_a_client_sends_whole_seconds_only() -> None:
    """botocore cut timestamps to seconds for many years: the records before the instant are left out here."""
    world = World()
    world.clock.advance(0.2)
    world.put(3)
    world.clock.advance(0.3)
    moment = AtTimestamp(round(world.clock.time() * 1000))
    put = world.put(3)
    found = numbers(world)

    class Cutting:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.aws.client("kinesis"), name)

        def get_shard_iterator(self, **request: Any) -> Any:
            request["Timestamp"] = request["Timestamp"].replace(microsecond=0)
            return world.aws.client("kinesis").get_shard_iterator(**request)

    io = io_of(world)
    io.client = Cutting()
    item = ShardRange(SHARD, moment, AfterSequence(found[-1]))
    assert [record.data for records in read_range(io, item, POLICY) for record in records] == put
