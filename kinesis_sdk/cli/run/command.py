"""`kinesis-sdk run`."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from kinesis_sdk.cli.application import CONFIG_OPTION, check_application, config_file
from kinesis_sdk.cli.extras import need
from kinesis_sdk.cli.options import (
    BEGINNING,
    JSON_OPTION,
    LEASE_STORE_OPTION,
    ConnectionOptions,
    Duration,
    Ending,
    connection_options,
    log_options,
)
from kinesis_sdk.cli.output import CommandError, ExitCode, note, print_json_line, with_exit_codes
from kinesis_sdk.common.position_text import format_position

if TYPE_CHECKING:
    from kinesis_sdk.admin import Connection
    from kinesis_sdk.common.aws import KinesisClient
    from kinesis_sdk.common.position import Position
    from kinesis_sdk.common.stream import StreamId


@click.command()
@click.argument("handler", metavar="MODULE:HANDLER")
@click.option(
    "--factory",
    "is_factory",
    is_flag=True,
    help="MODULE:HANDLER is a function of the settings that returns a WorkerParts: handler, sink, metrics, settings.",
)
@click.option(
    "--stream",
    "streams",
    metavar="STREAM",
    multiple=True,
    help="Name or ARN of the stream. Given several times, the lease table has the KCL's multi-stream form.",
)
@click.option(
    "--dynamodb-table",
    metavar="TABLE",
    help="Instead of --stream: a DynamoDB table whose stream to read, or the ARN of a stream.",
)
@click.option(
    "--tiers",
    "reads_tiers",
    is_flag=True,
    help="Read the streams in which records wait for their next attempt, by --config, as application NAME-retries.",
)
@click.option(
    "--app",
    "application_name",
    metavar="NAME",
    required=True,
    callback=check_application,
    help="Name of the application, and of its lease table. Workers of one application share the shards.",
)
@LEASE_STORE_OPTION
@click.option(
    "--sink",
    metavar="URL",
    help="Database in which effects and positions change together: sqlite:///totals.db, postgresql+psycopg://user@host/database. "
    "batch.transaction is a connection to it. Put the URL into --config to keep it out of the list of processes.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Number of worker processes.",
)
@click.option(
    "--until",
    type=Ending(),
    help="End once every record that arrived before this moment is processed: now, or ISO 8601.",
)
@click.option(
    "--initial-position",
    type=BEGINNING,
    help="Start of shards without a lease: LATEST, TRIM_HORIZON, ISO 8601, or how long ago (-15m). "
    "By default the position in --config, else LATEST.",
)
@CONFIG_OPTION
@click.option(
    "--reload",
    "reloads",
    is_flag=True,
    help="Restart the workers when a .py file of the handler's package changes.",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve /live, /ready and /status for all processes at this port; 0 picks one.",
)
@click.option(
    "--health-host",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="Address of the health endpoint; 0.0.0.0 for Kubernetes.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve the metrics of all processes to Prometheus at this port, as /metrics; 0 picks one.",
)
@click.option(
    "--metrics-host",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="Address of the metrics; 0.0.0.0 for Kubernetes. No token protects them, and they name streams and shards.",
)
@click.option(
    "--stop-timeout",
    type=Duration(0.1, 86_400.0),
    default="25s",
    show_default=True,
    help="Time for a clean stop, after which the processes are killed.",
)
@log_options
@JSON_OPTION
@connection_options
@with_exit_codes
def run(
    *,
    handler: str,
    is_factory: bool,
    streams: tuple[str, ...],
    dynamodb_table: str | None,
    reads_tiers: bool,
    application_name: str,
    sink: str | None,
    processes: int,
    until: datetime | str | None,
    initial_position: Position | None,
    reloads: bool,
    health_port: int | None,
    health_host: str,
    metrics_port: int | None,
    metrics_host: str,
    stop_timeout: float,
    log_level: str,
    log_format: str,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Consume streams with a handler, in supervised worker processes.

    MODULE:HANDLER names a function of a batch, a RecordHandler class, or a factory of handlers. Modules of the
    current directory can be imported. With --factory, it names a function that is called in each process with the settings
    (ConsumerConfig) and returns kinesis_sdk.WorkerParts: a handler, and optionally a sink for exactly-once effects, metrics, and settings
    with dead letters, a deserializer or a lease strategy.

    Ctrl-C or SIGTERM stops the workers cleanly: running batches finish, handlers may checkpoint, leases are released. A second signal ends
    them at once. A worker process that dies is started again after a pause. After five failures
    in a row the command ends with exit code 1. Worker processes never outlive this command.

    --json prints one event per line: health, metrics, process-started, consuming, process-ended, ended. The log stays on standard error.

    \b
    Examples:
      kinesis-sdk run billing.consumer:handle --stream orders --app billing
      kinesis-sdk run app:Handler --stream orders --app billing --processes 4 --health-port 8080
      kinesis-sdk run app:parts --factory --stream orders --app billing --processes 4 --metrics-port 9400
      kinesis-sdk run app:handle --stream orders --app nightly --initial-position TRIM_HORIZON --until now
      kinesis-sdk run app:handle --stream orders --app dev --reload --endpoint-url http://localhost:4566
      kinesis-sdk run app:handle --stream orders --app first --lease-store sqlite:///leases.db
      kinesis-sdk run app:add_up --stream orders --app totals --sink sqlite:///totals.db
      kinesis-sdk run app:copy --dynamodb-table orders --app copier --processes 2
      kinesis-sdk run app:handle --config worker.toml
      kinesis-sdk run app:handle --config worker.toml --tiers
    """
    if os.name != "posix":
        raise CommandError(
            "run needs a POSIX system. Elsewhere, start kinesis_sdk.Worker in a program of your own.",
            ExitCode.USAGE,
        )
    from kinesis_sdk.cli.run.handlers import HandlerNotFoundError, split_name
    from kinesis_sdk.cli.run.health import SupervisorHealth
    from kinesis_sdk.cli.run.logs import configure_logging
    from kinesis_sdk.cli.run.metrics import SupervisorMetrics
    from kinesis_sdk.cli.run.policy_table import tiers_of
    from kinesis_sdk.cli.run.processes import ChildProcess, Processes
    from kinesis_sdk.cli.run.settings import RunSettings
    from kinesis_sdk.cli.run.supervisor import Supervisor
    from kinesis_sdk.cli.run.watch import FileWatcher, roots_of
    from kinesis_sdk.common.stream import StreamId
    from kinesis_sdk.consumer.engine import until_moment
    from kinesis_sdk.consumer.leases import MEMORY_URL

    try:
        module, _ = split_name(handler)
    except HandlerNotFoundError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    if metrics_port is not None:
        need("prometheus_client", "prometheus")
    streams, dynamodb_table = _given_source(streams, dynamodb_table)
    config_path = config_file(click.get_current_context())
    if bool(streams) == (dynamodb_table is not None):
        raise CommandError("give either --stream or --dynamodb-table", ExitCode.USAGE)
    settings = RunSettings(
        handler=handler,
        streams=streams,
        dynamodb_table=dynamodb_table,
        application_name=application_name,
        worker_id=f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}",
        config_file=None if config_path is None else str(Path(config_path).resolve()),
        lease_store=account.lease_store,
        sink=sink,
        initial_position=None if initial_position is None else format_position(initial_position),
        region=account.region,
        profile=account.profile,
        endpoint_url=account.endpoint_url,
        log_level=log_level.upper(),
        log_format="json" if log_format == "json" else "text",
        stop_timeout=stop_timeout,
        reports_health=health_port is not None,
        reports_metrics=metrics_port is not None,
        is_factory=is_factory,
        reads_tiers=reads_tiers,
    )
    place = settings.place()
    config = settings.consumer_config(
        place=place
    )  # a wrong setting is reported once here, not by each process
    tiers = [StreamId.parse(one.stream) for one in tiers_of(config.on_handler_error)] if reads_tiers else []
    lease_store = config.lease_table.lease_store
    config.check_application_name(
        "app",
        settings.worker_application,
        has_lease_store=lease_store is not None,
        is_registered=dynamodb_table is None,
    )
    if lease_store == MEMORY_URL and processes > 1:
        raise CommandError(
            f"{MEMORY_URL} works with one process only: other processes would not see its leases. Use sqlite:///leases.db.",
            ExitCode.USAGE,
        )
    connection = replace(account, lease_store=None).connect()
    client, sources = _sources(connection, streams, dynamodb_table)
    for store in place.stores:
        store.check(connection.kinesis)
    sources = tiers or sources
    _check_streams(client, sources)
    if until is not None:
        # Resolved once, so that all processes and their replacements use the same moment.
        moment = until_moment(until if isinstance(until, datetime) else "now", client, sources[0])
        settings = replace(settings, until=moment.isoformat())
    configure_logging("supervisor", settings.log_level, settings.log_format)
    watcher = None
    if reloads:
        roots = roots_of(module, [str(Path.cwd()), *sys.path])
        watcher = FileWatcher([*roots, *([Path(settings.config_file)] if settings.config_file else [])])
    supervisor = Supervisor(processes, stop_timeout=stop_timeout, reloads=reloads, rng=Random())
    tell = _tell if as_json else _tell_nothing
    with (
        SupervisorHealth(supervisor, health_host, health_port) as health,
        SupervisorMetrics(
            metrics_host, metrics_port, lambda: {slot.number: slot.restarts for slot in supervisor.slots}
        ) as metrics,
    ):
        if health.server is not None:
            tell("health", {"url": f"http://{health_host}:{health.server.port}"})
        if metrics.server is not None:
            tell("metrics", {"url": f"http://{metrics_host}:{metrics.server.port}/metrics"})

        def observe(running: Mapping[int, ChildProcess]) -> None:
            health.observe(running)
            metrics.observe(running)

        outcome = Processes(supervisor, settings, watcher, observe, metrics.on_report, tell).run()
    tell(
        "ended",
        {
            "exit_code": int(outcome.code),
            "complete": supervisor.is_complete,
            "until": settings.until,
            "message": outcome.message,
        },
    )
    if supervisor.is_complete:
        note(f"Everything until {settings.until} is processed.")
    if outcome.message is not None:
        raise CommandError(outcome.message, outcome.code)
    sys.exit(outcome.code)


