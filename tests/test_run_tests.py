"""The script behind `make test` must be able to say no."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import IO

import pytest

from tools.run_tests import SUITES, Result, Suite, choose, main, run, summarize

HERE = ("-p", "no:cacheprovider", "-o", "addopts=", "-c", "/dev/null")


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the runs of pytest start without the plugins that are installed here, which takes most of their time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def suite_of(folder: Path, *sources: str) -> Suite:
    runs = []
    for number, source in enumerate(sources):
        path = folder / f"test_{number}.py"
        path.write_text(f"import pytest\n{source}\n")
        runs.append((*HERE, f"--rootdir={folder}", str(path)))
    return Suite("some", "things", 1, tuple(runs))


def test_passes_failures_and_reasons_are_counted_over_all_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    skips = (
        "def test_a(): pytest.skip('no Java here')\n"
        "@pytest.mark.skipif(True, reason='no Java here')\ndef test_b(): pass\n"
        "def test_c(): pass"
    )
    whole = "pytest.importorskip('no_such_module', reason='no_such_module is not installed')"
    failing = (
        "def test_d(): assert False\ndef test_e(): pass\n@pytest.fixture\ndef f(): 1 / 0\ndef test_f(f): pass"
    )
    result = run(suite_of(tmp_path, skips, failing, whole), sys.executable)
    assert (result.passed, result.failed, result.broken) == (2, 2, True)
    assert result.skipped == {"no Java here": 2, "no_such_module is not installed": 1}
    shown = capfd.readouterr().out
    assert "1 passed, 2 skipped in" in shown, "the closing lines of pytest stay visible"
    line = summarize({"some": result}, 3.0)
    assert line.startswith(
        "FAILED: some (2 failed), 2 tests passed (some 2), 3 skipped (2 because no Java here; "
    )


def test_all_green(tmp_path: Path) -> None:
    result = run(suite_of(tmp_path, "def test_a(): pass"), sys.executable)
    assert (result.passed, result.failed, result.broken) == (1, 0, False)
    assert summarize({"some": result}, 3.0).startswith("PASSED, 1 tests passed (some 1), 0 skipped, ")


@pytest.mark.parametrize("source", ["", "def test_a(: pass", "import sys; sys.exit(3)"])
def test_a_run_without_a_verdict_is_a_failure(tmp_path: Path, source: str) -> None:
    result = run(suite_of(tmp_path, "def test_a(): pass", source), sys.executable)
    assert result.broken
    assert summarize({"some": result}, 3.0).startswith("FAILED: some (")


def test_a_failing_suite_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = {"unit": Result(passed=3, broken=True), "fuzz": Result(passed=4)}
    monkeypatch.setattr("tools.run_tests.run", lambda suite, *_: results[suite.name])
    assert main(["unit", "fuzz"]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert "[2/2] fuzz: " in "\n".join(shown)
    assert shown[-1] == "FAILED: unit (0 failed), 7 tests passed (unit 3, fuzz 4), 0 skipped, 0 s"
    results["unit"].broken = False
    assert main(["unit", "fuzz"]) == 0


def test_suites_that_wait_run_two_at_a_time_and_print_in_one_piece(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["processes", "browser", "endtoend", "java"]
    pairs = threading.Barrier(2)  # nobody passes it alone
    running: set[str] = set()

    def fake(suite: Suite, _: str, output: IO[str] | None = None) -> Result:
        assert output is not None
        running.add(suite.name)
        pairs.wait(60)
        assert len(running) <= 2
        output.write(f"begin of {suite.name}\nend of {suite.name}\n")
        pairs.wait(60)
        running.discard(suite.name)
        return Result(passed=1)

    fetched: list[set[str]] = []
    monkeypatch.setattr("tools.run_tests.run", fake)
    monkeypatch.setattr("tools.run_tests.fetch", fetched.append)
    assert main(names) == 0
    assert fetched == [set(names)], "before any of them runs"
    shown = capsys.readouterr().out
    for name in names:
        assert f"begin of {name}\nend of {name}\n" in shown
    assert "PASSED, 4 tests passed (processes 1, browser 1, endtoend 1, java 1)" in shown


def test_one_suite_alone_prints_as_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: list[object] = []

    def fake(suite: Suite, _: str, output: IO[str] | None = None) -> Result:
        outputs.append(output)
        return Result(passed=1)

    monkeypatch.setattr("tools.run_tests.run", fake)
    assert main(["unit", "java"]) == 0
    assert outputs == [None, None]


def test_ctrl_c_starts_no_further_suite(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[str] = []

    def fake(suite: Suite, _: str, output: IO[str] | None = None) -> Result:
        begun.append(suite.name)
        raise KeyboardInterrupt

    monkeypatch.setattr("tools.run_tests.run", fake)
    assert main(["unit", "fuzz"]) == 130
    assert begun == ["unit"]
    assert "Stopped; suites that had ended: none." in capsys.readouterr().out


def test_every_file_of_tests_belongs_to_a_suite() -> None:
    everything = {"test_spark.py", "conformance", "endtoend", "java", "multilang", "spark", "ui"}
    (processes,) = choose(["processes"])
    ignored = {argument.removeprefix("--ignore=integration/") for argument in processes.runs[0][1:]}
    assert ignored == everything, "and what it leaves out is named by another suite"
    named = " ".join(
        argument
        for suite in SUITES
        for arguments in suite.runs
        for argument in arguments
        if suite != processes
    )
    assert all(f"integration/{name}" in named for name in everything - {"spark"})


def test_every_file_and_test_that_a_suite_names_exists() -> None:
    """pytest ends with an error for a name that does not exist, which otherwise shows in CI only."""
    root = Path(__file__).parents[1]
    named = [
        argument
        for suite in SUITES
        for arguments in suite.runs
        for argument in arguments
        if argument.startswith(("tests", "integration"))
    ]
    assert any("::" in argument for argument in named)
    for argument in named:
        path, _, test = argument.partition("::")
        assert (root / path).exists(), argument
        assert not test or f"def {test}(" in (root / path).read_text(encoding="utf-8"), argument


def test_names() -> None:
    assert [suite.name for suite in choose(["fuzz", "unit"])] == ["unit", "fuzz"]
    assert choose([]) == list(SUITES)
    assert [suite.name for suite in choose(["integration"])] == [s.name for s in SUITES[2:]]
    with pytest.raises(SystemExit, match="unknown suite untis; there are unit, fuzz, "):
        choose(["untis"])
