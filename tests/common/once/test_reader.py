"""The rules of a reader: what is dropped, what is looked up, and that nothing is dropped for itself."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pytest

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY
from kinesis_sdk.common.once.budget import MAX_BYTES
from kinesis_sdk.common.once.memory import RUN_BYTES, RunMemory, Shortage
from kinesis_sdk.common.once.pieces import Pieces
from kinesis_sdk.common.once.reader import EARLY_MILLIS, ListShards, LookUp, ReadShard
from kinesis_sdk.common.once.table import FIRST, NAMED, REPEAT, Run, encode_table
from tests.common.once.streams import (
    EPOCH,
    MIDDLE,
    STREAM,
    Calls,
    Position,
    Stream,
    aggregate,
    carry_out,
    in_order,
    read,
    run,
)
from tests.fuzz import seeds

A, B, P, M = "shardId-000000000001", "shardId-000000000002", "shardId-000000000000", "shardId-000000000003"


@pytest.fixture
def stream() -> Stream:
    made = Stream()
    made.open(P, 0, MAX_HASH_KEY)
    return made


def split(stream: Stream) -> None:
    stream.open(A, 0, MIDDLE, P)
    stream.open(B, MIDDLE + 1, MAX_HASH_KEY, P)


def refuse(stream: Stream, look_up: LookUp, calls: Calls) -> None:
    look_up.refused()


# R2: nearly every record


def test_records_that_arrive_at_once_are_delivered_without_a_look_up(stream: Stream) -> None:
    for number in range(5):
        stream.put(P, number * 100 + 50, run(number, number * 100))
    batch = read(stream, stream.reader(P), stream.logs[P])
    assert batch.data == [b"0", b"1", b"2", b"3", b"4"]
    assert batch.calls == Calls()


@pytest.mark.parametrize(("arrival", "looks"), [(1999, False), (2000, True)])
def test_a_record_is_suspect_from_two_seconds_before_its_hold_off_on(
    stream: Stream, arrival: int, looks: bool
) -> None:
    stream.put(P, arrival, run(1, 0))
    batch = read(stream, stream.reader(P), stream.logs[P])
    assert batch.data == [b"1"]
    assert bool(batch.calls.read) == looks


@pytest.mark.parametrize(("arrival", "looks"), [(12_999, False), (13_000, True)])
def test_a_first_copy_of_a_name_is_suspect_from_two_seconds_before_its_hold_off_on(
    stream: Stream, arrival: int, looks: bool
) -> None:
    stream.put(P, -200_000, run(1, 0, incarnation=b"another."))
    stream.put(P, arrival, run(7, 0, flags=NAMED | FIRST, holdoff=15))
    batch = read(stream, stream.reader(P), stream.logs[P][1:])
    assert batch.data == [b"7"]
    assert bool(batch.calls.read) == looks


def test_no_first_copy_of_a_busy_writer_is_looked_up_and_the_memory_stays_small(stream: Stream) -> None:
    """Without the flag, each batch would be looked up, or 300 s of names remembered."""
    for number in range(300):
        stream.put(P, number * 1000 + 50, run(number, number * 1000 - 2000, flags=NAMED | FIRST, holdoff=6))
    reader = stream.reader(P)
    calls = [read(stream, reader, stream.logs[P][at : at + 5]).calls for at in range(0, 300, 5)]
    assert calls == [Calls()] * 60
    assert reader.remembered < 80
    assert read(stream, stream.reader(P), stream.logs[P][150:]).calls == Calls()


def test_a_late_first_copy_is_looked_up_from_its_date_and_no_further_back(stream: Stream) -> None:
    stream.put(P, -50_000, run(7, -300_000, flags=NAMED))
    stream.put(P, 20_000, run(7, 0, flags=NAMED | FIRST, holdoff=15))
    reader = stream.reader(P)
    reader.begin(stream.logs[P][1:])
    deaggregate(stream.logs[P][1:], on_tagged=reader.add)
    look_up = reader.look_up()
    assert look_up is not None
    assert look_up.step == ReadShard(P, EPOCH - EARLY_MILLIS)
    # What was put before its date is another record.
    assert read(stream, stream.reader(P), stream.logs[P]).data == [b"7", b"7"]


@pytest.mark.parametrize("first", [100, 30_000], ids=["before", "behind"])
def test_a_first_copy_and_its_repetition_are_delivered_once_in_either_order(
    stream: Stream, first: int
) -> None:
    copies = [
        (first, run(7, 0, flags=NAMED | FIRST, holdoff=15)),
        (16_000, run(7, -284_000, flags=NAMED)),
        (60_000, run(7, 0, flags=NAMED | REPEAT)),
    ]
    for at, one in sorted(copies):
        stream.put(P, at, one)
    for since in range(3):
        batch = read(stream, stream.reader(P), stream.logs[P][since:])
        assert batch.data == ([b"7"] if since == 0 else [])


def test_a_first_copy_whose_arrival_is_not_known_is_a_suspect(stream: Stream) -> None:
    stream.put(P, 100, run(7, -300_000, flags=NAMED))
    stream.put(P, None, run(7, 0, flags=NAMED | FIRST, holdoff=15))
    assert read(stream, stream.reader(P), stream.logs[P]).data == [b"7"]


@pytest.mark.parametrize("date", [-3_600_000, 0, 3_600_000])
def test_a_forged_first_copy_withholds_no_record_without_a_name(stream: Stream, date: int) -> None:
    """Whoever knows a record's identity may claim it, also with absurd dates; what has no name is another record."""
    for at in (0, 50):
        stream.put(P, at, run(7, date, flags=NAMED | FIRST, holdoff=15))
        stream.put(P, at + 10, run(7, date, flags=NAMED | FIRST, holdoff=1), run(8, at))
    stream.put(P, 100, run(7, 0, 2), run(7, -300_000, flags=NAMED))
    stream.put(P, 60_000, run(7, 0, 2, flags=REPEAT))
    batch = read(stream, stream.reader(P), stream.logs[P])
    assert [number for number in batch.data if number == b"8"] == [b"8"] * 3
    assert (stream.logs[P][4].sequence_number, 0) in batch.positions, "the record without a name"
    assert (stream.logs[P][4].sequence_number, 2) not in batch.positions, "the named one is withheld"
    assert not [one for one in batch.positions if one[0] == stream.logs[P][5].sequence_number]
    assert b"7" in batch.data[:2], "one of the forged ones is delivered"


