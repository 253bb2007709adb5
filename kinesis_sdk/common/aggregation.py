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

Writing is in `kinesis_sdk.common.aggregate`. Reading uses protobuf, with a descriptor that lives in a private pool: a generated
``messages.proto`` of another package in the same process can not clash with it. Both string tables are read as
bytes and decoded here, so that one invalid key can not make the whole aggregate unreadable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from hashlib import md5
from itertools import count, repeat
from typing import Any, NamedTuple

from kinesis_sdk.common.aggregate import AGGREGATE_PARTITION_KEY, DIGEST_SIZE, MAGIC, OVERHEAD, Aggregate
from kinesis_sdk.common.hashkeys import (
    MAX_HASH_KEY,
    HashKeyRange,
    explicit_hash_key_to_bytes,
    hash_partition_key,
)
from kinesis_sdk.common.records import KinesisRecord, UserRecord

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


class SubRecord(NamedTuple):
    """A user record inside an aggregate.

    Attributes:
        partition_key: The user's key; None where the aggregate's index points beyond its table.
        explicit_hash_key: The user's explicit hash key; None if there was none, or where its index points
            beyond its table.
        data: Payload.
    """

    partition_key: str | None
    explicit_hash_key: str | None
    data: bytes


_message_class: Any = None


def _aggregated_record() -> Any:
    """The message class, made on first use (importing protobuf costs more than the rest of this package)."""
    global _message_class  # noqa: PLW0603 - one lazily made constant
    if _message_class is None:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        field = descriptor_pb2.FieldDescriptorProto
        file = descriptor_pb2.FileDescriptorProto(
            name="kinesis_sdk/aggregation.proto", package="kinesis_sdk.aggregation", syntax="proto2"
        )
        record = file.message_type.add(name="Record")
        # The default is what a missing index reads as: beyond any table, so that it can not pass for index 0.
        record.field.add(
            name="key",
            number=1,
            type=field.TYPE_UINT64,
            label=field.LABEL_REQUIRED,
            default_value=str(2**64 - 1),
        )
        record.field.add(name="hash", number=2, type=field.TYPE_UINT64, label=field.LABEL_OPTIONAL)
        record.field.add(name="data", number=3, type=field.TYPE_BYTES, label=field.LABEL_REQUIRED)
        aggregated = file.message_type.add(name="AggregatedRecord")
        aggregated.field.add(name="keys", number=1, type=field.TYPE_BYTES, label=field.LABEL_REPEATED)
        aggregated.field.add(name="hashes", number=2, type=field.TYPE_BYTES, label=field.LABEL_REPEATED)
        aggregated.field.add(
            name="records",
            number=3,
            type=field.TYPE_MESSAGE,
            type_name=".kinesis_sdk.aggregation.Record",
            label=field.LABEL_REPEATED,
        )
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        _message_class = message_factory.GetMessageClass(
            pool.FindMessageTypeByName("kinesis_sdk.aggregation.AggregatedRecord")
        )
    return _message_class


def _parse(blob: bytes | bytearray | memoryview) -> Any:
    """The message inside an aggregate whose digest matches, else None. Required fields may still be missing."""
    if len(blob) <= OVERHEAD or blob[: len(MAGIC)] != MAGIC:
        return None
    body = bytes(blob[len(MAGIC) : -DIGEST_SIZE])
    if md5(body, usedforsecurity=False).digest() != blob[-DIGEST_SIZE:]:
        return None
    from google.protobuf.message import DecodeError

    try:
        return _aggregated_record().FromString(body)
    except DecodeError:
        return None


def _texts(table: Iterable[bytes]) -> list[str]:
    """A string table as text; invalid UTF-8 becomes U+FFFD, as in Java."""
    return [raw.decode("utf-8", "replace") for raw in table]


def _columns(message: Any) -> tuple[list[str], list[bytes]] | None:
    """Partition keys and payloads of the usual aggregate; None if it has explicit hash keys or any flaw.

    This is most of what reading costs, so that it asks as little as it can: columns instead of rows leave
    the rest to loops in C, and required fields are looked for only where one may be missing.
    """
    if message.hashes:
        return None
    table = _texts(message.keys)
    records = list(message.records)
    try:
        keys = [table[record.key] for record in records]
    except IndexError:  # a missing index, too: its default is beyond any table
        return None
    payloads = [record.data for record in records]
    if not all(payloads) and not message.IsInitialized():  # a missing payload reads as an empty one
        return None
    return keys, payloads


def _sub_records(message: Any) -> list[SubRecord] | None:
    """User records of any message, one by one; None if a required field is missing."""
    if not message.IsInitialized():
        return None
    keys = _texts(message.keys)
    hashes = _texts(message.hashes)
    return [
        SubRecord(
            keys[record.key] if record.key < len(keys) else None,
            hashes[record.hash] if record.HasField("hash") and record.hash < len(hashes) else None,
            record.data,
        )
        for record in message.records
    ]


