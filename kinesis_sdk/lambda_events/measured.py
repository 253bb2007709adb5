"""Metrics of a Lambda function, the same as a worker's metrics of its handler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kinesis_sdk.common.clock import SystemClock
from kinesis_sdk.common.metrics import APPLICATION_NAME, SHARD_ID, STREAM_NAME, BoundMetrics, Metrics, Scope
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.metrics import CATALOGUE

_METRICS = {metric.snake_name: metric for metric in CATALOGUE if metric.operation == "ProcessTask"}


class EventMetrics:
    """Counts the records of an event by outcome, and records the counts after the event. A process gets one event at a time.

    ``sink`` may have a method ``flush``, which is called after each event.
    """

    def __init__(self, sink: Metrics) -> None:
        self._sink = sink
        self._clock = SystemClock()
        self._records = self._bytes = self._failures = self._dead = 0

    def counted(self, function: Callable[[UserRecord], None]) -> Callable[[UserRecord], None]:
        """Return the function of a record, with its calls counted."""

        def call(record: UserRecord) -> None:
            try:
                outcome = function(record)  # type: ignore[func-returns-value]  # a coroutine, by mistake
            except Exception:
                self._failures += 1
                raise
            self._records += 1
            self._bytes += len(record.data)
            return outcome

        return call

    def counted_letters(
        self, dead_letter: Callable[[UserRecord, Exception], None]
    ) -> Callable[[UserRecord, Exception], None]:
        """Return the `dead_letter` function, with its calls counted."""

        def take(record: UserRecord, error: Exception) -> None:
            outcome = dead_letter(record, error)  # type: ignore[func-returns-value]  # a coroutine, by mistake
            self._dead += 1
            return outcome

        return take

    @contextmanager
    def event(self, context: Any, stream: str, shard_id: str) -> Iterator[None]:
        """Measure an event, which may fail."""
        self._records = self._bytes = self._failures = self._dead = 0
        began = self._clock.monotonic()
        try:
            yield
        except Exception:
            self._record(context, stream, shard_id, None)
            raise
        self._record(context, stream, shard_id, (self._clock.monotonic() - began) * 1000)

    def _record(self, context: Any, stream: str, shard_id: str, millis: float | None) -> None:
        application = getattr(context, "function_name", None) or "function"
        scope = Scope({APPLICATION_NAME: application, STREAM_NAME: stream, SHARD_ID: shard_id})
        metrics = BoundMetrics(self._sink, scope)
        for name, number in (
            ("records_processed", self._records),
            ("data_bytes_processed", self._bytes),
            ("handler_failures", self._failures),
            ("records_dead_lettered", self._dead),
        ):
            if number or name == "records_processed":
                metrics.add(_METRICS[name], number)
        if millis is not None:
            metrics.add(_METRICS["process_records_time"], millis)
        metrics.retire()
        flush = getattr(self._sink, "flush", None)
        if flush is not None:
            flush()
