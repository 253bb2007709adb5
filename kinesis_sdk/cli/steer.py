"""Commands that change a live application, made from the table of `kinesis_sdk.admin.changes.operations`, without logic of their own."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kinesis_sdk.admin.changes.description import Planned, Result, Status
from kinesis_sdk.admin.changes.operations import OPERATIONS, Danger, Operation, Parameter
from kinesis_sdk.admin.fleet.formatting import counted
from kinesis_sdk.cli.application import ApplicationOptions, application_options
from kinesis_sdk.cli.description import SHOWN, lines_of
from kinesis_sdk.cli.options import DURATION, JSON_OPTION, YES_OPTION, ParamType, rejected
from kinesis_sdk.cli.output import (
    CommandError,
    ExitCode,
    confirm,
    note,
    print_json,
    refuse,
    with_exit_codes,
)
from kinesis_sdk.cli.spelling import options_of, speller
from kinesis_sdk.common.clock import SystemClock
from kinesis_sdk.common.errors import (
    AuditLogError,
    AwsError,
    ChangeRefusedError,
    ConfigError,
    LeaseStoreError,
)
from kinesis_sdk.common.text import printable

if TYPE_CHECKING:
    from kinesis_sdk.admin.changes.desk import Desk
    from kinesis_sdk.admin.changes.transfer import Export
    from kinesis_sdk.admin.command import Command

_F = TypeVar("_F", bound=Callable[..., Any])


def clock_and_sleep() -> dict[str, Any]:
    """Return the clock and the sleep of all commands; tests replace this function."""
    return {"clock": SystemClock(), "sleep": time.sleep}


def desk_of(app: ApplicationOptions, audit_log: Path | None = None) -> Desk:
    """Return the desk of the application that options name."""
    from kinesis_sdk.admin.changes.desk import Desk

    return Desk(
        application=app.open(),
        failover_time=app.failover_time,
        audit_log=audit_log,
        report=note,
        **clock_and_sleep(),
    )


class ParsedText(ParamType):
    """A text that a parameter of a change parses."""

    def __init__(self, parameter: Parameter) -> None:
        self.name: str = parameter.expected or parameter.name
        self._parse = parameter.parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value."""
        assert self._parse is not None
        try:
            return self._parse(value, time.time())
        except ConfigError as error:
            self.fail(rejected(error), param, ctx)


def _option_of(parameter: Parameter) -> Callable[[_F], _F]:
    kind = None if parameter.parse is None else ParsedText(parameter)
    if parameter.is_argument:
        return click.argument(
            parameter.name,
            metavar=parameter.placeholder,
            type=click.File(encoding="utf-8") if parameter.name == "export" else kind,
        )
    more: dict[str, Any] = {"is_flag": True} if parameter.is_flag else {"metavar": parameter.placeholder}
    return click.option(
        f"--{parameter.option or parameter.name}",
        parameter.name,
        help=parameter.help,
        multiple=parameter.many,
        required=parameter.required,
        type=kind,
        **more,
    )


def _wait_option(operation: Operation) -> Callable[[_F], _F]:
    return click.option(
        "--timeout",
        "wait",
        type=DURATION,
        default=operation.wait,
        show_default=True,
        help=operation.waits_for,
    )


AUDIT_LOG_OPTION = click.option(
    "--audit-log",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to which each change is appended; by default kinesis-sdk/audit.jsonl in the user's state directory.",
)
"""``--audit-log``."""
DRY_RUN_OPTION = click.option(
    "--dry-run", is_flag=True, help="Show what would be changed, and change nothing."
)
"""``--dry-run``."""
_CHANGE_OPTIONS = (application_options, AUDIT_LOG_OPTION, JSON_OPTION, DRY_RUN_OPTION, YES_OPTION)

Spell = Callable[["Command"], str]
Before = Callable[..., dict[str, Any]]
"""Called between the question and the change of a command, with the desk, the plan and its own options; returns further data for JSON."""


