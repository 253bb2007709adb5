"""Commands of the administration as words of the command line."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kinesis_sdk.common.text import printable

if TYPE_CHECKING:
    from kinesis_sdk.admin.command import Command
    from kinesis_sdk.admin.connection import Connection

_LONGEST = 1000
"""Maximum number of characters of a word."""
QUESTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "apps": ("apps", ()),
    "balance": ("balance", ("application",)),
    "doctor": ("doctor", ("stream", "application")),
    "drop-letters": ("dlq drop", ("location",)),
    "explain": ("leases explain", ("application", "shard")),
    "replay-letters": ("dlq replay", ("location",)),
    "show": ("leases show", ("application",)),
    "split": ("stream split", ("stream", "shard")),
    "tail": ("tail", ("stream",)),
}
"""Words and arguments of operations that do not change an application; all other parameters are options."""
_WITHOUT_LEASES = ("drop-letters", "split", "tail")


def words_of(command: Command, options: Sequence[str] = ()) -> list[str]:
    """Return the arguments of ``kinesis-sdk``, with the options of the connection at the end."""
    from kinesis_sdk.admin.changes.operations import OPERATIONS

    operation, given = command.operation, dict(command.parameters)
    if operation in QUESTIONS:
        path, arguments = QUESTIONS[operation]
    else:
        change = OPERATIONS[operation]
        path = f"{change.group} {operation}"
        arguments = (
            "application",
            *(one.option or one.name for one in change.parameters if one.is_argument),
        )
    words = [*path.split(), *(str(given.pop(name)) for name in arguments)]
    for name, value in given.items():
        if isinstance(value, bool):
            words.append(f"--{name}")
        else:
            for one in (value,) if isinstance(value, str) else value:
                words += [f"--{name}", one]
    options = list(options)
    if operation in _WITHOUT_LEASES and "--lease-store" in options:
        place = options.index("--lease-store")
        del options[place : place + 2]
    return [*words, *options]


def spell(command: Command, options: Sequence[str] = ()) -> str:
    """Return a command in the syntax of a POSIX shell."""
    return shlex.join(["kinesis-sdk", *(printable(word, _LONGEST) for word in words_of(command, options))])


def speller(options: Sequence[str]) -> Callable[[Command], str]:
    """Return `spell` with the options of a connection."""
    return lambda command: spell(command, options)


def options_of(connection: Connection) -> list[str]:
    """Return the options that select a connection, without a password."""
    given = (
        ("--lease-store", connection.shown_lease_store),
        ("--region", connection.region),
        ("--profile", connection.profile),
        ("--endpoint-url", connection.endpoint_url),
    )
    return [part for name, value in given if value is not None for part in (name, value)]
