"""Changes triggered by key presses, carried out by `kinesis_sdk.admin.changes`."""

from __future__ import annotations

import threading
from pathlib import Path

from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.changes.desk import Desk
from kinesis_sdk.admin.changes.operations import OPERATIONS
from kinesis_sdk.admin.command import Command
from kinesis_sdk.cli.description import lines_of
from kinesis_sdk.cli.steer import clock_and_sleep
from kinesis_sdk.cli.tui.changes import Planned
from kinesis_sdk.common.errors import AdminError

_WAIT = 60.0
"""Seconds to wait for an owner to act on a change."""


class SteeringChanges:
    """Plans and makes changes to one application. Each plan has its own desk, because plans run in threads.

    Args:
        failover_time: The workers' own setting, in seconds.
        wait: Seconds to wait for an owner to act on a change.
        audit_log: None takes the default audit log.
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
        """Return the writes of a command. Nothing is written.

        Raises:
            ConfigError: If the target of the command cannot be read.
            KinesisSdkError: If a call failed.
        """
        around = clock_and_sleep()
        sleep = around["sleep"]

        def pause(seconds: float) -> None:
            sleep(seconds)
            if self._stopped.is_set():
                raise AdminError("left before a worker was seen to act on the change")

        desk = Desk(
            application=self._application,
            failover_time=self._failover_time,
            audit_log=self._audit_log,
            clock=around["clock"],
            sleep=pause,
        )
        operation, shard = OPERATIONS[command.operation], command.parameters["shard"]
        given = {
            **command.parameters,
            "shard": [shard] if any(one.many for one in operation.parameters) else shard,
        }
        planned = operation.plan_texts(desk, given)
        description = planned.description
        return Planned(
            command,
            (*(f"Refused: {reason}" for reason in description.refusals), *lines_of(description)),
            refused=bool(description.refusals) or not description.writes,
            act=lambda: planned.apply(wait=self._wait).lines,
        )

    def stop(self) -> None:
        """End a running change at its next wait; its writes stay. Called from any thread."""
        self._stopped.set()
