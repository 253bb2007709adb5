"""Samples for metrics: how many records of each stream are pending."""

from __future__ import annotations

from kinesis_sdk.producer.metrics import ProducerMetrics, Reading
from kinesis_sdk.producer.shared import NEVER, SharedState


class MetricsSampler:
    """Tells metrics how many records are pending, as long as there are any. Thread-safe.

    Args:
        shared: State shared with callers and the I/O loop.
        metrics: Where samples go.
    """

    def __init__(self, shared: SharedState, metrics: ProducerMetrics) -> None:
        self._shared = shared
        self._metrics = metrics
        self._unsampled = False

    def observe(self) -> None:
        """Note that the I/O loop is awake: a further sample is due if there are records. Call under the lock."""
        self._unsampled |= self._shared.usage.count > 0

    @property
    def next_sample(self) -> float:
        """Moment at which the next sample is due; infinity if nothing was pending since the last one."""
        return self._metrics.next_sample if self._unsampled else NEVER

    def sample(self) -> None:
        """Report what is pending, and what was put. Call without the lock."""
        with self._shared.lock:
            now = self._shared.now()
            readings = [
                Reading(
                    pipeline.stream,
                    pipeline.counters.user_records_put,
                    pipeline.counters.wrong_shard_entries,
                    pipeline.pending,
                    pipeline.counters.begun_anew_records,
                )
                for pipeline in self._shared.pipelines.values()
            ]
            self._unsampled = False
        self._metrics.sample(now, readings)
