"""Commands about streams: ``kinesis-sdk stream …``."""

from __future__ import annotations

import sys
import time

import click

from kinesis_sdk.admin import Streams
from kinesis_sdk.admin.lineage import Lineage, shard_label
from kinesis_sdk.admin.load import ShardLoad, sample_load
from kinesis_sdk.admin.resharding import Resharding
from kinesis_sdk.admin.scaling import METHODS, MergeAt, ScaleMethod, SplitAt, UpdateCount
from kinesis_sdk.admin.streams import StreamMode
from kinesis_sdk.cli.extras import need
from kinesis_sdk.cli.lazy_group import LazyGroup
from kinesis_sdk.cli.options import (
    DURATION,
    JSON_OPTION,
    YES_OPTION,
    ConnectionOptions,
    connection_options,
)
from kinesis_sdk.cli.output import (
    confirm,
    console,
    note,
    print_json,
    print_json_line,
    refuse,
    with_exit_codes,
)
from kinesis_sdk.cli.stream_picture import WIDTH, description_text, picture
from kinesis_sdk.common.errors import ConfigError

_TIMEOUT = click.option(
    "--timeout",
    type=DURATION,
    default="10m",
    show_default=True,
    help="How long to wait for Kinesis; the change continues without this command.",
)
_LEAST_INTERVAL = 2.0


@click.group(cls=LazyGroup)
def stream() -> None:
    r"""List, describe, create, delete and reshard streams.

    \b
    Examples:
      kinesis-sdk stream list
      kinesis-sdk stream describe orders --load
      kinesis-sdk stream create orders --shards 4 --retention 48 --tag team=billing
      kinesis-sdk stream scale orders 12
      kinesis-sdk stream watch orders

    A shard is named by its id or its number: shardId-000000000003, 3 and 0003 are the same.
    """


@stream.command("list", short_help="List the streams of the account and region.")
@click.argument("prefix", default="")
@JSON_OPTION
@connection_options
@with_exit_codes
def list_command(prefix: str, as_json: bool, account: ConnectionOptions) -> None:
    r"""List the streams of the account and region, whose names begin with PREFIX.

    \b
    Examples:
      kinesis-sdk stream list
      kinesis-sdk stream list orders --json
    """
    found = Streams(account.connect()).list_streams(prefix)
    if as_json:
        print_json(found)
        return
    width = max((len(one.name) for one in found), default=0)
    for one in found:
        created = "" if one.created_at is None else one.created_at.strftime("%Y-%m-%d %H:%M UTC")
        click.echo(f"{one.name:<{width}}  {one.status or '':<9} {one.mode or '':<11} {created}".rstrip())
    if not found:
        note(f"There is no stream{f' that begins with {prefix}' if prefix else ''} here.")


@stream.command(short_help="Describe a stream, with a picture of its shards, lineage and load.")
@click.argument("name", metavar="STREAM")
@click.option(
    "--load/--no-load", default=False, show_default=True, help="Measure the load with one read of each shard."
)
@JSON_OPTION
@connection_options
@with_exit_codes
def describe(name: str, load: bool, as_json: bool, account: ConnectionOptions) -> None:
    r"""Describe STREAM (a name or an ARN), with a picture of its hash key ranges, lineage and load.

    \b
    Examples:
      kinesis-sdk stream describe orders
      kinesis-sdk stream describe orders --load
      kinesis-sdk stream describe orders --json | jq '.lineage.shards[] | select(.is_open) | .label'
    """
    connection = account.connect()
    streams = Streams(connection)
    described = streams.describe(name, tags=True)
    lineage = streams.lineage(name)
    loads = sample_load(connection, name, [one.shard_id for one in lineage.open_shards]) if load else None
    if as_json:
        print_json(
            {
                "stream": described,
                "lineage": lineage.to_dict(),
                "load": None if loads is None else list(loads.values()),
            }
        )
        return
    click.echo(description_text(described))
    click.echo()
    _show(lineage, loads)


def _show(lineage: Lineage, loads: dict[str, ShardLoad] | None) -> None:
    need("rich", "cli")
    screen = console()
    screen.width = WIDTH if not screen.is_terminal else min(WIDTH, screen.width)
    screen.print(picture(lineage, loads))


