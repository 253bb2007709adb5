"""Commands of the administration on the command line: each that it can give is one that the command line takes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click
import pytest

from kinesis_sdk.admin import OPERATIONS, Command
from kinesis_sdk.cli.main import cli
from kinesis_sdk.cli.spelling import QUESTIONS, spell, words_of
from tests.admin.fleet.scenes import SCENES, view_of

OPTIONS = ["--lease-store", "postgresql://ann@host/leases", "--region", "eu-west-1"]


def parse(words: Sequence[str]) -> click.Context:
    """Parse words as the command line does, without carrying them out."""
    group: click.Command = cli
    context = click.Context(cli)
    words = list(words)
    while isinstance(group, click.Group):
        found = group.get_command(context, words.pop(0))
        assert found is not None
        group = found
    return group.make_context("shown", words, parent=context)


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one != "import"])
def test_each_change_is_a_command(operation: str) -> None:
    values = {"to": "LATEST", "shard": "3", "worker": "a b", "row": "3", "record": "at:7", "swap": True}
    taken = {one.option or one.name for one in OPERATIONS[operation].parameters}
    given = {name: value for name, value in values.items() if name in taken}
    command = Command.of(operation, application="billing", table="leases", stream="orders", **given)
    taken_as = parse(words_of(command, OPTIONS)).params.values()
    assert {"billing", "leases", "orders", "eu-west-1"} <= {one for one in taken_as if isinstance(one, str)}


def test_each_command_that_helps_with_a_problem_is_one() -> None:
    for code in SCENES:
        for problem in view_of(code).problems:
            for command in [problem.command, *(action.command for action in problem.actions)]:
                if command is not None:
                    parse(words_of(command, OPTIONS))


def test_the_questions_of_the_doctor_are_commands() -> None:
    for name, (_, arguments) in QUESTIONS.items():
        parse(words_of(Command.of(name, **dict.fromkeys(arguments, "x")), OPTIONS))


def test_a_command_is_quoted_and_shows_no_control_characters() -> None:
    command = Command.of("rewind", application="billing", shard=["b c", "a"], to="evil\x1b[31m")
    assert shlex.split(spell(command, ["--profile", "$(rm -rf /)"])) == [
        *("kinesis-sdk", "leases", "rewind", "billing", "--shard", "a", "--shard", "b c"),
        *("--to", "evil\\x1b[31m", "--profile", "$(rm -rf /)"),
    ]
