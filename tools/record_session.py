"""Records docs/session.cast: two minutes in a terminal, recorded while the commands run (`python -m tools.record_session`).

A fake AWS and a worker run in this process. Each command of `SESSION` runs in a terminal of its own, and its output becomes
the recording, in the format asciicast v2. Long pauses are cut.
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from kinesis_sdk import ConsumerConfig, RecordBatch, Worker
from kinesis_sdk.testing import FakeAws, FakeAwsServer

ROOT = Path(__file__).parents[1]
CAST = ROOT / "docs" / "session.cast"
WIDTH, HEIGHT = 100, 28
LONGEST_PAUSE = 2.0
"""Seconds to which a longer pause without output is cut."""
READING = 2.5
"""Seconds for which the result of a command stays before the next one is typed."""
FRAME = 0.8
"""Output of this many seconds becomes one event of the recording."""
APPLICATION, STREAM = "billing", "orders"
CTRL_C = "\x03"
INTERRUPTED = 130
"""Exit code after Ctrl-C."""

_ERASE = re.compile(r"((?:\x1b\[2K\x1b\[1A)+\x1b\[2K)")
"""Sequence that erases the lines of a progress bar."""


@dataclass(frozen=True)
class Step:
    """A command of the session.

    Attributes:
        command: The command line.
        keys: Keys to press while the command runs, each with its time in seconds after the start; `CTRL_C` is one.
        seconds: The command is interrupted after this time.
    """

    command: str
    keys: tuple[tuple[float, str], ...] = ()
    seconds: float = 150.0


SESSION = (
    Step("kinesis-sdk stream create orders --shards 2"),
    Step("kinesis-sdk put orders orders.ndjson --key customer"),
    Step("kinesis-sdk lag billing"),
    Step("kinesis-sdk leases show billing"),
    Step("kinesis-sdk leases rewind billing --to TRIM_HORIZON --yes"),
    Step("kinesis-sdk top billing", keys=((12.0, "q"),), seconds=30.0),
    Step("kinesis-sdk ui billing", keys=((4.0, CTRL_C),), seconds=30.0),
    Step("kinesis-sdk demo --duration 8s", seconds=240.0),
)
"""Commands of the session. They use a fake AWS, and a worker that starts after the first `put`."""


def without_overwritten(text: str) -> str:
    """Return output without the drawings of a progress bar that a later drawing replaces."""
    head, *rest = _ERASE.split(text)
    drawn = list(zip(rest[::2], rest[1::2], strict=True))
    kept = [
        one
        for one, later in zip_longest(drawn, drawn[1:])
        if later is None or one[0] != later[0] or one[1].count("\n") != later[0].count("[1A")
    ]
    return head + "".join(erase + body for erase, body in kept)


class Recording:
    """Events of a terminal, with pauses cut."""

    def __init__(self) -> None:
        self.events: list[tuple[float, str]] = []
        self._at = 0.0
        self._shown = False

    def add(self, after: float, text: str) -> None:
        """Add output that appeared so many seconds after the output before it."""
        self._at += min(after, LONGEST_PAUSE)
        if self._shown and self._at - self.events[-1][0] < FRAME:
            # Of the drawings of a progress bar within a frame, only the last one is kept.
            at, before = self.events[-1]
            self.events[-1] = (at, without_overwritten(before + text))
        else:
            self.events.append((round(self._at, 3), text))
        self._shown = True

    def type(self, text: str) -> None:
        """Add a prompt and a command, as if it were typed."""
        self._at += READING if self.events else 0.5
        for letter in ("$ ", *text, "\r\n"):
            self.events.append((round(self._at, 3), letter))
            self._at += 0.04
        self._shown = False

    def written(self) -> str:
        """Return the recording as asciicast v2."""
        header = {"version": 2, "width": WIDTH, "height": HEIGHT, "title": "Two minutes with kinesis-sdk"}
        lines = [header, *([at, "o", text] for at, text in self.events)]
        return "\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n"


def run(step: Step, recording: Recording, environment: dict[str, str], folder: Path) -> int:
    """Run a command in a terminal, record its output, and return its exit code."""
    recording.type(step.command)
    words = [sys.executable, "-m", "kinesis_sdk.cli", *step.command.split()[1:]]
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    with subprocess.Popen(
        words, stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=environment, start_new_session=True
    ) as process:
        os.close(slave)
        began = last = time.monotonic()
        keys, decoder = list(step.keys), codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            ready, _, _ = select.select([master], [], [], 0.05)
            now = time.monotonic()
            if ready:
                try:
                    data = os.read(master, 65_536)
                except OSError:  # the other end is closed
                    break
                if not data:
                    break
                if text := decoder.decode(data):
                    recording.add(now - last, text)
                    last = now
            if keys and now - began > keys[0][0]:
                _, key = keys.pop(0)
                if key == CTRL_C:  # the terminal is not the controlling one of the command
                    os.killpg(process.pid, signal.SIGINT)
                else:
                    os.write(master, key.encode())
            if now - began > step.seconds:
                os.killpg(process.pid, signal.SIGINT)
                raise TimeoutError(f"{step.command}: longer than {step.seconds:g} s")
    os.close(master)
    return process.returncode


def main() -> int:
    """Record the session into docs/session.cast."""
    recording = Recording()
    aws = FakeAws()
    with tempfile.TemporaryDirectory() as name, FakeAwsServer(aws) as server:
        folder = Path(name)
        with (folder / "orders.ndjson").open("w") as file:
            for number in range(5_000):
                file.write(
                    json.dumps({"order": number, "customer": f"c{number % 40}", "amount": number % 7}) + "\n"
                )
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": name,
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            "AWS_ENDPOINT_URL": server.endpoint_url,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
        }
        worker: Worker | None = None
        try:
            for step in SESSION:
                code = run(step, recording, environment, folder)
                print(f"{step.command}: exit code {code}")
                if code not in (0, 1, INTERRUPTED):
                    return code
                if worker is None and step.command.startswith("kinesis-sdk put"):
                    worker = start_worker(server.endpoint_url)
        finally:
            if worker is not None:
                worker.stop()
    CAST.write_text(recording.written(), encoding="utf-8")
    print(f"{CAST.relative_to(ROOT)}: {recording.events[-1][0]:.0f} s, {len(recording.events)} events")
    return 0


def start_worker(endpoint: str) -> Worker:
    """Start a worker that takes a moment for each batch, and wait until it has processed a record."""
    import boto3

    worked = threading.Event()

    def handle(_batch: RecordBatch) -> None:
        time.sleep(0.2)
        worked.set()

    worker = Worker(
        STREAM,
        application_name=APPLICATION,
        handler=handle,
        worker_id="worker-1",
        config=ConsumerConfig(initial_position="TRIM_HORIZON", batch_records=200),
        session=boto3.Session("x", "x", region_name="us-east-1"),
        endpoint_url=endpoint,
    )
    worker.start()
    worked.wait(60)
    return worker


if __name__ == "__main__":
    sys.exit(main())
