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


class Charged(Protocol):
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


Listener: TypeAlias = Callable[[], None]
"""Called once, under the engine's lock: quick, never raising, never calling the engine."""


class BufferUsage:
    """The accounts above.

    Args:
        max_bytes: Bound on the bytes charged.
        max_records: Bound on the records; None for none.

    Attributes:
        bytes: Charged now.
        count: Records charged now.
        epoch: Of records that are put now.
        callbacks: Runs of callbacks that have not ended, of records that are not charged any more.
        room_listeners: Told by `notify_room`; a dict for its order.
    """

    __slots__ = (
        "_ended",
        "_flush_listeners",
        "bytes",
        "callbacks",
        "count",
        "epoch",
        "max_bytes",
        "max_records",
        "room_listeners",
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
        self.room_listeners: dict[Listener, None] = {}
        self._flush_listeners: dict[Listener, int] = {}

    def has_room(self, cost: int) -> bool:
        """Whether a record of that cost may be charged. One that is larger than the bound may pass alone."""
        return self.count == 0 or (self.bytes + cost <= self.max_bytes and self.count < self.max_records)

    def charge(self, cost: int) -> None:
        """Take a record of that cost into the accounts, for the epoch that is on."""
        self.bytes += cost
        self.count += 1

    def release(self, charged: Charged) -> None:
        """Take records out: they have their final result. Afterwards call `notify_room`."""
        self.bytes -= charged.cost
        self.count -= len(charged.records)
        ended = self._ended
        if not ended:
            return
        for epoch, count in _by_epoch(charged).items():
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

    def clear(self) -> None:
        """Forget everything that is charged, and all listeners: in a forked child, the records are the parent's."""
        self.bytes = self.count = 0
        self._ended = Counter()
        self.callbacks.clear()
        self.forget()

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

    def add_flush_listener(self, epoch: int, listener: Listener) -> None:
        """Tell ``listener`` when nothing is `left`; at once if nothing is now."""
        self._flush_listeners[listener] = epoch
        self.notify_flushes()

    def notify_room(self) -> None:
        """There may be room, or there will be none any more: whoever waits looks again."""
        listeners, self.room_listeners = self.room_listeners, {}
        for listener in listeners:
            listener()

    def notify_flushes(self) -> None:
        """Tell those whose flush is through."""
        for listener in [w for w, epoch in self._flush_listeners.items() if not self.left(epoch)]:
            del self._flush_listeners[listener]
            listener()

    def forget(self, listener: Listener | None = None) -> None:
        """Do not call it any more; None means all of them."""
        if listener is None:
            self.room_listeners.clear()
            self._flush_listeners.clear()
        else:
            self.room_listeners.pop(listener, None)
            self._flush_listeners.pop(listener, None)

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


def callback_runs(records: Sequence[PendingRecord], charged: Charged) -> Iterable[CallbackRun]:
    """The callbacks of records, by epoch.

    Args:
        records: Records that have some.
        charged: What they were charged with.
    """
    if not charged.mixed:
        return (CallbackRun(records, charged.epoch),)
    by_epoch: dict[int, list[PendingRecord]] = {}
    for record in records:
        by_epoch.setdefault(_epoch_of(record, charged), []).append(record)
    return [CallbackRun(part, epoch) for epoch, part in by_epoch.items()]


def _by_epoch(charged: Charged) -> Mapping[int, int]:
    """How many of the records belong to each epoch."""
    if not charged.mixed:
        return {charged.epoch: len(charged.records)}
    return Counter(_epoch_of(record, charged) for record in charged.records)


def _epoch_of(record: PendingRecord, charged: Charged) -> int:
    return charged.epoch if record.own_epoch is None else record.own_epoch
