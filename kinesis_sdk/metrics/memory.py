"""Metrics in memory: for tests, for a status page, for whoever wants to look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kinesis_sdk.metrics.accumulator import (
    MAX_SERIES,
    Accumulator,
    CustomDimension,
    Granularity,
    Level,
    Series,
    Statistics,
    levels_of,
)


class MemoryMetrics:
    """Keeps every statistic since the start (or the last `reset`). Thread-safe.

    Args:
        level: ``none``, ``summary`` or ``detailed``.
        granularity: ``global``, ``stream`` or ``shard``.
        custom_dimensions: Dimensions of the user's own.
        max_series: Most series told apart.

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

    def add(self, name: str, value: float, unit: str, dimensions: Mapping[str, str]) -> None:
        """Record one observation; see `kinesis_sdk.common.metrics.Metrics`."""
        self._accumulator.add(name, value, unit, dimensions)

    def add_statistics(
        self,
        name: str,
        count: int,
        total: float,
        low: float,
        high: float,
        unit: str,
        dimensions: Mapping[str, str],
    ) -> None:
        """Record many observations at once; see `Accumulator.add_statistics`."""
        self._accumulator.add_statistics(name, count, total, low, high, unit, dimensions)

    def snapshot(self) -> dict[Series, Statistics]:
        """Everything known, at every level of every dimension path."""
        return self._accumulator.read()

    def get(self, name: str, **dimensions: str) -> Statistics | None:
        """Statistics of one metric at one level.

        Args:
            name: Metric name.
            dimensions: Exactly its dimensions, custom ones included: none for the sum over all streams.

        Returns:
            None if nothing was observed there.
        """
        *_, wanted = levels_of(dimensions.items(), "shard")
        for series, statistics in self.snapshot().items():
            if series.name == name and sorted(series.dimensions) == sorted(wanted):
                return statistics
        return None

    def reset(self) -> dict[Series, Statistics]:
        """Start anew; return what was known."""
        return self._accumulator.drain()[0]
