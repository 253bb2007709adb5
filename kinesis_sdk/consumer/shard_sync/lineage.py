"""Shard sync of streams without hash keys: parents and children alone determine the missing leases.

A shard of a table's stream is written for about four hours, then a child continues it. A day later, the stream no longer lists it. So the
listing is a set of chains (or trees, where a partition was split). The application must read each chain from its beginning, or
from its leases. Pure functions of a listing and the leases.

| shard without a lease | its lease |
| --- | --- |
| its parent has a finished lease | TRIM_HORIZON |
| an ancestor has another lease | none yet: the end of each generation creates the next |
| a sibling has a lease, the parent has none | TRIM_HORIZON: the parent is finished and its lease was deleted |
| no ancestor has a lease, LATEST, and no worker has made progress | LATEST if nothing follows it, otherwise none |
| no ancestor has a lease | the oldest listed ancestor gets one |

The last row also applies after an outage of more than a day: the shards of all leases are forgotten, and the listing does not
show how the new shards follow them. The new shards are read from their beginning, regardless of the initial position.
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
        shards: All shards of the stream, listed *after* the leases were read. On a large table a listing takes many pages, so
            a shard may be open on an early page and have a child on a later page; such a shard then counts as closed.
        leases: Every lease of the stream; none for a new application.
        position: Initial position of the application.
        unreadable: Shards whose rows exist but cannot be read; they count as leased and unfinished.
    """
    graph = ShardGraph(shards)
    by_key = {lease.lease_key: lease for lease in leases}
    known = {*by_key, *unreadable}
    # An interrupted start may have created only some of the leases. Once a worker has made progress, or a leased shard is
    # forgotten, the application has lost track of every chain without leases.
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
            continue  # the search from its descendants finds this shard
        chosen = _oldest_unread(graph, shard_id, known, by_key)
        if chosen is None:
            continue
        oldest, is_continued = chosen
        if is_continued:
            planned[oldest] = Lease.for_shard(graph.shards[oldest], TRIM_HORIZON)
        elif start != LATEST:
            planned[oldest] = Lease.for_shard(graph.shards[oldest], start)
        else:
            # Create the lease even if the shard is closed, because its child may not be listed yet. Without this lease,
            # the child would start at its tip once a listing shows it, and earlier records would be skipped. The end of
            # this shard creates the child's lease.
            planned[shard_id] = Lease.for_shard(graph.shards[shard_id], LATEST)
    # An operator deleted the row of a finished shard between its finished parent and one of its children: the shard is read
    # again. Its other child, whose sibling shows the shard as finished, waits: the end of the shard creates that
    # child's lease.
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
    """Return the first shard of a chain to read, and whether it continues shards that were read.

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
        if parent in seen:  # a broken listing: shards that are their own ancestors
            return shard_id, False
        seen.add(parent)
        shard_id = parent


def find_missing_children(leases: Iterable[Lease]) -> list[str]:
    """Return the children of finished leases that have no lease, sorted by id.

    There are no such children unless an operator deleted a row: a worker creates the children's leases before it finishes
    a shard, and the cleanup deletes parents before children.
    """
    leases = [*leases]
    keys = {lease.lease_key for lease in leases}
    return sorted(
        child for lease in leases if lease.is_finished for child in lease.child_shard_ids if child not in keys
    )
