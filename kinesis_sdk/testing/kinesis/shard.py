"""One shard: its range, its lineage and its records.

A record is stored once, in one `bytes` object, as the JSON text that GetRecords returns. Sequence number and arrival time
are at fixed offsets in it, so searches need no other index. The shard also keeps an 8-byte running total of bytes for each record, so a
search also finds the end of a page. Resident memory: about 370 bytes for a record of 100 bytes, about
1.45 times the data at 25 KB (base64 alone is 4/3); ``benchmarks/bench_fake.py`` measures both.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Any

from kinesis_sdk.testing.kinesis.sequence import DIGITS, SequenceNumbers
from kinesis_sdk.testing.kinesis.throttle import ReadLimit, TokenBucket, WriteLimit

_NUMBER_AT = len('{"SequenceNumber":"')
_NUMBER_END = _NUMBER_AT + DIGITS
_TIME_AT = _NUMBER_END + len('","ApproximateArrivalTimestamp":')
# Records are removed in batches, because dropping the head of a list moves its tail.
_TRIM_BATCH = 256


def _number_of(fragment: bytes) -> bytes:
    return fragment[_NUMBER_AT:_NUMBER_END]


def _arrival_of(fragment: bytes) -> int:
    return int(fragment[_TIME_AT : _TIME_AT + 10]) * 1000 + int(fragment[_TIME_AT + 11 : _TIME_AT + 14])


class Shard:
    """A shard and its records. Not locked: the stream's lock guards it.

    Attributes:
        start, end: First and last hash key.
        parent: None for the first shards of a stream.
        adjacent_parent: The other parent after a merge.
        created_at: Wall time in seconds.
        closed_at: Wall time in seconds, None while open.
        children: Shards that were created when this shard was closed.
    """

    __slots__ = (
        "_ends",
        "_fragments",
        "_last_arrival",
        "_prefix",
        "_received",
        "adjacent_parent",
        "children",
        "closed_at",
        "created_at",
        "end",
        "ending_number",
        "iterator_limit",
        "numbers",
        "parent",
        "read_limit",
        "shard_id",
        "start",
        "total_records",
        "write_limit",
    )

    def __init__(
        self,
        *,
        index: int,
        start: int,
        end: int,
        created_second: int,
        now: float,
        monotonic: float,
        parent: str | None = None,
        adjacent_parent: str | None = None,
    ) -> None:
        self.shard_id: str = f"shardId-{index:012d}"
        self.start: int = start
        self.end: int = end
        self.parent: str | None = parent
        self.adjacent_parent: str | None = adjacent_parent
        self.children: list[Shard] = []
        self.created_at: float = now
        self.closed_at: float | None = None
        self.numbers: SequenceNumbers = SequenceNumbers(index, created_second)
        self.ending_number: int | None = None
        self.write_limit: WriteLimit = WriteLimit(monotonic)
        self.read_limit: ReadLimit = ReadLimit(monotonic)
        self.iterator_limit: TokenBucket = TokenBucket(5, monotonic)
        self.total_records: int = 0
        self._fragments: list[bytes] = []
        # Running totals of record sizes since the shard began; `_prefix` is the total that was trimmed.
        self._ends = array("Q")
        self._prefix = 0
        self._last_arrival = 0
        # True arrival times, kept once a record shows an earlier one; searching and trimming use these.
        self._received: array[int] | None = None

    def append(self, data: str, partition_key: str, size: int, arrival: int, early: int = 0) -> int:
        """Store a record and return its sequence number.

        Args:
            data: Base64 text, checked by the caller.
            partition_key: ``,"PartitionKey":"…"`` as JSON text, or empty text for a record without a partition key.
            size: Bytes of data and partition key.
            arrival: Wall time in milliseconds; at least the time of the last record, so that times increase within a shard.
            early: Milliseconds by which the shown arrival time is too early.
        """
        if arrival < self._last_arrival:
            arrival = self._last_arrival
        else:
            self._last_arrival = arrival
        number = self.numbers.take(arrival // 1000)
        if early and self._received is None:
            self._received = array("Q", map(_arrival_of, self._fragments))
        if self._received is not None:
            self._received.append(arrival)
        seconds, millis = divmod(arrival - early, 1000)
        self._fragments.append(
            b'{"SequenceNumber":"%d","ApproximateArrivalTimestamp":%d.%03d,"Data":"%b"%b}'
            % (number, seconds, millis, data.encode(), partition_key.encode())
        )
        ends = self._ends
        ends.append((ends[-1] if ends else self._prefix) + size)
        self.total_records += 1
        return number

    def close(self, now: float, children: list[Shard]) -> None:
        """Close the shard at wall time `now` (seconds); `children` continue it."""
        self.closed_at = now
        self.ending_number = self.numbers.ending(int(now))
        self.children = children

    def trim(self, horizon: int) -> None:
        """Drop the records that arrived before `horizon` (wall time in milliseconds)."""
        fragments = self._fragments
        if not fragments or self._received_first() >= horizon:
            return
        count = self._first_since(horizon)
        if count >= min(_TRIM_BATCH, len(fragments)):
            self._prefix = self._ends[count - 1]
            del fragments[:count]
            del self._ends[:count]
            if self._received is not None:
                del self._received[:count]

    def _received_first(self) -> int:
        return _arrival_of(self._fragments[0]) if self._received is None else self._received[0]

    def _first_since(self, arrival: int) -> int:
        if self._received is not None:
            return bisect_left(self._received, arrival)
        return bisect_left(self._fragments, arrival, key=_arrival_of)

    def number_since(self, arrival: int) -> int:
        """Return the position of the first record that arrived at or after `arrival` (milliseconds)."""
        at = self._first_since(arrival)
        return int(_number_of(self._fragments[at])) if at < len(self._fragments) else self.next_number

    def number_before(self, position: int) -> int:
        """Return the number of the last record before `position`, or the number at which the shard starts."""
        at = bisect_left(self._fragments, b"%0*d" % (DIGITS, position), key=_number_of)
        return int(_number_of(self._fragments[at - 1])) if at else self.numbers.starting

    @property
    def next_number(self) -> int:
        """A position after every record that was stored so far and before every later record."""
        if self.ending_number is not None:
            return self.ending_number + 1
        return (int(_number_of(self._fragments[-1])) if self._fragments else self.numbers.starting) + 1

    @property
    def last_second(self) -> int:
        """The latest creation second in its sequence numbers; a child needs a later second."""
        return self.numbers.created_second

    def read(self, position: int, limit: int, max_bytes: int, horizon: int) -> Page:
        """Read records from `position` on, at least one record if there is one.

        Args:
            position: Smallest sequence number requested.
            limit: Maximum number of records.
            max_bytes: Maximum bytes of data and partition keys.
            horizon: Wall time (milliseconds) before which records have expired.
        """
        fragments, ends = self._fragments, self._ends
        first = self._first_from(position, horizon)
        if first == len(fragments):
            return Page([], 0, position, None)
        before = ends[first - 1] if first else self._prefix
        stop = bisect_right(ends, before + max_bytes, first, min(first + limit, len(ends)))
        stop = max(stop, first + 1)
        return Page(
            fragments[first:stop],
            ends[stop - 1] - before,
            int(_number_of(fragments[stop - 1])) + 1,
            _arrival_of(fragments[stop - 1]) if stop < len(fragments) else None,
        )

    def lag(self, position: int, horizon: int, now: int) -> int:
        """Return the age in milliseconds (at least 1) of the first record that `read` would return; 0 if there is no such record.

        `horizon` and `now` are wall times in milliseconds.
        """
        first = self._first_from(position, horizon)
        return max(1, now - _arrival_of(self._fragments[first])) if first < len(self._fragments) else 0

    def _first_from(self, position: int, horizon: int) -> int:
        first = bisect_left(self._fragments, b"%0*d" % (DIGITS, position), key=_number_of)
        if self._fragments and self._received_first() < horizon:
            first = max(first, self._first_since(horizon))
        return first

    def describe(self) -> dict[str, Any]:
        """Return the shard as ListShards and DescribeStream show it."""
        numbers = {"StartingSequenceNumber": str(self.numbers.starting)}
        if self.ending_number is not None:
            numbers["EndingSequenceNumber"] = str(self.ending_number)
        described: dict[str, Any] = {"ShardId": self.shard_id}
        if self.parent is not None:
            described["ParentShardId"] = self.parent
        if self.adjacent_parent is not None:
            described["AdjacentParentShardId"] = self.adjacent_parent
        described["HashKeyRange"] = {"StartingHashKey": str(self.start), "EndingHashKey": str(self.end)}
        described["SequenceNumberRange"] = numbers
        return described

    def describe_as_child(self) -> dict[str, Any]:
        """Return the shard as an entry of ``ChildShards``."""
        return {
            "ShardId": self.shard_id,
            "ParentShards": [name for name in (self.parent, self.adjacent_parent) if name is not None],
            "HashKeyRange": {"StartingHashKey": str(self.start), "EndingHashKey": str(self.end)},
        }


class Page:
    """Result of one read.

    Attributes:
        fragments: Records as JSON text.
        size: Bytes of data and partition keys.
        position: Position of the next read.
        behind_arrival: Arrival (milliseconds) of the last record if more follow; otherwise None.
    """

    __slots__ = ("behind_arrival", "fragments", "position", "size")

    def __init__(self, fragments: list[bytes], size: int, position: int, behind_arrival: int | None) -> None:
        self.fragments: list[bytes] = fragments
        self.size: int = size
        self.position: int = position
        self.behind_arrival: int | None = behind_arrival