def decode(blob: bytes | bytearray | memoryview) -> list[SubRecord] | None:
    """The user records inside a Kinesis record's data, in order.

    Args:
        blob: Data of a Kinesis record.

    Returns:
        None if it is not an intact aggregate (no magic, a digest that does not match, a message that does
        not parse or lacks required fields): the record is then delivered as it is, as the KCL does. A sub
        record whose key index is beyond the table has ``partition_key`` None; nothing is left out.
    """
    message = _parse(blob)
    if message is None:
        return None
    columns = _columns(message)
    if columns is None:
        return _sub_records(message)
    return list(map(_new, repeat(SubRecord), zip(columns[0], repeat(None), columns[1])))


class SubRecordColumns(NamedTuple):
    """The user records inside an aggregate, a list per field, all of one length.

    Attributes:
        partition_keys: The users' keys; None where the aggregate's index points beyond its table.
        explicit_hash_keys: As in `SubRecord`; None instead of a list if no user record has one.
        payloads: Data.
    """

    partition_keys: Sequence[str | None]
    explicit_hash_keys: Sequence[str | None] | None
    payloads: Sequence[bytes]


def decode_columns(blob: bytes | bytearray | memoryview) -> SubRecordColumns | None:
    """What `decode` returns, by columns: for those who make columns of it, at two thirds of the price."""
    message = _parse(blob)
    if message is None:
        return None
    columns = _columns(message)
    if columns is not None:
        return SubRecordColumns(columns[0], None, columns[1])
    subs = _sub_records(message)
    if subs is None:
        return None
    hashes = [sub.explicit_hash_key for sub in subs]
    given = any(hash_key is not None for hash_key in hashes)
    return SubRecordColumns(
        [sub.partition_key for sub in subs], hashes if given else None, [sub.data for sub in subs]
    )


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
    low, high = owned.start_bytes, owned.end_bytes
    checked: set[tuple[str, str | None]] = set()
    for key, explicit, _data in subs:
        slot = (key, explicit)
        if key is None or slot in checked:
            continue
        digest = effective_hash_key(key, explicit)
        if digest is not None and not low <= digest <= high:
            return True
        checked.add((key, explicit))
    return False


def _user_records(subs: list[SubRecord], carrier: KinesisRecord) -> list[UserRecord]:
    """User records of any aggregate; one without a partition key gets its carrier's."""
    _data, partition_key, sequence_number, arrival, encryption = carrier
    bad = sum(sub.partition_key is None for sub in subs)
    if bad:
        _LOGGER.warning(
            "aggregate %s has %d of %d user records with a key index beyond its table; "
            "they are delivered under the Kinesis record's partition key",
            sequence_number,
            bad,
            len(subs),
        )
    return [
        UserRecord(
            data,
            partition_key if key is None else key,
            sequence_number,
            index,
            arrival,
            explicit,
            True,
            encryption,
        )
        for index, (key, explicit, data) in enumerate(subs)
    ]


def deaggregate(
    records: Iterable[KinesisRecord],
    *,
    hash_key_range: HashKeyRange | None = None,
    on_misplaced: Callable[[KinesisRecord, int], bool] | None = None,
) -> list[UserRecord]:
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
        The user records.
    """

    def discards(record: KinesisRecord, size: int, subs: Iterable[SubRecord]) -> bool:
        return (
            hash_key_range is not None
            and on_misplaced is not None
            and is_misplaced(subs, hash_key_range)
            and on_misplaced(record, size)
        )

    result: list[UserRecord] = []
    for record in records:
        data, partition_key, sequence_number, arrival, encryption = record
        if data[:4] != MAGIC:  # most records of a stream without a KPL; asked here to save a call for each
            result.append(
                _new(UserRecord, (data, partition_key, sequence_number, 0, arrival, None, False, encryption))
            )
            continue
        message = _parse(data)
        columns = None if message is None else _columns(message)
        if columns is not None:
            keys, payloads = columns
            if not discards(record, len(keys), (SubRecord(key, None, b"") for key in set(keys))):
                fields = zip(
                    payloads,
                    keys,
                    repeat(sequence_number),
                    count(),
                    repeat(arrival),
                    repeat(None),
                    repeat(True),
                    repeat(encryption),
                )
                result.extend(map(_new, repeat(UserRecord), fields))
            continue
        subs = None if message is None else _sub_records(message)
        if subs is None:
            result.append(
                UserRecord(data, partition_key, sequence_number, 0, arrival, None, False, encryption)
            )
        elif not discards(record, len(subs), subs):
            result.extend(_user_records(subs, record))
    return result
