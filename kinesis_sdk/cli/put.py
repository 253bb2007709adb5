"""``kinesis-sdk put``: files into a stream."""

from __future__ import annotations

import sys

import click

from kinesis_sdk.admin.transfer.files import FORMATS, RANDOM_KEY, FileFormat, open_files
from kinesis_sdk.cli.interrupts import interrupt_on_terminate
from kinesis_sdk.cli.options import (
    AGGREGATE_OPTION,
    JSON_OPTION,
    QUIET_OPTION,
    RATE_OPTION,
    STATE_OPTION,
    TTL_OPTION,
    ConnectionOptions,
    connection_options,
    ordered_option,
)
from kinesis_sdk.cli.output import print_json, with_exit_codes


@click.command()
@click.argument("stream")
@click.argument("files", nargs=-1, metavar="[FILES | -]...")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    help="auto infers the format from the file name, and reads standard input as lines.",
)
@click.option(
    "--key",
    default=RANDOM_KEY,
    show_default=True,
    metavar="FIELD|random",
    help="Field whose value is the partition key (a.b for nested objects).",
)
@click.option(
    "--explicit-hash-key", "hash_key", metavar="FIELD", help="Field whose value is the explicit hash key."
)
@RATE_OPTION
@STATE_OPTION
@click.option(
    "--spool",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Append records that failed to this file.",
)
@ordered_option(False)
@AGGREGATE_OPTION
@TTL_OPTION
@QUIET_OPTION
@JSON_OPTION
@connection_options
@with_exit_codes
def put(
    stream: str,
    files: tuple[str, ...],
    file_format: FileFormat,
    key: str,
    hash_key: str | None,
    rate: float | None,
    state: str | None,
    spool: str | None,
    ordered: bool,
    aggregate: bool,
    ttl: float,
    quiet: bool,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Put the records of FILES, or of standard input, into STREAM (a name or an ARN).

    Formats: lines, NDJSON, CSV (each row becomes a JSON object), Parquet (with pyarrow), and spools of the producer; .gz is opened.

    With --state, the same command continues a run that was stopped or killed. It repeats only records that failed, were in flight, or were
    acknowledged in the last 0.2 seconds before a kill. Ctrl-C stops reading and waits for the records in flight; a
    second Ctrl-C does not wait.

    Exit codes: 0 if every record is stored; 1 if some records failed, or their input is invalid.

    \b
    Examples:
      kinesis-sdk put orders orders.ndjson --key customer.id
      kinesis-sdk put orders day1.csv day2.csv.gz --key id --rate 500 --state load.state
      journalctl -f -o json | kinesis-sdk put logs - --format ndjson --key _HOSTNAME
      kinesis-sdk put orders unsent.spool
    """
    from kinesis_sdk.admin.transfer.put import bulk_config, put_files
    from kinesis_sdk.admin.transfer.state import StateFile
    from kinesis_sdk.cli.transfer_report import ProgressReport, exit_code, result_text, tell
    from kinesis_sdk.producer import FileSpool

    report = ProgressReport(quiet=quiet)
    with interrupt_on_terminate(), report.shown():
        result = put_files(
            account.connect(),
            stream,
            open_files(files, file_format=file_format, key=key, hash_key=hash_key),
            rate=rate,
            state=None if state is None else StateFile(state),
            config=bulk_config(ordered=ordered, aggregate=aggregate, ttl=ttl),
            on_record_failed=None if spool is None else FileSpool(spool),
            on_progress=report,
        )
    tell(result, state=state)
    if as_json:
        print_json(result)
    else:
        click.echo(result_text(result))
    sys.exit(exit_code(result))
