"""What time it is at the service, as far as its answers tell: for the age of records in metrics and health only."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ArrivalTimes

_WINDOW = 600.0
"""Seconds after which an observation counts no longer, at the latest after twice that: clocks drift."""

_UNKNOWN = float("-inf")


def date_of(metadata: Mapping[str, Any]) -> float | None:
    """The ``Date`` header of an answer in epoch seconds, without fractions; None if there is no usable one.

    Args:
        metadata: ``ResponseMetadata`` of the answer.
    """
    headers = metadata.get("HTTPHeaders", {})
    date = headers.get("date") or headers.get("Date")
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except (ValueError, OverflowError):
        return None


class ServiceClock:
    """The largest lower bound of the service's time that recent answers of all shards gave. Thread-safe.

    Every time in an answer had passed when the answer arrived: its ``Date``, and the arrival of its newest record plus the
    lag that it reports. So this clock is never ahead, and behind by a second (dates have no fractions) and the latency
    of the answer at most while the service sends dates. This machine's wall clock is not read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before = self._now = _UNKNOWN
        self._since = _UNKNOWN

    def observe(self, service_time: float, at: float) -> None:
        """Note a time that the service had reached.

        Args:
            service_time: Epoch seconds of the service.
            at: Monotonic seconds of this process when it was known.
        """
        bound = service_time - at
        with self._lock:
            if at - self._since > _WINDOW:
                self._before, self._now, self._since = self._now, bound, at
            elif bound > self._now:
                self._now = bound

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
