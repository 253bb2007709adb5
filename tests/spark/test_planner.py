from __future__ import annotations

import json
import threading
from dataclasses import replace
from email.utils import formatdate
from random import Random
from typing import Any

import pytest

from kinesis_sdk.common.errors import AwsError, ConfigError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.position import AfterSequence, AtTimestamp, Ended, TrimHorizon
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.batch_end import Found
from kinesis_sdk.spark.errors import DataLossError, OffsetError, StalledError
from kinesis_sdk.spark.offsets import QueryOffset, StreamOffset
from kinesis_sdk.spark.probe import FIRST_PAGE as PEEK
from kinesis_sdk.spark.streams import Key
from kinesis_sdk.spark.unread import Cut, End
from kinesis_sdk.testing import Fault
from tests import fuzz

from .support import (
    FIRST,
    HALF,
    SECOND,
    STREAM,
    TRIM,
    Around,
    OffClock,
    Query,
    World,
    options,
    put_aggregate,
    shards_of,
    starting,
)

# -- the batch-end rule ---------------------------------------------------------------------------------------------


def test_a_batch_ends_at_a_record_that_exists_and_holds_exactly_what_is_before_it() -> None:
    world = World()
    query = Query(world, TRIM)
    put = world.put(7)
    assert query.plan()
    late = world.put(5)
    assert [payload for _, _, payload in query.read()] == put, "what came after planning is not in the batch"
    world.clock.advance(400)
    assert [payload for _, _, payload in query.read()] == put, "nor when it is read again"
    end = shards_of(query.log[0])[FIRST]
    assert isinstance(end, AfterSequence)
    query.commit(query.read())
    query.run()
    assert query.payloads == put + late


def test_a_span_limits_the_stream_time_of_a_batch() -> None:
    world = World()
    query = Query(world, {**TRIM, "max_batch_span": 120.0})
    for _ in range(30):
        world.put(30)
        world.clock.advance(60)
    query.run(10)
    assert sum(query.batches) == 900
    # Two minutes of 30 records a minute, and at most one record more; the first includes its begin.
    assert max(query.batches) <= 91
    assert len(query.batches) >= 9
    world.clock.advance(7_200)
    world.put(4)
    world.clock.advance(7_200)
    query.run(10)
    assert len(set(query.payloads)) == world.number, "a silence longer than the span is crossed"


def test_a_batch_never_ends_before_it_begins_though_arrival_times_fall() -> None:
    world = World()
    query = Query(world, {**TRIM, "max_batch_span": 5.0})
    world.clock.advance(60)
    world.put(1)
    world.aws.faults.add(Fault(kind="early_arrival", seconds=10))
    world.put(1)
    assert query.run_batch() == 2
    world.clock.advance(1.1)
    world.put(PEEK + 15)
    world.clock.advance(60)
    query.run(5)
    assert query.batches == [2, PEEK + 15]
    assert len(set(query.payloads)) == len(query.payloads) == PEEK + 17


def test_a_count_limits_the_records_of_a_shard_exactly() -> None:
    world = World(2)
    query = Query(world, {**TRIM, "max_records_per_shard": 10})
    world.put(35, hash_key=0)
    world.put(5, hash_key=HALF)
    query.run(5)
    assert query.batches == [15, 10, 10, 5]


@pytest.mark.parametrize("limit", [{"max_rows_per_trigger": 50}, {"max_bytes_per_trigger": 300}])
def test_a_limit_of_all_shards_together_holds_and_keeps_one_cut(limit: dict[str, int]) -> None:
    world = World(2)
    put = []
    for number in range(300):
        put += world.put(1, hash_key=0 if number % 7 else HALF, key=f"{number:03d}"[:1])
        world.clock.advance(0.01)
    world.put(1, hash_key=HALF)  # nothing follows the last record but one
    query = Query(world, {**TRIM, **limit})
    fetched = world.aws.stats()["records_read"]
    while query.plan():
        fetched_by_planner = world.aws.stats()["records_read"] - fetched
        query.commit(query.read())
        fetched = world.aws.stats()["records_read"]
        assert fetched_by_planner <= query.batches[-1] + 2 * 30, "a page too many of each shard"
    assert sorted(query.payloads) == sorted([*put, b"k:300"])
    # In the order of arrival over both shards, which one cut for both means.
    begins = [sum(query.batches[:n]) for n in range(len(query.batches))]
    batches = [
        query.payloads[begin : begin + rows] for begin, rows in zip(begins, query.batches, strict=True)
    ]
    assert [min(int(payload.split(b":")[1]) for payload in batch) for batch in batches] == begins
    used = [sum(1 if "max_rows_per_trigger" in limit else len(p) + 1 for p in batch) for batch in batches]
    (most,) = limit.values()
    assert all(most - 6 < size <= most for size in used[:-1])
    assert used[-1] <= most


def test_rows_of_aggregates_are_counted_and_those_of_one_millisecond_stay_together() -> None:
    world = World()
    for rows in (3, 3, 30, 3):
        for _ in range(2):
            put_aggregate(world.client, [b"%d" % item for item in range(rows)])
        world.clock.advance(1)
    query = Query(world, {**TRIM, "max_rows_per_trigger": 13})
    query.run(5)
    assert query.batches == [12, 60, 6]
    assert query.planner.report()["limitedBy"] is None


def test_what_follows_a_millisecond_beyond_the_limit_is_read_on() -> None:
    world = World()
    put = world.put(49)  # and the first two pages of the driver have one more
    for _ in range(40):
        world.clock.advance(0.1)
        put += world.put(1)
    query = Query(world, {**TRIM, "max_rows_per_trigger": 20})
    query.run(5)
    assert query.batches == [49, 20, 20]
    assert query.payloads == put


