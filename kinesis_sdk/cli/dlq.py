"""The group ``kinesis-sdk dlq``: dead letters listed, shown, replayed and dropped."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kinesis_sdk.admin.changes.description import Result
from kinesis_sdk.cli.description import lines_of
from kinesis_sdk.cli.interrupts import interrupt_on_terminate
from kinesis_sdk.cli.lazy_group import LazyGroup
from kinesis_sdk.cli.options import (
    ALLOW_STREAM_OPTION,
    JSON_OPTION,
    LEASE_STORE_OPTION,
    YES_OPTION,
    ConnectionOptions,
    Ending,
    connection_options,
)
from kinesis_sdk.cli.output import CommandError, ExitCode, confirm, console, note, print_json, with_exit_codes
from kinesis_sdk.cli.spelling import options_of, speller
from kinesis_sdk.cli.steer import AUDIT_LOG_OPTION, DRY_RUN_OPTION
from kinesis_sdk.common.clock import SystemClock
from kinesis_sdk.common.errors import AuditLogError, ConfigError, DeadLetterError
from kinesis_sdk.common.text import printable

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_sdk.admin.command import Command
    from kinesis_sdk.dead_letters.letter import DeadLetter
    from kinesis_sdk.dead_letters.plans import LetterChange
    from kinesis_sdk.dead_letters.replay import ReplayProgress, Target
    from kinesis_sdk.dead_letters.store import DeadLetterStore, Selection

_F = TypeVar("_F", bound=Callable[..., Any])

_HOME = "kinesis_sdk.cli.dlq"
_DLQ = {
    "list": (f"{_HOME}:list_letters", "Count the letters by error, stream and shard."),
    "show": (f"{_HOME}:show", "Print a letter; its payload only if you ask for it."),
    "replay": (f"{_HOME}:replay", "Give letters to their handler again, or to their stream."),
    "drop": (f"{_HOME}:drop", "Remove letters for good."),
}
"""Home and short help of each command of the group."""

_PAUSE = 5.0
"""Seconds between two lines of progress."""


@click.group(cls=LazyGroup, homes=_DLQ)
def dlq() -> None:
    r"""List dead letters, show them, replay them to their handler, and drop them.

    LOCATION is where the hook `DeadLetters` keeps them: the URL of a database (sqlite:///letters.db, postgresql+psycopg://user@host/db),
    file:letters.jsonl, stream:orders-dead (a Kinesis stream), or sqs: and the URL of a queue. If it contains a password, put LOCATION into
    the environment variable KINESIS_SDK_DEAD_LETTERS.
    """


def clock_and_sleep() -> dict[str, Any]:
    """Return the clock of all commands; tests replace this function."""
    return {"clock": SystemClock()}


_LOCATION = click.argument("location", envvar="KINESIS_SDK_DEAD_LETTERS")
_SELECTION = (
    click.option(
        "--letter",
        "letters",
        multiple=True,
        metavar="ID",
        help="Only this letter; can be given several times.",
    ),
    click.option(
        "--error",
        "errors",
        multiple=True,
        metavar="CLASS",
        help="Only this class of error, such as ValueError; can be given several times.",
    ),
    click.option(
        "--shard",
        "shards",
        multiple=True,
        metavar="SHARD",
        help="Only letters of this shard; can be given several times.",
    ),
    click.option(
        "--key",
        "keys",
        multiple=True,
        metavar="KEY",
        help="Only this partition key; can be given several times.",
    ),
    click.option(
        "--application",
        "applications",
        multiple=True,
        metavar="APP",
        help="Only letters of this application; can be given several times.",
    ),
    click.option(
        "--since",
        type=Ending(),
        help="Only letters set aside at this time or later: a time, or -2h for two hours ago.",
    ),
    click.option(
        "--until",
        type=Ending(),
        help="Only letters set aside before this time: a time, or -2h for two hours ago.",
    ),
    click.option("--replayed", is_flag=True, help="Include letters that were already replayed."),
)
_EVERY = click.option(
    "--all", "every", is_flag=True, help="All letters; cannot be combined with options that select letters."
)


def selecting(command: _F) -> _F:
    """Add the options that select letters; the command receives them as ``chosen``, a `Selection`, and as parameters."""

    @functools.wraps(command)
    def gathered(*args: Any, **given: Any) -> Any:
        values = {name: given.pop(name) for name in _CHOICES}
        return command(*args, chosen=_selection(values), parameters=_parameters(values), **given)

    made: Any = with_exit_codes(gathered)
    for option in reversed(_SELECTION):
        made = option(made)
    return made  # type: ignore[no-any-return]


_CHOICES = {
    "letters": "--letter",
    "errors": "--error",
    "shards": "--shard",
    "keys": "--key",
    "applications": "--application",
    "since": "--since",
    "until": "--until",
    "replayed": "--replayed",
}


def _selection(given: dict[str, Any]) -> Selection:
    from kinesis_sdk.dead_letters.letter import State, is_letter_id
    from kinesis_sdk.dead_letters.store import Selection

    for identity in given["letters"]:
        if not is_letter_id(identity):
            raise ConfigError(
                "letter",
                identity,
                "the id of a letter, 16 hexadecimal digits, as `kinesis-sdk dlq list` prints it",
            )
    return Selection(
        ids=frozenset(given["letters"]),
        errors=frozenset(given["errors"]),
        shards=frozenset(_shard_id(shard) for shard in given["shards"]),
        keys=frozenset(given["keys"]),
        applications=frozenset(given["applications"]),
        since=_millis(given["since"]),
        until=_millis(given["until"]),
        states=frozenset(State) if given["replayed"] else Selection().states,
    )


def _shard_id(text: str) -> str:
    number = text.isascii() and text.isdigit() and len(text) <= 12
    return f"shardId-{int(text):012d}" if number else text


def _millis(moment: datetime | str | None) -> int | None:
    if moment is None:
        return None
    clock = clock_and_sleep()["clock"]
    return round((clock.time() if isinstance(moment, str) else moment.timestamp()) * 1000)


def _parameters(given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a command that selects the same letters."""
    return {
        option.removeprefix("--"): given[name].isoformat().replace("+00:00", "Z")
        if isinstance(given[name], datetime)
        else given[name]
        for name, option in _CHOICES.items()
    }


@contextmanager
def _opened(location: str, account: ConnectionOptions) -> Iterator[DeadLetterStore]:
    from kinesis_sdk.dead_letters.location import open_dead_letters

    store = open_dead_letters(location, connection=account.connect())
    try:
        yield store
    finally:
        store.close()


@click.command("list")
@_LOCATION
@selecting
@click.option("--letters", "each", is_flag=True, help="Print each letter instead of groups.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after this many letters.")
@JSON_OPTION
@connection_options
@with_exit_codes
def list_letters(
    *,
    location: str,
    chosen: Selection,
    parameters: dict[str, Any],
    each: bool,
    limit: int | None,
    as_json: bool,
    account: ConnectionOptions,
) -> None:
    r"""Count the letters of LOCATION by application, class of error, stream and shard. No payload is printed.

    A letter is open until it is replayed or dropped; a letter whose replay was killed is still listed.

    \b
    Examples:
      kinesis-sdk dlq list sqlite:///letters.db
      kinesis-sdk dlq list stream:orders-dead --error ValueError --since -2h
      kinesis-sdk dlq list file:letters.jsonl --shard 3 --letters --limit 20
      kinesis-sdk dlq list sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/letters --json | jq .letters
    """
    del parameters
    from kinesis_sdk.dead_letters.store import Grouped

    with _opened(location, account) as store:
        letters = islice(filter(chosen.accepts, store.letters()), limit)
        if each:
            _print_letters(store, list(letters), as_json=as_json)
        else:
            _print_groups(store, Grouped.of(letters), as_json=as_json)
        if store.unreadable:
            note(f"{store.unreadable:,} entries are not dead letters and are left out.")


def _print_groups(store: DeadLetterStore, found: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "location": store.location,
                "letters": found.letters,
                "size": found.size,
                "groups": found.groups,
                "ungrouped": found.ungrouped,
                "unreadable": store.unreadable,
            }
        )
        return
    if not found.letters:
        note(f"{store.location} has no such letters.")
        return
    from kinesis_sdk.cli.fleet_tables import new_table, text

    table = new_table(
        ("ERROR", "wide"),
        "APPLICATION",
        "STREAM",
        "SHARD",
        ("LETTERS", "right"),
        ("BYTES", "right"),
        "OLDEST",
        "NEWEST",
        "NEWEST LETTER",
    )
    for group in found.groups:
        replaying = f" ({group.replaying:,} replaying)" if group.replaying else ""
        table.add_row(
            text(group.error or "–"),
            text(printable(group.application) or "–"),
            text(printable(group.stream)),
            text(_shard_label(group.shard_id)),
            f"{group.letters:,}{replaying}",
            f"{group.size:,}",
            _moment(group.oldest),
            _moment(group.newest),
            group.example,
        )
    console().print(table)
    if found.ungrouped:
        note(f"{found.ungrouped:,} more letters are in other groups.")


