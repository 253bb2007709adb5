"""The command ``kinesis-sdk demo``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from kinesis_sdk.cli.extras import need
from kinesis_sdk.cli.options import JSON_OPTION, PORT, ConnectionOptions, Duration, connection_options
from kinesis_sdk.cli.output import CommandError, ExitCode, with_exit_codes

if TYPE_CHECKING:
    from kinesis_sdk.admin import Connection

_UI_DURATION = 90.0
"""Seconds over which the puts are spread with a console: the split comes after 36 s, the kill after 54 s."""


@click.command(
    short_help="Put records, consume them during a split and crashes, and account for each effect."
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="How many times to put the 20,000 flights.",
)
@click.option(
    "--shards",
    type=click.IntRange(1, 100),
    default=4,
    show_default=True,
    help="Shards of the stream that the demo creates.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 16),
    default=3,
    show_default=True,
    help="Consumer worker processes; with two or more, one is killed during the run, and with three or more, another one is frozen.",
)
@click.option(
    "--duration",
    type=Duration(0.0, 3600.0),
    default="12s",
    show_default=True,
    help="Time over which the puts are spread; 0 puts as fast as the shards accept them.",
)
@click.option(
    "--failover-time",
    type=Duration(1.0, 300.0),
    default="3s",
    show_default=True,
    help="Failover time of the workers: an owner that has not renewed its leases for longer counts as silent.",
)
@click.option(
    "--split-shard/--no-split-shard",
    default=True,
    help="Split a shard during the run.",
    show_default=True,
)
@click.option(
    "--kill-worker/--no-kill-worker",
    default=True,
    help="Kill a worker (SIGKILL) during the run.",
    show_default=True,
)
@click.option(
    "--freeze-worker/--no-freeze-worker",
    default=True,
    help="Freeze a worker (SIGSTOP) for longer than its leases last, then resume it.",
    show_default=True,
)
@click.option(
    "--lose-responses/--no-lose-responses",
    default=True,
    help="Make the demo's fake AWS lose responses to PutRecords, and store one request only after its retry.",
    show_default=True,
)
@click.option(
    "--exactly-once/--no-exactly-once",
    default=True,
    help="Put with idempotent=True, and commit effects and positions in one SQLite transaction (extra sql). "
    "Without it, records are processed at least once, and duplicates need a reason.",
    show_default=True,
)
@click.option(
    "--stream",
    metavar="STREAM",
    help="Name or ARN of the stream: use this existing stream, and your AWS account unless --endpoint-url is given. "
    "It is not resharded and not deleted.",
)
@click.option(
    "--ui",
    "with_ui",
    is_flag=True,
    help="Show the run in a browser while it lasts; the puts are then spread over 90 s unless --duration is given.",
)
@click.option(
    "--ui-port",
    type=PORT,
    default=8787,
    show_default=True,
    help="TCP port of --ui; 0 takes a free one.",
)
@JSON_OPTION
@connection_options
@click.pass_context
@with_exit_codes
def demo(
    context: click.Context,
    *,
    repeat: int,
    shards: int,
    workers: int,
    duration: float,
    failover_time: float,
    split_shard: bool,
    kill_worker: bool,
    freeze_worker: bool,
    lose_responses: bool,
    exactly_once: bool,
    stream: str | None,
    with_ui: bool,
    ui_port: int,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Put records, consume them during a split and crashes, and account for each effect.

    Starts a fake AWS in its own process, or uses the endpoint of --endpoint-url, creates a stream, and puts 20,000 flights (US on-time
    statistics,
    2001), partitioned by origin. Worker processes consume them through a DynamoDB lease table, and write an effect for
    each record into a SQLite database. During the run, responses of PutRecords are lost, one worker is frozen, one
    shard is split and one worker is killed. At the end, every record that was put is compared with its effects: each record must have
    exactly one effect.

    Exits with 1 if a record was lost, had two effects, or took effect out of order.

    \b
    Examples:
      kinesis-sdk demo
      kinesis-sdk demo --repeat 10 --json
      kinesis-sdk demo --ui
      kinesis-sdk demo --endpoint-url http://localhost:4566
      kinesis-sdk demo --stream my-stream --region eu-west-1 --no-kill-worker
      kinesis-sdk demo --no-exactly-once
    """
    from kinesis_sdk.testing.demo.options import DemoOptions
    from kinesis_sdk.testing.demo.progress import make_progress
    from kinesis_sdk.testing.demo.report import print_report
    from kinesis_sdk.testing.demo.runner import run_demo

    if exactly_once:
        try:
            need("sqlalchemy", "sql")
        except CommandError as error:
            message = f"{error.message}. Without it, the demo runs with --no-exactly-once"
            raise CommandError(message, ExitCode.USAGE) from error
    if with_ui:
        need("starlette", "ui")
        need("uvicorn", "ui")
        if context.get_parameter_source("duration") is ParameterSource.DEFAULT:
            duration = _UI_DURATION
    options = DemoOptions(
        repeat=repeat,
        shards=shards,
        workers=workers,
        duration=duration,
        failover_time=failover_time,
        split_shard=split_shard and stream is None,
        kill_worker=kill_worker and workers > 1,
        freeze_worker=freeze_worker and workers > 2 and sys.platform != "win32",
        lose_responses=lose_responses and stream is None and account.endpoint_url is None,
        exactly_once=exactly_once,
        endpoint_url=account.endpoint_url,
        stream=stream,
        region=account.region,
        profile=account.profile,
    )
    console = partial(_serve_console, ui_port) if with_ui else None
    try:
        with make_progress(quiet=as_json) as progress:
            report = run_demo(options, progress, console)
    except KeyboardInterrupt:
        click.echo("Stopped. Worker processes and the fake AWS have ended.", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    print_report(report, as_json=as_json)
    sys.exit(ExitCode.DONE if report.passed else ExitCode.BAD_ANSWER)


@contextmanager
def _serve_console(
    port: int, connection: Connection, application: str, stream: str, failover_time: float
) -> Iterator[str]:
    from kinesis_sdk.cli.web.admin_backend import AdminBackend
    from kinesis_sdk.cli.web.server import ConsoleServer

    names = (application,)
    backend = AdminBackend(connection, applications=names, stream=stream, failover_time=failover_time)
    server = ConsoleServer(backend, port=port, applications=names, stream=stream)
    server.start()
    try:
        yield server.url
    finally:
        server.stop()
