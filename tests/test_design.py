"""The pages of the design name files, functions and classes: they exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import kinesis_sdk
from tests.readme import DESIGN
from tests.trees import parse

PACKAGE = Path(kinesis_sdk.__file__).parent
ROOT = PACKAGE.parent
FILES = sorted(PACKAGE.rglob("*.py"))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in DESIGN)

REFERENCE = re.compile(r"`([\w/]+\.py): ?([\w.]+)`")
"""``package/file.py:name``: the end of a path, and the name of a function, class or method, with or without its class."""

PATH = re.compile(r"`((?:kinesis_sdk|tests|integration|benchmarks|tools|examples)/[\w/.]*\w)/?`")


def definitions(path: Path) -> set[str]:
    """Dotted names of everything that a module defines: functions, classes, methods, assigned names."""
    found: set[str] = set()

    def visit(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update(prefix + target.id for target in targets if isinstance(target, ast.Name))

    visit(parse(path.read_text(encoding="utf-8")).body, "")
    return found


def missing(text: str) -> list[str]:
    """References of a text that lead nowhere."""
    wrong = []
    for file, name in REFERENCE.findall(text):
        found = set().union(
            *(definitions(path) for path in FILES if f"/{path.as_posix()}".endswith(f"/{file}"))
        )
        if name not in found and name not in {full.rpartition(".")[2] for full in found}:
            wrong.append(f"{file}:{name}")
    return wrong + [path for path in PATH.findall(text) if not (ROOT / path).exists()]


def test_every_function_that_the_design_names_exists() -> None:
    assert len(REFERENCE.findall(TEXT)) >= 30
    assert missing(TEXT) == []


def test_every_page_of_the_design_stays_short() -> None:
    lines = {
        str(page.relative_to(ROOT)): len(page.read_text(encoding="utf-8").splitlines()) for page in DESIGN
    }
    assert {page: count for page, count in lines.items() if count > 350} == {}


HOUR = (ROOT / "docs" / "how-it-is-built.md").read_text(encoding="utf-8")


def test_the_core_is_read_in_forty_files() -> None:
    section = HOUR.partition("## The core in an hour")[2].partition("Then look at one test")[0]
    folder, files = "", set[Path]()
    for line in section.splitlines():
        if line.startswith("| file"):
            folder = "".join(re.findall(r"`(\w+/)`", line))
        elif line.startswith("|"):
            files |= {PACKAGE / folder / name for name in re.findall(r"`([\w/]+\.py)`", line.split("|")[1])}
    assert 30 <= len(files) <= 40
    assert [path for path in files if not path.exists()] == []
