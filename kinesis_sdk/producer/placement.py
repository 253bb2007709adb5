"""The placement on a Kinesis record that the service accepted: is it stored for every consumer?

A KCL discards an aggregate whole if any of its user records lies outside the range of the shard that it was
read from (AggregatorUtil.deaggregate of amazon-kinesis-client). So an aggregate is stored only if *all* its
hash keys lie in the actual shard's range; otherwise all of it goes again. A record that travelled alone is
stored wherever it landed: every consumer accepts it.
"""

from __future__ import annotations

from enum import Enum

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.shards import ShardMap
from kinesis_sdk.producer.aggregator import Entry


class Placement(Enum):
    """What to do with a Kinesis record that the service accepted."""

    STORED = "stored"
    WRONG_SHARD = "wrong shard"
    UNKNOWN_SHARD = "unknown shard"


def check_placement(
    entry: Entry, actual_shard_id: str, shard_map: ShardMap | None, *, service_places: bool = False
) -> Placement:
    """Decide on a Kinesis record by where it landed.

    Args:
        entry: What was sent.
        actual_shard_id: The ``ShardId`` that the service returned.
        shard_map: The newest map, if there is one.
        service_places: Whether the service places records without regard to their hash keys.

    Returns:
        ``UNKNOWN_SHARD`` means: load a new map, then ask again.
    """
    if len(entry.records) == 1:
        return Placement.STORED
    if entry.shard_id is None and not service_places:
        return Placement.STORED  # all of one hash key, and that placed it: right wherever it landed
    actual = shard_map.range_of(actual_shard_id) if shard_map else None
    if actual is None:
        return Placement.UNKNOWN_SHARD
    return Placement.STORED if fits_within(entry, actual) else Placement.WRONG_SHARD


def fits_within(entry: Entry, hash_key_range: HashKeyRange) -> bool:
    """Return whether all hash keys of a Kinesis record lie within a range."""
    aggregate = entry.aggregate
    return hash_key_range.start_bytes <= aggregate.lowest and aggregate.highest <= hash_key_range.end_bytes
