"""The group of all commands. Each command is a module of this package, which is imported when it runs."""

from __future__ import annotations

import sys

import click

from kinesis_sdk._version import __version__
from kinesis_sdk.cli.lazy_group import LazyGroup, keep_line_breaks
from kinesis_sdk.cli.output import note

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_COMMANDS = {
    "demo": (
        "kinesis_sdk.cli.demo:demo",
        "Put records, consume them during a split and a crash, and account for each one.",
    ),
    "stream": (
        "kinesis_sdk.cli.stream:stream",
        "List, describe, create, delete and reshard streams.",
    ),
    "put": (
        "kinesis_sdk.cli.put:put",
        "Put the records of files, or of standard input, into a stream.",
    ),
    "tail": (
        "kinesis_sdk.cli.tail:tail",
        "Print the records of a stream, past or live.",
    ),
    "copy": (
        "kinesis_sdk.cli.copy:copy",
        "Copy a window of a stream into another stream.",
    ),
    "apps": ("kinesis_sdk.cli.apps:apps", "List the applications of an account and region."),
    "lag": (
        "kinesis_sdk.cli.lag:lag",
        "Show how far behind each shard of an application, or each application, is.",
    ),
    "leases": ("kinesis_sdk.cli.leases:leases", "Look at the leases of an application, and change them."),
    "dlq": ("kinesis_sdk.cli.dlq:dlq", "List dead letters, show them, replay them, and drop them."),
    "worker": ("kinesis_sdk.cli.worker:worker", "List workers, drain one before maintenance."),
    "balance": (
        "kinesis_sdk.cli.balance:balance",
        "Show how evenly the leases are spread over workers and groups.",
    ),
    "top": (
        "kinesis_sdk.cli.top:top",
        "Watch a fleet live: shards by owner, lag, moves, problems.",
    ),
    "exporter": (
        "kinesis_sdk.cli.exporter:exporter",
        "Serve lag, owners, moves and problems to Prometheus and KEDA.",
    ),
    "doctor": (
        "kinesis_sdk.cli.doctor:doctor",
        "Examine permissions, clock, limits, lease table and records of an application.",
    ),
    "verify": (
        "kinesis_sdk.cli.verify:verify",
        "Run the SDK in your account, at a bounded cost, and compare AWS with the fake.",
    ),
    "run": (
        "kinesis_sdk.cli.run.command:run",
        "Consume streams with a handler, in supervised worker processes.",
    ),
    "multilang": (
        "kinesis_sdk.cli.multilang:multilang",
        "Run a KCL application in any language: the MultiLangDaemon without Java.",
    ),
    "ui": ("kinesis_sdk.cli.ui:ui", "Serve the fleet view in a browser."),
    "schema": (
        "kinesis_sdk.cli.schema:schema",
        "Print the JSON Schema of what a command prints with --json.",
    ),
}
"""Home and short help of each command, in the order of ``--help``."""


@click.group(cls=LazyGroup, homes=_COMMANDS, context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="kinesis-sdk")
def cli() -> None:
    """Tools of kinesis_sdk, the Kinesis producer and consumer for Python.

    Region and credentials come from the usual AWS sources: the environment, ~/.aws, or the instance's role.

    Exit codes: 0 success; 1 a check failed (a threshold was exceeded, a record failed, a finding is red); 2 wrong
    arguments; 3 a call failed; 4 refused or not confirmed; 130 Ctrl-C.
    """


@cli.command(
    short_help="Serve a fake AWS for tests and experiments.",
    # The options, --help included, are argparse's, because the fake works without click.
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def fake(arguments: tuple[str, ...]) -> None:
    """Serve a fake AWS (Kinesis, DynamoDB, CloudWatch, STS) until Ctrl-C."""
    from kinesis_sdk.testing.__main__ import main as serve

    sys.exit(serve(list(arguments), prog="kinesis-sdk fake"))


_STARTUP_FILES = {
    "bash": "~/.bashrc",
    "zsh": "~/.zshrc",
    "fish": "~/.config/fish/completions/kinesis-sdk.fish",
}


@cli.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    r"""Print the script that completes commands and options in a shell.

    \b
    Examples:
      kinesis-sdk completion bash >> ~/.bashrc
      kinesis-sdk completion zsh >> ~/.zshrc
      kinesis-sdk completion fish > ~/.config/fish/completions/kinesis-sdk.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"click has no completion for {shell}")
    click.echo(found(cli, {}, "kinesis-sdk", "_KINESIS_SDK_COMPLETE").source())
    note(f"Append this script to {_STARTUP_FILES[shell]} and start a new shell.")


keep_line_breaks(cli)
