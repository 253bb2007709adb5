"""User records of a batch, each created when it is accessed.

A batch of small records holds tens of thousands of user records, and most handlers read each once, in order. So the batch
keeps columns: payloads and partition keys, and the Kinesis record that carried them. A `UserRecord` exists only as long as its reader
holds it. Creating all records in advance costs twice the CPU time, half of it in the garbage collector.

The fields of a `KinesisRecord` are passed on by position: a `UserRecord` begins with them, in their order, and an aggregate
replaces the first two. A new field of both classes needs no change here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, count, repeat, starmap
from operator import concat, eq, itemgetter
from typing import Any, ClassVar, Protocol, overload

from kinesis_sdk.common.headers import NO_HEADERS, Headers, headers_overhead
from kinesis_sdk.common.records import KinesisRecord, UserRecord

# Creates a named tuple from a finished tuple at a third of the cost of its own constructor. The tuple must have all fields in
# order. Used only where the cost is paid per user record.
_new = tuple.__new__
_data_of = itemgetter(0)
# Python creates an object for every number above 256 when it counts; aggregates rarely hold more records than this.
_NUMBERS = tuple(range(2048))
# The fields of a user record that was not aggregated, after those of its Kinesis record.
_NOT_AGGREGATED = (0, None, False, NO_HEADERS)

USER_RECORD_OVERHEAD = 64
"""Bytes of a user record in a batch in addition to its payload: two column entries and the header of a bytes object
(measured, CPython 3.11). An empty payload takes 16. A record with an explicit hash key takes twice as many bytes, because of the text."""


class RecordRun(Protocol):
    """Consecutive user records that are stored together; not empty.

    Attributes:
        record_type: Class of the user records, `UserRecord` or a subclass that decodes the payload.
    """

    record_type: type[UserRecord]

    def __len__(self) -> int:
        """Return the number of user records."""
        ...

    def __iter__(self) -> Iterator[UserRecord]:
        """Create the user records in order."""
        ...

    def at(self, index: int) -> UserRecord:
        """Create the user record at an index from 0 to less than the length."""
        ...

    def part(self, begin: int, end: int) -> RecordRun:
        """Return consecutive user records, at least one, as a run of their own; they keep their sub-sequence numbers."""
        ...

    @property
    def payloads(self) -> Iterable[bytes]:
        """Payload of each user record."""
        ...

    @property
    def overhead(self) -> int:
        """Bytes of memory in addition to the Kinesis records that carried the user records."""
        ...


class AggregatedRun:
    """The user records of one aggregate.

    Args:
        carrier: The Kinesis record. The record's data is not kept, because the payloads are copies of nearly all of it.
        payloads: Payload of each user record, in the order of the aggregate.
        partition_keys: Partition key of each user record.
        explicit_hash_keys: Explicit hash key or None of each user record; None instead of a sequence if no user record has one.
        headers: Headers of each user record; None if no user record has any.
        sealed_size: Bytes of the sealed body that contained the user records; None if there was none.
    """

    __slots__ = (
        "_explicit_hash_keys",
        "_first",
        "_headers",
        "_origin",
        "_partition_keys",
        "_sealed_size",
        "payloads",
        "record_type",
    )

    def __init__(
        self,
        carrier: KinesisRecord,
        payloads: Sequence[bytes],
        partition_keys: Sequence[str],
        explicit_hash_keys: Sequence[str | None] | None,
        headers: Sequence[Headers] | None = None,
        sealed_size: int | None = None,
    ) -> None:
        self.payloads: Sequence[bytes] = payloads
        self._sealed_size = sealed_size
        self._first = 0
        self.record_type: type[UserRecord] = UserRecord
        self._origin = carrier[2:]
        self._partition_keys = partition_keys
        self._explicit_hash_keys = explicit_hash_keys
        self._headers = headers

    @property
    def overhead(self) -> int:
        """See `RecordRun.overhead`."""
        each = USER_RECORD_OVERHEAD * (1 if self._explicit_hash_keys is None else 2)
        headers = 0 if self._headers is None else headers_overhead(self._headers)
        sealed = self._sealed_size
        grown = 0 if sealed is None else max(0, sum(map(len, self.payloads)) - sealed)
        return len(self.payloads) * each + headers + grown

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[UserRecord]:
        # All of it runs in C, because a handler pays for it per record.
        first, end = self._first, self._first + len(self.payloads)
        fields: Iterator[tuple[Any, ...]] = zip(
            self.payloads,
            self._partition_keys,
            *map(repeat, self._origin),
            count(first) if end > len(_NUMBERS) else _NUMBERS[first:end],
            repeat(None) if self._explicit_hash_keys is None else self._explicit_hash_keys,
            repeat(True),
            repeat(NO_HEADERS) if self._headers is None else self._headers,
        )
        # Not `map`, which creates a tuple of arguments for each call; `zip` reuses one.
        return starmap(_new, zip(repeat(self.record_type), fields))  # noqa: RUF058

    def at(self, index: int) -> UserRecord:
        """Return one user record."""
        hashes = self._explicit_hash_keys
        hash_key = None if hashes is None else hashes[index]
        return self.record_type(
            self.payloads[index],
            self._partition_keys[index],
            *self._origin,
            self._first + index,
            hash_key,
            True,
            NO_HEADERS if self._headers is None else self._headers[index],
        )

    @property
    def sequence_number(self) -> str:
        """Sequence number of the Kinesis record."""
        return str(self._origin[0])

    def without(self, dropped: Iterable[tuple[int, int]]) -> Iterator[AggregatedRun]:
        """Yield the remaining parts of a complete aggregate, each with its sub-sequence numbers.

        Args:
            dropped: First and last sub-sequence number of each part to leave out, in order.
        """
        begin = 0
        for first, last in [*dropped, (len(self.payloads), 0)]:
            if begin < first:
                yield self.part(begin, first)
            begin = last + 1

    def part(self, begin: int, end: int) -> AggregatedRun:
        """See `RecordRun.part`."""
        part = AggregatedRun.__new__(AggregatedRun)
        hashes = self._explicit_hash_keys
        part.payloads = self.payloads[begin:end]
        part.record_type = self.record_type
        part._first = self._first + begin
        part._origin = self._origin
        sealed = self._sealed_size
        part._sealed_size = None if sealed is None else sealed * (end - begin) // len(self.payloads)
        part._partition_keys = self._partition_keys[begin:end]
        part._explicit_hash_keys = None if hashes is None else hashes[begin:end]
        part._headers = None if self._headers is None else self._headers[begin:end]
        return part


class PlainRun:
    """Kinesis records that are not aggregated, one user record each.

    Args:
        records: The Kinesis records in the order of the shard.
    """

    __slots__ = ("_records", "record_type")

    def __init__(self, records: list[KinesisRecord]) -> None:
        self.record_type: type[UserRecord] = UserRecord
        self._records = records

    @property
    def overhead(self) -> int:
        """See `RecordRun.overhead`."""
        return 0

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[UserRecord]:
        # In C, as above.
        fields = map(concat, self._records, repeat(_NOT_AGGREGATED))
        return starmap(_new, zip(repeat(self.record_type), fields))  # noqa: RUF058

    def at(self, index: int) -> UserRecord:
        """Return one user record."""
        return self.record_type(*self._records[index], *_NOT_AGGREGATED)

    def part(self, begin: int, end: int) -> PlainRun:
        """See `RecordRun.part`."""
        part = PlainRun(self._records[begin:end])
        part.record_type = self.record_type
        return part

    @property
    def payloads(self) -> Iterable[bytes]:
        """Payload of each user record."""
        return map(_data_of, self._records)


class UserRecords(Sequence[UserRecord]):
    """An immutable sequence of user records, equal to a list of the same records.

    Records are created on access: the same index gives equal records, but not the same object. Slices are lists, and
    pickling gives a list.

    Args:
        runs: The runs of the batch, in order.
    """

    __slots__ = ("_ends", "_runs")

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # equal to lists, which have no hash

    def __init__(self, runs: Iterable[RecordRun] = ()) -> None:
        self._runs = list(runs)
        self._ends = list(accumulate(map(len, self._runs)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[UserRecord]:
        # A batch has one run if the stream has no aggregates, or if the response has a single aggregate.
        return iter(self._runs[0]) if len(self._runs) == 1 else chain.from_iterable(self._runs)

    @overload
    def __getitem__(self, index: int) -> UserRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[UserRecord]: ...
    def __getitem__(self, index: int | slice) -> UserRecord | list[UserRecord]:
        if isinstance(index, slice):
            return list(self)[index]
        size = len(self)
        place = index + size if index < 0 else index
        if not 0 <= place < size:
            raise IndexError(f"index {index} in a batch of {size} user records")
        run = bisect_right(self._ends, place)
        return self._runs[run].at(place - (self._ends[run - 1] if run else 0))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (list, UserRecords)):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __repr__(self) -> str:
        # A log line must show neither payloads nor a million records.
        return f"<{type(self).__name__}: {len(self)} user records, {payload_bytes(self)} bytes>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (list, (list(self),))

    def part(self, begin: int, end: int) -> UserRecords:
        """Return consecutive records without creating them; they keep their sub-sequence numbers.

        The cost depends on the number of records in the part, not in the batch.

        Args:
            begin: Index of the first record, at least 0.
            end: Index after the last record, at most the length.
        """
        ends = self._ends
        if begin == 0 and end == len(self):
            return self
        found: list[RecordRun] = []
        index = bisect_right(ends, begin)
        while begin < end:
            run = self._runs[index]
            start = ends[index] - len(run)
            stop = min(end, ends[index])
            found.append(run if stop - begin == len(run) else run.part(begin - start, stop - start))
            begin = stop
            index += 1
        return UserRecords(found)

    def of_type(self, record_type: type[UserRecord]) -> UserRecords:
        """Make the records instances of a subclass of `UserRecord` from now on; return this batch."""
        for run in self._runs:
            run.record_type = record_type
        return self

    @classmethod
    def joined(cls, parts: Sequence[UserRecords]) -> UserRecords:
        """Return all records of several batches, in order."""
        return parts[0] if len(parts) == 1 else cls(run for part in parts for run in part._runs)

    def without(self, dropped: Mapping[str, Sequence[tuple[int, int]]]) -> UserRecords:
        """Return the records without parts of some aggregates; remaining records keep their sub-sequence numbers.

        Args:
            dropped: Parts to leave out, in order, by the sequence number of their aggregate: pairs of first and last
                sub-sequence number.
        """
        if not dropped:
            return self
        runs: list[RecordRun] = []
        for run in self._runs:
            parts = dropped.get(run.sequence_number) if isinstance(run, AggregatedRun) else None
            if parts is None or not isinstance(run, AggregatedRun):
                runs.append(run)
            else:
                runs.extend(run.without(parts))
        return UserRecords(runs)

    @property
    def overhead(self) -> int:
        """Bytes of memory in addition to the Kinesis records that carried the user records."""
        return sum([run.overhead for run in self._runs])

    @property
    def payloads(self) -> Iterator[bytes]:
        """Payloads of all records, without creating the records."""
        return chain.from_iterable([run.payloads for run in self._runs])


def part_of(records: Sequence[UserRecord], begin: int, end: int) -> Sequence[UserRecord]:
    """Return consecutive records of a batch, see `UserRecords.part`, or a new list with some records of a list.

    Args:
        records: The batch, or a list.
        begin: Index of the first record.
        end: Index after the last record.
    """
    return records.part(begin, end) if isinstance(records, UserRecords) else records[begin:end]


def payload_bytes(records: Sequence[UserRecord]) -> int:
    """Return the bytes of payload of user records."""
    payloads = records.payloads if isinstance(records, UserRecords) else map(_data_of, records)
    return sum(map(len, payloads))
