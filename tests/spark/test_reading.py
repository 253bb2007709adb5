from __future__ import annotations

import threading
from collections.abc import Callable, Container
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kinesis_sdk.common.errors import PermanentAwsError, ProtocolError
from kinesis_sdk.common.position import AfterSequence, AtSequence, AtTimestamp, Ended, TrimHorizon
from kinesis_sdk.common.service_clock import EstimatedServiceClock
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.errors import DataLossError, StalledError
from kinesis_sdk.spark.reading import ReadPolicy, ShardRange, read_range, read_ranges
from kinesis_sdk.spark.shardio import ShardIo
from kinesis_sdk.testing import Fault, VirtualClock
from tests import HANG

from .support import FIRST, HALF, SECOND, STREAM, Around, Misordering, World, exchange

ORDERS = StreamId.parse(STREAM)
POLICY = ReadPolicy(limit=10_000, interval=0.25, stall_timeout=60.0, fail_on_data_loss=True)


def io_of(world: World, stream: StreamId = ORDERS, client: Any = None) -> ShardIo:
    return ShardIo(
        client or world.client,
        stream,
        clock=world.clock,
        sleep=world.clock.advance,
        rng=Random(1),
        retry_timeout=30.0,
    )


def payloads(world: World, item: ShardRange, **changes: Any) -> list[bytes]:
    policy = ReadPolicy(**{**POLICY.__dict__, **changes})
    return [record.data for records in read_range(io_of(world), item, policy) for record in records]


def test_a_range_is_exclusive_at_its_start_and_inclusive_at_its_end() -> None:
    world = World()
    put = world.put(10)
    found = world.numbers()
    item = ShardRange(ORDERS, FIRST, AfterSequence(found[2]), AfterSequence(found[6]))
    for limit in (1, 2, 3, 10_000):
        assert payloads(world, item, limit=limit) == put[3:7]
    assert payloads(world, ShardRange(ORDERS, FIRST, TrimHorizon(), AfterSequence(found[0]))) == put[:1]


def test_a_shard_that_has_not_ended_yet_is_read_at_most_five_times_a_second() -> None:
    # The listing said that it was closed, before its readers may see that. An interval of 0 must not mean a thousand reads.
    world = World()
    put = world.put(3)
    begun = world.clock.monotonic()
    reads: list[float] = []
    io = io_of(world)
    ordinary = io.sleep

    def sleep(seconds: float) -> None:
        ordinary(seconds)
        reads.append(world.clock.monotonic() - begun)
        if len(reads) == 10:
            world.split(FIRST)

    io.sleep = sleep
    world.aws.faults.add(Fault(kind="error", operation="GetRecords", code="TooMany", status=400, after=50))
    policy = ReadPolicy(limit=10_000, interval=0.0, stall_timeout=60.0, fail_on_data_loss=True)
    item = ShardRange(ORDERS, FIRST, TrimHorizon(), Ended())
    assert [record.data for records in read_range(io, item, policy) for record in records] == put
    assert reads[9] == pytest.approx(2.0)


def test_an_exclusive_end_stops_before_a_record_that_is_there() -> None:
    world = World()
    put = world.put(10)
    found = world.numbers()
    for last in range(10):
        for limit in (1, 2, 3, 10_000):
            item = ShardRange(ORDERS, FIRST, TrimHorizon(), AtSequence(found[last]))
            assert payloads(world, item, limit=limit) == put[:last]
            for first in range(last + 1):
                item = ShardRange(ORDERS, FIRST, AtSequence(found[first]), AtSequence(found[last]))
                assert payloads(world, item, limit=limit) == put[first:last]
                item = ShardRange(ORDERS, FIRST, AtSequence(found[first]), AfterSequence(found[last]))
                assert payloads(world, item, limit=limit) == put[first : last + 1]


