"""Metrics sinks for producer and consumer: CloudWatch, Prometheus, OpenTelemetry, memory.

    metrics = CloudWatchMetrics(region_name="eu-west-1", level="summary", granularity="stream")
    with metrics, Producer(metrics=metrics) as producer:
        ...

All sinks have the interface `kinesis_sdk.common.metrics.Metrics`. ``CATALOGUE`` defines every metric: name, unit, kind,
level, dimensions and meaning; ``docs/metrics.md`` is generated from it. Everything is loaded on first use.
``prometheus_client`` and ``opentelemetry`` are extras of the distribution.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.common.catalogue import CATALOGUE
    from kinesis_sdk.common.metrics import Kind, Metric, Metrics, NoMetrics, Scope
    from kinesis_sdk.metrics.accumulator import Accumulator, CustomDimension, Series, Statistics
    from kinesis_sdk.metrics.cloudwatch import CloudWatchMetrics
    from kinesis_sdk.metrics.memory import MemoryMetrics
    from kinesis_sdk.metrics.opentelemetry import OpenTelemetryMetrics
    from kinesis_sdk.metrics.prometheus import PrometheusMetrics

_HOMES = {
    "kinesis_sdk.common.catalogue": ("CATALOGUE",),
    "kinesis_sdk.common.metrics": ("Kind", "Metric", "Metrics", "NoMetrics", "Scope"),
    "kinesis_sdk.metrics.accumulator": ("Accumulator", "CustomDimension", "Series", "Statistics"),
    "kinesis_sdk.metrics.cloudwatch": ("CloudWatchMetrics",),
    "kinesis_sdk.metrics.memory": ("MemoryMetrics",),
    "kinesis_sdk.metrics.opentelemetry": ("OpenTelemetryMetrics",),
    "kinesis_sdk.metrics.prometheus": ("PrometheusMetrics",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    # the interface, and the types in it
    "CATALOGUE",
    "Kind",
    "Metric",
    "Metrics",
    "NoMetrics",
    "Scope",
    # sinks
    "CloudWatchMetrics",
    "MemoryMetrics",
    "OpenTelemetryMetrics",
    "PrometheusMetrics",
    # building blocks for sinks
    "Accumulator",
    "CustomDimension",
    "Series",
    "Statistics",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
