"""Audit of the lease table: hash range coverage, and rows that need repair. Pure functions of a scan.

The coverage check follows the KCL's ``PeriodicShardSyncManager``. A shard whose row needs repair is not consumed until the repair;
see `find_row_problems` and `find_cycles`.
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
    """Return the first hash key range without an unfinished lease; None if the leases cover all hash keys.

    Ranges may overlap: a parent that is still being read overlaps the child of a merge with its sibling.
    """
    return find_hole(
        lease.hash_key_range for lease in leases if not lease.is_finished and lease.hash_key_range is not None
    )


def lacks_ranges(leases: Iterable[Lease]) -> bool:
    """Return whether an unfinished lease has no hash key range (old KCLs wrote none), so that holes cannot be found."""
    return any(lease.hash_key_range is None and not lease.is_finished for lease in leases)


def plan_ranges(shards: Iterable[Shard], leases: Iterable[Lease]) -> list[tuple[str, HashKeyRange]]:
    """Return the missing hash key ranges as (lease key, range)."""
    ranges = {shard.shard_id: shard.hash_key_range for shard in shards}
    return [
        (lease.lease_key, ranges[lease.lease_key])
        for lease in leases
        if lease.hash_key_range is None and lease.lease_key in ranges
    ]


_MAX_SHOWN = 6
"""Maximum number of shards of a cycle that a message names."""


class HashRangeHoleTracker:
    """Distinguishes a lasting hash range hole from a hole that exists only during a reshard.

    Args:
        frequency: Seconds between two checks; calls before the next check do nothing.
        threshold: Number of consecutive checks that must find the same hole. A different hole restarts the count.
    """

    def __init__(self, frequency: float, threshold: int) -> None:
        self._frequency = frequency
        self._threshold = threshold
        self._next: float | None = None
        self._hole: HashKeyRange | None = None
        self._seen = 0

    @property
    def hole(self) -> HashKeyRange | None:
        """Hole found by the last check; None if it found none."""
        return self._hole

    def check(self, leases: Sequence[Lease], now: float) -> bool:
        """Check the leases of one stream; return whether they must be synced with its shards now."""
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
    """Return evidence that the leases belong to a deleted stream of the same name; None if there is none.

    If another row proves that the leases belong to this stream, only the contradicting rows are wrong: see `find_misfits`.

    Args:
        shards: All shards, listed after the leases were read.
        leases: This stream's leases, with shard ids as keys.
    """
    contradictions, proven = _compare(shards, leases)
    return None if proven else next(iter(contradictions.values()), None)


def find_misfits(shards: Iterable[Shard], leases: Iterable[Lease]) -> dict[str, str]:
    """Return the contradictions of single rows by lease key, if other rows prove that the leases belong to this stream.

    A person or another program wrote such rows, or a backup was restored in part.

    Args:
        shards: All shards, listed after the leases were read.
        leases: This stream's leases, with shard ids as keys.
    """
    contradictions, proven = _compare(shards, leases)
    return contradictions if proven else {}


def _compare(shards: Iterable[Shard], leases: Iterable[Lease]) -> tuple[dict[str, str], bool]:
    """Return the contradictions by lease key, and whether a row proves that the leases belong to this stream.

    While a stream exists, sequence numbers and shard ids only increase, and the starting sequence number and hash key range
    of a shard never change. So these rows come from a deleted stream: a checkpoint before the start of its shard, a finished
    lease of an open shard, another hash key range, a shard id above all listed shard ids. A checkpoint at or after the
    start of its shard belongs to this stream, because the deleted stream ended before this stream began.
    """
    by_id = {shard.shard_id: shard for shard in shards}
    newest = max(by_id, default=None)
    found: dict[str, str] = {}
    proven = False
    for lease in leases:
        shard = by_id.get(lease.lease_key)
        position = lease.checkpoint
        if shard is None:
            if newest is not None and is_shard_id(lease.lease_key) and lease.lease_key > newest:
                found[lease.lease_key] = (
                    f"there is a lease of {lease.lease_key}, but the stream's newest shard is {newest}"
                )
        elif lease.hash_key_range is not None and lease.hash_key_range != shard.hash_key_range:
            found[lease.lease_key] = (
                f"the lease of {lease.lease_key} covers hash keys {lease.hash_key_range.start} to "
                f"{lease.hash_key_range.end}, the shard {shard.hash_key_range.start} to {shard.hash_key_range.end}"
            )
        elif lease.is_finished and shard.is_open:
            found[lease.lease_key] = f"the lease of {lease.lease_key} is finished, but the shard is open"
        elif not position.is_sentinel and int(position.sequence_number) < int(shard.starting_sequence_number):
            found[lease.lease_key] = (
                f"the checkpoint of {lease.lease_key} is {position.sequence_number}, "
                f"but the shard starts at {shard.starting_sequence_number}"
            )
        elif not position.is_sentinel:
            proven = True
    return found, proven


def find_row_problems(scan: TableScan, streams: StreamDirectory) -> dict[str, str]:
    """Return the problems, by lease key, of rows of this worker's streams that cannot be used as leases.

    Their shards are not consumed, because no second lease can be created under the same key.
    """
    problems = {key: f"its row cannot be read: {reason}" for key, reason in scan.unreadable.items()}
    for key, item in scan.others.items():
        if streams.named_by(key) is not None:
            problems[key] = f"its row is not a lease, its entityType is {entity_type_of(item)}"
    for lease in scan.leases:
        # Rows of other streams do not matter, unless they have the key of a shard that this worker consumes.
        if lease.stream_name is not None or not streams.is_single:
            tracked = streams.named_by(lease.lease_key)
            if tracked is not None and not tracked.owns(lease):
                named = "no streamName" if lease.stream_name is None else f"streamName {lease.stream_name}"
                problems[lease.lease_key] = f"its row has {printable(named)}, which is not this stream's"
    return problems


def find_cycles(leases: Iterable[Lease]) -> dict[str, str]:
    """Return problems by lease key: unfinished leases that are their own ancestors, or wait for such a lease.

    A stream cannot produce a cycle, so a row was damaged. None of these shards is read: each waits for the end of another
    shard, and the correct order is unknown.
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
    waits = {
        key: left for key, parents in waits.items() if (left := [one for one in parents if one in unfinished])
    }
    if not waits:
        return {}
    # Topological sort: first leases without unfinished parents, then leases whose parents are all sorted. All remaining
    # leases are in a cycle or wait for one.
    free = unfinished.difference(waits)
    children: dict[str, list[str]] = {}
    for key, parents in waits.items():
        for parent in parents:
            children.setdefault(parent, []).append(key)
    missing = {key: len(parents) for key, parents in waits.items()}
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
            key = next(parent for parent in waits[key] if parent in missing)  # noqa: PLW2901 - the walk continues from it
        if key in position:
            cycle = [*[*position][position[key] :], key]
            more = " ..." if len(cycle) > _MAX_SHOWN else ""
            problem = f"the parents of its shard form a cycle ({' waits for '.join(cycle[:_MAX_SHOWN])}{more}); repair parentShardId of one of these rows"
        else:
            problem = problems[key]
        problems.update(dict.fromkeys(position, problem))
    return problems
