"""Changes to leases and workers for the console: passes calls on to `kinesis_sdk.admin.changes`, without decisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kinesis_sdk.admin import Connection
from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.changes.description import ChangeDescription, Status, Write
from kinesis_sdk.admin.changes.desk import Desk
from kinesis_sdk.admin.changes.operations import OPERATIONS, Operation
from kinesis_sdk.cli.spelling import options_of, spell
from kinesis_sdk.cli.web.backend import JsonObject
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import ConfigError, KinesisSdkError
from kinesis_sdk.common.position_text import parse_duration

_OFFERED = (
    "rewind",
    "skip-to",
    "release",
    "move",
    "pin",
    "unpin",
    "retry",
    "skip-record",
    "drain",
    "undrain",
)
"""Operations that the pages have."""

Act = Callable[[Callable[[str], None]], JsonObject]
"""Makes a change. Is passed a callback for lines of progress, and returns the outcome."""


class AdminPlanner:
    """Plans and makes changes to leases and workers over one connection.

    Args:
        stream: Stream of the applications whose rows do not name theirs; None searches for it.
        table: Lease table, if there is one application; None for the table with the application's name.
        failover_time: Seconds without a change after which an owner counts as dead: the workers' own setting.
        audit_log: None takes the default audit log.
        threads: Maximum number of shards that are read concurrently.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        stream: str | None = None,
        table: str | None = None,
        failover_time: float = 10.0,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
        audit_log: Path | None = None,
        threads: int = 16,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._table = table
        self._settings: dict[str, Any] = {
            "failover_time": failover_time,
            "clock": clock or SystemClock(),
            "sleep": sleep,
            "audit_log": audit_log,
            "threads": threads,
        }

    def plan(self, application: str, request: Mapping[str, Any]) -> tuple[JsonObject, Act]:
        """Plan a change; nothing is written yet. See `Planner.plan`.

        The request has ``operation``, and the parameters of the operation by their options; ``leases`` has the keys for ``shard``.
        """
        name = request.get("operation")
        if name not in _OFFERED:
            raise ConfigError("operation", name or "", f"one of {', '.join(_OFFERED)}")
        operation = OPERATIONS[name]
        lines: list[Callable[[str], None]] = []  # no page listens while the plan is made
        desk = Desk(
            application=Application(
                self._connection, application, table_name=self._table, stream=self._stream
            ),
            report=lambda text: lines[-1](text) if lines else None,
            **self._settings,
        )
        planned = operation.plan_texts(desk, {**request, "shard": _leases(operation, request)})
        if planned.description.refusals:
            raise KinesisSdkError("; ".join(planned.description.refusals))

        def act(line: Callable[[str], None]) -> JsonObject:
            lines.append(line)
            wait = parse_duration(operation.wait, field="wait") if operation.wait else 0.0
            result = planned.apply(wait=wait)
            text = " ".join(result.lines)
            if result.status is Status.REFUSED:
                raise KinesisSdkError(text)
            return {"text": text or "There was nothing to write."}

        return show(planned.description, application, options_of(self._connection)), act


def _leases(operation: Operation, request: Mapping[str, Any]) -> list[str] | str | None:
    """Return the leases in a request, in the form that the operation accepts."""
    takes = next((one for one in operation.parameters if one.option == "shard" or one.name == "shard"), None)
    if takes is None:
        return None
    leases = request.get("leases")
    if not isinstance(leases, list) or not leases or not all(isinstance(one, str) and one for one in leases):
        raise ConfigError("leases", leases, "a list of keys of leases")
    if takes.many:
        return list(map(str, leases))
    if len(leases) != 1:
        raise ConfigError("leases", leases, f"exactly one lease for {operation.verb}")
    return str(leases[0])


def show(description: ChangeDescription, application: str, options: Sequence[str] = ()) -> JsonObject:
    """Return the data that the page shows before a change: its effects, its warnings, the exact writes, and the command."""
    return {
        "title": description.title,
        "command": spell(description.command, options),
        "empty": not description.writes,
        "effects": [
            *(effect for effect in map(_effect, description.writes) if effect),
            *description.effects,
            *(f"{name}: nothing to write, {reason}" for name, reason in description.unchanged),
        ],
        "warnings": list(description.warnings),
        "writes": [
            {"title": f"{write.call} {application} {write.row}", "lines": list(write.lines)}
            for write in description.writes
        ],
    }


def _effect(write: Write) -> str:
    text = ": ".join(part for part in (write.effect, write.guarantee) if part)
    return text[:1].upper() + text[1:]
