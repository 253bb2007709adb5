"""Checkpoints: how a handler says how far it got.

What can go wrong, and whether calling again has a chance (``error.retryable``):

| error | retryable | the KCL's name |
| --- | --- | --- |
| `LeaseLostError` | no | ShutdownException |
| `InvalidCheckpointError` (a ValueError) | no | IllegalArgumentException |
| `ThrottledError`, `TransientAwsError` | yes | ThrottlingException, KinesisClientLibDependencyException |
| `PermanentAwsError` (no table, no access) | no | InvalidStateException |
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.backoff import backoff
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import AwsError, InvalidCheckpointError, LeaseLostError
from kinesis_sdk.common.metrics import NOT_MEASURED, BoundMetrics
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.sequence import SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease

_FIRST_RETRY, _MOST_RETRY = 0.1, 2.0


class PreparedCheckpoint:
    """The first half of a two-phase checkpoint, which is stored; `checkpoint` is the second.

    In between, an application makes its own state durable. If it fails there, the next `initialize` finds
    ``pending_checkpoint`` and ``pending_checkpoint_state`` in its `ShardContext` and decides.

    Attributes:
        position: What will be the checkpoint.
    """

    def __init__(self, checkpointer: Checkpointer, position: ExtendedSequenceNumber) -> None:
        self.position = position
        self._checkpointer = checkpointer

    def checkpoint(self) -> None:
        """Store the position for good; raises as `Checkpointer.checkpoint`.

        A checkpoint beyond it that was stored meanwhile makes this an `InvalidCheckpointError`.
        """
        self._checkpointer.commit(self.position)


class Checkpointer:
    """Stores positions of one shard for as long as its lease is held.

    A position is accepted if ``last checkpoint ≤ position ≤ largest delivered`` (KCL
    ``ShardRecordProcessorCheckpointer``). Storing the position that is stored already writes nothing. May be used
    from any thread, also after the callback that got it has returned. Each call that writes costs one UpdateItem,
    and saves a heartbeat.

    Lock order: its own lock, then the held lease's.

    Args:
        held: The lease; its loss ends this object's use.
        clock: Time.
        sleep: Waits between repetitions of a failed write.
        rng: Jitter.
        timeout: Most seconds for which one call repeats.
        metrics: Metrics of the shard.
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
    ) -> None:
        self._held = held
        self._clock = clock
        self._sleep = sleep
        self._rng = rng
        self._timeout = timeout
        self._metrics = metrics
        self._lock = threading.Lock()
        # None: nothing was delivered beyond what the lease says, whatever somebody makes the lease say.
        self._largest: ExtendedSequenceNumber | None = None
        self._at_shard_end = False

    @property
    def shard_id(self) -> str:
        """The shard."""
        return self._held.shard_id

    @property
    def last_checkpoint(self) -> ExtendedSequenceNumber:
        """The stored position."""
        return self._held.lease.checkpoint

    @property
    def largest_delivered(self) -> ExtendedSequenceNumber:
        """The largest position that may be stored now; SHARD_END once the shard ended."""
        return ExtendedSequenceNumber(SHARD_END) if self._at_shard_end else self._delivered

    @property
    def _delivered(self) -> ExtendedSequenceNumber:
        return self._held.lease.checkpoint if self._largest is None else self._largest

    def checkpoint(
        self, position: UserRecord | str | None = None, sub_sequence_number: int | None = None
    ) -> None:
        """Store that everything up to a position (inclusive) is processed.

        Args:
            position: A delivered record, or a sequence number; None means everything delivered so far. In
                ``shard_ended`` the last delivered position stands for the shard's end.
            sub_sequence_number: Position inside an aggregate, beside a sequence number; 0 if not given, which
                is the *first* record of an aggregate (as in the KCL).

        Raises:
            InvalidCheckpointError: Not between the last checkpoint and the largest delivered position.
            LeaseLostError: The lease is not held any more; another worker continues from the last checkpoint.
            AwsError: The lease table did not take the write within the timeout.
        """
        with self._lock:
            wanted = self._checked(self._position(position, sub_sequence_number))
            if wanted != self._held.lease.checkpoint:
                self._store(lambda: self._held.checkpoint(wanted))

    def prepare_checkpoint(
        self,
        position: UserRecord | str | None = None,
        sub_sequence_number: int | None = None,
        *,
        state: bytes | None = None,
    ) -> PreparedCheckpoint:
        """Announce a checkpoint, with bytes of the application's own beside it (two-phase checkpoint).

        The checkpoint itself stays where it is until `PreparedCheckpoint.checkpoint`. Any checkpoint removes the
        announcement, as in the KCL. Announcing the position that is stored already writes nothing.

        Args:
            position: As for `checkpoint`.
            sub_sequence_number: As for `checkpoint`.
            state: At most what fits a DynamoDB item beside the lease (400 KB less about 1 KB).

        Raises:
            InvalidCheckpointError, LeaseLostError, AwsError: As `checkpoint`.
        """
        if state is not None and not isinstance(state, bytes):
            raise InvalidCheckpointError(f"state must be bytes or None, not {type(state).__name__}")
        with self._lock:
            wanted = self._checked(self._position(position, sub_sequence_number))
            if wanted != self._held.lease.checkpoint:
                self._store(lambda: self._held.prepare(wanted, state))
            return PreparedCheckpoint(self, wanted)

    def commit(self, position: ExtendedSequenceNumber) -> None:
        """Store a position that was prepared; raises as `checkpoint`."""
        with self._lock:
            wanted = self._checked(position)
            if wanted != self._held.lease.checkpoint:
                self._store(lambda: self._held.checkpoint(wanted))

    def _checked(self, wanted: ExtendedSequenceNumber) -> ExtendedSequenceNumber:
        """A position that may be stored now; at the shard's end, the last one stands for SHARD_END."""
        if self._held.gone is not None:
            raise LeaseLostError(f"lease {self.shard_id} is not held any more: {self._held.gone}")
        last = self._held.lease.checkpoint
        if self._at_shard_end and wanted == self._delivered:
            wanted = ExtendedSequenceNumber(SHARD_END)
        if wanted < last or wanted > self.largest_delivered:
            raise InvalidCheckpointError(
                f"shard {self.shard_id}: checkpoint {wanted} is not between the last checkpoint {last} "
                f"and the largest delivered position {self.largest_delivered}"
            )
        return wanted

    def _position(
        self, position: UserRecord | str | None, sub_sequence_number: int | None
    ) -> ExtendedSequenceNumber:
        if position is None:
            if sub_sequence_number is not None:
                raise InvalidCheckpointError("a sub-sequence number needs a sequence number")
            return self.largest_delivered
        if isinstance(position, UserRecord):
            if sub_sequence_number is not None:
                raise InvalidCheckpointError("a record has its own sub-sequence number")
            return ExtendedSequenceNumber(position.sequence_number, position.sub_sequence_number)
        try:
            wanted = ExtendedSequenceNumber(position, sub_sequence_number or 0)
        except (ValueError, TypeError) as error:
            raise InvalidCheckpointError(f"shard {self.shard_id}: {error}") from error
        if wanted.is_sentinel:
            raise InvalidCheckpointError(
                f"shard {self.shard_id}: {position} is stored by checkpoint() without arguments, not by name"
            )
        return wanted

    def _store(self, write: Callable[[], None]) -> None:
        # The held lease's lock is free between two attempts, so heartbeats go on while this repeats.
        deadline = self._clock.monotonic() + self._timeout
        failures = 0
        while True:
            try:
                with self._metrics.timed(
                    self._clock, catalogue.UPDATE_LEASE_TIME, catalogue.UPDATE_LEASE_SUCCESS
                ):
                    write()
            except AwsError as error:
                failures += 1
                pause = backoff(failures, _FIRST_RETRY, _MOST_RETRY, self._rng)
                if not error.retryable or self._clock.monotonic() + pause > deadline:
                    raise
                self._sleep(pause)
            else:
                return

    # For the shard consumer

    def advance(self, position: ExtendedSequenceNumber) -> ExtendedSequenceNumber | None:
        """Allow positions up to this one; returns the bound before, for `retreat`."""
        before, self._largest = self._largest, position
        return before

    def retreat(self, position: ExtendedSequenceNumber | None) -> None:
        """Undo `advance` after a failed delivery, but not below what was stored meanwhile."""
        last = self._held.lease.checkpoint
        self._largest = None if position is None or position <= last else position

    def end_shard(self) -> None:
        """From now on everything delivered means SHARD_END."""
        self._at_shard_end = True
