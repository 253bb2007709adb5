"""Metrics sinks for producer and consumer: CloudWatch, embedded in logs, Prometheus, OpenTelemetry, memory.

    metrics = CloudWatchMetrics(region_name="eu-west-1", level="summary", granularity="stream")
    with metrics, Producer(metrics=metrics) as producer:
        ...

All sinks have the interface `kinesis_sdk.common.metrics.Metrics`. ``CATALOGUE`` defines every metric: name, unit, kind,
level, dimensions and meaning; ``docs/metrics.md`` is generated from it. Everything is loaded on first use.
``prometheus_client`` and ``opentelemetry`` are extras of the distribution.
"""

from __future__ import annotations

from kinesis_sdk._lazy import lazy_names

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.common.catalogue import CATALOGUE as CATALOGUE
    from kinesis_sdk.common.metrics import Kind as Kind
    from kinesis_sdk.common.metrics import Metric as Metric
    from kinesis_sdk.common.metrics import Metrics as Metrics
    from kinesis_sdk.common.metrics import NoMetrics as NoMetrics
    from kinesis_sdk.common.metrics import Scope as Scope
    from kinesis_sdk.metrics.accumulator import Accumulator as Accumulator
    from kinesis_sdk.metrics.accumulator import CustomDimension as CustomDimension
    from kinesis_sdk.metrics.accumulator import Series as Series
    from kinesis_sdk.metrics.accumulator import Statistics as Statistics
    from kinesis_sdk.metrics.cloudwatch import CloudWatchMetrics as CloudWatchMetrics
    from kinesis_sdk.metrics.embedded import EmbeddedMetrics as EmbeddedMetrics
    from kinesis_sdk.metrics.memory import MemoryMetrics as MemoryMetrics
    from kinesis_sdk.metrics.opentelemetry import OpenTelemetryMetrics as OpenTelemetryMetrics
    from kinesis_sdk.metrics.prometheus import PrometheusMetrics as PrometheusMetrics
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            # the interface of sinks, and the definition of every metric
            "kinesis_sdk.common.metrics": ("Kind", "Metric", "Metrics", "NoMetrics", "Scope"),
            "kinesis_sdk.common.catalogue": ("CATALOGUE",),
            # sinks
            "kinesis_sdk.metrics.cloudwatch": ("CloudWatchMetrics",),
            "kinesis_sdk.metrics.embedded": ("EmbeddedMetrics",),
            "kinesis_sdk.metrics.prometheus": ("PrometheusMetrics",),
            "kinesis_sdk.metrics.opentelemetry": ("OpenTelemetryMetrics",),
            "kinesis_sdk.metrics.memory": ("MemoryMetrics",),
            # building blocks for sinks
            "kinesis_sdk.metrics.accumulator": ("Accumulator", "CustomDimension", "Series", "Statistics"),
        },
    )
