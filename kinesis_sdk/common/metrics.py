"""Metrics: their definition, the dimensions under which they are recorded, and the interface of metrics sinks.

A `Metric` is a constant of the catalogue (`kinesis_sdk.common.catalogue`). A `Scope` holds the dimensions of the
component that records: there is one scope per stream and shard of a producer, per shard consumer, and per worker. A sink gets metric
and scope with every observation, so it never has to guess the meaning of a name, or the stream of a shard.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Literal, Protocol

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.log_throttle import CountingLogThrottle
from kinesis_sdk.common.stream import StreamId

_LOGGER = FieldLogger(logging.getLogger(__name__))

OPERATION = "Operation"
"""Dimension that names the KCL task of a metric; it is a property of the metric."""

APPLICATION_NAME = "ApplicationName"
"""Dimension with the name of the application, which all metrics of consumers have."""
WORKER_IDENTIFIER = "WorkerIdentifier"
STREAM_NAME = "StreamName"
"""Dimension with the name of the stream."""
SHARD_ID = "ShardId"
"""Dimension with the id of the shard."""
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
"""Dimensions of a stream that was given by its ARN, in addition to `STREAM_NAME`."""

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_WORD = re.compile(r"[^0-9A-Za-z]+")


class Kind(Enum):
    """Kind of observations of a metric."""

    COUNTER = "counter"
    """Amounts, to be added up."""

    OUTCOME = "outcome"
    """1 for each success, 0 for each failure."""

    GAUGE = "gauge"
    """Samples of a state: the newest sample is current until the component that records it retires."""

    TIMING = "timing"
    """Durations that are recorded singly; sinks may keep a histogram."""

    DISTRIBUTION = "distribution"
    """Any other quantity: the number of observations and their sum are of interest."""


def snake_case(name: str) -> str:
    """Return a name in snake case: ``user_records_put`` for ``UserRecordsPut``, ``renew_lease_time`` for ``RenewLease.Time``."""
    return _NO_WORD.sub("_", _WORD.sub("_", name)).strip("_").lower() or "unnamed"


@dataclass(frozen=True, eq=False, kw_only=True)
class Metric:
    """One metric of the catalogue. Compared by identity.

    Attributes:
        name: Name in CloudWatch; the KPL's or the KCL's if they have the metric.
        unit: CloudWatch unit: ``Count``, ``Bytes``, ``Milliseconds``.
        kind: Kind of its observations.
        level: Lowest level of a sink at which the metric is recorded.
        dimensions: Dimensions that the metric always has.
        optional: Dimensions that the metric has if they are known.
        description: One sentence.
        operation: The KCL's ``Operation`` dimension; empty for the producer's metrics.
        short_name: Name in snake case without the unit; empty if it follows from ``name``.
        rollup: For a gauge: how the values of several shards or workers are combined for a broader level.
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
        """Name in snake case, without prefix and unit."""
        return self.short_name or snake_case(self.name)

    def check(self, scope: Scope) -> None:
        """Check that a scope has the dimensions of this metric.

        Raises:
            ValueError: If a dimension is missing or unexpected, which is a defect of the caller.
        """
        names = scope.dimensions.keys()
        extra = names - {*self.dimensions, *self.optional, *(_PART_OF_STREAM if STREAM_NAME in names else ())}
        missing = [name for name in self.dimensions if name not in names]
        if extra or missing:
            raise ValueError(
                f"metric {self.name} has the dimensions {', '.join(self.dimensions) or 'none'}"
                f"{' and optionally ' + ', '.join(self.optional) if self.optional else ''}, not {', '.join(names) or 'none'}"
            )


class Scope:
    """Dimensions under which one component records. Scopes are compared by identity: two components have two scopes.

    Args:
        dimensions: Names and values, for example ``{"StreamName": "orders", "ShardId": "shardId-000000000000"}``.

    Attributes:
        dimensions: As the argument, read-only.
        retired: Whether the component has ended. Sinks drop the gauges of a retired scope, and ignore its later gauges.
    """

    __slots__ = ("dimensions", "retired")

    def __init__(self, dimensions: Mapping[str, str]) -> None:
        self.dimensions: Mapping[str, str] = MappingProxyType(dict(dimensions))
        self.retired: bool = False

    def __repr__(self) -> str:
        return f"Scope({dict(self.dimensions)!r})"


