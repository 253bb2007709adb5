"""The command ``kinesis-sdk schema``."""

from __future__ import annotations

import json
from difflib import get_close_matches

import click

from kinesis_sdk.cli.output import schema_name, with_exit_codes


@click.command(short_help="Print the JSON Schema of what a command prints with --json.")
@click.argument("command", nargs=-1, metavar="[COMMAND]...")
@with_exit_codes
def schema(*, command: tuple[str, ...]) -> None:
    r"""Print the JSON Schema (draft 2020-12) of a command's output with --json; without COMMAND, the names of all commands.

    A document that is an object names its schema and version in its first field, `schema`. Within a version, fields are only added.
    If results are printed one after another, each line has the schema.

    \b
    Examples:
      kinesis-sdk schema
      kinesis-sdk schema leases show > leases-show.schema.json
      kinesis-sdk lag billing --json | check-jsonschema --schemafile <(kinesis-sdk schema lag) -
    """
    from kinesis_sdk.cli.outputs import OUTPUTS, output_schema

    if not command:
        for name in OUTPUTS:
            click.echo(f"{name:<20} {schema_name(name)}")
        return
    wanted = " ".join(command)
    if wanted not in OUTPUTS:
        close = get_close_matches(wanted, OUTPUTS)
        hint = f" Did you mean {' or '.join(close)}?" if close else " kinesis-sdk schema lists all."
        raise click.UsageError(f"{wanted!r} is not a command that has --json.{hint}")
    click.echo(json.dumps(output_schema(wanted), indent=2, ensure_ascii=False))
