"""What an operator writes into a live lease table: the single write of each recipe, with its rules.

A position comes with the counter raised by two where the owner's name stays, and removes what belongs to the old position.
"""

from __future__ import annotations

from dataclasses import replace

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases import InMemoryLeaseStore, Lease


def set_position(
    store: InMemoryLeaseStore, lease_key: str, position: ExtendedSequenceNumber | None, *, free: bool = False
) -> Lease:
    """Write a position and keep the owner, or free the lease.

    Args:
        store: The table.
        lease_key: Row to write.
        position: New checkpoint; None keeps the present one.
        free: Whether the owner is removed.

    Returns:
        The row as written.
    """
    with store._lock:
        row = store._rows[lease_key]
        row = replace(
            row,
            counter=row.counter + 2,
            checkpoint=position or row.checkpoint,
            owner_switches=0,
            pending_checkpoint=None,
            pending_checkpoint_state=None,
            initial_timestamp_millis=None,
        )
        if free:
            row = replace(row, owner=None, checkpoint_owner=None, handoff_owner=None)
        store._rows[lease_key] = row
        return row
