"""The commands that the documentation, the alerts and the help of other commands name exist, with their options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from kinesis_sdk.cli.main import cli

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "grafana" / "alerts.yml"]
OTHERS = {"fake"}
"""Commands whose options are argparse's."""


def commands(text: str) -> Iterator[str]:
    """Yield each command: in a code span, at the beginning of a line of code, and in quotation marks."""
    yield from re.findall(r"`(kinesis-sdk [^`\n]+)`", text)
    yield from re.findall(r"^(?:\$ )?(?:[A-Z_]+=\S+ )?(kinesis-sdk [^\n|]+)", text, re.MULTILINE)
    yield from re.findall(r'"(kinesis-sdk [^"\n]+)"', text)


def problem(line: str) -> str:
    """Return what is wrong with a command; empty if it could be typed."""
    words = shlex.split(line, comments=True)[1:]
    command: click.Command | None = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        command = command.get_command(context, words.pop(0))
    if command is None:
        return "there is no such command"
    if command.name in OTHERS:
        return ""
    if isinstance(command, click.Group) and words and words != ["--help"]:
        return "a command of the group is missing"
    known = {"--help"} | {
        name for option in command.params for name in (*option.opts, *option.secondary_opts)
    }
    used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    return f"unknown: {sorted(used - known)}" if used - known else ""


def test_each_command_that_is_named_exists() -> None:
    named = [
        (source.name, line) for source in SOURCES for line in commands(source.read_text(encoding="utf-8"))
    ]
    assert len(named) > 40
    problems = {line: problem(line) for line in {line for _, line in named}}
    assert [(page, line, problems[line]) for page, line in named if problems[line]] == []


def test_what_is_wrong_with_a_command_is_found() -> None:
    assert problem("kinesis-sdk leases billing") == "there is no such command"
    assert problem("kinesis-sdk lag billing --maxlag 5m") == "unknown: ['--maxlag']"
    assert problem("kinesis-sdk leases --yes") == "a command of the group is missing"
