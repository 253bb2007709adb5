"""The fresh reader: types what the pages say into terminals, nothing else, and measures time, words and concepts.

``make reader`` starts in an empty folder, with an empty environment and without pip's cache. First the reader pastes the README's first program. Then, in
another folder, the reader types the blocks of docs/quickstart.md in order, each in the terminal that its title names, and reaches

* a consumed record, within 5 minutes,
* two workers that share the shards, within 10,
* the result of a Spark job (``--no-spark`` leaves it out), within 15.

Only two things differ from the pages: ``.``, the reader's clone, is the wheel built from it, and the port is a free one. A wrong page
fails here: a command ends with an error, or a worker does not print what the page says.

Words are those of the page above a milestone and in its block, code and commands included. Concepts are those of `CONCEPTS` that occur in them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from integration.building import build
from integration.commands import execute
from integration.guarded import free_port
from tests.readme import DOCS, README, Block, blocks

PAGE = DOCS / "quickstart.md"
PORT = "4567"
"""Port of the fake on the page."""

FIRST = "a record, by the README's program"
LIMITS = {
    FIRST: 300.0,
    "a consumed record": 300.0,
    "two workers share the shards": 600.0,
    "the result of a Spark job": 900.0,
}
"""Seconds from the empty folder to each milestone."""

BLOCKS = {
    "a consumed record": "terminal 2",
    "two workers share the shards": "terminal 3",
    "the result of a Spark job": "Spark: run",
}
"""Title of the block of `PAGE` with which a milestone is reached."""

CONCEPTS = {
    "stream": r"streams?",
    "shard": r"shards?",
    "partition key": r"partition[_ ]key|customer-",
    "producer": r"producers?",
    "future": r"futures?",
    "aggregate": r"aggregat\w+|KPL's\s+format",
    "worker": r"workers?",
    "application": r"application(?:_name)?",
    "handler": r"handlers?|handle",
    "batch": r"batch(?:es)?",
    "initial position": r"initial_position",
    "lease": r"leases?|lease_store",
    "checkpoint": r"checkpoints?",
    "fake AWS": r"fake|FakeAws",
    "session": r"session",
    "until": r"until=",
    "credentials": r"AWS_\w+",
    "Spark session": r"SparkSession",
}
"""What a reader has to understand, and the words by which it is recognized in a page."""

PAUSE = 0.25
COMMAND_TIMEOUT = 900.0
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "JAVA_HOME", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
"""Variables in a reader's terminal before the first command, besides those for proxies and pip."""


class PageError(AssertionError):
    """A statement of a page is wrong; the message shows the command and its output."""