def _print_letters(store: DeadLetterStore, letters: list[DeadLetter], *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "location": store.location,
                "letters": [letter_to_dict(one) for one in letters],
                "unreadable": store.unreadable,
            }
        )
        return
    if not letters:
        note(f"{store.location} has no such letters.")
    for one in letters:
        history = one.history
        click.echo(
            f"{one.id}  {_moment(one.set_aside)}  {history.error or '–'}  shard {_shard_label(history.origin.shard_id)}  "
            f"{printable(one.partition_key)}  {one.size:,} bytes  attempt {history.attempt}  {one.state.value}"
        )


def letter_to_dict(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter as data for JSON, without its payload or the values of its headers."""
    history, origin = letter.history, letter.history.origin
    return {
        "id": letter.id,
        "state": letter.state.value,
        "application": letter.application,
        "stream": origin.stream,
        "shard_id": origin.shard_id,
        "sequence_number": origin.sequence_number,
        "sub_sequence_number": origin.sub_sequence_number,
        "partition_key": letter.partition_key,
        "explicit_hash_key": letter.explicit_hash_key,
        "error": history.error,
        "attempt": history.attempt,
        "first_failed": history.first_failed,
        "set_aside": letter.set_aside,
        "size": letter.size,
        "headers": sorted(letter.headers),
    }


@click.command()
@_LOCATION
@click.argument("letter", metavar="ID")
@click.option("--payload", is_flag=True, help="Also print the payload and the values of the headers.")
@JSON_OPTION
@connection_options
@with_exit_codes
def show(*, location: str, letter: str, payload: bool, as_json: bool, account: ConnectionOptions) -> None:
    r"""Print the letter ID of LOCATION: the origin of its record, the reason why it was set aside, and its state.

    The payload may hold personal data, so it is printed only with --payload: as JSON, text, or hexadecimal digits.

    \b
    Examples:
      kinesis-sdk dlq show sqlite:///letters.db 8f14e45fceea167a
      kinesis-sdk dlq show sqlite:///letters.db 8f14e45fceea167a --payload
    """
    from kinesis_sdk.admin.payload import MAX_SHOWN_BYTES, decode_payload, escaped
    from kinesis_sdk.admin.records import shown_headers
    from kinesis_sdk.dead_letters.letter import is_letter_id

    if not is_letter_id(letter):
        raise ConfigError(
            "ID", letter, "16 hexadecimal digits, as `kinesis-sdk dlq list --letters` prints them"
        )
    with _opened(location, account) as store:
        found = next((one for one in store.letters(payload=payload) if one.id == letter), None)
        if found is None:
            raise DeadLetterError(
                f"{store.location} has no letter {letter}: it was dropped, or it has expired"
            )
    about = letter_to_dict(found)
    if not payload:
        decoded = None
    else:
        decoded = decode_payload(found.payload, limit=len(found.payload) if as_json else MAX_SHOWN_BYTES)
        about["headers"] = shown_headers(found.headers)
    if as_json:
        shown = (
            None
            if decoded is None
            else {"encoding": decoded.kind.value, "data": decoded.value(), "truncated": decoded.truncated}
        )
        print_json({**about, "payload": shown})
        return
    for name, value in about.items():
        moment = name in ("first_failed", "set_aside") and value is not None
        text = (
            _moment(value)
            if moment
            else value
            if isinstance(value, str)
            else json.dumps(value, ensure_ascii=False)
        )
        click.echo(f"{name:20} {printable(text, MAX_SHOWN_BYTES) or '–'}")
    if decoded is not None:
        click.echo()
        click.echo(escaped(decoded.pretty()) or "(empty)")
        if decoded.truncated:
            note(f"… {decoded.size:,} bytes in all; --json prints them.")


@click.command()
@_LOCATION
@selecting
@_EVERY
@click.option(
    "--handler",
    metavar="MODULE:NAME",
    help="Call this handler in this process, once for each letter, instead of putting records into the stream.",
)
@click.option(
    "--to", "to", metavar="STREAM", help="Put the records into this stream instead of the one they came from."
)
@ALLOW_STREAM_OPTION
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after this many letters.")
@AUDIT_LOG_OPTION
@JSON_OPTION
@DRY_RUN_OPTION
@YES_OPTION
@LEASE_STORE_OPTION
@connection_options
@with_exit_codes
def replay(
    *,
    location: str,
    chosen: Selection,
    parameters: dict[str, Any],
    every: bool,
    handler: str | None,
    to: str | None,
    allowed: tuple[str, ...],
    limit: int | None,
    audit_log: Path | None,
    as_json: bool,
    dry_run: bool,
    yes: bool,
    account: ConnectionOptions,
) -> None:
    r"""Replay letters of LOCATION: put their records back into their stream, or call a handler with them.

    In the stream, a record has its key, its headers, and the headers retry-*, which name its origin. All applications that read the stream
    get the record; --handler calls only one handler. A handler that fails leaves its letter open, with the new error.

    A letter names the stream it came from. Because a letter can be forged, its record goes back only into a stream that you confirm:
    --application allows the streams that the application's leases name, --allow-stream allows one more, and --to puts all records into one
    stream.

    Ctrl-C and kill are safe: run the same command again. It repeats only the work that was in progress: at most 100 records of
    a stream, or one call of a handler. Readers of this package drop a record that is repeated within 300 s; a handler sees the
    same record.id.

    \b
    Examples:
      kinesis-sdk dlq replay sqlite:///letters.db --application billing --error KeyError --dry-run
      kinesis-sdk dlq replay sqlite:///letters.db --letter 8f14e45fceea167a --allow-stream orders
      kinesis-sdk dlq replay file:letters.jsonl --all --handler billing.consumer:handle
      kinesis-sdk dlq replay stream:orders-dead --since -2h --to orders-repaired --yes
    """
    if handler is not None and to is not None:
        raise ConfigError("to", to, "one of --to and --handler")
    if allowed and (handler is not None or to is not None):
        raise ConfigError(
            "allow_stream",
            ", ".join(allowed),
            "not given together with --handler or --to, which do not check streams",
        )
    _check_chosen(parameters, every=every)
    applications = parameters["application"]
    parameters |= {
        "all": every,
        "handler": handler,
        "to": to,
        "allow-stream": allowed,
        "limit": None if limit is None else str(limit),
    }
    with (
        _opened(location, account) as store,
        _target(account, handler, to, allowed, applications) as target,
    ):
        _change(
            store,
            chosen,
            parameters,
            account,
            target,
            limit=limit,
            audit_log=audit_log,
            as_json=as_json,
            dry_run=dry_run,
            yes=yes,
        )


@click.command()
@_LOCATION
@selecting
@_EVERY
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after this many letters.")
@AUDIT_LOG_OPTION
@JSON_OPTION
@DRY_RUN_OPTION
@YES_OPTION
@connection_options
@with_exit_codes
def drop(
    *,
    location: str,
    chosen: Selection,
    parameters: dict[str, Any],
    every: bool,
    limit: int | None,
    audit_log: Path | None,
    as_json: bool,
    dry_run: bool,
    yes: bool,
    account: ConnectionOptions,
) -> None:
    r"""Remove letters of LOCATION for good. The records of a stream remain there until they expire.

    \b
    Examples:
      kinesis-sdk dlq drop sqlite:///letters.db --error ValueError --until -7d --dry-run
      kinesis-sdk dlq drop sqlite:///letters.db --letter 8f14e45fceea167a
      kinesis-sdk dlq drop file:letters.jsonl --all --replayed --yes
    """
    _check_chosen(parameters, every=every)
    parameters |= {"all": every, "limit": None if limit is None else str(limit)}
    with _opened(location, account) as store:
        _change(
            store,
            chosen,
            parameters,
            account,
            None,
            limit=limit,
            audit_log=audit_log,
            as_json=as_json,
            dry_run=dry_run,
            yes=yes,
        )


def _check_chosen(parameters: dict[str, Any], *, every: bool) -> None:
    if any(value for name, value in parameters.items() if name != "replayed") == every:
        raise ConfigError(
            "all",
            every,
            "either --all, or options that select letters: --letter, --error, --shard, --key, --application, --since, --until",
        )


@contextmanager
def _target(
    account: ConnectionOptions,
    handler: str | None,
    to: str | None,
    allowed: tuple[str, ...],
    applications: tuple[str, ...],
) -> Iterator[Target]:
    from kinesis_sdk.dead_letters.replay import HandlerTarget, StreamTarget

    if handler is not None:
        from kinesis_sdk.cli.run.handlers import HandlerNotFoundError, load_handler

        try:
            made: Target = HandlerTarget(load_handler(handler), handler)
        except HandlerNotFoundError as error:
            raise CommandError(str(error), ExitCode.USAGE) from error
    else:
        made = StreamTarget(account.connect(), to, allowed=allowed, applications=applications)
    try:
        yield made
    finally:
        made.close()


def _change(
    store: DeadLetterStore,
    chosen: Selection,
    parameters: dict[str, Any],
    account: ConnectionOptions,
    target: Target | None,
    *,
    limit: int | None,
    audit_log: Path | None,
    as_json: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Plan a change, show it, ask, and make it."""
    from kinesis_sdk.admin.changes.audit import AuditLog, default_audit_log
    from kinesis_sdk.admin.command import Command
    from kinesis_sdk.dead_letters.plans import LetterChange

    clock = clock_and_sleep()["clock"]
    operation = "drop-letters" if target is None else "replay-letters"
    command = Command.of(operation, location=store.location, **parameters)
    spell = speller(options_of(account.connect()))
    audit = AuditLog(audit_log or default_audit_log(), clock=clock, command=command, table=store.location)
    planned = LetterChange(
        store=store,
        selection=chosen,
        command=command,
        target=target,
        limit=limit,
        audit=audit.append,
        report=_Report(),
        now_millis=lambda: round(clock.time() * 1000),
    )
    description = planned.description
    if not (dry_run and as_json):
        note(description.title)
        for line in lines_of(description):
            note(line)
        note(f"Command: {spell(description.command)}")
    result = None
    if description.writes and not dry_run:
        confirm(description.question, yes=yes)
        result = _apply(planned, audit, spell)
    if as_json:
        print_json(planned.to_dict(result))
    if result is None:
        note("Nothing was changed." if description.writes else "Nothing to do.")
    elif result.is_pending:
        raise CommandError(result.summary, ExitCode.BAD_ANSWER)
    else:
        note(result.summary)


def _apply(planned: LetterChange, audit: Any, spell: Callable[[Command], str]) -> Result:
    try:
        audit.check()
        with interrupt_on_terminate():
            return planned.apply()
    except AuditLogError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from error
    except (KeyboardInterrupt, DeadLetterError):
        done = planned.so_far()
        if done is not None:
            note(f"Interrupted: {done.summary}")
            if done.rest:
                note(f"The rest: {spell(done.rest)}")
        raise


class _Report:
    """Prints the progress on standard error, every few seconds."""

    def __init__(self) -> None:
        self._next = time.monotonic() + (1.0 if sys.stderr.isatty() else _PAUSE)

    def __call__(self, progress: ReplayProgress) -> None:
        """Print the progress if a report is due."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PAUSE
        failed = f", {progress.failed:,} failed ({progress.problem})" if progress.failed else ""
        note(f"{progress.replayed + progress.failed:,} of {progress.total:,} letters{failed}")


def _moment(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def _shard_label(shard_id: str) -> str:
    from kinesis_sdk.admin.lineage import shard_label

    return shard_label(shard_id)
