"""The command ``kinesis-sdk exporter``."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from threading import Event

import click

from kinesis_sdk.admin.fleet.model import FleetView
from kinesis_sdk.cli.application import (
    FAILOVER_TIME_OPTION,
    LAG_OPTION,
    STREAM_OPTION,
    TABLE_OPTION,
    check_table,
)
from kinesis_sdk.cli.extras import need
from kinesis_sdk.cli.options import (
    HOST_HELP,
    JSON_OPTION,
    LEASE_STORE_OPTION,
    PORT,
    PORT_HELP,
    ConnectionOptions,
    connection_options,
)
from kinesis_sdk.cli.output import CommandError, ExitCode, note, print_json_line, with_exit_codes
from kinesis_sdk.cli.recording import open_recording, recording_options
from kinesis_sdk.common.text import printable


class ErrorNotes:
    """Prints the error of an application once, and again only when it changes."""

    def __init__(self) -> None:
        self._told: dict[str, str | None] = {}

    def update(self, view: FleetView) -> None:
        """Process a new view. The views of one application arrive one after another."""
        if view.error and view.error != self._told.get(view.application):
            note(f"{printable(view.application)}: {view.error}")
        self._told[view.application] = view.error


@click.command(short_help="Serve lag, owners, moves and problems to Prometheus and KEDA.")
@click.argument("applications", metavar="APP...", nargs=-1, required=True)
@click.option("--port", type=PORT, default=9464, show_default=True, help=PORT_HELP)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help=f"{HOST_HELP} No token protects the endpoint: see docs/monitoring.md.",
)
@STREAM_OPTION
@TABLE_OPTION
@FAILOVER_TIME_OPTION
@click.option(
    "--per-owner",
    is_flag=True,
    help="Add worker ids as labels. Their number is unbounded, because each restart of a worker creates new series.",
)
@LAG_OPTION
@recording_options
@JSON_OPTION
@LEASE_STORE_OPTION
@connection_options
@with_exit_codes
def exporter(
    *,
    applications: tuple[str, ...],
    port: int,
    host: str,
    stream: str | None,
    table: str | None,
    failover_time: float,
    per_owner: bool,
    probe_lag: bool,
    recording_file: str | None,
    recording_size: int | None,
    recording_for: float | None,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Serve lag, owners, moves and problems of applications to Prometheus and KEDA, until Ctrl-C.

    Works for every KCL application.

    \b
    /metrics             for Prometheus (names: docs/monitoring.md; dashboard and alerts: grafana/)
    /lag/<application>   JSON for KEDA's metrics-api scaler, valueLocation worst_lag_seconds
    /keda                the same for all applications
    /healthz             200 if each lease table was read in the last 60 s, else 503

    Cost for each application: a Scan every 2 s (every 5 s above 100 leases), ListShards and DescribeStreamSummary every
    60 s. Lag costs nothing if workers of this SDK report it; for other workers, the stream is read, each shard at most once in 30 s. A
    scrape costs nothing.

    --recording FILE keeps the views, for the time slider of `kinesis-sdk ui --recording FILE` on the same machine.

    --json prints one line with the addresses once the exporter serves.

    \b
    Examples:
      kinesis-sdk exporter billing
      kinesis-sdk exporter billing search --host 0.0.0.0 --port 9464
      curl -s localhost:9464/lag/billing
    """
    check_table(table, applications)
    need("prometheus_client", "prometheus")
    recording = open_recording(recording_file, recording_size, recording_for)
    from kinesis_sdk.admin.applications import Application
    from kinesis_sdk.admin.exporter import FleetMetrics
    from kinesis_sdk.admin.exporter_http import ExporterPages
    from kinesis_sdk.admin.fleet.observe import FleetObserver
    from kinesis_sdk.admin.fleet.poller import FleetPoller
    from kinesis_sdk.common.errors import ConfigError
    from kinesis_sdk.common.page_server import PageServer

    connection = account.connect()
    metrics = FleetMetrics(applications, per_owner=per_owner)
    opened = [Application(connection, name, table_name=table, stream=stream) for name in metrics.applications]
    errors = ErrorNotes()

    def update(view: FleetView) -> None:
        metrics.update(view)
        errors.update(view)

    with ExitStack() as stack:
        if recording is not None:
            stack.callback(recording.close)
        try:
            server = stack.enter_context(
                closing(PageServer(ExporterPages(metrics).page, host, port, setting="port"))
            )
        except ConfigError as error:
            raise CommandError(
                f"cannot listen at {host}:{port}: {error.__cause__}", ExitCode.CALL_FAILED
            ) from error
        for application in opened:
            poller = FleetPoller(
                application,
                observer=FleetObserver(application.name, failover_time=failover_time),
                probe_lag=probe_lag,
            )
            stack.enter_context(poller)
            stack.enter_context(poller.subscribe(update))
            if recording is not None:
                stack.enter_context(poller.subscribe(recording.update))
        address = f"http://{host}:{server.port}"
        if as_json:
            print_json_line(
                {
                    "url": f"{address}/metrics",
                    "keda_url": f"{address}/keda",
                    "health_url": f"{address}/healthz",
                    "applications": metrics.applications,
                }
            )
            sys.stdout.flush()
        note(f"Serving {address}/metrics for {', '.join(metrics.applications)}; Ctrl-C ends it.")
        # The system may deliver SIGINT to any thread, but Python runs the handler in this thread, after its wait has ended.
        never = Event()
        while not never.wait(0.5):
            pass
