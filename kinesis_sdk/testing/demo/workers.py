"""Worker processes of the demo: starts them, reads their logs, kills and stops them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kinesis_sdk.common.errors import ConsumerError
from kinesis_sdk.testing.accounting.delivery_log import DeliveryReader
from kinesis_sdk.testing.accounting.verify import Delivery


class WorkerProcess:
    """One consumer worker process.

    Attributes:
        name: Its worker id.
        killed_at: Wall-clock seconds at which `kill` was called; None before.
        frozen_until: Monotonic seconds at which the process resumes; None while it runs.
        was_frozen: Whether `freeze` was called.
    """

    def __init__(
        self, name: str, settings: Mapping[str, Any], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.killed_at: float | None = None
        self.frozen_until: float | None = None
        self.was_frozen: bool = False
        log = folder / f"{name}.jsonl"
        self._reader = DeliveryReader(log, name)
        self._errors = folder / f"{name}.log"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kinesis_sdk.testing.demo.worker_process"],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                env=dict(environment),
            )
        assert self._process.stdin is not None
        line = json.dumps({**settings, "worker_id": name, "log": str(log)})
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    @property
    def leases(self) -> int:
        """Last logged number of leases that the worker holds."""
        return 0 if self.killed_at else self._reader.leases

    @property
    def lost_leases(self) -> set[int]:
        """Acquisitions of this worker that ended because the lease was lost."""
        return self._reader.lost_leases

    @property
    def longest_stall(self) -> float:
        """Longest stall that the worker logged, in seconds."""
        return self._reader.longest_stall

    def read(self) -> Iterator[Delivery]:
        """Yield the records that the worker processed since the last call. Raises ConsumerError if the process ended without a stop."""
        code = self._process.poll()
        yield from self._reader.read()
        if code is not None and self.killed_at is None:
            tail = self._errors.read_text(errors="replace")[-2000:]
            raise ConsumerError(f"worker {self.name} ended with status {code}: {self._reader.error or tail}")

    def read_rest(self) -> Iterator[Delivery]:
        """Yield the rest of the log after the worker ended."""
        return self._reader.read()

    def kill(self) -> None:
        """Kill the process without warning (SIGKILL)."""
        self.killed_at = time.time()
        self._process.kill()
        self._process.wait()

    def freeze(self, seconds: float) -> None:
        """Suspend the process (SIGSTOP) for `seconds`; `go_on` resumes it."""
        self.frozen_until, self.was_frozen = time.monotonic() + seconds, True
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self, *, at_once: bool = False) -> bool:
        """Resume a frozen process (SIGCONT) if its time is up or `at_once` is set; return whether it was resumed."""
        if self.frozen_until is None or not (at_once or time.monotonic() >= self.frozen_until):
            return False
        self.frozen_until = None
        self._process.send_signal(signal.SIGCONT)
        return True

    def stop(self, timeout: float) -> bool:
        """Request a clean stop (SIGTERM), and kill the process if it has not ended after ``timeout`` seconds.

        Returns whether the process ended by itself with status 0; True for a worker that was killed before.
        """
        if self.killed_at is not None:
            return True
        self.go_on(at_once=True)  # A frozen process would not receive the signal.
        self._process.terminate()
        try:
            return self._process.wait(timeout) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False
        finally:
            if self._process.stdin:
                self._process.stdin.close()
