"""Accounting of the producer's buffer: bytes, records and flush epochs.

A record is charged from `put` until its final result: payload, key and a fixed overhead against ``max_buffered_bytes``, one record
against ``max_buffered_records``. The sealed form of a Kinesis record is charged as soon as it exists. It may make the next `put` wait, but
it is never rejected itself, because it is smaller than its records and allows them to be sent. A record also counts for the flush
epoch in which it was put, until its callbacks have run. A flush ends the current epoch and waits until no record of this epoch or an
earlier one is left.

Listeners let an event loop wait without a thread: each is called once, when there may be room or when a flush completes. Pure and not
thread-safe; the producer's lock protects it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from kinesis_sdk.common.errors import BufferFullError
from kinesis_sdk.producer.records.record import BufferedRecord, CallbackRun


class Charged(Protocol):
    """User records that are charged together: all records in a Kinesis record, or in a final result."""

    @property
    def records(self) -> Sequence[BufferedRecord]:
        """The records."""
        ...

    @property
    def cost(self) -> int:
        """Bytes that are charged for the records."""
        ...

    @property
    def epoch(self) -> int:
        """Flush epoch of the records without an epoch of their own."""
        ...

    @property
    def mixed(self) -> bool:
        """True if some of the records may have their own flush epoch."""
        ...


Listener: TypeAlias = Callable[[], None]
"""Called once, under the producer's lock. Must be quick, must not raise, and must not call the producer."""


class BufferUsage:
    """Counts of the buffered bytes and records, and the listeners that wait for room.

    Attributes:
        bytes: Bytes charged now.
        count: Records charged now.
        epoch: Flush epoch of records that are put now.
        callbacks: Runs of callbacks that have not ended. Their records are no longer charged.
        room_listeners: Called by `notify_room`; a dict, because it keeps the order.
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
        self.max_bytes: int = max_bytes
        self.max_records: float = float("inf") if max_records is None else max_records
        self.bytes: int = 0
        self.count: int = 0
        self.epoch: int = 0
        self.callbacks: dict[CallbackRun, None] = {}
        # Records of ended epochs, without the epochs that have none. All other records belong to the current epoch.
        self._ended: Counter[int] = Counter()
        self.room_listeners: dict[Listener, None] = {}
        self._flush_listeners: dict[Listener, int] = {}

    def has_room(self, cost: int) -> bool:
        """Return whether a record with that cost fits. A record larger than the bound fits if the buffer is empty."""
        return self.count == 0 or (self.bytes + cost <= self.max_bytes and self.count < self.max_records)

    def charge(self, cost: int) -> None:
        """Charge a record to the current epoch."""
        self.bytes += cost
        self.count += 1

    def release(self, charged: Charged) -> None:
        """Release records that have their final result. Afterwards call `notify_room`."""
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
        """Number of records that are charged now, by epoch; epochs without records are missing."""
        counts = dict(self._ended)
        if current := self.count - sum(counts.values()):
            counts[self.epoch] = counts.get(self.epoch, 0) + current
        return counts

    def clear(self) -> None:
        """Drop all charges and all listeners, because the records belong to the parent of this forked process."""
        self.bytes = self.count = 0
        self._ended = Counter()
        self.callbacks.clear()
        self.forget()

    def end_epoch(self) -> int:
        """Begin a new epoch, and return the epoch that ended."""
        ended = self.epoch
        if current := self.count - sum(self._ended.values()):
            self._ended[ended] += current
        self.epoch = ended + 1
        return ended

    def left(self, epoch: int) -> int:
        """Return the number of records up to that epoch that have no final result, or callbacks that have not run."""
        left = sum(count for e, count in self.outstanding.items() if e <= epoch)
        return left + sum(run.left for run in self.callbacks if run.epoch <= epoch)

    @property
    def open_callbacks(self) -> int:
        """Number of records with a final result whose callbacks have not returned."""
        return sum(run.left for run in self.callbacks)

    def add_flush_listener(self, epoch: int, listener: Listener) -> None:
        """Call ``listener`` when no record of an epoch is `left`, immediately if none is left now."""
        self._flush_listeners[listener] = epoch
        self.notify_flushes()

    def notify_room(self) -> None:
        """Call all room listeners: room may be available, or the producer is closing."""
        listeners, self.room_listeners = self.room_listeners, {}
        for listener in listeners:
            listener()

    def notify_flushes(self) -> None:
        """Call the listeners of flushes that are complete."""
        for listener in [w for w, epoch in self._flush_listeners.items() if not self.left(epoch)]:
            del self._flush_listeners[listener]
            listener()

    def forget(self, listener: Listener | None = None) -> None:
        """Remove a listener; None removes all of them."""
        if listener is None:
            self.room_listeners.clear()
            self._flush_listeners.clear()
        else:
            self.room_listeners.pop(listener, None)
            self._flush_listeners.pop(listener, None)

    def full(self, waited: float | None) -> BufferFullError:
        """Return the error for a full buffer; ``waited`` is the number of seconds that the caller waited, None or 0 if it did not wait."""
        time = f" for {waited:g} s" if waited else ""
        bounds = f"max_buffered_bytes={self.max_bytes:,}"
        if self.max_records != float("inf"):
            bounds += f", max_buffered_records={self.max_records:,}"
        return BufferFullError(
            f"{self.bytes:,} bytes in {self.count:,} records are buffered{time}; the bound is {bounds}"
        )


def callback_runs(records: Sequence[BufferedRecord], charged: Charged) -> Iterable[CallbackRun]:
    """Return the callbacks of records, by flush epoch."""
    if not charged.mixed:
        return (CallbackRun(records, charged.epoch),)
    by_epoch: dict[int, list[BufferedRecord]] = {}
    for record in records:
        by_epoch.setdefault(record._epoch_in(charged.epoch), []).append(record)
    return [CallbackRun(part, epoch) for epoch, part in by_epoch.items()]


def _by_epoch(charged: Charged) -> Mapping[int, int]:
    """Return the number of records of each epoch."""
    if not charged.mixed:
        return {charged.epoch: len(charged.records)}
    return Counter(record._epoch_in(charged.epoch) for record in charged.records)
