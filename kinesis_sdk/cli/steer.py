"""Commands that change a live application: rewind, skip, release, move, pin, and drain. No logic of their own."""

from __future__ import annotations

import functools
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kinesis_sdk.admin.fleet.words import counted
from kinesis_sdk.cli.application import ApplicationOptions, application_options
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
    from kinesis_sdk.admin.applications import Application
    from kinesis_sdk.admin.changes.execute import Outcome
    from kinesis_sdk.admin.changes.handler_control import HandlerControl
    from kinesis_sdk.admin.changes.plan import ChangePlan
    from kinesis_sdk.admin.changes.positions import Start
    from kinesis_sdk.admin.changes.removal import Removal
    from kinesis_sdk.admin.changes.row_removal import RowRemoval
    from kinesis_sdk.admin.changes.steering import Steering
    from kinesis_sdk.admin.changes.transfer import Export
    from kinesis_sdk.admin.changes.workers import WorkerMarks

_F = TypeVar("_F", bound=Callable[..., Any])
_SHOWN = 20
"""Maximum number of rows whose exact write is shown; ``--json --dry-run`` shows all."""


class StartType(ParamType):
    """A start, see `kinesis_sdk.admin.changes.positions.parse_start`.

    Args:
        skips: Whether it is that of a skip instead of a rewind.
    """

    name = "start"

    def __init__(self, *, skips: bool) -> None:
        self._skips = skips

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        """Return the start."""
        from kinesis_sdk.admin.changes.positions import REWIND_STARTS, SKIP_STARTS, parse_start

        try:
            return parse_start(value, SKIP_STARTS if self._skips else REWIND_STARTS, now=time.time())
        except ConfigError as error:
            self.fail(rejected(error), param, ctx)


def change_options(command: _F) -> _F:
    """Add the options of `application_options` and those of every change, and turn errors into exit codes."""
    for option in (
        application_options,
        click.option(
            "--audit-log",
            metavar="FILE",
            type=click.Path(dir_okay=False, path_type=Path),
            help="File to which each change is appended; by default kinesis-sdk/audit.jsonl in the user's state directory.",
        ),
        JSON_OPTION,
        click.option("--dry-run", is_flag=True, help="Show what would be changed, and change nothing."),
        YES_OPTION,
    ):
        command = option(command)
    return with_exit_codes(_with_refusals(command))


def _with_refusals(function: _F) -> _F:
    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (ChangeRefusedError, AuditLogError) as error:
            raise CommandError(str(error), ExitCode.REFUSED) from error

    return guarded  # type: ignore[return-value]


_SHARDS = click.option(
    "--shard",
    "shards",
    multiple=True,
    metavar="SHARD",
    help="Only this shard, for example 3; may be given several times.",
)
WAIT_OPTION = click.option(
    "--timeout",
    "wait",
    type=DURATION,
    default="60s",
    show_default=True,
    help="How long to wait until the owners act on the change; the change goes on. 0s does not wait.",
)
"""``--timeout``, passed as ``wait``."""


def surroundings() -> dict[str, Any]:
    """Return the clock and the sleep of all commands; tests replace this function."""
    return {"clock": SystemClock(), "sleep": time.sleep}


