"""What look-ups may read: bounds, and who is looked up first if that is not enough."""

from __future__ import annotations

import pytest

from kinesis_sdk.common.hashkeys import MAX_HASH_KEY
from kinesis_sdk.common.once.budget import CALL_BYTES, LookUpBudget
from kinesis_sdk.common.once.reader import ListShards, LookUp
from kinesis_sdk.common.once.table import NAMED, REPEAT
from tests.common.once.streams import EPOCH, Calls, Stream, carry_out, read, run

P, CHILD = "shardId-000000000000", "shardId-000000000001"
OLD = -880_000  # as old as a mark may be


def bucket(capacity: int, per_second: int = 0) -> LookUpBudget:
    """A budget of bytes alone."""
    return LookUpBudget(capacity, per_second, call_bytes=0)


@pytest.fixture
def stream() -> Stream:
    made = Stream()
    made.open(P, 0, MAX_HASH_KEY)
    return made


def test_a_bucket_fills_up_to_its_capacity_and_keeps_a_quarter_for_young_records() -> None:
    budget = bucket(1_000, per_second=100)
    budget.fill(5_000)
    budget.take(749)
    assert budget.allows(only_young=False)
    budget.take(1)
    assert not budget.allows(only_young=False)
    assert budget.allows(only_young=True)
    budget.take(1_250)
    assert not budget.allows(only_young=True)
    budget.fill(None)
    budget.fill(4_000)  # a clock that was set back takes nothing away
    assert not budget.allows(only_young=True)
    budget.fill(14_100)
    assert budget.allows(only_young=True)
    assert not budget.allows(only_young=False)
    budget.fill(1_000_000)
    budget.take(750)
    assert not budget.allows(only_young=False)


def fill(stream: Stream, begin: int, count: int, step: int = 100) -> int:
    """Put records that nobody asks for, one each 100 ms; return their bytes."""
    before = sum(len(record.data) for record in stream.logs.get(P, ()))
    for number in range(count):
        stream.put(P, begin + step * number, run(10_000 + number, begin + step * number - 50))
    return sum(len(record.data) for record in stream.logs[P]) - before


