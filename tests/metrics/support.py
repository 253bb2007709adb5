"""Observations by name, unit and plain dimensions, for the tests of sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kinesis_sdk.common.catalogue import CATALOGUE
from kinesis_sdk.common.metrics import OPERATION, Kind, Metric, Scope

_CATALOGUE = {(metric.name, metric.unit): metric for metric in CATALOGUE}
_METRICS: dict[tuple[str, str], Metric] = {}
_SCOPES: dict[Any, Scope] = {}


def metric_of(name: str, unit: str, *dimensions: str) -> Metric:
    """A metric as in the catalogue, or a made-up distribution; the dimensions are the test's."""
    metric = _METRICS.get((name, unit))
    if metric is None:
        found = _CATALOGUE.get((name, unit))
        if found is None:
            found = Metric(name=name, unit=unit, kind=Kind.DISTRIBUTION, description=name)
        metric = _METRICS[name, unit] = replace(found, dimensions=(), optional=())
    object.__setattr__(metric, "optional", tuple({*metric.optional, *dimensions}))
    return metric


def scope_of(dimensions: Mapping[str, str]) -> Scope:
    """One scope for equal dimensions, in whatever order; the operation belongs to the metric."""
    pairs = tuple(sorted(pair for pair in dimensions.items() if pair[0] != OPERATION))
    return _SCOPES.setdefault(pairs, Scope(dict(pairs)))


def add(sink: Any, name: str, value: float, unit: str, dimensions: Mapping[str, str]) -> Any:
    """One observation."""
    return sink.add(metric_of(name, unit, *dimensions), scope_of(dimensions), value)


def add_statistics(
    sink: Any,
    name: str,
    count: int,
    total: float,
    low: float,
    high: float,
    unit: str,
    dimensions: Mapping[str, str],
) -> Any:
    """Several observations."""
    return sink.add(metric_of(name, unit, *dimensions), scope_of(dimensions), total, count, low, high)
