"""Metrics sink for OpenTelemetry: instruments of a meter.

Needs the extra ``opentelemetry``: ``pip install '.[opentelemetry]'`` in a clone of the project. Names are the KPL's and KCL's in snake case after a prefix; units are UCUM:

| metric | instrument |
|---|---|
| counts and bytes | counter ``kinesis.user_records_data_put`` (``By``) |
| ``UserRecordsPut``, ``KinesisRecordsPut`` | counter with the attribute ``outcome`` = ``success`` or ``failure`` |
| gauges | gauge ``kinesis.user_records_pending``, ``kinesis.behind_latest`` (``s``) |
| durations of single calls | histogram ``kinesis.request_time`` (``s``) |
| all others | two counters: ``kinesis.buffering_time.sum`` (``s``) and ``kinesis.buffering_time.count`` |

Attributes are ``application_name``, ``stream_name``, ``shard_id``, ``error_code`` … All instruments except histograms are
asynchronous: the reader of the OpenTelemetry SDK collects the sums, and a record costs no call into OpenTelemetry.
Distributions are two counters, because a histogram needs each user record by itself, while a producer records all user records
of a Kinesis record at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from math import isfinite
from typing import TYPE_CHECKING, Any

from kinesis_sdk._version import __version__
from kinesis_sdk.common.extras import install_hint
from kinesis_sdk.common.metrics import Kind, Metric, Scope, snake_case
from kinesis_sdk.common.validation import check_text
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
from kinesis_sdk.metrics.conventions import TIMING_BUCKETS, base_unit, opentelemetry_name

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter


class OpenTelemetryMetrics(AccumulatingSink):
    """Metrics sink that creates an OpenTelemetry instrument on the first observation of a metric. Thread-safe.

    Args:
        meter: Meter to use; None for a meter of the global provider.
        prefix: First part of every name.
        level: ``none``, ``summary`` or ``detailed``.
        granularity: ``global``, ``stream`` or ``shard``.
        custom_dimensions: Further attributes for all metrics at or below their granularity, at most 24.
        max_series: Maximum sets of attributes over all metrics; observations of further sets are dropped. At least 1.

    Raises:
        ImportError: If ``opentelemetry`` is not installed.
        ConfigError: If an argument is out of range.
    """

    def __init__(
        self,
        meter: Meter | None = None,
        *,
        prefix: str = "kinesis",
        level: Level = "detailed",
        granularity: Granularity = "shard",
        custom_dimensions: Iterable[CustomDimension] = (),
        max_series: int = MAX_SERIES,
    ) -> None:
        try:
            from opentelemetry import metrics
        except ImportError as error:
            raise ImportError(
                install_hint("OpenTelemetryMetrics", "opentelemetry", "opentelemetry")
            ) from error
        check_text("prefix", prefix)
        self._observation: Any = metrics.Observation
        self._meter = meter if meter is not None else metrics.get_meter("kinesis_sdk", __version__)
        self._prefix = prefix
        super().__init__(Accumulator(level, granularity, custom_dimensions, max_series))
        self._lock = threading.Lock()
        self._known: set[Metric] = set()
        self._histograms: dict[Metric, Any] = {}

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

        For a histogram, several observations count as one with the value of their mean.
        """
        if metric not in self._known:
            self._instrument(metric)
        histogram = self._histograms.get(metric)
        if histogram is None:
            self._accumulator.add(metric, scope, total, count, low, high)
        elif count > 0 and isfinite(total) and self._accumulator.takes(metric):
            metric.check(scope)
            leaf = self._accumulator.leaf_of(metric, scope)
            histogram.record(total / count * base_unit(metric.unit)[0], _attributes(leaf))

    def _instrument(self, metric: Metric) -> None:
        """Create the instruments of a metric, unless they exist."""
        with self._lock:
            if metric in self._known:
                return
            full = opentelemetry_name(metric, self._prefix)
            scale, _, code = base_unit(metric.unit)
            text = metric.description
            meter, reader = self._meter, self._reader
            kind = metric.kind
            if kind is Kind.TIMING:
                self._histograms[metric] = self._histogram(full, code, text)
            elif kind is Kind.OUTCOME:
                meter.create_observable_counter(full, [reader(metric, _outcomes)], code, text)
            elif kind is Kind.COUNTER:
                meter.create_observable_counter(
                    full, [reader(metric, lambda s: [(s.total * scale, {})])], code, text
                )
            elif kind is Kind.GAUGE:
                meter.create_observable_gauge(
                    full, [reader(metric, lambda s: [(s.last * scale, {})])], code, text
                )
            else:
                meter.create_observable_counter(
                    f"{full}.sum", [reader(metric, lambda s: [(s.total * scale, {})])], code, text
                )
                meter.create_observable_counter(
                    f"{full}.count", [reader(metric, lambda s: [(s.samples, {})])], "1", text
                )
            self._known.add(metric)

    def _histogram(self, name: str, unit: str, description: str) -> Any:
        create: Any = self._meter.create_histogram
        try:
            return create(name, unit, description, explicit_bucket_boundaries_advisory=list(TIMING_BUCKETS))
        except TypeError:  # an API before 1.29: the buckets come from the reader or a view
            return create(name, unit, description)

    def _reader(
        self, metric: Metric, values: Callable[[Statistics], list[tuple[float, dict[str, str]]]]
    ) -> Callable[[Any], list[Any]]:
        def observe(_options: Any) -> list[Any]:
            return [
                self._observation(value, {**_attributes(dimensions), **more})
                for dimensions, statistics in self._accumulator.read_leaves(metric).get(metric, {}).items()
                for value, more in values(statistics)
            ]

        return observe


def _outcomes(statistics: Statistics) -> list[tuple[float, dict[str, str]]]:
    return [
        (statistics.total, {"outcome": "success"}),
        (statistics.samples - statistics.total, {"outcome": "failure"}),
    ]


def _attributes(dimensions: Pairs) -> dict[str, str]:
    return {snake_case(name): value for name, value in dimensions}
