"""Agenda of the I/O loop: which streams it looks at, in which order, and that a turn costs no more with more of them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer import ProducerConfig
from kinesis_sdk.producer.engine import Engine
from kinesis_sdk.producer.io.agenda import Agenda
from kinesis_sdk.producer.stream.pipeline import StreamPipeline
from kinesis_sdk.producer.stream.topology import StreamFacts
from kinesis_sdk.testing import VirtualClock
from tests.producer.support import interpreted, shard

NEVER = float("inf")


def pipelines(count: int, agenda: Agenda | None = None) -> list[StreamPipeline]:
    made = [StreamPipeline(StreamId(f"s{n}"), ProducerConfig(), random.Random(0)) for n in range(count)]
    for pipeline in made if agenda else ():
        agenda.enter(pipeline)
    return made


def free(slots: int) -> Callable[[], bool]:
    """Whether a connection is free, so many times."""
    left = iter([True] * slots)
    return lambda: next(left, False)


def test_streams_are_looked_at_when_they_are_due_or_touched_in_the_order_of_their_places() -> None:
    agenda = Agenda()
    first, second, third = pipelines(3, agenda)
    agenda.put_back(third, 1.0, waits=False)
    agenda.put_back(second, 2.0, waits=False)
    agenda.put_back(first, 1.0, waits=False)
    assert agenda.next_moment == 1.0
    assert not [*agenda.due(0.9, free(9))]
    assert [*agenda.due(1.0, free(9))] == [first, third]
    agenda.put_back(second, 3.0, waits=False)  # the moment before no longer counts
    assert agenda.next_moment == 3.0
    agenda.enter(first)
    for pipeline in (first, second):
        agenda.touch(pipeline)
    assert [*agenda.due(2.0, free(9))] == [second, first]
    assert not [*agenda.due(2.0, free(9))]


def test_streams_that_wait_for_a_connection_are_looked_at_while_one_is_free() -> None:
    agenda = Agenda()
    first, second, third, fourth = pipelines(4, agenda)
    for pipeline in (fourth, first, second, first):
        agenda.put_back(pipeline, NEVER, waits=True)
    agenda.touch(third)
    assert [*agenda.due(1.0, free(1))] == [first, third]
    agenda.enter(second)  # behind the fourth
    agenda.put_back(fourth, NEVER, waits=False)
    assert [*agenda.due(1.0, free(0))] == []
    assert [*agenda.due(1.0, free(9))] == [second]
    agenda.put_back(first, NEVER, waits=True)
    agenda.touch(first)
    assert [*agenda.due(1.0, free(9))] == [first], "once, although it has two reasons"


# ---------------------------------------------------------------------- counted steps


def steps_of(action: Callable[[], Any]) -> int:
    """Calls that an action makes, of Python's functions and of C's."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


