"""The KPL's aggregated record format: many user records in one Kinesis record.

Layout (aggregation-format.md of awslabs/amazon-kinesis-producer)::

    F3 89 9A C2 | AggregatedRecord (protobuf) | MD5 of the protobuf bytes (16 bytes)

    message AggregatedRecord {
      repeated string partition_key_table     = 1;
      repeated string explicit_hash_key_table = 2;
      repeated Record records                 = 3;
    }
    message Record {
      required uint64 partition_key_index     = 1;
      optional uint64 explicit_hash_key_index = 2;
      required bytes  data                    = 3;
      repeated Tag    tags                    = 4;   // never written, ignored by readers
    }

Written byte for byte as the KPL writes it: all of field 1, then 2, then 3; tables in the order of first use
without repetitions; index 0 is written; an explicit hash key is in the table only if the user gave one; a
single user record is not wrapped at all. An aggregate travels under the partition key ``a`` and with the
first user record's hash as its explicit hash key.

Writing is in `kinesis_sdk.common.aggregate_writer`. Reading uses protobuf, with descriptors that live in a private pool: a generated
``messages.proto`` of another package in the same process can not clash with them. Both string tables are read as
bytes and decoded here, so that one invalid key can not make the whole aggregate unreadable. Fields are read as columns
where that is safe (see `_columns`): an object of protobuf's for each user record costs more than parsing it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from hashlib import md5
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple, cast

from kinesis_sdk.common.aggregate_writer import (
    AGGREGATE_PARTITION_KEY,
    DIGEST_SIZE,
    MAGIC,
    OVERHEAD,
    Aggregate,
)
from kinesis_sdk.common.hashkeys import (
    MAX_HASH_KEY,
    HashKeyRange,
    explicit_hash_key_to_bytes,
    hash_partition_key,
)
from kinesis_sdk.common.records import KinesisRecord, without_payload
from kinesis_sdk.common.user_records import AggregatedRun, PlainRun, RecordRun, UserRecords

__all__ = [
    "AGGREGATE_PARTITION_KEY",
    "DIGEST_SIZE",
    "MAGIC",
    "OVERHEAD",
    "Aggregate",
    "SubRecord",
    "SubRecordColumns",
    "deaggregate",
    "decode",
    "decode_columns",
    "effective_hash_key",
    "is_misplaced",
]

_LOGGER = logging.getLogger(__name__)

# A named tuple from a finished tuple at a third of the price of its own constructor; the fields must all be
# there, in order. Used only where it is paid per user record.
_new = tuple.__new__

_ABSENT = 2**64 - 1
"""What an index that is not there reads as: beyond any table, so that it can not pass for index 0."""

_SMALL = 400
"""Bytes of a user record below which protobuf is quicker in writing it than in looking at each of its fields."""

_FEW = 10_000
"""User records up to which an aggregate may be checked by writing it. Where a required field is missing, protobuf raises
an error that names each one, with the place of its record: about 200 bytes of memory each, so at most 4 MB."""


class SubRecord(NamedTuple):
    """A user record inside an aggregate.

    Attributes:
        partition_key: The user's key; None where the aggregate's index points beyond its table.
        explicit_hash_key: The user's explicit hash key; None if there was none, or where its index points
            beyond its table.
        data: Payload; ``repr`` shows its length only.
    """

    partition_key: str | None
    explicit_hash_key: str | None
    data: bytes

    def __repr__(self) -> str:
        return without_payload(self)


class SubRecordColumns(NamedTuple):
    """The user records inside an aggregate, a sequence per field, all of one length.

    Attributes:
        partition_keys: The users' keys; None where the aggregate's index points beyond its table.
        explicit_hash_keys: As in `SubRecord`; None instead of a sequence if no user record has one.
        payloads: Data.
    """

    partition_keys: Sequence[str | None]
    explicit_hash_keys: Sequence[str | None] | None
    payloads: Sequence[bytes]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.payloads)} user records)"


class _Protobuf(NamedTuple):
    """Protobuf's exceptions, and message classes for the same bytes.

    Attributes:
        decode_error: Raised where bytes do not parse.
        encode_error: Raised where a required field is missing.
        rows: As the format is defined: a message per user record.
        placed_rows: The same with a required explicit hash key.
        compiled: Whether protobuf has its part in C, without which merging messages takes quadratic time.
        columns: Declares ``records`` as one message with repeated fields. Protobuf merges a message that comes
            several times, so that each field's values of all user records end up in one list, without an
            object for each record. Which value belongs to which record is lost; see `_columns`.
    """

    decode_error: type[Exception]
    encode_error: type[Exception]
    rows: Any
    placed_rows: Any
    columns: Any
    compiled: bool


@cache
def _protobuf() -> _Protobuf:
    """Made on first use (importing protobuf costs more than the rest of this package)."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    pool = descriptor_pool.DescriptorPool()
    one, maybe, many = field.LABEL_REQUIRED, field.LABEL_OPTIONAL, field.LABEL_REPEATED

    def make(name: str, records: int, key: int, hash_key: int, data: int) -> Any:
        package = f"kinesis_sdk.{name}"
        file = descriptor_pb2.FileDescriptorProto(
            name=f"kinesis_sdk/{name}.proto", package=package, syntax="proto2"
        )
        record = file.message_type.add(name="Record")
        absent = str(_ABSENT) if key == one else None
        record.field.add(name="key", number=1, type=field.TYPE_UINT64, label=key, default_value=absent)
        record.field.add(name="hash", number=2, type=field.TYPE_UINT64, label=hash_key, default_value=absent)
        record.field.add(name="data", number=3, type=field.TYPE_BYTES, label=data)
        outer = file.message_type.add(name="AggregatedRecord")
        outer.field.add(name="keys", number=1, type=field.TYPE_BYTES, label=many)
        outer.field.add(name="hashes", number=2, type=field.TYPE_BYTES, label=many)
        outer.field.add(
            name="records", number=3, type=field.TYPE_MESSAGE, type_name=f".{package}.Record", label=records
        )
        pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.AggregatedRecord"))

    rows = make("aggregation", many, one, maybe, one)
    return _Protobuf(
        message.DecodeError,
        message.EncodeError,
        rows=rows,
        placed_rows=make("placed_aggregation", many, one, one, one),
        columns=make("aggregation_columns", maybe, many, many, many),
        compiled=not type(rows).__module__.endswith(".python_message"),
    )


