"""The command ``kinesis-sdk exporter``."""

from __future__ import annotations

from contextlib import ExitStack
from threading import Event

import click

from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.fleet.model import FleetView
from kinesis_sdk.cli.extras import need
from kinesis_sdk.cli.options import connection_options, make_connection
from kinesis_sdk.cli.output import CommandError, ExitCode, note, with_exit_codes
from kinesis_sdk.common.text import printable


class ErrorNotes:
    """Prints what failed for an application once, and again only when it changes."""

    def __init__(self) -> None:
        self._told: dict[str, str | None] = {}

    def update(self, view: FleetView) -> None:
        """Process a new view. The views of one application come one after another."""
        if view.error and view.error != self._told.get(view.application):
            note(f"{printable(view.application)}: {view.error}")
        self._told[view.application] = view.error


@click.command(short_help="Serve lag, owners, moves and problems to Prometheus and KEDA.")
@click.argument("applications", nargs=-1, required=True)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=9464, show_default=True, help="Port; 0 takes a free one."
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen at; 0.0.0.0 in a container."
)
@click.option(
    "--stream", metavar="NAME", help="Stream of the applications, if it cannot be found by its shards."
)
@click.option(
    "--per-owner",
    is_flag=True,
    help="Add worker ids as labels. They are not bounded: each restart of a worker makes new series.",
)
@click.option(
    "--lag/--no-lag",
    "probe_lag",
    default=True,
    show_default=True,
    help="Ask the stream for the lag of owners that do not tell it.",
)
@connection_options
@with_exit_codes
def exporter(
    *,
    applications: tuple[str, ...],
    port: int,
    host: str,
    stream: str | None,
    per_owner: bool,
    probe_lag: bool,
    region: str | None,
    profile: str | None,
    endpoint_url: str | None,
) -> None:
    r"""Serve lag, owners, moves and problems of applications to Prometheus and KEDA, until Ctrl-C.

    Each application is named like its lease table. Works for every KCL application.

    \b
    /metrics             for Prometheus (names: docs/monitoring.md; dashboard and alerts: grafana/)
    /lag/<application>   JSON for KEDA's metrics-api scaler, valueLocation worst_lag_seconds
    /keda                the same for all applications
    /healthz             200 if each lease table was read in the last 60 s, else 503

    Cost for each application: a Scan each 2 s (each 5 s above 100 leases), ListShards and DescribeStreamSummary each
    60 s. Lag costs nothing where workers of this SDK tell it; for others it is asked of the stream, each shard at most
    once in 30 s. A scrape costs nothing.

    \b
    Examples:
      kinesis-sdk exporter billing
      kinesis-sdk exporter billing search --host 0.0.0.0 --port 9464
      curl -s localhost:9464/lag/billing
    """
    need("prometheus_client", "prometheus")
    from kinesis_sdk.admin.exporter import FleetMetrics
    from kinesis_sdk.admin.exporter_http import ExporterPages, ExporterServer
    from kinesis_sdk.admin.fleet.poller import FleetPoller

    connection = make_connection(region, profile, endpoint_url)
    metrics = FleetMetrics(applications, per_owner=per_owner)
    errors = ErrorNotes()

    def update(view: FleetView) -> None:
        metrics.update(view)
        errors.update(view)

    with ExitStack() as stack:
        try:
            server = stack.enter_context(ExporterServer(ExporterPages(metrics), host, port))
        except OSError as error:
            raise CommandError(f"cannot listen at {host}:{port}: {error}", ExitCode.CALL_FAILED) from error
        for name in metrics.applications:
            poller = FleetPoller(Application(connection, name, stream=stream), probe_lag=probe_lag)
            stack.enter_context(poller)
            stack.enter_context(poller.subscribe(update))
        note(
            f"Serving http://{host}:{server.port}/metrics for {', '.join(metrics.applications)}; Ctrl-C ends it."
        )
        Event().wait()
