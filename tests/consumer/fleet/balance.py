"""Balance of leases over workers and over groups of workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kinesis_sdk.consumer.leases import Lease
from kinesis_sdk.consumer.leases.strategies import group_of
from kinesis_sdk.consumer.leases.strategies.by_throughput import MARGIN
from kinesis_sdk.consumer.leases.strategies.groups import GROUP_SEPARATOR


class GroupLoad(NamedTuple):
    """Leases of a group, and the share that its number of workers entitles it to."""

    leases: int
    share: float


def spread(load: Mapping[str, int]) -> int:
    """Return the largest load of a worker less the smallest."""
    return max(load.values()) - min(load.values())


def group_loads(load: Mapping[str, int], separator: str = GROUP_SEPARATOR) -> dict[str, GroupLoad]:
    """Return each group's leases and share.

    Args:
        load: Leases by worker; live workers without leases count as well.
        separator: Ends the group's label in a worker id.
    """
    members: dict[str, list[int]] = {}
    for name, count in load.items():
        members.setdefault(group_of(name, separator), []).append(count)
    total = sum(load.values())
    return {
        group: GroupLoad(sum(counts), total * len(counts) / len(load)) for group, counts in members.items()
    }


def unfair(load: Mapping[str, int], separator: str = GROUP_SEPARATOR) -> str | None:
    """Return None if every worker's and group's load is its share, rounded up or down; else what is not."""
    if spread(load) > 1:
        return f"spread over workers: {dict(load)}"
    for group, (leases, share) in group_loads(load, separator).items():
        if not share - 1 < leases < share + 1:
            return f"group {group or '-'} has {leases} instead of {share:.2f}"
    return None


def uneven(leases: Iterable[Lease], workers: Sequence[str], weights: Mapping[str, int]) -> str | None:
    """Return None if the weights of each group's workers differ by less than a move would improve; else what differs.

    Args:
        leases: Unfinished leases.
        workers: Live workers.
        weights: Weight of each lease, by its key.
    """
    held: dict[str, list[int]] = {name: [] for name in workers}
    for lease in leases:
        held[lease.owner or ""].append(weights[lease.lease_key])
    margin = MARGIN * sum(map(sum, held.values())) / len(held)
    groups: dict[str, list[list[int]]] = {}
    for name, mine in held.items():
        groups.setdefault(group_of(name), []).append(mine)
    for group, members in groups.items():
        fullest, emptiest = max(members, key=sum), min(members, key=sum)
        if fullest and sum(fullest) - sum(emptiest) > min(fullest) + margin:
            return f"spread in group {group or '-'}: {fullest} and {emptiest}"
    return None
