"""Agenda of the I/O loop: which streams it polls, and when.

The cost of an iteration of the loop depends on the work that is due in it, not on the number of streams.

A pipeline is polled if its state has changed, if its next event is due, or if it has requests that wait for a connection and a connection
is free. No other pipeline can have work, because each change of a pipeline is followed, under the same lock, by `touch`, by `put_back`
with the time of `SendQueue.next_event`, or by `advance` if only the time of the next event changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from kinesis_sdk.common.due_times import DueTimes
from kinesis_sdk.producer.stream.pipeline import StreamPipeline

_NEVER = float("inf")


class Agenda:
    """The pipelines of a producer by their next event. Not thread-safe: the producer's lock protects it.

    Streams take turns: each pipeline has a place, and pipelines that are due in the same iteration of the loop are polled in the order of
    their places. `enter` moves a pipeline to the last place.
    """

    __slots__ = ("_changed", "_events", "_listed", "_places", "_waiting")

    def __init__(self) -> None:
        self._places = 0
        self._changed: dict[StreamPipeline, None] = {}
        self._events: DueTimes[StreamPipeline] = DueTimes()
        # (place, pipeline), each once. `_listed` says whether it still waits.
        self._waiting: list[tuple[int, StreamPipeline]] = []
        self._listed: dict[StreamPipeline, bool] = {}

    def enter(self, pipeline: StreamPipeline) -> None:
        """Give a pipeline the last place."""
        self._places += 1
        pipeline.place = self._places

    def touch(self, pipeline: StreamPipeline) -> None:
        """Schedule a pipeline for the next iteration, because its state has changed."""
        self._changed[pipeline] = None
        self._events.discard(pipeline)
        pipeline.next_poll = -_NEVER

    def advance(self, pipeline: StreamPipeline, moment: float) -> None:
        """Schedule a pipeline for a time (monotonic seconds) that is before its next known event."""
        if moment < pipeline.next_poll:
            pipeline.next_poll = moment
            self._events.set(pipeline, moment)

    def due(self, now: float, has_connection: Callable[[], bool]) -> Iterator[StreamPipeline]:
        """Remove and yield the pipelines to poll, in the order of their places. The caller returns each of them with `put_back`.

        ``has_connection`` is called again before each pipeline that waits for a connection.
        """
        due, self._changed = self._changed, {}
        while (pipeline := self._events.take(now)) is not None:
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
        pipeline.next_poll = moment
        if moment < _NEVER:
            self._events.set(pipeline, moment)
        else:
            self._events.discard(pipeline)

    @property
    def has_waiting(self) -> bool:
        """Whether pipelines may wait for a connection."""
        return bool(self._waiting)

    @property
    def next_moment(self) -> float:
        """Time at which `due` will yield a pipeline, if no state changes before; infinity if it will yield none."""
        return self._events.next

    def _take_waiting(
        self, before: float, due: dict[StreamPipeline, None], has_connection: Callable[[], bool]
    ) -> Iterator[StreamPipeline]:
        """Remove and yield the waiting pipelines before a place, as long as a connection is free."""
        waiting = self._waiting
        while waiting and waiting[0][0] < before and has_connection():
            place, pipeline = heapq.heappop(waiting)
            if place != pipeline.place:  # it was given the last place meanwhile
                heapq.heappush(waiting, (pipeline.place, pipeline))
            elif self._listed.pop(pipeline) and pipeline not in due:
                yield pipeline


def _place(pipeline: StreamPipeline) -> int:
    return pipeline.place
