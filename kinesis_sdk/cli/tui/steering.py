"""Changes behind the keys, carried out by `kinesis_sdk.admin.changes`."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.changes.handler_control import HandlerControl
from kinesis_sdk.admin.changes.plan import ChangePlan
from kinesis_sdk.admin.changes.positions import REWIND_STARTS, SKIP_STARTS, parse_start
from kinesis_sdk.admin.changes.steering import Steering
from kinesis_sdk.cli.steer import surroundings
from kinesis_sdk.cli.tui.changes import Command, Planned
from kinesis_sdk.common.errors import AdminError, ChangeRefusedError

_WAIT = 60.0
"""Seconds to wait for an owner that acts on a change."""


class SteeringChanges:
    """Plans and makes changes of one application. Each plan has a `Steering` of its own, because they run in threads.

    Args:
        application: The application.
        failover_time: Failover time of its workers.
        wait: Seconds to wait for an owner that acts on a change.
        audit_log: The audit log; None takes the default one.
    """

    def __init__(
        self,
        application: Application,
        *,
        failover_time: float = 10.0,
        wait: float = _WAIT,
        audit_log: Path | None = None,
    ) -> None:
        self._application = application
        self._audit_log = audit_log
        self._failover_time = failover_time
        self._wait = wait
        self._stopped = threading.Event()

    def plan(self, command: Command) -> Planned:
        """Return what a command would write. Nothing is written.

        Raises:
            ConfigError: If the target of the command cannot be read.
            KinesisSdkError: If a call failed.
        """
        around = surroundings()
        sleep = around["sleep"]

        def pause(seconds: float) -> None:
            sleep(seconds)
            if self._stopped.is_set():
                raise AdminError("left before a worker was seen to act on the change")

        settings: dict[str, Any] = {
            "failover_time": self._failover_time,
            "audit_log": self._audit_log,
            "clock": around["clock"],
            "sleep": pause,
        }
        if command.verb in ("retry", "skip-record"):
            return self._plan_request(command, HandlerControl(self._application, **settings))
        steering = Steering(self._application, **settings)
        shards = [command.shard]
        if command.verb == "release":
            plan = steering.plan_release(shards)
        elif command.verb == "move":
            plan = steering.plan_move(shards, command.to or "")
        else:
            rewinds = command.verb == "rewind"
            kinds = REWIND_STARTS if rewinds else SKIP_STARTS
            start = parse_start(command.to or "", kinds, now=around["clock"].time())
            plan = steering.plan_rewind(start, shards) if rewinds else steering.plan_skip(start, shards)
        return Planned(
            command,
            tuple(describe(plan)),
            refused=bool(plan.refusals) or not plan.changes,
            act=lambda: [
                f"{outcome.goal.shard_id}: {outcome.status.value}. {outcome.message}".rstrip(". ") + "."
                for outcome in steering.apply(plan, wait=self._wait)
            ],
        )

    def _plan_request(self, command: Command, control: HandlerControl) -> Planned:
        try:
            is_retry = command.verb == "retry"
            plan = control.plan_retry(command.shard) if is_retry else control.plan_leave_out(command.shard)
        except ChangeRefusedError as error:
            return Planned(command, (f"Refused: {error}",), refused=True)
        arguments = tuple(shlex.split(str(command)))[1:]
        return Planned(
            command,
            (plan.write, plan.effect, *plan.warnings),
            act=lambda: [control.apply(plan, wait=self._wait, command=arguments)],
        )

    def apply(self, planned: Planned) -> Sequence[str]:
        """Make a change, wait for its owner, and return what happened.

        Raises:
            KinesisSdkError: If it failed.
        """
        assert planned.act is not None
        return planned.act()

    def stop(self) -> None:
        """Make a change that is under way end at its next wait; what was written stays. From any thread."""
        self._stopped.set()


def describe(plan: ChangePlan) -> list[str]:
    """Return what a plan writes, and what follows from it, line by line."""
    lines = [
        f"Refused: {refusal.shard_id or plan.application}: {refusal.reason}" for refusal in plan.refusals
    ]
    for change in plan.changes:
        owner = change.owner or "no owner"
        lines.append(f"{change.goal.shard_id}, {owner}:")
        lines += [f"  {difference}" for difference in change.differences]
        lines += [f"  {text}" for text in (change.goal.effect, change.guarantee) if text]
    lines += [f"{one.goal.shard_id}: unchanged, {one.reason}" for one in plan.unchanged]
    return [*lines, *plan.notes]