def change_command(
    verb: str,
    *,
    text: str,
    options: tuple[Callable[[Any], Any], ...] = (),
    before: Before = lambda *_, **__: {},
) -> click.Command:
    """Return the command of an operation. `before` receives the values of its own ``options``."""
    operation = OPERATIONS[verb]
    names = [parameter.name for parameter in operation.parameters]

    def command(
        app: ApplicationOptions,
        *,
        audit_log: Path | None,
        as_json: bool,
        dry_run: bool,
        yes: bool,
        wait: float = 0.0,
        unchanged: int | None = SHOWN,
        **given: Any,
    ) -> None:
        desk = desk_of(app, audit_log)
        spell = speller(options_of(desk.application.connection))
        planned = operation.plan(desk, **{name: _read(given.pop(name)) for name in names})
        if not (dry_run and as_json):
            for line in lines_of(planned.description, unchanged=unchanged):
                note(line)
            note(f"Command: {spell(planned.description.command)}")
        elif planned.description.refusals:
            print_json(planned.to_dict(None))
        if planned.description.refusals:
            refuse("Nothing was changed: " + "; ".join(planned.description.refusals))
        result, more = None, {}
        if planned.description.writes and not dry_run:
            _ask(operation, planned, desk.application.name, yes=yes)
            more = before(desk, planned, **given)
            result = _apply(planned, wait, spell)
        if as_json:
            print_json({**planned.to_dict(result), **more})
        if not dry_run:
            _finish(planned, result, spell)

    command.__doc__ = text
    made: Callable[..., Any] = command
    if operation.wait:
        made = _wait_option(operation)(made)
    for option in (*reversed(options), *map(_option_of, reversed(operation.parameters)), *_CHANGE_OPTIONS):
        made = option(made)
    return click.command(verb)(with_exit_codes(_with_refusals(made)))


def _read(value: Any) -> Any:
    """Return the value of a parameter; for a file, the leases that were saved in it."""
    if not hasattr(value, "readable"):
        return value
    from kinesis_sdk.admin.changes.transfer import parse_export

    return parse_export(value, value.name)


def _with_refusals(function: _F) -> _F:
    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (ChangeRefusedError, AuditLogError) as error:
            raise CommandError(str(error), ExitCode.REFUSED) from error

    return guarded  # type: ignore[return-value]


def _ask(operation: Operation, planned: Planned, application: str, *, yes: bool) -> None:
    if operation.danger is not Danger.DELETES_ALL:
        confirm(planned.description.question, yes=yes)
    elif not yes:
        confirm_name(application)


