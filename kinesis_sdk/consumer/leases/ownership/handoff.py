"""Moving a lease between two live workers without a theft: KCL 3's graceful handoff.

```
                 requester                     row                          old owner
 OWNED                                owner=old            n        consumes, renews (n, no marker)
   │   request_handoff ───────────►  owner=new marker=old n        renewal fails once, or a look shows the marker
 ASKED  looks at the row                              n+1, n+2 …    renews on the counter alone; the running batch
   │   every 0.2 s, touches nothing                                 ends, shutdown_requested may checkpoint
   │                                  owner=new            m+1  ◄── complete_handoff, lease_lost or end
 TAKEN  take ──────────────────────►  owner=new            m+2
```

Every arrow is one conditional write, and every state is one that somebody leaves without help:

- old owner dead: the counter stands still, the lease expires as any other, whoever looks takes it;
- requester dead: the old owner hands over nevertheless, and takes the lease back if nobody touched it for a while
  (see `OutgoingHandoffs`; a Java worker's lease expires on the requester's name);
- old owner too slow: it gives up the lease after the timeout even if its handler still runs, and the requester
  takes it after the same time (one of a Java leader's requests: a failover time later, because that leader has
  a timer of its own and may not live any more);
- old owner does not know the marker (KCL 1.x and 2.x): asked for with the plain take, see `supports_handoff`.

Source: ``LeaseGracefulShutdownHandler``, ``DynamoDBLeaseRenewer.renewLease`` and
``DynamoDBLeaseRefresher.initiateGracefulLeaseHandoff`` of KCL 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kinesis_sdk.consumer.leases.table.lease import Lease

POLL_FIRST, POLL_LATER = 0.2, 0.5
"""Seconds between two reads of a lease that is on its way here."""
_EAGER = 5.0
"""Seconds after the request for which it is read at the first interval."""
_RETURN_AFTER = 3.0
"""Seconds after which a lease that was handed off and not taken is taken back: several polls of its new owner, a
call that fails, and a pause for garbage."""
_STALE = 5.0
"""Seconds for which a read that does not show our request yet is taken for a stale one."""


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """A lease that is on its way to this worker.

    Attributes:
        lease: The row as last read, or as our request left it.
        asked: Whether this worker asked for it; else a Java leader did.
        since: Monotonic time of the request, or of its first sight.
    """

    lease: Lease
    asked: bool
    since: float


def supports_handoff(lease: Lease) -> bool:
    """Whether a lease's owner is known to understand the marker.

    A worker of this package says so on the row itself. A Java worker of KCL 3 publishes worker metrics, which
    `worker_metrics.JavaMembership.has_metrics` reads. Of any other nothing is known; it would go on for ever, so
    its leases are taken plainly.
    """
    return lease.owner is not None and lease.handoff_owner == lease.owner


class IncomingHandoffs:
    """The leases that are on their way to this worker. Pure; used by the loop that looks.

    Args:
        worker_id: This worker.
        timeout: Seconds after which a lease that was asked for is taken without its owner's consent.
        failover_time: Added to it for what others asked for.

    Attributes:
        arrived: Keys of leases that scans showed with our id and without a marker after they were on their way here.
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
        """Keys of all leases on their way here."""
        return set(self._incoming)

    def asked(self, row: Lease, now: float) -> None:
        """Note our own request, with the row that it left."""
        self._incoming[row.lease_key] = Incoming(lease=row, asked=True, since=now)

    def drop(self, lease_key: str) -> None:
        """Forget a lease: it was taken, or is on its way no more."""
        self._incoming.pop(lease_key, None)

    def observe(self, leases: Iterable[Lease], now: float) -> None:
        """Take in a scan: new requests of others, requests that came to nothing.

        What arrived (our id, no marker) is forgotten as well: to the planner it is a lease with our own name.
        """
        rows = {lease.lease_key: lease for lease in leases}
        for key, lease in rows.items():
            if lease.is_finished:
                continue  # its owner came to the shard's end meanwhile: there is no work to hand over
            if lease.owner == self._worker_id and lease.in_handoff and lease.holder != self._worker_id:
                known = self._incoming.get(key)
                self._incoming[key] = (
                    replace(known, lease=lease)
                    if known is not None
                    else Incoming(lease=lease, asked=False, since=now)
                )
        self.arrived = {key for key in self.arrived if self._is_here(rows.get(key))}
        for key, incoming in [*self._incoming.items()]:
            row = rows.get(key)
            if row is None or not self.is_coming(incoming, row, now):
                del self._incoming[key]
                if self._is_here(row):
                    self.arrived.add(key)

    def _is_here(self, row: Lease | None) -> bool:
        return row is not None and row.owner == self._worker_id and not row.in_handoff

    def is_coming(self, incoming: Incoming, row: Lease, now: float) -> bool:
        """Whether a row says that the lease is still on its way here (and not that it arrived or went elsewhere)."""
        if row.owner == self._worker_id:
            return row.in_handoff and not row.is_finished
        # An eventually consistent read may still show the row from before our request.
        stale = row.counter <= incoming.lease.counter and row.owner == incoming.lease.checkpoint_owner
        return stale and incoming.asked and now - incoming.since <= _STALE

    def overdue(self, now: float) -> list[Incoming]:
        """Leases whose old owner had its time."""
        return [
            incoming for incoming in self._incoming.values() if now - incoming.since >= self._limit(incoming)
        ]

    def incoming(self) -> list[Incoming]:
        """All of them, the oldest first."""
        return sorted(self._incoming.values(), key=lambda incoming: incoming.since)

    def next_poll(self, now: float) -> float | None:
        """When to read the incoming leases again; None while there are none."""
        if not self._incoming:
            return None
        newest = max(incoming.since for incoming in self._incoming.values())
        return now + (POLL_FIRST if now - newest <= _EAGER else POLL_LATER)

    def _limit(self, incoming: Incoming) -> float:
        return self._timeout if incoming.asked else self._timeout + self._failover_time


class OutgoingHandoffs:
    """The leases that this worker handed off and whose new owners did not show up yet. Pure.

    Between the handoff and the new owner's take nobody works on a lease, and its new owner may be dead. Any third
    worker has to wait until it expires; the old owner knows exactly which row it left. If that is the row still, the
    old owner takes it: one conditional write, which the new owner's take fences, and which fences the new owner's.

    Only for requests of this package's workers, which come for a lease within a poll. A Java worker comes within ten
    seconds, which is what waiting for the expiry costs.

    Args:
        failover_time: Seconds.
    """

    def __init__(self, failover_time: float) -> None:
        self._patience = min(_RETURN_AFTER, failover_time / 2)
        self._left: dict[str, tuple[Lease, float]] = {}

    def note(self, row: Lease, now: float) -> None:
        """A lease went, with the row that the handoff left."""
        self._left[row.lease_key] = (row, now + self._patience)

    def pop_due(self, now: float) -> list[Lease]:
        """Rows to look at now; each is told once."""
        due = [row for row, moment in self._left.values() if moment <= now]
        for row in due:
            del self._left[row.lease_key]
        return due

    @property
    def due(self) -> float | None:
        """When there is something to look at; None for never."""
        return min((moment for _, moment in self._left.values()), default=None)


def is_untouched(left: Lease, row: Lease | None) -> bool:
    """Whether a row is as a handoff left it: its new owner did not come."""
    return row is not None and row.counter == left.counter and row.owner == left.owner and not row.in_handoff
