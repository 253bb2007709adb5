"""Metrics for Prometheus: a collector that is read when Prometheus asks.

``pip install kinesis-sdk[prometheus]``. Names are the KPL's and KCL's in snake case with base units:

| metric | becomes |
|---|---|
| counts and bytes | ``kinesis_user_records_data_put_bytes_total`` |
| ``UserRecordsPut``, ``KinesisRecordsPut`` | ``kinesis_user_records_put_total{outcome="success"}`` and ``"failure"`` |
| states | gauges: ``kinesis_user_records_pending``, ``kinesis_behind_latest_seconds`` |
| durations of single calls | histograms: ``kinesis_request_time_seconds`` |
| everything else | summaries (count and sum): ``kinesis_buffering_time_seconds`` |

Labels: ``stream_name``, ``shard_id``, ``error_code`` … Only the deepest level is exported: ``sum by (stream_name)``
makes the others.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.metrics.accumulator import (
    MAX_SERIES,
    Accumulator,
    CustomDimension,
    Granularity,
    Level,
    Pairs,
    Series,
    Statistics,
)
from kinesis_sdk.metrics.conventions import TIMING_BUCKETS, Kind, base_unit, kind_of, snake_case

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry


class PrometheusMetrics:
    """A sink for metrics that registers itself as a collector. Thread-safe.

    Args:
        registry: Where to register; the client library's default registry if None.
        prefix: First part of every name.
        level: ``none``, ``summary`` or ``detailed``.
        granularity: ``global``, ``stream`` or ``shard``: a label for each shard is a time series for each shard.
        custom_dimensions: More labels, the same for every metric that is deep enough.
        max_series: Most time series; observations of further ones are dropped, and counted in
            ``kinesis_metrics_refused_total``.

    Raises:
        ImportError: ``prometheus_client`` is not installed.
        ConfigError: An argument is out of its range.
        ValueError: The registry has such a collector with this prefix already (by `prometheus_client`).
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        prefix: str = "kinesis",
        level: Level = "detailed",
        granularity: Granularity = "shard",
        custom_dimensions: Iterable[CustomDimension] = (),
        max_series: int = MAX_SERIES,
    ) -> None:
        try:
            import prometheus_client
            from prometheus_client import core
        except ImportError as error:
            raise ImportError(
                "PrometheusMetrics needs prometheus_client: pip install 'kinesis-sdk[prometheus]'"
            ) from error
        if not isinstance(prefix, str) or not prefix.isidentifier() or snake_case(prefix) != prefix:
            raise ConfigError("prefix", prefix, "snake case that starts with a letter")
        self._core: Any = core
        self._prefix = prefix
        self._accumulator = Accumulator(level, granularity, custom_dimensions, max_series)
        self._lock = threading.Lock()
        self._buckets: dict[Series, list[int]] = {}
        (prometheus_client.REGISTRY if registry is None else registry).register(self)

    def add(self, name: str, value: float, unit: str, dimensions: Mapping[str, str]) -> None:
        """Record one observation; see `kinesis_sdk.common.metrics.Metrics`."""
        if self._accumulator.add(name, value, unit, dimensions) and kind_of(name) is Kind.TIMING:
            self._count(name, value, 1, unit, dimensions)

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
        """Record many observations of one metric at once; see `Accumulator.add_statistics`.

        In a histogram all of them stand in the bucket of their mean.
        """
        counted = self._accumulator.add_statistics(name, count, total, low, high, unit, dimensions)
        if counted and kind_of(name) is Kind.TIMING:
            self._count(name, total / count, count, unit, dimensions)

    def describe(self) -> Iterator[Any]:
        """What `prometheus_client` tells collectors apart by."""
        yield self._core.CounterMetricFamily(f"{self._prefix}_metrics_refused", _REFUSED_HELP)

    def collect(self) -> Iterator[Any]:
        """All metric families, for `prometheus_client`."""
        families: dict[tuple[str, str], list[tuple[Pairs, Statistics, Series]]] = {}
        for series, statistics in sorted(self._accumulator.read_leaves().items()):
            families.setdefault(series[:2], []).append((series.dimensions, statistics, series))
        for (name, unit), members in families.items():
            yield self._family(name, unit, members)
        yield self._core.CounterMetricFamily(
            f"{self._prefix}_metrics_refused", _REFUSED_HELP, value=self._accumulator.refused
        )

    def _count(self, name: str, value: float, count: int, unit: str, dimensions: Mapping[str, str]) -> None:
        series = self._accumulator.leaf_of(name, unit, dimensions)
        bucket = bisect_left(TIMING_BUCKETS, value * base_unit(unit)[0])
        with self._lock:
            buckets = self._buckets.get(series)
            if buckets is None:
                buckets = self._buckets[series] = [0] * (len(TIMING_BUCKETS) + 1)
            buckets[bucket] += count

    def _family(self, name: str, unit: str, members: list[tuple[Pairs, Statistics, Series]]) -> Any:
        kind = kind_of(name)
        scale, suffix, _ = base_unit(unit)
        full = f"{self._prefix}_{snake_case(name)}"
        if suffix and not full.endswith(f"_{suffix}"):
            full = f"{full}_{suffix}"
        text = f"{name} of the Kinesis Producer or Client Library"
        # All members of a family have the same labels; an empty value is the same as none.
        keys = list(dict.fromkeys(key for dimensions, _, _ in members for key, _ in dimensions))
        labels = [snake_case(key) for key in keys]
        core = self._core
        family: Any
        if kind is Kind.OUTCOME:
            family = core.CounterMetricFamily(full, text, labels=[*labels, "outcome"])
        elif kind is Kind.COUNTER:
            family = core.CounterMetricFamily(full, text, labels=labels)
        elif kind is Kind.GAUGE:
            family = core.GaugeMetricFamily(full, text, labels=labels)
        elif kind is Kind.TIMING:
            family = core.HistogramMetricFamily(full, text, labels=labels)
        else:
            family = core.SummaryMetricFamily(full, text, labels=labels)
        for dimensions, statistics, series in members:
            given = dict(dimensions)
            values = [given.get(key, "") for key in keys]
            total = statistics.total * scale
            if kind is Kind.OUTCOME:
                family.add_metric([*values, "success"], total)
                family.add_metric([*values, "failure"], statistics.samples - total)
            elif kind is Kind.COUNTER:
                family.add_metric(values, total)
            elif kind is Kind.GAUGE:
                family.add_metric(values, statistics.last * scale)
            elif kind is Kind.TIMING:
                family.add_metric(values, self._buckets_of(series), total)
            else:
                family.add_metric(values, statistics.samples, total)
        return family

    def _buckets_of(self, series: Series) -> list[tuple[str, float]]:
        with self._lock:
            counts = list(self._buckets.get(series, ()))
        bounds = [*(f"{bound:g}" for bound in TIMING_BUCKETS), "+Inf"]
        return list(zip(bounds, accumulate(counts or [0] * len(bounds)), strict=True))


_REFUSED_HELP = "Observations dropped: not a finite number, or one time series too many"
