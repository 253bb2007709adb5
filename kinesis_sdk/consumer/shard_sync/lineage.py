"""Shard sync of streams without hash keys: which leases are missing follows from parents and children alone.

A shard of a table's stream is written for about four hours, then a child continues it. A day later it is forgotten. So the
listing is a set of chains (and trees, where a partition was split), and the application has to read each of them from its
beginning, or from where its leases are. Pure functions of a listing and the leases.

| shard without a lease | its lease |
| --- | --- |
| its parent has a finished lease | TRIM_HORIZON |
| an ancestor has another lease | none yet: the end of each generation creates the next |
| a sibling has a lease, the parent has none | TRIM_HORIZON: the parent is finished and its lease was deleted |
| no ancestor has a lease, LATEST, and no worker has made progress | LATEST if nothing follows it, otherwise none |
| no ancestor has a lease | the oldest listed ancestor gets one |

The last row is also what happens after an outage of more than a day: the shards of all leases are forgotten, and the new ones
follow them in a way that the listing does not show. They are read from their beginning, whatever the initial position says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kinesis_sdk.common.sequence import LATEST, TRIM_HORIZON
from kinesis_sdk.common.shards import Shard, ShardGraph
from kinesis_sdk.consumer.leases.table.lease import Lease


def plan_by_lineage(
    shards: Iterable[Shard], leases: Iterable[Lease], position: str, unreadable: Collection[str] = ()
) -> list[Lease]:
    """Return the missing leases, parents before children.

    Args:
        shards: All shards of the stream, listed *after* the leases were read. A listing takes many pages on a large table, so
            a shard may be open on an early page and have a child on a later one; it is closed then.
        leases: Every lease of the stream; none for a new application.
        position: Initial position of the application.
        unreadable: Shards whose rows exist and cannot be read; they count as leased and unfinished.
    """
    graph = ShardGraph(shards)
    by_key = {lease.lease_key: lease for lease in leases}
    known = {*by_key, *unreadable}
    # A start that was interrupted has created some leases and not others. Once a worker has made progress, or a shard of a
    # lease is forgotten, a chain without leases is one that the application has lost track of.
    is_new = not unreadable and all(
        lease.lease_key in graph.shards and lease.checkpoint.sequence_number == position
        for lease in by_key.values()
    )
    start = position if is_new else TRIM_HORIZON
    planned: dict[str, Lease] = {}
    for shard_id in graph.shards:
        if shard_id in known:
            continue
        if graph.children(shard_id) and not _follows_finished(graph, shard_id, by_key):
            continue  # its descendants lead here
        chosen = _oldest_unread(graph, shard_id, known, by_key)
        if chosen is None:
            continue
        oldest, is_continued = chosen
        if is_continued:
            planned[oldest] = Lease.for_shard(graph.shards[oldest], TRIM_HORIZON)
        elif start != LATEST:
            planned[oldest] = Lease.for_shard(graph.shards[oldest], start)
        else:
            # Also if it is closed: its child may not be listed yet. Without a lease, the child would start at its tip when a
            # later listing has it, and what was written to it until then would be skipped. The end of this shard creates it.
            planned[shard_id] = Lease.for_shard(graph.shards[shard_id], LATEST)
    # An operator deleted the row of a finished shard between its finished parent and one of its children: it is read again, and
    # its other child, whose sibling shows it as finished, waits. Its end creates that one's lease.
    return [planned[shard_id] for shard_id in sorted(planned) if _parent(graph, shard_id) not in planned]


def _parent(graph: ShardGraph, shard_id: str) -> str | None:
    parents = graph.parents(shard_id)
    return parents[0] if parents else None


def _follows_finished(graph: ShardGraph, shard_id: str, by_key: dict[str, Lease]) -> bool:
    parent = _parent(graph, shard_id)
    return parent is not None and parent in by_key and by_key[parent].is_finished


def _oldest_unread(
    graph: ShardGraph, shard_id: str, known: set[str], by_key: dict[str, Lease]
) -> tuple[str, bool] | None:
    """Return the shard with which the chain of a shard has to begin, and whether it continues what was read.

    Returns:
        None if an ancestor is still being read.
    """
    seen = {shard_id}
    while True:
        parent = _parent(graph, shard_id)
        if parent is None:
            return shard_id, False
        if parent in known:
            return (shard_id, True) if _follows_finished(graph, shard_id, by_key) else None
        if any(child in known for child in graph.children(parent)):
            return shard_id, True
        if parent in seen:  # a broken listing: the shards are their own ancestors
            return shard_id, False
        seen.add(parent)
        shard_id = parent


def find_missing_children(leases: Iterable[Lease]) -> list[str]:
    """Return children of finished leases that have no lease, in the order of their ids: what an audit of the rows can see.

    A worker creates the leases of the children before it finishes a shard, and clean-up deletes parents before children, so
    there is none unless an operator deleted a row.
    """
    leases = [*leases]
    keys = {lease.lease_key for lease in leases}
    return sorted(
        child for lease in leases if lease.is_finished for child in lease.child_shard_ids if child not in keys
    )
