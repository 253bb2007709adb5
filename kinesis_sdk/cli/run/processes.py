"""The supervisor's I/O: worker processes, signals, reports, and the loop that carries out the decisions of `Supervisor`."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

from kinesis_sdk.cli.output import ExitCode
from kinesis_sdk.cli.run.settings import RunSettings
from kinesis_sdk.cli.run.supervisor import ChildCode, Outcome, Supervisor, Verb
from kinesis_sdk.cli.run.watch import FileWatcher
from kinesis_sdk.common.stop_flag import SignalCopies

_LOGGER = logging.getLogger(__name__)

_TICK = 0.2
"""Seconds between two checks of the processes."""
_FILE_POLL_INTERVAL = 0.5
"""Seconds between two checks of the files."""


class ChildProcess:
    """One worker process.

    Attributes:
        reported: Last report of its health: ``health``, ``live`` and ``ready``; None before the first report.
        reported_at: Monotonic seconds at which this report arrived.
        error: Reported cause of its end; None if there was none.
        reports: File descriptor that is readable when there are reports.
    """

    def __init__(self, number: int, settings: RunSettings) -> None:
        self.number = number
        self.reported: Mapping[str, Any] | None = None
        self.reported_at: float | None = None
        self.error: str | None = None
        self._rest = b""
        ours, theirs = os.pipe()
        self.reports: int = ours
        os.set_blocking(ours, False)
        # The new process inherits the blocked signal, so Ctrl-C cannot end it while it starts.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kinesis_sdk.cli.run.child"], stdin=subprocess.PIPE, pass_fds=(theirs,)
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(theirs)
        self.pid: int = self._process.pid
        self._send(replace(settings, status_fd=theirs).to_json())

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the process has ended; its exit code says why
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def read(self) -> Iterator[dict[str, Any]]:
        """Return the reports that have arrived."""
        while True:
            try:
                data = os.read(self.reports, 65536)
            except BlockingIOError:
                return
            if not data:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                yield json.loads(line)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        return self._process.poll()

    def request_stop(self) -> None:
        """Request a clean stop."""
        self._send("stop")

    def request_metrics(self, number: int) -> None:
        """Request the metrics of the process, for the scrape with this number."""
        self._send(f"metrics {number}")

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def close(self) -> None:
        """Close the pipes of a process that has ended."""
        os.close(self.reports)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()


def describe_exit(code: int, error: str | None) -> str:
    """Return a text for people that describes how a process ended."""
    if error is not None:
        return error
    if code >= 0:
        return f"ended with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}"


def reap_orphans(own: Collection[int]) -> None:
    """Reap ended processes that no other code waits for; not the ``own`` worker processes, which are handled elsewhere.

    In a container, this command is often process 1, and so inherits the processes that handlers started and left behind.
    """
    if not hasattr(os, "waitid"):  # macOS, where this command is never process 1
        return
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in own:
            return
        with contextlib.suppress(ChildProcessError):
            os.waitpid(ended.si_pid, os.WNOHANG)


class Processes:
    """Worker processes and their supervisor, on the main thread.

    Args:
        settings: Settings of the workers; the number of each process is appended to the worker id.
        watcher: Watches files; None for no reloads.
        observe: Called once per tick with the running processes, for endpoints.
        on_metrics: Called with the number of a process, the number of a scrape, and the metrics of the process.
        tell: Called with the name of an event and its facts, for programs.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        settings: RunSettings,
        watcher: FileWatcher | None = None,
        observe: Callable[[Mapping[int, ChildProcess]], None] = lambda _processes: None,
        on_metrics: Callable[[int, int, str], None] = lambda _process, _number, _text: None,
        tell: Callable[[str, Mapping[str, Any]], None] = lambda _event, _facts: None,
    ) -> None:
        self._supervisor = supervisor
        self._settings = settings
        self._watcher = watcher
        self._next_file_poll = 0.0
        self._observe = observe
        self._on_metrics = on_metrics
        self._tell = tell
        self._running: dict[int, ChildProcess] = {}
        self._selector = selectors.DefaultSelector()
        self._requested: list[signal.Signals] = []

    def run(self) -> Outcome:
        """Run until the supervisor ends. No process is left afterwards."""
        supervisor = self._supervisor
        with self._signals():
            supervisor.begin(time.monotonic())
            try:
                while supervisor.outcome is None:
                    self._tick()
            finally:
                self._end_all()
        return supervisor.outcome

    def _tick(self) -> None:
        now = time.monotonic()
        while self._requested:
            self._stop(self._requested.pop(0))
        if self._watcher is not None and now >= self._next_file_poll:
            self._next_file_poll = now + _FILE_POLL_INTERVAL
            changed = self._watcher.poll()
            if changed:
                _LOGGER.info("reloading: %s changed", ", ".join(map(str, changed)))
                self._do(self._supervisor.on_change(now))
        self._do(self._supervisor.poll(now))
        pause = min(_TICK, max(0.0, self._supervisor.next_due - now))
        for key, _ in self._selector.select(pause):
            self._read(key.data)
        for child in [*self._running.values()]:
            code = child.poll()
            if code is not None:
                self._on_exit(child, code)
        reap_orphans({child.pid for child in self._running.values()})
        self._observe(self._running)

    def _do(self, actions: list[Any]) -> None:
        for verb, number in actions:
            if verb is Verb.START:
                self._start(number)
            elif verb is Verb.STOP:
                self._running[number].request_stop()
            elif number in self._running:
                self._running[number].kill()

    def _start(self, number: int) -> None:
        worker_id = f"{self._settings.worker_id}-{number}"
        try:
            child = ChildProcess(number, replace(self._settings, worker_id=worker_id))
        except OSError as error:  # the system gives no more processes, files or memory
            reason = f"could not be started: {error}"
            self._do(self._supervisor.on_exit(number, ChildCode.FAILED, reason, time.monotonic()))
            return
        _LOGGER.debug("worker process %d: pid %d, loading the handler", number, child.pid)
        self._running[number] = child
        self._selector.register(child.reports, selectors.EVENT_READ, child)

    def _read(self, child: ChildProcess) -> None:
        for report in child.read():
            now = time.monotonic()
            if report["event"] == "loaded":
                # Log the start only now: a process that cannot import its handler never worked.
                self._log_start(child)
                self._supervisor.on_loaded(now)
            elif report["event"] == "started":
                self._tell("consuming", {"process": child.number})
                self._supervisor.on_started(child.number, now)
            elif report["event"] == "failed":
                child.error = report["message"]
            elif report["event"] == "health":
                child.reported, child.reported_at = report, now
            elif report["event"] == "metrics":
                self._on_metrics(child.number, report["number"], report["text"])

    def _log_start(self, child: ChildProcess) -> None:
        worker_id = f"{self._settings.worker_id}-{child.number}"
        _LOGGER.info("worker process %d: started, pid %d, worker %s", child.number, child.pid, worker_id)
        self._tell("process-started", {"process": child.number, "pid": child.pid, "worker_id": worker_id})

    def _on_exit(self, child: ChildProcess, code: int) -> None:
        self._read(child)
        self._selector.unregister(child.reports)
        child.close()
        del self._running[child.number]
        reason = describe_exit(code, child.error)
        self._tell(
            "process-ended",
            {"process": child.number, "pid": child.pid, "exit_code": code, "reason": reason},
        )
        if code in (ChildCode.REACHED, ChildCode.STOPPED):
            _LOGGER.info("worker process %d: ended", child.number)
        self._do(self._supervisor.on_exit(child.number, code, reason, time.monotonic()))

    def _stop(self, number: signal.Signals) -> None:
        now = time.monotonic()
        if self._supervisor.is_ending:
            _LOGGER.warning("received %s again, stopping immediately", number.name)
        else:
            _LOGGER.info("received %s, stopping %d worker processes", number.name, len(self._running))
        code = ExitCode.INTERRUPTED if number is signal.SIGINT else ExitCode.DONE
        self._do(self._supervisor.request_stop(code, now))

    def _end_all(self) -> None:
        """End all processes, regardless of the event that ended the loop."""
        for child in self._running.values():
            child.kill()
        for child in self._running.values():
            while child.poll() is None:
                time.sleep(0.01)
            child.close()
        self._running.clear()
        self._selector.close()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Note signals, which `_tick` handles."""
        copies = SignalCopies()

        def note(received: int, _frame: FrameType | None) -> None:
            if not copies.is_copy(received, time.monotonic()):
                self._requested.append(signal.Signals(received))

        former = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)
