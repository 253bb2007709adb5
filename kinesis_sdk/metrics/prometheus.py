"""Metrics for Prometheus: a collector that is read when Prometheus asks.

``pip install kinesis-sdk[prometheus]``. Names are the KPL's and KCL's in snake case with base units:

| metric | becomes |
|---|---|
| counts and bytes | ``kinesis_user_records_data_put_bytes_total`` |
| ``UserRecordsPut``, ``KinesisRecordsPut`` | ``kinesis_user_records_put_total{outcome="success"}`` and ``"failure"`` |
| states | gauges: ``kinesis_user_records_pending``, ``kinesis_behind_latest_seconds`` |
| durations of single calls | histograms: ``kinesis_request_time_seconds`` |
| everything else | summaries (count and sum): ``kinesis_buffering_time_seconds`` |

Labels: ``application_name``, ``stream_name``, ``shard_id``, ``worker_identifier``, ``error_code`` … Only the deepest
level is exported: ``sum by (stream_name)`` makes the others. The gauges of a shard disappear when its worker does not
hold the lease any longer; ``docs/metrics.md`` lists all metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.metrics import Kind, Metric, Scope, snake_case
from kinesis_sdk.metrics.accumulator import (
    MAX_SERIES,
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
        self._accumulator = Accumulator(
            level, granularity, custom_dimensions, max_series, bounds=TIMING_BUCKETS
        )
        (prometheus_client.REGISTRY if registry is None else registry).register(self)

    def add(
        self,
        metric: Metric,
        scope: Scope,
        total: float,
        count: int = 1,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        """Record one observation, or several at once; see `kinesis_sdk.common.metrics.Metrics`.

        Several durations at once count in the bucket of their mean.
        """
        self._accumulator.add(metric, scope, total, count, low, high)

    def retire(self, scope: Scope) -> None:
        """Remove the gauges of a scope: the next scrape does not show them. Counters stay."""
        self._accumulator.retire(scope)

    def describe(self) -> Iterator[Any]:
        """What `prometheus_client` tells collectors apart by."""
        yield self._core.CounterMetricFamily(f"{self._prefix}_metrics_refused", _REFUSED_HELP)

    def collect(self) -> Iterator[Any]:
        """All metric families, for `prometheus_client`."""
        leaves = self._accumulator.read_leaves()
        for metric in sorted(leaves, key=lambda metric: (metric.name, metric.operation)):
            yield self._family(metric, sorted(leaves[metric].items()))
        yield self._core.CounterMetricFamily(
            f"{self._prefix}_metrics_refused", _REFUSED_HELP, value=self._accumulator.refused
        )

    def _family(self, metric: Metric, members: list[tuple[Pairs, Statistics]]) -> Any:
        kind = metric.kind
        scale = base_unit(metric.unit)[0]
        full = prometheus_name(metric, self._prefix)
        text = metric.description
        # All members of a family have the same labels; an empty value is the same as none.
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


_REFUSED_HELP = "Observations dropped: not a finite number, or one time series too many"
