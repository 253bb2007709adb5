"""Ownership of leases, checked at every write of a simulated fleet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kinesis_sdk.consumer.leases import Lease
from kinesis_sdk.consumer.leases.table.transitions import Conflict
from tests.consumer.fleet.table import LeaseTable

if TYPE_CHECKING:
    from tests.consumer.fleet.coordinators import CoordinatorFleet, WorkerProcess

DRIFT = 0.0005
"""Maximum part by which a clock runs fast or slow: 500 ppm, the rate at which time daemons slew."""


class OwnedLeaseTable(LeaseTable):
    """A lease table that knows which process writes, and what each process believes.

    Checked: only the worker that took a lease last writes it; no process takes a lease as expired while another one believes in it;
    a child lease appears only where each parent is finished or has a lease.

    Attributes:
        writer: The process whose call is being applied.
    """

    def __init__(self, fleet: CoordinatorFleet) -> None:
        super().__init__()
        self.writer: WorkerProcess | None = None
        self._fleet = fleet
        self._holder: dict[str, WorkerProcess] = {}
        self._written: dict[str, float] = {}
        # A repeated write that finds its own earlier effect counts as success at the time of the repetition, as in
        # the KCL: the belief lasts longer by that pause, and the counter fences what is left.
        self._recovered: set[str] = set()

    def create_if_absent(self, lease: Lease) -> bool:
        for parent in lease.parent_shard_ids if lease.lease_key not in self._rows else ():
            assert parent in self._rows or parent not in self._fleet.shards, (
                f"{lease.lease_key} was created before {parent}"
            )
        return super().create_if_absent(lease)

    def take(self, lease: Lease, owner: str) -> Lease | Conflict:
        before = self.get(lease.lease_key)
        age = self._fleet.now - self._written.get(lease.lease_key, self._fleet.now)
        recovered = lease.lease_key in self._recovered
        row = super().take(lease, owner)
        if isinstance(row, Lease):
            assert self.writer is not None
            assert before is not None
            if before.owner is not None and before.owner != owner and not recovered:
                self._check_no_other_believes(before, age)
            self._holder[lease.lease_key] = self.writer
        return row

    def _check_no_other_believes(self, row: Lease, age: float) -> None:
        """Check that the former owner did not write within the failover time, except where the KCL steals.

        Args:
            row: The lease before it was taken.
            age: Seconds since it was written.
        """
        former = self._holder.get(row.lease_key)
        failover = self._fleet.config.leases.failover_time
        assert self.writer is not None
        if former is None or former.life.is_dead:
            return
        held = former.held(row.lease_key)
        if age >= failover * (1 - 2 * DRIFT):
            soon = former.monotonic() + 4 * DRIFT * failover
            believes = held is not None and held.is_held(soon)
            assert not believes, f"{row.lease_key}: {self.writer.name} takes it, {former.name} believes in it"
        else:
            steals = self._fleet.config.leases.graceful_lease_handoff_timeout == 0
            # Handed off, and not taken yet by the requester: no worker owns it.
            unclaimed = row.in_handoff or row.handoff_owner is None
            assert steals or unclaimed or former.is_java or self.writer.is_java, (
                f"{row.lease_key}: {self.writer.name} robs {former.name} after {age:.1f} s"
            )

    def _swap(self, seen: Lease, change: Callable[[Lease], Lease], **conditions: Any) -> Lease | Conflict:
        before = self._rows.get(seen.lease_key)
        result = super()._swap(seen, change, **conditions)
        after = self._rows.get(seen.lease_key)
        if after is not before and after is not None and before is not None:
            self._written[seen.lease_key] = self._fleet.now
            self._recovered.discard(seen.lease_key)
            if after.owner == before.owner and after.checkpoint_owner == before.checkpoint_owner:
                holder = self._holder.get(seen.lease_key)
                name = self.writer.name if self.writer is not None else "?"
                # A take registers its worker in `take`, after this check.
                assert holder in (self.writer, None) or after.handoff_owner == name, (
                    f"{seen.lease_key}: {name} wrote what {holder and holder.name} holds"
                )
        elif isinstance(result, Lease):
            self._recovered.add(seen.lease_key)
        return result
