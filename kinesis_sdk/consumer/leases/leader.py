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
    """Whether this worker leads.

    Only holders of this package count, since only they follow this rule. Where Java workers hold everything, they have a
    leader of their own and we do nothing; where nobody holds anything, everybody leads (a first start, a fleet that
    comes back).

    Args:
        leases: Every lease of the table.
        me: This worker's id.
        is_expired: Whether nobody keeps a lease.
    """
    first: Lease | None = None
    foreign = False
    for lease in leases:
        if lease.holder is None or lease.is_finished or is_expired(lease):
            continue
        # Who asks for a lease writes its own name there, and asks only who understands it: most likely one of us.
        if lease.handoff_owner not in (lease.holder, lease.owner):
            foreign = True
        elif first is None or lease.lease_key < first.lease_key:
            first = lease
    if first is not None:
        return first.holder == me
    return not foreign
