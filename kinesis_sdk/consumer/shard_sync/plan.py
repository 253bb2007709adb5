"""Plans of the leases to create: pure functions of a listing of shards and the existing leases.

The rules are the KCL's (``HierarchicalShardSyncer``). Creates are conditional and plans depend on their input alone, so any
number of workers may apply them at the same time.
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
    """Return the ``ShardFilter`` that lists the shards which were open at an initial position.

    Args:
        position: ``LATEST``, ``TRIM_HORIZON`` or ``AT_TIMESTAMP``.
        timestamp: Time of the position ``AT_TIMESTAMP``; None for other positions.
    """
    if position == AT_TIMESTAMP:
        return {"Type": "AT_TIMESTAMP", "Timestamp": timestamp}
    return {"Type": f"AT_{position}"}


def plan_bootstrap(shards: Iterable[Shard], position: str) -> list[Lease]:
    """Return the leases for an empty table, in the order in which they must be created.

    Args:
        shards: Response of ListShards with `bootstrap_filter`.
        position: Initial position.

    Raises:
        ProtocolError: If the listing does not cover the whole hash key space; list again.
    """
    # Some emulators ignore the filter. At LATEST, a closed shard has nothing to read.
    chosen = [shard for shard in shards if shard.is_open or position != LATEST]
    hole = find_hole(shard.hash_key_range for shard in chosen)
    if hole is not None:
        raise ProtocolError(
            f"ListShards: the shards at {position} leave hash keys {hole.start} to {hole.end} uncovered"
        )
    return [Lease.for_shard(shard, position) for shard in _in_creation_order(chosen)]


def plan_bootstrap_from_all(shards: Iterable[Shard], position: str) -> list[Lease]:
    """Return the leases for an empty table from an unfiltered listing.

    This is for initial positions in the past whose filtered listing is incomplete, for example a timestamp before the stream's creation,
    for which no shard is listed. The oldest listed shards then contain all data.

    Args:
        shards: All shards of the stream.
        position: Sentinel at which the leases begin.

    Raises:
        ProtocolError: If the open shards do not cover the whole hash key space; list again.
    """
    shards = list(shards)
    hole = find_hole(shard.hash_key_range for shard in shards if shard.is_open)
    if hole is not None:
        raise ProtocolError(f"ListShards: open shards leave hash keys {hole.start} to {hole.end} uncovered")
    return plan_sync(shards, (), position)


def plan_sync(
    shards: Iterable[Shard], leases: Iterable[Lease], position: str, unreadable: Collection[str] = ()
) -> list[Lease]:
    """Return the missing leases, in the order in which they must be created.

    An open shard gets no lease yet if an ancestor has or gets a lease under which older data is still to be read: the end of
    that ancestor creates it. One generation is created at a time.

    Beyond the KCL, a shard gets a lease at TRIM_HORIZON if all its listed parents have finished leases: no consumer will
    create its lease later, and none of its records were read. The same applies to the successor of a leased shard whose
    retention ended while it was being read, so that the stream no longer lists it. The successor is a child of that shard,
    or a shard with the same hash keys if the generations in between are not listed either.

    Args:
        shards: Response of ListShards without a filter, listed *after* the leases were read.
        leases: Every lease of the stream.
        position: Initial position.
        unreadable: Shards whose rows exist but cannot be read. Their progress is unknown, so they count as leased and unfinished. A
            descendant that started at LATEST would skip their remaining records.

    Raises:
        ProtocolError: If a shard has an open parent, so that the listing is inconsistent; list again.
    """
    graph = ShardGraph(shards)
    by_key = {lease.lease_key: lease for lease in leases}
    # Check closed children too, as the KCL does. A listing that spans two reshards may show an open grandparent, its closed
    # child and its open grandchild. Grandparent and grandchild would both get leases and be read at the same time.
    for shard_id, shard in graph.shards.items():
        for parent in graph.parents(shard_id):
            if graph.shards[parent].is_open:
                state = "open" if shard.is_open else "closed"
                raise ProtocolError(f"ListShards: {shard_id} is {state}, but its parent {parent} is open")

    has_lineage: dict[str, bool] = {}

    # A leased shard that is newer than all listed shards has not expired: the listing is older than the reshard.
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
        """Return whether records of this shard, or of an ancestor, are or will be read under a lease.

        From a position in the past, all listed shards are read, the oldest shards first.
        """
        known = has_lineage.get(shard_id)
        if known is None:
            has_lineage[shard_id] = False  # ends the recursion if a broken listing contains a cycle
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
    # Not recursive: lineages get long on streams that are resharded often.
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
    """Return the leases of a finished shard's children; they start at TRIM_HORIZON."""
    return [Lease.for_shard(child, TRIM_HORIZON) for child in _in_creation_order(children)]


def _in_creation_order(shards: Iterable[Shard]) -> list[Shard]:
    # Older shards first: after a crash between two creates, the next plan still sees the same lineage.
    return sorted(shards, key=lambda shard: (int(shard.starting_sequence_number), shard.shard_id))


def _oldest_first(graph: ShardGraph, shard_ids: Iterable[str]) -> list[str]:
    """Return the shards and all their ancestors, each before its descendants.

    In this order, `lineage` recurses at most one level.
    """
    found: dict[str, None] = {}
    for shard_id in shard_ids:
        found[shard_id] = None
        for ancestor in graph.ancestors(shard_id):
            found.pop(ancestor, None)
            found[ancestor] = None
    return list(reversed(found))
