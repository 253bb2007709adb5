"""Runs test suites, estimates the time left, and reports what passed, what failed, and what was skipped and why.

``python -m tools.run_tests`` runs all suites of `tools.suites`; ``python -m tools.run_tests unit fuzz`` runs some, ``test`` and ``rest``
those of `make test` and all others. A suite that keeps both cores busy runs first and alone. The others run three at a time, because they
mostly wait for processes. A failing suite does not stop the rest. The exit code is 0 only if no suite failed and each ran or
skipped at least one test.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tools.suites import Package, Suite, announce, choose, packages, to_fetch

ROOT = Path(__file__).parents[1]
REPORTS = "KINESIS_SDK_TEST_REPORTS"
"""Environment variable: folder for JUnit XML reports, including those of pytest runs that a test starts."""
WITHOUT = {"CI", "BUILD_NUMBER"}
"""Variables that make pytest print failed comparisons in full, which takes minutes for two sets of 20,000 records; removed."""
REPEATABLE = {"KINESIS_SDK_FUZZ": "0", "PYTHONHASHSEED": "0"}
"""Environment of all suites, for the same random cases and the same order of sets each time."""
LANES = 3
"""Number of suites at a time. Three keep two cores busy, so that the longest one does not run alone at the end."""
INTERVAL = 30.0
"""Seconds between two lines of progress. On a terminal, a single line is updated instead."""


@dataclass
class Result:
    """Result of a suite.

    Attributes:
        passed, failed, skipped: Number of tests in the JUnit XML; skipped tests by reason.
        broken: Whether pytest returned an error: failures, errors, no tests.
        seconds: Duration.
    """

    passed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    broken: bool = False
    seconds: float = 0.0

    @property
    def is_bad(self) -> bool:
        """Whether the suite failed."""
        return self.broken or self.failed > 0

    def __str__(self) -> str:
        parts = [f"{self.passed} passed", f"{self.failed} failed" if self.failed else ""]
        parts += [f"{self.skipped.total()} skipped" if self.skipped else ""]
        parts += ["pytest ended with an error" if self.broken and not self.failed else ""]
        return ", ".join(filter(None, parts)) + f" in {clock(self.seconds)}"


def clock(seconds: float) -> str:
    """Return a duration in readable form."""
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s" if seconds >= 60 else f"{seconds:.0f} s"


def read_report(report: Path, result: Result) -> None:
    """Add the tests of a JUnit XML file to a result."""
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - pytest has just written it
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            result.failed += 1
        elif skipped is not None:
            result.skipped[_reason(skipped)] += 1
        else:
            result.passed += 1


def _reason(skipped: ET.Element) -> str:
    message, text = skipped.get("message") or "", skipped.text or ""
    # For a module skipped as a whole, the reason is in a tuple (path, line, reason).
    whole = re.search(
        r"Skipped: (.*?)['\"]?\)?$", text if message == "collection skipped" else message, re.DOTALL
    )
    reason = whole[1] if whole else message
    return reason.splitlines()[0] if reason else "no reason given"


def summarize(results: Mapping[str, Result], seconds: float, found: Sequence[Package] = ()) -> Iterator[str]:
    """Yield the last lines: what was skipped and why, the verdict, and the number of tests.

    `found` are the packages that the suites need. A test that can do without some of them is not skipped.
    """
    for package in found:
        if reason := package.why_not():
            yield f"not tested: {package.name}, {reason}"
    skipped = sum((result.skipped for result in results.values()), Counter[str]())
    for reason, count in sorted(skipped.items()):
        yield f"{count} {'test' if count == 1 else 'tests'} skipped: {reason}"
    bad = [name for name, result in results.items() if result.is_bad]
    yield (f"FAILED: {', '.join(bad)}" if bad else "PASSED") + f" in {clock(seconds)}"
    passed, failed = (sum(getattr(r, name) for r in results.values()) for name in ("passed", "failed"))
    yield f"total: {passed} passed, {failed} failed, {skipped.total()} skipped"


class Progress:
    """Suites that have run and are running, and an estimate of the time left.

    `downloads` are the seconds that the downloads take, next to the first suites; zero once they are over.
    """

    def __init__(
        self, suites: Sequence[Suite], downloads: float = 0.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.downloads = downloads
        self._suites = suites
        self._now = now
        self._began = now()
        self._running: dict[str, tuple[float, Callable[[], str]]] = {}
        self._ended: dict[str, float] = {}
        self._skipped: set[str] = set()

    def begin(self, suite: Suite, output: Callable[[], str]) -> None:
        """Note that a suite has started; `output` has pytest's output so far."""
        self._running[suite.name] = (self._now(), output)

    def end(self, suite: Suite, *, skipped: bool = False) -> None:
        """Note that a suite has ended.

        A suite is `skipped` if all of its tests were; its duration then tells nothing about the machine.
        """
        began, _ = self._running.pop(suite.name)
        self._ended[suite.name] = self._now() - began
        if skipped:
            self._skipped.add(suite.name)

    def seconds_left(self) -> float:
        """Return the estimated seconds for the remaining suites, scaled by this machine's speed in the finished ones."""
        expected = {suite.name: suite.seconds for suite in self._suites}
        ran = self._ended.keys() - self._skipped
        usual = sum(expected[name] for name in ran)
        slowness = max(sum(self._ended[name] for name in ran) / usual, 0.2) if usual else 1.0
        # A suite that runs for longer than expected shows that the machine is slow even before it ends.
        late = [(self._now() - began) / expected[name] for name, (began, _) in self._running.items()]
        slowness = max([slowness, *late])
        first = max(self.downloads - (self._now() - self._began), 0.0)
        then = longest = 0.0
        for suite in self._suites:
            if suite.name in self._ended:
                continue
            left = suite.seconds * slowness
            if suite.name in self._running:
                began, output = self._running[suite.name]
                left = _left(left, self._now() - began, output())
            if suite.first:
                first = max(first, left)
            else:
                then += left
                longest = max(longest, left)
        return first + max(then / LANES, longest)

    def __str__(self) -> str:
        running = list(self._running.items())
        parts = [f"{name} {_percent(output())}".strip() for name, (_, output) in running]
        parts += ["downloads"] if self.downloads else []
        ended = f"{len(self._ended)} of {len(self._suites)} suites ended"
        times = f"{clock(self._now() - self._began)} gone, about {clock(self.seconds_left())} left"
        return f"{times}; {ended}; running: {', '.join(parts)}"


