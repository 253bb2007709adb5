"""Changes of leases for the console, over `kinesis_sdk.admin.changes`: no decisions, only the way from one to the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from kinesis_sdk.admin import Connection
from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.changes.execute import Outcome, Status
from kinesis_sdk.admin.changes.plan import ChangePlan
from kinesis_sdk.admin.changes.positions import Start
from kinesis_sdk.admin.changes.steering import Steering
from kinesis_sdk.cli.steer import StartType
from kinesis_sdk.cli.web.backend import Plain
from kinesis_sdk.cli.web.wire import command_line
from kinesis_sdk.common.errors import ConfigError, KinesisSdkError

_WAIT = 60.0
"""Seconds for which a change waits until its owner is seen to act."""


class AdminPlanner:
    """Plans and makes changes of leases over one connection.

    Args:
        connection: Account and region.
        stream: Stream of the applications whose rows do not name theirs; None searches for the one that fits.
        failover_time: Seconds without a change after which an owner counts as dead: the workers' own setting.
    """

    def __init__(
        self, connection: Connection, *, stream: str | None = None, failover_time: float = 10.0
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._failover_time = failover_time

    def plan(
        self, application: str, request: Mapping[str, Any]
    ) -> tuple[Plain, Callable[[Callable[[str], None]], Plain]]:
        """Plan a change; nothing is written yet."""
        lines: list[Callable[[str], None]] = []
        steering = Steering(
            Application(self._connection, application, stream=self._stream),
            failover_time=self._failover_time,
            report=lambda text: lines[-1](text) if lines else None,
        )
        plan = make_plan(steering, request)
        if plan.refusals:
            raise KinesisSdkError("; ".join(refusal.reason for refusal in plan.refusals))

        def act(line: Callable[[str], None]) -> Plain:
            lines.append(line)
            return tell_outcomes(steering.apply(plan, wait=_WAIT))

        return show_plan(plan, application, tuple(self._connection.options)), act


def make_plan(steering: Steering, request: Mapping[str, Any]) -> ChangePlan:
    """Return the plan that a page asks for: ``operation``, ``lease``, and ``to`` or ``worker``.

    Raises:
        ConfigError: If the request is not one of a change.
    """
    operation, lease, to = (str(request.get(name) or "") for name in ("operation", "lease", "to"))
    if not lease:
        raise ConfigError("lease", lease, "the key of a lease")
    # A table of several streams has keys of several parts, the last of which is the shard.
    shard = lease.rpartition(":")[2]
    if operation == "rewind":
        return steering.plan_rewind(read_start(to), [shard])
    if operation == "skip-to":
        return steering.plan_skip(read_start(to), [shard])
    if operation == "release":
        return steering.plan_release([lease])
    if operation == "move":
        if not to:
            raise ConfigError("to", to, "the id of a worker")
        return steering.plan_move(lease, to, swap=bool(request.get("swap")))
    raise ConfigError("operation", operation, "rewind, skip-to, release or move")


def read_start(text: str) -> Start:
    """Return the start that a text means: as ``--to`` of the command line.

    Raises:
        ConfigError: If it is not a start.
    """
    try:
        return StartType("TRIM_HORIZON", "LATEST").convert(text, None, None)
    except click.UsageError as error:
        raise ConfigError(
            "to",
            text,
            "a time such as 2026-11-21T09:00Z or 15m (ago), TRIM_HORIZON, LATEST, a sequence number",
        ) from error


def show_plan(plan: ChangePlan, application: str, options: tuple[str, ...]) -> Plain:
    """Return what the page shows before a change: its effects, its warnings, the exact writes, and the command."""
    return {
        "title": f"{plan.action.value} {', '.join(change.goal.shard_id for change in plan.changes[:3]) or application}"
        + (f" and {len(plan.changes) - 3} more" if len(plan.changes) > 3 else ""),
        "command": command_line(plan.command, options),
        "empty": not plan.changes,
        "effects": [
            *(
                _sentence(": ".join(part for part in (change.goal.effect, change.guarantee) if part))
                for change in plan.changes
            ),
            *(f"{one.goal.shard_id}: nothing to write, {one.reason}" for one in plan.unchanged),
        ],
        "warnings": list(plan.notes),
        "writes": [
            {
                "title": f"{change.write.kind.value} {application} {change.goal.lease_key}",
                "lines": change.differences,
            }
            for change in plan.changes
        ],
    }


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def tell_outcomes(outcomes: list[Outcome]) -> Plain:
    """Return what became of a change.

    Raises:
        KinesisSdkError: If a part of it was refused.
    """
    texts = []
    for one in outcomes:
        text = f"{one.goal.shard_id}: {one.message or one.status.value}"
        if one.status is Status.DONE and one.noticed_by is None:
            text += f"; no worker has acted on it within {_WAIT:.0f} s, so start one, or explain the shard"
        texts.append(text)
    if any(one.status is Status.REFUSED for one in outcomes):
        raise KinesisSdkError(". ".join(texts))
    return {"text": ". ".join(texts) or "There was nothing to write."}
