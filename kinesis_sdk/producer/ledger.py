"""What the producer holds: how much, how much may be, and who waits for less. Pure; its owner calls it under a lock.

A record is charged from `put` to its final result: payload, key and a fixed overhead against ``max_buffered_bytes``,
one against ``max_buffered_records``. It also counts for the epoch in which it was put, until its callbacks have run; a
flush ends an epoch and waits until nothing of it, or of one before, is left.

Watchers are how an event loop waits without a thread: a function that is called once, when there may be room or when
a flush is through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from kinesis_sdk.common.errors import BufferFullError
from kinesis_sdk.producer.record import CallbackRun, PendingRecord


class Holding(Protocol):
    """User records that are charged together: those in a Kinesis record, or of a final result."""

    @property
    def records(self) -> Sequence[PendingRecord]:
        """The records."""
        ...

    @property
    def cost(self) -> int:
        """Bytes that they are charged for."""
        ...

    @property
    def epoch(self) -> int:
        """Which flush waits for them, but for those with an epoch of their own."""
        ...

    @property
    def mixed(self) -> bool:
        """Whether there may be some."""
        ...


Watcher: TypeAlias = Callable[[], None]
"""Called once, under the engine's lock: quick, never raising, never calling the engine."""


class Ledger:
    """The accounts above.

    Args:
        max_bytes: Bound on the bytes charged.
        max_records: Bound on the records; None for none.

    Attributes:
        bytes: Charged now.
        count: Records charged now.
        epoch: Of records that are put now.
        callbacks: Runs of callbacks that have not ended, of records that are not charged any more.
        room_watchers: Told by `tell_room`; a dict for its order.
    """

    __slots__ = (
        "_ended",
        "_flush_watchers",
        "bytes",
        "callbacks",
        "count",
        "epoch",
        "max_bytes",
        "max_records",
        "room_watchers",
    )

    def __init__(self, max_bytes: int, max_records: int | None) -> None:
        self.max_bytes = max_bytes
        self.max_records: float = float("inf") if max_records is None else max_records
        self.bytes = 0
        self.count = 0
        self.epoch = 0
        self.callbacks: dict[CallbackRun, None] = {}
        # Records of epochs that ended, only those that have some. All others belong to the one that is on.
        self._ended: Counter[int] = Counter()
        self.room_watchers: dict[Watcher, None] = {}
        self._flush_watchers: dict[Watcher, int] = {}

    def has_room(self, cost: int) -> bool:
        """Whether a record of that cost may be charged. One that is larger than the bound may pass alone."""
        return self.count == 0 or (self.bytes + cost <= self.max_bytes and self.count < self.max_records)

    def charge(self, cost: int) -> None:
        """Take a record of that cost into the accounts, for the epoch that is on."""
        self.bytes += cost
        self.count += 1

    def release(self, holding: Holding) -> None:
        """Take records out: they have their final result. Afterwards call `tell_room`."""
        self.bytes -= holding.cost
        self.count -= len(holding.records)
        ended = self._ended
        if not ended:
            return
        for epoch, count in _by_epoch(holding).items():
            if epoch in ended:
                left = ended[epoch] - count
                if left:
                    ended[epoch] = left
                else:
                    del ended[epoch]

    @property
    def outstanding(self) -> Mapping[int, int]:
        """Records charged now, by epoch; only epochs that have some."""
        counts = dict(self._ended)
        if current := self.count - sum(counts.values()):
            counts[self.epoch] = counts.get(self.epoch, 0) + current
        return counts

    def recount(self, holdings: Iterable[Holding]) -> None:
        """Make the accounts anew from the records that there are, after something was interrupted."""
        self.bytes = self.count = 0
        self._ended = Counter()
        for holding in holdings:
            self.bytes += holding.cost
            self.count += len(holding.records)
            for epoch, count in _by_epoch(holding).items():
                if epoch != self.epoch:
                    self._ended[epoch] += count

    def end_epoch(self) -> int:
        """What is put from now on belongs to another epoch; returns the one that ended."""
        ended = self.epoch
        if current := self.count - sum(self._ended.values()):
            self._ended[ended] += current
        self.epoch = ended + 1
        return ended

    def left(self, epoch: int) -> int:
        """Records of that epoch, and of those before, without a final result or with callbacks that have not run."""
        left = sum(count for e, count in self.outstanding.items() if e <= epoch)
        return left + sum(run.left for run in self.callbacks if run.epoch <= epoch)

    @property
    def open_callbacks(self) -> int:
        """Records with callbacks that have not run, although they have their final result."""
        return sum(run.left for run in self.callbacks)

    def watch_flush(self, epoch: int, watcher: Watcher) -> None:
        """Tell ``watcher`` when nothing is `left`; at once if nothing is now."""
        self._flush_watchers[watcher] = epoch
        self.tell_flushes()

    def tell_room(self) -> None:
        """There may be room, or there will be none any more: whoever waits looks again."""
        watchers, self.room_watchers = self.room_watchers, {}
        for watcher in watchers:
            watcher()

    def tell_flushes(self) -> None:
        """Tell those whose flush is through."""
        for watcher in [w for w, epoch in self._flush_watchers.items() if not self.left(epoch)]:
            del self._flush_watchers[watcher]
            watcher()

    def forget(self, watcher: Watcher | None = None) -> None:
        """Do not call it any more; None means all of them."""
        if watcher is None:
            self.room_watchers.clear()
            self._flush_watchers.clear()
        else:
            self.room_watchers.pop(watcher, None)
            self._flush_watchers.pop(watcher, None)

    def full(self, waited: float | None) -> BufferFullError:
        """The error that says that there is no room, and why.

        Args:
            waited: Seconds that somebody waited for some.
        """
        time = f" for {waited:g} s" if waited else ""
        bounds = f"max_buffered_bytes={self.max_bytes:,}"
        if self.max_records != float("inf"):
            bounds += f", max_buffered_records={self.max_records:,}"
        return BufferFullError(
            f"{self.bytes:,} bytes in {self.count:,} records are buffered{time}; the bound is {bounds}"
        )


def callback_runs(records: Sequence[PendingRecord], holding: Holding) -> Iterable[CallbackRun]:
    """The callbacks of records, by epoch.

    Args:
        records: Records that have some.
        holding: What they were charged with.
    """
    if not holding.mixed:
        return (CallbackRun(records, holding.epoch),)
    by_epoch: dict[int, list[PendingRecord]] = {}
    for record in records:
        by_epoch.setdefault(_epoch_of(record, holding), []).append(record)
    return [CallbackRun(part, epoch) for epoch, part in by_epoch.items()]


def _by_epoch(holding: Holding) -> Mapping[int, int]:
    """How many of the records belong to each epoch."""
    if not holding.mixed:
        return {holding.epoch: len(holding.records)}
    return Counter(_epoch_of(record, holding) for record in holding.records)


def _epoch_of(record: PendingRecord, holding: Holding) -> int:
    return holding.epoch if record.own_epoch is None else record.own_epoch
