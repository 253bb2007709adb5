"""Commands for a shard whose handler fails: call it again now, or leave exactly one record out. No logic of their own."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinesis_sdk.cli.application import ApplicationOptions
from kinesis_sdk.cli.options import PositionType
from kinesis_sdk.cli.output import confirm, note, print_json
from kinesis_sdk.cli.steer import WAIT_OPTION, Session, change_options
from kinesis_sdk.common.position import AfterSequence, AtSequence
from kinesis_sdk.common.sequence import ExtendedSequenceNumber

if TYPE_CHECKING:
    from kinesis_sdk.admin.changes.handler_control import HandlerControl, RequestPlan

_SHARD = click.option("--shard", required=True, metavar="SHARD", help="The shard.")


@click.command(short_help="Have a failing handler called again now.")
@change_options
@_SHARD
@WAIT_OPTION
def retry(shard: str, wait: float, app: ApplicationOptions, **options: Any) -> None:
    r"""Have the handler of a shard called again now, for example after its database is back: its pauses grow to 30 s.

    \b
    Example:
      kinesis-sdk leases retry billing --shard 3
    """
    session = Session(app, options)
    control = session.control()
    plan = control.plan_retry(shard)
    _run(
        session,
        control,
        plan,
        session.command("leases", "retry", app.name, "--shard", shard),
        wait,
        "Call it now?",
    )


@click.command("skip-record", short_help="Leave out the one record on which a handler fails.")
@change_options
@_SHARD
@click.option(
    "--record",
    type=PositionType(AtSequence),
    metavar="POSITION",
    help="at:<sequence number>[/<index>] of the record [default: the one on which the handler fails].",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append the record to this file first, as a line of `tail --json`.",
)
@WAIT_OPTION
def skip_record(
    shard: str,
    record: AtSequence | AfterSequence | None,
    save: Path | None,
    wait: float,
    app: ApplicationOptions,
    **options: Any,
) -> None:
    r"""Leave out exactly one record: its owner passes it to the dead-letter hook, and goes on behind it.

    The hook is `dead_letter` of the policy in `on_handler_error`, whichever policy it is. Without one, the record is named in the
    worker's log, and can be read from the stream until it expires: --save keeps it.

    \b
    Examples:
      kinesis-sdk leases skip-record billing --shard 3 --dry-run
      kinesis-sdk leases skip-record billing --shard 3 --save poison.jsonl
    """
    session = Session(app, options)
    control = session.control()
    plan = control.plan_leave_out(shard, None if record is None else _record(record))
    named = () if record is None else ("--record", f"at:{plan.request.record}")
    command = session.command("leases", "skip-record", app.name, "--shard", shard, *named)
    if save is not None and not session.dry_run:
        _save(session, control, plan, save)
    _run(session, control, plan, command, wait, "Leave this record out?")


def _record(position: AtSequence | AfterSequence) -> ExtendedSequenceNumber:
    """Return the record that comes first at a position of the form ``at:``."""
    before = position.sub_sequence_number if isinstance(position, AfterSequence) else None
    return ExtendedSequenceNumber(position.sequence_number, 0 if before is None else before + 1)


def _run(
    session: Session,
    control: HandlerControl,
    plan: RequestPlan,
    command: tuple[str, ...],
    wait: float,
    question: str,
) -> None:
    """Show a request, ask, make it, and tell what became of it."""
    note(plan.write)
    note(f"What to expect: {plan.effect}")
    for text in plan.warnings:
        note(f"Note: {text}")
    note(f"Command: kinesis-sdk {shlex.join(command)}")
    shown = {"writes": [plan.write], "request": plan.request.to_text()}
    if session.dry_run:
        if session.as_json:
            print_json({**shown, "done": False})
        return
    confirm(question, yes=session.yes)
    outcome = control.apply(plan, wait=wait, command=command)
    if session.as_json:
        print_json({**shown, "done": True, "outcome": outcome})
    note(outcome)


def _save(session: Session, control: HandlerControl, plan: RequestPlan, file: Path) -> None:
    from kinesis_sdk.admin.records import read_record, record_to_dict

    assert plan.request.record is not None
    stream = control.stream_of(plan)
    found = read_record(session.application.connection, stream, plan.shard_id, plan.request.record)
    line = json.dumps(record_to_dict(plan.shard_id, found), ensure_ascii=False)
    with file.open("a", encoding="utf-8") as saved:
        saved.write(line + "\n")
    note(f"Saved: {file}")
