"""Scan and renewal intervals: their cost, and the reasons why they are safe.

**Scans.** An eventually consistent scan reads about 400 bytes per lease, which costs 0.05 read units. Each worker spends at most its
read capacity on scans. The default of 5 units per second allows a scan of up to 100 leases every second, of 500 every 5
seconds, and of 1,000 every 10 seconds. Tables of 2,000 leases or more are scanned as often as by the KCL (every 20 seconds at its
defaults). 5 units per second cost about 1.65 USD a month per worker (0.125 USD per million on demand in us-east-1). On a large table, the
KCL's own scans cost at least as much.

While leases change hands, workers scan five times as often, at most once per minimum interval, until nothing is left to
take.

A crashed worker's leases are taken over within the failover time plus one scan interval if a scan comes at least once per
failover time; on larger tables, within two scan intervals. An interval between half a failover time and a whole failover time is raised to
a whole failover time. In that range, the counters of healthy leases are often unchanged from one scan to the next; each of
them would cause an early scan, which would use up the capacity without a result.

**Renewals.** The KCL renews every ``failover_time / 3 - epsilon``. The sparse schedule renews half as often and uses the
remaining third to repeat failed writes: calls time out early enough that three attempts fit before the lease expires, and the KCL makes
the same number in a failover time. The drawback: leases survive an unreachable table for only a third of the failover time, instead of
two thirds. If you expect longer outages, set a longer failover time or the KCL's schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UNITS_PER_LEASE = 400 / 4096 / 2
"""Read units per lease of an eventually consistent scan; rows take about 400 bytes."""
MIN_SCAN_UNITS = 0.5
"""Read units of a scan of an almost empty table."""
ATTEMPTS = 3
"""Attempts of a renewal that fit between its due time and the expiry of the lease."""


@dataclass(frozen=True, kw_only=True)
class IntervalSettings:
    """The settings from which a strategy derives its intervals.

    Attributes:
        failover_time: Seconds without a renewal after which a lease expires.
        epsilon: Seconds of slack in the KCL's intervals.
        min_scan_interval: Minimum seconds between two scans (``lease_scan_interval``).
        scan_read_capacity: Read units per second that scans may cost (``lease_scan_read_capacity``).
        renewal_schedule: ``lease_renewal_schedule``; None leaves the choice to the strategy.
    """

    failover_time: float = 10.0
    epsilon: float = 0.025
    min_scan_interval: float = 1.0
    scan_read_capacity: float = 5.0
    renewal_schedule: Literal["sparse", "kcl2"] | None = None


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """Intervals of the scans and renewals of a worker.

    Attributes:
        renewal: Seconds between two renewals of a lease. Must be shorter than the failover time, with room to repeat a
            failed write.
        scan: Seconds between two scans of the table.
        rescan: Seconds until the next scan after a plan with ``rescan_soon``.
        scan_at_expiry: Whether to scan early when the next lease would expire.
    """

    renewal: float
    scan: float
    rescan: float
    scan_at_expiry: bool = True


def default_intervals(settings: IntervalSettings, leases: int) -> Intervals:
    """Return the intervals of the balanced strategy; see the module's docstring.

    Args:
        settings: Settings from the configuration.
        leases: Number of rows in the table.
    """
    scan = _scan_interval(settings, leases)
    return Intervals(
        renewal=_renewal_interval(settings, settings.renewal_schedule or "sparse"),
        scan=scan,
        rescan=max(settings.min_scan_interval, scan / 5),
    )


def kcl2_intervals(settings: IntervalSettings) -> Intervals:
    """Return the intervals of a KCL 2.x worker, for any size of the table."""
    scan = _kcl2_scan_interval(settings)
    return Intervals(
        renewal=_renewal_interval(settings, settings.renewal_schedule or "kcl2"),
        scan=scan,
        rescan=scan,
        scan_at_expiry=False,
    )


def scan_read_units(leases: int) -> float:
    """Return the read units of one scan of a table with this number of leases."""
    return max(MIN_SCAN_UNITS, leases * UNITS_PER_LEASE)


def call_timeout(failover_time: float, renewal_interval: float) -> float:
    """Return the timeout of a lease's write in seconds, 0.1 to 6.

    `ATTEMPTS` attempts and the pauses between them fit into the part of the failover time that remains when a renewal is due.
    """
    slack = failover_time - renewal_interval - (ATTEMPTS - 1) * retry_pause(failover_time)
    return max(0.1, min(6.0, slack / ATTEMPTS))


def retry_pause(failover_time: float) -> float:
    """Return the maximum pause in seconds before a failed renewal is repeated."""
    return min(0.5, failover_time / 20)


def _scan_interval(settings: IntervalSettings, leases: int) -> float:
    interval = scan_read_units(leases) / settings.scan_read_capacity
    if interval > settings.failover_time / 2:
        # At least as often as the KCL, but outside the range in which early scans would be the rule.
        interval = min(max(interval, settings.failover_time), _kcl2_scan_interval(settings))
    return max(settings.min_scan_interval, interval)


def _kcl2_scan_interval(settings: IntervalSettings) -> float:
    """``LeaseCoordinator.takerIntervalMillis``."""
    return 2 * (settings.failover_time + settings.epsilon)


def _renewal_interval(settings: IntervalSettings, schedule: Literal["sparse", "kcl2"]) -> float:
    """``LeaseCoordinator.getRenewerTakerIntervalMillis``, or twice that."""
    interval = settings.failover_time / 3 - settings.epsilon
    return interval if schedule == "kcl2" else 2 * interval
