"""The command ``kinesis-sdk verify``."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kinesis_sdk.cli.interrupts import interrupt_on_terminate
from kinesis_sdk.cli.options import (
    JSON_OPTION,
    YES_OPTION,
    ConnectionOptions,
    Duration,
    connection_options,
)
from kinesis_sdk.cli.output import (
    ExitCode,
    confirm,
    json_document,
    note,
    print_json,
    refuse,
    with_exit_codes,
)
from kinesis_sdk.cli.spelling import options_of
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.text import printable

if TYPE_CHECKING:
    from kinesis_sdk.admin import Connection
    from kinesis_sdk.verify import Plan, Removal, Report, Verification

Service = Literal["aws", "endpoint", "fake"]


@click.command(short_help="Run the SDK in your account, at a bounded cost, and compare AWS with the fake.")
@click.option(
    "--only",
    multiple=True,
    metavar="STEP",
    help="Run this step, or all steps of this group; repeatable. --dry-run lists the steps; the groups are kinesis, "
    "dynamodb, table-streams, contracts and journeys.",
)
@click.option(
    "--max-usd",
    type=click.FloatRange(0.001, 100.0),
    default=1.0,
    show_default=True,
    metavar="USD",
    help="Stop before the costs exceed this. If the plan alone costs more, nothing is created.",
)
@click.option(
    "--max-time",
    type=Duration(1.0, 86_400.0),
    default="60m",
    show_default=True,
    help="Stop after this time, then remove what the run created.",
)
@click.option("--fake", "on_fake", is_flag=True, help="Try it against the fake AWS, without an account.")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the JSON to this file.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be changed, and change nothing.")
@click.option("--remove", "is_removal", is_flag=True, help="Only remove what interrupted runs left behind.")
@click.option("--run", "run_id", metavar="ID", help="With --remove: only what this run left behind.")
@YES_OPTION
@JSON_OPTION
@connection_options
@with_exit_codes
def verify(
    *,
    only: tuple[str, ...],
    max_usd: float,
    max_time: float,
    on_fake: bool,
    report: Path | None,
    dry_run: bool,
    is_removal: bool,
    run_id: str | None,
    yes: bool,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Run the SDK in your own AWS account, at a bounded cost, and compare AWS with the built-in fake.

    The command shows the plan and its price, and asks you. Then it runs the steps: requests to Kinesis and DynamoDB whose responses are
    compared with the fake's responses, the rules of lease stores and sinks, a producer and two workers with a split
    and a merge, enhanced fan-out, and an idempotent producer whose responses are cut off. --dry-run shows the steps, the price and the
    required permissions, and makes no call.

    Only streams and tables that the run makes itself are touched: their names begin with kinesis-sdk-verify-, and they
    have a tag with the id of the run. They are removed at the end, even after an error, Ctrl-C or SIGTERM. After a kill, or a second
    Ctrl-C, --remove finds them by name and tag. Each call is counted before it is made, and the run stops before
    --max-usd. Each started hour of a shard counts as a full hour.

    The JSON contains no account, stream, worker or payload, so it can be published.

    Exits with 1 if a step failed or a resource could not be removed. A difference from the fake is not a failure.

    \b
    Examples:
      kinesis-sdk verify --dry-run
      kinesis-sdk verify --region eu-west-1 --max-usd 2 --report verify.json
      kinesis-sdk verify --only journeys --only kinesis-listing
      kinesis-sdk verify --fake
      kinesis-sdk verify --remove
    """
    if run_id is not None and not is_removal:
        raise click.UsageError("--run is for --remove: it names the run whose streams and tables to remove.")
    connection, service = _connect(account, on_fake=on_fake)
    if is_removal:
        _remove(connection, run_id, yes=yes or dry_run, dry_run=dry_run, as_json=as_json)
        return
    from kinesis_sdk.verify import Verification, policy

    verification = Verification(connection, only=only, max_usd=max_usd, max_seconds=max_time, service=service)
    plan = verification.plan()
    rights = policy(plan.region)
    if dry_run and as_json:
        print_json({"plan": plan, "policy": rights})
    else:
        _show_plan(plan, service, to_stderr=as_json)
    if dry_run:
        if not as_json:
            click.echo(f"\nPermissions, with the number of your account:\n{json.dumps(rights, indent=2)}")
        return
    if plan.usd > max_usd:
        refuse(
            f"Nothing was made: the plan costs {plan.usd:.2f} USD, more than --max-usd {max_usd:g}. Raise it, or choose steps "
            "with --only."
        )
    confirm("Run it?", yes=yes or on_fake)
    found = _run(verification, connection)
    if report is not None:
        report.write_text(f"{json_document(found)}\n", encoding="utf-8")
    if as_json:
        print_json(found)
    else:
        _show_report(found)
    sys.exit(ExitCode.DONE if found.passed else ExitCode.BAD_ANSWER)


