"""Aggregates that no producer writes: whoever may call PutRecord chooses every byte of a table of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.once.reader import ListShards, RunReader
from kinesis_sdk.common.once.table import NAMED, REPEAT, Run
from kinesis_sdk.common.records import KinesisRecord
from tests.common.once.steps import steps_of
from tests.common.once.streams import EPOCH, MAX_HASH_KEY, STREAM, HashKeyRange, aggregate, moment

SHARD = "shardId-000000000000"
OWNER = b"ABCDEFGH"


class Arrived(NamedTuple):
    """An aggregate and its arrival, in milliseconds after `EPOCH`."""

    at: int
    runs: Sequence[Run]


def run(
    number: int, count: int = 1, *, flags: int = REPEAT, date: int = -1000, incarnation: bytes = OWNER
) -> Run:
    return Run(count, 4, flags, incarnation, EPOCH + date, number)


def twice(runs: Sequence[Run], apart: int = 10) -> list[Arrived]:
    return [Arrived(0, runs), Arrived(apart, runs)]


def _longest(size: int) -> list[Arrived]:
    """A long run, and others that none of its numbers has: a walk over what may overlap does not end."""
    long = run(5 * 10**9, size)
    even = [run(10**7 + 2 * number) for number in range(size)]
    odd = [run(10**7 + 1 + 2 * number) for number in range(size)]
    return [Arrived(0, [long, *even]), Arrived(10, odd)]


def _overlaps(size: int) -> list[Arrived]:
    """Runs that overlap each other, then some behind them: as many user records as the others have."""
    length = max(2, int(size**0.5))
    runs = [run(number, length) for number in range(size // length)]
    behind = [run(length + 2 * number) for number in range(size // 2)]
    return [Arrived(0, runs), Arrived(10, behind), Arrived(20, runs)]


FORGED: dict[str, Callable[[int], list[Arrived]]] = {
    "one number": lambda size: twice([run(5)] * size),
    "one number, later and later": lambda size: [Arrived(at, [run(5)]) for at in range(size)],
    "one number, not marked": lambda size: [
        Arrived(min(at, 1500), [run(5, flags=0, date=0)]) for at in range(size)
    ],
    "one number, dated in the future": lambda size: twice([run(5, date=3_600_000)] * size, 60_000),
    "one name": lambda size: twice([run(7, flags=NAMED)] * size),
    "one name, dated in the future": lambda size: twice([run(7, flags=NAMED, date=3_600_000)] * size),
    "one name, later and later": lambda size: [Arrived(at, [run(7, flags=NAMED)]) for at in range(size)],
    "names": lambda size: twice([run(number, flags=NAMED) for number in range(size)]),
    "numbers up": lambda size: twice([run(2 * number) for number in range(size)]),
    "numbers down": lambda size: twice([run(2 * (size - number)) for number in range(size)]),
    "numbers far apart": lambda size: twice([run((number * 7919 % size) << 12) for number in range(size)]),
    "one long run": lambda size: twice(
        [*[run(10**7 + number) for number in range(size)], run(5 * 10**9, size)]
    ),
    "a long run and others between": _longest,
    "overlaps": _overlaps,
    "holes": lambda size: [
        Arrived(0, [run(2 * number, flags=0) for number in range(size)]),
        Arrived(10, [run(0, 2 * size)]),
    ],
    "suspects of 800 s": lambda size: twice(
        [run(number, date=number % 1000 - 800_000) for number in range(size)], 1000
    ),
}
"""Tables by their number of runs. Whatever grows faster than that, times a logarithm, is an attack."""


@lru_cache(maxsize=4096)
def _data(runs: tuple[Run, ...], salt: int) -> bytes:
    return aggregate([*runs, run(salt, flags=0, incarnation=b"salt....")], SHARD)


def carriers(arrived: Sequence[Arrived], first: int = 10**20) -> list[KinesisRecord]:
    """Return Kinesis records, no two with equal bytes."""
    return [
        KinesisRecord(_data(tuple(one.runs), index), "a", str(first + index), moment(one.at))
        for index, one in enumerate(arrived)
    ]


def judge(
    records: Sequence[KinesisRecord],
    past: Sequence[KinesisRecord] = (),
    *,
    reader: RunReader | None = None,
    each: int = 1,
) -> int:
    """Read records as a worker does, in batches; the look-ups find what is in the past. Return how many are dropped."""
    reader = reader or RunReader(STREAM, SHARD, HashKeyRange(0, MAX_HASH_KEY), parents=())
    dropped = 0
    for begin in range(0, len(records), each):
        batch = records[begin : begin + each]
        reader.begin(batch)
        users = deaggregate(batch, on_tagged=reader.add)
        look_up = reader.look_up()
        while look_up is not None and look_up.step is not None:
            if isinstance(look_up.step, ListShards):
                look_up.listed(())
            else:
                look_up.page([*past, *records], at_end=True)
        decision = reader.decide(EPOCH)
        dropped += decision.repeated
        assert len(users.without(decision.dropped)) == len(users) - decision.repeated
    return dropped


def cost(arrived: Sequence[Arrived], past: Sequence[Arrived] = (), *, each: int = 1) -> float:
    """Return the steps for each run that is judged, see `judge`."""
    records, before = carriers(arrived), carriers(past, first=10**19)
    runs = sum(len(one.runs) for one in [*arrived, *past])
    return steps_of(lambda: judge(records, before, each=each)) / runs
