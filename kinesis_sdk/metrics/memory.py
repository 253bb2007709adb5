"""Metrics sink that keeps statistics in memory, for tests and status pages."""

from __future__ import annotations

from collections.abc import Iterable

from kinesis_sdk.common.metrics import OPERATION, Metric
from kinesis_sdk.metrics.accumulator import (
    MAX_SERIES,
    AccumulatingSink,
    Accumulator,
    CustomDimension,
    Granularity,
    Level,
    Series,
    Statistics,
)


class MemoryMetrics(AccumulatingSink):
    """Metrics sink that keeps all statistics since the start, or since the last `reset`. Thread-safe.

    Args:
        level: ``none``, ``summary`` or ``detailed``.
        granularity: ``global``, ``stream`` or ``shard``.
        custom_dimensions: Dimensions that the user adds, at most 24.
        max_series: Maximum number of series; observations of further series are dropped. At least 1.

    Raises:
        ConfigError: If an argument is out of range.
    """

    def __init__(
        self,
        level: Level = "detailed",
        granularity: Granularity = "shard",
        custom_dimensions: Iterable[CustomDimension] = (),
        max_series: int = MAX_SERIES,
    ) -> None:
        super().__init__(Accumulator(level, granularity, custom_dimensions, max_series))

    def snapshot(self) -> dict[Series, Statistics]:
        """Return all statistics, at every level of every dimension path."""
        return self._accumulator.read()

    def get(self, metric: Metric | str, **dimensions: str) -> Statistics | None:
        """Return the statistics of one metric at one level.

        Args:
            metric: Metric, or its name.
            dimensions: All dimensions of the level, including custom dimensions; none for the sum over all streams of a
                producer. A consumer's metrics have ``ApplicationName`` at every level; ``Operation`` is implied.

        Returns:
            None without observations at this level, and for a level that the metric does not have.
        """
        name = metric if isinstance(metric, str) else metric.name
        expected = sorted(dimensions.items())
        for series, statistics in self.snapshot().items():
            found = sorted(pair for pair in series.dimensions if pair[0] != OPERATION)
            if series.name == name and found == expected:
                return statistics
        return None

    def reset(self) -> dict[Series, Statistics]:
        """Remove and return all statistics."""
        return self._accumulator.drain()[0]
