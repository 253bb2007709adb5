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

from kinesis_sdk.common.aggregation import deaggregate
from kinesis_sdk.common.errors import (
    AwsError,
    ConfigError,
    HandlerError,
    KinesisSdkError,
    LeaseLostError,
    ResourceNotFoundError,
    TransientAwsError,
)
from kinesis_sdk.common.records import KinesisRecord, UserRecord
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.failure import RetryBatch, backoff
from kinesis_sdk.consumer.fetch.fetcher import Fetcher, FetchResult, Position
from kinesis_sdk.consumer.handler import RecordBatch, RecordHandler, ShardContext
from kinesis_sdk.consumer.leases.held import HeldLease
from kinesis_sdk.consumer.repeats import RepeatLog
from kinesis_sdk.consumer.shard_state import ShardConsumerParts, ShardState, ShutdownReason

_LOGGER = logging.getLogger("kinesis_sdk.consumer")

_MOST_BACKOFF = 10.0
_RELEASE_ATTEMPTS = 4


class ShardConsumer:
    """Consumes one shard while its lease is held.

    `step` is called by one thread at a time. `request_stop` and the read-only attributes may be used from any
    thread.

    Args:
        parts: What is shared.
        held: The lease.

    Attributes:
        state: Current state.
        reason: Why it shuts down, once it does.
        millis_behind_latest: Of the last fetch; None before the first.
        records_delivered: User records whose delivery succeeded.
        last_progress: Monotonic time of the last successful fetch or delivery.
        last_error: The failure that holds it up now, if any.
    """

    def __init__(self, parts: ShardConsumerParts, held: HeldLease) -> None:
        self.held = held
        self.state = ShardState.WAITING_ON_PARENTS
        self.reason: ShutdownReason | None = None
        self.millis_behind_latest: int | None = None
        self.records_delivered = 0
        self.last_progress = parts.clock.monotonic()
        self.last_error: str | None = None
        self._parts = parts
        self._config = parts.config
        self._repeats = RepeatLog(_LOGGER)
        self._stop_requested = False
        self._handler: RecordHandler | None = None
        self._initialized = False
        self._fetcher: Fetcher | None = None
        self._checkpointer = Checkpointer(
            held,
            clock=parts.clock,
            sleep=parts.sleep,
            rng=parts.rng,
            timeout=parts.config.checkpoint_timeout,
        )
        # A child of a shard that this application read to its end starts at its beginning, LATEST or not.
        self._follows_parent = False
        start = held.lease.checkpoint
        self._skip_through = None if start.is_sentinel else start
        self._fetched: FetchResult | None = None
        self._undelivered: list[UserRecord] | None = None
        self._failures = 0
        self._checkpoint_due: float | None = None
        self._child_shards: tuple[Shard, ...] = ()
        self._children_created = False
        self._release_failures = 0

    @property
    def shard_id(self) -> str:
        """The shard."""
        return self.held.key

    @property
    def is_waiting_on_parents(self) -> bool:
        """Whether the end of another shard may let this one go on."""
        return self.state is ShardState.WAITING_ON_PARENTS

    def request_stop(self) -> None:
        """Ask for a clean stop: the running callback finishes, the lease is released."""
        self._stop_requested = True

    def abandon(self) -> None:
        """Drop everything without callbacks; the lease is left to expire."""
        self.held.mark_lost("abandoned after an error")
        self._complete()

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
            return None
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
        except KinesisSdkError as error:
            if not error.retryable:
                raise
            return self._hold_up(now, error)

    def _check_reasons(self, now: float) -> None:
        if self.held.gone is None and not self.held.is_held(now):
            self.held.mark_lost(f"not renewed for {now - self.held.written_at:.1f} s")
        if self.held.gone is not None:
            if self.reason is not ShutdownReason.LEASE_LOST:
                self._begin_shutdown(ShutdownReason.LEASE_LOST)
        elif self._stop_requested and self.state is not ShardState.SHUTTING_DOWN:
            self._begin_shutdown(ShutdownReason.REQUESTED)

    def _begin_shutdown(self, reason: ShutdownReason) -> None:
        self.state = ShardState.SHUTTING_DOWN
        self.reason = reason
        self._failures = 0
        level = logging.WARNING if reason is ShutdownReason.LEASE_LOST else logging.INFO
        detail = f" ({self.held.gone})" if reason is ShutdownReason.LEASE_LOST else ""
        _LOGGER.log(level, "shard %s: shutting down: %s%s", self.shard_id, reason.value, detail)

    def _hold_up(self, now: float, error: Exception) -> float:
        """A passing failure: log it, and try again when the fetcher or the backoff says."""
        self._failures += 1
        self.last_error = f"{type(error).__name__}: {error}"
        self._repeats.log(now, type(error).__name__, "shard %s: %s; trying again", self.shard_id, error)
        due = now + backoff(self._failures, self._config.task_backoff_time, _MOST_BACKOFF, self._parts.rng)
        if self._fetcher is not None and self._fetcher.due > now:
            due = self._fetcher.due
        return due

    def _recovered(self, now: float) -> None:
        self.last_progress = now
        if self._failures:
            self._failures = 0
            self.last_error = None

    # WAITING_ON_PARENTS

    def _wait_on_parents(self, now: float) -> float | None:
        lease = self.held.lease
        if lease.is_finished:
            # Somebody finished it between our look and our take; only the cleanup is left to do.
            return self._release(now)
        for parent in lease.parent_shard_ids:
            # An absent parent is finished and cleaned up, or was trimmed before this application began.
            row = self._parts.store.get(parent)
            if row is not None and not row.is_finished:
                return now + self._config.parent_shard_poll_interval
            self._follows_parent = self._follows_parent or row is not None
        self.state = ShardState.INITIALIZING
        self._recovered(now)
        return now

    # INITIALIZING

    def _initialize(self, now: float) -> float:
        lease = self.held.lease
        try:
            if self._handler is None:
                self._handler = self._parts.handlers.make()
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
        start = self._start_position()
        self._fetcher = self._parts.open_fetcher(self.shard_id, start, now)
        _LOGGER.info("shard %s: starts at %s (lease %s)", self.shard_id, start, lease.checkpoint)
        self.state = ShardState.PROCESSING
        self._recovered(now)
        return now

    def _start_position(self) -> Position:
        lease = self.held.lease
        name = lease.checkpoint.sequence_number
        pinned = lease.initial_timestamp_millis
        if not lease.checkpoint.is_sentinel:
            # At, not after: the checkpoint may lie inside an aggregate. What was processed is dropped.
            return Position.at_sequence_number(name)
        if name == AT_TIMESTAMP:
            configured = self._config.initial_timestamp
            if configured is not None:
                return Position.at_timestamp(int(configured.timestamp() * 1000))
            if pinned is not None:
                return Position.at_timestamp(pinned)
            raise ConfigError(
                "initial_position",
                self._config.initial_position,
                f"a datetime: lease {self.shard_id} starts at a timestamp, which the lease table does not hold",
            )
        if name == LATEST and not self._follows_parent:
            return Position.at_timestamp(pinned) if pinned is not None else Position.latest()
        return Position.trim_horizon()

    # PROCESSING

    def _process(self, now: float) -> float:
        assert self._fetcher is not None
        if self._undelivered is None:
            if self._fetched is None:
                if self._fetcher.due > now:
                    self._auto_checkpoint(now)
                    return self._next_read(now)
                try:
                    self._fetched = self._fetcher.fetch(now)
                except ResourceNotFoundError as error:
                    self._fetched = self._explain_missing(error)
                self.millis_behind_latest = self._fetched.millis_behind_latest
                self._recovered(now)
            self._pin_start(self._fetched)
            self._undelivered = self._user_records(self._fetched.records)
        if self._undelivered:
            due = self._deliver(now, self._undelivered, self._fetched)
            if due is not None:
                return due
        ended = self._fetched is not None and self._fetched.ended
        if ended and self._fetched is not None:
            self._child_shards = self._fetched.child_shards
        self._fetched = self._undelivered = None
        if ended:
            self._begin_shutdown(ShutdownReason.SHARD_END)
            return now
        self._auto_checkpoint(now)
        return self._next_read(now)

    def _next_read(self, now: float) -> float:
        assert self._fetcher is not None
        due = max(now, self._fetcher.due)
        return due if self._checkpoint_due is None else min(due, max(now, self._checkpoint_due))

    def _explain_missing(self, error: ResourceNotFoundError) -> FetchResult:
        """The service knows no such shard: its retention is over, or the stream itself is gone."""
        if any(shard.shard_id == self.shard_id for shard in self._parts.list_shards()):
            raise TransientAwsError(
                f"the stream lists shard {self.shard_id}, but it can not be read: {error.message}",
                operation=error.operation,
                code=error.code,
                endpoint=error.endpoint,
            ) from error
        _LOGGER.warning(
            "shard %s: the stream does not list it any more; what was not read after %s is gone",
            self.shard_id,
            self.held.lease.checkpoint,
        )
        return FetchResult(records=[], millis_behind_latest=0, ended=True)

    def _pin_start(self, result: FetchResult) -> None:
        """Store what a LATEST or AT_TIMESTAMP start meant, before anything is delivered.

        A failover before the first checkpoint then starts at the same instant, instead of skipping to a new
        LATEST. The next checkpoint removes the pin.
        """
        lease = self.held.lease
        if lease.initial_timestamp_millis is not None or not lease.checkpoint.is_sentinel:
            return
        name = lease.checkpoint.sequence_number
        if name == LATEST and result.started_at_millis is not None:
            self.held.pin(result.started_at_millis)
        elif name == AT_TIMESTAMP and self._config.initial_timestamp is not None:
            self.held.pin(int(self._config.initial_timestamp.timestamp() * 1000))

    def _user_records(self, records: list[KinesisRecord]) -> list[UserRecord]:
        discard = self._config.misplaced_aggregates == "discard"
        result = deaggregate(
            records,
            hash_key_range=self.held.lease.hash_key_range if discard else None,
            on_misplaced=self._discard if discard else None,
        )
        through = self._skip_through
        if through is None or not result:
            return result
        for index, record in enumerate(result):
            if _position_of(record) > through:
                self._skip_through = None
                return result[index:] if index else result
        return []

    def _discard(self, record: KinesisRecord, count: int) -> bool:
        _LOGGER.warning(
            "shard %s: aggregate %s with %d user records is discarded (misplaced_aggregates=discard): "
            "a record in it belongs to another shard",
            self.shard_id,
            record.sequence_number,
            count,
        )
        return True

    def _deliver(self, now: float, records: list[UserRecord], result: FetchResult | None) -> float | None:
        """Hand a batch to the handler; None if it returned, else when to try again."""
        assert self._handler is not None
        batch = RecordBatch(
            records=records,
            millis_behind_latest=result.millis_behind_latest if result is not None else 0,
            shard_id=self.shard_id,
            stream=self._parts.stream,
            checkpointer=self._checkpointer,
        )
        before = self._checkpointer.advance(_position_of(records[-1]))
        started = self._parts.clock.monotonic()
        try:
            self._handler.process_records(batch)
        except Exception as error:  # noqa: BLE001 - see above
            # Undelivered again: no later checkpoint may pass over this batch.
            self._checkpointer.retreat(before)
            last = self._checkpointer.last_checkpoint
            self._undelivered = [record for record in records if _position_of(record) > last]
            return self._handler_failed(now, "process_records", error)
        finished = self._parts.clock.monotonic()
        self.records_delivered += len(records)
        self._recovered(finished)
        if self._parts.handlers.auto_checkpoint and self._checkpoint_due is None:
            self._checkpoint_due = finished + self._config.checkpoint_interval
        self._measure(records, batch.millis_behind_latest, finished - started)
        return None

    def _measure(self, records: list[UserRecord], millis_behind: int, seconds: float) -> None:
        add = self._parts.metrics.add
        dimensions = {"Operation": "ProcessTask", "ShardId": self.shard_id}
        add("RecordsProcessed", len(records), "Count", dimensions)
        add("DataBytesProcessed", sum(len(record.data) for record in records), "Bytes", dimensions)
        add("MillisBehindLatest", millis_behind, "Milliseconds", dimensions)
        add("RecordProcessor.processRecords.Time", seconds * 1000, "Milliseconds", dimensions)

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
        self._failures += 1
        self.last_error = f"{callback}: {type(error).__name__}: {error}"
        if isinstance(policy, RetryBatch):
            pause = backoff(self._failures, policy.first_delay, policy.max_delay, self._parts.rng)
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

    def _auto_checkpoint(self, now: float) -> None:
        """For plain functions: store what was delivered once the interval is over."""
        if self._checkpoint_due is None or now < self._checkpoint_due:
            return
        try:
            self._checkpointer.checkpoint()
        except AwsError as error:
            if not error.retryable:
                raise
            self._repeats.log(now, "checkpoint", "shard %s: checkpoint failed: %s", self.shard_id, error)
            self._checkpoint_due = now + self._config.task_backoff_time
        else:
            self._checkpoint_due = None

    # SHUTTING_DOWN

    def _shut_down(self, now: float) -> float | None:
        if self.reason is ShutdownReason.LEASE_LOST:
            if self._initialized and self._handler is not None:
                try:
                    self._handler.lease_lost()
                except Exception:
                    _LOGGER.exception("shard %s: lease_lost failed", self.shard_id)
            self._complete()
            return None
        if self.reason is ShutdownReason.SHARD_END:
            due = self._end_shard(now)
            # A worker that stops tries once more, then leaves the shard's end to its next owner.
            if due is not None and not self._stop_requested:
                return due
        elif self._initialized and self._handler is not None and not self._release_failures:
            self._last_words()
        return self._release(now)

    def _end_shard(self, now: float) -> float | None:
        """Children, callback, SHARD_END, in this order; None once done, else when to go on."""
        assert self._handler is not None
        if self._is_finished():
            return None
        if not self._children_created:
            if not self._parts.children.create(self.shard_id, self._child_shards):
                return now + self._config.parent_shard_poll_interval
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
            if error.retryable and self._release_failures < _RELEASE_ATTEMPTS:
                return now + backoff(self._release_failures, 0.2, 2.0, self._parts.rng)
            self.held.mark_lost("its release failed")
            _LOGGER.warning("lease %s: could not be released, it will expire: %s", self.shard_id, error)
        self._complete()
        return None

    def _complete(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()
        self._fetched = self._undelivered = None
        self.state = ShardState.COMPLETE


def _position_of(record: UserRecord) -> ExtendedSequenceNumber:
    return ExtendedSequenceNumber(record.sequence_number, record.sub_sequence_number)
