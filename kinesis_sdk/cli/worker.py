"""The commands ``kinesis-sdk worker …``: list, drain and undrain workers."""

from __future__ import annotations

import click

from kinesis_sdk.admin.fleet.formatting import counted
from kinesis_sdk.cli.application import ApplicationOptions, application_options
from kinesis_sdk.cli.lazy_group import LazyGroup
from kinesis_sdk.cli.options import JSON_OPTION
from kinesis_sdk.cli.output import note, print_json, with_exit_codes
from kinesis_sdk.cli.steer import desk_of
from kinesis_sdk.common.text import printable

_WORKER = {
    "list": ("kinesis_sdk.cli.worker:list_workers", "List the workers of an application."),
    "drain": ("kinesis_sdk.cli.steer:drain", "Let a worker hand off all its leases and take none."),
    "undrain": ("kinesis_sdk.cli.steer:undrain", "Let a drained worker take leases again."),
}
"""Home and short help of each command of the group."""


@click.group(cls=LazyGroup, homes=_WORKER, short_help="List workers, drain one before maintenance.")
def worker() -> None:
    """List the workers of an application, and drain a worker before maintenance."""


@click.command("list", short_help="List the workers of an application.")
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
    from kinesis_sdk.admin.changes import marks

    found = marks.list_workers(desk_of(app), watch=not quick)
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
