"""Per-shard rate limits: two token buckets, records and bytes, and the queue of what waits for them.

Numbers are the KPL's: 1,000 records/s and 1 MiB/s for a shard, times the configured per cent, refilled by
time, full at the start (core/limiter.h and token_bucket.h of awslabs/amazon-kinesis-producer). Other than the
KPL, the partition key's bytes are charged too, because the service counts them, and a Kinesis record that is
larger than the bucket passes when the bucket is full and leaves a debt, so a 10 MiB record needs no 10 MiB of
burst for everybody else.

What the KPL only promises is done here: a throttled shard is asked for less. Its rate is cut to 60 … 80 % (drawn
anew each time, so that producers which share a shard do not move in step), at most once for all requests that
were on their way together, and grows back by 5 % of the configured rate each second. That is additive increase,
multiplicative decrease: producers that know nothing of each other end up with equal shares of what there is.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator

from kinesis_sdk.producer.aggregator import Entry
from kinesis_sdk.producer.config import SHARD_BYTES_PER_SECOND, SHARD_RECORDS_PER_SECOND

_SHORTEST_WAIT = 1e-6
"""Seconds; far above the resolution of a clock that counts since the machine started."""


_CUT = (0.6, 0.8)
"""What a throttle leaves of a shard's rate, drawn between these."""

_GROWTH = 0.05
"""Share of the configured rate that comes back each second."""

_LEAST_SHARE = 0.01
"""However often a shard is throttled, this share of its rate stays: somebody has to find out that it is over."""


class TokenBucket:
    """Tokens that refill with time. Pure: ``now`` comes in.

    Args:
        capacity: Most tokens it holds; it starts full.
        rate: Tokens per second.
        now: Monotonic seconds.
    """

    __slots__ = ("_tokens", "_updated", "capacity", "rate")

    def __init__(self, capacity: float, rate: float, now: float) -> None:
        self.capacity = capacity
        self.rate = rate
        self._tokens = capacity
        self._updated = now

    def _refill(self, now: float) -> None:
        if now > self._updated:
            self._tokens = min(self.capacity, self._tokens + (now - self._updated) * self.rate)
            self._updated = now

    def ready_in(self, amount: float, now: float) -> float:
        """Seconds until ``amount`` may be taken; 0 if at once."""
        self._refill(now)
        missing = min(amount, self.capacity) - self._tokens
        # A sliver of rounding error must not become a wait that never ends, nor one so short that adding it
        # to the time changes nothing.
        return max(missing / self.rate, _SHORTEST_WAIT) if missing > 1e-9 else 0.0

    def slow_to(self, rate: float, now: float) -> None:
        """Refill at another rate from now on, and forget what was saved up."""
        self._refill(now)
        self._tokens = min(self._tokens, 0.0)
        self.rate = rate

    def speed_up_to(self, rate: float, now: float) -> None:
        """Refill at another rate from now on."""
        self._refill(now)
        self.rate = rate

    def take(self, amount: float) -> None:
        """Take ``amount``; only after `ready_in` said 0. What exceeds the capacity becomes a debt."""
        self._tokens -= amount


class ShardLimiter:
    """The limits of one shard and the Kinesis records that wait for them, earliest deadline first.

    Args:
        rate_limit: Per cent of the service's limits.
        now: Monotonic seconds.

    Attributes:
        share: Share of the configured rate that is used now; 1 unless the shard was throttled lately.
    """

    __slots__ = (
        "_adapted",
        "_byte_rate",
        "_bytes",
        "_cut_at",
        "_next_expiry",
        "_queue",
        "_queued",
        "_record_rate",
        "_records",
        "share",
    )

    def __init__(self, rate_limit: int, now: float) -> None:
        factor = rate_limit / 100
        self._record_rate = SHARD_RECORDS_PER_SECOND * factor
        self._byte_rate = SHARD_BYTES_PER_SECOND * factor
        self._records = TokenBucket(SHARD_RECORDS_PER_SECOND, self._record_rate, now)
        self._bytes = TokenBucket(SHARD_BYTES_PER_SECOND, self._byte_rate, now)
        self.share = 1.0
        self._adapted = now
        self._cut_at = float("-inf")
        self._queue: list[tuple[float, int, Entry]] = []
        self._queued = 0
        # Never later than the earliest expiry in the queue; corrected when it is reached.
        self._next_expiry = float("inf")

    def on_throttled(self, started: float, now: float, rng: random.Random) -> None:
        """The service throttled the shard in a request that started at ``started``: ask for less.

        Requests that were on their way when the rate was cut last say nothing about the new rate.
        """
        if started < self._cut_at:
            return
        self._recover(now)
        self.share = max(_LEAST_SHARE, self.share * rng.uniform(*_CUT))
        self._cut_at = now
        self._records.slow_to(self._record_rate * self.share, now)
        self._bytes.slow_to(self._byte_rate * self.share, now)

    def _recover(self, now: float) -> None:
        if self.share < 1.0:
            self.share = min(1.0, self.share + _GROWTH * (now - self._adapted))
            self._records.speed_up_to(self._record_rate * self.share, now)
            self._bytes.speed_up_to(self._byte_rate * self.share, now)
        self._adapted = now

    def add(self, entry: Entry) -> None:
        """Queue a Kinesis record."""
        self._queued += 1
        self._next_expiry = min(self._next_expiry, entry.expires)
        heapq.heappush(self._queue, (entry.deadline, self._queued, entry))

    def release(self, now: float) -> Iterator[Entry]:
        """Yield what may go now, earliest deadline first; the first that does not fit stops the rest."""
        while self._queue and self._wait(now) <= 0:
            entry = heapq.heappop(self._queue)[2]
            self._records.take(1)
            self._bytes.take(entry.size)
            yield entry

    def expedite(self) -> None:
        """A flush waits: what is queued does not wait for company once it is released."""
        for _, _, entry in self._queue:
            entry.urgent = True

    def take_expired(self, now: float) -> list[Entry]:
        """Remove and return what holds an expired user record."""
        if now < self._next_expiry:
            return []
        expired = [item[2] for item in self._queue if item[2].expires <= now]
        self._queue = [item for item in self._queue if item[2].expires > now]
        heapq.heapify(self._queue)
        self._next_expiry = min((item[2].expires for item in self._queue), default=float("inf"))
        return expired

    def take_all(self) -> list[Entry]:
        """Remove and return everything."""
        entries = [item[2] for item in sorted(self._queue, key=lambda item: item[:2])]
        self._queue.clear()
        return entries

    def next_event(self, now: float) -> float | None:
        """Monotonic seconds at which `release` or `take_expired` has something to do; None if empty."""
        if not self._queue:
            return None
        return min(now + self._wait(now), self._next_expiry)

    def _wait(self, now: float) -> float:
        self._recover(now)
        return max(self._records.ready_in(1, now), self._bytes.ready_in(self._queue[0][2].size, now))

    def __len__(self) -> int:
        return len(self._queue)
