"""Metrics in memory, for tests and status pages."""

from __future__ import annotations

from collections.abc import Iterable

from kinesis_sdk.common.metrics import OPERATION, Metric, Scope
from kinesis_sdk.metrics.accumulator import (
    MAX_SERIES,
    Accumulator,
    CustomDimension,
    Granularity,
    Level,
    Series,
    Statistics,
)


class MemoryMetrics:
    """Keeps every statistic since the start (or the last `reset`). Thread-safe.

    Args:
        level: ``none``, ``summary`` or ``detailed``.
        granularity: ``global``, ``stream`` or ``shard``.
        custom_dimensions: Dimensions of the user's own.
        max_series: Maximum number of series told apart.

    Raises:
        ConfigError: An argument is out of its range.
    """

    def __init__(
        self,
        level: Level = "detailed",
        granularity: Granularity = "shard",
        custom_dimensions: Iterable[CustomDimension] = (),
        max_series: int = MAX_SERIES,
    ) -> None:
        self._accumulator = Accumulator(level, granularity, custom_dimensions, max_series)

    def add(
        self,
        metric: Metric,
        scope: Scope,
        total: float,
        count: int = 1,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        """Record one observation, or several at once; see `kinesis_sdk.common.metrics.Metrics`."""
        self._accumulator.add(metric, scope, total, count, low, high)

    def retire(self, scope: Scope) -> None:
        """Forget the gauges of a scope; counts stay."""
        self._accumulator.retire(scope)

    def snapshot(self) -> dict[Series, Statistics]:
        """Everything known, at every level of every dimension path."""
        return self._accumulator.read()

    def get(self, metric: Metric | str, **dimensions: str) -> Statistics | None:
        """Statistics of one metric at one level.

        Args:
            metric: The metric, or its name.
            dimensions: Exactly its dimensions, custom ones included: none for the sum over all streams of a producer.
                A consumer's metrics have ``ApplicationName`` at every level; ``Operation`` is implied.

        Returns:
            None if nothing was observed there.
        """
        name = metric if isinstance(metric, str) else metric.name
        wanted = sorted(dimensions.items())
        for series, statistics in self.snapshot().items():
            found = sorted(pair for pair in series.dimensions if pair[0] != OPERATION)
            if series.name == name and found == wanted:
                return statistics
        return None

    def reset(self) -> dict[Series, Statistics]:
        """Start again from nothing; return what was known."""
        return self._accumulator.drain()[0]
