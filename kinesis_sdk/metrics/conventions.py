"""Names, base units and histogram buckets of metrics in Prometheus and OpenTelemetry."""

from __future__ import annotations

from kinesis_sdk.common.metrics import Kind, Metric

_SCALES = {
    "Seconds": (1.0, "seconds", "s"),
    "Milliseconds": (1e-3, "seconds", "s"),
    "Microseconds": (1e-6, "seconds", "s"),
    "Bytes": (1.0, "bytes", "By"),
    "Kilobytes": (1e3, "bytes", "By"),
    "Megabytes": (1e6, "bytes", "By"),
    "Gigabytes": (1e9, "bytes", "By"),
    "Percent": (1e-2, "ratio", "1"),
}

TIMING_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the histogram buckets in seconds, from a request in the same zone to a slow batch."""


def base_unit(unit: str) -> tuple[float, str, str]:
    """Return the factor to a CloudWatch unit's base unit, the base unit in Prometheus names, and its UCUM code.

    The name is empty for plain numbers; the code is for OpenTelemetry.
    """
    return _SCALES.get(unit, (1.0, "", "1"))


def prometheus_name(metric: Metric, prefix: str) -> str:
    """Return the name of a metric family: with the base unit, without suffixes of samples such as ``_total``."""
    suffix = base_unit(metric.unit)[1]
    name = f"{prefix}_{metric.snake_name}"
    return name if not suffix or name.endswith(f"_{suffix}") else f"{name}_{suffix}"


def prometheus_sample(metric: Metric, prefix: str) -> str:
    """Return the name for queries: with ``_total`` for counters, the base name for histograms and summaries."""
    counts = metric.kind in (Kind.COUNTER, Kind.OUTCOME)
    return prometheus_name(metric, prefix) + ("_total" if counts else "")


def opentelemetry_name(metric: Metric, prefix: str) -> str:
    """Return the name of an instrument. A distribution has two instruments, with the suffixes ``.sum`` and ``.count``."""
    return f"{prefix}.{metric.snake_name}"
