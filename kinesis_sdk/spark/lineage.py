"""Shards that a query reads, and their positions: pure decisions from the list of shards and the offset.

A child enters a batch after every listed parent was finished in an *earlier* batch, and starts at its oldest record. A shard is
never divided among tasks. The records of a partition key therefore keep their order across splits and merges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import Ended, Latest, TrimHorizon
from kinesis_sdk.common.shards import ShardGraph
from kinesis_sdk.spark.offsets import ShardPosition, StreamOffset
from kinesis_sdk.spark.positions import StartingPosition


def initial_positions(
    graph: ShardGraph, candidates: Iterable[str], starting: StartingPosition, started: int
) -> dict[str, ShardPosition]:
    """Return the positions from which a query starts.

    Args:
        graph: All listed shards.
        candidates: Shards that existed at the default position: the open ones for LATEST, those that were open then for
            AT_TIMESTAMP, all for TRIM_HORIZON.
        starting: Starting position that the user wrote.
        started: Time that LATEST was resolved to, in epoch milliseconds.

    Returns:
        Positions of the oldest candidates; younger ones enter when their parents are finished. A shard that the user named
        replaces its ancestors and descendants.

    Raises:
        ConfigError: If a named shard does not exist.
    """
    for name in starting.shards:
        if name not in graph.shards:
            raise ConfigError("startingPosition", name, "ids of shards that the stream lists")
    named = set(starting.shards)
    chosen = set(candidates) & graph.shards.keys()
    if isinstance(starting.default, Latest):
        # Shards that were open at the same time do not descend from each other. Some emulators list others, too. An old
        # parent among them would let its children enter at their oldest record.
        for name in tuple(chosen):
            chosen -= set(graph.ancestors(name))
    chosen = {
        name
        for name in chosen
        if not chosen.intersection(graph.ancestors(name)) and not named.intersection(graph.ancestors(name))
    }
    for name in named:
        chosen -= set(graph.ancestors(name))
    chosen |= {name for name in named if not named.intersection(graph.ancestors(name))}
    return {name: starting.resolve(name, started) for name in sorted(chosen)}


def admitted(graph: ShardGraph, tracked: Mapping[str, ShardPosition]) -> dict[str, ShardPosition]:
    """Return the shards that enter now: not tracked, not an ancestor of a tracked one, and all listed parents finished."""
    old: set[str] = set()
    for name in tracked:
        old.update(graph.ancestors(name))
    return {
        name: TrimHorizon()
        for name in sorted(graph.shards)
        if name not in tracked
        and name not in old
        and all(isinstance(tracked.get(parent), Ended) for parent in graph.parents(name))
    }


def retired(graph: ShardGraph, tracked: Mapping[str, ShardPosition]) -> set[str]:
    """Return the finished shards that the offset no longer needs: not listed, or all their listed children are tracked.

    A finished shard whose children are not listed yet stays. Without it, nothing would record that it was read.
    """
    gone: set[str] = set()
    for name, position in tracked.items():
        if isinstance(position, Ended):
            children = graph.children(name)
            if name not in graph.shards or (children and all(child in tracked for child in children)):
                gone.add(name)
    return gone


def start_of(shard_id: str, start: StreamOffset, end: StreamOffset) -> ShardPosition:
    """Return the position at which a batch starts in a shard, from its two offsets alone.

    The start of the first batch has no shards. The end says what the starting position was resolved to, even after a restart
    that resolved it again. A shard that only the end has is a child, or belongs to a recreated stream.
    """
    if start.created != end.created:
        return TrimHorizon()
    if start.is_initial:
        return StartingPosition.parse(end.starting).resolve(shard_id, end.started)
    return start.shards.get(shard_id, TrimHorizon())
