"""Cleanup of finished leases (KCL ``LeaseCleanupManager``) and of their rows in a sink, as pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kinesis_sdk.consumer.leases.table.lease import Lease


def plan_cleanup(
    leases: Iterable[Lease], listed: Collection[str] | None = None, *, keep_generation: bool = False
) -> list[str]:
    """Return the keys of leases that are no longer needed, in a stable order.

    A finished lease can be deleted once its parents' leases are deleted and every child has a lease with a checkpoint of its
    own: a child at a sentinel position needs its parent's lease to know that it may start. A finished lease can also be
    deleted once the stream no longer lists its shard, if no listed child lacks a lease. Without this second rule,
    children that never get a record would keep the lease and all its descendants forever.

    Args:
        leases: Every lease of the stream.
        listed: Ids of all shards of the stream, listed after the leases were read; None if the stream was not listed.
        keep_generation: Whether a finished lease stays until its children are also finished. For streams whose listing may
            lag behind: a listing that shows the shard as open and without children would give it a new lease.
    """
    by_key = {lease.lease_key: lease for lease in leases}
    result = []
    for key in sorted(by_key):
        lease = by_key[key]
        if not lease.is_finished or any(parent in by_key for parent in lease.parent_shard_ids):
            continue
        if lease.child_shard_ids:
            children = [by_key.get(child) for child in lease.child_shard_ids]
            if all(
                child is not None and (child.is_finished if keep_generation else child.is_started)
                for child in children
            ):
                result.append(key)
                continue
        # The listing may be outdated: a shard that is newer than all listed shards has not expired.
        if listed and key not in listed and key < max(listed):
            missing = [child for child in lease.child_shard_ids if child not in by_key]
            if not any(child in listed for child in missing):
                result.append(key)
    return result


def needs_listing(leases: Iterable[Lease], *, garbage: bool = False) -> bool:
    """Return whether `plan_cleanup` needs a listing of the stream.

    Args:
        leases: The stream's leases.
        garbage: Whether to check every finished shard, not only shards without known children.
    """
    return any(lease.is_finished and (garbage or not lease.child_shard_ids) for lease in leases)


def plan_forgotten(shard_ids: Collection[str], readable: Collection[str]) -> set[str]:
    """Return the shards whose records have expired; ``readable`` are all readable shards, listed after the leases were read."""
    # The listing may be outdated: a shard that is newer than all listed shards has not expired. An empty listing comes from a
    # stream that was just created or enabled.
    newest = max(readable, default="")
    return {shard for shard in shard_ids if shard not in readable and shard < newest}