@stream.command(short_help="Show the picture of a stream live.")
@click.argument("name", metavar="STREAM")
@click.option(
    "--interval", type=DURATION, default="5s", show_default=True, help="Time between updates, at least 2s."
)
@click.option(
    "--load/--no-load", default=True, show_default=True, help="Measure the load with one read of each shard."
)
@JSON_OPTION
@connection_options
@with_exit_codes
def watch(name: str, interval: float, load: bool, as_json: bool, account: ConnectionOptions) -> None:
    r"""Show the picture of STREAM live, until Ctrl-C.

    Each update costs one DescribeStreamSummary and one ListShards call (for each 1,000 shards); with --load also one GetShardIterator and
    one GetRecords call for each open shard. --json prints one object per line for each update.

    \b
    Examples:
      kinesis-sdk stream watch orders
      kinesis-sdk stream watch orders --interval 30s --no-load
    """
    if interval < _LEAST_INTERVAL:
        raise ConfigError("interval", f"{interval:g}s", f"at least {_LEAST_INTERVAL:g} s")
    connection = account.connect()
    streams = Streams(connection)
    if not as_json:
        need("rich", "cli")
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        screen = console()
        screen.width = min(WIDTH, screen.width)
        live = Live(console=screen, auto_refresh=False)
    else:
        live = None
    try:
        if live is not None:
            live.start()
        while True:
            described = streams.describe(name)
            lineage = streams.lineage(name)
            opened = [one.shard_id for one in lineage.open_shards]
            loads = sample_load(connection, name, opened, window=max(5.0, interval)) if load else None
            if live is None:
                loads_given = None if loads is None else list(loads.values())
                print_json_line({"stream": described, "lineage": lineage.to_dict(), "load": loads_given})
                sys.stdout.flush()
            else:
                live.update(
                    Group(Text(description_text(described)), Text(), picture(lineage, loads)), refresh=True
                )
            time.sleep(interval)
    finally:
        if live is not None:
            live.stop()


