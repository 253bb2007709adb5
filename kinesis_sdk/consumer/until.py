"""The end of a worker with ``until``: the records before it, and the conditions under which a shard and the application are done.

The end is one moment T by the clock of Kinesis. In each shard, delivery and checkpoint end before the first record that arrived
at T or later. A shard without such a record is done once a read that began at T or later has found its tip. The lease table shows which
shards are done (`ProcessedUntil`), because every worker of the fleet must know this, even after the worker that read the shard has ended.
Pure, except `service_date` and `until_moment`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal

from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.errors import ConfigError, ProtocolError
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.service_clock import response_date
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.leases.table.lease import Lease

UntilOption = Literal["now"] | datetime
"""Value of ``until``: a moment, or the moment at which the worker starts."""

_EPOCH = datetime.fromtimestamp(0, timezone.utc)

_VISIBLE_AFTER = 2.0
"""Seconds after which an accepted record is certain to be in the responses of its shard. The delay is usually far below a second.
A shard counts as read up to T only if a read that began this time after T has found its tip."""


def check_until(until: UntilOption | None) -> None:
    """Raise `ConfigError` unless the value is "now", a datetime with a time zone, or None."""
    if until is None or until == "now" or (isinstance(until, datetime) and until.tzinfo is not None):
        return
    raise ConfigError("until", until, '"now", a datetime with a time zone, or None')


def service_date(
    kinesis: KinesisClient, stream: StreamId | str, sleep: Callable[[float], None] | None = None
) -> float:
    """Return the ``Date`` of a response of Kinesis, in whole epoch seconds. Cost: one ListShards.

    ``sleep`` waits between two attempts, in seconds; None uses `time.sleep`.
    """
    request = StreamId.parse(stream).request
    response = call_with_retries(
        lambda: kinesis.list_shards(**request, MaxResults=1),
        operation="ListShards",
        client=kinesis,
        sleep=sleep,
    )
    date = response_date(response.get("ResponseMetadata"))
    if date is None:
        raise ProtocolError("ListShards: the response has no Date header, by which until is measured")
    return date


def until_moment(until: UntilOption, kinesis: KinesisClient, stream: StreamId | str) -> datetime:
    """Return the moment of ``until``, so that several workers can use the same moment. Cost: one ListShards.

    Args:
        until: As for `Worker`.
        kinesis: boto3 Kinesis client, or an object with its methods.
        stream: A stream of the application.

    Returns:
        The moment in UTC, in whole milliseconds.

    Raises:
        AwsError: If the call failed.
        ProtocolError: If the response has no date.
    """
    return Until.resolve(until, service_date(kinesis, stream)).moment


@dataclass(frozen=True)
class Until:
    """The moment up to which a worker processes records before it ends, in epoch milliseconds by the clock of Kinesis."""

    millis: int

    @classmethod
    def resolve(cls, until: UntilOption, service_date: float) -> Until:
        """Return the moment of a user's value; ``service_date`` is the ``Date`` of a response, in epoch seconds."""
        if isinstance(until, datetime):
            return cls((until - _EPOCH) // timedelta(milliseconds=1))
        # A Date has whole seconds, so "now" is the end of this second: it includes every record acknowledged before the start.
        return cls(int(service_date) * 1000 + 1000)

    @property
    def moment(self) -> datetime:
        """The moment as a datetime in UTC."""
        return _EPOCH + timedelta(milliseconds=self.millis)

    def __str__(self) -> str:
        return self.moment.isoformat(timespec="milliseconds")

    def cut(self, records: Sequence[KinesisRecord]) -> int | None:
        """Return the index of the first record that arrived at the moment or later; None if there is none."""
        moment = self.moment
        for index, record in enumerate(records):
            arrived = record.approximate_arrival_timestamp
            if arrived is not None and arrived >= moment:
                return index
        return None

    def is_tip_after(self, header: ResponseHeader, *, empty: bool) -> bool:
        """Return whether a response shows that all records from before the moment were read.

        This does not apply to fan-out events, which may have waited in transit. ``empty`` is whether the response has no records.
        """
        behind = header.millis_behind_latest
        # Some emulators report no lag. Then the response must be empty.
        at_tip = behind == 0 or (behind is None and empty)
        return at_tip and self.is_over(header.service_time)

    def is_over(self, service_time: float | None) -> bool:
        """Return whether all records from before the moment are visible at a Kinesis time in epoch seconds."""
        return service_time is not None and service_time >= self.millis / 1000 + _VISIBLE_AFTER

    def open_leases(self, leases: Iterable[Lease]) -> list[Lease]:
        """Return the leases whose shards may have unprocessed records from before the moment.

        These are all leases except finished leases, marked leases (`is_marked`), and descendants of unfinished marked leases.
        """
        # A marked, unfinished ancestor has records left that arrived at the moment or later, and all records of its
        # descendants arrived after the records left. (Or it has no records left, and its only child, the result of a
        # merge, has another such ancestor.)
        leases = [*leases]
        children: dict[tuple[str | None, str], list[Lease]] = defaultdict(list)
        for lease in leases:
            for parent in lease.parent_shard_ids:
                children[lease.stream_name, parent].append(lease)
        todo = [lease for lease in leases if not lease.is_finished and self.is_marked(lease)]
        done: set[str] = set()
        while todo:
            lease = todo.pop()
            if lease.lease_key not in done:
                done.add(lease.lease_key)
                todo += (child for child in children[lease.stream_name, lease.shard] if not child.is_finished)
        return [lease for lease in leases if not lease.is_finished and lease.lease_key not in done]

    def is_marked(self, lease: Lease) -> bool:
        """Return whether a row marks its shard as processed up to the moment."""
        return lease.was_processed_until(self.millis)
