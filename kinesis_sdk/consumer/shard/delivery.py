"""Records on their way through the handler: one batch at a time, or partition keys side by side.

```
offer ─► lane (one for the shard, or one per partition key) ─► call ─► done ─► checkpointer's bound rises
             ▲                                                  │
             └── again after a pause, or halved ◄── policy ◄── failed ──► dead-letter hook, or the worker stops
```
One thread at a time uses a `Delivery` (the shard's step). Calls may end on other threads: those only note the
outcome and wake the step. Nothing here reads a clock beside its own or starts a thread.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.backoff import backoff
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import HandlerError
from kinesis_sdk.common.metrics import BoundMetrics
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.user_records import payload_bytes
from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.error_policy import (
    BisectBatch,
    HandlerErrorPolicy,
    PoisonRecord,
    RetryBatch,
    StopWorker,
)
from kinesis_sdk.consumer.handler import RecordBatch, RecordHandler
from kinesis_sdk.consumer.shard.watermark import WatermarkTracker, position_of

_LOGGER = logging.getLogger(__name__)

_MOST_OUTSTANDING_BYTES = 8 * 1024 * 1024
"""Bytes of one shard's records between the oldest open one and the newest, payload and overhead, above which no record is
added (with ``concurrency``; otherwise a shard has one batch in hand). The KCL prefetches the same per shard."""

_LANE_OVERHEAD = 1024
"""Bytes that a partition key takes that has records here (measured, CPython 3.11)."""

_CHARGED_OVERHEAD = 512
"""Bytes that a record counts in the worker's budget beside its payload, with ``concurrency``: between that of a record
whose key has many others and one that has a lane for itself. No batch counts more than `_MOST_OUTSTANDING_BYTES`."""

_LEAST_TAKEN = 1024
"""Records of a batch that are taken into lanes together at least: room for one is not worth the trouble."""

RunAsync = Callable[[Awaitable[None], Callable[["BaseException | None"], None]], None]
"""Runs an awaitable on the event loop; tells its outcome, once and from any thread."""


@dataclass(slots=True)
class _Piece:
    """Records that are delivered in one call; tickets only with several lanes."""

    records: Sequence[UserRecord]
    header: ResponseHeader
    tickets: list[int] | None = None
    failures: int = 0
    halved: bool = False


@dataclass(slots=True)
class _Incoming:
    """The rest of a batch that is taken into lanes as room comes.

    Attributes:
        records: Those not taken yet.
        count: How many.
        header: Header of the response that the batch came in.
        on_done: Called once all of them are done.
        since: When the oldest record of the batch arrived at the service, if that is known.
        size_of_each: Bytes that each of those taken last takes; 0 before the first.
    """

    records: Iterator[UserRecord]
    count: int
    header: ResponseHeader
    on_done: Callable[[], None]
    since: float | None
    size_of_each: float = 0.0


@dataclass(slots=True)
class _Lane:
    """Pieces that are delivered one after the other."""

    key: str | None
    pieces: deque[_Piece] = field(default_factory=deque)
    busy: bool = False


class _Call:
    """One call of ``process_records``."""

    __slots__ = (
        "_on_done",
        "advanced",
        "before",
        "detached",
        "done",
        "error",
        "finished_at",
        "lane",
        "piece",
        "started_at",
    )

    def __init__(self, lane: _Lane, piece: _Piece, started_at: float, on_done: Callable[[], None]) -> None:
        self.lane = lane
        self.piece = piece
        self.started_at = started_at
        self.finished_at = started_at
        self.advanced = False
        self.before: ExtendedSequenceNumber | None = None
        self.error: BaseException | None = None
        self.done = False
        self.detached = False
        self._on_done = on_done

    def finish(self, error: BaseException | None, now: float) -> None:
        if self.done:
            return
        self.error = error
        self.finished_at = now
        self.done = True
        if self.detached:
            self._on_done()


@dataclass(frozen=True, kw_only=True)
class DeliveryTools:
    """What a delivery works with.

    Attributes:
        shard_id: The shard.
        stream: The stream.
        handler: The user's handler.
        checkpointer: Its bound follows what was delivered.
        policy: What a failure means.
        concurrency: Keys side by side; 1 delivers whole batches, one at a time.
        clock: Time.
        rng: Jitter.
        metrics: Metrics of the shard.
        run: Runs calls of several lanes now or soon.
        run_async: Runs coroutines.
        wait_for: Runs an awaitable and returns when it has ended.
        on_done: Called from any thread when a call has ended that did not end at once.
        is_lost: Whether the lease is gone, so that failures do not matter any more.
        count_bytes: Told how many bytes of payload were delivered.
    """

    shard_id: str
    stream: StreamId
    handler: RecordHandler
    checkpointer: Checkpointer
    policy: HandlerErrorPolicy
    concurrency: int
    clock: Clock
    rng: Random
    metrics: BoundMetrics
    run: Callable[[Callable[[], None]], object]
    run_async: RunAsync
    wait_for: Callable[[Awaitable[None]], None]
    on_done: Callable[[], None]
    is_lost: Callable[[], bool]
    count_bytes: Callable[[int], None] = lambda count: None  # noqa: ARG005


class Delivery:
    """The records of one shard that are in the handler's hands, or about to be.

    With ``concurrency`` 1 there is one lane: a batch is a call, and within it everything up to the batch's end
    may be checkpointed. With more, each partition key has a lane of its own while it has records here, calls get
    what one lane holds, and only the ledger's low watermark may be checkpointed.

    Args:
        tools: What it works with.

    Attributes:
        records_delivered: User records that are done, dead letters included.
        records_dead_lettered: Those that went to the hook.
        failures: Failures in a row; 0 when the last call succeeded.
        last_error: What the handler raised at last, while that is not repaired.
        progress_at: Monotonic time at which a call last succeeded.
        waiting_since: Monotonic time at which the oldest record here arrived at the service, with several lanes that of
            the oldest answer here; None if there is none, or if it is not known.
    """

    def __init__(self, tools: DeliveryTools) -> None:
        self._tools = tools
        self._parallel = tools.concurrency > 1
        self._ledger = WatermarkTracker()
        self._lanes: dict[str | None, _Lane] = {}
        self._ready: deque[_Lane] = deque()
        self._pausing: list[tuple[float, int, _Lane]] = []
        self._order = itertools.count()
        self._calls: list[_Call] = []
        # What is told when all records up to a ticket are done (several lanes), or the lane is empty (one).
        # The last part is when the oldest of these records arrived at the service.
        self._releases: deque[tuple[int, Callable[[], None], float | None]] = deque()
        # What does not fit into the lanes yet (several lanes): the rest of a batch.
        self._incoming: _Incoming | None = None
        self._gave_up = False
        self.records_delivered: int = 0
        self.records_dead_lettered: int = 0
        self.failures: int = 0
        self.last_error: str | None = None
        self.progress_at: float = tools.clock.monotonic()
        self.waiting_since: float | None = None

    @property
    def is_running(self) -> bool:
        """Whether a call is under way."""
        return any(not call.done for call in self._calls)

    @property
    def is_empty(self) -> bool:
        """Whether everything offered is done."""
        return not self._lanes and self._incoming is None

    @property
    def has_room(self) -> bool:
        """Whether another batch may be offered."""
        if not self._parallel:
            return not self._lanes
        return self._incoming is None and self._has_room

    @property
    def _has_room(self) -> bool:
        """Whether the lanes may take more records."""
        return self._used < _MOST_OUTSTANDING_BYTES

    @property
    def _used(self) -> int:
        return self._ledger.outstanding_bytes + len(self._lanes) * _LANE_OVERHEAD

    def overhead_of(self, count: int) -> int:
        """Bytes of memory that so many user records of a batch take here at most, beside their payload."""
        return min(count * _CHARGED_OVERHEAD, _MOST_OUTSTANDING_BYTES) if self._parallel else 0

    @property
    def is_pausing(self) -> bool:
        """Whether nothing goes on but waiting for the next repetition."""
        return bool(self._pausing) and not self._calls and not self._ready

    @property
    def calling_since(self) -> float | None:
        """Monotonic time at which the oldest call under way began; None if there is none."""
        return min((call.started_at for call in self._calls if not call.done), default=None)

    def offer(
        self,
        records: Sequence[UserRecord],
        header: ResponseHeader,
        on_done: Callable[[], None],
    ) -> None:
        """Take the next records of the shard.

        Args:
            records: In order, after everything offered before; not empty.
            header: Header of the response that they came in.
            on_done: Called once all of them are done.
        """
        if not self._parallel:
            piece = _Piece(records, header)
            whole = self._lanes[None] = _Lane(None, deque([piece]))
            self._releases.append((0, on_done, None))
            self._ready.append(whole)
            self._note_waiting()
            return
        since = None if header.arrivals is None else header.arrivals.of(records[0])
        self._incoming = _Incoming(iter(records), len(records), header, on_done, since)
        self._take_in()
        self._note_waiting()

    def _take_in(self) -> None:
        """Put records of the batch offered into lanes, as many as there is room for."""
        while (incoming := self._incoming) is not None and self._has_room:
            room = _MOST_OUTSTANDING_BYTES - self._used
            most = int(room / incoming.size_of_each) if incoming.size_of_each else 0
            taken = list(itertools.islice(incoming.records, max(_LEAST_TAKEN, most)))
            incoming.count -= len(taken)
            used = self._used
            self._distribute(taken, incoming.header)
            # With the lanes that they need: a few for all of them, or one for each.
            incoming.size_of_each = (self._used - used) / len(taken)
            if not incoming.count:
                self._incoming = None
                self._releases.append((self._ledger.next_ticket, incoming.on_done, incoming.since))

    def _distribute(self, records: list[UserRecord], header: ResponseHeader) -> None:
        by_key: dict[str, tuple[list[UserRecord], list[int]]] = {}
        for ticket, record in enumerate(records, self._ledger.extend(records)):
            group = by_key.get(record[1])
            if group is None:
                group = by_key[record[1]] = ([], [])
            group[0].append(record)
            group[1].append(ticket)
        for key, (of_key, tickets) in by_key.items():
            self._add(key, of_key, tickets, header)

    def _add(self, key: str, records: list[UserRecord], tickets: list[int], header: ResponseHeader) -> None:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
            self._ready.append(lane)
        last = lane.pieces[-1] if lane.pieces else None
        taken = lane.busy and len(lane.pieces) == 1
        if last is None or last.tickets is None or last.failures or last.halved or taken:
            lane.pieces.append(_Piece(records, header, tickets))
        else:
            last.records = [*last.records, *records]
            last.tickets += tickets
            last.header = header

    def forget(self, now: float) -> float:
        """Drop everything that is not done; only while no call is under way.

        Returns:
            Seconds that the next repetition was still away.
        """
        pause = max(0.0, self._pausing[0][0] - now) if self._pausing else 0.0
        self._lanes.clear()
        self._ready.clear()
        self._pausing.clear()
        self._calls.clear()
        self._ledger = WatermarkTracker()
        incoming, self._incoming = self._incoming, None
        while self._releases:
            self._releases.popleft()[1]()
        if incoming is not None:
            incoming.on_done()
        self._note_waiting()
        return pause

    def _note_waiting(self) -> None:
        """Set `waiting_since`: other threads read it while this one changes lanes and pieces."""
        if self._parallel:
            incoming = self._incoming.since if self._incoming is not None else None
            self.waiting_since = self._releases[0][2] if self._releases else incoming
            return
        lane = self._lanes.get(None)
        piece = lane.pieces[0] if lane is not None else None
        arrivals = piece.header.arrivals if piece is not None else None
        if piece is None or arrivals is None or not piece.records:
            self.waiting_since = None
        else:
            self.waiting_since = arrivals.of(piece.records[0])

    def advance(self, now: float) -> float | None:
        """Note what ended, begin what is due.

        Returns:
            Monotonic time of the next thing to do; infinity while only running calls are waited for; None if
            everything is done.

        Raises:
            HandlerError: The policy is to stop.
            BaseException: What a handler raised that is no `Exception`, for example `SystemExit`.
        """
        self.collect()
        self._take_in()
        while self._pausing and self._pausing[0][0] <= now:
            self._ready.append(heapq.heappop(self._pausing)[2])
        while self._ready and len(self._calls) < self._tools.concurrency:
            self._begin(self._ready.popleft())
        self.collect()
        if self._ready and len(self._calls) < self._tools.concurrency:
            return now
        if self._incoming is not None and self._has_room:
            return now
        if self._calls:
            return self._pausing[0][0] if self._pausing else float("inf")
        if self._pausing:
            return self._pausing[0][0]
        return None

    def _begin(self, lane: _Lane) -> None:
        tools = self._tools
        lane.busy = True
        call = _Call(lane, lane.pieces[0], tools.clock.monotonic(), tools.on_done)
        batch = RecordBatch(
            records=call.piece.records,
            header=call.piece.header,
            shard_id=tools.shard_id,
            stream=tools.stream,
            checkpointer=tools.checkpointer,
        )
        if not self._parallel:
            call.before = tools.checkpointer.advance(position_of(call.piece.records[-1]))
            call.advanced = True
        # A call in the list counts as running until it is finished, and the shard does not shut down before that. So it
        # enters the list after everything that may raise, and leaves it if it cannot begin.
        self._calls.append(call)
        if not self._parallel:
            self._execute(call, batch)
            return
        call.detached = True
        try:
            tools.run(lambda: self._execute(call, batch))
        except BaseException:
            self._calls.remove(call)
            raise

    def _execute(self, call: _Call, batch: RecordBatch) -> None:
        clock = self._tools.clock
        try:
            result = self._tools.handler.process_records(batch)
            if inspect.isawaitable(result):
                call.detached = True
                self._tools.run_async(result, lambda error: call.finish(error, clock.monotonic()))
                return
        except BaseException as error:  # noqa: BLE001 - judged by the step; what is no Exception is raised there
            call.finish(error, clock.monotonic())
        else:
            call.finish(None, clock.monotonic())

    def collect(self) -> None:
        """Note what ended, begin nothing. Raises as `advance`."""
        ended = [call for call in self._calls if call.done]
        if not ended:
            return
        self._calls = [call for call in self._calls if call not in ended]
        fatal: BaseException | None = None
        for call in ended:
            try:
                self._settle(call)
            except BaseException as error:  # noqa: BLE001 - raised below, once the others are noted, too
                fatal = fatal or error
        if self._parallel:
            watermark = self._ledger.watermark
            if watermark is not None:
                self._tools.checkpointer.advance(watermark)
        while self._releases and (
            self._releases[0][0] <= self._ledger.base if self._parallel else not self._lanes
        ):
            self._releases.popleft()[1]()
        self._note_waiting()
        if fatal is not None:
            raise fatal

    def _settle(self, call: _Call) -> None:
        lane, piece, error = call.lane, call.piece, call.error
        lane.busy = False
        if error is None:
            self.failures = 0
            self.last_error = None
            self._measure(piece, call.finished_at - call.started_at)
            self._done(lane, piece, call.finished_at)
            return
        if call.advanced:
            # Undelivered again: no later checkpoint may pass over this batch.
            self._tools.checkpointer.retreat(call.before)
            last = self._tools.checkpointer.last_checkpoint
            if (
                position_of(piece.records[0]) <= last
            ):  # else it stays as it is, without an object for each record
                piece.records = [record for record in piece.records if position_of(record) > last]
        if self._tools.is_lost():
            _LOGGER.info(
                "shard %s: process_records raised %s after the lease was lost",
                self._tools.shard_id,
                type(error).__name__,
            )
            return
        if not isinstance(error, (Exception, asyncio.CancelledError)):
            raise error
        self._failed(lane, piece, error, call.finished_at)

    def _done(self, lane: _Lane, piece: _Piece, now: float) -> None:
        self.records_delivered += len(piece.records)
        self.progress_at = now
        if piece.tickets is not None:
            self._ledger.finish(piece.tickets)
        lane.pieces.popleft()
        if lane.pieces:
            self._ready.append(lane)
        else:
            del self._lanes[lane.key]

    def _failed(self, lane: _Lane, piece: _Piece, error: BaseException, now: float) -> None:
        policy = self._tools.policy
        self._tools.metrics.add(catalogue.HANDLER_FAILURES, 1)
        piece.failures += 1
        self.failures += 1
        self.last_error = f"process_records: {type(error).__name__}: {error}"
        if not piece.records:  # all of it was checkpointed before the failure
            _LOGGER.error("shard %s: process_records failed", self._tools.shard_id, exc_info=error)
            self._done(lane, piece, now)
        elif isinstance(policy, StopWorker):
            if self._gave_up:  # another key's failure was first: the worker stops already
                _LOGGER.error("shard %s: process_records failed", self._tools.shard_id, exc_info=error)
                return
            self._gave_up = True
            raise HandlerError(f"shard {self._tools.shard_id}: process_records failed: {error}") from error
        elif isinstance(policy, RetryBatch) or not policy.may_be_poison(error):
            self._pause(lane, piece, policy, error, now)
        elif len(piece.records) > 1 and (piece.halved or piece.failures >= policy.attempts):
            self._halve(lane, piece, error)
        elif piece.failures >= policy.attempts:
            self._bury(lane, piece, policy, error, now)
        else:
            self._pause(lane, piece, policy, error, now)

    def _pause(
        self, lane: _Lane, piece: _Piece, policy: RetryBatch | BisectBatch, error: BaseException, now: float
    ) -> None:
        tools = self._tools
        # In a row over all pieces, too: a batch that was dropped and read again is not a new failure.
        failures = piece.failures if self._parallel else max(piece.failures, self.failures)
        pause = backoff(failures, policy.initial_delay, policy.max_delay, tools.rng)
        _LOGGER.error(
            "shard %s: process_records failed (%d in a row), again in %.1f s",
            tools.shard_id,
            failures,
            pause,
            exc_info=error,
        )
        heapq.heappush(self._pausing, (now + pause, next(self._order), lane))

    def _halve(self, lane: _Lane, piece: _Piece, error: BaseException) -> None:
        middle = len(piece.records) // 2
        _LOGGER.warning(
            "shard %s: process_records failed on %d records from %s on (%s), delivering them in two halves",
            self._tools.shard_id,
            len(piece.records),
            position_of(piece.records[0]),
            type(error).__name__,
        )
        lane.pieces.popleft()
        for part in (slice(middle, None), slice(middle)):
            tickets = piece.tickets[part] if piece.tickets is not None else None
            lane.pieces.appendleft(_Piece(piece.records[part], piece.header, tickets, halved=True))
        self._ready.append(lane)

    def _bury(
        self, lane: _Lane, piece: _Piece, policy: BisectBatch, error: BaseException, now: float
    ) -> None:
        tools = self._tools
        record = piece.records[0]
        poison = PoisonRecord(
            record=record,
            error=error,
            attempts=piece.failures,
            shard_id=tools.shard_id,
            stream=tools.stream,
        )
        try:
            result = policy.dead_letter(poison)
            if inspect.isawaitable(result):
                tools.wait_for(result)
        except (Exception, asyncio.CancelledError) as refused:  # noqa: BLE001 - nobody took it: it is not done
            self.last_error = f"dead_letter: {type(refused).__name__}: {refused}"
            self._pause(lane, piece, policy, refused, now)
            return
        _LOGGER.error(
            "shard %s: record %s went to the dead-letter hook after %d attempts",
            tools.shard_id,
            position_of(record),
            piece.failures,
            exc_info=error,
        )
        self.failures = 0
        self.last_error = None
        self.records_dead_lettered += 1
        tools.metrics.add(catalogue.RECORDS_DEAD_LETTERED, 1)
        if not self._parallel:
            tools.checkpointer.advance(position_of(record))
        self._done(lane, piece, now)

    def _measure(self, piece: _Piece, seconds: float) -> None:
        add = self._tools.metrics.add
        add(catalogue.RECORDS_PROCESSED, len(piece.records))
        size = payload_bytes(piece.records)
        self._tools.count_bytes(size)
        add(catalogue.DATA_BYTES_PROCESSED, size)
        add(catalogue.PROCESS_RECORDS_TIME, seconds * 1000)