def test_a_limit_holds_for_children_that_enter() -> None:
    world = World()
    put = world.put(5)
    world.clock.advance(1)
    world.split(FIRST)
    for _ in range(30):
        put += world.put(1, hash_key=0) + world.put(1, hash_key=HALF)
        world.clock.advance(0.5)
    query = Query(world, {**TRIM, "max_rows_per_trigger": 12})
    query.run(5)
    assert sorted(query.payloads) == sorted(put)
    assert max(query.batches) <= 12
    assert len(query.batches) <= 8


def test_a_limit_skips_no_record_of_an_idle_shard_while_a_child_enters() -> None:
    world = World(2)
    put = world.put(3, hash_key=0) + world.put(3, hash_key=HALF)
    query = Query(world, {**TRIM, "max_rows_per_trigger": 1_000})
    query.run(5)
    for _ in range(100):
        put += world.put(1, hash_key=0)
        query.run_batch()
        world.clock.advance(1.1)
    idle = query.planner._search.probes[Key(STREAM, SECOND)]
    while idle.is_due(query.options.idle_probe_interval):
        query.run_batch()
        world.clock.advance(0.3)
    world.split(FIRST)
    put += world.put(1, hash_key=0) + world.put(2, hash_key=HALF)
    for _ in range(20):
        query.run_batch()
        world.clock.advance(1.1)
    assert sorted(query.payloads) == sorted(put)


def test_all_available_lifts_the_limits() -> None:
    world = World()
    query = Query(world, {**TRIM, "max_records_per_shard": 10, "max_rows_per_trigger": 10})
    world.put(95)
    assert query.run_batch(unlimited=True) == 95


def test_more_records_than_a_page_holds() -> None:
    world = World()
    query = Query(world, TRIM)
    for _ in range(3):
        world.put_bulk(4_000)
        world.clock.advance(600)
    world.clock.advance(5_000)
    assert query.run_batch() == len(set(query.rows)) == 12_000, "nothing limits the batch"
    assert query.run_batch() is None


def test_an_aggregate_is_never_split_between_batches() -> None:
    world = World()
    query = Query(world, {**TRIM, "max_records_per_shard": 1})
    for number in range(3):
        put_aggregate(world.client, [b"%d/%d" % (number, item) for item in range(1_000)])
        world.clock.advance(1)
    query.run(5)
    assert query.batches == [1_000, 1_000, 1_000]


def test_a_call_that_fails_for_longer_than_the_retry_timeout_fails_the_batch() -> None:
    world = World()
    query = Query(world, {**TRIM, "retry_timeout": 10.0})
    world.put(1)
    world.aws.faults.add(Fault(kind="throttle", operation="GetRecords"))
    before = world.clock.monotonic()
    with pytest.raises(AwsError, match="Rate exceeded"):
        query.plan()
    assert 5 < world.clock.monotonic() - before <= 11


def test_a_clock_ahead_of_the_service_is_no_obstacle() -> None:
    world = World()
    query = Query(world, TRIM, clock=OffClock(world.clock, 3.5))
    world.put_bulk(2_000)
    query.run(5)
    assert len(query.rows) == 2_000


class Dated:
    """A client whose answers carry the service's Date header, as HTTP answers do."""

    def __init__(self, world: World) -> None:
        self._clock, self._client = world.clock, world.client

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def dated(**request: Any) -> Any:
            answer = call(**request)
            date = formatdate(int(self._clock.time()), usegmt=True)
            return {**answer, "ResponseMetadata": {"HTTPHeaders": {"date": date}}}

        return dated


@pytest.mark.parametrize("offset", [-3_600.0, -3.5, -0.4, 0.4, 3.5, 3_600.0])
@pytest.mark.parametrize("phase", [0.0, 0.5, 0.99])
def test_latest_on_a_machine_whose_clock_is_wrong(offset: float, phase: float) -> None:
    """LATEST is an instant of the service's clock: nothing that came after the start is left out by ours."""
    world = World()
    world.clock.advance(-world.clock.time() % 1 + phase)
    old = world.put(3)
    world.clock.advance(2)

    world.client = Dated(world)  # type: ignore[assignment]
    query = Query(world, clock=OffClock(world.clock, offset))
    ahead = query.initial.started / 1000 - world.clock.time()
    assert -1.01 < ahead <= max(0.0, min(offset, 1.0)) + 0.001
    world.clock.advance(0.05)
    soon = world.put(2)
    query.run_batch()
    world.clock.advance(0.6)
    put = world.put(3)
    query.run(5)
    # A fraction of a second can not be told from a Date header.
    expected = put if offset == 0.4 and not set(soon) & set(query.payloads) else soon + put
    assert query.payloads == expected
    assert not set(old) & set(query.payloads)


# -- what looking costs ---------------------------------------------------------------------------------------------


def test_questions_inside_the_interval_cost_nothing_and_change_nothing() -> None:
    world = World()
    query = Query(world, TRIM)
    world.put(3)
    query.run(5)
    query.planner.plan(query.start)
    before = world.calls()
    for _ in range(90):
        assert query.planner.plan(query.start) is query.start
        world.clock.advance(0.01)
    assert world.calls() == before


def test_a_trigger_that_comes_a_moment_early_is_a_look() -> None:
    world = World()
    query = Query(world, {**TRIM, "min_probe_interval": 1.0})
    query.run(5)
    query.run_batch()
    put = world.put(1)
    world.clock.advance(0.97)
    assert query.run_batch() == 1
    assert query.payloads == put


def test_a_query_that_stops_at_the_present_looks_at_it_although_it_has_just_looked() -> None:
    world = World()
    query = Query(world, {**TRIM, "min_probe_interval": 60.0})
    query.run(70)
    query.run_batch()
    put = world.put(1)
    world.clock.advance(0.1)
    assert query.run_batch() is None
    query.planner.stop_at_now()
    assert query.run_batch() == 1
    assert query.payloads == put
    assert query.start.cut is not None
    assert query.start.cut <= world.clock.time() * 1000 + 1, "what arrives in the next second is not all read"


