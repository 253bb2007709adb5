"""How much a shard delivers, as the KCL 3 writes it beside the lease (``throughputKBps``) for whoever balances.

What is measured jitters, and who balances by it must not follow every jitter. So the number in the table stays as it is
while what is measured is about the same (`is_about`): a shard whose rate is steady has one number, and everybody plans
with that.
"""

from __future__ import annotations

import threading

MEASURE_INTERVAL = 3.0
"""Least seconds between two measurements: about the KCL's renewal interval."""
_ALPHA = 0.5
"""Weight of the newest measurement in the moving average (KCL ``LeaseStatsRecorder``)."""
_KILOBYTE = 1024
_ABOUT = 2**0.5
"""Factor by which a measured rate may differ and is still about the same: half a class of those who balance by it."""


def is_about(fresh: float, known: float) -> bool:
    """Whether a measured rate is no news beside the one in the table."""
    return known / _ABOUT <= fresh <= known * _ABOUT


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
