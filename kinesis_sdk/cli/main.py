"""Commands and their options; what they do lives in modules of its own."""

from __future__ import annotations

import sys

import click

from kinesis_sdk._version import __version__
from kinesis_sdk.common.errors import KinesisSdkError

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="kinesis-sdk")
def cli() -> None:
    """Tools of kinesis_sdk, the Kinesis producer and consumer for Python.

    Region and credentials come from where every AWS tool takes them: the environment, ~/.aws, or the
    instance's role.
    """


@cli.command(short_help="Put real records through Kinesis and back, with a split and a crash on the way.")
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="How many times to put the 20,000 flights.",
)
@click.option(
    "--shards",
    type=click.IntRange(1, 100),
    default=4,
    show_default=True,
    help="Shards of the stream that the demo creates.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 16),
    default=2,
    show_default=True,
    help="Consumer worker processes; one of two or more is killed on the way.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    default=12.0,
    show_default=True,
    help="Spread the puts over this time; 0 puts as fast as the shards take them.",
)
@click.option(
    "--failover-time",
    type=click.FloatRange(1, 300),
    default=3.0,
    show_default=True,
    help="Seconds after which a silent worker's leases are taken over.",
)
@click.option("--split/--no-split", default=True, help="Split a shard on the way.", show_default=True)
@click.option("--kill/--no-kill", default=True, help="Kill a worker (SIGKILL) on the way.", show_default=True)
@click.option(
    "--endpoint-url",
    help="Use this endpoint for Kinesis and DynamoDB, for example LocalStack's "
    "http://localhost:4566, in place of the fake AWS that the demo starts.",
)
@click.option(
    "--stream",
    help="Use this existing stream, and your AWS account unless --endpoint-url is given. "
    "It is not resharded and not deleted.",
)
@click.option("--region", help="AWS region; else the usual AWS settings, or us-east-1 on the fake.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object, nothing else.")
def demo(
    *,
    repeat: int,
    shards: int,
    workers: int,
    seconds: float,
    failover_time: float,
    split: bool,
    kill: bool,
    endpoint_url: str | None,
    stream: str | None,
    region: str | None,
    as_json: bool,
) -> None:
    r"""Put real records through Kinesis and back, and prove that nothing was lost.

    Starts a fake AWS in a process of its own, creates a stream, and puts 20,000 flights (US on-time
    statistics, 2001), partitioned by origin, while worker processes consume them through a DynamoDB lease
    table. On the way one shard is split and one worker is killed, so that its leases are taken over. Then
    every record that was put is checked against every record that was processed.

    Exits with 1 if a record was lost, delivered out of order, or duplicated without a reason.

    \b
    Examples:
      kinesis-sdk demo
      kinesis-sdk demo --repeat 10 --json
      kinesis-sdk demo --endpoint-url http://localhost:4566
      kinesis-sdk demo --stream my-stream --region eu-west-1 --no-kill
    """
    from kinesis_sdk.cli.demo.options import DemoOptions
    from kinesis_sdk.cli.demo.progress import make_progress
    from kinesis_sdk.cli.demo.report import print_report
    from kinesis_sdk.cli.demo.runner import run_demo

    options = DemoOptions(
        repeat=repeat,
        shards=shards,
        workers=workers,
        seconds=seconds,
        failover_time=failover_time,
        split=split and stream is None,
        kill=kill and workers > 1,
        endpoint_url=endpoint_url,
        stream=stream,
        region=region,
    )
    try:
        with make_progress(quiet=as_json) as progress:
            report = run_demo(options, progress)
    except KinesisSdkError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("Stopped; worker processes and the fake AWS are gone.", err=True)
        sys.exit(130)
    print_report(report, as_json=as_json)
    sys.exit(0 if report.passed else 1)


@cli.command(
    short_help="Serve a fake AWS for tests and experiments.",
    # Options are argparse's, --help included: the fake needs no click, so its command line cannot either.
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def fake(arguments: tuple[str, ...]) -> None:
    """Serve a fake AWS (Kinesis, DynamoDB, CloudWatch, STS) until Ctrl-C."""
    from kinesis_sdk.testing.__main__ import main as serve

    sys.exit(serve(list(arguments), prog="kinesis-sdk fake"))
