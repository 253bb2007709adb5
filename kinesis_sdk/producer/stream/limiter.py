"""Rate limit of each shard: two token buckets for records and bytes, and the changes of their rates after throttling.

The numbers are the KPL's: 1,000 records/s and 1 MiB/s for a shard, times the configured percentage, refilled over time, full at the start
(core/limiter.h and token_bucket.h of awslabs/amazon-kinesis-producer). There are two differences. The bytes of the partition key are also
charged, because Kinesis counts them. A Kinesis record that is larger than the bucket passes when the bucket is full, and leaves a
negative balance. So 10 MiB records do not require buckets that allow bursts of 10 MiB.

The KPL sends at 150 % of the limits regardless of the response. Here throttling adapts the shard's rate: like TCP CUBIC (RFC 9438), the
limiter searches for the capacity.

* A cut sets the rate slightly below the rate that was throttled, and never above the published limit of a shard. A
  producer that had most of the shard is cut by a few per cent. A producer with a small part shares the shard with
  other producers and is cut deeper, because deep cuts make the shares of several producers equal. If more
  entries were throttled than such a cut would save, the cut is as deep as the share of throttled entries, at most half.
* The rate then climbs back to a plateau between the cut rate and the throttled rate, quickly at first, and stays near it
  for the rest of the plateau time. After that it rises faster and faster until the next throttling, so a rate that is too low because a
  competing producer has ended recovers in half a minute. The rise is the same for all producers of a shard.
* The plateau lasts longer if the shard accepts few entries per second, because each attempt at a higher rate costs about one throttled
  entry.
* A producer that was throttled does not probe far beyond the published limit until a quiet time has passed. Then the
  configured rate of 150 % returns. A shard that is never throttled always has the configured rate.
"""

from __future__ import annotations

import random
from collections.abc import Collection

from kinesis_sdk.common.shards import ShardMap
from kinesis_sdk.producer.config import SHARD_BYTES_PER_SECOND, SHARD_RECORDS_PER_SECOND
from kinesis_sdk.producer.records.entry import Entry, Group
from kinesis_sdk.producer.stream.dispatch import Returned

_SHORTEST_WAIT = 1e-6
"""Seconds; much larger than the resolution of a monotonic clock."""


_LEAST_CUT = 0.04
"""Share of the rate that a cut takes from a producer that had the whole shard."""

_CUT_OF_COMPETITORS = 0.25
"""Additional share of the rate that a cut takes; it is multiplied by the part of the shard's limit that this producer did not use."""

_CUT_JITTER = (0.7, 1.3)
"""A cut is multiplied by a random factor between these numbers, so that producers of one shard do not move in step."""

_DEEPEST_CUT = 0.5

_REMEMBERED_ENTRIES = 20.0
"""Weight, in entries, that earlier outcomes have in the next cut: a single throttled entry after a cut does not prove overload."""

_PLATEAU_ENTRIES = 500
"""Entries that all producers together can store on the shard during a plateau."""

_PLATEAU_SECONDS = (6.0, 25.0)
"""Shortest and longest plateau."""

_PLATEAU_HEIGHT = 0.5
"""Position of the plateau between the cut rate (0) and the throttled rate (1)."""

_PROBE_STEP = 0.03
_PROBE_SECONDS = 4.0
"""After the plateau, the rate has risen by `_PROBE_STEP` * (seconds / `_PROBE_SECONDS`)³, as a share of the shard's limit."""

_PUBLISHED_MARGIN = 1.02
_QUIET_SECONDS = 12.0
"""Until `_QUIET_SECONDS` after the plateau, a throttled shard is sent at most `_PUBLISHED_MARGIN` times its published limit."""

_NOT_RELEASED = float("-inf")
"""Release time of an entry for which no tokens were taken."""

_LEAST_RATE = 0.05
"""Minimum share of the shard's limit after a cut: one aggregate of the KPL's usual size per second."""


