"""The command ``kinesis-sdk balance``."""

from __future__ import annotations

import click

from kinesis_sdk.cli.application import ApplicationOptions, application_options
from kinesis_sdk.cli.options import DURATION, JSON_OPTION
from kinesis_sdk.cli.output import note, print_json, with_exit_codes


@click.command()
@application_options
@click.option(
    "--separator",
    default="|",
    show_default=True,
    help="Text that follows the group's label in a worker id, such as - in cluster-worker.",
)
@click.option(
    "--watch-for",
    type=DURATION,
    default="0s",
    help="Watch for this long first, such as 25s, so that workers that no longer renew their leases get no share.",
)
@JSON_OPTION
@with_exit_codes
def balance(
    *,
    app: ApplicationOptions,
    separator: str,
    watch_for: float,
    as_json: bool,
) -> None:
    r"""Show how evenly the leases are spread over workers, and over groups of workers such as zones.

    The group of a worker is the part of its id before the separator. Ids without a separator have no group.

    \b
    Examples:
      kinesis-sdk balance billing
      kinesis-sdk balance billing --separator -
    """
    from kinesis_sdk.admin.fleet.balance import balance_of
    from kinesis_sdk.admin.fleet.observe import FleetObserver
    from kinesis_sdk.admin.fleet.reader import FleetReader
    from kinesis_sdk.cli.balance_view import print_balance

    application = app.open()
    reader = FleetReader(
        application,
        observer=FleetObserver(app.name, failover_time=app.failover_time, separator=separator or "|"),
    )
    view = reader.table()
    if watch_for:
        note(f"Watching for {watch_for:g} s ...")
        view = reader.watch(watch_for)
    found = balance_of(view, separator or "|")
    if as_json:
        print_json(found)
        return
    print_balance(app.name, found)
