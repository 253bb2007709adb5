"""Graceful lease handoff between live workers: requests, incoming and outgoing leases.

The protocol and its timeouts are in `handoff`; this module performs the reads and conditional writes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.common.metrics import NOT_MEASURED, BoundMetrics
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.leases.ownership.handoff import IncomingHandoffs, OutgoingHandoffs, is_untouched
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease, HeldLeases
from kinesis_sdk.consumer.leases.ownership.listener import LeaseListener
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.store import LeaseStore, is_rejected_row
from kinesis_sdk.consumer.leases.table.transitions import Conflict

_LOGGER = FieldLogger(logging.getLogger(__name__))

_NEVER = float("inf")
_STOP_WAIT = 2.0
"""Seconds for which a stopping worker waits for incoming leases in order to release them."""


class HandoffManager:
    """Handoffs to and from this worker. Used by the table loop, except `on_lease_ended`.

    An owner has ``handoff_timeout`` seconds to hand off a requested lease.
    """

    def __init__(
        self,
        store: LeaseStore,
        worker_id: str,
        *,
        failover_time: float,
        handoff_timeout: float,
        clock: Clock,
        held: HeldLeases,
        listener: LeaseListener,
        metrics: BoundMetrics = NOT_MEASURED,
        fields: Callable[[Lease], dict[str, str | None]] = lambda lease: log_fields(shard=lease.shard),
    ) -> None:
        self._fields = fields
        self._store = store
        self._worker_id = worker_id
        self._clock = clock
        self._held = held
        self._listener = listener
        self._metrics = metrics
        self._incoming = IncomingHandoffs(
            worker_id,
            timeout=handoff_timeout,
            failover_time=failover_time,
        )
        self._outgoing = OutgoingHandoffs(failover_time)
        # Filled by the thread that ends a shard consumer, emptied by the table loop.
        self._handed_off: deque[Lease] = deque()
        self._log_throttle = LogThrottle(_LOGGER)

    def __len__(self) -> int:
        """Return the number of incoming leases."""
        return len(self._incoming)

    def observe(self, leases: Sequence[Lease], now: float) -> None:
        """Process a scan: incoming leases, requests for held leases, and handoffs that a restart left unfinished."""
        self._incoming.observe(leases, now)
        rows = {lease.lease_key: lease for lease in leases if lease.checkpoint_owner == self._worker_id}
        if not rows:
            return
        for held in self._held:
            row = rows.pop(held.key, None)
            if row is not None and held.observe_handoff_request(row, now):
                self._listener.on_handoff_requested(held)
        busy = self._listener.busy_lease_keys()
        for row in rows.values():
            if row.lease_key not in busy:
                # A lease was requested from this worker id, then its process restarted under the same id. The new
                # process does not hold the lease, so none of its shard consumers will complete the handoff: do it
                # here. If the scan is stale, the condition on the counter rejects the write.
                try:
                    if row.is_finished:
                        self._store.release(row)
                    else:
                        self._store.complete_handoff(row)
                except KinesisSdkError as error:
                    if not is_rejected_row(error):
                        raise
                    self._log_throttle.log(
                        now,
                        "complete",
                        "lease %s: handoff failed: %s",
                        row.lease_key,
                        error,
                        extra=self._fields(row),
                    )

    def held_or_incoming_keys(self, leases: Sequence[Lease], is_expired: Callable[[Lease], bool]) -> set[str]:
        """Return the keys that a plan counts as held: held and not requested, or incoming and not expired."""
        rows = {lease.lease_key: lease for lease in leases}
        incoming = {key for key in self._incoming.keys() if key in rows and not is_expired(rows[key])}  # noqa: SIM118
        return incoming | {held.key for held in self._held if held.handoff_requester is None}

    def has_arrived(self, lease_key: str) -> bool:
        """Return whether the last scan showed the handoff to this worker as complete."""
        return lease_key in self._incoming.arrived

    @property
    def keeps_or_expects_leases(self) -> bool:
        """Whether a lease is held and not requested, or incoming."""
        return len(self._incoming) > 0 or any(held.handoff_requester is None for held in self._held)

    # Incoming leases

    def request(self, lease: Lease) -> None:
        """Request a lease from its owner."""
        now = self._clock.monotonic()
        try:
            row = self._store.request_handoff(lease, self._worker_id)
        except KinesisSdkError as error:
            if not error.retryable:
                raise
            # The response is missing, but the write may have succeeded. Then the next scan finds this worker's id next to
            # the marker, and the lease is incoming.
            self._log_throttle.log(
                now,
                "request",
                "lease %s: handoff request failed: %s",
                lease.lease_key,
                error,
                extra=self._fields(lease),
            )
            return
        if isinstance(row, Conflict):
            _LOGGER.debug(
                "lease %s: lost the race to another worker", lease.lease_key, extra=self._fields(lease)
            )
            return
        _LOGGER.info(
            "lease %s: requested handoff from %s",
            lease.lease_key,
            printable(row.checkpoint_owner or "its owner"),
            extra=self._fields(lease),
        )
        self._metrics.add(catalogue.LEASE_HANDOFFS_REQUESTED, 1)
        self._incoming.add_request(row, now)

    def next_incoming_poll(self, now: float) -> float:
        """Return the time of the next `poll_incoming`; infinity while no lease is incoming."""
        due = self._incoming.next_poll(now)
        return _NEVER if due is None else due

    def poll_incoming(self, now: float) -> Iterator[tuple[Lease, str]]:
        """Read the incoming leases; yield row and reason of each lease that its old owner released or kept beyond the timeout.

        Each row is yielded before the next row is read, so that a released lease is taken at once. The caller must not take a finished
        lease, but must release it unless its old owner still holds it.
        """
        overdue = {incoming.lease.lease_key for incoming in self._incoming.overdue(now)}
        for incoming in self._incoming.all():
            key = incoming.lease.lease_key
            row = self._store.get(key)
            if row is None or not self._incoming.is_incoming(incoming, row, now):
                self._incoming.drop(key)
                if row is not None and row.owner == self._worker_id:
                    yield row, "handed off"
            elif key in overdue and row.owner == self._worker_id:
                self._incoming.drop(key)
                owner = printable(row.checkpoint_owner or "its owner")
                yield row, f"{owner} did not release it within the handoff timeout"

    def drop_overdue_at_stop(self, now: float, stopped_at: float) -> None:
        """Stop waiting for incoming leases once the stop has waited `_STOP_WAIT` seconds."""
        if now - stopped_at > _STOP_WAIT:
            for incoming in self._incoming.all():
                self._incoming.drop(incoming.lease.lease_key)

    # Outgoing leases

    def on_lease_ended(self, held: HeldLease) -> None:
        """Record that a held lease ended; after a handoff, start waiting for the new owner. Thread-safe."""
        if held.handed_off_row is not None:
            self._handed_off.append(held.handed_off_row)

    def next_reclaim(self, now: float) -> float:
        """Return the time of the next `reclaim_unclaimed`; infinity if every handed-off lease was taken."""
        while self._handed_off:
            self._outgoing.add(self._handed_off.popleft(), now)
        due = self._outgoing.due
        return _NEVER if due is None else due

    def reclaim_unclaimed(self, now: float) -> Iterator[tuple[Lease, str]]:
        """Yield row and reason of each handed-off lease that its new owner has not taken in time."""
        for left in self._outgoing.pop_due(now):
            row = self._store.get(left.lease_key)
            if row is not None and is_untouched(left, row):
                yield row, f"{printable(row.owner or 'its next owner')} did not take it after the handoff"