def test_forged_marks_cost_no_more_than_the_budget_and_nothing_is_lost(stream: Stream) -> None:
    size = fill(stream, 0, 300)
    each = size // 300
    budget = bucket(size // 2, per_second=each)
    used = 0
    begin = 30_000
    for number in range(60):
        stream.put(P, begin + 1_000 * number, run(number, begin + 1_000 * number + OLD, flags=REPEAT))
        last = stream.logs[P][-1:]
        look_ups: list[LookUp] = []

        def shell(stream: Stream, look_up: LookUp, calls: Calls, look_ups: list[LookUp] = look_ups) -> None:
            look_ups.append(look_up)
            carry_out(stream, look_up, calls)

        reader = stream.reader(P, budget=budget)
        batch = read(stream, reader, last, now=begin + 1_000 * number, shell=shell)
        assert batch.data == [b"%d" % number], "delivered, although an earlier copy may exist"
        used += look_ups[0].bytes_read
        if number > 5:
            assert batch.decision.unknown == 1
            assert look_ups[0].over_budget == last[0].sequence_number
    assert used <= size // 2 + 60 * each + 3 * each * 3, "capacity, what has accrued, and a response"


def test_an_honest_repetition_is_recognized_beside_a_forged_one(stream: Stream) -> None:
    size = fill(stream, 0, 300, step=2_000)  # ten minutes
    stream.put(P, 601_000, run(7, 600_990))
    stream.put(P, 606_000, run(1, 606_000 + OLD, flags=REPEAT))
    stream.put(P, 606_000, run(7, 600_990, flags=REPEAT))
    reader = stream.reader(P, budget=bucket(size // 2))
    batch = read(stream, reader, stream.logs[P][-2:], now=606_000)
    assert batch.data == [b"1"]
    assert (batch.decision.repeated, batch.decision.unknown) == (1, 1)


def test_a_budget_that_is_enough_changes_nothing(stream: Stream) -> None:
    size = fill(stream, 0, 100)
    stream.put(P, 10_000, run(7, 9_990))
    stream.put(P, 15_000, run(7, 9_990, flags=REPEAT))
    reader = stream.reader(P, budget=bucket(3 * size))
    batch = read(stream, reader, stream.logs[P][-1:], now=15_000)
    assert batch.data == []
    assert (batch.decision.repeated, batch.decision.unknown) == (1, 0)
    assert reader.remembered > 100, "what was read is remembered"


def test_nothing_is_remembered_of_a_look_up_that_was_cut_short(stream: Stream) -> None:
    size = fill(stream, 0, 100)
    stream.put(P, 15_000, run(1, 15_000 + OLD, flags=REPEAT))
    reader = stream.reader(P, budget=bucket(size // 2))
    assert read(stream, reader, stream.logs[P][-1:], now=15_000).decision.unknown == 1
    assert reader.remembered == 1


def test_calls_that_return_little_are_bounded_as_well(stream: Stream) -> None:
    """A shard in which little is stored takes many calls for few bytes."""
    fill(stream, 0, 300)
    stream.put(P, 30_000, run(1, 30_000 + OLD, flags=REPEAT))
    budget, pages = LookUpBudget(8 * CALL_BYTES), 0

    def shell(stream: Stream, look_up: LookUp, calls: Calls) -> None:
        nonlocal pages
        rest = stream.logs[P]
        while look_up.step is not None:
            look_up.page(rest[:1], at_end=False)
            pages, rest = pages + 1, rest[1:]

    batch = read(stream, stream.reader(P, budget=budget), stream.logs[P][-1:], now=30_000, shell=shell)
    assert pages == 6, "the rest is left for young records"
    assert batch.data == [b"1"]
    assert batch.decision.unknown == 1


def test_calls_that_find_the_oldest_record_count_as_well(stream: Stream) -> None:
    stream.open(CHILD, 0, MAX_HASH_KEY, P)
    stream.put(CHILD, 5_000, run(1, 0, flags=REPEAT))
    pages = 0

    def shell(stream: Stream, look_up: LookUp, calls: Calls) -> None:
        nonlocal pages
        while (step := look_up.step) is not None:
            if isinstance(step, ListShards):
                look_up.listed(stream.shards.values())
                continue
            own = step.shard_id == CHILD and step.since_millis is not None
            look_up.page([], at_end=own)  # empty responses without end, from the oldest record on
            pages += 1

    reader = stream.reader(CHILD, budget=LookUpBudget(8 * CALL_BYTES))
    batch = read(stream, reader, stream.logs[CHILD][-1:], now=5_000, shell=shell)
    assert pages <= 8 + 2
    assert batch.data == [b"1"]
    assert batch.decision.unknown == 1


@pytest.mark.parametrize("flags", [REPEAT, NAMED | REPEAT])
def test_a_reach_leaves_out_the_same_records_whatever_was_read_before(stream: Stream, flags: int) -> None:
    """For a reader whose decisions must not depend on what it has in its memory, nor on how it is answered."""
    fill(stream, 0, 10, step=1_000)
    stream.put(
        P, 30_000, run(7, 29_000, flags=flags)
    )  # its reach is enough; its copies come 70 s later, and 60 s after that
    stream.put(P, 100_000, run(7, 29_000, flags=flags))
    stream.put(P, 160_001, run(7, 29_000, flags=flags))
    log = stream.logs[P]
    for begin in (0, len(log) - 2, len(log) - 1):
        for size in (1, 2, len(log)):
            reader, found, unknown = stream.reader(P, reach_millis=60_000, drops_equal=False), set(), 0
            for at in range(begin, len(log), size):
                batch = read(stream, reader, log[at : at + size], now=160_001)
                found.update(number for number, _ in batch.positions)
                unknown += batch.decision.unknown
            assert found == {record.sequence_number for record in log[begin:]}, "all are delivered"
            assert unknown == min(len(log) - begin, 2), (
                "what may have an earlier copy beyond the reach is counted"
            )


@pytest.mark.parametrize("begin", [0, 1])
def test_a_copy_within_the_reach_is_dropped(stream: Stream, begin: int) -> None:
    stream.put(P, 0, run(7, -100))
    stream.put(P, 60_000, run(7, -100, flags=REPEAT))
    reader = stream.reader(P, reach_millis=60_000)
    batch = read(stream, reader, stream.logs[P][begin:], now=60_000)
    assert (batch.decision.repeated, batch.decision.unknown) == (1, 0)


def test_a_forged_date_costs_no_more_than_the_reach(stream: Stream) -> None:
    fill(stream, 0, 300, step=1_000)
    stream.put(P, 300_000, run(1, 300_000 + OLD, flags=REPEAT))
    look_ups = []

    def shell(stream: Stream, look_up: LookUp, calls: Calls) -> None:
        look_ups.append(look_up.since_millis - EPOCH)
        carry_out(stream, look_up, calls)

    reader = stream.reader(P, reach_millis=60_000)
    batch = read(stream, reader, stream.logs[P][-1:], now=300_000, shell=shell)
    assert look_ups == [240_000]
    assert batch.data == [b"1"]
    assert batch.decision.unknown == 1


def test_without_a_budget_no_record_is_read(stream: Stream) -> None:
    fill(stream, 0, 10)
    stream.put(P, 5_000, run(1, 0, flags=REPEAT))
    batch = read(stream, stream.reader(P, budget=bucket(0)), stream.logs[P][-1:], now=5_000)
    assert batch.calls.read == []
    assert batch.data == [b"1"]
    assert batch.decision.unknown == 1


def test_young_records_may_use_the_reserve_without_beginning_again(stream: Stream) -> None:
    size = fill(stream, 0, 100)
    stream.put(P, 10_000, run(7, 5, 1))
    stream.put(P, 15_000, run(7, 5, flags=REPEAT))
    reader = stream.reader(P, budget=bucket(int(size * 1.2)))
    batch = read(stream, reader, stream.logs[P][-1:], now=15_000)
    assert batch.data == []
    assert batch.decision.unknown == 0
    assert len(batch.calls.read) == 1
