"""What a producer knows about a stream: its shard map, its record size limit, who places records.

States: NEEDED (no map, or a newer mismatch than the map) → LOADING → READY, and NEEDED again after a failure,
with exponential backoff. The map in use stays in use while a new one loads.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from kinesis_sdk.common.shards import Shard, ShardMap

_FIRST_BACKOFF = 0.2
_MAX_BACKOFF = 30.0
_MIN_INTERVAL = 0.5
"""Seconds between two loads: ListShards allows 1,000 calls per second and stream, but a resharding stream may
show its new shards only after a moment, and asking faster does not help."""


class StreamFacts(NamedTuple):
    """What one load found out.

    Attributes:
        shards: The open shards; None where ListShards is not allowed to us (records are then never mixed).
        max_record_size: Most bytes of a Kinesis record; None where the service did not say.
        service_places: Whether the service places records itself (record distribution AUTO).
    """

    shards: Sequence[Shard] | None
    max_record_size: int | None
    service_places: bool


class Topology:
    """The state above. Pure: the shell loads, this says when and keeps the result.

    Args:
        rng: Jitter of the backoff.
    """

    __slots__ = (
        "_failures",
        "_loading_since",
        "_next_load",
        "_rng",
        "_stale_since",
        "described",
        "max_record_size",
        "service_places",
        "shard_map",
    )

    def __init__(self, rng: random.Random) -> None:
        self.shard_map: ShardMap | None = None
        self.max_record_size: int | None = None
        self.service_places = False
        self.described = False
        self._rng = rng
        self._next_load: float | None = float("-inf")
        self._loading_since: float | None = None
        self._stale_since = float("-inf")
        self._failures = 0

    def wants_load(self, now: float) -> bool:
        """Whether a load should start now."""
        return self._loading_since is None and self._next_load is not None and self._next_load <= now

    @property
    def next_load(self) -> float | None:
        """When a load should start (monotonic seconds); None while loading or if none is needed."""
        return None if self._loading_since is not None else self._next_load

    @property
    def failures(self) -> int:
        """Loads that failed since the last good one."""
        return self._failures

    def begin_load(self, now: float) -> None:
        """A load starts."""
        self._loading_since = now
        self._next_load = None

    def finish_load(self, facts: StreamFacts, now: float) -> None:
        """A load succeeded.

        Raises:
            ProtocolError: The shards do not tile the hash key space; call `fail_load`.
        """
        started = self._loading_since if self._loading_since is not None else now
        if facts.shards is not None:
            self.shard_map = ShardMap(facts.shards, started, self.shard_map)
        if facts.max_record_size is not None:
            self.max_record_size = facts.max_record_size
        if not self.described:
            self.service_places = facts.service_places
            self.described = True
        self._loading_since = None
        self._failures = 0
        # Somebody saw a mismatch after this load had started: what it brought may be old already.
        self._next_load = started + _MIN_INTERVAL if self._stale_since > started else None

    def fail_load(self, now: float) -> None:
        """A load failed; the next one waits, longer each time."""
        self._loading_since = None
        backoff = min(_MAX_BACKOFF, _FIRST_BACKOFF * 2**self._failures)
        self._failures += 1
        self._next_load = now + backoff * self._rng.uniform(0.5, 1.0)

    def invalidate(self, seen_at: float) -> None:
        """A record landed elsewhere than predicted, in a request that started at ``seen_at``.

        Counts only if the request started after the map in use was loaded.
        """
        loaded_at = self.shard_map.loaded_at if self.shard_map else float("-inf")
        if seen_at <= loaded_at:
            return
        self._stale_since = max(self._stale_since, seen_at)
        if self._loading_since is None and self._next_load is None:
            self._next_load = loaded_at + _MIN_INTERVAL