# R3 and R4: memory


def test_a_marked_copy_is_dropped_and_the_original_delivered(stream: Stream) -> None:
    stream.put(P, 100, run(7, 0, 3))
    stream.put(P, 5000, run(7, 0, 3, flags=REPEAT))
    batch = read(stream, stream.reader(P), stream.logs[P])
    assert batch.data == [b"7", b"8", b"9"]
    assert batch.decision.repeated == 3
    assert batch.calls == Calls()


def test_a_run_of_which_a_part_is_repeated_loses_that_part(stream: Stream) -> None:
    stream.put(P, 100, run(11, 0, 2))
    stream.put(P, 5000, run(10, 0, 4, flags=REPEAT))
    batch = read(stream, stream.reader(P), stream.logs[P], shell=refuse)
    assert batch.data == [b"11", b"12", b"10", b"13"]


def test_what_is_read_again_is_not_dropped_for_itself(stream: Stream) -> None:
    stream.put(P, 100, run(1, 0))
    stream.put(P, 5000, run(2, 0, flags=REPEAT))
    stream.put(P, 5500, run(2, 0))
    reader = stream.reader(P)
    first = read(stream, reader, stream.logs[P])
    assert first.data == [b"1", b"2"]
    for begin in range(3):  # a handler failed, and its batch is read again
        again = read(stream, reader, stream.logs[P][begin:])
        assert again.positions == [
            position for position in first.positions if position[0] >= stream.logs[P][begin].sequence_number
        ]
        assert reader.remembered == 3


def test_a_batch_that_is_forgotten_leaves_no_trace(stream: Stream) -> None:
    stream.put(P, 100, run(1, 0))
    stream.put(P, 5000, run(1, 0, flags=REPEAT))
    reader = stream.reader(P)
    reader.begin(stream.logs[P])
    deaggregate(stream.logs[P], on_tagged=reader.add)
    reader.forget_batch()
    assert reader.is_idle
    assert read(stream, reader, stream.logs[P]).data == [b"1"]


def test_a_copy_that_is_older_than_what_matters_does_not_count(stream: Stream) -> None:
    def named(date: int) -> Run:
        return run(5, date, flags=NAMED, incarnation=b"order-77")

    stream.put(P, 100, named(-300_000))
    stream.put(P, 200_000, named(-100_000))  # within 300 s of the first
    stream.put(P, 600_000, named(300_000))  # 400 s after the second
    batch = read(stream, stream.reader(P), stream.logs[P])
    assert batch.positions == [
        (stream.logs[P][0].sequence_number, 0),
        (stream.logs[P][2].sequence_number, 0),
    ]


@pytest.mark.parametrize("flags", [NAMED, NAMED | REPEAT])
def test_a_name_whose_window_is_over_is_another_record_at_once(stream: Stream, flags: int) -> None:
    stream.put(P, 100, run(5, -1000, flags=NAMED))  # a window of 1 s
    stream.put(P, 10_000, run(5, 8900, flags=flags))
    for since in (0, 1):
        batch = read(stream, stream.reader(P), stream.logs[P][since:])
        assert batch.positions[-1] == (stream.logs[P][1].sequence_number, 0)


# R5: look-ups


