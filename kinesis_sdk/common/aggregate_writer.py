"""Writing the KPL's aggregated record: many user records in one Kinesis record.

The format is described in `kinesis_sdk.common.aggregate_reader`, which reads it. Writing joins ready parts by hand: it
is half the cost of building messages, and the exact size is known after every append.
"""

from __future__ import annotations

from hashlib import md5

from kinesis_sdk.common.hashkeys import hash_key_to_decimal

MAGIC = b"\xf3\x89\x9a\xc2"
"""First four bytes of every aggregate."""

DIGEST_SIZE = 16
OVERHEAD = len(MAGIC) + DIGEST_SIZE
"""Bytes around the protobuf message."""

AGGREGATE_PARTITION_KEY = "a"
"""Partition key of a Kinesis record that is an aggregate; placement comes from the explicit hash key."""


# What a sealed aggregate has in place of its own; never written to.
_NO_KEYS: dict[str, int] = {}
_NO_PARTS: list[bytes] = []


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _record_prefix(key_index: int, hash_index: int | None, data_size: int) -> bytes:
    """Everything of a Record in field 3 that stands before its data bytes."""
    body = b"\x08" + _varint(key_index)
    if hash_index is not None:
        body += b"\x10" + _varint(hash_index)
    body += b"\x1a" + _varint(data_size)
    return b"\x1a" + _varint(len(body) + data_size) + body


def _table_entry(tag: bytes, text: str) -> bytes:
    """A string of field 1 or 2 with all that stands before it."""
    raw = text.encode()
    return tag + _varint(len(raw)) + raw


# Prefixes repeat: a process writes few different pairs of data size and key index. They are packed into one int,
# which hashes faster than a tuple; indexes that do not fit are not remembered. Bounded, emptied when full.
_PREFIX_CACHE_SIZE = 65_536
_INDEX_BITS = 14
_prefixes: dict[int, bytes] = {}


