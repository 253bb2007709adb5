"""Facts about a stream: its shard map, its record size limit, and whether it places records itself.

States: NEEDED (no map, or a mismatch that is newer than the map) → LOADING → READY, and NEEDED again after a failure, with exponential
backoff. The map in use stays in use while a new one loads.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.shards import Shard, ShardMap
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.config import ProducerConfig

MISSING_BACKOFF = 2.0
_RETRIES, _RETRIES_WHILE_MISSING = Backoff(0.2, 30.0), Backoff(0.2, MISSING_BACKOFF)
"""Longest pause, in seconds, between two loads while records wait for a missing stream."""

_MIN_INTERVAL = 0.5
"""Seconds between two loads. ListShards allows 1,000 calls per second and stream, but a stream that is resharded may list its new shards
only after some time, and faster loads would not help."""


_DOUBT_INTERVAL = 60.0
"""Seconds between two checks whether a stream's record limit was raised."""


DEFAULT_RECORD_LIMIT = 1024 * 1024
"""Maximum bytes of a Kinesis record while the stream's own limit is unknown; every stream accepts records of this size."""


class StreamFacts(NamedTuple):
    """Result of one load.

    Attributes:
        shards: The open shards; None without the permission for ListShards (then only records with equal hash keys share an aggregate).
        max_record_size: Maximum bytes of a Kinesis record; None if unknown.
        service_places: Whether the stream places records itself (record distribution AUTO); None if unknown.
        date: Time at Kinesis before the load ended (epoch seconds), from a ``Date`` header; None if unknown.
    """

    shards: Sequence[Shard] | None
    max_record_size: int | None
    service_places: bool | None
    date: float | None = None


class Admission(Enum):
    """Handling of a record that not every stream accepts."""

    SEND = "send"
    WAIT = "wait"
    REJECT = "reject"