def test_the_cut_stays_where_it_was_until_a_clock_that_was_set_back_has_reached_it() -> None:
    world = World()
    clock = OffClock(world.clock, 0.0)
    query = Query(world, TRIM, clock=clock)
    put = world.put(1)
    world.clock.advance(2)
    assert query.run_batch() == 1
    before = query.start.cut
    assert before is not None
    clock.offset = -100.0
    put += world.put(1)
    world.clock.advance(2)
    assert query.run_batch() == 1
    assert query.start.cut == before
    assert query.payloads == put


@pytest.mark.parametrize(("quiet", "period", "most"), [(45, 2.5, 14), (200, 5, 9)])
def test_idle_shards_are_looked_at_one_after_the_other_and_each_in_every_period(
    quiet: float, period: float, most: int
) -> None:
    world = World(shards=20)
    world.put()
    query = Query(world, TRIM)
    query.run(quiet)
    looks = []
    for _ in range(15):
        before = world.calls()["GetRecords"]
        assert query.run_batch() is None
        looks.append(world.calls()["GetRecords"] - before)
        world.clock.advance(1)
    assert max(looks) <= most
    assert all(sum(looks[begin : begin + 5]) == 20 * 5 / period for begin in range(5, 15, 5)), looks


def test_a_busy_shard_costs_two_calls_a_look() -> None:
    world = World()
    query = Query(world, TRIM)
    for _ in range(3):
        world.put_bulk(400)
        query.run_batch()
        world.clock.advance(1)
    world.put_bulk(400)
    before = world.calls()
    assert query.plan()
    after = world.calls()
    assert after["GetRecords"] - before["GetRecords"] == 1
    assert after["GetShardIterator"] - before["GetShardIterator"] == 1


# -- splits, merges, children ---------------------------------------------------------------------------------------


def test_children_come_in_the_batch_in_which_their_parent_ends() -> None:
    world = World()
    query = Query(world, {**TRIM, "max_records_per_shard": 10})
    parent = world.put(25, hash_key=0)
    world.split(FIRST)
    children = world.put(5, hash_key=0) + world.put(5, hash_key=HALF)
    query.run(15)
    assert query.payloads[:25] == parent
    assert sorted(query.payloads[25:]) == sorted(children)
    finished = [isinstance(shards_of(offset).get(FIRST), Ended) for offset in query.log].index(True)
    for offset in query.log[:finished]:
        assert set(shards_of(offset)) == {FIRST}
    assert set(shards_of(query.log[finished])) == {FIRST, SECOND, "shardId-000000000002"}
    items = {
        item.shard_id: item for item in query.planner.ranges(query.log[finished - 1], query.log[finished])
    }
    assert items[SECOND].parents == items["shardId-000000000002"].parents == (FIRST,)
    world.put(1)
    query.run(5)
    assert set(shards_of(query.log[finished + 1])) == {SECOND, "shardId-000000000002"}, "the parent left"


def test_a_child_born_while_the_query_was_down_begins_at_its_first_record() -> None:
    world = World()
    query = Query(world)  # LATEST
    assert query.run_batch() == 0
    put = world.put(4)
    query.run(3)
    world.split(FIRST)
    put += world.put(6, hash_key=0) + world.put(6, hash_key=HALF)
    world.clock.advance(7_200)
    query.restart()
    put += world.put(1, hash_key=0)
    query.run(15)
    assert sorted(query.payloads) == sorted(put)


def test_generations_of_splits_while_down() -> None:
    world = World()
    query = Query(world, TRIM)
    put = world.put(2)
    query.run(3)
    for _ in range(3):
        for shard in world.open_shards():
            world.split(shard["ShardId"])
        for shard in world.open_shards():
            put += world.put(2, hash_key=int(shard["HashKeyRange"]["StartingHashKey"]))
    query.restart()
    query.run(30)
    put += world.put(1)
    query.run(10)
    assert sorted(query.payloads) == sorted(put)
    assert len(shards_of(query.log[-1])) == 8, "finished shards leave the offset"


def test_a_shard_that_ends_between_two_listings_is_noticed_at_once() -> None:
    world = World()
    query = Query(world, {**TRIM, "shard_refresh_interval": 3_000.0})
    world.put(3)
    query.run(3)
    world.split(FIRST)
    put = world.put(2, hash_key=0)
    world.clock.advance(1)
    assert query.run_batch() == 2, "the children are in the batch of their parent"
    query.run(10)
    assert query.payloads[3:] == put


# -- starting positions ---------------------------------------------------------------------------------------------


def test_latest_means_the_first_start_even_if_the_first_batch_crashes() -> None:
    world = World()
    world.put(9)
    world.clock.advance(1)
    query = Query(world)
    put = world.put(2)
    world.clock.advance(1)
    assert query.plan()
    query.read()  # … and the sink fails: batch 0 is planned and never committed
    put += world.put(3)
    world.clock.advance(600)
    query.restart()
    put += world.put(4)
    query.run(5)
    assert query.payloads == put


def test_a_split_between_start_and_first_plan_under_latest() -> None:
    world = World()
    world.put(3)
    world.clock.advance(2)
    query = Query(world)
    put = world.put(2)
    world.split(FIRST)
    put += world.put(2, hash_key=0)
    query.run(15)
    assert query.payloads == put


@pytest.mark.parametrize(("kind", "read"), [("after", 2), ("at", 3)])
def test_positions_per_shard(kind: str, read: int) -> None:
    world = World(3)
    hashes = {s["ShardId"]: int(s["HashKeyRange"]["StartingHashKey"]) for s in world.open_shards()}
    names = sorted(hashes)
    for name in names:
        world.put(4, hash_key=hashes[name], key=name)
    number = world.numbers(names[1])[1]
    world.clock.advance(1)
    text = json.dumps({"default": "LATEST", names[0]: "TRIM_HORIZON", names[1]: f"{kind}:{number}"})
    query = Query(world, starting(text))
    query.run(3)
    assert [shard for shard, _, _ in query.rows] == [names[0]] * 4 + [names[1]] * read
    query.restart()
    put = world.put(1, hash_key=hashes[names[2]])
    query.run(3)
    assert query.payloads[4 + read :] == put


