"""The start of a batch: a position in every shard that the query reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import AtTimestamp, Ended, Latest, TrimHorizon
from kinesis_sdk.spark.lineage import initial_positions
from kinesis_sdk.spark.offsets import QueryOffset, ShardPosition, StreamOffset
from kinesis_sdk.spark.positions import StartingPosition
from kinesis_sdk.spark.streams import Key, QueryStreams

_AHEAD = 5_000
"""Milliseconds by which a starting time may be later than the estimated time at Kinesis: the read waits until then, because the estimate
may be wrong."""

_LATEST_MARGIN = 1_000
"""Milliseconds before a LATEST start at which the open shards are listed. A split at the same time must not hide the parent, which
has records to deliver."""


def is_recreated(streams: QueryStreams, name: str, start: QueryOffset) -> bool:
    """Return whether an offset has positions in a stream that has since been deleted and recreated with the same name."""
    before = start.streams.get(name)
    return before is not None and bool(before.shards) and before.created != streams.listings[name].created


def with_positions(streams: QueryStreams, start: QueryOffset) -> QueryOffset:
    """Return the start with positions in every stream.

    Positions are resolved for the initial offset, for a stream that was added to the query, and for a stream that was recreated.

    Raises:
        ConfigError: If the query starts at a time in the future, or at a shard that does not exist.
        DataLossError: If a stream was recreated.
        AwsError: If a call failed permanently.
    """
    found: dict[str, StreamOffset] = {}
    for name, listing in streams.listings.items():
        before = start.streams.get(name)
        if is_recreated(streams, name, start):
            streams.lose(
                f"stream {name} was deleted and recreated: the positions in the checkpoint are no longer valid"
            )
            roots = initial_positions(
                listing.graph, listing.graph.shards, StartingPosition(TrimHorizon()), start.started
            )
            found[name] = StreamOffset(created=listing.created, shards=roots)
        elif before is not None and before.shards:
            found[name] = before
        else:
            found[name] = StreamOffset(created=listing.created, shards=_resolved(streams, name, start))
    return replace(start, streams=found)


def _resolved(streams: QueryStreams, name: str, start: QueryOffset) -> dict[str, ShardPosition]:
    listing = streams.listings[name]
    starting = StartingPosition.parse(start.starting).for_stream(name)
    started = start.started if start.cut is None else start.cut
    refuse_future(streams, (starting.default, *starting.shards.values()))
    candidates: Iterable[str] = listing.graph.shards
    if isinstance(starting.default, Latest):
        # Not the shards that are open now: the parent of a child created since the query started has records to deliver.
        candidates = listing.open_at(started - _LATEST_MARGIN)
    elif isinstance(starting.default, AtTimestamp):
        candidates = listing.open_at(starting.default.millis)
    return initial_positions(listing.graph, candidates, starting, started)


def refuse_future(streams: QueryStreams, starts: Iterable[ShardPosition | Latest]) -> None:
    """Raise an error if a position is a time in the future: until that time, Kinesis rejects it and every retry.

    Raises:
        ConfigError: If a position is in the future.
    """
    now = streams.now()
    for start in starts:
        if isinstance(start, AtTimestamp) and start.millis > now + _AHEAD:
            raise ConfigError("startingPosition", str(start), "a time in the past")


def tracked(streams: QueryStreams, begin: QueryOffset) -> dict[Key, ShardPosition]:
    """Return the positions of a start, with the shards that enter at once, and without shards that no longer exist.

    Raises:
        DataLossError: If a shard disappeared before it was read to its end.
        AwsError: If a call failed permanently.
    """
    found: dict[Key, ShardPosition] = {}
    for name, offset in begin.streams.items():
        listing = streams.listings[name]
        shards = dict(offset.shards)
        missing = {n for n, p in shards.items() if n not in listing.graph.shards and not isinstance(p, Ended)}
        if missing:
            missing -= listing.list_shards().shards.keys()
        for shard_id in sorted(missing):
            if streams.exists(Key(name, shard_id)):
                listing.refresh_soon()
                continue
            streams.lose(
                f"shard {shard_id} is no longer in stream {name}, and was not read to its end", shard_id
            )
            del shards[shard_id]
        for shard_id in listing.admitted(shards):
            shards[shard_id] = TrimHorizon()
        found.update((Key(name, shard_id), position) for shard_id, position in shards.items())
    return found