class Topology:
    """Facts in use, and the state of their load. It makes no calls: it decides when the I/O loop loads facts, and keeps the result."""

    __slots__ = (
        "_backoffs",
        "_default",
        "_describing",
        "_failures",
        "_hastened",
        "_interval",
        "_last_load",
        "_loading_since",
        "_next_load",
        "_rng",
        "_stale_since",
        "described",
        "distribution_known",
        "max_record_size",
        "service_places",
        "shard_map",
    )

    def __init__(self, rng: random.Random, config: ProducerConfig | None = None) -> None:
        config = config or ProducerConfig()
        self._default = config.record_distribution_strategy_default
        self._interval = config.describe_stream_summary_interval
        self.shard_map: ShardMap | None = None
        self.max_record_size: int | None = None
        self.service_places: bool = self._default == "AUTO"
        self.distribution_known: bool = False
        self.described: bool = False
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
        """Return the shard to which a hash key belongs; None if it cannot be predicted."""
        return None if self.shard_map is None or self.service_places else self.shard_map.predict(hash_key)

    def keyless(self, now: float) -> Admission:
        """Return whether a record without a partition key may be sent, waits, or is rejected.

        Only streams that place records themselves accept a record without a key. Until the first summary has been read, the record waits,
        unless the stream needs keys according to the configuration. If the load of the summary fails, the configuration decides.
        """
        if not self.described:
            if self.service_places and self._failures:
                return Admission.SEND
            if self._default == "USER_PARTITION_KEY" and not self.distribution_known:
                return Admission.REJECT
            return Admission.WAIT
        if self.service_places:
            return Admission.SEND
        # The stream may have changed. If no record has a key, only a load shows it.
        return Admission.REJECT if now - self._last_load < self._interval else Admission.WAIT

    def headed(self) -> Admission:
        """Return whether a record with headers may be sent, waits, or is rejected.

        Streams that place records themselves do not support headers, because headers need an aggregate, and readers drop an aggregate in a
        shard to which its keys do not belong. With a shard map, these records need not wait: if the stream begins to place records
        itself, the shards in which aggregates land show it.
        """
        if self.described and self.service_places:
            return Admission.REJECT
        if self.described or self.shard_map is not None or self._default == "USER_PARTITION_KEY":
            return Admission.SEND
        return Admission.WAIT

    def why_keys_are_needed(self, stream: StreamId) -> str:
        """Return the reason why a record without a partition key is rejected."""
        if self.distribution_known:
            return f"stream {stream} places records by their partition keys, so each record needs one"
        if self._default == "USER_PARTITION_KEY":
            return f"stream {stream} needs one, by record_distribution_strategy_default='USER_PARTITION_KEY'"
        return (
            f"it is not known whether stream {stream} accepts records without one, because the permission "
            "kinesis:DescribeStreamSummary is missing; if it does, set record_distribution_strategy_default='AUTO'"
        )

    def aggregation_count(self, config: ProducerConfig) -> int:
        """Return the maximum user records of an aggregate; 1 means that records are not aggregated."""
        if not config.aggregation_enabled or self.service_places:
            return 1
        if self.shard_map is None and self._failures and not self.described:
            # It is not known yet whether the stream places records itself. Aggregates that were sent can wait for that; further
            # ones must not.
            return 1
        return config.aggregation_max_count

    def aggregation_size(self, config: ProducerConfig) -> int:
        """Return the maximum bytes of an aggregate: at most the stream's record limit, less its one-byte partition key."""
        return min(config.aggregation_max_size, self.record_limit - 1)

    @property
    def record_limit(self) -> int:
        """Maximum bytes of a Kinesis record, data and partition key; the default until the stream's limit is known."""
        return self.max_record_size or DEFAULT_RECORD_LIMIT

    def wants_load(self, now: float) -> bool:
        """Return whether a load should start now."""
        return self._loading_since is None and self._next_load is not None and self._next_load <= now

    @property
    def next_load(self) -> float | None:
        """Time at which a load should start (monotonic seconds); None during a load, or if no load is needed."""
        return None if self._loading_since is not None else self._next_load

    @property
    def describing(self) -> bool:
        """Whether the current load also reads the record size limit and the record distribution."""
        return self._describing

    @property
    def failures(self) -> int:
        """Failed loads since the last successful one."""
        return self._failures

    def begin_load(self, now: float) -> None:
        """Note that a load starts."""
        self._loading_since = self._last_load = now
        self._describing = not self.described or self.service_places
        self._next_load = None

    def finish_load(self, facts: StreamFacts, now: float) -> None:
        """Note that a load succeeded; raise `ProtocolError` if the shards have gaps or overlaps: then call `fail_load`."""
        started = self._loading_since if self._loading_since is not None else now
        # If the permission to list shards is gone, an old map is worse than none: it would never be corrected.
        self.shard_map = ShardMap(facts.shards, started, self.shard_map) if facts.shards is not None else None
        if facts.max_record_size is not None:
            self.max_record_size = facts.max_record_size
        if self._describing:
            known = facts.service_places
            self.distribution_known = known is not None
            self.service_places = self._default == "AUTO" if known is None else known
            self.described = self._stale_since <= started
        self._loading_since = None
        self._failures = self._backoffs = 0
        self._hastened = False
        if self._stale_since > started:
            # A mismatch was seen after this load had started: its result may already be out of date.
            self._next_load = started + _MIN_INTERVAL
        else:
            # The responses of a stream that places records itself do not show whether it still does.
            self._next_load = started + self._interval if self.service_places else None

    def fail_load(self, now: float, *, awaited: bool = False) -> None:
        """Note that a load failed. The next load waits, longer after each failure.

        The pauses are shorter if the load is ``awaited`` by records for a missing stream.
        """
        self._loading_since = None
        self._failures += 1
        self._backoffs += 1
        retries = _RETRIES_WHILE_MISSING if awaited else _RETRIES
        self._next_load = now + retries.pause(self._backoffs, self._rng)

    def invalidate(self, seen_at: float, actual_shard_id: str) -> None:
        """Note that a record landed in a shard other than the predicted one.

        Args:
            seen_at: Start of the request (monotonic seconds). Only a request that started after the load of the map in use counts.
            actual_shard_id: Shard in which it landed. If that shard is open in the map, records are not placed by this map at all: this is
                another stream of the same name, or the stream places records itself.
        """
        loaded_at = self.shard_map.loaded_at if self.shard_map else float("-inf")
        if seen_at <= loaded_at:
            return
        if self.shard_map is not None and self.shard_map.is_open(actual_shard_id):
            self.described = False
        self._stale_since = max(self._stale_since, seen_at)
        self.require_load()

    def require_load(self) -> None:
        """Schedule a load unless one is running, but not within the minimum interval."""
        if self._loading_since is None and (self._next_load is None or not self._failures):
            soonest = self._last_load + _MIN_INTERVAL
            self._next_load = soonest if self._next_load is None else min(self._next_load, soonest)

    def on_stream_seen(self, started: float) -> None:
        """Load soon, because the stream accepted a PutRecords request that started after a failed load.

        After many failures, the backoff may be half a minute, and until then every record would be sent as a Kinesis record of its own.
        The backoff is shortened only once, until a load succeeds or the stream is missing again. Otherwise each request would cause a load
        if loads fail for another reason.
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
        """Load the stream's summary again, because Kinesis contradicts it."""
        self.described = False
        self.require_load()

    def doubt_rarely(self, now: float) -> None:
        """Load the summary again, unless it was loaded recently, because a record is larger than the known limit."""
        if self.described and now - self._last_load >= _DOUBT_INTERVAL:
            self.doubt()

    def forget(self, latest_load: float = float("inf")) -> None:
        """Drop the shard map, because the stream does not exist, and a later stream with the same name is a different stream.

        A load starts at ``latest_load`` at the latest, even if earlier ones failed.
        """
        self.shard_map = None
        self.described = False
        self._hastened = False
        self.require_load()
        if self._next_load is not None:
            self._next_load = min(self._next_load, latest_load)


def why_headers_are_refused(stream: StreamId) -> str:
    """Return the reason why a record with headers is rejected."""
    return (
        f"stream {stream} places records itself (record distribution AUTO): headers need an aggregate, and readers drop an aggregate in "
        "a shard where its keys do not belong"
    )
