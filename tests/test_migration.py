"""Every name of ours in the tables of docs/migration.md exists: classes, methods, arguments, settings, commands and options."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import click

import kinesis_sdk
from kinesis_sdk import (
    AsyncProducer,
    Attempt,
    Checkpointer,
    Producer,
    RecordBatch,
    RecordHandler,
    UserRecord,
    pytest_plugin,
)
from kinesis_sdk.cli.main import cli
from kinesis_sdk.spark import arrow, options
from tests.readme import DOCS

LINES = (DOCS / "migration.md").read_text(encoding="utf-8").splitlines()
OBJECTS: dict[str, Any] = {
    "attempt": Attempt,
    "batch": RecordBatch,
    "checkpointer": Checkpointer,
    "producer": AsyncProducer,
    "record": UserRecord,
}
"""What the lower-case names in the cells are."""

BARE = (Producer, RecordHandler)
"""Classes whose methods stand alone in the cells."""

WORDS = {
    "concurrent.futures.Future": "what `put` returns",
    "async def": "a keyword",
    "AT_TIMESTAMP …": "a position: tests/spark/test_positions.py",
}
"""What is no name of ours."""


SPARK = {
    'format("kinesis_sdk")',
    *options._SOURCE,
    *(name for name, _ in arrow.COLUMNS),
}
"""Format, options and columns of the Spark source."""


def cells() -> list[tuple[str, str]]:
    """Return the code on our side of the tables, each with its section."""
    found = []
    section = ""
    for line in LINES:
        section = line.removeprefix("## ") if line.startswith("## ") else section
        columns = line.strip("| ").split(" | ")
        if len(columns) > 1 and line.startswith("| "):
            # The page's first table has what to change in its second column, and behind it what was there.
            found += [
                (section, code) for code in re.findall(r"`([^`]+)`", columns[1].partition(" instead of ")[0])
            ]
    return found


def members(owner: Any) -> set[str]:
    return {*dir(owner), *getattr(owner, "__annotations__", {})}


def test_the_tables_name_what_exists() -> None:
    found = cells()
    assert len(found) >= 70
    assert {section for section, _ in found} >= {
        "From amazon_kclpy",
        "From the Java KCL",
        "From the KPL in Java",
        "From boto3",
        "From async-kinesis",
        "From aiokpl",
        "From a Spark connector for the JVM",
    }
    for section, code in found:
        if code not in WORDS:
            check(section, code)


def check(section: str, code: str) -> None:
    """See that what a piece of code names exists, with these arguments."""
    if code.startswith("kinesis-sdk "):
        check_command(code.split()[1:])
    elif "Spark" in section:
        assert code in SPARK, code
    elif code.startswith("kinesis_"):
        assert callable(getattr(pytest_plugin, code, None)), code
    elif code.startswith("from "):
        exec(code)
    else:
        text = re.sub(r"^(?:async )?with ", "", code).replace("…", "...")
        (tree,) = ast.parse(f"{text}: ..." if text.startswith("class ") else text).body
        if isinstance(tree, ast.ClassDef):
            assert tree.bases
            for base in tree.bases:
                resolve(base)
        else:
            assert isinstance(tree, ast.Expr), code
            resolve(tree.value.value if isinstance(tree.value, ast.Await) else tree.value)


def check_command(words: list[str]) -> None:
    command: click.Command = cli
    context = click.Context(cli, info_name="kinesis-sdk")
    while isinstance(command, click.Group):
        _, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known, words


def resolve(node: ast.expr) -> Any:
    """Return what an expression names; of a call, the class, or None if it is no class."""
    if isinstance(node, ast.Call):
        called = resolve(node.func)
        assert callable(called), ast.unparse(node)
        arguments = [] if any(is_rest(one) for one in node.args) else [*node.args]
        names = [one.id for one in arguments if isinstance(one, ast.Name)]
        signature = inspect.signature(called)
        parameters = list(signature.parameters)
        if names[:1] == ["self"]:  # a method to write, with its parameters
            assert names == parameters, ast.unparse(node)
            return None
        keywords = {keyword.arg: None for keyword in node.keywords}
        if inspect.isclass(called):
            assert keywords.keys() <= {*parameters}, ast.unparse(node)
            signature.bind_partial(*arguments, **keywords)
            return called
        own = [None] if parameters[0] == "self" else []
        signature.bind_partial(*own, *arguments, **keywords)
        return None
    if isinstance(node, ast.Attribute):
        owner = resolve(node.value)
        assert node.attr in members(owner), ast.unparse(node)
        return getattr(owner, node.attr, None)
    assert isinstance(node, ast.Name), ast.unparse(node)
    if node.id in OBJECTS:
        return OBJECTS[node.id]
    for owner in (kinesis_sdk, *BARE):
        if hasattr(owner, node.id):
            return getattr(owner, node.id)
    raise AssertionError(f"{node.id} does not exist")


def is_rest(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...