def test_a_take_over_between_two_copies_looks_the_first_one_up(stream: Stream) -> None:
    stream.put(P, 100, run(7, 0))
    stream.put(P, 5000, run(7, 0, flags=REPEAT), run(8, 4900))
    batch = read(stream, stream.reader(P), stream.logs[P][1:])
    assert batch.data == [b"8"]
    assert batch.calls == Calls(read=[P])


def test_a_checkpoint_inside_an_aggregate_counts_the_whole_aggregate(stream: Stream) -> None:
    stream.put(P, 100, run(6, 0, 2))
    stream.put(P, 5000, run(6, 0, flags=REPEAT))
    # The owner before has delivered 6; the new one begins at the same Kinesis record, and drops 6 by its position.
    batch = read(stream, stream.reader(P), stream.logs[P])
    assert batch.data == [b"6", b"7"]


def test_one_look_up_serves_all_suspects_of_the_batch_and_of_later_ones(stream: Stream) -> None:
    for number in range(6):
        stream.put(P, 100 + number, run(number, number))
    for number in range(6):
        stream.put(P, 5000 + number, run(number, number, flags=REPEAT))
    reader = stream.reader(P)
    first = read(stream, reader, stream.logs[P][6:9])
    assert (first.data, first.calls) == ([], Calls(read=[P]))
    second = read(stream, reader, stream.logs[P][9:])
    assert (second.data, second.calls) == ([], Calls())


def test_a_look_up_after_a_rewind_says_nothing_of_what_lies_between_it_and_the_memory(stream: Stream) -> None:
    stream.put(P, 100, run(1, 0))
    stream.put(P, 6000, run(1, 0, flags=REPEAT))
    stream.put(P, 7000, run(3, 6900))
    stream.put(P, 12_000, run(3, 6900, flags=REPEAT))
    stream.put(P, 20_000, run(4, 19_900))
    reader = stream.reader(P)
    log = stream.logs[P]
    assert read(stream, reader, log[4:]).data == [b"4"]
    assert read(stream, reader, log[1:2]).data == []
    assert read(stream, reader, log[3:4]).data == [], "its original was never read but by its own look-up"


def test_the_memory_forgets_after_a_minute_and_looks_up_again(stream: Stream) -> None:
    stream.put(P, 100, run(1, 0))
    stream.put(P, 5000, run(2, 4900))
    stream.put(P, 100_000, run(3, 99_900))
    stream.put(P, 200_000, run(1, 0, flags=REPEAT))
    reader = stream.reader(P)
    batches = [read(stream, reader, [record]) for record in stream.logs[P]]
    assert [batch.data for batch in batches] == [[b"1"], [b"2"], [b"3"], []]
    assert [len(batch.calls.read) for batch in batches] == [0, 0, 0, 1]


@pytest.mark.parametrize("max_bytes", [1, MAX_BYTES])
def test_copies_in_one_aggregate_are_found_again_after_the_memory_forgot_them(
    stream: Stream, max_bytes: int
) -> None:
    """A response of a quiet shard spans more time than the memory keeps, and the handler fails at its first batch."""
    stream.put(P, 100, run(5, -300_000, flags=NAMED), run(9, 0), run(5, -300_000, flags=NAMED))
    for at in (100_000, 200_000, 300_000):
        stream.put(P, at, run(at, at - 10))
    reader = stream.reader(P, max_bytes=max_bytes)
    read(stream, reader, stream.logs[P])
    for size in (1, 4):
        reader.forget_batch()
        assert read(stream, reader, stream.logs[P][:size]).data[:2] == [b"5", b"9"]
        assert read(stream, reader, stream.logs[P][:1]).decision.dropped == {
            stream.logs[P][0].sequence_number: [(2, 2)]
        }


def test_a_copy_in_the_child_finds_the_original_in_its_parent(stream: Stream) -> None:
    stream.put(P, 100, run(7, 0), hash_keys=[5])
    split(stream)
    stream.put(A, 5000, run(7, 0, flags=REPEAT), hash_keys=[5])
    batch = read(stream, stream.reader(A), stream.logs[A])
    assert batch.data == []
    assert batch.calls == Calls(read=[A, A, P], listed=1)


def test_a_child_that_is_not_listed_yet_is_looked_up_in_the_parents_of_its_lease(stream: Stream) -> None:
    """ListShards lags behind a reshard by a moment; the worker knows the child from the end of its parent."""
    stream.put(P, 100, run(7, 0))
    split(stream)
    stream.put(A, 5000, run(7, 0, flags=REPEAT))
    stream.put(A, 70_000, run(8, 65_000))
    stream.put(A, 140_000, run(7, 0, flags=REPEAT))

    def lagging(stream: Stream, look_up: LookUp, calls: Calls) -> None:
        every, stream.shards = stream.shards, {P: stream.shards[P]}
        carry_out(stream, look_up, calls)
        stream.shards = every

    reader = stream.reader(A)
    first = read(stream, reader, stream.logs[A][:1], shell=lagging)
    assert (first.data, first.calls.listed, P in first.calls.read) == ([], 1, True)
    # Once it is listed, the stream decides again.
    again = read(stream, stream.reader(A), stream.logs[A][2:])
    assert (again.data, again.calls.listed) == ([], 1)


