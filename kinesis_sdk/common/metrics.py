"""Metrics: what a metric is, under which dimensions it is recorded, and the interface of the sinks that take it.

A `Metric` is a constant of the catalogue (`kinesis_sdk.common.catalogue`). A `Scope` holds the dimensions of the
component that records: one per stream and shard of a producer, one per shard consumer, one per worker. A sink gets both
with every observation, so it never has to guess what a name means or to which stream a shard belongs.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Literal, Protocol

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.stream import StreamId

_LOGGER = logging.getLogger(__name__)

OPERATION = "Operation"
"""Dimension that names the task of the KCL to which a metric belongs; a property of the metric."""

APPLICATION_NAME = "ApplicationName"
WORKER_IDENTIFIER = "WorkerIdentifier"
STREAM_NAME = "StreamName"
SHARD_ID = "ShardId"
ERROR_CODE = "ErrorCode"
ACCOUNT_ID = "AccountId"
REGION = "Region"

DIMENSIONS = (
    OPERATION,
    APPLICATION_NAME,
    WORKER_IDENTIFIER,
    STREAM_NAME,
    SHARD_ID,
    ERROR_CODE,
    ACCOUNT_ID,
    REGION,
)
"""All dimensions of the SDK's metrics."""

_PART_OF_STREAM = frozenset({ACCOUNT_ID, REGION})
"""Dimensions of a stream that was named by its ARN: they come with `STREAM_NAME`."""

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_WORD = re.compile(r"[^0-9A-Za-z]+")


class Kind(Enum):
    """What the observations of a metric are."""

    COUNTER = "counter"
    """Amounts to be summed up."""

    OUTCOME = "outcome"
    """One for each success, zero for each failure."""

    GAUGE = "gauge"
    """Samples of a state: the newest counts, until the component that records them retires."""

    TIMING = "timing"
    """Durations that come one at a time: a histogram."""

    DISTRIBUTION = "distribution"
    """Anything else: the number of observations, and their sum."""


def snake_case(name: str) -> str:
    """``UserRecordsPut`` → ``user_records_put``, ``RenewLease.Time`` → ``renew_lease_time``."""
    return _NO_WORD.sub("_", _WORD.sub("_", name)).strip("_").lower() or "unnamed"


@dataclass(frozen=True, eq=False, kw_only=True)
class Metric:
    """One metric of the catalogue. Compared by identity.

    Attributes:
        name: Name in CloudWatch; the KPL's or KCL's where they have the metric.
        unit: CloudWatch unit: ``Count``, ``Bytes``, ``Milliseconds``.
        kind: What its observations are.
        level: Lowest level of a sink at which it is recorded.
        dimensions: Dimensions that it always comes with.
        optional: Dimensions that it comes with where they are known.
        description: One sentence.
        operation: The KCL's ``Operation`` dimension; empty for the producer's metrics.
        short_name: Name in snake case without the unit, where it does not follow from ``name``.
        rollup: Of a gauge: how its values at several shards or workers make the one of a broader level.
    """

    name: str
    unit: str
    kind: Kind
    description: str
    level: Literal["summary", "detailed"] = "detailed"
    dimensions: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    operation: str = ""
    short_name: str = ""
    rollup: Literal["sum", "max"] = "max"

    @property
    def snake_name(self) -> str:
        """Name for systems that write names in snake case, without prefix and unit."""
        return self.short_name or snake_case(self.name)

    def check(self, scope: Scope) -> None:
        """Check that the dimensions of a scope are this metric's.

        Raises:
            ValueError: One is missing, or not in the catalogue. That is a defect of the caller.
        """
        names = scope.dimensions.keys()
        extra = names - {*self.dimensions, *self.optional, *(_PART_OF_STREAM if STREAM_NAME in names else ())}
        missing = [name for name in self.dimensions if name not in names]
        if extra or missing:
            raise ValueError(
                f"metric {self.name} has the dimensions {', '.join(self.dimensions) or 'none'}"
                f"{' and perhaps ' + ', '.join(self.optional) if self.optional else ''}, not {', '.join(names) or 'none'}"
            )


class Scope:
    """The dimensions under which one component records. Compared by identity: two components are two scopes.

    Args:
        dimensions: Names and values, for example ``{"StreamName": "orders", "ShardId": "shardId-000000000000"}``.

    Attributes:
        dimensions: The same, read-only.
        retired: Whether the component has ended. Sinks drop its gauges, and take no further ones.
    """

    __slots__ = ("dimensions", "retired")

    def __init__(self, dimensions: Mapping[str, str]) -> None:
        self.dimensions: Mapping[str, str] = MappingProxyType(dict(dimensions))
        self.retired: bool = False

    def __repr__(self) -> str:
        return f"Scope({dict(self.dimensions)!r})"


