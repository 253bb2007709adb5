"""Percentiles of measured times."""

from __future__ import annotations

from collections.abc import Sequence


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p90, p99 and max by nearest rank, in the unit of the values; zeros without values."""
    ordered = sorted(values)
    if not ordered:
        return {"p50": 0.0, "p90": 0.0, "p99": 0.0, "max": 0.0}
    last = len(ordered) - 1
    picks = {"p50": 0.50, "p90": 0.90, "p99": 0.99, "max": 1.0}
    return {name: ordered[min(last, int(share * len(ordered)))] for name, share in picks.items()}
