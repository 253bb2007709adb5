"""Virtual time: a queue of events on the clock that ships for tests."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from kinesis_sdk.testing import VirtualClock
from tests.consumer.fleet.lifecycle import Lifecycle


class Timeline:
    """Events in order of their time, on a `VirtualClock`. One thread; every run is the same.

    Args:
        clock: Clock to move, for example the fake AWS's; a new one by default.

    Attributes:
        depth: Number of `run` calls under way: an event may call `run` to wait, and other events happen meanwhile.
    """

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.depth = 0
        self._events: list[tuple[float, int, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def now(self) -> float:
        """Seconds on the clock."""
        return self.clock.monotonic()

    def at(self, moment: float, action: Callable[[], None], *, rank: int = 0) -> None:
        """Schedule an event.

        Args:
            moment: Time of the event; one in the past happens at once.
            action: Called once.
            rank: Order among events of the same time, the lowest first; equal ranks keep the order of their calls.
        """
        self._count += 1
        heappush(self._events, (moment, rank, self._count, action))

    def run(self, until: float, done: Callable[[], bool] | None = None) -> bool:
        """Let time pass.

        Args:
            until: Time at which to return at the latest.
            done: Asked after each event; True ends the run at that event.

        Returns:
            Whether ``done`` was true in the end; True without ``done``.
        """
        events = self._events
        self.depth += 1
        try:
            while events and events[0][0] <= until:
                moment, _, _, action = heappop(events)
                self.clock.advance_to(moment)
                action()
                if done is not None and done():
                    return True
        finally:
            self.depth -= 1
        self.clock.advance_to(until)
        return done is None or done()


class Alarm:
    """Next run of a worker's loop. Only the last setting counts, and none once the worker is dead.

    Args:
        timeline: Where its events are.
        life: The worker's life cycle.
        action: The loop's body.
        rank: Order among alarms of the same time.
    """

    def __init__(
        self, timeline: Timeline, life: Lifecycle, action: Callable[[], None], *, rank: int = 0
    ) -> None:
        self._timeline, self._life, self._action, self._rank = timeline, life, action, rank
        self._moment: float | None = None

    def set(self, moment: float) -> None:
        """Ring at this time and no other."""
        self._moment = moment
        self._timeline.at(moment, lambda: self._ring(moment), rank=self._rank)

    def cancel(self) -> None:
        """Do not ring until it is set again."""
        self._moment = None

    def _ring(self, moment: float) -> None:
        if not self._life.is_dead and self._moment == moment:
            self._action()
