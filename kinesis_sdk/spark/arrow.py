"""Conversion of pages of Kinesis records to Arrow record batches, one column at a time.

Values that all user records of an aggregate share (sequence number, arrival, shard, stream) are repeated by Arrow, not by Python.
A batch is therefore larger than its page: Arrow writes the partition key for each row, while an aggregate contains it once for all
its user records. A 1 MiB aggregate with one long key would become gigabytes. So batches are limited in rows and bytes, also inside
an aggregate: a batch has at most `MAX_ROWS` rows and `MAX_BYTES` bytes, or a single row. A row is at most three times as large as
its Kinesis record (3 bytes replace each byte of a key that is not UTF-8), plus a few hundred bytes. While a batch is created, its
columns exist twice.

A batch has only the columns that the reader requested. A partition key that no column shows does not count toward the size of a row.

Kinesis rejects partition keys over 256 characters, but cannot see those inside an aggregate. Records with longer keys are delivered like
others, unless the keys of an aggregate have more than `MAX_EXPANDED_CHARACTERS` in all: then the Kinesis record is delivered unopened. No
producer makes such an aggregate by accident, and 10 MiB can expand to terabytes, which would block the query at that record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.aggregate_reader import (
    SubRecord,
    SubRecordColumns,
    is_misplaced,
    known_keys,
    may_have_aggregates,
    open_aggregate,
)
from kinesis_sdk.common.errors import CodecUnavailableError, ConfigError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.spark.columns import COLUMN_NAMES, COLUMNS, HEADERS

if TYPE_CHECKING:
    import pyarrow as pa

_LOGGER = logging.getLogger(__name__)

MAX_ROWS = 32_768
"""Maximum rows of a batch."""

MAX_BYTES = 32 * 1024 * 1024
"""Maximum bytes of a batch, unless a single row is larger: three pages of records that are not aggregated."""

MAX_EXPANDED_CHARACTERS = 256 * 1024 * 1024
"""Maximum characters of an aggregate's keys in all rows, if one of the keys is longer than Kinesis accepts."""

_LONGEST_KEY = 256
"""Maximum characters of a partition key in the Kinesis API."""

_ROW_BYTES = 2 * 8 + 6 * 4 + 1
"""Two numbers, six offsets, and the validity bits."""

_CHARACTER_BYTES = 4
"""Maximum bytes of a character in UTF-8."""

_ENTRY_BYTES = 2 * 4
"""Bytes of a header in addition to its name and its value."""

Judge = Callable[[KinesisRecord, SubRecordColumns], "Sequence[tuple[int, int]] | None"]
"""Decides about a tagged aggregate: returns the first and the last row of each part to drop, in order; None treats it like an untagged
aggregate."""


