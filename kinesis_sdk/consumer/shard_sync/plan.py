"""Which leases to create: pure plans over a listing of shards and the leases that exist.

The rules are those of the KCL's ``HierarchicalShardSyncer``. Creates are conditional and the plans depend on
nothing but their input, so any number of workers may carry them out at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, TRIM_HORIZON
from kinesis_sdk.common.shards import Shard, ShardGraph, find_hole
from kinesis_sdk.consumer.leases.table.lease import Lease


def bootstrap_filter(position: str, timestamp: datetime | None) -> dict[str, Any]:
    """The ``ShardFilter`` that lists the shards which were open at an initial position.

    Args:
        position: ``LATEST``, ``TRIM_HORIZON`` or ``AT_TIMESTAMP``.
        timestamp: The instant, for the last one.
    """
    if position == AT_TIMESTAMP:
        return {"Type": "AT_TIMESTAMP", "Timestamp": timestamp}
    return {"Type": f"AT_{position}"}


def plan_bootstrap(shards: Iterable[Shard], position: str) -> list[Lease]:
    """Leases for an empty table.

    Args:
        shards: Answer to ListShards with `bootstrap_filter`.
        position: Initial position.

    Returns:
        Leases in the order in which they have to be created.

    Raises:
        ProtocolError: The snapshot does not cover the whole hash key space; list again.
    """
    # Some emulators ignore the filter; at LATEST a closed shard has nothing to read.
    chosen = [shard for shard in shards if shard.is_open or position != LATEST]
    gap = find_hole(shard.hash_key_range for shard in chosen)
    if gap is not None:
        raise ProtocolError(
            f"ListShards: the shards at {position} leave hash keys {gap.start} to {gap.end} uncovered"
        )
    return [Lease.for_shard(shard, position) for shard in _in_creation_order(chosen)]


def plan_bootstrap_from_all(shards: Iterable[Shard], position: str) -> list[Lease]:
    """Leases for an empty table from an unfiltered listing.

    For starts in the past whose filtered snapshot is not complete: a timestamp from before the stream's creation
    lists no shards. The oldest listed shards then hold everything there is.

    Raises:
        ProtocolError: The open shards do not cover the whole hash key space; list again.
    """
    shards = list(shards)
    gap = find_hole(shard.hash_key_range for shard in shards if shard.is_open)
    if gap is not None:
        raise ProtocolError(f"ListShards: open shards leave hash keys {gap.start} to {gap.end} uncovered")
    return plan_sync(shards, (), position)


def plan_sync(
    shards: Iterable[Shard], leases: Iterable[Lease], position: str, unreadable: Collection[str] = ()
) -> list[Lease]:
    """Leases that are missing beside existing ones.

    An open shard without a lease gets none now if data before it is still to be read under a lease that exists
    or is created here: the end of that shard creates it. One generation is created at a time. Beyond the KCL: a
    shard whose listed parents all have finished leases gets one at TRIM_HORIZON, because nobody else will
    create it any more and nothing of it was read. The same goes for a shard that follows a leased one which the stream
    does not list any more, because its retention ended while it was read: a child of it, or (where the generations
    between are forgotten, too) a shard of the same hash keys.

    Args:
        shards: Answer to ListShards without a filter, listed *after* the leases were read.
        leases: Every lease of the table.
        position: Initial position.
        unreadable: Shards whose rows exist and cannot be read. How far they were read is unknown, so they count as leased
            and unfinished: a descendant that began at LATEST would skip what is left of them.

    Returns:
        Leases in the order in which they have to be created.

    Raises:
        ProtocolError: A shard has an open parent: the listing is inconsistent; list again.
    """
    graph = ShardGraph(shards)
    by_key = {lease.lease_key: lease for lease in leases}
    # Also of closed children, as the KCL: in a listing that is torn over two reshards an open shard may have an open
    # grandparent, and both would get leases and be read side by side.
    for shard_id, shard in graph.shards.items():
        for parent in graph.parents(shard_id):
            if graph.shards[parent].is_open:
                state = "open" if shard.is_open else "closed"
                raise ProtocolError(f"ListShards: {shard_id} is {state}, but its parent {parent} is open")

    has_lineage: dict[str, bool] = {}

    # A lease that is newer than the whole listing did not expire: the listing is behind a reshard.
    newest = max(graph.shards, default="")
    trimmed = [lease for key, lease in by_key.items() if key not in graph.shards and key < newest]
    gone = {lease.lease_key for lease in trimmed}.union(unreadable).difference(graph.shards)

    def follows_a_trimmed_lease(shard_id: str) -> bool:
        shard = graph.shards[shard_id]
        return any(parent in gone for parent in shard.parents) or any(
            lease.hash_key_range is not None and lease.hash_key_range.overlaps(shard.hash_key_range)
            for lease in trimmed
        )

    def lineage(shard_id: str) -> bool:
        """Whether data of this shard, or before it, is or will be read under a lease.

        From a position in the past everything listed is read, beginning with the oldest shards.
        """
        known = has_lineage.get(shard_id)
        if known is None:
            has_lineage[shard_id] = False  # lineage has no cycles; this only keeps a broken listing finite
            known = (
                shard_id in by_key
                or shard_id in unreadable
                or position != LATEST
                or follows_a_trimmed_lease(shard_id)
                or any(lineage(parent) for parent in graph.parents(shard_id))
            )
            has_lineage[shard_id] = known
        return known

    planned: dict[str, Lease] = {}
    # Walked without recursion: lineages get long on streams that are resharded all the time.
    todo = [shard.shard_id for shard in graph.open_shards]
    for shard_id in _oldest_first(graph, todo):
        lineage(shard_id)
    seen: set[str] = set()
    while todo:
        shard_id = todo.pop()
        if shard_id in seen or shard_id in by_key or shard_id in unreadable:
            continue
        seen.add(shard_id)
        parents = graph.parents(shard_id)
        if parents and all(parent in by_key and by_key[parent].is_finished for parent in parents):
            planned[shard_id] = Lease.for_shard(graph.shards[shard_id], TRIM_HORIZON)
        elif any(lineage(parent) for parent in parents):
            todo.extend(parents)
        elif follows_a_trimmed_lease(shard_id):
            planned[shard_id] = Lease.for_shard(graph.shards[shard_id], TRIM_HORIZON)
        else:
            planned[shard_id] = Lease.for_shard(graph.shards[shard_id], position)
    order = _in_creation_order(graph.shards[shard_id] for shard_id in planned)
    return [planned[shard.shard_id] for shard in order]


def plan_children(children: Iterable[Shard]) -> list[Lease]:
    """Leases for the children of a shard that was read to its end; they start at their beginning."""
    return [Lease.for_shard(child, TRIM_HORIZON) for child in _in_creation_order(children)]


def _in_creation_order(shards: Iterable[Shard]) -> list[Shard]:
    # Older shards first: after a crash in between, the next plan still sees the same lineage.
    return sorted(shards, key=lambda shard: (int(shard.starting_sequence_number), shard.shard_id))


def _oldest_first(graph: ShardGraph, shard_ids: Iterable[str]) -> list[str]:
    """Every ancestor of the given shards before its descendants, so that the memo is filled from the roots."""
    found: dict[str, None] = {}
    for shard_id in shard_ids:
        found[shard_id] = None
        for ancestor in graph.ancestors(shard_id):
            found.pop(ancestor, None)
            found[ancestor] = None
    return list(reversed(found))
