"""Do the leases cover the stream? Pure looks at rows that were read anyway (KCL ``PeriodicShardSyncManager``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.shards import Shard, find_gap
from kinesis_sdk.consumer.leases.lease import Lease


def find_hole(leases: Iterable[Lease]) -> HashKeyRange | None:
    """The first part of the hash key space for which no unfinished lease stands; None if there is none.

    Ranges may overlap: a parent that is still read, and children of its sibling's merge.
    """
    return find_gap(
        lease.hash_key_range for lease in leases if not lease.is_finished and lease.hash_key_range is not None
    )


def lacks_ranges(leases: Iterable[Lease]) -> bool:
    """Whether some unfinished lease has no hash key range, as old KCLs wrote them: holes can not be told then."""
    return any(lease.hash_key_range is None and not lease.is_finished for lease in leases)


def plan_ranges(shards: Iterable[Shard], leases: Iterable[Lease]) -> list[tuple[str, HashKeyRange]]:
    """Ranges to add to rows that lack them: (lease key, range)."""
    ranges = {shard.shard_id: shard.hash_key_range for shard in shards}
    return [
        (lease.lease_key, ranges[lease.lease_key])
        for lease in leases
        if lease.hash_key_range is None and lease.lease_key in ranges
    ]


class HoleWatch:
    """Tells a hole that stays from one that a reshard opens for a moment.

    Args:
        frequency: Seconds between two looks; calls in between change nothing.
        threshold: How many looks in a row have to see the same hole. Another hole begins anew.
    """

    def __init__(self, frequency: float, threshold: int) -> None:
        self._frequency = frequency
        self._threshold = threshold
        self._next: float | None = None
        self._hole: HashKeyRange | None = None
        self._seen = 0

    @property
    def hole(self) -> HashKeyRange | None:
        """What the last look saw."""
        return self._hole

    def look(self, leases: Sequence[Lease], now: float) -> bool:
        """Take in one stream's leases.

        Returns:
            Whether leases have to be compared with the stream now.
        """
        if self._next is not None and now < self._next:
            return False
        self._next = now + self._frequency
        if lacks_ranges(leases):
            self._hole, self._seen = None, 0
            return True
        hole = find_hole(leases)
        self._seen = 0 if hole is None else self._seen + 1 if hole == self._hole else 1
        self._hole = hole
        if self._seen < self._threshold:
            return False
        self._seen = 0
        return True


def find_contradiction(shards: Iterable[Shard], leases: Iterable[Lease]) -> str | None:
    """What proves that the leases were made for another stream: one of this name that was deleted since.

    Sequence numbers and shard ids only grow while a stream lives, and neither the first sequence number nor the
    range of a shard ever changes. A position from before its own shard, a finished shard that is open, another
    range, or leases of shards with ids above every listed one can only come from a former stream.

    Args:
        shards: All shards, listed after the leases were read.
        leases: This stream's leases, with shard ids for keys.

    Returns:
        The evidence; None if there is none.
    """
    by_id = {shard.shard_id: shard for shard in shards}
    newest = max(by_id, default=None)
    for lease in leases:
        shard = by_id.get(lease.lease_key)
        if shard is None:
            if newest is not None and _is_shard_id(lease.lease_key) and lease.lease_key > newest:
                return f"there is a lease of {lease.lease_key}, but the stream's newest shard is {newest}"
            continue
        if lease.hash_key_range is not None and lease.hash_key_range != shard.hash_key_range:
            return (
                f"the lease of {lease.lease_key} covers hash keys {lease.hash_key_range.start} to "
                f"{lease.hash_key_range.end}, the shard {shard.hash_key_range.start} to {shard.hash_key_range.end}"
            )
        if lease.is_finished and shard.is_open:
            return f"the lease of {lease.lease_key} is finished, but the shard is open"
        position = lease.checkpoint
        if not position.is_sentinel and int(position.sequence_number) < int(shard.starting_sequence_number):
            return (
                f"the checkpoint of {lease.lease_key} is {position.sequence_number}, "
                f"but the shard begins at {shard.starting_sequence_number}"
            )
    return None


def _is_shard_id(text: str) -> bool:
    """Ids of one stream have one width; only such ids are compared as text."""
    return text.startswith("shardId-") and len(text) == len("shardId-000000000000")
