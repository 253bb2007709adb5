"""Metrics sink for Prometheus: a collector that each scrape reads.

Needs the extra ``prometheus``: ``pip install '.[prometheus]'`` in a clone of the project. Names are the KPL's and KCL's in snake case with base units:

| metric | time series |
|---|---|
| counts and bytes | ``kinesis_user_records_data_put_bytes_total`` |
| ``UserRecordsPut``, ``KinesisRecordsPut`` | ``kinesis_user_records_put_total{outcome="success"}`` and ``"failure"`` |
| gauges | gauges: ``kinesis_user_records_pending``, ``kinesis_behind_latest_seconds`` |
| durations of single calls | histograms: ``kinesis_request_time_seconds`` |
| all others | summaries (count and sum): ``kinesis_buffering_time_seconds`` |

Labels: ``application_name``, ``stream_name``, ``shard_id``, ``worker_identifier``, ``error_code`` … Only the deepest
level is exported; ``sum by (stream_name)`` computes the broader levels. The gauges of a shard disappear when its worker no longer
holds the lease. ``docs/metrics.md`` lists all metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.extras import install_hint
from kinesis_sdk.common.metrics import Kind, Metric, snake_case
from kinesis_sdk.metrics.accumulator import (
    MAX_SERIES,
    AccumulatingSink,
    Accumulator,
    CustomDimension,
    Granularity,
    Level,
    Pairs,
    Statistics,
)
from kinesis_sdk.metrics.conventions import TIMING_BUCKETS, base_unit, prometheus_name

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry


class PrometheusMetrics(AccumulatingSink):
    """Metrics sink that registers itself as a Prometheus collector. Thread-safe.

    Several durations that are recorded at once count in the histogram bucket of their mean.

    Args:
        registry: Registry for the collector; the default registry of `prometheus_client` if None.
        prefix: First part of every name.
        level: ``none``, ``summary`` or ``detailed``.
        granularity: ``global``, ``stream`` or ``shard``; ``shard`` creates time series for each shard.
        custom_dimensions: Further labels for all metrics at or below their granularity, at most 24.
        max_series: Maximum number of time series, at least 1; observations of further series are dropped, and counted
            in ``kinesis_metrics_rejected_total``.

    Raises:
        ImportError: If ``prometheus_client`` is not installed.
        ConfigError: If an argument is out of range.
        ValueError: If the registry already has a collector with this prefix (raised by `prometheus_client`).
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
            raise ImportError(install_hint("PrometheusMetrics", "prometheus_client", "prometheus")) from error
        if not isinstance(prefix, str) or not prefix.isidentifier() or snake_case(prefix) != prefix:
            raise ConfigError("prefix", prefix, "snake case that starts with a letter")
        self._core: Any = core
        self._prefix = prefix
        super().__init__(
            Accumulator(level, granularity, custom_dimensions, max_series, bounds=TIMING_BUCKETS)
        )
        (prometheus_client.REGISTRY if registry is None else registry).register(self)

    def describe(self) -> Iterator[Any]:
        """Yield the metric family by which `prometheus_client` identifies the collector."""
        yield self._core.CounterMetricFamily(f"{self._prefix}_metrics_rejected", _REJECTED_HELP)

    def collect(self) -> Iterator[Any]:
        """Yield all metric families, for `prometheus_client`."""
        leaves = self._accumulator.read_leaves()
        for metric in sorted(leaves, key=lambda metric: (metric.name, metric.operation)):
            yield self._family(metric, sorted(leaves[metric].items()))
        yield self._core.CounterMetricFamily(
            f"{self._prefix}_metrics_rejected", _REJECTED_HELP, value=self._accumulator.rejected
        )

    def _family(self, metric: Metric, members: list[tuple[Pairs, Statistics]]) -> Any:
        kind = metric.kind
        scale = base_unit(metric.unit)[0]
        full = prometheus_name(metric, self._prefix)
        text = metric.description
        # All members of a family need the same labels; an empty value means a missing label.
        keys = list(dict.fromkeys(key for dimensions, _ in members for key, _ in dimensions))
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
        for dimensions, statistics in members:
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
                family.add_metric(values, _cumulative(statistics.buckets), total)
            else:
                family.add_metric(values, statistics.samples, total)
        return family


def _cumulative(buckets: tuple[float, ...]) -> list[tuple[str, float]]:
    bounds = [*(f"{bound:g}" for bound in TIMING_BUCKETS), "+Inf"]
    return list(zip(bounds, accumulate(buckets), strict=True))


_REJECTED_HELP = "Observations that were dropped: not finite numbers, or too many time series"