class TokenBuckets:
    """Tokens for Kinesis records and tokens for bytes, which refill over time, full at the start. Pure: ``now`` is an argument.

    ``records`` and ``size`` are the capacity of a bucket and its rate per second.
    """

    __slots__ = (
        "_byte_capacity",
        "_byte_rate",
        "_bytes",
        "_record_capacity",
        "_record_rate",
        "_records",
        "_updated",
    )

    def __init__(self, records: tuple[float, float], size: tuple[float, float], now: float) -> None:
        self._record_capacity, self._record_rate = records
        self._byte_capacity, self._byte_rate = size
        self._records = self._record_capacity
        self._bytes = self._byte_capacity
        self._updated = now

    def _refill(self, now: float) -> None:
        elapsed = now - self._updated
        if elapsed > 0:
            self._records = min(self._record_capacity, self._records + elapsed * self._record_rate)
            self._bytes = min(self._byte_capacity, self._bytes + elapsed * self._byte_rate)
            self._updated = now

    def ready_in(self, size: float, now: float) -> float:
        """Return the seconds until a Kinesis record of ``size`` bytes may be taken; 0 if it may be taken now."""
        if now > self._updated:  # often already refilled for this moment
            self._refill(now)
        if size <= self._bytes and self._records >= 1:
            return 0.0
        return max(
            _wait(1, self._records, self._record_capacity, self._record_rate),
            _wait(size, self._bytes, self._byte_capacity, self._byte_rate),
        )

    def slow_to(self, record_rate: float, byte_rate: float, now: float) -> None:
        """Refill at different rates from now on, and drop the saved tokens."""
        self.speed_up_to(record_rate, byte_rate, now)
        self._records = min(self._records, 0.0)
        self._bytes = min(self._bytes, 0.0)

    def speed_up_to(self, record_rate: float, byte_rate: float, now: float) -> None:
        """Refill at different rates from now on."""
        self._refill(now)
        self._record_rate = record_rate
        self._byte_rate = byte_rate

    def take(self, size: float) -> None:
        """Take a Kinesis record; call this only after `ready_in` returned 0. A size above the capacity leaves a debt."""
        self._records -= 1
        self._bytes -= size


def _wait(amount: float, tokens: float, capacity: float, rate: float) -> float:
    """Return the seconds until a bucket holds an amount."""
    missing = min(amount, capacity) - tokens
    # A rounding error must not become a wait that never ends, nor a wait so short that adding it to the time changes nothing.
    return max(missing / rate, _SHORTEST_WAIT) if missing > 1e-9 else 0.0


class ShardRate:
    """Rate limit of one shard, and its changes after throttling.

    ``share`` is the share of the configured rate that is used now; 1 unless the shard was throttled recently.
    """

    __slots__ = (
        "_buckets",
        "_byte_rate",
        "_cut_at",
        "_cut_share",
        "_plateau_seconds",
        "_plateau_share",
        "_published_share",
        "_record_rate",
        "_sent",
        "_sent_bytes",
        "_throttled",
        "share",
    )

    def __init__(self, rate_limit: int, now: float) -> None:
        factor = rate_limit / 100
        self._record_rate = SHARD_RECORDS_PER_SECOND * factor
        self._byte_rate = SHARD_BYTES_PER_SECOND * factor
        self._buckets = TokenBuckets(
            (SHARD_RECORDS_PER_SECOND, self._record_rate), (SHARD_BYTES_PER_SECOND, self._byte_rate), now
        )
        self.share: float = 1.0
        self._published_share = min(1.0, 1 / factor)
        self._cut_at = float("-inf")
        self._cut_share = self._plateau_share = 1.0
        self._plateau_seconds = _PLATEAU_SECONDS[0]
        # Kinesis records and bytes sent since the last cut, and how many of them were throttled.
        self._sent = _REMEMBERED_ENTRIES
        self._sent_bytes = 0.0
        self._throttled = 0.0

    def wait(self, size: int, now: float) -> float:
        """Return the seconds until a Kinesis record of ``size`` bytes may be sent; 0 if it may be sent now."""
        if self.share < 1.0:
            self._recover(now)
        return self._buckets.ready_in(size, now)

    def charge(self, size: int) -> None:
        """Take the tokens of a Kinesis record; call this only after `wait` returned 0."""
        self._buckets.take(size)
        self._sent += 1
        self._sent_bytes += size

    def on_throttled(self, entries: list[Entry], now: float, rng: random.Random) -> None:
        """Cut the rate, because Kinesis throttled these entries of one request on this shard.

        Entries that passed this limiter before the last cut do not count, even if their request was sent later, because they were sent at
        the old rate. So requests that are in flight at the same time cut the rate only once.
        """
        count = sum(entry.released >= self._cut_at for entry in entries)
        if not count:
            return
        self._recover(now)
        self._throttled += count
        published = self._published_share
        depth = _LEAST_CUT + _CUT_OF_COMPETITORS * max(0.0, 1 - self.share / published)
        depth = max(depth * rng.uniform(*_CUT_JITTER), self._throttled / self._sent)
        depth = min(depth, _DEEPEST_CUT)
        before = min(self.share, published)
        after = max(_LEAST_RATE * published, before * (1 - depth))
        self._cut_at = now
        self.share = self._cut_share = after
        self._plateau_share = after + _PLATEAU_HEIGHT * max(0.0, before - after)
        # Seconds of a shard that one entry takes, by the limit that it uses up first.
        cost = max(1 / SHARD_RECORDS_PER_SECOND, self._sent_bytes / self._sent / SHARD_BYTES_PER_SECOND)
        shortest, longest = _PLATEAU_SECONDS
        self._plateau_seconds = min(max(shortest, _PLATEAU_ENTRIES * cost), longest)
        kept = _REMEMBERED_ENTRIES / self._sent
        self._sent *= kept
        self._sent_bytes *= kept
        self._throttled *= kept
        self._buckets.slow_to(self._record_rate * after, self._byte_rate * after, now)

    def _recover(self, now: float) -> None:
        """Let the rate rise as time passes after a cut."""
        if self.share < 1.0:
            self.share = max(self.share, min(1.0, self._share_after(now - self._cut_at)))
            self._buckets.speed_up_to(self._record_rate * self.share, self._byte_rate * self.share, now)

    def _share_after(self, elapsed: float) -> float:
        """Return the share of the configured rate when ``elapsed`` seconds have passed since the last cut."""
        beyond = elapsed - self._plateau_seconds
        if beyond <= 0:
            left = -beyond / self._plateau_seconds
            return self._plateau_share - (self._plateau_share - self._cut_share) * left**3
        published = self._published_share
        share = self._plateau_share + published * _probe(beyond)
        ceiling = published * _PUBLISHED_MARGIN
        return share if share <= ceiling else ceiling + published * _probe(beyond - _QUIET_SECONDS)