def test_records_before_a_time_are_dropped_over_several_pages_and_only_until_one_arrived_then() -> None:
    world = World()
    world.put(5)
    world.clock.advance(10)
    moment = AtTimestamp(round(world.clock.time() * 1000))
    put = world.put(1)
    world.aws.faults.add(Fault(kind="early_arrival", seconds=20, count=1))
    put += world.put(2)
    cursor = io_of(world).cursor(FIRST, moment, via=TrimHorizon())
    pages = [cursor.read(2) for _ in range(4)]
    assert [page.dropped for page in pages] == [2, 2, 1, 0]
    assert [record.data for page in pages for record in page.records] == put


def test_a_page_without_a_record_before_an_exclusive_end_is_not_yielded() -> None:
    world = World()
    world.put(3)
    found = world.numbers()
    item = ShardRange(ORDERS, FIRST, AfterSequence(found[0]), AtSequence(found[1]))
    assert list(read_range(io_of(world), item, POLICY)) == []


@pytest.mark.parametrize("limit", [1, 2, 10_000])
def test_an_exclusive_end_that_is_gone_is_a_loss_at_once_when_something_later_is_there(limit: int) -> None:
    """Either within a page, or between two pages."""
    world = World()
    put = world.put(10)
    found = world.numbers()
    gone = AtSequence(str(int(found[4]) + 1))
    item = ShardRange(ORDERS, FIRST, AfterSequence(found[2]), gone)
    with pytest.raises(DataLossError, match=str(int(found[4]) + 1)):
        payloads(world, item, limit=limit)
    assert payloads(world, item, limit=limit, fail_on_data_loss=False) == put[3:5]


def test_an_exclusive_end_that_was_deleted_with_all_before_it_is_a_loss() -> None:
    """It is the first record that the shard still had; a start at the same record has no iterator that returns it."""
    world = World()
    world.put(3)
    found = world.numbers()
    world.clock.advance(25 * 3600)
    put = world.put(2)
    item = ShardRange(ORDERS, FIRST, AfterSequence(found[0]), AtSequence(found[2]), via=TrimHorizon())
    with pytest.raises(DataLossError):
        payloads(world, item)
    assert payloads(world, item, fail_on_data_loss=False) == []
    item = ShardRange(
        ORDERS, FIRST, AtSequence(found[0]), AfterSequence(world.numbers()[-1]), via=TrimHorizon()
    )
    assert payloads(world, item) == put


@pytest.mark.parametrize("end", [AfterSequence, AtSequence])
def test_an_end_that_does_not_come_is_waited_for_and_then_a_loss(end: Any) -> None:
    world = World()
    world.put(3)
    item = ShardRange(ORDERS, FIRST, TrimHorizon(), end(str(int(world.numbers()[2]) + 1)))
    before = world.clock.monotonic()
    with pytest.raises(DataLossError):
        payloads(world, item, interval=0.0)
    assert 5 <= world.clock.monotonic() - before < 10
    world.split(FIRST)
    with pytest.raises(DataLossError):
        payloads(world, item)


def test_a_start_at_a_record_that_is_opened_by_time_leaves_out_what_is_before_it() -> None:
    world = World()
    put = world.put(10)
    found = world.numbers()
    for limit in (1, 3, 10_000):
        for via in (TrimHorizon(), AtTimestamp(0)):
            item = ShardRange(ORDERS, FIRST, AtSequence(found[4]), AtSequence(found[8]), via=via)
            assert payloads(world, item, limit=limit) == put[4:8]
            item = ShardRange(ORDERS, FIRST, AfterSequence(found[4]), AtSequence(found[8]), via=via)
            assert payloads(world, item, limit=limit) == put[5:8]


def test_a_record_that_arrived_late_does_not_belong_to_a_range_that_ends_before_a_time() -> None:
    world = World()
    put = world.put(3)
    world.clock.advance(1)
    moment = round(world.clock.time() * 1000)
    world.put(3)
    found = world.numbers()
    item = ShardRange(ORDERS, FIRST, TrimHorizon(), AtSequence(found[5]), before=moment)
    assert payloads(world, item) == put


