"""The script behind `make test` must be able to say no."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import share
from tools import run_tests
from tools.run_tests import REPORTS, main, run
from tools.suites import SCENES, SUITES, Suite, choose

ROOT = Path(__file__).parents[1]
HERE = ("-p", "no:cacheprovider", "-o", "addopts=", "-c", "/dev/null")


def suite_of(folder: Path, source: str) -> Suite:
    path = folder / "test_some.py"
    path.write_text(f"import pytest\n{source}\n", encoding="utf-8")
    return Suite("some", "things", 1, (*HERE, f"--rootdir={folder}", str(path)))


def test_a_run_of_pytest_that_fails_is_shown_and_makes_the_command_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take most of the time
    source = (
        "def test_a(): pytest.skip('no Java here')\n"
        "@pytest.mark.skipif(True, reason='no Java here')\ndef test_b(): pass\n"
        "def test_c(): pass\ndef test_d(): assert 1 == 2\n"
        "@pytest.fixture\ndef f(): 1 / 0\ndef test_f(f): pass\n"
        # Beside the report, in a folder of this suite alone.
        f"import os\ndef test_g(tmp_path): assert str(tmp_path).startswith(os.environ['{REPORTS}'])\n"
    )
    monkeypatch.setattr(run_tests, "choose", lambda _: [suite_of(tmp_path, source)])
    assert main([]) == 1
    shown = capsys.readouterr().out
    assert "assert 1 == 2" in shown
    assert shown.splitlines()[-3] == "2 tests skipped: no Java here"
    assert shown.splitlines()[-2].startswith("FAILED: some in ")
    assert shown.splitlines()[-1] == "total: 2 passed, 2 failed, 2 skipped"


@pytest.mark.fuzz
@pytest.mark.parametrize("source", share(["import sys; sys.exit(3)", "", "def test_a(: pass"], unit=1))
def test_a_run_without_a_verdict_is_a_failure(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    assert run(suite_of(tmp_path, source), tmp_path / "output").is_bad


def test_every_test_belongs_to_a_suite_and_every_path_exists() -> None:
    named = [argument for suite in SUITES for argument in suite.arguments]
    (processes,) = choose(["processes"])
    for argument in processes.arguments:
        if argument.startswith("--ignore="):
            path = argument.removeprefix("--ignore=")
            assert path in named or path == "integration/spark", f"{path} is in no other suite"
    paths = [name for name in named if name.startswith(("tests", "integration"))]
    paths += [name.removeprefix("--deselect=") for name in named if name.startswith("--deselect=")]
    assert sum("::" in path for path in paths) > len(SCENES)
    for each in paths:
        path, _, test = each.partition("::")
        assert (ROOT / path).exists(), each
        assert not test or f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), each
