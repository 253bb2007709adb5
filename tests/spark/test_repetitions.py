"""Repetitions of idempotent producers in Spark's ranges: cut anywhere, replayed, and read with what the driver knows."""

from __future__ import annotations

import logging
import pickle
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.once.budget import MAX_BYTES
from kinesis_sdk.common.once.table import NAMED, REPEAT, Run
from kinesis_sdk.common.position import AfterSequence, TrimHorizon
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.shards import ShardGraph, list_shards
from kinesis_sdk.spark.arrow import BatchBuilder
from kinesis_sdk.spark.planner import StreamPlanner
from kinesis_sdk.spark.positions import StartingPosition
from kinesis_sdk.spark.reading import ShardRange
from kinesis_sdk.spark.repetitions import RangeRepetitions
from kinesis_sdk.testing import Fault
from kinesis_sdk.testing.accounting.stored_copies import CopyPosition
from tests import fuzz
from tests.common.once.streams import aggregate
from tests.once_model.simulated import produce, read_shard
from tests.producer.simulation import STREAM, Simulation
from tests.spark.support import FIRST, SECOND, World, options

Rows = list[tuple[bytes, CopyPosition]]


def rows_of(item: ShardRange, records: list[KinesisRecord], simulation: Simulation, random: Random) -> Rows:
    """Return the rows of a range, read in pages of random sizes."""
    repetitions = RangeRepetitions(
        item,
        simulation.client,
        clock=simulation.clock,
        sleep=simulation.clock.advance,
        max_bytes=random.choice([1_000, MAX_BYTES]),
    )
    builder = BatchBuilder(
        STREAM, deaggregate=True, columns=["data", "shardId", "sequenceNumber", "subSequenceNumber"]
    )
    rows: Rows = []
    while records:
        size = random.choice([1, 2, 5, 100])
        page, records = records[:size], records[size:]
        repetitions.begin(page)
        for batch in builder.build(item.shard_id, page, judge=repetitions.judge):
            for row in batch.to_pylist():
                number = row["subSequenceNumber"] or 0
                rows.append((row["data"], CopyPosition(row["shardId"], int(row["sequenceNumber"]), number)))
    return rows


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=12, fuzz=100))
@given(seed=st.integers(0, 2**63))
def test_ranges_that_are_cut_anywhere_have_each_record_once_and_replays_are_equal(seed: int) -> None:
    simulation, outcome, random = produce(seed)
    shards = list(list_shards(simulation.client, simulation.stream))
    graph = ShardGraph(shards)
    for shard in shards:
        lineage = tuple(graph.shards[name] for name in (shard.shard_id, *graph.ancestors(shard.shard_id)))
        records = read_shard(simulation, shard)
        while records:
            size = random.choice([1, 3, 10, 1000])
            part, records = records[:size], records[size:]
            end = AfterSequence(part[-1].sequence_number)
            item = ShardRange(simulation.stream, shard.shard_id, TrimHorizon(), end, lineage=lineage)
            rows = rows_of(item, part, simulation, random)
            assert rows_of(item, part, simulation, random) == rows, "a replay has equal rows, in equal order"
            for data, position in rows:
                outcome.delivered.setdefault(data, set()).add(position)
    assert outcome.delivered == {name: found for name, found in outcome.expected.items() if found}


