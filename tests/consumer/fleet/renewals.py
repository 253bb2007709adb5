"""The renewal loop of one worker with many leases, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer import InMemoryLeaseStore
from kinesis_sdk.consumer.leases import Lease
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease, HeldLeases
from kinesis_sdk.consumer.leases.ownership.renewer import LeaseRenewer
from kinesis_sdk.consumer.runtime.runtime import InlineRuntime
from kinesis_sdk.testing import VirtualClock


class Renewals:
    """A renewer and its leases, which were taken one after the other.

    Args:
        count: Number of leases.
        spread: Seconds from the first take to the last one.
        inline: Whether renewals run at once, and otherwise not at all.

    Attributes:
        sent: Renewals that do not run.
        lost: Time and key of each lost lease.
    """

    def __init__(self, count: int, spread: float = 6.0, *, inline: bool = True) -> None:
        self.clock = VirtualClock()
        self.lost: list[tuple[float, str]] = []
        self.sent: list[Callable[[], None]] = []
        self.held = HeldLeases()
        runtime = InlineRuntime(self.clock, Random(1), self.clock.advance)
        if not inline:
            runtime.run_renewal = self.sent.append  # type: ignore[method-assign]
        self.renewer = LeaseRenewer(
            self.held,
            failover_time=10.0,
            renew_interval=6.0,
            handoff_timeout=30.0,
            runtime=runtime,
            listener=self,  # type: ignore[arg-type]
        )
        self.store = InMemoryLeaseStore()
        start = ExtendedSequenceNumber(TRIM_HORIZON)
        for number in range(count):
            key = f"shardId-{number:012d}"
            self.store.create_if_absent(Lease(lease_key=key, checkpoint=start))
            at = self.clock.monotonic()
            row = self.store.take(self.store.get(key), "me")  # type: ignore[arg-type]
            assert isinstance(row, Lease)
            held = HeldLease(
                self.store, row, worker_id="me", failover_time=10.0, clock=self.clock, acquired_at=at
            )
            held.renew_at = at + 6.0
            self.held.add(held)
            self.clock.advance(spread / count)

    def on_lease_lost(self, held: HeldLease) -> None:
        self.lost.append((self.clock.monotonic(), held.key))

    def tick(self) -> float:
        return self.renewer.tick(self.clock.monotonic())

    def run(self, seconds: float) -> None:
        """Let time pass, as the loop's thread does."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            due = self.tick()
            self.clock.advance(max(0.0, min(due, end) - self.clock.monotonic()))
