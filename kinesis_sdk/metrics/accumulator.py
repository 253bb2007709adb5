"""Statistic sets: sums of observations, in the form of CloudWatch, the KPL and the KCL.

An observation costs one dictionary look-up and four numbers; sums over shards and streams are computed only when the
statistics are read. A metric exists at every level of its dimension path, as in the KPL:

```
MetricName ─► [ErrorCode] ─► StreamName ─► ShardId         MetricName ─► WorkerIdentifier
```
Two streams with two shards each therefore have seven metrics of one name (KPL metrics.md). Dimensions that are not on
this path (``Operation``, ``ApplicationName``, account and region of a stream) exist at every level. A custom dimension
follows its level, and multiplies the levels below it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.metrics import (
    DIMENSIONS,
    ERROR_CODE,
    OPERATION,
    SHARD_ID,
    STREAM_NAME,
    WORKER_IDENTIFIER,
    Kind,
    Metric,
    Scope,
)
from kinesis_sdk.common.validation import check_choice, check_int, check_text
from kinesis_sdk.metrics.conventions import base_unit

Level: TypeAlias = Literal["none", "summary", "detailed"]
Granularity: TypeAlias = Literal["global", "stream", "shard"]
Pairs: TypeAlias = tuple[tuple[str, str], ...]

LEVELS = ("none", "summary", "detailed")
GRANULARITIES = ("global", "stream", "shard")

_PATH = (ERROR_CODE, STREAM_NAME, SHARD_ID, WORKER_IDENTIFIER)

MAX_MAGNITUDE = 2.0**360
"""CloudWatch rejects larger values, and NaN (PutMetricData, API reference)."""

_LOWEST = -MAX_MAGNITUDE

MAX_DIMENSIONS = 30
"""Maximum dimensions of a CloudWatch metric (PutMetricData, API reference)."""

MAX_CUSTOM_DIMENSIONS = MAX_DIMENSIONS - 6
"""Maximum custom dimensions, because a shard's metrics have up to six other dimensions (operation, application,
account, region, stream, shard)."""

MAX_SERIES = 20_000
"""Default maximum number of series in an accumulator; about 600 bytes each."""

_Owner: TypeAlias = "Scope | Pairs"
"""Owner of a cell: a scope, or its dimensions alone after its retirement."""


class Statistics(NamedTuple):
    """Statistics of a number of observations, in the unit of the metric.

    Attributes:
        samples: Number of observations.
        total: Sum of the observations.
        low: Smallest observation.
        high: Largest observation.
        last: Newest observation; meaningful only for gauges. For several shards or workers, the sum or the maximum of
            their newest observations, according to `Metric.rollup`.
        buckets: Number of observations in each bucket of a histogram; empty if the sink has no histograms.
    """

    samples: float
    total: float
    low: float
    high: float
    last: float
    buckets: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        """Mean of the observations."""
        return self.total / self.samples

    def merged(self, newer: Statistics) -> Statistics:
        """Combine two statistics of the same component; the argument is newer."""
        return self._with(newer, newer.last)

    def beside(self, other: Statistics, metric: Metric) -> Statistics:
        """Combine statistics that different shards or workers recorded at the same time."""
        if metric.kind is not Kind.GAUGE:
            return self._with(other, other.last)
        return self._with(
            other, self.last + other.last if metric.rollup == "sum" else max(self.last, other.last)
        )

    def _with(self, other: Statistics, last: float) -> Statistics:
        return Statistics(
            self.samples + other.samples,
            self.total + other.total,
            min(self.low, other.low),
            max(self.high, other.high),
            last,
            tuple(map(sum, zip(self.buckets, other.buckets, strict=True))),
        )


class Series(NamedTuple):
    """Identity of a metric at one level of its dimension path.

    Attributes:
        name: Metric name.
        unit: CloudWatch unit.
        dimensions: (name, value) pairs in the order of the dimension path.
    """

    name: str
    unit: str
    dimensions: Pairs


class CustomDimension(NamedTuple):
    """Dimension that the user adds, for example the host name.

    Attributes:
        name: 1 to 255 characters.
        value: 1 to 255 characters.
        granularity: Position on the dimension path: after the metric name (``global``: every level below exists for each
            value), after the stream name (``stream``), or after the shard id (``shard``).
    """

    name: str
    value: str
    granularity: Granularity = "global"


def levels_of(
    dimensions: Iterable[tuple[str, str]],
    granularity: Granularity,
    custom: Mapping[str, Pairs] | None = None,
) -> Iterator[Pairs]:
    """Yield every level of a metric's dimension path, the broadest first.

    Blank values count as absent, because CloudWatch rejects them. ``global`` stops before the stream name, ``stream`` before
    the shard id.
    """
    custom = custom or {}
    given = {name: value for name, value in dimensions if value.strip()}
    path: Pairs = tuple(sorted(pair for pair in given.items() if pair[0] not in _PATH))
    yield path
    for pair in custom.get("global", ()):
        path = (*path, pair)
        yield path
    depth = GRANULARITIES.index(granularity)
    for name, needed, behind in (
        (ERROR_CODE, 0, ""),
        (STREAM_NAME, 1, "stream"),
        (SHARD_ID, 2, "shard"),
        (WORKER_IDENTIFIER, 2, "shard"),
    ):
        if name not in given:
            continue
        if needed > depth:
            return
        path = (*path, (name, given[name]))
        yield path
        for pair in custom.get(behind, ()):
            path = (*path, pair)
            yield path


class Accumulator:
    """Sums of observations, kept until they are drained. Thread-safe; `add` accepts any number without raising.

    Args:
        level: ``none`` accepts nothing, ``summary`` only metrics of that level, ``detailed`` everything.
        granularity: Deepest level of `drain` and `read`: ``global``, ``stream`` or ``shard`` (and worker).
        custom_dimensions: Dimensions that the user adds, in the order in which they appear on the path.
        max_series: Maximum number of series between two drains, at least 1. Observations of further series are rejected
            and counted.
        bounds: Upper bounds of the histogram buckets for durations, in seconds, ascending; no histograms by default.

    Raises:
        ConfigError: If an argument is out of range.
    """

    __slots__ = (
        "_bounds",
        "_cells",
        "_custom",
        "_granularity",
        "_lock",
        "_max_series",
        "_off",
        "_rejected",
        "_summary_only",
    )

    def __init__(
        self,
        level: Level = "detailed",
        granularity: Granularity = "shard",
        custom_dimensions: Iterable[CustomDimension] = (),
        max_series: int = MAX_SERIES,
        *,
        bounds: Sequence[float] = (),
    ) -> None:
        check_choice("level", level, LEVELS)
        check_choice("granularity", granularity, GRANULARITIES)
        check_int("max_series", max_series, 1)
        self._off = level == "none"
        self._summary_only = level == "summary"
        self._granularity: Granularity = granularity
        self._custom = _by_granularity(custom_dimensions)
        self._max_series = max_series
        self._bounds = tuple(bounds)
        self._lock = threading.Lock()
        # A cell is [samples, total, low, high, last, bucket, bucket …].
        self._cells: dict[tuple[Metric, _Owner], list[float]] = {}
        self._rejected = 0

    def add(
        self,
        metric: Metric,
        scope: Scope,
        total: float,
        count: int = 1,
        low: float | None = None,
        high: float | None = None,
    ) -> bool:
        """Add one observation, or several; see `kinesis_sdk.common.metrics.Metrics.add`.

        NaN, infinity and numbers beyond 2^360 are rejected and counted.

        Returns:
            True if it was added; False if the level excludes it, or if it was rejected.

        Raises:
            ValueError: If the scope does not have the dimensions of the metric.
        """
        if self._off or count < 1 or (self._summary_only and metric.level != "summary"):
            return False
        if low is None or high is None:
            low = high = total if count == 1 else total / count
        with self._lock:
            cell = self._cells.get((metric, scope))
            if cell is None or not (
                _LOWEST <= low <= high <= MAX_MAGNITUDE and _LOWEST <= total <= MAX_MAGNITUDE
            ):
                cell = self._new_cell(metric, scope, total, low, high)
                if cell is None:
                    return False
            cell[0] += count
            cell[1] += total
            cell[2] = min(cell[2], low)
            cell[3] = max(cell[3], high)
            cell[4] = high
            if len(cell) > _BUCKETS_AT:
                seconds = total / count * base_unit(metric.unit)[0]
                cell[_BUCKETS_AT + bisect_left(self._bounds, seconds)] += count
        return True

    def takes(self, metric: Metric) -> bool:
        """Return whether the level includes a metric."""
        return not self._off and not (self._summary_only and metric.level != "summary")

    def retire(self, scope: Scope) -> None:
        """Drop the gauges of a scope, and keep its counts under its dimensions."""
        with self._lock:
            for key in [key for key in self._cells if key[1] is scope]:
                cell = self._cells.pop(key)
                if key[0].kind is not Kind.GAUGE:
                    self._fold(key[0], scope, cell)

    def leaf_of(self, metric: Metric, scope: Scope) -> Pairs:
        """Return the dimensions of an observation's deepest level."""
        *_, deepest = self._levels(metric, scope)
        return deepest

    def drain(self) -> tuple[dict[Series, Statistics], int]:
        """Remove and return all statistics, split by granularity.

        Returns:
            Statistics by series, and the number of observations that were rejected since the last drain: they were not finite,
            or there were too many series.
        """
        cells, rejected = self._take()
        return self._series(cells.items()), rejected

    def drain_leaves(self) -> tuple[dict[tuple[Pairs, ...], dict[Metric, Statistics]], int]:
        """Remove and return the statistics of the deepest levels.

        Returns:
            Statistics by metric, by all levels of their dimensions (the deepest last), and the number that `drain` returns.
        """
        cells, rejected = self._take()
        result: dict[tuple[Pairs, ...], dict[Metric, Statistics]] = {}
        for metric, levels, statistics in self._split(cells.items()):
            _merge(result.setdefault(tuple(levels), {}), metric, metric, statistics)
        return result, rejected

    def _take(self) -> tuple[dict[tuple[Metric, _Owner], list[float]], int]:
        with self._lock:
            cells, self._cells = self._cells, {}
            rejected, self._rejected = self._rejected, 0
        return cells, rejected

    def read(self) -> dict[Series, Statistics]:
        """Return all statistics, split by granularity, without removing them."""
        return self._series(self._copy())

    def read_leaves(self, only: Metric | None = None) -> dict[Metric, dict[Pairs, Statistics]]:
        """Return the statistics of the deepest level, for systems that compute the broader levels themselves.

        Args:
            only: Metric to return; all if None.
        """
        result: dict[Metric, dict[Pairs, Statistics]] = {}
        for metric, levels, statistics in self._split(self._copy(only)):
            _merge(result.setdefault(metric, {}), levels[-1], metric, statistics)
        return result

    @property
    def rejected(self) -> int:
        """Number of observations that were rejected since the last drain."""
        return self._rejected

    def reset_lock(self) -> None:
        """Forget all statistics and the holder of the lock. For forked children."""
        self._lock = threading.Lock()
        self._cells = {}
        self._rejected = 0

    def _new_cell(
        self, metric: Metric, scope: Scope, total: float, low: float, high: float
    ) -> list[float] | None:
        """Return the cell of a new series; None if the observation must not be recorded. Requires the lock."""
        metric.check(scope)
        owner: _Owner = scope
        if scope.retired:
            if metric.kind is Kind.GAUGE:
                return None  # the call was in progress when its component ended
            owner = _pairs(scope)
        usable = _LOWEST <= low <= high <= MAX_MAGNITUDE and _LOWEST <= total <= MAX_MAGNITUDE
        known = self._cells.get((metric, owner))
        if usable and known is not None:
            return known
        if not usable or len(self._cells) >= self._max_series:
            self._rejected += 1
            return None
        buckets = [0.0] * (len(self._bounds) + 1) if self._bounds and metric.kind is Kind.TIMING else []
        cell = self._cells[metric, owner] = [0, 0, low, high, high, *buckets]
        return cell

    def _fold(self, metric: Metric, scope: Scope, cell: list[float]) -> None:
        key = (metric, _pairs(scope))
        known = self._cells.get(key)
        if known is None:
            self._cells[key] = cell
        else:
            both = _statistics(known).merged(_statistics(cell))
            self._cells[key] = [both.samples, both.total, both.low, both.high, both.last, *both.buckets]

    def _copy(self, only: Metric | None = None) -> list[tuple[tuple[Metric, _Owner], list[float]]]:
        with self._lock:
            return [(key, cell.copy()) for key, cell in self._cells.items() if only is None or key[0] is only]

    def _levels(self, metric: Metric, owner: _Owner) -> list[Pairs]:
        pairs = _pairs(owner) if isinstance(owner, Scope) else owner
        if metric.operation:
            pairs = ((OPERATION, metric.operation), *pairs)
        return list(levels_of(pairs, self._granularity, self._custom))

    def _split(
        self, cells: Iterable[tuple[tuple[Metric, _Owner], list[float]]]
    ) -> Iterator[tuple[Metric, list[Pairs], Statistics]]:
        known: dict[tuple[str, _Owner], list[Pairs]] = {}  # shared by the metrics of a shard
        for (metric, owner), cell in cells:
            levels = known.get((metric.operation, owner))
            if levels is None:
                levels = known[metric.operation, owner] = self._levels(metric, owner)
            yield metric, levels, _statistics(cell)

    def _series(self, cells: Iterable[tuple[tuple[Metric, _Owner], list[float]]]) -> dict[Series, Statistics]:
        result: dict[Series, Statistics] = {}
        for metric, levels, statistics in self._split(cells):
            for level in levels:
                _merge(result, Series(metric.name, metric.unit, level), metric, statistics)
        return result


