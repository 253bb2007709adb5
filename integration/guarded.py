"""Processes that end with the test run, and their ports."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


class Guarded:
    """A process that cannot outlive this one; see `guard`.

    Args:
        command: Its command line.
        log: File for its output.
        env: Environment.
        cwd: Working directory.

    Attributes:
        pid: The command's, not the guard's.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> None:
        self.log = log
        self._guard = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("guard.py"), log, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=None if env is None else dict(env),
            cwd=cwd,
            # Ctrl-C must reach only the test run, which then ends everything in order.
            start_new_session=True,
        )
        line = self._guard.stdout.readline()
        if not line:
            raise RuntimeError(f"{command[0]} could not be started: {self.tail()}")
        self.pid = int(line)

    def tail(self, lines: int = 30) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    @property
    def is_running(self) -> bool:
        return self._guard.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal; do nothing if the process has ended."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, seconds: float) -> int:
        """Return its exit status; raise TimeoutError if it still runs after `seconds`."""
        try:
            return self._guard.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"process {self.pid} still runs after {seconds:g} s: {self.tail()}") from None

    def close(self) -> None:
        """Kill it if it still runs."""
        self._guard.stdin.close()
        self._guard.wait()
        self._guard.stdout.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_port(process: Guarded, port: int, seconds: float = 300.0) -> None:
    """Wait until a process listens."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if not process.is_running or time.monotonic() > deadline:
                raise RuntimeError(f"no process listens on port {port}: {process.tail()}") from None
        time.sleep(0.05)
