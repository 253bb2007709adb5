"""Which leases of finished shards to delete (the KCL's ``LeaseCleanupManager``), as a pure function."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kinesis_sdk.consumer.leases.table.lease import Lease


def plan_cleanup(leases: Iterable[Lease], listed: Collection[str] | None = None) -> list[str]:
    """Keys of leases that are not needed any more.

    A finished shard's lease goes once every child has a lease with progress of its own (a child that still
    stands at a sentinel needs its parent to know that it may begin) and its own parents' leases are gone.
    A finished shard goes as well once the stream does not list it any more, if no listed child of it lacks a lease:
    children that never get a record would keep it, and all that follow it, for ever.

    Args:
        leases: Every lease of the table.
        listed: Ids of all shards of the stream, listed after the leases were read; None if it was not asked.

    Returns:
        Keys in a stable order.
    """
    by_key = {lease.lease_key: lease for lease in leases}
    result = []
    for key in sorted(by_key):
        lease = by_key[key]
        if not lease.is_finished or any(parent in by_key for parent in lease.parent_shard_ids):
            continue
        if lease.child_shard_ids:
            children = [by_key.get(child) for child in lease.child_shard_ids]
            if all(child is not None and child.is_started for child in children):
                result.append(key)
                continue
        # A listing may be behind: what is newer than all of it did not expire.
        if listed and key not in listed and key < max(listed):
            missing = [child for child in lease.child_shard_ids if child not in by_key]
            if not any(child in listed for child in missing):
                result.append(key)
    return result


def needs_listing(leases: Iterable[Lease], *, garbage: bool = False) -> bool:
    """Whether `plan_cleanup` could use a listing of the stream.

    Args:
        leases: The stream's leases.
        garbage: Whether to look at every finished shard, and not only at those without known children.
    """
    return any(lease.is_finished and (garbage or not lease.child_shard_ids) for lease in leases)
