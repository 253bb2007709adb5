"""All children of a daemon, from start to end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Literal

from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.daemon_pool import DaemonPool
from kinesis_sdk.common.errors import RestartShardError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.consumer import ShardContext
from kinesis_sdk.multilang import command
from kinesis_sdk.multilang.child_log import ChildLog
from kinesis_sdk.multilang.process import ChildProcess
from kinesis_sdk.multilang.session import CallFailedError, ChildSession
from kinesis_sdk.multilang.settings import EXIT_GRACE

_LOGGER = FieldLogger(logging.getLogger(__name__))

_CHECKPOINT_THREADS = 8
_SWALLOWED = "Caught exception from action dispatch"
"""Beginning of the line with which the libraries for Python and Ruby report an exception in the application's code, before they respond as
if the call had succeeded.
"""

_LEAST_WAIT = 5.0
"""Minimum seconds to wait for the end of a child after SIGKILL, even if the grace period is shorter, because the system needs some time."""

OUTPUT_LOGGER = "kinesis_sdk.multilang.child"
"""Logger of the output of children: standard output at INFO, standard error at WARNING."""
_OUTPUT = FieldLogger(logging.getLogger(OUTPUT_LOGGER))


class _Listener:
    """Passes the output of a child to the log, and its messages to the session."""

    def __init__(
        self,
        session: ChildSession,
        log: ChildLog,
        *,
        logger: FieldLogger,
        output: FieldLogger,
        detects_exceptions: bool,
        on_exit: Callable[[], None],
    ) -> None:
        self.on_message = session.on_message
        self._session = session
        self._log = log
        self._logger = logger
        self._output = output
        self._detects_exceptions = detects_exceptions
        self._when_exited = on_exit
        self._dropped = 0

    def on_noise(self, text: str) -> None:
        if not self._log.add(self._output, logging.INFO, text):
            self._dropped += 1
        elif self._dropped:
            lost = f"{self._dropped:,} lines on standard output did not fit into the log"
            if self._log.add(self._output, logging.WARNING, lost):
                self._dropped = 0

    def on_stderr(self, text: str) -> bool:
        if self._detects_exceptions and text.startswith(_SWALLOWED):
            self._session.note_exception(text)
        return self._log.add(self._output, logging.WARNING, text)

    def on_exit(self, text: str) -> None:
        self._logger.log(
            logging.DEBUG if text.endswith(" code 0") else logging.WARNING,
            "shard %s: child %d has ended: %s",
            self._session.shard_id,
            self._session.process.pid,
            text,
        )
        self._when_exited()


class Children:
    """All children of a daemon: starts them, ends them, and records which of them failed. Thread-safe.

    Args:
        words: Words of the command.
        timeout: Seconds that a child may take for each message while a call is open; None for no limit.
        empty_batches: Whether children are also called without records.
        on_exception: Reaction to an exception of the application's code that the child's library only prints: none, or
            as if the child had failed.
        raw_stderr: Whether lines on the standard error of children are written there unchanged, and not to the log.
        on_failure: Called with a text after a child failed, before its shard starts again.
        exit_grace: Seconds from closing a child's input to SIGTERM, and again from SIGTERM to SIGKILL.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        timeout: float | None = None,
        empty_batches: bool = False,
        on_exception: Literal["ignore", "restart"] = "ignore",
        on_failure: Callable[[str], None] = lambda _text: None,
        exit_grace: float = EXIT_GRACE,
        clock: Clock | None = None,
    ) -> None:
        self.empty_batches: bool = empty_batches
        self._words = list(words)
        self._timeout = timeout
        self._detects_exceptions = on_exception == "restart"
        self._on_failure = on_failure
        self._exit_grace = exit_grace
        self._kill_wait = max(2 * exit_grace, _LEAST_WAIT)
        self._clock = clock or SystemClock()
        self._log = ChildLog()
        self._pool = DaemonPool(_CHECKPOINT_THREADS, "kinesis-child-checkpoint", self._on_error)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._running: set[ChildProcess] = set()
        self._closed = False

    def begin_stop(self) -> None:
        """Shorten the retries of calls."""
        self._stopping.set()

    def start(self, shard: ShardContext, on_ended: Callable[[], None]) -> ChildSession:
        """Start a child. ``on_ended`` is called from any thread when the child has ended, perhaps several times.

        Raises:
            RestartShardError: If the child cannot be started.
        """
        stream, shard_id, worker_id = str(shard.stream), shard.shard_id, shard.worker_id
        logger = FieldLogger(_LOGGER, stream=stream, shard=shard_id, worker=worker_id)
        try:
            process = ChildProcess(command.start(self._words), kill_after=self._exit_grace)
            session = ChildSession(
                process,
                shard_id=shard_id,
                timeout=self._timeout,
                clock=self._clock,
                run_soon=self._pool.submit,
                wait_for_stop=self._stopping.wait,
                on_ended=on_ended,
                logger=logger,
            )
            with self._lock:
                self._running.add(process)
                closed = self._closed
            process.start(
                _Listener(
                    session,
                    self._log,
                    logger=logger,
                    output=FieldLogger(_OUTPUT, stream=stream, shard=shard_id, worker=worker_id),
                    detects_exceptions=self._detects_exceptions,
                    on_exit=lambda: self._forget(process),
                )
            )
        except (OSError, RuntimeError) as error:
            # Too many processes, files or threads, or a program that was removed meanwhile. A later attempt may succeed.
            raise self._failed(f"the child process cannot be started: {error}") from error
        if closed:
            # A step of the worker was running while `close` ended the children that it knew.
            process.finish(0.0)
            raise RestartShardError("the daemon has ended")
        logger.info("shard %s: started child %d: %s", shard_id, process.pid, self._words[0])
        return session

    def _forget(self, process: ChildProcess) -> None:
        with self._lock:
            self._running.discard(process)

    def end(self, session: ChildSession) -> None:
        """Let a child exit after its last call. Returns at once."""
        session.process.finish(self._exit_grace)

    def end_failed(self, session: ChildSession, error: CallFailedError) -> RestartShardError:
        """End a child that failed, wait for its end, and return the error that lets its shard start again."""
        process = session.process
        process.finish(0.0 if error.hung else self._exit_grace)
        # Two children must not process one shard, so the next one starts only after this one has ended.
        while not process.wait_gone(2 * self._exit_grace + self._kill_wait):
            # SIGKILL was sent, but a process in an uninterruptible system call ends only after that call, and it may still send
            # its results afterwards. The shard waits here, and its lease is kept, until the child or the daemon has ended.
            if self._stopping.is_set():
                break
            session.logger.error(
                "shard %s: child %d has not ended after SIGKILL; its shard starts again only after the end of the child",
                session.shard_id,
                process.pid,
            )
        return self._failed(f"child {process.pid} failed: {error}")

    def _failed(self, text: str) -> RestartShardError:
        if not self._stopping.is_set():
            self._on_failure(text)
        return RestartShardError(text)

    def close(self, *, soon: bool = False) -> bool:
        """End all children, wait until they have ended, and return whether all have.

        If ``soon`` is true, SIGTERM is sent after a second at most.
        """
        self._stopping.set()
        grace = min(self._exit_grace, 1.0) if soon else self._exit_grace
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            process.finish(grace)
        until = self._clock.monotonic() + grace + self._exit_grace + self._kill_wait
        ended = [process.wait_gone(max(0.0, until - self._clock.monotonic())) for process in running]
        self._pool.close()
        self._log.close()
        return all(ended)

    def _on_error(self, error: BaseException) -> None:
        _LOGGER.error("a checkpoint between two calls of a child failed", exc_info=error)