# -- stopping at now ------------------------------------------------------------------------------------------------


def test_available_now_ends_at_what_was_there_and_needs_several_batches() -> None:
    world = World(2)
    query = Query(world, {**TRIM, "max_records_per_shard": 10})
    put = world.put(35, hash_key=0) + world.put(5, hash_key=HALF)
    world.clock.advance(1)
    query.planner.stop_at_now()
    assert query.run_batch() == 15
    world.clock.advance(2)
    world.put(50, hash_key=0)
    query.drain()
    assert sorted(query.payloads) == sorted(put)
    assert query.batches == [15, 10, 10, 5]


def test_available_now_reads_closed_shards_and_their_children_and_stops() -> None:
    world = World()
    query = Query(world, TRIM)
    put = world.put(5)
    world.split(FIRST)
    put += world.put(5, hash_key=0) + world.put(5, hash_key=HALF)
    world.clock.advance(1)
    query.planner.stop_at_now()
    batches = 0
    while query.run_batch() is not None:
        batches += 1
        world.put(3, hash_key=0)
        world.split(world.open_shards()[0]["ShardId"])
        assert batches < 20, "it stops although the stream goes on"
    assert sorted(query.payloads) == sorted(put)
    query.restart()
    query.planner.stop_at_now()
    query.drain()
    assert len(query.payloads) == len(set(query.payloads)) == world.number


def test_available_now_passes_over_empty_pages_and_misses_nothing() -> None:
    world = World()
    query = Query(world, TRIM)
    put = world.put(200)
    world.split(FIRST)
    put += world.put(20, hash_key=0)
    world.clock.advance(30)
    world.client = LaggingClient(world.client)  # type: ignore[assignment]
    query.restart()
    query.planner.stop_at_now()
    query.drain()
    assert query.payloads == put


class LaggingClient(Around):
    """Begins with empty pages that say that there is more, as the service may send them anywhere."""

    left = 8

    def get_records(self, **request: Any) -> Any:
        if self.left:
            self.left -= 1
            return {"Records": [], "NextShardIterator": request["ShardIterator"], "MillisBehindLatest": 5_000}
        return self.client.get_records(**request)


def test_available_now_does_not_pass_its_goal_when_a_span_ends_behind_it() -> None:
    world = World()
    query = Query(world, {**TRIM, "max_batch_span": 60.0})
    put = []
    for _ in range(3):
        put += world.put(20)
        world.clock.advance(100)
    query.planner.stop_at_now()
    assert query.run_batch() is not None
    world.clock.advance(2)
    world.put(5)
    world.clock.advance(3_600)
    query.drain()
    assert query.payloads == put


def test_available_now_does_not_pass_its_goal_when_the_shard_ends_behind_it() -> None:
    world = World()
    query = Query(world, {**TRIM, "max_records_per_shard": 9})
    put = world.put(10)
    world.clock.advance(1)
    query.planner.stop_at_now()
    assert query.run_batch() == 9
    world.clock.advance(2)
    world.put(3)
    world.split(FIRST)
    query.drain()
    assert query.payloads == put


# -- loss -----------------------------------------------------------------------------------------------------------

DAY = 86_400.0


@pytest.mark.parametrize(("beyond", "is_loss"), [(-60, False), (60, True)])
def test_a_checkpoint_is_a_loss_from_the_retention_period_on(beyond: float, is_loss: bool) -> None:
    world = World()
    query = Query(world, TRIM)
    world.put(1)
    assert query.run_batch() == 1
    world.clock.advance(DAY + beyond)
    query.restart()
    if is_loss:
        with pytest.raises(DataLossError, match=r"24\.0 h"):
            query.plan()
    else:
        assert not query.plan() or query.read() == []


def test_an_empty_shard_after_the_retention_period_is_no_proof_that_nothing_was_lost() -> None:
    """A record that was put and deleted meanwhile leaves no trace: Kinesis answers as if nothing had ever arrived."""
    world = World()
    query = Query(world, TRIM)
    world.put(1)
    assert query.run_batch() == 1
    world.clock.advance(DAY)
    world.put(1)  # is deleted before the query starts again, and the shard is empty as before
    world.clock.advance(2 * DAY)
    query.restart()
    with pytest.raises(DataLossError, match=r"72\.0 h"):
        query.plan()


def test_a_position_beyond_the_retention_is_read_from_the_horizon() -> None:
    """The service need not know its sequence number any more."""
    world = World()
    query = Query(world, {**TRIM, "fail_on_data_loss": False})
    world.put(3)
    query.run(3)
    world.clock.advance(1.5 * DAY)
    put = world.put(3)
    query.restart()
    assert query.plan()
    (item,) = query.planner.ranges(query.start, query.log[-1])
    assert isinstance(item.start, AfterSequence)
    assert item.via == TrimHorizon()
    assert [payload for _, _, payload in query.read()] == put


@pytest.mark.parametrize("count", [3, 0], ids=["read", "never read"])
def test_idle_for_longer_than_the_retention_is_no_loss(count: int) -> None:
    world = World()
    query = Query(world)
    put = world.put(count)
    query.run(3)
    for _ in range(60):
        world.clock.advance(3_600)
        query.run_batch()
    put += world.put(3)
    query.restart()
    query.run(5)
    assert query.payloads == put


