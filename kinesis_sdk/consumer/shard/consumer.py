"""Shard consumer: one shard under one lease, as a state machine that a scheduler steps.

```
WAITING_ON_PARENTS ──► INITIALIZING ──► PROCESSING ──► SHUTTING_DOWN ──► COMPLETE
        │                   │           (per batch)          ▲
        └───────────────────┴── lease lost, stop requested ──┘
```
Reasons for a shutdown, strongest first: lease lost, shard end, ``until`` reached, stop requested. `ShardConsumer.step` does
one piece of work and returns when the next piece is due. The scheduler never runs two steps of a shard at once, so the
callbacks of a shard do not overlap. This module starts no threads and reads only the clock that it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.error_policy import Failure, Stop, pause_of
from kinesis_sdk.common.errors import (
    ConfigError,
    HandlerError,
    InvalidPositionError,
    KinesisSdkError,
    LeaseLostError,
    RestartShardError,
    SinkError,
)
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.common.metrics import BoundMetrics
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import AT_TIMESTAMP
from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.fetch.fetcher import FetchResult
from kinesis_sdk.consumer.handler import AwaitingHandler, RecordHandler, ShardContext
from kinesis_sdk.consumer.intercepted import AroundCheckpoints, InterceptedHandler
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.shard.auto_checkpoint import AutoCheckpoint
from kinesis_sdk.consumer.shard.bad_position import Quarantine
from kinesis_sdk.consumer.shard.batch_size import BatchSize
from kinesis_sdk.consumer.shard.delivery import Delivery
from kinesis_sdk.consumer.shard.failures import FailingCalls, ShardFailures
from kinesis_sdk.consumer.shard.handler_requests import HandlerRequests
from kinesis_sdk.consumer.shard.progress import ShardProgress
from kinesis_sdk.consumer.shard.reader import ShardReader
from kinesis_sdk.consumer.shard.runtime import ShardRuntime
from kinesis_sdk.consumer.shard.state import ShardState, ShutdownReason
from kinesis_sdk.consumer.sinks.handler import SinkHandler
from kinesis_sdk.consumer.sinks.shard_sink import ShardSink
from kinesis_sdk.consumer.sinks.sink import AnySink

_LOGGER = FieldLogger(logging.getLogger(__name__))

_RELEASES = Backoff(0.2, 2.0)
_MAX_BACKOFF = 10.0
"""Maximum seconds between two attempts after a transient failure."""

_TOLD_AFTER = 3
"""Number of consecutive failed calls after which a heartbeat writes them to the lease's row at once. Views report a problem from this
number on."""

_NEVER = float("inf")


class ShardConsumer:
    """Consumer of one shard while its lease is held.

    One thread at a time calls `step`. Any thread may call the other methods, read the properties and `progress`, and call
    `on_ready` when the next step is due immediately. `between_steps` runs a function on the thread of the caller while no step
    runs, and returns its result; False if a step runs. `reason` is None before the shutdown begins.
    """

    def __init__(self, runtime: ShardRuntime, held: HeldLease) -> None:
        self.held = held
        self.parent_keys: frozenset[str] = frozenset(map(runtime.lease_key, held.lease.parent_shard_ids))
        self.state: ShardState = ShardState.WAITING_ON_PARENTS
        self.reason: ShutdownReason | None = None
        self.progress: ShardProgress = ShardProgress(runtime)
        held.measure_progress = self.progress.heartbeat
        self.on_ready: Callable[[], None] = lambda: None
        self.between_steps: Callable[[Callable[[], bool]], bool] = lambda _: False
        self.metrics: BoundMetrics = runtime.measure(held.shard_id)
        self._runtime = runtime
        self._config = runtime.config
        self._logger = runtime.log(_LOGGER, held.shard_id)
        self._log_throttle = LogThrottle(self._logger)
        self._stop_requested = False
        self._handler: AwaitingHandler | None = None
        self._initialized = False
        interceptors = runtime.handlers.interceptors
        self._checkpointer = Checkpointer(
            held,
            clock=runtime.clock,
            sleep=runtime.sleep,
            rng=runtime.rng,
            timeout=runtime.config.failure.checkpoint_timeout,
            metrics=self.metrics,
            around=AroundCheckpoints(interceptors, runtime.stream, held.shard_id) if interceptors else None,
        )
        # A child of a shard that this application read to its end starts at its beginning, even with LATEST.
        self._follows_parent = False
        self._reader: ShardReader | None = None
        self._start_requested = False
        self._restart_read = False
        self._requests = HandlerRequests(held, self._logger)
        held.on_handler_request = lambda: self.on_ready()  # noqa: PLW0108 - the scheduler sets `on_ready` later
        self._quarantine = Quarantine(runtime, held, self.metrics)
        self._delivery: Delivery | None = None
        self._failed_calls = ShardFailures()
        first_pause = min(runtime.config.failure.task_backoff_time, _MAX_BACKOFF)
        self._retries = Backoff(first_pause, _MAX_BACKOFF)
        self._failures = 0
        # Restarts that the handler has requested since the checkpoint last advanced, and the checkpoint at the last restart.
        self._restarts = 0
        self._restarted_at = held.lease.checkpoint
        self._restarting: RestartShardError | None = None
        self._size: BatchSize | None = None
        # Monotonic seconds before which a callback that failed is not called again.
        self._retry_at = float("-inf")
        self._is_failing_told = False
        # Batches that were dropped as a whole. Each dropped batch moves the position, as a delivered record does.
        self._skipped = 0
        self._auto = AutoCheckpoint(runtime, self._checkpointer, enabled=runtime.handlers.auto_checkpoint)
        self._children_created = False
        self._handler_shut_down = False
        self._release_failures = 0
        self._releasing_since = _NEVER

    @property
    def shard_id(self) -> str:
        """Id of the shard."""
        return self.held.shard_id

    @property
    def log_fields(self) -> dict[str, str | None]:
        """Fields of log lines about this shard."""
        return log_fields(stream=self._runtime.stream, shard=self.shard_id, worker=self._runtime.worker_id)

    @property
    def _moves(self) -> int:
        """Lower bound of the number of changes of the position to checkpoint."""
        return self.progress.records_delivered + self._skipped

    @property
    def is_quarantined(self) -> bool:
        """Whether the shard is in `Quarantine`: its lease is kept and re-checked, but it is not consumed."""
        return self._quarantine.active

    @property
    def is_waiting_on_parents(self) -> bool:
        """Whether the end of another shard may start this shard."""
        return self.state is ShardState.WAITING_ON_PARENTS

    def request_stop(self) -> None:
        """Request a clean stop: the running callback finishes, then the lease is released."""
        self._stop_requested = True

    def abandon(self, reason: str) -> None:
        """Drop all records without callbacks, and let a held lease expire. Thread-safe."""
        self.held.let_expire(reason)
        self._complete()

    def restart_read(self) -> None:
        """Drop a hung read at the next step, and resume after the last record that was taken. Thread-safe."""
        self._restart_read = True

    def step(self, now: float) -> float | None:
        """Do the due work; return the monotonic time of the next step, or None once complete.

        A `KinesisSdkError` that it raises cannot be retried: the worker must stop.
        """
        if self.state is ShardState.COMPLETE:
            return self._after_end(now)
        try:
            if self._restarting is not None:
                raise self._restarting
            if self._must_wait(now):
                return _NEVER
            self._check_reasons(now)
            self._follow_requests(now)
            if now < self._retry_at and self.held.gone is None and not self._is_leaving:
                # Something else woke this step: a read that ended, or a changed lease. Without this check, a shard
                # whose records arrive in quick succession would call a failing `initialize` once for each of them.
                return self._retry_at
            if self.state is ShardState.WAITING_ON_PARENTS:
                return self._wait_on_parents(now)
            if self.state is ShardState.INITIALIZING:
                return self._initialize(now)
            if self.state is ShardState.PROCESSING:
                return self._process(now)
            return self._shut_down(now)
        except RestartShardError as error:
            return self._restart(error)
        except LeaseLostError as error:
            self.held.mark_lost(str(error))
            self._begin_shutdown(ShutdownReason.LEASE_LOST)
            return now
        except InvalidPositionError as error:
            if self._reader is not None:
                self._reader.close()
            self.progress.error = f"quarantined: {error}"
            return self._quarantine.enter(now, error)
        except KinesisSdkError as error:
            if not error.retryable:
                raise
            return self._hold_up(now, error)

    def _after_end(self, now: float) -> float | None:
        """Release the memory of records whose call was still running when the shard was abandoned."""
        if self._delivery is not None:
            if self._delivery.is_running:
                return _NEVER  # the end of the call wakes this step
            self._delivery.forget(now)
        return None

    def _follow_requests(self, now: float) -> None:
        """Carry out the requests of an operator."""
        if self.held.gone is not None or self.state is ShardState.SHUTTING_DOWN:
            return
        if self._requests.take_new() is not None:
            # A record is left out when its call begins. So this request ends the pause, as a request to retry does.
            self._retry_at = now
            if self._delivery is not None:
                self._delivery.lanes.retry_now()
        self._requests.end(now)

    def _must_wait(self, now: float) -> bool:
        """Return whether the shard must wait for a running call before it shuts down; until then, it starts no new call."""
        delivery = self._delivery
        if delivery is None or not delivery.is_running:
            if delivery is not None:
                delivery.collect()
            return False
        ending = self._is_leaving or not self.held.is_held(now)
        if ending:
            delivery.collect()
        return ending and delivery.is_running

    @property
    def _is_leaving(self) -> bool:
        """Whether the worker is stopping or handing off the lease."""
        return self._stop_requested or self.held.handoff_requester is not None

    def _check_reasons(self, now: float) -> None:
        if self.held.gone is None and not self.held.is_held(now):
            self.held.mark_lost(f"not renewed for {now - self.held.written_at:.1f} s")
        if self.held.gone is not None:
            if self.reason is not ShutdownReason.LEASE_LOST:
                self._begin_shutdown(ShutdownReason.LEASE_LOST)
        elif self.state is not ShardState.SHUTTING_DOWN:
            if self._stop_requested:
                self._begin_shutdown(ShutdownReason.REQUESTED)
            elif self.held.handoff_requester is not None:
                self._begin_shutdown(ShutdownReason.HANDOFF)

    def _begin_shutdown(self, reason: ShutdownReason) -> None:
        self.state = ShardState.SHUTTING_DOWN
        self.reason = reason
        self._failures = 0
        self.progress.failing_callback = None
        if reason is ShutdownReason.LEASE_LOST:
            self.metrics.retire()  # its next owner records its metrics from now on, perhaps in this process
        level = logging.WARNING if reason is ShutdownReason.LEASE_LOST else logging.INFO
        detail = f" ({self.held.gone})" if reason is ShutdownReason.LEASE_LOST else ""
        self._logger.log(level, "shard %s: shutting down: %s%s", self.shard_id, reason.value, detail)

    def _hold_up(self, now: float, error: Exception) -> float:
        """Log a transient failure and return the time of the retry, from the fetcher or after a backoff."""
        self._failures += 1
        reader = self._reader
        searched = None if reader is None else reader.looks_up
        waits_for = "" if searched is None else f"searching shard {searched} for earlier copies of records: "
        self.progress.error = f"{waits_for}{type(error).__name__}: {error}"
        self._log_throttle.log(now, type(error).__name__, "shard %s: %s; retrying", self.shard_id, error)
        waits = self.state is ShardState.PROCESSING and reader is not None and not reader.is_done
        if waits and reader is not None and not reader.has_pending and reader.due > now:
            return reader.due  # the fetcher has a backoff of its own
        return now + self._retries.pause(self._failures, self._runtime.rng)

    def _restart(self, error: RestartShardError) -> float:
        """Drop the handler and all records that were read; return the time at which the shard restarts at its checkpoint."""
        now = self._runtime.clock.monotonic()  # the callback that failed may have taken long
        if self._delivery is not None:
            if self._delivery.is_running:
                self._restarting = (
                    error  # calls of other partition keys are running; each wakes the step as it ends
                )
                return _NEVER
            self.progress.records_before += self._delivery.records_delivered
            # Otherwise a handler that fails on a few records in a thousand would get the same thousand after each restart.
            self._size = self._delivery.size
            self._delivery.forget(now)
            self._failed_calls.restarted()
        if self._reader is not None:
            self._reader.close()
        self._handler = self._delivery = self._reader = self._restarting = None
        self.progress.handler = self.progress.delivery = self.progress.reader = None
        self._initialized, self._start_requested = False, False
        self.progress.unoffered_since = None
        self._checkpointer.restart()
        self.state, self.reason = ShardState.INITIALIZING, None
        checkpoint = self.held.lease.checkpoint
        self._restarts = 1 if checkpoint > self._restarted_at else self._restarts + 1
        self._restarted_at = checkpoint
        self.metrics.add(catalogue.HANDLER_FAILURES, 1)
        if self._is_leaving:
            self._logger.error("shard %s: %s", self.shard_id, error)
            return now
        self.progress.error = f"{type(error).__name__}: {error}"
        decision = self._config.error_policy.decide(
            Failure(error=error, size=0, attempts=self._restarts, in_a_row=self._restarts)
        )
        pause = pause_of(decision, self._restarts, self._runtime.rng)
        self._logger.error(
            "shard %s: %s; starting again at checkpoint %s in %.1f s",
            self.shard_id,
            error,
            checkpoint,
            pause,
            exc_info=error.__cause__,
        )
        self._retry_at = now + pause
        self._note_failing(now, self._restarts, self.progress.error)
        return self._retry_at

    def _note_failing(self, now: float, attempts: int, error: str) -> None:
        before = self.progress.failing_callback
        self.progress.failing_callback = FailingCalls(
            attempts=attempts,
            since=now if before is None or attempts == 1 else before.since,
            retry_at=self._retry_at,
            records=0,
            position=None,
            error=error,
        )
        self._tell_failing(self.progress.failing_callback)

    def _recovered(self, now: float) -> None:
        self.progress.at = now
        self._failures = 0
        self.progress.error = None

    # WAITING_ON_PARENTS

    def _wait_on_parents(self, now: float) -> float | None:
        lease = self.held.lease
        if lease.is_finished:
            # The scan saw this row before its owner stored SHARD_END and released it. The take succeeded anyway, because it
            # compares only the counter. There is nothing to read, and the leader will delete the lease.
            return self._release(now)
        for parent in lease.parent_shard_ids:
            # A parent without a lease was finished and deleted, or expired before this application started.
            row = self._runtime.store.get(self._runtime.lease_key(parent))
            if row is not None and not row.is_finished and self._is_past_until(row):
                # The rest of the parent arrived at or after the worker's `until`, and so did all records of this shard.
                return self._release(now)
            if row is not None and not row.is_finished:
                self._failures, self.progress.error = (
                    0,
                    None,
                )  # the row could be read, so an earlier failure is over
                return now + self._config.coordination.parent_shard_poll_interval
            if not self._is_in_sink(parent, now):
                return now + self._config.coordination.parent_shard_poll_interval
            self._follows_parent = self._follows_parent or row is not None
        self.state = ShardState.INITIALIZING
        self._recovered(now)
        return now

    def _is_in_sink(self, parent: str, now: float) -> bool:
        """Return whether the sink's row of a parent with a finished lease is ended, or is missing."""
        # The sink stores the end of a shard before the lease table does. If the sink lacks it, the sink was restored from a
        # backup, and the parent's records that it lost come before the records of this shard.
        sink = self._runtime.sink
        state = None if sink is None else self._runtime.result_of(sink.read(self._runtime.sink_key(parent)))
        if state is None or state.ended:
            return True
        self._failures = 0
        self.progress.error = (
            f"its parent {parent} has ended in the lease table, and in the sink it is at {state.position}"
        )
        self._log_throttle.log(
            now,
            "parent in sink",
            "shard %s: waiting, because its parent %s has ended in the lease table, but not in the sink, which is at %s. Set "
            "the parent's lease back (kinesis-sdk leases rewind), so that a worker processes the rest of it",
            self.shard_id,
            parent,
            state.position,
        )
        return False

    def _is_past_until(self, lease: Lease) -> bool:
        return self._runtime.until is not None and self._runtime.until.is_marked(lease)

    # INITIALIZING

    def _initialize(self, now: float) -> float:
        if self._handler is None:
            try:
                made = self._runtime.handlers.make()
            except ConfigError:
                raise
            except Exception as error:  # noqa: BLE001 - errors of a factory are subject to the policy
                return self._handler_failed(now, "initialize", error)
            if self._runtime.sink is not None:
                made = self._with_sink(made, self._runtime.sink)
            interceptors = self._runtime.handlers.interceptors
            if interceptors:
                made = InterceptedHandler(made, interceptors, self._runtime.wait_for)
            self._handler = self.progress.handler = AwaitingHandler(
                made, self._runtime.wait_for, self._runtime.clock.monotonic
            )
        context = self._context()
        retry_at = self._open(now, self._handler)
        if retry_at is not None:
            return retry_at
        try:
            self._handler.initialize(context)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - errors of a handler are subject to the policy
            return self._handler_failed(now, "initialize", error)
        self._initialized = True
        if not self._restarts:
            self.progress.failing_callback = None
        self._delivery = self.progress.delivery = Delivery(
            self._runtime,
            held=self.held,
            handler=self._handler.inner,
            checkpointer=self._checkpointer,
            metrics=self.metrics,
            requests=self._requests,
            failed=self._failed_calls,
            on_call_ended=self.on_ready,
            size=self._size,
        )
        self.state = ShardState.PROCESSING
        self._recovered(self._runtime.clock.monotonic())
        return now

    def _with_sink(self, handler: RecordHandler, sink: AnySink) -> RecordHandler:
        """Return a handler that calls the user's handler in transactions of the sink."""
        shard = ShardSink(sink, self._runtime.sink_key(self.shard_id), self.held, log=self._runtime.log)
        wrapped = SinkHandler(handler, shard, concurrency=self._config.concurrency)
        self._checkpointer.limit_to(wrapped.committed)
        return wrapped

    def _context(self) -> ShardContext:
        lease = self.held.lease
        return ShardContext(
            stream=self._runtime.stream,
            shard_id=self.shard_id,
            worker_id=self._runtime.worker_id,
            checkpoint=lease.checkpoint,
            hash_key_range=lease.hash_key_range,
            pending_checkpoint=lease.pending_checkpoint,
            pending_checkpoint_state=lease.pending_checkpoint_state,
        )

    def _open(self, now: float, handler: AwaitingHandler) -> float | None:
        """Open the reader and return None, or return the time of the next step.

        The reader stays closed if the handler failed to return its starting position, or if there is nothing to read.
        """
        if self._reader is None:
            self._reader = self.progress.reader = ShardReader(
                self._runtime,
                self.held,
                follows_parent=self._follows_parent,
                on_ready=self.on_ready,
                settle_quiet=self._settle_quiet,
                metrics=self.metrics,
            )
        reader = self._reader
        if not reader.is_open:
            self._quarantine.accept_repair()
            if self._is_finished():
                # An operator repaired the row of a quarantined shard to SHARD_END, which has no iterator.
                self._begin_shutdown(ShutdownReason.REQUESTED)
                return now
            # Ask the handler once, before the first read. In quarantine, ask again: its position may have been corrected.
            if not self._start_requested or self._quarantine.active:
                try:
                    reader.requested_start = handler.starting_position(self._context())
                except ConfigError:
                    raise
                except Exception as error:  # noqa: BLE001 - errors of a handler are subject to the policy
                    return self._handler_failed(now, "starting_position", error)
                self._start_requested = True
        reader.open(now)
        return None

    # PROCESSING

    def _process(self, now: float) -> float:
        reader, delivery, handler = self._reader, self._delivery, self._handler
        assert reader is not None
        assert delivery is not None
        assert handler is not None
        if self._restart_read:
            self._restart_read = False
            if self.progress.unoffered_since is None:
                self.progress.unoffered_since = (
                    reader.waiting_since
                )  # these records are dropped here and read again
            reader.close()
        if not reader.is_open and not reader.is_done:
            retry_at = self._open(now, handler)
            if retry_at is not None:
                return retry_at
        due = self._advance(delivery, now)
        if delivery.lanes.has_room and not reader.is_done:
            if self.progress.unoffered_since is None:
                self.progress.unoffered_since = reader.waiting_since
            batch = reader.take(now)
            if batch is not None:
                self._quarantine.leave()
                self._recovered(max(now, reader.progress_at))
                wants_empty = handler.inner.empty_batches and not reader.is_done
                offered = delivery.lanes.accepts(batch.records, wants_empty=wants_empty)
                if offered:
                    batch.charge(delivery.lanes.overhead_of(len(batch.records)))
                    delivery.lanes.offer(batch.records, batch.header, batch.on_done, end=batch.dropped_end)
                self._note_read(batch.header)
                if batch.dropped_end is not None and not batch.records:
                    self._skipped += 1
                    if not offered:
                        delivery.lanes.skip(batch.dropped_end)
                        self._auto.note(self._moves, now)
                if offered:
                    due = self._advance(delivery, now)
                else:
                    batch.on_done()
            elif reader.progress_at >= now:
                # A look-up may take long, and each of its calls is progress.
                self._recovered(reader.progress_at)
        if self.held.gone is not None:
            return now  # a checkpoint of the handler found that the lease is lost
        if reader.is_done and delivery.lanes.is_empty:
            self._begin_shutdown(ShutdownReason.SHARD_END if reader.ended else ShutdownReason.UNTIL)
            return now
        self._auto.run(self._moves, now)
        self._requests.end(now)
        if self._should_free_memory(delivery):
            self.progress.unoffered_since = delivery.lanes.waiting_since
            reader.rewind(self._checkpointer.delivered)
            return now + delivery.forget(now)
        if delivery.lanes.has_room and not reader.is_done:
            due = min(due, max(now, reader.due))
        return min(due, max(now, self._auto.due))

    def _settle_quiet(self, result: FetchResult) -> bool:
        """Take note of a response without records; return False if a step must handle it. Called on the thread that read the response.

        A worker with a thousand quiet shards gets a thousand such responses a second. Passing each response to another thread costs as
        much as the call.
        """
        return self.between_steps(lambda: self._has_settled(result))

    def _has_settled(self, result: FetchResult) -> bool:
        reader, delivery, handler = self._reader, self._delivery, self._handler
        if (
            reader is None
            or delivery is None
            or handler is None
            or self.state is not ShardState.PROCESSING
            or self._restart_read
            or self._restarting is not None
            or self._quarantine.active
            or self._is_leaving
            or self.held.gone is not None
            or self.held.handler_request is not None
            or handler.inner.empty_batches
            or delivery.is_running
            or not delivery.lanes.is_empty
            or self._runtime.until is not None
            or not reader.has_nothing_to_do
        ):
            return False
        self._recovered(self._runtime.clock.monotonic())
        self._note_read(result.header)
        return True

    def _note_read(self, header: ResponseHeader) -> None:
        if header.read_at is not None:  # None: no response was read ahead yet
            self.progress.last_read = header
            self.progress.unoffered_since = None

    def _advance(self, delivery: Delivery, now: float) -> float:
        before = delivery.records_delivered
        due = delivery.advance(now)
        if delivery.records_delivered > before:
            self.progress.failing_callback = None
            self._recovered(delivery.progress_at)
        self._auto.note(self._moves, delivery.progress_at)
        self._tell_failing(delivery.failing)
        return _NEVER if due is None else due

    def _tell_failing(self, calls: FailingCalls | None) -> None:
        """Write a heartbeat once the handler has failed a few times, so that other programs see it seconds sooner.

        Raises the errors of `HeldLease.renew` that cannot be retried.
        """
        if calls is None:
            self._is_failing_told = False
        elif calls.attempts >= _TOLD_AFTER and not self._is_failing_told:
            self._is_failing_told = True
            try:
                self.held.renew()
            except LeaseLostError as error:
                # `held.gone` is set, and the next step ends the shard.
                self._logger.debug("shard %s: %s", self.shard_id, error)
            except KinesisSdkError as error:
                if not error.retryable:
                    raise
                self._logger.debug(
                    "shard %s: cannot report the failure yet, the next heartbeat will: %s",
                    self.shard_id,
                    error,
                )

    def _should_free_memory(self, delivery: Delivery) -> bool:
        """Return whether to free the memory of a batch that keeps failing or is not due, and read it again later.

        A batch that is being bisected is kept, because bisection makes progress.
        """
        return self._runtime.budget.is_crowded and delivery.may_reread and delivery.is_pausing

    def _handler_failed(self, now: float, callback: str, error: Exception) -> float:
        if isinstance(error, RestartShardError):
            raise error
        if self.held.gone is not None:
            self._logger.info(
                "shard %s: %s raised %s after the lease was lost",
                self.shard_id,
                callback,
                type(error).__name__,
            )
            return now
        if isinstance(error, SinkError):
            raise error  # the store failed, not the handler
        self.metrics.add(catalogue.HANDLER_FAILURES, 1)
        self._failures += 1
        self.progress.error = f"{callback}: {type(error).__name__}: {error}"
        decision = self._config.error_policy.decide(
            Failure(error=error, size=0, attempts=self._failures, in_a_row=self._failures)
        )
        if not isinstance(decision, Stop):
            pause = pause_of(decision, self._failures, self._runtime.rng)
            self._logger.error(
                "shard %s: %s failed (%d consecutive failures), retrying in %.1f s",
                self.shard_id,
                callback,
                self._failures,
                pause,
                exc_info=error,
            )
            # The pause begins now: the callback that failed may have taken long.
            ended = self._runtime.clock.monotonic()
            self._retry_at = ended + pause
            self._note_failing(ended, self._failures, self.progress.error)
            return self._retry_at
        raise HandlerError(f"shard {self.shard_id}: {callback} failed: {error}") from error

    # SHUTTING_DOWN

    def _shut_down(self, now: float) -> float | None:
        if self.reason is ShutdownReason.LEASE_LOST:
            if self._initialized and self._handler is not None:
                try:
                    self._handler.lease_lost()
                except Exception:
                    self.metrics.add(catalogue.HANDLER_FAILURES, 1)
                    self._logger.exception("shard %s: lease_lost failed", self.shard_id)
            self._complete()
            return None
        if self.reason in (ShutdownReason.SHARD_END, ShutdownReason.UNTIL) and not self._handler_shut_down:
            # A worker that is leaving tries once, then leaves the end of the shard to the next owner.
            is_leaving = self._is_leaving
            is_shard_end = self.reason is ShutdownReason.SHARD_END
            due: float | None = now
            try:
                due = self._end_shard(now) if is_shard_end else self._end_until(now)
            except KinesisSdkError as error:
                if not is_leaving or not error.retryable:
                    raise
                self._logger.warning(
                    "shard %s: leaving the end of the shard to the next owner: %s", self.shard_id, error
                )
            else:
                if due is not None and not is_leaving:
                    return due
            if is_shard_end and due is not None and not self._children_created:
                # `shard_ended` was not called, so this is the last chance to checkpoint. The next owner processes again
                # everything after the checkpoint.
                self._shut_down_handler()
        elif self._initialized and self._handler is not None and not self._handler_shut_down:
            self._shut_down_handler()
        return self._release(now)

    def _end_shard(self, now: float) -> float | None:
        """Create child leases and call ``shard_ended``, which must checkpoint; return None once done, otherwise the time of the retry."""
        assert self._handler is not None
        assert self._reader is not None
        if self._is_finished():
            return None
        if not self._children_created:
            if not self._runtime.children.create(
                self.shard_id,
                self._reader.child_shards,
                heirs=self.held.lease.child_shard_ids,
                inherit=self._child_start,
            ):
                if self._runtime.until is not None and self._runtime.children.are_past(
                    self.shard_id, self._reader.child_shards, self._is_past_until
                ):
                    # No record from before the worker's `until` is left in this shard or in its children.
                    return self._end_until(now)
                return now + self._config.coordination.parent_shard_poll_interval
            self._children_created = True
        self._checkpointer.end_shard()
        try:
            self._handler.shard_ended(self._checkpointer)
        except Exception as error:  # noqa: BLE001 - errors of a handler are subject to the policy
            return self._handler_failed(now, "shard_ended", error)
        if not self._is_finished():
            missing = HandlerError("shard_ended returned without a checkpoint")
            return self._handler_failed(now, "shard_ended", missing)
        self._recovered(now)
        return None

    def _child_start(self, child: Lease) -> Lease:
        """Return the lease of a child with its starting position."""
        # A table's stream does not say when a shard was written. So AT_TIMESTAMP reads the oldest shards and drops records
        # that are too old. If this shard delivered none, its children start with AT_TIMESTAMP as well.
        lease = self.held.lease
        if (
            self._runtime.stream.is_of_table
            and lease.checkpoint.sequence_number == AT_TIMESTAMP
            and not self.progress.records_delivered
        ):
            return replace(
                child,
                checkpoint=lease.checkpoint,
                initial_timestamp_millis=lease.initial_timestamp_millis
                or self._config.initial_timestamp_millis,
            )
        return child

    def _end_until(self, now: float) -> float | None:
        """Let the handler checkpoint and mark the shard as processed; return None once done, otherwise the time of the retry."""
        assert self._handler is not None
        assert self._runtime.until is not None
        try:
            self._handler.shutdown_requested(self._checkpointer)
        except LeaseLostError:
            raise
        except Exception as error:  # noqa: BLE001 - errors of a handler are subject to the policy
            return self._handler_failed(now, "shutdown_requested", error)
        if self._runtime.handlers.auto_checkpoint:
            self._checkpointer.checkpoint()
        last = self._checkpointer.last_checkpoint
        if last < self._checkpointer.largest_delivered:
            # A retry would not help: the handler has processed these records and chose not to checkpoint them.
            self._logger.warning(
                "shard %s: processed until %s, but the handler checkpointed %s only; the next run starts there",
                self.shard_id,
                self._runtime.until,
                last,
            )
        self.held.mark_processed(self._runtime.until.millis)
        self._logger.info(
            "shard %s: processed until %s, checkpoint %s", self.shard_id, self._runtime.until, last
        )
        self._recovered(now)
        return None

    def _is_finished(self) -> bool:
        return self.held.lease.is_finished

    def _shut_down_handler(self) -> None:
        """Let the handler checkpoint the delivered records before the lease is released."""
        assert self._handler is not None
        self._handler_shut_down = True
        try:
            self._handler.shutdown_requested(self._checkpointer)
            if self._runtime.handlers.auto_checkpoint:
                self._checkpointer.checkpoint()
        except LeaseLostError:
            raise
        except Exception:
            self._logger.exception(
                "shard %s: failed to checkpoint on shutdown, records after %s will be redelivered",
                self.shard_id,
                self._checkpointer.last_checkpoint,
            )

    def _release(self, now: float) -> float | None:
        try:
            self.held.release()
        except LeaseLostError:
            pass  # a peer owns it already, so there is nothing to release
        except KinesisSdkError as error:
            self._release_failures += 1
            self._releasing_since = min(self._releasing_since, now)
            # Retry for as long as peers would wait for an unreleased lease to expire.
            if error.retryable and now - self._releasing_since < self._config.leases.failover_time:
                return now + _RELEASES.pause(self._release_failures, self._runtime.rng)
            self.held.let_expire("its release failed")
            self._logger.warning("lease %s: release failed, leaving it to expire: %s", self.shard_id, error)
        self._complete()
        return None

    def _complete(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._delivery is not None and not self._delivery.is_running:
            self._delivery.forget(self._runtime.clock.monotonic())
        self.state = ShardState.COMPLETE
        self.metrics.retire()