def _unsealed(blob: bytes | bytearray | memoryview) -> bytes | None:
    """The message inside an aggregate whose digest matches, else None."""
    if len(blob) <= OVERHEAD or blob[: len(MAGIC)] != MAGIC:
        return None
    body = bytes(blob[len(MAGIC) : -DIGEST_SIZE])
    return body if md5(body, usedforsecurity=False).digest() == blob[-DIGEST_SIZE:] else None


def _texts(table: Iterable[bytes]) -> list[str]:
    """A string table as text; invalid UTF-8 becomes U+FFFD.

    Protobuf for Java decodes it in the same way, when the string is first read: an invalid key is no reason for the KCL to
    reject an aggregate.
    """
    return [raw.decode("utf-8", "replace") for raw in table]


def _entries(table: list[str], indexes: list[int]) -> tuple[Sequence[str | None], bool]:
    """Entry of each index, None where it is beyond the table, and whether all indexes are within it."""
    try:
        # In C at once; with a single index an itemgetter has another form of answer.
        found = itemgetter(*indexes)(table) if len(indexes) > 1 else [table[index] for index in indexes]
    except IndexError:
        return list(map(dict(enumerate(table)).get, indexes)), False
    return found, True


def _columns(body: bytes) -> tuple[SubRecordColumns, bool] | None:
    """The columns of an aggregate, and whether all user records have a partition key; see `_rows` for None.

    None also if a field occurs twice in a user record, or where protobuf is not compiled.

    Reading is parsing twice, both in C. The message of columns gives the values. The message of rows proves
    which belong together: if each record has all required fields, and there are no more values than records,
    then each has exactly one of each, so that the values stand in the order of the records.
    """
    protobuf = _protobuf()
    if not protobuf.compiled:
        return None
    try:
        found = protobuf.columns.FromString(body)
        values = found.records
        # Taken out at once, while they are in the processor's cache.
        payloads: list[bytes] = values.data[:]
        indexes: list[int] = values.key[:]
        places: list[int] = values.hash[:]
        placed = len(places) == len(indexes) > 0
        rows = (protobuf.placed_rows if placed else protobuf.rows).FromString(body)
        count = len(rows.records)
        if not len(indexes) == len(payloads) == count:
            return None
        if count <= _FEW and len(body) < _SMALL * count:
            rows.SerializeToString()
        elif not rows.IsInitialized():
            return None
    except (protobuf.decode_error, protobuf.encode_error):
        return None
    keys, keyed = _entries(_texts(found.keys[:]), indexes)
    hashes: Sequence[str | None] | None = None
    if places:
        # Some user records have an explicit hash key: only the rows tell which.
        each = places if placed else [record.hash for record in rows.records]
        hashes, complete = _entries(_texts(found.hashes[:]), each)
        hashes = hashes if complete or any(item is not None for item in hashes) else None
    return SubRecordColumns(keys, hashes, payloads), keyed


