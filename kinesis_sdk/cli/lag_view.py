"""Lag by shard: measured once, or a view that stays open. Texts only; the admin API measures."""

from __future__ import annotations

import sys
from typing import Any

from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.fleet.formatting import duration
from kinesis_sdk.admin.fleet.model import FleetView, LeaseState
from kinesis_sdk.admin.fleet.observe import FleetObserver
from kinesis_sdk.admin.fleet.poller import FleetPoller
from kinesis_sdk.admin.fleet.problems import ProblemSettings
from kinesis_sdk.admin.fleet.reader import FleetReader
from kinesis_sdk.cli.extras import need
from kinesis_sdk.cli.fleet_tables import chosen, lag_table, notes_of, summary, text, title
from kinesis_sdk.cli.output import ExitCode, console, note, print_json, print_json_line

_FIRST_VIEW_TIMEOUT = 60.0
"""Seconds to wait for the first view of ``--watch``."""


def show_lag(
    application: Application, *, failover_time: float, max_lag: float | None, show_all: bool, as_json: bool
) -> None:
    """Measure the lag of each shard once, and print it.

    If a lag is above ``max_lag`` seconds, the command ends with `ExitCode.BAD_ANSWER`. ``show_all`` shows all shards of a large
    application.
    """
    reader = FleetReader(application, observer=_observer(application, failover_time, max_lag))
    reader.table()
    if reader.reads_table_stream:
        note("This application reads the stream of a DynamoDB table: its live workers report the lag.")
        view = reader.reported_lag()
    else:
        view = reader.streams()
        if not as_json:
            note(f"{summary(view)}; asking the stream ...")
        view = _measured(reader, view)
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


def watch_lag(
    application: Application,
    *,
    failover_time: float,
    max_lag: float | None = None,
    probe_lag: bool = True,
    show_all: bool = False,
    as_json: bool = False,
) -> None:
    """Read until Ctrl-C; for each view, draw the table again or print one JSON line."""
    observer = _observer(application, failover_time, max_lag)
    with (
        FleetPoller(application, observer=observer, probe_lag=probe_lag) as poller,
        poller.subscribe() as page,
    ):
        view = poller.wait(_FIRST_VIEW_TIMEOUT)
        if as_json:
            while True:
                if view is not None:
                    print_json_line(view.to_dict())
                    sys.stdout.flush()
                view = poller.wait(_FIRST_VIEW_TIMEOUT, newer_than=view)
        with need("rich.live", "cli").Live(console=console(), auto_refresh=False, screen=False) as live:
            while True:
                if view is not None:
                    leases, _ = chosen(view, show_all=show_all)
                    page.show(lease.lease_key for lease in leases)
                    live.update(_screen(view, show_all=show_all), refresh=True)
                view = poller.wait(_FIRST_VIEW_TIMEOUT, newer_than=view) or view


def _observer(application: Application, failover_time: float, max_lag: float | None) -> FleetObserver:
    return FleetObserver(
        application.name, failover_time=failover_time, settings=ProblemSettings(max_lag=max_lag)
    )


def _measured(reader: FleetReader, view: FleetView) -> FleetView:
    """Measure the lag of all shards, with a bar on a terminal if there are many."""
    if view.totals.leases < 100 or not sys.stderr.isatty():
        return reader.lag()
    progress = need("rich.progress", "cli").Progress(console=console(stderr=True), transient=True)
    with progress:
        task = progress.add_task("Asking the stream", total=None)
        return reader.lag(on_result=lambda done, total: progress.update(task, completed=done, total=total))


def _exit_code(view: FleetView, max_lag: float) -> ExitCode:
    open_ = [lease for lease in view.leases if lease.state is not LeaseState.FINISHED]
    late = sum(lease.lag is not None and lease.lag.millis > max_lag * 1000 for lease in open_)
    unknown = sum(lease.lag is None for lease in open_)
    if late:
        note(f"{late:,} of {len(open_):,} shards are more than {duration(max_lag)} behind.")
    if unknown:
        note(f"The lag of {unknown:,} of {len(open_):,} shards is not known.")
    return ExitCode.BAD_ANSWER if late or unknown else ExitCode.DONE


def _screen(view: FleetView, *, show_all: bool) -> Any:
    """Return the picture that ``--watch`` draws."""
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
