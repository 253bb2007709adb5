"""How much a shard delivers, as the KCL 3 writes it beside the lease (``throughputKBps``) for whoever balances.

What is measured jitters, and who balances by it must not follow every jitter. So the number in the table stays as it is
while what is measured is about the same (`SteadyRate`): a shard whose rate is steady has one number, and everybody
plans with that. Where a Java worker leads, the table gets what is measured, as the KCL writes it: that leader moves leases
for a difference of a tenth.
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
_FOLLOWED = 4
"""Measurements after a change that go to the table as they are: until the average has left the former rate behind."""


class SteadyRate:
    """What the table says of a shard's rate: the same number until the rate is another one."""

    def __init__(self) -> None:
        self._following = 0
        self._last: float | None = None

    def report(self, measured: float | None, known: float | None) -> float | None:
        """The rate to write.

        Args:
            measured: The moving average now; None if there is none.
            known: What the table says.
        """
        if measured is None:
            return known
        is_new, self._last = measured != self._last, measured
        if known is None or not known / _ABOUT <= measured <= known * _ABOUT:
            self._following = _FOLLOWED
        elif not self._following or not is_new:
            return known
        else:
            self._following -= 1
        return measured


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
