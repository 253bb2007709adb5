"""What look-ups may read: bounds, and who is looked up first if that is not enough."""

from __future__ import annotations

import pytest

from kinesis_sdk.common.hashkeys import MAX_HASH_KEY
from kinesis_sdk.common.once.budget import LookUpBudget
from kinesis_sdk.common.once.table import REPEAT
from tests.common.once.streams import Stream, read, run

P = "shardId-000000000000"
OLD = -880_000  # as old as a mark may be


@pytest.fixture
def stream() -> Stream:
    made = Stream()
    made.open(P, 0, MAX_HASH_KEY)
    return made


def test_a_bucket_fills_up_to_its_capacity_and_keeps_a_quarter_for_young_records() -> None:
    budget = LookUpBudget(1_000, per_second=100)
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
    budget = LookUpBudget(size // 2, per_second=each)
    used = 0
    begin = 30_000
    for number in range(60):
        stream.put(P, begin + 1_000 * number, run(number, begin + 1_000 * number + OLD, flags=REPEAT))
        last = stream.logs[P][-1:]
        look_ups = []

        def shell(stream, look_up, calls, look_ups=look_ups):  # type: ignore[no-untyped-def]
            from tests.common.once.streams import carry_out

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
    reader = stream.reader(P, budget=LookUpBudget(size // 2))
    batch = read(stream, reader, stream.logs[P][-2:], now=606_000)
    assert batch.data == [b"1"]
    assert (batch.decision.repeated, batch.decision.unknown) == (1, 1)


def test_a_budget_that_is_enough_changes_nothing(stream: Stream) -> None:
    size = fill(stream, 0, 100)
    stream.put(P, 10_000, run(7, 9_990))
    stream.put(P, 15_000, run(7, 9_990, flags=REPEAT))
    reader = stream.reader(P, budget=LookUpBudget(3 * size))
    batch = read(stream, reader, stream.logs[P][-1:], now=15_000)
    assert batch.data == []
    assert (batch.decision.repeated, batch.decision.unknown) == (1, 0)
    assert reader.remembered > 100, "what was read is remembered"


def test_nothing_is_remembered_of_a_look_up_that_was_cut_short(stream: Stream) -> None:
    size = fill(stream, 0, 100)
    stream.put(P, 15_000, run(1, 15_000 + OLD, flags=REPEAT))
    reader = stream.reader(P, budget=LookUpBudget(size // 2))
    assert read(stream, reader, stream.logs[P][-1:], now=15_000).decision.unknown == 1
    assert reader.remembered == 1


def test_without_a_budget_no_record_is_read(stream: Stream) -> None:
    fill(stream, 0, 10)
    stream.put(P, 5_000, run(1, 0, flags=REPEAT))
    batch = read(stream, stream.reader(P, budget=LookUpBudget(0)), stream.logs[P][-1:], now=5_000)
    assert batch.calls.read == []
    assert batch.data == [b"1"]
    assert batch.decision.unknown == 1


def test_young_records_may_use_the_reserve_without_beginning_again(stream: Stream) -> None:
    size = fill(stream, 0, 100)
    stream.put(P, 10_000, run(7, 5, 1))
    stream.put(P, 15_000, run(7, 5, flags=REPEAT))
    reader = stream.reader(P, budget=LookUpBudget(int(size * 1.2)))
    batch = read(stream, reader, stream.logs[P][-1:], now=15_000)
    assert batch.data == []
    assert batch.decision.unknown == 0
    assert len(batch.calls.read) == 1
