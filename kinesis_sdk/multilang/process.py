"""A child process: its pipes, its messages, and its end.

```
 caller's thread: write ──► stdin        stdout ──► reader ──► queue of messages ──► caller's thread: receive
                                         stderr ──►   │    ──► log
                                         exit   ──►   └──► end of the process group
```
One thread for each child reads both outputs until the child ends, and never blocks otherwise, so a child that prints while the daemon
writes to it, or between two calls, never waits for the daemon. The same thread ends the process, and no other thread sends signals:

```
RUNNING ──finish──► input closed ──grace──► SIGTERM to the group ──5 s──► SIGKILL to the group ──► exited
   └──────────────────────── exit ──────────────────────────────────────────────────────────────────► exited
exited ──► rest of the output is read ──► rest of the group: SIGTERM, 5 s, SIGKILL ──► gone
```
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from kinesis_sdk.multilang.lines import Line, LineSplitter
from kinesis_sdk.multilang.protocol import ChildMessage, Noise, decode_child_line

_PIPE_BYTES = 1024 * 1024
"""Size of the pipes, where the system lets it be set. The library for Node fails permanently if the pipe has no room for a whole write to
its standard output.
"""
_READ_BYTES = 256 * 1024
_MAX_LINE = 1024 * 1024
"""Maximum bytes of a line on standard output that may be a message. Messages have a few hundred."""
_MAX_LOG_LINE = 16 * 1024
"""Bytes after which a line on standard error is cut."""
_MAX_MESSAGES = 1000
"""Maximum messages that wait to be received. A child has at most one open request, so a child that exceeds this number floods the
daemon."""
_MAX_REST = 16 * 1024 * 1024
"""Maximum bytes that are read after the child exited, because another process may still write into the same pipe."""
_EXIT_AFTER_CLOSE = 0.2
"""Seconds to wait for the exit of a child that has closed its standard output: an exiting process closes its pipes first."""
_LOG_REST = 1.0
"""Seconds to wait until the last lines of a child are logged."""
_TICK = 0.5
"""Maximum seconds between two checks for changes that cause no event."""
_SOON = 0.05
"""Seconds between two checks while a change is expected."""


class ChildEndedError(Exception):
    """The child has exited, or has violated the protocol. The message describes how."""


class ChildHungError(Exception):
    """The child did not respond in time."""


class ChildListener(Protocol):
    """Receiver of the events of a child. Called on the reader's thread, so no method may block."""

    def on_message(self) -> None:
        """Note that a message was queued, or that the child ended."""

    def on_noise(self, text: str) -> None:
        """Log the beginning of a line on standard output that is not a message."""

    def on_stderr(self, text: str) -> bool:
        """Log a line on standard error; return False if there is no room. The same line is then passed again later, and the child waits."""

    def on_exit(self, text: str) -> None:
        """Note that the child has exited; ``text`` describes how."""