class Session:
    """Application and settings that the options of a command name.

    Args:
        app: The application.
        options: The other values of `change_options`.
    """

    def __init__(self, app: ApplicationOptions, options: dict[str, Any]) -> None:
        self.yes: bool = options["yes"]
        self.dry_run: bool = options["dry_run"]
        self.as_json: bool = options["as_json"]
        self.application: Application = app.open()
        self._common: dict[str, Any] = {
            "failover_time": app.failover_time,
            "audit_log": options["audit_log"],
            "report": note,
            **surroundings(),
        }

    def steering(self) -> Steering:
        """Return the steering of the application."""
        from kinesis_sdk.admin.changes.steering import Steering

        return Steering(self.application, **self._common)

    def marks(self) -> WorkerMarks:
        """Return the workers of the application."""
        from kinesis_sdk.admin.changes.workers import WorkerMarks

        return WorkerMarks(self.application, **self._common)

    def control(self) -> HandlerControl:
        """Return what asks the owners of shards whose handlers fail."""
        from kinesis_sdk.admin.changes.handler_control import HandlerControl

        return HandlerControl(self.application, **self._common)

    def removal(self) -> Removal:
        """Return the removal of the application."""
        from kinesis_sdk.admin.changes.removal import Removal

        return Removal(self.application, **self._common)

    def row_removal(self) -> RowRemoval:
        """Return the removal of single rows of the application."""
        from kinesis_sdk.admin.changes.row_removal import RowRemoval

        return RowRemoval(self.application, **self._common)

    def command(self, *parts: str) -> tuple[str, ...]:
        """Return a command of this application, as the user could type it."""
        application = self.application
        table = () if application.table_name == application.name else ("--table", application.table_name)
        return (*parts, *table, *application.connection.options)

    def run(
        self,
        steering: Steering,
        plan: ChangePlan,
        wait: float,
        question: str,
        *,
        counts_unchanged: bool = False,
    ) -> None:
        """Show a plan, ask, apply it, and tell what became of it.

        Args:
            steering: Made the plan.
            plan: The plan.
            wait: Seconds to wait until owners act on it.
            question: What to ask.
            counts_unchanged: Whether rows that need no change are counted, and not listed.
        """
        if self.dry_run and self.as_json:
            print_json({"plan": plan.to_dict(), "outcomes": []})
        else:
            show_plan(plan, counts_unchanged=counts_unchanged)
        if plan.refusals:
            refuse("Nothing was changed: " + "; ".join(one.reason for one in plan.refusals))
        if self.dry_run:
            return
        if plan.changes:
            confirm(question, yes=self.yes)
            try:
                outcomes = steering.apply(plan, wait=wait)
            except (KeyboardInterrupt, AwsError, LeaseStoreError, AuditLogError):
                tell_interrupted(steering, plan)
                raise
        else:
            outcomes = []
        if self.as_json:
            print_json({"plan": plan.to_dict(), "outcomes": [outcome.to_dict() for outcome in outcomes]})
        finish(steering, plan, outcomes)


def show_plan(plan: ChangePlan, *, counts_unchanged: bool = False) -> None:
    """Print a plan on standard error: the exact writes, what they mean, and the command."""
    from kinesis_sdk.admin.changes.plan import Action

    for change in plan.changes[:_SHOWN]:
        owner = "no worker" if change.owner is None else printable(change.owner)
        kind = "" if change.kind is None else f" ({change.kind.value})"
        effect = f": {change.goal.effect}" if change.goal.effect else ""
        note(f"{change.goal.shard_id}, held by {owner}{kind}: {change.recipe.value}{effect}")
        for line in change.differences:
            note(f"    {line}")
    if len(plan.changes) > _SHOWN:
        note(f"… and {len(plan.changes) - _SHOWN} more rows; --dry-run --json shows all of them")
    for text in dict.fromkeys(change.guarantee for change in plan.changes if change.guarantee):
        note(f"What to expect: {text}.")
    if counts_unchanged:
        if plan.unchanged:
            note(f"{counted(len(plan.unchanged), 'row')} unchanged; -v lists them")
    else:
        for one in plan.unchanged if plan.action is Action.IMPORT else plan.unchanged[:_SHOWN]:
            note(f"{one.goal.shard_id}: unchanged, {one.reason}")
    for text in plan.notes:
        note(f"Note: {text}")
    note(f"Command: kinesis-sdk {shlex.join(plan.command)}")


def tell_interrupted(steering: Steering, plan: ChangePlan) -> None:
    """Tell what was done before Ctrl-C or an error, and how to do the rest."""
    done = [one for one in steering.outcomes if one.written is not None]
    note(f"Interrupted: {len(done)} of {len(plan.changes)} rows were written, see the audit log.")
    rest = steering.remaining(plan)
    if rest:
        note(f"The rest: kinesis-sdk {shlex.join(rest)}")


def finish(steering: Steering, plan: ChangePlan, outcomes: list[Outcome]) -> None:
    """End the command with the exit code of the outcomes."""
    from kinesis_sdk.admin.changes.execute import Status

    bad = [one for one in outcomes if one.status is Status.REFUSED]
    if bad:
        rest = steering.remaining(plan)
        if rest:
            note(f"The rest: kinesis-sdk {shlex.join(rest)}")
        raise CommandError("; ".join(f"{one.goal.shard_id}: {one.message}" for one in bad), ExitCode.REFUSED)
    unread = [one for one in outcomes if one.written is not None and one.noticed_after is None]
    if unread and any(one.message.startswith("written, but") for one in unread):
        raise CommandError(
            "1 row was written, and no worker acts on it: start one"
            if len(unread) == 1
            else f"{len(unread)} rows were written, and no worker acts on them: start one",
            ExitCode.BAD_ANSWER,
        )
    written = sum(1 for one in outcomes if one.written is not None)
    note(f"Done: {counted(written, 'row')} written." if written else "Nothing to do.")