class AccumulatingSink:
    """Metrics sink on top of an `Accumulator`: the common part of the sinks that are read on request."""

    def __init__(self, accumulator: Accumulator) -> None:
        self._accumulator = accumulator

    def add(
        self,
        metric: Metric,
        scope: Scope,
        total: float,
        count: int = 1,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        """Record observations; see `kinesis_sdk.common.metrics.Metrics.add`."""
        self._accumulator.add(metric, scope, total, count, low, high)

    def retire(self, scope: Scope) -> None:
        """Drop the gauges of a scope; counts remain."""
        self._accumulator.retire(scope)


_BUCKETS_AT = 5
"""Index of the first bucket in a cell."""


def _statistics(cell: list[float]) -> Statistics:
    return Statistics(*cell[:_BUCKETS_AT], tuple(cell[_BUCKETS_AT:]))  # type: ignore[call-arg, arg-type]


def _pairs(scope: Scope) -> Pairs:
    return tuple(sorted(scope.dimensions.items()))


_Key = TypeVar("_Key")


def _merge(into: dict[_Key, Statistics], key: _Key, metric: Metric, statistics: Statistics) -> None:
    known = into.get(key)
    into[key] = known.beside(statistics, metric) if known else statistics


def _by_granularity(dimensions: Iterable[CustomDimension]) -> dict[str, Pairs]:
    result: dict[str, Pairs] = {}
    names = set(DIMENSIONS)
    for dimension in dimensions:
        check_text("custom_dimensions name", dimension.name, 1, 255)
        check_text("custom_dimensions value", dimension.value, 1, 255)
        check_choice("custom_dimensions granularity", dimension.granularity, GRANULARITIES)
        if dimension.name in names:
            raise ConfigError(
                "custom_dimensions", dimension.name, "unique names other than " + ", ".join(DIMENSIONS)
            )
        names.add(dimension.name)
        result[dimension.granularity] = (
            *result.get(dimension.granularity, ()),
            (dimension.name, dimension.value),
        )
    if len(names) - len(DIMENSIONS) > MAX_CUSTOM_DIMENSIONS:
        raise ConfigError(
            "custom_dimensions", len(names) - len(DIMENSIONS), f"at most {MAX_CUSTOM_DIMENSIONS}"
        )
    return result
