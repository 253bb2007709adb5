"""A lease store in memory, for tests, simulations and single-process consumers without DynamoDB."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases import store as rows
from kinesis_sdk.consumer.leases.lease import Lease
from kinesis_sdk.consumer.leases.store import Conflict


class InMemoryLeaseStore:
    """A `LeaseStore` in this process. Thread-safe; its lock is a leaf, nothing is called while it is held.

    It forgets everything with the process: a consumer that must resume needs the DynamoDB store.
    """

    def __init__(self, leases: Iterable[Lease] = ()) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, Lease] = {lease.lease_key: lease for lease in leases}

    def ensure_ready(self) -> None:
        """Nothing to create."""

    def list(self, *, consistent: bool = False) -> list[Lease]:  # noqa: ARG002 - memory is always consistent
        """All leases."""
        with self._lock:
            return [*self._rows.values()]

    def get(self, lease_key: str) -> Lease | None:
        """One lease, or None."""
        with self._lock:
            return self._rows.get(lease_key)

    def create_if_absent(self, lease: Lease) -> bool:
        """Create a lease unless its key exists."""
        with self._lock:
            if lease.lease_key in self._rows:
                return False
            self._rows[lease.lease_key] = lease
            return True

    def take(self, lease: Lease, owner: str) -> Lease | Conflict:
        """Become the owner if the counter is still the one seen."""
        return self._swap(lease, rows.taken(lease, owner))

    def renew(self, lease: Lease) -> Lease | Conflict:
        """Heartbeat."""
        return self._swap(lease, rows.renewed(lease))

    def checkpoint(self, lease: Lease, checkpoint: ExtendedSequenceNumber) -> Lease | Conflict:
        """Store a position."""
        return self._swap(lease, rows.checkpointed(lease, checkpoint))

    def pin(self, lease: Lease, timestamp_millis: int) -> Lease | Conflict:
        """Store the instant of a resolved sentinel."""
        return self._swap(lease, rows.pinned(lease, timestamp_millis))

    def release(self, lease: Lease) -> Lease | Conflict:
        """Give the lease back."""
        return self._swap(lease, rows.released(lease))

    def set_child_shard_ids(self, lease_key: str, child_shard_ids: Iterable[str]) -> bool:
        """Store the children of an ended shard."""
        with self._lock:
            row = self._rows.get(lease_key)
            if row is None:
                return False
            self._rows[lease_key] = replace(row, child_shard_ids=tuple(sorted(child_shard_ids)))
            return True

    def delete(self, lease_key: str) -> None:
        """Remove a lease."""
        with self._lock:
            self._rows.pop(lease_key, None)

    def _swap(self, seen: Lease, wanted: Lease) -> Lease | Conflict:
        with self._lock:
            current = self._rows.get(seen.lease_key)
            if current is None:
                return Conflict(None)
            if current.counter != seen.counter:
                return current if rows.shows(current, wanted) else Conflict(current)
            # Fields that a write does not touch stay as they are in the store, as with update expressions.
            row = replace(wanted, child_shard_ids=current.child_shard_ids, extra=current.extra)
            self._rows[seen.lease_key] = row
            return row
