"""A stream in memory with aggregates of idempotent producers, and shells that read it: for tests of the rules of readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from kinesis_sdk.common.aggregate_reader import deaggregate, has_outside, open_aggregate
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.once.reader import Decision, ListShards, LookUp, ReadShard, RunReader
from kinesis_sdk.common.once.table import NAMED, TAG_KEY, Run, decode_table, encode_table
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.shards import Shard, ShardGraph
from tests.common.reference import message, seal

STREAM = "orders"
EPOCH = 1_700_000_000_000
INCARNATION = b"producer"
MIDDLE = MAX_HASH_KEY // 2

Position = tuple[str, str, int]
"""Shard, sequence number, sub-sequence number."""


def run(
    number: int,
    date: int,
    count: int = 1,
    *,
    flags: int = 0,
    holdoff: int = 4,
    incarnation: bytes = INCARNATION,
) -> Run:
    """Return a run whose date is in milliseconds after `EPOCH`."""
    return Run(count, holdoff, flags, incarnation, EPOCH + date, number)


def aggregate(
    runs: Sequence[Run],
    made_for: str | None,
    hash_keys: Sequence[int] | None = None,
    *,
    stream: str = STREAM,
    table: str | None = None,
) -> bytes:
    """Return the data of an aggregate; each user record is ``number`` of its run as text."""
    numbers = [one.number + index for one in runs for index in range(one.count)]
    places = [1] * len(numbers) if hash_keys is None else hash_keys
    found = message(
        [("k", str(place), str(number).encode()) for number, place in zip(numbers, places, strict=True)]
    )
    value = encode_table(stream, made_for, runs) if table is None else table
    found.records[0].tags.add(key=TAG_KEY, value=value)
    return seal(found.SerializeToString())


def moment(millis: int) -> datetime:
    return datetime.fromtimestamp(0, timezone.utc) + timedelta(milliseconds=EPOCH + millis)


@dataclass
class Stream:
    """Shards with what is stored in them. Times are milliseconds after `EPOCH`."""

    shards: dict[str, Shard] = field(default_factory=dict)
    logs: dict[str, list[KinesisRecord]] = field(default_factory=dict)
    retained_from: int = -(10**12)

    def open(self, shard_id: str, low: int, high: int, *parents: str) -> None:
        first, second = [*parents, None, None][:2]
        self.shards[shard_id] = Shard(shard_id, HashKeyRange(low, high), first, second)
        self.logs[shard_id] = []
        for parent in parents:
            self.shards[parent] = replace(self.shards[parent], ending_sequence_number="9" * 30)

    def store(self, shard_id: str, data: bytes, at: int | None) -> KinesisRecord:
        log = self.logs[shard_id]
        number = str(10**20 + 1000 * sum(map(len, self.logs.values())))
        log.append(KinesisRecord(data, "a", number, None if at is None else moment(at)))
        return log[-1]

    def put(
        self,
        shard_id: str,
        at: int | None,
        *runs: Run,
        hash_keys: Sequence[int] | None = None,
        made_for: str | None = "itself",
    ) -> KinesisRecord:
        """Store an aggregate that was made for its shard, or for another one."""
        keys = [self.shards[shard_id].hash_key_range.start] * sum(one.count for one in runs)
        target = shard_id if made_for == "itself" else made_for
        return self.store(shard_id, aggregate(runs, target, keys if hash_keys is None else hash_keys), at)

    def retained(self, shard_id: str) -> list[KinesisRecord]:
        return [
            record
            for record in self.logs[shard_id]
            if (at := record.approximate_arrival_timestamp) is None or at >= moment(self.retained_from)
        ]

    def positions(self, shard_id: str) -> set[Position]:
        """Return the positions of all user records of a shard."""
        return {
            (shard_id, user.sequence_number, user.sub_sequence_number)
            for user in deaggregate(self.logs[shard_id])
        }

    def valid_copies(self) -> dict[tuple[bytes, int | None, int], list[Position]]:
        """Return the positions of the valid copies of each identity, in the order of their path."""
        found: dict[tuple[bytes, int | None, int], list[Position]] = {}
        for shard_id in in_order(self.shards.values()):
            for record in self.logs[shard_id]:
                columns = open_aggregate(record.data)
                table = columns and columns.tag and decode_table(columns.tag, STREAM, len(columns.payloads))
                if not table or columns is None or has_outside(columns, self.shards[shard_id].hash_key_range):
                    continue
                sub = 0
                for one in table.runs:
                    for index in range(one.count):
                        key = (one.incarnation, None if one.flags & NAMED else one.date, one.number + index)
                        found.setdefault(key, []).append((shard_id, record.sequence_number, sub))
                        sub += 1
        return found

    def first_valid_copies(self) -> set[Position]:
        """Return the positions at which readers deliver the records: the oracle."""
        return {copies[0] for copies in self.valid_copies().values()}

    def reader(self, shard_id: str, **settings: object) -> RunReader:
        shard = self.shards[shard_id]
        arguments: dict[str, object] = {"parents": shard.parents, **settings}
        return RunReader(STREAM, shard_id, shard.hash_key_range, **arguments)  # type: ignore[arg-type]


def in_order(shards: Iterable[Shard]) -> list[str]:
    """Return shard ids, parents before children."""
    graph = ShardGraph(shards)
    return sorted(graph.shards, key=lambda shard_id: (len([*graph.ancestors(shard_id)]), shard_id))


@dataclass
class Calls:
    """What look-ups have cost."""

    read: list[str] = field(default_factory=list)
    listed: int = 0


def carry_out(stream: Stream, look_up: LookUp, calls: Calls | None = None, *, page: int = 3) -> None:
    """Make the reads of a look-up, a few records at a time."""
    calls = calls or Calls()
    while (step := look_up.step) is not None:
        if isinstance(step, ListShards):
            calls.listed += 1
            look_up.listed(stream.shards.values())
            continue
        calls.read.append(step.shard_id)
        if step.shard_id not in stream.shards:
            look_up.gone()
            continue
        rest = _from(stream.retained(step.shard_id), step)
        while look_up.step is step:
            head, rest = rest[:page], rest[page:]
            look_up.page(head, at_end=not rest)


def _from(records: list[KinesisRecord], step: ReadShard) -> list[KinesisRecord]:
    if step.since_millis is None:
        return records
    since = moment(step.since_millis - EPOCH)
    for index, record in enumerate(records):
        if record.approximate_arrival_timestamp is not None and record.approximate_arrival_timestamp >= since:
            return records[index:]
    return []


@dataclass
class Batch:
    """What a shell delivers of a batch."""

    positions: list[tuple[str, int]]
    data: list[bytes]
    decision: Decision
    calls: Calls


def read(
    stream: Stream,
    reader: RunReader,
    records: Sequence[KinesisRecord],
    *,
    now: int = 1_000_000,
    shell: Callable[[Stream, LookUp, Calls], None] = carry_out,
) -> Batch:
    """Read a batch as a shell does."""
    calls = Calls()
    reader.begin(records)
    users = deaggregate(records, on_tagged=reader.add)
    look_up = reader.look_up(EPOCH + now)
    if look_up is not None:
        shell(stream, look_up, calls)
    decision = reader.decide(EPOCH + now)
    users = users.without(decision.dropped)
    return Batch(
        [(user.sequence_number, user.sub_sequence_number) for user in users],
        [user.data for user in users],
        decision,
        calls,
    )