def stream_dimensions(stream: StreamId) -> dict[str, str]:
    """The dimensions that name a stream.

    An ARN adds its account and region, because streams of the same name in two accounts are two streams. Of a stream
    that was given by name, the SDK knows neither: name streams of several regions by ARN, or use a sink for each.
    """
    dimensions = {STREAM_NAME: stream.name}
    if stream.account_id is not None and stream.region is not None:
        dimensions |= {ACCOUNT_ID: stream.account_id, REGION: stream.region}
    return dimensions


class Metrics(Protocol):
    """A sink for metrics. Implementations must be thread-safe and quick; they must not raise."""

    def add(
        self,
        metric: Metric,
        scope: Scope,
        total: float,
        count: int = 1,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        """Record one observation, or several at once.

        Args:
            metric: Which metric.
            scope: Who records it, with the dimensions. `Metric.operation` is one more dimension where it is set.
            total: The observation, or the sum of the observations, in ``metric.unit``.
            count: How many observations; there is nothing to record if it is not positive.
            low: The smallest of several; None if they are all the same.
            high: The largest of several; None if they are all the same.
        """
        ...

    def retire(self, scope: Scope) -> None:
        """End the gauges of a scope: its component does not hold the shard any longer, or has stopped.

        A sink that shows current values must not show those of this scope afterwards; counts stay. ``scope.retired``
        is True already. May be called from any thread, and more than once.
        """
        ...


class NoMetrics:
    """Discards everything; the default."""

    __slots__ = ()

    def add(
        self,
        metric: Metric,
        scope: Scope,
        total: float,
        count: int = 1,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        """Do nothing."""

    def retire(self, scope: Scope) -> None:
        """Do nothing."""


class SinkFailures:
    """Logs that a sink raised, which it must not do: less and less often, as it may do it for every record."""

    __slots__ = ("_count", "_lock")

    def __init__(self) -> None:
        self._count = 0
        self._lock = threading.Lock()

    def report(self, error: Exception) -> None:
        """Count the failure; log the first, second, fourth, eighth and so on."""
        with self._lock:
            self._count += 1
            count = self._count
        if count & (count - 1) == 0:
            _LOGGER.warning("metrics are lost: the sink raised, %d times so far", count, exc_info=error)


class BoundMetrics:
    """A sink together with the scope of one component. Thread-safe; a sink that raises is logged and costs nothing else.

    Args:
        sink: Where observations go.
        scope: The component's dimensions.
        failures: Shared by the components of a worker, so that a broken sink is not logged once per shard.

    Attributes:
        enabled: Whether anything is recorded at all.
        scope: The component's dimensions.
    """

    __slots__ = ("_failures", "_sink", "enabled", "scope")

    def __init__(self, sink: Metrics, scope: Scope, failures: SinkFailures | None = None) -> None:
        self.enabled = not isinstance(sink, NoMetrics)
        self.scope = scope
        self._sink = sink
        self._failures = failures or SinkFailures()

    def add(
        self,
        metric: Metric,
        total: float,
        count: int = 1,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        """Record one observation, or several at once; see `Metrics.add`."""
        if self.enabled:
            try:
                self._sink.add(metric, self.scope, total, count, low, high)
            except Exception as error:  # noqa: BLE001 - a broken sink must not cost a record
                self._failures.report(error)

    @contextmanager
    def timed(self, clock: Clock, time: Metric, success: Metric) -> Iterator[None]:
        """Record how long a call took, and whether it succeeded, that is: did not raise."""
        started = clock.monotonic()
        succeeded = 0
        try:
            yield
            succeeded = 1
        finally:
            self.add(time, (clock.monotonic() - started) * 1000)
            self.add(success, succeeded)

    def retire(self) -> None:
        """End the component's gauges; see `Metrics.retire`. May be called more than once."""
        if self.scope.retired or not self.enabled:
            return
        self.scope.retired = True
        try:
            self._sink.retire(self.scope)
        except Exception as error:  # noqa: BLE001 - as in add
            self._failures.report(error)


NOT_MEASURED = BoundMetrics(NoMetrics(), Scope({}))
"""For components without a metrics sink."""
