"""Random cases are the same in each run, and a failure of `make fuzz` says how to play it again."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import conftest, fuzz


def drawn() -> list[tuple[int, str]]:
    """Return the examples of a test."""
    found: list[tuple[int, str]] = []

    @settings(max_examples=100)
    @given(st.integers(), st.text())
    def test(number: int, text: str) -> None:
        found.append((number, text))

    test()
    return found


def test_the_same_examples_are_drawn_each_time_whatever_was_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawn()
    path = tmp_path / "constants.py"
    path.write_text("\n".join(f"A{number} = {number}, 'text {number}'" for number in range(1_000, 1_100)))
    spec = importlib.util.spec_from_file_location("constants_of_a_module", path)
    assert spec is not None
    monkeypatch.setitem(sys.modules, spec.name, importlib.util.module_from_spec(spec))
    assert len(set(before)) > 10
    assert drawn() == before


class Report:
    """Terminal of pytest."""

    def __init__(self, *failed: str) -> None:
        self.stats = {"failed": [SimpleNamespace(nodeid=name) for name in failed]}
        self.lines: list[str] = []

    def section(self, title: str) -> None:
        self.lines.append(title)

    line = section


@pytest.mark.parametrize("times", [0, 3])
def test_what_failed_while_fuzzing_says_how_to_play_it_again(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "TIMES", times)
    monkeypatch.setenv("KINESIS_SDK_FUZZ", str(times))
    monkeypatch.setenv("KINESIS_SDK_FUZZ_SEED", "77")
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    report = Report("tests/test_a.py::test_b[c d]")
    conftest.pytest_terminal_summary(report)  # type: ignore[arg-type]
    if not times:
        assert report.lines == []
        return
    assert report.lines[-1].startswith("KINESIS_SDK_FUZZ=3 KINESIS_SDK_FUZZ_SEED=77 PYTHONHASHSEED=5 ")
    assert report.lines[-1].endswith(" -m pytest -n 0 'tests/test_a.py::test_b[c d]'")
