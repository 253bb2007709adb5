"""One held lease in virtual time, in a store whose writes fail on request."""

from __future__ import annotations

from random import Random

from kinesis_sdk.common.errors import PermanentAwsError, ThrottledError, TransientAwsError
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.leases import InMemoryLeaseStore, Lease
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.testing import VirtualClock

START = ExtendedSequenceNumber(TRIM_HORIZON)


class Trouble(InMemoryLeaseStore):
    """Fails writes on request: before they have effect, or after."""

    def __init__(self):
        super().__init__()
        self.script = []
        self.writes = 0

    def _swap(self, seen, change, **conditions):
        self.writes += 1
        what = self.script.pop(0) if self.script else None
        if what == "before":
            raise TransientAwsError("no answer", operation="UpdateItem")
        if what == "throttle":
            raise ThrottledError("slow down", operation="UpdateItem")
        if what == "refuse":
            raise PermanentAwsError("not yours", operation="UpdateItem")
        result = super()._swap(seen, change, **conditions)
        if what == "after":
            raise TransientAwsError("no answer", operation="UpdateItem")
        return result


def hold(store, row, clock=None, **more):
    """Return the lease of a row that its owner has taken just now; it expires after ten seconds."""
    clock = clock or VirtualClock()
    more.setdefault("failover_time", 10)
    return HeldLease(store, row, worker_id=row.owner, clock=clock, acquired_at=clock.monotonic(), **more)


class Scenario:
    def __init__(self):
        self.clock = VirtualClock()
        self.store = Trouble()
        self.store.create_if_absent(Lease(lease_key="s", checkpoint=START))
        self.held = self.take("me")

    def take(self, owner, **options):
        row = self.store.take(self.store.get("s"), owner)
        return hold(self.store, row, self.clock, **options)

    def checkpointer(self, timeout=10.0):
        """A checkpointer of a shard whose record 1 was delivered first."""
        checkpointer = Checkpointer(
            self.held, clock=self.clock, sleep=self.clock.advance, rng=Random(1), timeout=timeout
        )
        checkpointer.begin_at(at(1))
        return checkpointer


def at(sequence, sub=0):
    return ExtendedSequenceNumber(str(sequence), sub)
