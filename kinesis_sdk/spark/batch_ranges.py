"""The ranges that tasks read for a batch between two offsets, or for a batch read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import AfterSequence, AtSequence, AtTimestamp, Ended, Latest, TrimHorizon
from kinesis_sdk.spark.batch_end import STOP_MARGIN
from kinesis_sdk.spark.batch_start import refuse_future
from kinesis_sdk.spark.errors import StalledError
from kinesis_sdk.spark.lineage import start_of
from kinesis_sdk.spark.offsets import QueryOffset, ShardPosition, StreamOffset
from kinesis_sdk.spark.options import SourceOptions
from kinesis_sdk.spark.positions import StartingPosition
from kinesis_sdk.spark.probe import ShardProbe
from kinesis_sdk.spark.reading import ShardRange
from kinesis_sdk.spark.shardio import first_number
from kinesis_sdk.spark.steps import Steps
from kinesis_sdk.spark.streams import Key, QueryStreams
from kinesis_sdk.spark.unread import Cut, End

_ARRIVAL_MARGIN = 600_000
"""A batch read continues for this many milliseconds after its ending position. Arrival times are approximate and need not increase; each
record is checked separately.
"""


def batch_ranges(
    streams: QueryStreams, start: QueryOffset, end: QueryOffset, weights: Mapping[Key, int]
) -> list[ShardRange]:
    """Return the ranges of the batch between two offsets: always the same for the same offsets, except for their weights.

    Raises:
        DataLossError: If a part of the batch is older than the retention period.
        OffsetError: If the offsets belong to other streams.
    """
    streams.check(end)
    items: list[ShardRange] = []
    for name, offset in sorted(end.streams.items()):
        listing = streams.listings[name]
        for shard_id in sorted(offset.shards):
            goal = offset.shards[shard_id]
            parents = _parents_in(streams, Key(name, shard_id), start, offset)
            begin = TrimHorizon() if parents else start_of(name, shard_id, start, end)
            if not isinstance(goal, AfterSequence | AtSequence | Ended) or _is_reached(begin, goal):
                continue
            if not listing.is_described:
                listing.describe()
            key = Key(name, shard_id)
            items.append(
                ShardRange(
                    streams.ids[name],
                    shard_id,
                    begin,
                    goal,
                    via=streams.via(key, begin, start.cut if _is_same(name, start, offset) else None),
                    owned=streams.owned(key),
                    parents=parents,
                    weight=weights.get(key),
                    lineage=streams.lineage(key),
                )
            )
    present = {(item.stream.name, item.shard_id) for item in items}
    return [
        replace(item, parents=tuple(p for p in item.parents if (item.stream.name, p) in present))
        for item in items
    ]


def _parents_in(streams: QueryStreams, key: Key, start: QueryOffset, offset: StreamOffset) -> tuple[str, ...]:
    """Return the parents that end in a batch in which a shard enters.

    A parent leaves the offset one batch after the batch in which it ended. So a shard entered in this batch if it is missing from the
    start offset, and its parent is in the end offset.
    """
    before = start.streams.get(key.stream)
    if before is not None and key.shard in before.shards:
        return ()
    shard = streams.listings[key.stream].graph.shards.get(key.shard)
    return () if shard is None else tuple(p for p in shard.parents if p in offset.shards)


def _is_same(name: str, start: QueryOffset, offset: StreamOffset) -> bool:
    """Return whether a start has positions in the same stream, and not in an earlier stream of the same name."""
    before = start.streams.get(name)
    return before is not None and bool(before.shards) and before.created == offset.created


def _is_reached(position: ShardPosition, goal: AfterSequence | AtSequence | Ended) -> bool:
    """Return whether no record lies between a position and an end."""
    if isinstance(position, Ended):
        return True
    return not isinstance(goal, Ended) and first_number(position) >= first_number(goal)


class _Read(NamedTuple):
    """A shard of a batch read."""

    key: Key
    start: ShardPosition


def plan_read(
    streams: QueryStreams, options: SourceOptions, shard_ids: frozenset[str] | None
) -> list[ShardRange]:
    """Return the ranges of a batch read: all records between the starting and the ending position, in all shards or in the named shards.

    Parents and children are read completely, but in parallel and therefore without an order between shards.

    Raises:
        ConfigError: If the starting position is LATEST or in the future, or a named shard does not exist.
        StalledError: If a shard could not be read up to its end.
        AwsError: If a call failed permanently.
    """
    ending = options.ending_position
    before = ending.millis if isinstance(ending, AtTimestamp) else None
    reads = _reads(streams, options, before, shard_ids)
    refuse_future(streams, (read.start for read in reads))
    now = streams.now()
    until = now + STOP_MARGIN if before is None else min(now + STOP_MARGIN, before + _ARRIVAL_MARGIN)
    ends = _ends(streams, options, reads, Cut(until, now, until > now))
    return [
        ShardRange(
            streams.ids[read.key.stream],
            read.key.shard,
            read.start,
            goal,
            before=before,
            owned=streams.owned(read.key),
            weight=max(1, ends[read].records),
            lineage=streams.lineage(read.key),
        )
        for read in reads
        if isinstance(goal := ends[read].position, AfterSequence | AtSequence | Ended)
        and not _is_reached(read.start, goal)
    ]


def _reads(
    streams: QueryStreams, options: SourceOptions, before: int | None, shard_ids: frozenset[str] | None
) -> list[_Read]:
    """Return the shards of a batch read that begin before its end."""
    starting = options.starting_position or StartingPosition(TrimHorizon())
    reads: list[_Read] = []
    missing = set(shard_ids or ())
    for name, listing in streams.listings.items():
        chosen = starting.for_stream(name)
        if any(isinstance(start, Latest) for start in (chosen.default, *chosen.shards.values())):
            raise ConfigError(
                "startingPosition", str(starting), "a position other than LATEST for a batch read"
            )
        listing.describe()
        graph = listing.list_shards()
        for shard_id in chosen.shards:
            if shard_id not in graph.shards:
                raise ConfigError("startingPosition", shard_id, "ids of shards that the stream lists")
        missing -= graph.shards.keys()
        for shard_id in graph.shards:
            start = chosen.resolve(shard_id, 0)
            if shard_ids is not None and shard_id not in shard_ids:
                continue
            if before is not None and isinstance(start, AtTimestamp) and start.millis >= before:
                continue
            reads.append(_Read(Key(name, shard_id), start))
    for shard_id in sorted(missing):
        raise ConfigError("shardIds", shard_id, "ids of shards that the stream lists")
    return reads


def _ends(streams: QueryStreams, options: SourceOptions, reads: list[_Read], cut: Cut) -> dict[_Read, End]:
    """Find the end of each shard of a batch read."""
    ends: dict[_Read, End] = {}

    def find(read: _Read) -> Steps[None]:
        probe = ShardProbe(streams.io[read.key.stream], read.key.shard, options.tip_lag_millis)
        probe.begin(read.start, patient=True)
        if cut.at_tip:
            yield from probe.walk()
        ends[read] = yield from probe.find_end(cut, closed=streams.is_closed(read.key))

    streams.run(find(read) for read in reads)
    for read, end in ends.items():
        if end.cut is not None and end.cut < cut.millis:
            raise StalledError(
                f"stream {read.key.stream}, shard {read.key.shard} could not be read up to its end"
            )
    return ends
