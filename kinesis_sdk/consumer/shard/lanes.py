"""Lanes of one shard: its records in the order in which a call may get them, and how far they are finished.

```
offer ─► lane (one for the shard, or one per partition key) ─► ready ─► in a call ─► finished ─► the checkpointer's bound rises
                                                                 ▲          │
                                                                 └─ pause ◄─┘
```
A lane is a FIFO queue of sub-batches with at most one call in flight. A sub-batch is a batch, the part of it that has one
partition key, or what bisection left of it. One thread at a time uses a `Lanes`; other threads may read its attributes.
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
"""Bytes of one shard's records from the oldest unfinished one to the newest, payload and overhead, above which no record is
added (with ``concurrency``; otherwise a shard has one batch at a time). The KCL prefetches the same amount per shard."""

_LANE_OVERHEAD = 1024
"""Bytes that a partition key with records in delivery takes (measured, CPython 3.11)."""

_CHARGED_OVERHEAD = 512
"""Bytes that a record is charged in the worker's budget in addition to its payload, with ``concurrency``: a value between a
record whose key has many others and a record with a lane of its own. No batch is charged more than
`_MAX_OUTSTANDING_BYTES`."""

_MIN_TAKEN = 1024
"""Minimum records of a batch that are put into lanes together: room for a single one does not justify the work."""


@dataclass(slots=True)
class SubBatch:
    """Records that are delivered in one call, or in several one after the other.

    Attributes:
        records: The records in order.
        header: Header of the response that they came in.
        slots: Their slots in the watermark tracker; None with a single lane, which needs no tracker.
        begin: Index of the first record that no call has finished.
        failures: Calls in a row that got the same records and failed.
        failed_size: Number of these records; 0 if there was no such call.
        fixed_size: Number of records of the next call, if it is not for the lane's `BatchSize` to say; else 0.
        halved: Whether it is a part of a sub-batch that was bisected.
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
        """Number of records that no call has finished."""
        return len(self.records) - self.begin

    def part(self, begin: int, count: int) -> Sequence[UserRecord]:
        """Return records of it."""
        return part_of(self.records, begin, begin + count)

    def half(self, begin: int, count: int) -> SubBatch:
        """Return records of it as a sub-batch that is delivered in one call."""
        slots = None if self.slots is None else self.slots[begin : begin + count]
        return SubBatch(self.part(begin, count), self.header, slots, fixed_size=count, halved=True)

    def pass_over(self, count: int) -> None:
        """Continue behind some records, with no failures."""
        self.begin += count
        self.failures = self.failed_size = self.fixed_size = 0
        if self.slots is not None and 2 * self.begin >= len(self.records):
            # With several lanes, what is finished does not count as outstanding, so its memory must be free. Half at a time,
            # because each time copies the rest.
            self.trim()

    def trim(self) -> None:
        """Forget what is finished."""
        if self.begin and self.slots is not None:
            self.records, self.slots = self.records[self.begin :], self.slots[self.begin :]
            self.begin = 0


