"""How old a lease is: seconds since its counter last changed, on this observer's own clock.

The table stores no time, and two machines' clocks are never compared. Each observer remembers when it first saw
a counter value; a lease is expired when that is longer ago than the failover time. The first sight of an owned
lease counts as fresh (its owner may be renewing), an unowned one is free at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kinesis_sdk.consumer.leases.lease import Lease


class _Sight(NamedTuple):
    counter: int
    owner: str | None
    since: float


class LeaseObserver:
    """Ages of leases, fed by scans. Not thread-safe: the loop that looks owns it.

    Args:
        failover_time: Seconds without a change of the counter after which an owned lease is expired.
    """

    def __init__(self, failover_time: float) -> None:
        self._failover_time = failover_time
        self._sights: dict[str, _Sight] = {}

    def observe(self, leases: Iterable[Lease], now: float) -> None:
        """Take in a complete scan.

        Args:
            leases: Every lease of the table; others are forgotten.
            now: Monotonic time *after* the scan. Late is the safe side: an age is never overstated.
        """
        sights: dict[str, _Sight] = {}
        for lease in leases:
            sight = self._sights.get(lease.lease_key)
            if sight is None or sight.counter != lease.counter or sight.owner != lease.owner:
                sight = _Sight(lease.counter, lease.owner, now)
            sights[lease.lease_key] = sight
        self._sights = sights

    def is_expired(self, lease: Lease, now: float) -> bool:
        """Whether nobody keeps this lease: it has no owner, or its counter stood still for too long.

        Args:
            lease: The lease as the last scan showed it.
            now: Monotonic time *before* that scan began, so that the row is known to have stood still until then.
        """
        if lease.owner is None:
            return True
        sight = self._sights.get(lease.lease_key)
        return sight is not None and now - sight.since > self._failover_time

    def next_expiry(self, now: float) -> float | None:
        """When the next owned lease expires if nothing changes: a look then finds it without delay."""
        due = [s.since + self._failover_time for s in self._sights.values() if s.owner is not None]
        return min((moment for moment in due if moment >= now), default=None)