def test_an_iterator_that_expires_in_the_middle_goes_on_where_it_was() -> None:
    world = World()
    put = world.put(60)
    found = world.numbers()
    world.aws.faults.add(Fault(kind="expired_iterator", probability=0.4))
    assert (
        payloads(world, ShardRange(ORDERS, FIRST, AfterSequence(found[4]), AfterSequence(found[-1])), limit=3)
        == put[5:]
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(exchange, id="a record before an earlier one"),
        pytest.param(lambda _, records: [*records, records[-1]], id="a record twice"),
        pytest.param(lambda before, _: before, id="the page before again"),
    ],
)
def test_a_page_out_of_order_is_read_again_and_gives_neither_rows_nor_a_loss(change: Any) -> None:
    world = World()
    put = world.put(9)
    item = ShardRange(ORDERS, FIRST, TrimHorizon(), AfterSequence(world.numbers()[-2]))

    def read_with(pages: Container[int]) -> list[bytes]:
        io = io_of(world, client=Misordering(world.client, change, pages))
        policy = replace(POLICY, limit=3)
        return [record.data for records in read_range(io, item, policy) for record in records]

    assert read_with([2]) == put[:8]
    with pytest.raises(ProtocolError, match=rf"\d follows \d+ in shard {FIRST}"):
        read_with(range(2, 99))


def test_an_end_that_is_gone_is_a_loss_at_once_when_something_later_is_there() -> None:
    world = World()
    world.put(10)
    found = world.numbers()
    gone = AfterSequence(str(int(found[4]) + 1))
    with pytest.raises(DataLossError) as caught:
        payloads(world, ShardRange(ORDERS, FIRST, AfterSequence(found[2]), gone))
    assert caught.value.shard_id == FIRST
    assert (
        len(
            payloads(world, ShardRange(ORDERS, FIRST, AfterSequence(found[2]), gone), fail_on_data_loss=False)
        )
        == 2
    )


def test_the_end_of_a_shard_that_stays_open_is_given_up() -> None:
    world = World()
    world.put(3)
    with pytest.raises(StalledError):
        payloads(world, ShardRange(ORDERS, FIRST, TrimHorizon(), Ended()))


def test_calls_for_a_shard_keep_their_distance() -> None:
    world = World(throttle=True)
    put = world.put(40)
    found = world.numbers()
    world.clock.advance(2)
    before = world.clock.monotonic()
    assert payloads(world, ShardRange(ORDERS, FIRST, TrimHorizon(), AfterSequence(found[-1])), limit=4) == put
    assert 9 * 0.25 <= world.clock.monotonic() - before < 4
    assert world.aws.stats()["reads_throttled"] == 0


class Recorded(Around):
    """A client that notes which shard each call is for.

    Args:
        world: The account.
        events: Gets ``("call", shard id)`` for each GetShardIterator.
        before_call: Called with the shard id before each GetShardIterator.
    """

    def __init__(
        self,
        world: World,
        events: list[tuple[str, str]],
        before_call: Callable[[str], object] = lambda shard_id: None,
    ) -> None:
        super().__init__(world.client)
        self._events = events
        self._before_call = before_call

    def get_shard_iterator(self, **request: Any) -> Any:
        self._before_call(request["ShardId"])
        self._events.append(("call", request["ShardId"]))
        return self.client.get_shard_iterator(**request)


def family(world: World, shard_id: str) -> list[ShardRange]:
    """Split a shard with records, put some into its children, close these too, and return the ranges, children first."""
    shard = next(shard for shard in world.open_shards() if shard["ShardId"] == shard_id)
    low = int(shard["HashKeyRange"]["StartingHashKey"])
    high = int(shard["HashKeyRange"]["EndingHashKey"])
    world.put(4, hash_key=low)
    old = {shard["ShardId"] for shard in world.open_shards()}
    world.split(shard_id)
    children = sorted({shard["ShardId"] for shard in world.open_shards()} - old)
    assert len(children) == 2
    world.put(3, hash_key=low)
    world.put(3, hash_key=high)
    for child in children:
        world.split(child)
    return [
        *(ShardRange(ORDERS, child, TrimHorizon(), Ended(), parents=(shard_id,)) for child in children),
        ShardRange(ORDERS, shard_id, TrimHorizon(), Ended()),
    ]