def _connect(account: ConnectionOptions, *, on_fake: bool) -> tuple[Connection, Service]:
    if not on_fake:
        connection = account.connect().resolved()
        return connection, "aws" if connection.endpoint_url is None else "endpoint"
    if account.endpoint_url is not None or account.profile is not None:
        raise click.UsageError("--fake has an account of its own: leave out --endpoint-url and --profile.")
    from kinesis_sdk.admin import Connection
    from kinesis_sdk.testing import FakeAws

    aws = FakeAws(region=account.region or "us-east-1")
    services = ("kinesis", "dynamodb", "dynamodbstreams")
    return Connection(clients={service: aws.client(service) for service in services}), "fake"


def _run(verification: Verification, connection: Connection) -> Report:
    try:
        with interrupt_on_terminate():
            return verification.run(note)
    except KeyboardInterrupt:
        note("Stopped. Everything that was made is removed." if verification.is_clean else "Stopped.")
        sys.exit(ExitCode.INTERRUPTED)
    finally:
        if not verification.is_clean:
            command = [
                "kinesis-sdk",
                "verify",
                "--remove",
                "--run",
                verification.run_id,
                *options_of(connection),
            ]
            note(
                f"Some of these streams and tables may still exist, and cost money. Remove it with:\n$ {shlex.join(command)}"
            )


def _remove(connection: Connection, run_id: str | None, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    from kinesis_sdk.common.clock import SystemClock
    from kinesis_sdk.verify import Remover
    from kinesis_sdk.verify.scratch import Removal, is_run

    if run_id is not None and not is_run(run_id):
        raise ConfigError("run", run_id, "the id of a run: eight hexadecimal digits")
    remover = Remover(connection, clock=SystemClock())
    found = remover.find(run_id)
    ours = [one for one in found if one.run is not None]
    for one in found:
        mark = f"run {printable(one.run)}" if one.run is not None else "without the tag of a run: it stays"
        note(f"{one.kind} {printable(one.name)}: {mark}")
    if dry_run or not ours:
        removal = Removal((), tuple(ours), tuple(one for one in found if one.run is None))
        is_done = True
    else:
        confirm(f"Delete these {len(ours)} streams and tables?", yes=yes)
        with interrupt_on_terminate():
            removal = remover.remove(run_id, tell=note)
        is_done = not removal.left
    if as_json:
        print_json(removal)
    else:
        _show_removal(removal, dry_run=dry_run)
    sys.exit(ExitCode.DONE if is_done else ExitCode.BAD_ANSWER)


def _show_removal(removal: Removal, *, dry_run: bool) -> None:
    if not (removal.removed or removal.left or removal.unmarked):
        click.echo("There is nothing to remove.")
        return
    verb = "would be removed" if dry_run else "could not be removed in time: try again"
    click.echo(
        f"{len(removal.removed)} removed" + (f", {len(removal.left)} {verb}" if removal.left else "") + "."
    )


def _show_plan(plan: Plan, service: Service, *, to_stderr: bool) -> None:
    from kinesis_sdk.verify import AS_OF, REGION

    width = max(len(step.name) for step in plan.steps)
    lines = [f"{step.name:<{width}}  {step.usd:7.4f} USD  {step.about}" for step in plan.steps]
    where = {
        "aws": "your account",
        "endpoint": "another endpoint, priced as if it were AWS",
        "fake": "the fake",
    }
    note_of = (
        f"Prices of AWS in {REGION}, {AS_OF}; look yours up."
        if plan.factor == 1
        else f"Prices of AWS in {REGION}, {AS_OF}, times {plan.factor:g}, because those of {plan.region} are not known here."
    )
    lines += [
        "",
        f"{plan.usd:.2f} USD at most for all {len(plan.steps)} steps in {plan.region}, {where[service]}. {note_of}",
        f"It stops before {plan.max_usd:g} USD, and after {plan.max_seconds / 60:.0f} minutes.",
    ]
    for line in lines:
        click.echo(line, err=to_stderr)


def _show_report(report: Report) -> None:
    width = max((len(step.name) for step in report.steps), default=0)
    for step in report.steps:
        line = f"{step.name:<{width}}  {step.status:<8} {len(step.facts):>3} facts {step.seconds:7.1f} s  {printable(step.problem)}"
        click.echo(line.rstrip())
        for one in step.differences:
            click.echo(
                f"    {printable(one.fact)}: expected {_short(one.expected)}, found {_short(one.found)}"
            )
    counts = {status: sum(step.status == status for step in report.steps) for status in _STATUSES}
    summary = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    click.echo(
        f"\n{summary}. At most {report.cost.usd:.2f} USD. {report.removed} streams and tables made and removed"
        + (f", {report.left} left." if report.left else ".")
    )


_STATUSES: Sequence[str] = ("same", "differs", "passed", "failed", "stopped")


def _short(value: Any) -> str:
    return printable(repr(value), 100)
