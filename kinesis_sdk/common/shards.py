"""Shards of a stream: their listing, their lineage, and the prediction of the shard for a hash key."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kinesis_sdk.common.aws import KinesisClient, translate_errors
from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.paging import PageLimit
from kinesis_sdk.common.stream import StreamId

_PREDICTIONS = 65_536

LIST_SHARDS_PAGE = 1000
"""Shards per ListShards page: the API's default, which larger requests do not raise (API reference)."""

MAX_LIST_SHARDS_PAGES = 1000
"""Maximum pages of one listing, enough for a million shards. A longer listing is rejected as endless."""


_SHARD_ID = re.compile(r"shardId-[0-9]{12}")
_TABLE_SHARD_ID = re.compile(r"shardId-[0-9]{20}-[0-9a-f]{8}")


def is_shard_id(text: str) -> bool:
    """Return whether a text has the form of a shard id. The ids of one stream are in the order of their creation."""
    return _SHARD_ID.fullmatch(text) is not None


def is_table_shard_id(text: str) -> bool:
    """Return whether a text has the form of a shard id of DynamoDB Streams: its creation time in milliseconds, and a random part."""
    return _TABLE_SHARD_ID.fullmatch(text) is not None


@dataclass(frozen=True)
class Shard:
    """One shard as ``ListShards`` describes it.

    Attributes:
        shard_id: Shard id, for example ``shardId-000000000003``.
        hash_key_range: Closed range of hash keys of the shard.
        parent_shard_id: Shard that was split or merged to create this one; None if there is none.
        adjacent_parent_shard_id: Second parent of a merge; None if there is none.
        starting_sequence_number: Lowest sequence number of the shard.
        ending_sequence_number: Highest sequence number of a closed shard; None while the shard is open.
    """

    shard_id: str
    hash_key_range: HashKeyRange
    parent_shard_id: str | None = None
    adjacent_parent_shard_id: str | None = None
    starting_sequence_number: str = "0"
    ending_sequence_number: str | None = None

    @classmethod
    def from_api(cls, item: Mapping[str, Any]) -> Shard:
        """Read one element of ``Shards`` of a ListShards or DescribeStream response.

        Raises:
            KeyError: If a required member is missing.
            TypeError: If a member has the wrong type.
            ValueError: If a hash key is not a number, or the range is invalid.
        """
        ranges = _mapping(item["HashKeyRange"], "HashKeyRange")
        sequence = _mapping(item.get("SequenceNumberRange") or {}, "SequenceNumberRange")
        return cls(
            shard_id=_text(item["ShardId"], "ShardId"),
            hash_key_range=HashKeyRange(
                int(_text(ranges["StartingHashKey"], "StartingHashKey")),
                int(_text(ranges["EndingHashKey"], "EndingHashKey")),
            ),
            parent_shard_id=_text_or_none(item.get("ParentShardId"), "ParentShardId"),
            adjacent_parent_shard_id=_text_or_none(
                item.get("AdjacentParentShardId"), "AdjacentParentShardId"
            ),
            starting_sequence_number=_text(
                sequence.get("StartingSequenceNumber", "0"), "StartingSequenceNumber"
            ),
            ending_sequence_number=_text_or_none(
                sequence.get("EndingSequenceNumber"), "EndingSequenceNumber"
            ),
        )

    @property
    def is_open(self) -> bool:
        """Whether the shard accepts records."""
        return self.ending_sequence_number is None

    @property
    def parents(self) -> tuple[str, ...]:
        """Ids of the parents: none, one (split) or two (merge). Parents may no longer be listed."""
        return tuple(p for p in (self.parent_shard_id, self.adjacent_parent_shard_id) if p)


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is not an object but {type(value).__name__}")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is not text but {type(value).__name__}")
    return value


def _text_or_none(value: Any, name: str) -> str | None:
    return None if value is None else _text(value, name)


def list_shards(
    client: KinesisClient,
    stream: StreamId,
    *,
    shard_filter: Mapping[str, Any] | None = None,
    on_page: Callable[[Mapping[str, Any]], object] | None = None,
) -> list[Shard]:
    """Return all shards of a stream, from all pages of ListShards.

    Requests for later pages contain the token but not the stream, because Kinesis rejects requests with both
    (amazon-kinesis-producer#482).

    Args:
        client: boto3 Kinesis client, or an object of its shape.
        stream: Name or ARN.
        shard_filter: ``ShardFilter`` of the API, for example ``{"Type": "AT_LATEST"}`` for the open shards.
        on_page: Called with each response.

    Raises:
        AwsError: If a call fails.
        ProtocolError: If Kinesis repeats a page token, sends more than 1,000 pages, or describes a shard without an id or
            a range.
    """
    request: dict[str, Any] = {**stream.request, "MaxResults": LIST_SHARDS_PAGE}
    if shard_filter:
        request["ShardFilter"] = dict(shard_filter)
    shards: list[Shard] = []
    limit = PageLimit("ListShards", MAX_LIST_SHARDS_PAGES)
    while True:
        with translate_errors("ListShards", client):
            page = client.list_shards(**request)
        listed = page.get("Shards") if isinstance(page, Mapping) else None
        if not isinstance(listed, list):
            raise ProtocolError("ListShards: the response has no list of Shards")
        if on_page is not None:
            on_page(page)
        try:
            shards.extend(Shard.from_api(_mapping(item, "a shard")) for item in listed)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(
                f"ListShards: a shard is malformed ({type(error).__name__}: {error})"
            ) from error
        token = page.get("NextToken")
        if not token:
            return shards
        if not isinstance(token, str):
            raise ProtocolError(f"ListShards: NextToken is not text but {type(token).__name__}")
        limit.check(token)
        request = {"NextToken": token, "MaxResults": LIST_SHARDS_PAGE}


