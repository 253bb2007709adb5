"""Leader election without extra state: the owner of the first unfinished lease.

Every worker derives the leader from its scan: the live owner of the first unfinished lease in key order. When the leader dies,
its first lease moves like any other lease, and leadership with it. For one scan interval, two workers may consider themselves
leader; this costs one extra call, because all leader tasks are idempotent (conditional creates, deletes by shared rules).
Workers without leases never lead while any lease is held.

A KCL 3 leader is observed (`java.leader_lock`), never replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kinesis_sdk.consumer.leases.table.lease import Lease


def is_leader(leases: Iterable[Lease], me: str, is_expired: Callable[[Lease], bool]) -> bool:
    """Return whether this worker leads; ``is_expired`` returns whether a lease is unowned or expired.

    Only workers of this package count, because only they follow this rule. If Java workers own all leases, they have their own leader, and
    no worker of this package leads. If no lease is owned (first start, restart of the whole fleet), every worker
    leads.
    """
    first: Lease | None = None
    foreign = False
    for lease in leases:
        if lease.holder is None or lease.is_finished or is_expired(lease):
            continue
        # During a handoff, the attribute holds the requester's id. Handoffs are requested only from owners that support them,
        # so the owner is most likely a worker of this package.
        if lease.handoff_owner not in (lease.holder, lease.owner):
            foreign = True
        elif first is None or lease.lease_key < first.lease_key:
            first = lease
    if first is not None:
        return first.holder == me
    return not foreign