def test_parents_are_not_read_if_the_shard_is_older_than_what_matters(stream: Stream) -> None:
    stream.put(P, 0, run(1, 0), hash_keys=[5])
    split(stream)
    stream.put(A, 1000, run(2, 900))
    stream.put(A, 100_000, run(3, 99_900))
    stream.put(A, 105_000, run(3, 99_900, flags=REPEAT))
    reader = stream.reader(A)
    batch = read(stream, reader, stream.logs[A][2:])
    assert batch.data == []
    assert batch.calls == Calls(read=[A, A], listed=1)  # what matters, and the oldest record
    stream.put(A, 250_000, run(4, 249_900))
    stream.put(A, 300_000, run(5, 100_000, flags=REPEAT))
    batch = read(stream, reader, stream.logs[A][3:])
    assert batch.calls == Calls(read=[A])  # the age of the shard is known by now


def test_a_parent_that_is_not_listed_any_more_is_no_obstacle(stream: Stream) -> None:
    split(stream)
    del stream.shards[P], stream.logs[P]
    stream.put(A, 5000, run(7, 0, flags=REPEAT))
    batch = read(stream, stream.reader(A), stream.logs[A], now=6000)
    assert (batch.data, batch.decision.unknown) == ([b"7"], 0)
    assert batch.calls == Calls(read=[A], listed=1)


def test_a_parent_that_vanishes_during_the_look_up_is_no_obstacle(stream: Stream) -> None:
    split(stream)
    stream.put(A, 5000, run(7, 0, flags=REPEAT))

    def shell(stream: Stream, look_up: LookUp, calls: Calls) -> None:
        listed = [*stream.shards.values()]
        del stream.shards[P]
        while (step := look_up.step) is not None:
            if isinstance(step, ListShards):
                look_up.listed(listed)
            elif step.shard_id == P:
                look_up.gone()
            else:
                look_up.page(stream.logs[A], at_end=True)

    assert read(stream, stream.reader(A), stream.logs[A], shell=shell).data == [b"7"]


def test_a_look_up_counts_no_misplaced_copies(stream: Stream) -> None:
    """A: [r0, r1] void, [r0*]: a reader that takes the first one for a copy loses r0."""
    split(stream)
    stream.put(A, 100, run(0, 0, 2), hash_keys=[5, MIDDLE + 5], made_for=P)
    stream.put(A, 5000, run(0, 0, flags=REPEAT), hash_keys=[5])
    everything = read(stream, stream.reader(A), stream.logs[A])
    assert (everything.data, everything.decision.misplaced) == ([b"0"], 2)
    assert read(stream, stream.reader(A), stream.logs[A][1:]).data == [b"0"]


def test_a_reader_with_gaps_looks_everything_up(stream: Stream) -> None:
    stream.put(P, 100, run(6, 0))
    stream.put(P, 4000, run(7, 3900))
    stream.put(P, 9000, run(7, 3900, flags=REPEAT))
    gaps = [stream.logs[P][0], stream.logs[P][2]]
    assert read(stream, stream.reader(P, contiguous=False), gaps).data == [b"6"]
    # What was read shows a repetition all the same.
    batch = read(stream, stream.reader(P, contiguous=False), stream.logs[P])
    assert (batch.data, batch.calls) == ([b"6", b"7"], Calls())


def test_a_verdict_before_the_end_of_the_look_up_is_refused(stream: Stream) -> None:
    stream.put(P, 5000, run(7, 0, flags=REPEAT))

    def shell(stream: Stream, look_up: LookUp, calls: Calls) -> None:
        return

    with pytest.raises(ValueError, match="not complete"):
        read(stream, stream.reader(P), stream.logs[P], shell=shell)


# R6: what cannot be known


def test_what_may_not_be_read_is_delivered_and_counted(stream: Stream) -> None:
    stream.put(P, 100, run(7, 0, 2))
    stream.put(P, 5000, run(7, 0, 2, flags=REPEAT))
    batch = read(stream, stream.reader(P), stream.logs[P][1:], shell=refuse)
    assert (batch.data, batch.decision.unknown) == ([b"7", b"8"], 2)


def test_a_refused_look_up_is_not_taken_for_an_answer(stream: Stream) -> None:
    stream.put(P, 100, run(7, 0))
    stream.put(P, 5000, run(7, 0, flags=REPEAT))
    stream.put(P, 5001, run(8, 0, flags=REPEAT))
    stream.put(P, 100_000, run(9, 0))
    reader = stream.reader(P)
    read(stream, reader, stream.logs[P][1:2], shell=refuse)
    assert read(stream, reader, stream.logs[P][2:3]).calls.read == [P]


