"""What the driver does in one shard, against the fake account in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from kinesis_sdk.common.position import AfterSequence, AtSequence, AtTimestamp, Ended, TrimHorizon
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.probe import Counting, ShardProbe
from kinesis_sdk.spark.shardio import ShardIo
from kinesis_sdk.spark.steps import run
from kinesis_sdk.spark.unread import Cut, End
from kinesis_sdk.testing import Fault
from tests.spark.support import FIRST, STREAM, Around, Misordering, World, exchange


class Looker:
    """One look after another at the first shard of a stream."""

    def __init__(self, world: World, client: Any = None) -> None:
        self.world = world
        self.io = ShardIo(
            client or world.client,
            StreamId.parse(STREAM),
            clock=world.clock,
            sleep=world.clock.advance,
            rng=Random(1),
            retry_timeout=60.0,
        )
        self.shard = ShardProbe(self.io, FIRST, 300)

    def walk(self) -> None:
        run(self.shard.walk(), self.world.clock, self.world.clock.advance)

    def find_end(self, cut: int, *, closed: bool = False) -> End:
        now = self.io.service_clock.millis()
        steps = self.shard.find_end(Cut(cut, now, cut > now), closed=closed)
        return run(steps, self.world.clock, self.world.clock.advance)

    def end_at_tip(self) -> End:
        self.walk()
        return self.find_end(self.io.service_clock.millis() + 1)


def test_an_iterator_that_has_expired_is_replaced_instead_of_tried() -> None:
    # A rejected read counts as well: with those of other readers, it is one of five per second.
    world = World()
    world.put(3)
    looker = Looker(world)
    looker.shard.begin(TrimHorizon())
    end = looker.end_at_tip()
    looker.shard.accept(end)
    for _ in range(3):
        world.clock.advance(301)
        before = world.calls()
        looker.shard.begin(end.position)
        looker.shard.accept(looker.end_at_tip())
        after = world.calls()
        for operation in ("GetRecords", "GetShardIterator"):
            assert after[operation] - before[operation] == 1, operation


def test_a_shard_was_seen_empty_when_it_was_read_and_not_when_the_look_ended() -> None:
    # Other shards may take seconds in between, and a record may come meanwhile.
    world = World()
    world.put(3)
    looker = Looker(world)
    looker.shard.begin(TrimHorizon())
    looker.walk()
    read_at = world.clock.monotonic()
    cut = looker.io.service_clock.millis() + 1
    world.clock.advance(3)
    looker.shard.accept(looker.find_end(cut))
    assert looker.shard.was_seen_empty_since(read_at)
    assert not looker.shard.was_seen_empty_since(read_at + 1)


def test_records_before_an_old_position_do_not_count_as_empty_pages() -> None:
    # A position that Kinesis may no longer know is opened at an earlier time. What lies in between can be many pages.
    world = World()
    opened = AtTimestamp(round(world.clock.time() * 1000))
    world.put_bulk(2_000)
    world.clock.advance(1)
    numbers = world.numbers()
    position = AfterSequence(numbers[-2])
    looker = Looker(world)
    looker.shard.begin(position, via=opened, counting=Counting(10))
    reads = world.calls()["GetRecords"]
    end = looker.end_at_tip()
    assert world.calls()["GetRecords"] - reads <= 3, "what is to be skipped is read in large pages"
    assert end.cut is None
    assert end.position == AfterSequence(numbers[-1])


def test_a_shard_that_sends_empty_pages_holds_its_records_back_and_not_the_present() -> None:
    # The cut of all shards is chosen from this time: what the shard hides must not fall behind it.
    world = World()
    world.put(1)
    arrived = round(world.clock.time() * 1000)
    world.clock.advance(100)
    world.put(1)
    world.aws.faults.add(Fault(kind="empty_read"))
    looker = Looker(world)
    looker.shard.begin(TrimHorizon())
    looker.walk()
    assert looker.shard.lower_bound(looker.io.service_clock.millis()) <= arrived


def test_a_record_that_arrived_at_the_cut_belongs_to_the_next_batch() -> None:
    world = World()
    times = []
    for _ in range(40):
        world.put(1)
        times.append(round(world.clock.time() * 1000))
        world.clock.advance(1)
    numbers = world.numbers()
    for index in (3, 30):  # among the first records that are read, and behind them
        looker = Looker(world)
        looker.shard.begin(TrimHorizon())
        looker.walk()
        end = looker.find_end(times[index])
        assert end.position == AtSequence(numbers[index])
        assert end.following == times[index]


def test_a_busy_shard_that_is_not_read_first_may_have_records_since_nothing_followed() -> None:
    world = World()
    looker = Looker(world)
    looker.shard.begin(TrimHorizon())
    for _ in range(2):
        world.put_bulk(800)
        world.clock.advance(1)
        end = looker.end_at_tip()
        looker.shard.accept(end)
        looker.shard.begin(end.position)
    world.put_bulk(800)
    arrived = round(world.clock.time() * 1000)
    world.clock.advance(1)
    reads = world.calls()["GetRecords"]
    looker.walk()
    assert world.calls()["GetRecords"] == reads
    assert looker.shard.lower_bound(looker.io.service_clock.millis()) <= arrived


def test_a_read_from_a_time_leaves_out_the_records_before_the_position() -> None:
    world = World()
    looker = Looker(world)
    looker.shard.begin(TrimHorizon())
    for count in (400, 400, 400, 1):
        world.put_bulk(count)
        world.clock.advance(0.1)
        reads = world.calls().get("GetRecords", 0)
        end = looker.end_at_tip()
        looker.shard.accept(end)
        looker.shard.begin(end.position)
    assert end.position == AfterSequence(world.numbers()[-1])
    assert world.calls()["GetRecords"] - reads == 2, "the new record is not searched for"


def test_a_page_out_of_order_does_not_move_the_end() -> None:
    world = World()
    world.put(4)
    world.clock.advance(1)
    looker = Looker(world, Misordering(world.client, exchange, [1]))
    looker.shard.begin(TrimHorizon())
    assert looker.end_at_tip().position == AfterSequence(world.numbers()[-1])


class HidingClient(Around):
    """Says first that nothing follows, and then that something does without sending it."""

    behind: Sequence[int] = (0, 5_000)

    def get_records(self, **request: Any) -> Any:
        answer = self.client.get_records(**request)
        if self.behind:
            behind, *self.behind = self.behind
            answer |= {"Records": [], "NextShardIterator": request["ShardIterator"]}
            answer["MillisBehindLatest"] = behind
        return answer


def test_a_closed_shard_that_hides_records_has_not_ended() -> None:
    world = World()
    world.put(3)
    world.clock.advance(1)
    world.split(FIRST)
    world.clock.advance(100)
    position = AfterSequence(world.numbers()[1])
    world.client = HidingClient(world.client)  # type: ignore[assignment]
    looker = Looker(world)
    looker.shard.begin(position)
    looker.walk()
    end = looker.find_end(round(world.clock.time() * 1000) - 50_000, closed=True)
    assert end.position == position


def closed_behind_the_cut(empty: int) -> tuple[End, int, float]:
    """Find the end at a cut behind the last record of a closed shard that answers a number of reads without saying that it has ended.

    Returns:
        The end, and the reads and seconds that it took.
    """
    world = World()
    world.put(3)
    world.clock.advance(1)
    world.split(FIRST)
    world.clock.advance(100)
    looker = Looker(world)
    looker.shard.begin(AfterSequence(world.numbers()[-1]))
    world.aws.faults.add(Fault(kind="empty_read", count=empty))
    begun, reads = world.clock.monotonic(), world.calls()["GetRecords"]
    looker.walk()
    end = looker.find_end(round(world.clock.time() * 1000) - 50_000, closed=True)
    return end, world.calls()["GetRecords"] - reads, world.clock.monotonic() - begun


def test_a_closed_shard_is_read_on_until_it_says_that_it_has_ended() -> None:
    # Its children may have records before the cut, and they enter only when it has ended.
    end, reads, _ = closed_behind_the_cut(2)
    assert end.position == Ended()
    assert reads == 3


def test_a_closed_shard_that_stays_empty_for_a_second_has_ended() -> None:
    end, reads, seconds = closed_behind_the_cut(50)
    assert end.position == Ended()
    assert reads == 5
    assert seconds >= 1
