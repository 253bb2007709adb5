"""Output and exit codes of commands.

Results go to standard output; progress, notes and questions go to standard error, so that a pipe gets only results.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from kinesis_sdk.admin.plain import plain
from kinesis_sdk.common.errors import AwsConfigError, ConfigError, KinesisSdkError

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 240
"""Columns of a table that is printed to a pipe or a file."""

_F = TypeVar("_F", bound=Callable[..., Any])


_HINTS = {
    "NoRegionError": " Give --region, or set AWS_DEFAULT_REGION.",
    "NoCredentialsError": ". Give --profile, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; an endpoint for tests takes any "
    "values.",
    "ProfileNotFound": ". Profiles are in ~/.aws/config and ~/.aws/credentials.",
}
"""Remedies for errors in the settings, by error code."""


class ExitCode(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    """The command succeeded."""
    BAD_ANSWER = 1
    """The command ran, and a check failed: a threshold was exceeded, a record failed, a finding is red."""
    USAGE = 2
    """The arguments are wrong; nothing was called."""
    CALL_FAILED = 3
    """A call failed: AWS, network, credentials, permissions."""
    REFUSED = 4
    """Nothing was changed: the change was not confirmed or is unsafe, or another writer changed the row first."""
    INTERRUPTED = 130
    """Ctrl-C."""


class CommandError(click.ClickException):
    """An error message for people, with an exit code."""

    def __init__(self, message: str, code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code: int = int(code)  # type: ignore[misc]


def _suggested(error: Exception) -> str:
    from kinesis_sdk.cli.names import suggestion  # which imports this module

    return suggestion(error)


def refuse(message: str) -> NoReturn:
    """End the command because the action would be unsafe, or was not confirmed."""
    raise CommandError(message, ExitCode.REFUSED)


def with_exit_codes(function: _F) -> _F:
    """Turn errors of the SDK and Ctrl-C into messages and exit codes. Decorates the callback of every command."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ConfigError as error:
            raise CommandError(f"{error}{_suggested(error)}", ExitCode.USAGE) from error
        except AwsConfigError as error:
            raise CommandError(f"{error}{_HINTS.get(error.code, '')}", ExitCode.CALL_FAILED) from error
        except KinesisSdkError as error:
            raise CommandError(f"{error}{_suggested(error)}", ExitCode.CALL_FAILED) from error
        except KeyboardInterrupt:
            click.echo("Stopped.", err=True)
            sys.exit(ExitCode.INTERRUPTED)
        except BrokenPipeError:
            # The reader of the pipe, for example `head`, has read enough. Without the redirection, Python would report
            # another error when it flushes standard output at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(ExitCode.DONE)

    return guarded  # type: ignore[return-value]


VERSIONS: Mapping[str, int] = {}
"""Versions of outputs whose meaning has changed, by command; every other output has version 1."""


def command_words(context: click.Context) -> str:
    """Return the words of the running command, without the program: ``leases show``."""
    words: list[str] = []
    while context.parent is not None:
        words.insert(0, str(context.command.name))
        context = context.parent
    return " ".join(words)


def schema_name(command: str) -> str:
    """Return the name of the schema of a command's output, with its version: ``leases-show/1``."""
    return f"{command.replace(' ', '-')}/{VERSIONS.get(command, 1)}"


def print_json(value: object) -> None:
    """Print one JSON document on standard output, from values that `plain` converts. An object names its schema first."""
    click.echo(json_document(value))


def json_document(value: object) -> str:
    """Return the text that `print_json` prints."""
    document = plain(value)
    context = click.get_current_context(silent=True)
    if isinstance(document, dict) and context is not None:
        document = {"schema": schema_name(command_words(context)), **document}
    return _json_text(document, indent=2)


def print_json_line(value: object) -> None:
    """Print one JSON document as one line, for commands that print results as they arrive."""
    click.echo(_json_text(value, indent=None))


def _json_text(value: object, indent: int | None) -> str:
    """Return JSON with readable texts, but without characters that could control a terminal."""
    text = json.dumps(plain(value), indent=indent, ensure_ascii=False)
    if text.isprintable():
        return text
    # Outside of texts, the only such characters are the newlines of the layout.
    return "".join(
        one
        if one.isprintable() or one == "\n"
        else json.dumps(one, ensure_ascii=True)[1:-1]
        if one != "\x7f"
        else "\\u007f"
        for one in text
    )


def note(message: str) -> None:
    """Print a note, which is not part of the result, for the user."""
    click.echo(message, err=True)


def console(*, stderr: bool = False) -> Console:
    """Return a rich console that does not read square brackets in data as markup.

    In a pipe or a file, rich would cut every line at 80 columns, so lines may be longer there unless ``COLUMNS`` is set.
    """
    from kinesis_sdk.cli.extras import need  # which imports this module

    need("rich", "cli")
    from rich.console import Console

    class PipedConsole(Console):
        """Leaves a closed pipe to `with_exit_codes`; rich would end the process with exit code 1."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    piped = not (sys.stderr if stderr else sys.stdout).isatty() and "COLUMNS" not in os.environ
    return PipedConsole(
        stderr=stderr, markup=False, highlight=False, soft_wrap=False, width=_PIPE_WIDTH if piped else None
    )


def confirm(question: str, *, yes: bool) -> None:
    """Ask before a change, whose effects are already printed. ``yes`` skips the question.

    Raises:
        CommandError: If the answer is no, or if standard input is not a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        refuse(
            "Nothing was changed: standard input is not a terminal, so the change cannot be confirmed. Add --yes for scripts."
        )
    if not click.confirm(question, err=True):
        refuse("Nothing was changed.")