def test_copies_that_were_trimmed_are_counted(stream: Stream) -> None:
    stream.put(P, 100, run(7, 0))
    stream.put(P, 500_000, run(7, 0, flags=REPEAT))
    stream.retained_from = 400_000
    day = 24 * 3600 * 1000
    batch = read(stream, stream.reader(P), stream.logs[P][1:], now=day + 450_000)
    assert (batch.data, batch.decision.unknown) == ([b"7"], 1)


def test_an_old_record_whose_copy_is_still_there_is_dropped(stream: Stream) -> None:
    stream.put(P, 100, run(7, 0))
    stream.put(P, 500_000, run(7, 0, flags=REPEAT))
    batch = read(stream, stream.reader(P), stream.logs[P][1:], now=10**10)
    assert (batch.data, batch.decision.unknown) == ([], 0)


DAY = 24 * 3600 * 1000


@pytest.mark.parametrize("young", [P, A])
def test_a_stream_that_keeps_records_for_longer_is_known_by_its_oldest_one(
    stream: Stream, young: str
) -> None:
    """A backfill of a week: no copy has expired, and nothing is counted as unknown."""
    stream.put(P, 0, run(1, 0))
    if young == A:
        split(stream)
    stream.put(young, 500_000, run(7, 499_900))
    stream.put(young, 800_000, run(8, 799_900, flags=REPEAT))
    stream.put(young, 900_000, run(9, 899_900, flags=REPEAT))
    reader, log = stream.reader(young), stream.logs[young]
    batch = read(stream, reader, log[-2:-1], now=7 * DAY)
    assert (batch.data, batch.decision.unknown) == ([b"8"], 0)
    assert batch.calls.read == ([P, P] if young == P else [A, A])
    batch = read(stream, reader, log[-1:], now=7 * DAY)
    assert (batch.data, batch.decision.unknown, batch.calls.read) == ([b"9"], 0, [])


def test_a_child_asks_its_parent_how_long_records_are_kept(stream: Stream) -> None:
    stream.put(P, 0, run(1, 0))
    split(stream)
    stream.put(A, 800_000, run(8, 799_900, flags=REPEAT))
    batch = read(stream, stream.reader(A), stream.logs[A], now=7 * DAY)
    assert (batch.data, batch.decision.unknown, batch.calls.read) == ([b"8"], 0, [A, A, P, P])


def test_the_oldest_record_is_not_asked_for_within_a_day(stream: Stream) -> None:
    stream.put(P, 0, run(1, 0))
    stream.put(P, 800_000, run(8, 799_900, flags=REPEAT))
    batch = read(stream, stream.reader(P), stream.logs[P][1:], now=DAY)
    assert (batch.decision.unknown, batch.calls.read) == (0, [P])


def test_a_retention_period_that_is_reduced_meanwhile_is_noticed(stream: Stream) -> None:
    """What was kept for a week once is asked for again only if more than that is needed; a record that is gone is gone."""
    stream.put(P, 0, run(1, 0))
    stream.put(P, 800_000, run(8, 799_900, flags=REPEAT))
    stream.put(P, 810_000, run(8, 799_900, flags=REPEAT))
    stream.retained_from = 805_000
    batch = read(stream, stream.reader(P), stream.logs[P][2:], now=7 * DAY)
    assert (batch.data, batch.decision.unknown, batch.calls.read) == ([b"8"], 1, [P, P])


def test_records_without_arrival_are_decided_by_the_memory(stream: Stream) -> None:
    stream.put(P, None, run(7, 0))
    stream.put(P, None, run(7, 0, flags=REPEAT), run(8, 0, flags=REPEAT))
    batch = read(stream, stream.reader(P), stream.logs[P])
    assert (batch.data, batch.decision.unknown, batch.calls) == ([b"7", b"8"], 1, Calls())


# R1: misplaced aggregates


def test_a_misplaced_aggregate_is_dropped_whole(stream: Stream) -> None:
    split(stream)
    stream.put(A, 100, run(0, 0, 2), hash_keys=[5, MIDDLE + 5], made_for=P)
    stream.put(A, 200, run(2, 0, 2), hash_keys=[5, 6], made_for=P)
    batch = read(stream, stream.reader(A), stream.logs[A])
    assert (batch.data, batch.decision.misplaced, batch.decision.repeated) == ([b"2", b"3"], 2, 0)


def test_an_old_misplaced_aggregate_is_like_that_of_any_other_producer(stream: Stream) -> None:
    split(stream)
    stream.put(A, 900_001, run(0, 0, 2), hash_keys=[5, MIDDLE + 5], made_for=P)
    assert read(stream, stream.reader(A), stream.logs[A]).data == [b"0", b"1"]


