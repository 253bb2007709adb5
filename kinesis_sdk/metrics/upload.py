"""What goes to CloudWatch and when: the decisions of the upload, without thread, clock or network.

A call takes up to 1,000 statistic sets (PutMetricData, API reference; the KPL's 20 and 38 KiB are limits of 2015):
calls are billed, and 10,000 metrics are 10 calls a minute in place of 500. What was not taken is kept with its
time and goes with the next upload. A backlog that reaches its bound loses resolution first: the oldest sets of
equal metrics become one. Only what has more different metrics than the bound is dropped, and reported.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from datetime import datetime, timezone
from typing import Any, NamedTuple

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
"""The KPL's."""

MAX_DATA_PER_CALL = 1_000
"""Most metrics of one PutMetricData call (API reference)."""

MAX_BYTES_PER_CALL = 768 * 1024
"""Most bytes of one call by our estimate; the service takes 1 MB. The estimate is of the form-encoded protocol,
the longest of the three that botocore speaks with CloudWatch."""

MAX_PENDING = 10_000
"""Default bound on statistic sets that wait for an upload; about 500 bytes each."""

_DATUM_BYTES = 420
"""Bytes of a form-encoded statistic set without its names and values: its keys, numbers and timestamp."""

_DIMENSION_BYTES = 110

_MAX_TRIES = 3
"""Failed calls of one upload period; then the next period tries again."""

_FIRST_PAUSE = 0.5
_NEVER = float("inf")
_REPORT_INTERVAL = 60.0

_MAX_REFUSALS = 8
"""Single data that may be refused in a row, without anything taken, before it is not the data: calls are billed, and
halving 1,000 of them down to each one costs 2,000."""

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
"""Codes with which CloudWatch refuses a whole call for one datum, or for its length."""

_UNITS = frozenset(
    f"{unit}{rate}"
    for unit in (
        *("Bytes", "Kilobytes", "Megabytes", "Gigabytes", "Terabytes"),
        *("Bits", "Kilobits", "Megabits", "Gigabits", "Terabits", "Count"),
    )
    for rate in ("", "/Second")
) | {"Seconds", "Microseconds", "Milliseconds", "Percent", "None"}


