"""Read rate of a shard: when it may be read again. Pure: the time is always passed in.

Kinesis allows five GetRecords calls and 2 MiB per second and shard, *shared* by all applications that poll the stream. After a
response of 10 MiB, calls for the next five seconds are throttled (GetRecords API reference). `ReadRate` keeps to both limits,
and yields to other applications. A `ReadRate` outlives the shard's consumers and iterators.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable

READ_INTERVAL = 0.2
"""Minimum seconds between two reads of a shard."""

READ_BYTES_PER_SECOND = 2 * 1024 * 1024
"""Maximum bytes per second that can be read from a shard."""

_MAX_INTERVAL = 2.0
"""Maximum seconds between two reads of a shard that is throttled."""

_HINT_INTERVAL = 1.0
"""Minimum seconds between two hints of a stream, and the first seconds for which a shard ignores them."""

_MAX_DEAF = 64.0
"""Maximum seconds for which a shard ignores hints."""


def spread_of(shard_id: str) -> float:
    """Return the `TipIdle` spread of a shard, 0.85 to 1.0."""
    return 1.0 - 0.15 * (zlib.crc32(shard_id.encode()) % 1024) / 1024


class ReadRate:
    """Read rate of one shard. Thread-safe: its fields are single assignments.

    A throttled read doubles the interval between reads (up to 2 s), and each successful read reduces it by a twentieth. So several
    applications that poll one shard converge to shares of its limit.

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


class StreamTraffic:
    """Hints between the shards of a stream: if a quiet shard has records again, other shards may also have records. Thread-safe.

    Attributes:
        hinted_at: Monotonic time of the last hint.
    """

    def __init__(self) -> None:
        self.hinted_at: float = float("-inf")
        self._lock = threading.Lock()
        self._listeners: dict[TipIdle, Callable[[], None]] = {}

    def listen(self, idle: TipIdle, wake: Callable[[], None]) -> None:
        """Call ``wake``, from any thread, at each hint that makes this shard due earlier."""
        with self._lock:
            self._listeners[idle] = wake

    def leave(self, idle: TipIdle) -> None:
        """Forget a shard."""
        with self._lock:
            self._listeners.pop(idle, None)

    def hint(self, now: float) -> None:
        """Report that a quiet shard has records again; at most one hint a second counts."""
        with self._lock:
            if now - self.hinted_at < _HINT_INTERVAL:
                return
            self.hinted_at = now
            wakers = [wake for idle, wake in self._listeners.items() if idle.heeds(now)]
        for wake in wakers:
            wake()


class TipIdle:
    """Pauses of one shard before the next read after a read of its tip.

    The first pause takes ``initial`` seconds. Records shrink the pause to ``minimum`` at once, because more may follow; each read without
    records extends it by a quarter up to ``maximum``.

    A hint of the stream's traffic ends a pause, but not within ``minimum`` of the last read, and shrinks the next pause. If the read
    that follows a hint finds nothing, the shard ignores hints for a while, up to a minute: its keys may receive records at other times.

    Shards that followed one hint must not be read at the same times from then on, or all would find the next records equally late. So the
    pauses of each shard are multiplied by its own `spread`.

    Attributes:
        pause: Current seconds between two reads, before they are spread.
    """

    __slots__ = (
        "_deaf",
        "_deaf_until",
        "_initial",
        "_maximum",
        "_minimum",
        "_read_at",
        "_regular",
        "_spread",
        "_traffic",
        "pause",
    )

    def __init__(
        self,
        initial: float,
        minimum: float,
        maximum: float,
        traffic: StreamTraffic | None = None,
        *,
        spread: float = 1.0,
    ) -> None:
        self._initial = initial
        self._minimum = minimum
        self._maximum = maximum
        self._traffic = traffic or StreamTraffic()
        self._spread = spread
        self.pause: float = initial
        self._read_at = self._regular = self._deaf_until = float("-inf")
        self._deaf = _HINT_INTERVAL

    @property
    def due(self) -> float:
        """Monotonic time of the next read; minus infinity behind the tip."""
        hint = self._traffic.hinted_at
        return (
            min(self._regular, max(hint, self._read_at + self._minimum))
            if self.heeds(hint)
            else self._regular
        )

    def heeds(self, hint: float) -> bool:
        """Return whether a hint at this time makes the shard due earlier."""
        return max(self._read_at, self._deaf_until) < hint < self._regular

    def read(self, now: float, records: int) -> None:
        """Record a read of the tip that returned this many records."""
        was_quiet, was_hinted = self.pause >= self._initial, now < self._regular
        self._read_at = now
        if records:
            self._deaf = _HINT_INTERVAL
            self.pause = self._minimum
            self._regular = now + self.pause
            if was_quiet:
                self._traffic.hint(now)
        elif was_hinted:
            self._deaf_until = now + self._deaf
            self._deaf = min(_MAX_DEAF, 2 * self._deaf)
            self.pause = self._minimum
            self._regular = min(self._regular, now + self.pause)
        else:
            self.pause = min(self._maximum, self.pause * 1.25)
            self._regular = now + max(self._minimum, self.pause * self._spread)

    def behind(self) -> None:
        """Reset the pause, because the shard was not read to its tip."""
        self.pause = self._initial
        self._read_at = self._regular = float("-inf")

    def listen(self, wake: Callable[[], None]) -> None:
        """Call ``wake``, from any thread, when `due` becomes earlier."""
        self._traffic.listen(self, wake)

    def close(self) -> None:
        """End `listen`."""
        self._traffic.leave(self)
