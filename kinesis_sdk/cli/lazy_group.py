"""A group of commands that are imported when they run, so that ``kinesis-sdk --help`` and completion stay fast."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from kinesis_sdk.cli.names import name_parameters


class LazyGroup(click.Group):
    """A click group that imports a command when it runs or shows its own help, not when it is listed.

    ``homes`` maps the name of each command to its ``"module:attribute"`` and its short help.
    """

    def __init__(self, *args: Any, homes: Mapping[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._homes = dict(homes or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands: first the commands of ``homes`` in their order, then commands that were added directly."""
        return [*self._homes, *(name for name in super().list_commands(ctx) if name not in self._homes)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        home = self._homes.get(cmd_name)
        if home is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = home[0].partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{home[0]} is not a click command")
        keep_line_breaks(command)
        name_parameters(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; the error for an unknown command suggests similar names."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = get_close_matches(args[0], self.list_commands(ctx))
            if not close or "mean" in error.format_message():  # newer versions of click suggest some names
                raise
            raise click.UsageError(
                f"{error.format_message()} Did you mean {' or '.join(close)}?", ctx
            ) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        rows: list[tuple[str, str]] = []
        for name in self.list_commands(ctx):
            home = self._homes.get(name)
            if home is not None:
                rows.append((name, home[1]))
                continue
            command = super().get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(80)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def keep_line_breaks(command: click.Command) -> None:
    """Let click see the marks of paragraphs with fixed line breaks, in a command and its subcommands.

    click expects a backspace character, but the docstrings are raw strings, so they contain a backslash and a letter.
    """
    if command.help is not None:
        command.help = command.help.replace("\\b\n", "\b\n")
    if isinstance(command, click.Group):
        for part in command.commands.values():
            keep_line_breaks(part)
