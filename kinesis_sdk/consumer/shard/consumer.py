"""One shard under one lease: a state machine that a scheduler steps.

```
WAITING_ON_PARENTS ──► INITIALIZING ──► PROCESSING ──► SHUTTING_DOWN ──► COMPLETE
        │                   │           (per batch)          ▲
        └───────────────────┴── lease lost, stop requested ──┘
```
Reasons to shut down, the stronger first: lease lost, shard end, stop requested. `ShardConsumer.step` does one
piece of work and says when the next is due; the scheduler never runs two steps of a shard at once, so callbacks
of a shard never overlap. Nothing in here starts a thread or reads a clock beside the one it was given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.backoff import backoff
from kinesis_sdk.common.errors import (
    AwsError,
    ConfigError,
    HandlerError,
    InvalidPositionError,
    KinesisSdkError,
    LeaseLostError,
)
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.common.metrics import BoundMetrics
from kinesis_sdk.common.response_header import NO_RESPONSE
from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.error_policy import RetryBatch, StopWorker
from kinesis_sdk.consumer.handler import AwaitingHandler, ShardContext
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.consumer.runtime.threads import wait_for
from kinesis_sdk.consumer.shard.auto_checkpoint import AutoCheckpoint
from kinesis_sdk.consumer.shard.bad_position import Quarantine
from kinesis_sdk.consumer.shard.delivery import Delivery, DeliveryTools
from kinesis_sdk.consumer.shard.reader import ShardReader, UserBatch
from kinesis_sdk.consumer.shard.state import ShardConsumerParts, ShardState, ShutdownReason

_LOGGER = logging.getLogger(__name__)

_MOST_BACKOFF = 10.0
_REREAD_AFTER = 3
"""Failures of a handler in a row after which its batch is read again later, if other shards wait for the memory."""

_LONGEST_QUIET = 10.0
"""Seconds without an answer at the tip that are nothing unusual: fan-out sends an event every five seconds."""

_NEVER = float("inf")


class ShardConsumer:
    """Consumes one shard while its lease is held.

    `step` is called by one thread at a time, `request_stop` and the read-only attributes by any.

    Args:
        parts: What is shared.
        held: The lease.

    Attributes:
        state: Current state.
        reason: Why it shuts down, once it does.
        last_progress: Monotonic time of the last successful fetch or delivery.
        on_ready: Called from any thread when the next step should come at once.
        metrics: Metrics of the shard under this lease.
    """

    def __init__(self, parts: ShardConsumerParts, held: HeldLease) -> None:
        self.held = held
        self.state: ShardState = ShardState.WAITING_ON_PARENTS
        self.reason: ShutdownReason | None = None
        self.last_progress: float = parts.clock.monotonic()
        self.on_ready: Callable[[], None] = lambda: None
        self.metrics: BoundMetrics = parts.measure(held.shard_id)
        self._parts = parts
        self._config = parts.config
        self._log_throttle = LogThrottle(_LOGGER)
        self._stop_requested = False
        self._handler: AwaitingHandler | None = None
        self._initialized = False
        self._checkpointer = Checkpointer(
            held,
            clock=parts.clock,
            sleep=parts.sleep,
            rng=parts.rng,
            timeout=parts.config.failure.checkpoint_timeout,
            metrics=self.metrics,
        )
        # A child of a shard that this application read to its end starts at its beginning, LATEST or not.
        self._follows_parent = False
        self._reader: ShardReader | None = None
        self._reread = False
        self._quarantine = Quarantine(parts, held, self.metrics)
        self._delivery: Delivery | None = None
        # Header of the last response.
        self._last_read = NO_RESPONSE
        # When the oldest record arrived that is between reader and delivery, or is to be read again.
        self._unoffered_since: float | None = None
        self._quiet = max(_LONGEST_QUIET, 2 * parts.config.retrieval.idle_times[2])
        self._failures = 0
        self._error: str | None = None
        self._auto = AutoCheckpoint(self._checkpointer, parts.config, enabled=parts.handlers.auto_checkpoint)
        self._children_created = False
        self._release_failures = 0
        self._releasing_since = _NEVER

    @property
    def shard_id(self) -> str:
        """The shard."""
        return self.held.shard_id

    @property
    def records_delivered(self) -> int:
        """User records whose delivery succeeded, dead letters included."""
        return self._delivery.records_delivered if self._delivery is not None else 0

    @property
    def records_dead_lettered(self) -> int:
        """User records that went to the dead-letter hook."""
        return self._delivery.records_dead_lettered if self._delivery is not None else 0

    @property
    def last_error(self) -> str | None:
        """The failure that holds it up now, if any."""
        delivery = self._delivery
        return self._error or (delivery.last_error if delivery is not None else None)

    @property
    def millis_behind_latest(self) -> int | None:
        """Lag of the last response in milliseconds; None before the first one, or if Kinesis reports none."""
        return self._last_read.millis_behind_latest

    @property
    def is_quarantined(self) -> bool:
        """Whether its lease names a position that the shard does not have; see `Quarantine`."""
        return self._quarantine.active

    @property
    def is_waiting_on_parents(self) -> bool:
        """Whether the end of another shard may let this one go on."""
        return self.state is ShardState.WAITING_ON_PARENTS

    def request_stop(self) -> None:
        """Ask for a clean stop: the running callback finishes, the lease is released."""
        self._stop_requested = True

    def abandon(self, reason: str) -> None:
        """Drop everything without callbacks; a lease that is held is left to expire. From any thread."""
        self.held.let_expire(reason)
        self._complete()

    @property
    def running_callback(self) -> tuple[str, float] | None:
        """Name of the callback under way and when it began, None if there is none."""
        handler, delivery = self._handler, self._delivery
        running = handler.running if handler is not None else None
        if running is None and delivery is not None:
            since = delivery.calling_since
            running = ("process_records", since) if since is not None else None
        return running

    def oldest_unprocessed_age(self, now: float) -> float | None:
        """Seconds since the oldest record that is not processed arrived at the service. From any thread.

        Of records that were read, it is known as `ArrivalTimes` says. Of records that were not read, the last answer
        gives an upper bound: they are not older than its lag plus the time since then. At the tip nothing is known to
        wait, so it is 0, until reads have not succeeded for longer than an idle shard is left alone.

        Returns:
            None if it is not known: nothing was read yet, or the service reports no lag.
        """
        delivery, reader = self._delivery, self._reader
        if delivery is not None and not delivery.is_empty:
            since = delivery.waiting_since
            return None if since is None else max(0.0, now - since)
        since = self._unoffered_since
        if since is None and reader is not None:
            since = reader.waiting_since
        if since is not None:
            return max(0.0, now - since)
        if reader is not None and reader.ended:
            return 0.0
        last_read = self._last_read
        read_at, millis = last_read.read_at, last_read.millis_behind_latest
        if read_at is None or millis is None:
            return None
        silent = max(0.0, now - read_at)
        if not millis:
            return silent if silent > self._quiet else 0.0
        return millis / 1000 + silent

    @property
    def waits_for_reads(self) -> bool:
        """Whether nothing but the next answer of the service is missing, on another thread than this shard's own."""
        reader, delivery = self._reader, self._delivery
        return (
            self.state is ShardState.PROCESSING
            and not self._quarantine.active
            and delivery is not None
            and delivery.is_empty
            and reader is not None
            and reader.reading_since is None
        )

    def read_again(self) -> None:
        """Drop a read that hangs and begin another one after the last record taken, at the next step."""
        self._reread = True

    def step(self, now: float) -> float | None:
        """Do what is due.

        Args:
            now: Monotonic time.

        Returns:
            Monotonic time of the next step; None once complete.

        Raises:
            KinesisSdkError: Something that repeating does not cure; the worker has to stop.
        """
        if self.state is ShardState.COMPLETE:
            return self._after_end(now)
        if self._must_wait(now):
            return _NEVER
        self._check_reasons(now)
        try:
            if self.state is ShardState.WAITING_ON_PARENTS:
                return self._wait_on_parents(now)
            if self.state is ShardState.INITIALIZING:
                return self._initialize(now)
            if self.state is ShardState.PROCESSING:
                return self._process(now)
            return self._shut_down(now)
        except LeaseLostError as error:
            self.held.mark_lost(str(error))
            self._begin_shutdown(ShutdownReason.LEASE_LOST)
            return now
        except InvalidPositionError as error:
            if self._reader is not None:
                self._reader.close()
            self._error = f"quarantined: {error}"
            return self._quarantine.enter(now, error)
        except KinesisSdkError as error:
            if not error.retryable:
                raise
            return self._hold_up(now, error)

    def _after_end(self, now: float) -> float | None:
        """Return the budget of the records of a call that was still running when this shard was abandoned."""
        if self._delivery is not None:
            if self._delivery.is_running:
                return _NEVER  # its end wakes this step
            self._delivery.forget(now)
        return None

    def _must_wait(self, now: float) -> bool:
        """Whether a call under way has to end before the shard can shut down; nothing new is begun meanwhile."""
        delivery = self._delivery
        if delivery is None or not delivery.is_running:
            if delivery is not None:
                delivery.collect()
            return False
        ending = self._stop_requested or self.held.handoff_requester is not None or not self.held.is_held(now)
        if ending:
            delivery.collect()
        return ending and delivery.is_running

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
                self._begin_shutdown(ShutdownReason.HANDOVER)

    def _begin_shutdown(self, reason: ShutdownReason) -> None:
        self.state = ShardState.SHUTTING_DOWN
        self.reason = reason
        self._failures = 0
        if reason is ShutdownReason.LEASE_LOST:
            self.metrics.retire()  # its next owner records now, perhaps in this process
        level = logging.WARNING if reason is ShutdownReason.LEASE_LOST else logging.INFO
        detail = f" ({self.held.gone})" if reason is ShutdownReason.LEASE_LOST else ""
        _LOGGER.log(level, "shard %s: shutting down: %s%s", self.shard_id, reason.value, detail)

    def _hold_up(self, now: float, error: Exception) -> float:
        """A passing failure: log it, and try again when the fetcher or the backoff says."""
        self._failures += 1
        self._error = f"{type(error).__name__}: {error}"
        self._log_throttle.log(now, type(error).__name__, "shard %s: %s; trying again", self.shard_id, error)
        reader = self._reader
        waits = self.state is ShardState.PROCESSING and reader is not None and not reader.ended
        if waits and reader is not None and not reader.has_pending and reader.due > now:
            return reader.due  # the fetcher has its own backoff
        return now + backoff(
            self._failures, self._config.failure.task_backoff_time, _MOST_BACKOFF, self._parts.rng
        )

    def _recovered(self, now: float) -> None:
        self.last_progress = now
        self._failures = 0
        self._error = None

    # WAITING_ON_PARENTS

    def _wait_on_parents(self, now: float) -> float | None:
        lease = self.held.lease
        if lease.is_finished:
            # Somebody finished it between our look and our take; only the cleanup is left to do.
            return self._release(now)
        for parent in lease.parent_shard_ids:
            # An absent parent is finished and cleaned up, or was trimmed before this application began.
            row = self._parts.store.get(self._parts.lease_key(parent))
            if row is not None and not row.is_finished:
                self._failures, self._error = 0, None  # the row can be read, whatever was wrong before
                return now + self._config.coordination.parent_shard_poll_interval
            self._follows_parent = self._follows_parent or row is not None
        self.state = ShardState.INITIALIZING
        self._recovered(now)
        return now

    # INITIALIZING

    def _initialize(self, now: float) -> float:
        lease = self.held.lease
        if self._handler is None:
            run_async = self._parts.run_async
            try:
                made = self._parts.handlers.make()
            except ConfigError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a factory raises goes to the failure policy
                return self._handler_failed(now, "initialize", error)
            self._handler = AwaitingHandler(
                made, lambda awaitable: wait_for(run_async, awaitable), self._parts.clock.monotonic
            )
        self._open(now)
        try:
            self._handler.initialize(
                ShardContext(
                    stream=self._parts.stream,
                    shard_id=self.shard_id,
                    worker_id=self._parts.worker_id,
                    checkpoint=lease.checkpoint,
                    hash_key_range=lease.hash_key_range,
                    pending_checkpoint=lease.pending_checkpoint,
                    pending_checkpoint_state=lease.pending_checkpoint_state,
                )
            )
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a handler raises goes to the failure policy
            return self._handler_failed(now, "initialize", error)
        self._initialized = True
        self._delivery = Delivery(self._delivery_tools(self._handler))
        self.state = ShardState.PROCESSING
        self._recovered(self._parts.clock.monotonic())
        return now

    def _delivery_tools(self, handler: AwaitingHandler) -> DeliveryTools:
        parts = self._parts
        return DeliveryTools(
            shard_id=self.shard_id,
            stream=parts.stream,
            handler=handler,
            checkpointer=self._checkpointer,
            policy=self._config.error_policy,
            concurrency=handler.inner.concurrency or self._config.concurrency,
            clock=parts.clock,
            rng=parts.rng,
            metrics=self.metrics,
            count_bytes=self.held.meter.add,
            run=parts.run,
            run_async=parts.run_async,
            wait_for=lambda awaitable: wait_for(parts.run_async, awaitable),
            on_done=self.on_ready,
            is_lost=lambda: self.held.gone is not None,
        )

    def _open(self, now: float) -> None:
        if self._reader is None:
            self._reader = ShardReader(
                self._parts,
                self.held,
                follows_parent=self._follows_parent,
                on_ready=self.on_ready,
                metrics=self.metrics,
            )
        if not self._reader.is_open:
            self._quarantine.look_for_repair()
        self._reader.open(now)

    # PROCESSING

    def _process(self, now: float) -> float:
        reader, delivery = self._reader, self._delivery
        assert reader is not None
        assert delivery is not None
        if self._reread:
            self._reread = False
            if self._unoffered_since is None:
                self._unoffered_since = reader.waiting_since  # it is dropped, and read again
            reader.close()
        if not reader.is_open and not reader.ended:
            self._open(now)
        due = self._advance(delivery, now)
        if delivery.has_room and not reader.ended:
            if self._unoffered_since is None:
                self._unoffered_since = reader.waiting_since
            batch = reader.take(now)
            if batch is not None:
                self._quarantine.leave()
                self._recovered(now)
                if batch.records:
                    batch.charge(delivery.overhead_of(len(batch.records)))
                    delivery.offer(batch.records, batch.header, batch.on_done)
                self._note_read(batch)
                if batch.records:
                    due = self._advance(delivery, now)
                else:
                    batch.on_done()
        if self.held.gone is not None:
            return now  # found out by a checkpoint of the handler
        if reader.ended and delivery.is_empty:
            self._begin_shutdown(ShutdownReason.SHARD_END)
            return now
        self._auto.run(delivery.records_delivered, now)
        if self._gives_way(delivery):
            self._unoffered_since = delivery.waiting_since
            reader.rewind(self._checkpointer.largest_delivered)
            return now + delivery.forget(now)
        if delivery.has_room and not reader.ended:
            due = min(due, max(now, reader.due))
        return min(due, max(now, self._auto.due))

    def _note_read(self, batch: UserBatch) -> None:
        if batch.header.read_at is not None:  # else nothing was read ahead yet
            self._last_read = batch.header
            self._unoffered_since = None

    def _advance(self, delivery: Delivery, now: float) -> float:
        before = delivery.records_delivered
        due = delivery.advance(now)
        if delivery.records_delivered > before:
            self._recovered(delivery.progress_at)
        self._auto.note(delivery.records_delivered, delivery.progress_at)
        return _NEVER if due is None else due

    def _gives_way(self, delivery: Delivery) -> bool:
        """Whether a batch that its handler keeps refusing should give its memory to shards that wait for it.

        It is read again later. Not while it is bisected: that makes progress by itself.
        """
        return (
            self._parts.budget.is_crowded
            and isinstance(self._config.error_policy, RetryBatch)
            and delivery.is_pausing
            and delivery.failures >= _REREAD_AFTER
        )

    def _handler_failed(self, now: float, callback: str, error: Exception) -> float:
        if self.held.gone is not None:
            _LOGGER.info(
                "shard %s: %s raised %s after the lease was lost",
                self.shard_id,
                callback,
                type(error).__name__,
            )
            return now
        policy = self._config.error_policy
        self.metrics.add(catalogue.HANDLER_FAILURES, 1)
        self._failures += 1
        self._error = f"{callback}: {type(error).__name__}: {error}"
        if not isinstance(policy, StopWorker):
            pause = backoff(self._failures, policy.initial_delay, policy.max_delay, self._parts.rng)
            _LOGGER.error(
                "shard %s: %s failed (%d in a row), again in %.1f s",
                self.shard_id,
                callback,
                self._failures,
                pause,
                exc_info=error,
            )
            return now + pause
        raise HandlerError(f"shard {self.shard_id}: {callback} failed: {error}") from error

    # SHUTTING_DOWN

    def _shut_down(self, now: float) -> float | None:
        if self.reason is ShutdownReason.LEASE_LOST:
            if self._initialized and self._handler is not None:
                try:
                    self._handler.lease_lost()
                except Exception:
                    self.metrics.add(catalogue.HANDLER_FAILURES, 1)
                    _LOGGER.exception("shard %s: lease_lost failed", self.shard_id)
            self._complete()
            return None
        if self.reason is ShutdownReason.SHARD_END:
            # A worker that stops or hands the lease off tries once more, then leaves the shard's end to the next owner.
            leaves = self._stop_requested or self.held.handoff_requester is not None
            try:
                due = self._end_shard(now)
            except KinesisSdkError as error:
                if not leaves or not error.retryable:
                    raise
                _LOGGER.warning("shard %s: its end is left to the next owner: %s", self.shard_id, error)
            else:
                if due is not None and not leaves:
                    return due
        elif self._initialized and self._handler is not None and not self._release_failures:
            self._last_words()
        return self._release(now)

    def _end_shard(self, now: float) -> float | None:
        """Children, callback, SHARD_END, in this order; None once done, else when to go on."""
        assert self._handler is not None
        assert self._reader is not None
        if self._is_finished():
            return None
        if not self._children_created:
            if not self._parts.children.create(self.shard_id, self._reader.child_shards):
                return now + self._config.coordination.parent_shard_poll_interval
            self._children_created = True
        self._checkpointer.end_shard()
        try:
            self._handler.shard_ended(self._checkpointer)
        except Exception as error:  # noqa: BLE001 - see above
            return self._handler_failed(now, "shard_ended", error)
        if not self._is_finished():
            missing = HandlerError("shard_ended returned without a checkpoint")
            return self._handler_failed(now, "shard_ended", missing)
        self._recovered(now)
        return None

    def _is_finished(self) -> bool:
        return self.held.lease.is_finished

    def _last_words(self) -> None:
        """A clean stop: what was delivered may be checkpointed before the lease goes to a peer."""
        assert self._handler is not None
        try:
            self._handler.shutdown_requested(self._checkpointer)
            if self._parts.handlers.auto_checkpoint:
                self._checkpointer.checkpoint()
        except LeaseLostError:
            raise
        except Exception:
            _LOGGER.exception(
                "shard %s: the checkpoint of a clean stop failed; what followed %s is delivered again",
                self.shard_id,
                self._checkpointer.last_checkpoint,
            )

    def _release(self, now: float) -> float | None:
        try:
            self.held.release()
        except LeaseLostError:
            pass  # a peer has it already, which is what releasing is for
        except AwsError as error:
            self._release_failures += 1
            self._releasing_since = min(self._releasing_since, now)
            # For as long as peers would have to wait if it were left to expire.
            if error.retryable and now - self._releasing_since < self._config.leases.failover_time:
                return now + backoff(self._release_failures, 0.2, 2.0, self._parts.rng)
            self.held.let_expire("its release failed")
            _LOGGER.warning("lease %s: could not be released, it will expire: %s", self.shard_id, error)
        self._complete()
        return None

    def _complete(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._delivery is not None and not self._delivery.is_running:
            self._delivery.forget(self._parts.clock.monotonic())
        self.state = ShardState.COMPLETE
        self.metrics.retire()
