"""The daemon's side of the conversation with one child, as decisions without processes, pipes or clocks.

```
         begin                     status for the call
 IDLE ───────────► call is open ─────────────────────────► IDLE, or OVER after leaseLost and shardEnded
                     │      ▲
                     ▼      │ answer
                  checkpoint
```
`Conversation.read` decides what a message means in the current state; `ChildSession` carries out the decision. A child may
request a checkpoint while no call is open (children in Node do). Such a request is carried out as well, except before the first records.
"""

from __future__ import annotations

from dataclasses import dataclass

from kinesis_sdk.common.sequence import SHARD_END
from kinesis_sdk.multilang.protocol import (
    ILLEGAL_ARGUMENT,
    INITIALIZE,
    INVALID_STATE,
    LEASE_LOST,
    PROCESS_RECORDS,
    SHARD_ENDED,
    SHUTDOWN_REQUESTED,
    CheckpointAnswer,
    CheckpointRequest,
    ChildMessage,
    Status,
)


@dataclass(frozen=True)
class Answered:
    """The child answered the open call.

    ``problem`` describes an error in a response that is accepted anyway; None if the response has no error.
    """

    problem: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """Carry out a checkpoint, then write `Conversation.answer`.

    The numbers are for the checkpointer; if the sequence number is None, all delivered records are checkpointed.
    """

    request: CheckpointRequest
    sequence_number: str | None
    sub_sequence_number: int | None


@dataclass(frozen=True)
class Refuse:
    """Write this error response without checkpointing."""

    answer: CheckpointAnswer


@dataclass(frozen=True)
class Hold:
    """Keep the message until the next call is open, and then read it again."""


@dataclass(frozen=True)
class Ignore:
    """Only log the message and the reason."""

    why: str


@dataclass(frozen=True)
class Broken:
    """The child violated the protocol, so its later messages cannot be trusted. No call is open now."""

    why: str


Step = Answered | Checkpoint | Refuse | Hold | Ignore | Broken

_FOLLOWERS: dict[str | None, frozenset[str]] = {
    None: frozenset({INITIALIZE}),
    INITIALIZE: frozenset({PROCESS_RECORDS, SHUTDOWN_REQUESTED, SHARD_ENDED, LEASE_LOST}),
    PROCESS_RECORDS: frozenset({PROCESS_RECORDS, SHUTDOWN_REQUESTED, SHARD_ENDED, LEASE_LOST}),
    SHUTDOWN_REQUESTED: frozenset({LEASE_LOST}),
    LEASE_LOST: frozenset(),
    SHARD_ENDED: frozenset(),
}
"""Calls that may follow the last one."""


class Conversation:
    """State of the conversation with one child. Not thread-safe.

    Args:
        timeout: Seconds that the child may take for its next message while a call is open; None for no limit.

    Attributes:
        call: Action of the open call; None if no call is open.
        last: Action of the last call that was begun; None before the first call.
        calls: Number of calls that were begun.
    """

    def __init__(self, timeout: float | None = None) -> None:
        self.call: str | None = None
        self.last: str | None = None
        self.calls: int = 0
        self._timeout = timeout
        self._waiting_since = 0.0
        self._reached_shard_end = False

    @property
    def is_over(self) -> bool:
        """Whether no call may follow."""
        return self.call is None and not _FOLLOWERS[self.last]

    @property
    def deadline(self) -> float | None:
        """Monotonic seconds at which the child counts as hung; None if there is no limit or no call is open."""
        return None if self._timeout is None or self.call is None else self._waiting_since + self._timeout

    def begin(self, action: str, now: float) -> None:
        """Open a call at ``now``, in monotonic seconds; its message is written afterwards.

        Raises:
            ValueError: If a call is open, or if this call must never follow the last one.
        """
        if self.call is not None or action not in _FOLLOWERS[self.last]:
            state = f"while {self.call} is open" if self.call is not None else f"after {self.last}"
            raise ValueError(f"{action} cannot be called {state}")
        self.call = self.last = action
        self.calls += 1
        self._waiting_since = now

    def sent(self, now: float) -> None:
        """Restart the time limit for the child's next message, after a message was written to the child."""
        self._waiting_since = now

    def read(self, message: ChildMessage, written_in: int) -> Step:
        """Decide about the meaning of a child's message; ``written_in`` is the value of `calls` when it arrived."""
        if isinstance(message, Status):
            return self._read_status(message, written_in)
        return self._read_checkpoint(message)

    def _read_status(self, status: Status, written_in: int) -> Step:
        if self.call is None:
            return Ignore(f"it answers {status.response_for}, but no call is open")
        if written_in < self.calls:
            # The child answered the previous call twice. Without the number, the second answer would end this call before
            # the child has read it.
            return Ignore(f"it answered {status.response_for} before {self.call} was called")
        call, self.call = self.call, None
        if status.response_for != call:
            answered = status.response_for or "a call that it does not name"
            problem = f"it answered {answered} instead of {call}"
            # As in the Java daemon: the child lives until leaseLost, which comes next.
            return Answered(problem) if call == SHUTDOWN_REQUESTED else Broken(problem)
        if call == SHARD_ENDED and not self._reached_shard_end:
            return Broken("it answered shardEnded without a successful checkpoint of the end of the shard")
        return Answered()

    def _read_checkpoint(self, request: CheckpointRequest) -> Step:
        if self.call is None and self.last in (None, INITIALIZE):
            return Hold()
        if self.is_over:
            return Ignore("it requests a checkpoint after the last call")
        if self.call in (INITIALIZE, LEASE_LOST):
            return Refuse(self._answer(request, INVALID_STATE))
        if request.problem is not None:
            return Refuse(self._answer(request, ILLEGAL_ARGUMENT))
        if request.sequence_number is None or (
            request.sequence_number == SHARD_END and self.call == SHARD_ENDED
        ):
            return Checkpoint(request, None, None)
        return Checkpoint(request, request.sequence_number, request.sub_sequence_number)

    def answer(
        self, request: CheckpointRequest, error: str | None, *, reached_shard_end: bool = False
    ) -> CheckpointAnswer:
        """Return the response to a request that was carried out; ``error`` is None on success.

        ``reached_shard_end`` is true if the lease's checkpoint is now the end of the shard.
        """
        self._reached_shard_end = self._reached_shard_end or reached_shard_end
        return self._answer(request, error)

    def _answer(self, request: CheckpointRequest, error: str | None) -> CheckpointAnswer:
        return CheckpointAnswer(request.sequence_number, request.sub_sequence_number, error)
