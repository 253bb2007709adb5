"""The commands of `kinesis-sdk`, and their own parsers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
from click.exceptions import NoArgsIsHelpError

from kinesis_sdk.cli.main import cli


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield each command that can be run, with its name."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


ALL = dict(commands(cli))
"""Every command that can be run, by its words."""

_PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*…?|…")


def parse(
    command: click.Command, words: list[str], *, quoted: bool, parent: click.Context | None = None
) -> None:
    """Parse a command and its subcommands with all options and arguments.

    Raises:
        click.UsageError: If the command does not take them.
    """
    try:
        context = command.make_context(command.name, list(words), parent=parent)
    except click.exceptions.Exit:  # --help, --version
        return
    except (click.MissingParameter, NoArgsIsHelpError):
        if quoted:
            return  # "`kinesis-sdk leases` changes leases"
        raise
    except click.BadOptionUsage as error:
        if quoted and "requires an argument" in error.message and words[-1] == error.option_name:
            return  # "`kinesis-sdk multilang --in-process` needs no child"
        raise
    except click.BadParameter as error:
        if stands_for_something(error, words):
            return
        raise
    if isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        _, subcommand, rest = command.resolve_command(context, rest)
        assert subcommand is not None
        parse(subcommand, rest, quoted=quoted, parent=context)


def stands_for_something(error: click.BadParameter, words: list[str]) -> bool:
    """Return whether the value that was refused is a placeholder such as N, or the name of a file that the reader has."""
    missing = re.search(r"(?:File|Path) '(.+)' does not exist|(\S+)'?: No such file", error.message)
    if missing is not None:
        return True
    return any(_PLACEHOLDER.fullmatch(word) and f"'{word}'" in error.message for word in words)