def test_a_sequence_number_near_the_end_of_the_retention_is_not_asked_for_any_more() -> None:
    """The service may not know it, although nothing was lost (idle for a whole retention)."""
    world = World()
    query = Query(world, TRIM)
    world.put(3)
    query.run(3)
    for _ in range(23):
        world.clock.advance(3_600)
        query.run_batch()
    world.put(1)
    world.clock.advance(2)
    query.restart()
    assert query.plan()
    (item,) = query.planner.ranges(query.start, query.log[-1])
    assert isinstance(item.start, AtTimestamp)
    assert len(query.read()) == 1


def test_a_planned_batch_that_was_trimmed_meanwhile_is_a_loss() -> None:
    world = World()
    query = Query(world, TRIM)
    world.put(3)
    assert query.plan()
    world.clock.advance(1.5 * DAY)
    world.put(2)
    query.restart()
    with pytest.raises(DataLossError):
        query.read()
    assert query.read(fail_on_data_loss=False) == []


def recreate(world: World, after: float) -> None:
    """Delete the stream, and create it again after some seconds."""
    world.client.delete_stream(StreamName=STREAM)
    world.clock.advance(after)
    world.client.create_stream(StreamName=STREAM, ShardCount=1)
    world.clock.advance(70)


def test_nothing_that_was_known_of_a_shard_holds_for_its_namesake_in_a_recreated_stream() -> None:
    # The query goes on in the same process: the iterator of the old shard, which was at the same position, is of no use.
    world = World()
    query = Query(world, {**TRIM, "fail_on_data_loss": False})
    assert query.run_batch() == 0
    recreate(world, 20)
    put = world.put(2)
    assert query.run_batch() == 2
    assert query.payloads == put


def test_a_recreated_stream_is_one_loss_and_not_as_old_as_the_checkpoint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    query = Query(world, {**TRIM, "fail_on_data_loss": False})
    world.put(3)
    assert query.run_batch() == 3
    recreate(world, 1.5 * DAY)
    query.options = options(**TRIM)
    query.restart()
    with pytest.raises(DataLossError):
        query.plan()
    query.options = options(**TRIM, fail_on_data_loss=False)
    query.restart()
    put = world.put(2)
    assert query.run_batch() == 2
    assert query.payloads[3:] == put
    lost = [message for message in caplog.messages if "continuing with the remaining data" in message]
    assert len(lost) == 1
    assert "deleted and recreated" in lost[0]


def test_the_checkpoint_of_another_stream_is_refused() -> None:
    world = World()
    query = Query(world, TRIM)
    query.run(3)
    with pytest.raises(OffsetError, match="another"):
        query.planner.plan(
            QueryOffset(
                starting="LATEST", started=1, cut=2, streams={"another": StreamOffset(created=1, shards={})}
            )
        )


def test_shards_that_are_gone_unread_are_a_loss() -> None:
    world = World()
    query = Query(world, TRIM)
    world.put(3)
    query.run(3)
    # Known to be empty a moment ago, then split and unlisted: only the listing can tell.
    world.put(1)
    world.split(FIRST)
    world.clock.advance(2 * DAY)
    put = world.put(2, hash_key=0)
    query.restart()
    with pytest.raises(DataLossError, match=FIRST):
        query.plan()
    query.options = options(**TRIM, fail_on_data_loss=False)
    query.restart()
    query.run(10)
    assert query.payloads[3:] == put


def test_hundreds_of_shards_are_looked_at_side_by_side() -> None:
    world = World(300)
    width = 2 * HALF // 300
    put = [payload for n in range(300) for payload in world.put(2, hash_key=n * width + 1)]
    lock = threading.Lock()
    running, most = 0, 0

    class Counting(Around):
        def get_records(self, **request: Any) -> Any:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
                if most == 16:
                    gathered.set()
            try:
                assert gathered.wait(30)  # all that there are
                return self.client.get_records(**request)
            finally:
                with lock:
                    running -= 1

    gathered = threading.Event()
    query = Query(world, {**TRIM, "probe_threads": 16})
    query.planner._streams.io[STREAM].client = Counting(world.client)  # type: ignore[assignment]
    assert query.run_batch() == 600
    assert sorted(query.payloads) == sorted(put)
    assert most == 16
    assert len(query.log[0].to_json()) < 300 * 160
    for _ in range(2):
        before = world.calls()
        world.clock.advance(2)
        assert query.run_batch() is None
        after = world.calls()
        assert after["GetRecords"] - before["GetRecords"] == 300
        assert after["GetShardIterator"] == before["GetShardIterator"]


# -- misplaced aggregates -------------------------------------------------------------------------------------------


def test_ranges_know_their_hash_keys_where_misplaced_aggregates_are_discarded() -> None:
    world = World(2)
    world.put(5, hash_key=0)
    world.put(5, hash_key=HALF)
    query = Query(world, {**TRIM, "misplaced_aggregates": "discard"})
    assert query.plan()
    owned = {item.shard_id: item.owned for item in query.planner.ranges(query.start, query.log[0])}
    assert owned == {FIRST: HashKeyRange(0, HALF - 1), SECOND: HashKeyRange(HALF, 2 * HALF - 1)}
    query.restart()
    again = query.planner.ranges(query.start, query.log[0])
    assert {item.shard_id: item.owned for item in again} == owned, "a restarted driver has listed nothing yet"
    assert {item.shard_id: item.owned for item in query.planner.plan_read()} == owned
    usual = Query(world, TRIM)
    assert [item.owned for item in usual.planner.ranges(query.start, query.log[0])] == [None, None]


# -- batch reads ----------------------------------------------------------------------------------------------------


def test_a_batch_read_covers_parents_children_and_nothing_later() -> None:
    world = World()
    put = world.put(30)
    world.split(FIRST)
    put += world.put(30, hash_key=0)
    world.clock.advance(1)
    query = Query(world)
    ranges = query.planner.plan_read()
    world.put(9, hash_key=0)
    assert query.batch_read(ranges) == put


