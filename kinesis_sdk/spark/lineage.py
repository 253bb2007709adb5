"""Shards that a query reads, and their positions: pure decisions from the list of shards and the offset.

A child starts at its oldest record, after every listed parent was read to its end, in an earlier batch or in the same batch. In the same
batch, one task reads the parents' last records and then the child: they are a *family*. So the records
of a partition key keep their order across splits and merges, and a child's first records do not wait for the next
trigger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import Ended, Latest, TrimHorizon
from kinesis_sdk.common.shards import ShardGraph
from kinesis_sdk.spark.offsets import QueryOffset, ShardPosition
from kinesis_sdk.spark.positions import StartingPosition

MAX_FAMILY = 8
"""Maximum number of shards that one task reads one after another when several reshards fall into one batch."""


def initial_positions(
    graph: ShardGraph, candidates: Iterable[str], starting: StartingPosition, started: int
) -> dict[str, ShardPosition]:
    """Return the positions from which a query starts; LATEST is resolved to ``started``, in epoch milliseconds.

    ``candidates`` are the shards that existed at the default position: the open shards for LATEST, the shards that were open at the time
    for AT_TIMESTAMP, all shards for TRIM_HORIZON. Only the oldest of them have a position; younger shards enter when their parents are
    finished. A shard that the user named replaces its ancestors. Its siblings start at the default position, and its descendants enter
    when it is finished.

    Raises:
        ConfigError: If a named shard does not exist.
    """
    for name in starting.shards:
        if name not in graph.shards:
            raise ConfigError("startingPosition", name, "ids of shards that the stream lists")
    named = set(starting.shards)
    chosen = set(candidates) & graph.shards.keys()
    if isinstance(starting.default, Latest):
        # Shards that were open at the same time do not descend from each other, but some emulators list ancestors, too. An old
        # parent among them would let its children enter at their oldest record.
        chosen -= ancestors(graph, chosen)
    # A named shard replaces its ancestors. Other descendants of theirs, such as its sibling in a split, start at the default.
    replaced = ancestors(graph, named)
    chosen |= _descendants(graph, chosen & replaced)
    chosen -= replaced
    younger = _descendants(graph, chosen | named)
    chosen -= younger
    chosen |= named - _descendants(graph, named)
    # The merge of a named shard with a second shard enters after both shards, so the second shard is tracked, although it may be
    # closed.
    chosen |= {parent for child in younger for parent in graph.parents(child)} - younger - chosen - replaced
    return {name: starting.resolve(name, started) for name in sorted(chosen)}


def _descendants(graph: ShardGraph, names: Iterable[str]) -> set[str]:
    """Return the listed shards that descend from any of these."""
    return _reached(names, graph.children)


def ancestors(graph: ShardGraph, names: Iterable[str]) -> set[str]:
    """Return the listed ancestors of any of these shards."""
    return _reached(names, graph.parents)


def _reached(names: Iterable[str], step: Callable[[str], Iterable[str]]) -> set[str]:
    """Return all shards that are reached from the given shards by one or more steps."""
    found: set[str] = set()
    layer = set(names)
    while layer:
        layer = {other for name in layer for other in step(name)} - found
        found |= layer
    return found


def admitted(graph: ShardGraph, tracked: Mapping[str, ShardPosition], old: Collection[str]) -> list[str]:
    """Return the shards that enter now, in the order of their ids: all their listed parents are finished.

    ``old`` are ancestors of tracked shards (`ancestors`), which never enter.
    """
    return [
        name
        for name in sorted(graph.shards.keys() - tracked.keys())
        if name not in old
        and all(_is_finished(graph, tracked, parent) for parent in graph.shards[name].parents)
    ]


def _is_finished(graph: ShardGraph, tracked: Mapping[str, ShardPosition], parent: str) -> bool:
    """Return whether a parent allows its child to enter. A tracked parent must have ended, even if a listing omits it."""
    position = tracked.get(parent)
    return isinstance(position, Ended) if position is not None else parent not in graph.shards


def retired(graph: ShardGraph, tracked: Mapping[str, ShardPosition]) -> set[str]:
    """Return the finished shards that the offset no longer needs: not listed, or all their listed children are tracked.

    A finished shard stays until its children are listed. Otherwise, nothing would record that it was read.
    """
    gone: set[str] = set()
    for name, position in tracked.items():
        if isinstance(position, Ended):
            children = graph.children(name)
            if name not in graph.shards or (children and all(child in tracked for child in children)):
                gone.add(name)
    return gone


def start_of(stream: str, shard_id: str, start: QueryOffset, end: QueryOffset) -> ShardPosition:
    """Return the position at which a batch starts in a shard, from its two offsets alone.

    The start offset of the first batch has no shards. So the end offset contains the resolved starting position, which is used even if a
    restart resolved the position again. A stream that is only in the end offset was added to the query, and starts at the starting
    position of the query.
    A shard that is only in the end offset is a child, or belongs to a recreated stream.
    """
    before, after = start.streams.get(stream), end.streams[stream]
    if before is None or not before.shards:
        starting = StartingPosition.parse(end.starting).for_stream(stream)
        return starting.resolve(shard_id, end.started if start.cut is None else start.cut)
    if before.created != after.created:
        return TrimHorizon()
    return before.shards.get(shard_id, TrimHorizon())


class Families:
    """Shards of one batch that are connected by a parent that ends in it and a child that enters.

    One task reads a family, so it is limited to `MAX_FAMILY` shards.
    """

    def __init__(self) -> None:
        self._leader: dict[str, str] = {}
        self._size: dict[str, int] = {}

    def admits(self, child: str, parents: Collection[str]) -> bool:
        """Join a child with its parents in this batch, unless the family becomes too large; return whether it was joined."""
        leaders = {self._find(name) for name in (child, *parents)}
        size = sum(self._size[leader] for leader in leaders)
        if size > MAX_FAMILY:
            return False
        first = min(leaders)
        for leader in leaders:
            self._leader[leader] = first
        self._size[first] = size
        return True

    def _find(self, name: str) -> str:
        self._size.setdefault(name, 1)
        while (leader := self._leader.setdefault(name, name)) != name:
            name = leader
        return name
