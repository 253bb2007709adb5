"""Rate limits of Kinesis: for each shard in the data plane, for each account in the control plane."""

from __future__ import annotations

MIB = 1 << 20

# Calls per second and account, from each operation's API reference. Other operations are not limited here.
CONTROL_RATES = {
    "CreateStream": 5.0,
    "DeleteStream": 5.0,
    "DescribeStream": 10.0,
    "DescribeStreamSummary": 20.0,
    "DescribeLimits": 1.0,
    "ListStreams": 5.0,
    "ListShards": 1000.0,
    "SplitShard": 5.0,
    "MergeShards": 5.0,
    "UpdateShardCount": 10.0,
    "RegisterStreamConsumer": 5.0,
    "DeregisterStreamConsumer": 5.0,
    "DescribeStreamConsumer": 20.0,
    "ListStreamConsumers": 5.0,
    "ListTagsForStream": 5.0,
    "AddTagsToStream": 5.0,
}


class TokenBucket:
    """Token bucket that refills steadily and starts full. Not locked.

    `rate` is in tokens per second, `capacity` defaults to the tokens of one second, and `now` is in monotonic seconds.
    """

    __slots__ = ("_at", "capacity", "level", "rate")

    def __init__(self, rate: float, now: float, *, capacity: float | None = None) -> None:
        self.rate: float = rate
        self.capacity: float = rate if capacity is None else capacity
        self.level: float = self.capacity
        self._at = now

    def refill(self, now: float) -> None:
        """Add the tokens accrued until `now` (monotonic seconds)."""
        if now > self._at:
            self.level = min(self.capacity, self.level + (now - self._at) * self.rate)
            self._at = now

    def take(self, amount: float, now: float) -> bool:
        """Take `amount` tokens if the bucket contains that many."""
        self.refill(now)
        if self.level < amount:
            return False
        self.level -= amount
        return True


class WriteLimit:
    """A shard's write limit: 1,000 records and 1 MiB per second.

    A full bucket accepts a record above 1 MiB, and its balance becomes negative. Otherwise a stream with a larger maximum record size
    could never accept such a record.
    """

    __slots__ = ("_bytes", "_records")

    def __init__(self, now: float) -> None:
        self._records = TokenBucket(1000, now)
        self._bytes = TokenBucket(MIB, now)

    def admit(self, size: int, now: float) -> bool:
        """Take the tokens for a record of `size` bytes (data and partition key); return False if there are too few."""
        records, data = self._records, self._bytes
        records.refill(now)
        data.refill(now)
        if records.level < 1 or data.level < min(size, data.capacity):
            return False
        records.level -= 1
        data.level -= size
        return True


class ReadLimit:
    """A shard's read limit for GetRecords: 5 calls and 2 MiB per second, shared by all callers.

    A read can exceed the available bytes, because its size is known only afterwards. The shard then rejects all reads until the balance is
    positive again: a read of 10 MiB blocks the shard for 5 s, which is the time in the API reference.
    """

    __slots__ = ("_bytes", "_calls", "_overdrawn")

    def __init__(self, now: float) -> None:
        self._calls = TokenBucket(5, now)
        self._bytes = TokenBucket(2 * MIB, now)
        self._overdrawn = False

    def admit(self, now: float) -> bool:
        """Count a call at `now`; return False if it must be rejected."""
        data = self._bytes
        data.refill(now)
        if self._overdrawn:
            if data.level < data.capacity:
                return False
            self._overdrawn = False
        return self._calls.take(1, now)

    def charge(self, size: int) -> None:
        """Charge the `size` bytes that an admitted call returned."""
        self._bytes.level -= size
        if self._bytes.level < 0:
            self._overdrawn = True
