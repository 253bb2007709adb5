"""Read rate of a shard: when it may be read again. Pure: the time is always passed in.

Kinesis allows five GetRecords calls and 2 MiB per second and shard, *shared* by all applications that poll the stream. After a
response of 10 MiB, calls for the next five seconds are throttled (GetRecords API reference). `ReadRate` keeps to both limits and
gives way to other applications. It outlives the shard's consumers and iterators.
"""

from __future__ import annotations

READ_INTERVAL = 0.2
"""Minimum seconds between two reads of a shard."""

READ_BYTES_PER_SECOND = 2 * 1024 * 1024
"""Maximum bytes per second that can be read from a shard."""

_MAX_INTERVAL = 2.0
"""Maximum seconds between two reads of a shard that is throttled."""


class ReadRate:
    """Read rate of one shard. Thread-safe: its fields are single assignments.

    A throttled read doubles the interval between reads (up to 2 s), and each successful read reduces it by a twentieth. So several
    applications that poll one shard settle at a share.

    Args:
        bytes_per_second: Maximum bytes per second that can be read from the shard; infinity for no such limit.

    Attributes:
        interval: Current seconds between two reads.
        ready_at: Monotonic time at which the shard may be read again.
    """

    __slots__ = ("_bytes_per_second", "interval", "ready_at")

    def __init__(self, bytes_per_second: float = READ_BYTES_PER_SECOND) -> None:
        self._bytes_per_second = bytes_per_second
        self.interval: float = READ_INTERVAL
        self.ready_at: float = float("-inf")

    def sent(self, now: float) -> None:
        """Record a read that is sent now."""
        self.ready_at = max(self.ready_at, now + self.interval)

    def succeeded(self, now: float, size: int) -> None:
        """Record a read that returned ``size`` bytes."""
        self.interval = max(READ_INTERVAL, self.interval * 0.95)
        self.ready_at = max(self.ready_at, now + size / self._bytes_per_second)

    def throttled(self) -> None:
        """Back off: the shard's read limit is exhausted, by this or another application."""
        self.interval = min(_MAX_INTERVAL, self.interval * 2)


class TipIdle:
    """Pauses between reads at the tip of a shard.

    The first pause at the tip takes ``initial`` seconds. Each read with records halves it down to ``minimum``, each one without
    records extends it by a quarter up to ``maximum``.
    """

    __slots__ = ("_initial", "_maximum", "_minimum", "pause")

    def __init__(self, initial: float, minimum: float, maximum: float) -> None:
        self._initial = initial
        self._minimum = minimum
        self._maximum = maximum
        self.pause: float = initial

    def after(self, records: int) -> float:
        """Return the seconds to wait after a read at the tip that returned this many records."""
        if records:
            self.pause = max(self._minimum, self.pause / 2)
        else:
            self.pause = min(self._maximum, self.pause * 1.25)
        return self.pause

    def behind(self) -> None:
        """Reset the pause, because the shard was not read to its tip."""
        self.pause = self._initial
