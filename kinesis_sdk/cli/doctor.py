"""The command ``kinesis-sdk doctor``."""

from __future__ import annotations

import sys

import click

from kinesis_sdk.cli.extras import need
from kinesis_sdk.cli.options import JSON_OPTION, LEASE_STORE_OPTION, ConnectionOptions, connection_options
from kinesis_sdk.cli.output import ExitCode, console, print_json, with_exit_codes
from kinesis_sdk.cli.spelling import options_of, spell
from kinesis_sdk.common.text import printable

_STYLES = {"green": "green", "note": "dim", "yellow": "yellow", "red": "bold red"}
_SIGNS = {"green": "✓", "note": "·", "yellow": "!", "red": "✕"}


@click.command(short_help="Examine permissions, clock, limits, lease table and records of an application.")
@click.argument("stream")
@click.argument("application")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(["consumer", "producer", "admin"]),
    help="Role that these credentials are for; repeatable. A denied action that the role needs is red; other roles are not "
    "checked. By default, all roles are checked, and only denied actions of a consumer are red.",
)
@click.option(
    "--samples",
    type=click.IntRange(0, 100),
    default=8,
    show_default=True,
    help="Open shards from which records are read; 0 reads none.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 for yellow findings as well.")
@click.option("--all", "show_all", is_flag=True, help="Also show notes and passed checks.")
@LEASE_STORE_OPTION
@connection_options
@JSON_OPTION
@with_exit_codes
def doctor(
    *,
    stream: str,
    application: str,
    roles: tuple[str, ...],
    samples: int,
    strict: bool,
    show_all: bool,
    account: ConnectionOptions,
    as_json: bool,
) -> None:
    r"""Examine a stream and the lease table of an application, and name remedies. Nothing is changed.

    STREAM is a name or an ARN; APPLICATION is the name of the lease table. The command checks permissions (each action is tried by a dry
    run, or with arguments that can have no effect; actions that cannot be tried are listed), the clock, limits of the
    account, the lease table and its rows, the distribution of records over shards and keys, aggregation, record
    sizes, encryption, retention against lag, the KCL versions that wrote the table, and enhanced fan-out.

    Cost: at most 22 API calls, and up to 4 for each sampled shard, of which 2 are reads of the shard (of the 5 a
    second that its polling consumers share). Each 1,000 shards and each MB of the lease table cost one more API call.
    Three writes are tried under a condition that no row meets; they cost 3 write units.

    With --lease-store, the leases are read from that database, and no action of DynamoDB is tried.

    Exits with 1 if a finding is red; with --strict, also if a finding is yellow.

    \b
    Examples:
      kinesis-sdk doctor orders billing
      kinesis-sdk doctor orders billing --role consumer --strict
      kinesis-sdk doctor orders billing --json | jq '.findings[] | select(.level == "red")'
    """
    from kinesis_sdk.admin.doctor.diagnose import diagnose
    from kinesis_sdk.admin.doctor.model import Level, Report

    def show(report: Report) -> None:
        text, grid = need("rich.text", "cli").Text, need("rich.table", "cli").Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, max_width=28)
        grid.add_column(ratio=1)
        shown = [
            finding for finding in report.findings if show_all or finding.level in (Level.RED, Level.YELLOW)
        ]
        for finding in shown:
            style = _STYLES[finding.level.value]
            body = text(printable(finding.text, 2000))
            if finding.remedy:
                body.append(f"\n→ {printable(finding.remedy, 2000)}", style="bold")
            if finding.command is not None:
                body.append(f"\n$ {spell(finding.command, options_of(connection))}", style="cyan")
            grid.add_row(
                text(f"{_SIGNS[finding.level.value]} {finding.level.value}", style=style),
                text(finding.title, style=style),
                body,
            )
        out = console()
        if shown:
            out.print(grid)
            out.print()
        counts = {level: sum(one.level is level for one in report.findings) for level in Level}
        summary = ", ".join(
            f"{counts[level]} {level.value}{'s' * (level is Level.NOTE and counts[level] != 1)}"
            for level in reversed(Level)
        )
        hidden = "" if show_all else " (--all shows notes and green ones)"
        out.print(
            text(
                f"{printable(stream)}, {printable(application)}: {report.level.value}. {summary}{hidden}. "
                f"{sum(report.calls.values())} API calls.",
                style=_STYLES[report.level.value],
            )
        )

    connection = account.connect()
    report = diagnose(connection, stream, application, roles=roles, samples=samples)
    if as_json:
        print_json(report.to_dict())
    else:
        show(report)
    bad = (Level.RED, Level.YELLOW) if strict else (Level.RED,)
    sys.exit(ExitCode.BAD_ANSWER if report.level in bad else ExitCode.DONE)
