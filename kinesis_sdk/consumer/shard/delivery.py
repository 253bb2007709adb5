"""Calls of the handler with the records of one shard: one batch at a time, or partition keys concurrently.

```
offered ─► `Lanes` ─► call ─► finished
              ▲         │
              └── retry after a backoff, or halved ◄── policy ◄── failed ──► dead-letter hook, or the worker stops
```
A call of ``process_records`` gets as many records from the beginning of a sub-batch as `BatchSize` allows. The next call gets the
following records.

One thread at a time uses a `Delivery`: the shard's step. Calls may end on other threads, which only record the outcome and wake
the step. This module starts no threads and reads only the clock that it is given.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.error_policy import (
    DEFAULT_PAUSES,
    DeadLetterHook,
    Decision,
    Deferred,
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
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.user_records import part_of, payload_bytes
from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.handler import RecordBatch, RecordHandler
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.consumer.shard.batch_size import BatchSize
from kinesis_sdk.consumer.shard.failures import FailingCalls, ShardFailures
from kinesis_sdk.consumer.shard.handler_requests import HandlerRequests
from kinesis_sdk.consumer.shard.hold_back import HoldBack
from kinesis_sdk.consumer.shard.lanes import Lane, Lanes, SubBatch
from kinesis_sdk.consumer.shard.runtime import ShardRuntime

_LOGGER = FieldLogger(logging.getLogger(__name__))

_REREAD_AFTER = 3
"""Consecutive failures of a handler after which its batch may be dropped and read again later, if other shards need the memory."""

_LONGEST_STEP = 0.01
"""Seconds after which a step begins no further call of a single lane. A new step costs 30 µs, so short calls share a step. A
request to stop waits at most for this time and one call."""


class _Call:
    """One call of ``process_records`` with its outcome.

    Attributes:
        records: The records that it gets, from the beginning of `sub_batch`; `count` is their number.
        last: The last of these records; None if there are none, or with several lanes.
        bound_before: The checkpointer's bound before the call, with a single lane.
        detached: Whether the call may end on another thread, which then has to wake the step.
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
        lane: Lane,
        sub_batch: SubBatch,
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
        """Record the outcome. Thread-safe; only the first call counts."""
        if self.done:
            return
        # Set `done` last: once the step sees it, the step reads the other two attributes on its own thread.
        self.error = error
        self.finished_at = now
        self.done = True
        if self.detached:
            self._on_ended()


