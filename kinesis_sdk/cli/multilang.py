"""`kinesis-sdk multilang`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import click

from kinesis_sdk.cli.options import JSON_OPTION, ConnectionOptions, connection_options, log_options
from kinesis_sdk.cli.output import CommandError, ExitCode, note, print_json_line, with_exit_codes

if TYPE_CHECKING:
    from kinesis_sdk.consumer import RecordHandler


@click.command()
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-p",
    "--properties-file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="The properties file, under the Java daemon's name for this option; the same as the argument FILE.",
)
@click.option(
    "-l",
    "--log-configuration",
    metavar="FILE",
    help="Accepted but ignored: the Java daemon's logback.xml. See --log-level.",
)
@click.option(
    "--on-child-failure",
    type=click.Choice(["restart", "exit"]),
    help="When a child fails: restart its shard at the checkpoint, or exit with code 1 as the Java daemon does. By "
    "default onChildFailure of the file, else restart.",
)
@click.option(
    "--in-process",
    metavar="MODULE:PROCESSOR",
    help="Run a processor written for amazon_kclpy or kinesis_sdk.kclpy in this process, instead of the program in executableName: a class, "
    "or a function that returns one, of a module in the current directory or an installed package.",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve /live, /ready and /status at this port; 0 picks one.",
)
@click.option(
    "--health-host",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="Address of the health endpoint; 0.0.0.0 for Kubernetes.",
)
@log_options
@click.option(
    "--raw-stderr",
    is_flag=True,
    help="Write the standard error of children unchanged, without time and shard.",
)
@click.option("--check", is_flag=True, help="Check the file, name keys without effect, and start nothing.")
@JSON_OPTION
@connection_options
@with_exit_codes
def multilang(
    *,
    file: str | None,
    properties_file: str | None,
    log_configuration: str | None,
    on_child_failure: Literal["restart", "exit"] | None,
    in_process: str | None,
    health_port: int | None,
    health_host: str,
    log_level: str,
    log_format: str,
    raw_stderr: bool,
    check: bool,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Run a KCL application in any language, from its properties file: the MultiLangDaemon without Java.

    The program of executableName is started once for each shard, and exchanges records with the command over standard input and output by
    the MultiLang protocol. Applications for the Java daemon (amazon_kclpy, aws-kcl for Node, Ruby, .NET) run unchanged, with
    the same properties file and lease table.

    A failing child ends only itself: its shard starts again at its checkpoint, after a growing pause. Ctrl-C or
    SIGTERM gives every child shutdownRequested and leaseLost within shutdownGraceMillis (30 s, unless the file has another value); a
    second signal stops the children at once. The standard error of children is logged.

    The file is read strictly: a malformed number is an error, and a key that has no effect is named with the reason. Only this command has
    the keys onChildFailure (restart, exit), onChildException (ignore, restart), childExitGraceMillis and
    batchRecords (maximum records of a processRecords message).

    --json prints one event per line: checked, started (once the worker consumes and the health endpoint is open), ended. The log
    stays on standard error.

    Exit codes: 0 stopped; 1 a child failed with onChildFailure = exit, or the stop was not clean; 2 the file or an option is
    wrong; 3 a call failed.

    \b
    Examples:
      kinesis-sdk multilang app.properties
      kinesis-sdk multilang app.properties --check
      kinesis-sdk multilang --properties-file app.properties --log-format json --health-port 8080
      kinesis-sdk multilang app.properties --in-process my_app:RecordProcessor
      kinesis-sdk multilang app.properties --endpoint-url http://localhost:4566 --region us-east-1
    """
    if os.name != "posix":
        raise CommandError("multilang needs a POSIX system.", ExitCode.USAGE)
    if (file is None) == (properties_file is None):
        raise click.UsageError("Give the properties file, once.")
    from dataclasses import replace

    from kinesis_sdk.cli.run.logs import configure_logging
    from kinesis_sdk.multilang.command import check_command
    from kinesis_sdk.multilang.daemon import MultiLangDaemon, Overrides
    from kinesis_sdk.multilang.settings import load_settings

    path = file or properties_file
    assert path is not None
    settings = load_settings(path, needs_executable=in_process is None)
    handler = None
    if in_process is None:
        check_command(settings.words)
    else:
        handler = _processors(in_process, empty_batches=settings.empty_batches)
    if on_child_failure is not None:
        settings = replace(settings, on_child_failure=on_child_failure)
    notes = [{"key": key, "reason": reason} for key, reason in settings.notes]
    if check and as_json:
        print_json_line({"event": "checked", "file": path, "notes": notes})
        return
    if check:
        for key, why in settings.notes:
            click.echo(f"{key}: {why}")
        note(
            f"{path} can be run."
            if not settings.notes
            else f"{path} can be run, apart from what is named above."
        )
        return
    session = account.connect().session if account.profile is not None else None
    daemon = MultiLangDaemon(
        settings,
        overrides=Overrides(region_name=account.region, endpoint_url=account.endpoint_url, session=session),
        handler=handler,
        health_port=health_port,
        health_host=health_host,
    )
    configure_logging(daemon.worker.worker_id, log_level.upper(), "json" if log_format == "json" else "text")
    _configure_children(raw_stderr=raw_stderr, as_json=log_format == "json")
    logger = logging.getLogger("kinesis_sdk.multilang")
    for key, why in settings.notes:
        logger.warning("%s: %s is not applied as it is written: %s", path, key, why)
    if log_configuration is not None:
        logger.warning(
            "%s is not used: logback is Java's; see --log-level and --log-format", log_configuration
        )
    if settings.metrics is None:
        logger.info("no metrics are uploaded to CloudWatch; metricsLevel = SUMMARY or DETAILED turns them on")

    def started() -> None:
        worker = daemon.worker
        health = None if worker.health_port is None else f"http://{health_host}:{worker.health_port}"
        print_json_line({"event": "started", "worker": worker.worker_id, "health": health, "notes": notes})
        sys.stdout.flush()

    outcome = daemon.run(started if as_json else None)
    if as_json:
        print_json_line({"event": "ended", "clean": outcome.clean, "failure": outcome.failure})
    if outcome.failure is not None:
        raise CommandError(f"Stopped, because {outcome.failure}", ExitCode.BAD_ANSWER)
    if not outcome.clean:
        raise CommandError(
            "The stop was not clean: some records will be processed again.", ExitCode.BAD_ANSWER
        )


