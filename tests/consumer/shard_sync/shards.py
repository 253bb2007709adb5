"""Shards by number."""

from __future__ import annotations

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.shards import Shard


def shard(number, parents=(), *, closed=False, start=0, low=0, high=10):
    names = [f"s{parent}" for parent in parents]
    return Shard(
        f"s{number}",
        HashKeyRange(low, high),
        names[0] if names else None,
        names[1] if len(names) > 1 else None,
        str(start),
        "999" if closed else None,
    )
