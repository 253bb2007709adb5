"""Graceful lease handoff of KCL 3: moving a lease between two live workers without interrupting a batch.

```
                   requester                   row                          old owner
 OWNED                                owner=old            n        consumes, renews (n, no marker)
   │     request_handoff ─────────►  owner=new marker=old n        renewal conflicts once, or a scan shows the marker
 REQUESTED  reads the row                             n+1, n+2 …    renews with the counter alone; the running batch
   │     every 0.2 s, writes nothing                                ends, shutdown_requested may checkpoint
   │                                  owner=new            m+1  ◄── complete_handoff; lease_lost, or the consumer ends
 TAKEN   take ────────────────────►  owner=new            m+2
```

Every arrow is one conditional write, and the death of a single worker cannot block a handoff:

- The old owner dies: the counter no longer changes, the lease expires like any other, and any worker takes it.
- The requester dies: the old owner completes the handoff, and takes the lease back if no worker writes the row for a while
  (see `OutgoingHandoffs`). A lease handed off by a Java worker expires under the requester's id.
- The old owner is too slow: it releases the lease after the timeout even if its handler still runs, and the requester takes
  it after the same time. If a KCL 3 leader made the request, the requester waits one failover time longer, because the
  leader has its own timer, and may be dead.
- The old owner does not support the marker (KCL 1.x and 2.x): its leases are taken without a handoff, see `supports_handoff`.

Source: ``LeaseGracefulShutdownHandler``, ``DynamoDBLeaseRenewer.renewLease`` and
``DynamoDBLeaseRefresher.initiateGracefulLeaseHandoff`` of KCL 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kinesis_sdk.consumer.leases.table.lease import Lease

_POLL_FIRST, _POLL_LATER = 0.2, 0.5
"""Seconds between two reads of an incoming lease: at first, and later."""
_FAST_POLL_PERIOD = 5.0
"""Seconds from the request during which the row is read at the first interval."""
_RECLAIM_DELAY = 3.0
"""Seconds after which an unclaimed lease is taken back: enough for several polls of its new owner, one failed call and a GC
pause."""
_STALE_READ_PERIOD = 5.0
"""Seconds for which a read that does not show this worker's request counts as stale."""


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """A lease that was requested for this worker but that its old owner has not released yet.

    Attributes:
        lease: The row of the last scan, or after the request.
        requested_here: Whether this worker requested it; otherwise, a KCL 3 leader did.
        since: Monotonic time of the request, or of the scan that first showed it.
    """

    lease: Lease
    requested_here: bool
    since: float


def supports_handoff(lease: Lease) -> bool:
    """Return whether a lease's row shows that its owner understands the handoff marker.

    A worker of this package records this on the row. A KCL 3 worker publishes worker metrics instead, see
    `worker_metrics.JavaMembership.has_metrics`. Any other worker may ignore the marker and keep renewing, so its leases are
    taken without a handoff.
    """
    return lease.owner is not None and lease.handoff_owner == lease.owner


