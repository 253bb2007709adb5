"""Clock that only tests advance; the system clock is `kinesis_sdk.common.SystemClock`."""

from __future__ import annotations

import threading

_START = 1_700_000_000.0


class VirtualClock:
    """Clock that changes only when it is advanced. Thread-safe.

    Args:
        start_time: Wall time at the start, in epoch seconds. At least 1e9 (September 2001), so that
            timestamps in stored records have ten digits before the point.
        start_monotonic: The first value of `monotonic`, in seconds.

    Raises:
        ValueError: If `start_time` is outside the years 2001 to 2286.
    """

    def __init__(self, start_time: float = _START, *, start_monotonic: float = 0.0) -> None:
        if not 1e9 <= start_time < 1e10:
            raise ValueError(
                f"start_time must be epoch seconds between 1e9 (2001) and 1e10 (2286), not {start_time!r}"
            )
        self._lock = threading.Lock()
        self._start_time = start_time
        self._start_monotonic = start_monotonic
        self._elapsed = 0.0

    def monotonic(self) -> float:
        """Return `start_monotonic` plus the seconds by which the clock was advanced."""
        return self._start_monotonic + self._elapsed

    def time(self) -> float:
        """Return epoch seconds: `start_time` plus the seconds by which the clock was advanced."""
        return self._start_time + self._elapsed

    def advance(self, seconds: float) -> None:
        """Advance both readings by `seconds`.

        Raises:
            ValueError: If `seconds` is negative, infinite or not a number.
        """
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"a clock cannot be advanced by {seconds!r} seconds: it never goes back")
        with self._lock:
            self._elapsed += seconds

    def advance_to(self, monotonic: float) -> None:
        """Advance until `monotonic()` returns at least `monotonic`; do nothing if it already does."""
        with self._lock:
            self._elapsed = max(self._elapsed, monotonic - self._start_monotonic)

    def __repr__(self) -> str:
        return f"VirtualClock(time={self.time()!r}, monotonic={self.monotonic()!r})"


def millis(seconds: float) -> int:
    """Return a wall time in whole milliseconds, rounded down.

    All timestamps pass through here, so a record is found at the exact time at which it arrived.
    """
    return round(seconds * 1_000_000) // 1000