def test_a_misplaced_aggregate_whose_age_is_not_known_is_delivered(stream: Stream) -> None:
    """If it was forwarded, nothing else holds its records."""
    split(stream)
    stream.put(A, None, run(7, 0), made_for=P, hash_keys=[MAX_HASH_KEY])
    assert read(stream, stream.reader(A), stream.logs[A]).data == [b"7"]


def test_hash_keys_are_not_looked_at_in_the_shard_that_an_aggregate_was_made_for(stream: Stream) -> None:
    split(stream)
    stream.put(A, 100, run(0, 0), hash_keys=[MIDDLE + 5])
    assert read(stream, stream.reader(A), stream.logs[A]).data == [b"0"]


# R7: equal bytes


def test_equal_bytes_are_one_record_for_a_worker_and_two_for_a_range(stream: Stream) -> None:
    stream.put(P, 100, run(7, 0, 2))
    stream.put(P, 200, run(7, 0, 2))
    assert len(read(stream, stream.reader(P), stream.logs[P]).data) == 2
    assert len(read(stream, stream.reader(P, drops_equal=False), stream.logs[P]).data) == 4
    assert len(read(stream, stream.reader(P), stream.logs[P][1:]).data) == 2  # it depends on what was read


def test_equal_bytes_are_one_record_behind_others_too(stream: Stream) -> None:
    """Of aggregates behind the first one, most take a shorter path."""
    for number, at in ((6, 50), (7, 100), (8, 150), (7, 200)):
        stream.put(P, at, run(number, 0))
    assert read(stream, stream.reader(P), stream.logs[P]).data == [b"6", b"7", b"8"]


def test_equal_bytes_are_one_record_although_the_memory_has_put_the_first_one_away(stream: Stream) -> None:
    for number, date in ((1, 0), (7, 9_950), (8, 10_050), (9, 10_060), (7, 9_950), (7, 9_950)):
        stream.put(P, max(date, 10_000 if number == 8 else 0) + len(stream.logs[P]), run(number, date))
    reader = stream.reader(P)
    assert read(stream, reader, stream.logs[P]).data == [b"1", b"7", b"8", b"9"]
    assert len(reader._memory._sealed) == 1


def test_equal_bytes_of_a_first_copy_are_one_record_for_a_worker_and_two_for_a_range(stream: Stream) -> None:
    named = run(7, 0, flags=NAMED | FIRST, holdoff=15)
    for at in (100, 200):
        stream.put(P, at, named)
    stream.put(P, 300, named, run(8, 0))  # other bytes: its writer says that it is the first attempt
    stream.put(P, 400, named)
    assert read(stream, stream.reader(P), stream.logs[P]).data == [b"7", b"7", b"8"]
    assert len(read(stream, stream.reader(P, drops_equal=False), stream.logs[P]).data) == 5


def test_equal_records_in_other_bytes_are_not_a_proxys_repetition(stream: Stream) -> None:
    stream.put(P, 100, run(7, 0))
    stream.put(P, 200, run(7, 0), run(8, 0))
    assert read(stream, stream.reader(P), stream.logs[P]).data == [b"7", b"7", b"8"]


# Strangers


@pytest.mark.parametrize(
    "table",
    ["", "k1", "é" * 40, encode_table("other", P, [run(7, 0)]), encode_table(STREAM, P, [run(7, 0, 2)])],
)
def test_a_table_that_does_not_fit_belongs_to_a_stranger(stream: Stream, table: str) -> None:
    good = aggregate([run(7, 0)], P)
    stream.store(P, good, 100)
    stream.store(P, aggregate([run(7, 0, flags=REPEAT)], P, table=table), 5000)
    stream.store(P, aggregate([run(7, 0, flags=REPEAT)], P, table=table), 5001)
    batch = read(stream, stream.reader(P), stream.logs[P])
    assert (batch.data, batch.calls) == ([b"7"] * 3, Calls())


def test_records_without_tags_pass(stream: Stream) -> None:
    stream.store(P, b"plain", 1)
    stream.put(P, 100, run(7, 0))
    stream.store(P, b"plain", 200)
    assert read(stream, stream.reader(P), stream.logs[P]).data == [b"plain", b"7", b"plain"]


# Random logs: every reader delivers exactly the first valid copies