def _percent(output: str) -> str:
    found = re.findall(r"\[ *(\d+)%\]$", output, re.MULTILINE)
    return f"{found[-1]} %" if found else ""


def _left(expected: float, gone: float, output: str) -> float:
    """Return the seconds that a suite still needs, from pytest's percentage as soon as that is meaningful."""
    percent = int((_percent(output) or "0 %").split()[0])
    if percent >= 10:
        return gone * (100 - percent) / percent
    return max(expected - gone, 0.1 * expected)


def run(suite: Suite, output: Path) -> Result:
    """Run a suite, with pytest's output in a file."""
    result = Result()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kinesis-sdk-tests-", ignore_cleanup_errors=True) as folder:
        inherited = {name: value for name, value in os.environ.items() if name not in WITHOUT}
        # pytest processes of one user share their folder of temporary files, and each removes old ones when it ends. One of them
        # fails if another one is still removing the same. The suites run side by side, so each gets a folder of its own.
        environment = {**inherited, "PYTEST_DEBUG_TEMPROOT": folder, REPORTS: folder}
        environment |= {**REPEATABLE, **suite.environment}
        command = [sys.executable, "-m", "pytest", f"--junitxml={folder}/suite.xml", *suite.arguments]
        with (
            output.open("wb") as printed,
            subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=printed, stderr=subprocess.STDOUT
            ) as process,
        ):
            try:
                result.broken = process.wait() != 0
            except KeyboardInterrupt:
                process.wait()  # The terminal sends Ctrl-C to it too, and it stops the servers that it has started.
                raise
        for report in sorted(Path(folder).glob("*.xml")):
            read_report(report, result)
    result.broken = result.broken or not result.passed + result.skipped.total()
    result.seconds = time.monotonic() - began
    return result


