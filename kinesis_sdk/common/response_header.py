"""The header of a response: the facts about the shard in a GetRecords response or fan-out event besides its records.

The header is created where a response is read and passed on unchanged, up to the handler's `RecordBatch`. A new field
of the response is added here and in `ResponseHeader.from_api`; no code in between has to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from kinesis_sdk.common.records import KinesisRecord, UserRecord
from kinesis_sdk.common.shards import Shard


class ArrivalTimes(NamedTuple):
    """Conversion of the arrival times of one response's records into monotonic time of this process.

    All arrival times of a response come from one clock of Kinesis, so only their differences count. `ServiceClock` converts the newest
    arrival time to this process's clock; the clocks of two machines are never compared.

    Attributes:
        newest_at: Monotonic seconds at which the newest record of the response arrived at Kinesis.
        newest: Arrival time of that record by the clock of Kinesis; None if Kinesis reports none.
    """

    newest_at: float
    newest: datetime | None

    def of(self, record: KinesisRecord | UserRecord) -> float:
        """Return the monotonic seconds at which a record of the response arrived at Kinesis."""
        arrived = record.approximate_arrival_timestamp
        if arrived is None or self.newest is None:
            return self.newest_at
        return self.newest_at - max(0.0, (self.newest - arrived).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHeader:
    """All facts of one response besides its records. Immutable; shared by all parts of the response.

    Attributes:
        millis_behind_latest: Milliseconds from the last record of the response to the tip of the shard; 0 at the tip,
            None if Kinesis reports no lag.
        ended: Whether the shard ends after the records of the response.
        child_shards: Children of the shard if it ended and the stream still has it; otherwise empty.
        read_at: Monotonic seconds of this process at which the response arrived; None if there was no response.
        requested_at: Monotonic seconds of this process at which the call began; None without a call, as for a fan-out event.
        arrivals: Arrival times of the records; None if the response has no records, or if the times are unknown.
        service_time: Epoch seconds that the clock of Kinesis had reached when the response was requested, or when a fan-out event arrived;
            None if unknown.
    """

    millis_behind_latest: int | None = None
    ended: bool = False
    child_shards: tuple[Shard, ...] = ()
    read_at: float | None = None
    requested_at: float | None = None
    arrivals: ArrivalTimes | None = None
    service_time: float | None = None

    @classmethod
    def from_api(cls, response: Mapping[str, Any], *, ended: bool) -> ResponseHeader:
        """Read the common fields of a GetRecords response and a ``SubscribeToShardEvent``.

        Args:
            response: The response or the content of the event.
            ended: Whether the response names no continuation.

        Raises:
            ValueError, TypeError: If a field is malformed.
        """
        behind = response.get("MillisBehindLatest")
        if behind is None:
            return cls(ended=ended)
        try:
            millis = int(behind)
        except OverflowError as error:
            raise ValueError(f"MillisBehindLatest: {error}") from error
        if abs(millis) > _MAX_LAG_MILLIS:  # even if it came as text: arithmetic with it would fail later
            raise ValueError(f"MillisBehindLatest of more than {_MAX_LAG_MILLIS:,}")
        return cls(millis_behind_latest=millis, ended=ended)


_MAX_LAG_MILLIS = 100 * 366 * 86_400_000
"""A century; Kinesis keeps records for a year."""

NO_RESPONSE = ResponseHeader()
"""Header of an empty result for which no call was made."""
