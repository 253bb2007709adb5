"""Limit of the stream time in one batch while a query catches up.

Spark runs one batch per trigger. A batch that holds less stream time than passes until the next one falls behind for ever; a batch
that holds a whole backlog may never finish. So the span follows what the batches themselves take, by the monotonic clock of the
driver, without any report from the executors:

- It doubles while that makes the catch-up faster (stream seconds per second).
- Where doubling stops paying, the duration of that batch, or ten seconds, becomes the goal, and the span follows it. Every eighth
  batch tries a doubled span: batches that were slow for another reason become large again.
- It is never less than one and a half times what has passed since the last plan, unless the batches themselves became slow: the
  lag then falls by at least half an interval with every batch, for any trigger. If a larger batch took longer than what it
  held, the cluster is too slow for any span, and a larger one would only make batches longer and longer.

``maxBatchSpan`` is an upper bound of it.
"""

from __future__ import annotations

INITIAL_SPAN = 120.0
"""Seconds of stream time in the first batch of a query."""

_MIN_SPAN = 1.0
_MIN_GOAL = 10.0
"""Seconds: shorter batches cost more in overhead than they gain in latency."""

_KEEPS_UP = 1.5
"""Stream seconds per second since the last plan that a batch holds at least."""

_PAYS = 1.25
"""Factor of speed by which a doubled span must be faster, and of duration by which a batch may miss the goal."""

_GREW = 1.2
"""Factor by which a span, or a duration, is larger than the last one."""

_RETRY_EVERY = 8


class BatchSpan:
    """The span of a query's batches.

    Args:
        longest: Upper bound in seconds, which the user set; None for none.
    """

    def __init__(self, longest: float | None = None) -> None:
        self._longest = longest
        self._span = INITIAL_SPAN
        self._planned_at: float | None = None
        self._goal: float | None = None
        self._speed = 0.0
        self._judged = 0
        self._shrunk = False
        self._slow = False  # whether batches take longer than what they hold, so that no span keeps up
        self._last: tuple[float, float] | None = None  # span and duration of the last limited batch

    def next(self, now: float, *, limited: bool) -> float:
        """Return the seconds of stream time that the next batch may hold. Call it once at each plan.

        Args:
            now: Monotonic seconds.
            limited: Whether the span ended the last batch.
        """
        planned_at, self._planned_at = self._planned_at, now
        if planned_at is None:
            return self._bounded(self._span)
        passed = max(now - planned_at, 0.001)
        if not limited:
            self._last = None
            return self._bounded(max(self._span, _KEEPS_UP * passed))
        before = self._span
        self._judge(passed)
        if not self._slow and (self._goal is None or passed <= _PAYS * self._goal):
            self._span = max(self._span, _KEEPS_UP * passed)
        if self._longest is not None:
            self._span = min(self._span, self._longest)
        self._shrunk, self._last = self._span < 0.8 * before, (before, passed)
        return self._bounded(self._span)

    def _judge(self, passed: float) -> None:
        """Change the span by what the last batch, which it ended, took."""
        self._judged += 1
        speed = self._span / passed
        last_span, last = self._last or (self._span, passed)
        if speed >= 1:
            self._slow = False
        elif self._span > _GREW * last_span:
            # A batch that held more took longer, so it was the batch and not the trigger that took so long.
            self._slow = passed > _GREW * last
        if self._judged == 1:
            return  # a query starts between two triggers, so that its first interval is short and proves nothing
        if self._goal is None:
            if speed >= _PAYS * self._speed:
                self._span, self._speed = 2 * self._span, speed
            else:
                self._goal = max(last if self._slow else passed, _MIN_GOAL)
        elif self._judged % _RETRY_EVERY == 0 and passed <= _PAYS * self._goal:
            self._span *= 2  # if it does not pay, the next batch takes it back
        elif self._shrunk and passed > 0.9 * last and speed < 1:
            self._goal = passed  # a smaller batch took as long: that is what a batch costs now
        else:
            self._span = max(_MIN_SPAN, self._span * min(2.0, max(0.5, self._goal / passed)))

    def _bounded(self, span: float) -> float:
        return span if self._longest is None else min(span, self._longest)
