"""How much a shard delivers, as the KCL 3 writes it beside the lease (``throughputKBps``) for whoever balances."""

from __future__ import annotations

import threading

MEASURE_INTERVAL = 3.0
"""Least seconds between two measurements: about the KCL's renewal interval."""
_ALPHA = 0.5
"""Weight of the newest measurement in the moving average (KCL ``LeaseStatsRecorder``)."""
_KILOBYTE = 1024


class ThroughputMeter:
    """Bytes in, kilobytes per second out. Thread-safe; its lock is a leaf.

    Args:
        now: Monotonic time at which counting begins.
    """

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
        """The moving average in KB/s; None until something was delivered."""
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