class ChildProcess:
    """A running child process.

    One thread at a time writes and receives; `finish` and the properties may be used by any thread.

    Args:
        popen: The process, with three unbuffered pipes, in a session of its own.
        kill_after: Seconds between SIGTERM and SIGKILL.

    Raises:
        OSError: If the operating system gives no more files. The child was killed.

    Attributes:
        pid: Id of the process, and of its process group.
        written_in: Call number that is stored with each message that arrives from now on; see `Conversation.read`.
    """

    def __init__(self, popen: subprocess.Popen[bytes], *, kill_after: float) -> None:
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        self.pid: Final[int] = popen.pid
        self.written_in: int = 0
        self._popen = popen
        self._input, self._output, self._error = (
            popen.stdin.fileno(),
            popen.stdout.fileno(),
            popen.stderr.fileno(),
        )
        for descriptor in (self._output, self._input):
            _enlarge(descriptor)
        for descriptor in (self._input, self._output, self._error):
            os.set_blocking(descriptor, False)
        self._listener: ChildListener | None = None
        self._kill_after = kill_after
        self._output_lines = LineSplitter(_MAX_LINE)
        self._error_lines = LineSplitter(_MAX_LOG_LINE)
        self._error_is_open = True
        self._unlogged: deque[str] = deque()
        self._condition = threading.Condition()
        self._messages: deque[tuple[ChildMessage, int]] = deque()
        self._ended: str | None = None
        self._gone = threading.Event()
        self._writing = threading.Lock()
        # Monotonic seconds of the next signal, and the signals that were sent; only the reader's thread sends them.
        self._terminate_at: float | None = None
        self._kill_at: float | None = None
        self._terminated = False
        self._output_closed_at: float | None = None
        try:
            self._wake_reader, self._wake_writer = os.pipe()
        except OSError:
            # No more files: the caller tries again later, and this child must not run at the same time as the next child.
            self._signal(signal.SIGKILL)
            popen.wait()
            for pipe in (popen.stdin, popen.stdout, popen.stderr):
                pipe.close()
            raise
        for descriptor in (self._wake_reader, self._wake_writer):
            os.set_blocking(descriptor, False)
        self._pidfd = _open_pidfd(popen.pid)
        self._thread = threading.Thread(target=self._run, name=f"kinesis-child-{popen.pid}", daemon=True)

    def start(self, listener: ChildListener) -> None:
        """Start the reader's thread.

        Raises:
            RuntimeError: If the operating system gives no more threads. The child was killed.
        """
        self._listener = listener
        try:
            self._thread.start()
        except RuntimeError:
            self._signal(signal.SIGKILL)
            self._popen.wait()
            self._close()
            self._gone.set()
            raise

    # For the caller's thread

    @property
    def ended(self) -> str | None:
        """Description of the child's end, or of why it is unusable; None while it is usable."""
        return self._ended

    @property
    def has_messages(self) -> bool:
        """Whether a message waits to be received."""
        return bool(self._messages)

    def write(self, pieces: Iterable[bytes], stalled_after: float | None = None) -> None:
        """Write to the child's standard input. The next piece is generated only when the pipe has room.

        Without any progress for ``stalled_after`` seconds, the child counts as hung; None for no limit.

        Raises:
            ChildEndedError: If the child has exited, or has closed its standard input.
            ChildHungError: If the child did not read.
        """
        with self._writing:
            for piece in pieces:
                rest = memoryview(piece)
                since = time.monotonic()
                while rest:
                    try:
                        written = os.write(self._input, rest) if self._input >= 0 else 0
                    except BlockingIOError:
                        self._await_room(since, stalled_after)
                        continue
                    except OSError as error:
                        raise ChildEndedError(self._settled() or "it closed its standard input") from error
                    if not written:
                        raise ChildEndedError(self._ended or "it is being ended")
                    rest = rest[written:]
                    since = time.monotonic()

    def _await_room(self, since: float, stalled_after: float | None) -> None:
        poller = select.poll()
        poller.register(self._input, select.POLLOUT)
        # At most a tick: after the child has exited, a process that it started may hold the other end of the pipe,
        # and then no event comes.
        if poller.poll(_TICK * 1000):
            return
        if self._ended is not None:
            raise ChildEndedError(self._ended)
        if stalled_after is not None and time.monotonic() - since > stalled_after:
            raise ChildHungError(f"it has not read its standard input for {stalled_after:g} s")

    def _settled(self) -> str | None:
        """Return the reason for the child's end, after a failed write. The reader may see its exit only a moment later."""
        with self._condition:
            self._condition.wait_for(lambda: self._ended is not None, timeout=_TICK)
            return self._ended

    def receive(self, deadline: float | None) -> tuple[ChildMessage, int]:
        """Wait for the next message until ``deadline`` (monotonic; None for no limit); return it with `written_in` at its arrival.

        Raises:
            ChildEndedError: If the child has ended and all its messages were received.
            ChildHungError: If no message came.
        """
        with self._condition:
            while not self._messages:
                if self._ended is not None:
                    raise ChildEndedError(self._ended)
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    raise ChildHungError("it does not respond")
                self._condition.wait(remaining)
            return self._messages.popleft()

    def put_back(self, message: ChildMessage, written_in: int) -> None:
        """Return a received message to the front of the queue."""
        with self._condition:
            self._messages.appendleft((message, written_in))

    def finish(self, grace: float) -> None:
        """Let the child end: close its input, send SIGTERM to its process group after ``grace`` seconds, and SIGKILL ``kill_after`` later.

        Returns at once.
        """
        # A thread that is writing keeps the input open; its write fails when the child has ended.
        if self._writing.acquire(blocking=False):
            try:
                self._close_input()
            finally:
                self._writing.release()
        with self._condition:
            at = time.monotonic() + grace
            self._terminate_at = at if self._terminate_at is None else min(self._terminate_at, at)
        self._wake()

    def wait_gone(self, timeout: float) -> bool:
        """Wait until the child and its process group have ended, after `finish`; return whether they have."""
        return self._gone.wait(timeout)

    def _close_input(self) -> None:
        if self._input >= 0:
            self._input = -1
            assert self._popen.stdin is not None
            with contextlib.suppress(OSError):
                self._popen.stdin.close()

    def _wake(self) -> None:
        # Under the lock: after `_close`, the number may belong to another file.
        with self._condition:
            if self._wake_writer >= 0:
                with contextlib.suppress(BlockingIOError):  # the pipe is already full of wake-ups
                    os.write(self._wake_writer, b"w")

    # The reader's thread

    @property
    def _listen(self) -> ChildListener:
        assert self._listener is not None
        return self._listener

    def _run(self) -> None:
        try:
            self._read_until_exit()
            self._read_rest()
            self._end(self._describe_exit())
            self._end_group()
        except BaseException:
            self._signal(signal.SIGKILL)
            self._popen.wait()
            raise
        finally:
            # Whatever went wrong, no thread may wait for this child forever.
            self._end("its reader failed")
            self._close()
            self._gone.set()

    def _read_until_exit(self) -> None:
        poller = select.poll()
        for descriptor in (self._output, self._wake_reader, self._pidfd):
            if descriptor is not None:
                poller.register(descriptor, select.POLLIN)
        reads_error = False
        while True:
            # Standard error is read only while the log has room. Standard output is always read.
            wants_error = self._error_is_open and not self._unlogged
            if wants_error != reads_error:
                if wants_error:
                    poller.register(self._error, select.POLLIN)
                else:
                    poller.unregister(self._error)
                reads_error = wants_error
            ready = {descriptor for descriptor, _ in poller.poll(self._pause() * 1000)}
            if self._wake_reader in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_reader, 4096)
            self._log_more()
            if self._error in ready:
                self._read_error()
            if self._output in ready and not self._read_output():
                poller.unregister(self._output)
                self._output_closed_at = time.monotonic()
            if self._has_exited(ready):
                return
            self._send_due_signals()
            if self._output_closed_at is not None and self._output_closed_for >= _EXIT_AFTER_CLOSE:
                self._end("it closed its standard output")

    @property
    def _output_closed_for(self) -> float:
        """Seconds since the child closed its standard output; 0 while it is open."""
        closed_at = self._output_closed_at
        return 0.0 if closed_at is None else time.monotonic() - closed_at

    def _pause(self) -> float:
        if self._unlogged or (self._output_closed_at is not None and self._ended is None):
            return _SOON
        now = time.monotonic()
        terminate_at = None if self._terminated else self._terminate_at
        due = [at - now for at in (terminate_at, self._kill_at) if at is not None]
        # Without a descriptor for the process, no event reports its exit.
        longest = 60.0 if self._pidfd is not None else _SOON * 4
        return max(0.0, min([longest, *due]))

    def _has_exited(self, ready: set[int]) -> bool:
        if self._pidfd is not None:
            return self._pidfd in ready
        return self._popen.poll() is not None

    def _read_output(self) -> bool:
        """Read the available data; return False at the end of the stream."""
        try:
            data = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return True
        if self._error_is_open and not self._unlogged:
            # First read the lines that the child printed to standard error before this message.
            self._read_error()
        for line in self._output_lines.feed(data) if data else self._output_lines.flush():
            self._accept(line)
        return bool(data)

    def _accept(self, line: Line) -> None:
        if line.is_cut:
            self._listen.on_noise(f"{line.data[:200].decode('utf-8', 'replace')}… ({line.length:,} bytes)")
            return
        message = decode_child_line(line.data)
        if message is None:
            return
        if isinstance(message, Noise):
            self._listen.on_noise(message.text)
            return
        if len(self._messages) >= _MAX_MESSAGES:
            if self._ended is None:
                self._end(f"it sent more than {_MAX_MESSAGES} messages without being called")
                self._terminate_at = time.monotonic()
            return
        with self._condition:
            self._messages.append((message, self.written_in))
            self._condition.notify_all()
        self._listen.on_message()

    def _read_error(self) -> bool:
        """Read the available data; return False at the end of the stream."""
        try:
            data = os.read(self._error, _READ_BYTES)
        except BlockingIOError:
            return True
        for line in self._error_lines.feed(data) if data else self._error_lines.flush():
            text = line.data.decode("utf-8", "replace").rstrip("\r")
            self._unlogged.append(f"{text}… ({line.length:,} bytes)" if line.is_cut else text)
        self._log_more()
        self._error_is_open = bool(data)
        return self._error_is_open

    def _log_more(self) -> None:
        while self._unlogged and self._listen.on_stderr(self._unlogged[0]):
            self._unlogged.popleft()

    def _send_due_signals(self) -> None:
        now = time.monotonic()
        with self._condition:
            terminates = not self._terminated and self._terminate_at is not None and now >= self._terminate_at
        if terminates:
            self._terminated = True
            self._kill_at = now + self._kill_after
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a frozen process gets SIGTERM only when it continues
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _read_rest(self) -> None:
        """Read the remaining output of a child that has exited, until both outputs are empty for now."""
        for read, descriptor in ((self._read_error, self._error), (self._read_output, self._output)):
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            for _ in range(_MAX_REST // _READ_BYTES):
                if not poller.poll(0) or not read():
                    break
        for line in self._output_lines.flush():
            self._accept(line)
        for line in self._error_lines.flush():
            self._unlogged.append(line.data.decode("utf-8", "replace"))
        until = time.monotonic() + _LOG_REST
        self._log_more()
        while self._unlogged and time.monotonic() < until:
            time.sleep(_SOON)
            self._log_more()
        if self._unlogged:
            self._listen.on_noise(
                f"{len(self._unlogged):,} lines on its standard error did not fit into the log"
            )

    def _describe_exit(self) -> str:
        code = self._popen.wait()
        if code >= 0:
            text = f"it exited with code {code}"
        else:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"signal {-code}"
            text = f"it was ended by {name}"
        self._listen.on_exit(text)
        return text

    def _end(self, why: str) -> None:
        with self._condition:
            if self._ended is None:
                self._ended = why
            self._condition.notify_all()
        self._listen.on_message()

    def _end_group(self) -> None:
        """End the rest of the process group: processes that the child started and that are still running."""
        with self._writing:
            self._close_input()
        if not self._group_exists():
            return
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        kill_at = time.monotonic() + self._kill_after
        while self._group_exists():
            if time.monotonic() >= kill_at:
                self._signal(signal.SIGKILL)
                return
            time.sleep(_SOON)

    def _group_exists(self) -> bool:
        # The system does not reuse the number of a process group while the group has members.
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _close(self) -> None:
        with self._writing:
            self._close_input()
        for pipe in (self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
        with self._condition:
            os.close(self._wake_writer)
            self._wake_writer = -1
        os.close(self._wake_reader)


def _enlarge(descriptor: int) -> None:
    """Enlarge a pipe as far as the system allows, if the system has a call for this."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(
            OSError
        ):  # not permitted: the pipes of this user have reached their limit of memory
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process exits; None if the system has no such descriptor."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:  # an old kernel, or a sandbox
        return None