@dataclass(slots=True)
class _Incoming:
    """Rest of a batch that is put into lanes as they get room.

    Attributes:
        records: The records that were not taken yet.
        count: Number of these records.
        header: Header of the response that the batch came in.
        on_done: Called once all records of the batch are finished.
        since: Monotonic seconds at which the oldest record of the batch arrived at Kinesis; None if that is not known.
        end: See `Delivery.offer`.
        size_of_each: Bytes that each of the records taken last takes; 0 before the first.
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
    """FIFO queue of sub-batches with at most one call in flight.

    Attributes:
        key: Partition key of the records; None for the single lane of the shard.
        size: How many records its calls get.
        pending: The sub-batches in order; the first one may be in a call.
        busy: Whether a call is in flight.
    """

    key: str | None
    size: BatchSize
    pending: deque[SubBatch] = field(default_factory=deque)
    busy: bool = False


class Lanes:
    """Records of one shard that wait for a call of the handler or are in one.

    With a single lane, the handler may checkpoint up to the end of a call during the call. With several, each partition key has a
    lane of its own while it has records here, and only the low watermark of the shard may be checkpointed.

    Args:
        checkpointer: Its bound follows what is finished.
        parallel: Whether each partition key has a lane.
        limit: Maximum records of a call; None for no limit.
        size: How many records the calls of a single lane get.

    Attributes:
        ready: The lanes whose next call is due.
        waiting_since: Monotonic seconds at which the oldest record here arrived at Kinesis (with several lanes, the oldest
            record of the oldest response here); None if there is none, or if that is not known.
        last_arrival: Arrival, by the clock of Kinesis, of the last record up to which all records are finished; None if
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
        # oldest record. It is released once all smaller slots are finished (single lane: once the lane is empty).
        self._releases: deque[tuple[int, Callable[[], None], float | None]] = deque()
        # With a single lane: the dropped record that ends the batch in the lane.
        self._end: UserRecord | None = None
        # With several lanes: the rest of a batch that does not fit into them yet.
        self._incoming: _Incoming | None = None
        self.waiting_since: float | None = None
        self.last_arrival: datetime | None = None

    @property
    def is_empty(self) -> bool:
        """Whether everything that was offered is finished."""
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
        """Return whether a batch is to be offered: it has records, or the handler wants empty ones, too."""
        return bool(records) or (wants_empty and not self._parallel)

    def overhead_of(self, count: int) -> int:
        """Return the maximum bytes that this many user records of a batch take here in addition to their payload."""
        return min(count * _CHARGED_OVERHEAD, _MAX_OUTSTANDING_BYTES) if self._parallel else 0

    @property
    def takes_more(self) -> bool:
        """Whether `take_in` would put records of the offered batch into lanes."""
        return self._incoming is not None and self._has_room

    @property
    def is_pausing(self) -> bool:
        """Whether lanes pause and none is ready."""
        return bool(self._pausing) and not self.ready

    @property
    def pause_ends(self) -> float | None:
        """Monotonic seconds at which the first pause ends; None if no lane pauses."""
        return self._pausing[0][0] if self._pausing else None

    def offer(
        self,
        records: Sequence[UserRecord],
        header: ResponseHeader,
        on_done: Callable[[], None],
        *,
        end: UserRecord | None = None,
    ) -> None:
        """Accept the next records of the shard.

        Args:
            records: The records in order, after everything offered before; see `accepts`.
            header: Header of the response that they came in.
            on_done: Called once all of them are finished.
            end: A record behind them that was dropped: its position counts as delivered once they are finished.
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
        """Let the position of a dropped record count as delivered, once everything before it is finished.

        Args:
            end: The record, after everything that was offered before. Only while there is room for a batch.
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
        """Give a dropped record a slot that is finished, so that the watermark passes it when it may."""
        self._tracker.finish([self._tracker.extend([end])])

    def take_in(self) -> None:
        """Put as many records of the offered batch into lanes as there is room for."""
        while (incoming := self._incoming) is not None and self._has_room:
            room = _MAX_OUTSTANDING_BYTES - self._used
            fitting = int(room / incoming.size_of_each) if incoming.size_of_each else 0
            taken = list(itertools.islice(incoming.records, max(_MIN_TAKEN, fitting)))
            incoming.count -= len(taken)
            used = self._used
            self._distribute(taken, incoming.header)
            # Including their lanes, of which they may need a few in total or one each.
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
        """Drop everything that is not finished. Only while no call is running.

        Args:
            now: Monotonic seconds.

        Returns:
            Seconds until the next retry was due.
        """
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
        """Set `waiting_since`, which other threads read, because lanes and sub-batches belong to this thread."""
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
        """Let the next call of a lane wait."""
        heapq.heappush(self._pausing, (until, next(self._order), lane))

    def end_pauses(self, now: float) -> None:
        """Let the lanes go on whose pause is over."""
        while self._pausing and self._pausing[0][0] <= now:
            self.ready.append(heapq.heappop(self._pausing)[2])

    def retry_now(self) -> None:
        """Let the calls that wait for their next attempt begin with the next `advance`."""
        for _, _, lane in sorted(self._pausing, key=lambda pausing: pausing[:2]):
            self.ready.append(lane)
        self._pausing.clear()

    def finish(self, lane: Lane, count: int, last: UserRecord | None) -> None:
        """Note that the next records of a lane are finished; with a single lane, what the last one of them is."""
        sub_batch = lane.pending[0]
        if sub_batch.slots is not None:
            self._tracker.finish(sub_batch.slots[sub_batch.begin : sub_batch.begin + count])
            last = self._tracker.last_finished
        if last is not None:
            self.last_arrival = last.approximate_arrival_timestamp
        sub_batch.pass_over(count)

    def go_on(self, lane: Lane) -> bool:
        """Let a lane deliver what it has left, or end it; return whether it ended."""
        if not lane.pending[0].left:
            lane.pending.popleft()
        if lane.pending:
            self.ready.append(lane)
            return False
        del self._lanes[lane.key]
        if self._end is not None:
            # Not before all records are finished, and never earlier: nothing may pass a record that was not processed.
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
        """Let the position follow what is finished, and return the memory of batches that are."""
        if self._parallel:
            watermark = self._tracker.watermark
            if watermark is not None:
                self._checkpointer.advance(watermark)
        while self._releases and (
            self._releases[0][0] <= self._tracker.base if self._parallel else not self._lanes
        ):
            self._releases.popleft()[1]()
        self._note_waiting()