def check_order(events: list[tuple[str, str]], items: list[ShardRange]) -> None:
    """No call is made for a child before the last page of each parent is consumed."""
    for item in items:
        first_call = events.index(("call", item.shard_id))
        for parent in item.parents:
            last_page = max(n for n, event in enumerate(events) if event == ("page", parent))
            assert last_page < first_call


def run_recorded(
    world: World, items: list[ShardRange], events: list[tuple[str, str]], **changes: Any
) -> dict[str, list[bytes]]:
    client = Recorded(world, events, **changes)
    policy = ReadPolicy(limit=2, interval=0.0, stall_timeout=60.0, fail_on_data_loss=True)
    rows: dict[str, list[bytes]] = {}
    for item, records in read_ranges(lambda stream: io_of(world, stream, client), items, policy):
        rows.setdefault(item.shard_id, []).extend(record.data for record in records)
        events.append(("page", item.shard_id))
    return rows


def test_children_are_read_after_their_parents_were_consumed() -> None:
    """There are more ranges than threads, and the children are first in line."""
    world = World(12)
    families = [family(world, shard["ShardId"]) for shard in world.open_shards()]
    items = [item for group in families for item in group if item.parents]
    items += [item for group in families for item in group if not item.parents]
    assert len(items) == 36
    events: list[tuple[str, str]] = []
    rows = run_recorded(world, items, events)
    check_order(events, items)
    numbers = [[int(data[2:]) for data in put] for put in rows.values()]
    assert all(each == sorted(each) for each in numbers)
    assert sorted(number for each in numbers for number in each) == list(range(world.number))


def test_a_merged_shard_is_read_after_both_parents_and_a_grandchild_after_all() -> None:
    world = World(2)
    world.put(5, hash_key=0)
    world.put(1, hash_key=HALF)
    world.merge(FIRST, SECOND)
    world.put(4)
    third = "shardId-000000000002"
    world.split(third)
    world.put(2, hash_key=0)
    last = AtSequence(world.numbers("shardId-000000000003")[1])
    items = [
        ShardRange(ORDERS, "shardId-000000000003", TrimHorizon(), last, parents=(third,)),
        ShardRange(ORDERS, third, TrimHorizon(), Ended(), parents=(FIRST, SECOND)),
        ShardRange(ORDERS, SECOND, TrimHorizon(), Ended()),
        ShardRange(ORDERS, FIRST, TrimHorizon(), Ended()),
    ]
    events: list[tuple[str, str]] = []
    rows = run_recorded(world, items, events)
    check_order(events, items)
    assert [len(rows[item.shard_id]) for item in items] == [1, 4, 1, 5]


def test_a_range_waits_for_its_own_parents_only() -> None:
    """The parent's first call is held back until another range's page was consumed."""
    world = World(2)
    world.put(3, hash_key=HALF)
    items = [
        *family(world, FIRST),
        ShardRange(ORDERS, SECOND, TrimHorizon(), AfterSequence(world.numbers(SECOND)[-1])),
    ]
    events: list[tuple[str, str]] = []
    consumed = threading.Event()

    def hold(shard_id: str) -> None:
        if shard_id == FIRST:
            assert consumed.wait(HANG)

    client = Recorded(world, events, hold)
    for item, _ in read_ranges(lambda stream: io_of(world, stream, client), items, POLICY):
        events.append(("page", item.shard_id))
        if item.shard_id == SECOND:
            consumed.set()
    assert events.index(("page", SECOND)) < events.index(("call", FIRST))
    check_order(events, items)


