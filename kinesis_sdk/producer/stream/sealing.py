"""Sealing of closed aggregates: the size at which they are closed, the tasks for the pool, and aggregates that are too large after sealing.

```
OPEN ──closed──► SEALING, in its lane ──pool thread──► READY: sealed, or plain if that is not larger ──► sent
 size by                                     │
 estimate                                    └─ larger than a record may be: two halves, each SEALING, at its place in the lane
```

The estimate only determines the size at which the next aggregate is closed. From READY on, every size is exact.

The sealed form is kept with its Kinesis record, and charged to the buffer, until the record has its result. Records that move to another
Kinesis record (a retry without ordered mode, another shard map) keep only their payloads, and are sealed again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from kinesis_sdk.common.aggregate_writer import SealedAggregate
from kinesis_sdk.common.codec import AggregateCodec
from kinesis_sdk.common.shards import ShardMap
from kinesis_sdk.producer.records.entry import Entry, Group
from kinesis_sdk.producer.stream.dispatch import NEVER, Returned

_LARGEST_BODY = 8 * 1024 * 1024
"""Maximum bytes of an aggregate before it is sealed: half of the readers' limit."""

_GROUP = 256 * 1024
"""Bytes (before sealing) that one thread seals in one task, because waking a thread for each 25 KB costs more than sealing them."""

_SMALLEST = 256
"""An aggregate with fewer bytes is sent plain, because the envelope of a sealed body would cost more than sealing saves."""

_WEIGHT = 1 / 8
_GROWTH = 4
_REMEMBERED = 16

_POOR = 0.95
_POOR_SEALS = 8
_FIRST_PAUSE = 16
_LONGEST_PAUSE = 4_096


class SizeEstimate:
    """Estimate of how small the aggregates of one stream become. Pure, not thread-safe.

    It is the weighted mean ratio of sealed to plain size, in which recent ratios count most, plus twice the mean deviation as a margin.
    Each aggregate is at most four times as large as the previous one; the first aggregates are filled as if sealing saved nothing.
    """

    __slots__ = ("_deviation", "_largest", "_pause", "_poor", "_ratio", "_skipped")

    def __init__(self) -> None:
        self._ratio = 1.0
        self._deviation = 0.0
        self._largest: deque[int] = deque(maxlen=_REMEMBERED)
        self._poor = 0
        self._pause = _FIRST_PAUSE
        self._skipped = 0

    @property
    def is_worth_it(self) -> bool:
        """Whether sealing makes aggregates of the stream smaller, according to the estimate."""
        return self._poor < _POOR_SEALS

    def inner_for(self, target: int) -> int:
        """Return the plain size at which to close the next aggregate, so that it has ``target`` bytes after sealing."""
        if not self._largest or not self.is_worth_it:
            return target
        inner = int(target / (self._ratio + 2 * self._deviation))
        return max(target, min(inner, _GROWTH * max(self._largest), _LARGEST_BODY))

    def wants_trial(self) -> bool:
        """Return whether to seal the next aggregate: always if sealing saves bytes, otherwise after 16, 32, ... 4,096 plain aggregates."""
        if self.is_worth_it:
            return True
        self._skipped += 1
        if self._skipped <= self._pause:
            return False
        self._skipped = 0
        return True

    def learn(self, inner: int, sealed: int) -> None:
        """Note the bytes of an aggregate before and after it was sealed."""
        ratio = sealed / inner
        error = ratio - self._ratio
        if not self._largest:
            self._ratio, self._deviation = ratio, ratio * _WEIGHT
        else:
            self._ratio += error * _WEIGHT
            self._deviation += (abs(error) - self._deviation) * _WEIGHT
        self._largest.append(inner)
        if ratio <= _POOR:
            self._poor, self._pause = 0, _FIRST_PAUSE
        elif self._poor < _POOR_SEALS:
            self._poor += 1
        else:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)


class SealTask:
    """One aggregate to seal. `run` may be called on any thread; all other access requires the producer's lock.

    ``result`` is the sealed form, None before `run` and after a failure; ``error`` is the failure.
    """

    __slots__ = ("_codec", "entry", "error", "result")

    def __init__(self, entry: Entry, codec: AggregateCodec) -> None:
        self._codec = codec
        self.entry: Entry = entry
        self.result: SealedAggregate | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        """Seal it. A closed aggregate does not change, even if its records are moved in the meantime."""
        try:
            self.result = self.entry.aggregate.seal_with(self._codec)
        except Exception as error:  # noqa: BLE001 - a codec is another package's code; the caller logs it
            self.error = error


class Sealing:
    """Dispatch policy that keeps an entry in its lane until it is sealed, or until it is decided that it is sent plain. Not thread-safe."""

    __slots__ = ("_codec", "_out", "_settled", "_waiting", "estimate")

    def __init__(self, codec: AggregateCodec) -> None:
        self._codec = codec
        self.estimate: SizeEstimate = SizeEstimate()
        self._waiting: dict[Entry, SealTask] = {}
        self._out: dict[Entry, SealTask] = {}

    def want(self, entry: Entry, limit: int) -> None:
        """Handle an entry that is added to its lane. An entry that returns to its lane is not changed."""
        if entry.chosen is not None or entry in self._waiting or entry in self._out:
            return
        size = entry.aggregate.size
        if size > limit or (size >= _SMALLEST and self.estimate.wants_trial()):
            self._waiting[entry] = SealTask(entry, self._codec)
        else:
            entry.chosen = entry.aggregate

    @property
    def has_waiting(self) -> bool:
        """Whether `take` has something to return."""
        return bool(self._waiting)

    def take(self) -> Sequence[Sequence[SealTask]]:
        """Return the tasks that were added since the last call, in groups for one thread each. Run each task, and pass it to `finish`."""
        taken, self._waiting = self._waiting, {}
        self._out.update(taken)
        groups: list[list[SealTask]] = []
        size = _GROUP
        for entry, task in taken.items():
            size += entry.aggregate.size
            if size > _GROUP:
                groups.append([])
                size = entry.aggregate.size
            groups[-1].append(task)
        return groups

    def finish(self, task: SealTask, limit: int) -> bool:
        """Note that a task has run, and let its entry leave. Return False if the entry is too large and must be divided."""
        entry, result = task.entry, task.result
        del self._out[entry]
        plain = entry.aggregate
        if result is not None:
            self.estimate.learn(plain.size, result.size)
        entry.chosen = chosen = plain if result is None or result.size >= plain.size else result
        return plain.count < 2 or chosen.size + len(plain.partition_key) <= limit

    # ------------------------------------------------------------------ dispatch policy

    def may_send(self, entry: Entry, now: float) -> float:
        """Return ``now`` once the form in which the entry is sent is known; infinity while the entry is being sealed."""
        return NEVER if entry in self._out or entry in self._waiting else now

    def on_sent(self, entry: Entry, now: float) -> None:
        """Do nothing, because the form in which the entry is sent is already chosen."""

    def on_returned(self, entry: Entry, how: Returned, landed_in: str | None) -> None:
        """Do nothing, because the entry keeps the form in which it was sent."""

    def on_shard_map(self, shard_map: ShardMap | None, in_flight: Collection[Entry]) -> None:
        """Do nothing: shards do not matter."""

    def forget(self, group: Group) -> None:
        """Do nothing: shards do not matter."""

    @property
    def outstanding(self) -> int:
        """Number of entries that are being sealed, or wait to be sealed."""
        return len(self._waiting) + len(self._out)
