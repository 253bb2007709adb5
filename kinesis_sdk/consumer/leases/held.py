"""The leases that this worker holds: heartbeat, checkpoint and release under one lock per lease.

A held lease is lost when a conditional write shows another counter, or when this worker could not write for a
whole failover time: by then any observer may call it expired, so its holder must stop believing in it first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from uuid import uuid4

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import AwsError, LeaseLostError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.lease import Lease
from kinesis_sdk.consumer.leases.store import Conflict, LeaseStore


class HeldLease:
    """One acquisition of a lease.

    A lease that is lost and taken again is another object with another ``token``; an old handle can not write.
    Thread-safe: writes of one lease are serialised by its own lock, so a renewal and a checkpoint never meet.
    Only the store is called under the lock.

    Args:
        store: Where the lease lives.
        lease: The row as this worker's take left it.
        worker_id: This worker.
        failover_time: Seconds without a successful write after which the lease counts as lost.
        clock: Time.
        acquired_at: Monotonic time at which the take was *sent*.

    Attributes:
        token: Unique id of this acquisition.
        renew_at: Monotonic time of the next heartbeat; owned by the loop that renews.
    """

    def __init__(
        self,
        store: LeaseStore,
        lease: Lease,
        *,
        worker_id: str,
        failover_time: float,
        clock: Clock,
        acquired_at: float,
    ) -> None:
        self.token = uuid4().hex
        self.renew_at = acquired_at
        self.renewing = False
        self._store = store
        self._lease = lease
        self._worker_id = worker_id
        self._failover_time = failover_time
        self._clock = clock
        self._written_at = acquired_at
        self._gone: str | None = None
        # Set while a write's answer is missing: the row may be one counter ahead of what we know.
        self._uncertain = False
        self._lock = threading.RLock()

    @property
    def key(self) -> str:
        """Lease key."""
        return self._lease.lease_key

    @property
    def lease(self) -> Lease:
        """The row as this worker last wrote it."""
        return self._lease

    @property
    def written_at(self) -> float:
        """Monotonic time at which the last successful write was sent."""
        return self._written_at

    @property
    def gone(self) -> str | None:
        """Why the lease is not held any more; None while it is."""
        return self._gone

    def is_held(self, now: float) -> bool:
        """Whether this worker may still act as the owner."""
        return self._gone is None and now - self._written_at <= self._failover_time

    def mark_lost(self, reason: str) -> None:
        """Give up believing in the lease. The first reason stays."""
        if self._gone is None:
            self._gone = reason

    def renew(self) -> None:
        """Heartbeat.

        Raises:
            LeaseLostError: The lease is another's, or was not renewed for the failover time.
            AwsError: The call failed; the lease is still held.
        """
        self._write(self._store.renew)

    def checkpoint(self, position: ExtendedSequenceNumber) -> None:
        """Store a position; raises as `renew`."""
        self._write(lambda lease: self._store.checkpoint(lease, position))

    def pin(self, timestamp_millis: int) -> None:
        """Store what the sentinel start position meant; raises as `renew`."""
        self._write(lambda lease: self._store.pin(lease, timestamp_millis))

    def release(self) -> None:
        """Give the lease back; afterwards this handle writes nothing. Raises as `renew`."""
        with self._lock:
            self._write(self._store.release)
            self._gone = "released"

    def _write(self, attempt: Callable[[Lease], Lease | Conflict]) -> None:
        with self._lock:
            sent_at = self._clock.monotonic()
            if not self.is_held(sent_at):
                self.mark_lost(f"not renewed for {sent_at - self._written_at:.1f} s")
                raise LeaseLostError(f"lease {self.key} is not held any more: {self._gone}")
            try:
                outcome = attempt(self._lease)
                if isinstance(outcome, Conflict) and self._is_own_write(outcome.current):
                    # An earlier write did arrive, only its answer was lost: go on from the row as it is.
                    assert outcome.current is not None
                    self._lease = outcome.current
                    outcome = attempt(self._lease)
            except AwsError:
                self._uncertain = True
                raise
            if isinstance(outcome, Conflict):
                current = outcome.current
                self.mark_lost(
                    "its row was deleted"
                    if current is None
                    else f"its counter is {current.counter}, owner {current.owner or 'nobody'}"
                )
                raise LeaseLostError(f"lease {self.key} is not held any more: {self._gone}")
            self._lease = outcome
            self._written_at = sent_at
            self._uncertain = False

    def _is_own_write(self, current: Lease | None) -> bool:
        return (
            self._uncertain
            and current is not None
            and current.owner == self._worker_id
            and current.counter == self._lease.counter + 1
        )


class HeldLeases:
    """The set of leases that this worker holds. Thread-safe; its lock is a leaf."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[str, HeldLease] = {}

    def add(self, held: HeldLease) -> None:
        """Add an acquisition, replacing an older one of the same key."""
        with self._lock:
            self._by_key[held.key] = held

    def remove(self, held: HeldLease) -> None:
        """Remove this acquisition; a newer one of the same key stays."""
        with self._lock:
            if self._by_key.get(held.key) is held:
                del self._by_key[held.key]

    def keys(self) -> set[str]:
        """Keys of all held leases."""
        with self._lock:
            return set(self._by_key)

    def __iter__(self) -> Iterator[HeldLease]:
        with self._lock:
            return iter([*self._by_key.values()])

    def __len__(self) -> int:
        with self._lock:
            return len(self._by_key)