class Datum(NamedTuple):
    """A statistic set on its way.

    Attributes:
        series: Which metric.
        statistics: What was observed.
        time: Epoch seconds of the end of the period that it is about.
    """

    series: Series
    statistics: Statistics
    time: float

    @property
    def size(self) -> int:
        """Bytes that it adds to a call, by a generous estimate."""
        series = self.series
        return (
            _DATUM_BYTES
            + 3 * len(series.name)  # escaped
            + sum(_DIMENSION_BYTES + 3 * (len(name) + len(value)) for name, value in series.dimensions)
        )

    @property
    def problem(self) -> str | None:
        """Why CloudWatch would refuse it, and with it the whole call; None if it would not."""
        series, statistics = self.series, self.statistics
        if not 1 <= len(series.name) <= 255:
            return "the metric name has not 1 to 255 characters"
        if series.unit not in _UNITS:
            return f"CloudWatch has no unit {series.unit!r}"
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
        """As PutMetricData takes it.

        Args:
            implied: A dimension to leave out, because the namespace says it.
        """
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
    """What to upload and when. Pure: time comes in; not thread-safe, one call at a time.

    Args:
        accumulator: Where the numbers come from.
        upload_delay: Seconds between two uploads.
        max_pending: Most statistic sets kept.
        rng: Jitter.
        now: Monotonic seconds; the first upload is due ``upload_delay`` later.
        namespace: Namespace of everything; None takes the application's name where there is one, else the KPL's.
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
        self._refusals = 0
        self._paused_until = -_NEVER
        self._dropped: Counter[str] = Counter()
        self._failure: AwsError | None = None
        self._reported = -_NEVER

    @property
    def pending(self) -> int:
        """Statistic sets that were not uploaded yet."""
        return len(self._pending) + sum(map(len, self._isolated))

    def poll(self, now: float, wall_time: float) -> list[Datum] | None:
        """The next call to make, or None if there is nothing to do before `next_event`.

        Args:
            now: Monotonic seconds.
            wall_time: Epoch seconds, for the timestamps.
        """
        if now >= self._due:
            self._due = now + self.upload_delay
            self._collect(wall_time)
        if self._tries >= _MAX_TRIES or now < self._paused_until:
            return None
        if self._isolated:
            return self._isolated.popleft()
        return self._cut() or None

    def next_event(self, now: float) -> float:
        """Monotonic seconds at which `poll` has something to do; infinity after `finish` when all is done."""
        if self.pending and self._tries < _MAX_TRIES:
            return min(self._due, max(now, self._paused_until))
        return self._due

    def request(self, batch: list[Datum]) -> dict[str, Any]:
        """Parameters of PutMetricData; all data of a batch have the same namespace."""
        implied = None if self.namespace is not None else APPLICATION_NAME
        return {
            "Namespace": self._namespace_of(batch[0]),
            "MetricData": [datum.to_api(implied) for datum in batch],
        }

    def finish(self, wall_time: float) -> None:
        """Collect what there is for a last time; nothing is due afterwards but its upload."""
        self._collect(wall_time)
        self._due = _NEVER
        self._paused_until = -_NEVER

    def on_success(self) -> None:
        """The call was made."""
        self._tries = self._refusals = 0
        self._failure = None

    def on_failure(self, batch: list[Datum], error: AwsError, now: float) -> None:
        """The call failed: split it, keep it, or drop the one datum that CloudWatch refuses."""
        if error.code in _ABOUT_CONTENT or error.status == 413:
            if len(batch) > 1:
                middle = len(batch) // 2
                self._isolated.extendleft((batch[middle:], batch[:middle]))
            else:
                self._refusals += 1
                self._dropped[f"CloudWatch refuses {batch[0].series.name}: {error}"] += 1
                if self._refusals >= _MAX_REFUSALS:
                    self._give_up(error)
            return
        self._pending.extendleft(reversed(batch))
        self._failure = error
        self._tries = self._tries + 1 if error.retryable else _MAX_TRIES
        self._paused_until = now + _FIRST_PAUSE * 2 ** (self._tries - 1) * self._rng.uniform(0.5, 1.0)

    def take_report(self, now: float, *, final: bool = False) -> str | None:
        """What an operator should know, at most once a minute; None if there is nothing (new).

        Args:
            now: Monotonic seconds.
            final: Whether this is the last chance: nothing is held back, what is pending is lost.
        """
        if not final and now < self._reported + _REPORT_INTERVAL:
            return None
        parts = [f"{count:,} dropped ({reason})" for reason, count in self._dropped.most_common()]
        if self._failure is not None:
            fate = "are lost" if final else "wait for the next upload"
            parts.append(f"{self.pending:,} statistic sets {fate}: {self._failure}")
        if not parts:
            return None
        self._dropped.clear()
        self._reported = now
        return "; ".join(parts)

    def _collect(self, wall_time: float) -> None:
        self._tries = 0
        series, refused = self._accumulator.drain()
        if refused:
            self._dropped["not a finite number, or too many different metrics at a time"] += refused
        for key in sorted(series, key=lambda key: (len(key.dimensions), key)):
            datum = Datum(key, series[key], wall_time)
            problem = datum.problem or self._namespace_problem(datum)
            if problem is None:
                self._pending.append(datum)
            else:
                self._dropped[f"{key.name}: {problem}"] += 1
        if len(self._pending) > self.max_pending:
            self._shrink()

    def _give_up(self, error: AwsError) -> None:
        """Nothing is taken, whatever it is: the rest of this upload is dropped; the next one tries again."""
        rest = self.pending
        if rest:
            self._dropped[f"CloudWatch refuses everything: {error}"] += rest
        self._pending.clear()
        self._isolated.clear()
        self._refusals = 0

    def _shrink(self) -> None:
        """Back to the bound: fold the older half's equal metrics, then everything's, then drop the deepest."""
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
        kept = sorted(self._pending, key=lambda datum: len(datum.series.dimensions))  # stable: sums stay
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
            return f"CloudWatch has no namespace {namespace!r}; give one to the sink"
        return None

    def _cut(self) -> list[Datum]:
        """The next call's data: the oldest ones of one namespace, as many as fit."""
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
