"""The events of a worker's leases, as one interface."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease


class LeaseListener(Protocol):
    """Receiver of the events of a worker's leases; `ConsumerEngine` is one.

    Every method may be called from any thread. Calls go down: worker, engine, coordinator, then renewer and handoff manager.
    Events come back only through this interface.
    """

    def on_lease_acquired(self, held: HeldLease, /) -> None:
        """Start consuming the shard of a lease that was taken."""

    def on_lease_lost(self, held: HeldLease, /) -> None:
        """End the shard consumer of a lease that was lost, or was released without waiting for the consumer."""

    def on_handoff_requested(self, held: HeldLease, /) -> None:
        """Finish and release a held lease that another worker has requested. Called once per lease."""

    def on_release_wanted(self, held: HeldLease, /) -> None:
        """Finish and release a held lease, because this worker drains. May be called repeatedly for a lease."""

    def on_fatal_error(self, error: BaseException, /) -> None:
        """Stop the worker because of an error that a retry cannot fix."""

    def busy_lease_keys(self) -> Collection[str]:
        """Return the keys of the leases that have a shard consumer.

        These leases must not be taken, even if they are not held: the consumer of a lost lease may still be winding down.
        """
