"""Agenda of the I/O loop: which streams it polls, and when. A turn costs what is due in it, however many streams there are.

A pipeline is polled if something has happened to it, if its next event is due, or if it has requests that wait for a connection and one
is free. No other pipeline can have work: `SendQueue.next_event` names the moment, and every change of a pipeline calls `touch` before
it releases the lock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from kinesis_sdk.producer.stream.pipeline import StreamPipeline

_NEVER = float("inf")

_SPARE_EVENTS = 1_000


class Agenda:
    """The pipelines of a producer by their next event. Not thread-safe: the producer's lock protects it.

    Streams take turns: each pipeline has a place, and pipelines that are due in one turn of the loop are polled in the order of their
    places. `enter` moves a pipeline to the last place.
    """

    __slots__ = ("_bound", "_changed", "_events", "_listed", "_places", "_waiting")

    def __init__(self) -> None:
        self._places = 0
        self._changed: dict[StreamPipeline, None] = {}
        # (moment, place, pipeline). Lazily cleaned: an element counts only while it names the pipeline's moment.
        self._events: list[tuple[float, int, StreamPipeline]] = []
        self._bound = _SPARE_EVENTS
        # (place, pipeline), each once. `_listed` says whether it still waits.
        self._waiting: list[tuple[int, StreamPipeline]] = []
        self._listed: dict[StreamPipeline, bool] = {}

    def enter(self, pipeline: StreamPipeline) -> None:
        """Give a pipeline the last place."""
        self._places += 1
        pipeline.place = self._places

    def touch(self, pipeline: StreamPipeline) -> None:
        """Have a pipeline polled in the next turn, because something has happened to it."""
        self._changed[pipeline] = None
        pipeline.next_look = -_NEVER

    def due(self, now: float, has_connection: Callable[[], bool]) -> Iterator[StreamPipeline]:
        """Remove and yield the pipelines to poll, in the order of their places. Give each back with `put_back`.

        ``has_connection`` is asked again before each pipeline that waits for a connection.
        """
        due, self._changed = self._changed, {}
        events = self._events
        while events and events[0][0] <= now:
            moment, _, pipeline = heapq.heappop(events)
            if moment == pipeline.next_look:
                due[pipeline] = None
        for pipeline in sorted(due, key=_place):
            yield from self._take_waiting(pipeline.place, due, has_connection)
            yield pipeline
        yield from self._take_waiting(_NEVER, due, has_connection)

    def put_back(self, pipeline: StreamPipeline, moment: float, *, waits: bool) -> None:
        """Poll a pipeline again at ``moment`` (monotonic seconds; infinity for never).

        With ``waits``, it also has requests that wait for a connection.
        """
        if waits and pipeline not in self._listed:
            heapq.heappush(self._waiting, (pipeline.place, pipeline))
        if waits or pipeline in self._listed:
            self._listed[pipeline] = waits
        pipeline.next_look = moment
        if moment < _NEVER:
            events = self._events
            if len(events) >= self._bound:
                # Moments that were never reached: with minutes of buffered time, millions of them.
                current = {event[2]: event for event in events if event[0] == event[2].next_look}
                events[:] = current.values()
                heapq.heapify(events)
                self._bound = 2 * len(events) + _SPARE_EVENTS
            heapq.heappush(events, (moment, pipeline.place, pipeline))

    @property
    def next_moment(self) -> float:
        """Moment at which `due` has something to yield, if nothing happens before; infinity if never."""
        events = self._events
        while events and events[0][0] != events[0][2].next_look:
            heapq.heappop(events)
        return events[0][0] if events else _NEVER

    def _take_waiting(
        self, before: float, due: dict[StreamPipeline, None], has_connection: Callable[[], bool]
    ) -> Iterator[StreamPipeline]:
        """Remove and yield pipelines before a place that wait for a connection, as long as one is free."""
        waiting = self._waiting
        while waiting and waiting[0][0] < before and has_connection():
            place, pipeline = heapq.heappop(waiting)
            if place != pipeline.place:  # it was given the last place meanwhile
                heapq.heappush(waiting, (pipeline.place, pipeline))
            elif self._listed.pop(pipeline) and pipeline not in due:
                yield pipeline


def _place(pipeline: StreamPipeline) -> int:
    return pipeline.place
