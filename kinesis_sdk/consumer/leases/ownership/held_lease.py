"""Leases held by this worker: renew, checkpoint and release under one lock per lease.

A lease is lost when a conditional write finds another counter, or when this worker has not written for ``failover_time``,
because a peer may then consider it expired. After a handoff request (see `handoff`), the lease is still renewed until
its shard consumer has finished; `HeldLease.release` then transfers it to the requester.

```
                     another counter (of a write or a scan), or no write for failover_time
        ┌──────────────────────────────────────────────────────────► LOST
 HELD ──┤ release ──────────────────────────────────────────────────► released
        └► REQUESTED (handoff_requester) ── release ────────────────► handed off (handed_off_row)
```
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from uuid import uuid4

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import KinesisSdkError, LeaseLostError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.metrics import NOT_MEASURED, BoundMetrics
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.leases.ownership.throughput_meter import SteadyRate, ThroughputMeter
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.progress import Progress
from kinesis_sdk.consumer.leases.table.store import LeaseStore, is_rejected_row
from kinesis_sdk.consumer.leases.table.transitions import Conflict

_LOGGER = FieldLogger(logging.getLogger(__name__))


class HeldLease:
    """One acquisition of a lease.

    A lease that is lost and taken again is another object with another ``token``; the old object cannot write.
    Thread-safe: a lock per lease serializes its writes, so a renewal and a checkpoint never overlap. Only the store is
    called under this lock.

    Args:
        acquired_at: Monotonic time at which the take was *sent*.
        has_kcl3_leader: Returns whether a KCL 3 leader is alive at a monotonic time. A live leader reads the throughput, so every
            measurement is written unchanged.

    Attributes:
        acquired_counter: Counter of the row after the take. A handoff marker on an older row is history.
        measure_progress: Returns the progress to write at a monotonic time; set by the shard consumer, and called from any thread.
        renew_at: Monotonic time of the next heartbeat; owned by the renewal loop.
        renewing: Whether a renewal is in flight; owned by the renewal loop.
        handoff_requested_at: Monotonic time at which a handoff request was first seen; None while there is none.
        handed_off_row: The row after `release`, if the requester is a worker of this package; otherwise None.
        unwritable: Reason why DynamoDB rejects writes of this row by any worker; None while it accepts them.
        problem: Reason why the shard cannot be consumed although the lease is held, as of the last scan; None if it can.
        handler_request: An operator's request at the last scan; None without a request.
        on_handler_request: Called from any thread when the request changes; set by the shard consumer.
        on_change: Called from any thread with this object when the lease is requested or ends; set by `HeldLeases`.
        changed_from_outside: Whether the lease was lost to a row that still names this worker.
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
        has_kcl3_leader: Callable[[float], bool] = lambda _now: False,
        metrics: BoundMetrics = NOT_MEASURED,
        stream: StreamId | None = None,
    ) -> None:
        self._logger = FieldLogger(_LOGGER, stream=stream, shard=lease.shard, worker=worker_id)
        self.token: str = uuid4().hex
        self.acquired_counter: int = lease.counter
        self.meter: ThroughputMeter = ThroughputMeter(clock.monotonic())
        self.measure_progress: Callable[[float], Progress | None] = lambda _now: None
        self._rate = SteadyRate()
        self._has_kcl3_leader = has_kcl3_leader
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
        self.handoff_requested_at: float | None = None
        self.handed_off_row: Lease | None = None
        self.unwritable: str | None = None
        self.problem: str | None = None
        self.handler_request: HandlerRequest | None = lease.handler_request
        self.on_handler_request: Callable[[], None] = lambda: None
        self.on_change: Callable[[HeldLease], None] = lambda _held: None
        self.changed_from_outside: bool = False
        # Set before the first release is sent, and never cleared.
        self._releasing = False
        self._handoff_requester: str | None = None
        self._requester_is_python = False
        # Set while the response of a write is missing: the row may be one counter ahead of `_lease`.
        self._uncertain = False
        # When the first write without a response was sent. A repeated write that finds the row changed counts from this time.
        self._uncertain_since = acquired_at
        self._lock = threading.RLock()
        self._gone_lock = threading.Lock()

    @property
    def key(self) -> str:
        """Lease key."""
        return self._lease.lease_key

    @property
    def log_fields(self) -> Mapping[str, object]:
        """Fields of log lines about this lease."""
        return self._logger.fields

    @property
    def shard_id(self) -> str:
        """Id of the shard."""
        return self._lease.shard

    @property
    def lease(self) -> Lease:
        """The row after this worker's last write."""
        return self._lease

    @property
    def written_at(self) -> float:
        """Monotonic time at which the last successful write was sent."""
        return self._written_at

    @property
    def gone(self) -> str | None:
        """Reason why the lease is no longer held; None while it is held."""
        return self._gone

    @property
    def handoff_requester(self) -> str | None:
        """Id of the worker that requested this lease; None without a request."""
        return self._handoff_requester

    def observe_handoff_request(self, row: Lease, now: float) -> bool:
        """Check a scanned row for a handoff request, and return whether it is new. Does not block on in-flight writes.

        A marker with this worker's id was written after its take, because the take removed any older marker. A stale read
        may still show a row from before the take, so a row with a lower counter does not count.
        """
        if (
            self._handoff_requester is not None
            or row.checkpoint_owner != self._worker_id
            or row.owner is None
            or row.counter < self.acquired_counter
        ):
            return False
        self.handoff_requested_at = now
        self._requester_is_python = row.handoff_owner == row.owner
        self._handoff_requester = row.owner
        self.on_change(self)
        return True

    def observe_foreign_change(self, row: Lease) -> bool:
        """Check a scanned row for a change that this worker did not make; return whether the lease is newly lost.

        Operators change rows of a live fleet (`admin.changes`). Without this check, the owner would notice only at its next
        write, up to a renewal interval later. Until then, it would process records from an outdated position.

        The scan runs on a different thread from the writes. This check takes no lock, because a write may hang for seconds. The
        scan may show this worker's own writes:

        - After a stale read, the counter is not higher than in the last response.
        - After a write that is in flight or whose response was lost, the counter is one higher than in the last response, with this worker
          as the holder. The counter is never two higher, because the next write starts from that row
          (`_write` adopts the row before it repeats). The last response is read after the scan, and its counter only
          rises, so a write that completes between the scan and this check makes the difference smaller.
        - After a release or the end of a handoff, the counter is one higher, with another holder; or two higher, if the next owner was
          fast. `_releasing` was set before the write was sent, so it is set here whenever the scan shows the write's effect.

        Any other change was written by another worker, by an operator, or by another process with this worker's id. One
        exception: after a row was deleted and created again, a stale read may show the old row. The lease is then taken
        again at its checkpoint.
        """
        if self._gone is not None or self._releasing:
            return False
        ahead = row.counter - self._lease.counter
        if ahead > 1 or (ahead == 1 and row.holder != self._worker_id):
            return self._lose_to(row)
        return False

    def observe_handler_request(self, row: Lease) -> None:
        """Check a scanned row for an operator's request. Does not block on in-flight writes.

        A row with a lower counter than after the take does not count: the former owner may have removed its request.
        """
        if row.counter < self.acquired_counter or row.handler_request == self.handler_request:
            return
        self.handler_request = row.handler_request
        self.on_handler_request()

    def end_handler_request(self, request: HandlerRequest) -> None:
        """Remove a request from the row, unless an operator has replaced it. Safe to repeat after an error."""
        self._store.set_handler_request(self.key, None, instead_of=request)

    def accept_repaired_row(self, row: Lease) -> bool:
        """Continue with a manually repaired row; return False if another worker has written the row since then."""
        with self._lock:
            if row.counter != self._lease.counter or row.holder != self._worker_id:
                return False
            self._lease = row
            return True

    def is_held(self, now: float) -> bool:
        """Whether this worker may still act as the owner."""
        return self._gone is None and now - self._written_at <= self._failover_time

    def mark_lost(self, reason: str) -> bool:
        """Stop acting as the owner of a lost lease. Keep the first reason; return whether it is the reason of this call."""
        first = self._end(reason)
        if first:
            self._metrics.add(catalogue.LOST_LEASES, 1)
        return first

    def _lose_to(self, row: Lease | None) -> bool:
        """Call `mark_lost`, because another process has changed the row."""
        if row is None:
            return self.mark_lost("its row was deleted, or can no longer be read")
        if row.holder != self._worker_id:
            return self.mark_lost(f"its counter is {row.counter}, owner {printable(row.owner or 'none')}")
        known = self._lease
        change = f"counter {known.counter} became {row.counter}, checkpoint {known.checkpoint} became {row.checkpoint}"
        if self._gone is None:
            # Set before the lease counts as lost: a thread that sees the loss reads this next.
            self.changed_from_outside = True
        first = self.mark_lost(f"its row was changed from outside: {change}, owner {self._worker_id}")
        if first:
            self._logger.warning(
                "lease %s: its row was changed from outside, by an operator or by another process with the id of this worker: "
                "%s. Records that were read are dropped, and the lease is taken again at the checkpoint of the row",
                self.key,
                change,
            )
        return first

    def let_expire(self, reason: str) -> None:
        """Stop acting as the owner without releasing the lease. The first reason is kept."""
        self._end(reason)

    def _end(self, reason: str) -> bool:
        # The renewal loop sees that the lease was not renewed in time; at the same moment, a checkpoint on a pool thread
        # gets a conflict. Both findings end the lease; under this lock, only the first counts as a lost lease.
        with self._gone_lock:
            first = self._gone is None
            if first:
                self._gone = reason
        if first:
            self.on_change(self)
        return first

    def renew(self) -> None:
        """Write a heartbeat with the shard's throughput and progress.

        Raises:
            LeaseLostError: If another worker has the lease, or it was not renewed for the failover time.
            KinesisSdkError: If the call failed; the lease is still held.
        """
        with self._metrics.timed(self._clock, catalogue.RENEW_LEASE_TIME, catalogue.RENEW_LEASE_SUCCESS):
            self._write(lambda lease: self._store.renew(self._measured(lease)))

    def checkpoint(self, position: ExtendedSequenceNumber, state: bytes | None = None) -> None:
        """Store a checkpoint. Raises the errors of `renew`, and an error if the state is too large for the row."""
        if state is None:
            self._write(lambda lease: self._store.checkpoint(self._measured(lease), position))
        else:
            self._write(
                lambda lease: self._store.checkpoint(self._measured(lease), position, state), own_data=True
            )

    def prepare(self, position: ExtendedSequenceNumber, state: bytes | None = None) -> None:
        """Store the first half of a two-phase checkpoint. Raises the errors of `renew`, and an error if the state is too large for the row."""
        self._write(lambda lease: self._store.prepare(lease, position, state), own_data=True)

    def pin(self, timestamp_millis: int) -> None:
        """Store the time to which the start position LATEST was resolved. Raises the errors of `renew`."""
        self._write(lambda lease: self._store.pin(lease, timestamp_millis))

    def mark_processed(self, millis: int) -> None:
        """Store that every record from before a time (epoch milliseconds by the clock of Kinesis) is processed.

        Raises the errors of `renew`.
        """
        self._write(lambda lease: self._store.mark_processed(lease, millis))

    def release(self) -> None:
        """Release the lease, to its requester if there is one; after that, write nothing. Raises the errors of `renew`.

        At the end of the shard, there is no handoff, because a requester that has ended would stay the owner of the row.
        """
        with self._lock:
            self._releasing = True
            self._write(self._release_row)
            if (
                self._handoff_requester is not None
                and self._requester_is_python
                and not self._lease.in_handoff
                and not self._lease.is_finished
            ):
                self.handed_off_row = self._lease
            is_handed_off = self._handoff_requester is not None and not self._lease.is_finished
            ended = self._end(
                f"handed off to {printable(self._handoff_requester or '')}" if is_handed_off else "released"
            )
        if ended and is_handed_off:
            self._metrics.add(catalogue.LEASES_HANDED_OFF, 1)

    def _measured(self, lease: Lease) -> Lease:
        now = self._clock.monotonic()
        measured = self.meter.read(now)
        rate = self._rate.report(measured, lease.throughput_kbps)
        if measured is not None and self._has_kcl3_leader(now):
            rate = measured
        progress = self.measure_progress(now)
        if rate == lease.throughput_kbps and progress == lease.progress:
            return lease
        return replace(lease, throughput_kbps=rate, progress=progress)

    def _release_row(self, lease: Lease) -> Lease | Conflict:
        if lease.checkpoint_owner == self._worker_id and not lease.is_finished:
            return self._store.complete_handoff(lease)
        return self._store.release(lease)

    def _write(self, attempt: Callable[[Lease], Lease | Conflict], *, own_data: bool = False) -> None:
        """Write the row with ``attempt``, which makes one conditional write based on the known row.

        With ``own_data``, the caller chose the size of the data. A row that becomes too large is then the caller's error, and does not end
        the lease.
        """
        with self._lock:
            sent_at = self._clock.monotonic()
            if not self.is_held(sent_at):
                self.mark_lost(f"not renewed for {sent_at - self._written_at:.1f} s")
                raise LeaseLostError(f"lease {self.key} is no longer held: {self._gone}")
            if self._handoff_requester is not None and not self._lease.in_handoff:
                # A scan showed the request, but `_lease` is older. Add the marker, so that the write expects a requested
                # lease.
                self._lease = replace(
                    self._lease, owner=self._handoff_requester, checkpoint_owner=self._worker_id
                )
            try:
                outcome = attempt(self._lease)
                if isinstance(outcome, Conflict) and self._is_still_ours(outcome.current):
                    # Either an earlier write succeeded and its response was lost, or another worker requested the lease
                    # (owner and marker changed, the counter did not). Repeat the write from the current row.
                    assert outcome.current is not None
                    self._lease = outcome.current
                    self.observe_handoff_request(outcome.current, sent_at)
                    outcome = attempt(self._lease)
            except KinesisSdkError as error:
                if is_rejected_row(error) and not own_data:
                    self.unwritable = f"its row cannot be written: {error}"
                    self.mark_lost(self.unwritable)
                    raise LeaseLostError(f"lease {self.key} is no longer held: {self.unwritable}") from error
                if not self._uncertain:
                    self._uncertain_since = sent_at
                self._uncertain = True
                raise
            if isinstance(outcome, Conflict):
                self._lose_to(outcome.current)
                raise LeaseLostError(f"lease {self.key} is no longer held: {self._gone}")
            self._lease = outcome
            self.observe_handoff_request(outcome, sent_at)
            # A write is sent at t1 and succeeds, its response is lost; it is repeated at t2, which finds the row one counter
            # ahead. Peers count the failover time from t1. If this worker counted from t2, it would believe in the lease
            # for t2 - t1 after a peer may have taken it.
            self._written_at = self._uncertain_since if self._uncertain else sent_at
            self._uncertain = False

    def _is_still_ours(self, current: Lease | None) -> bool:
        """Return whether this worker may still write the row that made its write fail."""
        if current is None or current.holder != self._worker_id:
            return False
        ahead = current.counter - self._lease.counter
        return ahead == 0 or (ahead == 1 and self._uncertain)


