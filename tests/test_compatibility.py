"""The page about the scenes with Java names exactly the scenes that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIXTURES = {"stage", "migration", "tls_stage", "written"}
"""A test with one of these runs Java; the others test the scenes' own tools."""


def scenes(folder: Path) -> set[str]:
    """Return the tests with Java, as ``file.py::test``."""
    return {
        f"{file.relative_to(folder)}::{node.name}"
        for file in folder.rglob("test_*.py")
        if "steering" not in file.name  # docs/live-changes.md
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and FIXTURES & {argument.arg for argument in node.args.args}
    }


def test_the_page_lists_every_scene_and_where_it_runs() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text()
    listed = dict(re.findall(r"^\| `([\w/]+\.py::\w+)` \| (CI|`make java`) \|", page, re.MULTILINE))
    existing = scenes(ROOT / "integration" / "java")
    assert listed.keys() == existing, "docs/compatibility.md lists other scenes than integration/java has"
    for scene, where in listed.items():
        is_long = Path(scene.partition("::")[0]).name.startswith("test_long")
        assert is_long == (where == "`make java`"), scene