def test_a_batch_read_of_some_shards_makes_no_call_for_the_others() -> None:
    world = World(3)
    wanted = {"shardId-000000000000", "shardId-000000000002"}
    put = world.put(5, hash_key=0) + world.put(5, hash_key=2**128 - 1)
    world.put(5, hash_key=HALF)
    query = Query(world)
    before = world.calls()
    ranges = query.planner.plan_read(shard_ids=frozenset(wanted))
    calls = world.calls()["GetShardIterator"] - before.get("GetShardIterator", 0)
    assert {item.shard_id for item in ranges} == wanted
    assert query.batch_read(ranges) == put
    query.planner.plan_read()
    more = world.calls()["GetShardIterator"] - before.get("GetShardIterator", 0) - calls
    assert calls < more
    assert query.planner.plan_read(shard_ids=frozenset()) == []
    with pytest.raises(ConfigError, match="shardIds='shardId-000000000009'"):
        query.planner.plan_read(shard_ids=frozenset({"shardId-000000000009"}))


def test_a_batch_read_to_a_time_has_records_that_arrived_before_it_behind_later_ones() -> None:
    world = World()
    put = world.put(1)
    world.clock.advance(10)
    high = round(world.clock.time() * 1000)
    world.clock.advance(1)
    world.put(1)
    world.aws.faults.add(Fault(kind="early_arrival", seconds=5, count=1))
    put += world.put(1)
    world.clock.advance(3_600)
    query = Query(world, {**TRIM, "ending_position": AtTimestamp(high)})
    assert query.batch_read() == put


def test_a_batch_read_of_an_hour_does_not_read_the_day() -> None:
    world = World(2)
    world.split(FIRST)
    put: list[bytes] = []
    for hour in range(20):
        now = round(world.clock.time() * 1000)
        if hour == 3:
            low = now
        if hour == 4:
            high = now
        for _ in range(30):
            new = world.put(2, hash_key=0) + world.put(1, hash_key=HALF)
            put += new if hour == 3 else []
            world.clock.advance(120)
        if hour == 10:
            world.split("shardId-000000000002")
    query = Query(world, {**starting(f"AT_TIMESTAMP {low}"), "ending_position": AtTimestamp(high)})
    ranges = query.planner.plan_read()
    assert sorted(query.batch_read(ranges)) == sorted(put)
    assert len(query.batch_read([replace(item, before=None) for item in ranges])) < 2 * len(put)


def test_a_batch_read_of_nothing_is_empty() -> None:
    world = World()
    world.put(3)
    world.clock.advance(10)
    behind = {"default": "TRIM_HORIZON", FIRST: f"AFTER_SEQUENCE_NUMBER {world.numbers()[-1]}"}
    assert Query(world, starting(json.dumps(behind))).planner.plan_read() == []
    backwards = {**starting("AT_TIMESTAMP 2000"), "ending_position": AtTimestamp(1_000)}
    assert Query(world, backwards).planner.plan_read() == []


def test_a_batch_read_from_latest_is_refused() -> None:
    with pytest.raises(ConfigError, match="LATEST"):
        Query(World(), starting("LATEST")).planner.plan_read()


@pytest.mark.parametrize("position", ["@{}", '{{"default": "TRIM_HORIZON", "shardId-000000000000": "@{}"}}'])
@pytest.mark.parametrize("is_batch", [True, False])
def test_a_start_in_the_future_is_refused_at_once(position: str, is_batch: bool) -> None:
    """Kinesis rejects each call until that time, so the query failed after ``retryTimeout`` in GetShardIterator."""
    world = World()
    began = world.clock.monotonic()
    text = position.format(round((world.clock.time() + 600) * 1000))
    query = Query(world, starting(text))
    with pytest.raises(ConfigError, match="startingPosition"):
        query.planner.plan_read() if is_batch else query.plan()
    assert world.clock.monotonic() - began < 1


@pytest.mark.parametrize(("rate", "times"), [(1, 1), (4, 1), (20, 1.5)])
def test_a_catch_up_in_small_spans_reads_few_records_more_than_once(rate: int, times: float) -> None:
    """Kinesis records may be large: with full pages, each batch would read most of what follows it, up to 10 MB."""
    world = World()
    for _ in range(200):
        world.put(rate)
        world.clock.advance(1)
    world.clock.advance(60)
    query = Query(world, {**TRIM, "max_batch_span": 2.0})
    fetched = 0
    while query.plan():
        before = world.aws.stats()["records_read"]
        rows = query.read()
        fetched += world.aws.stats()["records_read"] - before
        query.commit(rows)
    assert query.payloads == [b"k:%d" % number for number in range(200 * rate)]
    assert len(query.batches) > 90
    assert fetched <= times * 200 * rate + 8 * len(query.batches)


# -- progress -------------------------------------------------------------------------------------------------------


def test_the_report_says_how_far_behind_a_limited_query_is_and_nothing_else_is_behind() -> None:
    world = World(2)
    query = Query(world, {**TRIM, "max_records_per_shard": 5})
    assert query.planner.report() is None
    for _ in range(10):
        world.put(1, hash_key=0)
        world.clock.advance(10)
    world.put(1, hash_key=HALF)
    world.clock.advance(30)
    query.run_batch()
    report = query.planner.report()
    assert report is not None
    assert report["limitedBy"] == "maxRecordsPerShard"
    assert report["maxBehindMs"] == 90_000 - 1, "the cut is behind the fifth record"
    assert report["cut"] == query.log[-1].cut
    assert (report["shards"], report["ended"], report["streams"]) == (2, 0, [STREAM])
    query.run(10)
    report = query.planner.report()
    assert report is not None
    assert (report["limitedBy"], report["maxBehindMs"], report["fallingBehind"]) == (None, 0, False)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", fuzz.seeds(unit=4, fuzz=100))
