"""Pages of Kinesis records as Arrow record batches, columns at a time.

What is equal for all user records of an aggregate (sequence number, arrival, shard, stream) is repeated by Arrow, not
by Python. A batch ends with a Kinesis record, so that it is as large as one needs to be: about `TARGET_ROWS` rows, or
the user records of one aggregate if that holds more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

from kinesis_sdk.common.aggregation import SubRecord, SubRecordColumns, decode_columns, is_misplaced
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.records import KinesisRecord

if TYPE_CHECKING:
    import pyarrow as pa

_LOGGER = logging.getLogger("kinesis_sdk.spark")

TARGET_ROWS = 32_768

COLUMNS = (
    ("data", "binary"),
    ("partitionKey", "string"),
    ("sequenceNumber", "string"),
    ("subSequenceNumber", "long"),
    ("approximateArrivalTimestamp", "timestamp"),
    ("shardId", "string"),
    ("streamName", "string"),
    ("explicitHashKey", "string"),
)
"""Names and Spark types. ``subSequenceNumber`` is null for a record that travelled alone."""

DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
"""The schema as Spark reads it."""


class BatchBuilder:
    """Makes record batches of one stream's pages.

    Args:
        stream_name: For the column ``streamName``.
        deaggregate: Whether aggregated records are taken apart; what is no intact aggregate passes as it is.
    """

    def __init__(self, stream_name: str, *, deaggregate: bool) -> None:
        import pyarrow as pa

        self._pa = pa
        self._stream_name = stream_name
        self._deaggregate = deaggregate
        self._text = pa.string()
        self._moment = pa.timestamp("us", tz="UTC")
        types = {"binary": pa.binary(), "string": self._text, "long": pa.int64(), "timestamp": self._moment}
        self.schema: pa.Schema = pa.schema([(name, types[kind]) for name, kind in COLUMNS])
        self._numbers: pa.Array = pa.array(range(1_024), pa.int64())

    def build(
        self, shard_id: str, records: Iterable[KinesisRecord], *, owned: HashKeyRange | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Record batches of a page of one shard, in order.

        Args:
            shard_id: The shard.
            records: Its page.
            owned: Its hash keys: an aggregate with a user record elsewhere is discarded whole. None: none is.
        """
        pa = self._pa
        deaggregate = self._deaggregate
        data: list[bytes] = []
        keys: list[str] = []
        # Arrays of a run each; a run is an aggregate, or neighbours that travelled alone.
        sequences: list[Any] = []
        subs: list[Any] = []
        moments: list[Any] = []
        hashes: list[Any] = []
        alone: list[KinesisRecord] = []

        def end_alone() -> None:
            if alone:
                data.extend([record.data for record in alone])
                keys.extend([record.partition_key for record in alone])
                sequences.append(pa.array([record.sequence_number for record in alone], self._text))
                subs.append(pa.nulls(len(alone), pa.int64()))
                moments.append(
                    pa.array([record.approximate_arrival_timestamp for record in alone], self._moment)
                )
                hashes.append(pa.nulls(len(alone), self._text))
                alone.clear()

        def batch() -> Any:
            end_alone()
            rows = len(data)
            arrays = [
                pa.array(data, pa.binary()),
                pa.array(keys, self._text),
                pa.concat_arrays(sequences),
                pa.concat_arrays(subs),
                pa.concat_arrays(moments),
                pa.repeat(pa.scalar(shard_id, self._text), rows),
                pa.repeat(pa.scalar(self._stream_name, self._text), rows),
                pa.concat_arrays(hashes),
            ]
            for column in (data, keys, sequences, subs, moments, hashes):
                column.clear()
            return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

        for record in records:
            found = decode_columns(record.data) if deaggregate else None
            if found is None:
                alone.append(record)
            elif found.payloads:
                table, explicit, payloads = found
                rows = len(payloads)
                if owned is not None and is_misplaced(_places(found), owned):
                    self._log_discarded(shard_id, record, rows)
                    continue
                end_alone()
                data.extend(payloads)
                keys.extend(self._known(table, record))
                sequences.append(pa.repeat(pa.scalar(record.sequence_number, self._text), rows))
                subs.append(self._first_numbers(rows))
                moments.append(pa.repeat(pa.scalar(record.approximate_arrival_timestamp, self._moment), rows))
                hashes.append(
                    pa.nulls(rows, self._text) if explicit is None else pa.array(explicit, self._text)
                )
            if len(data) + len(alone) >= TARGET_ROWS:
                yield batch()
        if data or alone:
            yield batch()

    def _first_numbers(self, count: int) -> Any:
        if count > len(self._numbers):
            self._numbers = self._pa.array(range(2 * count), self._pa.int64())
        return self._numbers.slice(0, count)

    @staticmethod
    def _log_discarded(shard_id: str, record: KinesisRecord, count: int) -> None:
        _LOGGER.warning(
            "shard %s: aggregate %s with %d user records is discarded (misplacedAggregates=discard): "
            "a record in it belongs to another shard",
            shard_id,
            record.sequence_number,
            count,
        )

    @staticmethod
    def _known(table: Sequence[str | None], record: KinesisRecord) -> Sequence[str]:
        """Keys of an aggregate; records with a bad index get their carrier's."""
        if None not in table:
            return cast(Sequence[str], table)
        _LOGGER.warning(
            "aggregate %s has %d of %d user records with a key index beyond its table; "
            "they are delivered under the Kinesis record's partition key",
            record.sequence_number,
            table.count(None),
            len(table),
        )
        return [record.partition_key if key is None else key for key in table]


def _places(found: SubRecordColumns) -> Iterator[SubRecord]:
    """Everything that says where user records belong, each place once."""
    table, explicit, _ = found
    pairs = zip(table, repeat(None) if explicit is None else explicit)  # noqa: B905 — `repeat` has no end
    return (SubRecord(key, hash_key, b"") for key, hash_key in set(pairs))