class Reader:
    """A reader with terminals.

    Args:
        folder: Empty working folder.
        package: Package to install instead of the clone.
        limits: Seconds from the start to each milestone.
    """

    def __init__(self, folder: Path, package: str, limits: Mapping[str, float] = LIMITS) -> None:
        self.times: dict[str, float] = {}
        self._folder, self._package, self._limits = folder, package, limits
        self._port = str(free_port())
        self._first_lines: list[str] = []
        self._open: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = _environment(folder)
        self._began = time.monotonic()

    def read(self, page: Path, *, spark: bool) -> None:
        """Follow the page from beginning to end; raise PageError if something fails or takes too long."""
        for block in blocks(page=page):
            if block.title.startswith("Spark") or block.title == "spark_job.py":
                if spark:
                    self._spark(block)
            elif block.title == "install":
                self._first_lines = [line for line in block.text.splitlines() if line.startswith(". ")]
                self._type(block)
            elif block.title == "in each terminal":
                self._first_lines += self._copied(block).splitlines()
            elif block.title.endswith(".py"):
                self._save(block)
            elif block.title.startswith("terminal"):
                self._start(block)
            elif block.title:
                raise PageError(f"{block.title}: a block that the reader does not know")
            elif block.language == "sh":
                self._type(block)
                if "rewind" in block.text:
                    self._wait(
                        "terminal 2", lambda: self._consumed() >= 2000, "the records do not come again"
                    )

    def close(self) -> None:
        """Press Ctrl-C in every terminal and wait; raise PageError if a worker does not end cleanly."""
        for title, process in reversed(self._open.items()):
            os.killpg(process.pid, signal.SIGINT)
            try:
                code = process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise PageError(f"{title} does not end after Ctrl-C:\n{self._printed(title)}") from None
            if code:
                raise PageError(f"{title} ended with code {code} after Ctrl-C:\n{self._printed(title)}")
        self._open.clear()

    def kill(self) -> None:
        """End everything that still runs, after an error."""
        for process in self._open.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    # What a reader does

    def _save(self, block: Block) -> None:
        (self._folder / block.title).write_text(self._copied(block))

    def _type(self, block: Block) -> str:
        """Type commands that end, and return their output."""
        script = "\n".join(["set -e", *self._first_lines, self._copied(block)])
        if block.title == "install":
            script = f"set -e\n{self._copied(block)}"
        done = subprocess.run(
            ["bash", "-c", script],
            check=False,
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT,
        )
        if done.returncode:
            raise PageError(f"{block.text}ended with code {done.returncode}:\n{done.stdout[-4000:]}")
        return done.stdout

    def _start(self, block: Block) -> None:
        """Type a command that keeps running into its own terminal, and wait for the output that the page promises."""
        command = self._copied(block).strip()
        is_fake = "kinesis-sdk fake" in command
        if is_fake:
            command += f" --port {self._port}"
        lines = self._first_lines[:1] if is_fake else self._first_lines
        with (self._folder / f"{block.title}.log").open("wb") as log:
            self._open[block.title] = subprocess.Popen(
                ["bash", "-c", "\n".join([*lines, f"exec {command}"])],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if is_fake:
            self._wait(
                block.title, lambda: "listening on" in self._printed(block.title), "the fake does not listen"
            )
        elif block.title == "terminal 2":
            self._reach("a consumed record", block.title, lambda: self._consumed() > 0)
            self._wait(block.title, lambda: self._consumed() >= 1000, "it has not consumed 1,000 records")
        else:
            self._reach("two workers share the shards", block.title, lambda: len(self._owners()) == 2)

    def _spark(self, block: Block) -> None:
        if block.title == "spark_job.py":
            self._save(block)
            return
        printed = self._type(block)
        if "spark_job.py" in block.text:
            if "1000 records" not in printed:
                raise PageError(f"{block.text}did not print 1000 records:\n{printed[-4000:]}")
            self._note("the result of a Spark job")

    # What a reader sees

    def _copied(self, block: Block) -> str:
        text = re.sub(r"(?<=')\.(?=\[\w+\]')", lambda _: self._package, block.text)
        return text.replace(PORT, self._port)

    def _printed(self, title: str) -> str:
        return (self._folder / f"{title}.log").read_text(errors="replace")

    def _consumed(self) -> int:
        logs = "".join(self._printed(title) for title in self._open)
        return sum(int(count) for count in re.findall(r"^(\d+) records of shardId", logs, re.MULTILINE))

    def _owners(self) -> set[str]:
        listed = json.loads(self._type(Block("", "sh", "kinesis-sdk leases list billing --json\n", 0)))
        return {lease["owner"] for lease in listed["leases"] if lease["owner"]}

    def _reach(self, milestone: str, title: str, condition: Callable[[], bool]) -> None:
        self._wait(title, condition, f"{milestone}: not reached")
        self._note(milestone)

    def _note(self, milestone: str) -> None:
        self.times[milestone] = seconds = time.monotonic() - self._began
        if seconds > self._limits[milestone]:
            raise PageError(f"{milestone} after {seconds:.0f} s, later than {self._limits[milestone]:.0f} s")

    def _wait(self, title: str, condition: Callable[[], bool], problem: str) -> None:
        end = self._began + max(self._limits.values())
        while not condition():
            if self._open[title].poll() is not None or time.monotonic() > end:
                raise PageError(f"{title}: {problem}:\n{self._printed(title)[-4000:]}")
            time.sleep(PAUSE)


def _environment(folder: Path) -> dict[str, str]:
    """Return the variables of a reader's terminal before the first command."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or name.lower().endswith("_proxy") or name.startswith("PIP_")
    }
    return {**kept, "HOME": str(folder), "PYTHONUNBUFFERED": "1"}


def read_readme(folder: Path, package: str, limit: float = LIMITS[FIRST]) -> float:
    """Paste the README's first program after the installation that it names, and return the seconds that both take.

    Raises PageError if a command fails, the program prints something else than the README says, or both take longer than ``limit``.
    """
    program, install = blocks()[:2]
    (said,) = re.findall(r"it prints `(.+?)` and ends", README.read_text(encoding="utf-8"))
    (folder / "first.py").write_text(program.text)
    command = install.text.replace("install .", f"install {package}")
    began = time.monotonic()
    done = execute(
        [
            "bash",
            "-c",
            f"set -e\n{sys.executable} -m venv .venv\n. .venv/bin/activate\n{command}\npython first.py",
        ],
        cwd=folder,
        env=_environment(folder),
        timeout=COMMAND_TIMEOUT,
    )
    seconds = time.monotonic() - began
    if done.returncode or done.stdout.splitlines()[-1:] != [said]:
        raise PageError(f"{program.text}printed:\n{(done.stdout + done.stderr)[-4000:]}")
    if seconds > limit:
        raise PageError(f"{FIRST} after {seconds:.0f} s, later than {limit:.0f} s")
    return seconds


def words_to(milestone: str) -> list[str]:
    """Return the words that a reader has read when a milestone is reached."""
    if milestone == FIRST:
        page, last = README, blocks()[1]
    else:
        page = PAGE
        (last,) = (block for block in blocks(page=PAGE) if block.title == BLOCKS[milestone])
    lines = page.read_text(encoding="utf-8").splitlines()
    return "\n".join(lines[: last.line + last.text.count("\n")]).split()


def concepts_in(words: Sequence[str]) -> list[str]:
    """Return the concepts that occur in words of a page, in the order of `CONCEPTS`."""
    text = " ".join(words)
    return [name for name, pattern in CONCEPTS.items() if re.search(rf"\b(?:{pattern})", text, re.IGNORECASE)]


def table(times: Mapping[str, float]) -> str:
    """Return times, words and concepts as a Markdown table."""
    rows = []
    for milestone, seconds in times.items():
        words = words_to(milestone)
        limit = f"{LIMITS[milestone] / 60:.0f} min"
        rows.append(f"| {milestone} | {seconds:.0f} s | {limit} | {len(words)} | {len(concepts_in(words))} |")
    return "\n".join(
        ["| from nothing to | time | limit | words read | concepts |", "|---|---|---|---|---|", *rows]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Read both pages once; print times, words and concepts."""
    parser = argparse.ArgumentParser(
        prog="make reader", description="Do what the quickstart says, and take the time."
    )
    parser.add_argument(
        "--no-spark", action="store_true", help="leave out the Spark job, which needs Java 17"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="reader-") as name:
        (folder := Path(name, "project")).mkdir()
        (first := Path(name, "first")).mkdir()
        package = shlex.quote(str(build("wheel", Path(name))))
        times = {}
        reader = None
        try:
            times[FIRST] = read_readme(first, package)
            reader = Reader(folder, package)
            reader.read(PAGE, spark=not options.no_spark)
            reader.close()
        except PageError as error:
            sys.stderr.write(f"{PAGE.name if reader else README.name}: {error}\n")
            return 1
        finally:
            if reader:
                reader.kill()
    times |= reader.times
    sys.stdout.write(f"{table(times)}\n\n")
    for milestone in times:
        sys.stdout.write(f"{milestone}: {', '.join(concepts_in(words_to(milestone)))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
