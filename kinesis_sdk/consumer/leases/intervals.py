"""How often to look at the lease table, and how often to renew: what both cost, and why they are safe.

**Looks.** A look scans the table: about 400 bytes a lease, eventually consistent, so 0.05 read units a lease. Each
worker spends at most its read budget on looks: with the default of 5 units per second a table of up to 100 leases is
looked at every second, one of 500 every 5 seconds, one of 1,000 every 10, one of 2,000 or more as often as the KCL
does it (every 20 seconds at its defaults). A budget of 5 units per second costs about 1.65 USD a month per worker
(0.125 USD per million on demand in us-east-1), and no more than the KCL's own scans on a table that is large.

While leases change hands looks come five times as often, at most each second, until nothing is left to fetch.

Take-over after a crash is at most the failover time plus one look while looks come at least once per failover time;
on larger tables it is at most two looks. Between half a failover time and one, looks come once per failover time:
in between, healthy leases often stand still from one look to the next, each of them would be a reason to look early,
and the budget would be spent on nothing.

**LeaseRenewer.** The KCL renews each ``failover_time / 3 - epsilon``. The sparse rule renews half as often, and uses the
remaining third for what the KCL's interval is for, missing and repeating a write: a call is given up after a third
of the slack less the pause before its repetition, so that three attempts fit before the lease would expire, as many
as the KCL's runs within a failover time. The trade: the table may be out of reach for a third of the failover time
without consequences, where the KCL bears two thirds. Whoever expects longer outages sets a longer failover time or
the KCL's rule.
"""

from __future__ import annotations

UNITS_PER_LEASE = 400 / 4096 / 2
"""Read units per lease of an eventually consistent scan; rows take about 400 bytes."""
LEAST_UNITS = 0.5
"""Read units of a scan of next to nothing."""
ATTEMPTS = 3
"""Attempts of a renewal that fit between its due time and the expiry of the lease."""


def scan_read_units(leases: int) -> float:
    """Read units of one look at a table."""
    return max(LEAST_UNITS, leases * UNITS_PER_LEASE)


def scan_interval(leases: int, *, least: float, budget: float, failover_time: float, epsilon: float) -> float:
    """Seconds between two looks.

    Args:
        leases: Rows of the table.
        least: Least seconds between two looks.
        budget: Read units per second.
        failover_time: Seconds.
        epsilon: Seconds.
    """
    interval = scan_read_units(leases) / budget
    if interval > failover_time / 2:
        # Never rarer than the KCL looks, and not at all in the range where early looks would be the rule.
        interval = min(max(interval, failover_time), kcl2_take_interval(failover_time, epsilon))
    return max(least, interval)


def rescan_interval(interval: float, *, least: float) -> float:
    """Seconds to the next look while leases are changing hands: a burst of looks that ends with the changes."""
    return max(least, interval / 5)


def kcl2_take_interval(failover_time: float, epsilon: float) -> float:
    """Seconds between two looks of a KCL 2.x worker (``LeaseCoordinator.takerIntervalMillis``)."""
    return 2 * (failover_time + epsilon)


def kcl2_renew_interval(failover_time: float, epsilon: float) -> float:
    """Seconds between two renewals of a KCL worker (``LeaseCoordinator.getRenewerTakerIntervalMillis``)."""
    return failover_time / 3 - epsilon


def sparse_renew_interval(failover_time: float, epsilon: float) -> float:
    """Seconds between two renewals, half as many as the KCL's."""
    return 2 * kcl2_renew_interval(failover_time, epsilon)


def call_timeout(failover_time: float, renew_interval: float) -> float:
    """Seconds after which a write of a lease is given up, so that its repetitions come in time.

    `ATTEMPTS` of them and the pauses between fit into what is left of the failover time when a renewal is due; at
    least a tenth of a second, at most 6.
    """
    slack = failover_time - renew_interval - (ATTEMPTS - 1) * retry_pause(failover_time)
    return max(0.1, min(6.0, slack / ATTEMPTS))


def retry_pause(failover_time: float) -> float:
    """Most seconds between a renewal that failed and its repetition."""
    return min(0.5, failover_time / 20)
