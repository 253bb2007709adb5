"""Clock of the SDK, which is always passed as an argument and never a global."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic and wall clock; every part of the SDK is passed a clock.

    Deadlines, ages and expiries use only `monotonic`. `time` is for timestamps that other systems read; the wall clocks of
    two machines are never compared.
    """

    def monotonic(self) -> float:
        """Return the seconds of a clock that never goes back; its zero has no meaning."""
        ...

    def time(self) -> float:
        """Return the seconds since the Unix epoch."""
        ...


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    # The functions themselves, without a wrapper: a producer reads the clock for every record.
    monotonic: staticmethod[[], float] = staticmethod(time.monotonic)
    time: staticmethod[[], float] = staticmethod(time.time)
