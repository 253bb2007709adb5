"""Changes of leases and workers for the console, over `kinesis_sdk.admin.changes`: no decisions, only the way from one to the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kinesis_sdk.admin import Connection
from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.changes.execute import Outcome, Status
from kinesis_sdk.admin.changes.handler_control import HandlerControl
from kinesis_sdk.admin.changes.plan import ChangePlan
from kinesis_sdk.admin.changes.positions import REWIND_STARTS, SKIP_STARTS, parse_start
from kinesis_sdk.admin.changes.rows import WriteKind
from kinesis_sdk.admin.changes.steering import Steering
from kinesis_sdk.admin.changes.workers import WorkerMarks
from kinesis_sdk.cli.web.backend import Plain
from kinesis_sdk.cli.web.wire import command_line
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import ConfigError, KinesisSdkError
from kinesis_sdk.common.text import printable

_WAIT = 60.0
"""Seconds for which a change waits until its owner is seen to act."""
_DRAIN_WAIT = 600.0
"""Seconds for which a drain waits until the worker holds nothing."""

Act = Callable[[Callable[[str], None]], Plain]
"""Makes a change. Gets a function that takes lines of progress, and returns the outcome."""


class AdminPlanner:
    """Plans and makes changes of leases and workers over one connection.

    Args:
        connection: Account and region.
        stream: Stream of the applications whose rows do not name theirs; None searches for the one that fits.
        table: Lease table of the one application; None for the table of the application's name.
        failover_time: Seconds without a change after which an owner counts as dead: the workers' own setting.
        clock: Monotonic and wall clock.
        sleep: Waits, given seconds.
        audit_log: The audit log; None takes the default one.
        threads: Shards that are read at the same time.
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
        self._threads = threads
        self._stream = stream
        self._table = table
        self._around: dict[str, Any] = {
            "failover_time": failover_time,
            "clock": clock or SystemClock(),
            "sleep": sleep,
            "audit_log": audit_log,
        }

    def plan(self, application: str, request: Mapping[str, Any]) -> tuple[Plain, Act]:
        """Plan a change; nothing is written yet."""
        operation = str(request.get("operation") or "")
        if operation in _OF_WORKERS:
            return self._plan_worker(application, operation, _text(request, "worker", "the id of a worker"))
        if operation in _OF_PINS:
            leases = _leases(request)
            if len(leases) != 1:
                raise ConfigError("leases", leases, "exactly one lease for a pin")
            worker = _text(request, "to", "the id of a worker") if operation == "pin" else None
            return self._plan_pin(application, leases[0], worker)
        if operation in _OF_HANDLERS:
            leases = _leases(request)
            if len(leases) != 1:
                raise ConfigError("leases", leases, "exactly one lease for a request to its handler")
            return self._plan_request(application, operation, leases[0])
        lines: list[Callable[[str], None]] = []
        opened = self._open(application)
        steering = Steering(opened, report=_last(lines), threads=self._threads, **self._around)
        plan = make_plan(steering, operation, request, self._around["clock"].time())
        if plan.refusals:
            raise KinesisSdkError("; ".join(refusal.reason for refusal in plan.refusals))

        def act(line: Callable[[str], None]) -> Plain:
            lines.append(line)
            return tell_outcomes(steering.apply(plan, wait=_WAIT))

        return show_plan(plan, opened), act

    def _plan_worker(self, application: str, operation: str, worker: str) -> tuple[Plain, Act]:
        lines: list[Callable[[str], None]] = []
        opened = self._open(application)
        marks = WorkerMarks(opened, report=_last(lines), **self._around)
        writes = marks.plan_drain(worker, on=operation == "drain")
        name = printable(worker)
        command = ("worker", operation, application, worker, *self._connection.options)

        def drain(line: Callable[[str], None]) -> Plain:
            lines.append(line)
            marks.drain(worker, command=command)
            if marks.wait_drained(worker, timeout=_DRAIN_WAIT):
                return {"text": f"No lease names {name}. Stop it, or end the drain."}
            return {"text": f"{name} still holds leases; the drain goes on."}

        def undrain(line: Callable[[str], None]) -> Plain:
            lines.append(line)
            marks.undrain(worker, command=command)
            return {"text": f"{name} takes leases again."}

        effect = f"{name} takes leases again." if writes else f"{name} does not drain."
        if operation == "drain":
            effect = (
                f"{name} hands off all its leases, takes none, and stays up until the drain is ended or it stops. Each shard is "
                "idle for less than a second."
            )
        shown = _show_marks(f"{operation} {name}", command, opened, writes, [effect])
        return shown, drain if operation == "drain" else undrain

    def _plan_pin(self, application: str, lease: str, worker: str | None) -> tuple[Plain, Act]:
        lines: list[Callable[[str], None]] = []
        opened = self._open(application)
        marks = WorkerMarks(opened, report=_last(lines), **self._around)
        write = marks.plan_pin(lease, worker)
        verb = "unpin" if worker is None else "pin"
        target = () if worker is None else ("--to", worker)
        command = ("leases", verb, application, "--shard", lease, *target, *self._connection.options)

        def act(line: Callable[[str], None]) -> Plain:
            lines.append(line)
            marks.pin(lease, worker, command=command)
            return {"text": "The workers act on it with their next balancing, within seconds."}

        effect = (
            "The workers balance the lease as any other."
            if worker is None
            else f"Workers of this SDK give the lease to {printable(worker)} while it is alive and not drained. Java workers do not "
            "read pins."
        )
        return _show_marks(f"{verb} {printable(lease)}", command, opened, [write], [effect]), act

    def _plan_request(self, application: str, operation: str, lease: str) -> tuple[Plain, Act]:
        lines: list[Callable[[str], None]] = []
        opened = self._open(application)
        control = HandlerControl(opened, report=_last(lines), **self._around)
        plan = control.plan_retry(lease) if operation == "retry" else control.plan_leave_out(lease)
        command = ("leases", operation, application, "--shard", lease, *self._connection.options)

        def act(line: Callable[[str], None]) -> Plain:
            lines.append(line)
            return {"text": control.apply(plan, wait=_WAIT, command=command)}

        shown = _show_marks(
            f"{operation} {printable(plan.shard_id)}", command, opened, [plan.write], [plan.effect]
        )
        return {**shown, "warnings": list(plan.warnings)}, act

    def _open(self, application: str) -> Application:
        return Application(self._connection, application, table_name=self._table, stream=self._stream)


