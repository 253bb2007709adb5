"""Long random logs of runs and names, on the paths of a split and a merge: each decision of each reader is that of a plain search.

The logs are long enough that segments of a small memory are sealed, compressed, forgotten and looked up again.
"""

from __future__ import annotations

from random import Random

import pytest

from kinesis_sdk.common.hashkeys import MAX_HASH_KEY
from kinesis_sdk.common.once import memory
from kinesis_sdk.common.once.reader import LookUp
from kinesis_sdk.common.once.table import FIRST, NAMED, REPEAT, Run
from tests.common.once.oracle import _users, dropped_by_search
from tests.common.once.streams import (
    EPOCH,
    MIDDLE,
    Calls,
    Stream,
    carry_out,
    in_order,
    read,
)
from tests.fuzz import seeds

P, A, B, M = (f"shardId-{number:012d}" for number in range(4))
LEFT, RIGHT = b"left-000", b"right-00"

Event = tuple[int, bytes, Run]
"""Time, side, run."""


def _named(rng: Random, at: int, side: bytes, names: int) -> list[Event]:
    window = rng.choice((0, 500, 5000, 50_000, 400_000))
    found = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        flags = NAMED | rng.choice((0, 0, REPEAT, FIRST))
        run = Run(
            1, rng.choice((1, 4, 15)), flags, b"N" + side[:7], EPOCH + at - window, rng.randrange(names)
        )
        found.append((at, side, run))
        at += rng.choice((0, 100, 3000, 20_000))
    return found


def _numbered(rng: Random, at: int, side: bytes, number: int) -> list[Event]:
    date, count = at - rng.choice((0, 50, 900)), rng.choice((1, 1, 2, 5))
    found = []
    if rng.random() < 0.9:
        delay = rng.choice((30, 30, 1500, 3000, 10_000, 60_000))
        found.append((date + delay, side, Run(count, 4, 0, side, EPOCH + date, number)))
    for _ in range(rng.choice((0, 0, 1, 2, 4))):
        at += rng.choice((50, 4000, 9000, 100_000))
        first = rng.randrange(count)
        part = rng.randrange(first, count) - first + 1
        found.append((at, side, Run(part, 4, REPEAT, side, EPOCH + date, number + first)))
    return found


def _log(rng: Random) -> Stream:
    span = rng.choice((60_000, 200_000, 600_000))
    ends = sorted(rng.randrange(span // 10, span) for _ in range(2))
    names = rng.choice((2, 30, 300))
    events: list[Event] = []
    for index in range(rng.choice((20, 60, 150))):
        at, side = rng.randrange(span), rng.choice((LEFT, RIGHT))
        make, last = (_named, names) if rng.random() < 0.4 else (_numbered, 10 * index)
        events += make(rng, at, side, last)
    aggregates: list[tuple[int, bytes, list[Run]]] = []
    for at, side, run in sorted(events, key=lambda event: event[0]):
        if aggregates and rng.random() < 0.4 and aggregates[-1][1] == side and at - aggregates[-1][0] < 200:
            aggregates[-1][2].append(run)
        else:
            aggregates.append((at, side, [run]))
    stream = Stream()
    stream.open(P, 0, MAX_HASH_KEY)
    generation = 0
    for at, side, runs in aggregates:
        while generation < 2 and at >= ends[generation]:
            generation += 1
            if generation == 1:
                stream.open(A, 0, MIDDLE, P)
                stream.open(B, MIDDLE + 1, MAX_HASH_KEY, P)
            else:
                stream.open(M, 0, MAX_HASH_KEY, A, B)
        shard_id = (P, A if side == LEFT else B, M)[generation]
        keys = [5 if side == LEFT else MIDDLE + 5] * sum(run.count for run in runs)
        made_for = rng.choice(("itself", "itself", None))
        stream.put(shard_id, at + rng.randrange(-400, 400), *runs, hash_keys=keys, made_for=made_for)
    return stream


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(unit=4, fuzz=200))
def test_each_decision_is_that_of_a_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    monkeypatch.setattr(memory, "KEPT_MILLIS", rng.choice((60_000, 1000)))
    monkeypatch.setattr(memory, "_MIN_SPAN", rng.choice((10_000, 500)))
    stream = _log(rng)
    dropped = dropped_by_search(stream)
    assert dropped

    def shell(where: Stream, look_up: LookUp, calls: Calls) -> None:
        carry_out(where, look_up, calls, page=rng.choice((1, 3, 50)))

    for shard_id in in_order(stream.shards.values()):
        log = stream.logs[shard_id]
        reader = None
        place = 0
        for _ in range(4 * len(log)):
            if place >= len(log):
                break
            if reader is None:
                max_bytes = rng.choice((1, 2000, 6000, 20_000, 10**7))
                reader = stream.reader(shard_id, max_bytes=max_bytes, drops_equal=rng.random() < 0.5)
            batch = log[place : place + rng.choice((1, 2, 5, 30))]
            delivered = {
                (shard_id, *position) for position in read(stream, reader, batch, shell=shell).positions
            }
            every = {
                (shard_id, record.sequence_number, sub)
                for record in batch
                for sub in range(len(_users(record)))
            }
            assert every - delivered == every & dropped, place
            fate = rng.random()
            if fate < 0.1:
                continue  # the handler failed, and the batch is read again
            place += len(batch)
            if fate > 0.93:
                place = rng.randrange(place + 1)
            elif fate > 0.9:
                reader = None  # another worker has the lease
