"""Metrics sink for Lambda functions: CloudWatch's embedded metric format, written to standard output.

CloudWatch makes metrics from log lines in this format, so a function makes no call and needs no thread and no permission. A line is
a JSON object. The member ``_aws`` of the object names the members that are metrics, and the members that are dimensions. All
metrics of one shard, or stream, are in one line: each level of its dimensions is a set of names in this line, and CloudWatch adds up the
lines of each level.

The lines stay within the limits of the format: 100 metrics, 30 dimensions in a set, and the 256 KiB that every version of CloudWatch Logs
accepts.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kinesis_sdk.common.catalogue import CATALOGUE
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.log_throttle import CountingLogThrottle
from kinesis_sdk.common.metrics import Metric
from kinesis_sdk.common.validation import check_namespace
from kinesis_sdk.metrics.accumulator import (
    AccumulatingSink,
    Accumulator,
    CustomDimension,
    Granularity,
    Level,
    Pairs,
    Statistics,
)

_LOGGER = logging.getLogger(__name__)

MAX_LINE = 256 * 1024 - 26
"""Maximum bytes of a line: CloudWatch Logs adds 26 to each event."""

MAX_METRICS = 100
"""Maximum metrics of a line."""

_MAX_SERIES = 2_000


class EmbeddedMetrics(AccumulatingSink):
    """Metrics sink that writes lines in CloudWatch's embedded metric format when it is flushed. Thread-safe.

        metrics = EmbeddedMetrics("billing")

        @kinesis_handler(metrics=metrics)  # flushes after each event
        def handler(record): ...

    `flush` writes one line for each stream, or shard, with observations since the last `flush`; without observations, it writes nothing.
    Observations that are not flushed when the process ends are lost.

    Args:
        namespace: CloudWatch namespace, 1 to 255 characters, not starting with ``AWS/`` or a colon.
        level: ``none``, ``summary`` or ``detailed``.
        granularity: ``global``, ``stream`` or ``shard``: the deepest dimension. CloudWatch charges for each metric of each level.
        custom_dimensions: Dimensions that the user adds, at most 24.
        max_series: Maximum series between two calls of `flush`; observations of further series are dropped and logged. At least 1.
        write: Called with each line, including its end; None writes to ``sys.stdout``.
        clock: Wall clock; replaced in tests.

    Raises:
        ConfigError: If an argument is not valid.
    """

    def __init__(
        self,
        namespace: str,
        *,
        level: Level = "summary",
        granularity: Granularity = "stream",
        custom_dimensions: Iterable[CustomDimension] = (),
        max_series: int = _MAX_SERIES,
        write: Callable[[str], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_namespace("namespace", namespace)
        custom = tuple(custom_dimensions)
        super().__init__(Accumulator(level, granularity, custom, max_series))
        taken = {"_aws", *(metric.name for metric in CATALOGUE)}
        for dimension in custom:
            if dimension.name in taken:
                raise ConfigError("custom_dimensions", dimension.name, "a name that no metric has")
        self._namespace = namespace
        self._write = write
        self._clock: Clock = clock or SystemClock()
        self._lost = CountingLogThrottle(_LOGGER)

    def flush(self) -> int:
        """Write the observations since the last call, and forget them. Never raises: lines that cannot be written are logged and lost.

        Returns:
            Number of lines written.
        """
        leaves, rejected = self._accumulator.drain_leaves()
        if rejected:
            self._lost.log(
                "embedded metrics: observations were dropped (%d times so far), the last time %d", rejected
            )
        written = 0
        try:
            for line in lines(leaves, self._namespace, int(self._clock.time() * 1000)):
                if len(line) > MAX_LINE:
                    self._lost.log(
                        "embedded metrics: lines were dropped (%d so far), the last one of %d bytes",
                        len(line),
                    )
                    continue
                (self._write or sys.stdout.write)(line + "\n")
                written += 1
            if written and self._write is None:
                sys.stdout.flush()
        except Exception as error:  # noqa: BLE001 - metrics must not cost an event
            self._lost.log("embedded metrics: not written (%d times so far)", error=error)
        return written


def lines(
    leaves: Mapping[tuple[Pairs, ...], Mapping[Metric, Statistics]], namespace: str, millis: int
) -> Iterator[str]:
    """Yield the lines of statistics, without their ends: ASCII, at most `MAX_METRICS` metrics each, and `MAX_LINE` bytes if possible.

    ``leaves`` has the statistics by their levels, the deepest last; ``millis`` is the time since 1970.
    """
    for levels, statistics in leaves.items():
        each = list(statistics.items())
        waiting = [each[start : start + MAX_METRICS] for start in range(0, len(each), MAX_METRICS)]
        while waiting:
            chunk = waiting.pop()
            line = _line(levels, chunk, namespace, millis)
            half = len(chunk) // 2
            if len(line) > MAX_LINE and half:
                waiting += chunk[:half], chunk[half:]
            else:
                yield line


def _line(
    levels: Sequence[Pairs], statistics: Sequence[tuple[Metric, Statistics]], namespace: str, millis: int
) -> str:
    directive = {
        "Namespace": namespace,
        "Dimensions": [[name for name, _ in level] for level in levels],
        "Metrics": [{"Name": metric.name, "Unit": metric.unit} for metric, _ in statistics],
    }
    document: dict[str, Any] = {
        "_aws": {"Timestamp": millis, "CloudWatchMetrics": [directive]},
        **dict(levels[-1]),
        **{metric.name: _value(found) for metric, found in statistics},
    }
    return json.dumps(document, separators=(",", ":"))


def _value(found: Statistics) -> float | dict[str, float]:
    if found.samples == 1:
        return found.total
    return {"Max": found.high, "Min": found.low, "Count": found.samples, "Sum": found.total}