@click.command(short_help="Process records again, from a time, a record or the horizon.")
@change_options
@click.option(
    "--to",
    required=True,
    type=StartType(skips=False),
    metavar="START",
    help="A time (2026-11-21T09:00:00Z, or -15m: so long ago), TRIM_HORIZON, LATEST, or a record (at:<sequence number>).",
)
@_SHARDS
@WAIT_OPTION
def rewind(to: Start, shards: tuple[str, ...], wait: float, app: ApplicationOptions, **options: Any) -> None:
    r"""Process records again: every record from START on comes once more, and none is skipped.

    Without --shard, all shards are rewound, those included that have ended since, and their children begin again after them.
    LATEST stores a position for shards that have none yet.

    If START is the sequence number of a repetition (put().result() may return one), the first copy of its records is meant, because that is
    the one that is delivered. If it lies in a parent, the shard is rewound to its beginning, and the command for the parent is printed.

    \b
    Examples:
      kinesis-sdk leases rewind billing --to -15m --dry-run
      kinesis-sdk leases rewind billing --to 2026-11-21T09:00:00Z
      kinesis-sdk leases rewind billing --to TRIM_HORIZON --shard 3 --yes
    """
    session = Session(app, options)
    steering = session.steering()
    plan = steering.plan_rewind(to, shards)
    session.run(steering, plan, wait, f"Rewind {counted(len(plan.changes), 'shard')} of {plan.application}?")


@click.command("skip-to", short_help="Leave records out: continue at a later position.")
@change_options
@click.option(
    "--to",
    required=True,
    type=StartType(skips=True),
    metavar="START",
    help="A time, LATEST, the first record to process (at:<sequence number>), or the last one to skip (after:<sequence number>).",
)
@_SHARDS
@WAIT_OPTION
def skip_to(to: Start, shards: tuple[str, ...], wait: float, app: ApplicationOptions, **options: Any) -> None:
    r"""Leave records out: every shard continues at START.

    A live owner finishes its batch and checkpoints first. What lies between that checkpoint, which is shown, and START is skipped,
    and nothing else.

    \b
    Examples:
      kinesis-sdk leases skip-to billing --to LATEST --shard 3
      kinesis-sdk leases skip-to billing --to 2026-11-21T09:00:00Z --dry-run
      kinesis-sdk leases skip-to billing --to after:49653519871253469812/7 --shard 3
    """
    session = Session(app, options)
    steering = session.steering()
    plan = steering.plan_skip(to, shards)
    session.run(
        steering, plan, wait, f"Skip records of {counted(len(plan.changes), 'shard')} of {plan.application}?"
    )


@click.command(short_help="Take a lease from its owner; another worker continues.")
@change_options
@click.option(
    "--shard",
    "shards",
    multiple=True,
    required=True,
    metavar="SHARD",
    help="The shard; may be given several times.",
)
@WAIT_OPTION
def release(shards: tuple[str, ...], wait: float, app: ApplicationOptions, **options: Any) -> None:
    r"""Take leases from their owners: the live worker with the fewest leases gets them.

    \b
    Example:
      kinesis-sdk leases release billing --shard 3
    """
    session = Session(app, options)
    steering = session.steering()
    plan = steering.plan_release(shards)
    session.run(steering, plan, wait, f"Release {counted(len(plan.changes), 'lease')} of {plan.application}?")


@click.command(short_help="Move leases to a live worker.")
@change_options
@click.option(
    "--shard",
    "shards",
    multiple=True,
    required=True,
    metavar="SHARD",
    help="The shard; may be given several times.",
)
@click.option("--to", "worker", required=True, metavar="WORKER", help="Id of the worker.")
@click.option(
    "--swap",
    is_flag=True,
    help="Give one of the worker's leases to the present owner in return; for one shard.",
)
@WAIT_OPTION
def move(
    shards: tuple[str, ...], worker: str, swap: bool, wait: float, app: ApplicationOptions, **options: Any
) -> None:
    r"""Move leases to a live worker of this SDK or of KCL 3.

    The workers balance by themselves: a move that unbalances them is undone within seconds. --swap keeps the balance, and
    `leases pin` keeps the lease where it is.

    \b
    Example:
      kinesis-sdk leases move billing --shard 3 --to web07:4711 --swap
    """
    session = Session(app, options)
    steering = session.steering()
    plan = steering.plan_move(shards, worker, swap=swap)
    session.run(steering, plan, wait, f"Move {counted(len(plan.changes), 'lease')} of {plan.application}?")


