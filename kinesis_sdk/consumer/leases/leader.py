"""Leader election without extra state: the owner of the first unfinished lease.

Every worker derives the leader from its scan: the leader is the live owner of the first unfinished lease in key order. When
the leader dies, its first lease moves like any other, and leadership with it. Two workers may consider themselves leader
for one scan interval; all leader tasks are idempotent (conditional creates, deletes by rules that all workers share), so
this costs one extra call. Workers without leases never lead while any lease is held.

A KCL 3 leader is observed (`java.leader_lock`), never replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kinesis_sdk.consumer.leases.table.lease import Lease


def is_leader(leases: Iterable[Lease], me: str, is_expired: Callable[[Lease], bool]) -> bool:
    """Return whether this worker leads.

    Only owners of this package count, because only they follow this rule. If Java workers own all leases, they have a leader
    of their own and no worker of this package leads. If no lease is owned (first start, restart of the whole fleet), every
    worker leads.

    Args:
        leases: Every lease of the table.
        me: Id of this worker in the lease table.
        is_expired: Returns whether a lease is unowned or expired.
    """
    first: Lease | None = None
    foreign = False
    for lease in leases:
        if lease.holder is None or lease.is_finished or is_expired(lease):
            continue
        # During a handoff the requester's id stands there. Handoffs are requested only from owners that support them, so
        # the owner is most likely a worker of this package.
        if lease.handoff_owner not in (lease.holder, lease.owner):
            foreign = True
        elif first is None or lease.lease_key < first.lease_key:
            first = lease
    if first is not None:
        return first.holder == me
    return not foreign
