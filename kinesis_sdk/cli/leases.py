"""The group ``kinesis-sdk leases``: commands that read the lease table. The commands that change it are in `kinesis_sdk.cli.steer`."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

import click

from kinesis_sdk.admin.fleet.formatting import duration
from kinesis_sdk.admin.fleet.model import FleetView, LeaseState, LeaseView, Severity
from kinesis_sdk.cli.application import ApplicationOptions, application_options
from kinesis_sdk.cli.lazy_group import LazyGroup
from kinesis_sdk.cli.options import DURATION, JSON_OPTION
from kinesis_sdk.cli.output import ExitCode, console, note, print_json, with_exit_codes
from kinesis_sdk.cli.spelling import options_of, speller
from kinesis_sdk.common.text import printable

if TYPE_CHECKING:
    from kinesis_sdk.admin.fleet.reader import FleetReader

_LEASES = {
    "list": ("kinesis_sdk.cli.leases:list_leases", "Print the rows of the lease table, decoded."),
    "show": ("kinesis_sdk.cli.leases:show", "Name what is wrong, with the remedy, and print the rows."),
    "explain": ("kinesis_sdk.cli.leases:explain", "Say in plain words why a shard is moving or not."),
    "rewind": (
        "kinesis_sdk.cli.steer:rewind",
        "Process records again, from a time, a record or the horizon.",
    ),
    "skip-to": ("kinesis_sdk.cli.steer:skip_to", "Leave records out: continue at a later position."),
    "release": ("kinesis_sdk.cli.steer:release", "Take a lease from its owner; another worker continues."),
    "move": ("kinesis_sdk.cli.steer:move", "Move a lease to a live worker."),
    "pin": ("kinesis_sdk.cli.steer:pin", "Give a lease to one worker for as long as it is alive."),
    "unpin": ("kinesis_sdk.cli.steer:unpin", "Remove the pin of a lease."),
    "retry": ("kinesis_sdk.cli.steer:retry", "Have a failing handler called again now."),
    "skip-record": (
        "kinesis_sdk.cli.steer:skip_record",
        "Leave out the one record on which a handler fails.",
    ),
    "export": ("kinesis_sdk.cli.steer:export", "Save the leases to a file."),
    "import": ("kinesis_sdk.cli.steer:import_leases", "Bring the leases to the positions of a saved file."),
    "delete-row": ("kinesis_sdk.cli.steer:delete_row", "Delete one row that no worker can use."),
    "delete-app": ("kinesis_sdk.cli.steer:delete_app", "Delete a stopped application: its lease table."),
}
"""Home and short help of each command of the group."""


@click.group(cls=LazyGroup, homes=_LEASES)
def leases() -> None:
    """Show the leases of an application, and change them."""


@click.command("list")
@application_options
@click.option(
    "--all", "show_all", is_flag=True, help="Show all rows of a large application, including finished ones."
)
@JSON_OPTION
@with_exit_codes
def list_leases(
    *,
    app: ApplicationOptions,
    show_all: bool,
    as_json: bool,
) -> None:
    r"""Print the rows of the lease table. Only the table is read; `leases show` compares it with the stream.

    \b
    Examples:
      kinesis-sdk leases list billing
      kinesis-sdk leases list billing --json | jq '.leases[] | select(.owner == null) | .shard_id'
    """
    view = _fleet_reader(app).table()
    if as_json:
        print_json(view.to_dict())
        return
    _print_rows(view, show_all=show_all)


@click.command()
@application_options
@click.option(
    "--watch-for",
    type=DURATION,
    default="0s",
    help="Watch for this long first, such as 25s; otherwise it is not known which owners are silent.",
)
@click.option(
    "--all", "show_all", is_flag=True, help="Show all rows of a large application, including finished ones."
)
@JSON_OPTION
@with_exit_codes
def show(
    *,
    app: ApplicationOptions,
    watch_for: float,
    show_all: bool,
    as_json: bool,
) -> None:
    r"""Name the problems of an application, worst first, each with its remedy, then print the rows of its lease table.

    Exit codes: 0, or 1 if one of the problems is an error.

    \b
    Examples:
      kinesis-sdk leases show billing
      kinesis-sdk leases show billing --watch-for 25s
    """
    reader = _fleet_reader(app)
    reader.table()
    view = reader.streams(required=False)
    if watch_for:
        note(f"Watching for {duration(watch_for)} ...")
        reader.watch(watch_for)
        view = reader.streams(required=False)
    if as_json:
        print_json(view.to_dict())
    else:
        if view.error:
            note(view.error)
        from kinesis_sdk.cli.fleet_tables import print_problems

        print_problems(view, options_of(app.account.connect()))
        console().print()
        _print_rows(view, show_all=show_all)
    if any(problem.severity is Severity.ERROR for problem in view.problems):
        sys.exit(ExitCode.BAD_ANSWER)


@click.command()
@application_options
@click.argument("shard")
@click.option(
    "--watch-for",
    type=DURATION,
    help="Watch for this long to see whether the owner is alive; by default until it is known, at most 2.5 failover times.",
)
@JSON_OPTION
@with_exit_codes
def explain(
    *,
    app: ApplicationOptions,
    shard: str,
    watch_for: float | None,
    as_json: bool,
) -> None:
    r"""Explain in plain words why a shard is moving or not: its owner and since when, the reason for waiting, its lag, and remedies.

    SHARD is a shard id, its number such as 3 or 0003, or a whole lease key.

    \b
    Examples:
      kinesis-sdk leases explain billing 447
      kinesis-sdk leases explain billing shardId-000000000447 --watch-for 0s
    """
    from kinesis_sdk.admin.applications import find_lease_key
    from kinesis_sdk.admin.fleet.explain import explain as explain_lease

    reader = _fleet_reader(app)
    reader.table()
    view = reader.streams()
    key = find_lease_key(shard, [lease.lease_key for lease in view.leases])
    view = reader.lag(only=_with_ancestors(view, key))
    longest = 2.5 * app.failover_time if watch_for is None else watch_for
    if longest and _of(view, key).owner is not None:
        note(f"Watching for up to {duration(longest)} to see whether the owner is alive ...")
        view = reader.watch(longest, lambda seen: watch_for is None and _is_alive(seen, key))
    paragraphs = explain_lease(view, key, speller(options_of(app.account.connect())))
    if as_json:
        print_json(
            {
                "lease": _of(view, key),
                "explanation": paragraphs,
                "problems": [problem for problem in view.problems if problem.lease_key == key],
                "watched": view.watched,
            }
        )
        return
    for paragraph in paragraphs:
        click.echo(_wrapped(printable(paragraph, 2000)))


def _wrapped(paragraph: str) -> str:
    """Return a paragraph in lines of 100 characters. A command at the end of the paragraph has its own line, for copying."""
    head, mark, command = paragraph.partition(": kinesis-sdk ")
    if not mark or not paragraph.startswith("To "):
        return textwrap.fill(paragraph, 100)
    return f"{textwrap.fill(head, 100)}:\n    kinesis-sdk {command}"


def _fleet_reader(app: ApplicationOptions) -> FleetReader:
    from kinesis_sdk.admin.fleet.observe import FleetObserver
    from kinesis_sdk.admin.fleet.reader import FleetReader

    return FleetReader(app.open(), observer=FleetObserver(app.name, failover_time=app.failover_time))


def _of(view: FleetView, key: str) -> LeaseView:
    return next(lease for lease in view.leases if lease.lease_key == key)


def _is_alive(view: FleetView, key: str) -> bool:
    return _of(view, key).renewed_ago is not None and _of(view, key).state is not LeaseState.SILENT


def _with_ancestors(view: FleetView, key: str) -> set[str]:
    by_key = {lease.lease_key: lease for lease in view.leases}
    found, todo = {key}, [key]
    while todo:
        lease = by_key[todo.pop()]
        prefix = "" if lease.stream is None else f"{lease.stream}:"
        for parent in lease.parents:
            if prefix + parent in by_key and prefix + parent not in found:
                found.add(prefix + parent)
                todo.append(prefix + parent)
    return found


def _print_rows(view: FleetView, *, show_all: bool) -> None:
    from kinesis_sdk.cli.fleet_tables import chosen, lease_table, summary, text, title

    screen = console()
    screen.print(text(title(view), "bold"))
    screen.print(text(summary(view)))
    rows, more = chosen(view, show_all=show_all)
    screen.print(lease_table(rows))
    if more:
        screen.print(text(more, "dim"))
    if view.entities:
        others = ", ".join(f"{count} {name}" for name, count in sorted(view.entities.items()))
        screen.print(text(f"Other items, which are left alone: {others}.", "dim"))
