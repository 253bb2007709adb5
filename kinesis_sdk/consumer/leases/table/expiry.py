"""Age of a lease: seconds since its counter last changed, by this observer's own clock.

The table stores no time, and the clocks of two machines are never compared. Each observer remembers when it first saw a
counter value; a lease expires once that moment is longer ago than the failover time. An owned lease that is seen for the
first time counts as fresh, because its owner may be renewing it; an unassigned lease can be taken at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kinesis_sdk.consumer.leases.table.lease import Lease

_MAX_GATHERING = 5
"""Maximum number of consecutive scans with new owners during which the fleet counts as starting."""


class _Sighting(NamedTuple):
    counter: int
    owner: str | None
    since: float
    new: bool
    renewed: bool


class LeaseObserver:
    """Ages of leases, fed by scans. Not thread-safe; owned by the scanning loop.

    Args:
        failover_time: Seconds without a change of the counter after which an owned lease is expired.
    """

    def __init__(self, failover_time: float) -> None:
        self.failover_time = failover_time
        self._sightings: dict[str, _Sighting] = {}
        self._last = float("-inf")
        self._owners: set[str] | None = None
        self._gathering = 0

    def observe(self, leases: Iterable[Lease], now: float) -> None:
        """Record a complete scan.

        Args:
            leases: Every lease of the table; leases that are missing here are forgotten.
            now: Monotonic time *after* the scan, so that an age is never overstated.
        """
        leases = [*leases]
        sightings: dict[str, _Sighting] = {}
        for lease in leases:
            sighting = self._sightings.get(lease.lease_key)
            if sighting is None or sighting.counter != lease.counter or sighting.owner != lease.holder:
                # The holder counts, not the owner: a handoff request names another owner, but does not show that the old owner
                # is alive.
                same = sighting is not None and sighting.owner == lease.holder
                sighting = _Sighting(lease.counter, lease.holder, now, sighting is None, same)
            sightings[lease.lease_key] = sighting
        self._sightings = sightings
        self._last = now
        owners = {lease.owner for lease in leases if lease.owner is not None}
        self._gathering = self._gathering + 1 if self._owners is not None and owners - self._owners else 0
        self._owners = owners

    @property
    def is_gathering(self) -> bool:
        """Whether the last scan showed owners that the previous scan did not show, so that more may follow soon.

        False after `_MAX_GATHERING` consecutive scans, so that a worker that repeatedly restarts cannot prolong this state.
        """
        return 0 < self._gathering <= _MAX_GATHERING

    def is_expired(self, lease: Lease, now: float) -> bool:
        """Return whether a lease is unowned or expired: its counter was unchanged for longer than the failover time.

        Args:
            lease: The lease in the last scan.
            now: Monotonic time *before* that scan began, so that the row is known to have been unchanged until then.
        """
        if lease.owner is None:
            return True
        sighting = self._sightings.get(lease.lease_key)
        return sighting is not None and now - sighting.since > self.failover_time

    def has_stopped(self, lease: Lease, now: float, claim_time: float) -> bool:
        """Return whether a lease is expired although its holder had begun to renew it.

        A worker does not notice at once that a lease was assigned to it. A KCL 3 worker detects this in its next discovery, which runs once
        per failover time, and first writes the row with the renewal after this discovery. Until then, an unchanged
        row shows nothing about the new holder.

        Args:
            lease: The lease in the last scan.
            now: Monotonic time before that scan began.
            claim_time: Seconds beyond the failover time for which a holder that was never seen to write counts as alive.
        """
        sighting = self._sightings.get(lease.lease_key)
        if sighting is None or not self.is_expired(lease, now):
            return False
        return sighting.renewed or now - sighting.since > self.failover_time + claim_time

    def has_changed(self, lease: Lease) -> bool:
        """Return whether the row changed since this observer first saw it."""
        sighting = self._sightings.get(lease.lease_key)
        return sighting is not None and not sighting.new

    def silence(self, lease: Lease, now: float) -> float:
        """Return the seconds since the row last changed; infinity if the lease had no owner when first seen.

        KCL 2.x measures very old leases in the same way (``DynamoDBLeaseTaker.updateAllLeases``): a new lease that was never
        owned counts as never renewed.
        """
        sighting = self._sightings.get(lease.lease_key)
        if sighting is None:
            return 0.0
        return float("inf") if sighting.new and sighting.owner is None else now - sighting.since

    def unowned_for(self, lease: Lease, now: float) -> float:
        """Return the seconds for which a lease was unowned or expired, as seen by this observer; negative while held."""
        sighting = self._sightings.get(lease.lease_key)
        if sighting is None:
            return 0.0
        return now - sighting.since - (self.failover_time if lease.owner is not None else 0.0)

    def unowned_longer(self, leases: Iterable[Lease], now: float, seconds: float) -> list[Lease]:
        """Return the leases that were unowned or expired for more than ``seconds``, see `unowned_for`."""
        return [lease for lease in leases if self.unowned_for(lease, now) > seconds]

    def next_expiry(self, now: float) -> float | None:
        """Return the time at which the next owned lease expires if no row changes, so that a scan finds it without delay.

        Only leases that were unchanged between the last two scans count. All other leases are being renewed, and an early
        scan for each of them would defeat the scan interval.
        """
        due = [
            sighting.since + self.failover_time
            for sighting in self._sightings.values()
            if sighting.owner is not None and sighting.since < self._last
        ]
        return min((moment for moment in due if moment >= now), default=None)