def _rows(body: bytes) -> tuple[SubRecordColumns, bool] | None:
    """What `_columns` returns, of any aggregate, read row by row; None if it does not parse or lacks a required field."""
    protobuf = _protobuf()
    try:
        message = protobuf.rows.FromString(body)
    except protobuf.decode_error:
        return None
    if not message.IsInitialized():
        return None
    indexes: list[int] = []
    places: list[int] = []
    payloads: list[bytes] = []
    # In one pass that lets go of each row: a list of a million of protobuf's objects takes longer than all the rest.
    for record in message.records:
        indexes.append(record.key)
        places.append(record.hash)
        payloads.append(record.data)
    keys, keyed = _entries(_texts(message.keys), indexes)
    hashes, _complete = _entries(_texts(message.hashes), places)
    used = any(item is not None for item in hashes)
    return SubRecordColumns(keys, hashes if used else None, payloads), keyed


def _read(body: bytes) -> tuple[SubRecordColumns, bool] | None:
    return _columns(body) or _rows(body)


def decode(blob: bytes | bytearray | memoryview) -> list[SubRecord] | None:
    """The user records inside a Kinesis record's data, in order.

    Args:
        blob: Data of a Kinesis record.

    Returns:
        None if it is not an intact aggregate (no magic, a digest that does not match, a message that does
        not parse or lacks required fields): the record is then delivered as it is, as the KCL does. A sub
        record whose key index is beyond the table has ``partition_key`` None; nothing is left out.

        The KCL reads two kinds of aggregates differently, neither of which any known producer writes. Where an index
        is beyond its table, it drops that user record and all that follow in the aggregate (and it takes an index
        modulo 2^32, so that 2^32 reads entry 0). Where a tag (field 4) does not parse or has no key, it delivers the
        whole Kinesis record as it is; here tags are not read.
    """
    columns = decode_columns(blob)
    if columns is None:
        return None
    keys, hashes, payloads = columns
    fields = zip(keys, repeat(None) if hashes is None else hashes, payloads)  # noqa: B905 - `repeat` has no end
    return list(map(_new, repeat(SubRecord), fields))


def decode_columns(blob: bytes | bytearray | memoryview) -> SubRecordColumns | None:
    """What `decode` returns, by columns: for those who make columns of it, at two thirds of the price."""
    body = _unsealed(blob)
    read = None if body is None else _read(body)
    return None if read is None else read[0]


def effective_hash_key(partition_key: str, explicit_hash_key: str | None) -> bytes | None:
    """The 16 bytes that place a user record; None if its explicit hash key is no number of the space."""
    if explicit_hash_key is None:
        return hash_partition_key(partition_key)
    text = explicit_hash_key
    if not (text.isascii() and text.isdigit()) or len(text) > 64 or int(text) > MAX_HASH_KEY:
        return None
    return explicit_hash_key_to_bytes(text)