class _Spy:
    """A client that notes which calls are made."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls: list[str] = []
        self.starts: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def spy(**request: Any) -> Any:
            self.calls.append(name)
            self.starts += [request["Timestamp"]] if "Timestamp" in request else []
            return call(**request)

        return spy


@pytest.fixture
def world() -> World:
    """A stream with a record in a shard that was split, and its repetition in the child."""
    world = World()
    date = int(world.clock.time() * 1000)
    _put(world, 0, date)
    world.split(FIRST)
    world.clock.advance(5)
    _put(world, REPEAT, date)
    world.clock.advance(10)
    return world


def _put(world: World, flags: int, date: int) -> None:
    data = aggregate([Run(1, 4, flags, b"producer", date, 7)], None)
    world.client.put_record(StreamName=STREAM, PartitionKey="a", ExplicitHashKey="1", Data=data)


def _ranges(world: World) -> dict[str, ShardRange]:
    planner = StreamPlanner(
        world.client,
        options(starting_position=StartingPosition(TrimHorizon())),
        clock=world.clock,
        sleep=world.clock.advance,
        admission_control=True,
    )
    return {item.shard_id: item for item in planner.plan_read()}


def _judged(world: World, item: ShardRange, client: Any, **settings: Any) -> tuple[int, RangeRepetitions]:
    """Return the rows of a range, and what recognized its repetitions."""
    repetitions = RangeRepetitions(item, client, clock=world.clock, sleep=world.clock.advance, **settings)
    records = [KinesisRecord.from_api(one) for one in world.records(item.shard_id)]
    repetitions.begin(records)
    built = BatchBuilder(STREAM, deaggregate=True).build(item.shard_id, records, judge=repetitions.judge)
    return sum(batch.num_rows for batch in built), repetitions


def test_the_driver_tells_the_lineage_so_that_tasks_list_no_shards(world: World) -> None:
    ranges = pickle.loads(pickle.dumps(_ranges(world)))
    parent, child = ranges[FIRST], ranges[SECOND]
    assert [shard.shard_id for shard in child.lineage] == [SECOND, FIRST]
    spy = _Spy(world.client)

    assert _judged(world, parent, spy)[0] == 1
    assert not spy.calls, "nothing is suspect"
    rows, repetitions = _judged(world, child, spy)

    assert (rows, repetitions.dropped) == (0, 1)
    assert _judged(world, child, world.client, recognizes=False)[0] == 1, "as it is stored"
    assert "get_records" in spy.calls
    assert "list_shards" not in spy.calls


def test_a_copy_that_may_not_be_looked_for_is_a_row_and_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    child = _ranges(world)[SECOND]
    world.aws.faults.add(
        Fault(kind="error", operation="GetShardIterator", code="AccessDeniedException", status=400, after=1)
    )
    with caplog.at_level(logging.WARNING):
        rows, repetitions = _judged(world, child, world.client)

    assert (rows, repetitions.dropped, repetitions.unknown) == (1, 0, 1)
    assert "may be repetitions" in caplog.text


def test_a_mark_with_a_forged_date_makes_a_task_read_no_more_than_the_span(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    shard = FIRST
    world.clock.advance(900)

    def put(number: int, flags: int, seconds_ago: int) -> None:
        date = int((world.clock.time() - seconds_ago) * 1000)
        data = aggregate([Run(1, 4, flags, b"producer", date, number)], shard)
        world.client.put_record(StreamName=STREAM, PartitionKey="a", ExplicitHashKey="1", Data=data)

    put(7, 0, 0)
    world.clock.advance(30)
    put(7, REPEAT, 30)
    put(8, REPEAT, 890)
    spy = _Spy(world.client)
    item = replace(_ranges(world)[shard], before=10**15)  # without a memory
    rows, repetitions = _judged(world, item, spy, max_span=60.0)
    assert (rows, repetitions.dropped, repetitions.unknown) == (2, 1, 1)
    (start,) = spy.starts
    assert world.clock.time() - start.timestamp() < 62
    assert "may be repetitions" in caplog.text


def test_a_record_whose_name_was_taken_is_named_in_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    shard = SECOND
    date = int(world.clock.time() * 1000) - 300_000
    data = aggregate([Run(1, 4, NAMED, b"producer", date, 9)], shard, [1])
    for _ in range(2):
        world.client.put_record(StreamName=STREAM, PartitionKey="a", ExplicitHashKey="1", Data=data)

    rows, repetitions = _judged(world, _ranges(world)[shard], world.client)

    assert (rows, repetitions.dropped, repetitions.named) == (1, 2, 1), (
        "one of them is the marked copy of the parent's"
    )
    assert "are dropped: they were put for the first time" in caplog.text


def test_misplaced_aggregates_of_idempotent_producers_are_dropped_whatever_the_option_says(
    world: World,
) -> None:
    ranges = _ranges(world)
    date = int(world.clock.time() * 1000)
    data = aggregate([Run(2, 4, 0, b"producer", date, 9)], FIRST, [1, 2**128 - 1])
    world.client.put_record(StreamName=STREAM, PartitionKey="a", ExplicitHashKey="1", Data=data)

    rows, repetitions = _judged(world, ranges[SECOND], world.client)

    assert (rows, repetitions.dropped) == (0, 3)


def test_a_part_of_an_aggregate_is_dropped_and_the_others_keep_their_numbers() -> None:
    builder = BatchBuilder(STREAM, deaggregate=True, columns=["data", "subSequenceNumber"])
    data = aggregate([Run(6, 4, 0, b"producer", 0, 10)], None)
    record = KinesisRecord(data, "a", "5", None)

    def rows(*dropped: tuple[int, int]) -> list[tuple[bytes, int]]:
        built = builder.build(FIRST, [record], judge=lambda *_: dropped)
        return [(row["data"], row["subSequenceNumber"]) for batch in built for row in batch.to_pylist()]

    everything = [(b"%d" % (10 + number), number) for number in range(6)]
    assert rows() == everything
    assert rows((0, 1), (4, 4)) == [everything[2], everything[3], everything[5]]
    assert rows((5, 5)) == everything[:5]
    assert rows((0, 5)) == []


@pytest.mark.parametrize("before", [None, 10**15])
def test_a_page_beyond_the_memory_is_looked_up_once(
    caplog: pytest.LogCaptureFixture, before: int | None
) -> None:
    """Named records, of which the memory of a task holds only a few: one look-up for each page, whatever it holds."""
    world = World()
    world.clock.advance(60)
    for number in range(40):
        # Of 20 s before, and in the window of 25 s.
        for name in sorted({number, max(0, number - 20)}):
            date = int(world.clock.time() * 1000) - 25_000
            data = aggregate([Run(1, 4, NAMED, b"producer", date, name)], None)
            world.client.put_record(StreamName=STREAM, PartitionKey="a", ExplicitHashKey="1", Data=data)
        world.clock.advance(1)
    item = replace(_ranges(world)[FIRST], before=before)
    records = [KinesisRecord.from_api(one) for one in world.records(item.shard_id)]
    spy = _Spy(world.client)
    repetitions = RangeRepetitions(item, spy, clock=world.clock, sleep=world.clock.advance, max_bytes=1_000)  # type: ignore[arg-type]
    builder = BatchBuilder(STREAM, deaggregate=True, columns=["data"])
    rows: list[bytes] = []
    pages = [records[begin : begin + 10] for begin in range(0, len(records), 10)]
    for page in pages:
        repetitions.begin(page)
        for batch in builder.build(item.shard_id, page, judge=repetitions.judge):
            rows += [row["data"] for row in batch.to_pylist()]
    assert rows == [b"%d" % number for number in range(40)]
    assert repetitions.dropped == len(records) - 40
    assert repetitions.look_ups == spy.calls.count("get_shard_iterator") == len(pages) == 8
    told = [line for line in caplog.messages if "maxRepetitionBytes is too small" in line]
    assert len(told) == (before is None), "a batch read that leaves records out remembers nothing at all"


def test_the_rows_of_a_page_that_was_judged_ahead_are_those_of_the_others() -> None:
    """Aggregates without a table, and of one that does not fit, stand between those that are looked up."""
    world = World()
    date = int(world.clock.time() * 1000)
    for number, table in ((7, None), (8, "no table"), (9, None), (9, None), (7, "no table")):
        data = aggregate([Run(1, 4, REPEAT, b"producer", date, number)], None, table=table)
        world.client.put_record(StreamName=STREAM, PartitionKey="a", ExplicitHashKey="1", Data=data)
    world.client.put_record(StreamName=STREAM, PartitionKey="a", ExplicitHashKey="1", Data=b"plain")
    spy = _Spy(world.client)
    rows, repetitions = _judged(world, _ranges(world)[FIRST], spy)
    assert (rows, repetitions.dropped, repetitions.look_ups) == (5, 1, 1)
    assert spy.calls.count("get_shard_iterator") == 1


def test_a_shard_that_the_driver_did_not_find_is_listed_by_the_task(world: World) -> None:
    """Only its range shows that aggregates are valid that were made without a map."""
    child = replace(_ranges(world)[SECOND], lineage=())
    _put(world, REPEAT, int(world.clock.time() * 1000) - 5_000)
    _put(world, REPEAT, int(world.clock.time() * 1000) - 5_000)
    spy = _Spy(world.client)
    rows, repetitions = _judged(world, child, spy)
    assert (rows, repetitions.dropped, repetitions.unknown) == (1, 2, 0)
    assert spy.calls.count("list_shards") == 1
