"""The events of a worker's leases, as one interface."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease


class LeaseListener(Protocol):
    """Receiver of the events of a worker's leases; `ConsumerEngine` is one. Every method may be called from any thread.

    Calls go down: worker, engine, coordinator, then renewer and handoff manager. Events come back through this interface
    alone.
    """

    def on_lease_acquired(self, held: HeldLease, /) -> None:
        """Called after a lease was taken."""

    def on_lease_lost(self, held: HeldLease, /) -> None:
        """Called after a lease turned out to be lost, or was released without waiting for its shard consumer."""

    def on_handoff_requested(self, held: HeldLease, /) -> None:
        """Called once when another worker has requested a held lease."""

    def on_fatal_error(self, error: BaseException, /) -> None:
        """Called with an error that a retry does not cure."""

    def busy_lease_keys(self) -> Collection[str]:
        """Return the keys of the leases that have a shard consumer. They must not be taken, even if they are not held."""