class RateLimit:
    """Dispatch policy that keeps to each shard's rate limit, which is configured in per cent of the published limits."""

    __slots__ = ("_rate_limit", "_rates", "_rng")

    def __init__(self, rate_limit: int, rng: random.Random) -> None:
        self._rate_limit = rate_limit
        self._rng = rng
        self._rates: dict[Group, ShardRate] = {}

    def may_send(self, entry: Entry, now: float) -> float:
        """Return the time at which both buckets of the shard hold enough tokens for the entry."""
        if entry.released != _NOT_RELEASED or entry.deadline == _NOT_RELEASED:
            # Its tokens were taken already: before the entry returned to its lane, or (`alone`) for the entry of which it is a part.
            return now
        group = entry.shard_id or entry.group
        rate = self._rates.get(group)
        if rate is None:
            rate = self._rates[group] = ShardRate(self._rate_limit, now)
        return now + rate.wait(entry._size or entry.size, now)

    def on_sent(self, entry: Entry, now: float) -> None:
        """Take the tokens, unless they were taken before."""
        if entry.released == _NOT_RELEASED and entry.deadline != _NOT_RELEASED:
            entry.released = now
            self._rates[entry.shard_id or entry.group].charge(entry.size)

    def cut(self, group: Group, entries: list[Entry], now: float) -> None:
        """Slow down a shard that throttled these entries of one request."""
        rate = self._rates.get(group)
        if rate is not None:
            rate.on_throttled(entries, now, self._rng)

    def on_returned(self, entry: Entry, how: Returned, landed_in: str | None) -> None:  # noqa: ARG002
        """Do not give tokens back. If an entry failed and is sent again, its tokens are taken again."""
        if how is Returned.RETRY:
            entry.released = _NOT_RELEASED

    def on_shard_map(self, shard_map: ShardMap | None, in_flight: Collection[Entry]) -> None:
        """Do nothing, because a shard keeps its rate until its lane is removed."""

    def forget(self, group: Group) -> None:
        """Forget the rate of a shard."""
        self._rates.pop(group, None)

    @property
    def outstanding(self) -> int:
        """Always 0, because tokens are refilled with time and not when entries return."""
        return 0


def _probe(seconds: float) -> float:
    """Return the rise of the rate beyond a plateau, as a share of the shard's limit."""
    return _PROBE_STEP * (max(0.0, seconds) / _PROBE_SECONDS) ** 3
