"""Lanes of one shard: the order in which calls get its records, and the records that are finished.

```
offer ─► lane (one for the shard, or one per partition key) ─► ready ─► in a call ─► finished ─► the checkpointer's bound rises
                                                                 ▲          │
                                                                 └─ pause ◄─┘
```
A lane is a FIFO queue of sub-batches with at most one call in flight. A sub-batch is a batch, its records with one partition key,
or a part that bisection made. One thread at a time uses a `Lanes`; other threads may read its attributes.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kinesis_sdk.common.records import UserRecord, position_of
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.user_records import part_of
from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.shard.batch_size import BatchSize
from kinesis_sdk.consumer.shard.watermark import WatermarkTracker

_MAX_OUTSTANDING_BYTES = 8 * 1024 * 1024
"""With ``concurrency``, no record is added while a shard's records, from the oldest unfinished record to the newest, take more bytes than
this (payload and overhead). Without ``concurrency``, a shard has one batch at a time. The KCL prefetches the same amount per shard."""

_LANE_OVERHEAD = 1024
"""Bytes that a lane of one partition key takes (measured, CPython 3.11)."""

_CHARGED_OVERHEAD = 512
"""Bytes that a record is charged in the worker's budget in addition to its payload, with ``concurrency``: between the cost of a record
that shares its lane with many others and the cost of a record with a lane of its own. A batch is charged at most
`_MAX_OUTSTANDING_BYTES`."""

_MIN_TAKEN = 1024
"""Minimum records of a batch that are put into lanes together. Fewer records are not worth the overhead."""


@dataclass(slots=True)
class SubBatch:
    """Records that are delivered in one call, or in several consecutive calls.

    Attributes:
        slots: Slots of the records in the watermark tracker; None with a single lane, which needs no tracker.
        begin: Index of the first unfinished record.
        failures: Consecutive failed calls that got the same records.
        failed_size: Number of these records; 0 if there was no such call.
        fixed_size: Number of records of the next call; with 0, the lane's `BatchSize` decides.
        halved: Whether bisection made the sub-batch.
    """

    records: Sequence[UserRecord]
    header: ResponseHeader
    slots: list[int] | None = None
    begin: int = 0
    failures: int = 0
    failed_size: int = 0
    fixed_size: int = 0
    halved: bool = False

    @property
    def left(self) -> int:
        """Number of unfinished records."""
        return len(self.records) - self.begin

    def part(self, begin: int, count: int) -> Sequence[UserRecord]:
        """Return some of its records."""
        return part_of(self.records, begin, begin + count)

    def half(self, begin: int, count: int) -> SubBatch:
        """Return some of its records as a sub-batch that is delivered in one call."""
        slots = None if self.slots is None else self.slots[begin : begin + count]
        return SubBatch(self.part(begin, count), self.header, slots, fixed_size=count, halved=True)

    def pass_over(self, count: int) -> None:
        """Skip finished records and reset the failures."""
        self.begin += count
        self.failures = self.failed_size = self.fixed_size = 0
        if self.slots is not None and 2 * self.begin >= len(self.records):
            # With several lanes, finished records do not count as outstanding, so free their memory. Do it once half of them are
            # finished, because each time copies the rest.
            self.trim()

    def trim(self) -> None:
        """Drop the finished records."""
        if self.begin and self.slots is not None:
            self.records, self.slots = self.records[self.begin :], self.slots[self.begin :]
            self.begin = 0


@dataclass(slots=True)
class _Incoming:
    """The rest of a batch, which is put into lanes when they have room.

    Attributes:
        on_done: Called once all records of the batch are finished.
        since: Monotonic time at which the oldest record of the batch arrived at Kinesis; None if unknown.
        end: See `Lanes.offer`.
        size_of_each: Average bytes of the records taken last; 0 before the first.
    """

    records: Iterator[UserRecord]
    count: int
    header: ResponseHeader
    on_done: Callable[[], None]
    since: float | None
    end: UserRecord | None = None
    size_of_each: float = 0.0


@dataclass(slots=True)
class Lane:
    """FIFO queue of sub-batches with at most one call in flight: `busy`, for the first sub-batch.

    `key` is the partition key of the records, or None for the single lane of the shard.
    """

    key: str | None
    size: BatchSize
    pending: deque[SubBatch] = field(default_factory=deque)
    busy: bool = False


class Lanes:
    """Records of one shard that wait for a call of the handler or are in one. `Delivery` decides which positions may be checkpointed.

    Args:
        checkpointer: Its bound follows the finished records.
        parallel: Whether each partition key has a lane.
        limit: Maximum records of a call; None for no limit.
        size: Number of records that the calls of a single lane get.

    Attributes:
        ready: The lanes whose next call is due.
        waiting_since: Monotonic time at which the oldest record here arrived at Kinesis (with several lanes, the oldest record
            of the oldest response here); None if there is none or it is unknown.
        last_arrival: Arrival time, by the clock of Kinesis, of the last record up to which all records are finished; None if
            there is none, or if Kinesis reports none.
    """

    def __init__(
        self, checkpointer: Checkpointer, *, parallel: bool, limit: int | None, size: BatchSize
    ) -> None:
        self._checkpointer = checkpointer
        self._parallel = parallel
        self._limit = limit
        self._size = size
        self._tracker = WatermarkTracker()
        self._lanes: dict[str | None, Lane] = {}
        self.ready: deque[Lane] = deque()
        self._pausing: list[tuple[float, int, Lane]] = []
        self._order = itertools.count()
        # One entry per batch: the slot after its last record (0 with a single lane), its `on_done`, and the arrival of its
        # oldest record. The batch is released once all smaller slots are finished, or with a single lane, once the lane
        # is empty.
        self._releases: deque[tuple[int, Callable[[], None], float | None]] = deque()
        # With a single lane, the dropped record that ends the lane's batch.
        self._end: UserRecord | None = None
        # With several lanes, the rest of a batch that does not fit into them yet.
        self._incoming: _Incoming | None = None
        self.waiting_since: float | None = None
        self.last_arrival: datetime | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all offered records are finished."""
        return not self._lanes and self._incoming is None

    @property
    def has_room(self) -> bool:
        """Whether another batch may be offered."""
        if not self._parallel:
            return not self._lanes
        return self._incoming is None and self._has_room

    @property
    def _has_room(self) -> bool:
        """Whether the lanes have room for more records."""
        return self._used < _MAX_OUTSTANDING_BYTES

    @property
    def _used(self) -> int:
        return self._tracker.outstanding_bytes + len(self._lanes) * _LANE_OVERHEAD

    def accepts(self, records: Sequence[UserRecord], *, wants_empty: bool) -> bool:
        """Return whether to offer a batch: it has records, or the handler wants empty batches as well."""
        return bool(records) or (wants_empty and not self._parallel)

    def overhead_of(self, count: int) -> int:
        """Return the maximum bytes that this many user records take here in addition to their payload."""
        return min(count * _CHARGED_OVERHEAD, _MAX_OUTSTANDING_BYTES) if self._parallel else 0

    @property
    def takes_more(self) -> bool:
        """Whether the offered batch has records left and the lanes have room for them."""
        return self._incoming is not None and self._has_room

    @property
    def is_pausing(self) -> bool:
        """Whether some lanes pause and no lane is ready."""
        return bool(self._pausing) and not self.ready

    @property
    def pause_ends(self) -> float | None:
        """Monotonic time at which the first pause ends; None if no lane pauses."""
        return self._pausing[0][0] if self._pausing else None

    def offer(
        self,
        records: Sequence[UserRecord],
        header: ResponseHeader,
        on_done: Callable[[], None],
        *,
        end: UserRecord | None = None,
    ) -> None:
        """Accept the next records of the shard, see `accepts`. `on_done` is called once all of them are finished.

        ``end`` is a dropped record after these records. The position of ``end`` counts as delivered once these records are finished.
        """
        first = records[0] if records else end
        if first is not None:
            self._checkpointer.begin_at(position_of(first))
        if not self._parallel:
            sub_batch = SubBatch(records, header)
            whole = self._lanes[None] = Lane(None, self._size, deque([sub_batch]))
            self._releases.append((0, on_done, None))
            self._end = end
            self.ready.append(whole)
            self._note_waiting()
            return
        since = None if header.arrivals is None else header.arrivals.of(records[0])
        self._incoming = _Incoming(iter(records), len(records), header, on_done, since, end)
        self.take_in()
        self._note_waiting()

    def skip(self, end: UserRecord) -> None:
        """Count the position of the next record, which was dropped, as delivered once all records before it are finished.

        Call this only while there is room for a batch.
        """
        self._checkpointer.begin_at(position_of(end))
        if not self._parallel:
            self._checkpointer.advance(position_of(end))
            self.last_arrival = end.approximate_arrival_timestamp
            return
        self._finish_slot_of(end)
        watermark = self._tracker.watermark
        if watermark is not None:
            self._checkpointer.advance(watermark)

    def _finish_slot_of(self, end: UserRecord) -> None:
        """Give a dropped record a finished slot, so that the watermark can pass it."""
        self._tracker.finish([self._tracker.extend([end])])

    def take_in(self) -> None:
        """Put records of the offered batch into lanes while they have room."""
        while (incoming := self._incoming) is not None and self._has_room:
            room = _MAX_OUTSTANDING_BYTES - self._used
            fitting = int(room / incoming.size_of_each) if incoming.size_of_each else 0
            taken = list(itertools.islice(incoming.records, max(_MIN_TAKEN, fitting)))
            incoming.count -= len(taken)
            used = self._used
            self._distribute(taken, incoming.header)
            # This includes new lanes: the records may share a few lanes, or need a lane each.
            incoming.size_of_each = (self._used - used) / len(taken)
            if not incoming.count:
                self._incoming = None
                if incoming.end is not None:
                    self._finish_slot_of(incoming.end)
                self._releases.append((self._tracker.next_slot, incoming.on_done, incoming.since))

    def _distribute(self, records: list[UserRecord], header: ResponseHeader) -> None:
        by_key: dict[str, tuple[list[UserRecord], list[int]]] = {}
        for slot, record in enumerate(records, self._tracker.extend(records)):
            key = record[1]  # the partition key; by index because this is paid per user record
            group = by_key.get(key)
            if group is None:
                group = by_key[key] = ([], [])
            group[0].append(record)
            group[1].append(slot)
        for key, (of_key, slots) in by_key.items():
            self._add(key, of_key, slots, header)

    def _add(self, key: str, records: list[UserRecord], slots: list[int], header: ResponseHeader) -> None:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key, BatchSize(self._limit))
            self.ready.append(lane)
        last = lane.pending[-1] if lane.pending else None
        in_call = lane.busy and len(lane.pending) == 1
        if last is None or last.slots is None or last.failures or last.halved or in_call:
            lane.pending.append(SubBatch(records, header, slots))
        else:
            last.trim()
            last.records = [*last.records, *records]
            last.slots += slots
            last.header = header

    def forget(self, now: float) -> float:
        """Drop all unfinished records and return the seconds until the next retry was due. Only while no call is running."""
        pause = max(0.0, self._pausing[0][0] - now) if self._pausing else 0.0
        self._lanes.clear()
        self.ready.clear()
        self._pausing.clear()
        self._tracker = WatermarkTracker()
        self._end = None
        incoming, self._incoming = self._incoming, None
        while self._releases:
            self._releases.popleft()[1]()
        if incoming is not None:
            incoming.on_done()
        self._note_waiting()
        return pause

    def _note_waiting(self) -> None:
        """Set `waiting_since` for other threads, which must not read lanes and sub-batches."""
        if self._parallel:
            incoming = self._incoming.since if self._incoming is not None else None
            self.waiting_since = self._releases[0][2] if self._releases else incoming
            return
        lane = self._lanes.get(None)
        sub_batch = lane.pending[0] if lane is not None else None
        arrivals = sub_batch.header.arrivals if sub_batch is not None else None
        if sub_batch is None or arrivals is None or not sub_batch.left:
            self.waiting_since = None
        else:
            self.waiting_since = arrivals.of(sub_batch.records[sub_batch.begin])

    def pause(self, lane: Lane, until: float) -> None:
        """Delay the next call of a lane."""
        heapq.heappush(self._pausing, (until, next(self._order), lane))

    def end_pauses(self, now: float) -> None:
        """Make the lanes ready whose pause is over."""
        while self._pausing and self._pausing[0][0] <= now:
            self.ready.append(heapq.heappop(self._pausing)[2])

    def retry_now(self) -> None:
        """End all pauses: the next `Delivery.advance` retries."""
        for _, _, lane in sorted(self._pausing, key=lambda pausing: pausing[:2]):
            self.ready.append(lane)
        self._pausing.clear()

    def finish(self, lane: Lane, count: int, last: UserRecord | None) -> None:
        """Mark the next ``count`` records of a lane as finished. ``last`` is the last of these if there is a single lane."""
        sub_batch = lane.pending[0]
        if sub_batch.slots is not None:
            self._tracker.finish(sub_batch.slots[sub_batch.begin : sub_batch.begin + count])
            last = self._tracker.last_finished
        if last is not None:
            self.last_arrival = last.approximate_arrival_timestamp
        sub_batch.pass_over(count)

    def go_on(self, lane: Lane) -> bool:
        """Make a lane ready for its remaining records, or remove it if it has none; return whether it was removed."""
        if not lane.pending[0].left:
            lane.pending.popleft()
        if lane.pending:
            self.ready.append(lane)
            return False
        del self._lanes[lane.key]
        if self._end is not None:
            # Only now: no checkpoint may pass a record that was not processed.
            self._checkpointer.advance(position_of(self._end))
            self.last_arrival = self._end.approximate_arrival_timestamp
            self._end = None
        return True

    def halve(self, lane: Lane, count: int) -> None:
        """Deliver the next records of a lane in two calls."""
        sub_batch = lane.pending[0]
        begin, middle = sub_batch.begin, count // 2
        halves = sub_batch.half(begin, middle), sub_batch.half(begin + middle, count - middle)
        sub_batch.pass_over(count)
        if not sub_batch.left:
            lane.pending.popleft()
        lane.pending.extendleft(reversed(halves))
        self.ready.append(lane)

    def note_finished(self) -> None:
        """Advance the checkpointer's bound to the finished records, and release the memory of finished batches."""
        if self._parallel:
            watermark = self._tracker.watermark
            if watermark is not None:
                self._checkpointer.advance(watermark)
        while self._releases and (
            self._releases[0][0] <= self._tracker.base if self._parallel else not self._lanes
        ):
            self._releases.popleft()[1]()
        self._note_waiting()