class Delivery:
    """Records of one shard that are in a call of the handler or wait for one.

    With a ``concurrency`` of 1 there is one lane, and during a call the handler may checkpoint up to its last record. With a higher
    ``concurrency``, each partition key has a lane of its own while it has records here. A call then gets records of one lane, and
    only the shard's low watermark may be checkpointed. Errors after the loss of the lease are ignored, because the next owner
    processes the records.

    Args:
        on_call_ended: Called from any thread when a call ends that was still running when `advance` returned.
        failed: Failed calls of the shard, kept across its restarts.
        size: Batch size of the delivery before a restart of the shard; None before the first restart.

    Attributes:
        lanes: The records that are not finished.
        size: Number of records that the calls of a single lane get.
        records_delivered: User records that are finished, including dead-lettered ones.
        may_reread: Whether the newest pause permits dropping the records and reading them again later.
        waits_until: Monotonic time before which a record that is, or was, in this delivery must not reach the handler.
        records_dead_lettered: User records that the dead-letter hook accepted.
        failures: Consecutive failures; 0 if the last call succeeded.
        last_error: Last error of the handler; None once a later call has succeeded.
        progress_at: Monotonic time at which a call last succeeded.
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
        failed: ShardFailures,
        on_call_ended: Callable[[], None],
        size: BatchSize | None = None,
    ) -> None:
        self._failed_calls = failed
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
        delay = runtime.config.delivery_delay
        self._hold_back = HoldBack(delay) if delay else None
        # With a single lane, the size outlives a batch: if the handler failed, the next batch begins with a small call.
        self.size: BatchSize = size or BatchSize(self._limit)
        self.lanes: Lanes = Lanes(checkpointer, parallel=self._parallel, limit=self._limit, size=self.size)
        self._calls: list[_Call] = []
        self._is_stopping_worker = False
        self.may_reread: bool = False
        self.waits_until: float = float("-inf")
        self.records_delivered: int = 0
        self.records_dead_lettered: int = 0
        self.failures: int = 0
        self.last_error: str | None = None
        self.progress_at: float = runtime.clock.monotonic()

    @property
    def failing(self) -> FailingCalls | None:
        """Failed calls of the lane that has failed for longest; None if the last call of each lane succeeded."""
        return self._failed_calls.failing

    @property
    def is_running(self) -> bool:
        """Whether a call is running."""
        return any(not call.done for call in self._calls)

    @property
    def is_pausing(self) -> bool:
        """Whether there is no work until the next retry."""
        return self.lanes.is_pausing and not self._calls

    @property
    def calling_since(self) -> float | None:
        """Monotonic time at which the oldest running call began; None if no call is running."""
        return min((call.started_at for call in self._calls if not call.done), default=None)

    def forget(self, now: float) -> float:
        """Drop all unfinished records, and return the seconds until the next retry would have been due. Only while no call is running."""
        self._calls.clear()
        return self.lanes.forget(now)

    def advance(self, now: float) -> float | None:
        """Collect the calls that have ended and start the calls that are due.

        Returns:
            Monotonic time of the next work; infinity while the delivery only waits for running calls; None if all records are finished.

        Raises:
            HandlerError: If the policy is to stop the worker.
            BaseException: If a handler raised an error that is not an `Exception`, such as `SystemExit`.
        """
        self.collect()
        lanes = self.lanes
        lanes.take_in()
        lanes.end_pauses(now)
        while True:
            while lanes.ready and len(self._calls) < self._concurrency:
                self._begin(lanes.ready.popleft())
            self.collect()
            if not lanes.ready or len(self._calls) >= self._concurrency:
                break
            if self._parallel or self._held.gone is not None:
                return now
            if self._runtime.clock.monotonic() - now >= _LONGEST_STEP:
                return now
        if lanes.takes_more:
            return now
        pause_ends = lanes.pause_ends
        return float("inf") if pause_ends is None and self._calls else pause_ends

    def _begin(self, lane: Lane) -> None:
        sub_batch, size = lane.pending[0], lane.size
        self._failed_calls.resume(lane)
        left = sub_batch.left
        before_left_out = self._before_left_out(sub_batch)
        if before_left_out == 0:
            self._leave_out(lane)
            return
        count = sub_batch.fixed_size or size.take(left)
        if before_left_out is not None:
            count = min(count, before_left_out)
        if self._hold_back is not None and count:
            now = self._runtime.clock.monotonic()
            records = sub_batch.part(sub_batch.begin, count)
            count, due = self._hold_back.released(records, sub_batch.header, now)
            if not count:
                self._wait(lane, due)
                return
        lane.busy = True
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
        # A call in the list counts as running until it finishes, and the shard does not shut down before that. So add
        # the call after everything that may raise, and remove the call if it cannot start.
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

    def _wait(self, lane: Lane, due: float) -> None:
        """Begin the next call of a lane when its first record is due. Until then, other shards may have the memory."""
        self.may_reread = True
        self.waits_until = max(self.waits_until, due)
        self.lanes.pause(lane, due)

    def _before_left_out(self, sub_batch: SubBatch) -> int | None:
        """Return the number of records before the record that an operator left out; None if the sub-batch lacks it."""
        position = self._requests.left_out
        if position is None:
            return None
        place = bisect_left(sub_batch.records, position, lo=sub_batch.begin, key=position_of)
        if place == len(sub_batch.records) or position_of(sub_batch.records[place]) != position:
            return None
        return place - sub_batch.begin

    def _note_size(self, lane: Lane, count: int) -> None:
        """Log when calls begin to get fewer records than allowed, and when this ends; record the metric each time."""
        sub_batch = lane.pending[0]
        if sub_batch.fixed_size:
            return  # bisection logs this itself
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

    def _note_full_size(self, lane: Lane, largest: int) -> None:
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
        """Collect the calls that have ended, but start none. Raises as `advance`."""
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
        self.lanes.note_finished()
        if fatal is not None:
            raise fatal

    def _settle(self, call: _Call) -> None:
        lane, error = call.lane, call.error
        lane.busy = False
        if error is None:
            self.failures = 0
            self.last_error = None
            self._metrics.add(catalogue.PROCESS_RECORDS_TIME, (call.finished_at - call.started_at) * 1000)
            if call.count:
                lane.size.succeeded(call.count)
            if self._failed_calls.succeeded(lane):
                self._close_circuit()
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
        """Lower the checkpointer's bound after a failed call, and return the number of its records that it checkpointed."""
        # Only checkpoints under this lease count: a handler that starts before the lease's checkpoint wants the records up to it
        # as well.
        self._checkpointer.retreat(call.bound_before)
        stored = self._checkpointer.stored
        return 0 if stored is None else bisect_right(call.records, stored, key=position_of)

    def _count(self, records: Sequence[UserRecord]) -> None:
        """Record metrics and throughput of processed records."""
        size = payload_bytes(records)
        self._held.meter.add(size)
        self._metrics.add(catalogue.RECORDS_PROCESSED, len(records))
        self._metrics.add(catalogue.DATA_BYTES_PROCESSED, size)

    def _finish(self, lane: Lane, count: int, last: UserRecord | None, now: float) -> None:
        """Count the next records of a lane as finished. ``last`` is the last of these records, with a single lane."""
        self.records_delivered += count
        self.progress_at = now
        self.lanes.finish(lane, count, last)

    def _go_on(self, lane: Lane) -> None:
        if self.lanes.go_on(lane) and self._parallel and lane.size.is_reduced:
            self._note_full_size(lane, 0)  # the next records of this key get a new lane

    def _failed(self, call: _Call, checkpointed: int, error: BaseException) -> None:
        lane, sub_batch, shard_id = call.lane, call.sub_batch, self._held.shard_id
        now, count = call.finished_at, call.count - checkpointed
        self._metrics.add(catalogue.HANDLER_FAILURES, 1)
        self.failures += 1
        self.last_error = f"process_records: {type(error).__name__}: {error}"
        self._failed_calls.end_row(error, got_on=bool(checkpointed))
        if checkpointed:
            self._failed_calls.finished(lane)
            lane.size.got_on()
            self._count(part_of(call.records, 0, checkpointed))
            self._finish(lane, checkpointed, call.records[checkpointed - 1], now)
        elif count:
            lane.size.failed(count)
        if not count:  # the call checkpointed all of its records before it failed, or it had none
            self._logger.error("shard %s: process_records failed", shard_id, exc_info=error)
            self._go_on(lane)
            return
        self._failed_calls.note(lane, count, error, now)
        self._failed_calls.count(sub_batch)
        if isinstance(error, SinkError) and not error.retryable:
            raise error
        if not checkpointed:  # otherwise, no call has yet got exactly the remaining records
            sub_batch.failures = sub_batch.failures + 1 if sub_batch.failed_size == count else 1
            sub_batch.failed_size = count
        decision = self._decide(
            Failure(
                error=error,
                size=count,
                attempts=sub_batch.failures,
                halved=sub_batch.halved,
                in_a_row=self._failed_calls.in_a_row,
            )
        )
        if isinstance(decision, Retry) and not decision.together:
            sub_batch.fixed_size = 1 if decision.circuit else 0
        else:
            sub_batch.fixed_size = count
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
        """Return the policy's decision, or another decision if it does not suit the failure."""
        decision: object = self._policy.decide(failure)
        if isinstance(decision, SetAside) and isinstance(failure.error, SinkError):
            return Retry(DEFAULT_PAUSES)  # the store failed, and the record may be good
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

    def _pause(self, lane: Lane, decision: Decision, error: BaseException, now: float) -> None:
        self.may_reread = (
            isinstance(decision, Retry) and decision.may_reread and self.failures >= _REREAD_AFTER
        )
        # Consecutive failures of the lane. A single lane counts them across batches, so a batch that was dropped and read again
        # keeps its backoff. With several lanes, each half of a bisected call has its own count.
        sub_batch = lane.pending[0]
        failures = sub_batch.failures if self._parallel and sub_batch.halved else lane.size.failures
        pause = pause_of(decision, max(1, failures), self._runtime.rng)
        is_open = isinstance(decision, Retry) and decision.circuit > 0
        if is_open:
            self.last_error = f"circuit open: {self.last_error}"
            self._metrics.add(catalogue.CIRCUIT_OPEN, 1)
        failing = self._failed_calls.note_pause(lane, now + pause, circuit=is_open)
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
        self.lanes.pause(lane, now + pause)

    def _close_circuit(self) -> None:
        self._metrics.add(catalogue.CIRCUIT_OPEN, 0)
        self._logger.info("shard %s: process_records works again, the circuit is closed", self._held.shard_id)

    def _halve(self, lane: Lane, count: int, error: BaseException) -> None:
        sub_batch = lane.pending[0]
        self._logger.warning(
            "shard %s: process_records failed on %d records from %s on (%s), delivering them in two halves",
            self._held.shard_id,
            count,
            position_of(sub_batch.records[sub_batch.begin]),
            type(error).__name__,
        )
        self.lanes.halve(lane, count)

    def _dead_letter(
        self,
        lane: Lane,
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
        failing = self._failed_calls.of(lane)
        poison = PoisonRecord(
            record=record,
            error=error,
            attempts=attempts,
            shard_id=self._held.shard_id,
            stream=self._runtime.stream,
            by_operator=by_operator,
            failing_seconds=0.0 if failing is None else now - failing.since,
        )
        try:
            result: object = self._runtime.result_of(self._handler._set_aside(poison, hook))
        except (Exception, asyncio.CancelledError) as hook_error:
            if self._held.gone is not None:
                self._logger.info(
                    "shard %s: the dead-letter hook raised %s after the lease was lost",
                    self._held.shard_id,
                    type(hook_error).__name__,
                )
                return
            if isinstance(hook_error, SinkError) and not hook_error.retryable:
                raise
            self.last_error = f"dead_letter: {type(hook_error).__name__}: {hook_error}"
            if failing is None:
                self._failed_calls.note(lane, 1, hook_error, now)
            # attempts=0: the record itself has not failed again, so the decision only sets the pause.
            decision = self._policy.decide(Failure(error=hook_error, size=1, attempts=0))
            self._pause(lane, decision, hook_error, now)
            return
        if isinstance(result, Deferred):
            self._logger.warning(
                "shard %s: record %s is deferred for %.0f s after %d attempts (%s)",
                self._held.shard_id,
                position_of(record),
                result.seconds,
                attempts,
                type(error).__name__,
            )
            self._metrics.add(catalogue.RECORDS_DEFERRED, 1)
        else:
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

    def _leave_out(self, lane: Lane) -> None:
        """Leave out the next record of a lane for an operator: pass it to the dead-letter hook, if the policy has one."""
        now = self._runtime.clock.monotonic()
        sub_batch = lane.pending[0]
        record = sub_batch.records[sub_batch.begin]
        failing = self._failed_calls.of(lane)
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
        self.lanes.note_finished()

    def _set_aside(self, lane: Lane, record: UserRecord, now: float) -> None:
        """Count the next record of a lane as finished, although the handler did not process it."""
        self.failures = 0
        self.last_error = None
        if not self._parallel:
            self._checkpointer.advance(position_of(record))
        lane.size.succeeded(1)
        self._failed_calls.finished(lane)
        self._finish(lane, 1, record, now)
        self._go_on(lane)
