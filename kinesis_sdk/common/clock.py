"""Time as the SDK sees it: always passed in, never read from a global."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What every part of the SDK needs to know about time.

    Deadlines, ages and expiries use `monotonic` only. `time` is for wall-clock stamps that other systems
    read; two machines' wall clocks are never compared.
    """

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; its zero has no meaning."""
        ...

    def time(self) -> float:
        """Seconds since the Unix epoch."""
        ...


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    # The functions themselves: a producer asks for the time with every record.
    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)
