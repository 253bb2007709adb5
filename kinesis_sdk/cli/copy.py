"""``kinesis-sdk copy``: a window of a stream into another stream."""

from __future__ import annotations

import sys
from datetime import datetime

import click

from kinesis_sdk.cli.interrupts import interrupt_on_terminate
from kinesis_sdk.cli.options import (
    AGGREGATE_OPTION,
    BEGINNING,
    JSON_OPTION,
    QUIET_OPTION,
    RATE_OPTION,
    STATE_OPTION,
    TTL_OPTION,
    ConnectionOptions,
    Ending,
    connection_options,
    ordered_option,
)
from kinesis_sdk.cli.output import note, print_json, with_exit_codes
from kinesis_sdk.cli.tail import clock_and_sleep, ending, starting
from kinesis_sdk.common.position import Position


@click.command()
@click.argument("source")
@click.argument("target")
@click.option(
    "--from",
    "start",
    type=BEGINNING,
    default="TRIM_HORIZON",
    show_default=True,
    help="Where to start: how long ago (-15m), a time (ISO 8601), TRIM_HORIZON or LATEST.",
)
@click.option("--until", type=Ending(), help="Where to end: how long ago, a time, or NOW (the default).")
@click.option("--follow", is_flag=True, help="Keep copying until Ctrl-C.")
@click.option("--to-region", metavar="REGION", help="Region of TARGET; by default that of SOURCE.")
@click.option("--to-profile", metavar="NAME", help="Profile for TARGET; by default that of SOURCE.")
@click.option("--to-endpoint-url", metavar="URL", help="Endpoint of TARGET; by default that of SOURCE.")
@RATE_OPTION
@STATE_OPTION
@ordered_option(True)
@AGGREGATE_OPTION
@TTL_OPTION
@QUIET_OPTION
@JSON_OPTION
@connection_options
@with_exit_codes
def copy(
    source: str,
    target: str,
    start: Position,
    until: datetime | str | None,
    follow: bool,
    to_region: str | None,
    to_profile: str | None,
    to_endpoint_url: str | None,
    rate: float | None,
    state: str | None,
    ordered: bool,
    aggregate: bool,
    ttl: float,
    quiet: bool,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Copy the user records of SOURCE into TARGET, with their partition keys and explicit hash keys: replay, migration.

    The records of a key keep their order, over splits and merges of both streams. After a lost response or a kill, some records are stored
    a second time, later than their place in this order. With --state, the same command continues a run that was stopped or killed, with the
    window of
    the first run.

    Kinesis returns the explicit hash key of a record only if the record is in an aggregate. All other records that had one are placed by
    their partition key, and counted. Every stored copy is copied, including repetitions of idempotent producers, which consumers of SOURCE
    leave out.

    \b
    Examples:
      kinesis-sdk copy orders orders-replay --from -2h --until -1h
      kinesis-sdk copy orders orders --to-region eu-central-1 --follow --state mirror.state
      kinesis-sdk copy orders orders --from -1d --to-endpoint-url http://localhost:4566
    """
    from kinesis_sdk.admin.connection import Connection
    from kinesis_sdk.admin.transfer.copy import copy_stream
    from kinesis_sdk.admin.transfer.put import bulk_config
    from kinesis_sdk.admin.transfer.state import StateFile
    from kinesis_sdk.cli.transfer_report import ProgressReport, exit_code, result_text, tell

    origin = account.connect()
    goal = origin
    if (to_region, to_profile, to_endpoint_url) != (None, None, None):
        goal = Connection(
            region=to_region or origin.region,
            profile=to_profile or origin.profile,
            endpoint_url=to_endpoint_url or (origin.endpoint_url if to_region is None else None),
        )
    report = ProgressReport(quiet=quiet)
    with interrupt_on_terminate(), report.shown():
        result = copy_stream(
            origin,
            source,
            goal,
            target,
            start=starting(start),
            until=ending(until),
            follow=follow,
            rate=rate,
            state=None if state is None else StateFile(state),
            config=bulk_config(ordered=ordered, aggregate=aggregate, ttl=ttl),
            on_progress=report,
            **clock_and_sleep(),
            notice=note,
        )
    tell(result.transfer, state=state)
    if result.hidden_hash_keys:
        note(
            f"{result.hidden_hash_keys:,} records had an explicit hash key that Kinesis does not give back; their partition "
            "key places them in the target."
        )
    if as_json:
        print_json(result)
    else:
        click.echo(result_text(result.transfer))
    sys.exit(exit_code(result.transfer))
