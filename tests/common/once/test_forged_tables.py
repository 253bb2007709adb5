"""Forged tables of runs cost a reader no more, by their bytes, than honest ones; counted in steps, not in seconds."""

from __future__ import annotations

from random import Random

import pytest

from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, hash_partition_key
from kinesis_sdk.common.once import pieces
from kinesis_sdk.common.once.budget import MAX_BYTES
from kinesis_sdk.common.once.identity import Identity
from kinesis_sdk.common.once.runs import Runs
from kinesis_sdk.common.once.table import FIRST, MAX_RUNS, NAMED, REPEAT, Run, decode_table, encode_table
from tests.common.once.forged import FORGED, OWNER, SHARD, cost
from tests.common.once.oracle import dropped_by_search
from tests.common.once.steps import steps_of
from tests.common.once.streams import EPOCH, STREAM, Calls, LookUp, Stream, carry_out, read
from tests.fuzz import seeds, share

SIZE = 30
"""With half as many, a list that is sorted again for each run costs less than the growth that these tests allow."""


@pytest.mark.fuzz
@pytest.mark.parametrize("name", FORGED)
def test_four_times_the_runs_take_four_times_the_steps(name: str) -> None:
    """Four times, and the logarithm of a bisection. Quadratic were 16 times. None takes many: less than a tenth of a microsecond each.

    An aggregate of one honest run takes about 90.
    """
    small, large = cost(FORGED[name](SIZE)), cost(FORGED[name](4 * SIZE))
    assert large <= 1.25 * small
    assert small < 350


@pytest.mark.fuzz
@pytest.mark.parametrize("name", share(FORGED, unit=6))
def test_a_look_up_for_forged_suspects_takes_as_many_steps_as_it_reads(name: str) -> None:
    """All of them in one batch, and the same ones before it."""
    small, large = FORGED[name](SIZE), FORGED[name](4 * SIZE)
    few, many = (cost(one, past=one, each=len(one)) for one in (small, large))
    assert many <= 1.25 * few


# What they are worth: a table that no producer writes is judged by the same rules


def drawn(rng: Random) -> list[Run]:
    """A table that tries the edges of what its format allows: overlaps, disorder, absurd dates."""
    dates = [-900_000, -30_000, -1000, 0, 3_600_000]
    numbers = rng.choice([4, 30, 1 << 13])
    found = []
    for _ in range(rng.choice([1, 2, 5, 12])):
        flags = rng.choice([0, REPEAT, REPEAT, NAMED, NAMED | REPEAT, NAMED | FIRST])
        count = 1 if flags & NAMED else rng.choice([1, 1, 2, 5, 40])
        owner = rng.choice([OWNER, OWNER, b"another.", bytes(8)])
        number = rng.randrange(numbers) if rng.random() < 0.95 else (1 << 48) - count
        found.append(Run(count, rng.choice([1, 4, 15]), flags, owner, EPOCH + rng.choice(dates), number))
    return found


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(unit=7, fuzz=2_000))
def test_forged_tables_are_judged_as_by_a_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any batches, after any failure or take-over, with a memory of any size; and at a bounded number of steps for each run."""
    rng = Random(seed)
    monkeypatch.setattr(pieces, "_BLOCK_BITS", bits := rng.choice([0, 2, 12]))
    monkeypatch.setattr(pieces, "_BLOCK", 1 << bits)
    stream = Stream()
    stream.open(SHARD, 0, MAX_HASH_KEY)
    at, tables = 0, [drawn(rng) for _ in range(rng.choice([2, 12]))]
    for _ in range(rng.choice([5, 15])):
        at += rng.choice([0, 1, 400, 3000, 20_000])
        stream.put(SHARD, at + rng.randrange(-400, 400), *rng.choice(tables))
    log = stream.logs[SHARD]
    expected = dropped_by_search(stream)
    reads = 0

    def shell(where: Stream, look_up: LookUp, calls: Calls) -> None:
        nonlocal reads
        reads += 1
        carry_out(where, look_up, calls, page=rng.choice([1, 3, 50]))

    def play() -> None:
        place, reader = 0, None
        while place < len(log):
            if reader is None:
                max_bytes = rng.choice([1, 3000, 20_000, MAX_BYTES])
                reader = stream.reader(SHARD, max_bytes=max_bytes, drops_equal=False)
            batch = log[place : place + rng.choice([1, 2, 5, 30])]
            delivered = {(SHARD, *one) for one in read(stream, reader, batch, shell=shell).positions}
            numbers = {record.sequence_number for record in batch}
            assert not delivered & expected, "nothing is delivered twice"
            missing = {one for one in stream.positions(SHARD) if one[1] in numbers} - delivered
            assert missing <= expected, "nothing is lost"
            fate = rng.random()
            place += 0 if fate < 0.1 else len(batch)
            reader = None if fate > 0.9 else reader

    steps = steps_of(play)
    records = len(stream.positions(SHARD))
    assert steps < 1000 * (reads + 5) * records


def test_a_table_that_no_producer_writes_is_a_strangers() -> None:
    runs = [Run(1, 4, NAMED, OWNER, EPOCH, number) for number in range(MAX_RUNS + 1)]
    longest = encode_table(STREAM, SHARD, runs[:-1])
    table = decode_table(longest, STREAM, MAX_RUNS)
    assert table is not None
    assert len(table.runs) == MAX_RUNS
    assert decode_table(encode_table(STREAM, SHARD, runs), STREAM, MAX_RUNS + 1) is None
    last = longest[-32:]
    for more in (1, 100):
        assert steps_of(lambda more=more: decode_table(longest + last * more, STREAM, MAX_RUNS + more)) < 10  # type: ignore[misc]


def test_a_producer_writes_no_longer_table() -> None:
    aggregate = Aggregate(10 * 2**20, 10**6, runs=Runs())
    place = hash_partition_key("k")
    taken = 0
    while aggregate.try_append("k", None, b"", place, identity=Identity(OWNER, 1, EPOCH)):
        taken += 1
    assert (taken, aggregate.count) == (MAX_RUNS, MAX_RUNS)
    assert aggregate.runs is not None
    assert len(aggregate.runs.starts) == MAX_RUNS
