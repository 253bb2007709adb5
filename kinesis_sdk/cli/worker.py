"""The commands ``kinesis-sdk worker …``: list, drain and undrain workers."""

from __future__ import annotations

import shlex
from typing import Any

import click

from kinesis_sdk.admin.fleet.words import counted
from kinesis_sdk.cli.application import ApplicationOptions, application_options
from kinesis_sdk.cli.lazy_group import LazyGroup
from kinesis_sdk.cli.options import DURATION, JSON_OPTION
from kinesis_sdk.cli.output import CommandError, ExitCode, confirm, note, print_json, with_exit_codes
from kinesis_sdk.cli.steer import Session, change_options, surroundings
from kinesis_sdk.common.text import printable


@click.group(cls=LazyGroup, short_help="List workers, drain one before maintenance.")
def worker() -> None:
    """List the workers of an application, and drain one before maintenance."""


@worker.command("list", short_help="List the workers of an application.")
@application_options
@click.option("--quick", is_flag=True, help="Do not wait to see which workers are alive.")
@JSON_OPTION
@with_exit_codes
def list_workers(quick: bool, as_json: bool, app: ApplicationOptions) -> None:
    r"""List the workers that the lease table names: kind, leases, alive or not, draining.

    \b
    Example:
      kinesis-sdk worker list billing
    """
    from kinesis_sdk.admin.changes.workers import WorkerMarks

    marks = WorkerMarks(app.open(), failover_time=app.failover_time, report=note, **surroundings())
    found = marks.workers(watch=not quick)
    if as_json:
        print_json(found)
        return
    states = {True: "alive", False: "silent", None: "unknown"}
    for one in found:
        flags = ", draining" if one.is_draining else ""
        flags += f", {counted(one.pinned, 'lease')} pinned to it" if one.pinned else ""
        click.echo(
            f"{printable(one.worker_id)}  {one.kind.value}  {counted(one.leases, 'lease')}  {states[one.is_alive]}{flags}"
        )
    if not found:
        note("The table names no worker.")


@worker.command(short_help="Let a worker hand off all its leases and take none.")
@change_options
@click.argument("worker_id", metavar="WORKER")
@click.option(
    "--timeout",
    type=DURATION,
    default="10m",
    show_default=True,
    help="How long to wait until it holds nothing; the drain goes on.",
)
def drain(worker_id: str, timeout: float, app: ApplicationOptions, **options: Any) -> None:
    r"""Drain a worker: it hands off all its leases, takes none, and stays up until `undrain` or its end.

    The command returns when no row has named the worker for two failover times.

    \b
    Example:
      kinesis-sdk worker drain billing web07:4711
    """
    session = Session(app, options)
    marks = session.marks()
    command = session.command("worker", "drain", app.name, worker_id)
    writes = marks.plan_drain(worker_id)
    for write in writes:
        note(write)
    note(f"Command: kinesis-sdk {shlex.join(command)}")
    if session.dry_run:
        if session.as_json:
            print_json({"writes": writes, "drained": False})
        return
    confirm(f"Drain {printable(worker_id)}?", yes=session.yes)
    marks.drain(worker_id, command=command)
    drained = marks.wait_drained(worker_id, timeout=timeout)
    if session.as_json:
        print_json({"writes": writes, "drained": drained})
    if not drained:
        raise CommandError(
            f"{printable(worker_id)} still holds leases; the drain goes on, see: kinesis-sdk "
            + shlex.join(session.command("worker", "list", app.name)),
            ExitCode.BAD_ANSWER,
        )
    undo = session.command("worker", "undrain", app.name, worker_id)
    note(
        f"Done: no lease names {printable(worker_id)}. Stop it, or undo this with: kinesis-sdk {shlex.join(undo)}"
    )


@worker.command(short_help="Let a drained worker take leases again.")
@change_options
@click.argument("worker_id", metavar="WORKER")
def undrain(worker_id: str, app: ApplicationOptions, **options: Any) -> None:
    r"""End a drain: the worker takes leases again.

    \b
    Example:
      kinesis-sdk worker undrain billing web07:4711
    """
    session = Session(app, options)
    marks = session.marks()
    command = session.command("worker", "undrain", app.name, worker_id)
    writes = marks.plan_drain(worker_id, on=False)
    for write in writes:
        note(write)
    note(f"Command: kinesis-sdk {shlex.join(command)}")
    if not session.dry_run and writes:
        confirm(f"Let {printable(worker_id)} take leases again?", yes=session.yes)
        marks.undrain(worker_id, command=command)
    if session.as_json:
        print_json({"writes": writes, "done": bool(writes) and not session.dry_run})
    note(
        "Done."
        if writes and not session.dry_run
        else "Nothing was changed."
        if writes
        else "It does not drain."
    )
