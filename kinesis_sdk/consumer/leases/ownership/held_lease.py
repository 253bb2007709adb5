"""The leases that this worker holds: heartbeat, checkpoint and release under one lock per lease.

A held lease is lost when a conditional write shows another counter, or when this worker could not write for a
whole failover time: by then any observer may call it expired, so its holder must stop believing in it first.

Somebody may ask for a lease (a handoff, see `handoff`): the holder then keeps renewing on the counter alone
while its shard consumer finishes, and `HeldLease.release` gives the lease to who asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import uuid4

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import AwsError, LeaseLostError
from kinesis_sdk.common.metrics import NOT_MEASURED, BoundMetrics
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.leases.ownership.throughput_meter import SteadyRate, ThroughputMeter
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.store import Conflict, LeaseStore, is_refused_row


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
        java_leads: Whether a Java worker reads the rate at that time: then it is written as it is measured.
        metrics: Metrics of the worker.

    Attributes:
        token: Unique id of this acquisition.
        acquired_counter: The row's counter when it was taken; a marker on an older row is history.
        meter: Counts what the shard delivers.
        renew_at: Monotonic time of the next heartbeat; owned by the loop that renews.
        handover_since: Monotonic time at which a wanted handoff was noticed; None while there is none.
        handed_over: The row as `release` left it to who asked for it, if that is one of this package's workers.
        refused: Why DynamoDB refuses to write this row for any worker; None while it does not.
        problem: Why the shard cannot be worked on although the lease is held, as the last scan shows it, or None.
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
        java_leads: Callable[[float], bool] = lambda _now: False,
        metrics: BoundMetrics = NOT_MEASURED,
    ) -> None:
        self.token: str = uuid4().hex
        self.acquired_counter: int = lease.counter
        self.meter: ThroughputMeter = ThroughputMeter(clock.monotonic())
        self._rate = SteadyRate()
        self._java_leads = java_leads
        self._metrics = metrics
        self.renew_at = acquired_at
        self.renewing = False
        self._store = store
        self._lease = lease
        self._worker_id = worker_id
        self._failover_time = failover_time
        self._clock = clock
        self._written_at = acquired_at
        self._gone: str | None = None
        self.handover_since: float | None = None
        self.handed_over: Lease | None = None
        self.refused: str | None = None
        self.problem: str | None = None
        self._handover_to: str | None = None
        self._asked_by_ours = False
        # Set while a write's answer is missing: the row may be one counter ahead of what we know.
        self._uncertain = False
        # When the first write without an answer was sent: what a repetition finds done may be its doing.
        self._uncertain_since = acquired_at
        self._lock = threading.RLock()
        self._gone_lock = threading.Lock()

    @property
    def key(self) -> str:
        """Lease key."""
        return self._lease.lease_key

    @property
    def shard_id(self) -> str:
        """The shard."""
        return self._lease.shard

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

    @property
    def handoff_requester(self) -> str | None:
        """Who asked for this lease; None if nobody did."""
        return self._handover_to

    def notice(self, row: Lease, now: float) -> bool:
        """Look for a handoff marker on a row that somebody read. Never waits for a write that is under way.

        A marker with our id was written since our take, because the take removed any older one; only rows from
        before that (reads may be stale) do not count.

        Returns:
            Whether a handoff is news.
        """
        if (
            self._handover_to is not None
            or row.checkpoint_owner != self._worker_id
            or row.owner is None
            or row.counter < self.acquired_counter
        ):
            return False
        self.handover_since = now
        self._asked_by_ours = row.handoff_owner == row.owner
        self._handover_to = row.owner
        return True

    def adopt(self, row: Lease) -> bool:
        """Take over what somebody repaired by hand, if no worker wrote the row since we did.

        Returns:
            False if the row is not ours any more.
        """
        with self._lock:
            if row.counter != self._lease.counter or row.holder != self._worker_id:
                return False
            self._lease = row
            return True

    def is_held(self, now: float) -> bool:
        """Whether this worker may still act as the owner."""
        return self._gone is None and now - self._written_at <= self._failover_time

    def mark_lost(self, reason: str) -> None:
        """Stop acting as the owner, because the lease is lost. The first reason stays."""
        if self._end(reason):
            self._metrics.add(catalogue.LOST_LEASES, 1)

    def let_expire(self, reason: str) -> None:
        """Stop acting as the owner of a lease that may still be ours. The first reason stays."""
        self._end(reason)

    def _end(self, reason: str) -> bool:
        # The loop that renews and a checkpoint may find the loss at the same time: it is one loss.
        with self._gone_lock:
            first = self._gone is None
            if first:
                self._gone = reason
        return first

    def renew(self) -> None:
        """Heartbeat; also says what the shard delivers, for whoever balances by load.

        Raises:
            LeaseLostError: The lease is another's, or was not renewed for the failover time.
            AwsError: The call failed; the lease is still held.
        """
        with self._metrics.timed(self._clock, catalogue.RENEW_LEASE_TIME, catalogue.RENEW_LEASE_SUCCESS):
            self._write(lambda lease: self._store.renew(self._measured(lease)))

    def checkpoint(self, position: ExtendedSequenceNumber) -> None:
        """Store a position; raises as `renew`."""
        self._write(lambda lease: self._store.checkpoint(self._measured(lease), position))

    def prepare(self, position: ExtendedSequenceNumber, state: bytes | None = None) -> None:
        """Store the first half of a two-phase checkpoint; raises as `renew`.

        Raises:
            AwsError: Also if the state is too large for the row.
        """
        self._write(lambda lease: self._store.prepare(lease, position, state), own_data=True)

    def pin(self, timestamp_millis: int) -> None:
        """Store what the sentinel start position meant; raises as `renew`."""
        self._write(lambda lease: self._store.pin(lease, timestamp_millis))

    def release(self) -> None:
        """Give the lease back, or to who asked for it; afterwards this handle writes nothing. Raises as `renew`."""
        with self._lock:
            self._write(self._give_away)
            if self._handover_to is not None and self._asked_by_ours and not self._lease.in_handoff:
                self.handed_over = self._lease
            ended = self._end(
                f"handed off to {printable(self._handover_to)}" if self._handover_to else "released"
            )
        if ended and self._handover_to is not None:
            self._metrics.add(catalogue.LEASES_HANDED_OFF, 1)

    def _measured(self, lease: Lease) -> Lease:
        now = self._clock.monotonic()
        measured = self.meter.read(now)
        rate = self._rate.report(measured, lease.throughput_kbps)
        if measured is not None and self._java_leads(now):
            rate = measured
        return lease if rate == lease.throughput_kbps else replace(lease, throughput_kbps=rate)

    def _give_away(self, lease: Lease) -> Lease | Conflict:
        if lease.checkpoint_owner == self._worker_id:
            return self._store.complete_handoff(lease)
        return self._store.release(lease)

    def _write(self, attempt: Callable[[Lease], Lease | Conflict], *, own_data: bool = False) -> None:
        """Write the row.

        Args:
            attempt: One attempt.
            own_data: Whether the caller chose how much is written, so that a row that becomes too large is its mistake.
        """
        with self._lock:
            sent_at = self._clock.monotonic()
            if not self.is_held(sent_at):
                self.mark_lost(f"not renewed for {sent_at - self._written_at:.1f} s")
                raise LeaseLostError(f"lease {self.key} is not held any more: {self._gone}")
            if self._handover_to is not None and not self._lease.in_handoff:
                # Noticed by a look: write as one who knows.
                self._lease = replace(self._lease, owner=self._handover_to, checkpoint_owner=self._worker_id)
            try:
                outcome = attempt(self._lease)
                if isinstance(outcome, Conflict) and self._is_still_ours(outcome.current):
                    # An earlier write did arrive and only its answer was lost, or somebody asked for a handoff:
                    # go on from the row as it is.
                    assert outcome.current is not None
                    self._lease = outcome.current
                    self.notice(outcome.current, sent_at)
                    outcome = attempt(self._lease)
            except AwsError as error:
                if is_refused_row(error) and not own_data:
                    self.refused = f"its row cannot be written: {error}"
                    self.mark_lost(self.refused)
                    raise LeaseLostError(f"lease {self.key} is given up: {self.refused}") from error
                if not self._uncertain:
                    self._uncertain_since = sent_at
                self._uncertain = True
                raise
            if isinstance(outcome, Conflict):
                current = outcome.current
                self.mark_lost(
                    "its row was deleted, or cannot be read any more"
                    if current is None
                    else f"its counter is {current.counter}, owner {printable(current.owner or 'none')}"
                )
                raise LeaseLostError(f"lease {self.key} is not held any more: {self._gone}")
            self._lease = outcome
            self.notice(outcome, sent_at)
            # Peers count from the write that changed the row, which an unanswered one may have been.
            self._written_at = self._uncertain_since if self._uncertain else sent_at
            self._uncertain = False

    def _is_still_ours(self, current: Lease | None) -> bool:
        """Whether a row that a write lost against is ours to write nevertheless."""
        if current is None or current.holder != self._worker_id:
            return False
        ahead = current.counter - self._lease.counter
        return ahead == 0 or (ahead == 1 and self._uncertain)


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
