"""``kinesis-sdk tail``: records of a stream, past or live."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kinesis_sdk.admin.payload import MAX_SHOWN_BYTES, PayloadKind, decode_payload, escaped
from kinesis_sdk.cli.interrupts import interrupt_on_terminate
from kinesis_sdk.cli.options import JSON_OPTION, ConnectionOptions, Ending, PositionType, connection_options
from kinesis_sdk.cli.output import note, print_json_line, with_exit_codes
from kinesis_sdk.common.clock import SystemClock
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import (
    AfterSequence,
    AtSequence,
    AtTimestamp,
    Latest,
    Position,
    TrimHorizon,
)
from kinesis_sdk.common.text import printable

if TYPE_CHECKING:
    from kinesis_sdk.admin.merge import ShardRecord


def starting(value: Position) -> datetime | Position:
    """Return the start for the value of ``--from``."""
    return value.moment if isinstance(value, AtTimestamp) else value


def ending(value: datetime | str | None) -> datetime | None:
    """Return the end for the value of ``--until``."""
    return datetime.now(timezone.utc) if isinstance(value, str) else value


def clock_and_sleep() -> dict[str, Any]:
    """Return the clock and the sleep of commands that read streams; tests replace this function."""
    return {"clock": SystemClock(), "sleep": time.sleep}


@click.command()
@click.argument("stream")
@click.option(
    "--from",
    "start",
    type=PositionType(TrimHorizon, Latest, AtTimestamp, AtSequence, AfterSequence),
    default="LATEST",
    show_default=True,
    help="Where to start: how long ago (-15m), a time (ISO 8601), TRIM_HORIZON or LATEST; with one --shard also at:<sequence number>, or after:.",
)
@click.option(
    "--until",
    type=Ending(),
    help="Where to end: how long ago, a time, or NOW. Without it, the stream is followed.",
)
@click.option(
    "--shard", "shards", multiple=True, metavar="SHARD", help="Only this shard; can be given several times."
)
@click.option(
    "--key", "keys", multiple=True, metavar="KEY", help="Only this partition key; can be given several times."
)
@click.option("--grep", metavar="REGEX", help="Only payloads that contain this text.")
@click.option(
    "--where",
    metavar="JMESPATH",
    help="Only JSON payloads for which this expression (as in --query of the AWS command line) is true, such as order.status=='failed'.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after this many records.")
@click.option(
    "--schema-registry", is_flag=True, help="Decode payloads of a Glue Schema Registry, before --grep."
)
@click.option(
    "--headers", is_flag=True, help="Also print the headers of each record; --json always has them."
)
@click.option("--raw", is_flag=True, help="Print only payloads, one per line, unchanged.")
@JSON_OPTION
@connection_options
@with_exit_codes
def tail(
    stream: str,
    start: Position,
    until: datetime | str | None,
    shards: tuple[str, ...],
    keys: tuple[str, ...],
    grep: str | None,
    where: str | None,
    limit: int | None,
    schema_registry: bool,
    headers: bool,
    raw: bool,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Print the records of STREAM (a name or an ARN), merged over its shards by arrival time.

    Aggregated records are opened, splits and merges are followed. A shard is read at most four times a second, and once a
    second at its tip. Records of several shards appear about a second after they arrived, because another shard could still have an
    earlier record. While --key, --grep or --where search, standard error shows the progress; Ctrl-C ends the search. --json prints one
    object a line. tail shows every stored copy, including repetitions that consumers leave out.

    \b
    Examples:
      kinesis-sdk tail orders
      kinesis-sdk tail orders --from -15m --until now --grep '"status": *"failed"'
      kinesis-sdk tail orders --from -6h --until now --where "order.id == \`4711\` || contains(order.items[].sku, 'A-7')" --limit 10
      kinesis-sdk tail orders --from 2026-11-22T09:00:00Z --key customer-7 --limit 20
      kinesis-sdk tail orders --from TRIM_HORIZON --raw | head -1
      kinesis-sdk tail orders --shard 5 --from at:49646437577108476416916876405888793568205392454944292866 --limit 1
      kinesis-sdk tail orders --from -1h --until now --json | jq -r .partition_key | sort | uniq -c
    """
    from kinesis_sdk.admin.reading import RecordFilter, read_stream
    from kinesis_sdk.admin.search import Search

    if raw and headers:
        raise ConfigError("raw", True, "one of --raw and --headers")
    if raw and as_json:
        raise ConfigError("raw", True, "one of --raw and --json")
    if isinstance(start, (AtSequence, AfterSequence)) and len(shards) != 1:
        raise ConfigError("shard", list(shards), "exactly one shard for a sequence number")
    wanted = RecordFilter.make(keys, grep, where)
    text = partial(_write_text, headers=headers)
    write = _write_raw if raw else _write_json if as_json else text
    connection = account.connect()
    reading = read_stream(
        connection,
        stream,
        start=starting(start),
        until=ending(until),
        shards=shards,
        notice=note,
        **clock_and_sleep(),
    )
    with interrupt_on_terminate(), closing(reading):
        records: Iterator[ShardRecord] = reading
        if schema_registry:
            from kinesis_sdk.cli.schema_view import SchemaView

            view = SchemaView(connection.client("glue"), note)
            records = (one._replace(record=view.shown(stream, one.record)) for one in reading)
        search = Search(
            records,
            wanted,
            limit=limit,
            on_progress=lambda one: None if wanted.is_all else note(one.summary()),
            clock=clock_and_sleep()["clock"],
        )
        try:
            for one in search:
                write(one)
                # A live tail must not show records late, and the reader of a pipe may have gone.
                sys.stdout.flush()
        finally:
            if not wanted.is_all:
                note(f"{search.summary()}.")


def _write_raw(one: ShardRecord) -> None:
    if sys.stdout.isatty():
        # A record may hold sequences that control the terminal.
        click.echo(escaped(one.record.data.decode("utf-8", "backslashreplace")))
        return
    sys.stdout.buffer.write(one.record.data + b"\n")


def _write_json(one: ShardRecord) -> None:
    from kinesis_sdk.admin.records import record_to_dict

    print_json_line(record_to_dict(one.shard_id, one.record))


def _write_text(one: ShardRecord, *, headers: bool) -> None:
    from kinesis_sdk.admin.lineage import shard_label
    from kinesis_sdk.admin.records import shown_headers

    record = one.record
    decoded = decode_payload(record.data, limit=MAX_SHOWN_BYTES)
    arrived = record.approximate_arrival_timestamp
    when = (
        "" if arrived is None else arrived.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
    )
    place = f"{record.sequence_number}" + (f"/{record.sub_sequence_number}" if record.aggregated else "")
    hash_key = "" if record.explicit_hash_key is None else f"  hash key {printable(record.explicit_hash_key)}"
    head = f"{when}  shard {shard_label(one.shard_id)}  {printable(record.partition_key)}{hash_key}  {place}"
    click.secho(head, dim=True)
    if headers:
        for name, value in shown_headers(record.headers).items():
            click.secho(f"  {printable(name)}: {printable(value, MAX_SHOWN_BYTES)}", dim=True)
    body = escaped(decoded.pretty())
    if decoded.kind is PayloadKind.EMPTY:
        body = "(empty)"
    if decoded.truncated:
        body += f"\n… {decoded.size:,} bytes in all; --raw prints them"
    click.echo(body)
