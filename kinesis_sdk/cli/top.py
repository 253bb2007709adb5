"""The command ``kinesis-sdk top``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.cli.extras import need
from kinesis_sdk.cli.options import connection_options, make_connection
from kinesis_sdk.cli.output import with_exit_codes


@click.command(short_help="Watch a fleet live: shards by owner, lag, moves, problems.")
@click.argument("application")
@click.option("--table", metavar="NAME", help="Lease table, if it is not named like the application.")
@click.option("--stream", metavar="NAME", help="Stream, if it cannot be found by its shards.")
@click.option(
    "--lag/--no-lag",
    "probe_lag",
    default=True,
    show_default=True,
    help="Ask the stream for the lag of owners that do not tell it.",
)
@connection_options
@with_exit_codes
def top(
    *,
    application: str,
    table: str | None,
    stream: str | None,
    probe_lag: bool,
    region: str | None,
    profile: str | None,
    endpoint_url: str | None,
) -> None:
    r"""Watch the fleet of an application: shards by owner with lag, moves as they happen, problems on top.

    Works for every KCL application, because it reads the lease table and the stream. Keys are listed with ?.
    Nothing is changed: the keys that steer show the command to run.

    Cost: a Scan each 2 s (each 5 s above 100 leases), ListShards and DescribeStreamSummary each 60 s. Lag costs nothing
    where workers of this SDK tell it; for others it is asked of the stream, each shard at most once in 30 s. An open tail
    reads its shard each 2 s.

    \b
    Examples:
      kinesis-sdk top billing
      kinesis-sdk top billing --region eu-west-1
    """
    need("textual", "tui")
    from kinesis_sdk.admin.fleet.explain import explain
    from kinesis_sdk.admin.fleet.poller import FleetPoller
    from kinesis_sdk.cli.tui.app import Services, TopApp
    from kinesis_sdk.cli.tui.services import read_records

    connection = make_connection(region, profile, endpoint_url)
    watched = Application(connection, application, table_name=table, stream=stream)
    watched.info()  # a wrong name ends the command before the screen is taken
    app = TopApp(
        application,
        place=place_of(connection),
        options=options_of(table, stream, connection),
        services=Services(
            explain=explain,
            read=partial(read_records, connection),
        ),
    )
    with (
        FleetPoller(watched, probe_lag=probe_lag) as poller,
        poller.subscribe(app.show_soon) as subscription,
    ):
        app.watch_with(subscription)
        app.run()


def place_of(connection: Connection) -> str:
    """Return the region or endpoint, for people."""
    meta = connection.kinesis.meta
    return str(connection.endpoint_url or getattr(meta, "region_name", "") or "")


def options_of(table: str | None, stream: str | None, connection: Connection) -> Sequence[str]:
    """Return the options that select the application, for commands that are shown."""
    given = (("--table", table), ("--stream", stream))
    return [*(part for name, value in given if value for part in (name, value)), *connection.options]
