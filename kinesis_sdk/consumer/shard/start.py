"""Starting position of a shard: the lease's checkpoint, unless the handler returns its own position."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from kinesis_sdk.common.errors import InvalidPositionError
from kinesis_sdk.common.position import AtTimestamp, Latest, Position, TrimHorizon, from_checkpoint
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.handler import StartingPosition
from kinesis_sdk.consumer.leases.table.attributes import INITIAL_TIMESTAMP
from kinesis_sdk.consumer.leases.table.lease import Lease

_EPOCH = datetime.fromtimestamp(0, timezone.utc)


class ResolvedStart(NamedTuple):
    """Start of the reading of a shard.

    Attributes:
        position: Position of the first read.
        skip_through: Last user record that is already processed; delivery starts after it. None delivers all records from the position on.
        is_of_lease: Whether the position comes from the lease, so that a LATEST start is pinned in its row.
    """

    position: Position
    skip_through: ExtendedSequenceNumber | None
    is_of_lease: bool


def resolve_start(
    lease: Lease, config: ConsumerConfig, requested: StartingPosition | None = None, *, follows_parent: bool
) -> ResolvedStart:
    """Return the position at which to start reading the shard of a lease.

    Args:
        lease: The lease.
        config: Supplies the timestamp of an AT_TIMESTAMP start if the lease has none, as after a Java worker.
        requested: Position that the handler returned, see `RecordHandler.starting_position`; None uses the lease's position.
        follows_parent: Whether this application read a parent of the shard to its end. LATEST then means the beginning,
            because the parent's records continue there.

    Raises:
        InvalidPositionError: If the handler's position is malformed, or if the timestamp of an AT_TIMESTAMP start is unknown.
    """
    if requested is None:
        return _of_lease(lease, config, follows_parent=follows_parent)
    if isinstance(requested, datetime) and requested.tzinfo is not None:
        return ResolvedStart(AtTimestamp((requested - _EPOCH) // timedelta(milliseconds=1)), None, False)
    position = requested
    if isinstance(position, str):
        with suppress(ValueError):  # rejected below
            position = ExtendedSequenceNumber(position)
    if isinstance(position, ExtendedSequenceNumber):
        if not position.is_sentinel:
            return ResolvedStart(from_checkpoint(position), position, False)
        if position.sequence_number == LATEST:
            if lease.checkpoint.sequence_number == LATEST:
                # This is the lease's own start, which is pinned in the row now or was pinned before.
                return _of_lease(lease, config, follows_parent=follows_parent)
            return ResolvedStart(TrimHorizon() if follows_parent else Latest(), None, False)
        if position.sequence_number == TRIM_HORIZON:
            return ResolvedStart(TrimHorizon(), None, False)
    raise InvalidPositionError(
        f"the handler's starting_position {str(requested)[:80]!r} of lease {lease.lease_key} is not a position: expected an "
        "ExtendedSequenceNumber, a decimal sequence number, 'TRIM_HORIZON', 'LATEST', a datetime with a time zone, or None"
    )


def _of_lease(lease: Lease, config: ConsumerConfig, *, follows_parent: bool) -> ResolvedStart:
    checkpoint, millis = lease.checkpoint, lease.initial_timestamp_millis
    if checkpoint.sequence_number == LATEST and follows_parent:
        return ResolvedStart(TrimHorizon(), None, True)
    if checkpoint.sequence_number == AT_TIMESTAMP and millis is None:
        # Only without a pin: a worker that started later may be configured with a later timestamp ("an hour ago").
        millis = config.initial_timestamp_millis
        if millis is None:
            raise InvalidPositionError(
                f"lease {lease.lease_key} starts at AT_TIMESTAMP, but neither the lease table nor initial_position says at "
                "which timestamp. Give this worker the initial_position (a datetime) of the worker that created the lease, "
                f"or put the timestamp into the row ({INITIAL_TIMESTAMP}, a number of epoch milliseconds), or another "
                "checkpoint"
            )
    return ResolvedStart(
        from_checkpoint(checkpoint, millis), None if checkpoint.is_sentinel else checkpoint, True
    )
