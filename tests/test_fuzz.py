"""Random cases are the same in each run, and a failure of `make fuzz` says how to play it again."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


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