class Producer:
    """Puts records with lost answers: originals that are stored late or never, copies, all in aggregates at random."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.stream = Stream()
        self.stored: list[
            tuple[int, list[tuple[int, int, int]], str]
        ] = []  # time, (number, date, flags), made for

    def log(self) -> Stream:
        rng = self.rng
        ends = [rng.randrange(5000, 40_000), rng.randrange(40_000, 90_000)]
        for _ in range(rng.randrange(2, 9)):
            self._put_group(rng.randrange(80_000), ends)
        self.stream.open(P, 0, MAX_HASH_KEY)
        generation = 0
        for at, records, made_for in sorted(self.stored, key=lambda item: item[0]):
            while generation < 2 and at >= ends[generation]:
                generation += 1
                if generation == 1:
                    split(self.stream)
                else:
                    self.stream.open(M, 0, MAX_HASH_KEY, A, B)
            keys = [self._key(number) for number, _, _ in records]
            target = [P, A if keys[0] <= MIDDLE else B, M][generation]
            runs = [run(number, date, flags=flags) for number, date, flags in records]
            arrival = at + rng.randrange(-400, 400)
            self.stream.put(target, arrival, *runs, hash_keys=keys, made_for=made_for)
        return self.stream

    @staticmethod
    def _key(number: int) -> int:
        return 5 if number % 2 else MIDDLE + 5

    def _put_group(self, start: int, ends: list[int]) -> None:
        rng = self.rng
        numbers = [len(self.stored) * 10 + index for index in range(rng.randrange(1, 4))]
        known = [P, A, M][sum(end <= start for end in ends)]
        self._store(start + rng.choice((20, 50, 6000, 60_000)), [(n, start, 0) for n in numbers], known)
        at = start
        for _ in range(rng.randrange(4)):
            at = max(at + rng.randrange(6000), start + 4000)
            again = [n for n in numbers if rng.random() < 0.8]
            late = rng.choice((20, 50, 3000, 30_000))
            if again:
                self._store(at + late, [(n, start, REPEAT) for n in again], rng.choice((None, P, A, M)))

    def _store(self, at: int, records: list[tuple[int, int, int]], made_for: str | None) -> None:
        sides = [[one for one in records if one[0] % 2 == side] for side in (0, 1)]
        # Aggregates that were made for a shard belong into it; on an old map or none they may mix both sides.
        together = made_for in (P, M) and self.rng.random() < 0.7
        for part in [records] if together else sides:
            if part:
                target = made_for if made_for in (None, P, M) else (B if part[0][0] % 2 == 0 else A)
                self.stored.append((at, part, target))  # type: ignore[arg-type]


def delivered_by(rng: Random, stream: Stream) -> set[Position]:
    """Read all shards, parents first, with take-overs, rewinds and batches at random."""
    found: set[Position] = set()
    for shard_id in in_order(stream.shards.values()):
        log = stream.logs[shard_id]
        reader = stream.reader(shard_id, max_bytes=rng.choice((1, 3, 10**6)) * RUN_BYTES)
        place, checkpoint = 0, 0
        for _ in range(6 * len(log) + 10):
            if place >= len(log):
                break
            batch = log[place : place + rng.randrange(1, 4)]
            result = read(
                stream, reader, batch, shell=lambda s, u, c: carry_out(s, u, c, page=rng.randrange(1, 4))
            )
            fate = rng.random()
            if fate < 0.15:
                continue  # the handler failed before it did anything, and the same reader reads the batch again
            found.update((shard_id, number, sub) for number, sub in result.positions)
            place += len(batch)
            if rng.random() < 0.5:
                checkpoint = place
            if fate > 0.7:
                place = checkpoint
                if fate > 0.8:
                    reader = stream.reader(shard_id)
        else:
            place = len(log)
            result = read(stream, stream.reader(shard_id), log)
            found.update((shard_id, number, sub) for number, sub in result.positions)
    return found


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(unit=5, fuzz=200))
def test_every_reader_delivers_the_first_valid_copies(seed: int) -> None:
    for trial in range(10):
        rng = Random(1000 * seed + trial)
        stream = Producer(rng).log()
        assert delivered_by(rng, stream) == stream.first_valid_copies()


def plain(runs: Any) -> object:
    """The runs of a key as data that can be compared."""
    if not isinstance(runs, Pieces):
        return runs
    blocks = {number: (one.starts, one.lasts, one.copies) for number, one in runs._blocks.items()}
    return blocks, runs.digests  # type: ignore[attr-defined]


def traced(seed: int) -> list[object]:
    """Read random logs in random batches, and return every decision and what is remembered after it."""
    rng = Random(seed)
    stream = Producer(rng).log()
    found: list[object] = []
    for shard_id in in_order(stream.shards.values()):
        log = stream.logs[shard_id]
        reader = stream.reader(shard_id, max_bytes=rng.choice((1, 3, 10**6)) * RUN_BYTES)
        place = 0
        while place < len(log):
            batch = log[place : place + rng.randrange(1, 4)]
            batch += batch[:1] if rng.random() < 0.1 else []
            decision = read(stream, reader, batch).decision
            memory = reader._memory
            known = [
                (segment._names, {key: plain(runs) for key, runs in segment._runs.items()})
                for segment in [*memory._sealed, memory._open]
            ]
            found.append((decision, copy.deepcopy(known), memory.since, memory.first))
            place += len(batch) if rng.random() < 0.8 else 0
    return found


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(unit=15, fuzz=1000))
def test_runs_that_are_not_suspect_are_judged_as_any_others(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shorter path, which most runs take, decides and remembers what the general one does."""
    shorter = traced(seed)
    monkeypatch.setattr(RunMemory, "has_run", lambda self, key, since: True)
    monkeypatch.setattr(RunMemory, "add_single", lambda *_: False)
    assert shorter == traced(seed)


