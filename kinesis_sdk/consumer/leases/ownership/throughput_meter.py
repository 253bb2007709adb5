"""Throughput of a shard, in the form that KCL 3 stores on the lease (``throughputKBps``).

Measurements fluctuate, and balancing must not follow every fluctuation. The stored rate is therefore rewritten only when the
measured rate differs materially (`SteadyRate`), so all workers plan with the same number while a shard's rate is steady. In
a fleet with a KCL 3 leader, every measurement is stored, as in the KCL, because the leader moves leases for a difference of
10 %.
"""

from __future__ import annotations

import threading

MEASURE_INTERVAL = 3.0
"""Minimum seconds between two measurements (about the KCL's renewal interval)."""
_ALPHA = 0.5
"""Weight of the newest measurement in the moving average (KCL ``LeaseStatsRecorder``)."""
_KILOBYTE = 1024
_TOLERANCE = 2**0.5
"""Factor up to which a measured rate may differ from the stored rate without being stored: half a weight class of
`strategies.by_throughput`."""
_FOLLOWED = 4
"""Measurements to store unconditionally after a change, until the moving average no longer contains the former rate."""


class SteadyRate:
    """Rate to store for a shard; it changes only when the measured rate differs materially."""

    def __init__(self) -> None:
        self._following = 0
        self._last: float | None = None

    def report(self, measured: float | None, known: float | None) -> float | None:
        """Return the rate to store, from the moving average and the stored rate; all in KB/s, None if unknown."""
        if measured is None:
            return known
        is_new, self._last = measured != self._last, measured
        if known is None or not known / _TOLERANCE <= measured <= known * _TOLERANCE:
            self._following = _FOLLOWED
        elif not self._following or not is_new:
            return known
        else:
            self._following -= 1
        return measured


class ThroughputMeter:
    """Moving average of a shard's delivered bytes, measured from monotonic time ``now``. Thread-safe; its lock is a leaf."""

    def __init__(self, now: float) -> None:
        self._lock = threading.Lock()
        self._bytes = 0
        self._since = now
        self._average: float | None = None

    def add(self, count: int) -> None:
        """Count delivered bytes."""
        with self._lock:
            self._bytes += count

    def read(self, now: float) -> float | None:
        """Return the moving average in KB/s; None before the first delivery."""
        with self._lock:
            elapsed = now - self._since
            if elapsed >= MEASURE_INTERVAL and (self._bytes or self._average is not None):
                fresh = self._bytes / _KILOBYTE / elapsed
                self._average = (
                    fresh if self._average is None else _ALPHA * fresh + (1 - _ALPHA) * self._average
                )
                self._bytes, self._since = 0, now
            elif not self._bytes and self._average is None:
                self._since = now
            return self._average
