"""The command ``kinesis-sdk lag``."""

from __future__ import annotations

import click

from kinesis_sdk.cli.application import application_options, open_application
from kinesis_sdk.cli.options import DURATION, JSON_OPTION
from kinesis_sdk.cli.output import with_exit_codes


@click.command()
@application_options
@click.option("--max-lag", type=DURATION, help="Exit with 1 if a shard is more than this behind, such as 5m.")
@click.option("--watch", is_flag=True, help="Keep looking until Ctrl-C; with --json one line for each look.")
@click.option("--all", "show_all", is_flag=True, help="Show all shards of a large application.")
@JSON_OPTION
@with_exit_codes
def lag(
    *,
    application_name: str,
    stream: str | None,
    table: str | None,
    failover_time: float,
    max_lag: float | None,
    watch: bool,
    show_all: bool,
    as_json: bool,
    region: str | None,
    profile: str | None,
    endpoint_url: str | None,
    lease_store: str | None,
) -> None:
    r"""Show how far behind each shard of an application is, measured in the stream itself.

    The lag is the age of the oldest unprocessed record. Live workers of this SDK report what they have processed; for others,
    what was not checkpointed counts as unprocessed. AT CHECKPOINT is the lag of the checkpoint: if the owner dies now, records are
    processed again from there.

    It works for KCL applications of every version. Each shard is read once, which is one of the five reads a second that it allows; --watch
    asks a shard at most every 30 s, and not at all where the worker writes its lag to the lease table.

    Exit codes: 0, or 1 if --max-lag is given and a shard is further behind, or the lag of one is not known.

    \b
    Examples:
      kinesis-sdk lag billing
      kinesis-sdk lag billing --max-lag 5m
      kinesis-sdk lag billing --watch
      kinesis-sdk lag billing --json | jq '.totals.worst_lag_millis'
    """
    from kinesis_sdk.cli.lag_view import show_lag, watch_lag

    application = open_application(
        application_name,
        stream,
        table,
        region=region,
        profile=profile,
        endpoint_url=endpoint_url,
        lease_store=lease_store,
    )
    if watch:
        watch_lag(
            application, failover_time=failover_time, max_lag=max_lag, show_all=show_all, as_json=as_json
        )
    else:
        show_lag(
            application, failover_time=failover_time, max_lag=max_lag, show_all=show_all, as_json=as_json
        )
