"""Do the leases cover the stream, and can all of them be worked on? Pure functions of rows that were read anyway.

The first question is the KCL's ``PeriodicShardSyncManager``. A row that answers the second with no belongs to a shard that
is not consumed until the row is repaired; see `find_row_problems` and `find_cycles`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.shards import Shard, find_hole, is_shard_id
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.leases.table.lease import Lease, entity_type_of
from kinesis_sdk.consumer.leases.table.store import TableScan
from kinesis_sdk.consumer.streams import StreamDirectory


def find_lease_hole(leases: Iterable[Lease]) -> HashKeyRange | None:
    """The first part of the hash key space for which no unfinished lease stands; None if there is none.

    Ranges may overlap: a parent that is still read, and children of its sibling's merge.
    """
    return find_hole(
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


_MOST_SHOWN = 6
"""Maximum shards of a cycle that a message names."""


class HashRangeHoleTracker:
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
        hole = find_lease_hole(leases)
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
            if newest is not None and is_shard_id(lease.lease_key) and lease.lease_key > newest:
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


def find_row_problems(scan: TableScan, streams: StreamDirectory) -> dict[str, str]:
    """Find the rows that stand where a lease of ours should and are not read as one.

    Their shards are not consumed: whatever such a row says, another lease cannot be made beside it.

    Args:
        scan: The whole table.
        streams: The streams that are consumed.

    Returns:
        What is wrong, by lease key.
    """
    problems = {key: f"its row cannot be read: {reason}" for key, reason in scan.unreadable.items()}
    for key, item in scan.others.items():
        if streams.named_by(key) is not None:
            problems[key] = f"its row is not a lease, its entityType is {entity_type_of(item)}"
    for lease in scan.leases:
        # Other rows of other streams are theirs; only what carries the key of a shard of ours is in its way.
        if lease.stream_name is not None or not streams.is_single:
            tracked = streams.named_by(lease.lease_key)
            if tracked is not None and not tracked.owns(lease):
                named = "no streamName" if lease.stream_name is None else f"streamName {lease.stream_name}"
                problems[lease.lease_key] = f"its row has {printable(named)}, which is not this stream's"
    return problems


def find_cycles(leases: Iterable[Lease]) -> dict[str, str]:
    """Find unfinished leases whose parents lead back to themselves, and those that wait for such a lease.

    The stream cannot have made them, so a row was damaged. In which order these shards are to be read is unknown,
    and none of them is read: each waits for the end of another one.

    Returns:
        What is wrong, by lease key.
    """
    waits: dict[str, list[str]] = {}
    unfinished: set[str] = set()
    for lease in leases:
        if lease.is_finished:
            continue
        unfinished.add(lease.lease_key)
        if lease.parent_shard_ids:
            prefix = "" if lease.stream_name is None else f"{lease.stream_name}:"
            waits[lease.lease_key] = [f"{prefix}{parent}" for parent in lease.parent_shard_ids]
    for key, parents in waits.items():
        waits[key] = [parent for parent in parents if parent in unfinished]
    # What waits for no other shard can be read; then what waits for those only, and so on. The rest waits for ever.
    free = unfinished - {key for key, parents in waits.items() if parents}
    children: dict[str, list[str]] = {}
    for key, parents in waits.items():
        for parent in parents:
            children.setdefault(parent, []).append(key)
    missing = {key: len(parents) for key, parents in waits.items() if parents}
    todo = [*free]
    while todo:
        for child in children.get(todo.pop(), ()):
            missing[child] -= 1
            if not missing[child]:
                del missing[child]
                todo.append(child)
    problems: dict[str, str] = {}
    for key in missing:
        position: dict[str, int] = {}
        while key not in problems and key not in position:
            position[key] = len(position)
            key = next(parent for parent in waits[key] if parent in missing)  # noqa: PLW2901 - the walk goes on from it
        if key in position:
            cycle = [*[*position][position[key] :], key]
            more = " ..." if len(cycle) > _MOST_SHOWN else ""
            problem = f"the parents of its shard form a cycle ({' waits for '.join(cycle[:_MOST_SHOWN])}{more}); repair parentShardId of one of these rows"
        else:
            problem = problems[key]
        problems.update(dict.fromkeys(position, problem))
    return problems