_OF_LEASES = ("rewind", "skip-to", "release", "move")
_OF_PINS = ("pin", "unpin")
_OF_WORKERS = ("drain", "undrain")
_OF_HANDLERS = ("retry", "skip-record")


def _last(lines: list[Callable[[str], None]]) -> Callable[[str], None]:
    """Return a function that passes a text to the newest listener. While a plan is made, the list is empty."""
    return lambda text: lines[-1](text) if lines else None


def _text(request: Mapping[str, Any], field: str, expected: str) -> str:
    value = request.get(field)
    if not isinstance(value, str) or not value:
        raise ConfigError(field, value, expected)
    return value


def _leases(request: Mapping[str, Any]) -> list[str]:
    leases = request.get("leases")
    if not isinstance(leases, list) or not leases or not all(isinstance(one, str) and one for one in leases):
        raise ConfigError("leases", leases, "a list of keys of leases")
    return leases


def make_plan(steering: Steering, operation: str, request: Mapping[str, Any], now: float) -> ChangePlan:
    """Return the plan that a page asks for: ``leases``, and ``to``, a position or a worker, and ``swap``.

    Raises:
        ConfigError: If the request is not one of a change.
    """
    if operation not in _OF_LEASES:
        known = ", ".join((*_OF_LEASES, *_OF_PINS, *_OF_HANDLERS, *_OF_WORKERS))
        raise ConfigError("operation", operation, f"one of {known}")
    leases = _leases(request)
    if operation == "release":
        return steering.plan_release(leases)
    if operation == "move":
        return steering.plan_move(
            leases, _text(request, "to", "the id of a worker"), swap=bool(request.get("swap"))
        )
    to = str(request.get("to") or "")
    if operation == "rewind":
        return steering.plan_rewind(parse_start(to, REWIND_STARTS, now=now), leases)
    return steering.plan_skip(parse_start(to, SKIP_STARTS, now=now), leases)


def _show_marks(
    title: str, command: tuple[str, ...], application: Application, writes: list[str], effects: list[str]
) -> Plain:
    """Return what the page shows before a mark is written."""
    call = f"{application.table.operation(WriteKind.UPDATE)} {application.name}"
    return {
        "title": title,
        "command": command_line(command),
        "empty": not writes,
        "effects": effects,
        "warnings": [],
        "writes": [{"title": call, "lines": [write]} for write in writes],
    }


def show_plan(plan: ChangePlan, application: Application) -> Plain:
    """Return what the page shows before a change: its effects, its warnings, the exact writes, and the command."""
    return {
        "title": f"{plan.action.value} {', '.join(change.goal.shard_id for change in plan.changes[:3]) or application.name}"
        + (f" and {len(plan.changes) - 3} more" if len(plan.changes) > 3 else ""),
        "command": command_line(plan.command),
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
                "title": f"{application.table.operation(change.write.kind)} {application.name} {change.goal.lease_key}",
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
