"""Writer of the KPL's aggregated record format: many user records in one Kinesis record.

`kinesis_sdk.common.aggregate_reader` describes the format and reads it. The writer joins encoded parts instead of building
protobuf messages: this costs half as much, and the exact size is known after every append.

A *tagged* aggregate has the table of runs of an idempotent producer (`kinesis_sdk.common.once.runs`) as a tag of its first user
record. The tag's size is reserved while records are appended; the content is known only when the aggregate is sent.

Headers (`kinesis_sdk.common.headers`) are also tags. Header tags come before the payload of their user record; parsers accept any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import md5
from typing import TYPE_CHECKING, Final

from kinesis_sdk.common.codec import CODEC_KEY, AggregateCodec, SealedForm
from kinesis_sdk.common.hashkeys import hash_key_to_decimal, hash_partition_key
from kinesis_sdk.common.headers import SAME_HEADERS, tag_field, varint, varint_size

if TYPE_CHECKING:
    from kinesis_sdk.common.once.identity import Identity
    from kinesis_sdk.common.once.runs import Runs

MAGIC = b"\xf3\x89\x9a\xc2"
"""First four bytes of every aggregate."""

DIGEST_SIZE = 16
OVERHEAD = len(MAGIC) + DIGEST_SIZE
"""Bytes around the protobuf message."""

AGGREGATE_PARTITION_KEY = "a"
"""Partition key of a Kinesis record that is an aggregate; placement comes from the explicit hash key."""


# Shared by aggregates that need no collections of their own. Never written to.
_NO_KEYS: dict[str, int] = {}
_NO_PARTS: list[bytes] = []


def _record_prefix(key_index: int, hash_index: int | None, data_size: int, headers: bytes = b"") -> bytes:
    """Return the encoding of a Record (field 3) up to its data bytes."""
    body = b"\x08" + varint(key_index)
    if hash_index is not None:
        body += b"\x10" + varint(hash_index)
    body += headers + b"\x1a" + varint(data_size)
    return b"\x1a" + varint(len(body) + data_size) + body


def _table_entry(tag: bytes, text: str) -> bytes:
    """Return the encoding of a string of field 1 or 2."""
    raw = text.encode()
    return tag + varint(len(raw)) + raw


_KEY_HEADS: Final = [bytes([0x0A, length]) for length in range(0x80)]
"""Tag and length that precede a partition key in its table, by the length of the key."""


def _key_entry(partition_key: str) -> bytes:
    """Return `_table_entry` for a partition key."""
    raw = partition_key.encode()
    size = len(raw)
    return _KEY_HEADS[size] + raw if size < 0x80 else b"\x0a" + varint(size) + raw


# Prefixes repeat: a process writes few different pairs of data size and key index. A pair is packed into one int, which
# hashes faster than a tuple; larger indexes are not cached. The cache is cleared when it is full.
_PREFIX_CACHE_SIZE = 65_536
_INDEX_BITS = 14
_prefixes: dict[int, bytes] = {}


def _plain_prefix(key_index: int, data_size: int) -> bytes:
    """Return `_record_prefix` for a record without an explicit hash key, from the cache if possible."""
    if key_index >> _INDEX_BITS:
        return _record_prefix(key_index, None, data_size)
    slot = data_size << _INDEX_BITS | key_index
    prefix = _prefixes.get(slot)
    if prefix is None:
        if len(_prefixes) >= _PREFIX_CACHE_SIZE:
            _prefixes.clear()
        prefix = _prefixes[slot] = _record_prefix(key_index, None, data_size)
    return prefix


class Aggregate:
    """An open aggregate: user records go in, one Kinesis record comes out.

    The exact size of `encode`'s result is known after every append in O(1), so an aggregate is closed
    before it overflows and never trimmed.

    Not thread-safe: its owner holds a lock or is the only thread.

    Args:
        max_size: Maximum bytes that `encode` may return for two or more user records. A single user record is
            always accepted.
        max_count: Maximum number of user records.
        runs: Empty runs, if the first user record has a tag with their table. A single user record is then also wrapped, as a record with
            headers always is.

    Attributes:
        runs: The runs of the user records; None without a tag.
        lowest: Lowest effective hash key (16 bytes) of the user records.
        highest: Highest effective hash key (16 bytes) of the user records.
    """

    __slots__ = (
        "_first_hash",
        "_first_key",
        "_framed_size",
        "_hash_keys",
        "_hash_table",
        "_headers",
        "_headers_end",
        "_key_table",
        "_keys",
        "_most_parts",
        "_parts",
        "_placed_keys",
        "_wraps",
        "highest",
        "lowest",
        "max_count",
        "max_size",
        "runs",
    )

    def __init__(self, max_size: int, max_count: int, *, runs: Runs | None = None) -> None:
        self.max_size: int = max_size
        self.max_count: int = max_count
        self.runs: Runs | None = runs
        self._most_parts = 2 * max_count - 2
        # Whether a single user record is wrapped: for the table of runs, or for its headers.
        self._wraps = runs is not None
        # The last headers, and the length of `_parts` after their record, so that the fast paths need not reset the
        # headers.
        self._headers = b""
        self._headers_end = -1
        # Made with the second record, unless the first one is unusual: many aggregates have only one record, and the
        # garbage collector visits each collection of each waiting record.
        self._keys: dict[str, int] = _NO_KEYS
        # Keys that `append_known` accepts: their hash is known to lie between `lowest` and `highest`, and their index
        # fits the prefix cache. These are all of `_keys`, or none once a condition fails.
        self._placed_keys = self._keys
        self._key_table: list[bytes] = _NO_PARTS
        # Few aggregates have explicit hash keys: these collections are made with the first explicit hash key.
        self._hash_keys: dict[str, int] = _NO_KEYS
        self._hash_table: list[bytes] = _NO_PARTS
        # For each user record its prefix, then its payload.
        self._parts: list[bytes] = _NO_PARTS
        self._framed_size = OVERHEAD
        self._first_key = ""
        self.lowest: bytes = b""
        self.highest: bytes = b""
        self._first_hash = b""

    def append_known(self, partition_key: str, data: bytes) -> bool:
        """Append a user record on the fast path: no explicit hash key, and a partition key that the aggregate contains.

        Returns:
            False, with nothing changed, if one of these conditions does not hold, if the record is the second one, or if it would
            fill the aggregate. `try_append` decides then; the record may still fit.
        """
        key_index = self._placed_keys.get(partition_key)
        if key_index is None:
            return False
        length = len(data)
        prefix = _prefixes.get(length << _INDEX_BITS | key_index) or _plain_prefix(key_index, length)
        size = self._framed_size + len(prefix) + length
        parts = self._parts
        if size >= self.max_size or len(parts) >= self._most_parts:
            return False
        self._framed_size = size
        parts.append(prefix)
        parts.append(data)
        return True

    def append_new(self, partition_key: str, data: bytes, hash_key: bytes) -> bool:
        """Append a user record with a key that is not in the aggregate yet, and without an explicit hash key.

        Args:
            partition_key: The user's partition key.
            data: Payload.
            hash_key: Effective hash key (16 bytes): the partition key's.

        Returns:
            False, with nothing changed, if the aggregate is empty, has an explicit hash key, or has the key in more than one record,
            or would be full with the record (which may fit anyway): `try_append` decides then.
        """
        keys, parts = self._keys, self._parts
        if not keys:
            if not parts or self._most_parts < 0:  # empty, or sealed
                return False
            keys = self._list_keys()
            if partition_key in keys:
                return self.append_known(partition_key, data)
        key_index = len(keys)
        if (
            self._placed_keys is not keys
            or partition_key in keys
            or key_index >> _INDEX_BITS
            or len(parts) >= self._most_parts
        ):
            return False
        # `_key_entry`, written out for speed.
        key_entry = partition_key.encode()
        size = len(key_entry)
        key_entry = _KEY_HEADS[size] + key_entry if size < 0x80 else _key_entry(partition_key)
        length = len(data)
        prefix = _prefixes.get(length << _INDEX_BITS | key_index) or _plain_prefix(key_index, length)
        size = self._framed_size + len(key_entry) + len(prefix) + length
        if size >= self.max_size:
            return False
        if hash_key < self.lowest:
            self.lowest = hash_key
        elif hash_key > self.highest:
            self.highest = hash_key
        keys[partition_key] = key_index
        self._key_table.append(key_entry)
        self._framed_size = size
        parts.append(prefix)
        parts.append(data)
        return True

    def begin(self, partition_key: str, data: bytes, hash_key: bytes) -> None:
        """Take the first user record, which has neither an explicit hash key nor headers. Not for an aggregate with runs."""
        self._first_key = partition_key
        self._first_hash = self.lowest = self.highest = hash_key
        # Without spare room, unlike a list that is appended to. `_list_keys` writes the prefix, if there is a second record.
        self._parts = [b"", data]

    def try_append(
        self,
        partition_key: str,
        explicit_hash_key: str | None,
        data: bytes,
        hash_key: bytes,
        *,
        identity: Identity | None = None,
        headers: bytes = b"",
    ) -> bool:
        """Append a user record unless the aggregate would overflow.

        Args:
            partition_key: The user's partition key.
            explicit_hash_key: Canonical decimal text, or None if the user set no explicit hash key.
            data: Payload.
            hash_key: Effective hash key (16 bytes): the explicit hash key, or the hash key of the partition key.
            identity: Its identity, if it has one already. `append_known` and `append_new` then accept nothing more, because they
                continue a run of records without an identity.
            headers: Result of `encode_headers`; empty without headers.

        Returns:
            False, with nothing changed, if the result would exceed ``max_size`` or ``max_count``, or the runs would not fit into a table.
        """
        if (
            not self._parts
            and explicit_hash_key is None
            and self.runs is None
            and not headers
            and identity is None
            and self.max_count
        ):
            self.begin(partition_key, data, hash_key)
            return True
        if (
            self._parts
            and explicit_hash_key is None
            and identity is None
            and not headers
            and self.append_known(partition_key, data)
        ):
            return True
        count = len(self._parts) // 2
        if count >= self.max_count:
            return False
        if count and not self._keys:
            self._list_keys()
        length = len(data)
        repeated = headers and headers == self._headers and self._headers_end == len(self._parts)
        shown = SAME_HEADERS if repeated else headers
        key_entry = hash_entry = b""
        key_index = self._keys.get(partition_key)
        if key_index is None:
            key_index = len(self._keys)
            key_entry = _key_entry(partition_key)
        if explicit_hash_key is None:
            prefix = (
                _record_prefix(key_index, None, length, shown) if shown else _plain_prefix(key_index, length)
            )
        else:
            hash_index = self._hash_keys.get(explicit_hash_key)
            if hash_index is None:
                hash_index = len(self._hash_keys)
                hash_entry = _table_entry(b"\x12", explicit_hash_key)
            prefix = _record_prefix(key_index, hash_index, length, shown)
        size = self._framed_size + len(key_entry) + len(hash_entry) + len(prefix) + length
        runs = self.runs
        if runs is not None:
            if count == 0:
                runs.begin(_length_in(prefix, length))
            growth = runs.growth(identity)
            if growth is None:
                return False
            size += growth
        if count == 0:
            self._first_key = partition_key
            self._first_hash = self.lowest = self.highest = hash_key
        elif size > self.max_size:
            return False
        elif hash_key < self.lowest:
            self.lowest = hash_key
        elif hash_key > self.highest:
            self.highest = hash_key
        if runs is not None:
            runs.take(identity, count)
        if count == 0 and (identity is not None or explicit_hash_key is not None):
            self._list_keys()
        if identity is not None:
            self._placed_keys = {}
        if explicit_hash_key is not None:
            self._placed_keys = {}  # the bounds no longer follow from the partition keys alone
            if hash_entry:
                if not self._hash_keys:
                    self._hash_keys, self._hash_table = {}, []
                self._hash_keys[explicit_hash_key] = len(self._hash_keys)
                self._hash_table.append(hash_entry)
        if key_entry and count:
            if key_index >> _INDEX_BITS:
                self._placed_keys = {}
            self._keys[partition_key] = key_index
            self._key_table.append(key_entry)
        self._framed_size = size
        if count:
            self._parts.append(prefix)
            self._parts.append(data)
        else:
            self._parts = [prefix, data]  # without spare room, unlike a list that is appended to
        if headers:
            self._wraps, self._headers, self._headers_end = True, headers, len(self._parts)
        return True

    def seal(self) -> None:
        """Accept no more records, and release the memory that only appending needs, because a closed aggregate may wait for a long time."""
        self.max_count = 0
        self._most_parts = -1
        self._keys = self._placed_keys = self._hash_keys = _NO_KEYS
        if len(self._parts) == 2 and not self.is_wrapped:
            self._key_table = self._hash_table = _NO_PARTS
            self._parts[0] = b""

    def _list_keys(self) -> dict[str, int]:
        """Make the collections of keys, with the key of the first record."""
        keys = self._keys = self._placed_keys = {self._first_key: 0}
        key_entry = _key_entry(self._first_key)
        self._key_table = [key_entry]
        parts = self._parts
        if parts and not parts[0]:
            length = len(parts[1])
            parts[0] = prefix = _plain_prefix(0, length)
            self._framed_size = OVERHEAD + len(key_entry) + len(prefix) + length
        return keys

    @property
    def _table(self) -> list[bytes]:
        """The encoded keys."""
        return self._key_table or ([_key_entry(self._first_key)] if self._parts else _NO_PARTS)

    @property
    def tagged(self) -> bool:
        """Whether the first user record has a tag."""
        return self.runs is not None

    @property
    def has_headers(self) -> bool:
        """Whether a user record has headers."""
        return bool(self._headers)

    @property
    def is_wrapped(self) -> bool:
        """Whether it is encoded as an aggregate. A single user record is wrapped only if it is tagged or has headers."""
        parts = len(self._parts)
        return parts > 2 or (self._wraps and parts > 0)

    @property
    def count(self) -> int:
        """Number of user records."""
        return len(self._parts) // 2

    @property
    def size(self) -> int:
        """Exact length in bytes of the current result of `encode`."""
        parts = self._parts
        if len(parts) > 2 or (self._wraps and parts):
            return self._framed_size
        return len(parts[1]) if parts else 0

    @property
    def is_full(self) -> bool:
        """Whether no further record is accepted."""
        parts = self._parts
        if len(parts) > self._most_parts:
            return True
        return (self._framed_size if len(parts) > 2 else self.size) >= self.max_size

    @property
    def partition_key(self) -> str:
        """Partition key of the Kinesis record: the user's partition key for a record that is not wrapped, otherwise ``a``."""
        parts = self._parts
        # `is_wrapped`, written out for speed, as in `encode`.
        return AGGREGATE_PARTITION_KEY if len(parts) > 2 or (self._wraps and parts) else self._first_key

    @property
    def hash_key(self) -> bytes:
        """Effective hash key (16 bytes) of the Kinesis record: the first user record's."""
        return self._first_hash

    @property
    def explicit_hash_key(self) -> str:
        """Explicit hash key of the Kinesis record. As in the KPL, this key is sent even for a single user record."""
        return hash_key_to_decimal(self._first_hash)

    @property
    def payloads(self) -> list[bytes]:
        """The user records' payloads, in order."""
        return self._parts[1::2]

    @property
    def payload_size(self) -> int:
        """Total bytes of the user records' payloads."""
        if len(self._parts) == 2:
            return len(self._parts[1])
        return sum(map(len, self._parts[1::2]))

    def payload(self, index: int) -> bytes:
        """Return the payload of one user record, by its index from 0."""
        return self._parts[2 * index + 1]

    def encode(self) -> bytes:
        """Return the data of the Kinesis record; the payload itself if there is only one user record, and no tag or header.

        Raises:
            ValueError: If the aggregate is empty, or if it is tagged and the tag of its `runs` has not been set.
        """
        parts = self._parts
        if not parts:
            raise ValueError("an empty aggregate has no encoding")
        if len(parts) == 2 and not self._wraps:
            return parts[1]
        table = self._table
        parts = [*table, *self._hash_table, *self._parts]
        if self.runs is not None:
            self.runs.add_tag(parts, len(table) + len(self._hash_table))
        return _framed(parts)

    @property
    def body(self) -> bytes:
        """The message of `encode` without the table of runs, even for a single user record that is not wrapped."""
        if len(self._parts) == 2 and not self.is_wrapped:
            (data,) = self.payloads
            head, fields = self._first_place
            fields += b"\x1a" + varint(len(data))
            return b"".join((*head, b"\x1a", varint(len(fields) + len(data)), fields, data))
        return b"".join((*self._table, *self._hash_table, *self._parts))

    @property
    def _first_place(self) -> tuple[list[bytes], bytes]:
        """Tables and indexes that place one user record like the first user record."""
        head, fields = [_key_entry(self._first_key)], b"\x08\x00"
        if self._first_hash != hash_partition_key(self._first_key):
            head.append(_table_entry(b"\x12", self.explicit_hash_key))
            fields += b"\x10\x00"
        return head, fields

    def seal_with(self, codec: AggregateCodec) -> SealedAggregate:
        """Return the aggregate in its sealed form. Nothing may be appended from then on. Callable from any thread."""
        body, (head, fields) = self.body, self._first_place
        data = codec.seal(body)
        value = SealedForm(codec.name, len(body), self.count).text.encode()
        record = b"".join((fields, b"\x1a", varint(len(data)), data, tag_field(CODEC_KEY, value)))
        return SealedAggregate(b"".join(head), record, self.runs)


