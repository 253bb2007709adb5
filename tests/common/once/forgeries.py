"""Streams of forged aggregates, drawn at random from shapes that try to be expensive for readers.

`forged` has the known attacks; this module draws new ones at random. Each comes from a seed, so a seed and a size name a case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from random import Random

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.once.budget import MAX_BYTES, LookUpBudget
from kinesis_sdk.common.once.reader import ListShards, RunReader
from kinesis_sdk.common.once.table import (
    FIRST,
    MAX_DATE,
    MAX_NUMBER,
    NAMED,
    REPEAT,
    TAG_KEY,
    Run,
    encode_header,
    encode_run,
)
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.shards import Shard
from tests.common.reference import seal

STREAM = "orders"
EPOCH = 1_700_000_000_000
MIDDLE = MAX_HASH_KEY // 2
SHARD, PARENT, GRANDPARENT = "shardId-000000000002", "shardId-000000000001", "shardId-000000000000"
SHARDS = [
    Shard(GRANDPARENT, HashKeyRange(0, MAX_HASH_KEY)),
    Shard(PARENT, HashKeyRange(0, MAX_HASH_KEY), GRANDPARENT),
    Shard(SHARD, HashKeyRange(0, MIDDLE), PARENT),
]
_FIRST = 10**20
_BLOCK = 4096
"""Numbers of a block of `pieces`."""


def _length(size: int) -> bytes:
    found = bytearray()
    while size > 0x7F:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    found.append(size)
    return bytes(found)


def _bytes_field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _length(len(value)) + value


_SMALLEST = _bytes_field(3, b"\x08\x00" + _bytes_field(3, b""))
"""A user record of 6 bytes."""


def _aggregate(tag: bytes, user_records: int, place: int, salt: int) -> bytes:
    """Return an aggregate that is as small as the format allows, so that its runs are most of it."""
    hash_key = b"\x10\x00" if place else b""
    first = b"\x08\x00" + hash_key + _bytes_field(3, b"%d" % salt if salt else b"")
    table = _bytes_field(4, _bytes_field(1, TAG_KEY.encode()) + _bytes_field(2, tag))
    keys = _bytes_field(1, b"k") + (_bytes_field(2, b"%d" % place) if place else b"")
    return seal(keys + _bytes_field(3, first + table) + _SMALLEST * (user_records - 1))


@lru_cache(maxsize=64)
def _header(made_for: str | None) -> bytes:
    return encode_header(STREAM, made_for)


# Numbers of the runs of a table: how many, how long each is, a random generator → number of each.

Shape = Callable[[int, int, Random], list[int]]


def _random(count: int, length: int, rng: Random) -> list[int]:
    span = rng.choice([2, length + 1, count, count * length, 3 * _BLOCK, 1 << 47])
    return [rng.randrange(span) for _ in range(count)]


SHAPES: dict[str, Shape] = {
    "equal": lambda count, length, rng: [7] * count,
    "zero": lambda count, length, rng: [0] * count,
    "largest": lambda count, length, rng: [MAX_NUMBER - length + 1] * count,
    "up": lambda count, length, rng: [length * index for index in range(count)],
    "up with gaps": lambda count, length, rng: [(length + 1) * index for index in range(count)],
    "down": lambda count, length, rng: [(length + 1) * (count - index) for index in range(count)],
    "overlapping": lambda count, length, rng: [max(1, length // 2) * index for index in range(count)],
    "one further each": lambda count, length, rng: [*range(count)],
    "one back each": lambda count, length, rng: [*range(count, 0, -1)],
    "odd after even": lambda count, length, rng: [
        2 * length * index + (length if index >= count // 2 else 0) for index in range(count)
    ],
    "far apart": lambda count, length, rng: [(index * 7919 % count) << 20 for index in range(count)],
    "bisecting": lambda count, length, rng: [
        int(bin(index)[:1:-1].ljust(12, "0"), 2) * length for index in range(count)
    ],
    "a block each": lambda count, length, rng: [_BLOCK * index - 1 for index in range(1, count + 1)],
    "one block": lambda count, length, rng: [index * 37 % _BLOCK for index in range(count)],
    "random": _random,
}


def _dates(rng: Random, count: int) -> list[int]:
    now = rng.choice([0, 0, -1000, -1999, -29_000, -31_000, -61_000, -800_000, -899_999, -3_600_000])
    shape = rng.randrange(8)
    if shape == 0:
        return [EPOCH + now + index for index in range(count)]
    if shape == 1:
        return [EPOCH + rng.choice([now, 3_600_000, -900_001]) for _ in range(count)]
    if shape == 2:
        return [rng.choice([0, MAX_DATE])] * count
    if shape == 3:
        return [EPOCH + 3_600_000] * count
    return [EPOCH + now] * count


def _lengths(rng: Random, count: int, user_records: int) -> list[int]:
    longest = max(1, user_records // count)
    shape = rng.randrange(5)
    if shape < 2:
        return [1] * count
    if shape == 2:
        return [rng.randint(1, 2 * longest) for _ in range(count)]
    if shape == 3:
        return [longest] * count
    return [max(1, user_records - count), *[1] * (count - 1)]


def _table(rng: Random, count: int, user_records: int) -> list[Run]:
    lengths, dates = _lengths(rng, count, user_records), _dates(rng, count)
    numbers = SHAPES[rng.choice([*SHAPES])](count, max(lengths[1:] or lengths), rng)
    first = NAMED | FIRST
    flags = rng.choice(
        [
            [0],
            [REPEAT],
            [REPEAT],
            [REPEAT],
            [NAMED],
            [first],
            [NAMED | REPEAT],
            [0, REPEAT, NAMED],
            [first, NAMED, first, REPEAT],
        ]
    )
    owners = rng.choice(
        [[b"ABCDEFGH"], [b"ABCDEFGH"], [b"%08d" % one for one in range(rng.choice([3, count]))]]
    )
    if rng.random() < 0.1:
        rng.shuffle(numbers)
    found = []
    for index in range(count):
        flag = flags[index % len(flags)]
        length = 1 if flag & NAMED else lengths[index]
        number = min(max(0, numbers[index]), MAX_NUMBER - length + 1)
        found.append(
            Run(length, rng.choice([1, 4, 15]), flag, owners[index % len(owners)], dates[index], number)
        )
    return found


def _damaged(rng: Random, tag: bytes) -> bytes:
    """Return the value of a tag with characters that no producer writes there."""
    if rng.random() < 0.3:
        return tag[: rng.randrange(len(tag))] or b"A"
    found = bytearray(tag)
    for _ in range(rng.choice([1, 3, 40])):
        found[rng.randrange(len(found))] = rng.randrange(128)
    return bytes(found)


def _arrivals(rng: Random, count: int) -> Iterator[int | None]:
    at, apart = 0, rng.choice([0, 0, 1, 700, 1000, 10_001, 61_000])
    unknown = rng.choice([0, 0, 0, 0, 0, 0.02, 1])
    for _ in range(count):
        yield None if rng.random() < unknown else at
        at += apart if rng.random() < 0.95 else rng.choice([-1500, 12_000, 120_000])


@dataclass
class Forgery:
    """Forged records, and a reader that reads them.

    Attributes:
        records: Records of the shard, in order.
        past: Records before these, which only look-ups find; also in its ancestors.
        ancestors: Records of the shard's parent and grandparent.
        batch: Number of records of each batch.
        page: Number of records of each response of a look-up.
        repeats: Whether each batch is read twice, as after a failed delivery.
        settings: Arguments of the reader.
        owned: The range that the reader is told.
        capacity: Bytes that look-ups may read; None for any number.
        runs: Number of runs in what was forged.
        read_bytes: Bytes of the records of the batches and of the look-ups, once it was played.
    """

    records: list[KinesisRecord]
    past: list[KinesisRecord]
    ancestors: list[KinesisRecord]
    batch: int
    page: int
    repeats: bool
    settings: dict[str, object]
    owned: HashKeyRange | None
    capacity: int | None
    runs: int
    read_bytes: int = 0

    def play(self) -> None:
        """Read the records as a worker does."""
        self.read_bytes = 0
        budget = None if self.capacity is None else LookUpBudget(self.capacity, per_second=1000)
        reader = RunReader(STREAM, SHARD, self.owned, budget=budget, **self.settings)  # type: ignore[arg-type]
        for begin in range(0, len(self.records), self.batch):
            batch = self.records[begin : begin + self.batch]
            now = EPOCH + 1000 * begin
            for _ in range(2 if self.repeats else 1):
                reader.begin(batch)
                users = deaggregate(batch, on_tagged=reader.add)
                self.read_bytes += sum(len(record.data) for record in batch)
                self._look_up(reader, now)
                decision = reader.decide(now)
                left = users.without(decision.dropped)
                assert len(left) == len(users) - decision.repeated - decision.misplaced
                assert 0 <= reader.size <= 2 * MAX_BYTES

    def _look_up(self, reader: RunReader, now: int) -> None:
        look_up = reader.look_up(now)
        while look_up is not None and (step := look_up.step) is not None:
            if isinstance(step, ListShards):
                look_up.listed(SHARDS)
                continue
            found = [*self.past, *self.records] if step.shard_id == SHARD else self.ancestors
            for begin in range(0, max(1, len(found)), self.page):
                if look_up.step is not step:
                    break
                page = found[begin : begin + self.page]
                self.read_bytes += sum(len(record.data) for record in page)
                look_up.page(page, at_end=begin + self.page >= len(found))


def _stored(
    rng: Random, tables: Sequence[Sequence[Run]], count: int, first: int
) -> tuple[list[KinesisRecord], int]:
    """Return records with some of the tables, in random or equal order, and the number of their runs."""
    same_bytes, damaged = rng.random() < 0.1, rng.random() < 0.1
    made_for = rng.choice([SHARD, SHARD, SHARD, PARENT, "shardId-000000000009", None])
    place = rng.choice([0, 5, 5, MAX_HASH_KEY]) if made_for != SHARD or rng.random() < 0.05 else 0
    in_turns = rng.random() < 0.7
    records, runs = [], 0
    for index, at in enumerate(_arrivals(rng, count)):
        table = tables[index % len(tables)] if in_turns else rng.choice(tables)
        tag = _header(made_for) + b"".join(map(encode_run, table))
        if damaged and rng.random() < 0.5:
            tag = _damaged(rng, tag)
        salt = 0 if same_bytes else first + index
        data = _aggregate(tag, sum(run.count for run in table), place, salt)
        moment = None if at is None else _EPOCH + timedelta(milliseconds=at)
        records.append(KinesisRecord(data, "a", str(first + index), moment))
        runs += len(table)
    return records, runs


_EPOCH = datetime.fromtimestamp(0, timezone.utc) + timedelta(milliseconds=EPOCH)


def forge(seed: int, size: int) -> Forgery:
    """Draw a forgery.

    Args:
        seed: The same seed and size give the same forgery.
        size: About how many runs and user records it has.
    """
    rng = Random(seed)
    aggregates = min(size, rng.choice([1, 2, 2, 3, 8, size]))
    each = max(1, size // aggregates)
    count = rng.randint(1, min(3, aggregates))
    tables = [_table(rng, rng.choice([each, max(1, int(each**0.5))]), each) for _ in range(count)]
    records, runs = _stored(rng, tables, aggregates, _FIRST)
    past, more = _stored(rng, tables, rng.choice([0, 0, 1, 2]), _FIRST - 1000)
    ancestors, others = _stored(rng, tables, rng.choice([0, 0, 1]), _FIRST - 2000)
    settings: dict[str, object] = {
        "parents": rng.choice([(), (), (PARENT,), None]),
        "max_bytes": rng.choice([1, 3000, 20_000, MAX_BYTES, MAX_BYTES]),
        "contiguous": rng.random() < 0.8,
        "drops_equal": rng.random() < 0.8,
    }
    return Forgery(
        records,
        past,
        ancestors,
        batch=rng.choice([1, 1, 2, len(records)]),
        page=rng.choice([1, 3, 1000]),
        repeats=rng.random() < 0.15,
        settings=settings,
        owned=None if rng.random() < 0.1 else HashKeyRange(0, MIDDLE),
        capacity=rng.choice([None, None, 1, 10_000, 10**6]),
        runs=runs + more + others,
    )
