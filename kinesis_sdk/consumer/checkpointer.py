"""Checkpoints: how a handler says how far it got."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import AwsError, InvalidCheckpointError, LeaseLostError
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.sequence import SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.consumer.failure import backoff
from kinesis_sdk.consumer.leases.held import HeldLease

_FIRST_RETRY, _MOST_RETRY = 0.1, 2.0


class Checkpointer:
    """Stores positions of one shard for as long as its lease is held.

    A position is accepted if ``last checkpoint ≤ position ≤ largest delivered`` (KCL
    ``ShardRecordProcessorCheckpointer``). Storing the position that is stored already writes nothing. May be used
    from any thread, also after the callback that got it has returned.

    Lock order: its own lock, then the held lease's.

    Args:
        held: The lease; its loss ends this object's use.
        clock: Time.
        sleep: Waits between repetitions of a failed write.
        rng: Jitter.
        timeout: Most seconds for which one call repeats.
    """

    def __init__(
        self,
        held: HeldLease,
        *,
        clock: Clock,
        sleep: Callable[[float], None],
        rng: Random,
        timeout: float,
    ) -> None:
        self._held = held
        self._clock = clock
        self._sleep = sleep
        self._rng = rng
        self._timeout = timeout
        self._lock = threading.Lock()
        self._largest = held.lease.checkpoint
        self._at_shard_end = False

    @property
    def shard_id(self) -> str:
        """The shard."""
        return self._held.key

    @property
    def last_checkpoint(self) -> ExtendedSequenceNumber:
        """The stored position."""
        return self._held.lease.checkpoint

    @property
    def largest_delivered(self) -> ExtendedSequenceNumber:
        """The largest position that may be stored now; SHARD_END once the shard ended."""
        return ExtendedSequenceNumber(SHARD_END) if self._at_shard_end else self._largest

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
            if self._held.gone is not None:
                raise LeaseLostError(f"lease {self.shard_id} is not held any more: {self._held.gone}")
            last = self._held.lease.checkpoint
            wanted = self._position(position, sub_sequence_number)
            if self._at_shard_end and wanted == self._largest:
                wanted = ExtendedSequenceNumber(SHARD_END)
            if wanted < last or wanted > self.largest_delivered:
                raise InvalidCheckpointError(
                    f"shard {self.shard_id}: checkpoint {wanted} is not between the last checkpoint {last} "
                    f"and the largest delivered position {self.largest_delivered}"
                )
            if wanted != last:
                self._store(wanted)

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

    def _store(self, position: ExtendedSequenceNumber) -> None:
        # The held lease's lock is free between two attempts, so heartbeats go on while this repeats.
        deadline = self._clock.monotonic() + self._timeout
        failures = 0
        while True:
            try:
                self._held.checkpoint(position)
            except AwsError as error:
                failures += 1
                pause = backoff(failures, _FIRST_RETRY, _MOST_RETRY, self._rng)
                if not error.retryable or self._clock.monotonic() + pause > deadline:
                    raise
                self._sleep(pause)
            else:
                return

    # For the shard consumer

    def advance(self, position: ExtendedSequenceNumber) -> ExtendedSequenceNumber:
        """Allow positions up to this one; returns the bound before."""
        before, self._largest = self._largest, position
        return before

    def retreat(self, position: ExtendedSequenceNumber) -> None:
        """Undo `advance` after a failed delivery, but not below what was stored meanwhile."""
        last = self._held.lease.checkpoint
        self._largest = max(position, last)

    def end_shard(self) -> None:
        """From now on everything delivered means SHARD_END."""
        self._at_shard_end = True