@click.command(short_help="Give a lease to one worker for as long as it is alive.")
@change_options
@click.option("--shard", required=True, metavar="SHARD", help="The shard.")
@click.option("--to", "worker", required=True, metavar="WORKER", help="Id of the worker.")
def pin(shard: str, worker: str, app: ApplicationOptions, **options: Any) -> None:
    r"""Pin a lease: workers of this SDK give it to WORKER while it is alive, and take it as any other when it is not.

    WORKER has to be in the lease table: a worker of this SDK shows itself there within seconds of its start, also without
    leases. For a worker that is still to come, start it first; its id is a setting (`worker_id`). Java workers do not know
    pins.

    \b
    Example:
      kinesis-sdk leases pin billing --shard 3 --to web07:4711
    """
    _pin(
        Session(app, options),
        shard,
        worker,
        ("leases", "pin", app.name, "--shard", shard, "--to", worker),
    )


@click.command(short_help="Remove the pin of a lease.")
@change_options
@click.option("--shard", required=True, metavar="SHARD", help="The shard.")
def unpin(shard: str, app: ApplicationOptions, **options: Any) -> None:
    r"""Remove the pin of a lease, so that the workers balance it as any other.

    \b
    Example:
      kinesis-sdk leases unpin billing --shard 3
    """
    _pin(Session(app, options), shard, None, ("leases", "unpin", app.name, "--shard", shard))


def _pin(session: Session, shard: str, worker: str | None, command: tuple[str, ...]) -> None:
    marks = session.marks()
    write = marks.plan_pin(shard, worker)
    command = session.command(*command)
    _show_marks([write], command)
    if session.dry_run:
        if session.as_json:
            print_json({"writes": [write], "done": False})
        return
    confirm("Write this?", yes=session.yes)
    marks.pin(shard, worker, command=command)
    if session.as_json:
        print_json({"writes": [write], "done": True})
    note("Done. The workers act on it with their next balancing, within seconds.")


def _show_marks(writes: list[str], command: tuple[str, ...]) -> None:
    for write in writes:
        note(write)
    note(f"Command: kinesis-sdk {shlex.join(command)}")


_SKIP_UNREADABLE = click.option(
    "--skip-unreadable",
    is_flag=True,
    help="Save the other rows if some cannot be read. An import does not bring back the positions of their shards.",
)