def confirm_name(application: str) -> None:
    """Let the user type the name of the application.

    Raises:
        CommandError: If the name differs, or standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        refuse(
            "Nothing was changed: standard input is not a terminal, so the question cannot be asked. Add --yes for scripts."
        )
    if click.prompt("Type the name of the application to delete it", err=True) != application:
        refuse("Nothing was changed.")


def _apply(planned: Planned, wait: float, spell: Spell) -> Result:
    """Make a change. If Ctrl-C or an error ends the change, print the finished changes, and the command for the rest."""
    try:
        return planned.apply(wait=wait)
    except (KeyboardInterrupt, AwsError, LeaseStoreError, AuditLogError):
        done = planned.so_far()
        if done is not None:
            note(f"Interrupted: {done.summary}")
            _tell_rest(done, spell)
        raise


def _tell_rest(result: Result, spell: Spell) -> None:
    if result.rest is not None:
        note(f"The rest: {spell(result.rest)}")


def _finish(planned: Planned, result: Result | None, spell: Spell) -> None:
    """End the command with the exit code of a result; None if there was nothing to do."""
    if result is None:
        note("Nothing to do.")
        return
    if result.status is Status.REFUSED:
        _tell_rest(result, spell)
        raise CommandError(result.summary, ExitCode.REFUSED)
    if result.is_pending:
        raise CommandError(result.summary, ExitCode.BAD_ANSWER)
    note(result.summary)
    if planned.description.undo is not None:
        note(f"To undo this: {spell(planned.description.undo)}")


rewind: click.Command = change_command(
    "rewind",
    text=r"""Process records again: every record from START on is delivered again, and none is skipped.

    Without --shard, all shards are rewound, even shards that have ended, and their children are processed again after them.
    LATEST stores a position for shards that have none yet.

    If START is the sequence number of a repetition (put().result() may return one), the command rewinds to the first copy, because workers
    deliver that copy. If the first copy lies in a parent, the shard is rewound to its beginning, and the command for the parent is printed.

    \b
    Examples:
      kinesis-sdk leases rewind billing --to -15m --dry-run
      kinesis-sdk leases rewind billing --to 2026-11-21T09:00:00Z
      kinesis-sdk leases rewind billing --to TRIM_HORIZON --shard 3 --yes
    """,
)


skip_to: click.Command = change_command(
    "skip-to",
    text=r"""Skip records: every shard continues at START.

    A live owner finishes its batch and checkpoints first. The command shows this checkpoint, and skips exactly the records between it and
    START.

    \b
    Examples:
      kinesis-sdk leases skip-to billing --to LATEST --shard 3
      kinesis-sdk leases skip-to billing --to 2026-11-21T09:00:00Z --dry-run
      kinesis-sdk leases skip-to billing --to after:49653519871253469812/7 --shard 3
    """,
)


release: click.Command = change_command(
    "release",
    text=r"""Take leases from their owners: the live worker with the fewest leases gets them.

    \b
    Example:
      kinesis-sdk leases release billing --shard 3
    """,
)


move: click.Command = change_command(
    "move",
    text=r"""Move leases to a live worker of this SDK or of KCL 3.

    The workers balance by themselves: a move that unbalances them is undone within seconds. --swap keeps the balance, and
    `leases pin` keeps the lease where it is.

    \b
    Example:
      kinesis-sdk leases move billing --shard 3 --to web07:4711 --swap
    """,
)


pin: click.Command = change_command(
    "pin",
    text=r"""Pin a lease: workers of this SDK give it to WORKER while WORKER is alive, and otherwise treat it like any other lease.

    WORKER has to be in the lease table: a worker of this SDK shows itself there within seconds of its start, also without
    leases. To pin a lease to a new worker, start the worker first; its id is a setting (`worker_id`). Java workers do not know
    pins.

    \b
    Example:
      kinesis-sdk leases pin billing --shard 3 --to web07:4711
    """,
)


unpin: click.Command = change_command(
    "unpin",
    text=r"""Remove the pin of a lease, so that the workers balance it as any other.

    \b
    Example:
      kinesis-sdk leases unpin billing --shard 3
    """,
)


retry: click.Command = change_command(
    "retry",
    text=r"""Have the handler of a shard called again now, for example after its database is back: its pauses grow to 30 s.

    \b
    Example:
      kinesis-sdk leases retry billing --shard 3
    """,
)


def _save_record(_desk: Desk, planned: Any, *, save: Path | None) -> dict[str, Any]:
    """Append the skipped record to a file."""
    if save is None:
        return {}
    from kinesis_sdk.admin.records import read_record, record_to_dict

    found = read_record(
        _desk.application.connection, planned.stream, planned.shard_id, planned.request.record
    )
    line = json.dumps(record_to_dict(planned.shard_id, found), ensure_ascii=False)
    with save.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    note(f"Saved: {save}")
    return {}


skip_record: click.Command = change_command(
    "skip-record",
    text=r"""Leave out exactly one record: its owner passes it to the dead-letter hook, and continues after it.

    The hook is `dead_letter` of the policy in `on_handler_error`, whichever policy it is. Without one, the record is named in the
    worker's log, and can be read from the stream until it expires: --save keeps it.

    \b
    Examples:
      kinesis-sdk leases skip-record billing --shard 3 --dry-run
      kinesis-sdk leases skip-record billing --shard 3 --save poison.jsonl
    """,
    options=(
        click.option(
            "--save",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Append the record to this file first, as a line of `tail --json`.",
        ),
    ),
    before=_save_record,
)


import_leases: click.Command = change_command(
    "import",
    text=r"""Restore the leases of `leases export`: missing rows are put back, and all other rows are rewound or skipped.

    The table is created if it is missing. If the command is interrupted, repeat it: rows that were already restored do not change.

    \b
    Example:
      kinesis-sdk leases import billing billing.jsonl --dry-run
    """,
    options=(
        click.option(
            "--verbose",
            "-v",
            "unchanged",
            is_flag=True,
            flag_value=sys.maxsize,
            default=None,
            help="Also list the rows that need no change.",
        ),
    ),
)


delete_row: click.Command = change_command(
    "delete-row",
    text=r"""Delete one row of the lease table that cannot be read, belongs to no shard, or has a wrong position.

    A lease that its owner renews is not deleted; the row is watched for --failover-time. The audit log keeps the row as it was.

    \b
    Examples:
      kinesis-sdk leases delete-row billing --row shardId-000000000777 --dry-run
      kinesis-sdk leases delete-row billing --row 7 --yes
    """,
)


drain: click.Command = change_command(
    "drain",
    text=r"""Drain a worker: it hands off all its leases and takes no new ones, but keeps running.

    This lasts until `undrain`, or until the worker stops.

    The command returns when no row has named the worker for two failover times.

    \b
    Example:
      kinesis-sdk worker drain billing web07:4711
    """,
)


undrain: click.Command = change_command(
    "undrain",
    text=r"""End a drain: the worker takes leases again.

    \b
    Example:
      kinesis-sdk worker undrain billing web07:4711
    """,
)


_SKIP_UNREADABLE = click.option(
    "--skip-unreadable",
    is_flag=True,
    help="Save the other rows if some cannot be read. An import does not restore the positions in the unreadable ones.",
)


def _saved(desk: Desk, *, skip_unreadable: bool) -> Export:
    """Return the leases to save, and print each row that is left out."""
    from kinesis_sdk.admin.changes.plans import export_leases

    try:
        found = export_leases(desk, skip_unreadable=skip_unreadable)
    except ChangeRefusedError as error:
        refuse(
            f"Nothing was saved: {error}. Repair them (`kinesis-sdk doctor` shows them), or add --skip-unreadable."
        )
    for key, reason in found.left_out.items():
        note(f"Left out: {key} cannot be read ({printable(reason)}).")
    return found


@click.command(short_help="Save the leases to a file.")
@application_options
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write [default: standard output].",
)
@_SKIP_UNREADABLE
@JSON_OPTION
@with_exit_codes
def export(output: Path | None, skip_unreadable: bool, as_json: bool, app: ApplicationOptions) -> None:
    r"""Save the leases of an application, one JSON line each. It changes nothing, and works while the application runs.

    If a row cannot be read, nothing is saved, and the exit code is 4.

    Standard output always has JSON lines; with --output, --json prints a summary of the saved leases.

    \b
    Example:
      kinesis-sdk leases export billing -o billing.jsonl
    """
    found = _saved(desk_of(app), skip_unreadable=skip_unreadable)
    text = "".join(f"{line}\n" for line in found.lines())
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        if as_json:
            print_json({"file": str(output), "leases": len(found.rows), "left_out": found.left_out})
    note(f"{counted(len(found.rows), 'lease')} saved.")


def _save_leases(
    desk: Desk, _planned: Planned, *, backup: Path | None, no_backup: bool, skip_unreadable: bool
) -> dict[str, Any]:
    """Save the leases of an application before it is deleted."""
    if no_backup:
        return {"backup": None}
    from kinesis_sdk.admin.changes.audit import default_audit_log

    name = desk.application.name
    saved = backup or default_audit_log().with_name(f"{name}-{time.strftime('%Y%m%dT%H%M%S')}.jsonl")
    try:
        found = _saved(desk, skip_unreadable=skip_unreadable)
    except ConfigError as error:
        refuse(f"The leases cannot be saved ({error}). Give --stream, or --no-backup.")
    saved.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    saved.write_text("".join(f"{line}\n" for line in found.lines()), encoding="utf-8")
    note(f"Saved: {saved}")
    return {"backup": str(saved)}


delete_app: click.Command = change_command(
    "delete-app",
    text=r"""Delete an application that has stopped, with the tables that a KCL 3 keeps beside its lease table.

    The table is watched for two failover times first. A worker that is started later begins at its initial position.

    \b
    Example:
      kinesis-sdk leases delete-app billing
    """,
    options=(
        click.option(
            "--backup",
            type=click.Path(dir_okay=False, path_type=Path),
            help="File to which the leases are saved first [default: beside the audit log].",
        ),
        click.option("--no-backup", is_flag=True, help="Do not save the leases."),
        _SKIP_UNREADABLE,
    ),
    before=_save_leases,
)
