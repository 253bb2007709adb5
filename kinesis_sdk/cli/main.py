"""Commands and their options. Each command imports its implementation when it runs."""

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

    Region and credentials come from the usual AWS sources: the environment, ~/.aws, or the instance's role.
    """


@cli.command(short_help="Put records, consume them during a split and a crash, and account for each one.")
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
    help="Consumer worker processes; of two or more, one is killed during the run.",
)
@click.option(
    "--duration",
    type=click.FloatRange(0, 3600),
    default=12.0,
    show_default=True,
    help="Seconds over which the puts are spread; 0 puts as fast as the shards accept them.",
)
@click.option(
    "--failover-time",
    type=click.FloatRange(1, 300),
    default=3.0,
    show_default=True,
    help="Seconds after which the leases of a worker that stopped renewing are taken over.",
)
@click.option(
    "--split-shard/--no-split-shard",
    default=True,
    help="Split a shard during the run.",
    show_default=True,
)
@click.option(
    "--kill-worker/--no-kill-worker",
    default=True,
    help="Kill a worker (SIGKILL) during the run.",
    show_default=True,
)
@click.option(
    "--endpoint-url",
    help="Use this endpoint for Kinesis and DynamoDB, for example LocalStack's "
    "http://localhost:4566, instead of the fake AWS that the demo starts.",
)
@click.option(
    "--stream",
    help="Use this existing stream, and your AWS account unless --endpoint-url is given. "
    "It is not resharded and not deleted.",
)
@click.option(
    "--region", help="AWS region; by default from the usual AWS settings, or us-east-1 on the fake."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object and nothing else.")
def demo(
    *,
    repeat: int,
    shards: int,
    workers: int,
    duration: float,
    failover_time: float,
    split_shard: bool,
    kill_worker: bool,
    endpoint_url: str | None,
    stream: str | None,
    region: str | None,
    as_json: bool,
) -> None:
    r"""Put records, consume them during a split and a crash, and account for each one.

    Starts a fake AWS in its own process, creates a stream, and puts 20,000 flights (US on-time statistics,
    2001), partitioned by origin. Worker processes consume them through a DynamoDB lease table. During the
    run one shard is split and one worker is killed, so that its leases are taken over. At the end, every
    record that was put is compared with every record that was processed.

    Exits with 1 if a record was lost, delivered out of order, or duplicated without a reason.

    \b
    Examples:
      kinesis-sdk demo
      kinesis-sdk demo --repeat 10 --json
      kinesis-sdk demo --endpoint-url http://localhost:4566
      kinesis-sdk demo --stream my-stream --region eu-west-1 --no-kill-worker
    """
    from kinesis_sdk.cli.demo.options import DemoOptions
    from kinesis_sdk.cli.demo.progress import make_progress
    from kinesis_sdk.cli.demo.report import print_report
    from kinesis_sdk.cli.demo.runner import run_demo

    options = DemoOptions(
        repeat=repeat,
        shards=shards,
        workers=workers,
        duration=duration,
        failover_time=failover_time,
        split_shard=split_shard and stream is None,
        kill_worker=kill_worker and workers > 1,
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
        click.echo("Stopped. Worker processes and the fake AWS have ended.", err=True)
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
