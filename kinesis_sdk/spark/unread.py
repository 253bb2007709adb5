"""Records that a probe has read from a shard, without their data, and the end of a batch among them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kinesis_sdk.common.position import AfterSequence, AtSequence, Ended
from kinesis_sdk.spark.offsets import ShardPosition
from kinesis_sdk.spark.shardio import Cursor


class UnreadRecord(NamedTuple):
    """A record without its data.

    Attributes:
        arrival: Epoch milliseconds.
        rows: Number of its rows; 1 if rows are not counted.
        size: Bytes of its data and its partition key.
    """

    sequence_number: str
    arrival: int
    rows: int = 1
    size: int = 0

    @property
    def number(self) -> int:
        """The sequence number as an integer."""
        return int(self.sequence_number)


class Cut(NamedTuple):
    """The time at which a batch ends in every shard.

    Attributes:
        millis: Epoch milliseconds; records that arrived then or later belong to the next batch.
        now: Epoch milliseconds at which the probe began.
        at_tip: Whether no limit holds the cut back.
    """

    millis: int
    now: int
    at_tip: bool


class End(NamedTuple):
    """The end of a batch in one shard.

    Attributes:
        position: The start itself if there is nothing to read.
        records: Expected number of records up to the position, for balancing tasks.
        cut: An earlier cut, which all shards must use because this shard could not be read up to the cut; None otherwise.
        following: Arrival (epoch milliseconds) of the record after the position, if it is known.
        cursor: Cursor at the position, if there is one.
        seen_at: Monotonic seconds at which no record followed the position; None if a record did, or if this is unknown.
    """

    position: ShardPosition
    records: int = 0
    cut: int | None = None
    following: int | None = None
    cursor: Cursor | None = None
    seen_at: float | None = None


class Unread:
    """Records that were read after a position, without a gap.

    Attributes:
        records: The records in the order of the shard.
        caught_up: Whether no record follows these records.
        ended: Whether no record will ever follow these records.
        hidden_from: Epoch milliseconds before which no further record arrived, if the next records could not be read.
        latest: Latest arrival of the records; 0 if there are no records.
    """

    def __init__(self) -> None:
        self.records: list[UnreadRecord] = []
        self.caught_up: bool = False
        self.ended: bool = False
        self.hidden_from: int | None = None
        self.latest: int = 0

    def add(self, records: Iterable[UnreadRecord]) -> None:
        """Add the records that follow."""
        for record in records:
            self.records.append(record)
            self.latest = max(self.latest, record.arrival)

    def first_at(self, cut: int, count: int | None = None) -> int | None:
        """Return the index of the first record at or after a cut, or after ``count`` records; None if there is no such record."""
        for index, record in enumerate(self.records):
            if record.arrival >= cut or index == count:
                return index
        return None

    def end_at(self, index: int, start: ShardPosition) -> End:
        """Return the end before a record; the start if that record is the first."""
        record = self.records[index]
        position = AtSequence(record.sequence_number) if index else start
        return End(position, index, following=record.arrival)


def end_in(
    unread: list[UnreadRecord],
    cut: int,
    *,
    caught_up: bool,
    ended: bool,
    cursor: Cursor | None,
    records: int,
    seen_at: float,
) -> End | None:
    """Return the end if the unread records show it: before the first record at the cut, or after the last record of the shard.

    ``unread`` is in order, and ``cursor`` is the position after it; ``records`` is the expected number of records up to the end. If they
    are ``caught_up``, no record followed them at ``seen_at`` (monotonic seconds).
    """
    for record in unread:
        if record.arrival >= cut:
            return End(AtSequence(record.sequence_number), records, following=record.arrival)
    if ended:
        return End(Ended(), records)
    if caught_up and unread:
        # Not the present time: other shards may have taken seconds since the read.
        return End(AfterSequence(unread[-1].sequence_number), records, cursor=cursor, seen_at=seen_at)
    return None