def is_misplaced(subs: Iterable[SubRecord], owned: HashKeyRange) -> bool:
    """Whether the KCL would discard this whole aggregate: some user record lies outside the shard's range.

    A user record without a place (no partition key, or an explicit hash key that is no number of the space)
    does not count: no producer puts it again because of its place, so that discarding it would lose it.
    """
    return _any_outside({(key, explicit) for key, explicit, _data in subs}, owned)


# Streams have favourite keys, and a digest costs ten times what remembering it does.
_known_place = lru_cache(maxsize=4096)(effective_hash_key)

_LONGEST_KNOWN = 256
"""Most characters of a key whose place is remembered. No real partition key is longer (API reference), while one in an
aggregate may have megabytes, of which the cache would hold thousands for the life of the process."""


def _place(key: str, explicit: str | None) -> bytes | None:
    short = len(key) <= _LONGEST_KNOWN and (explicit is None or len(explicit) <= _LONGEST_KNOWN)
    return (_known_place if short else effective_hash_key)(key, explicit)


def _any_outside(slots: Iterable[tuple[str | None, str | None]], owned: HashKeyRange) -> bool:
    low, high = owned.start_bytes, owned.end_bytes
    for key, explicit in slots:
        place = None if key is None else _place(key, explicit)
        if place is not None and not low <= place <= high:
            return True
    return False


def _slots(columns: SubRecordColumns) -> Iterable[tuple[str | None, str | None]]:
    """Each pair of partition key and explicit hash key once: most aggregates have few."""
    keys, hashes, _payloads = columns
    return zip(set(keys), repeat(None)) if hashes is None else set(zip(keys, hashes, strict=True))


def _known_keys(columns: SubRecordColumns, carrier: KinesisRecord) -> Sequence[str]:
    """Partition keys; a user record without one gets its carrier's."""
    keys = columns.partition_keys
    bad = keys.count(None)
    if bad:
        _LOGGER.warning(
            "aggregate %s has %d of %d user records with a key index beyond its table; "
            "they are delivered under the Kinesis record's partition key",
            carrier.sequence_number,
            bad,
            len(keys),
        )
    return [carrier.partition_key if key is None else key for key in keys]


def deaggregate(
    records: Iterable[KinesisRecord],
    *,
    hash_key_range: HashKeyRange | None = None,
    on_misplaced: Callable[[KinesisRecord, int], bool] | None = None,
) -> UserRecords:
    """User records of a batch of Kinesis records, in order, with sub-sequence numbers.

    Anything that is not an intact aggregate is delivered as one user record. A sub record with a bad key
    index is delivered under the Kinesis record's own partition key, and logged.

    Args:
        records: Kinesis records in the shard's order.
        hash_key_range: Range of the shard they were read from.
        on_misplaced: Asked with (Kinesis record, number of user records) for each aggregate with a user
            record outside of ``hash_key_range``: True discards it whole, as the KCL does because a KPL puts
            its records again; False delivers it. Looked for only if both arguments are given; without
            them everything is delivered.

    Returns:
        The user records: everything is read and checked, but the objects are made on access.
    """
    runs: list[RecordRun] = []
    plain: list[KinesisRecord] = []
    for record in records:
        # Most records of a stream without a KPL have no magic; asked here to save a call for each.
        body = _unsealed(record[0]) if record[0][:4] == MAGIC else None
        read = None if body is None else _read(body)
        if read is None:
            if not plain:
                runs.append(PlainRun(plain))
            plain.append(record)
            continue
        columns, keyed = read
        _keys, hashes, payloads = columns
        if (
            hash_key_range is not None
            and on_misplaced is not None
            and _any_outside(_slots(columns), hash_key_range)
            and on_misplaced(record, len(payloads))
        ):
            continue
        if payloads:
            plain = []
            keys = cast("Sequence[str]", _keys) if keyed else _known_keys(columns, record)
            runs.append(AggregatedRun(record, payloads, keys, hashes))
    return UserRecords(runs)
