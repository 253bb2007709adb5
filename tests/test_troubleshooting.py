"""Every error class, and every line that the package logs as a warning or an error, has an entry in docs/troubleshooting.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.readme import DOCS, ROOT
from tests.trees import parse
from tools.docs_reference import error_classes

PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "kinesis_sdk"
LEVELS = {"warning", "error", "exception", "critical"}
CALL = re.compile(rf"\.(log|{'|'.join(sorted(LEVELS))})\(")
NOT_FOR_USERS = ("testing", "demo")
"""Folders whose lines explain themselves where they are printed."""


def logged(path: Path) -> Iterator[tuple[int, str]]:
    """Line and format of each call that logs a warning or an error, also through a throttle."""
    source = path.read_text(encoding="utf-8")
    if not CALL.search(source):
        return  # most modules log nothing, and this is done whenever the tests are collected
    tree = parse(source)
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        method = node.func.attr
        if method != "log" and method not in LEVELS:
            continue
        receiver = ast.unparse(node.func.value).lower()
        throttled = method == "log" and any(
            word in receiver for word in ("throttle", "_log", "errors", "unhandled")
        )
        chosen = method == "log" and any(  # a level that the call computes
            isinstance(part, ast.Attribute) and part.attr.lower() in LEVELS for part in ast.walk(node.args[0])
        )
        if (
            not (throttled and receiver != "self._logger")
            and not (method in LEVELS and "log" in receiver)
            and not (chosen and receiver.endswith("logger"))
        ):
            continue
        texts = [
            part.value if isinstance(part, ast.Constant) else constants.get(getattr(part, "id", ""), "")
            for argument in node.args
            for part in ast.walk(argument)
            if isinstance(part, ast.Constant | ast.Name)
        ]
        formats = [text for text in texts if isinstance(text, str) and len(text.split()) > 2]
        if formats:
            yield node.lineno, max(formats, key=len)


def shown(message: str) -> str:
    """Return a format as the page shows it."""
    return " ".join(re.sub(r"%[-+.\d]*[a-z]", "…", message).split())


@cache
def lines() -> dict[str, str]:
    """Return what is logged for users, by file and line."""
    return {
        f"{path.relative_to(PACKAGE)}:{line}": shown(message)
        for path in sorted(PACKAGE.rglob("*.py"))
        if not set(path.relative_to(PACKAGE).parts).intersection(NOT_FOR_USERS)
        for line, message in logged(path)
    }


def test_every_log_line_has_an_entry() -> None:
    assert len(lines()) > 80
    missing = {place: text for place, text in lines().items() if f"| `{text}` |" not in PAGE}
    assert missing == {}


def test_every_error_has_an_entry() -> None:
    missing = [error.__name__ for error in error_classes() if f"| `{error.__name__}` |" not in PAGE]
    assert missing == []


def test_no_entry_is_out_of_date() -> None:
    entries = set(re.findall(r"^\| `(.+?)` \|", PAGE, re.MULTILINE))
    assert entries <= {*lines().values(), *(error.__name__ for error in error_classes())}
