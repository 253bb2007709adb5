"""Decisions of the CloudWatch upload (what to send, and when), without thread, clock or network.

A call has up to 1,000 statistic sets (PutMetricData, API reference; the KPL's 20 sets and 38 KiB are limits of 2015).
Calls are billed, and 10,000 metrics take 10 calls per minute instead of 500. A set that was not accepted is kept with its
timestamp and sent with the next upload. A backlog at its bound first loses resolution: old sets of the same metric
are merged. Sets are dropped, and reported, only if there are more different metrics than the bound.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from datetime import datetime, timezone
from typing import Any, NamedTuple

from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.errors import AwsError, ConfigError
from kinesis_sdk.common.metrics import APPLICATION_NAME
from kinesis_sdk.common.validation import check_namespace
from kinesis_sdk.metrics.accumulator import (
    MAX_DIMENSIONS,
    MAX_MAGNITUDE,
    Accumulator,
    Series,
    Statistics,
)

DEFAULT_NAMESPACE = "KinesisProducerLibrary"
"""Namespace of the KPL."""

MAX_DATA_PER_CALL = 1_000
"""Maximum number of metrics in one PutMetricData call (API reference)."""

MAX_BYTES_PER_CALL = 768 * 1024
"""Maximum estimated bytes of one call; CloudWatch accepts 1 MB. The estimate is for the form-encoded protocol, whose requests are the
longest of the three protocols that botocore uses with CloudWatch."""

MAX_PENDING = 10_000
"""Default maximum number of statistic sets that wait for an upload; about 500 bytes each."""

_DATUM_BYTES = 420
"""Bytes of a form-encoded statistic set without its names and values: its keys, numbers and timestamp."""

_DIMENSION_BYTES = 110

_MAX_TRIES = 3
"""Maximum failed calls in one upload period; the next period tries again."""

_PAUSES = Backoff(0.5, 2.0)
_NEVER = float("inf")
_REPORT_INTERVAL = 60.0

_MAX_REJECTIONS = 8
"""Maximum number of single sets that may be rejected in a row. More rejections have another cause than the sets. Calls are
billed, and halving 1,000 sets down to single sets takes 2,000 calls."""

_ABOUT_CONTENT = frozenset(
    {
        "InvalidParameterCombination",
        "InvalidParameterCombinationException",
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "MissingParameter",
        "MissingRequiredParameterException",
        "ParamValidationError",
        "RequestEntityTooLarge",
        "ValidationError",
        "ValidationException",
    }
)
"""Error codes with which CloudWatch rejects a whole call because of one set, or because of its size."""

_UNITS = frozenset(
    f"{unit}{rate}"
    for unit in (
        *("Bytes", "Kilobytes", "Megabytes", "Gigabytes", "Terabytes"),
        *("Bits", "Kilobits", "Megabits", "Gigabits", "Terabits", "Count"),
    )
    for rate in ("", "/Second")
) | {"Seconds", "Microseconds", "Milliseconds", "Percent", "None"}


class Datum(NamedTuple):
    """Statistic set that waits for its upload; ``time`` is the end of its period, in seconds since the Unix epoch."""

    series: Series
    statistics: Statistics
    time: float

    @property
    def size(self) -> int:
        """Estimated bytes that the set adds to a call; the estimate is never too low."""
        series = self.series
        return (
            _DATUM_BYTES
            + 3 * len(series.name)  # escaped
            + sum(_DIMENSION_BYTES + 3 * (len(name) + len(value)) for name, value in series.dimensions)
        )

    @property
    def problem(self) -> str | None:
        """Reason why CloudWatch would reject the set, and therefore the whole call; None if it would accept the set."""
        series, statistics = self.series, self.statistics
        if not 1 <= len(series.name) <= 255:
            return "the metric name must have 1 to 255 characters"
        if series.unit not in _UNITS:
            return f"unit {series.unit!r} does not exist in CloudWatch"
        if len(series.dimensions) > MAX_DIMENSIONS:
            return f"more than {MAX_DIMENSIONS} dimensions"
        for name, value in series.dimensions:
            if not (1 <= len(name) <= 255 and 1 <= len(value) <= 1_024 and f"{name}{value}".isascii()):
                return f"dimension {name!r} is too long, or not ASCII"
            if name.startswith(":"):
                return f"dimension {name!r} starts with a colon"
        if not -MAX_MAGNITUDE <= statistics.total <= MAX_MAGNITUDE:
            return "the sum is out of CloudWatch's range"
        return None

    def to_api(self, implied: str | None = None) -> dict[str, Any]:
        """Return the element of ``MetricData``, without the dimension ``implied`` by the namespace."""
        statistics = self.statistics
        return {
            "MetricName": self.series.name,
            "Dimensions": [
                {"Name": name, "Value": value} for name, value in self.series.dimensions if name != implied
            ],
            "Timestamp": datetime.fromtimestamp(self.time, timezone.utc),
            "Unit": self.series.unit,
            "StatisticValues": {
                "SampleCount": float(statistics.samples),
                "Sum": float(statistics.total),
                "Minimum": float(statistics.low),
                "Maximum": float(statistics.high),
            },
        }


class UploadPlan:
    """Plan of the uploads. Not thread-safe. Time is passed as an argument, and at most one call is in progress.

    Args:
        accumulator: Source of the statistics.
        upload_delay: Seconds between two uploads.
        max_pending: Maximum number of statistic sets to keep.
        rng: Source of jitter.
        now: Monotonic seconds; the first upload is due ``upload_delay`` later.
        namespace: Namespace of all metrics; None uses the name of the application, or the KPL's for a producer.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        upload_delay: float,
        max_pending: int,
        rng: random.Random,
        now: float,
        namespace: str | None = None,
    ) -> None:
        self.namespace = namespace
        self._accumulator = accumulator
        self.upload_delay = upload_delay
        self.max_pending = max_pending
        self._rng = rng
        self._due = now + upload_delay
        self._pending: deque[Datum] = deque()
        self._isolated: deque[list[Datum]] = deque()
        self._tries = 0
        self._rejections = 0
        self._paused_until = -_NEVER
        self._dropped: Counter[str] = Counter()
        self._failure: AwsError | None = None
        self._reported = -_NEVER

    @property
    def pending(self) -> int:
        """Number of statistic sets that wait for an upload."""
        return len(self._pending) + sum(map(len, self._isolated))

    def poll(self, now: float, wall_time: float) -> list[Datum] | None:
        """Return the statistic sets of the next call, with the wall time for timestamps; None before `next_event`."""
        if now >= self._due:
            self._due = now + self.upload_delay
            self._collect(wall_time)
        if self._tries >= _MAX_TRIES or now < self._paused_until:
            return None
        if self._isolated:
            return self._isolated.popleft()
        return self._cut() or None

    def next_event(self, now: float) -> float:
        """Return the monotonic seconds at which `poll` next has work; infinity once all sets are uploaded after `finish`."""
        if self.pending and self._tries < _MAX_TRIES:
            return min(self._due, max(now, self._paused_until))
        return self._due

    def request(self, batch: list[Datum]) -> dict[str, Any]:
        """Return the parameters of PutMetricData for a batch, whose sets share a namespace."""
        implied = None if self.namespace is not None else APPLICATION_NAME
        return {
            "Namespace": self._namespace_of(batch[0]),
            "MetricData": [datum.to_api(implied) for datum in batch],
        }

    def finish(self, wall_time: float) -> None:
        """Collect statistics for the last time; afterwards, only their upload is due."""
        self._collect(wall_time)
        self._due = _NEVER
        self._paused_until = -_NEVER

    def on_success(self) -> None:
        """Handle a successful call."""
        self._tries = self._rejections = 0
        self._failure = None

    def on_failure(self, batch: list[Datum], error: AwsError, now: float) -> None:
        """Handle a failed call: split it, keep it, or, if it has a single set, drop the set that CloudWatch rejects."""
        if error.code in _ABOUT_CONTENT or error.status == 413:
            if len(batch) > 1:
                middle = len(batch) // 2
                self._isolated.extendleft((batch[middle:], batch[:middle]))
            else:
                self._rejections += 1
                self._dropped[f"CloudWatch rejected {batch[0].series.name}: {error}"] += 1
                if self._rejections >= _MAX_REJECTIONS:
                    self._drop_rest(error)
            return
        self._pending.extendleft(reversed(batch))
        self._failure = error
        self._tries = self._tries + 1 if error.retryable else _MAX_TRIES
        self._paused_until = now + _PAUSES.pause(self._tries, self._rng)

    def take_report(self, now: float, *, final: bool = False) -> str | None:
        """Return a report for the log, at most once a minute; None if there is nothing new.

        The final report is not delayed, and counts pending sets as lost.
        """
        if not final and now < self._reported + _REPORT_INTERVAL:
            return None
        parts = [f"{count:,} dropped ({reason})" for reason, count in self._dropped.most_common()]
        if self._failure is not None:
            outcome = "are lost" if final else "wait for the next upload"
            parts.append(f"{self.pending:,} statistic sets {outcome}: {self._failure}")
        if not parts:
            return None
        self._dropped.clear()
        self._reported = now
        return "; ".join(parts)

    def _collect(self, wall_time: float) -> None:
        self._tries = 0
        series, rejected = self._accumulator.drain()
        if rejected:
            self._dropped["not a finite number, or too many different metrics in one period"] += rejected
        for key in sorted(series, key=lambda key: (len(key.dimensions), key)):
            datum = Datum(key, series[key], wall_time)
            problem = datum.problem or self._namespace_problem(datum)
            if problem is None:
                self._pending.append(datum)
            else:
                self._dropped[f"{key.name}: {problem}"] += 1
        if len(self._pending) > self.max_pending:
            self._shrink()

    def _drop_rest(self, error: AwsError) -> None:
        """Drop the rest of this upload, because CloudWatch rejects every set; the next upload tries again."""
        rest = self.pending
        if rest:
            self._dropped[f"CloudWatch rejects all metrics: {error}"] += rest
        self._pending.clear()
        self._isolated.clear()
        self._rejections = 0

    def _shrink(self) -> None:
        """Reduce the backlog to its bound: merge equal metrics of the older half, then of all sets, then drop the deepest levels."""
        for older in (len(self._pending) // 2, len(self._pending)):
            data = list(self._pending)
            folded: dict[Series, Datum] = {}
            for datum in data[:older]:
                known = folded.get(datum.series)
                folded[datum.series] = (
                    datum._replace(statistics=known.statistics.merged(datum.statistics)) if known else datum
                )
            self._pending = deque([*folded.values(), *data[older:]])
            if len(self._pending) <= self.max_pending:
                return
        kept = sorted(
            self._pending, key=lambda datum: len(datum.series.dimensions)
        )  # the sort is stable; the series with the fewest dimensions are kept
        self._dropped["the backlog is full"] += len(kept) - self.max_pending
        self._pending = deque(kept[: self.max_pending])

    def _namespace_of(self, datum: Datum) -> str:
        if self.namespace is not None:
            return self.namespace
        return dict(datum.series.dimensions).get(APPLICATION_NAME, DEFAULT_NAMESPACE)

    def _namespace_problem(self, datum: Datum) -> str | None:
        namespace = self._namespace_of(datum)
        try:
            check_namespace("namespace", namespace)
        except ConfigError:
            return f"namespace {namespace!r} is not valid in CloudWatch; pass namespace to CloudWatchMetrics"
        return None

    def _cut(self) -> list[Datum]:
        """Remove and return the sets of the next call: the oldest sets of one namespace, as many as fit."""
        batch: list[Datum] = []
        others: list[Datum] = []
        size = 0
        namespace = self._namespace_of(self._pending[0]) if self._pending else ""
        while self._pending and len(batch) < MAX_DATA_PER_CALL:
            if self._namespace_of(self._pending[0]) != namespace:
                others.append(self._pending.popleft())
                continue
            size += self._pending[0].size
            if batch and size > MAX_BYTES_PER_CALL:
                break
            batch.append(self._pending.popleft())
        self._pending.extendleft(reversed(others))
        return batch
