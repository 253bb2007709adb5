"""The lease table of all simulated fleets: it checks what must hold of every write, and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kinesis_sdk.consumer.leases import InMemoryLeaseStore, Lease
from kinesis_sdk.consumer.leases.table.transitions import Conflict


class LeaseTable(InMemoryLeaseStore):
    """A lease table in which each write adds one to the counter and no checkpoint goes back.

    Attributes:
        writes: Writes that changed a row under the condition of its counter.
        transfers: Takes by another worker than the one that took the lease last.
        on_write: Called after each such write with the row before and after it.
    """

    def __init__(self, leases: Iterable[Lease] = ()) -> None:
        super().__init__(leases)
        self.writes = self.transfers = 0
        self.on_write: list[Callable[[Lease, Lease], None]] = []
        self._last_owners: dict[str, str] = {}

    def take(self, lease: Lease, owner: str) -> Lease | Conflict:
        row = super().take(lease, owner)
        if isinstance(row, Lease) and self._last_owners.get(row.lease_key) != owner:
            self.transfers += 1
            self._last_owners[row.lease_key] = owner
        return row

    def _swap(self, seen: Lease, change: Callable[[Lease], Lease], **conditions: Any) -> Lease | Conflict:
        before = self._rows.get(seen.lease_key)
        result = super()._swap(seen, change, **conditions)
        after = self._rows.get(seen.lease_key)
        if before is not None and after is not None and after is not before:
            assert after.counter == before.counter + 1
            assert after.checkpoint >= before.checkpoint
            self.writes += 1
            for listener in self.on_write:
                listener(before, after)
        return result