class Turns:
    """An engine in virtual time whose loop takes a turn when told, without a thread."""

    def __init__(self, streams: int, shards: int = 1, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.engine = Engine(object(), ProducerConfig(**settings), self.clock, random.Random(0))
        self.loop = self.engine._loop
        self.loop._thread = object()  # type: ignore[assignment]  # it runs
        self.tasks: list[Callable[[], None]] = []  # of the last turn
        self.pipelines = [self.engine.pipeline(StreamId(f"s{number}")) for number in range(streams)]
        width = 2**128 // shards
        facts = StreamFacts([shard(n, n * width, (n + 1) * width - 1) for n in range(shards)], None, False)
        for pipeline in self.pipelines:
            pipeline.topology.begin_load(self.clock.monotonic())
            pipeline.on_facts(facts, self.clock.monotonic())

    def put(self, stream: int, shard: int = 0, of: int = 1) -> None:
        hash_key = 2**128 // of * shard
        self.engine.accept(self.pipelines[stream], "k", str(hash_key), b"x", hash_key.to_bytes(16, "big"), 0)

    def turn(self) -> tuple[int, int]:
        """How many requests leave, and in how many steps that is found."""
        work: list[Any] = []
        now = self.clock.monotonic()
        steps = steps_of(lambda: work.append(self.loop._collect_work(now)))
        self.tasks = work[0][0]
        return len(self.tasks), steps


def test_a_turn_costs_the_same_with_four_times_as_many_streams() -> None:
    def cost(streams: int) -> tuple[int, ...]:
        turns = Turns(streams, record_max_buffered_time=1.0)
        for stream in range(streams):
            turns.put(stream)
            turns.clock.advance(0.001)
        turns.turn()
        turns.clock.advance(1.05)
        assert turns.turn()[0] == streams
        turns.put(0)
        waits = turns.turn()[1]
        turns.clock.advance(1.05)
        sent, steps = turns.turn()
        assert sent == 1
        return waits, steps, turns.turn()[1]

    assert cost(4) == cost(16)


def test_a_response_wakes_the_loop_only_if_there_is_something_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns(2, max_connections=1, record_max_buffered_time=0.0)
    shared, woken = turns.engine._shared, []
    stored = {"Records": [{"ShardId": "shardId-000000000000", "SequenceNumber": "1"}]}
    monkeypatch.setattr(turns.loop, "_put", lambda *_: stored)
    turns.put(0)
    turns.put(1)
    assert turns.turn()[0] == 1
    shared.sleeping_until = NEVER
    monkeypatch.setattr(shared.wake, "notify", lambda: woken.append(None))
    turns.tasks[0]()
    assert woken, "the other stream waits for the connection"
    woken.clear()
    assert turns.turn()[0] == 1
    turns.tasks[0]()
    assert not woken
    assert turns.engine.counters.user_records_stored == 2


def test_a_stream_is_looked_at_at_its_deadline_and_not_after_a_record_or_a_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns(1, record_max_buffered_time=1.0)
    agenda = turns.engine._shared.agenda
    stored = {"Records": [{"ShardId": "shardId-000000000000", "SequenceNumber": "1"}]}
    monkeypatch.setattr(turns.loop, "_put", lambda *_: stored)
    for _ in range(2):
        now = turns.clock.monotonic()
        turns.put(0)
        assert not [*agenda.due(now, free(9))]
        assert agenda.next_moment == now + turns.pipelines[0].buffered_time
        turns.clock.advance(1.05)
        assert turns.turn()[0] == 1
        turns.tasks[0]()
        assert not [*agenda.due(turns.clock.monotonic(), free(9))]
        assert agenda.next_moment == NEVER
    assert turns.engine.counters.user_records_stored == 2


@interpreted
def test_a_complete_kinesis_record_has_the_stream_looked_at_only_if_its_request_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns(1, aggregation_enabled=False, collection_max_count=3, record_max_buffered_time=1.0)
    shared, queue = turns.engine._shared, turns.pipelines[0].queue
    looks, next_event = [], queue.next_event
    monkeypatch.setattr(queue, "next_event", lambda *args: looks.append(args) or next_event(*args))
    due = turns.clock.monotonic() + turns.pipelines[0].buffered_time
    for _ in range(2):
        turns.put(0)
        assert shared.agenda.next_moment == due
        shared.sleeping_until = due
        turns.clock.advance(0.1)
    assert not looks
    turns.put(0)  # the request is full
    assert len(looks) == 1
    assert shared.sleeping_until == -NEVER
    assert turns.turn()[0] == 1


@pytest.mark.parametrize("mixed", [False, True])
def test_a_turn_costs_the_same_however_many_aggregates_are_due_later(mixed: bool) -> None:
    def cost(later: int) -> int:
        turns = Turns(1, shards=64, record_max_buffered_time=10.0)
        begin = turns.clock.monotonic()
        turns.put(0, 0, 64)
        if mixed:  # until the next scan, it is not known in which order they are due
            turns.pipelines[0].queue.aggregator._latest = NEVER
        turns.clock.advance(2.0)
        turns.put(0, 1, 64)
        turns.clock.advance(8.1)
        for number in range(later):
            turns.put(0, number + 2, 64)
        assert turns.turn()[0] == 1
        turns.clock.advance(2.0)
        requests, steps = turns.turn()
        assert requests == 1
        assert turns.pipelines[0].queue.aggregator.next_deadline == pytest.approx(begin + 20.15)
        return steps

    assert cost(8) == cost(32)


def test_a_stream_whose_records_do_not_share_aggregates_makes_few_calls() -> None:
    turns, calls = Turns(1, shards=64), 0
    for number in range(120):  # a record each 10 ms, each for another shard
        turns.put(0, number % 64, 64)
        calls += turns.turn()[0]
        turns.clock.advance(0.01)
    assert calls == 9, "one within 0.12 s and the 10 ms until the next record"


def test_a_free_connection_costs_the_same_however_many_streams_wait_for_it() -> None:
    def cost(streams: int) -> int:
        turns = Turns(streams, max_connections=1)
        for stream in range(streams):
            turns.put(stream)
        turns.clock.advance(1.0)
        turns.turn()
        turns.clock.advance(1.0)
        assert turns.turn()[0] == 1
        assert turns.turn()[0] == 0
        turns.loop._in_flight -= 1
        sent, steps = turns.turn()
        assert sent == 1
        return steps

    # Finding the next place is the depth of a heap.
    assert cost(32) <= cost(8) + 4


def test_a_turn_costs_the_same_with_four_times_as_many_shards() -> None:
    def cost(shards: int) -> tuple[int, ...]:
        turns = Turns(1, shards, record_max_buffered_time=1.0)
        for number in range(shards):
            turns.put(0, number, shards)
        for _ in range(3):
            turns.clock.advance(1.1)
            turns.turn()
        assert len(turns.pipelines[0].queue.lanes) == shards
        turns.put(0)
        counts = []
        for _ in range(3):
            counts.append(turns.turn()[1])
            turns.clock.advance(1.1)
        return tuple(counts)

    assert cost(4) == cost(16)


def test_a_put_costs_the_same_however_many_shards_are_busy_while_the_loop_is_awake() -> None:
    def cost(busy: int) -> int:
        turns = Turns(1, shards=64, aggregation_enabled=False, ordering="per_shard")
        for number in range(busy):
            for _ in range(2):  # the second one waits for the first one
                turns.put(0, number, 64)
        assert len(turns.pipelines[0].queue._busy_lanes) == busy
        return steps_of(lambda: turns.put(0, 0, 64))

    assert cost(8) == cost(32)
