"""Breaks the package in one place at a time, and reports the mistakes that no unit test notices.

``python -m tools.mutants`` tries all of ``tests/mutants/*.jsonl``; names or parts of file names select some, as in
``python -m tools.mutants P15 sinks/``. Each line of these files is one mutant: its ``id``, the ``file``, the text ``old``, which occurs
there once, its replacement ``new``, what the mistake means (``what``), and, if no test can notice it, the reason (``equivalent``).

The test that killed a mutant last time runs first (``tests/mutants/killers.json``, written by ``--remember``), then the tests nearest to
it, and a run ends with the first failure. A mutant that survives these tests is tried on all unit tests. Several mutants run at a time,
in copies of the tree. The exit code is 1 if a mutant survives without a reason, or no longer applies.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "mutants"
KILLERS = "killers.json"
"""Name of the file, beside the mutants, with the test that killed each of them last time."""
FITS = Path("tests", "test_mutants.py")
"""Compares the mutants with the code, so it fails for each of them, whatever the behaviour."""
NEAREST = 8
"""Test files that run before all others."""
LIMIT = 120
"""Timeout of a single test, in seconds. Without a mutant a test takes at most two; one that reaches this is stuck and counts as failed."""


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes:
        file: Path below the root of the tree.
        old, new: Text that occurs in the file once, and its replacement.
        what: What the mistake means.
        equivalent: Why no test can notice it; empty if one must.
    """

    id: str
    file: str
    old: str
    new: str
    what: str
    equivalent: str = ""

    def applied_to(self, text: str) -> str:
        """Return the text of its file with the mistake; raise ValueError if it no longer fits."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.file} has the old text {count} times, where it must have it once")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Outcome:
    """Result of a mutant.

    Attributes:
        killed_by: The test that noticed it; None if none did.
        error: Why it could not be tried.
        seconds: Duration.
    """

    mutant: Mutant
    killed_by: str | None
    error: str | None
    seconds: float

    @property
    def is_wrong(self) -> bool:
        """Whether a person must act on it."""
        return self.error is not None or (self.killed_by is None) != bool(self.mutant.equivalent)

    def __str__(self) -> str:
        if self.error:
            text = f"cannot be tried: {self.error}"
        elif self.killed_by is None:
            text = f"survives ({self.mutant.equivalent or 'NO TEST NOTICES: ' + self.mutant.what})"
        else:
            text = f"killed by {self.killed_by}"
            if self.mutant.equivalent:
                text += f", although it is said to be equivalent: {self.mutant.equivalent}"
        return f"{self.mutant.id:<7} {text} [{self.seconds:.0f} s]"


def read(folder: Path) -> list[Mutant]:
    """Return the mutants of all files of a folder."""
    return [
        Mutant(**json.loads(line))
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def choose(mutants: Sequence[Mutant], names: Sequence[str]) -> list[Mutant]:
    """Return the mutants with one of these names, or with one of them in the path of their file; without names, all.

    Raises SystemExit if a name matches none.
    """
    chosen: dict[str, Mutant] = {}
    for name in names:
        found = {mutant.id: mutant for mutant in mutants if mutant.id == name or name in mutant.file}
        if not found:
            raise SystemExit(f"no mutant is called {name!r}, and none is in a file with this in its path")
        chosen |= found
    return list(chosen.values()) if names else list(mutants)


def nearest(mutant: Mutant, tests: Iterable[tuple[str, str]]) -> list[str]:
    """Return test files, the likeliest to notice a mutant first. `tests` has path and text of each test file."""
    module = Path(mutant.file)
    dotted = mutant.file.removesuffix(".py").replace("/", ".")
    folder = "/".join(("tests", *module.parts[1:-1]))
    words = set(re.findall(r"[A-Za-z]{4,}", f"{mutant.what} {mutant.old} {mutant.new}"))

    def score(test: tuple[str, str]) -> float:
        path, text = test
        points = 0.0
        if path == f"{folder}/test_{module.stem}.py":
            points += 100
        if re.search(rf"\b{re.escape(dotted)}\b", text):
            points += 50
        points += 20 * sum(
            one == other for one, other in zip(path.split("/"), folder.split("/"), strict=False)
        )
        return points + 40 * sum(word in text for word in words) / (len(words) or 1)

    return [path for path, _ in sorted(tests, key=score, reverse=True)]


def read_killers(folder: Path) -> dict[str, str]:
    """Return the test that killed each mutant last time, by the id of the mutant."""
    path = folder / KILLERS
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def remember(folder: Path, outcomes: Iterable[Outcome]) -> None:
    """Write the tests that killed mutants, without the parameters of a test, beside the mutants."""
    killers = read_killers(folder)
    for outcome in outcomes:
        if outcome.killed_by and "::" in outcome.killed_by:
            killers[outcome.mutant.id] = outcome.killed_by.partition("[")[0]
    (folder / KILLERS).write_text(json.dumps(killers, indent=0, sort_keys=True) + "\n", encoding="utf-8")


class Copies:
    """Copies of the tree, each used for one mutant at a time."""

    def __init__(self, folder: Path, count: int, tests: Sequence[str], killers: Mapping[str, str]) -> None:
        self._tests = tests
        self._killers = killers
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split("\0")
        self._free: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            copy = folder / str(number)
            for name in filter(None, listed):
                if (ROOT / name).is_file():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(ROOT / name, copy / name)
            self._free.put(copy)

    def try_out(self, mutant: Mutant) -> Outcome:
        """Run the tests with a mutant, the nearest first."""
        copy = self._free.get()
        path = copy / mutant.file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        began = time.monotonic()
        killed_by = error = None
        try:
            path.write_text(mutant.applied_to(text), encoding="utf-8")
            compile(path.read_bytes(), mutant.file, "exec")
            killed_by = self._run(copy, mutant)
        except (ValueError, SyntaxError, OSError) as problem:
            error = str(problem)
        finally:
            if text:
                path.write_text(text, encoding="utf-8")
            self._free.put(copy)
        return Outcome(mutant, killed_by, error, time.monotonic() - began)

    def _run(self, copy: Path, mutant: Mutant) -> str | None:
        killer = self._killers.get(mutant.id, "")
        if (copy / killer.partition("::")[0]).is_file() and (killed_by := _failing(copy, [killer])):
            return killed_by
        tests = [
            (str(path.relative_to(copy)), path.read_text(encoding="utf-8"))
            for folder in self._tests
            for path in sorted((copy / folder).rglob("test_*.py"))
            if path != copy / FITS
        ]
        files = nearest(mutant, tests)
        return _failing(copy, files[:NEAREST]) or _failing(copy, files[NEAREST:])


def _failing(copy: Path, files: Sequence[str]) -> str | None:
    """Return the first failing test of these files; None if all pass."""
    if not files:
        return None
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("KINESIS_SDK_FUZZ", None)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider"]
    # The marker in tests/conftest.py would take precedence over --timeout.
    environment["KINESIS_SDK_TEST_LIMIT"] = str(LIMIT)
    run = subprocess.run(
        [*command, *files],
        check=False,
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if run.returncode in (pytest.ExitCode.OK, pytest.ExitCode.USAGE_ERROR):  # a remembered test may be gone
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    return found[1] if found else f"an end of pytest with code {run.returncode}: {run.stdout.strip()[-200:]}"


def _print_as_they_end(copies: Copies, mutants: Sequence[Mutant], workers: int) -> Iterator[Outcome]:
    lock = threading.Lock()
    began = time.monotonic()
    done = 0

    def one(mutant: Mutant) -> Outcome:
        nonlocal done
        outcome = copies.try_out(mutant)
        with lock:
            done += 1
            left = (time.monotonic() - began) / done * (len(mutants) - done) / 60
            print(f"[{done}/{len(mutants)}, {left:.0f} min left] {outcome}", flush=True)
        return outcome

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(one, mutant) for mutant in mutants]
        try:
            for future in futures:
                yield future.result()
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise


def main(arguments: Sequence[str]) -> int:
    """Try the mutants of these names, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants",
        description="Break the package in one place at a time, and tell which mistakes no unit test notices.",
    )
    parser.add_argument(
        "names", nargs="*", help="names of mutants, or parts of the paths of their files (all)"
    )
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="folder with *.jsonl files (tests/mutants)"
    )
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="mutants at a time (the processors)"
    )
    parser.add_argument(
        "--tests", action="append", metavar="FOLDER", help="run the tests of this folder only (tests)"
    )
    parser.add_argument(
        "--remember", action="store_true", help=f"note the tests that killed them in {KILLERS} of the folder"
    )
    options = parser.parse_args(arguments)
    mutants = choose(read(options.folder), options.names)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kinesis-sdk-mutants-") as folder:
        copies = Copies(
            Path(folder), options.workers, options.tests or ["tests"], read_killers(options.folder)
        )
        try:
            outcomes = list(_print_as_they_end(copies, mutants, options.workers))
        except KeyboardInterrupt:
            print("Stopped.", flush=True)
            return 130
    if options.remember:
        remember(options.folder, outcomes)
    wrong = [outcome for outcome in outcomes if outcome.is_wrong]
    killed = sum(outcome.killed_by is not None for outcome in outcomes)
    if wrong:
        print("\nTo be mended:", *wrong, sep="\n  ")
    equivalent = sum(bool(mutant.equivalent) for mutant in mutants)
    print(
        f"\n{'FAILED' if wrong else 'PASSED'}: {killed} of {len(mutants)} mutants killed, "
        f"{equivalent} cannot be noticed, {len(wrong)} to be mended, {(time.monotonic() - began) / 60:.0f} min"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