@stream.command(short_help="Create a stream, and wait until it is ACTIVE.")
@click.argument("name", metavar="STREAM")
@click.option("--shards", type=int, help="Number of shards of a provisioned stream.")
@click.option("--on-demand", is_flag=True, help="Create a stream that Kinesis scales by itself.")
@click.option("--retention", type=int, default=24, show_default=True, metavar="HOURS", help="24 to 8760.")
@click.option("--max-record", type=int, metavar="KIB", help="Largest record, 1024 to 10240 KiB.")
@click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE", help="Can be given several times.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the stream is ACTIVE.")
@_TIMEOUT
@JSON_OPTION
@connection_options
@with_exit_codes
def create(
    name: str,
    shards: int | None,
    on_demand: bool,
    retention: int,
    max_record: int | None,
    tags: tuple[str, ...],
    wait: bool,
    timeout: float,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Create STREAM, and wait until it is ACTIVE.

    \b
    Examples:
      kinesis-sdk stream create orders --shards 4
      kinesis-sdk stream create clicks --on-demand --retention 168 --tag team=web --tag env=prod
    """
    if shards is None and not on_demand:
        raise ConfigError("shards", None, "--shards N, or --on-demand")
    mode: StreamMode = "ON_DEMAND" if on_demand else "PROVISIONED"
    made = Streams(account.connect()).create(
        name,
        shards=shards,
        mode=mode,
        retention_hours=retention,
        max_record_kib=max_record,
        tags=dict(map(_tag, tags)),
        wait=wait,
        timeout=timeout,
        progress=note,
    )
    if as_json:
        print_json(made)
    else:
        click.echo(description_text(made))


def _tag(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ConfigError("tag", text, "KEY=VALUE")
    return key, value


@stream.command(short_help="Delete a stream with all its records.")
@click.argument("name", metavar="STREAM")
@click.option("--with-consumers", is_flag=True, help="Delete it even if fan-out consumers are registered.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the stream is gone.")
@_TIMEOUT
@YES_OPTION
@JSON_OPTION
@connection_options
@with_exit_codes
def delete(
    name: str,
    with_consumers: bool,
    wait: bool,
    timeout: float,
    yes: bool,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Delete STREAM with all its records. Asks for its name.

    \b
    Examples:
      kinesis-sdk stream delete orders
      kinesis-sdk stream delete test-4711 --yes --with-consumers
    """
    streams = Streams(account.connect())
    described = streams.describe(name)
    note(description_text(described))
    if not yes:
        _confirm_name(described.name)
    streams.delete(name, with_consumers=with_consumers, wait=wait, timeout=timeout, progress=note)
    if as_json:
        print_json({"deleted": described.name, "arn": described.arn})
    else:
        click.echo(f"deleted {described.name}")


def _confirm_name(name: str) -> None:
    if not sys.stdin.isatty():
        refuse(
            "Nothing was changed: standard input is not a terminal, so nothing can be typed. Add --yes for scripts."
        )
    typed = click.prompt(
        f"All its records will be gone. Type {name} to delete it", err=True, default="", show_default=False
    )
    if typed.strip() != name:
        refuse("Nothing was changed: the text that you typed is not the name of the stream.")


@stream.command(short_help="Split a shard in two, in the middle or at a hash key.")
@click.argument("name", metavar="STREAM")
@click.argument("shard")
@click.option(
    "--at", "hash_key", metavar="HASH_KEY", help="First hash key of the right half; by default the middle."
)
@_TIMEOUT
@YES_OPTION
@JSON_OPTION
@connection_options
@with_exit_codes
def split(
    name: str,
    shard: str,
    hash_key: str | None,
    timeout: float,
    yes: bool,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Split SHARD of STREAM in two, in the middle or at a hash key.

    \b
    Examples:
      kinesis-sdk stream split orders 3
      kinesis-sdk stream split orders 3 --at 85070591730234615865843651857942052864
    """
    key = None
    if hash_key is not None:
        if not (hash_key.isascii() and hash_key.isdigit() and len(hash_key) <= 39):
            raise ConfigError("at", hash_key, "a decimal hash key from 0 to 2^128-1")
        key = int(hash_key)
    confirm(f"Split shard {shard} of {name}?", yes=yes)
    children = Resharding(Streams(account.connect()), timeout=timeout, progress=note).split(
        name, shard, hash_key=key
    )
    if as_json:
        print_json({"children": children})
    else:
        click.echo(f"{shard} → {', '.join(map(shard_label, children))}")


@stream.command(short_help="Merge two shards whose hash key ranges touch.")
@click.argument("name", metavar="STREAM")
@click.argument("shard")
@click.argument("adjacent")
@_TIMEOUT
@YES_OPTION
@JSON_OPTION
@connection_options
@with_exit_codes
def merge(
    name: str,
    shard: str,
    adjacent: str,
    timeout: float,
    yes: bool,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Merge SHARD and ADJACENT of STREAM, whose hash key ranges touch.

    \b
    Examples:
      kinesis-sdk stream merge orders 3 4
    """
    confirm(f"Merge shards {shard} and {adjacent} of {name}?", yes=yes)
    child = Resharding(Streams(account.connect()), timeout=timeout, progress=note).merge(
        name, shard, adjacent
    )
    if as_json:
        print_json({"child": child})
    else:
        click.echo(f"{shard} + {adjacent} → {shard_label(child)}")


@stream.command(short_help="Scale a stream to a number of equal shards.")
@click.argument("name", metavar="STREAM")
@click.argument("target", type=int)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default="auto",
    show_default=True,
    help="auto takes the method with fewer calls.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be changed, and change nothing.")
@_TIMEOUT
@YES_OPTION
@JSON_OPTION
@connection_options
@with_exit_codes
def scale(
    name: str,
    target: int,
    method: ScaleMethod,
    dry_run: bool,
    timeout: float,
    yes: bool,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Bring STREAM to TARGET equal shards.

    Each step is decided from the shards that are open at that time: run the command again to continue an interrupted scaling.
    UpdateShardCount is used if it needs fewer calls than splits and merges; Kinesis allows ten such calls a day, each to at most double or
    at least half.

    \b
    Examples:
      kinesis-sdk stream scale orders 12 --dry-run
      kinesis-sdk stream scale orders 12
      kinesis-sdk stream scale orders 12 --method split-merge --yes
    """
    resharding = Resharding(Streams(account.connect()), timeout=timeout, progress=note)
    plan = resharding.plan_scale(name, target, method=method)
    splits = sum(isinstance(step, SplitAt) for step in plan.steps)
    merges = sum(isinstance(step, MergeAt) for step in plan.steps)
    updates = [step.target for step in plan.steps if isinstance(step, UpdateCount)]
    ways = [f"UpdateShardCount to {', then '.join(map(str, updates))}"] if updates else []
    ways += [f"{splits} splits"] if splits else []
    ways += [f"{merges} merges"] if merges else []
    note(
        f"{name}: {' and '.join(ways) or 'nothing to do'} ({plan.reason}); at most {plan.peak} open shards on the way"
    )
    if dry_run:
        if as_json:
            print_json(
                {
                    "target": target,
                    "splits": splits,
                    "merges": merges,
                    "update_shard_count": updates,
                    "peak": plan.peak,
                    "reason": plan.reason,
                }
            )
        return
    if plan.steps:
        confirm(f"Scale {name} to {target} shards?", yes=yes)
    result = resharding.scale(name, target, method=method)
    if as_json:
        print_json(result)
    else:
        click.echo(f"{result.before} → {result.after} shards in {result.seconds:.1f} s")


@stream.command(short_help="List, register or deregister fan-out consumers.")
@click.argument("name", metavar="STREAM")
@click.option("--register", metavar="CONSUMER", help="Register a consumer of this name.")
@click.option(
    "--deregister", metavar="CONSUMER", help="Deregister the consumer of this name; its subscriptions end."
)
@_TIMEOUT
@YES_OPTION
@JSON_OPTION
@connection_options
@with_exit_codes
def consumers(
    name: str,
    register: str | None,
    deregister: str | None,
    timeout: float,
    yes: bool,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""List, register or deregister the fan-out consumers of STREAM.

    \b
    Examples:
      kinesis-sdk stream consumers orders
      kinesis-sdk stream consumers orders --register billing
      kinesis-sdk stream consumers orders --deregister billing --yes
    """
    if register is not None and deregister is not None:
        raise ConfigError("register", register, "one of --register and --deregister")
    streams = Streams(account.connect())
    if register is not None:
        streams.register_consumer(name, register, timeout=timeout, progress=note)
    if deregister is not None:
        confirm(f"Deregister {deregister} of {name}? Workers that use it lose their subscriptions.", yes=yes)
        streams.deregister_consumer(name, deregister, timeout=timeout, progress=note)
    found = streams.consumers(name)
    if as_json:
        print_json(found)
        return
    width = max((len(one.name) for one in found), default=0)
    for one in found:
        created = "" if one.created_at is None else one.created_at.strftime("%Y-%m-%d %H:%M UTC")
        click.echo(f"{one.name:<{width}}  {one.status:<9} {created}  {one.arn}")
    if not found:
        note("No consumer is registered.")


@stream.command(short_help="Show or change for how long a stream keeps its records.")
@click.argument("name", metavar="STREAM")
@click.argument("hours", type=int, required=False)
@_TIMEOUT
@YES_OPTION
@JSON_OPTION
@connection_options
@with_exit_codes
def retention(
    name: str, hours: int | None, timeout: float, yes: bool, as_json: bool, account: ConnectionOptions
) -> None:
    r"""Show for how many hours STREAM keeps its records, or change it to HOURS (24 to 8760).

    \b
    Examples:
      kinesis-sdk stream retention orders
      kinesis-sdk stream retention orders 168
    """
    streams = Streams(account.connect())
    before = streams.describe(name).retention_hours
    if hours is not None and hours != before:
        if hours < before:
            confirm(f"Records of {name} older than {hours} h will be gone at once. Go on?", yes=yes)
        streams.set_retention(name, hours, timeout=timeout, progress=note)
    if as_json:
        print_json({"retention_hours": before if hours is None else hours, "before": before})
    elif hours is None:
        click.echo(f"{before} h")
    else:
        click.echo(f"{before} h → {hours} h")