def _processors(name: str, *, empty_batches: bool) -> Callable[[], RecordHandler]:
    """Return the handlers of ``--in-process``."""
    from kinesis_sdk.cli.run.handlers import HandlerNotFoundError, load_handler
    from kinesis_sdk.multilang.in_process import processor_handlers

    try:
        return processor_handlers(load_handler(name), empty_batches=empty_batches)
    except HandlerNotFoundError as error:
        raise CommandError(f"--in-process: {error}", ExitCode.USAGE) from error


def _configure_children(*, raw_stderr: bool, as_json: bool) -> None:
    """Let lines of children name their shard in the log; with ``raw_stderr``, write their standard error unchanged."""
    from kinesis_sdk.cli.run.logs import JsonFormatter
    from kinesis_sdk.multilang.children import OUTPUT_LOGGER

    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(
        JsonFormatter() if as_json else logging.Formatter("%(asctime)s %(levelname)s [%(shard)s] %(message)s")
    )
    logger = logging.getLogger(OUTPUT_LOGGER)
    logger.handlers = [lines]
    logger.propagate = False
    if raw_stderr:
        raw = logging.StreamHandler(sys.stderr)
        raw.addFilter(lambda record: record.levelno >= logging.WARNING)
        raw.setFormatter(logging.Formatter("%(message)s"))
        lines.addFilter(lambda record: record.levelno < logging.WARNING)
        logger.addHandler(raw)
