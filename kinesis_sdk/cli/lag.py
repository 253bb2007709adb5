"""The command ``kinesis-sdk lag``."""

from __future__ import annotations

import sys
from typing import Any

import click

from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.fleet.look import Look
from kinesis_sdk.admin.fleet.model import FleetView, LeaseState
from kinesis_sdk.admin.fleet.observe import FleetObserver
from kinesis_sdk.admin.fleet.poller import FleetPoller
from kinesis_sdk.admin.fleet.problems import ProblemSettings
from kinesis_sdk.admin.fleet.words import duration
from kinesis_sdk.cli.extras import need
from kinesis_sdk.cli.fleet_tables import (
    application_options,
    chosen,
    lag_table,
    notes_of,
    open_application,
    summary,
    text,
    title,
)
from kinesis_sdk.cli.options import DURATION, JSON_OPTION
from kinesis_sdk.cli.output import (
    ExitCode,
    console,
    note,
    print_json,
    print_json_line,
    with_exit_codes,
)

_FIRST_LOOK = 60.0
"""Seconds to wait for the first view of ``--watch``."""


@click.command()
@application_options
@click.option("--max-lag", type=DURATION, help="Exit with 1 if a shard is more than this behind, such as 5m.")
@click.option("--watch", is_flag=True, help="Keep looking until Ctrl-C; with --json one line for each look.")
@click.option("--all", "show_all", is_flag=True, help="Show all shards of a large application.")
@JSON_OPTION
@with_exit_codes
def lag(
    *,
    application_name: str,
    stream: str | None,
    table: str | None,
    failover_time: float,
    max_lag: float | None,
    watch: bool,
    show_all: bool,
    as_json: bool,
    region: str | None,
    profile: str | None,
    endpoint_url: str | None,
) -> None:
    r"""Show how far behind each shard of an application is, asked of the stream itself.

    It works for KCL applications of every version. Each shard is asked once, with one read of its five a second; --watch
    asks a shard at most each 30 s, and not at all where the worker writes its lag to the lease table.

    Exit codes: 0, or 1 if --max-lag is given and a shard is further behind, or the lag of one is not known.

    \b
    Examples:
      kinesis-sdk lag billing
      kinesis-sdk lag billing --max-lag 5m
      kinesis-sdk lag billing --watch
      kinesis-sdk lag billing --json | jq '.totals.worst_lag_millis'
    """
    application = open_application(
        application_name, stream, table, region=region, profile=profile, endpoint_url=endpoint_url
    )
    observer = FleetObserver(
        application_name, failover_time=failover_time, settings=ProblemSettings(max_lag=max_lag)
    )
    if watch:
        _watch(application, observer, show_all=show_all, as_json=as_json)
        return
    look = Look(application, observer=observer)
    look.table()
    view = look.streams()
    if not as_json:
        note(f"{summary(view)}; asking the stream ...")
    view = _measured(look, view)
    if as_json:
        print_json(view.to_dict())
    else:
        screen = console()
        screen.print(text(title(view), "bold"))
        screen.print(text(summary(view)))
        leases, more = chosen(view, show_all=show_all)
        screen.print(lag_table(leases, watched=False))
        for line in ([more] if more else []) + notes_of(view.leases):
            screen.print(text(line, "dim"))
    if max_lag is not None:
        sys.exit(_exit_code(view, max_lag))


def _measured(look: Look, view: FleetView) -> FleetView:
    """Ask for the lag of all shards, with a bar on a terminal if there are many."""
    if view.totals.leases < 100 or not sys.stderr.isatty():
        return look.lag()
    progress = need("rich.progress", "cli").Progress(console=console(stderr=True), transient=True)
    with progress:
        task = progress.add_task("Asking the stream", total=None)
        return look.lag(on_result=lambda done, total: progress.update(task, completed=done, total=total))


def _exit_code(view: FleetView, max_lag: float) -> ExitCode:
    open_ = [lease for lease in view.leases if lease.state is not LeaseState.FINISHED]
    late = sum(lease.lag is not None and lease.lag.millis > max_lag * 1000 for lease in open_)
    unknown = sum(lease.lag is None for lease in open_)
    if late:
        note(f"{late:,} of {len(open_):,} shards are more than {duration(max_lag)} behind.")
    if unknown:
        note(f"The lag of {unknown:,} of {len(open_):,} shards is not known.")
    return ExitCode.BAD_ANSWER if late or unknown else ExitCode.DONE


def _watch(application: Application, observer: FleetObserver, *, show_all: bool, as_json: bool) -> None:
    with FleetPoller(application, observer=observer) as poller, poller.subscribe() as page:
        view = poller.wait(_FIRST_LOOK)
        if as_json:
            while True:
                if view is not None:
                    print_json_line(view.to_dict())
                view = poller.wait(_FIRST_LOOK, newer_than=view)
        with need("rich.live", "cli").Live(console=console(), auto_refresh=False, screen=False) as live:
            while True:
                if view is not None:
                    leases, _ = chosen(view, show_all=show_all)
                    page.show(lease.lease_key for lease in leases)
                    live.update(_screen(view, show_all=show_all), refresh=True)
                view = poller.wait(_FIRST_LOOK, newer_than=view) or view


def _screen(view: FleetView, *, show_all: bool) -> Any:
    """Return what ``--watch`` draws."""
    leases, more = chosen(view, show_all=show_all)
    calls = sum(view.calls_per_minute.values())
    parts = [
        text(title(view), "bold"),
        text(summary(view)),
        text(f"table read {duration(view.table_age)} ago · {calls} calls in the last minute", "dim"),
    ]
    if view.error:
        parts.append(text(view.error, "red"))
    parts.append(lag_table(leases, watched=True))
    if more:
        parts.append(text(more, "dim"))
    return need("rich.console", "cli").Group(*parts)