class BatchBuilder:
    """Builder of record batches from the pages of one stream.

    ``columns`` are names of `COLUMNS` and `HEADERS`, in the order of the batch; all of `COLUMNS` by default. Without
    ``deaggregate``, and for a record that is not an intact aggregate, the Kinesis record is passed on unchanged.

    Raises:
        ConfigError: If ``columns`` is empty, names a column twice, or names a column that does not exist.
    """

    def __init__(self, stream_name: str, *, deaggregate: bool, columns: Sequence[str] = COLUMN_NAMES) -> None:
        known = (*COLUMN_NAMES, HEADERS[0])
        if not columns or len(set(columns)) != len(columns) or not set(columns) <= set(known):
            raise ConfigError("columns", list(columns), "different names of " + ", ".join(known))
        import pyarrow as pa
        import pyarrow.compute as pc

        self._pa, self._pc = pa, pc
        self._stream_name = stream_name
        self._deaggregate = deaggregate
        self._text = pa.string()
        self._moment = pa.timestamp("us", tz="UTC")
        types = {"binary": pa.binary(), "string": self._text, "long": pa.int64(), "timestamp": self._moment}
        self._map = pa.map_(self._text, pa.binary())
        types[HEADERS[1]] = self._map
        kinds = dict((*COLUMNS, HEADERS))
        self.schema: pa.Schema = pa.schema([(name, types[kinds[name]]) for name in columns])
        self._chosen = frozenset(columns)
        self._numbers: pa.Array = pa.array(range(1_024), pa.int64())

    def build(
        self,
        shard_id: str,
        records: Sequence[KinesisRecord],
        *,
        owned: HashKeyRange | None = None,
        judge: Judge | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of a page, in order.

        An aggregate with a user record outside of ``owned``, the hash key range of the shard, is discarded; None
        discards none. ``judge`` decides about the aggregates of idempotent producers; None treats them like all other
        aggregates.
        """
        pa, pc = self._pa, self._pc
        deaggregate = self._deaggregate
        chosen = self._chosen
        with_data, with_keys = "data" in chosen, "partitionKey" in chosen
        with_sequences, with_hashes = "sequenceNumber" in chosen, "explicitHashKey" in chosen
        data: list[bytes] = []
        keys: list[str | None] = []
        # One entry per run, whose rows have the same values. A run is a part of an aggregate, or a record that was not aggregated.
        ends: list[int] = []
        sequences: list[str] = []
        moments: list[datetime | None] = []
        numbers: list[int | None] = []
        hashes: list[tuple[int, Sequence[str | None]]] = []
        headers: list[tuple[int, Sequence[Mapping[str, bytes]]]] = []
        alone: list[KinesisRecord] = []
        size = 0
        filled = 0  # rows of the batch, without those in `alone`
        names = _ROW_BYTES
        if "shardId" in chosen:
            names += len(shard_id)
        if "streamName" in chosen:
            names += len(self._stream_name)

        def spread(values: list[Any], kind: Any) -> Any:
            """Return the value of each row's run."""
            array = pa.array(values, kind)
            if len(ends) == filled:
                return array
            return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), array))

        def numbered() -> Any:
            """Return each row's number in its aggregate: its number in the batch, minus the number of its aggregate's first row."""
            return pc.subtract(self._numbered(filled), spread(numbers, pa.int64()))

        def hash_keys() -> Any:
            if not hashes:
                return pa.nulls(filled, self._text)
            column: list[str | None] = []
            for begin, part in hashes:
                column.extend(repeat(None, begin - len(column)))
                column.extend(part)
            column.extend(repeat(None, filled - len(column)))
            return pa.array(column, self._text)

        def header_maps() -> Any:
            column: list[list[tuple[str, bytes]]] = []
            for begin, part in headers:
                column.extend(repeat([], begin - len(column)))
                column.extend([list(one.items()) for one in part])
            column.extend(repeat([], filled - len(column)))
            return pa.array(column, self._map)

        makers: dict[str, Callable[[], Any]] = {
            "data": lambda: pa.array(data, pa.binary()),
            "partitionKey": lambda: pa.array(keys, self._text),
            "sequenceNumber": lambda: spread(sequences, self._text),
            "subSequenceNumber": numbered,
            "approximateArrivalTimestamp": lambda: spread(moments, self._moment),
            "shardId": lambda: pa.repeat(pa.scalar(shard_id, self._text), filled),
            "streamName": lambda: pa.repeat(pa.scalar(self._stream_name, self._text), filled),
            "explicitHashKey": hash_keys,
            "headers": header_maps,
        }

        def end_alone() -> None:
            nonlocal filled
            if not alone:
                return
            if with_data:
                data.extend([record.data for record in alone])
            if with_keys:
                keys.extend([record.partition_key or None for record in alone])
            sequences.extend([record.sequence_number for record in alone])
            moments.extend([record.approximate_arrival_timestamp for record in alone])
            numbers.extend(repeat(None, len(alone)))
            ends.extend(range(filled + 1, filled + len(alone) + 1))
            filled += len(alone)
            alone.clear()

        def batch() -> Any:
            nonlocal size, filled
            end_alone()
            arrays = [makers[name]() for name in self.schema.names]
            for column in (data, keys, ends, sequences, moments, numbers, hashes, headers):
                column.clear()
            size = filled = 0
            return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

        if len(records) <= MAX_ROWS and not (
            deaggregate and may_have_aggregates([record.data for record in records])
        ):
            # A usual page of plain records is one batch.
            size = names * len(records)
            if with_data:
                size += sum([len(record.data) for record in records])
            if with_keys:
                size += _CHARACTER_BYTES * sum([len(record.partition_key) for record in records])
            if with_sequences:
                size += sum([len(record.sequence_number) for record in records])
            if size <= MAX_BYTES:
                alone.extend(records)
                records = ()
            else:
                size = 0

        for record in records:
            try:
                found = open_aggregate(record.data) if deaggregate else None
            except CodecUnavailableError as error:
                raise error.located(
                    stream=self._stream_name, shard_id=shard_id, sequence_number=record.sequence_number
                ) from error.__cause__
            row_bytes = names
            if with_sequences:
                row_bytes += len(record.sequence_number)
            columns = None
            dropped: Sequence[tuple[int, int]] | None = None
            if found is not None and found.payloads:
                if judge is not None and found.tag is not None:
                    dropped = judge(record, found)
                if dropped is None and owned is not None and is_misplaced(_places(found), owned):
                    self._log_discarded(shard_id, record, len(found.payloads))
                    continue
                columns = self._columns(shard_id, record, found, row_bytes)
                if columns is None:
                    found = None
            if found is None:
                needed = row_bytes
                if with_data:
                    needed += len(record.data)
                if with_keys:
                    needed += len(record.partition_key.encode())
                if size and size + needed > MAX_BYTES:
                    yield batch()
                alone.append(record)
                size += needed
            elif columns is not None:
                explicit = columns.explicit
                for begin, rows in _kept(columns.rows, dropped or ()):
                    at = begin
                    while at < rows:
                        room = MAX_ROWS - filled - len(alone)
                        end, needed = columns.fit(at, min(rows, at + room), MAX_BYTES - size)
                        if end == at and size:
                            yield batch()
                            continue
                        end_alone()
                        count = end - at
                        if columns.payloads is not None:
                            data.extend(columns.payloads[at:end])
                        if columns.keys is not None:
                            keys.extend(columns.keys[at:end])
                        sequences.append(record.sequence_number)
                        moments.append(record.approximate_arrival_timestamp)
                        numbers.append(filled - at)
                        if with_hashes and explicit is not None:
                            hashes.append((filled, explicit[at:end]))
                        if columns.headers is not None:
                            headers.append((filled, columns.headers[at:end]))
                        ends.append(filled + count)
                        filled += count
                        size += needed
                        at = end
                        if at < rows:
                            yield batch()
            if filled + len(alone) >= MAX_ROWS:
                yield batch()
            found = columns = None  # must be released before the next aggregate is decoded
        if filled or alone:
            yield batch()

    def _columns(
        self, shard_id: str, record: KinesisRecord, found: SubRecordColumns, row_bytes: int
    ) -> _Columns | None:
        """Return the requested columns of an aggregate, or None if its keys have too many characters in all rows."""
        columns = _Columns(known_keys(found, record), found, self._chosen, row_bytes, len(record.data))
        if columns.expanded_characters <= MAX_EXPANDED_CHARACTERS:
            return columns
        _LOGGER.warning(
            "shard %s: aggregate %s delivered undecoded, as one row: the partition keys of its %d user records have up to %d "
            "characters, more than Kinesis accepts, and would have %d characters in all rows together",
            shard_id,
            record.sequence_number,
            columns.rows,
            columns.longest_key,
            columns.expanded_characters,
        )
        return None

    def _numbered(self, rows: int) -> Any:
        if rows > len(self._numbers):
            self._numbers = self._pa.array(range(2 * rows), self._pa.int64())
        return self._numbers.slice(0, rows)

    @staticmethod
    def _log_discarded(shard_id: str, record: KinesisRecord, count: int) -> None:
        _LOGGER.warning(
            "shard %s: aggregate %s with %d user records discarded (misplacedAggregates=discard): "
            "it contains a record of another shard",
            shard_id,
            record.sequence_number,
            count,
        )


