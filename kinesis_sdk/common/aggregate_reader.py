"""Reader of the KPL's aggregated record format: many user records in one Kinesis record.

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
      repeated Tag    tags                    = 4;   // the KPL never writes them
    }
    message Tag {
      required string key                     = 1;
      optional string value                   = 2;
    }

`kinesis_sdk.common.aggregate_writer` writes aggregates byte for byte as the KPL does: all of field 1, then 2, then 3;
tables in the order of first use, without repetitions; index 0 is written; an explicit hash key is in the table only if
the user gave one; a single user record is not wrapped. The Kinesis record of an aggregate has the partition key ``a``
and the hash of its first user record as explicit hash key.

Reading uses protobuf, with descriptors in a private pool, so a generated ``messages.proto`` of another package in the same
process cannot clash with them. Both string tables are read as bytes and decoded here, so one invalid key cannot make the
whole aggregate unreadable. Fields are read as columns where that is safe (see `_columns`), because creating a protobuf
object for each user record costs more than parsing it. Tags are headers (`kinesis_sdk.common.headers`). One tag of the first user
record contains the table of an idempotent producer (`kinesis_sdk.common.once`).
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
from kinesis_sdk.common.codec import CODEC_KEY, codec_named, form_of
from kinesis_sdk.common.errors import CodecUnavailableError
from kinesis_sdk.common.hashkeys import (
    MAX_HASH_KEY,
    HashKeyRange,
    explicit_hash_key_to_bytes,
    hash_partition_key,
)
from kinesis_sdk.common.headers import Headers, headers_by_record
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.once.table import TAG_KEY
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
    "open_aggregate",
    "effective_hash_key",
    "has_outside",
    "is_misplaced",
    "known_keys",
]

_LOGGER = FieldLogger(logging.getLogger(__name__))

# Makes a named tuple from a complete tuple at a third of the cost of the constructor. All fields must be present, in
# order. Used only where the cost is per user record.
_new = tuple.__new__

_ABSENT = 2**64 - 1
"""Value for an absent index: beyond the end of any table, so it is not mistaken for index 0."""

_TAG_KEY, _CODEC_KEY = TAG_KEY.encode("ascii"), CODEC_KEY.encode("ascii")

_TAG_STARTS = {key: b"\n%c%b\x12" % (len(key), key) for key in (_TAG_KEY, _CODEC_KEY)}
"""First bytes of a tag with a key, up to the length of its value, if its fields are in order."""

_VALUE_AT = len(_TAG_STARTS[_TAG_KEY]) + 1
"""Offset of the value in such a tag if its length takes one byte."""

_SMALL = 400
"""Bytes of a user record below which protobuf takes less time to serialize the record than to check each field."""

_FEW = 10_000
"""Maximum number of user records of an aggregate that is checked by serializing it. If required fields are missing,
protobuf raises an error that names each of them with its record: about 200 bytes of memory each, so at most 4 MB."""


class SubRecord(NamedTuple):
    """A user record inside an aggregate.

    Attributes:
        partition_key: The user's key; None if the aggregate's index points beyond its table.
        explicit_hash_key: The user's explicit hash key; None if there was none, or if its index points
            beyond its table.
        data: Payload; ``repr`` shows only its length.
    """

    partition_key: str | None
    explicit_hash_key: str | None
    data: bytes

    def __repr__(self) -> str:
        return without_payload(self)


class SubRecordColumns(NamedTuple):
    """The user records inside an aggregate as one sequence per field of `SubRecord`, all of the same length.

    Attributes:
        partition_keys: The users' keys; None if the aggregate's index points beyond its table.
        explicit_hash_keys: Explicit hash keys as in `SubRecord`; None instead of a sequence if no user record has one.
        payloads: Payloads.
        key_table: The aggregate's table of partition keys: all keys, in any order, perhaps some that no user record has.
        keyed: Whether no partition key is None.
        tag: Value of the first user record's tag with the key `kinesis_sdk.common.once.table.TAG_KEY`; None if it has none,
            or several.
        headers: Headers of each user record; None instead of a sequence if none has any.
        form: Description of the sealed body in the only user record, if the body is damaged and was not opened; otherwise None.
        sealed_size: Bytes of the sealed body that contained the user records; None if there was none.
    """

    partition_keys: Sequence[str | None]
    explicit_hash_keys: Sequence[str | None] | None
    payloads: Sequence[bytes]
    key_table: Sequence[str]
    keyed: bool
    tag: str | None = None
    headers: Sequence[Headers] | None = None
    form: str | None = None
    sealed_size: int | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.payloads)} user records)"


class _Protobuf(NamedTuple):
    """Protobuf's exceptions, and several message classes for the same bytes.

    Attributes:
        decode_error: Raised if bytes do not parse.
        encode_error: Raised if a required field is missing.
        rows: The original format, with a message per user record.
        placed_rows: The original format, but with a required explicit hash key.
        compiled: Whether protobuf runs in C. Protobuf's Python implementation takes quadratic time to merge messages.
        columns: Declares ``records`` as one message with repeated fields. Protobuf merges all occurrences of a message, so each
            field's values of all user records end up in one list, without an object for each record. The link between values
            and records is lost; see `_columns`.
        tag: A tag.
    """

    decode_error: type[Exception]
    encode_error: type[Exception]
    rows: Any
    placed_rows: Any
    columns: Any
    tag: Any
    compiled: bool


@cache
def _protobuf() -> _Protobuf:
    """Return the message classes, created on first use: importing protobuf costs more than the rest of this package."""
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
        # As bytes, so that a malformed tag does not make the aggregate unreadable.
        record.field.add(name="tags", number=4, type=field.TYPE_BYTES, label=many)
        tag = file.message_type.add(name="Tag")
        tag.field.add(name="key", number=1, type=field.TYPE_BYTES, label=one)
        tag.field.add(name="value", number=2, type=field.TYPE_BYTES, label=maybe)
        outer = file.message_type.add(name="AggregatedRecord")
        outer.field.add(name="keys", number=1, type=field.TYPE_BYTES, label=many)
        outer.field.add(name="hashes", number=2, type=field.TYPE_BYTES, label=many)
        outer.field.add(
            name="records", number=3, type=field.TYPE_MESSAGE, type_name=f".{package}.Record", label=records
        )
        pool.Add(file)
        return class_of(f"{package}.AggregatedRecord")

    def class_of(name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))

    rows = make("aggregation", many, one, maybe, one)
    return _Protobuf(
        message.DecodeError,
        message.EncodeError,
        rows=rows,
        placed_rows=make("placed_aggregation", many, one, one, one),
        columns=make("aggregation_columns", maybe, many, many, many),
        tag=class_of("kinesis_sdk.aggregation.Tag"),
        compiled=not type(rows).__module__.endswith(".python_message"),
    )


def _texts(table: Iterable[bytes]) -> list[str]:
    """Return a string table as text; invalid UTF-8 becomes U+FFFD.

    Protobuf for Java does the same when a string is first read, so the KCL does not reject an aggregate
    because of an invalid key.
    """
    return [raw.decode("utf-8", "replace") for raw in table]


def _entries(table: list[str], indexes: list[int]) -> tuple[Sequence[str | None], bool]:
    """Return the entry of each index, None if it is beyond the table, and whether all indexes are within the table."""
    try:
        # One call in C. With a single index, an itemgetter returns the entry itself instead of a tuple.
        found = itemgetter(*indexes)(table) if len(indexes) > 1 else [table[index] for index in indexes]
    except IndexError:
        return list(map(dict(enumerate(table)).get, indexes)), False
    return found, True


def _columns(body: bytes) -> SubRecordColumns | None:
    """Return the columns of an aggregate.

    The body is parsed twice, both times in C. The message of columns gives the values. The message of rows proves which values belong
    together: if each record has all required fields, and there are no more values than records, then each record has exactly one value of
    each field, in the order of the records.

    Returns None in the cases of `_rows`, and also if a field occurs twice in a user record, or if protobuf is not compiled.
    """
    protobuf = _protobuf()
    if not protobuf.compiled:
        return None
    try:
        found = protobuf.columns.FromString(body)
        values = found.records
        # Copied right away, while they are in the processor's cache.
        payloads: list[bytes] = values.data[:]
        indexes: list[int] = values.key[:]
        places: list[int] = values.hash[:]
        placed = len(places) == len(indexes) > 0
        rows = (protobuf.placed_rows if placed else protobuf.rows).FromString(body)
        records = rows.records
        count = len(records)
        if not len(indexes) == len(payloads) == count:
            return None
        if count <= _FEW and len(body) < _SMALL * count:
            rows.SerializeToString()
        elif not rows.IsInitialized():
            return None
    except (protobuf.decode_error, protobuf.encode_error):
        return None
    table = _texts(found.keys[:])
    keys, keyed = _entries(table, indexes)
    hashes: Sequence[str | None] | None = None
    if places:
        # Some user records have an explicit hash key. Only the rows show which.
        each = places if placed else [record.hash for record in records]
        hashes, complete = _entries(_texts(found.hashes[:]), each)
        hashes = hashes if complete or any(item is not None for item in hashes) else None
    tag: str | None = None
    form: str | None = None
    headers: Sequence[Headers] | None = None
    if values.tags:
        # An aggregate pays for an object of its first record only if it has tags, and for one of each record only if it has headers.
        first = records[0].tags[:]
        tag = _tag_of(first, _TAG_KEY)
        form = _tag_of(first, _CODEC_KEY) if count == 1 else None
        if len(values.tags) > (tag is not None):
            headers = headers_by_record([record.tags for record in records])
    return SubRecordColumns(keys, hashes, payloads, table, keyed, tag, headers, form)


def _tag_of(tags: Iterable[bytes], key: bytes) -> str | None:
    """Return the value of the tag with a key; None if no tag or several tags have it."""
    found: str | None = None
    for raw in tags:
        value = _value_of(raw, key)
        if value is not None:
            if found is not None:
                return None
            found = value.decode("utf-8", "replace")
    return found


def _value_of(raw: bytes, key: bytes) -> bytes | None:
    """Return the value of a tag with a key; None if it has another key, or does not parse."""
    # Nearly every tag is written like this, and needs no protobuf object.
    length = len(raw) - _VALUE_AT
    if 0 <= length < 0x80 and raw[_VALUE_AT - 1] == length and raw.startswith(_TAG_STARTS[key]):
        return raw[_VALUE_AT:]
    return _parsed_value_of(raw, key)


def _parsed_value_of(raw: bytes, key: bytes) -> bytes | None:
    """Return the result of `_value_of` for any tag."""
    protobuf = _protobuf()
    try:
        tag = protobuf.tag.FromString(raw)
    except protobuf.decode_error:
        return None
    value: bytes = tag.value
    return value if tag.key == key else None


def _rows(body: bytes) -> SubRecordColumns | None:
    """Return the result of `_columns` for any aggregate, read row by row.

    None if the body does not parse, or if a required field is missing.
    """
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
    # One pass that releases each row: building a list of a million protobuf objects takes longer than everything else.
    tags: list[Sequence[bytes]] = []
    for record in message.records:
        tags.append(record.tags[:])
        indexes.append(record.key)
        places.append(record.hash)
        payloads.append(record.data)
    table = _texts(message.keys)
    keys, keyed = _entries(table, indexes)
    hashes, _complete = _entries(_texts(message.hashes), places)
    used = any(item is not None for item in hashes)
    first = tags[0] if tags else []
    tag = _tag_of(first, _TAG_KEY)
    form = _tag_of(first, _CODEC_KEY) if len(payloads) == 1 else None
    headers = headers_by_record(tags) if sum(map(len, tags)) > (tag is not None) else None
    return SubRecordColumns(keys, hashes if used else None, payloads, table, keyed, tag, headers, form)


def _unsealed(found: SubRecordColumns, text: str) -> SubRecordColumns | None:
    """Return the user records of a sealed body, given its tag; None if the body contradicts the tag.

    Raises:
        CodecUnavailableError: If its codec is not installed.
    """
    (sealed,) = found.payloads
    form = form_of(text, len(sealed))
    if form is None:
        return None
    try:
        codec = codec_named(form.codec)
    except CodecUnavailableError as error:
        raise error.located(records=form.records) from error.__cause__
    try:
        body = codec.unseal(sealed, form.size)
    except ValueError:
        return None
    inner = _columns(body) or _rows(body)
    if inner is None or len(inner.payloads) != form.records:
        return None
    # Tags of runs or of another codec inside the body are ignored: only the tags outside count.
    return inner._replace(tag=found.tag, form=None, sealed_size=len(sealed))


def decode(blob: bytes | bytearray | memoryview) -> list[SubRecord] | None:
    """Return the user records inside a Kinesis record's data, in order.

    Args:
        blob: Data of a Kinesis record.

    Returns:
        None if the data is not an intact aggregate (no magic, a digest that does not match, a message that does
        not parse or lacks required fields). The record is then delivered unopened, as in the KCL. A user record
        whose key index is beyond the table has ``partition_key`` None; no user record is left out.

        The KCL reads two kinds of aggregates differently; no known producer writes either. If an index is beyond
        its table, the KCL drops that user record and all later user records of the aggregate (and it takes an index
        modulo 2^32, so that 2^32 reads entry 0). If a tag (field 4) does not parse or has no key, the KCL delivers the
        whole Kinesis record unopened. Here, such a tag is ignored.

    Raises:
        CodecUnavailableError: As `open_aggregate`.
    """
    columns = open_aggregate(blob)
    if columns is None:
        return None
    keys, hashes, payloads = columns[:3]
    fields = zip(keys, repeat(None) if hashes is None else hashes, payloads)  # noqa: B905 - `repeat` has no end
    return list(map(_new, repeat(SubRecord), fields))


def open_aggregate(blob: bytes | bytearray | memoryview) -> SubRecordColumns | None:
    """Return the result of `decode` as columns, at two thirds of the cost if the caller needs columns anyway.

    Only this function distinguishes aggregates from other data, and opens sealed aggregates; every reader calls it.

    Raises:
        CodecUnavailableError: If the body is sealed with a codec that is not installed.
    """
    if len(blob) <= OVERHEAD or blob[: len(MAGIC)] != MAGIC:
        return None
    body = bytes(blob[len(MAGIC) : -DIGEST_SIZE])
    if md5(body, usedforsecurity=False).digest() != blob[-DIGEST_SIZE:]:
        return None
    found = _columns(body) or _rows(body)
    if found is None or found.form is None:
        return found
    return _unsealed(found, found.form) or found


def may_have_aggregates(blobs: Iterable[bytes]) -> bool:
    """Return whether `open_aggregate` has to look at the data of some Kinesis records, or returns None for all of them."""
    return MAGIC in {blob[: len(MAGIC)] for blob in blobs}


def effective_hash_key(partition_key: str, explicit_hash_key: str | None) -> bytes | None:
    """Return the 16 bytes that place a user record; None if its explicit hash key is not a number from 0 to 2^128-1.

    Args:
        partition_key: Its partition key.
        explicit_hash_key: Its explicit hash key in decimal digits; None if it has none.
    """
    if explicit_hash_key is None:
        return hash_partition_key(partition_key)
    text = explicit_hash_key
    if not (text.isascii() and text.isdigit()) or len(text) > 64 or int(text) > MAX_HASH_KEY:
        return None
    return explicit_hash_key_to_bytes(text)


def is_misplaced(subs: Iterable[SubRecord], owned: HashKeyRange) -> bool:
    """Return whether the KCL would discard this whole aggregate because a user record lies outside the shard's range.

    A user record without a hash key (no partition key, or an explicit hash key that is not a number from 0 to 2^128-1)
    does not count: no producer sends it again because of its hash key, so discarding it would lose it.

    Args:
        subs: The user records of the aggregate.
        owned: Hash keys of the shard in which the aggregate was found.
    """
    return _any_outside({(key, explicit) for key, explicit, _data in subs}, owned)


# Partition keys repeat, and computing a digest costs ten times as much as a cache hit.
_known_place = lru_cache(maxsize=4096)(effective_hash_key)

_LONGEST_KNOWN = 256
"""Maximum characters of a key whose hash key is cached. No valid partition key is longer (API reference). A key in
an aggregate may have megabytes, and the cache would hold thousands of them for the life of the process."""


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
    """Return the distinct pairs of partition key and explicit hash key: most aggregates have few."""
    keys, hashes = columns[:2]
    return zip(set(keys), repeat(None)) if hashes is None else set(zip(keys, hashes, strict=True))


def has_outside(columns: SubRecordColumns, owned: HashKeyRange) -> bool:
    """As `is_misplaced`, for an aggregate in ``columns``, in a shard with the hash keys ``owned``."""
    return _any_outside(_slots(columns), owned)


def hash_keys_of(columns: SubRecordColumns) -> tuple[bytes, bytes] | None:
    """Return the lowest and the highest hash key of the user records; None if no user record has a hash key."""
    places = [
        place for key, explicit in _slots(columns) if key is not None and (place := _place(key, explicit))
    ]
    return (min(places), max(places)) if places else None


def known_keys(columns: SubRecordColumns, carrier: KinesisRecord) -> Sequence[str]:
    """Return the partition keys; a user record without a partition key gets the key of its Kinesis record.

    Args:
        columns: The user records.
        carrier: The Kinesis record.
    """
    keys = columns.partition_keys
    if columns.keyed:
        return cast("Sequence[str]", keys)
    _LOGGER.warning(
        "aggregate %s has %d of %d user records with a key index beyond its table; "
        "they are delivered under the Kinesis record's partition key",
        carrier.sequence_number,
        keys.count(None),
        len(keys),
    )
    return [carrier.partition_key if key is None else key for key in keys]


def count_user_records(record: KinesisRecord) -> int:
    """Return the number of user records in a Kinesis ``record``; if its codec is not installed, the number that it declares."""
    try:
        return len(deaggregate([record]))
    except CodecUnavailableError as error:
        return error.records or 1


def deaggregate(
    records: Iterable[KinesisRecord],
    *,
    hash_key_range: HashKeyRange | None = None,
    on_misplaced: Callable[[KinesisRecord, int], bool] | None = None,
    on_tagged: Callable[[KinesisRecord, SubRecordColumns], bool] | None = None,
    on_unreadable: Callable[[KinesisRecord, CodecUnavailableError | None], bool] | None = None,
) -> UserRecords:
    """Return the user records of a batch of Kinesis records, in order, with sub-sequence numbers.

    A Kinesis record that is not an intact aggregate becomes one user record. A user record with an invalid key index
    gets the partition key of its Kinesis record, which is logged.

    Args:
        records: Kinesis records in the shard's order.
        hash_key_range: Range of the shard they were read from.
        on_misplaced: Called with (Kinesis record, number of user records) for each aggregate with a user record
            outside ``hash_key_range``. If it returns True, the whole aggregate is discarded, as by the KCL, because a
            KPL sends its records again; otherwise it is delivered. The check is made only if both arguments are
            given; without them, everything is delivered.
        on_tagged: Called with (Kinesis record, its columns) for each aggregate whose first user record has the tag of an
            idempotent producer. If it returns True, the caller decides about the aggregate afterwards, and
            ``on_misplaced`` is not called.
        on_unreadable: Called with each aggregate whose sealed body cannot be opened. If the error is None, the
            aggregate is damaged and is delivered as to a reader that knows no codecs. Otherwise its codec is missing: if the function
            returns True, this aggregate is left out, otherwise also everything after it. Without this argument, the error is raised.

    Returns:
        The user records. All data is read and checked here; the objects are created on access.

    Raises:
        CodecUnavailableError: If an aggregate is sealed with a codec that is not installed, and ``on_unreadable`` is not given.
    """
    runs: list[RecordRun] = []
    plain: list[KinesisRecord] = []
    for record in records:
        # Without a KPL, most records have no magic: checking it here saves a call for each of them.
        columns = None
        if record[0][:4] == MAGIC:
            try:
                columns = open_aggregate(record[0])
            except CodecUnavailableError as error:
                found = error.located(sequence_number=record.sequence_number)
                if on_unreadable is None:
                    raise found from error.__cause__
                if on_unreadable(record, found):
                    continue
                break
        if columns is None:
            if not plain:
                runs.append(PlainRun(plain))
            plain.append(record)
            continue
        if columns.form is not None and on_unreadable is not None:
            on_unreadable(record, None)
        payloads = columns.payloads
        judged = columns.tag is not None and on_tagged is not None and on_tagged(record, columns)
        if (
            not judged
            and hash_key_range is not None
            and on_misplaced is not None
            and has_outside(columns, hash_key_range)
            and on_misplaced(record, len(payloads))
        ):
            continue
        if payloads:
            plain = []
            keys = known_keys(columns, record)
            runs.append(
                AggregatedRun(
                    record, payloads, keys, columns.explicit_hash_keys, columns.headers, columns.sealed_size
                )
            )
    return UserRecords(runs)