def _given_source(streams: tuple[str, ...], dynamodb_table: str | None) -> tuple[tuple[str, ...], str | None]:
    """Return the streams and the table, without the file's values if the command line names one of the two."""
    context = click.get_current_context()
    is_of_file = {
        name: context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT_MAP
        for name in ("streams", "dynamodb_table")
    }
    if streams and not is_of_file["streams"] and is_of_file["dynamodb_table"]:
        return streams, None
    if dynamodb_table is not None and not is_of_file["dynamodb_table"] and is_of_file["streams"]:
        return (), dynamodb_table
    return streams, dynamodb_table


def _sources(
    connection: Connection, streams: tuple[str, ...], dynamodb_table: str | None
) -> tuple[KinesisClient, list[StreamId]]:
    """Return the streams to consume, and the client that reads them."""
    from kinesis_sdk.common.aws import make_client
    from kinesis_sdk.common.stream import StreamId
    from kinesis_sdk.consumer import DynamoDbStream

    if dynamodb_table is None:
        return connection.kinesis, [StreamId.parse(stream) for stream in streams]
    table = DynamoDbStream(dynamodb_table)
    client = make_client(
        "dynamodbstreams",
        session=connection.session,
        region_name=connection.region or table.region,
        endpoint_url=connection.endpoint_url,
    )
    return table.reader(client), [table.resolve(client)]


def _check_streams(client: KinesisClient, streams: list[StreamId]) -> None:
    """Check that the streams exist before a worker creates the lease table. Makes one ListShards call for each stream.

    Raises:
        AwsError: If a stream does not exist, or a call failed.
    """
    from kinesis_sdk.common.aws import call_with_retries

    for stream in streams:
        call_with_retries(
            lambda stream=stream: client.list_shards(**stream.request, MaxResults=1),  # type: ignore[misc]
            operation="ListShards",
            client=client,
        )


def _tell(event: str, facts: Mapping[str, Any]) -> None:
    """Print an event as a JSON line."""
    print_json_line({"event": event, "at": time.time(), **facts})
    sys.stdout.flush()


def _tell_nothing(event: str, facts: Mapping[str, Any]) -> None:
    del event, facts
