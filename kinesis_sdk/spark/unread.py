"""Records that a probe has read of a shard, without their data, and the end of a batch among them. Pure."""

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
        rows: Rows that it becomes; 1 if they are not counted.
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
        cut: An earlier cut, which all shards must accept because this shard could not be read up to the cut; None
            otherwise.
        following: Arrival in epoch milliseconds of the record behind the position, if it is known.
        cursor: Cursor at the position, if there is one.
        seen_at: Monotonic seconds at which nothing followed the position; None if something did, or if that is unknown.
    """

    position: ShardPosition
    records: int = 0
    cut: int | None = None
    following: int | None = None
    cursor: Cursor | None = None
    seen_at: float | None = None


class Unread:
    """Records that follow a position without a gap, as far as they were read.

    Attributes:
        records: In the order of the shard.
        caught_up: Whether nothing follows the records.
        ended: Whether nothing will ever follow the records.
        hidden_from: Epoch milliseconds before which no further record arrived, if the next records could not be read.
        latest: Latest arrival of the records; 0 without any.
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
        """Return the index of the first record at or after a cut, or behind ``count`` records; None if there is none."""
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
    """Return the end if unread records show it: before the first at the cut, or behind the last of the shard.

    ``unread`` are in order, and ``cursor`` stands behind them; ``records`` is the expected number up to the end. Nothing
    followed them at ``seen_at``, in monotonic seconds, if they are ``caught_up``.
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
