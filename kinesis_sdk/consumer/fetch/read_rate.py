"""When a shard may be read, and how much of it at once. Pure: the time is always passed in.

The service allows five GetRecords calls per second and shard and 2 MiB per second and shard, *shared* by all
applications that poll the stream; an answer of 10 MiB is paid for by five seconds without reads (GetRecords API
reference). `ReadPace` keeps to the first two for as long as the worker lives, whatever happens to consumers and
iterators of the shard, and gives way when other applications use the same budget.
"""

from __future__ import annotations

READ_INTERVAL = 0.2
"""Least seconds between two reads of a shard."""

READ_BYTES_PER_SECOND = 2 * 1024 * 1024
"""Bytes that a shard gives per second."""

_MOST_INTERVAL = 2.0


class ReadPace:
    """The budget of one shard. Thread-safe: its fields are single assignments.

    Additive-increase, multiplicative-decrease: a throttle doubles the interval between reads (up to 2 s), each
    read that succeeds takes a twentieth of it back. So several applications on one shard settle at a share.
    """

    __slots__ = ("interval", "ready_at")

    def __init__(self) -> None:
        self.interval = READ_INTERVAL
        self.ready_at = float("-inf")

    def sent(self, now: float) -> None:
        """A read goes out now."""
        self.ready_at = max(self.ready_at, now + self.interval)

    def succeeded(self, now: float, size: int) -> None:
        """It brought that many bytes."""
        self.interval = max(READ_INTERVAL, self.interval * 0.95)
        self.ready_at = max(self.ready_at, now + size / READ_BYTES_PER_SECOND)

    def throttled(self) -> None:
        """The budget was used up, by whomever."""
        self.interval = min(_MOST_INTERVAL, self.interval * 2)


class TipIdle:
    """How long to leave a shard alone once everything in it is read.

    While reads bring records, the pause halves down to ``least``; while they bring none, it grows by a quarter
    each time up to ``most``.

    Args:
        usual: Seconds of the first pause.
        least: Seconds.
        most: Seconds.
    """

    __slots__ = ("_least", "_most", "_usual", "pause")

    def __init__(self, usual: float, least: float, most: float) -> None:
        self._usual = usual
        self._least = least
        self._most = most
        self.pause = usual

    def after(self, records: int) -> float:
        """Seconds to wait after a read at the tip that brought so many records."""
        self.pause = max(self._least, self.pause / 2) if records else min(self._most, self.pause * 1.25)
        return self.pause

    def behind(self) -> None:
        """The shard is not read to its tip: the next pause begins anew."""
        self.pause = self._usual
