"""Where numbers go: one small interface, nothing behind it by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Metrics(Protocol):
    """A sink for metrics. Implementations must be thread-safe and quick; they must not raise."""

    def add(self, name: str, value: float, unit: str, dimensions: Mapping[str, str]) -> None:
        """Record one observation.

        Args:
            name: Metric name of the KPL or KCL, for example ``UserRecordsPut``.
            value: The observation.
            unit: CloudWatch unit: ``Count``, ``Bytes``, ``Milliseconds``.
            dimensions: For example ``{"StreamName": "orders", "ShardId": "shardId-000000000000"}``.
        """
        ...


class NoMetrics:
    """Discards everything; the default."""

    __slots__ = ()

    def add(self, name: str, value: float, unit: str, dimensions: Mapping[str, str]) -> None:
        """Do nothing."""
