"""Copies of records in a stream, and the positions at which readers deliver them.

This is an oracle: it reads the whole stream and parses aggregates with separate code, so that it shares no error with the readers that it
checks. It identifies a record by its payload, not by the identity that a producer wrote.

A copy is *valid* if all user records of its Kinesis record belong to the shard that stores it. Of each record that an
idempotent producer put, readers deliver only the first valid copy: parents come before children, and records of a shard
in the order of their sequence numbers. Of a record that another producer put, readers deliver every copy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST_SIZE = 16
_TAG_KEY = b"k1"

Name = TypeVar("Name")


class CopyPosition(NamedTuple):
    """Position of a user record.

    `sub_sequence_number` is its index in the aggregate; 0 for a record outside an aggregate.
    """

    shard_id: str
    sequence_number: int
    sub_sequence_number: int


class StoredCopy(NamedTuple):
    """One copy of a user record.

    Attributes:
        arrived: Wall-clock seconds at which it arrived.
        is_idempotent: Whether an idempotent producer put it.
        is_valid: Whether all user records of its Kinesis record belong to the shard.
    """

    position: CopyPosition
    arrived: float
    data: bytes
    is_idempotent: bool
    is_valid: bool


def read_copies(client: Any, stream_name: str) -> list[StoredCopy]:
    """Read a whole stream, parents before children.

    No records should be put during the read: a shard is read until a read returns no records.
    """
    copies: list[StoredCopy] = []
    for shard in _in_order(_list_shards(client, stream_name)):
        owned = shard["HashKeyRange"]
        bounds = int(owned["StartingHashKey"]), int(owned["EndingHashKey"])
        for record in _records(client, stream_name, shard["ShardId"]):
            copies.extend(_open(record, shard["ShardId"], bounds))
    return copies


def deliveries(
    copies: Iterable[StoredCopy], name: Callable[[bytes], Name | None]
) -> dict[Name, list[CopyPosition]]:
    """Return the positions at which readers deliver each record, by the record's name.

    A record of an idempotent producer has one position, or no position if none of its copies is valid.

    Args:
        copies: All copies, parents before children, as `read_copies` returns them.
        name: Returns the name of the record with this payload; None for a record that is ignored.
    """
    found: dict[Name, list[CopyPosition]] = {}
    for copy in copies:
        record = name(copy.data)
        if record is None:
            continue
        positions = found.setdefault(record, [])
        if not copy.is_idempotent or (copy.is_valid and not positions):
            positions.append(copy.position)
    return found


def _list_shards(client: Any, stream_name: str) -> Iterator[Mapping[str, Any]]:
    request: dict[str, Any] = {"StreamName": stream_name}
    while True:
        response = client.list_shards(**request)
        yield from response["Shards"]
        if "NextToken" not in response:
            return
        request = {"NextToken": response["NextToken"]}


def _in_order(shards: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    waiting = {shard["ShardId"]: shard for shard in shards}
    while waiting:
        ready = [
            shard
            for shard in waiting.values()
            if not {shard.get("ParentShardId"), shard.get("AdjacentParentShardId")} & waiting.keys()
        ]
        for shard in ready:
            del waiting[shard["ShardId"]]
        yield from ready


def _records(client: Any, stream_name: str, shard_id: str) -> Iterator[Mapping[str, Any]]:
    iterator = client.get_shard_iterator(
        StreamName=stream_name, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    while iterator:
        page = client.get_records(ShardIterator=iterator)
        yield from page["Records"]
        if not page["Records"] and not page.get("MillisBehindLatest"):
            return
        iterator = page.get("NextShardIterator")


def _open(record: Mapping[str, Any], shard_id: str, bounds: tuple[int, int]) -> Iterator[StoredCopy]:
    data = bytes(record["Data"])
    number, arrived = int(record["SequenceNumber"]), record["ApproximateArrivalTimestamp"].timestamp()
    body = data[len(_MAGIC) : -_DIGEST_SIZE]
    is_aggregate = data.startswith(_MAGIC) and hashlib.md5(body).digest() == data[-_DIGEST_SIZE:]
    if not is_aggregate:
        # Kinesis placed it by its key, so it is in the right shard.
        yield StoredCopy(CopyPosition(shard_id, number, 0), arrived, data, False, True)
        return
    keys: list[bytes] = []
    explicit: list[bytes] = []
    users: list[dict[int, list[Any]]] = []
    for name, value in _fields(body):
        if name == 1:
            keys.append(value)
        elif name == 2:
            explicit.append(value)
        elif name == 3:
            user: dict[int, list[Any]] = {}
            for part, content in _fields(value):
                user.setdefault(part, []).append(content)
            users.append(user)
    hashes = [
        int(explicit[user[2][0]])
        if 2 in user
        else int.from_bytes(hashlib.md5(keys[user[1][0]]).digest(), "big")
        for user in users
    ]
    is_valid = all(bounds[0] <= key <= bounds[1] for key in hashes)
    is_idempotent = any(dict(_fields(tag)).get(1) == _TAG_KEY for tag in users[0].get(4, ()))
    for sub, user in enumerate(users):
        yield StoredCopy(CopyPosition(shard_id, number, sub), arrived, user[3][0], is_idempotent, is_valid)


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protobuf message: numbers for varints, bytes for fields with a length."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value, at = _varint(message, at)
        if tag & 7 == 0:
            yield tag >> 3, value
        else:
            yield tag >> 3, message[at : at + value]
            at += value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
