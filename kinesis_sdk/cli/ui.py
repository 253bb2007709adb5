"""The command ``kinesis-sdk ui``."""

from __future__ import annotations

import sys
from contextlib import suppress

import click

from kinesis_sdk.cli.application import FAILOVER_TIME_OPTION, STREAM_OPTION, TABLE_OPTION, check_table
from kinesis_sdk.cli.extras import need
from kinesis_sdk.cli.options import (
    ALLOW_STREAM_OPTION,
    HOST_HELP,
    JSON_OPTION,
    LEASE_STORE_OPTION,
    PORT,
    PORT_HELP,
    ConnectionOptions,
    connection_options,
)
from kinesis_sdk.cli.output import note, print_json_line, with_exit_codes
from kinesis_sdk.cli.recording import open_recording, recording_options
from kinesis_sdk.common.errors import ConfigError


@click.command(short_help="Serve the fleet view in a browser.")
@click.argument("applications", metavar="[APP]...", nargs=-1)
@STREAM_OPTION
@TABLE_OPTION
@click.option("--port", type=PORT, default=8787, show_default=True, help=PORT_HELP)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help=f"{HOST_HELP} An address other than this machine's own needs a token.",
)
@click.option(
    "--token",
    envvar="KINESIS_SDK_UI_TOKEN",
    help="Token that each browser presents once, at least 16 characters; by default, a random token if --host or --allow-changes needs one. "
    "The environment variable keeps it out of the list of processes.",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    help="Host name, besides localhost and IP addresses, under which the console is opened.",
)
@FAILOVER_TIME_OPTION
@click.option(
    "--allow-changes", is_flag=True, help="Allow changes of leases; without it the console only reads."
)
@click.option(
    "--dead-letters",
    "places",
    metavar="LOCATION",
    multiple=True,
    help="Location of dead letters to show, as for `dlq list`; can be given several times.",
)
@ALLOW_STREAM_OPTION
@recording_options
@JSON_OPTION
@LEASE_STORE_OPTION
@connection_options
@with_exit_codes
def ui(
    *,
    applications: tuple[str, ...],
    stream: str | None,
    table: str | None,
    port: int,
    host: str,
    token: str | None,
    allowed_hosts: tuple[str, ...],
    failover_time: float,
    allow_changes: bool,
    places: tuple[str, ...],
    allowed: tuple[str, ...],
    recording_file: str | None,
    recording_size: int | None,
    recording_for: float | None,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Serve the fleet view in a browser, until Ctrl-C.

    The view shows applications, their leases and owners, problems with their remedies, and the stream's shards and records.
    Without APP, the command finds the applications by their lease tables. It needs no network other than AWS, and makes no call while no
    page is open and visible.

    The slider of each view goes back to any moment at which a page was open. With --recording FILE, pages can go back as far as the file,
    which this command or the exporter writes, and the named applications are watched all the time.

    --json prints one line with the address to open, which contains the token if one is needed.

    \b
    Examples:
      kinesis-sdk ui billing
      kinesis-sdk ui --region eu-west-1 --allow-changes
      kinesis-sdk ui billing --recording fleet.db
      kinesis-sdk ui --dead-letters sqlite:///letters.db --allow-changes
      kinesis-sdk ui billing --endpoint-url http://localhost:4566
      KINESIS_SDK_UI_TOKEN=$(openssl rand -hex 16) kinesis-sdk ui --host 0.0.0.0
    """
    check_table(table, applications)
    if allowed and not places:
        raise ConfigError("allow_stream", ", ".join(allowed), "given with --dead-letters only")
    need("starlette", "ui")
    need("uvicorn", "ui")
    from kinesis_sdk.cli.web.admin_backend import AdminBackend
    from kinesis_sdk.cli.web.letters import LetterPages
    from kinesis_sdk.cli.web.planner import AdminPlanner
    from kinesis_sdk.cli.web.server import ConsoleServer
    from kinesis_sdk.common.errors import AwsConfigError

    connection = account.connect()
    # The pages and the commands on them name the region and the endpoint, even if the environment gives them. Without a region, the
    # pages say that it is missing, as for any other failed read.
    with suppress(AwsConfigError):
        connection = connection.resolved()
    recording = open_recording(recording_file, recording_size, recording_for)
    server = ConsoleServer(
        AdminBackend(
            connection, applications=applications, stream=stream, table=table, failover_time=failover_time
        ),
        letters=LetterPages(connection, places, allow_streams=allowed) if places else None,
        planner=AdminPlanner(connection, stream=stream, table=table, failover_time=failover_time),
        host=host,
        port=port,
        token=token,
        allowed_hosts=allowed_hosts,
        applications=applications,
        stream=stream,
        recording=recording,
        allow_changes=allow_changes,
    )
    if as_json:
        print_json_line({"url": server.url, "applications": applications, "allow_changes": allow_changes})
        sys.stdout.flush()
    note(
        f"Serving on {server.shown_url} until Ctrl-C; {'changes are allowed' if allow_changes else 'read-only'}."
    )
    try:
        server.serve()
    finally:
        if recording is not None:
            recording.close()
    note("Stopped.")
