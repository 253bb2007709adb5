"""The time at Kinesis, derived from its responses.

`ServiceClock` gives the ages of records for metrics and health: a lower bound that needs no wall clock. `EstimatedServiceClock` gives
the Spark reader a best estimate in epoch milliseconds, because its positions are timestamps of Kinesis. No decision compares
the clocks of two machines.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ArrivalTimes

_WINDOW = 60.0
"""An observation is dropped after one to two times this number of seconds if others followed, because clocks drift, and a ``Date`` may be
wrong."""

_UNKNOWN = float("-inf")


def response_date(metadata: Mapping[str, Any] | None) -> float | None:
    """Return the ``Date`` header of a response in epoch seconds, without fractions; None if there is no usable header.

    Args:
        metadata: ``ResponseMetadata`` of the response; None for clients without it.
    """
    date = date_text(metadata)
    return _epoch_seconds(date) if date else None


def skew_bounds(
    metadata: Mapping[str, Any] | None, sent: float, received: float
) -> tuple[float, float] | None:
    """Return the lower and upper bound that one response gives for the seconds by which AWS's clock is ahead of this machine's.

    None if the response has no date.

    Args:
        metadata: As for `response_date`.
        sent: This machine's clock at the call, in epoch seconds.
        received: The same at the response.
    """
    second = response_date(metadata)
    # The date has whole seconds, and was written between the call and the response.
    return None if second is None else (second - received, second + 1 - sent)


def least_skew(bounds: Iterable[tuple[float, float]]) -> float | None:
    """Return the smallest difference of the clocks within all bounds, positive if AWS is ahead; None without bounds.

    Bounds without a common difference mean that a clock was set in between; the result is then 0.
    """
    lower = upper = None
    for low, high in bounds:
        lower = low if lower is None else max(lower, low)
        upper = high if upper is None else min(upper, high)
    if lower is None or upper is None:
        return None
    return 0.0 if lower > upper else max(lower, 0.0) or min(upper, 0.0)


@functools.lru_cache(maxsize=16)
def _epoch_seconds(date: str) -> float | None:
    """Parse a ``Date`` header. The result is cached, because many responses arrive in the same second."""
    try:
        parsed = parsedate_to_datetime(date)
        # A date without a zone ("-0000") is UTC, but `timestamp` would read it in this machine's zone.
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None


def date_text(metadata: Mapping[str, Any] | None) -> str | None:
    """Return the unparsed ``Date`` header of a response; None without this header. See `response_date` for ``metadata``."""
    headers = (metadata or {}).get("HTTPHeaders", {})
    date: str | None = headers.get("date") or headers.get("Date")
    return date


class ServiceClock:
    """The largest of the lower bounds that recent responses for all shards gave for the time at Kinesis. Thread-safe.

    Every time in a response had passed when the response arrived: its ``Date``, and the arrival of its newest record plus
    the lag that it reports. So this clock is never ahead. While Kinesis sends dates, this clock is behind by at most
    one second (dates have no fractions) plus the latency of the response. The wall clock of this machine is not read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before = self._now = _UNKNOWN
        self._since = _UNKNOWN

    def observe(self, service_time: float, at: float) -> None:
        """Record a time that Kinesis had reached.

        Args:
            service_time: Epoch seconds of Kinesis.
            at: Monotonic seconds of this process at which the time was known.
        """
        bound = service_time - at
        with self._lock:
            if at - self._since > _WINDOW:
                self._before, self._now, self._since = self._now, bound, at
            elif bound > self._now:
                self._now = bound

    def time_at(self, at: float) -> float | None:
        """Return a time in epoch seconds that Kinesis had reached at a given time of this process; None if unknown.

        Args:
            at: Monotonic seconds of this process.
        """
        with self._lock:
            bound = max(self._before, self._now)
        return None if bound == _UNKNOWN else bound + at

    def arrivals(
        self, records: Sequence[KinesisRecord], millis_behind_latest: int | None, read_at: float
    ) -> ArrivalTimes | None:
        """Return the arrival times of the records of a response; None if it has no records.

        Args:
            records: The records of the response, in order.
            millis_behind_latest: Lag that the response reports, in milliseconds; None if it reports none.
            read_at: Monotonic seconds at which the response arrived.
        """
        if not records:
            return None
        newest = records[-1].approximate_arrival_timestamp
        return ArrivalTimes(self.arrival(newest, millis_behind_latest, read_at), newest)

    def arrival(self, newest: datetime | None, millis_behind_latest: int | None, read_at: float) -> float:
        """Return the monotonic seconds at which the newest record of a response arrived at Kinesis.

        Args:
            newest: Arrival time of that record by the clock of Kinesis; None if it reports none.
            millis_behind_latest: Lag that the response reports, in milliseconds; None if it reports none.
            read_at: Monotonic seconds at which the response arrived.
        """
        behind = (millis_behind_latest or 0) / 1000
        if newest is not None:
            arrived = newest.timestamp()
            self.observe(arrived + behind, read_at)
            with self._lock:
                service_time = max(self._before, self._now) + read_at
            behind = max(behind, service_time - arrived)
        return read_at - behind


class EstimatedServiceClock:
    """Best estimate of the time at Kinesis in epoch milliseconds. Thread-safe.

    A ``Date`` header has whole seconds, so each response bounds the difference between the clock of Kinesis and the clock
    of this machine from both sides. If the machine's clock lies within the bounds, it is used, otherwise the nearer bound.

    Args:
        clock: Clock of this machine.
    """

    __slots__ = ("_clock", "_lock", "_lower", "_upper")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._lower = float("-inf")
        self._upper = float("inf")

    def observe(self, metadata: Mapping[str, Any] | None, sent: float, received: float) -> None:
        """Narrow the bounds by the ``Date`` of a response.

        Args:
            metadata: ``ResponseMetadata`` of the response; None for clients without it.
            sent: Wall time in epoch seconds before the call.
            received: Wall time in epoch seconds after the call.
        """
        second = response_date(metadata)
        if second is None:
            return
        lower, upper = second - received, second + 1 - sent
        with self._lock:
            if lower > self._upper or upper < self._lower:
                # One of the clocks was set: the earlier bounds no longer hold.
                self._lower, self._upper = lower, upper
            self._lower = max(self._lower, lower)
            self._upper = min(self._upper, upper)

    def millis(self) -> int:
        """Return the estimated time at Kinesis in epoch milliseconds."""
        return int((self._clock.time() + min(max(0.0, self._lower), self._upper)) * 1000)

    def past_millis(self) -> int:
        """Return a time in epoch milliseconds that Kinesis has reached, at most about a second ago.

        If the machine's clock is known to be wrong, the result is the lower bound instead of the estimate.
        """
        offset = 0.0 if self._lower <= 0.0 <= self._upper else self._lower
        return int((self._clock.time() + offset) * 1000)
