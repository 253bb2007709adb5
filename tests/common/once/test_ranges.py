"""A reader that does not know the range of its shard: at most one delivery, or the doubt is counted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import pytest

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.once.reader import ListShards, LookUp, ReadShard, RunReader
from kinesis_sdk.common.once.table import REPEAT
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.shards import Shard
from tests.common.once.streams import (
    MAX_HASH_KEY,
    MIDDLE,
    STREAM,
    Batch,
    Calls,
    Stream,
    carry_out,
    read,
    run,
)

P, A, B = "shardId-000000000000", "shardId-000000000001", "shardId-000000000002"

Shell = Callable[[Stream, LookUp, Calls], None]


def split() -> Stream:
    """A shard that was split before anything was stored."""
    made = Stream()
    made.open(P, 0, MAX_HASH_KEY)
    made.open(A, 0, MIDDLE, P)
    made.open(B, MIDDLE + 1, MAX_HASH_KEY, P)
    return made


@pytest.fixture
def stream() -> Stream:
    return split()


def lists_without_it(stream: Stream, look_up: LookUp, calls: Calls) -> None:
    """The listing lags behind, or the shard has expired."""
    listed = {name: shard for name, shard in stream.shards.items() if name != A}
    _carry_out(stream, look_up, calls, listed)


def lists_nothing(stream: Stream, look_up: LookUp, calls: Calls) -> None:
    """kinesis:ListShards is denied."""
    _carry_out(stream, look_up, calls, None)


def _carry_out(stream: Stream, look_up: LookUp, calls: Calls, listed: dict[str, Shard] | None) -> None:
    while (step := look_up.step) is not None:
        if not isinstance(step, ListShards):
            calls.read.append(step.shard_id)
            records = stream.logs[step.shard_id]
            look_up.page(records[: step.limit], at_end=True)
            continue
        calls.listed += 1
        if listed is None:
            look_up.refused()
        else:
            look_up.listed(listed.values())


def reads_nothing(stream: Stream, look_up: LookUp, calls: Calls) -> None:
    """A function without a client."""
    while look_up.step is not None:
        look_up.refused()


SHELLS: list[Shell] = [carry_out, lists_without_it, lists_nothing, reads_nothing]


def batches(stream: Stream, reader: Callable[[], RunReader], shell: Shell, cut: int) -> list[Batch]:
    """Read the child in two parts, each by a reader of its own, as two owners or two events do."""
    log = stream.logs[A]
    parts = [part for part in (log[:cut], log[cut:]) if part]
    return [read(stream, reader(), part, shell=shell) for part in parts]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("made_for", [(P, "itself"), ("itself", P), (P, P), ("itself", "itself"), (None, P)])
def test_copies_are_delivered_once_or_counted(shell: Shell, made_for: tuple[str | None, str | None]) -> None:
    """The producer's map was old, or it had none: only the range shows that the copies are valid."""
    for is_known, is_contiguous, cut in product([True, False], [True, False], [0, 1]):
        stream = split()
        stream.put(A, 3000, run(1, 0), made_for=made_for[0])
        stream.put(A, 8000, run(1, 0, flags=REPEAT), made_for=made_for[1])
        owned = stream.shards[A].hash_key_range if is_known else None
        reader = partial(RunReader, STREAM, A, owned, parents=(P,), contiguous=is_contiguous)
        found = batches(stream, reader, shell, cut)
        deliveries = [data for batch in found for data in batch.data]
        unknown = sum(batch.decision.unknown for batch in found)
        case = is_known, is_contiguous, cut
        assert deliveries, f"nothing is lost: {case}"
        assert len(deliveries) == 1 or unknown, case
        if shell is carry_out:
            assert (len(deliveries), unknown) == (1, 0), case


@pytest.mark.parametrize("shell", SHELLS)
def test_a_misplaced_aggregate_is_no_reason_to_drop_another_one(stream: Stream, shell: Shell) -> None:
    """The first one belongs into both children, so its producer puts it again."""
    stream.put(A, 3000, run(1, 0, 2), hash_keys=[5, MIDDLE + 5], made_for=P)
    stream.put(A, 8000, run(1, 0, flags=REPEAT), hash_keys=[5])
    batch = read(stream, RunReader(STREAM, A, None, parents=()), stream.logs[A], shell=shell)
    assert batch.positions[-1] == (stream.logs[A][1].sequence_number, 0)
    if shell is carry_out:
        assert batch.data == [b"1"]
        assert batch.decision.misplaced == 2
    else:
        assert batch.data == [b"1", b"2", b"1"]
        assert batch.decision.unknown >= 2


