"""A lease store in memory, for tests, simulations and single-process consumers without DynamoDB.

This store is also the reference for stores on other databases: the shortest code that keeps the contract.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table import transitions
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.store import TableScan
from kinesis_sdk.consumer.leases.table.transitions import Conflict, with_measurements_of


class InMemoryLeaseStore:
    """A `LeaseStore` in this process. Thread-safe; its lock is a leaf.

    Its leases are lost with the process: a consumer that must resume needs another store.

    Args:
        leases: Rows to begin with.
    """

    def __init__(self, leases: Iterable[Lease] = ()) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, Lease] = {lease.lease_key: lease for lease in leases}

    def ensure_ready(self) -> None:
        """Do nothing; there is no table to create."""

    def scan(self, *, consistent: bool = False) -> TableScan:  # noqa: ARG002 - memory is always consistent
        """Read all leases."""
        with self._lock:
            return TableScan(leases=[*self._rows.values()])

    def list(self) -> list[Lease]:
        """Return all leases."""
        return self.scan().leases

    def get(self, lease_key: str) -> Lease | None:
        """Return one lease, or None."""
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
        """Make ``owner`` the owner."""
        return self._swap(lease, lambda row: transitions.taken(row, owner))

    def renew(self, lease: Lease) -> Lease | Conflict:
        """Renew the lease."""
        return self._swap(
            lease,
            lambda row: transitions.renewed(with_measurements_of(row, lease)),
            no_handoff=not lease.in_handoff,
        )

    def checkpoint(
        self, lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None = None
    ) -> Lease | Conflict:
        """Store a position."""
        return self._swap(
            lease, lambda row: transitions.checkpointed(with_measurements_of(row, lease), checkpoint, state)
        )

    def prepare(
        self, lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None = None
    ) -> Lease | Conflict:
        """Store a pending position."""
        return self._swap(lease, lambda row: transitions.prepared(row, checkpoint, state))

    def pin(self, lease: Lease, timestamp_millis: int) -> Lease | Conflict:
        """Store the instant of a resolved sentinel position."""
        return self._swap(lease, lambda row: transitions.pinned(row, timestamp_millis))

    def mark_processed(self, lease: Lease, millis: int) -> Lease | Conflict:
        """Store that every record which arrived before a time is processed."""
        return self._swap(lease, lambda row: transitions.marked_processed(row, millis))

    def release(self, lease: Lease) -> Lease | Conflict:
        """Remove the owner."""
        return self._swap(lease, transitions.released, no_handoff=not lease.in_handoff)

    def request_handoff(self, lease: Lease, owner: str) -> Lease | Conflict:
        """Request a handoff from the lease's owner."""
        with self._lock:
            outcome = transitions.compare_owner_and_request_handoff(
                self._rows.get(lease.lease_key), lease, owner
            )
            if isinstance(outcome, Lease):
                self._rows[lease.lease_key] = outcome
            return outcome

    def complete_handoff(self, lease: Lease) -> Lease | Conflict:
        """Hand the lease off to its next owner."""
        return self._swap(lease, transitions.handed_off, same_owners=True)

    def set_child_shard_ids(self, lease_key: str, child_shard_ids: Iterable[str]) -> bool:
        """Store the children of an ended shard."""
        return self._set(lease_key, child_shard_ids=tuple(sorted(child_shard_ids)))

    def set_hash_key_range(self, lease_key: str, hash_key_range: HashKeyRange) -> bool:
        """Store the range of a shard."""
        return self._set(lease_key, hash_key_range=hash_key_range)

    def put_standby_heartbeat(self, lease_key: str, worker_id: str, heartbeat: int | None) -> bool:
        """Store or remove the standby heartbeat of a worker."""
        with self._lock:
            row = self._rows.get(lease_key)
            if row is None:
                return False
            heartbeats = {
                worker: value for worker, value in row.standby_heartbeats.items() if worker != worker_id
            }
            if heartbeat is not None:
                heartbeats[worker_id] = heartbeat
            self._rows[lease_key] = replace(row, standby_heartbeats=heartbeats)
            return True

    def set_drain(self, lease_key: str, worker_id: str, on: bool) -> bool:
        """Set or remove the mark that makes a worker drain."""
        with self._lock:
            row = self._rows.get(lease_key)
            if row is None:
                return False
            others = {*row.draining} - {worker_id}
            draining = sorted({*others, worker_id} if on else others)
            self._rows[lease_key] = replace(row, draining=tuple(draining))
            return True

    def set_pin(self, lease_key: str, worker_id: str | None) -> bool:
        """Store the worker to which this lease is pinned."""
        return self._set(lease_key, pinned_to=worker_id or None)

    def set_handler_request(
        self, lease_key: str, request: HandlerRequest | None, *, instead_of: HandlerRequest | None = None
    ) -> bool:
        """Store an operator's request to the holder."""
        with self._lock:
            row = self._rows.get(lease_key)
            if row is None or (instead_of is not None and row.handler_request != instead_of):
                return False
            self._rows[lease_key] = replace(row, handler_request=request)
            return True

    def delete(self, lease_key: str, *, unowned: Lease | None = None, finished: bool = False) -> bool:
        """Remove a lease."""
        with self._lock:
            row = self._rows.get(lease_key)
            if row is not None and unowned is not None and row.counter != unowned.counter:
                return False
            if row is not None and finished and not row.is_finished:
                return False
            self._rows.pop(lease_key, None)
            return True

    def _set(self, lease_key: str, **changes: Any) -> bool:
        with self._lock:
            row = self._rows.get(lease_key)
            if row is None:
                return False
            self._rows[lease_key] = replace(row, **changes)
            return True

    def _swap(
        self,
        seen: Lease,
        change: Callable[[Lease], Lease],
        *,
        no_handoff: bool = False,
        same_owners: bool = False,
    ) -> Lease | Conflict:
        with self._lock:
            outcome = transitions.compare_and_set(
                self._rows.get(seen.lease_key),
                seen,
                change,
                no_handoff=no_handoff,
                same_owners=same_owners,
            )
            if isinstance(outcome, Lease):
                self._rows[seen.lease_key] = outcome
            return outcome