def _plain_prefix(key_index: int, data_size: int) -> bytes:
    """`_record_prefix` without an explicit hash key, remembered."""
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

    The exact size of what `encode` returns is known after every append in O(1), so an aggregate is closed
    before it overflows and never trimmed.

    Not thread-safe: its owner holds a lock or is the only thread.

    Args:
        max_size: Most bytes that `encode` may return with two or more user records. A single user record is
            always accepted, since it travels unwrapped.
        max_count: Most user records.

    Attributes:
        lowest: The lowest effective hash key (16 bytes) inside.
        highest: The highest one.
    """

    __slots__ = (
        "_first_hash",
        "_first_key",
        "_framed_size",
        "_hash_keys",
        "_hash_table",
        "_key_table",
        "_keys",
        "_most_parts",
        "_parts",
        "_placed_keys",
        "highest",
        "lowest",
        "max_count",
        "max_size",
    )

    def __init__(self, max_size: int, max_count: int) -> None:
        self.max_size = max_size
        self.max_count = max_count
        self._most_parts = 2 * max_count - 2
        self._keys: dict[str, int] = {}
        # Keys whose own hash is between the bounds, as long as that are all of them, and whose index is a small
        # one: what `append_known` takes.
        self._placed_keys = self._keys
        self._hash_keys: dict[str, int] = {}
        self._key_table: list[bytes] = []
        self._hash_table: list[bytes] = []
        # Of each user record, what stands before its payload, and its payload.
        self._parts: list[bytes] = []
        self._framed_size = OVERHEAD
        self._first_key = ""
        self._first_hash = self.lowest = self.highest = b""

    def append_known(self, partition_key: str, data: bytes) -> bool:
        """The short way of nearly every user record: without a hash key of its own, with a key that is in already.

        Returns:
            False, with nothing changed, if this is none of these, or if the aggregate would be full with it (it may
            fit nevertheless): `try_append` knows.
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

    def try_append(
        self, partition_key: str, explicit_hash_key: str | None, data: bytes, hash_key: bytes
    ) -> bool:
        """Add a user record unless it would overflow.

        Args:
            partition_key: The user's partition key.
            explicit_hash_key: Canonical decimal text if the user gave one, else None.
            data: Payload.
            hash_key: Effective hash key (16 bytes): the explicit one, else the partition key's.

        Returns:
            False, with nothing changed, if the result would exceed ``max_size`` or ``max_count``.
        """
        if explicit_hash_key is None and self.append_known(partition_key, data):
            return True
        count = self.count
        if count >= self.max_count:
            return False
        length = len(data)
        key_entry = hash_entry = b""
        key_index = self._keys.get(partition_key)
        if key_index is None:
            key_index = len(self._keys)
            key_entry = _table_entry(b"\x0a", partition_key)
        if explicit_hash_key is None:
            prefix = _plain_prefix(key_index, length)
        else:
            hash_index = self._hash_keys.get(explicit_hash_key)
            if hash_index is None:
                hash_index = len(self._hash_keys)
                hash_entry = _table_entry(b"\x12", explicit_hash_key)
            prefix = _record_prefix(key_index, hash_index, length)
        size = self._framed_size + len(key_entry) + len(hash_entry) + len(prefix) + length
        if count == 0:
            self._first_key = partition_key
            self._first_hash = self.lowest = self.highest = hash_key
        elif size > self.max_size:
            return False
        elif hash_key < self.lowest:
            self.lowest = hash_key
        elif hash_key > self.highest:
            self.highest = hash_key
        if explicit_hash_key is not None:
            self._placed_keys = {}  # what a key's own hash is can not be told from the table any more
            if hash_entry:
                self._hash_keys[explicit_hash_key] = len(self._hash_keys)
                self._hash_table.append(hash_entry)
        if key_entry:
            if key_index >> _INDEX_BITS:
                self._placed_keys = {}
            self._keys[partition_key] = key_index
            self._key_table.append(key_entry)
        self._framed_size = size
        self._parts.append(prefix)
        self._parts.append(data)
        return True

    def seal(self) -> None:
        """Nothing is appended any more: give back what only appending needs, since a closed aggregate may wait long."""
        self.max_count = 0
        self._most_parts = -1
        self._keys = self._placed_keys = self._hash_keys = _NO_KEYS
        if self.count == 1:  # it travels unwrapped
            self._key_table = self._hash_table = _NO_PARTS
            self._parts = [b"", self._parts[1]]

    @property
    def count(self) -> int:
        """User records inside."""
        return len(self._parts) // 2

    @property
    def size(self) -> int:
        """Exact length in bytes of what `encode` would return now."""
        parts = self._parts
        return self._framed_size if len(parts) > 2 else len(parts[1]) if parts else 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more may go in."""
        parts = self._parts
        if len(parts) > self._most_parts:
            return True
        return (self._framed_size if len(parts) > 2 else self.size) >= self.max_size

    @property
    def partition_key(self) -> str:
        """Partition key of the Kinesis record: the user's own for a single user record, else ``a``."""
        return self._first_key if self.count == 1 else AGGREGATE_PARTITION_KEY

    @property
    def hash_key(self) -> bytes:
        """Effective hash key (16 bytes) of the Kinesis record: its first user record's."""
        return self._first_hash

    @property
    def explicit_hash_key(self) -> str:
        """Explicit hash key of the Kinesis record, always sent, as the KPL does, even for a single one."""
        return hash_key_to_decimal(self._first_hash)

    @property
    def payloads(self) -> list[bytes]:
        """The user records' payloads, in order."""
        return self._parts[1::2]

    @property
    def payload_size(self) -> int:
        """Bytes of the user records' payloads."""
        if self.count == 1:
            return self.size
        return sum(map(len, self._parts[1::2]))

    def payload(self, index: int) -> bytes:
        """The payload of one user record, by its place from 0."""
        return self._parts[2 * index + 1]

    def encode(self) -> bytes:
        """The data of the Kinesis record; the payload itself if there is one user record only.

        Raises:
            ValueError: Nothing was appended.
        """
        if self.count == 0:
            raise ValueError("an empty aggregate has no encoding")
        if self.count == 1:
            return self._parts[1]
        message = b"".join((*self._key_table, *self._hash_table, *self._parts))
        return b"".join((MAGIC, message, md5(message, usedforsecurity=False).digest()))
