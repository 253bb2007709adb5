"""Which shards a query follows: pure decisions on the listing and the offset.

Children enter a batch after every listed parent was finished in an *earlier* batch, and begin at their oldest record.
A shard is never split over tasks. So the records of a partition key keep their order across splits and merges.
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
    """Positions that a query begins with.

    Args:
        graph: All listed shards.
        candidates: Shards that existed at the default position: the open ones for LATEST, those open then for
            AT_TIMESTAMP, all for TRIM_HORIZON.
        starting: What the user wrote.
        started: What LATEST was resolved to, epoch milliseconds.

    Returns:
        Positions of the oldest of the candidates; younger ones come when their parents are finished. A shard that
        the user named takes the place of its ancestors and descendants.

    Raises:
        ConfigError: A named shard does not exist.
    """
    for name in starting.shards:
        if name not in graph.shards:
            raise ConfigError("startingPosition", name, "ids of shards that the stream lists")
    named = set(starting.shards)
    chosen = set(candidates) & graph.shards.keys()
    if isinstance(starting.default, Latest):
        # The shards that were open at an instant do not descend from each other. Some emulators list others, too:
        # an old parent among them would bring its children in at their oldest record.
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
    """Shards that enter now: not tracked, no ancestor of a tracked one, every listed parent finished before."""
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
    """Finished shards that need no place any more: not listed, or all their listed children are tracked.

    A finished shard whose children are not listed yet stays: without it nothing would say that it was read.
    """
    gone: set[str] = set()
    for name, position in tracked.items():
        if isinstance(position, Ended):
            children = graph.children(name)
            if name not in graph.shards or (children and all(child in tracked for child in children)):
                gone.add(name)
    return gone


def start_of(shard_id: str, start: StreamOffset, end: StreamOffset) -> ShardPosition:
    """Where a batch begins in a shard, from the two offsets alone.

    The first batch's start has no shards: the end says what its starting position was resolved to, also after a
    restart that resolved it anew. A shard that only the end has is a child, or one of a stream made anew.
    """
    if start.created != end.created:
        return TrimHorizon()
    if start.is_initial:
        return StartingPosition.parse(end.starting).resolve(shard_id, end.started)
    return start.shards.get(shard_id, TrimHorizon())
