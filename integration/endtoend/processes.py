"""Processes of a run: started with settings on standard input, killed, stopped, frozen, observed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_ROOT = Path(__file__).parents[2]
_STACKS_SECONDS = 5.0


class Usage(NamedTuple):
    """Resources that a process uses now: resident memory in bytes, and threads."""

    rss: int
    threads: int


class ChildProcess:
    """One process.

    Args:
        module: Module to run.
        name: Its name.
        settings: Sent to its standard input as a line of JSON, together with ``log``, the path of its log.
        folder: For the log and the output.
        environment: Its environment.

    Attributes:
        module: As above.
        log: Path of its log.
        frozen_at: When it was frozen (wall clock); None if it is not.
        leaving: Whether it was asked to stop.
    """

    def __init__(
        self,
        module: str,
        name: str,
        settings: Mapping[str, Any],
        folder: Path,
        environment: Mapping[str, str],
    ) -> None:
        self.module = module
        self.name = name
        self.log = folder / f"{name}.jsonl"
        self.frozen_at: float | None = None
        self.leaving = False
        self._printed = folder / f"{name}.log"
        with self._printed.open("wb") as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=printed,
                env=dict(environment),
                cwd=_ROOT,
                # Ctrl-C in the terminal must reach only the run, which then ends everything in order.
                start_new_session=True,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({**settings, "log": str(self.log)}).encode() + b"\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status; None while it lives."""
        return self._process.poll()

    @property
    def is_able(self) -> bool:
        """Whether it is alive, not frozen, and not asked to stop."""
        return self.status is None and self.frozen_at is None and not self.leaving

    def tail(self) -> str:
        """Return the end of its output."""
        return self._printed.read_text(errors="replace")[-3000:]

    def stacks(self) -> str:
        """Make it print the stacks of its threads; return the end of its output."""
        if self.status is None:
            self._process.send_signal(signal.SIGUSR1)
            self.wait(_STACKS_SECONDS)
        return self.tail()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._close()

    def terminate(self) -> None:
        """SIGTERM: it ends when its work is done."""
        self.leaving = True
        self._process.terminate()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.frozen_at = time.time()
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.frozen_at = None
        self._process.send_signal(signal.SIGCONT)

    def wait(self, timeout: float) -> int | None:
        """Return the exit status; None if it still lives after `timeout` seconds."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if self._process.returncode is not None:
                self._close()

    def destroy(self) -> None:
        """End it, whatever it is doing."""
        if self.status is None:
            self._process.kill()
            self._process.wait()
        self._close()

    def usage(self) -> Usage | None:
        """Return the resources it uses; None if the system does not tell, or if it has just ended."""
        try:
            text = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        if "VmRSS" not in fields:
            return None
        return Usage(int(fields["VmRSS"].split()[0]) * 1024, int(fields["Threads"]))

    def _close(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