def _saved(steering: Steering, *, skip_unreadable: bool) -> Export:
    """Return the leases to save, and name each row that is left out."""
    try:
        found = steering.export(skip_unreadable=skip_unreadable)
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

    Standard output has JSON lines in any case; with --output, --json prints what was saved.

    \b
    Example:
      kinesis-sdk leases export billing -o billing.jsonl
    """
    from kinesis_sdk.admin.changes.steering import Steering

    steering = Steering(app.open(), failover_time=app.failover_time, report=note, **surroundings())
    found = _saved(steering, skip_unreadable=skip_unreadable)
    text = "".join(f"{line}\n" for line in found.lines())
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        if as_json:
            print_json({"file": str(output), "leases": len(found.rows), "left_out": found.left_out})
    note(f"{counted(len(found.rows), 'lease')} saved.")


@click.command("import", short_help="Bring the leases to the positions of a saved file.")
@change_options
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--verbose", "-v", is_flag=True, help="List the rows that need no change, too.")
@WAIT_OPTION
def import_leases(file: Any, verbose: bool, wait: float, app: ApplicationOptions, **options: Any) -> None:
    r"""Restore the leases of `leases export`: rows that are missing are put back, the others are rewound or skipped.

    The table is created if it is missing. If the command is interrupted, repeat it: rows that are restored already stay as they are.

    \b
    Example:
      kinesis-sdk leases import billing billing.jsonl --dry-run
    """
    from kinesis_sdk.admin.changes.transfer import parse_export

    session = Session(app, options)
    steering = session.steering()
    plan = steering.plan_import(parse_export(file, file.name), file=file.name)
    session.run(
        steering,
        plan,
        wait,
        f"Change {counted(len(plan.changes), 'lease')} of {plan.application}?",
        counts_unchanged=not verbose,
    )


@click.command("delete-row", short_help="Delete one row that no worker can use.")
@change_options
@click.option("--row", required=True, metavar="KEY", help="Key of the row, or the number of its shard.")
def delete_row(row: str, app: ApplicationOptions, **options: Any) -> None:
    r"""Delete one row of the lease table: one that cannot be read, that is of no shard, or whose position is wrong.

    A lease that its owner renews is not deleted; the row is watched for --failover-time. The audit log keeps the row as it was.

    \b
    Examples:
      kinesis-sdk leases delete-row billing --row shardId-000000000777 --dry-run
      kinesis-sdk leases delete-row billing --row 7 --yes
    """
    session = Session(app, options)
    removal = session.row_removal()
    plan = removal.plan(row)
    command = session.command("leases", "delete-row", session.application.name, "--row", plan.lease_key)
    call = session.application.table.operation(plan.write.kind)
    note(f"{call} {printable(plan.lease_key)}, on condition that the row is as it was read")
    for effect in plan.effects:
        note(f"What to expect: {effect}.")
    note(f"Command: kinesis-sdk {shlex.join(command)}")
    if not session.dry_run:
        confirm(f"Delete the row {printable(plan.lease_key)}?", yes=session.yes)
        removal.delete(plan, command=command)
    if session.as_json:
        print_json({"row": plan.lease_key, "effects": plan.effects, "deleted": not session.dry_run})
    if not session.dry_run:
        note("Done: 1 row deleted. The audit log has it as it was.")


@click.command("delete-app", short_help="Delete a stopped application: its lease table.")
@change_options
@click.option(
    "--backup",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to which the leases are saved first [default: beside the audit log].",
)
@click.option("--no-backup", is_flag=True, help="Do not save the leases.")
@_SKIP_UNREADABLE
def delete_app(
    backup: Path | None, no_backup: bool, skip_unreadable: bool, app: ApplicationOptions, **options: Any
) -> None:
    r"""Delete an application that has stopped, with the tables that a KCL 3 keeps beside its lease table.

    The table is watched for two failover times first. A worker that is started later begins at its initial position.

    \b
    Example:
      kinesis-sdk leases delete-app billing
    """
    session = Session(app, options)
    removal = session.removal()
    plan = removal.plan()
    name = printable(plan.application)
    command = session.command("leases", "delete-app", plan.application)
    for call in plan.calls:
        note(printable(call))
    lost = f"{counted(plan.leases, 'lease')} and {'its position is' if plan.leases == 1 else 'their positions are'} lost"
    note(f"{lost}; a worker that starts later begins at its initial position.")
    note(f"Command: kinesis-sdk {shlex.join(command)}")
    if session.dry_run:
        if session.as_json:
            print_json({"tables": plan.tables, "deleted": False})
        return
    if not session.yes:
        confirm_name(plan.application)
    saved = None
    if not no_backup:
        from kinesis_sdk.admin.changes.audit import default_audit_log

        saved = backup or default_audit_log().with_name(
            f"{plan.application}-{time.strftime('%Y%m%dT%H%M%S')}.jsonl"
        )
        try:
            found = _saved(session.steering(), skip_unreadable=skip_unreadable)
        except ConfigError as error:
            refuse(f"The leases cannot be saved ({error}). Give --stream, or --no-backup.")
        saved.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        saved.write_text("".join(f"{line}\n" for line in found.lines()), encoding="utf-8")
        note(f"Saved: {saved}")
    removal.delete(plan, command=command)
    if session.as_json:
        print_json({"tables": plan.tables, "deleted": True, "backup": None if saved is None else str(saved)})
    note(f"Done: {name} is deleted.")


def confirm_name(application: str) -> None:
    """Let the user type the name of the application.

    Raises:
        CommandError: If the answer is another one, or standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        refuse(
            "Nothing was changed: standard input is not a terminal, so the question cannot be asked. Add --yes for scripts."
        )
    if click.prompt("Type the name of the application to delete it", err=True) != application:
        refuse("Nothing was changed.")