class Session:
    """One run of several suites. `results` has the finished ones, by name."""

    def __init__(self, suites: Sequence[Suite], missing: Sequence[Package], folder: Path) -> None:
        self.results: dict[str, Result] = {}
        self._suites = suites
        self._missing = missing
        self._folder = folder
        self._progress = Progress(suites, sum(package.seconds for package in missing))
        self._printing = threading.Lock()
        self._stopped = threading.Event()
        self._has_terminal = sys.stdout.isatty()

    def run(self) -> None:
        """Run all suites: the first ones during the downloads, then the longest first, so that none ends long after the rest."""
        ticker = threading.Thread(target=self._tick, daemon=True)
        ticker.start()
        try:
            with ThreadPoolExecutor(1) as downloads:
                fetching = downloads.submit(self._fetch)
                first = [suite for suite in self._suites if suite.first]
                self._run_together(first, len(first))
                fetching.result()
            self._run_together([suite for suite in self._suites if not suite.first], LANES)
        finally:
            self._stopped.set()
            ticker.join()

    def _run_together(self, suites: Sequence[Suite], lanes: int) -> None:
        with ThreadPoolExecutor(max(lanes, 1)) as pool:
            ordered = sorted(suites, key=lambda suite: -suite.seconds)
            futures = [pool.submit(self._run_one, suite) for suite in ordered]
            try:
                for future in futures:
                    future.result()
            except KeyboardInterrupt:
                # Ctrl-C has reached the running suites too; do not start more.
                pool.shutdown(cancel_futures=True)
                raise

    def _run_one(self, suite: Suite) -> None:
        path = self._folder / f"{suite.name}.txt"

        def output() -> str:
            return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

        self._progress.begin(suite, output)
        result = run(suite, path)
        self._progress.end(suite, skipped=not result.passed + result.failed)
        self.results[suite.name] = result
        self._print(f"{suite.name}: {result}" + (f"\n{_failures(output())}" if result.is_bad else ""))

    def _fetch(self) -> None:
        for package in self._missing:
            assert package.fetch is not None
            try:
                package.fetch()
            except Exception as error:  # noqa: BLE001 - the tests that need it say so again, each in its own way
                self._print(f"not fetched: {package.title}: {error}")
        self._progress.downloads = 0.0

    def _print(self, text: str) -> None:
        with self._printing:
            print(f"\r\033[K{text}" if self._has_terminal else text, flush=True)

    def _tick(self) -> None:
        while not self._stopped.wait(1.0 if self._has_terminal else INTERVAL):
            with self._printing:
                text = f"[{self._progress}]"
                print(
                    f"\r\033[K{text[:150]}" if self._has_terminal else text,
                    end="" if self._has_terminal else "\n",
                    flush=True,
                )


_BAD = re.compile(
    r"^(=+ (FAILURES|ERRORS) =+|INTERNALERROR>.*|\++ Timeout \++|Timeout \(.*\)!|Fatal Python error.*)$",
    re.MULTILINE,
)
"""First line about a failure, from pytest, pytest-timeout or faulthandler, also in a process that a test started."""


def _failures(output: str) -> str:
    """Return the output about failures, without the dots before it."""
    start = _BAD.search(output)
    return output[start.start() :].rstrip() if start else output[-10_000:].rstrip()


def main(names: Sequence[str]) -> int:
    """Run the suites with these names, or all."""
    suites = choose(names)
    found = packages(suites)
    missing = to_fetch(found)
    expected = Progress(suites, sum(package.seconds for package in missing)).seconds_left()
    print(f"Running {len(suites)} test suites, about {clock(expected)} on two idle cores:")
    for suite in suites:
        print(f"  {suite.name:<15} {suite.what}")
    if found:
        print("What they need from package registries is fetched once, into .cache:")
    print(*announce(found), sep="\n", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kinesis-sdk-output-") as folder:
        session = Session(suites, missing, Path(folder))
        try:
            session.run()
        except KeyboardInterrupt:
            print(f"\nStopped; suites that had ended: {', '.join(session.results) or 'none'}.", flush=True)
            return 130
    print("", *summarize(session.results, time.monotonic() - began, found), sep="\n", flush=True)
    return 1 if any(result.is_bad for result in session.results.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
