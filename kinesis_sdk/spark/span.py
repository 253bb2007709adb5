"""Limit of the stream time in one batch while a query catches up.

Spark runs one batch per trigger. A query falls further and further behind if a batch contains less stream time than passes until the next
batch; a batch that contains a whole backlog may never finish. So the span is adapted to the durations of the batches, which the driver
measures with its monotonic clock, without reports from the executors:

- It doubles as long as this speeds up the catch-up (stream seconds per second).
- When doubling no longer helps, the duration of that batch, but at least ten seconds, becomes the goal, and the span is adapted to it.
  Every eighth batch tries a doubled span, so that the span recovers after batches that were slow for another reason.
- It is at least one and a half times the time since the last plan, unless the batches themselves became slow. The lag
  then falls by at least half an interval with every batch, for any trigger. If a larger batch takes longer than the stream time that it
  contains, the cluster is too slow for any span. A larger span would only make batches longer.

``maxBatchSpan`` is an upper bound of the span.
"""

from __future__ import annotations

INITIAL_SPAN = 120.0
"""Seconds of stream time in the first batch of a query."""

_MIN_SPAN = 1.0
_MIN_GOAL = 10.0
"""Seconds. Shorter batches would cost more overhead than they save in latency."""

_KEEPS_UP = 1.5
"""Minimum stream seconds in a batch, per second since the last plan."""

_PAYS = 1.25
"""A doubled span must speed up the catch-up by this factor, and a batch may exceed its goal duration by the same factor."""

_GREW = 1.2
"""Factor from which a span, or a duration, counts as larger than the last one."""

_RETRY_EVERY = 8


class BatchSpan:
    """Span of a query's batches, up to ``longest`` seconds (None: unbounded)."""

    def __init__(self, longest: float | None = None) -> None:
        self._longest = longest
        self._span = INITIAL_SPAN
        self._planned_at: float | None = None
        self._goal: float | None = None
        self._speed = 0.0
        self._judged = 0
        self._shrunk = False
        self._slow = False  # whether batches take longer than their stream time, so that no span keeps up
        self._last: tuple[float, float] | None = None  # span and duration of the last limited batch

    def next(self, now: float, *, limited: bool) -> float:
        """Return the seconds of stream time that the next batch may contain. Call it once per plan.

        ``limited`` is true if the span ended the last batch; ``now`` is in monotonic seconds.
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
        """Adapt the span to the duration of the last batch, which the span had ended."""
        self._judged += 1
        speed = self._span / passed
        last_span, last = self._last or (self._span, passed)
        if speed >= 1:
            self._slow = False
        elif self._span > _GREW * last_span:
            # A larger batch took longer, so the batch caused the delay, and not the trigger.
            self._slow = passed > _GREW * last
        if self._judged == 1:
            return  # a query starts between two triggers, so its first interval is short and proves nothing
        if self._goal is None:
            if speed >= _PAYS * self._speed:
                self._span, self._speed = 2 * self._span, speed
            else:
                self._goal = max(last if self._slow else passed, _MIN_GOAL)
        elif self._judged % _RETRY_EVERY == 0 and passed <= _PAYS * self._goal:
            self._span *= 2  # if it does not pay, the next batch reverts it
        elif self._shrunk and passed > 0.9 * last and speed < 1:
            self._goal = passed  # a smaller batch took as long, so a batch costs that much now
        else:
            self._span = max(_MIN_SPAN, self._span * min(2.0, max(0.5, self._goal / passed)))

    def _bounded(self, span: float) -> float:
        return span if self._longest is None else min(span, self._longest)
