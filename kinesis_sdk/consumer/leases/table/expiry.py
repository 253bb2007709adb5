"""How old a lease is: seconds since its counter last changed, on this observer's own clock.

The table stores no time, and two machines' clocks are never compared. Each observer remembers when it first saw
a counter value; a lease is expired when that is longer ago than the failover time. The first sight of an owned
lease counts as fresh (its owner may be renewing), an unowned one is free at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kinesis_sdk.consumer.leases.table.lease import Lease

_MOST_GATHERING = 5
"""Scans in a row with new owners after which they count as usual."""


class _Sight(NamedTuple):
    counter: int
    owner: str | None
    since: float
    new: bool
    renewed: bool


class LeaseObserver:
    """Ages of leases, fed by scans. Not thread-safe: the loop that looks owns it.

    Args:
        failover_time: Seconds without a change of the counter after which an owned lease is expired.
    """

    def __init__(self, failover_time: float) -> None:
        self.failover_time = failover_time
        self._sights: dict[str, _Sight] = {}
        self._last = float("-inf")
        self._owners: set[str] | None = None
        self._gathering = 0

    def observe(self, leases: Iterable[Lease], now: float) -> None:
        """Take in a complete scan.

        Args:
            leases: Every lease of the table; others are forgotten.
            now: Monotonic time *after* the scan. Late is the safe side: an age is never overstated.
        """
        leases = [*leases]
        sights: dict[str, _Sight] = {}
        for lease in leases:
            sight = self._sights.get(lease.lease_key)
            if sight is None or sight.counter != lease.counter or sight.owner != lease.holder:
                # The holder: a request for a handoff names another owner, but is no sign of life of the old one.
                same = sight is not None and sight.owner == lease.holder
                sight = _Sight(lease.counter, lease.holder, now, sight is None, same)
            sights[lease.lease_key] = sight
        self._sights = sights
        self._last = now
        owners = {lease.owner for lease in leases if lease.owner is not None}
        self._gathering = self._gathering + 1 if self._owners is not None and owners - self._owners else 0
        self._owners = owners

    @property
    def is_gathering(self) -> bool:
        """Whether the last scan showed owners that the one before did not: others may follow at once.

        It is over after `_MOST_GATHERING` scans in a row, so that somebody who comes and goes can not keep it up.
        """
        return 0 < self._gathering <= _MOST_GATHERING

    def is_expired(self, lease: Lease, now: float) -> bool:
        """Whether nobody keeps this lease: it has no owner, or its counter stood still for too long.

        Args:
            lease: The lease as the last scan showed it.
            now: Monotonic time *before* that scan began, so that the row is known to have stood still until then.
        """
        if lease.owner is None:
            return True
        sight = self._sights.get(lease.lease_key)
        return sight is not None and now - sight.since > self.failover_time

    def has_stopped(self, lease: Lease, now: float, claim_time: float) -> bool:
        """Return whether a lease is expired although its holder had begun to renew it.

        A worker that was just given a lease does not know it yet. A KCL 3 finds out with its next discovery, which
        comes each failover time, and first writes with the renewal after that. Until then the row stands as the worker that gave it
        left it, and its silence says nothing about the new holder.

        Args:
            lease: The lease as the last scan showed it.
            now: Monotonic time before that scan began.
            claim_time: Seconds beyond the failover time for which a holder that was never seen to write is believed.
        """
        sight = self._sights.get(lease.lease_key)
        if sight is None or not self.is_expired(lease, now):
            return False
        return sight.renewed or now - sight.since > self.failover_time + claim_time

    def has_changed(self, lease: Lease) -> bool:
        """Return whether the row changed since this observer first saw it."""
        sight = self._sights.get(lease.lease_key)
        return sight is not None and not sight.new

    def silence(self, lease: Lease, now: float) -> float:
        """Seconds since the row last changed; endless for one that had no owner when it was first seen.

        The KCL 2.x's measure of very old leases (``DynamoDBLeaseTaker.updateAllLeases``): a new lease that nobody
        owned yet counts as never renewed.
        """
        sight = self._sights.get(lease.lease_key)
        if sight is None:
            return 0.0
        return float("inf") if sight.new and sight.owner is None else now - sight.since

    def free_for(self, lease: Lease, now: float) -> float:
        """Seconds for which nobody kept the lease, as far as this observer saw; negative while somebody does."""
        sight = self._sights.get(lease.lease_key)
        if sight is None:
            return 0.0
        return now - sight.since - (self.failover_time if lease.owner is not None else 0.0)

    def free_longer(self, leases: Iterable[Lease], now: float, seconds: float) -> list[Lease]:
        """Those of these leases that nobody kept for more than so many seconds, see `free_for`."""
        return [lease for lease in leases if self.free_for(lease, now) > seconds]

    def next_expiry(self, now: float) -> float | None:
        """When the next owned lease expires if nothing changes: a look then finds it without delay.

        Only leases that stood still between the last two looks count: the others showed that somebody keeps them,
        and looking early for each of them would defeat the pace of the looks.
        """
        due = [
            sight.since + self.failover_time
            for sight in self._sights.values()
            if sight.owner is not None and sight.since < self._last
        ]
        return min((moment for moment in due if moment >= now), default=None)
