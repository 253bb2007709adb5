"""The tutorial, tutorial-1-produce.md to tutorial-4-dashboard.md, word by word: its files, commands and outputs, in the order of the pages.

Only the installation, the ports and the process to kill are this test's. A block of text after commands says what they print, ``…``
being anything. Commands in a terminal of their own go on until the end of the tutorial.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.commands import execute
from integration.guarded import free_port
from integration.spark.environments import NEWEST, CannotRunSparkError, prepare
from tests.readme import DOCS, ROOT, Block, blocks

BIN = Path(sys.executable).parent
PAGES = ("tutorial-1-produce.md", "tutorial-2-consume.md", "tutorial-3-spark.md", "tutorial-4-dashboard.md")
TIMEOUT = 300.0


class Reader:
    """Someone who follows the pages, in one folder and several terminals."""

    def __init__(self, folder: Path, spark_python: str | None) -> None:
        self.folder = folder
        self._spark_python = spark_python
        self._open: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self._environment |= {"PYTHONPATH": str(ROOT), "PATH": f"{BIN}:{os.environ['PATH']}"}
        self._url = ""
        self._typed: list[str] = []
        self._printed = ""
        self._port = free_port()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._open.values():
            process.kill()
            process.wait()

    def follow(self, block: Block) -> None:
        """Do what a block says."""
        title = block.title
        if title == "install":
            assert "pip install '.[cli,sql,spark]'" in block.text
        elif title == "in each terminal":
            words = shlex.split(block.text)
            told = dict(word.split("=", 1) for word in words if word != "export")
            assert told["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4567"
            self._environment |= {**told, "AWS_ENDPOINT_URL": self._url}
        elif title.endswith(".py"):
            text = block.text
            if title == "dashboard.py":
                assert text.count("8000") == 2
                text = text.replace("8000", str(self._port))
            (self.folder / title).write_text(text)
        elif title.startswith("terminal"):
            self._start(title, block.text)
        elif title == "crash":
            self._crash(block.text)
        elif title.startswith("until"):
            self._until(lambda: self._again(block.text, title.removeprefix("until ")))
        elif block.language == "sh":
            self._printed = ""
            for line in block.text.splitlines():
                self._type(line)
        else:
            assert block.language == "text"
            for line in block.text.splitlines():
                parts = (re.escape(part) for part in line.split("…"))
                assert re.search("^" + ".*".join(parts) + "$", self._printed, re.MULTILINE), self._printed

    def _start(self, title: str, command: str) -> None:
        words = shlex.split(command)
        fake = words[:2] == ["kinesis-sdk", "fake"]
        log = self._log(title)
        with log.open("wb") as file:
            self._open[title] = subprocess.Popen(
                [*self._words(command), *(("--port", "0") if fake else ())],
                cwd=self.folder,
                env=self._environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        if fake:
            self._until(lambda: " on http" in log.read_text())
            self._url = log.read_text().split("\n")[0].split()[-1]
        elif title == "terminal 2":
            self._until(lambda: "flights of" in log.read_text())
        elif title == "terminal 3":
            self._until(lambda: len(self._owners()) == 2)
        else:
            self._until(self._dashboard_shows_everything)

    def _crash(self, text: str) -> None:
        produce, kill = text.splitlines()
        assert kill == "kill -9 PROCESS"
        victim = self._open["terminal 3"]
        assert f"process {victim.pid}\n" in self._log("terminal 3").read_text()
        self._type(produce)
        self._until(lambda: "flights of" in self._log("terminal 3").read_text())
        victim.send_signal(signal.SIGKILL)
        victim.wait()

    def _type(self, line: str) -> None:
        environment = self._environment
        if line == "python weeks.py":
            if self._spark_python is None:
                pytest.skip("the pages before Spark were followed; there is no Java for the others")
            environment = {
                **environment,
                "PYSPARK_PYTHON": self._spark_python,
                "PYSPARK_DRIVER_PYTHON": self._spark_python,
                "SPARK_LOCAL_IP": "127.0.0.1",
            }
        done = execute(self._words(line), cwd=self.folder, env=environment, timeout=900)
        assert done.returncode == 0, f"{line}: {done.returncode} {done.stdout} {done.stderr[-3000:]}"
        self._printed += done.stdout

    def _words(self, command: str) -> list[str]:
        words = shlex.split(command)
        if words[0] == "python":
            spark = words[1] == "weeks.py" and self._spark_python
            words[0] = spark or sys.executable
        return words

    def _log(self, title: str) -> Path:
        return self.folder / f"{title}.log"

    def _again(self, command: str, wanted: str) -> bool:
        self._printed = ""
        try:
            self._type(command)
        except AssertionError:  # the table does not exist yet
            return False
        return f"{wanted} flights" in self._printed

    def _owners(self) -> set[str]:
        done = execute(["kinesis-sdk", "leases", "list", "airports", "--json"], env=self._environment)
        return set(re.findall(r'"owner": "([^"]+)"', done.stdout))

    def _dashboard_shows_everything(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/", timeout=TIMEOUT) as response:
                page = response.read().decode()
        except OSError:
            return False
        return "0 s behind" in page and "<td>ORD" in page and "week 10" in page

    def _until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not reached():
            logs = {log.name: log.read_text()[-2000:] for log in self.folder.glob("*.log")}
            assert time.monotonic() < deadline, f"{self._printed} {logs}"
            time.sleep(0.3)


def test_the_tutorial(tmp_path: Path) -> None:
    try:
        spark_python = str(prepare(NEWEST))
    except CannotRunSparkError:
        spark_python = None
    with Reader(tmp_path, spark_python) as reader:
        for name in PAGES:
            for block in blocks(page=DOCS / name):
                reader.follow(block)