def find_hole(ranges: Iterable[HashKeyRange]) -> HashKeyRange | None:
    """Return the first hole: a part of the hash key space that no range covers. None if there is no hole; ranges may overlap."""
    next_start = 0
    for item in sorted(ranges):
        if item.start > next_start:
            return HashKeyRange(next_start, item.start - 1)
        next_start = max(next_start, item.end + 1)
    return HashKeyRange(next_start, MAX_HASH_KEY) if next_start <= MAX_HASH_KEY else None


class ShardGraph:
    """Lineage of listed shards: their parents and children, without parents that are no longer listed."""

    __slots__ = ("_children", "shards")

    def __init__(self, shards: Iterable[Shard]) -> None:
        self.shards: dict[str, Shard] = {shard.shard_id: shard for shard in shards}
        self._children: dict[str, list[str]] = {}
        for shard in self.shards.values():
            for parent in shard.parents:
                self._children.setdefault(parent, []).append(shard.shard_id)

    def parents(self, shard_id: str) -> tuple[str, ...]:
        """Return the listed parents of a shard."""
        shard = self.shards.get(shard_id)
        return tuple(p for p in shard.parents if p in self.shards) if shard else ()

    def children(self, shard_id: str) -> tuple[str, ...]:
        """Return the listed children of a shard, in the order of their ids."""
        return tuple(sorted(self._children.get(shard_id, ())))

    def ancestors(self, shard_id: str) -> Iterator[str]:
        """Yield the listed ancestors of a shard, nearest generation first, each once."""
        seen: set[str] = set()
        layer = self.parents(shard_id)
        while layer:
            following: list[str] = []
            for ancestor in layer:
                if ancestor not in seen:
                    seen.add(ancestor)
                    yield ancestor
                    following.extend(self.parents(ancestor))
            layer = tuple(following)

    def descendants(self, shard_id: str) -> Iterator[str]:
        """Yield the listed descendants of a shard, nearest generation first, each once."""
        seen: set[str] = set()
        layer = self.children(shard_id)
        while layer:
            following: list[str] = []
            for descendant in layer:
                if descendant not in seen:
                    seen.add(descendant)
                    yield descendant
                    following.extend(self.children(descendant))
            layer = tuple(following)

    @property
    def open_shards(self) -> tuple[Shard, ...]:
        """Shards that accept records, in the order of their hash key ranges."""
        return tuple(
            sorted((s for s in self.shards.values() if s.is_open), key=lambda s: s.hash_key_range.start)
        )


class ShardMap:
    """Immutable snapshot of the open shards, which predicts the shard of a record.

    A map keeps the ranges of the previous map, because the response to a request that was sent with the previous map
    names that map's shards.

    Args:
        shards: Open shards; their ranges must cover the hash key space without holes and overlaps.
        loaded_at: Monotonic seconds at which loading *started*; the map includes all earlier changes.
        previous: Map that this map replaces; None for the first map.

    Attributes:
        predicted: Cache of recent results of `predict` by hash key, for callers on the hot path. Cleared when full.
        ids: Ids of the open shards, in the order of their ranges.
        ends: Last hash key of each shard (16 bytes).
        loaded_at: As the argument.

    Raises:
        ProtocolError: If the ranges have a hole or overlap; the caller keeps its old map and loads again.
    """

    __slots__ = ("_previous_ranges", "_ranges", "ends", "ids", "loaded_at", "predicted")

    def __init__(self, shards: Iterable[Shard], loaded_at: float, previous: ShardMap | None = None) -> None:
        ordered = sorted(shards, key=lambda shard: shard.hash_key_range.start)
        next_start = 0
        for shard in ordered:
            if shard.hash_key_range.start != next_start:
                raise ProtocolError(
                    f"ListShards: open shards do not tile the hash key space at {shard.shard_id} "
                    f"(starts at {shard.hash_key_range.start}, expected {next_start})"
                )
            next_start = shard.hash_key_range.end + 1
        if next_start != MAX_HASH_KEY + 1:
            raise ProtocolError(f"ListShards: open shards end at hash key {next_start - 1}, not at 2^128-1")
        self.loaded_at: float = loaded_at
        self.predicted: dict[bytes, str] = {}
        self.ids: list[str] = [shard.shard_id for shard in ordered]
        self.ends: list[bytes] = [shard.hash_key_range.end_bytes for shard in ordered]
        self._ranges = {shard.shard_id: shard.hash_key_range for shard in ordered}
        # The ids of new shards only increase while a stream exists. If the highest id decreased, or a shard changed its
        # range, the stream was deleted and recreated, and the old ranges are no longer valid.
        old = previous._ranges if previous else {}
        recreated = bool(old) and (
            max(self.ids) < max(old) or any(old[i] != r for i, r in self._ranges.items() if i in old)
        )
        self._previous_ranges = {} if recreated else old

    def predict(self, hash_key: bytes) -> str:
        """Return the id of the open shard whose range contains a hash key (16 bytes)."""
        shard_id = self.ids[bisect_left(self.ends, hash_key)]
        if len(self.predicted) >= _PREDICTIONS:
            self.predicted.clear()
        self.predicted[hash_key] = shard_id
        return shard_id

    def range_of(self, shard_id: str) -> HashKeyRange | None:
        """Return the range of a shard of this map or of the previous map; None for any other shard."""
        return self._ranges.get(shard_id) or self._previous_ranges.get(shard_id)

    def is_open(self, shard_id: str) -> bool:
        """Return whether a shard is open in this snapshot."""
        return shard_id in self._ranges

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"ShardMap({len(self.ids)} open shards, loaded_at={self.loaded_at:.3f})"