class SealedAggregate:
    """An aggregate whose body was sealed: an aggregate of one record, which contains all user records.

    The table of runs is outside the sealed body, because it differs in each attempt to send the aggregate.

    Args:
        head: Encoded tables, with the keys of the first user record.
        record: Encoded record without the table of runs.
        runs: The runs of the user records; None without a tag. The tag of the runs is read when the aggregate is encoded.

    Attributes:
        size: Exact length in bytes of the result of `encode`.
    """

    __slots__ = ("_head", "_record", "_runs", "size")

    is_wrapped = True
    """As of an `Aggregate`: a sealed body is always wrapped, even with a single user record."""

    def __init__(self, head: bytes, record: bytes, runs: Runs | None) -> None:
        self._head = head
        self._record = record
        self._runs = runs
        length = len(record) + (0 if runs is None else runs.tag_size)
        self.size: int = OVERHEAD + len(head) + 1 + varint_size(length) + length

    def encode(self) -> bytes:
        """Return the data of the Kinesis record.

        Raises:
            ValueError: If there are runs whose tag has not been set.
        """
        field = b"" if self._runs is None else self._runs.field
        length = varint(len(self._record) + len(field))
        return _framed((self._head, b"\x1a", length, self._record, field))


def _framed(parts: Iterable[bytes]) -> bytes:
    """Return a message with the frame that surrounds it in every aggregate."""
    message = b"".join(parts)
    return b"".join((MAGIC, message, md5(message, usedforsecurity=False).digest()))


def _length_in(prefix: bytes, length: int) -> int:
    """Return the length of a Record, which its prefix contains after the first byte."""
    for size in range(1, len(prefix) - 1):
        if prefix[size] < 0x80:  # the last byte of the length
            return len(prefix) - 1 - size + length
    raise AssertionError("a prefix without a length")
