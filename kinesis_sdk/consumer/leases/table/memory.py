"""A lease store in memory, for tests, simulations and single-process consumers without DynamoDB."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table import store as rows
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.store import Conflict, TableScan


class InMemoryLeaseStore:
    """A `LeaseStore` in this process. Thread-safe; its lock is a leaf, nothing is called while it is held.

    It forgets everything with the process: a consumer that must resume needs the DynamoDB store.
    """

    def __init__(self, leases: Iterable[Lease] = ()) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, Lease] = {lease.lease_key: lease for lease in leases}

    def ensure_ready(self) -> None:
        """Nothing to create."""

    def scan(self, *, consistent: bool = False) -> TableScan:  # noqa: ARG002 - memory is always consistent
        """Read all leases."""
        with self._lock:
            return TableScan(leases=[*self._rows.values()])

    def list(self) -> list[Lease]:
        """Return all leases."""
        return self.scan().leases

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
        return self._swap(lease, lambda row: rows.taken(row, owner))

    def renew(self, lease: Lease) -> Lease | Conflict:
        """Heartbeat."""
        return self._swap(
            lease, lambda row: rows.renewed(_measured(row, lease)), unmarked=not lease.in_handoff
        )

    def checkpoint(self, lease: Lease, checkpoint: ExtendedSequenceNumber) -> Lease | Conflict:
        """Store a position."""
        return self._swap(lease, lambda row: rows.checkpointed(_measured(row, lease), checkpoint))

    def prepare(
        self, lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None = None
    ) -> Lease | Conflict:
        """Store a pending position."""
        return self._swap(lease, lambda row: rows.prepared(row, checkpoint, state))

    def pin(self, lease: Lease, timestamp_millis: int) -> Lease | Conflict:
        """Store the instant of a resolved sentinel."""
        return self._swap(lease, lambda row: rows.pinned(row, timestamp_millis))

    def release(self, lease: Lease) -> Lease | Conflict:
        """Give the lease back."""
        return self._swap(lease, rows.released, unmarked=not lease.in_handoff)

    def request_handoff(self, lease: Lease, owner: str) -> Lease | Conflict:
        """Ask the owner for the lease."""
        with self._lock:
            current = self._rows.get(lease.lease_key)
            if current is None or current.owner != lease.owner or current.in_handoff:
                asked = current is not None and (current.owner, current.checkpoint_owner) == (
                    owner,
                    lease.owner,
                )
                return current if asked and current is not None else Conflict(current)
            row = self._rows[lease.lease_key] = rows.marked(current, owner)
            return row

    def complete_handoff(self, lease: Lease) -> Lease | Conflict:
        """Let the next owner begin."""
        return self._swap(lease, rows.handed_over, owners=True)

    def set_child_shard_ids(self, lease_key: str, child_shard_ids: Iterable[str]) -> bool:
        """Store the children of an ended shard."""
        return self._set(lease_key, child_shard_ids=tuple(sorted(child_shard_ids)))

    def set_hash_key_range(self, lease_key: str, hash_key_range: HashKeyRange) -> bool:
        """Store the range of a shard."""
        return self._set(lease_key, hash_key_range=hash_key_range)

    def put_standby_heartbeat(self, lease_key: str, worker_id: str, beat: int | None) -> bool:
        """Leave a worker's mark, or take it away."""
        with self._lock:
            row = self._rows.get(lease_key)
            if row is None:
                return False
            marks = {worker: value for worker, value in row.standby_heartbeats.items() if worker != worker_id}
            if beat is not None:
                marks[worker_id] = beat
            self._rows[lease_key] = replace(row, standby_heartbeats=marks)
            return True

    def delete(self, lease_key: str, *, unowned: Lease | None = None) -> bool:
        """Remove a lease."""
        with self._lock:
            row = self._rows.get(lease_key)
            if row is not None and unowned is not None and row.counter != unowned.counter:
                return False
            self._rows.pop(lease_key, None)
            return True

    def _set(self, lease_key: str, **fields: Any) -> bool:
        with self._lock:
            row = self._rows.get(lease_key)
            if row is None:
                return False
            self._rows[lease_key] = replace(row, **fields)
            return True

    def _swap(
        self, seen: Lease, change: Callable[[Lease], Lease], *, unmarked: bool = False, owners: bool = False
    ) -> Lease | Conflict:
        """Apply a change to the row as it is now, on the condition that its counter is the one seen.

        Args:
            seen: The row as the caller knows it.
            change: What the write does.
            unmarked: Whether there must be no handoff marker either.
            owners: Whether both owners must be as seen, too.
        """
        with self._lock:
            current = self._rows.get(seen.lease_key)
            if current is None:
                return Conflict(None)
            if (
                current.counter != seen.counter
                or (unmarked and current.in_handoff)
                or (
                    owners
                    and (current.owner, current.checkpoint_owner) != (seen.owner, seen.checkpoint_owner)
                )
            ):
                return current if rows.shows(current, change(seen)) else Conflict(current)
            row = self._rows[seen.lease_key] = change(current)
            return row


def _measured(row: Lease, seen: Lease) -> Lease:
    """The row with the throughput that its holder measured, if he did."""
    return row if seen.throughput_kbps is None else replace(row, throughput_kbps=seen.throughput_kbps)
