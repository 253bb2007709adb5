"""Positions in a shard: where reading starts, or continues.

The consumer, the Spark reader and the settings all use these six types. Positions are plain data: compare them, pickle
them, and match on their types.

| position | the next record |
| --- | --- |
| `TrimHorizon` | the oldest one |
| `Latest` | the first one that arrives after the iterator was opened |
| `AtTimestamp` | the first one that arrived at that time or later |
| `AtSequence` | the Kinesis record with that sequence number |
| `AfterSequence` | the one after that Kinesis record, or after one of the user records in it |
| `Ended` | none: the shard was read to its end |

A Kinesis iterator cannot start inside an aggregated record. A position after a user record therefore opens at its Kinesis
record (see `iterator_start`), and the reader drops the user records up to the position.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber

MAX_MILLIS = 253_402_300_799_999
"""Last millisecond of the year 9999, the latest time that a request can name."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

AT_SEQUENCE_NUMBER = "AT_SEQUENCE_NUMBER"
AFTER_SEQUENCE_NUMBER = "AFTER_SEQUENCE_NUMBER"


@dataclass(frozen=True)
class TrimHorizon:
    """The oldest record of the shard."""

    def __str__(self) -> str:
        return TRIM_HORIZON


@dataclass(frozen=True)
class Latest:
    """The tip of the shard at the time when the iterator is opened."""

    def __str__(self) -> str:
        return LATEST


@dataclass(frozen=True)
class AtTimestamp:
    """The first record that arrived at a time or later.

    Attributes:
        millis: Epoch milliseconds by the clock of Kinesis.
    """

    millis: int

    @property
    def moment(self) -> datetime:
        """The time, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.millis)

    def __str__(self) -> str:
        return f"{AT_TIMESTAMP} {self.millis}"


@dataclass(frozen=True)
class AtSequence:
    """A Kinesis record itself.

    Attributes:
        sequence_number: Its sequence number.
    """

    sequence_number: str

    @property
    def number(self) -> int:
        """The sequence number as an integer, because texts sort differently."""
        return int(self.sequence_number)

    def __str__(self) -> str:
        return f"{AT_SEQUENCE_NUMBER} {self.sequence_number}"


@dataclass(frozen=True)
class AfterSequence:
    """The place after a record.

    Attributes:
        sequence_number: Sequence number of the Kinesis record.
        sub_sequence_number: Index from 0 of the last user record in it that was read. A negative index means that no user record was
            processed, so all user records are read; None means that all were processed.
    """

    sequence_number: str
    sub_sequence_number: int | None = field(default=None, kw_only=True)

    @property
    def number(self) -> int:
        """The sequence number as an integer, because texts sort differently."""
        return int(self.sequence_number)

    def __str__(self) -> str:
        sub = "" if self.sub_sequence_number is None else f"/{self.sub_sequence_number}"
        return f"{AFTER_SEQUENCE_NUMBER} {self.sequence_number}{sub}"


@dataclass(frozen=True)
class Ended:
    """The end of a shard that was read completely."""

    def __str__(self) -> str:
        return SHARD_END


Position = TrimHorizon | Latest | AtTimestamp | AtSequence | AfterSequence | Ended
"""A position in a shard: where reading begins."""


def from_checkpoint(checkpoint: ExtendedSequenceNumber, timestamp_millis: int | None = None) -> Position:
    """Return the position of a checkpoint of the KCL.

    Args:
        checkpoint: The user record that was processed last, or a sentinel.
        timestamp_millis: Time of an ``AT_TIMESTAMP`` checkpoint, or the time to which a ``LATEST`` checkpoint was resolved, in
            epoch milliseconds; None if it is unknown. Other checkpoints do not use it.

    Raises:
        ValueError: If the checkpoint is ``AT_TIMESTAMP`` and the time is unknown.
    """
    name = checkpoint.sequence_number
    if name == TRIM_HORIZON:
        return TrimHorizon()
    if name == SHARD_END:
        return Ended()
    if name == LATEST and timestamp_millis is None:
        return Latest()
    if name in {AT_TIMESTAMP, LATEST}:
        if timestamp_millis is None:
            raise ValueError("an AT_TIMESTAMP checkpoint needs its timestamp")
        return AtTimestamp(timestamp_millis)
    return AfterSequence(name, sub_sequence_number=checkpoint.sub_sequence_number)


def iterator_start(position: Position) -> Position:
    """Return the position at which an iterator is opened; for a position inside an aggregate, this is the record itself."""
    if isinstance(position, AfterSequence) and position.sub_sequence_number is not None:
        return AtSequence(position.sequence_number)
    return position


def iterator_request(position: Position) -> dict[str, Any]:
    """Return the parameters of GetShardIterator that name a position.

    Raises:
        ValueError: If the position is `Ended`.
    """
    start = iterator_start(position)
    if isinstance(start, AfterSequence):
        return {"ShardIteratorType": AFTER_SEQUENCE_NUMBER, "StartingSequenceNumber": start.sequence_number}
    if isinstance(start, AtSequence):
        return {"ShardIteratorType": AT_SEQUENCE_NUMBER, "StartingSequenceNumber": start.sequence_number}
    if isinstance(start, AtTimestamp):
        return {"ShardIteratorType": AT_TIMESTAMP, "Timestamp": start.moment}
    if isinstance(start, Ended):
        raise ValueError("a shard that was read to its end has no iterator")  # noqa: TRY004 - a state, not a type
    return {"ShardIteratorType": str(start)}


def subscription_request(position: Position) -> dict[str, Any]:
    """Return the ``StartingPosition`` of SubscribeToShard for a position.

    Raises:
        ValueError: If the position is `Ended`.
    """
    names = {"ShardIteratorType": "Type", "StartingSequenceNumber": "SequenceNumber"}
    return {names.get(name, name): value for name, value in iterator_request(position).items()}
