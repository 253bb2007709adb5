"""Lineage of a stream as data for a picture: hash key ranges, generations, splits and merges.

All data is computed from one listing of shards, without a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from kinesis_sdk.admin.plain import plain
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.shards import Shard, ShardGraph, find_hole, is_shard_id

_SPACE = MAX_HASH_KEY + 1
_NUMBER = re.compile(r"(?:shard(?:Id)?-)?0*([0-9]{1,12})")

# Layout of the sequence numbers that Kinesis has issued since 2013. The layout is not part of the API, so it only dates
# a picture.
_VERSION = 2
_VERSION_SHIFT = 184
_CREATED_SHIFT = 148
_CREATED_MASK = (1 << 36) - 1
_FIRST_SECOND = 1_356_998_400  # 2013-01-01


class Origin(str, Enum):
    """Change that created a shard."""

    CREATED = "created"
    """The shard was created with the stream."""
    SPLIT = "split"
    """One parent was split."""
    MERGE = "merge"
    """Two parents were merged."""


@dataclass(frozen=True, kw_only=True)
class LineageShard:
    """One shard with its place in the picture.

    Attributes:
        shard_id: Shard id.
        label: Short form of the id: its number, which every command accepts as well.
        hash_key_range: Closed range of hash keys.
        start: First hash key as a fraction of the hash key space, from 0.0 to below 1.0.
        width: Part of the hash key space that the range covers, above 0.0 to 1.0.
        generation: Number of reshards before it, as far as its ancestors are listed; 0 for a shard without listed parents.
        is_open: Whether it accepts records.
        origin: Change that created it.
        parents: Ids of its parents, with `missing_parents`.
        missing_parents: Parents that are no longer listed, because their records have expired.
        children: Ids of its listed children.
        created_at: Creation time in whole seconds; None if its first sequence number does not show it.
        closed_at: Creation time of its first listed child; None while the shard is open, or if unknown.
    """

    shard_id: str
    label: str
    hash_key_range: HashKeyRange
    start: float
    width: float
    generation: int
    is_open: bool
    origin: Origin
    parents: tuple[str, ...] = ()
    missing_parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    created_at: datetime | None = None
    closed_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """All listed shards of a stream.

    Attributes:
        shards: The shards in the order of their creation (of their ids).
        generations: Number of generations; 0 without shards.
        hole: First part of the hash key space that no open shard covers; None if there is none. There is a hole only during a reshard, or
            in an inconsistent listing.
    """

    shards: tuple[LineageShard, ...]
    generations: int
    hole: HashKeyRange | None = None

    @property
    def open_shards(self) -> tuple[LineageShard, ...]:
        """Shards that accept records, in the order of their hash key ranges."""
        return tuple(sorted((one for one in self.shards if one.is_open), key=lambda one: one.hash_key_range))

    @property
    def forks(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each shard that was split, with its listed children."""
        by_id = {one.shard_id: one for one in self.shards}
        return tuple(
            (one.shard_id, children)
            for one in self.shards
            if (children := tuple(child for child in one.children if by_id[child].origin is not Origin.MERGE))
        )

    @property
    def joins(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """Each shard that a merge created, after its two parents."""
        return tuple((one.parents, one.shard_id) for one in self.shards if one.origin is Origin.MERGE)

    def open_at(self, moment: datetime) -> tuple[LineageShard, ...]:
        """Return the shards that were open at a time, in the order of their ranges, as far as their times are known."""
        return tuple(
            sorted(
                (
                    one
                    for one in self.shards
                    if (one.created_at is None or one.created_at <= moment)
                    and (one.closed_at is None or one.closed_at > moment)
                    and (one.is_open or one.closed_at is not None)
                ),
                key=lambda one: one.hash_key_range,
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the lineage as data for JSON."""
        data: dict[str, Any] = plain(self)
        return {**data, "forks": plain(self.forks), "joins": plain(self.joins)}


def make_lineage(shards: Iterable[Shard]) -> Lineage:
    """Return the picture data of a listing of shards, open and closed."""
    graph = ShardGraph(shards)
    generations: dict[str, int] = {}
    made: list[LineageShard] = []
    # Ids are in the order of creation, so parents come first.
    for shard_id in sorted(graph.shards):
        shard = graph.shards[shard_id]
        listed = graph.parents(shard_id)
        generations[shard_id] = 1 + max((generations.get(parent, 0) for parent in listed), default=-1)
        children = graph.children(shard_id)
        born = [
            moment
            for child in children
            if (moment := creation_time(graph.shards[child].starting_sequence_number)) is not None
        ]
        made.append(
            LineageShard(
                shard_id=shard_id,
                label=shard_label(shard_id),
                hash_key_range=shard.hash_key_range,
                start=shard.hash_key_range.start / _SPACE,
                width=(shard.hash_key_range.end - shard.hash_key_range.start + 1) / _SPACE,
                generation=generations[shard_id],
                is_open=shard.is_open,
                origin=(Origin.CREATED, Origin.SPLIT, Origin.MERGE)[min(2, len(shard.parents))],
                parents=shard.parents,
                missing_parents=tuple(parent for parent in shard.parents if parent not in listed),
                children=children,
                created_at=creation_time(shard.starting_sequence_number),
                closed_at=min(born, default=None) if not shard.is_open else None,
            )
        )
    return Lineage(
        shards=tuple(made),
        generations=1 + max(generations.values(), default=-1),
        hole=find_hole(shard.hash_key_range for shard in graph.open_shards) if made else None,
    )


def creation_time(starting_sequence_number: str) -> datetime | None:
    """Return the UTC time, in whole seconds, when a shard was created; None if its first sequence number has another layout.

    The layout of sequence numbers is not part of the API, so use the time only for display and never for decisions.
    """
    if not starting_sequence_number.isascii() or not starting_sequence_number.isdigit():
        return None
    number = int(starting_sequence_number)
    if number >> _VERSION_SHIFT != _VERSION:
        return None
    second = number >> _CREATED_SHIFT & _CREATED_MASK
    if not _FIRST_SECOND <= second < 1 << 33:
        return None
    return datetime.fromtimestamp(second, timezone.utc)


def shard_label(shard_id: str) -> str:
    """Return the short form of a shard id: ``3`` for ``shardId-000000000003``. Other ids are returned unchanged."""
    return str(int(shard_id.removeprefix("shardId-"))) if is_shard_id(shard_id) else shard_id


def full_shard_id(text: str) -> str:
    """Return the shard id that a user specifies by the id itself or by its number, such as ``3``, ``0003`` or ``shard-3``."""
    if is_shard_id(text):
        return text
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ConfigError("shard", text, "a shard id, or its number such as 3 or 0003")
    return f"shardId-{int(match[1]):012d}"


def find_shard(text: str, shards: Iterable[Shard]) -> Shard:
    """Return the listed shard that a user specifies by its id or its number. If there is none, the error names up to ten open shards."""
    listed = {shard.shard_id: shard for shard in shards}
    found = listed.get(text) or listed.get(full_shard_id(text))
    if found is None:
        labels = [shard_label(one.shard_id) for one in listed.values() if one.is_open]
        more = f" and {len(labels) - 10} more" if len(labels) > 10 else ""
        raise ConfigError("shard", text, f"a shard of the stream (open: {', '.join(labels[:10])}{more})")
    return found