def test_the_children_of_a_parent_that_failed_are_not_read() -> None:
    world = World()
    items = family(world, FIRST)
    world.aws.faults.add(
        Fault(kind="error", operation="GetRecords", shard_id=FIRST, code="AccessDeniedException", status=400)
    )
    events: list[tuple[str, str]] = []
    with pytest.raises(PermanentAwsError, match="AccessDenied"):
        run_recorded(world, items, events)
    join_readers()
    assert events == [("call", FIRST)]


def test_closing_the_reader_in_the_middle_of_a_parent_reads_no_child() -> None:
    world = World()
    items = family(world, FIRST)
    events: list[tuple[str, str]] = []
    client = Recorded(world, events)
    pages = read_ranges(lambda stream: io_of(world, stream, client), items, POLICY)
    next(pages)
    pages.close()
    join_readers()
    assert events == [("call", FIRST)]


def join_readers() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("kinesis-read"):
            thread.join(HANG)
            assert not thread.is_alive()


def test_shards_of_several_streams_have_calls_of_their_own_stream() -> None:
    world = World()
    put = {STREAM: world.put(3)}
    world.client.create_stream(StreamName="flights", ShardCount=1)
    world.clock.advance(5)
    for number in range(4):
        world.client.put_record(StreamName="flights", Data=b"f%d" % number, PartitionKey="k")
    put["flights"] = [b"f%d" % number for number in range(4)]
    streams = [StreamId.parse(name) for name in put]
    made: list[StreamId] = []

    def make_io(stream: StreamId) -> ShardIo:
        made.append(stream)
        return io_of(world, stream)

    ends = [AfterSequence(world.records(stream=stream.name)[-1]["SequenceNumber"]) for stream in streams]
    items = [ShardRange(stream, FIRST, TrimHorizon(), end) for stream, end in zip(streams, ends, strict=True)]
    got: dict[str, list[bytes]] = {}
    for item, records in read_ranges(make_io, items, POLICY):
        got.setdefault(item.stream.name, []).extend(record.data for record in records)
    assert got == put
    assert sorted(made, key=str) == sorted(streams, key=str)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([("a", ("b",))], "shard a: its parents .b. have no range"),
        ([("a", ("b",)), ("b", ("a",))], "parents of each other: [ab], [ab]"),
        ([("a", ()), ("a", ())], "shard a has two ranges"),
    ],
)
def test_ranges_that_could_never_start_are_an_error_and_not_a_wait(
    items: list[tuple[str, tuple[str, ...]]], message: str
) -> None:
    ranges = [ShardRange(ORDERS, name, TrimHorizon(), Ended(), parents=parents) for name, parents in items]
    with pytest.raises(ValueError, match=message):
        list(read_ranges(lambda stream: io_of(World(), stream), ranges, POLICY))


def test_a_task_without_ranges_reads_nothing() -> None:
    assert list(read_ranges(lambda stream: io_of(World(), stream), [], POLICY)) == []


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
    found = world.numbers()

    class Cutting(Around):
        def get_shard_iterator(self, **request: Any) -> Any:
            request["Timestamp"] = request["Timestamp"].replace(microsecond=0)
            return self.client.get_shard_iterator(**request)

    io = io_of(world, client=Cutting(world.client))
    item = ShardRange(ORDERS, FIRST, moment, AfterSequence(found[-1]))
    assert [record.data for records in read_range(io, item, POLICY) for record in records] == put


def test_a_page_that_the_caller_keeps_for_long_is_no_stall() -> None:
    """Spark may take minutes for a page. The next read may find nothing at first; the shard has not been silent."""
    world = World()
    put = world.put(10)
    last = world.numbers()[-1]
    item = ShardRange(ORDERS, FIRST, TrimHorizon(), AfterSequence(last))
    policy = ReadPolicy(**{**POLICY.__dict__, "limit": 5})
    found: list[bytes] = []
    for records in read_range(io_of(world), item, policy):
        found += [record.data for record in records]
        if len(found) == 5:
            world.clock.advance(10 * POLICY.stall_timeout)
            world.aws.faults.add(Fault(kind="empty_read", count=1))
    assert found == put
