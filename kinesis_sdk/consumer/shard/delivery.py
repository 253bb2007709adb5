"""Delivery of the records of one shard to its handler: one batch at a time, or partition keys concurrently.

```
offer ─► lane (one for the shard, or one per partition key) ─► call ─► finished ─► the checkpointer's bound rises
             ▲                                                  │
             └── retry after a backoff, or halved ◄── policy ◄── failed ──► dead-letter hook, or the worker stops
```
A lane is a FIFO queue of sub-batches with at most one call in flight. A sub-batch is a batch, the part of it that has one
partition key, or what bisection left of it. A call of ``process_records`` gets the beginning of a sub-batch, as much as
`BatchSize` allows; the next call gets what follows.

One thread at a time uses a `Delivery` (the shard's step). Calls may end on other threads: these only record the outcome and
wake the step. This module starts no threads and reads no clock except the one that it was given.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import logging
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.error_policy import (
    DEFAULT_PAUSES,
    DeadLetterHook,
    Decision,
    Failure,
    Halve,
    PoisonRecord,
    Retry,
    SetAside,
    Stop,
    pause_of,
)
from kinesis_sdk.common.errors import HandlerError, RestartShardError, SinkError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.metrics import BoundMetrics
from kinesis_sdk.common.records import UserRecord, position_of
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.user_records import part_of, payload_bytes
from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.handler import RecordBatch, RecordHandler
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.consumer.leases.table.progress import MAX_ERROR
from kinesis_sdk.consumer.shard.batch_size import BatchSize
from kinesis_sdk.consumer.shard.handler_requests import HandlerRequests
from kinesis_sdk.consumer.shard.runtime import ShardRuntime
from kinesis_sdk.consumer.shard.watermark import WatermarkTracker

_LOGGER = FieldLogger(logging.getLogger(__name__))

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


_LONGEST_STEP = 0.01
"""Seconds after which a step begins no further call of a single lane. A step in between costs 30 µs, so short calls follow each other
without one; a request to stop waits for this and one call at most."""


@dataclass(slots=True)
class _SubBatch:
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

    def half(self, begin: int, count: int) -> _SubBatch:
        """Return records of it as a sub-batch that is delivered in one call."""
        slots = None if self.slots is None else self.slots[begin : begin + count]
        return _SubBatch(self.part(begin, count), self.header, slots, fixed_size=count, halved=True)

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
class _Lane:
    """FIFO queue of sub-batches with at most one call in flight.

    Attributes:
        key: Partition key of the records; None for the single lane of the shard.
        size: How many records its calls get.
        pending: The sub-batches in order; the first one may be in a call.
        busy: Whether a call is in flight.
    """

    key: str | None
    size: BatchSize
    pending: deque[_SubBatch] = field(default_factory=deque)
    busy: bool = False


@dataclass(frozen=True, slots=True)
class FailingCalls:
    """Calls of a handler that failed in a row: of one lane, or of a callback that gets no records.

    Attributes:
        attempts: Calls that failed since the last one that succeeded.
        since: Monotonic seconds at which the first of them failed.
        retry_at: Monotonic seconds of the next call.
        records: Number of records that the last of them got and did not checkpoint.
        position: Position of the first of these records; None if there are none.
        error: Class and text of the last error.
        cause: The last error itself.
    """

    attempts: int
    since: float
    retry_at: float
    records: int
    position: ExtendedSequenceNumber | None
    error: str
    cause: BaseException | None = None


class _Call:
    """One call of ``process_records`` with its outcome.

    Attributes:
        lane: Lane of the sub-batch.
        sub_batch: The sub-batch whose beginning the call gets.
        count: Number of records that it gets.
        records: These records.
        last: The last one of them; None if there is none, or with several lanes.
        started_at: Monotonic seconds of its start.
        finished_at: Monotonic seconds of its end.
        bound_before: The checkpointer's bound before the call, with a single lane.
        raised_bound: Whether the call raised the checkpointer's bound.
        error: Error of the handler; None if there was none.
        done: Whether it has ended.
        detached: Whether it may end on another thread, which then has to wake the step.
    """

    __slots__ = (
        "_on_ended",
        "bound_before",
        "count",
        "detached",
        "done",
        "error",
        "finished_at",
        "lane",
        "last",
        "raised_bound",
        "records",
        "started_at",
        "sub_batch",
    )

    def __init__(
        self,
        lane: _Lane,
        sub_batch: _SubBatch,
        records: Sequence[UserRecord],
        started_at: float,
        on_ended: Callable[[], None],
    ) -> None:
        self.lane = lane
        self.sub_batch = sub_batch
        self.records = records
        self.count = len(records)
        self.last: UserRecord | None = None
        self.started_at = started_at
        self.finished_at = started_at
        self.raised_bound = False
        self.bound_before: ExtendedSequenceNumber | None = None
        self.error: BaseException | None = None
        self.done = False
        self.detached = False
        self._on_ended = on_ended

    def finish(self, error: BaseException | None, now: float) -> None:
        """Record the outcome. From any thread; only the first call counts."""
        if self.done:
            return
        # `done` last: the step reads the other two on its own thread as soon as it sees `done`.
        self.error = error
        self.finished_at = now
        self.done = True
        if self.detached:
            self._on_ended()


class Delivery:
    """Records of one shard that are in calls of the handler or wait for one.

    With a ``concurrency`` of 1 there is one lane, and the handler may checkpoint up to the end of a call during the call. With
    more, each partition key has a lane of its own while it has records here, a call gets records of one lane, and only the low
    watermark of the shard may be checkpointed.

    Args:
        runtime: What shard consumers share.
        held: The lease. Errors after its loss are ignored, because the next owner processes the records.
        handler: The user's handler.
        checkpointer: Its bound follows what was delivered.
        metrics: Metrics of the shard.
        requests: Tells the record that an operator wants left out.
        on_call_ended: Called from any thread when a call has ended that was still running when `advance` returned.
        size: That of the delivery before a restart of the shard; None before the first.

    Attributes:
        size: How many records the calls of a single lane get.
        records_delivered: User records that are finished, including dead-lettered ones.
        may_reread: Whether the newest pause allows to drop the records, and to read them again later.
        records_dead_lettered: User records that the dead-letter hook accepted.
        failures: Consecutive failures; 0 if the last call succeeded.
        last_error: Last error of the handler; None once a call succeeded after it.
        failing: The calls that have failed for longest; None if the last call of each lane succeeded.
        progress_at: Monotonic seconds at which a call last succeeded.
        last_arrival: Arrival, by the clock of Kinesis, of the last record up to which all records are finished; None if
            there is none, or if Kinesis reports none.
        waiting_since: Monotonic seconds at which the oldest record here arrived at Kinesis (with several lanes, the oldest
            record of the oldest response here); None if there is none, or if that is not known.
    """

    def __init__(
        self,
        runtime: ShardRuntime,
        *,
        held: HeldLease,
        handler: RecordHandler,
        checkpointer: Checkpointer,
        metrics: BoundMetrics,
        requests: HandlerRequests,
        on_call_ended: Callable[[], None],
        size: BatchSize | None = None,
    ) -> None:
        self._logger = runtime.log(_LOGGER, held.shard_id)
        self._runtime = runtime
        self._held = held
        self._handler = handler
        self._checkpointer = checkpointer
        self._metrics = metrics
        self._requests = requests
        self._on_call_ended = on_call_ended
        self._policy = runtime.config.error_policy
        self._concurrency = handler.concurrency or runtime.config.concurrency
        self._parallel = self._concurrency > 1
        limits = [runtime.config.batch_records, None if runtime.sink is None else runtime.sink.max_records]
        self._limit = min((limit for limit in limits if limit is not None), default=None)
        # With a single lane, it outlives the batches: the next batch of a handler that fails begins with a small call.
        self.size: BatchSize = size or BatchSize(self._limit)
        self._tracker = WatermarkTracker()
        self._lanes: dict[str | None, _Lane] = {}
        self._ready: deque[_Lane] = deque()
        self._pausing: list[tuple[float, int, _Lane]] = []
        self._order = itertools.count()
        self._calls: list[_Call] = []
        # One entry per batch: the slot after its last record (0 with a single lane), its `on_done`, and the arrival of its
        # oldest record. It is released once all smaller slots are finished (single lane: once the lane is empty).
        self._releases: deque[tuple[int, Callable[[], None], float | None]] = deque()
        # With a single lane: the dropped record that ends the batch in the lane.
        self._end: UserRecord | None = None
        # With several lanes: the rest of a batch that does not fit into them yet.
        self._incoming: _Incoming | None = None
        self._is_stopping_worker = False
        self.may_reread: bool = False
        # By key of the lane, in the order in which they began to fail. Other threads read `failing` and never the dict, which may
        # change at the same time.
        self._failing: dict[str | None, FailingCalls] = {}
        self.failing: FailingCalls | None = None
        self.records_delivered: int = 0
        self.records_dead_lettered: int = 0
        self.failures: int = 0
        self.last_error: str | None = None
        self.progress_at: float = runtime.clock.monotonic()
        self.waiting_since: float | None = None
        self.last_arrival: datetime | None = None

    @property
    def is_running(self) -> bool:
        """Whether a call is running."""
        return any(not call.done for call in self._calls)

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
    def is_pausing(self) -> bool:
        """Whether the next retry is all that happens here."""
        return bool(self._pausing) and not self._calls and not self._ready

    @property
    def calling_since(self) -> float | None:
        """Monotonic seconds at which the oldest running call began; None if none is running."""
        return min((call.started_at for call in self._calls if not call.done), default=None)

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
            sub_batch = _SubBatch(records, header)
            whole = self._lanes[None] = _Lane(None, self.size, deque([sub_batch]))
            self._releases.append((0, on_done, None))
            self._end = end
            self._ready.append(whole)
            self._note_waiting()
            return
        since = None if header.arrivals is None else header.arrivals.of(records[0])
        self._incoming = _Incoming(iter(records), len(records), header, on_done, since, end)
        self._take_in()
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

    def _take_in(self) -> None:
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
            lane = self._lanes[key] = _Lane(key, BatchSize(self._limit))
            self._ready.append(lane)
        last = lane.pending[-1] if lane.pending else None
        in_call = lane.busy and len(lane.pending) == 1
        if last is None or last.slots is None or last.failures or last.halved or in_call:
            lane.pending.append(_SubBatch(records, header, slots))
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
        self._ready.clear()
        self._pausing.clear()
        self._calls.clear()
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

    def advance(self, now: float) -> float | None:
        """Collect the calls that ended and start those that are due.

        Args:
            now: Monotonic seconds.

        Returns:
            Monotonic seconds of the next work; infinity if only running calls are waited for; None if everything is
            finished.

        Raises:
            HandlerError: If the policy is to stop the worker.
            BaseException: If a handler raised something that is not an `Exception`, for example `SystemExit`.
        """
        self.collect()
        self._take_in()
        while self._pausing and self._pausing[0][0] <= now:
            self._ready.append(heapq.heappop(self._pausing)[2])
        while True:
            while self._ready and len(self._calls) < self._concurrency:
                self._begin(self._ready.popleft())
            self.collect()
            if not self._ready or len(self._calls) >= self._concurrency:
                break
            if self._parallel or self._held.gone is not None:
                return now
            if self._runtime.clock.monotonic() - now >= _LONGEST_STEP:
                return now
        if self._incoming is not None and self._has_room:
            return now
        if self._calls:
            return self._pausing[0][0] if self._pausing else float("inf")
        if self._pausing:
            return self._pausing[0][0]
        return None

    def retry_now(self) -> None:
        """Let the calls that wait for their next attempt begin with the next `advance`."""
        for _, _, lane in sorted(self._pausing, key=lambda pausing: pausing[:2]):
            self._ready.append(lane)
        self._pausing.clear()

    def _begin(self, lane: _Lane) -> None:
        sub_batch, size = lane.pending[0], lane.size
        left = sub_batch.left
        before_left_out = self._before_left_out(sub_batch)
        if before_left_out == 0:
            self._leave_out(lane)
            return
        lane.busy = True
        count = sub_batch.fixed_size or size.take(left)
        if before_left_out is not None:
            count = min(count, before_left_out)
        if size.is_reduced or count < min(left, size.limit):
            self._note_size(lane, count)
        records = sub_batch.part(sub_batch.begin, count)
        call = _Call(lane, sub_batch, records, self._runtime.clock.monotonic(), self._on_call_ended)
        batch = RecordBatch(
            records=records,
            shard_id=self._held.shard_id,
            stream=self._runtime.stream,
            checkpointer=self._checkpointer,
            header=sub_batch.header,
        )
        if not self._parallel and count:
            call.last = records[-1]
            call.bound_before = self._checkpointer.advance(position_of(call.last))
            call.raised_bound = True
        # A call in the list counts as running until it is finished, and the shard does not shut down before that. So it is
        # added after everything that may raise, and removed if it cannot start.
        self._calls.append(call)
        if not self._parallel:
            self._execute(call, batch)
            return
        call.detached = True
        try:
            self._runtime.run_step(lambda: self._execute(call, batch))
        except BaseException:
            self._calls.remove(call)
            raise

    def _before_left_out(self, sub_batch: _SubBatch) -> int | None:
        """Return how many records of a sub-batch come before the one that an operator left out; None if it is not among them."""
        position = self._requests.left_out
        if position is None:
            return None
        place = bisect_left(sub_batch.records, position, lo=sub_batch.begin, key=position_of)
        if place == len(sub_batch.records) or position_of(sub_batch.records[place]) != position:
            return None
        return place - sub_batch.begin

    def _note_size(self, lane: _Lane, count: int) -> None:
        """Log once that calls get fewer records than they may, and once that they no longer do; measure it all the time."""
        sub_batch = lane.pending[0]
        if sub_batch.fixed_size:
            return  # bisection says so itself
        size, largest = lane.size, min(sub_batch.left, lane.size.limit)
        if count < largest:
            if not size.is_reduced:
                self._logger.warning(
                    "shard %s: process_records failed repeatedly, delivering %d records at once instead of %d",
                    self._held.shard_id,
                    count,
                    largest,
                )
            size.is_reduced = True
            self._metrics.add(catalogue.HANDLER_BATCH_SIZE, count)
        else:
            self._logger.info("shard %s: delivering %d records at once again", self._held.shard_id, count)
            self._note_full_size(lane, largest)

    def _note_full_size(self, lane: _Lane, largest: int) -> None:
        lane.size.is_reduced = False
        self._metrics.add(catalogue.HANDLER_BATCH_SIZE, largest if self._limit is None else self._limit)

    def _execute(self, call: _Call, batch: RecordBatch) -> None:
        clock = self._runtime.clock
        try:
            result = self._handler.process_records(batch)
            if inspect.isawaitable(result):
                call.detached = True
                self._runtime.run_async(result, lambda error: call.finish(error, clock.monotonic()))
                return
        except BaseException as error:  # noqa: BLE001 - the step applies the policy, or raises it again
            call.finish(error, clock.monotonic())
        else:
            call.finish(None, clock.monotonic())

    def collect(self) -> None:
        """Collect the calls that ended without starting new ones. Raises as `advance`."""
        ended = [call for call in self._calls if call.done]
        if not ended:
            return
        self._calls = [call for call in self._calls if call not in ended]
        fatal: BaseException | None = None
        for call in ended:
            try:
                self._settle(call)
            except BaseException as error:  # noqa: BLE001 - raised below, after the other calls are settled
                fatal = fatal or error
        self._note_finished()
        if fatal is not None:
            raise fatal

    def _note_finished(self) -> None:
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

    def _settle(self, call: _Call) -> None:
        lane, error = call.lane, call.error
        lane.busy = False
        if error is None:
            self.failures = 0
            self.last_error = None
            self._metrics.add(catalogue.PROCESS_RECORDS_TIME, (call.finished_at - call.started_at) * 1000)
            if call.count:
                lane.size.succeeded(call.count)
            self._works_again(lane)
            self._count(call.records)
            self._finish(lane, call.count, call.last, call.finished_at)
            self._go_on(lane)
            return
        checkpointed = self._take_back(call) if call.raised_bound else 0
        if self._held.gone is not None:
            self._logger.info(
                "shard %s: process_records raised %s after the lease was lost",
                self._held.shard_id,
                type(error).__name__,
            )
            return
        if isinstance(error, RestartShardError) or not isinstance(error, (Exception, asyncio.CancelledError)):
            if checkpointed:
                lane.size.got_on()
            elif call.count:
                lane.size.failed(call.count)
            raise error
        self._failed(call, checkpointed, error)

    def _take_back(self, call: _Call) -> int:
        """Note that the records of a failed call are undelivered again, so that no later checkpoint passes them.

        Returns:
            Number of its records that it checkpointed, which are done. Only checkpoints under this lease count: a handler that
            starts before the lease's checkpoint wants the records up to it as well.
        """
        self._checkpointer.retreat(call.bound_before)
        stored = self._checkpointer.stored
        return 0 if stored is None else bisect_right(call.records, stored, key=position_of)

    def _count(self, records: Sequence[UserRecord]) -> None:
        """Measure what is processed."""
        size = payload_bytes(records)
        self._held.meter.add(size)
        self._metrics.add(catalogue.RECORDS_PROCESSED, len(records))
        self._metrics.add(catalogue.DATA_BYTES_PROCESSED, size)

    def _finish(self, lane: _Lane, count: int, last: UserRecord | None, now: float) -> None:
        """Note that the next records of a lane are finished; with a single lane, what the last one of them is."""
        sub_batch = lane.pending[0]
        self.records_delivered += count
        self.progress_at = now
        if sub_batch.slots is not None:
            self._tracker.finish(sub_batch.slots[sub_batch.begin : sub_batch.begin + count])
            last = self._tracker.last_finished
        if last is not None:
            self.last_arrival = last.approximate_arrival_timestamp
        sub_batch.pass_over(count)

    def _go_on(self, lane: _Lane) -> None:
        """Let a lane deliver what it has left, or end it."""
        if not lane.pending[0].left:
            lane.pending.popleft()
        if lane.pending:
            self._ready.append(lane)
        else:
            del self._lanes[lane.key]
            if self._parallel and lane.size.is_reduced:
                self._note_full_size(lane, 0)  # the next records of this key get a new lane
            if self._end is not None:
                # Not before all records are finished, and never earlier: nothing may pass a record that was not processed.
                self._checkpointer.advance(position_of(self._end))
                self.last_arrival = self._end.approximate_arrival_timestamp
                self._end = None

    def _failed(self, call: _Call, checkpointed: int, error: BaseException) -> None:
        lane, sub_batch, shard_id = call.lane, call.sub_batch, self._held.shard_id
        now, count = call.finished_at, call.count - checkpointed
        self._metrics.add(catalogue.HANDLER_FAILURES, 1)
        self.failures += 1
        self.last_error = f"process_records: {type(error).__name__}: {error}"
        if checkpointed:
            self._works_again(lane)
            lane.size.got_on()
            self._count(part_of(call.records, 0, checkpointed))
            self._finish(lane, checkpointed, call.records[checkpointed - 1], now)
        elif count:
            lane.size.failed(count)
        if not count:  # the call checkpointed all of its records before it failed, or it had none
            self._logger.error("shard %s: process_records failed", shard_id, exc_info=error)
            self._go_on(lane)
            return
        self._note_failing(lane, count, error, now)
        if isinstance(error, SinkError) and not error.retryable:
            raise error
        if not checkpointed:  # otherwise no call got exactly the rest
            sub_batch.failures = sub_batch.failures + 1 if sub_batch.failed_size == count else 1
            sub_batch.failed_size = count
        decision = self._decide(
            Failure(error=error, size=count, attempts=sub_batch.failures, halved=sub_batch.halved)
        )
        sub_batch.fixed_size = 0 if isinstance(decision, Retry) and not decision.together else count
        if isinstance(decision, Stop):
            if self._is_stopping_worker:  # a call of another key failed first and is stopping the worker
                self._logger.error("shard %s: process_records failed", shard_id, exc_info=error)
                return
            self._is_stopping_worker = True
            raise HandlerError(f"shard {shard_id}: process_records failed: {error}") from error
        if isinstance(decision, Halve):
            self._halve(lane, count, error)
        elif isinstance(decision, SetAside):
            self._dead_letter(lane, decision.take, error, now)
        else:
            self._pause(lane, decision, error, now)

    def _decide(self, failure: Failure) -> Decision:
        """Return the decision of the policy, as far as it fits the failure."""
        decision: object = self._policy.decide(failure)
        if isinstance(decision, SetAside) and isinstance(failure.error, SinkError):
            return Retry(DEFAULT_PAUSES)  # the store failed, which says nothing of the record
        if isinstance(decision, SetAside) and failure.size > 1:
            return Halve()
        if isinstance(decision, Halve) and failure.size == 1:
            return Retry(DEFAULT_PAUSES)
        if not isinstance(decision, (Retry, Halve, SetAside, Stop)):
            raise HandlerError(
                f"shard {self._held.shard_id}: on_handler_error decided {type(decision).__name__}, and not Retry, Halve, SetAside "
                "or Stop"
            ) from failure.error
        return decision

    def _note_failing(self, lane: _Lane, count: int, error: BaseException, now: float) -> None:
        """Note which records a lane fails on."""
        before = self._failing.get(lane.key)
        sub_batch = lane.pending[0]
        self._failing[lane.key] = FailingCalls(
            attempts=1 if before is None else before.attempts + 1,
            since=now if before is None else before.since,
            retry_at=now,
            records=count,
            position=position_of(sub_batch.records[sub_batch.begin]),
            error=f"{type(error).__name__}: {error}"[:MAX_ERROR],
            cause=error,
        )
        self.failing = next(iter(self._failing.values()))

    def _works_again(self, lane: _Lane) -> None:
        """Note that records of a lane are finished."""
        if self._failing and self._failing.pop(lane.key, None) is not None:
            self.failing = next(iter(self._failing.values()), None)

    def _pause(self, lane: _Lane, decision: Decision, error: BaseException, now: float) -> None:
        self.may_reread = isinstance(decision, Retry) and decision.may_reread
        # Failures in a row of the lane. With a single one they also count across batches: a batch that was dropped and read
        # again keeps its backoff. With several lanes, each half of a call has its own.
        sub_batch = lane.pending[0]
        failures = sub_batch.failures if self._parallel and sub_batch.halved else lane.size.failures
        pause = pause_of(decision, max(1, failures), self._runtime.rng)
        failing = replace(self._failing[lane.key], retry_at=now + pause)
        self._failing[lane.key] = failing
        self.failing = next(iter(self._failing.values()))
        self._logger.error(
            "shard %s: process_records failed on %s (%d consecutive failures), retrying in %.1f s",
            self._held.shard_id,
            f"record {failing.position}"
            if failing.records == 1
            else f"{failing.records} records from {failing.position} on",
            failures,
            pause,
            exc_info=error,
        )
        heapq.heappush(self._pausing, (now + pause, next(self._order), lane))

    def _halve(self, lane: _Lane, count: int, error: BaseException) -> None:
        sub_batch = lane.pending[0]
        begin, middle = sub_batch.begin, count // 2
        self._logger.warning(
            "shard %s: process_records failed on %d records from %s on (%s), delivering them in two halves",
            self._held.shard_id,
            count,
            position_of(sub_batch.records[begin]),
            type(error).__name__,
        )
        halves = sub_batch.half(begin, middle), sub_batch.half(begin + middle, count - middle)
        sub_batch.pass_over(count)
        if not sub_batch.left:
            lane.pending.popleft()
        lane.pending.extendleft(reversed(halves))
        self._ready.append(lane)

    def _dead_letter(
        self,
        lane: _Lane,
        hook: DeadLetterHook,
        error: BaseException,
        now: float,
        *,
        by_operator: bool = False,
    ) -> None:
        """Pass a single record to the dead-letter hook; if the hook fails, retry the record."""
        sub_batch = lane.pending[0]
        record = sub_batch.records[sub_batch.begin]
        attempts = sub_batch.failures
        poison = PoisonRecord(
            record=record,
            error=error,
            attempts=attempts,
            shard_id=self._held.shard_id,
            stream=self._runtime.stream,
            by_operator=by_operator,
        )
        try:
            result = hook(poison)
            if inspect.isawaitable(result):
                self._runtime.wait_for(result)
        except (Exception, asyncio.CancelledError) as hook_error:  # noqa: BLE001 - the record was not accepted
            self.last_error = f"dead_letter: {type(hook_error).__name__}: {hook_error}"
            if lane.key not in self._failing:
                self._note_failing(lane, 1, hook_error, now)
            # No attempts: the record itself has not failed again, so this decides about nothing but the pause.
            decision = self._policy.decide(Failure(error=hook_error, size=1, attempts=0))
            self._pause(lane, decision, hook_error, now)
            return
        self._logger.error(
            "shard %s: record %s was passed to the dead-letter hook %s",
            self._held.shard_id,
            position_of(record),
            "at the request of an operator" if by_operator else f"after {attempts} attempts",
            exc_info=error,
        )
        self.records_dead_lettered += 1
        self._metrics.add(catalogue.RECORDS_DEAD_LETTERED, 1)
        self._set_aside(lane, record, now)

    def _leave_out(self, lane: _Lane) -> None:
        """Pass the next record of a lane to the dead-letter hook, if the policy has one, because an operator wants it left out."""
        now = self._runtime.clock.monotonic()
        sub_batch = lane.pending[0]
        record = sub_batch.records[sub_batch.begin]
        failing = self._failing.get(lane.key)
        cause = None if failing is None else failing.cause
        hook: DeadLetterHook | None = getattr(self._policy, "dead_letter", None)
        if hook is None:
            self._logger.error(
                "shard %s: record %s is left out at the request of an operator, and the policy has no dead-letter hook that "
                "could take it",
                self._held.shard_id,
                position_of(record),
                exc_info=cause,
            )
            self._set_aside(lane, record, now)
        else:
            error = cause or HandlerError(f"record {position_of(record)} is left out by an operator")
            self._dead_letter(lane, hook, error, now, by_operator=True)
        self._note_finished()

    def _set_aside(self, lane: _Lane, record: UserRecord, now: float) -> None:
        """Count the next record of a lane as finished, although the handler has not processed it."""
        self.failures = 0
        self.last_error = None
        if not self._parallel:
            self._checkpointer.advance(position_of(record))
        lane.size.succeeded(1)
        self._works_again(lane)
        self._finish(lane, 1, record, now)
        self._go_on(lane)
