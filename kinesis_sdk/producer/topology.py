"""What a producer knows about a stream: its shard map, its record size limit, who places records.

States: NEEDED (no map, or a newer mismatch than the map) → LOADING → READY, and NEEDED again after a failure,
with exponential backoff. The map in use stays in use while a new one loads.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from kinesis_sdk.common.backoff import backoff
from kinesis_sdk.common.shards import Shard, ShardMap
from kinesis_sdk.producer.config import ProducerConfig

_FIRST_BACKOFF = 0.2
_MAX_BACKOFF = 30.0
MISSING_BACKOFF = 2.0
"""Longest pause, in seconds, between two loads while records wait for a stream that does not exist."""

_MIN_INTERVAL = 0.5
"""Seconds between two loads: ListShards allows 1,000 calls per second and stream, but a resharding stream may
show its new shards only after a moment, and asking faster does not help."""


_RECHECK_INTERVAL = 300.0
"""Seconds after which a stream that places records itself, and has records, is asked again whether it still does:
nothing in its answers to PutRecords would tell."""


_DOUBT_INTERVAL = 60.0
"""Seconds between two questions whether a stream takes larger records by now."""


DEFAULT_RECORD_LIMIT = 1024 * 1024
"""Maximum bytes of a Kinesis record that every stream takes, as long as the stream's own limit is not known."""


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
        "_backoffs",
        "_describing",
        "_failures",
        "_hastened",
        "_last_load",
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
        self._describing = True
        self._rng = rng
        self._next_load: float | None = float("-inf")
        self._loading_since: float | None = None
        self._last_load = float("-inf")
        self._stale_since = float("-inf")
        self._failures = 0
        # Exponent of the pause after the next failure, and whether `on_stream_seen` has reset it.
        self._backoffs = 0
        self._hastened = False

    def predict(self, hash_key: bytes) -> str | None:
        """The shard that a record of that hash key goes to; None if nobody can know."""
        return None if self.shard_map is None or self.service_places else self.shard_map.predict(hash_key)

    def aggregation_count(self, config: ProducerConfig) -> int:
        """Return the maximum user records of an aggregate; 1 means that records are not aggregated."""
        if not config.aggregation_enabled or self.service_places:
            return 1
        if self.shard_map is None and self._failures and not self.described:
            # It takes a while until it is known who places records. What was sent until now can wait for that,
            # more cannot.
            return 1
        return config.aggregation_max_count

    def aggregation_size(self, config: ProducerConfig) -> int:
        """Return the maximum bytes of an aggregate: as a record, it has the stream's limit, less its one-byte partition key."""
        return min(config.aggregation_max_size, (self.max_record_size or DEFAULT_RECORD_LIMIT) - 1)

    def wants_load(self, now: float) -> bool:
        """Whether a load should start now."""
        return self._loading_since is None and self._next_load is not None and self._next_load <= now

    @property
    def next_load(self) -> float | None:
        """When a load should start (monotonic seconds); None while loading or if none is needed."""
        return None if self._loading_since is not None else self._next_load

    @property
    def describing(self) -> bool:
        """Whether the load under way also asks for record size limit and record distribution."""
        return self._describing

    @property
    def failures(self) -> int:
        """Loads that failed since the last good one."""
        return self._failures

    def begin_load(self, now: float) -> None:
        """A load starts."""
        self._loading_since = self._last_load = now
        self._describing = not self.described or self.service_places
        self._next_load = None

    def finish_load(self, facts: StreamFacts, now: float) -> None:
        """A load succeeded.

        Raises:
            ProtocolError: The shards do not tile the hash key space; call `fail_load`.
        """
        started = self._loading_since if self._loading_since is not None else now
        # Without the permission to list shards an old map is worse than none: nobody would ever correct it.
        self.shard_map = ShardMap(facts.shards, started, self.shard_map) if facts.shards is not None else None
        if facts.max_record_size is not None:
            self.max_record_size = facts.max_record_size
        if self._describing:
            self.service_places = facts.service_places
            self.described = self._stale_since <= started
        self._loading_since = None
        self._failures = self._backoffs = 0
        self._hastened = False
        if self._stale_since > started:
            # Somebody saw a mismatch after this load had started: what it brought may be old already.
            self._next_load = started + _MIN_INTERVAL
        else:
            self._next_load = started + _RECHECK_INTERVAL if self.service_places else None

    def fail_load(self, now: float, *, awaited: bool = False) -> None:
        """A load failed; the next one waits, longer each time.

        Args:
            now: Monotonic seconds.
            awaited: Whether records wait for a stream that does not exist; the pauses are shorter then.
        """
        self._loading_since = None
        self._failures += 1
        self._backoffs += 1
        maximum = MISSING_BACKOFF if awaited else _MAX_BACKOFF
        self._next_load = now + backoff(self._backoffs, _FIRST_BACKOFF, maximum, self._rng)

    def invalidate(self, seen_at: float, actual_shard_id: str) -> None:
        """A record landed elsewhere than predicted.

        Args:
            seen_at: When the request started; counts only if that was after the map in use was loaded.
            actual_shard_id: Where it landed. A shard that is open in the map means that records are not
                placed by this map at all: another stream of the same name, or a service that places by itself.
        """
        loaded_at = self.shard_map.loaded_at if self.shard_map else float("-inf")
        if seen_at <= loaded_at:
            return
        if self.shard_map is not None and self.shard_map.is_open(actual_shard_id):
            self.described = False
        self._stale_since = max(self._stale_since, seen_at)
        self.require_load()

    def require_load(self) -> None:
        """See to it that a load is under way or comes, not sooner than the least interval."""
        if self._loading_since is None and (self._next_load is None or not self._failures):
            soonest = self._last_load + _MIN_INTERVAL
            self._next_load = soonest if self._next_load is None else min(self._next_load, soonest)

    def on_stream_seen(self, started: float) -> None:
        """Load soon, because the stream took a PutRecords request after a load had failed.

        A stream that comes back is found by the next load, and the backoff of many failed ones may be half a minute:
        for so long, every record would be sent as a Kinesis record of its own. The backoff is cut short only once
        until a load succeeds or the stream is missing again. Where loads fail for another reason, each request would
        cause one otherwise.

        Args:
            started: When the request started (monotonic seconds).
        """
        if (
            self._failures
            and not self._hastened
            and self._next_load is not None
            and started > self._last_load
        ):
            self._hastened = True
            self._backoffs = 0
            self._next_load = min(self._next_load, self._last_load + _MIN_INTERVAL)

    def doubt(self) -> None:
        """What the service said of the stream is contradicted by what it does: ask again."""
        self.described = False
        self.require_load()

    def doubt_rarely(self, now: float) -> None:
        """Somebody wants more than the stream is known to take: ask again, unless it was asked lately."""
        if self.described and now - self._last_load >= _DOUBT_INTERVAL:
            self.doubt()

    def forget(self, latest_load: float = float("inf")) -> None:
        """Drop the shard map, because the stream does not exist: if it comes back, it is another one.

        Args:
            latest_load: When a load should start at the latest (monotonic seconds), whatever failed before.
        """
        self.shard_map = None
        self.described = False
        self._hastened = False
        self.require_load()
        if self._next_load is not None:
            self._next_load = min(self._next_load, latest_load)