def stream_dimensions(stream: StreamId) -> dict[str, str]:
    """Return the dimensions that name a stream: for an ARN also account and region, which distinguish streams of one name.

    Account and region are unknown for a stream that is given by name: use ARNs for streams of several regions, or one sink per region.
    """
    dimensions = {STREAM_NAME: stream.name}
    if stream.account_id is not None and stream.region is not None:
        dimensions |= {ACCOUNT_ID: stream.account_id, REGION: stream.region}
    return dimensions


class Metrics(Protocol):
    """A sink for metrics. Implementations must be thread-safe and fast, and must not raise."""

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
            metric: Metric from the catalogue.
            scope: Dimensions of the component that records it. `Metric.operation` is a further dimension if it is set.
            total: The observation, or the sum of the observations, in ``metric.unit``.
            count: Number of observations; nothing is recorded if it is less than 1.
            low: Smallest of several observations; None if all are equal.
            high: Largest of several observations; None if all are equal.
        """
        ...

    def retire(self, scope: Scope) -> None:
        """End the gauges of a scope, because its component no longer holds the shard, or has stopped.

        From then on, a sink that shows current values must not show values of this scope; counts remain. ``scope.retired`` is
        already True. May be called from any thread, and more than once.
        """
        ...


class NoMetrics:
    """Metrics sink that discards everything; the default."""

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
    """Log of errors that a sink raised. The log is throttled, because a broken sink may raise an error for every record."""

    __slots__ = ("_throttle",)

    def __init__(self) -> None:
        self._throttle = CountingLogThrottle(_LOGGER)

    def report(self, error: Exception) -> None:
        """Log an error of the sink, unless the line is throttled."""
        self._throttle.log("metrics sink raised, observation lost (%d times so far)", error=error)


class BoundMetrics:
    """A sink together with the scope of one component. Thread-safe. Errors of the sink are logged and have no other effect.

    Args:
        sink: Metrics sink.
        scope: Dimensions of the component.
        failures: Log of the sink's errors, which the components of a worker share, so a broken sink is not logged for each shard. None
            creates one.

    Attributes:
        enabled: Whether observations are recorded; False with `NoMetrics`.
        scope: Dimensions of the component.
    """

    __slots__ = ("_failures", "_sink", "enabled", "scope")

    def __init__(self, sink: Metrics, scope: Scope, failures: SinkFailures | None = None) -> None:
        self.enabled: bool = not isinstance(sink, NoMetrics)
        self.scope: Scope = scope
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

    def timed(self, clock: Clock, time: Metric, success: Metric) -> _Timed:
        """Record the duration of a block in milliseconds, and whether it succeeded, that is, did not raise an error."""
        return _Timed(self, clock, time, success)

    def retire(self) -> None:
        """End the component's gauges; see `Metrics.retire`. May be called more than once."""
        if self.scope.retired or not self.enabled:
            return
        self.scope.retired = True
        try:
            self._sink.retire(self.scope)
        except Exception as error:  # noqa: BLE001 - as in add
            self._failures.report(error)


class _Timed:
    """Block of `BoundMetrics.timed`."""

    __slots__ = ("_clock", "_metrics", "_started", "_success", "_time")

    def __init__(self, metrics: BoundMetrics, clock: Clock, time: Metric, success: Metric) -> None:
        self._metrics = metrics
        self._clock = clock
        self._time = time
        self._success = success

    def __enter__(self) -> None:
        self._started = self._clock.monotonic()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._metrics.add(self._time, (self._clock.monotonic() - self._started) * 1000)
        self._metrics.add(self._success, int(error is None))


NOT_MEASURED = BoundMetrics(NoMetrics(), Scope({}))
"""For components without a metrics sink."""