class IncomingHandoffs:
    """The leases that are moving to this worker. Pure; used by the table loop.

    Args:
        timeout: Seconds after which a requested lease is taken without its owner's consent.
        failover_time: Seconds added to the timeout for a lease that a KCL 3 leader requested.

    Attributes:
        arrived: Keys of formerly incoming leases whose rows now show this worker's id without a marker.
    """

    def __init__(self, worker_id: str, *, timeout: float, failover_time: float) -> None:
        self._worker_id = worker_id
        self._timeout = timeout
        self._failover_time = failover_time
        self._incoming: dict[str, Incoming] = {}
        self.arrived: set[str] = set()

    def __len__(self) -> int:
        return len(self._incoming)

    def keys(self) -> set[str]:
        """Return the keys of all incoming leases."""
        return set(self._incoming)

    def add_request(self, row: Lease, now: float) -> None:
        """Add a lease that this worker requested; ``row`` is the row after the request."""
        self._incoming[row.lease_key] = Incoming(lease=row, requested_here=True, since=now)

    def drop(self, lease_key: str) -> None:
        """Forget a lease that was released to this worker, or that no longer moves to this worker."""
        self._incoming.pop(lease_key, None)

    def observe(self, leases: Iterable[Lease], now: float) -> None:
        """Process a scan: add requests of a KCL 3 leader, and drop leases that no longer move to this worker.

        A lease that arrived (this worker's id, no marker) is dropped as well: the plan resumes it.
        """
        rows = {lease.lease_key: lease for lease in leases}
        for key, lease in rows.items():
            if lease.is_finished:
                continue  # the shard ended meanwhile, so there is nothing left to consume
            if lease.owner == self._worker_id and lease.in_handoff and lease.holder != self._worker_id:
                known = self._incoming.get(key)
                self._incoming[key] = (
                    replace(known, lease=lease)
                    if known is not None
                    else Incoming(lease=lease, requested_here=False, since=now)
                )
        self.arrived = {key for key in self.arrived if self._has_arrived(rows.get(key))}
        for key, incoming in [*self._incoming.items()]:
            row = rows.get(key)
            if row is None or not self.is_incoming(incoming, row, now):
                del self._incoming[key]
                if self._has_arrived(row):
                    self.arrived.add(key)

    def _has_arrived(self, row: Lease | None) -> bool:
        return row is not None and row.owner == self._worker_id and not row.in_handoff

    def is_incoming(self, incoming: Incoming, row: Lease, now: float) -> bool:
        """Return whether a row still shows the lease as incoming: not arrived, and not taken by another worker."""
        if row.owner == self._worker_id:
            return row.in_handoff and not row.is_finished
        # An eventually consistent read may still show the row from before this worker's request.
        stale = row.counter <= incoming.lease.counter and row.owner == incoming.lease.checkpoint_owner
        return stale and incoming.requested_here and now - incoming.since <= _STALE_READ_PERIOD

    def overdue(self, now: float) -> list[Incoming]:
        """Return the leases that their old owners did not release within the timeout."""
        return [
            incoming for incoming in self._incoming.values() if now - incoming.since >= self._limit(incoming)
        ]

    def all(self) -> list[Incoming]:
        """Return all incoming leases, oldest request first."""
        return sorted(self._incoming.values(), key=lambda incoming: incoming.since)

    def next_poll(self, now: float) -> float | None:
        """Return the time of the next read of the incoming leases; None while there are none."""
        if not self._incoming:
            return None
        newest = max(incoming.since for incoming in self._incoming.values())
        return now + (_POLL_FIRST if now - newest <= _FAST_POLL_PERIOD else _POLL_LATER)

    def _limit(self, incoming: Incoming) -> float:
        return self._timeout if incoming.requested_here else self._timeout + self._failover_time


class OutgoingHandoffs:
    """The leases that this worker handed off and that their new owners have not taken yet. Pure.

    Between the handoff and the new owner's take, no worker consumes the shard, and the new owner may be dead. A third worker
    must wait until the lease expires. The old owner remembers the row that it wrote: if the row is unchanged, it takes the lease back.
    The old owner's take and the new owner's take exclude each other, because both takes are conditional on the counter.

    Used only for requests of this package's workers, which take a lease within one poll. A Java worker needs up to ten seconds, which is
    also the time until the lease expires. The old owner waits at most half the ``failover_time`` (seconds).
    """

    def __init__(self, failover_time: float) -> None:
        self._delay = min(_RECLAIM_DELAY, failover_time / 2)
        # In the order of the handoffs, so the times rise.
        self._left: dict[str, tuple[Lease, float]] = {}

    def add(self, row: Lease, now: float) -> None:
        """Add a lease that was handed off; ``row`` is the row after the handoff."""
        self._left.pop(row.lease_key, None)
        self._left[row.lease_key] = (row, now + self._delay)

    def pop_due(self, now: float) -> list[Lease]:
        """Remove and return the rows to read now."""
        due: list[Lease] = []
        while self._left and (first := next(iter(self._left.values())))[1] <= now:
            due.append(first[0])
            del self._left[first[0].lease_key]
        return due

    @property
    def due(self) -> float | None:
        """Monotonic time at which to read the next row; None if there is none."""
        return next((moment for _, moment in self._left.values()), None)


def is_untouched(left: Lease, row: Lease | None) -> bool:
    """Return whether a row is unchanged since a handoff, so that its new owner has not taken the lease."""
    return row is not None and row.counter == left.counter and row.owner == left.owner and not row.in_handoff
