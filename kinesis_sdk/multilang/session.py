"""One child and its shard: calls, checkpoints, and checkpoints that a child requests between two calls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import KinesisSdkError, LeaseLostError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.consumer import Checkpointer
from kinesis_sdk.multilang.checkpoints import error_name
from kinesis_sdk.multilang.conversation import (
    Answered,
    Broken,
    Checkpoint,
    Conversation,
    Hold,
    Ignore,
    Refuse,
    Step,
)
from kinesis_sdk.multilang.process import ChildEndedError, ChildHungError, ChildProcess
from kinesis_sdk.multilang.protocol import SHARD_ENDED, encode

_SHARD_END_RETRIES = 60.0
"""Seconds for which a checkpoint in shardEnded is retried after transient failures. If it fails for longer, the child has finished the
shard, but the end of the shard is not stored.
"""
_SHARD_END_PAUSE = 1.0
"""Seconds between two of these attempts, in addition to the checkpointer's own pauses."""


class CallFailedError(Exception):
    """A call failed, so the child counts as failed. The message is the predicate of a sentence whose subject is the child.

    ``hung`` is true if the child does not respond, so that waiting for it is useless.
    """

    def __init__(self, message: str, *, hung: bool = False) -> None:
        super().__init__(message)
        self.hung = hung


class ChildSession:
    """A child that serves one shard under one lease.

    `call` is used by one thread at a time. Between two calls, requests of the child are served by ``run_soon``.

    Args:
        timeout: Seconds that the child may take for each message while a call is open; None for no limit.
        run_soon: Runs a function on another thread.
        wait_for_stop: Waits for at most the given seconds, and returns whether the worker is stopping.
        on_ended: Called from any thread when the child has ended, perhaps several times.
    """

    def __init__(
        self,
        process: ChildProcess,
        *,
        shard_id: str,
        timeout: float | None,
        clock: Clock,
        run_soon: Callable[[Callable[[], None]], None],
        wait_for_stop: Callable[[float], bool],
        on_ended: Callable[[], None],
        logger: FieldLogger,
    ) -> None:
        self.process = process
        self.shard_id = shard_id
        self._timeout = timeout
        self._clock = clock
        self._run_soon = run_soon
        self._wait_for_stop = wait_for_stop
        self._on_ended = on_ended
        self.logger: FieldLogger = logger
        self._throttle = LogThrottle(logger)
        self._conversation = Conversation(timeout)
        # Line about an exception in this call, if the child's library only printed it.
        self._exception: str | None = None
        self._checkpointer: Checkpointer | None = None
        # Held during a call, and while a request between two calls is served: one thread at a time talks to the child.
        self._turn = threading.Lock()

    def call(self, action: str, pieces: Iterable[bytes], checkpointer: Checkpointer | None = None) -> None:
        """Send the line of a message and serve the child until it has responded.

        ``checkpointer`` stores the checkpoints that the child requests in this call.

        Raises:
            CallFailedError: If the child has ended, hangs, or does not follow the protocol.
        """
        with self._turn:
            self._checkpointer = checkpointer or self._checkpointer
            self._conversation.begin(action, self._clock.monotonic())
            self.process.written_in = self._conversation.calls
            self._exception = None
            try:
                self.process.write(pieces, self._timeout)
                self._conversation.sent(self._clock.monotonic())
                self._serve()
            except ChildEndedError as error:
                raise CallFailedError(f"{error} during {action}") from None
            except ChildHungError as error:
                within = f" within {self._timeout:g} s" if self._timeout is not None else ""
                raise CallFailedError(f"{error}{within} during {action}", hung=True) from None
        # A request may have arrived after the answer, while `on_message` could not serve it.
        if self.process.has_messages:
            self.on_message()

    def _serve(self) -> None:
        while True:
            message, written_in = self.process.receive(self._conversation.deadline)
            step = self._conversation.read(message, written_in)
            if isinstance(step, Answered):
                if step.problem is not None:
                    self.logger.warning(
                        "shard %s: child %d: %s", self.shard_id, self.process.pid, step.problem
                    )
                if self._exception is not None:
                    raise CallFailedError(f"its code raised an exception: {self._exception}")
                return
            if isinstance(step, Broken):
                raise CallFailedError(step.why)
            self._carry_out(step)

    def _carry_out(self, step: Step) -> None:
        if isinstance(step, Refuse):
            self.logger.warning("shard %s: checkpoint refused: %s", self.shard_id, step.answer.error)
            self._write(encode(step.answer))
        elif isinstance(step, Checkpoint):
            assert self._checkpointer is not None
            error = self._checkpoint(self._checkpointer, step)
            at_end = self._checkpointer.last_checkpoint.is_shard_end
            answer = self._conversation.answer(step.request, error, reached_shard_end=at_end)
            self._write(encode(answer))
        elif isinstance(step, Ignore):
            self._throttle.log(
                self._clock.monotonic(),
                step.why,
                "shard %s: ignoring a message of child %d: %s",
                self.shard_id,
                self.process.pid,
                step.why,
            )

    def _write(self, line: bytes) -> None:
        self.process.write((line,), self._timeout)
        self._conversation.sent(self._clock.monotonic())

    def _checkpoint(self, checkpointer: Checkpointer, step: Checkpoint) -> str | None:
        """Carry out a checkpoint; return the name of the error, or None on success."""
        until = self._clock.monotonic() + _SHARD_END_RETRIES
        while True:
            try:
                checkpointer.checkpoint(step.sequence_number, step.sub_sequence_number)
            except KinesisSdkError as error:
                repeats = (
                    error.retryable
                    and self._conversation.call == SHARD_ENDED
                    and self._clock.monotonic() < until
                    and not self._wait_for_stop(_SHARD_END_PAUSE)
                )
                level = logging.INFO if isinstance(error, LeaseLostError) else logging.WARNING
                self.logger.log(
                    level,
                    "shard %s: checkpoint of the child failed%s: %s",
                    self.shard_id,
                    ", repeating it" if repeats else "",
                    error,
                )
                if not repeats:
                    return error_name(error)
            except Exception as error:
                self.logger.exception("shard %s: checkpoint of the child failed", self.shard_id)
                return error_name(error)
            else:
                return None

    def note_exception(self, line: str) -> None:
        """Let the open call fail when the child responds, because its library only printed an exception of the application's code."""
        self._exception = line

    # Between two calls

    def on_message(self) -> None:
        """Note a message of the child; between two calls, another thread serves it. Called from any thread."""
        if self.process.ended is not None:
            self._on_ended()
        # While a call is open, its thread receives the message.
        if not self._turn.locked() and self.process.has_messages:
            self._run_soon(self._serve_between_calls)

    def _serve_between_calls(self) -> None:
        if not self._turn.acquire(blocking=False):
            return  # a call was opened, and its thread receives the message
        try:
            may_serve_more = self._serve_requests()
        finally:
            self._turn.release()
        if may_serve_more:
            # A message may have arrived after the last check, while `on_message` saw that the turn was taken.
            self.on_message()

    def _serve_requests(self) -> bool:
        """Serve the messages of the child; return whether later messages can be served before the next call."""
        try:
            while self.process.has_messages:
                message, written_in = self.process.receive(None)
                step = self._conversation.read(message, written_in)
                if isinstance(step, Hold):
                    self.process.put_back(message, written_in)
                    return False
                self._carry_out(step)
        except (ChildEndedError, ChildHungError) as error:
            # The next call notices it, too, and ends the child.
            self.logger.warning(
                "shard %s: no answer to a checkpoint of child %d: %s", self.shard_id, self.process.pid, error
            )
            return False
        return True
