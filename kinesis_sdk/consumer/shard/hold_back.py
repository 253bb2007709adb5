"""Records that must not be delivered yet. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.response_header import ResponseHeader


class HoldBack:
    """Releases each record a fixed time after its arrival at Kinesis.

    Arrival times are by the clock of Kinesis; `ServiceClock`, which is never ahead, converts them to this process's monotonic clock. So
    a record may be released late by the error of that clock, and never early, regardless of the wall clocks of machines.

    ``delay`` is in seconds.
    """

    def __init__(self, delay: float) -> None:
        self._delay = delay

    def released(
        self, records: Sequence[UserRecord], header: ResponseHeader, now: float
    ) -> tuple[int, float]:
        """Return the number of leading records that are due, and the monotonic time at which the next record is due."""
        arrivals = header.arrivals
        if arrivals is None:
            return len(records), now  # only an empty response has no arrival times
        count, due = 0, now
        for record in records:
            due = arrivals.of(record) + self._delay
            if due > now:
                break
            count += 1
        return count, due
