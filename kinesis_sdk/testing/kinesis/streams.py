"""A stream: its shards, their lineage, and delayed changes.

```
CREATING ──delay──► ACTIVE ──split, merge, scale──► UPDATING ──delay──► ACTIVE ──delete──► (gone)
```
Without configured delays, a change is complete when the call returns. The open shards always cover the hash space
0 … 2¹²⁸−1 without overlap; every change goes through `_replace`, which closes the parents and opens the children.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import re
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.testing.clock import millis
from kinesis_sdk.testing.errors import AwsError, invalid_argument
from kinesis_sdk.testing.kinesis.shard import Shard

HASH_SPACE = 1 << 128
DEFAULT_RETENTION_HOURS = 24
_SCALINGS_A_DAY = 10
_DAY = 86_400.0
_SCALED_SHARDS = 10_000
_HASH_KEY = re.compile(r"0|[1-9]\d{0,38}", re.ASCII)


def uniform_starts(count: int) -> list[int]:
    """Return the first hash keys of `count` equal shards, divided as in Kinesis; the last shard gets the rest."""
    width = HASH_SPACE // count
    return [index * width for index in range(count)]


def hash_of(partition_key: str) -> int:
    """Return the hash key of a partition key: its MD5 digest as a big-endian number."""
    return int.from_bytes(hashlib.md5(partition_key.encode()).digest(), "big")


class Stream:
    """A stream and its shards. `lock` guards all other state.

    Args:
        clock: Wall clock for records and shards, monotonic clock for delays and throttles.
        mode: ``PROVISIONED`` or ``ON_DEMAND``.
        strategy: ``USER_PARTITION_KEY`` or ``AUTO`` (on-demand only).
        max_record_kib: Largest record in KiB, data and partition key together.
        delay: Seconds for which the stream stays CREATING.
        reshard_delay: Seconds for which a change to the shards leaves it UPDATING.
        limit_scalings: Whether UpdateShardCount is accepted only ten times in 24 hours.
    """

    def __init__(
        self,
        name: str,
        arn: str,
        clock: Clock,
        *,
        shard_count: int,
        mode: str = "PROVISIONED",
        strategy: str = "USER_PARTITION_KEY",
        max_record_kib: int = 1024,
        delay: float = 0.0,
        reshard_delay: float = 0.0,
        limit_scalings: bool = False,
    ) -> None:
        self.name = name
        self.arn = arn
        self.clock = clock
        self.lock: threading.RLock = threading.RLock()
        # Subscriptions wait for it; notified of new records and ended shards.
        self.changed: threading.Condition = threading.Condition(self.lock)
        self.mode = mode
        self.strategy = strategy
        self.max_record_kib = max_record_kib
        self.retention_hours = DEFAULT_RETENTION_HOURS
        self.tags: dict[str, str] = {}
        self.consumers: dict[str, Consumer] = {}
        self.created_at: float = clock.time()
        self.shards: dict[str, Shard] = {}
        self.deleted: bool = False
        self._reshard_delay = reshard_delay
        self._next_index = 0
        self._starts: list[int] = []
        self._open: list[Shard] = []
        self._closed: deque[Shard] = deque()
        # Heap of late writes: (monotonic seconds, tie-breaker, write).
        self._late: list[tuple[float, int, Callable[[], object]]] = []
        self._late_count = 0
        self._pending: tuple[float, str, Callable[[], None]] | None = None
        self._limit_scalings = limit_scalings
        # Monotonic times of the accepted UpdateShardCount calls of the last day.
        self._scaled_at: deque[float] = deque(maxlen=_SCALINGS_A_DAY)
        self._later("CREATING", delay, lambda: self._lay_out(shard_count))

    # -- time ---------------------------------------------------------------------------------------------------

    def _later(self, status: str, delay: float, change: Callable[[], None]) -> None:
        if delay <= 0:
            change()
        else:
            self._pending = (self.clock.monotonic() + delay, status, change)

    def settle(self) -> None:
        """Make due changes and late writes in order, and remove shards whose records have all expired."""
        while self._pending is not None or self._late:
            change_at = math.inf if self._pending is None else self._pending[0]
            write_at = self._late[0][0] if self._late else math.inf
            if self.clock.monotonic() < min(change_at, write_at):
                break
            if self._pending is not None and change_at <= write_at:
                change = self._pending[2]
                self._pending = None
                change()
            else:
                heapq.heappop(self._late)[2]()
        if not self._closed:
            return
        horizon = self.horizon
        # `_closed` is ordered by the time of closing.
        while self._closed and millis(self._closed[0].closed_at or 0) < horizon:
            del self.shards[self._closed.popleft().shard_id]

    def write_later(self, due: float, write: Callable[[], object]) -> None:
        """Carry out a write on the first access at or after monotonic time `due`."""
        self._late_count += 1
        heapq.heappush(self._late, (due, self._late_count, write))

    @property
    def horizon(self) -> int:
        """Wall time in milliseconds before which records have expired."""
        return millis(self.clock.time()) - self.retention_hours * 3_600_000

    @property
    def status(self) -> str:
        """``CREATING``, ``UPDATING`` or ``ACTIVE``."""
        return "ACTIVE" if self._pending is None else self._pending[1]

    # -- shards -------------------------------------------------------------------------------------------------

    @property
    def open_shards(self) -> list[Shard]:
        """Open shards in hash order."""
        return self._open

    def shard_for(self, hash_key: int) -> Shard:
        """Return the open shard whose range holds `hash_key` (0 … 2¹²⁸−1)."""
        return self._open[bisect_right(self._starts, hash_key) - 1]

    def shards_in_order(self) -> Iterator[Shard]:
        """Return all shards that still exist, by id."""
        return iter(self.shards.values())

    def shard(self, shard_id: str, account: str) -> Shard:
        """Return the shard with this id."""
        found = self.shards.get(shard_id)
        if found is None:
            raise AwsError(
                "ResourceNotFoundException",
                f"Shard {shard_id} in stream {self.name} under account {account} does not exist",
            )
        return found

    def _new_shard(self, start: int, end: int, parents: tuple[Shard, ...] = ()) -> Shard:
        now = self.clock.time()
        shard = Shard(
            index=self._next_index,
            start=start,
            end=end,
            # Sequence numbers begin with this second, and the numbers of a child must exceed the numbers of its parents.
            created_second=max(int(now), *(parent.last_second + 1 for parent in parents), 0),
            now=now,
            monotonic=self.clock.monotonic(),
            parent=parents[0].shard_id if parents else None,
            adjacent_parent=parents[1].shard_id if len(parents) > 1 else None,
        )
        self._next_index += 1
        self.shards[shard.shard_id] = shard
        return shard

    def _lay_out(self, count: int) -> None:
        starts = uniform_starts(count)
        ends = [start - 1 for start in starts[1:]] + [HASH_SPACE - 1]
        self._set_open([self._new_shard(start, end) for start, end in zip(starts, ends, strict=True)])
        for shard in self._open:
            # The first shards are as old as the stream, even if that was CREATING for a while: a filter at the trim
            # horizon must list them.
            shard.created_at = self.created_at

    def _set_open(self, shards: list[Shard]) -> None:
        self._open = sorted(shards, key=lambda shard: shard.start)
        self._starts = [shard.start for shard in self._open]

    def _replace(self, parents: tuple[Shard, ...], ranges: list[tuple[int, int]]) -> None:
        children = [self._new_shard(start, end, parents) for start, end in ranges]
        now = self.clock.time()
        for parent in parents:
            parent.close(now, children)
            self._closed.append(parent)
        self._set_open([shard for shard in self._open if shard not in parents] + children)
        with self.changed:
            self.changed.notify_all()

    def _split_at(self, hash_key: int) -> None:
        shard = self.shard_for(hash_key)
        self._replace((shard,), [(shard.start, hash_key - 1), (hash_key, shard.end)])

    def _merge_at(self, hash_key: int) -> None:
        left, right = self.shard_for(hash_key - 1), self.shard_for(hash_key)
        self._replace((left, right), [(left.start, right.end)])

    def _require_settled(self) -> None:
        if self._pending is not None:
            raise AwsError(
                "ResourceInUseException", f"Stream {self.name} not ACTIVE, instead in state {self.status}"
            )

    def _open_shard(self, shard_id: str, account: str) -> Shard:
        shard = self.shard(shard_id, account)
        if shard.closed_at is not None:
            raise invalid_argument(
                f"Shard {shard_id} in stream {self.name} under account {account} is closed"
            )
        return shard

    def split(self, shard_id: str, new_starting_hash_key: str, account: str) -> None:
        """Split an open shard; each half needs at least two hash keys."""
        self._require_settled()
        shard = self._open_shard(shard_id, account)
        key = int(new_starting_hash_key) if _HASH_KEY.fullmatch(new_starting_hash_key) else -1
        if not shard.start + 1 < key < shard.end:
            raise invalid_argument(
                f"NewStartingHashKey {new_starting_hash_key} used in SplitShard() on shard {shard_id} in stream "
                f"{self.name} under account {account} is not both greater than one plus the shard's "
                f"StartingHashKey {shard.start} and less than the shard's EndingHashKey {shard.end}."
            )
        self._later("UPDATING", self._reshard_delay, lambda: self._split_at(key))

    def merge(self, shard_id: str, adjacent_id: str, account: str) -> None:
        """Merge two open shards whose ranges touch."""
        self._require_settled()
        # Check first that both exist, so that a closed shard does not hide that the other shard is unknown.
        for name in (shard_id, adjacent_id):
            self.shard(name, account)
        first = self._open_shard(shard_id, account)
        second = self._open_shard(adjacent_id, account)
        if first.end + 1 != second.start and second.end + 1 != first.start:
            raise invalid_argument(
                f"Shards {shard_id} and {adjacent_id} in stream {self.name} under account {account} are not an "
                "adjacent pair of shards eligible for merging"
            )
        low, high = min(first.start, second.start), max(first.end, second.end)
        # The order of the arguments decides which is the parent and which the adjacent parent.
        self._later("UPDATING", self._reshard_delay, lambda: self._replace((first, second), [(low, high)]))

    def scale(self, target: int) -> None:
        """Change to `target` equal shards by splits, then merges, as UpdateShardCount does.

        A boundary that only the new layout has becomes a split; a boundary that only the old layout has becomes a merge.
        Intermediate shards are closed at once and stay in the lineage.
        """
        self._require_settled()
        current = len(self._open)
        if target > 2 * current:
            raise AwsError(
                "LimitExceededException",
                f"UpdateShardCount cannot scale up over double your current open shard count. "
                f"Current open shard count: {current} Target shard count: {target}",
            )
        if 2 * target < current:
            raise AwsError(
                "LimitExceededException",
                f"UpdateShardCount cannot scale down below half your current open shard count. "
                f"Current open shard count: {current} Target shard count: {target}",
            )
        if target > _SCALED_SHARDS:
            raise AwsError(
                "LimitExceededException",
                f"UpdateShardCount cannot scale up to more than {_SCALED_SHARDS} shards. Target shard count: {target}",
            )
        if target == current and self._starts == uniform_starts(target):
            raise invalid_argument(f"Stream {self.name} already has {target} open shards of equal size")
        now = self.clock.monotonic()
        if (
            self._limit_scalings
            and len(self._scaled_at) == _SCALINGS_A_DAY
            and now - self._scaled_at[0] < _DAY
        ):
            raise AwsError(
                "LimitExceededException",
                f"UpdateShardCount cannot scale stream {self.name} more than {_SCALINGS_A_DAY} times in a rolling 24-hour "
                "period.",
            )
        self._scaled_at.append(now)
        self._later("UPDATING", self._reshard_delay, lambda: self._scale_now(target))

    def _scale_now(self, target: int) -> None:
        wanted = uniform_starts(target)
        present = set(self._starts)
        for key in wanted:
            if key not in present:
                self._split_at(key)
        for key in sorted(set(self._starts) - set(wanted)):
            self._merge_at(key)

    # -- descriptions -------------------------------------------------------------------------------------------

    def delete(self) -> None:
        """Mark the stream as deleted, because other code may still have a reference to it."""
        with self.lock:
            self.deleted = True
            self.changed.notify_all()

    def describe_summary(self) -> dict[str, Any]:
        """Return the members of ``StreamDescriptionSummary``; timestamps are epoch seconds."""
        summary: dict[str, Any] = {
            "StreamName": self.name,
            "StreamARN": self.arn,
            "StreamStatus": self.status,
            "StreamModeDetails": {"StreamMode": self.mode},
            "RetentionPeriodHours": self.retention_hours,
            "StreamCreationTimestamp": round(self.created_at, 3),
            "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
            "EncryptionType": "NONE",
            "OpenShardCount": len(self._open),
            "ConsumerCount": len(self.consumers),
            "MaxRecordSizeInKiB": self.max_record_kib,
        }
        if self.mode == "ON_DEMAND":
            # According to the service model, only on-demand streams have this field.
            summary["RecordDistributionStrategy"] = self.strategy
        return summary


class OpenSubscription(Protocol):
    """The part of a subscription that its consumer uses; the class is in `fanout`. `started` is in monotonic seconds."""

    started: float

    def close(self, error: AwsError | None = None) -> None:
        """End the subscription."""
        ...


class Consumer:
    """A registered fan-out consumer of a stream.

    Attributes:
        name: Consumer name, unique in the stream.
        arn: ARN with the creation second at its end.
        created_at: Wall time in seconds.
        subscriptions: The last subscription to each shard, even if it has ended.
    """

    __slots__ = ("_active_at", "arn", "created_at", "name", "subscriptions")

    def __init__(self, stream: Stream, name: str, *, delay: float) -> None:
        self.name: str = name
        self.created_at: float = stream.clock.time()
        self.arn: str = f"{stream.arn}/consumer/{name}:{int(self.created_at)}"
        self._active_at = stream.clock.monotonic() + delay
        self.subscriptions: dict[str, OpenSubscription] = {}

    def is_active(self, monotonic: float) -> bool:
        """Return whether the consumer is no longer CREATING at `monotonic` (seconds)."""
        return monotonic >= self._active_at

    def describe(self, monotonic: float) -> dict[str, Any]:
        """Return the members of ``Consumer``, with its status at `monotonic` (seconds)."""
        return {
            "ConsumerName": self.name,
            "ConsumerARN": self.arn,
            "ConsumerStatus": "ACTIVE" if self.is_active(monotonic) else "CREATING",
            "ConsumerCreationTimestamp": round(self.created_at, 3),
        }