def test_every_record_once_and_in_order_through_everything(seed: int) -> None:
    """Random puts, splits, merges, pauses, faults, crashes before and after the sink's write."""
    rng = Random(seed)
    world = World(rng.choice([1, 2, 3]), throttle=rng.random() < 0.5, seed=seed)
    chosen: dict[str, Any] = dict(TRIM)
    if rng.random() < 0.4:
        chosen["max_records_per_shard"] = rng.choice([1, 7, 50])
    if rng.random() < 0.4:
        chosen["max_batch_span"] = rng.choice([1.0, 20.0, 300.0])
    if seed % 3 == 1:
        chosen["max_rows_per_trigger"] = 5 * seed
    if seed % 4 == 1:
        chosen["max_bytes_per_trigger"] = 50 * seed
    query = Query(world, chosen)
    world.aws.faults.add(Fault(kind="empty_read", probability=rng.choice([0, 0.2])))
    world.aws.faults.add(Fault(kind="throttle", operation="GetRecords", probability=rng.choice([0, 0.1])))
    world.aws.faults.add(Fault(kind="expired_iterator", probability=rng.choice([0, 0.05])))
    early = Fault(kind="early_arrival", probability=rng.choice([0, 0.1, 0.5]), seconds=rng.choice([0.5, 30]))
    world.aws.faults.add(early)
    keys = {f"key-{i}": rng.getrandbits(128) for i in range(6)}
    put: dict[str, list[bytes]] = {key: [] for key in keys}
    for _ in range(120 if fuzz.TIMES else 45):
        for _ in range(rng.choice([0, 0, 1, 3, 12])):
            key = rng.choice(list(keys))
            put[key] += world.put(1, key=key, hash_key=keys[key])
        world.clock.advance(rng.choice([0.0, 0.2, 1.0, 5.0, 60.0]))
        shards = world.open_shards()
        if rng.random() < 0.05 and len(shards) < 8:
            world.split(rng.choice(shards)["ShardId"])
        elif rng.random() < 0.05 and len(shards) > 1:
            at = rng.randrange(len(shards) - 1)
            world.merge(shards[at]["ShardId"], shards[at + 1]["ShardId"])
        if rng.random() < 0.6 and (len(query.log) > query.committed or query.plan()):
            rows = query.read()
            if rng.random() < 0.2:
                query.restart()  # the sink failed: the same batch comes again
            else:
                query.commit(rows)
        if rng.random() < 0.1:
            query.restart()
    world.clock.advance(5)
    query.run(90)
    for key, expected in put.items():
        assert [p for p in query.payloads if p.startswith(b"%s:" % key.encode())] == expected
    assert len(query.payloads) == world.number


# -- batch reads and plans that were once wrong --------------------------------------------------------------------------


def test_a_batch_read_finds_the_last_record_of_a_shard_that_has_been_quiet() -> None:
    world = World(throttle=True)
    for _ in range(3):
        world.put_bulk(500)  # record 1,025, with which the walk ends, lies inside a burst
        world.clock.advance(1.05)
    world.clock.advance(3_600)
    assert len(Query(world, TRIM).batch_read()) == 1_500


def test_a_batch_read_to_a_time_in_the_past_finds_the_last_record_before_it() -> None:
    world = World(throttle=True)
    for _ in range(1_500):
        world.put(1)
        world.clock.advance(1)
    ending = AtTimestamp(round(world.clock.time() * 1000))
    world.clock.advance(3_600)
    assert len(Query(world, {**TRIM, "ending_position": ending}).batch_read()) == 1_500


def test_a_batch_read_that_cannot_reach_its_end_fails_however_near_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kinesis_sdk.spark.probe.FIRST_PAGE", 5)
    for user in ("probe", "shard_search"):
        monkeypatch.setattr(f"kinesis_sdk.spark.{user}.NEXT_PAGE", 10)
    world = World()
    for _ in range(100):
        world.put(1)
        world.clock.advance(0.3)
    # Five pages hold half of what has arrived since the tip lag began: they end 15 s before the present.
    with pytest.raises(StalledError):
        Query(world, {**TRIM, "tip_lag": 30.0}).batch_read()


def test_a_batch_read_of_an_endpoint_that_only_sends_empty_pages_fails() -> None:
    world = World()
    world.put(3)
    world.aws.faults.add(Fault(kind="empty_read"))
    with pytest.raises(StalledError):
        Query(world, TRIM).batch_read()


def test_a_clock_that_is_corrected_forward_between_two_batches_moves_no_position_into_the_future() -> None:
    """The time before the look comes from the last responses; the machine's clock was set since then."""
    world = World(2)

    world.client = Dated(world)  # type: ignore[assignment]
    clock = OffClock(world.clock, -3_600.0)
    query = Query(world, clock=clock)
    put = world.put(1, hash_key=0) + world.put(1, hash_key=HALF)
    for _ in range(6):
        world.clock.advance(1.5)
        query.run_batch()
    put += world.put(1, hash_key=0)
    world.clock.advance(1.5)
    clock.offset = 0.0
    query.run_batch()
    assert query.start.cut is not None
    assert query.start.cut <= world.clock.time() * 1000 + 1_000, "a Date header has whole seconds"
    world.clock.advance(20)
    put += world.put(3, hash_key=HALF)
    for _ in range(5):
        world.clock.advance(1.5)
        query.run_batch()
    assert sorted(query.payloads) == sorted(put)


def two_streams(world: World) -> dict[str, Any]:
    world.client.create_stream(StreamName="other", ShardCount=1)
    world.clock.advance(5)
    return {**TRIM, "streams": (StreamId.parse(STREAM), StreamId.parse("other"))}


