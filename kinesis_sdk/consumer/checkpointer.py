"""Checkpoints: how a handler records its progress in a shard.

Errors of a checkpoint, and whether a retry may help (``error.retryable``):

| error | retryable | name in the KCL |
| --- | --- | --- |
| `LeaseLostError` | no | ShutdownException |
| `InvalidCheckpointError` (a ValueError) | no | IllegalArgumentException |
| `ThrottledError`, `TransientAwsError`, `TransientLeaseStoreError` | yes | ThrottlingException, KinesisClientLibDependencyException |
| `PermanentAwsError`, `LeaseStoreError` (table missing, access denied) | no | InvalidStateException |
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from random import Random

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import InvalidCheckpointError, KinesisSdkError, LeaseLostError
from kinesis_sdk.common.metrics import NOT_MEASURED, BoundMetrics
from kinesis_sdk.common.records import UserRecord, position_of
from kinesis_sdk.common.sequence import SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease

_RETRIES = Backoff(0.1, 2.0)
"""Seconds between two attempts of a failed write."""


class PreparedCheckpoint:
    """First half of a two-phase checkpoint, which is already stored; `checkpoint` is the second half.

    Between the two halves, the application makes its own state durable. If the application crashes there, the next owner finds
    ``pending_checkpoint`` and ``pending_checkpoint_state`` in the `ShardContext` of ``initialize`` and decides which position to use.

    Attributes:
        position: Position that becomes the checkpoint.
    """

    def __init__(self, checkpointer: Checkpointer, position: ExtendedSequenceNumber) -> None:
        self.position = position
        self._checkpointer = checkpointer

    def checkpoint(self) -> None:
        """Make the prepared position the checkpoint.

        Raises:
            InvalidCheckpointError: If a later checkpoint was stored in the meantime.
            LeaseLostError, AwsError: See `Checkpointer.checkpoint`.
        """
        self._checkpointer.commit(self.position)


class Checkpointer:
    """Checkpoints of one shard while its lease is held.

    A position is accepted if ``last checkpoint ≤ position ≤ largest delivered position`` (KCL
    ``ShardRecordProcessorCheckpointer``). While the last checkpoint is a sentinel, the position must not be before the first
    record that was delivered under this lease. Storing the current checkpoint again writes nothing. Thread-safe, and usable
    after the callback that received it has returned. Each call that writes a checkpoint costs one UpdateItem and replaces a heartbeat.

    Lock order: its own lock, then the lock of the held lease.

    Args:
        held: The lease; once it is lost, every checkpoint raises `LeaseLostError`.
        clock: Monotonic and wall clock.
        sleep: Waits between two attempts of a failed write, in seconds.
        rng: Source of jitter.
        timeout: Maximum seconds for which one call retries.
        metrics: Metrics of the shard.
        around: Returns a context manager around each write of a checkpoint, given its position; None if the writes need none.
    """

    def __init__(
        self,
        held: HeldLease,
        *,
        clock: Clock,
        sleep: Callable[[float], None],
        rng: Random,
        timeout: float,
        metrics: BoundMetrics = NOT_MEASURED,
        around: Callable[[ExtendedSequenceNumber], AbstractContextManager[None]] | None = None,
    ) -> None:
        self._around = around
        self._held = held
        self._clock = clock
        self._sleep = sleep
        self._rng = rng
        self._timeout = timeout
        self._metrics = metrics
        self._lock = threading.Lock()
        # The last delivered position (smaller than the lease's checkpoint if the handler started before it), and the last stored
        # checkpoint. Both positions count only under this lease; None before the first.
        self._bound: ExtendedSequenceNumber | None = None
        self._stored: ExtendedSequenceNumber | None = None
        # First position delivered under this lease, even if its delivery failed.
        self._first: ExtendedSequenceNumber | None = None
        self._at_shard_end = False
        # Returns the position that no checkpoint may pass, set by a sink or by single acknowledgements.
        self._limit: Callable[[], ExtendedSequenceNumber | None] | None = None

    @property
    def shard_id(self) -> str:
        """Id of the shard."""
        return self._held.shard_id

    @property
    def last_checkpoint(self) -> ExtendedSequenceNumber:
        """Checkpoint in the lease table."""
        return self._held.lease.checkpoint

    @property
    def largest_delivered(self) -> ExtendedSequenceNumber:
        """Largest position that may be stored now; SHARD_END once the shard has ended.

        It is the last delivered position, but not less than the last checkpoint.
        """
        return ExtendedSequenceNumber(SHARD_END) if self._at_shard_end else self._largest

    @property
    def _largest(self) -> ExtendedSequenceNumber:
        bound = self._bound
        if self._limit is not None:
            limit = self._limit()
            bound = None if bound is None or limit is None else min(bound, limit)
        return self._at_least_stored(bound)

    def _at_least_stored(self, bound: ExtendedSequenceNumber | None) -> ExtendedSequenceNumber:
        last = self._held.lease.checkpoint
        return last if bound is None or bound < last else bound

    def checkpoint(
        self, position: UserRecord | str | None = None, sub_sequence_number: int | None = None
    ) -> None:
        """Store that all records up to a position, inclusive, are processed.

        A checkpoint never decreases. So if the handler started before the lease's checkpoint
        (`RecordHandler.starting_position`), a call without a position writes nothing until delivery has passed that checkpoint.

        Args:
            position: A delivered record, or its sequence number; None means all records delivered so far. In ``shard_ended``, the last
                delivered position means the end of the shard.
            sub_sequence_number: Index inside an aggregate, for a sequence number; None means 0, the *first* record of an
                aggregate (as in the KCL).

        Raises:
            InvalidCheckpointError: If the position is not between the last checkpoint and the largest delivered position.
            LeaseLostError: If the lease is no longer held; another worker resumes from the last checkpoint.
            AwsError: If the lease table did not accept the write within ``checkpoint_timeout``.
            LeaseStoreError: If a lease store other than DynamoDB did not accept the write.
        """
        with self._lock:
            self._store_checkpoint(self._checked(self._position(position, sub_sequence_number)))

    def prepare_checkpoint(
        self,
        position: UserRecord | str | None = None,
        sub_sequence_number: int | None = None,
        *,
        state: bytes | None = None,
    ) -> PreparedCheckpoint:
        """Store the first half of a two-phase checkpoint, with state of the application.

        The checkpoint itself does not change until `PreparedCheckpoint.checkpoint`. Any other checkpoint removes the prepared
        checkpoint, as in the KCL. Preparing the current checkpoint writes nothing.

        Args:
            position: As for `checkpoint`.
            sub_sequence_number: As for `checkpoint`.
            state: Bytes for the next owner, if this worker crashes before the second half; None for no state. The bytes must fit
                into a DynamoDB item with the lease (400 KB minus about 1 KB).

        Raises:
            InvalidCheckpointError: If the state is not bytes, or for the reasons of `checkpoint`.
            LeaseLostError, AwsError: As for `checkpoint`.
        """
        if state is not None and not isinstance(state, bytes):
            raise InvalidCheckpointError(f"state must be bytes or None, not {type(state).__name__}")
        with self._lock:
            checked = self._checked(self._position(position, sub_sequence_number))
            if checked != self._held.lease.checkpoint:
                self._write(lambda: self._held.prepare(checked, state))
            return PreparedCheckpoint(self, checked)

    def checkpoint_with_state(self, position: ExtendedSequenceNumber, state: bytes | None) -> None:
        """Store a position and state of the application in one write, so that the two always match.

        The next owner finds the state in ``pending_checkpoint_state`` of the `ShardContext`, with a ``pending_checkpoint`` that is the
        checkpoint. Every other checkpoint, even by a Java worker or an operator, removes the state. A state that is stored
        already is not written again.

        Args:
            position: A delivered position, or `last_checkpoint` to keep the current checkpoint.
            state: The state, with the limit of `prepare_checkpoint`; None removes it.

        Raises:
            InvalidCheckpointError: If the state is not bytes, or for the reasons of `checkpoint`.
            LeaseLostError, AwsError: As for `checkpoint`.
        """
        if state is not None and not isinstance(state, bytes):
            raise InvalidCheckpointError(f"state must be bytes or None, not {type(state).__name__}")
        with self._lock:
            lease = self._held.lease
            if position != lease.checkpoint:
                checked = self._checked(position)
                self._write(lambda: self._held.checkpoint(checked, state))
                self._stored = checked
            elif self._held.gone is not None:
                raise LeaseLostError(f"lease {self.shard_id} is no longer held: {self._held.gone}")
            elif state != lease.pending_checkpoint_state:
                self._write(lambda: self._held.prepare(position, state))

    def commit(self, position: ExtendedSequenceNumber) -> None:
        """Store a prepared position. Raises as `checkpoint`."""
        with self._lock:
            self._store_checkpoint(self._checked(position))

    def _store_checkpoint(self, position: ExtendedSequenceNumber) -> None:
        if position != self._held.lease.checkpoint:
            with nullcontext() if self._around is None else self._around(position):
                self._write(lambda: self._held.checkpoint(position))
            self._stored = position

    def _checked(self, position: ExtendedSequenceNumber) -> ExtendedSequenceNumber:
        """Return a position if it may be stored now; at the end of the shard, return SHARD_END for the last position."""
        if self._held.gone is not None:
            raise LeaseLostError(f"lease {self.shard_id} is no longer held: {self._held.gone}")
        last = self._held.lease.checkpoint
        if self._at_shard_end and position == self._at_least_stored(
            self._bound
        ):  # not at a limit before the end
            position = ExtendedSequenceNumber(SHARD_END)
        if self._precedes_deliveries(position, last):
            reason = (
                "nothing was delivered yet"
                if self._first is None
                else f"the first delivered position is {self._first}"
            )
            raise InvalidCheckpointError(f"shard {self.shard_id}: checkpoint {position} is refused: {reason}")
        if position < last or position > self.largest_delivered:
            raise InvalidCheckpointError(
                f"shard {self.shard_id}: checkpoint {position} is not between the last checkpoint {last} "
                f"and the largest delivered position {self.largest_delivered}"
            )
        return position

    def _precedes_deliveries(self, position: ExtendedSequenceNumber, last: ExtendedSequenceNumber) -> bool:
        """Return whether a number is before the first delivered number, if the last checkpoint is a sentinel."""
        # Example: a handler stores "0", which is after TRIM_HORIZON, but which no shard has. The lease then seems to belong to a
        # deleted stream of the same name, and every worker that syncs the shards stops.
        if not last.is_sentinel or position.is_sentinel:
            return False
        if self._limit is not None and position == self._limit():
            return False  # an earlier owner delivered it, and it is in the sink
        return self._first is None or int(position.sequence_number) < int(self._first.sequence_number)

    def _position(
        self, position: UserRecord | str | None, sub_sequence_number: int | None
    ) -> ExtendedSequenceNumber:
        if position is None:
            if sub_sequence_number is not None:
                raise InvalidCheckpointError("sub_sequence_number cannot be used without a sequence number")
            return self.largest_delivered
        if isinstance(position, UserRecord):
            if sub_sequence_number is not None:
                raise InvalidCheckpointError(
                    "sub_sequence_number cannot be used with a record, which has its own"
                )
            return position_of(position)
        try:
            extended = ExtendedSequenceNumber(position, sub_sequence_number or 0)
        except (ValueError, TypeError) as error:
            raise InvalidCheckpointError(f"shard {self.shard_id}: {error}") from error
        if extended.sub_sequence_number < 0:
            raise InvalidCheckpointError(
                f"shard {self.shard_id}: sub_sequence_number must be at least 0, not {extended.sub_sequence_number}"
            )
        if extended.is_sentinel:
            raise InvalidCheckpointError(
                f"shard {self.shard_id}: cannot checkpoint at {position} explicitly; call checkpoint() without arguments"
            )
        return extended

    def _write(self, write: Callable[[], None]) -> None:
        # The lock of the held lease is free between two attempts, so that the renewal thread can send a heartbeat. Otherwise the
        # lease would expire while a checkpoint retries.
        deadline = self._clock.monotonic() + self._timeout
        failures = 0
        while True:
            try:
                with self._metrics.timed(
                    self._clock, catalogue.UPDATE_LEASE_TIME, catalogue.UPDATE_LEASE_SUCCESS
                ):
                    write()
            except KinesisSdkError as error:
                if not error.retryable:
                    raise
                failures += 1
                pause = _RETRIES.pause(failures, self._rng)
                if self._clock.monotonic() + pause > deadline:
                    raise
                self._sleep(pause)
            else:
                return

    # For the shard consumer

    @property
    def stored(self) -> ExtendedSequenceNumber | None:
        """Last checkpoint stored under this lease; None before the first."""
        return self._stored

    @property
    def delivered(self) -> ExtendedSequenceNumber | None:
        """Last position under this lease whose delivery did not fail; None if there is none.

        Unlike `largest_delivered`, this position may be smaller than the lease's checkpoint, if the handler started before that checkpoint.
        """
        bound, stored = self._bound, self._stored
        if bound is None or stored is None:
            return stored if bound is None else bound
        return max(bound, stored)

    def begin_at(self, position: ExtendedSequenceNumber) -> None:
        """Note the first delivered position; later calls have no effect."""
        if self._first is None:
            self._first = position

    def limit_to(self, limit: Callable[[], ExtendedSequenceNumber | None]) -> None:
        """Limit checkpoints to the position that a function returns; if it returns None, no checkpoint is accepted."""
        self._limit = limit

    def advance(self, position: ExtendedSequenceNumber) -> ExtendedSequenceNumber | None:
        """Allow checkpoints up to a position; return the previous bound, for `retreat`."""
        before, self._bound = self._bound, position
        return before

    def retreat(self, bound: ExtendedSequenceNumber | None) -> None:
        """Undo `advance` after a failed delivery. A checkpoint that was stored in the meantime stays valid."""
        self._bound = bound

    def restart(self) -> None:
        """Restart at the checkpoint: no record counts as delivered, and the shard has not ended."""
        self._bound, self._at_shard_end = None, False

    def end_shard(self) -> None:
        """Let the last delivered position mean SHARD_END from now on."""
        self._at_shard_end = True