class _Columns:
    """Columns of an aggregate, which determine how many of its rows fit into a batch. A column that is not shown is None.

    Attributes:
        rows: Number of rows.
        longest_key: Characters of the longest partition key or explicit hash key.
        expanded_characters: Characters of both key columns if a key is longer than Kinesis accepts; otherwise 0. This number does not
            depend on
            the requested columns, so a read has the same rows for all choices of columns.
    """

    def __init__(
        self,
        keys: Sequence[str],
        found: SubRecordColumns,
        chosen: frozenset[str],
        row_bytes: int,
        payload_bytes: int,
    ) -> None:
        explicit, payloads = found.explicit_hash_keys, found.payloads
        self.rows = len(payloads)
        self.keys = keys if "partitionKey" in chosen else None
        self.explicit = explicit if "explicitHashKey" in chosen else None
        self.payloads = payloads if "data" in chosen else None
        self.headers = found.headers if HEADERS[0] in chosen else None
        self._row_bytes = row_bytes
        self._payload_bytes = 0 if self.payloads is None else payload_bytes
        # The table is usually shorter than the column, and gives the same bound unless it has long keys that no row uses.
        longest = max(map(len, found.key_table)) if found.keyed else _LONGEST_KEY + 1
        if longest > _LONGEST_KEY:
            longest = max(map(len, keys))
        longest_hash_key = 0
        if explicit is not None:
            longest_hash_key = max((len(text) for text in explicit if text is not None), default=0)
        characters = 0 if self.keys is None else longest
        if self.explicit is not None:
            characters += longest_hash_key
        self._largest = row_bytes + _CHARACTER_BYTES * characters
        # By object identity: records that share their headers have the same object.
        self._header_sizes: dict[int, int] = {}
        if self.headers is not None:
            for one in self.headers:
                if id(one) not in self._header_sizes:
                    self._header_sizes[id(one)] = sum(
                        len(name) + len(value) + _ENTRY_BYTES for name, value in one.items()
                    )
            self._largest += max(self._header_sizes.values(), default=0)
        self.longest_key = max(longest, longest_hash_key)
        self.expanded_characters = 0
        if self.longest_key > _LONGEST_KEY:
            self.expanded_characters = sum(map(len, keys))
            if explicit is not None:
                self.expanded_characters += sum(len(text) for text in explicit if text is not None)
        self._sizes: dict[str | None, int] = {None: 0}

    def fit(self, begin: int, end: int, room: int) -> tuple[int, int]:
        """Return the first row after ``begin`` that does not fit, at most ``end``, and an upper bound of the bytes.

        The first row always counts as fitting into the room of an empty batch.
        """
        bound = (end - begin) * self._largest + self._payload_bytes
        if bound <= room:
            return end, bound
        if room < MAX_BYTES:
            return begin, 0  # the exact row sizes matter in an empty batch only
        total = 0
        for row in range(begin, end):
            needed = self._row_bytes
            if self.payloads is not None:
                needed += len(self.payloads[row])
            if self.keys is not None:
                needed += self._size_of(self.keys[row])
            if self.explicit is not None:
                needed += self._size_of(self.explicit[row])
            if self.headers is not None:
                needed += self._header_sizes[id(self.headers[row])]
            if total + needed > room and row > begin:
                return row, total
            total += needed
        return end, total

    def _size_of(self, text: str | None) -> int:
        size = self._sizes.get(text)
        if size is None:
            assert text is not None
            size = self._sizes[text] = len(text.encode())
        return size


def _kept(rows: int, dropped: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the remaining parts of an aggregate, each as its first row and the row after its last row."""
    begin = 0
    for first, last in [*dropped, (rows, rows)]:
        if begin < first:
            yield begin, first
        begin = last + 1


def _places(found: SubRecordColumns) -> Iterator[SubRecord]:
    """Yield each distinct pair of partition key and explicit hash key of an aggregate."""
    keys, explicit = found.partition_keys, found.explicit_hash_keys
    pairs = zip(keys, repeat(None) if explicit is None else explicit)  # noqa: B905 — `repeat` has no end
    return (SubRecord(key, hash_key, b"") for key, hash_key in set(pairs))