class HeldLeases:
    """The set of leases that this worker holds, in the order of their takes. Thread-safe; its lock is a leaf."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[str, HeldLease] = {}
        self._takes: dict[str, int] = {}
        self._numbers = itertools.count()
        self._changed: deque[HeldLease] = deque()

    def add(self, held: HeldLease) -> None:
        """Add an acquisition, which replaces an older acquisition of the same key."""
        held.on_change = self.note_change
        with self._lock:
            self._by_key[held.key] = held
            if held.key not in self._takes:
                self._takes[held.key] = next(self._numbers)
        self.note_change(held)

    def remove(self, held: HeldLease) -> None:
        """Remove this acquisition; a newer acquisition of the same key stays."""
        with self._lock:
            if self._by_key.get(held.key) is held:
                del self._by_key[held.key]
                del self._takes[held.key]

    def keys(self) -> set[str]:
        """Return the keys of all held leases."""
        with self._lock:
            return set(self._by_key)

    def note_change(self, held: HeldLease) -> None:
        """Include a lease in the next `take_changed`."""
        self._changed.append(held)

    def take_changed(self) -> set[HeldLease]:
        """Return the acquisitions added, requested or ended since the last call. For one thread."""
        changed: set[HeldLease] = set()
        while self._changed:
            changed.add(self._changed.popleft())
        return changed

    def in_order(self, leases: Iterable[HeldLease]) -> list[HeldLease]:
        """Return the given acquisitions that are still in this set, in its order."""
        with self._lock:
            present = [held for held in leases if self._by_key.get(held.key) is held]
            return sorted(present, key=lambda held: self._takes[held.key])

    def __contains__(self, held: HeldLease) -> bool:
        with self._lock:
            return self._by_key.get(held.key) is held

    def __iter__(self) -> Iterator[HeldLease]:
        with self._lock:
            return iter([*self._by_key.values()])

    def __len__(self) -> int:
        with self._lock:
            return len(self._by_key)
