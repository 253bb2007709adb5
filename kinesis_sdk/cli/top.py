"""The command ``kinesis-sdk top``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import click

from kinesis_sdk.cli.application import LAG_OPTION, ApplicationOptions, application_options
from kinesis_sdk.cli.extras import need
from kinesis_sdk.cli.options import JSON_OPTION
from kinesis_sdk.cli.output import CommandError, ExitCode, with_exit_codes
from kinesis_sdk.cli.recording import open_recording, recording_options
from kinesis_sdk.cli.spelling import options_of, speller
from kinesis_sdk.common.errors import ConfigError

if TYPE_CHECKING:
    from kinesis_sdk.admin.connection import Connection


@click.command(short_help="Watch a fleet live: shards by owner, lag, moves, problems.")
@application_options
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Let the keys r, k, l and m change the lease table, each after you have seen and confirmed the exact write.",
)
@LAG_OPTION
@recording_options
@JSON_OPTION
@with_exit_codes
def top(
    *,
    app: ApplicationOptions,
    allow_changes: bool,
    probe_lag: bool,
    recording_file: str | None,
    recording_size: int | None,
    recording_for: float | None,
    as_json: bool,
) -> None:
    r"""Watch the fleet of an application: shards by owner with lag, live moves, and problems at the top.

    The keys [ and ] go one minute back or forward in the time since the start, or in the file of --recording; 0 returns to the
    present.

    Works for every KCL application, because it reads the lease table and the stream. Keys are listed with ?.
    The keys for changes show the command to run; nothing is changed without --allow-changes.

    Cost: a Scan every 2 s (every 5 s above 100 leases), ListShards and DescribeStreamSummary every 60 s. Lag costs nothing
    where workers of this SDK report it; for others the stream is read, each shard at most once in 30 s. An open tail
    reads its shard every 2 s.

    --json prints the snapshots that the screen would show, one per line, until Ctrl-C. It needs no terminal.

    \b
    Examples:
      kinesis-sdk top billing
      kinesis-sdk top billing --region eu-west-1 --allow-changes
      kinesis-sdk top billing --json | jq -c '[.at, .totals.worst_lag_millis]'
    """
    recording = open_recording(recording_file, recording_size, recording_for)
    if as_json:
        if recording is not None:
            raise ConfigError("recording", recording_file, "no --json: save its output instead")
        if allow_changes:
            raise ConfigError("allow-changes", True, "no --json: changes have to be confirmed in a terminal")
        from kinesis_sdk.cli.lag_view import watch_lag

        application = app.open()
        application.info()  # a wrong name ends the command
        watch_lag(application, failover_time=app.failover_time, probe_lag=probe_lag, as_json=True)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError(
            f"top needs a terminal. For a pipe or a file: kinesis-sdk top {shlex.quote(app.name)} --json",
            ExitCode.USAGE,
        )
    need("textual", "tui")
    from kinesis_sdk.admin.fleet.explain import explain
    from kinesis_sdk.admin.fleet.observe import FleetObserver
    from kinesis_sdk.admin.fleet.poller import FleetPoller
    from kinesis_sdk.admin.recording.recorder import Recording
    from kinesis_sdk.cli.tui.app import Services, TopApp
    from kinesis_sdk.cli.tui.services import read_records
    from kinesis_sdk.cli.tui.steering import SteeringChanges

    application = app.open()
    application.info()  # a wrong name ends the command before it takes over the screen
    connection = application.connection
    recording = recording or Recording()
    options = _options_of(app.table, app.stream, connection)
    screen = TopApp(
        app.name,
        place=place_of(connection),
        options=options,
        services=Services(
            explain=lambda view, key: explain(view, key, speller(options)),
            read=partial(read_records, connection),
            past=partial(recording.view_at, app.name),
            changes=SteeringChanges(application, failover_time=app.failover_time) if allow_changes else None,
        ),
    )
    observer = FleetObserver(app.name, failover_time=app.failover_time)
    with (
        FleetPoller(application, observer=observer, probe_lag=probe_lag) as poller,
        poller.subscribe(recording.update),
        poller.subscribe(screen.show_soon) as subscription,
        closing(recording),
    ):
        screen.watch_with(subscription)
        screen.run()


def place_of(connection: Connection) -> str:
    """Return the region or endpoint, for people."""
    meta = connection.kinesis.meta
    return str(connection.endpoint_url or getattr(meta, "region_name", "") or "")


def _options_of(table: str | None, stream: str | None, connection: Connection) -> Sequence[str]:
    """Return the options that select the application, for the commands that the view shows."""
    given = (("--table", table), ("--stream", stream))
    return [*(part for name, value in given if value for part in (name, value)), *options_of(connection)]