def test_a_stream_with_a_long_backlog_does_not_cost_another_one_its_retention() -> None:
    world = World()
    chosen = two_streams(world)
    world.client.increase_stream_retention_period(StreamName="other", RetentionPeriodHours=168)
    world.clock.advance(5)
    for number in range(10):
        world.client.put_record(StreamName="other", Data=b"other:%d" % number, PartitionKey="k")
        world.clock.advance(12 * 3_600)
    world.put(5)
    world.clock.advance(60)
    query = Query(world, chosen, span=None)
    query.run(30)
    assert len(query.rows) == 15


def test_a_stream_full_to_its_retention_is_read_with_a_trigger_longer_than_the_first_span() -> None:
    world = World()
    for _ in range(24 * 12 + 6):
        world.put(1)
        world.clock.advance(300)
    query = Query(world, TRIM, span=None)
    query.run(900, step=300)
    assert len(query.rows) >= 24 * 12 - 2


def test_a_stream_that_was_added_is_not_as_old_as_the_checkpoint() -> None:
    world = World()
    chosen = two_streams(world)
    world.client.increase_stream_retention_period(StreamName=STREAM, RetentionPeriodHours=168)
    world.clock.advance(5)
    query = Query(world, TRIM)
    world.put(3)
    world.clock.advance(2)
    assert query.run_batch() == 3
    world.clock.advance(48 * 3_600)
    world.client.put_record(StreamName="other", Data=b"other:0", PartitionKey="k")
    world.clock.advance(2)
    query.options = options(**{"max_batch_span": 0.0, **chosen})
    query.restart()
    assert query.run_batch() == 1


def test_a_look_that_failed_in_the_middle_hides_no_record_from_the_next_one() -> None:
    """One shard was read on, the other one failed: the next look must not continue behind what the first one read."""
    world = World(2)
    query = Query(world, {**TRIM, "retry_timeout": 1.0})
    query.run_batch()
    world.clock.advance(3)
    world.put(5, hash_key=0)
    world.put(2, hash_key=HALF)
    world.clock.advance(3)

    class OneShardFails(Around):
        failing = True

        def get_records(self, **request: Any) -> Any:
            response = self.client.get_records(**request)
            if self.failing and len(response["Records"]) == 2:
                raise OSError("the connection broke")
            return response

    client = query.planner._streams.io[STREAM].client = OneShardFails(world.client)  # type: ignore[assignment]
    for probe in query.planner._search.probes.values():
        probe._cursor = None
    with pytest.raises(AwsError):
        query.run_batch()
    client.failing = False
    world.clock.advance(3)
    assert query.run_batch() == 7


def test_the_rest_of_a_limited_batch_does_not_wait_for_the_interval() -> None:
    world = World()
    query = Query(world, {**TRIM, "max_records_per_shard": 10})
    world.put(25)
    world.clock.advance(5)
    batches = []
    for _ in range(4):
        batches.append(query.run_batch())
        world.clock.advance(0.2)
    assert batches == [10, 10, 5, None]


def test_a_parent_that_leaves_the_offset_is_no_batch() -> None:
    world = World()
    query = Query(world, TRIM)
    world.put(3)
    query.run(3)
    world.split(FIRST)
    world.clock.advance(15)
    assert query.run_batch() == 0, "the parent ended"
    query.run(60)
    assert query.batches == [3, 0]
    world.put(1)
    query.run(3)
    assert FIRST not in shards_of(query.log[-1])


# -- listings that lag behind ------------------------------------------------------------------------------------------


class TornListings(Around):
    """A client whose listings omit a shard."""

    omitted: frozenset[str] = frozenset()

    def list_shards(self, **request: Any) -> Any:
        answer = self.client.list_shards(**request)
        return {**answer, "Shards": [one for one in answer["Shards"] if one["ShardId"] not in self.omitted]}


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_shard_that_listings_omit_is_read_on(
    fail_on_data_loss: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It was taken for a loss; without failOnDataLoss, the next whole listing had it read from its beginning again."""
    world = World(2)
    world.client = torn = TornListings(world.client)  # type: ignore[assignment]
    query = Query(world, {**TRIM, "fail_on_data_loss": fail_on_data_loss})
    put = world.put(3, hash_key=0) + world.put(3, hash_key=HALF)
    query.run(3)
    for omitted in ([SECOND], [], [SECOND], [FIRST], []):
        torn.omitted = frozenset(omitted)
        query.restart()
        world.clock.advance(60)
        put += world.put(2, hash_key=0) + world.put(2, hash_key=HALF)
        query.run(3)
    assert sorted(query.payloads) == sorted(put)
    assert "ListShards omits shard" in caplog.text


# -- the lag of a batch that has everything ----------------------------------------------------------------------------


def test_a_batch_that_reached_the_end_of_every_shard_is_not_behind() -> None:
    """A run of AvailableNow after a quiet half-hour: its span ends long before now, and nothing is behind it."""
    world = World()
    query = Query(world, {**TRIM, "max_batch_span": 10})
    put = world.put(100)
    world.clock.advance(1_800)
    query.planner.stop_at_now()
    while query.run_batch() is not None:
        last = query.planner.report()
    assert query.payloads == put
    assert (last["maxBehindMs"], last["limitedBy"], last["fallingBehind"]) == (0, None, False)
    # A batch that leaves something is behind as before.
    world.put(2)
    world.clock.advance(600)
    world.put(2)
    query.restart()
    assert query.run_batch() == 2
    assert query.planner.report()["limitedBy"] == "maxBatchSpan"
    assert query.planner.report()["maxBehindMs"] >= 500_000


def test_a_shard_that_was_not_looked_at_may_have_more() -> None:
    here = AfterSequence("7")
    for ends, has_all in (
        ([End(here, seen_at=10.0), End(Ended())], True),
        ([End(here, seen_at=10.0), End(here, seen_at=9.0)], False),
        ([End(here, seen_at=10.0), End(here)], False),
    ):
        found = Found(Cut(1, 2, at_tip=False), {Key(STREAM, str(n)): end for n, end in enumerate(ends)})
        assert found.has_all(10.0) is has_all
