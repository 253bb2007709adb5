"""The command ``kinesis-sdk lag``."""

from __future__ import annotations

import click

from kinesis_sdk.cli.application import ALL_APPS_OPTION, ApplicationOptions, application_options
from kinesis_sdk.cli.options import DURATION, JSON_OPTION
from kinesis_sdk.cli.output import with_exit_codes


@click.command(short_help="Show how far behind each shard of an application, or each application, is.")
@application_options
@ALL_APPS_OPTION
@click.option("--max-lag", type=DURATION, help="Exit with 1 if a shard is more than this behind, such as 5m.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C; with --json, print one line each time.")
@click.option("--all", "show_all", is_flag=True, help="Show all shards of a large application.")
@JSON_OPTION
@with_exit_codes
def lag(
    *,
    app: ApplicationOptions,
    all_apps: bool,
    max_lag: float | None,
    watch: bool,
    show_all: bool,
    as_json: bool,
) -> None:
    r"""Show how far behind each shard of an application is, measured in the stream itself.

    The lag is the age of the oldest unprocessed record. Live workers of this SDK report how far they have processed; for other workers,
    records after the checkpoint count as unprocessed. AT CHECKPOINT is the lag of the checkpoint: if the owner dies now, records are
    processed again from there.

    The command works for KCL applications of every version. The command reads each shard once, which is one of the five reads per second
    that a shard
    allows. --watch reads a shard at most every 30 s, and never if its worker writes the lag to the lease table.

    --all-apps checks each application once, four at a time, and prints one line for each: applications with errors first, then by lag.
    An application that cannot be read is listed with the reason.

    Exit codes: 0, or 1 if --max-lag is given and a shard is further behind, or the lag of a shard is not known.

    \b
    Examples:
      kinesis-sdk lag billing
      kinesis-sdk lag billing --max-lag 5m
      kinesis-sdk lag billing --watch
      kinesis-sdk lag --all-apps
      kinesis-sdk lag billing --json | jq '.totals.worst_lag_millis'
    """
    if all_apps:
        _check_alone(watch=watch, show_all=show_all)
        from kinesis_sdk.cli.overview import show_overview

        show_overview(
            app.account.connect(),
            failover_time=app.failover_time,
            max_lag=max_lag,
            as_json=as_json,
        )
        return
    from kinesis_sdk.cli.lag_view import show_lag, watch_lag

    application = app.open()
    if watch:
        watch_lag(
            application, failover_time=app.failover_time, max_lag=max_lag, show_all=show_all, as_json=as_json
        )
    else:
        show_lag(
            application, failover_time=app.failover_time, max_lag=max_lag, show_all=show_all, as_json=as_json
        )


def _check_alone(*, watch: bool, show_all: bool) -> None:
    """Reject options that make no sense with ``--all-apps``, unless they come from a file of ``--config``."""
    context = click.get_current_context()
    typed = [
        label
        for name, label in (("application_name", "APP"), ("stream", "--stream"), ("table", "--table"))
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    typed += [label for given, label in ((watch, "--watch"), (show_all, "--all")) if given]
    if typed:
        raise click.UsageError(f"--all-apps checks every application once: leave out {' and '.join(typed)}.")
