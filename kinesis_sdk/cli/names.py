"""Names of applications, streams and workers: completed in a shell, and suggested instead of a wrong name.

Completion and suggestion call AWS, for two seconds at most, and are silent if AWS does not respond.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from kinesis_sdk.cli.options import ConnectionOptions, ParamType
from kinesis_sdk.common.text import printable

if TYPE_CHECKING:
    from kinesis_sdk.admin import Connection

TIMEOUT = 2.0
"""Maximum seconds to wait for names."""
_MOST = 100
"""Maximum number of names that are offered."""
_CHECKED = 20
"""Maximum number of tables that are checked; if there are more, all tables with the typed beginning are offered."""


class Name(ParamType):
    """The name of an existing application, stream or worker, passed unchanged. ``kind`` is ``application``, ``stream`` or ``worker``."""

    name = "text"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with the typed text."""
        del param
        found = in_time(lambda: _LISTS[self.kind](connection_of(ctx), ctx, incomplete))
        return [CompletionItem(name) for name in found if name.startswith(incomplete)][:_MOST]


def name_parameters(command: click.Command) -> None:
    """Add completion to all parameters that take a name, in a command and its subcommands."""
    for parameter in command.params:
        kind = _kind_of(parameter)
        if kind is not None and parameter.type is click.STRING:
            parameter.type = Name(kind)
    if isinstance(command, click.Group):
        for part in command.commands.values():
            name_parameters(part)


def _kind_of(parameter: click.Parameter) -> str | None:
    shown = (parameter.metavar or "").strip("[].").removesuffix("]")
    if shown in ("APP", "STREAM", "WORKER"):
        return {"APP": "application", "STREAM": "stream", "WORKER": "worker"}[shown]
    return "stream" if parameter.name in ("stream", "source") and not parameter.metavar else None


def connection_of(context: click.Context) -> Connection:
    """Return the connection that the typed options of a command name."""
    given = {name: context.params.get(name) for name in ("region", "profile", "endpoint_url", "lease_store")}
    return ConnectionOptions(**given).connect()


def in_time(ask: Callable[[], Iterable[str]]) -> list[str]:
    """Return the result of a function that makes calls; an empty list if it fails, or takes longer than `TIMEOUT`.

    Completion and suggestions are a convenience: their errors must not prevent a user from running the command.
    """
    found: list[str] = []

    def work() -> None:
        try:
            found.extend(ask())
        except Exception:  # noqa: BLE001 - see above
            return

    thread = threading.Thread(target=work, name="kinesis-sdk-names", daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    return sorted(set(found)) if not thread.is_alive() else []


def suggestion(error: Exception) -> str:
    """Return `` Did you mean …?`` if a command named an application or a stream that does not exist; otherwise an empty text."""
    from kinesis_sdk.common.errors import LeaseTableNotFoundError, ResourceNotFoundError

    context = click.get_current_context(silent=True)
    if context is None or not isinstance(error, (LeaseTableNotFoundError, ResourceNotFoundError)):
        return ""
    kind = "application" if isinstance(error, LeaseTableNotFoundError) else "stream"
    wrong = [text for text in _given(context, kind) if text]
    known = in_time(lambda: _LISTS[kind](connection_of(context), context, "")) if wrong else []
    close = [one for text in wrong if text not in known for one in get_close_matches(text, known, n=3)]
    return f" Did you mean {' or '.join(map(printable, dict.fromkeys(close)))}?" if close else ""


def _given(context: click.Context, kind: str) -> list[str]:
    found: list[str] = []
    for parameter in context.command.params:
        if isinstance(parameter.type, Name) and parameter.type.kind == kind:
            value: Any = context.params.get(parameter.name or "")
            found += [value] if isinstance(value, str) else [*(value or ())]
    return found


def _applications(connection: Connection, _context: click.Context, begin: str) -> Sequence[str]:
    from kinesis_sdk.admin.applications import Applications

    if connection.lease_store is not None:
        return [one.name for one in Applications(connection).find()]
    tables: list[str] = []
    request: dict[str, Any] = {}
    while len(tables) < 1000:
        page = connection.dynamodb.list_tables(**request)
        tables += [name for name in page.get("TableNames", ()) if name.startswith(begin)]
        if not page.get("LastEvaluatedTableName"):
            break
        request = {"ExclusiveStartTableName": page["LastEvaluatedTableName"]}
    if len(tables) > _CHECKED:
        return [name for name in tables if not name.endswith(("-CoordinatorState", "-WorkerMetricStats"))]
    return [one.name for one in Applications(connection, tables).find()]


def _streams(connection: Connection, _context: click.Context, begin: str) -> Sequence[str]:
    names: list[str] = []
    request: dict[str, Any] = {}
    while len(names) < 1000:
        page = connection.kinesis.list_streams(**request)
        listed = page.get("StreamNames") or ()
        names += listed
        if not page.get("HasMoreStreams") or not listed:
            break
        request = {"ExclusiveStartStreamName": names[-1]}
    return [name for name in names if name.startswith(begin)]


def _workers(connection: Connection, context: click.Context, begin: str) -> Sequence[str]:
    from kinesis_sdk.admin.applications import Application

    application = context.params.get("application_name")
    if not application:
        # click parses no arguments if the value of an option is missing, as it is while that value is completed.
        application = next((text for text in context.args if not text.startswith("-")), None)
    if not application:
        return ()
    scan = Application(connection, application, table_name=context.params.get("table")).scan()
    return [lease.owner for lease in scan.leases if lease.owner and lease.owner.startswith(begin)]


_LISTS: dict[str, Callable[[Any, click.Context, str], Sequence[str]]] = {
    "application": _applications,
    "stream": _streams,
    "worker": _workers,
}
