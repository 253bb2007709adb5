"""Open aggregates: one for each predicted shard, closed by size, count or deadline.

While no shard map is known, records are grouped by their effective hash key, so that an aggregate is safe on
any topology: all of it belongs wherever its first record belongs.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TypeAlias

from kinesis_sdk.common.aggregation import Aggregate
from kinesis_sdk.producer.record import PendingRecord

Group: TypeAlias = str | bytes
"""A predicted shard id, or an effective hash key while no shard is predicted."""


_SPARE_DEADLINES = 1_000


class Entry:
    """A Kinesis record on its way: a closed aggregate, or one user record that travels alone.

    Attributes:
        aggregate: Knows partition key, explicit hash key, size and encoding.
        records: The user records inside, in the order of their sub-sequence numbers.
        shard_id: Predicted shard; None if it was not known.
        deadline: Earliest deadline inside (monotonic seconds).
        expires: Earliest expiry inside (monotonic seconds).
        size: Bytes that the service counts: data and partition key.
        urgent: A flush waits for it: it does not wait for company in a request.
    """

    __slots__ = ("aggregate", "deadline", "expires", "records", "shard_id", "size", "urgent")

    def __init__(
        self,
        aggregate: Aggregate,
        records: list[PendingRecord],
        shard_id: str | None,
        deadline: float,
        expires: float,
    ) -> None:
        self.aggregate = aggregate
        self.records = records
        self.shard_id = shard_id
        self.deadline = deadline
        self.expires = expires
        self.size = aggregate.size + len(aggregate.partition_key.encode())
        self.urgent = False


class _Open(Aggregate):
    """An open aggregate with what the producer has to know of its records."""

    __slots__ = ("deadline", "expires", "records", "ticket")

    def __init__(self, max_size: int, max_count: int) -> None:
        super().__init__(max_size, max_count)
        self.records: list[PendingRecord] = []
        self.deadline = float("inf")
        self.expires = float("inf")
        self.ticket = 0


class Aggregator:
    """Groups user records into Kinesis records. Pure: time comes in with the records. Not thread-safe.

    Args:
        max_size: Most bytes of an aggregated record.
        max_count: Most user records of one; 1 switches aggregation off.
    """

    __slots__ = ("_deadlines", "_open", "_pushed", "max_count", "max_size")

    def __init__(self, max_size: int, max_count: int) -> None:
        self.max_size = max_size
        self.max_count = max_count
        self._open: dict[Group, _Open] = {}
        # (deadline, running number, group). Lazily cleaned: an element counts only while its group is open and
        # has that number as its ticket. Numbers also keep groups of different types from being compared.
        self._deadlines: list[tuple[float, int, Group]] = []
        self._pushed = 0

    def add(self, record: PendingRecord, group: Group) -> Entry | None:
        """Put a record into its group's aggregate.

        Returns:
            A Kinesis record that is ready to go: the aggregate that had no room left for this record, or the
            one that this record filled. None if nothing is ready.
        """
        closed: Entry | None = None
        current = self._open.get(group)
        if current is None or not current.try_append(
            record.partition_key, record.explicit_hash_key, record.data, record.hash_key
        ):
            if current is not None:
                closed = self._close(group)
            current = self._open[group] = _Open(self.max_size, self.max_count)
            current.try_append(record.partition_key, record.explicit_hash_key, record.data, record.hash_key)
        current.records.append(record)
        if record.expires < current.expires:  # noqa: PLR1730 - `min` is a call for every record
            current.expires = record.expires
        if record.deadline < current.deadline:
            current.deadline = record.deadline
            self._push(record.deadline, group, current)
        if (current.size >= self.max_size or current.count >= self.max_count) and closed is None:
            return self._close(group)
        return closed

    def close_due(self, now: float) -> Iterator[Entry]:
        """Close and yield every aggregate whose deadline has come."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            _, ticket, group = heapq.heappop(deadlines)
            current = self._open.get(group)
            if current is not None and current.ticket == ticket:
                yield self._close(group)

    def close_all(self) -> Iterator[Entry]:
        """Close and yield everything, earliest deadline first."""
        for group in sorted(self._open, key=lambda g: self._open[g].deadline):
            yield self._close(group)
        self._deadlines.clear()

    def take_all(self) -> list[PendingRecord]:
        """Remove and return all open records, oldest aggregate first, to group them anew."""
        records = [record for entry in self.close_all() for record in entry.records]
        records.sort(key=lambda record: record.arrived)
        return records

    @property
    def next_deadline(self) -> float | None:
        """When `close_due` has something to do; None if nothing is open."""
        deadlines = self._deadlines
        while deadlines:
            deadline, ticket, group = deadlines[0]
            current = self._open.get(group)
            if current is not None and current.ticket == ticket:
                return deadline
            heapq.heappop(deadlines)
        return None

    def _push(self, deadline: float, group: Group, current: _Open) -> None:
        if len(self._deadlines) > 2 * len(self._open) + _SPARE_DEADLINES:
            # Aggregates that close by size leave theirs behind: with minutes of buffered time, by the million.
            self._deadlines[:] = [
                item
                for item in self._deadlines
                if item[2] in self._open and self._open[item[2]].ticket == item[1]
            ]
            heapq.heapify(self._deadlines)
        self._pushed += 1
        current.ticket = self._pushed
        heapq.heappush(self._deadlines, (deadline, self._pushed, group))

    def _close(self, group: Group) -> Entry:
        current = self._open.pop(group)
        current.seal()
        shard_id = group if isinstance(group, str) else None
        return Entry(current, current.records, shard_id, current.deadline, current.expires)
