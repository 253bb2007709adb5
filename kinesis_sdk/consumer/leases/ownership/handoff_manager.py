"""Leases that move between live workers, seen from one of them: what it asks for, what it is asked for, what it gave.

`handoff` decides; here is what that needs of the table.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import AwsError, ProtocolError
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.common.metrics import NOT_MEASURED, BoundMetrics
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.leases.ownership.handoff import IncomingHandoffs, OutgoingHandoffs, is_untouched
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease, HeldLeases
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.store import Conflict, LeaseStore, is_refused_row

_LOGGER = logging.getLogger(__name__)

_NEVER = float("inf")
_STOP_PATIENCE = 2.0
"""Seconds for which a stopping worker waits for leases that it asked for, to pass them on at once."""


class HandoffManager:
    """Handovers to and from this worker. Used by the loop that looks; only `went` is for any thread.

    Args:
        store: Lease table.
        worker_id: This worker.
        config: Settings.
        clock: Time.
        held: The leases held here.
        busy: Keys of leases whose previous shard consumer is still winding down.
        take: Takes a lease, for a reason.
        on_handoff_requested: Told about each held lease that somebody asked for.
        metrics: Metrics of the worker.

    Attributes:
        taking: Whether what arrives is wanted still; a stopping worker passes it on.
    """

    def __init__(
        self,
        store: LeaseStore,
        worker_id: str,
        *,
        config: ConsumerConfig,
        clock: Clock,
        held: HeldLeases,
        busy: Callable[[], Collection[str]],
        take: Callable[[Lease, str], None],
        on_handoff_requested: Callable[[HeldLease], None],
        metrics: BoundMetrics = NOT_MEASURED,
    ) -> None:
        self.taking = True
        self._store = store
        self._worker_id = worker_id
        self._clock = clock
        self._held = held
        self._busy = busy
        self._take = take
        self._on_handoff_requested = on_handoff_requested
        self._metrics = metrics
        self._book = IncomingHandoffs(
            worker_id,
            timeout=config.graceful_lease_handoff_timeout,
            failover_time=config.failover_time,
        )
        self._departures = OutgoingHandoffs(config.failover_time)
        # Filled by whoever ends a shard, emptied by the loop that looks.
        self._departed: deque[Lease] = deque()
        self._log_throttle = LogThrottle(_LOGGER)

    def __len__(self) -> int:
        """Leases on their way here."""
        return len(self._book)

    def observe(self, leases: Sequence[Lease], now: float) -> None:
        """Take in a scan: what is on its way here, what is asked for, and what a former process of our name gave."""
        self._book.observe(leases, now)
        rows = {lease.lease_key: lease for lease in leases if lease.checkpoint_owner == self._worker_id}
        if not rows:
            return
        for held in self._held:
            row = rows.pop(held.key, None)
            if row is not None and held.notice(row, now):
                self._on_handoff_requested(held)
        busy = self._busy()
        for row in rows.values():
            if row.lease_key not in busy:
                # We were restarted under the same id in the middle of a handoff: nobody here works on it. The
                # counter decides if this read is stale.
                try:
                    self._store.complete_handoff(row)
                except AwsError as error:
                    if not is_refused_row(error):
                        raise
                    self._log_throttle.log(
                        now, "complete", "lease %s: not handed off: %s", row.lease_key, error
                    )

    def held_or_incoming_keys(self, leases: Sequence[Lease], is_expired: Callable[[Lease], bool]) -> set[str]:
        """Keys that count as ours in a plan: held and staying, or on their way here and alive."""
        rows = {lease.lease_key: lease for lease in leases}
        coming = {key for key in self._book.keys() if key in rows and not is_expired(rows[key])}  # noqa: SIM118
        return coming | {held.key for held in self._held if held.handoff_requester is None}

    def has_arrived(self, lease_key: str) -> bool:
        """Return whether the last scan showed that a handoff to this worker is complete."""
        return lease_key in self._book.arrived

    @property
    def holds_on(self) -> bool:
        """Whether a held lease stays here, or one is on its way."""
        return len(self._book) > 0 or any(held.handoff_requester is None for held in self._held)

    # Coming

    def ask(self, lease: Lease) -> None:
        """Ask a lease's owner for it."""
        now = self._clock.monotonic()
        try:
            row = self._store.request_handoff(lease, self._worker_id)
        except AwsError as error:
            if not error.retryable:
                raise
            # If it had effect, the next look finds our own id beside the marker and follows it.
            self._log_throttle.log(now, "ask", "lease %s: not asked for: %s", lease.lease_key, error)
            return
        if isinstance(row, Conflict):
            _LOGGER.debug("lease %s: a peer was faster", lease.lease_key)
            return
        _LOGGER.info(
            "lease %s: asked %s for it", lease.lease_key, printable(row.checkpoint_owner or "its owner")
        )
        self._metrics.add(catalogue.LEASE_HANDOFFS_REQUESTED, 1)
        self._book.asked(row, now)

    def next_incoming_poll(self, now: float) -> float:
        """When to call `meet`."""
        due = self._book.next_poll(now)
        return _NEVER if due is None else due

    def meet(self, now: float) -> float | None:
        """Read the leases that are on their way here, take what arrived or is overdue."""
        overdue = {incoming.lease.lease_key for incoming in self._book.overdue(now)}
        for incoming in self._book.incoming():
            key = incoming.lease.lease_key
            row = self._store.get(key)
            if row is None or not self._book.is_coming(incoming, row, now):
                self._book.drop(key)
                if row is not None and row.owner == self._worker_id:
                    self._arrived(row, "handed off")
            elif key in overdue and row.owner == self._worker_id:
                self._book.drop(key)
                self._arrived(
                    row, f"{printable(row.checkpoint_owner or 'its owner')} did not hand it over in time"
                )
        return self._book.next_poll(now)

    def _arrived(self, row: Lease, reason: str) -> None:
        if row.is_finished:
            return
        if self.taking:
            if row.lease_key not in self._busy():
                self._take(row, reason)
        elif not row.in_handoff:
            self._store.release(row)

    def pass_on(self, now: float, stopped_at: float) -> float:
        """While stopping: what still arrives goes to whoever looks next, instead of expiring on our name."""
        if now - stopped_at > _STOP_PATIENCE:
            for incoming in self._book.incoming():
                self._book.drop(incoming.lease.lease_key)
        try:
            self.meet(now)
        except (AwsError, ProtocolError) as error:
            self._log_throttle.log(now, "pass on", "leases on their way here: %s", error)
        return self.next_incoming_poll(now)

    # Going

    def went(self, held: HeldLease) -> None:
        """A held lease is held no more; if it was handed off, its new owner is waited for. From any thread."""
        if held.handed_over is not None:
            self._departed.append(held.handed_over)

    def next_reclaim(self, now: float) -> float:
        """When to call `reclaim_unclaimed`."""
        while self._departed:
            self._departures.note(self._departed.popleft(), now)
        due = self._departures.due
        return _NEVER if due is None else due

    def reclaim_unclaimed(self, now: float) -> float | None:
        """Take back leases that were handed off and that their new owner did not take."""
        for left in self._departures.pop_due(now):
            row = self._store.get(left.lease_key)
            if (
                row is not None
                and is_untouched(left, row)
                and self.taking
                and row.lease_key not in self._busy()
            ):
                self._take(row, f"{printable(row.owner or 'its next owner')} did not come for it")
        return self._departures.due