@pytest.mark.parametrize(("each_second", "looks"), [(2, False), (16, True)])
def test_more_named_records_in_a_window_than_the_memory_holds_are_looked_up_for_each_batch(
    stream: Stream, each_second: int, looks: bool
) -> None:
    """The limit that docs/producer.md gives. Beyond it, the shard is read again for every batch, and still each copy is recognized."""
    put: dict[int, int] = {}
    for second in range(60):
        for index in range(each_second):
            again = index == 1 and second > 30
            number = (
                16 * (second - 17) + 7 if again else 16 * second + index
            )  # of 17 s before, in a window of 20 s
            at = second * 1000 + index
            stream.put(P, at, run(5, at - 20_000, flags=NAMED, incarnation=b"%08d" % number))
            put.setdefault(number, at)
    reader = stream.reader(P, max_bytes=100 * 160)
    log, size = stream.logs[P], 5 * each_second
    batches = [read(stream, reader, log[begin : begin + size]) for begin in range(0, len(log), size)]
    assert sum(len(batch.positions) for batch in batches) == len(stream.first_valid_copies()) == len(put)
    assert [bool(batch.calls.read) for batch in batches[6:]] == [looks] * 6
    assert reader.size <= 100 * 160 + 500, "what a look-up brings is not kept if there is no room for it"


def _shortages(stream: Stream, size: int, max_bytes: int) -> list[Shortage | None]:
    """Return the shortage of each look-up of a reader that reads batches of this many records."""
    found: list[Shortage | None] = []

    def shell(stream: Stream, look_up: LookUp, calls: Calls) -> None:
        found.append(look_up.shortage)
        carry_out(stream, look_up, calls)

    reader, log = stream.reader(P, max_bytes=max_bytes), stream.logs[P]
    for begin in range(0, len(log), size):
        read(stream, reader, log[begin : begin + size], shell=shell)
    return found


@pytest.mark.parametrize("each_second", [8, 16])
def test_a_look_up_tells_what_the_memory_would_need(stream: Stream, each_second: int) -> None:
    """With the bytes that it names, nothing is looked up but for the first batch, before which nothing was read."""
    for second in range(80):
        for index in range(each_second):
            at = second * 1000 + index * 20
            name = b"%08d" % (each_second * second + index)
            stream.put(P, at, run(5, at - 20_000, flags=NAMED, incarnation=name))
    allowed = 16_000
    found = _shortages(stream, 5 * each_second, allowed)
    assert len(found) > 12, "each batch, but for the first ones"
    last = found[-1]
    assert last is not None
    assert None not in found[2:]
    assert last.allowed == allowed < last.needed
    assert last.window_millis in range(22_000, 28_000), "the window, and the batch"
    assert last.needed < 60 * each_second * 300, "no more than a fraction more than the window has"
    assert _shortages(stream, 5 * each_second, last.needed) == [None], "only for the first records"


def test_a_look_up_for_another_reason_tells_of_no_shortage(stream: Stream) -> None:
    """A reader that begins, and one that has forgotten what was too old for every suspect before."""
    stream.put(P, 100, run(5, 0))
    stream.put(P, 10_000, run(5, 0, flags=REPEAT))
    for second in range(20, 400, 2):
        stream.put(P, second * 1000, run(second * 10, second * 1000))
    stream.put(P, 400_000, run(6, 100_000, flags=NAMED))
    reader, log, found = stream.reader(P), stream.logs[P], list[Shortage | None]()

    def shell(stream: Stream, look_up: LookUp, calls: Calls) -> None:
        found.append(look_up.shortage)
        carry_out(stream, look_up, calls)

    for record in log[1:]:
        read(stream, reader, [record], shell=shell)
    assert found == [None, None]


def test_a_memory_that_was_short_once_is_not_short_for_what_is_too_old(stream: Stream) -> None:
    """A burst was too much for the bytes. Later, time and not space is why the burst is forgotten."""
    for index in range(200):
        stream.put(P, 1000 + index, run(5, 900, flags=NAMED, incarnation=b"%08d" % index))
    for second in range(20, 400, 2):
        stream.put(P, second * 1000, run(second * 10, second * 1000))
    stream.put(P, 400_000, run(6, 500, flags=NAMED))
    found = _shortages(stream, 20, 16_000)
    assert found[-1] is None