def test_what_follows_an_aggregate_without_a_verdict_waits_for_it(stream: Stream) -> None:
    """The order of the records decides which copy counts, so nothing overtakes."""
    stream.put(A, 100, run(0, 0))
    stream.put(A, 100, run(1, 50), made_for=P)
    stream.put(A, 200, run(1, 50))
    stream.put(A, 8000, run(1, 50, flags=REPEAT))
    batch = read(stream, RunReader(STREAM, A, None, parents=()), stream.logs[A])
    assert batch.positions == [(record.sequence_number, 0) for record in stream.logs[A][:2]] + [
        (stream.logs[A][2].sequence_number, 0)
    ], "the third one arrived at once, so it is not suspect, and in other bytes"
    assert batch.decision.repeated == 1


def test_the_shards_are_listed_once_in_the_life_of_a_reader(stream: Stream) -> None:
    reader = RunReader(STREAM, A, None, parents=())
    listed = 0
    for number in range(3):
        record = stream.put(A, 100 + number, run(number, 0), made_for=P)
        listed += read(stream, reader, [record]).calls.listed
    assert listed == 1


def test_nothing_is_listed_for_what_was_made_for_the_shard(stream: Stream) -> None:
    reader = RunReader(STREAM, A, None)
    record = stream.put(A, 100, run(0, 0))
    reader.begin([record])
    assert read(stream, reader, [record]).calls == Calls()


def test_a_batch_of_several_parts_is_judged_in_order(stream: Stream) -> None:
    """A worker deaggregates a response in parts; what was kept back is not taken for read before."""
    records = [
        stream.put(A, 100, run(1, 0), made_for=P),
        stream.put(A, 5000, run(1, 0, flags=REPEAT), made_for=P),
    ]
    reader = RunReader(STREAM, A, None, parents=())
    for record in records:
        reader.begin([record])
        deaggregate([record], on_tagged=reader.add)
    assert not reader.is_idle
    look_up = reader.look_up()
    assert look_up is not None
    carry_out(stream, look_up)
    assert reader.remembered == 2
    assert list(reader.decide(10**15).dropped) == [records[1].sequence_number]


def test_a_batch_that_is_read_again_is_kept_back_again(stream: Stream) -> None:
    record: KinesisRecord = stream.put(A, 100, run(1, 0), made_for=P)
    reader = RunReader(STREAM, A, None, parents=())
    reader.begin([record])
    deaggregate([record], on_tagged=reader.add)
    reader.forget_batch()
    assert reader.is_idle
    assert read(stream, reader, [record]).data == [b"1"]


def test_without_the_shards_the_shard_itself_is_searched_all_the_same(stream: Stream) -> None:
    """A function whose role may read records but not list shards finds the copies that were made for the shard."""
    stream.put(A, 3000, run(1, 0))
    repetition = stream.put(A, 8000, run(1, 0, flags=REPEAT))
    reader = RunReader(STREAM, A, None, contiguous=False)
    batch = read(stream, reader, [repetition], shell=lists_nothing)
    assert (batch.data, batch.decision.repeated, batch.decision.unknown) == ([], 1, 0)
    assert (batch.calls.read, batch.calls.listed) == ([A], 1)


def test_the_look_up_reads_the_parents_on_the_same_listing(stream: Stream) -> None:
    stream.put(P, 3000, run(1, 0))
    repetition = stream.put(A, 8000, run(1, 0, flags=REPEAT))
    batch = read(stream, RunReader(STREAM, A, None), [repetition])
    assert batch.data == []
    assert (batch.calls.read, batch.calls.listed) == ([A, A, P], 1)


def test_the_first_step_lists_the_shards(stream: Stream) -> None:
    record = stream.put(A, 8000, run(1, 0, flags=REPEAT))
    reader = RunReader(STREAM, A, None)
    reader.begin([record])
    deaggregate([record], on_tagged=reader.add)
    look_up = reader.look_up()
    assert look_up is not None
    assert look_up.step == ListShards()
    look_up.listed(stream.shards.values())
    assert isinstance(look_up.step, ReadShard)


@pytest.mark.parametrize("shell", [lists_without_it, lists_nothing])
def test_a_look_up_that_cannot_judge_a_copy_says_so(stream: Stream, shell: Shell) -> None:
    """Another reader, which knew the range, has delivered that copy."""
    stream.put(A, 3000, run(1, 0), made_for=P)
    repetition = stream.put(A, 8000, run(1, 0, flags=REPEAT))
    batch = read(stream, RunReader(STREAM, A, None), [repetition], shell=shell)
    assert (batch.data, batch.decision.repeated, batch.decision.unknown) == ([b"1"], 0, 1)
