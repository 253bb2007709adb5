"""Processes that the benchmark starts: stopped by their ids, and sampled for CPU time and memory while they run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")

# The first text that a command line contains decides.
PARTS = (
    ("benchmarks.spark_cluster.stream", "fake Kinesis"),
    ("CoarseGrainedExecutorBackend", "executor JVM"),
    ("pyspark.daemon pyspark.worker", "Python worker"),
    ("python_streaming_source_runner", "source process"),
    ("python_streaming_sink_runner", "commit process"),
    ("deploy.SparkSubmit", "driver JVM"),
    ("deploy.worker.Worker", "cluster worker"),
    ("deploy.master.Master", "master"),
)


class Process(NamedTuple):
    """A process of the benchmark at one moment; ``part`` is one of `PARTS`, or ``other``."""

    pid: int
    part: str
    session: int
    started: int
    cpu: float
    resident: int


def look(sessions: set[int]) -> list[Process]:
    """Return the processes of these sessions. Spark's daemons make process groups of their own, but stay in the session."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # it has just ended
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) not in sessions or fields[0] == "Z":
                continue
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            part = next((name for text, name in PARTS if text in command), "other")
            cpu = (int(fields[11]) + int(fields[12])) / TICK
            memory = int(fields[21]) * PAGE
            found.append(Process(int(entry.name), part, int(fields[3]), int(fields[19]), cpu, memory))
    return found


class Child:
    """A process in a session of its own, with everything that it starts."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if log.name.startswith("stream") else output,
                stderr=output,
                start_new_session=True,
            )
        self.session = self._process.pid

    def first_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode().strip()
        if not line:
            raise RuntimeError(f"the process ended; its log ends:\n{self.tail()}")
        return line

    def tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-25:])

    def poll(self) -> int | None:
        return self._process.poll()

    def wait_for_text(self, text: str, seconds: float = 900.0) -> str:
        """Return the line of its log that contains a text."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for line in self._log.read_text(errors="replace").splitlines():
                if text in line:
                    return line
            if self.poll() is not None:
                break
            time.sleep(0.2)
        raise RuntimeError(f"{text!r} does not appear in the log, which ends:\n{self.tail()}")

    def kill(self) -> None:
        """SIGKILL to the whole session, until nothing of it is left."""
        while alive := look({self.session}):
            for process in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            self._process.poll()
            time.sleep(0.05)
        self._process.wait(10)


class Usage(NamedTuple):
    """What the parts of a run used.

    Attributes:
        cpu: CPU seconds by part.
        memory: Samples by part: seconds since the start, and the resident bytes of the part's largest process.
    """

    cpu: dict[str, float]
    memory: dict[str, list[tuple[float, int]]]


class Sampler:
    """Looks at the processes twice a second. What a process uses after the last look at it is not counted.

    Args:
        sessions: Sessions to watch; may grow.
    """

    def __init__(self, sessions: set[int]) -> None:
        self._sessions = sessions
        self._first: dict[tuple[int, int], float] = {}
        self._last: dict[tuple[int, int], Process] = {}
        self._memory: dict[str, list[tuple[float, int]]] = {}
        self._began = time.monotonic()
        self._stopped = threading.Event()
        for process in look(sessions):
            self._first[process.pid, process.started] = process.cpu
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(0.5):
            at = time.monotonic() - self._began
            largest: dict[str, int] = {}
            for process in look(set(self._sessions)):
                self._last[process.pid, process.started] = process
                largest[process.part] = max(largest.get(process.part, 0), process.resident)
            for part, resident in largest.items():
                self._memory.setdefault(part, []).append((at, resident))

    def stop(self) -> Usage:
        self._stopped.set()
        self._thread.join()
        cpu: dict[str, float] = {}
        for key, process in self._last.items():
            cpu[process.part] = cpu.get(process.part, 0.0) + process.cpu - self._first.get(key, 0.0)
        return Usage(cpu, self._memory)
