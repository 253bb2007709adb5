"""Shards over time in the model: four hash keys, and reshards in a fixed order.

A plan is a sequence of phases. Each phase maps the shards that are open in it to their hash keys. The service closes a parent
before its children take records, so a record that is stored in a phase goes into the shard of that phase that owns its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

HASH_KEYS = (0, 3, 1)
"""Hash key of each record: a split puts the first two records into different shards, and the third beside the first."""

Phase = Mapping[str, range]


@dataclass(frozen=True, eq=False)
class Plan:
    """A stream's shards in the order in which they are opened.

    Attributes:
        name: For reports.
        phases: Open shards of each phase.
        places_records: Whether the service stores a record in any open shard, regardless of its key.
        shards: All shards, parents before children.
        ranges: Hash keys of each shard.
        opened_in: Phase in which each shard was opened.
        ancestors: Parents of a shard, their parents and so on.
    """

    name: str
    phases: Sequence[Phase]
    places_records: bool = False
    shards: tuple[str, ...] = field(init=False)
    ranges: Mapping[str, range] = field(init=False)
    opened_in: Mapping[str, int] = field(init=False)
    ancestors: Mapping[str, frozenset[str]] = field(init=False)

    def __post_init__(self) -> None:
        ranges: dict[str, range] = {}
        opened_in: dict[str, int] = {}
        ancestors: dict[str, frozenset[str]] = {}
        former: Phase = {}
        for number, phase in enumerate(self.phases):
            for shard, keys in phase.items():
                parents = [name for name, its in former.items() if set(its) & set(keys)]
                ranges[shard], opened_in[shard] = keys, number
                ancestors[shard] = frozenset(parents).union(*(ancestors[parent] for parent in parents))
            former = phase
        object.__setattr__(self, "shards", tuple(ranges))
        object.__setattr__(self, "ranges", ranges)
        object.__setattr__(self, "opened_in", opened_in)
        object.__setattr__(self, "ancestors", ancestors)

    def owner(self, phase: int, record: int) -> str:
        """Return the shard of a phase that owns a record's hash key."""
        key = HASH_KEYS[record]
        return next(shard for shard, keys in self.phases[phase].items() if key in keys)

    def is_valid(self, shard: str, records: Sequence[int]) -> bool:
        """Return whether all records belong into a shard; a Kinesis record for which this is false is misplaced."""
        return all(HASH_KEYS[record] in self.ranges[shard] for record in records)


QUIET = Plan("quiet", [{"P": range(4)}])
SPLIT = Plan("split", [{"P": range(4)}, {"A": range(2), "B": range(2, 4)}])
MERGE = Plan("merge", [{"A": range(2), "B": range(2, 4)}, {"M": range(4)}])
SPLIT_AND_MERGE = Plan("split and merge", [*SPLIT.phases, {"M": range(4)}])
PLACED_BY_SERVICE = Plan("placed by the service", MERGE.phases[:1], places_records=True)
