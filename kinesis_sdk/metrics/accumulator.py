"""Statistic sets: what CloudWatch, the KPL and the KCL make of single observations.

An observation costs one dictionary look-up and four numbers; sums over shards and streams are made only when
somebody reads. A metric exists at every level of its dimension path, as in the KPL:

```
MetricName ─► [ErrorCode] ─► StreamName ─► ShardId
```
so two streams with two shards each make seven metrics of one name (KPL metrics.md). Dimensions that are not on
this path (``Operation`` and ``WorkerIdentifier`` of the KCL) belong to the metric itself: it has them at every
level. Custom dimensions stand behind the level that they are given for, and multiply what is below it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.validation import check_choice, check_int, check_text

Level: TypeAlias = Literal["none", "summary", "detailed"]
Granularity: TypeAlias = Literal["global", "stream", "shard"]
Pairs: TypeAlias = tuple[tuple[str, str], ...]

LEVELS = ("none", "summary", "detailed")
GRANULARITIES = ("global", "stream", "shard")

ERROR_CODE = "ErrorCode"
STREAM_NAME = "StreamName"
SHARD_ID = "ShardId"
_PATH = (ERROR_CODE, STREAM_NAME, SHARD_ID)

MAX_MAGNITUDE = 2.0**360
"""CloudWatch refuses values beyond it, and NaN (PutMetricData, API reference)."""

_LOWEST = -MAX_MAGNITUDE

MAX_DIMENSIONS = 30
"""Most dimensions of a CloudWatch metric (PutMetricData, API reference)."""

MAX_SERIES = 20_000
"""Default bound on what an accumulator tells apart; about 600 bytes each."""

SUMMARY_METRICS = frozenset(
    {
        # KPL (metrics_constants.cc): everything else of it is detailed.
        "UserRecordsPut",
        "KinesisRecordsPut",
        "ErrorsByCode",
        "AllErrors",
        "UserRecordExpired",
        "BufferingTime",
        # KCL: what it emits at its SUMMARY level.
        "RecordsProcessed",
        "DataBytesProcessed",
        "MillisBehindLatest",
        "RecordProcessor.processRecords.Time",
        "RecordProcessor.initialize.Time",
        "RecordProcessor.shutdown.Time",
        "KinesisDataFetcher.getRecords.Success",
        "KinesisDataFetcher.getRecords.Time",
        "ExpiredIterator",
        "Success",
        "Time",
        "TakenLeases",
        "UntakenLeases",
        "ExpiredLeases",
        "LeaseSpillover",
        "NumWorkers",
        "VeryOldLeases",
        "CurrentLeases",
        "LostLeases",
        # Ours: what somebody has to look at.
        "RecordsDeadLettered",
        "ShardQuarantined",
        "ShardStalled",
    }
)
"""Names that the level ``summary`` lets through; every other name is detailed."""


class Statistics(NamedTuple):
    """What is known about a number of observations.

    Attributes:
        samples: How many.
        total: Their sum.
        low: The smallest.
        high: The largest.
        last: The newest; only of interest for samples of a state.
    """

    samples: float
    total: float
    low: float
    high: float
    last: float

    @property
    def mean(self) -> float:
        """``total / samples``."""
        return self.total / self.samples

    def merged(self, newer: Statistics) -> Statistics:
        """Both as one."""
        return Statistics(
            self.samples + newer.samples,
            self.total + newer.total,
            min(self.low, newer.low),
            max(self.high, newer.high),
            newer.last,
        )


class Series(NamedTuple):
    """What tells one metric from another.

    Attributes:
        name: Metric name.
        unit: CloudWatch unit.
        dimensions: (name, value) pairs in the order of the dimension path.
    """

    name: str
    unit: str
    dimensions: Pairs


class CustomDimension(NamedTuple):
    """A dimension of the user's own, for example the host name.

    Attributes:
        name: 1 to 255 characters.
        value: 1 to 255 characters.
        granularity: Where it stands on the path: behind the metric name (``global``: every level below exists
            for each value), behind the stream name, or behind the shard id.
    """

    name: str
    value: str
    granularity: Granularity = "global"


def levels_of(
    dimensions: Iterable[tuple[str, str]],
    granularity: Granularity,
    custom: Mapping[str, Pairs] | None = None,
) -> Iterator[Pairs]:
    """Every level of a metric's dimension path, the broadest first.

    Args:
        dimensions: What an observation came with. Blank values count as absent, because CloudWatch refuses
            them.
        granularity: How deep to go: ``global`` stops before the stream name, ``stream`` before the shard id.
        custom: Custom dimensions by granularity.

    Yields:
        The dimensions of one level.
    """
    custom = custom or {}
    given = {name: value for name, value in dimensions if value.strip()}
    path: Pairs = tuple(sorted(pair for pair in given.items() if pair[0] not in _PATH))
    yield path
    for pair in custom.get("global", ()):
        path = (*path, pair)
        yield path
    depth = GRANULARITIES.index(granularity)
    for name, needed, behind in ((ERROR_CODE, 0, ""), (STREAM_NAME, 1, "stream"), (SHARD_ID, 2, "shard")):
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
    """Sums observations up until somebody takes them. Thread-safe; `add` never raises on any number.

    Args:
        level: ``none`` takes nothing, ``summary`` only `SUMMARY_METRICS`, ``detailed`` everything.
        granularity: How deep `drain` and `read` split: ``global``, ``stream`` or ``shard``.
        custom_dimensions: Dimensions of the user's own, in the order in which they are inserted.
        max_series: Most series told apart between two drains; observations of further ones are refused and
            counted. At least 1.

    Raises:
        ConfigError: An argument is out of its range.
    """

    __slots__ = ("_cells", "_custom", "_granularity", "_lock", "_max_series", "_names", "_off", "_refused")

    def __init__(
        self,
        level: Level = "detailed",
        granularity: Granularity = "shard",
        custom_dimensions: Iterable[CustomDimension] = (),
        max_series: int = MAX_SERIES,
    ) -> None:
        check_choice("level", level, LEVELS)
        check_choice("granularity", granularity, GRANULARITIES)
        check_int("max_series", max_series, 1)
        self._off = level == "none"
        self._names = SUMMARY_METRICS if level == "summary" else None
        self._granularity: Granularity = granularity
        self._custom = _by_granularity(custom_dimensions)
        self._max_series = max_series
        self._lock = threading.Lock()
        # Keyed by name, unit, the dimensions' names and then their values, as they come: making the key is most
        # of what an observation costs. Whether two keys are one series is for the reader to find out.
        self._cells: dict[tuple[str, ...], list[float]] = {}
        self._refused = 0

    def add(self, name: str, value: float, unit: str, dimensions: Mapping[str, str]) -> bool:
        """Take one observation.

        Args:
            name: Metric name.
            value: The observation. NaN, infinity and what is beyond 2^360 is refused and counted.
            unit: CloudWatch unit.
            dimensions: Names and values, in any order.

        Returns:
            Whether it counts: False if the level leaves it out, or it was refused.
        """
        if self._off or (self._names is not None and name not in self._names):
            return False
        key = (name, unit, *dimensions, *dimensions.values())
        with self._lock:
            cell = self._cells.get(key)
            if cell is None or not _LOWEST <= value <= MAX_MAGNITUDE:
                return self._take_new(key, 1, value, value, value)
            cell[0] += 1
            cell[1] += value
            if value < cell[2]:
                cell[2] = value
            elif value > cell[3]:
                cell[3] = value
            cell[4] = value
        return True

    def add_statistics(
        self,
        name: str,
        count: int,
        total: float,
        low: float,
        high: float,
        unit: str,
        dimensions: Mapping[str, str],
    ) -> bool:
        """Take many observations of one metric at once; none if ``count`` is not positive.

        Args:
            name: Metric name.
            count: How many.
            total: Their sum.
            low: The smallest.
            high: The largest.
            unit: CloudWatch unit.
            dimensions: Names and values, in any order.

        Returns:
            Whether they count.
        """
        if count < 1 or self._off or (self._names is not None and name not in self._names):
            return False
        key = (name, unit, *dimensions, *dimensions.values())
        with self._lock:
            cell = self._cells.get(key)
            if cell is None or not (
                _LOWEST <= low <= high <= MAX_MAGNITUDE and _LOWEST <= total <= MAX_MAGNITUDE
            ):
                return self._take_new(key, count, total, low, high)
            cell[0] += count
            cell[1] += total
            cell[2] = min(cell[2], low)
            cell[3] = max(cell[3], high)
            cell[4] = high
        return True

    def takes(self, name: str) -> bool:
        """Whether observations of this name count at this level."""
        return not self._off and (self._names is None or name in self._names)

    def leaf_of(self, name: str, unit: str, dimensions: Mapping[str, str]) -> Series:
        """The deepest level that an observation counts at."""
        *_, deepest = levels_of(dimensions.items(), self._granularity, self._custom)
        return Series(name, unit, deepest)

    def drain(self) -> tuple[dict[Series, Statistics], int]:
        """Take everything out, split by granularity.

        Returns:
            Statistics by series, and how many observations were refused since the last drain: not a finite
            number, or one series too many.
        """
        with self._lock:
            cells, self._cells = self._cells, {}
            refused, self._refused = self._refused, 0
        return self._rolled_up(cells.items()), refused

    def read(self) -> dict[Series, Statistics]:
        """Look at everything, split by granularity, without taking it out."""
        return self._rolled_up(self._copy())

    def read_leaves(self, name: str | None = None) -> dict[Series, Statistics]:
        """Look at everything as it came in, for systems that sum up themselves: the deepest level only.

        Args:
            name: Only this metric.
        """
        cells = self._copy()
        if name is not None:
            cells = [item for item in cells if item[0][0] == name]
        return self._rolled_up(cells, deepest_only=True)

    @property
    def refused(self) -> int:
        """Observations refused since the last drain."""
        return self._refused

    def reset_lock(self) -> None:
        """In a forked child: forget everything, also who holds the lock."""
        self._lock = threading.Lock()
        self._cells = {}
        self._refused = 0

    def _take_new(self, key: tuple[str, ...], count: float, total: float, low: float, high: float) -> bool:
        usable = _LOWEST <= low <= high <= MAX_MAGNITUDE and _LOWEST <= total <= MAX_MAGNITUDE
        if usable and len(self._cells) < self._max_series:
            self._cells[key] = [count, total, low, high, high]
            return True
        self._refused += 1
        return False

    def _copy(self) -> list[tuple[tuple[str, ...], list[float]]]:
        with self._lock:
            return [(key, cell.copy()) for key, cell in self._cells.items()]

    def _rolled_up(
        self, cells: Iterable[tuple[tuple[str, ...], Iterable[float]]], *, deepest_only: bool = False
    ) -> dict[Series, Statistics]:
        result: dict[Series, Statistics] = {}
        known: dict[tuple[str, ...], list[Pairs]] = {}  # ten metrics of a shard share its path
        for key, cell in cells:
            name, unit = key[:2]
            levels = known.get(key[2:])
            if levels is None:
                levels = list(levels_of(_pairs_of(key), self._granularity, self._custom))
                known[key[2:]] = levels
            statistics = Statistics(*cell)
            for level in levels[-1:] if deepest_only else levels:
                _merge(result, Series(name, unit, level), statistics)
        return result


def _pairs_of(key: tuple[str, ...]) -> Pairs:
    middle = len(key) // 2 + 1
    return tuple((str(name), str(value)) for name, value in zip(key[2:middle], key[middle:], strict=True))


def _merge(into: dict[Series, Statistics], series: Series, statistics: Statistics) -> None:
    known = into.get(series)
    into[series] = known.merged(statistics) if known else statistics


def _by_granularity(dimensions: Iterable[CustomDimension]) -> dict[str, Pairs]:
    result: dict[str, Pairs] = {}
    names = set(_PATH)
    for dimension in dimensions:
        check_text("custom_dimensions name", dimension.name, 1, 255)
        check_text("custom_dimensions value", dimension.value, 1, 255)
        check_choice("custom_dimensions granularity", dimension.granularity, GRANULARITIES)
        if dimension.name in names:
            raise ConfigError(
                "custom_dimensions", dimension.name, "each name once, none of " + ", ".join(_PATH)
            )
        names.add(dimension.name)
        result[dimension.granularity] = (
            *result.get(dimension.granularity, ()),
            (dimension.name, dimension.value),
        )
    if len(names) > MAX_DIMENSIONS:
        raise ConfigError(
            "custom_dimensions", len(names) - len(_PATH), f"at most {MAX_DIMENSIONS - len(_PATH)}"
        )
    return result
