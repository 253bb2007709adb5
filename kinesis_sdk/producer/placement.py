"""Placement check for accepted Kinesis records.

A KCL discards an aggregate if any of its user records lies outside the range of the shard it was read from
(`AggregatorUtil.deaggregate`). An aggregate therefore counts as stored only if all its hash keys lie in the range of the shard that
accepted it; otherwise all of it is sent again. A record that was not aggregated is stored wherever it landed.

An aggregate with a table of runs has the first of these rules in any case, also with one user record in it: readers drop it wherever
its hash keys do not belong.
"""

from __future__ import annotations

from enum import Enum

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.shards import ShardMap
from kinesis_sdk.producer.aggregator import Entry


class Placement(Enum):
    """Result of the placement check of a Kinesis record that Kinesis accepted."""

    STORED = "stored"
    WRONG_SHARD = "wrong shard"
    UNKNOWN_SHARD = "unknown shard"


def check_placement(
    entry: Entry, actual_shard_id: str, shard_map: ShardMap | None, *, service_places: bool = False
) -> Placement:
    """Return whether a Kinesis record landed where all its user records belong.

    Args:
        entry: The Kinesis record.
        actual_shard_id: The ``ShardId`` in the response.
        shard_map: The newest map, if there is one.
        service_places: Whether the stream places records without regard to their hash keys.

    Returns:
        ``UNKNOWN_SHARD`` if a new map has to be loaded before the check can be repeated.
    """
    if not entry.aggregate.tagged:
        if len(entry.records) == 1:
            return Placement.STORED
        if entry.shard_id is None and not service_places:
            # All records have the hash key that placed it: it is right wherever it landed.
            return Placement.STORED
    actual = shard_map.range_of(actual_shard_id) if shard_map else None
    if actual is None:
        return Placement.UNKNOWN_SHARD
    return Placement.STORED if fits_within(entry, actual) else Placement.WRONG_SHARD


def fits_within(entry: Entry, hash_key_range: HashKeyRange) -> bool:
    """Return whether all hash keys of a Kinesis record lie within a range."""
    aggregate = entry.aggregate
    return hash_key_range.start_bytes <= aggregate.lowest and aggregate.highest <= hash_key_range.end_bytes
