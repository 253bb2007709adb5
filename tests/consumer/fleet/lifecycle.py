"""Life cycle of a simulated worker process."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """State of a process."""

    LIVE = "live"
    STOPPING = "stopping"
    DEAD = "dead"


class Lifecycle:
    """Whether a process runs, stops, is dead, or is frozen for a while (SIGSTOP, a GC pause).

    Attributes:
        frozen_until: Time at which the process runs again after a freeze.
    """

    def __init__(self) -> None:
        self.frozen_until = 0.0
        self._state = State.LIVE

    @property
    def is_live(self) -> bool:
        """Whether it neither stops nor is dead; a frozen process is live."""
        return self._state is State.LIVE

    @property
    def is_dead(self) -> bool:
        """Whether it is gone, by a crash or after its stop."""
        return self._state is State.DEAD

    def is_frozen(self, now: float) -> bool:
        """Return whether the process is frozen."""
        return now < self.frozen_until

    def begin_stop(self) -> None:
        """Begin a clean stop; a dead process stays dead."""
        if self.is_live:
            self._state = State.STOPPING

    def die(self) -> None:
        """End without warning, as by SIGKILL or when a stop is complete."""
        self._state = State.DEAD

    def freeze(self, until: float) -> None:
        """Do not run until then; of two freezes, the longer one counts."""
        self.frozen_until = max(self.frozen_until, until)
