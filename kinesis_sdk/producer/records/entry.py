"""A Kinesis record to be sent: its user records, and their common delivery state."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from kinesis_sdk.common.aggregate_writer import Aggregate, SealedAggregate
from kinesis_sdk.producer.records.record import NOT_PLACED, RECORD_OVERHEAD, BufferedRecord, DeliveryState

_NEVER = float("inf")

_NO_RECORDS: list[BufferedRecord] = []
"""Never written to."""

Group: TypeAlias = str | bytes
"""A predicted shard id, or an effective hash key while no shard is predicted."""


class DetachedRecord(NamedTuple):
    """A user record that moves from one Kinesis record to another, with its payload and its flush epoch."""

    record: BufferedRecord
    data: bytes
    epoch: int


class Entry:
    """A Kinesis record being built or in flight: an aggregate, or one user record that is not aggregated.

    Attributes:
        records: The user records inside, in the order of their sub-sequence numbers. A record is added to the Kinesis record by appending
            it here, which is the last step.
        shard_id: Predicted shard; None if no shard was predicted.
        epoch: Flush epoch of the records without an epoch of their own.
        open_for: Equal to ``epoch`` once the entry holds a record that was put directly into it, so that the entry's deadline is no later
            than the deadline of any later put; -1 before.
        mixed: Whether some of the records may have a flush epoch of their own.
        deadline: Earliest deadline of its user records (monotonic seconds); minus infinity for a part that is sent `alone`.
        expires: Earliest expiry inside (monotonic seconds).
        cost: Bytes that are charged for its user records.
        leave_by: Monotonic seconds by which it must be sent; set by the `Collector` in which it waits.
        has_listeners: Whether a user record inside may have listeners.
        urgent: Whether the entry skips the collection delay, because a flush waits for it.
        dispatched: Whether the entry has left its lane and has not returned; see `SendQueue.returned`.
        released: Monotonic seconds at which the entry last passed its shard's rate limit; minus infinity if it never has.
        chosen: The form in which the entry is sent, chosen after sealing; None before that, and without a codec.
    """

    __slots__ = (
        "_size",
        "aggregate",
        "chosen",
        "cost",
        "deadline",
        "delivery",
        "dispatched",
        "epoch",
        "expires",
        "has_listeners",
        "leave_by",
        "mixed",
        "open_for",
        "records",
        "released",
        "shard_id",
        "urgent",
    )

    def __init__(self, aggregate: Aggregate, shard_id: str | None, epoch: int = 0) -> None:
        self.aggregate: Aggregate = aggregate
        self.records: list[BufferedRecord] = _NO_RECORDS
        self.shard_id: str | None = shard_id
        self.epoch: int = epoch
        self.mixed: bool = False
        self.open_for: int = -1
        self.deadline: float = _NEVER
        self.expires: float = _NEVER
        self.leave_by: float = _NEVER
        self.cost: int = 0
        self.delivery: DeliveryState = DeliveryState(self)
        self.has_listeners: bool = False
        self.urgent: bool = False
        self.dispatched: bool = False
        self.released: float = -_NEVER
        self.chosen: Aggregate | SealedAggregate | None = None
        self._size = 0

    @property
    def alone(self) -> bool:
        """Whether the entry is a part of a rejected Kinesis record; such a part is sent first, in a request of its own."""
        return self.deadline == -_NEVER

    @property
    def group(self) -> Group:
        """Its predicted shard, or its effective hash key while no shard is predicted."""
        return self.shard_id or self.aggregate.hash_key

    @property
    def form(self) -> Aggregate | SealedAggregate:
        """The form in which it is sent. Read this only once the entry is closed and may be sent."""
        return self.chosen or self.aggregate

    @property
    def sealed_size(self) -> int:
        """Bytes of its sealed form, which is held in addition to its user records; 0 without a sealed form."""
        return self.chosen.size if isinstance(self.chosen, SealedAggregate) else 0

    @property
    def size(self) -> int:
        """Bytes as Kinesis counts them: data and partition key. Read this only once the entry is closed and may be sent."""
        if not self._size:
            aggregate = self.aggregate
            self._size = (self.chosen or aggregate).size + len(aggregate.partition_key.encode())
        return self._size

    def begin(
        self, record: BufferedRecord, data: bytes, hash_key: bytes, deadline: float, expires: float
    ) -> None:
        """`take` for the first record, if it is new and has no explicit hash key or details, and the aggregate has no runs."""
        partition_key = record.partition_key
        self.aggregate.begin(partition_key, data, hash_key)
        self.cost = len(data) + len(partition_key) + RECORD_OVERHEAD
        self.deadline = deadline
        self.expires = expires
        record._index = 0
        record._delivery = self.delivery
        self.records = [record]  # without spare room, unlike a list that is appended to

    def take(
        self, record: BufferedRecord, data: bytes, hash_key: bytes, deadline: float, expires: float
    ) -> bool:
        """Add a new or detached user record; return False if it does not fit."""
        partition_key, details = record.partition_key, record._details
        if details is not None:
            headers = details.header_fields
            if not self.aggregate.try_append(
                partition_key,
                record.explicit_hash_key,
                data,
                hash_key,
                identity=details.identity,
                headers=headers,
            ):
                return False
            self.cost += len(headers)
        elif not self.aggregate.try_append(partition_key, record.explicit_hash_key, data, hash_key):
            return False
        self.cost += len(data) + len(partition_key) + RECORD_OVERHEAD
        if deadline < self.deadline:  # noqa: PLR1730 - `min` is a call for every record
            self.deadline = deadline
        if expires < self.expires:  # noqa: PLR1730
            self.expires = expires
        records = self.records
        index = len(records)
        placed = record._delivery is NOT_PLACED
        if placed:
            record._index = index
            record._delivery = self.delivery
        if index:
            records.append(record)
        else:
            self.records = [record]  # without spare room, unlike a list that is appended to
        if not placed:
            record.move(self, index)
        return True

    def owns(self, record: BufferedRecord) -> bool:
        """Return whether a record in the list still belongs to this Kinesis record: it has neither moved to another one nor failed."""
        return record._delivery.entry is self

    def detach_records(self) -> list[DetachedRecord]:
        """Return its user records, which are to be moved to other Kinesis records."""
        # Not strict: an interrupted append may leave a payload without a record.
        return [
            DetachedRecord(record, data, record._epoch_in(self.epoch))
            for record, data in zip(self.records, self.aggregate.payloads, strict=False)
            if self.owns(record)
        ]

    @property
    def is_empty(self) -> bool:
        """Whether none of its user records belongs to it any longer."""
        return not any(map(self.owns, self.records))

    def clear(self) -> None:
        """Drop all references. Call only when the entry is empty."""
        self.delivery.entry = None
        self.records = _NO_RECORDS
